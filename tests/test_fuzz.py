"""Damaged files are read or refused by everything that reads files; and the tool that tries them misses no failure."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CORPUS, READERS = ROOT / "tests" / "corpus", ROOT / "tools" / "fuzz_readers.py"
#: Readers whose whole files are too large for a corpus.
NEVER_READ = {"weights"}
#: Damaged files of every reader that are tried first.
FEW = 15

#: Readers as bad as can be, and a good one. The seeds they read; what is damaged is their end.
BAD = """
import ctypes, os, signal, time
from types import SimpleNamespace
from toporo.errors import DataError

def ending(end):
    return SimpleNamespace(
        seeds={"0": b"0", "1": b"1"},
        mutators=(lambda rng, data, others: b"2",),
        read=lambda file, rng: end() if file.read_bytes() == b"2" else None,
    )

def refuse():
    raise DataError("no")

READERS = {
    "good": ending(lambda: None),
    "refusing": ending(refuse),
    "raising": ending(lambda: {}["key"]),
    "leaving": ending(lambda: os._exit(3)),
    "crashing": ending(lambda: ctypes.string_at(0)),
    "killed": ending(lambda: os.kill(os.getpid(), signal.SIGBUS)),
    "eating": ending(lambda: bytearray(300 << 20)),
    "exhausting": ending(lambda: bytearray(1 << 40)),
    "hanging": ending(lambda: time.sleep(60)),
}
"""


@pytest.fixture(scope="module")
def fuzz() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "tools"))
        yield importlib.import_module("fuzz")


@pytest.fixture(scope="module")
def bad(fuzz: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the tool finds of the bad readers."""
    file = tmp_path_factory.mktemp("readers") / "bad_readers.py"
    file.write_text(BAD, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fuzz, "HANG", 5.0)
        return fuzz.fuzz(file, tuple(fuzz.load_readers(file)), cases=3, failures=file.parent / "failures")


@pytest.mark.parametrize(
    ("reader", "kind"),
    [
        ("raising", "KeyError"),
        ("leaving", "exit code 3"),
        ("crashing", "SIGSEGV"),
        ("killed", "SIGBUS"),
        ("eating", "memory"),
        ("exhausting", "MemoryError"),
        ("hanging", "more than 5 s"),
    ],
)
def test_a_reader_that_ends_badly_is_found_and_the_rest_goes_on(bad: Any, reader: str, kind: str) -> None:
    assert bad.counts[reader] == Counter(read=2, failed=1)
    ((name, *_),) = {key[1:] for key in bad.groups if key[0] == reader}
    assert name == kind


def test_reading_and_refusing_are_no_failures(bad: Any) -> None:
    assert bad.counts["good"] == Counter(read=3)
    assert bad.counts["refusing"] == Counter(read=2, refused=1)
    assert bad.failed == 7


def test_failures_are_shown_with_a_way_to_see_them_again(bad: Any) -> None:
    assert "crashing: SIGSEGV, 1 cases" in bad.failures()
    assert "--seed 0 --replay raising:2\n  KeyError: 'key'" in bad.failures()
    assert "| good | 3 | 3 | 0 | 0 |" in bad.markdown()
    assert bad.memory["eating"] > 299 << 20


def test_the_file_of_a_failure_is_kept(bad: Any, fuzz: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = next(tmp_path_factory.getbasetemp().glob("readers*/failures"))
    assert len(list(folder.glob("*.traceback"))) == 7
    kept = {path.name.split("-")[0] for path in folder.iterdir() if path.read_bytes() == b"2"}
    assert kept == {"raising", "leaving", "crashing", "killed", "eating", "exhausting", "hanging"}


Outcomes = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def child(fuzz: Any) -> Iterator[Any]:
    """The process that reads, one for all tests: its start takes long."""
    child = fuzz.Child(READERS)
    yield child
    child.close()


def _outcomes(child: Any, start: int, stop: int) -> Outcomes:
    """What becomes of these damaged files of every reader; of its seeds, too, where the first of them is asked for."""
    return {
        name: [
            child.read(name, 0, number) | {"number": number, "whole": number < seeds}
            for number in range(seeds + start if start else 0, seeds + stop)
        ]
        for name, seeds in child.seeds.items()
    }


def _failures(outcomes: Outcomes) -> list[str]:
    return [
        f"{name}:{one['number']} {one['kind']} {one['where']}: {one['text'][-200:]}"
        for name, every in outcomes.items()
        for one in every
        if one["outcome"] == "failed"
    ]


def test_damaged_files_are_read_or_refused(child: Any) -> None:
    outcomes = _outcomes(child, 0, FEW)
    failures = _failures(outcomes)
    assert not failures, "\n".join(failures)
    for name, every in outcomes.items():
        good = {one["outcome"] for one in every if one["whole"] and not one["file"].startswith("once-")}
        assert good == ({"refused"} if name in NEVER_READ else {"read"}), f"{name}: a seed is no longer good"


@pytest.mark.slow
def test_many_damaged_files_are_read_or_refused(child: Any) -> None:
    """With those above, the first of those that `make fuzz` tries for as long as one likes."""
    failures = _failures(_outcomes(child, FEW, 60))
    assert not failures, "\n".join(failures)


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 300_000
