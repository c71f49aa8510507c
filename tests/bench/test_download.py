"""Downloads against a publisher who cuts, corrupts, refuses, changes his mind: the file is right or not there."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.fake_nclimdiv import fake_lines, write_fake
from tests.bench.file_server import Publisher, serving
from toporo.bench import download as module
from toporo.bench import tpt48
from toporo.bench.download import DownloadError, Fetch, Patience, download, download_folder, fetch, state_of
from toporo.bench.loaded import cache_folder
from toporo.errors import SettingError

RELEASE = "20240906"
NAME = f"climdiv-tmpcst-v1.0.0-{RELEASE}"
CONTENT = "".join(f"{line}\n" for line in fake_lines()).encode()
OTHER = "".join(f"{line}\n" for line in fake_lines(seed=1)).encode()
DIGEST = hashlib.sha256(CONTENT).hexdigest()
QUICK = Patience(attempts=4, pause=0.0, timeout=20.0)
KNOWN = replace(tpt48.FETCH, checksums={NAME: DIGEST})
UNKNOWN = tpt48.FETCH


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    files = {NAME: CONTENT, "procdate.txt": b"20240906\n"}
    with serving(Publisher(files, marks={NAME: {"ETag": '"one"'}})) as running:
        yield running


@pytest.fixture
def said() -> list[str]:
    return []


def names(folder: Path) -> list[str]:
    """All files in a folder, without its path."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def failure(source: Fetch, folder: Path, publisher: Publisher, **options: object) -> str:
    """The message of a download that fails; nothing has the final name, and the way out is told."""
    with pytest.raises(DownloadError) as caught:
        fetch(source, folder, url=publisher.url, patience=options.pop("patience", QUICK), **options)  # type: ignore[arg-type]
    assert not (folder / "tpt48" / NAME).exists()
    message = str(caught.value)
    assert publisher.url in message
    assert f"by hand from {publisher.url} with a browser or on another machine, put it into {folder}/tpt48" in message
    return message


# ---------------------------------------------------------------------- when all goes well


def test_the_newest_release_is_fetched_and_its_checksum_recorded(
    publisher: Publisher, tmp_path: Path, said: list[str]
) -> None:
    bytes_seen: list[tuple[int, int | None]] = []
    got = fetch(
        UNKNOWN,
        tmp_path / "new",
        url=publisher.url,
        report=lambda done, total: bytes_seen.append((done, total)),
        say=said.append,
        patience=QUICK,
    )
    assert got.path.read_bytes() == CONTENT
    assert (got.path, got.release) == (tmp_path / "new/tpt48" / NAME, RELEASE)
    assert (got.sha256, got.published, got.fresh) == (DIGEST, False, True)
    assert names(tmp_path / "new") == [f"tpt48/{NAME}", f"tpt48/{NAME}.sha256"]
    assert got.path.with_name(f"{NAME}.sha256").read_text() == f"{DIGEST}  {NAME}\n"
    assert bytes_seen[-1] == (len(CONTENT), len(CONTENT))
    assert bytes_seen == sorted(bytes_seen)
    assert said == [f"fetching {publisher.url}{NAME}"]
    assert tpt48.load(tmp_path / "new").about["sha256"] == DIGEST


def test_a_known_release_is_held_against_its_checksum(publisher: Publisher, tmp_path: Path) -> None:
    got = fetch(KNOWN, tmp_path, release=RELEASE, url=publisher.url.rstrip("/"), patience=QUICK)
    assert got.published
    assert names(tmp_path) == [f"tpt48/{NAME}"]
    assert publisher.asked == [(NAME, None, None)], "no need to ask for the newest release"


@pytest.mark.parametrize("place", ["tpt48", "."])
@pytest.mark.parametrize("release", [None, RELEASE])
@pytest.mark.parametrize("source", [KNOWN, UNKNOWN], ids=["known", "unknown"])
def test_what_is_there_and_sound_is_not_fetched_again(
    publisher: Publisher, tmp_path: Path, place: str, release: str | None, source: Fetch
) -> None:
    path = write_fake(tmp_path / place / NAME)
    got = fetch(source, tmp_path, release=release, url=publisher.url, patience=QUICK)
    assert (got.path, got.fresh, got.published) == (path, False, source is KNOWN)
    assert publisher.asked == []


