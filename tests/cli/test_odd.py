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

import numpy as np
import pytest

from tests.tables.cases import RIVER, as_csv, floods, river
from toporo.cli.running import use_utf8
from toporo.tables import fit_table, load_model

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


@pytest.mark.parametrize("version", ["²", "9" * 5000, "-1", "1.0", ""])
def test_a_schema_of_no_known_version_is_refused(toporo: Run, fitted: Path, version: str) -> None:
    file = fitted / "model.json"
    file.write_text(file.read_text().replace("toporo.model/1", f"toporo.model/{version}"))
    done = toporo("predict", "model", "river.csv")
    assert done.code == 1
    assert "is not a toporo model" in done.err


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
    assert "is in the folder of the model" in done.err
    assert {path.name: path.read_bytes() for path in fitted.iterdir()} == before


# ---------------------------------------------------------------- what is asked


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--set", "radius=1"), "two ways to say the same"),
        (("--categorical", "station"), "'station' is the group, so it cannot be a categorical feature"),
        (("--categorical", "y"), "--task classification"),
        (("--categorical", "x", "--exclude", "x"), "both named for use and excluded: 'x'"),
        (("--features", "x", "--exclude", "x"), "both named for use and excluded: 'x'"),
    ],
)
def test_requests_that_contradict_themselves(toporo: Run, files: Path, options: tuple[str, ...], words: str) -> None:
    done = toporo(*FIT, "--out", "model", *options)
    assert done.code == 1
    assert words in done.err
    assert not (files / "model").exists()


@pytest.mark.parametrize("method", ["group-dro", "erm", "tro"])
def test_a_graph_of_other_groups_is_refused_whatever_the_method(toporo: Run, files: Path, method: str) -> None:
    (files / "edges.csv").write_text("a,b\nb,c\n")
    done = toporo(*FIT[:-2], "--out", "model", "--graph", "edges.csv", "--set", f"method={method}")
    assert done.code == 1
    assert "not in the graph: 'lower'" in done.err


def test_where_no_group_is_unseen_there_is_nothing_to_judge(toporo: Run, fitted: Path) -> None:
    lines = as_csv(river(3, groups=("spring", "upper")))
    done = toporo("evaluate", "model", "-", "--unseen", stdin=lines)
    assert done.code == 1
    assert "no row of the table is in groups that it was not trained on" in done.err
    assert "'y' is empty" in toporo("evaluate", "model", "-", "--unseen", stdin=as_csv(river() | {"y": [""] * 200})).err


def test_a_column_that_is_called_like_the_predictions(toporo: Run, files: Path) -> None:
    table = river()
    table["prediction"] = table.pop("station")
    (files / "clash.csv").write_text(as_csv(table))
    assert toporo("fit", "clash.csv", *FIT[2:4], "--group", "prediction", *FIT[6:], "--out", "model").code == 0
    done = toporo("predict", "model", "clash.csv")
    assert done.code == 1
    assert "(--keep)" in done.err
    assert toporo("predict", "model", "clash.csv", "--keep", "x").code == 0


# ---------------------------------------------------------------- numbers


def test_json_has_no_infinity_where_no_path_leads(toporo: Run, files: Path) -> None:
    (files / "pieces.csv").write_text("spring,upper\nmiddle,lower\nlower,mouth\n")
    done = toporo(*FIT, "--out", "model", "--graph", "pieces.csv", "--test-groups", "mouth", "--json")
    hops = {row["group"]: row["hops"] for row in strict(done.out)["groups"]}
    assert hops == {"spring": "inf", "upper": "inf", "middle": 2, "lower": 1}
    assert {row["group"]: row["hops"] for row in strict(toporo("explain", "model", "--json").out)["groups"]} == hops


