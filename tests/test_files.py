"""Files are written whole or not at all: a reader never sees half of one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from toporo.files import write_text, write_whole


def test_text_is_utf8_with_unix_newlines(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "Zürich → 東京\n")
    assert (tmp_path / "a.txt").read_bytes() == "Zürich → 東京\n".encode()


def test_missing_folders_are_made_and_old_content_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "runs" / "one" / "a.txt"
    write_text(str(target), "a much longer old text")
    write_text(target, "new")
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_the_target_is_untouched_until_the_new_file_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")

    def write(temporary: Path) -> None:
        assert temporary.parent == target.parent  # a rename is atomic on one file system only
        temporary.write_bytes(b"new")
        assert target.read_bytes() == b"old"

    write_whole(target, write)
    assert target.read_bytes() == b"new"


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_whole(target, fail)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    code = (
        "import os, signal, sys; from toporo.files import write_whole\n"
        "def write(path):\n"
        "    path.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_whole(sys.argv[1], write)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert target.read_text() == "old"
    write_text(target, "new")  # what the dead process left behind is not in the way
    assert target.read_text() == "new"
