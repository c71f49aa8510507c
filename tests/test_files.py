"""Files are written whole or not at all: a reader never sees half of one."""

from __future__ import annotations

import os
import secrets
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from toporo.errors import DataError
from toporo.files import parse_json, replacing, write_text, write_whole


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

    def write(stream: BinaryIO) -> None:
        assert len(list(tmp_path.iterdir())) == 2  # beside the target: a rename is atomic on one file system only
        stream.write(b"new")
        assert target.read_bytes() == b"old"

    write_whole(target, write)
    assert target.read_bytes() == b"new"


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail(stream: BinaryIO) -> None:
        stream.write(b"half")
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
        "def write(stream):\n"
        "    stream.write(b'half')\n"
        "    stream.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_whole(sys.argv[1], write)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    write_text(target, "new")  # what the dead process left behind is removed
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


# ---------------------------------------------------------------- names, links, permissions, threads


def test_threads_that_write_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    texts = [f"{sign}\n" * 2000 for sign in "abcdefgh"]

    def write(text: str) -> None:
        for _ in range(50):
            write_text(target, text)
            assert target.read_text() in texts

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, texts))
    assert list(tmp_path.iterdir()) == [target]


def test_no_link_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one laid where the unfinished file would be, nor one at the target."""
    precious = tmp_path / "precious"
    precious.write_text("old")
    tokens = iter(["0000", "0000", "1111"])
    monkeypatch.setattr(secrets, "token_hex", lambda size: next(tokens))
    (tmp_path / ".a.txt.0000.part").symlink_to(precious)
    (tmp_path / "a.txt").symlink_to(precious)
    write_text(tmp_path / "a.txt", "new")
    assert precious.read_text() == "old"
    assert (tmp_path / "a.txt").read_text() == "new"
    assert not (tmp_path / "a.txt").is_symlink()


def test_a_file_that_is_being_written_is_not_taken_for_abandoned(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with replacing(target) as slow:
        slow.write(b"slow")
        write_text(target, "quick")
    assert target.read_text() == "slow"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(sys.platform == "win32", reason="needs permissions of POSIX")
def test_permissions_stay_and_new_ones_honour_the_umask(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.touch()
    old.chmod(0o600)
    before = os.umask(0o027)
    try:
        for path in (old, new):
            write_text(path, "x")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (old, new)] == [0o600, 0o640]


def test_content_is_on_the_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    flush, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("folder" if isdir(fd) else "file"), flush(fd))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append("rename"), rename(self, to))[1])
    write_text(tmp_path / "a.txt", "x")
    assert events == ["file", "rename", "folder"]


def isdir(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


# ---------------------------------------------------------------- JSON from anyone


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[" * 100_000, "lists within lists"),
        (b"1" * 5000, "valid JSON .Exceeds the limit"),
        (b"\xff{}", "UTF-8"),
        (b'["\\ud800"]', "UTF-8"),
        (b"{", "valid JSON"),
        (b"", "valid JSON"),
    ],
    ids=["deep", "digits", "bytes", "half a sign", "cut", "empty"],
)
def test_bad_json_is_an_error_in_words(text: bytes, why: str) -> None:
    with pytest.raises(DataError, match=f"^the graph is not .*{why}"):
        parse_json(text, "the graph")


def test_whole_signs_in_escapes_are_text() -> None:
    assert parse_json(b'\xef\xbb\xbf["\\ud83d\\ude00"]', "x") == ["😀"]


def test_text_that_is_none_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="was not written"):
        write_text(tmp_path / "a.txt", "\udc80")
    assert not list(tmp_path.iterdir())