@pytest.mark.parametrize("unit", [1e-120, 1e99])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_features_in_absurd_units_are_features(unit: float, task: str) -> None:
    table, target = (river(), "y") if task == "regression" else (floods(), "flood")
    scaled = table | {"x": [value * unit for value in table["x"]]}
    one, other = (fit_table(t, target=target, group="station", penalty=1.0) for t in (table, scaled))
    if task == "regression":
        assert np.allclose(one.predict(table), other.predict(scaled), rtol=1e-6, atol=1e-9)
    else:
        assert np.allclose(one.predict_proba(table), other.predict_proba(scaled), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("column", "unit", "words"),
    [
        ("y", 1e200, "river.csv holds 200 value(s) beyond 1e+100 (first: row 1, column 'y')"),
        ("y", 1e-200, "y holds numbers too small to be squared"),
        ("x", 1e-300, "X holds numbers too small to be squared"),
        ("x", 1e300, "river.csv holds 200 value(s) beyond 1e+100 (first: row 1, column 'x')"),
    ],
)
def test_numbers_beyond_all_measure_are_an_error(
    toporo: Run, files: Path, column: str, unit: float, words: str
) -> None:
    table = river()
    (files / "river.csv").write_text(as_csv(table | {column: [value * unit for value in table[column]]}))
    done = toporo(*FIT, "--out", "model")
    assert done.code == 1
    assert words in done.err
    assert "RuntimeWarning" not in done.err
    assert not (files / "model").exists()


def test_an_input_beyond_all_measure_names_its_row(toporo: Run, fitted: Path) -> None:
    table = river(3)
    table["x"][7] = 1.7e308
    done = toporo("predict", "model", "-", "--json", stdin=as_csv(table))
    assert done.code == 1
    assert "standard input holds 1 value(s) beyond 1e+100 (first: row 8, column 'x')" in done.err


def test_only_the_ratios_of_weights_count(toporo: Run, files: Path) -> None:
    coefficients = []
    for weight in (1.0, 1e99, 1e-300):
        (files / "river.csv").write_text(as_csv(river() | {"w": [weight] * 200}))
        done = toporo(*FIT, "--out", "model", "--weight", "w", "--overwrite")
        assert done.code == 0, done.err
        assert "RuntimeWarning" not in done.err
        coefficients.append(load_model("model").estimator.coef_)
    assert all(np.allclose(found, coefficients[0], rtol=1e-9) for found in coefficients)


# ---------------------------------------------------------------- rows


def test_rows_are_numbered_as_in_the_file(toporo: Run, files: Path) -> None:
    table = {"w": [1.0] * 200} | river(groups=("mouth", "spring", "upper", "middle", "lower"))
    table["y"][150] = None
    (files / "river.csv").write_text(as_csv(table))
    ask = (*FIT, "--out", "model", "--graph", "edges.csv", "--test-groups", "mouth", "--weight", "w")
    assert "1 of 160 rows lack 'y' (first: row 151)" in toporo(*ask).err
    table["y"][150], table["w"][160] = 1.0, -2.0
    table["station"][0] = None
    (files / "river.csv").write_text(as_csv(table))
    assert "river.csv, row 161: weight 'w' is negative (-2)" in toporo(*ask, "--drop-rows").err
    table["w"][160], table["y"][161] = 1.0, None
    (files / "river.csv").write_text(as_csv(table))
    done = toporo(*ask, "--drop-rows")
    assert "159 rows, 4 groups" in done.out
    assert "39 rows set aside; 2 rows dropped" in done.out


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (as_csv(river()).encode("utf-16"), "iconv -f utf-16"),
        (as_csv(river()).encode("utf-16-le"), "iconv -f utf-16"),
        (as_csv(river()).encode("utf-16-be"), "iconv -f utf-16"),
        (b"A title\n\n" + as_csv(river()).encode(), "Expected 1 columns, got"),
    ],
)
def test_files_that_look_like_csv_and_are_not(toporo: Run, files: Path, content: bytes, words: str) -> None:
    (files / "river.csv").write_bytes(content)
    done = toporo(*FIT, "--out", "model")
    assert done.code == 1
    assert words in done.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda i, x: f"{x:.4f}".replace(".", ","), "their numbers have commas or other signs: 'x' ('-0,"),
        (lambda i, x: f"${abs(x):.4f}", "their numbers have commas or other signs: 'x' ('$0."),
        (lambda i, x: f"{1 + i % 12}/{1 + i % 28}/2024", "their dates are written in another way: 'x' ('1/"),
        (lambda i, x: "broken" if i == 77 else f"{x:.6f}", "a few of many values are no numbers: 'x' ('broken')"),
    ],
)
def test_columns_that_are_text_by_mistake_are_named(
    toporo: Run, files: Path, change: Callable[[int, float], str], words: str
) -> None:
    table = river()
    cells = [f'"{change(i, value)}"' for i, value in enumerate(table["x"])]
    (files / "river.csv").write_text(as_csv(table | {"x": cells}))
    done = toporo(*FIT, "--out", "model")
    assert done.code == 0
    assert words in done.err
    assert "'bed'" not in done.err
    assert "commas" not in toporo(*FIT, "--out", "other", "--categorical", "x").err, "it is meant"


