"""Downloads from a server that truncates, corrupts or refuses: the file is right or not there."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.paper.fake_nclimdiv import fake_lines
from tests.paper.file_server import Publisher, serving
from toporo.paper import download as module
from toporo.paper import nclimdiv, tpt48
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


@pytest.mark.parametrize("way", ["ok", "no length"])
def test_a_file_is_downloaded(publisher: Publisher, way: str) -> None:
    publisher.ways[NAME] = way
    assert download(f"{publisher.url}{NAME}", len(CONTENT)) == CONTENT


@pytest.mark.parametrize(
    ("way", "most", "message"),
    [
        ("404", 2**24, "the server answered 404 Not Found"),
        ("cut 5000", 2**24, f"the connection was dropped after 5000 of {len(CONTENT)} bytes"),
        ("silent", 2**24, "no connection (timed out)"),
        ("to file:///etc/hostname", 2**24, "the server answered 302"),
        ("ok", 100, "the server sends more than the 100 bytes"),
        ("no length", 100, "the server sends more than the 100 bytes"),
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


def test_a_machine_that_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "create_connection", fail)
    with pytest.raises(DownloadError, match="this machine seems to be offline"):
        download("https://example.org/file", 1)


def test_a_redirect_to_an_insecure_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Response(SimpleNamespace):
        def __enter__(self) -> Response:
            return self

        def __exit__(self, *arguments: object) -> None:
            pass

    monkeypatch.setattr(module.urllib.request, "urlopen", lambda *_, **__: Response(url="http://example.org/file"))
    with pytest.raises(DownloadError, match=r"http://example\.org/file, which is not secure"):
        download("https://example.org/file", 1)


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
    assert tpt48.load(tmp_path).about["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert nclimdiv.file_states(tmp_path) == [(str(path), "complete")]
    path.write_bytes(CONTENT[:-1000])
    assert nclimdiv.file_states(tmp_path)[0][1].startswith("damaged (")
    assert fetch(tmp_path, publisher) == ["procdate.txt", NAME]
    assert path.read_bytes() == CONTENT
    assert fetch(tmp_path, publisher) == []


@pytest.mark.parametrize(
    ("date", "content", "reason"),
    [
        (b"20240906", b"<html><body>Please log in to this wireless network</body></html>", "line 1: found '<html>"),
        (b"20240906", CONTENT.replace(b"0480022019", b"0490022019"), "lacks rows from 2008 to 2019: 'Wyoming (WY) in"),
        (b"20230101", CONTENT, "climdiv-tmpcst-v1.0.0-20230101: the server answered 404 "),
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