def test_what_is_there_but_damaged_is_replaced(publisher: Publisher, tmp_path: Path, said: list[str]) -> None:
    fetch(UNKNOWN, tmp_path, url=publisher.url, patience=QUICK)
    path = tmp_path / "tpt48" / NAME
    assert state_of(UNKNOWN, path) == "intact"
    path.write_bytes(OTHER)
    assert state_of(UNKNOWN, path) == "differs", "although it is a complete file"
    assert fetch(UNKNOWN, tmp_path, url=publisher.url, say=said.append, patience=QUICK).fresh
    assert path.read_bytes() == CONTENT
    assert said[0] == f"{path} differs from what it was: fetching again"
    path.with_name(f"{NAME}.sha256").unlink()
    assert state_of(UNKNOWN, path) == "complete"
    path.write_bytes(CONTENT[:-1000])
    assert state_of(UNKNOWN, path) == "damaged"
    fetch(UNKNOWN, tmp_path, url=publisher.url, say=said.append, patience=QUICK)
    assert path.read_bytes() == CONTENT
    assert f"{path} is damaged: fetching again" in said


def test_a_damaged_file_of_the_future_is_pointed_out(publisher: Publisher, tmp_path: Path, said: list[str]) -> None:
    strange = tmp_path / "climdiv-tmpcst-v1.0.0-20991231"
    strange.write_text("not a release")
    fetch(UNKNOWN, tmp_path, url=publisher.url, say=said.append, patience=QUICK)
    assert said[-1] == f"{strange} passes for a newer release and would be used: remove it"


# ---------------------------------------------------------------------- interrupted and resumed


@pytest.mark.parametrize("mark", [{"ETag": '"one"'}, {"Last-Modified": "Mon, 06 Jan 2020 12:00:00 GMT"}])
def test_a_dropped_connection_is_taken_up_where_it_broke(
    publisher: Publisher, tmp_path: Path, said: list[str], mark: dict[str, str]
) -> None:
    publisher.marks[NAME] = mark
    publisher.ways[NAME] = ["cut 20000", "cut 1", "ok"]
    fetch(KNOWN, tmp_path, release=RELEASE, url=publisher.url, say=said.append, patience=QUICK)
    (value,) = mark.values()
    assert publisher.asked == [(NAME, None, None), (NAME, "bytes=20000-", value), (NAME, "bytes=20001-", value)]
    assert names(tmp_path) == [f"tpt48/{NAME}"]
    assert said[1] == f"the connection was dropped after 20000 of {len(CONTENT)} bytes; trying again (2 of 4)"


def test_what_came_is_kept_for_the_next_call(publisher: Publisher, tmp_path: Path) -> None:
    publisher.ways[NAME] = ["cut 5000"]
    message = failure(KNOWN, tmp_path, publisher, release=RELEASE)
    assert f"was dropped after 20000 of {len(CONTENT)} bytes, at the last of 4 attempts." in message
    assert names(tmp_path) == [f"tpt48/{NAME}.part", f"tpt48/{NAME}.part.json"]
    assert (tmp_path / f"tpt48/{NAME}.part").read_bytes() == CONTENT[:20000]
    assert tpt48.find_releases(tmp_path) == []
    publisher.ways[NAME] = ["ok"]
    fetch(KNOWN, tmp_path, release=RELEASE, url=publisher.url, patience=QUICK)
    assert publisher.ranges(NAME)[-1] == "bytes=20000-"
    assert names(tmp_path) == [f"tpt48/{NAME}"]


