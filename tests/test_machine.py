"""Threads: ``machine_cases.py`` in a process of its own, without what other tests have imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from toporo import machine
from toporo.errors import SettingError


def test_threads_are_limited_and_restored() -> None:
    cases = Path(__file__).with_name("machine_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cases.parents[1])
    assert done.returncode == 0, done.stdout + done.stderr


def test_cores_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    quota = tmp_path / "cpu.max"
    for text, expected in (("max 100000", 8), ("150000 100000", 2), ("1600000 100000", 8), ("1000 100000", 1)):
        quota.write_text(text)
        assert machine.cores(quota) == expected
    assert machine.cores(tmp_path / "none") == 8


def test_room_under_a_limit() -> None:
    used = machine.used_bytes()
    assert 1 << 20 < used < 1 << 36
    assert 1 << 39 < machine.room(1 << 40) < 1 << 40
    with pytest.raises(SettingError, match=r"the memory limit is 1\.0 MiB, but the program itself takes"):
        machine.room(1 << 20)
