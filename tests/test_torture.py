"""The commands under torture, those that are quick; ``make torture`` has them all."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "torture.py"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"),
]


def test_the_old_result_or_the_new_one_at_every_event() -> None:
    """Killed before it, and without space from it on: both in one process, whose start takes long."""
    command = [sys.executable, str(TOOL), "kills", "full", "--only", "fit --overwrite", "predict", "data get"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 |\n") == 2 * 3, "two tables of three commands without failures"