def test_an_interrupt_keeps_what_came(publisher: Publisher, tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(KNOWN, tmp_path, release=RELEASE, url=publisher.url, report=interrupt, patience=QUICK)
    assert names(tmp_path) == [f"tpt48/{NAME}.part", f"tpt48/{NAME}.part.json"]
    fetch(KNOWN, tmp_path, release=RELEASE, url=publisher.url, patience=QUICK)
    assert publisher.ranges(NAME)[-1] == f"bytes={module.CHUNK}-"


@given(st.lists(st.integers(0, 30_000), max_size=5), st.sampled_from(["ok", "whole", "no length"]))
@settings(max_examples=15, deadline=None)
def test_wherever_it_breaks_the_file_in_the_end_is_the_file(cuts: list[int], last: str) -> None:
    with TemporaryDirectory() as folder, serving(Publisher({"f": CONTENT}, {"f": {"ETag": '"one"'}})) as publisher:
        publisher.ways["f"] = [*(f"cut {cut}" for cut in cuts), last]
        download(f"{publisher.url}f", Path(folder, "f"), patience=Patience(len(cuts) + 1, 0.0, 20.0))
        assert Path(folder, "f").read_bytes() == CONTENT


def test_a_partial_answer_need_not_repeat_the_time_of_the_change(publisher: Publisher, tmp_path: Path) -> None:
    publisher.marks[NAME] = {"Last-Modified": "Mon, 06 Jan 2020 12:00:00 GMT"}
    publisher.ways[NAME] = ["cut 20000", "blind"]
    assert fetch(KNOWN, tmp_path, release=RELEASE, url=publisher.url, patience=QUICK).sha256 == DIGEST
    assert publisher.ranges(NAME) == [None, "bytes=20000-"]


def test_a_server_without_ranges_starts_again(publisher: Publisher, tmp_path: Path) -> None:
    publisher.ways[NAME] = ["cut 20000", "whole"]
    got = fetch(KNOWN, tmp_path, release=RELEASE, url=publisher.url, patience=QUICK)
    assert got.path.read_bytes() == CONTENT


@pytest.mark.parametrize("mark", [{}, {"ETag": 'W/"weak"'}])
def test_without_a_mark_of_the_version_nothing_is_glued(
    publisher: Publisher, tmp_path: Path, mark: dict[str, str]
) -> None:
    publisher.marks[NAME] = mark
    publisher.ways[NAME] = ["cut 20000", "ok"]
    fetch(KNOWN, tmp_path, release=RELEASE, url=publisher.url, patience=QUICK)
    assert publisher.ranges(NAME) == [None, None]


def test_a_file_that_changed_between_attempts_is_fetched_anew(publisher: Publisher, tmp_path: Path) -> None:
    publisher.ways[NAME] = ["cut 20000"]
    failure(UNKNOWN, tmp_path, publisher, patience=Patience(1, 0.0))
    publisher.files[NAME], publisher.marks[NAME], publisher.ways[NAME] = OTHER, {"ETag": '"two"'}, ["ok"]
    got = fetch(UNKNOWN, tmp_path, url=publisher.url, patience=QUICK)
    assert got.path.read_bytes() == OTHER
    assert publisher.asked[-1] == (NAME, "bytes=20000-", '"one"')


@pytest.mark.parametrize("way", ["blind", "shifted"])
def test_a_wrong_continuation_is_not_glued_on(publisher: Publisher, tmp_path: Path, way: str) -> None:
    """One server pays no heed to the version asked for and does not tell its own, another goes on from elsewhere."""
    publisher.ways[NAME] = ["cut 20000"]
    failure(UNKNOWN, tmp_path, publisher, patience=Patience(1, 0.0))
    publisher.ways[NAME] = [way, "ok"]
    if way == "blind":
        publisher.files[NAME], publisher.marks[NAME] = OTHER, {"ETag": '"two"'}
    got = fetch(UNKNOWN, tmp_path, url=publisher.url, patience=QUICK)
    assert got.path.read_bytes() == publisher.files[NAME]


def test_a_part_longer_than_the_file_is_dropped(publisher: Publisher, tmp_path: Path) -> None:
    publisher.ways[NAME] = ["cut 60000"]
    failure(UNKNOWN, tmp_path, publisher, patience=Patience(1, 0.0))
    publisher.ways[NAME] = ["416", "ok"]
    assert fetch(UNKNOWN, tmp_path, url=publisher.url, patience=QUICK).path.read_bytes() == CONTENT


def test_a_part_from_elsewhere_or_with_a_broken_note_is_not_continued(publisher: Publisher, tmp_path: Path) -> None:
    publisher.ways[NAME] = ["cut 20000"]
    failure(UNKNOWN, tmp_path, publisher, patience=Patience(1, 0.0))
    note = tmp_path / f"tpt48/{NAME}.part.json"
    publisher.ways[NAME] = ["ok"]
    text = note.read_text()
    for odd in (text.replace("climdiv/", "other/"), text.replace("one", "\\n"), '{"url": ', '["mark"]'):
        note.write_text(odd)
        part = note.with_suffix("")
        part.write_bytes(CONTENT[:20000])
        fetch(UNKNOWN, tmp_path, url=publisher.url, patience=QUICK)
        assert publisher.ranges(NAME)[-1] is None
        (tmp_path / "tpt48" / NAME).unlink()


def test_two_at_a_time_do_not_write_the_same_part(publisher: Publisher, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    (tmp_path / "tpt48").mkdir()
    with module._part(tmp_path / "tpt48" / NAME):
        assert "is being fetched by another process" in failure(KNOWN, tmp_path, publisher, release=RELEASE)
    fetch(KNOWN, tmp_path, release=RELEASE, url=publisher.url, patience=QUICK)


# ---------------------------------------------------------------------- when it cannot be had


def test_corrupt_content_is_removed(publisher: Publisher, tmp_path: Path) -> None:
    publisher.files[NAME] = CONTENT.replace(b"4", b"5", 1)
    message = failure(KNOWN, tmp_path, publisher, release=RELEASE)
    assert f"expected {DIGEST}: it was damaged on the way" in message
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<html><body>Please log in to this wireless network</body></html>", "is a web page"),
        (CONTENT[:-2000], "is cut short after"),
        (CONTENT.replace(b"0480022019", b"0490022019"), "lacks years from 2008 to 2019: Wyoming (WY) 2019"),
        (b"", "is empty"),
    ],
)
def test_a_release_without_a_known_checksum_must_be_complete(
    publisher: Publisher, tmp_path: Path, content: bytes, reason: str
) -> None:
    publisher.files[NAME] = content
    message = failure(UNKNOWN, tmp_path, publisher)
    assert "what came is not usable and was removed" in message
    assert reason in message
    assert names(tmp_path) == []


