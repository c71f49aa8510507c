"""Conformance of all commands: help, flags, mistakes in what is typed, files that cannot be written, interruption."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import check_line, find_command, leaves
from tests.paper.fake_nclimdiv import write_fake
from tests.tables.cases import RIVER, as_csv, river
from toporo.tables import fit_table

pytestmark = pytest.mark.usefixtures("no_data")
Run = Callable[..., Any]
ROLES = "t.csv -t y -g station --graph e.csv --test-groups mouth"
#: Of every command a line that works, the name in its module that does the work, and a file or folder that it writes.
LINES: dict[str, tuple[str, str, str]] = {
    "doctor": (f"doctor {ROLES}", "examine", "d.html"),
    "fit": (f"fit {ROLES} --set penalty=1 -o {{out}}", "fit_table", "new"),
    "predict": ("predict model t.csv", "predicted", "p.csv"),
    "evaluate": ("evaluate model t.csv --set resamples=20", "evaluate_all", "e.csv"),
    "compare": (f"compare {ROLES} --fast --set folds=2", "compare_models", "c.csv"),
    "explain": ("explain model", "load_model", "x.csv"),
    "report": ("report model t.csv --set resamples=20 -o {out}", "load_model", "r.html"),
    "topology": ("topology t.csv -g station -t y --set resamples=0", "read_points", "g.json"),
    "reproduce": ("reproduce dg15 --seeds 1 --methods erm --jobs 1 -o {out}", "run", "runs"),
    "theory": ("theory --quick -o {out}", "run_study", "theory"),
    "data list": ("data list", "listed_benchmarks", ""),
    "data verify": ("data verify", "listed_benchmarks", ""),
    "data table": ("data table tpt48 --data data -o {out}", "export", "t48.csv"),
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "t.csv").write_text(as_csv(river(rows=20)))
    (folder / "e.csv").write_text("".join(f"{a},{b}\n" for a, b in RIVER))
    write_fake(folder / "data/tpt48/climdiv-tmpcst-v1.0.0-20200106")
    fit_table(folder / "t.csv", target="y", group="station", graph=RIVER, test_groups=["mouth"], penalty=1.0).save(
        folder / "model"
    )
    return folder


@pytest.fixture
def run(prepared: Path, toporo: Run, tmp_path: Path) -> Run:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return toporo


def line(name: str, out: str | None = None) -> list[str]:
    """The words of a command's line, and ``--out`` where it writes a file only if asked."""
    text, _, usual = LINES[name]
    if "{out}" in text or not usual or out is None:
        return shlex.split(text.format(out=out or usual))
    return [*shlex.split(text), "--out", out]


def module_of(name: str) -> str:
    return f"toporo.cli.{name.split()[0]}"


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("words", leaves(), ids=" ".join)
def test_help_has_the_flags_and_an_example_that_can_be_typed(words: tuple[str, ...]) -> None:
    command = find_command(words)[0]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--quiet", "-q", "--verbose", "-v", "--json"} <= options
    assert all(parameter.help for parameter in command.params)
    page = " ".join((command.help or "").split())
    (example,) = re.findall(r"Example: toporo (.*)$", page)
    typed = shlex.split(example.split(" > ")[0])
    assert tuple(typed[: len(words)]) == words
    check_line(typed)


@pytest.mark.parametrize("name", [name for name in LINES if name != "theory"])
def test_with_json_there_is_json_on_standard_output_and_no_progress(run: Run, name: str) -> None:
    done = run(*line(name), "--json")
    assert done.code == 0, done.err
    texts = done.out.splitlines() if name == "predict" else [done.out]
    assert all(json.loads(text, parse_constant=pytest.fail) for text in texts)
    assert "runs (" not in done.err


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("wrong", [["--no-such-option"], ["--set", "speed=1"], ["--quiet=3"], ["one", "too", "many"]])
def test_wrong_usage_is_exit_code_2(run: Run, tmp_path: Path, name: str, wrong: list[str]) -> None:
    before = content(tmp_path)
    done = run(*line(name), *wrong)
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", [name for name, (*_, out) in LINES.items() if out and name != "reproduce"])
def test_a_file_that_cannot_be_written_is_an_error_before_the_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run("--version")
    monkeypatch.setattr(f"{module_of(name)}.{LINES[name][1]}", lambda *_, **__: pytest.fail("worked"))
    before = content(tmp_path)
    suffix = Path(LINES[name][2]).suffix
    places = [f"t.csv/new{suffix}"] if name in ("fit", "theory") else [f"no/new{suffix}", "."]
    places += ["t.csv"] if suffix == ".csv" and name not in ("data table", "explain") else []
    for place in places:
        done = run(*line(name, place))
        assert (done.code, done.out) == (1, ""), place
        assert done.err.startswith("toporo: ")
        assert len(done.err.splitlines()) == 1
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", LINES)
def test_an_interrupt_is_one_sentence_and_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    run("--version")
    monkeypatch.setattr(f"{module_of(name)}.{LINES[name][1]}", interrupted)
    before = content(tmp_path)
    done = run(*line(name, LINES[name][2] or None))
    assert (done.code, done.out) == (130, "")
    assert done.err.startswith("toporo: interrupted")
    assert content(tmp_path) == before
