"""``toporo predict``: files of all kinds, spreadsheets, odd names, and rows out of reach."""

from __future__ import annotations

import csv
import inspect
import io
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tables.cases import as_csv, river
from toporo.cli.options import LimitedFlags
from toporo.cli.predict import WRITERS, csv_text, predict, without_formulas
from toporo.errors import DataError
from toporo.tables import fit_table, load_model

numbers = st.one_of(st.floats(allow_nan=False), st.floats(-10, 10), st.integers(-(10**17), 10**17).map(float))
texts = st.one_of(st.text(st.characters(codec="utf-8")), st.text(" \",;\n\r\t'#é", max_size=4))
Run = Callable[..., Any]


@given(st.lists(st.tuples(texts, numbers), min_size=1))
@example([("a,b", -0.0), ('"', 1e-5), ("\r\n", 1e16), ("", 123456.0), ("é", 12345678901.5)])
def test_csv_is_read_back_as_it_was(rows: list[tuple[str, float]]) -> None:
    names, floats = [name for name, _ in rows], [number for _, number in rows]
    text = csv_text(pa.table({"a": names, 'b "x"': pa.array(floats, pa.float64())}), titles=True)
    titles, *lines = csv.reader(io.StringIO(text, newline=""))
    assert titles == ["a", 'b "x"']
    assert [(name, float(number)) for name, number in lines] == rows


def test_an_error_further_on_comes_after_the_rows_before_it(tmp_path: Path) -> None:
    path, bad = tmp_path / "river.csv", tmp_path / "bad.csv"
    path.write_text(as_csv(river()))
    model = fit_table(path, target="y", group="station", features=["x"], penalty=1.0)
    bad.write_text("x\n1\n2\n3\n4\nfive\n")
    seen = []
    with pytest.raises(DataError, match="row 5"):
        seen.extend(len(portion.values) for portion in model.portions(bad, rows=2))
    assert seen == [2, 2]


# ---------------------------------------------------------------- spreadsheets


@pytest.fixture
def model(tmp_path: Path, toporo: Run) -> Path:
    (tmp_path / "river.csv").write_text(as_csv(river()))
    fit_table(tmp_path / "river.csv", target="y", group="station", features=["x"], penalty=1.0).save(tmp_path / "model")
    return tmp_path / "model"


def test_safe_csv_guards_cells_and_headers_and_nothing_else(toporo: Run, model: Path) -> None:
    table = 'x,=note,amount\n1,=1+1,-1.5\n2,"@a,b",+2\n3,plain,-x\n4,,\n'
    ask = ("predict", "model", "-", "--keep", "=note,amount")
    plain, safe = (toporo(*ask, *more, stdin=table).out for more in ((), ("--safe-csv",)))
    kept, guarded = ([row[:2] for row in csv.reader(io.StringIO(text))] for text in (plain, safe))
    assert kept == [["=note", "amount"], ["=1+1", "-1.5"], ["@a,b", "+2"], ["plain", "-x"], ["", ""]]
    assert guarded == [["'=note", "amount"], ["'=1+1", "-1.5"], ["'@a,b", "+2"], ["plain", "'-x"], ["", ""]]
    assert safe.replace("'", "") == plain, "nothing else is changed"
    assert toporo(*ask, "--safe-csv", "--out", "p.csv", stdin=table).code == 0
    assert Path("p.csv").read_text() == safe


@pytest.mark.parametrize("more", [("--json",), ("--out", "p.parquet"), ("--out", "p.feather")])
def test_only_csv_can_be_safe_csv(toporo: Run, model: Path, more: tuple[str, ...]) -> None:
    done = toporo("predict", "model", "river.csv", "--safe-csv", *more)
    assert done.code == 2
    assert "--safe-csv" in done.err


@given(st.one_of(texts, st.text("=+-@'\t\r\n1.e ", max_size=5), st.floats(-1e9, 1e9).map(repr)))
@example("-1.5")
@example("-1+1|cmd")
@example("＝1")
def test_no_text_is_taken_for_a_formula(text: str) -> None:
    (safe,) = without_formulas(pa.table({"a": [text]}))["a"].to_pylist()
    assert safe in (text, f"'{text}")
    if safe.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        assert np.isfinite(float(safe)), "a number, which is none"
        assert safe == text


# ---------------------------------------------------------------- several at once, and odd places


def others(folder: Path, number: int, rows: int) -> list[Path]:
    """Tables whose predictions differ in every row."""
    paths = [folder / f"{place}.csv" for place in range(number)]
    for place, path in enumerate(paths):
        path.write_text("x\n" + "".join(f"{place}.{i:06d}\n" for i in range(rows)))
    return paths


#: The command without its parser, for threads.
write = inspect.unwrap(predict)


@pytest.mark.parametrize("suffix", WRITERS)
def test_threads_that_predict_into_one_file_do_not_mix(tmp_path: Path, model: Path, suffix: str) -> None:
    tables = others(tmp_path, 3, 10_000)
    whole = set()
    for table in tables:
        write(model, str(table), out=tmp_path / f"alone.{suffix}", flags=LimitedFlags())
        whole.add((tmp_path / f"alone.{suffix}").read_bytes())
    with ThreadPoolExecutor(3) as pool:
        for _ in range(5):
            list(
                pool.map(
                    lambda table: write(model, str(table), out=tmp_path / f"same.{suffix}", flags=LimitedFlags()),
                    tables,
                )
            )
            assert (tmp_path / f"same.{suffix}").read_bytes() in whole
    assert len(whole) == 3
    assert not list(tmp_path.glob(".*"))


