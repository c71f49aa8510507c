"""Predicting and judging tables of many files: the same as in memory, by any pieces, portions and workers."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import csv, parquet

from toporo.data import table as data_table
from toporo.data.table import find_table
from toporo.errors import DataError, SettingError
from toporo.groups import Groups
from toporo.pool import open_pool
from toporo.tables import Evaluation, TableModel, fit_table, large, model, resample
from toporo.tables.evaluate import evaluate
from toporo.tables.resample import LossMoments

from .cases import RIVER, TRAINED, floods, river

STATIONS = (*TRAINED, "mouth")


def long_table(classes: bool = False, sizes: tuple[int, ...] = (900, 40, 700, 1, 520)) -> dict[str, list[Any]]:
    """Stations of very different size, in no order, some rows without a target."""
    make = floods if classes else river
    whole = make(seed=3, rows=max(sizes))
    place = {name: number for number, name in enumerate(STATIONS)}
    first: dict[str, int] = dict.fromkeys(STATIONS, 0)
    kept = []
    for row, name in enumerate(whole["station"]):
        first[name] += 1
        if first[name] <= sizes[place[name]]:
            kept.append(row)
    order = np.random.default_rng(1).permutation(kept).tolist()
    target = "flood" if classes else "y"
    table = {name: [column[row] for row in order] for name, column in whole.items()}
    table[target] = [None if row % 50 == 7 else value for row, value in enumerate(table[target])]
    if classes:
        table["flood"][11] = "frozen"  # which the model does not know
    return table


@pytest.fixture(scope="module")
def models() -> dict[bool, TableModel]:
    settings: dict[str, Any] = {"group": "station", "graph": RIVER, "test_groups": ["mouth"], "model": "linear"}
    return {False: fit_table(river(), target="y", **settings), True: fit_table(floods(), target="flood", **settings)}


def split(table: dict[str, list[Any]], folder: Path, hive: bool = False) -> Path:
    """As Parquet: five files of short row groups; or by station."""
    whole = pa.table(table)
    if hive:
        parquet.write_to_dataset(whole, str(folder), partition_cols=["bed"], row_group_size=64)
        return folder
    folder.mkdir()
    step = len(whole) // 5 + 1
    for number in range(5):
        parquet.write_table(whole.slice(number * step, step), folder / f"{number}.parquet", row_group_size=64)
    return folder


def check_equal(found: Evaluation, expected: Evaluation, rtol: float) -> None:
    """All that is counted exactly, all else so nearly."""

    def walk(a: Any, b: Any, where: str) -> None:
        if isinstance(b, dict):
            assert list(a) == list(b), where
            for key in b:
                walk(a[key], b[key], f"{where}.{key}")
        elif isinstance(b, list):
            assert len(a) == len(b), where
            for number, (x, y) in enumerate(zip(a, b, strict=True)):
                walk(x, y, f"{where}[{number}]")
        elif isinstance(b, float) and not isinstance(a, str):
            assert math.isclose(a, b, rel_tol=rtol, abs_tol=rtol), f"{where}: {a} is not {b}"
        else:
            assert a == b, where

    walk(found.to_dict(), expected.to_dict(), "evaluation")


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("hive", [False, True])
@pytest.mark.parametrize("unseen", [False, True])
def test_judged_in_pieces_as_in_memory(
    models: dict[bool, TableModel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    classes: bool,
    hive: bool,
    unseen: bool,
) -> None:
    judged, table = models[classes], long_table(classes)
    expected = judged.evaluate(table, unseen=unseen, resamples=200)
    folder = split(table, tmp_path / "table", hive)
    monkeypatch.setattr(data_table, "CHUNK_ROWS", 150)
    monkeypatch.setattr(model, "FOLD", 90)
    texts = set()
    for rows in (None, 33, 10_000):
        found = judged.evaluate(folder, unseen=unseen, resamples=200, **({} if rows is None else {"rows": rows}))
        check_equal(found, expected, 1e-10)
        texts.add(json.dumps(found.to_dict()))
    assert len(texts) == 1, "portions make a difference"
    assert {score.group: score.rows for score in found.groups} == {s.group: s.rows for s in expected.groups}


def test_small_tables_are_judged_as_by_the_function(models: dict[bool, TableModel]) -> None:
    table = long_table()
    known = [row for row, target in enumerate(table["y"]) if target is not None]
    rows = {name: [column[row] for row in known] for name, column in table.items()}
    values, lower, upper = models[False].predict(rows, interval=0.9)
    y = np.asarray(rows["y"])
    expected = evaluate(
        "regression",
        y,
        values,
        rows["station"],
        inside=(lower <= y) & (y <= upper),
        widths=upper - lower,
        outside=models[False].reach_of(rows).outside,
        hops=dict(zip(STATIONS, (0, 0, 0, 0, 1), strict=True)),
        trained=TRAINED,
        constant=models[False].constant,
    )
    assert repr(models[False].evaluate(table)) == repr(expected)  # to the bit


@pytest.mark.parametrize("parts", [1, 2, 7, 40])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_moments_of_parts_are_those_of_the_whole(parts: int, shift: float) -> None:
    random = np.random.default_rng(parts)
    error, target = random.normal(size=800), shift + np.sort(random.normal(size=800))

    def moments(rows: Any) -> LossMoments:
        centre = float(np.median(target[rows]))
        apart = target[rows] - centre
        losses = np.stack([error[rows] ** 2, np.abs(error[rows]), apart, apart**2])
        return LossMoments.of(losses, centre)

    whole, (first, *others) = moments(slice(None)), map(moments, np.array_split(np.arange(800), parts))
    joined = first
    for other in others:
        joined = joined.and_of(other)
    assert joined.rows == 800
    moved = joined.about(whole.centre)
    assert_allclose(moved.sums, whole.sums, rtol=1e-11, atol=1e-8 * (shift > 0) + 1e-10)
    assert_allclose(moved.products, whole.products, rtol=1e-9 if shift else 1e-11, atol=1e-10)
    drawn = [each.about(whole.centre).resampled(50, np.random.default_rng(0)) for each in (joined, whole)]
    assert_allclose(drawn[0], drawn[1], rtol=1e-8 if shift else 1e-11, atol=1e-8)


def test_moments_in_another_unit() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 60)) ** 2
    given = LossMoments.of(rows, 0.5)
    there = given.within(3)
    assert_allclose(there.sums, given.sums / [64, 8, 8, 64])
    assert there.centre == 0.5 / 8
    assert_array_equal(there.within(0).products, given.products)


# ---------------------------------------------------------------- predictions


def written(done: Any, path: Path) -> bytes:
    assert done.code == 0, done.err
    return path.read_bytes()


def test_predictions_of_a_folder_are_those_of_the_file(
    models: dict[bool, TableModel], tmp_path: Path, toporo: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_table, "CHUNK_ROWS", 150)
    table = long_table()
    models[False].save(tmp_path / "model")
    parquet.write_table(pa.table(table), tmp_path / "all.parquet")
    csv.write_csv(pa.table(table), tmp_path / "all.csv")
    folder = split(table, tmp_path / "table")
    texts = {}
    for name in ("all.parquet", "all.csv", folder, f"{folder}/*.parquet", folder.as_uri()):
        done = toporo("predict", tmp_path / "model", tmp_path / name if name in ("all.csv", "all.parquet") else name,
                      "--interval", "0.9", "--reach")  # fmt: skip
        assert done.code == 0, done.err
        texts[name] = done.out.splitlines()
    for lines in texts.values():
        assert len(lines) == 1 + len(table["x"])
        numbers = [[float(cell) for cell in line.split(",")[1:4]] for line in lines[1:]]
        assert_allclose(
            numbers, [[float(c) for c in line.split(",")[1:4]] for line in texts["all.csv"][1:]], rtol=1e-12
        )
    limited = toporo("predict", tmp_path / "model", folder, "--memory-limit", "8GiB", "--interval", "0.9", "--reach")
    assert limited.out.splitlines() == texts[folder]


def test_parts_without_rows_do_no_harm(
    models: dict[bool, TableModel], tmp_path: Path, toporo: Callable[..., Any]
) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    header = "station,x,depth,bed,y\n"
    (folder / "a.csv").write_text(header)
    (folder / "b.csv").write_text(f"{header}mouth,1,2,rock,3\nmouth,2,2,mud,\n")
    (folder / "c.csv").write_text(header)
    models[False].save(tmp_path / "model")
    assert toporo("predict", tmp_path / "model", folder).out.count("mouth") == 2
    assert models[False].evaluate(folder, resamples=20).groups[0].rows == 1
    (folder / "b.csv").write_text(header)
    done = toporo("predict", tmp_path / "model", folder)
    assert (done.code, done.out) == (1, "")
    assert "has a header but no rows" in done.err
    with pytest.raises(DataError, match="has a header but no rows"):
        models[False].evaluate(folder)


@pytest.mark.parametrize("context", ["row", "rows"])
def test_parts_of_unknown_groups_are_counted_over_all(tmp_path: Path, toporo: Callable[..., Any], context: str) -> None:
    kriged = fit_table(river(), target="y", group="station", graph=RIVER, model="kriged", context=context)
    kriged.save(tmp_path / "model")
    strange = river(seed=1, rows=3)
    strange["station"] = ["nowhere"] * len(strange["x"])
    folder = tmp_path / "table"
    folder.mkdir()
    parquet.write_table(pa.table(strange), folder / "a.parquet")
    parquet.write_table(pa.table(river(seed=2, rows=3)), folder / "b.parquet")
    assert kriged.evaluate(folder, drop_rows=True, resamples=20).skipped == {"nowhere": 15}
    done = toporo("predict", tmp_path / "model", folder, "--drop-rows")
    assert "left out 15 rows of 1 group" in done.err
    assert len(done.out.splitlines()) == 16
    (folder / "b.parquet").unlink()
    with pytest.raises(DataError, match="no row is of a group that the model knows: all 15 are of 'nowhere'"):
        kriged.evaluate(folder, drop_rows=True)
    assert "no row is of a group" in toporo("predict", tmp_path / "model", folder, "--drop-rows").err


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("kind", ["kriged", "auto"])
def test_a_model_by_groups_reads_twice_what_it_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, task: str
) -> None:
    """The mean inputs of groups that it has not seen are those of all their rows, whichever portion these are in."""
    asked: dict[str, Any] = {"target": "y", "group": "station", "model": kind, "task": task}
    tables = [river(seed=seed, rows=rows) for seed, rows in ((0, 40), (1, 200))]
    for table in tables if task == "classification" else ():
        table["y"] = np.where(np.asarray(table["y"]) > np.median(table["y"]), "high", "low")
    fitted = fit_table(tables[0], graph=RIVER, test_groups=[tables[0]["station"][-1]], **asked)
    if kind == "auto":  # all candidates that look at groups have a vote
        says = fitted.estimator.candidates_
        fitted.estimator.votes_ = {name: 1.0 / len(says) for name in says}
    folder = split(tables[1], tmp_path / "table")
    interval = 0.9 if task == "regression" or kind == "auto" else None
    found = []
    for limit, source in ((1 << 30, tables[1]), (100_000, folder)):
        monkeypatch.setattr(model, "room", lambda _, limit=limit: limit)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            portions = list(fitted.portions(source, interval=interval, memory_limit=1 << 36))
            judged = fitted.evaluate(source, resamples=20, memory_limit=1 << 36)
        scores = {score.group: score.metrics[judged.metric].value for score in judged.groups}
        found.append((portions, scores, {str(each.message) for each in said}))
    (held, expected, words), (read_twice, again, words_again) = found
    assert len(read_twice) > len(held), "in portions that fit"
    assert again == pytest.approx(expected, rel=1e-12)
    assert words_again == words, "what is said is said once, of all rows"
    numbers = ("values", "lower", "upper") if task == "regression" else ("probabilities",)
    for name in numbers:
        one, other = (np.concatenate([getattr(each, name) for each in portions]) for portions in (held, read_twice))
        assert_allclose(other, one, rtol=1e-12)


@pytest.mark.parametrize("kind", ["kriged", "auto"])
def test_what_is_known_of_groups_does_not_depend_on_portions(tmp_path: Path, kind: str) -> None:
    """How large these are goes by the memory that a process has left, which differs between workers."""
    fitted = fit_table(river(rows=30), target="y", group="station", graph=RIVER, model=kind)
    folder = split(long_table(), tmp_path / "table")
    told = []
    for rows in (7, 100, 10_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TableModel, "_at_a_time", lambda *_, rows=rows: rows)
            told.append(model.gather_part(fitted, folder, {}))
    for other in told[1:]:
        for one, another in zip(*(t.values() if kind == "auto" else [t] for t in (told[0], other)), strict=True):
            if one is not None:
                for ours, theirs in zip(one.of(Groups(one.places)), another.of(Groups(one.places)), strict=True):
                    assert_array_equal(ours, theirs)


def test_files_are_read_twice_where_free_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    votes = fit_table(river(rows=30), target="y", group="station", model="auto")
    folder = split(river(seed=1, rows=200), tmp_path / "table")
    looked: list[int] = []
    monkeypatch.setattr(
        TableModel, "_gathered", lambda self, several: looked.append(sum(len(each.frame) for each in several))
    )
    for free in (1 << 30, 100_000):
        monkeypatch.setattr(model, "free_bytes", lambda free=free: free)
        assert sum(len(portion.values) for portion in votes.portions(folder)) == 1000
    assert looked == [1000], "the second time only"


def test_a_table_in_memory_that_cannot_be_held_again_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read once: a stream cannot be read again."""
    votes = fit_table(river(rows=30), target="y", group="station", model="auto")
    monkeypatch.setattr(model, "room", lambda limit: 100_000)
    for work in (votes.predict, votes.evaluate):
        with pytest.raises(DataError, match=r"this model looks at all rows of a group together, .* rows"):
            work(river(seed=1, rows=2000), memory_limit=1 << 36)


