"""``toporo data``: what there is, getting it, checking it, and what a user reads when it cannot be had."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.paper.fake_nclimdiv import write_fake
from tests.paper.file_server import Publisher, serving
from tests.paper.tiny_floods import write_floods
from tests.paper.tiny_images import write_tiny
from toporo.paper.domainbed import SPECS
from toporo.paper.loaded import cache_folder

FOLDERS = {
    "pacs": "PACS",
    "vlcs": "VLCS",
    "terra": "terra_incognita",
    "office_home": "office_home",
    "sen1floods11": "sen1floods11/v1.1",
}
GENERATED = "absent (generated when needed)"
NAME = "climdiv-tmpcst-v1.0.0-20240906"
pytestmark = pytest.mark.usefixtures("no_data", "no_proxy")


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    content = write_fake(tmp_path / "published").read_bytes()
    with serving(Publisher({NAME: content, "procdate.txt": b"20240906\n"})) as running:
        yield running


Run = Callable[..., Done]


@pytest.fixture
def run(toporo: Run) -> Run:
    """What ``toporo data …`` does, without the start."""
    return partial(toporo, "data")


def test_list_and_verify_without_data(run: Run) -> None:
    done = run("list", "--json")
    rows = json.loads(done.out)
    assert [(row["name"], row["status"]) for row in rows] == [
        ("dg15", GENERATED),
        ("dg60", GENERATED),
        ("tpt48", "absent (toporo data get tpt48)"),
        *((name, f"absent (toporo data get {name} says how to get it)") for name in FOLDERS),
    ]
    assert rows[2]["file"] == "tpt48/climdiv-tmpcst-v*"
    assert {row["name"]: row["file"] for row in rows[3:]} == FOLDERS
    assert run("verify").code == 0


def test_folders_of_images_and_chips_are_counted(run: Run, tmp_path: Path) -> None:
    write_tiny(tmp_path, SPECS["pacs"], per_class=2)
    write_tiny(tmp_path, SPECS["terra"], per_class=2)
    bucket = write_floods(tmp_path)
    (bucket / "data/flood_events/HandLabeled/S1Hand/India_300_S1Hand.tif").unlink()
    text = run("list", "--data", tmp_path).out
    assert f"found (24 images in 4 domains): {tmp_path}/PACS\n" in text
    assert f"found (24 images in 4 domains): {tmp_path}/terra_incognita\n" in text
    assert f"differs (19 of 20 chips, of lists that are not the official): {bucket}\n" in text
    assert "absent (toporo data get vlcs says how to get it): VLCS\n" in text


def test_verify_notices_lists_of_chips_that_differ_or_lack(run: Run, tmp_path: Path) -> None:
    bucket = write_floods(tmp_path)
    done = run("verify", "--data", tmp_path)
    assert done.code == 1
    assert "differs (" in done.out, "the generated lists are not the official ones"
    (bucket / "splits/flood_handlabeled/flood_valid_data.csv").unlink()
    done = run("verify", "--data", tmp_path)
    assert "damaged (no list " in done.out


def test_verify_notices_files_that_differ_and_folders_that_cannot_be_loaded(run: Run, tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, SPECS["pacs"], per_class=2)
    done = run("verify", "--data", tmp_path)
    assert (done.code, done.err) == (0, ""), "there is no checksum that they could differ from"
    shutil.rmtree(folder / "sketch")
    done = run("verify", "--data", tmp_path)
    assert done.code == 1
    assert "damaged (" in done.out
    assert "lacks the domain folder(s) 'sketch'" in done.out
    shutil.rmtree(folder)
    (tmp_path / "dg").mkdir()
    (tmp_path / "dg/toy_d60_spiral.pkl").write_bytes(b"something else")
    done = run("verify", "--data", tmp_path)
    assert done.code == 1
    assert "damaged (" in done.out
    assert "differs from the published file" in done.out
    assert "fetch it again" in done.err


def test_published_files_are_intact(run: Run, real_data: Path) -> None:
    done = run("verify", "--data", real_data)
    assert done.code == 0
    assert len([line for line in done.out.splitlines() if " intact: " in line]) == 3
    if (real_data / "PACS").is_dir():
        assert "found (9,991 images in 4 domains): " in done.out
    if (real_data / "sen1floods11").is_dir():
        assert re.search(r"found \(\d+ of 446 chips\): ", done.out)


def test_get_fetches_once_and_verify_notices_later_damage(run: Run, publisher: Publisher) -> None:
    """Without a folder it goes to the cache, where the other commands look too."""
    path = cache_folder() / "tpt48" / NAME
    first = run("get", "tpt48", "--url", publisher.url)
    assert first.code == 0, first.err
    assert f" complete: {path}\n" in first.out
    assert first.err == ""
    asked = len(publisher.asked)
    again = run("get", "tpt48", "--url", publisher.url)
    assert (again.code, again.out, again.err) == (0, first.out, "")
    assert len(publisher.asked) == asked
    assert f"complete: {path}\n" in run("verify").out
    path.write_bytes(path.read_bytes()[:-1000])
    damaged = run("verify")
    assert damaged.code == 1
    assert "damaged (" in damaged.out


def test_get_into_a_folder_says_how_to_use_it(run: Run, publisher: Publisher, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    done = run("get", "tpt48", "--data", folder, "--url", publisher.url)
    assert done.code == 0, done.err
    assert (folder / "tpt48" / NAME).is_file()
    assert f"use it with --data {folder}" in done.err


def test_no_connection_is_one_message_and_exit_code_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/climdiv/"
        command = [sys.executable, "-m", "toporo", "data", "get", "tpt48", "--data", str(tmp_path / "d"), "--url", url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"toporo: {url}procdate.txt: no connection (")
    assert f"put it into {tmp_path}/d/tpt48 and go on." in line
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "--data", "absent"), "no such data folder: absent"),
        (("get", "dg15"), "dg15 has no place to fetch it from. toporo generates it when needed"),
        (("get", "pacs"), "DomainBed's download script gets it; its images go into the data folder as PACS/<domain>"),
        (("get", "sen1floods11"), "sen1floods11 has no place to fetch it from. Copy gs://sen1floods11/v1.1"),
        (("get", "tpt48", "--url", "file:///tmp"), "expected https://"),
    ],
)
def test_a_users_mistake_is_one_message_and_exit_code_1(run: Run, arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.code == 1
    assert message in done.err
    assert "Traceback" not in done.err
