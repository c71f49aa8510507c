"""Odd things that were tried at the command line and once went wrong: each is a message, an exit code and no debris."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tables.cases import RIVER, as_csv, river
from toporo.cli.running import use_utf8
from toporo.tables import load_model

Run = Callable[..., Any]
FIT = ("fit", "river.csv", "--target", "y", "--group", "station", "--set", "penalty=1")
EDGES = "source,target\n" + "".join(f"{a},{b}\n" for a, b in RIVER)


@pytest.fixture
def files(tmp_path: Path, toporo: Run) -> Path:
    (tmp_path / "river.csv").write_text(as_csv(river()))
    (tmp_path / "edges.csv").write_text(EDGES)
    return tmp_path


@pytest.fixture
def fitted(files: Path, toporo: Run) -> Path:
    assert toporo(*FIT, "--out", "model", "--graph", "edges.csv", "--test-groups", "mouth").code == 0
    return files / "model"


def temporary(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*")]


def strict(text: str) -> Any:
    """JSON as the standard has it: without Infinity and NaN."""
    return json.loads(text, parse_constant=pytest.fail)


# ---------------------------------------------------------------- where a model goes


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (".", "holds other things"),
        ("", "holds other things"),
        ("sub/..", "holds other things"),
        ("river.csv/model", "river.csv is a file"),
    ],
)
def test_a_place_for_a_model_is_looked_at_before_the_work(toporo: Run, files: Path, out: str, words: str) -> None:
    (files / "sub").mkdir()
    done = toporo("fit", "nothing.csv", *FIT[2:], "--out", out)
    assert done.code == 1
    assert words in done.err
    assert not temporary(files)


def test_a_folder_that_may_not_be_written_to_is_an_error_before_the_work(
    toporo: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode & os.W_OK == 0 and real(path, mode))
    done = toporo("fit", "nothing.csv", *FIT[2:], "--out", "a/b/model")
    assert done.code == 1
    assert "may not be written to" in done.err


def test_a_link_to_a_model_stays_a_link(toporo: Run, fitted: Path) -> None:
    link = fitted.with_name("link")
    link.symlink_to("model")
    assert toporo(*FIT[:-1], "penalty=7", "--out", "link", "--overwrite").code == 0
    assert link.is_symlink()
    assert load_model(fitted).estimator.penalty_ == 7
    assert not temporary(fitted.parent)


def test_what_cannot_be_read_is_not_said_to_be_unwritable(
    toporo: Run, fitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", denied)
    done = toporo("explain", "model")
    assert done.code == 1
    assert "cannot read model/model.json: Permission denied." in done.err


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "model", "river.csv", "--out", "model/p.csv"),
        ("evaluate", "model", "river.csv", "--out", "model/by-group.csv"),
        ("evaluate", "other", "river.csv", "--against", "model", "--out", "model/by-group.csv"),
        ("explain", "model", "--out", "model/../model/weights.csv"),
        ("explain", "model", "--out", "model/picture.png"),
    ],
)
def test_nothing_is_written_among_the_files_of_a_model(toporo: Run, fitted: Path, command: tuple[str, ...]) -> None:
    shutil.copytree(fitted, fitted.with_name("other"))
    before = {path.name: path.read_bytes() for path in fitted.iterdir()}
    done = toporo(*command)
    assert done.code == 1
    assert "is in the folder" in done.err
    assert {path.name: path.read_bytes() for path in fitted.iterdir()} == before


# ---------------------------------------------------------------- what is asked


# ---------------------------------------------------------------- numbers


def test_json_has_no_infinity_where_no_path_leads(toporo: Run, files: Path) -> None:
    (files / "pieces.csv").write_text("spring,upper\nmiddle,lower\nlower,mouth\n")
    done = toporo(*FIT, "--out", "model", "--graph", "pieces.csv", "--test-groups", "mouth", "--json")
    hops = {row["group"]: row["hops"] for row in strict(done.out)["groups"]}
    assert hops == {"spring": "inf", "upper": "inf", "middle": 2, "lower": 1}
    assert {row["group"]: row["hops"] for row in strict(toporo("explain", "model", "--json").out)["groups"]} == hops


def test_a_prediction_that_is_not_finite_names_its_row(toporo: Run, fitted: Path) -> None:
    table = river(3)
    table["x"][7], table["depth"][7] = 1.7e308, 1.7e308
    done = toporo("predict", "model", "-", "--json", stdin=as_csv(table))
    assert done.code == 1
    assert "standard input, row 8: the prediction is not finite" in done.err


# ---------------------------------------------------------------- rows


# ---------------------------------------------------------------- files


# ---------------------------------------------------------------- signs


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_what_goes_into_a_pipe_is_utf8_everywhere(
    toporo: Run, files: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    (files / "river.csv").write_text(
        as_csv(river()).replace("spring", "Исток").replace("sand", "дно"), encoding="utf-8"
    )
    assert toporo(*FIT, "--out", "model").code == 0
    for command in (("predict", "model", "river.csv"), ("explain", "model"), ("evaluate", "model", "river.csv")):
        raw = io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, write_through=True))
            done = toporo(*command)
            assert done.code == 0, done.err
            assert "Исток" in raw.getvalue().decode()


def test_a_terminal_shows_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(raw, encoding="latin-1", write_through=True))
    use_utf8()
    print("Größe Исток", end="")
    assert raw.getvalue() == "Größe ".encode("latin-1") + b"\\u0418\\u0441\\u0442\\u043e\\u043a"


@pytest.mark.parametrize("graph", [(), ("--graph", "edges.csv")])
def test_names_in_pictures_are_names(toporo: Run, files: Path, graph: tuple[str, ...]) -> None:
    """Not formulas, whatever they look like; and of signs that a font lacks, one line speaks."""
    for file in ("river.csv", "edges.csv"):
        text = (
            (files / file)
            .read_text()
            .replace("spring", "$\\frac{$")
            .replace("upper", "名前")
            .replace("lower", "長" * 90)
        )
        (files / file).write_text(text, encoding="utf-8")
    assert toporo(*FIT, "--out", "model", *graph).code == 0
    done = toporo("explain", "model", "--out", "weights.png")
    assert done.code == 0
    assert done.err.count("font lacks signs") == 1
    assert "UserWarning" not in done.err


def test_names_that_cannot_be_read_are_a_mistake_in_typing(toporo: Callable[..., Any]) -> None:
    done = toporo("fit", "t.csv", "--target", "y", "--group", "g", "--out", "m", "--exclude", "a" * 200_000)
    assert done.code == 2
    assert "names between commas" in " ".join(done.err.split())


def test_a_closed_standard_input_is_an_error(
    toporo: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from toporo import cli

    monkeypatch.setattr(sys, "argv", ["toporo", "topology", "-", "--group", "g"])
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    assert "standard input is closed" in capsys.readouterr().err


# ---------------------------------------------------------------- names of files


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("doctor {data} --group station --target y --json", ""),
        ("doctor {data} --group station --out {out}.html --out {out}.svg", "html svg"),
        ("fit {data} --target y --group station --set penalty=1 --out {out}.model", "model"),
        ("fit {data} --target y --group station --set penalty=1 --out {out}.model --json", "model"),
        ("evaluate model {data} --out {out}.csv --json", "csv"),
        ("report model {data} --out {out}.html --json --set resamples=0", "html"),
        ("explain model --out {out}.csv --out {out}.svg", "csv svg"),
    ],
)
def test_names_of_files_need_not_be_utf8(toporo: Run, fitted: Path, command: str, written: str) -> None:
    """Linux takes any bytes: such files are read and written, and their names are said in some way."""
    data, out = os.fsdecode(b"r\xff.csv"), os.fsdecode(b"o\xfe")
    (fitted.parent / data).write_text(as_csv(river()))
    done = toporo(*command.format(data=data, out=out).split())
    assert done.code == 0, done.err
    for suffix in written.split():
        path = fitted.parent / f"{out}.{suffix}"
        assert path.exists()
        assert f": o\\udcfe.{suffix}" in " ".join((done.out + done.err).split())
    if "model {data}" not in command and "--json" in command:
        assert "r\\\\udcff.csv" in done.out
    if "{out}.model" in command:
        assert load_model(fitted.parent / f"{out}.model").about["source"] == "r\\udcff.csv"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("doctor loop --group station", "cannot read loop: Too many levels of symbolic links"),
        ("fit loop --target y --group station --out m", "cannot read loop: Too many levels"),
        ("evaluate model loop", "cannot read loop: Too many levels"),
        ("report model loop", "cannot read loop: Too many levels"),
        ("report loop river.csv", "loop is not a model folder"),
        ("evaluate loop river.csv --out a.csv", "loop is not a model folder"),
        ("explain loop --out a.csv", "loop is not a model folder"),
        ("evaluate model river.csv --against loop --out a.csv", "loop is not a model folder"),
        ("report model river.csv --out loop/a.html", "there is no folder loop"),
        ("fit river.csv --target y --group station --out loop", "loop is a link to nowhere"),
    ],
)
def test_links_in_a_loop_lead_nowhere(toporo: Run, fitted: Path, command: str, words: str) -> None:
    (fitted.parent / "loop").symlink_to("pool")
    (fitted.parent / "pool").symlink_to("loop")
    before = set(fitted.parent.iterdir())
    done = toporo(*command.split())
    assert done.code == 1
    assert words in done.err
    assert set(fitted.parent.iterdir()) == before


# ---------------------------------------------------------------- numbers and places beyond all measure
