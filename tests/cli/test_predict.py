"""``toporo predict``: it writes what Python's csv module would write, and reads ahead without harm."""

from __future__ import annotations

import csv
import inspect
import io
import json
import os
import subprocess
import sys
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
from toporo.cli.options import Flags
from toporo.cli.predict import TABLES, csv_lines, plain_text, predict
from toporo.errors import DataError
from toporo.tables import fit_table, load_model

numbers = st.one_of(st.floats(), st.floats(-10, 10), st.integers(-(10**17), 10**17).map(float))
Run = Callable[..., Any]
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
texts = st.one_of(st.none(), st.text(), st.text(" \",;\n\r\t'#é", max_size=4))


def written(*columns: list[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
    return text.getvalue()


def as_written(floats: list[float], names: list[str | None]) -> str:
    return csv_lines([pa.array(names, pa.string()), pa.array(floats, pa.float64())])


@given(st.lists(st.tuples(texts, numbers), min_size=1))
@example([("a,b", -0.0), ('"', 1e-5), ("\r\n", 1e16), ("", 123456.0), (None, 12345678901.5), ("é", float("nan"))])
def test_lines_are_those_of_the_csv_module(rows: list[tuple[str | None, float]]) -> None:
    names, floats = [name for name, _ in rows], [number for _, number in rows]
    assert as_written(floats, names) == written(names, floats)


@pytest.mark.parametrize("size", [1e-6, 1e-4, 1.0, 1e3, 1e9, 1e12])
def test_numbers_have_the_digits_that_python_gives_them(size: float) -> None:
    """Both write the fewest digits that tell a number from its neighbours; of two such, the nearer."""
    floats = (size * np.random.default_rng(0).normal(size=20_000)).tolist()
    assert csv_lines([pa.array(floats)]) == "".join(f"{number!r}\n" for number in floats)


def test_a_column_without_a_text_is_empty() -> None:
    assert as_written([0.5, 1.0], [None, None]) == ",0.5\n,1.0\n"


def test_a_file_need_not_be_read_to_its_end(tmp_path: Path) -> None:
    """Reading ahead must neither hold on to the file nor to whoever stops early."""
    path = tmp_path / "river.csv"
    path.write_text(as_csv(river()))
    model = fit_table(path, target="y", group="station", penalty=1.0)
    portions = model.portions(path, rows=5)
    first = next(portions)
    portions.close()
    assert np.array_equal(first.values, model.predict(path)[:5])


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


@given(st.one_of(st.text(), st.text("=+-@'\t\r\n1.e ", max_size=5), st.floats(-1e9, 1e9).map(repr)))
@example("-1.5")
@example("-1+1|cmd")
@example("=")
@example("＝1")
def test_no_text_is_taken_for_a_formula(text: str) -> None:
    safe = plain_text(text)
    assert safe in (text, f"'{text}")
    if safe.startswith(FORMULA):
        assert np.isfinite(float(safe)), "a number, which is none"
        assert safe == text


def test_numbers_stay_numbers() -> None:
    for text in ("-1", "+1", "-1.5", "-.5", "1e5", "-1.5E-10", "-2."):
        assert plain_text(text) == text
    for text in ("-inf", "-1_000", "+nan", "-", "-1 ", "-1\n", "-٣", "+1e", "--1"):
        assert plain_text(text) == f"'{text}"


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


def test_classes_are_guarded_too(toporo: Run, tmp_path: Path) -> None:
    lines = (f"{i},{'ab'[i % 2]},{'=yes' if i > 9 else '-no'}\n" for i in range(20))
    (tmp_path / "t.csv").write_text("".join(["x,g,y\n", *lines]))
    fit_table(tmp_path / "t.csv", target="y", group="g", penalty=1.0).save(tmp_path / "model")
    rows = list(csv.reader(io.StringIO(toporo("predict", "model", "t.csv", "--safe-csv").out)))
    assert {row[1] for row in rows[1:]} == {"'=yes", "'-no"}
    assert rows[0] == ["g", "prediction", "probability of -no", "probability of =yes"]


@pytest.mark.parametrize("more", [("--json",), ("--out", "p.parquet"), ("--out", "p.jsonl")])
def test_only_csv_can_be_safe_csv(toporo: Run, model: Path, more: tuple[str, ...]) -> None:
    done = toporo("predict", "model", "river.csv", "--safe-csv", *more)
    assert done.code == 2
    assert "--safe-csv is for CSV" in done.err


# ---------------------------------------------------------------- several at once, and odd places


def others(folder: Path, number: int, rows: int) -> list[Path]:
    """Tables whose predictions differ in every row."""
    paths = [folder / f"{place}.csv" for place in range(number)]
    for place, path in enumerate(paths):
        path.write_text("x\n" + "".join(f"{place}.{i:06d}\n" for i in range(rows)))
    return paths


#: The command without its parser, for threads.
write = inspect.unwrap(predict)


@pytest.mark.parametrize("suffix", TABLES)
def test_threads_that_predict_into_one_file_do_not_mix(tmp_path: Path, model: Path, suffix: str) -> None:
    tables = others(tmp_path, 3, 10_000)
    whole = set()
    for table in tables:
        write(model, str(table), out=tmp_path / f"alone.{suffix}", flags=Flags())
        whole.add((tmp_path / f"alone.{suffix}").read_bytes())
    with ThreadPoolExecutor(3) as pool:
        for _ in range(5):
            list(
                pool.map(lambda table: write(model, str(table), out=tmp_path / f"same.{suffix}", flags=Flags()), tables)
            )
            assert (tmp_path / f"same.{suffix}").read_bytes() in whole
    assert len(whole) == 3
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_processes_that_predict_into_one_file_do_not_mix(tmp_path: Path, model: Path) -> None:
    tables = others(tmp_path, 3, 300_000)
    command = (sys.executable, "-m", "toporo", "predict", str(model))
    started = [subprocess.Popen([*command, str(table), "--out", "same.csv"], cwd=tmp_path, stderr=subprocess.DEVNULL)
               for table in tables]  # fmt: skip
    assert [one.wait() for one in started] == [0] * 3
    whole = []
    for table in tables:
        write(model, str(table), out=tmp_path / "alone.csv", flags=Flags())
        whole.append((tmp_path / "alone.csv").read_bytes())
    assert (tmp_path / "same.csv").read_bytes() in whole
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


@pytest.mark.parametrize("suffix", TABLES)
def test_names_of_files_need_not_be_utf8(toporo: Run, model: Path, tmp_path: Path, suffix: str) -> None:
    """Linux takes any bytes: such files are read and written, and their names are said in some way."""
    data, out = os.fsdecode(b"r\xff.csv"), os.fsdecode(b"p\xfe." + suffix.encode())
    (tmp_path / data).write_text(as_csv(river()))
    done = toporo("predict", "model", data, "--out", out)
    assert done.code == 0, done.err
    assert f"predictions: p\\udcfe.{suffix}" in done.err
    assert (tmp_path / out).stat().st_size > 0
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("suffix", TABLES)
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
    monkeypatch.setattr("toporo.cli.predict.LOOKED_AT", 10)
    assert "outside of what validation has seen: about 50 rows" in toporo("predict", "model", "-", stdin=table).err
    assert "outside" not in toporo("predict", "model", "-", stdin="x\n0.1\n").err


def test_a_model_without_reach_predicts_and_says_what_is_missing(toporo: Run, model: Path) -> None:
    replace(load_model(model), reach=None).save(model, overwrite=True)
    assert toporo("predict", "model", "-", stdin="x\n50\n").code == 0
    refused = toporo("predict", "model", "-", "--reach", stdin="x\n50\n")
    assert refused.code == 1
    assert "does not know how far its training rows reach" in refused.err
    assert refused.out == ""


def test_a_column_called_reach_is_not_lost(toporo: Run, model: Path) -> None:
    done = toporo("predict", "model", "-", "--keep", "reach", "--reach", stdin="x,reach\n1,a\n")
    assert done.code == 1
    assert "'reach'" in done.err
    assert toporo("predict", "model", "-", "--keep", "reach", stdin="x,reach\n1,a\n").code == 0