def test_a_limit_that_cannot_be_kept(models: dict[bool, TableModel], tmp_path: Path, monkeypatch: Any) -> None:
    folder = split(long_table(), tmp_path / "table")
    for work in (models[False].predict, models[False].evaluate):
        with pytest.raises(SettingError, match=r"the memory limit is 1\.0 MiB, but the program itself takes"):
            work(folder, memory_limit=1 << 20)
    monkeypatch.setattr(model, "used_bytes", lambda: 1 << 40)
    with pytest.raises(DataError, match=r"groups of at most 500 rows are judged by their rows"):
        models[False].evaluate(folder, memory_limit=1 << 36)


def test_a_wrong_size_is_a_mistake_in_typing(tmp_path: Path, toporo: Callable[..., Any]) -> None:
    for size in ("much", "0", "-1GiB"):
        done = toporo("predict", tmp_path, "x.csv", f"--memory-limit={size}")
        assert done.code == 2
        assert "is no size above 0" in done.err


def test_nothing_is_written_into_the_table_s_folder(
    models: dict[bool, TableModel], tmp_path: Path, toporo: Callable[..., Any]
) -> None:
    models[False].save(tmp_path / "model")
    folder = split(long_table(), tmp_path / "table")
    done = toporo("predict", tmp_path / "model", folder, "--out", folder / "out.parquet")
    assert done.code == 1
    assert "choose a place of its own" in done.err


