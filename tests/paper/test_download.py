"""Downloads from a server that truncates, corrupts or refuses: the file is right or not there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paper.fake_nclimdiv import fake_lines
from tests.paper.file_server import Publisher, serving
from toporo.paper import BENCHMARKS, load_dataset, nclimdiv
from toporo.paper import download as module
from toporo.paper.download import DownloadError, download

NAME = "climdiv-tmpcst-v1.0.0-20240906"
CONTENT = "".join(f"{line}\n" for line in fake_lines()).encode()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with serving(Publisher({NAME: CONTENT, "procdate.txt": b"20240906\n"})) as running:
        yield running


# ---------------------------------------------------------------------- one file


def test_a_file_is_downloaded(publisher: Publisher) -> None:
    assert download(f"{publisher.url}{NAME}", len(CONTENT)) == CONTENT


@pytest.mark.parametrize(
    ("way", "most", "message"),
    [
        ("404", 2**24, "the server answered 404 Not Found"),
        ("silent", 2**24, "no connection (timed out)"),
        ("ok", 100, "the server sends more than the 100 bytes"),
    ],
)
def test_errors_name_the_address_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, publisher: Publisher, way: str, most: int, message: str
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.2 if way == "silent" else 20.0)
    publisher.ways[NAME] = way
    with pytest.raises(DownloadError) as caught:
        download(f"{publisher.url}{NAME}", most)
    assert str(caught.value).startswith(f"{publisher.url}{NAME}: {message}")


# ---------------------------------------------------------------------- NOAA's releases


def fetch(folder: Path, publisher: Publisher) -> list[str]:
    """Fetch the newest release and return the names of the files that were asked for."""
    publisher.asked.clear()
    nclimdiv.fetch(folder, publisher.url)
    return publisher.asked


def test_the_newest_release_is_fetched_unless_an_intact_one_exists(publisher: Publisher, tmp_path: Path) -> None:
    path = tmp_path / "tpt48" / NAME
    assert fetch(tmp_path, publisher) == ["procdate.txt", NAME]
    assert path.read_bytes() == CONTENT
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]
    assert load_dataset("tpt48", tmp_path).about["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert BENCHMARKS["tpt48"].state(tmp_path) == (str(path), "complete")
    path.write_bytes(CONTENT[:-1000])
    assert BENCHMARKS["tpt48"].state(tmp_path)[1].startswith("damaged (")
    assert fetch(tmp_path, publisher) == ["procdate.txt", NAME]
    assert path.read_bytes() == CONTENT
    assert fetch(tmp_path, publisher) == []


@pytest.mark.parametrize(
    ("date", "content", "reason"),
    [
        (b"20240906", b"<html><body>Please log in to this wireless network</body></html>", "line 1: found '<html>"),
        (b"20240906", CONTENT.replace(b"0480022019", b"0490022019"), "lacks rows from 2008 to 2019: 'WY in"),
        (b"20230101", CONTENT, "climdiv-tmpcst-v1.0.0-20230101: the server answered 404 "),
        (b"20240906", CONTENT[:5000], "line 52: found '00'"),
        (b"<html>", CONTENT, "procdate.txt: found b'<html>', expected the date of the newest release"),
    ],
)
def test_a_release_that_cannot_be_used_is_not_kept(
    publisher: Publisher, tmp_path: Path, date: bytes, content: bytes, reason: str
) -> None:
    publisher.files |= {NAME: content, "procdate.txt": date}
    with pytest.raises(DownloadError) as caught:
        fetch(tmp_path, publisher)
    message = str(caught.value)
    assert message.startswith(publisher.url)
    assert reason in message
    assert f"by hand from {publisher.url} with a browser or on another machine, put it into {tmp_path}/tpt48" in message
    assert list(tmp_path.iterdir()) == []