def test_a_release_that_is_gone(publisher: Publisher, tmp_path: Path) -> None:
    message = failure(UNKNOWN, tmp_path, publisher, release="20230101")
    assert "climdiv-tmpcst-v1.0.0-20230101: the server answered 404 " in message
    assert "keeps only the newest release: leave --release out" in message
    assert len(publisher.asked) == 1, "no use in trying again"
    assert names(tmp_path) == []


@pytest.mark.parametrize(("status", "attempts"), [("403", 1), ("500", 4), ("503", 4), ("429", 4)])
def test_a_server_that_errs_is_asked_again_if_that_may_pass(
    publisher: Publisher, tmp_path: Path, status: str, attempts: int
) -> None:
    publisher.ways[NAME] = [status]
    assert f"the server answered {status} " in failure(UNKNOWN, tmp_path, publisher)
    assert len(publisher.ranges(NAME)) == attempts
    publisher.ways[NAME] = ["500", "ok"]
    assert fetch(UNKNOWN, tmp_path, url=publisher.url, patience=QUICK).fresh


def test_the_date_of_the_newest_release_must_be_one(publisher: Publisher, tmp_path: Path) -> None:
    publisher.files["procdate.txt"] = b"<html>moved</html>"
    assert "procdate.txt: found b'<html>moved</html>', expected the date" in failure(UNKNOWN, tmp_path, publisher)
    publisher.ways["procdate.txt"] = ["500"]
    assert "procdate.txt: the server answered 500" in failure(UNKNOWN, tmp_path, publisher)


def test_a_silent_server(publisher: Publisher, tmp_path: Path) -> None:
    publisher.ways["procdate.txt"] = ["silent"]
    message = failure(UNKNOWN, tmp_path, publisher, patience=Patience(2, 0.0, 0.05))
    assert "no answer within 0.05 s, at the last of 2 attempts" in message


