"""Tables larger than memory: the same models as in memory, whoever reads which piece; what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import toporo as tr
from toporo.data import table as data_table
from toporo.errors import DataError, SettingError, TopoRoWarning, UnknownNameError
from toporo.estimators import linear
from toporo.robust.linear import solve
from toporo.tables import TableModel, large, survey
from toporo.tables.roles import Roles
from toporo.tables.survey import _keys

ROWS, GROUPS = 3000, 9
EDGES = [(f"g{place:02d}", f"g{place + 1:02d}") for place in range(GROUPS)]
NAMES = ["a", "b", "c", "day"]


def make_table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "state": [f"g{place:02d}" for place in rng.integers(0, GROUPS + 1, ROWS)],
            "a": rng.normal(5, 2, ROWS),
            "b": rng.normal(1e4, 3, ROWS),
            "c": rng.choice(["x", "y", "z"], ROWS),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(ROWS) % 100, "D"),
            "id": [f"id{place}" for place in range(ROWS)],
            "w": rng.random(ROWS) + 0.1,
        }
    )
    table["y"] = 2 * table.a + 0.1 * table.b + 3 * (table.c == "x") + rng.normal(size=ROWS)
    table["kind"] = np.where(table.y + rng.normal(size=ROWS) > table.y.median(), "yes", "no")
    table["three"] = pd.qcut(table.y, 3, labels=["low", "mid", "high"]).astype(str)
    table.loc[rng.random(ROWS) < 0.1, "a"] = np.nan
    table.loc[rng.random(ROWS) < 0.05, "c"] = None
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, table = tmp_path_factory.mktemp("large"), make_table()
    for kind in ("pq", "csv", "hive"):
        (place / kind).mkdir()
    for part, rows in enumerate(np.array_split(np.arange(ROWS), 4)):
        table.iloc[rows].to_parquet(place / "pq" / f"{part}.parquet", row_group_size=300, index=False)
        table.iloc[rows].to_csv(place / "csv" / f"{part}.csv", index=False)
    for name, rows in table.groupby("state"):
        (place / "hive" / f"state={name}").mkdir()
        rows.drop(columns="state").to_parquet(place / "hive" / f"state={name}" / "0.parquet", index=False)
    return place


@pytest.fixture(autouse=True)
def _many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_table, "CHUNK_ROWS", 400)


@contextmanager
def in_portions(monkeypatch: pytest.MonkeyPatch, rows: int = 256) -> Iterator[None]:
    """However small it is, a table is read in portions."""
    with monkeypatch.context() as patched:
        patched.setattr(large, "needs_scan", lambda _: True)
        patched.setattr(large, "PORTION", rows)
        patched.setattr(large, "LEAST_PORTION", 1)
        yield


def fit(source: Any, target: str = "y", **settings: Any) -> TableModel:
    usual: dict[str, Any] = {"graph": EDGES, "test_groups": [f"g{GROUPS:02d}"], "features": NAMES, "model": "linear"}
    return tr.fit_table(source, target=target, group="state", **usual | settings)


def same_model(one: TableModel, other: TableModel, tolerance: float) -> None:
    for a, b in ((one.estimator.coef_, other.estimator.coef_), (one.estimator.intercept_, other.estimator.intercept_)):
        assert np.max(np.abs(np.asarray(a) - b)) <= tolerance * np.max(np.abs(a))
    assert one.encoder == other.encoder
    assert one.columns == other.columns
    assert one.estimator.penalty_ == pytest.approx(other.estimator.penalty_, rel=1e-9)
    assert one.estimator.group_losses_ == pytest.approx(other.estimator.group_losses_, rel=1e-9)
    assert one.estimator.rows_in_effect_ == pytest.approx(other.estimator.rows_in_effect_, rel=1e-9)
    assert {**one.about, "constant": 0} == {**other.about, "constant": 0}
    if one.reach is not None and other.reach is not None:
        assert np.array_equal(one.reach.low, other.reach.low)
        assert np.array_equal(one.reach.high, other.reach.high)


@pytest.mark.parametrize("kind", ["pq", "csv", "hive"])
def test_linear_models_are_those_of_memory(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit(folder / kind)
    with in_portions(monkeypatch):
        same_model(whole, fit(folder / kind), 1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"weight": "w"},
        {"method": "erm"},
        {"method": "group-dro"},
        {"radius": 0.01},
        {"features": None, "exclude": ["kind", "three"]},  # an identifier among the columns
        {"features": [*NAMES, "id"]},  # ... which is wanted: its commonest levels and the others
        {"graph": None, "test_groups": []},
        {"categorical": ["w"], "features": [*NAMES, "w"]},
    ],
    ids=str,
)
def test_whatever_is_asked_for(settings: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit(folder / "pq", **settings)
    with in_portions(monkeypatch):
        same_model(whole, fit(folder / "pq", **settings), 1e-9)


def test_kriged_models_are_those_of_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, whole = make_table(), fit(folder / "pq", model="kriged")
    with in_portions(monkeypatch):
        model = fit(folder / "pq", model="kriged")
    assert model.predict(table) == pytest.approx(whole.predict(table), abs=1e-7)
    assert model.columns == whole.columns
    assert model.estimator.spread_[0] == pytest.approx(whole.estimator.spread_[0], abs=1e-9)


@pytest.mark.parametrize("target", ["kind", "three"])
def test_logistic_models_reach_the_same_optimum(target: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    original = large.over_chunks

    def counted(*arguments: Any, **settings: Any) -> Any:
        passes.append(settings["title"])
        return original(*arguments, **settings)

    settings: dict[str, Any] = {"penalty": 0.5, "weight": "w"}
    monkeypatch.setattr(linear, "solve", partial(solve, tol=1e-10))
    whole = fit(folder / "pq", target, **settings)
    with in_portions(monkeypatch):
        monkeypatch.setattr(large, "DRAWN", 600)
        monkeypatch.setattr(large, "over_chunks", counted)
        model = fit(folder / "pq", target, **settings)
    assert model.estimator.coef_ == pytest.approx(whole.estimator.coef_, abs=1e-5)
    assert model.estimator.history_[0].relative_gap <= 1e-10
    assert model.estimator.group_losses_ == pytest.approx(whole.estimator.group_losses_, rel=1e-5)
    assert 4 <= len(passes) <= 25
    assert model.classes == whole.classes
    assert model.about["constant"] == whole.about["constant"]


def test_other_models_get_rows_drawn_and_say_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_portions(monkeypatch):
        monkeypatch.setattr(large, "MOST_ROWS", 1000)
        with pytest.warns(TopoRoWarning, match=r"'mlp' is fitted to a sample of \d{3},?\d* rows of the"):
            model = fit(folder / "pq", model="mlp", epochs=1)
    assert model.about["rows"] == fit(folder / "pq").about["rows"]
    assert 500 <= model.about["rows_drawn"] < 1300


def test_a_rare_class_is_drawn_and_keeps_its_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table()
    table["kind"] = np.where(table.y > table.y.median(), "b", "c")
    table.loc[[700, 1500, 2900], ["kind", "state"]] = ["a", "g01"]  # far from the first rows of any group
    table["rare"] = (table.kind == "a").astype(int)
    table.to_parquet(tmp_path / "t.parquet", row_group_size=300, index=False)
    settings: dict[str, Any] = {"method": "erm", "ridge": 0.1}
    for target, classes in (("kind", ("a", "b", "c")), ("rare", ("0", "1"))):
        whole = fit(tmp_path / "t.parquet", target, **settings)
        with in_portions(monkeypatch), monkeypatch.context() as patched:
            patched.setattr(large, "DRAWN", 200)
            model = fit(tmp_path / "t.parquet", target, **settings)
        assert model.classes == whole.classes == classes
        assert model.estimator.coef_ == pytest.approx(whole.estimator.coef_, abs=1e-4)
        assert model.about["constant"] == whole.about["constant"]


def test_a_third_value_that_was_not_drawn_still_makes_a_regression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table()
    table["count"] = (table.a > 5).astype(float)
    table.loc[2000, "count"] = 2.0
    table.to_parquet(tmp_path / "t.parquet", row_group_size=300, index=False)
    with in_portions(monkeypatch):
        monkeypatch.setattr(large, "DRAWN", 200)
        assert fit(tmp_path / "t.parquet", "count").task == "regression"


def test_more_than_fifty_numbers_that_are_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table()
    table["code"] = np.arange(ROWS) % 60
    table["a"] = table.code + np.random.default_rng(0).normal(size=ROWS)
    table.to_parquet(tmp_path / "t.parquet", row_group_size=300, index=False)
    settings: dict[str, Any] = {"features": ["a"], "task": "classification", "method": "erm", "ridge": 0.1}
    whole = fit(tmp_path / "t.parquet", "code", **settings)
    with in_portions(monkeypatch):
        model = fit(tmp_path / "t.parquet", "code", **settings)
    assert model.classes is not None
    assert len(model.classes) == 60
    assert model.classes == whole.classes
    assert model.columns == whole.columns
    assert model.estimator.coef_ == pytest.approx(whole.estimator.coef_, abs=1e-4)


def test_an_identifier_with_more_levels_than_are_counted_says_at_least(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MOST_MET", 100)
    with in_portions(monkeypatch):
        model = fit(folder / "pq", features=None, exclude=["kind", "three"])
    note = next(column.note for column in model.columns if column.name == "id")
    assert note.startswith("text with at least 100 levels, more than 50: an identifier?")


def test_a_model_is_saved_and_predicts(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_portions(monkeypatch):
        model = fit(folder / "pq")
    model.save(tmp_path / "model")
    again = tr.load_model(tmp_path / "model")
    table = make_table()
    assert np.array_equal(model.predict(table), again.predict(table))
    assert len(again.predict(table, interval=0.9)) == 3


# ---------------------------------------------------------------- the same bytes


def states(model: TableModel, path: Path) -> bytes:
    model.save(path)
    return (path / "weights.safetensors").read_bytes()


def test_one_core_or_several_give_the_same_bytes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for count in (1, 3):
        with in_portions(monkeypatch):
            monkeypatch.setattr(large, "cores", lambda count=count: count)
            found.append(states(fit(folder / "pq"), tmp_path / str(count)))
    assert found[0] == found[1]


def test_a_table_of_complete_numbers_is_read_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a table has neither categories nor gaps, so there is nothing to count while rows are drawn."""
    table = make_table().dropna()[["state", "b", "kind"]]
    for part, rows in enumerate(np.array_split(np.arange(len(table)), 3)):
        table.iloc[rows].to_parquet(tmp_path / f"{part}.parquet", index=False)
    settings: dict[str, Any] = {"features": ["b"], "model": "auto"}
    whole = fit(tmp_path, "kind", **settings)
    with in_portions(monkeypatch):
        model = fit(tmp_path, "kind", **settings)
    assert model.predict_proba(table) == pytest.approx(whole.predict_proba(table), abs=1e-9)


