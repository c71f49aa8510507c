"""What several tests share."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
from hypothesis import settings

matplotlib.use("Agg")
settings.load_profile("ci")  # no deadlines, which a busy machine misses, and the same examples each time
# Tiny tensors gain nothing from threads and, on a busy machine, wait for them thirty times longer; children inherit it.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

#: Read once: tests that play a machine without data unset the variable.
DATA = os.environ.get("TOPORO_DATA")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, then those with many: the last file of all is a short one, for one process alone."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    count = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in slow, -count[item.path], item.path))


@pytest.fixture
def real_data() -> Path:
    """The folder with downloaded data; tests that need it skip where it is absent."""
    if not DATA:
        pytest.skip("TOPORO_DATA is not set: this test needs the published data files")
    return Path(DATA)


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As on a machine where nothing was downloaded."""
    monkeypatch.delenv("TOPORO_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, installed or named by TOPORO_BROWSER; tests that need it skip where it is absent."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    names = os.environ.get("TOPORO_BROWSER", ""), "chromium", "chromium-browser", "google-chrome"
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("needs Chromium: install it, or name it by TOPORO_BROWSER")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT interrupts this process and those it starts, also where it is ignored, as in tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


@dataclass
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def toporo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Done]:
    """The command line in this process and a folder of its own: what ``toporo …`` does, without the start."""
    from toporo import cli

    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "argv", ["toporo", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run