def test_a_link_where_unfinished_files_stood_is_left_alone(toporo: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".q.csv.part").symlink_to("precious")
    assert toporo("predict", "model", "river.csv", "--out", "q.csv").code == 0
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / ".q.csv.part").is_symlink()
    assert not (tmp_path / "q.csv").is_symlink()


@pytest.mark.parametrize("command", ["predict model river.csv", "report model", "explain model"])
def test_a_file_for_one_pair_of_eyes_stays_so(toporo: Run, model: Path, tmp_path: Path, command: str) -> None:
    out = tmp_path / "out.csv"
    out.write_text("old")
    out.chmod(0o600)
    assert toporo(*command.split(), "--out", "out.csv").code == 0
    assert out.read_text() != "old"
    assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("suffix", WRITERS)
def test_names_of_files_need_not_be_utf8(toporo: Run, model: Path, tmp_path: Path, suffix: str) -> None:
    """Linux takes any bytes: such files are read and written, and their names are said in some way."""
    data, out = os.fsdecode(b"r\xff.csv"), os.fsdecode(b"p\xfe." + suffix.encode())
    (tmp_path / data).write_text(as_csv(river()))
    done = toporo("predict", "model", data, "--out", out)
    assert done.code == 0, done.err
    assert f"predictions: p\\udcfe.{suffix}" in done.err
    assert (tmp_path / out).stat().st_size > 0
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("suffix", WRITERS)
def test_halves_of_signs_are_refused_and_nothing_is_left(toporo: Run, model: Path, tmp_path: Path, suffix: str) -> None:
    half = os.fsdecode(b"\xff")
    done = toporo("predict", "model", "river.csv", "--keep", f"bed,{half}", "--out", f"p.{suffix}")
    assert done.code == 1
    assert "\\udcff" in done.err
    manifest = model / "model.json"
    manifest.write_text(manifest.read_text().replace('"station"', '"\\ud800"'))
    done = toporo("predict", "model", "river.csv", "--out", f"p.{suffix}")
    assert done.code == 1
    assert "Traceback" not in done.err
    assert {path.name for path in tmp_path.iterdir()} == {"model", "river.csv"}


def test_kept_features_are_written_as_they_were_read(toporo: Run, model: Path) -> None:
    done = toporo("predict", "model", "-", "--keep", "x,note", stdin="x,note\n007,007\n1e1,1e1\n,\n1.50,1.50\n")
    kept = [row[:2] for row in csv.reader(io.StringIO(done.out))]
    assert kept == [["x", "note"], ["007", "007"], ["1e1", "1e1"], ["", ""], ["1.50", "1.50"]]


# ---------------------------------------------------------------- reach


def test_reach_adds_a_number_and_a_reason(toporo: Run, model: Path) -> None:
    table = "x,station\n0.1,spring\n50,spring\n0.2,\n"
    done = toporo("predict", "model", "-", "--reach", stdin=table)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert list(rows[0]) == ["station", "prediction", "reach", "outside"]
    assert [float(row["reach"]) <= 1 for row in rows] == [True, False, True]
    assert [row["outside"] for row in rows] == ["", "far from any training row; 1 input far out of range", ""]
    assert "outside of what validation has seen: 1 row\n" in done.err
    lines = toporo("predict", "model", "-", "--reach", "--json", stdin=table).out.splitlines()
    assert json.loads(lines[1])["outside"] == rows[1]["outside"]
    assert toporo("predict", "model", "-", "--reach", "--out", "p.parquet", stdin=table).code == 0
    assert pyarrow.parquet.read_table("p.parquet")["outside"].to_pylist() == [row["outside"] for row in rows]


def test_reach_needs_no_group_column(toporo: Run, model: Path) -> None:
    done = toporo("predict", "model", "-", "--reach", stdin="x\n0.1\n50\n")
    assert done.code == 0
    assert next(row["outside"] for row in csv.DictReader(io.StringIO(done.out))) == ""


def test_rows_outside_are_counted_unasked(toporo: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = "x\n" + "0.1\n50\n" * 50
    done = toporo("predict", "model", "-", stdin=table)
    assert "outside of what validation has seen: 50 rows (--reach says which and why)" in done.err
    assert "reach" not in done.out
    monkeypatch.setattr("toporo.cli.predict.REACH_ROWS", 10)
    assert "outside of what validation has seen: about 50 rows" in toporo("predict", "model", "-", stdin=table).err
    assert "outside" not in toporo("predict", "model", "-", stdin="x\n0.1\n").err


def test_a_model_without_reach_predicts_and_says_what_is_missing(toporo: Run, model: Path) -> None:
    replace(load_model(model), reach=None).save(model, overwrite=True)
    assert toporo("predict", "model", "-", stdin="x\n50\n").code == 0
    refused = toporo("predict", "model", "-", "--reach", stdin="x\n50\n")
    assert refused.code == 1
    assert "does not know how far its training rows reach" in refused.err
    assert refused.out == ""