def test_a_refused_connection(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound but not listening: nobody answers there
        taken.bind(("127.0.0.1", 0))
        publisher = Publisher(url=f"http://127.0.0.1:{taken.getsockname()[1]}/climdiv/")
        assert "procdate.txt: the connection was refused." in failure(UNKNOWN, tmp_path, publisher)


@pytest.mark.parametrize(
    ("reason", "message", "attempts"),
    [
        (socket.gaierror(-3, "Temporary failure in name resolution"), "this machine seems to be offline", 1),
        (TimeoutError(), "no connection within 20 s", 1),
        (ssl.SSLCertVerificationError("self-signed certificate"), "no secure connection (", 1),
        (OSError("Network is unreachable"), "no connection (Network is unreachable)", 1),
        (ConnectionResetError("reset by peer"), "the connection was dropped (reset by peer)", 4),
    ],
)
def test_other_reasons_why_no_connection_comes_about(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: OSError, message: str, attempts: int
) -> None:
    tried = []

    def refuse(*arguments: object, **options: object) -> None:
        tried.append(arguments)
        raise urllib.error.URLError(reason)

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", refuse)
    assert message in failure(UNKNOWN, tmp_path, Publisher(url="https://example.org/climdiv/"))
    assert len(tried) == attempts


def test_a_redirect_is_followed_on_the_web_only(publisher: Publisher, tmp_path: Path) -> None:
    publisher.files["moved"] = CONTENT
    publisher.ways[NAME] = [f"to {publisher.url}moved"]
    assert fetch(UNKNOWN, tmp_path / "a", url=publisher.url, patience=QUICK).sha256 == DIGEST
    (tmp_path / "local").write_bytes(CONTENT)
    for address in (f"file://{tmp_path}/local", "ftp://127.0.0.1/local"):
        publisher.ways[NAME] = [f"to {address}"]
        failure(UNKNOWN, tmp_path / "b", publisher)


def test_a_secure_address_does_not_lead_to_an_open_one() -> None:
    request = urllib.request.Request("https://example.org/f")
    with pytest.raises(DownloadError, match="which is not secure"):
        module._Redirects().redirect_request(request, None, 302, "Found", {}, "http://example.org/f")
    onward = module._Redirects().redirect_request(request, None, 302, "Found", {}, "https://example.com/f")
    assert onward.full_url == "https://example.com/f"


def test_a_full_disk_keeps_nothing(monkeypatch: pytest.MonkeyPatch, publisher: Publisher, tmp_path: Path) -> None:
    """It is not taken for a bad connection either."""
    append, written = module._Part.append, []

    def full(part: module._Part, chunk: bytes) -> None:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(part, chunk)
        written.append(part.size)

    monkeypatch.setattr(module._Part, "append", full)
    with pytest.raises(DownloadError, match=r"tpt48 is full \(No space left on device\); what had come was removed"):
        fetch(UNKNOWN, tmp_path, url=publisher.url, patience=QUICK)
    assert written == [module.CHUNK]
    assert names(tmp_path) == []
    assert len(publisher.ranges(NAME)) == 1


def test_a_disk_with_too_little_room_is_not_filled(
    monkeypatch: pytest.MonkeyPatch, publisher: Publisher, tmp_path: Path
) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(DownloadError, match=rf"{len(CONTENT)} bytes are to come, .*tpt48 has room for 1000. Make room"):
        fetch(UNKNOWN, tmp_path, url=publisher.url, patience=QUICK)
    assert names(tmp_path) == []


@pytest.mark.parametrize("way", ["ok", "no length"])
@pytest.mark.parametrize("known", [True, False])
def test_no_more_is_taken_than_the_file_has(publisher: Publisher, tmp_path: Path, way: str, known: bool) -> None:
    """Its size where that is published, else what no release comes near; whether or not the server tells the length."""
    most, publisher.ways[NAME] = 100_000, [way]
    publisher.files[NAME] = CONTENT + bytes(5_000_000)
    source = replace(KNOWN, sizes={NAME: most}) if known else replace(UNKNOWN, most=most)
    seen: list[int] = []
    message = failure(source, tmp_path, publisher, report=lambda done, total: seen.append(done))
    sent = len(publisher.files[NAME]) if way == "ok" else f"more than {most}"
    assert f"the server sends {sent} bytes, but the file has {most} at most" in message
    assert max(seen, default=0) == (0 if way == "ok" else module.CHUNK)
    assert names(tmp_path) == []
    assert len(publisher.ranges(NAME)) == 1


def test_a_part_that_is_too_long_is_begun_again(publisher: Publisher, tmp_path: Path) -> None:
    publisher.ways[NAME] = ["cut 20000"]
    failure(KNOWN, tmp_path, publisher, release=RELEASE, patience=Patience(1, 0.0))
    with (tmp_path / f"tpt48/{NAME}.part").open("ab") as part:
        part.write(bytes(len(CONTENT)))
    publisher.ways[NAME] = ["ok"]
    got = fetch(replace(KNOWN, sizes={NAME: len(CONTENT)}), tmp_path, release=RELEASE, url=publisher.url)
    assert got.published
    assert publisher.ranges(NAME)[-1] is None


def test_the_published_size_is_that_of_the_published_file(real_data: Path) -> None:
    assert tpt48.FETCH.sizes == {tpt48.FILE: (real_data / "tpt48" / tpt48.FILE).stat().st_size}


@pytest.mark.parametrize("link", ["symbolic", "hard", "to nowhere", "a pipe"])
def test_a_link_in_the_place_of_the_part_is_not_followed(publisher: Publisher, tmp_path: Path, link: str) -> None:
    precious, part = tmp_path / "precious", tmp_path / f"tpt48/{NAME}.part"
    part.parent.mkdir()
    if link != "to nowhere":
        precious.write_text("precious")
    if link == "a pipe":
        os.mkfifo(part)
    elif link == "hard":
        part.hardlink_to(precious)
    else:
        part.symlink_to(precious)
    got = fetch(KNOWN, tmp_path, release=RELEASE, url=publisher.url, patience=QUICK)
    assert got.path.read_bytes() == CONTENT
    assert not got.path.is_symlink()
    assert not precious.exists() if link == "to nowhere" else precious.read_text() == "precious"


def test_a_file_is_on_the_disk_before_it_has_its_name(
    monkeypatch: pytest.MonkeyPatch, publisher: Publisher, tmp_path: Path
) -> None:
    events: list[tuple[str, int]] = []
    fsync, rename = os.fsync, Path.replace

    def flushed(descriptor: int) -> None:
        fsync(descriptor)
        events.append(("flushed", os.fstat(descriptor).st_ino))

    def renamed(path: Path, target: Path) -> None:
        events.append(("renamed", path.stat().st_ino))
        rename(path, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", renamed)
    path = fetch(KNOWN, tmp_path, release=RELEASE, url=publisher.url, patience=QUICK).path
    file, folder = path.stat().st_ino, path.parent.stat().st_ino
    assert events[-3:] == [("flushed", file), ("renamed", file), ("flushed", folder)]


def test_a_server_may_answer_anything(publisher: Publisher, tmp_path: Path) -> None:
    publisher.marks[NAME] = {"Content-Length": "9" * 5000}
    publisher.ways[NAME] = ["no length"]
    assert fetch(KNOWN, tmp_path / "a", release=RELEASE, url=publisher.url, patience=QUICK).published
    publisher.ways[NAME] = ["to http://[/"]
    assert "cannot be followed" in failure(KNOWN, tmp_path / "b", publisher, release=RELEASE)


@pytest.mark.parametrize(
    "url", ["file:///etc/", "ftp://example.org/", "example.org", "https://", "https://a b/", "http://h:x/", "http://[/"]
)
def test_an_address_must_be_on_the_web(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingError, match="expected https://"):
        fetch(UNKNOWN, tmp_path, url=url)


@pytest.mark.parametrize("release", ["2020-01-06", "latest", "", "../../x"])
def test_a_release_is_a_date(tmp_path: Path, release: str) -> None:
    with pytest.raises(SettingError, match="expected a date as YYYYMMDD"):
        fetch(UNKNOWN, tmp_path, release=release)


def test_where_downloads_go(monkeypatch: pytest.MonkeyPatch, no_data: None, tmp_path: Path) -> None:
    assert download_folder() == cache_folder()
    monkeypatch.setenv("TOPORO_DATA", str(tmp_path / "not there yet"))
    assert download_folder() == tmp_path / "not there yet"
    assert download_folder(tmp_path / "given") == tmp_path / "given"