def test_a_target_of_dates_says_what_is_predicted(toporo: Run, files: Path) -> None:
    days = [f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(200)]
    (files / "river.csv").write_text(as_csv(river() | {"y": days}))
    done = toporo(*FIT, "--out", "model")
    assert done.code == 0
    assert "days since 1970-01-01" in done.err
    assert "2024-01-01 to 2024-12-28" in done.out


def test_a_graph_is_learned_from_a_few_different_points(toporo: Run, files: Path) -> None:
    table = river(rows=20)
    (files / "river.csv").write_text(as_csv({name: table[name] for name in ("station", "bed", "y")}))
    done = toporo(*FIT, "--out", "model", "--graph", "learn")
    assert done.code == 0, done.err
    assert set(load_model("model").graph.names) == {"spring", "upper", "middle", "lower", "mouth"}


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


def test_too_little_memory_is_a_message(
    toporo: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(river()), tmp_path / "t.parquet")

    def full(*_: Any, **__: Any) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", full)
    done = toporo("fit", "t.parquet", "--target", "y", "--group", "station", "--out", "m")
    assert done.code == 1
    assert "not enough memory (malloc of size 64 failed)" in done.err
    assert not (tmp_path / "m").exists()


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


def test_names_of_groups_are_text(toporo: Run, files: Path) -> None:
    done = toporo("doctor", "river.csv", "--group", "station", "--test-groups", os.fsdecode(b"\xff"), "--json")
    assert (done.code, done.out) == (1, "")
    assert "a group is called '\\udcff', which is no text" in done.err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("doctor loop --group station", "no such file: loop"),
        ("fit loop --target y --group station --out m", "no such file: loop"),
        ("evaluate model loop", "no such file: loop"),
        ("report model loop", "no such file: loop"),
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


def test_a_page_takes_the_place_of_links_in_a_loop(toporo: Run, fitted: Path) -> None:
    out, other = fitted.parent / "loop.html", fitted.parent / "other.html"
    out.symlink_to(other)
    other.symlink_to(out)
    done = toporo("report", "model", "--out", out)
    assert done.code == 0, done.err
    assert not out.is_symlink()


# ---------------------------------------------------------------- numbers and places beyond all measure


@pytest.mark.parametrize("unit", [1e99, 1e-200])
def test_targets_beyond_all_measure_are_judged(toporo: Run, fitted: Path, unit: float) -> None:
    table = river()
    (fitted.parent / "far.csv").write_text(as_csv(table | {"y": [value * unit for value in table["y"]]}))
    content = strict(toporo("evaluate", "model", "far.csv", "--json").out)
    done = toporo("report", "model", "far.csv", "--json")
    assert done.code == 0, done.err
    assert "Warning" not in done.err
    assert strict(done.out)["evaluation"]["overall"] == content["overall"]
    if unit > 1:
        assert unit / 100 < content["overall"]["rmse"]["low"] < content["overall"]["rmse"]["high"] < unit * 100
