"""Downloads against a publisher who cuts, corrupts, refuses: the file is right or not there."""

from __future__ import annotations

import errno
import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.paper.fake_nclimdiv import fake_lines, write_fake
from tests.paper.file_server import Publisher, serving
from toporo.errors import DataError
from toporo.paper import download as module
from toporo.paper import nclimdiv, tpt48
from toporo.paper.download import DownloadError, download

RELEASE = "20240906"
NAME = f"climdiv-tmpcst-v1.0.0-{RELEASE}"
CONTENT = "".join(f"{line}\n" for line in fake_lines()).encode()
OTHER = "".join(f"{line}\n" for line in fake_lines(seed=1)).encode()
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with serving(Publisher({NAME: CONTENT, "procdate.txt": b"20240906\n"})) as running:
        yield running


def names(folder: Path) -> list[str]:
    """All files in a folder, without its path."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# ---------------------------------------------------------------------- one file


@pytest.mark.parametrize("way", ["ok", "no length"])
def test_a_file_is_downloaded(publisher: Publisher, tmp_path: Path, way: str) -> None:
    publisher.ways[NAME] = way
    seen: list[tuple[int, int | None]] = []
    found = download(
        f"{publisher.url}{NAME}",
        tmp_path / "new" / "file",
        checksum=DIGEST,
        report=lambda done, total: seen.append((done, total)),
    )
    assert found == DIGEST
    assert names(tmp_path) == ["new/file"]
    assert (tmp_path / "new/file").read_bytes() == CONTENT
    assert seen == sorted(seen)
    assert seen[-1] == (len(CONTENT), len(CONTENT) if way == "ok" else None)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("404", "the server answered 404 Not Found"),
        ("503", "the server answered 503"),
        ("cut 5000", f"the connection was dropped after 5000 of {len(CONTENT)} bytes"),
        ("silent", "no connection (timed out)"),
        ("to file:///etc/hostname", "the server answered 302"),
        ("to http://[/", "no connection ("),
    ],
)
def test_what_goes_wrong_is_told_and_the_old_file_stays(
    monkeypatch: pytest.MonkeyPatch, publisher: Publisher, tmp_path: Path, way: str, message: str
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.2 if way == "silent" else 20.0)
    publisher.ways[NAME] = way
    (tmp_path / "file").write_text("old")
    with pytest.raises(DownloadError) as caught:
        download(f"{publisher.url}{NAME}", tmp_path / "file")
    assert str(caught.value).startswith(f"{publisher.url}{NAME}: {message}")
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_content_that_is_not_right(publisher: Publisher, tmp_path: Path) -> None:
    def check(path: Path) -> None:
        assert path.read_bytes() == CONTENT
        raise DataError("It is of another kind.")

    with pytest.raises(DownloadError, match=r"is not usable and was removed. It is of another kind\."):
        download(f"{publisher.url}{NAME}", tmp_path / "file", check=check)
    assert names(tmp_path) == []


@pytest.mark.parametrize("way", ["ok", "no length"])
def test_no_more_is_taken_than_the_file_can_have(publisher: Publisher, tmp_path: Path, way: str) -> None:
    publisher.ways[NAME] = way
    with pytest.raises(DownloadError, match="sends more than the 100 bytes"):
        download(f"{publisher.url}{NAME}", tmp_path / "file", most=100)
    assert names(tmp_path) == []


def test_a_full_disk_keeps_nothing(publisher: Publisher, tmp_path: Path) -> None:
    """It is not taken for a bad connection either."""

    def full(done: int, total: int | None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device, and nothing was kept: .*file") as caught:
        download(f"{publisher.url}{NAME}", tmp_path / "file", report=full)
    assert caught.value.errno == errno.ENOSPC
    assert names(tmp_path) == []


def test_a_machine_that_is_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lost(*arguments: object, **options: object) -> None:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "create_connection", lost)
    with pytest.raises(DownloadError, match="this machine seems to be offline"):
        download("https://example.org/file", tmp_path / "file")


def test_a_secure_address_does_not_lead_to_an_open_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Response(SimpleNamespace):
        def __enter__(self) -> Response:
            return self

        def __exit__(self, *arguments: object) -> None:
            pass

    monkeypatch.setattr(module.urllib.request, "urlopen", lambda *_, **__: Response(url="http://example.org/file"))
    with pytest.raises(DownloadError, match=r"http://example\.org/file, which is not secure"):
        download("https://example.org/file", tmp_path / "file")


# ---------------------------------------------------------------------- NOAA's releases


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The release is the one whose checksum is published."""
    monkeypatch.setattr(nclimdiv, "FILE", NAME)
    monkeypatch.setattr(nclimdiv, "CHECKSUM", DIGEST)