# ---------------------------------------------------------------- many workers


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra ray")
    os.environ.pop("RAY_ADDRESS", None)
    with open_pool("ray"):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("kind", ["linear", "classes", "kriged", "auto"])
def test_workers_give_the_same_bytes(
    models: dict[bool, TableModel],
    tmp_path: Path,
    toporo: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setattr(data_table, "CHUNK_ROWS", 150)
    fitted = models[kind == "classes"]
    if kind in ("kriged", "auto"):
        fitted = fit_table(river(rows=30), target="y", group="station", graph=RIVER, model=kind)
    fitted.save(tmp_path / "model")
    folder = split(long_table(kind == "classes"), tmp_path / "table")
    assert len(find_table(folder).chunks) > 8
    shown = r"toporo: (predicting|looking at groups).*\n"
    for name in ("out.csv", "out.parquet"):
        out = tmp_path / name
        here = toporo("predict", tmp_path / "model", folder, "--interval", "0.9", "--out", out)
        local = written(here, out)
        there = toporo("predict", tmp_path / "model", folder, "--interval", "0.9", "--out", out, "--engine", "ray")
        assert written(there, out) == local
        assert re.sub(shown, "", there.err) == re.sub(shown, "", here.err)
    here = toporo("evaluate", tmp_path / "model", folder, "--json")
    assert here.code == 0
    assert toporo("evaluate", tmp_path / "model", folder, "--json", "--engine", "ray").out == here.out


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
def test_workers_fit_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a table larger than memory, in passes."""
    monkeypatch.setattr(data_table, "CHUNK_ROWS", 150)
    monkeypatch.setattr(large, "needs_scan", lambda _: True)
    monkeypatch.setattr(large, "LEAST_PORTION", 1)
    folder = split(floods(rows=300), tmp_path / "table")
    settings: dict[str, Any] = {"group": "station", "graph": RIVER, "test_groups": ["mouth"], "model": "linear"}
    for engine in ("local", "ray"):
        made = fit_table(folder, target="flood", penalty=1.0, engine=engine, **settings)
        assert made.about["rows"] == 1200
        made.save(tmp_path / engine)
    here, there = ((tmp_path / engine / "weights.safetensors").read_bytes() for engine in ("local", "ray"))
    assert here == there


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
def test_what_is_wrong_with_a_piece_is_said_by_name(
    models: dict[bool, TableModel], tmp_path: Path, toporo: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    models[False].save(tmp_path / "model")
    folder = split(long_table(), tmp_path / "table")
    table = find_table(folder)
    (folder / "3.parquet").unlink()
    with pytest.raises(DataError, match=r"3\.parquet has disappeared since the table was listed"):
        models[False].evaluate(table, engine="ray")
    monkeypatch.setattr("toporo.cli.predict.find_table", lambda *_, **__: table)
    done = toporo("predict", tmp_path / "model", folder, "--engine", "ray", "--out", tmp_path / "out.csv")
    assert done.code == 1
    assert "3.parquet has disappeared" in done.err
    assert not (tmp_path / "out.csv").exists()


def test_an_engine_that_is_none(models: dict[bool, TableModel], tmp_path: Path, toporo: Callable[..., Any]) -> None:
    models[False].save(tmp_path / "model")
    for command in ("predict", "evaluate"):
        done = toporo(command, tmp_path / "model", tmp_path, "--engine", "spark")
        assert done.code == 1
        assert "engine 'spark': expected local, ray, or the address" in done.err


# ---------------------------------------------------------------- memory

PEAKS = """
import resource, sys
from toporo.__main__ import main
words, tables = sys.argv[1:-2], sys.argv[-2:]
for table in tables:
    sys.argv = ["toporo", *words[:2], table, *words[2:]]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs the module resource")
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_memory_does_not_follow_the_rows(models: dict[bool, TableModel], tmp_path: Path, command: str) -> None:
    replace(models[False], reach=None).save(tmp_path / "model")  # which takes long for so many rows
    rows = 60_000
    random = np.random.default_rng(0)
    columns = {"station": np.resize(STATIONS, rows), "bed": np.resize(["sand", "rock", "mud"], rows)}
    table = pa.table(columns | {name: random.normal(size=rows) for name in ("x", "depth", "y")})
    folders = [tmp_path / "5", tmp_path / "30"]
    for folder in folders:
        folder.mkdir()
        for number in range(int(folder.name)):
            parquet.write_table(table, folder / f"{number:02}.parquet")
    more = ["--out", tmp_path / "out.parquet"] if command == "predict" else ["--quiet", "--set", "resamples=20"]
    done = subprocess.run(
        [sys.executable, "-c", PEAKS, command, tmp_path / "model", "--memory-limit", "2GiB", *more, *folders],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    few, many = (int(line) / 1024 for line in done.stderr.splitlines() if line.isdigit())
    assert many < few + 40, "MiB for six times the rows, which are 70 MB as numbers alone"


def test_exact_rows_are_what_the_message_says() -> None:
    assert resample.EXACT_ROWS == 500