def test_rows_drawn_do_not_depend_on_portions_or_order_of_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = []
    for rows in (97, 10_000):
        with in_portions(monkeypatch, rows):
            monkeypatch.setattr(large, "DRAWN", 1000)
            found = data_table.find_table(folder / "pq")
            table = large.Large.read(
                found, Roles.of(target="y", group="state", exclude=["kind", "three"]), measured=True, memory=1 << 30,
                machines=large.Threads(),
            )  # fmt: skip
            frames.append(table.drawn)
    assert frames[0].text("id").tolist() == frames[1].text("id").tolist()
    counts = pd.Series(frames[0].text("state").tolist()).value_counts()
    assert counts.min() >= survey.LEAST
    assert 900 < len(frames[0]) < 1200


@pytest.mark.parametrize("kind", ["pq", "csv"])
def test_neither_memory_nor_a_limit_of_it_changes_a_model(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    for most_rows in (1000, 10_000):
        for free, limit in ((1 << 20, None), (1 << 40, None), (1 << 20, 1 << 33), (1 << 40, 1 << 40)):
            with monkeypatch.context() as patched:
                patched.setattr(large, "MOST_ROWS", most_rows)
                patched.setattr(large, "PORTION", 256)
                patched.setattr(large, "free_bytes", lambda free=free: free)
                settings: dict[str, Any] = {"model": "mlp", "epochs": 1, "memory_limit": limit}
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", TopoRoWarning)
                    model = fit(folder / kind, **settings)
            found.add((most_rows, states(model, tmp_path / f"{most_rows} {free} {limit}")))
    assert len(found) == 2


@pytest.mark.parametrize("kind", ["pq", "csv"])
def test_a_sample_has_as_many_rows_as_it_may(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of CSV files only reading tells how many rows there are."""
    for cell in (1, 60):  # bytes that a cell is taken to have
        with monkeypatch.context() as patched:
            patched.setattr(large, "needs_scan", lambda _: True)
            patched.setattr(large, "MOST_ROWS", 1500)
            patched.setattr(large, "CELL", cell)
            with pytest.warns(TopoRoWarning, match="fitted to a sample"):
                model = fit(folder / kind, model="mlp", epochs=1)
        assert 1350 <= model.about["rows_drawn"] <= 1700


def test_a_memory_limit_does_not_change_a_bit_of_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table().to_parquet(tmp_path / "t.parquet", index=False)
    monkeypatch.setattr(data_table, "CHUNK_ROWS", 1 << 20)
    monkeypatch.setattr(large, "needs_scan", lambda _: True)
    monkeypatch.setattr(large, "room", lambda _: 1 << 40)
    found = [
        states(fit(tmp_path / "t.parquet", memory_limit=limit), tmp_path / str(limit)) for limit in (None, 1 << 20)
    ]
    assert found[0] == found[1]


def test_a_memory_limit_that_is_too_low_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "room", lambda _: 1 << 17)
    for most_rows, work in ((1000, r"drawing 1,000 rows from .*pq"), (10_000, r"fitting a model to .*pq")):
        monkeypatch.setattr(large, "MOST_ROWS", most_rows)
        with pytest.raises(SettingError, match=rf"{work} takes up to .*KiB.* fitted whole up to {most_rows:,} rows"):
            fit(folder / "pq", memory_limit="1GiB")


def test_keys_look_random() -> None:
    keys = np.concatenate([_keys(piece, 0, 10_000) for piece in range(3)])
    assert len(np.unique(keys)) == len(keys)
    shares = keys / 2.0**64
    assert abs(shares.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(shares[1:], shares[:-1])[0, 1]) < 0.02


# ---------------------------------------------------------------- columns that turn out to be something else


def test_a_column_that_becomes_text_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table()[["state", "a", "b", "y"]]
    table["code"] = [str(place % 3) for place in range(ROWS)]
    table["late"] = ""
    table.loc[ROWS - 50 :, "code"] = "x"
    table.loc[ROWS - 50 :, "late"] = "2024-05-31"
    table.to_csv(tmp_path / "t.csv", index=False)
    with monkeypatch.context() as patched:
        patched.setattr("toporo.data.frame._PORTION", 500)
        whole = fit(tmp_path / "t.csv", features=["a", "code", "late"])
        with in_portions(monkeypatch):
            model = fit(tmp_path / "t.csv", features=["a", "code", "late"])
    assert {c.name: c.kind for c in model.columns}["code"] == "text"
    assert {c.name: c.kind for c in model.columns}["late"] == "date"
    same_model(whole, model, 1e-9)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"target": "nothing"}, UnknownNameError, "unknown column 'nothing'"),
        ({"features": ["a", "b", "nothing"]}, UnknownNameError, "unknown column 'nothing'"),
        ({"exclude": ["a"]}, SettingError, "both named for use and excluded"),
        ({"test_groups": ["nowhere"], "graph": None}, DataError, "test group"),
        ({"weight": "a", "features": ["b"]}, DataError, r"row \d+ lacks 'a'"),
        ({"engine": "moon"}, SettingError, "engine 'moon': expected local, ray"),
        ({"memory_limit": "lots"}, SettingError, "memory_limit is 'lots'"),
    ],
)
def test_refused(settings: dict[str, Any], error: Any, message: str, folder: Path, monkeypatch: Any) -> None:
    with in_portions(monkeypatch), pytest.raises(error, match=message):
        fit(folder / "pq", **{"target": "y"} | settings)


def test_rows_that_lack_something_are_refused_or_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table()
    table.loc[5, "y"] = np.nan
    table.loc[7, "state"] = None
    table.to_parquet(tmp_path / "t.parquet", row_group_size=300, index=False)
    with in_portions(monkeypatch):
        with pytest.raises(DataError, match=r"t\.parquet: row [68] lacks '(y|state)'.*--drop-rows"):
            fit(tmp_path / "t.parquet")
        model = fit(tmp_path / "t.parquet", drop_rows=True)
    whole = fit(tmp_path / "t.parquet", drop_rows=True)
    same_model(whole, model, 1e-9)
    assert model.about["rows_dropped"] == 2


def test_groups_that_the_graph_lacks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"graph": EDGES[1:], "drop_rows": True}
    with pytest.warns(TopoRoWarning, match="g00"):
        whole = fit(folder / "pq", **settings)
    with in_portions(monkeypatch), pytest.warns(TopoRoWarning, match="g00"):
        same_model(whole, fit(folder / "pq", **settings), 1e-9)


def test_sums_that_do_not_fit_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "memory_left", lambda _: 1 << 12)
    with in_portions(monkeypatch), pytest.raises(DataError, match="take more than the memory limit leaves"):
        fit(folder / "pq")


def test_a_weight_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table()
    table.loc[table.state == "g03", "w"] = 0.0
    table.to_parquet(tmp_path / "t.parquet", index=False)
    with in_portions(monkeypatch):
        with pytest.raises(DataError, match=r"empty group\(s\), without a row that counts: g03"):
            fit(tmp_path / "t.parquet", weight="w")
        table.loc[3, "w"] = -1.0
        table.to_parquet(tmp_path / "t.parquet", index=False)
        with pytest.raises(DataError, match="weight 'w' is negative"):
            fit(tmp_path / "t.parquet", weight="w")


# ---------------------------------------------------------------- memory


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says how much memory a process had")
def test_memory_follows_the_limit(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(0), 400_000
    columns: dict[str, Any] = {f"x{place}": rng.normal(size=rows) for place in range(30)}
    columns |= {"group": pa.array([f"g{place % 50}" for place in range(rows)]), "y": rng.normal(size=rows)}
    for part in range(4):  # 400 MB of numbers; in memory a fit takes several times that
        parquet.write_table(pa.table(columns), tmp_path / f"{part}.parquet")
    program = (
        "import re, sys, toporo as tr, toporo.tables.large\n"
        "toporo.tables.large.cores = lambda: 16\n"  # of a larger machine
        "model = tr.fit_table(sys.argv[1], target='y', group='group', model='linear', memory_limit='800MiB')\n"
        "peak = re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1]\n"
        "print(model.about['rows'], int(peak) // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True, env=os.environ
    )
    count, peak = map(int, done.stdout.split())
    assert count == 4 * rows
    assert peak < 800
