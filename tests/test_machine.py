"""Threads: ``machine_cases.py`` in a process of its own, without what other tests have imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_threads_are_limited_and_restored() -> None:
    cases = Path(__file__).with_name("machine_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cases.parents[1])
    assert done.returncode == 0, done.stdout + done.stderr