def failure(folder: Path, publisher: Publisher) -> str:
    """The message of a download that fails; nothing is kept, and the way out is told."""
    with pytest.raises(DownloadError) as caught:
        nclimdiv.fetch(folder, url=publisher.url, say=print)
    assert names(folder) == []
    message = str(caught.value)
    assert message.startswith(publisher.url)
    assert f"by hand from {publisher.url} with a browser or on another machine, put it into {folder}/tpt48" in message
    return message


def test_the_newest_release_is_fetched_unless_one_is_there(
    publisher: Publisher, tmp_path: Path, said: list[str]
) -> None:
    got = nclimdiv.fetch(tmp_path, url=publisher.url, say=said.append)
    assert got.path.read_bytes() == CONTENT
    assert (got.path, got.release, got.published, got.fresh) == (tmp_path / "tpt48" / NAME, RELEASE, False, True)
    assert names(tmp_path) == [f"tpt48/{NAME}"]
    assert said == [f"fetching {publisher.url}{NAME}"]
    assert tpt48.load(tmp_path).about["sha256"] == DIGEST
    assert nclimdiv.file_states(tmp_path) == [(str(got.path), "complete")]
    got.path.write_bytes(CONTENT[:-1000])
    assert nclimdiv.file_states(tmp_path)[0][1].startswith("damaged (")
    assert nclimdiv.fetch(tmp_path, url=publisher.url, say=said.append).fresh
    assert got.path.read_bytes() == CONTENT
    assert said[1].startswith(f"{got.path} is damaged (")


@pytest.mark.usefixtures("known")
def test_a_known_release_is_held_against_its_checksum(publisher: Publisher, tmp_path: Path) -> None:
    got = nclimdiv.fetch(tmp_path, url=publisher.url.rstrip("/"), say=print)
    assert got.published
    assert names(tmp_path) == [f"tpt48/{NAME}"]


@pytest.mark.usefixtures("known")
def test_a_known_release_that_is_another_file(publisher: Publisher, tmp_path: Path) -> None:
    publisher.files[NAME] = OTHER
    assert f"expected {DIGEST}" in failure(tmp_path, publisher)


@pytest.mark.parametrize("place", ["tpt48", "."])
def test_an_intact_release_is_not_fetched_again(publisher: Publisher, tmp_path: Path, place: str) -> None:
    path = write_fake(tmp_path / place / NAME)
    got = nclimdiv.fetch(tmp_path, url=publisher.url, say=print)
    assert (got.path, got.fresh, got.published) == (path, False, False)
    assert publisher.asked == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<html><body>Please log in to this wireless network</body></html>", "line 1: found '<html>"),
        (CONTENT[:-2000], "The file is cut short"),
        (CONTENT.replace(b"0480022019", b"0490022019"), "lacks rows from 2008 to 2019: Wyoming (WY) 2019"),
        (b"", "is empty"),
    ],
)
def test_a_release_without_a_known_checksum_must_be_complete(
    publisher: Publisher, tmp_path: Path, content: bytes, reason: str
) -> None:
    publisher.files[NAME] = content
    message = failure(tmp_path, publisher)
    assert "what came is not usable and was removed" in message
    assert reason in message


def test_a_release_that_is_gone(publisher: Publisher, tmp_path: Path) -> None:
    publisher.files["procdate.txt"] = b"20230101"
    assert "climdiv-tmpcst-v1.0.0-20230101: the server answered 404 " in failure(tmp_path, publisher)
