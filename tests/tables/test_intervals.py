"""Intervals and sets of table models: in a folder, in ``toporo predict``, and what is said where there are none."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tables.cases import NEW, STATIONS, STREAM, only, river
from tests.tables.test_kriged import altered
from toporo.errors import DataError, SettingError
from toporo.tables import TableModel, fit_table, load_model

TABLE = river(rows=40, groups=STATIONS)
HERE = Path(__file__).parent / "written_before"


def fit(table: dict[str, list[Any]] = TABLE, target: str = "y", **settings: Any) -> TableModel:
    given = {"graph": STREAM, "test_groups": NEW, "penalty": 1.0} | settings
    return fit_table(table, target=target, group="station", **given)


def kinds(table: dict[str, list[Any]] = TABLE) -> dict[str, list[Any]]:
    """The same with three classes, one of which has the sign that stands between labels."""
    level = np.digitize(table["y"], [-0.8, 0.8])
    return {name: values for name, values in table.items() if name != "y"} | {
        "kind": np.array(["low", "mid|dle", "high"])[level].tolist()
    }


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fit()


@pytest.fixture(scope="module")
def classes() -> TableModel:
    return fit(kinds(), "kind")


def test_intervals_are_wider_the_farther_the_group(model: TableModel) -> None:
    values, lower, upper = model.predict(TABLE, interval=0.9)
    assert np.array_equal(values, model.predict(TABLE))
    assert (values - lower) == pytest.approx(upper - values)
    width = {name: (upper - lower)[np.array(TABLE["station"]) == name] for name in STATIONS}
    assert all(each.max() - each.min() < 1e-9 for each in width.values())
    assert width["spring"][0] == pytest.approx(width["lock"][0])  # trained on counts as one hop
    assert width["lock"][0] < width["mouth"][0]
    _, low, high = model.predict(TABLE, interval=0.5)
    assert (high - low < upper - lower).all()


def test_they_are_the_same_from_a_folder(model: TableModel, classes: TableModel, tmp_path: Path) -> None:
    for each, table in ((model, TABLE), (classes, kinds())):
        each.save(tmp_path / each.task)
        again = load_model(tmp_path / each.task)
        mine, other = each.predict(table, interval=0.9), again.predict(table, interval=0.9)
        assert [part.tobytes() for part in mine[1:]] == [part.tobytes() for part in other[1:]]
        again.save(tmp_path / f"{each.task} again")
        files = [sorted((tmp_path / name).iterdir()) for name in (each.task, f"{each.task} again")]
        assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


@pytest.mark.parametrize("name", ["thresholds", "levels", "about"])
def test_a_folder_with_damaged_intervals_is_refused(model: TableModel, tmp_path: Path, name: str) -> None:
    model.save(tmp_path / "model")
    altered(tmp_path / "model", lambda _, arrays: arrays[f"held_out.{name}"].__setitem__(0, -1.0))
    with pytest.raises(DataError, match="cannot be read: its intervals"):
        load_model(tmp_path / "model")
    altered(tmp_path / "model", lambda _, arrays: arrays.pop(f"held_out.{name}"))
    with pytest.raises(DataError, match="cannot be read: its intervals"):
        load_model(tmp_path / "model")


def test_predictions_do_not_depend_on_the_rows_beside_them(model: TableModel) -> None:
    whole = model.predict(TABLE, interval=0.9)
    parts = [model.predict(only(TABLE, station=[name]), interval=0.9) for name in STATIONS]
    for place in range(3):
        assert np.array_equal(whole[place], np.concatenate([part[place] for part in parts]))
    strange = model.predict({**only(TABLE, station=["mouth"]), "station": ["sea"] * 40}, interval=0.9)
    assert (strange[2] - strange[1] > (whole[2] - whole[1]).max()).all()  # no path counts as farther than all


def test_sets_of_classes(classes: TableModel) -> None:
    table = kinds()
    labels, sets = classes.predict(table, interval=0.9)
    assert np.array_equal(labels, classes.predict(table))
    assert sets.shape == (360, 3)
    right = np.array(table["kind"])[:, None] == np.array(classes.classes)
    judged = classes.evaluate(table, resamples=0)
    assert judged.pooled["coverage"].value == pytest.approx((sets & right).any(axis=1).mean())
    assert judged.pooled["set_size"].value == pytest.approx(sets.sum(axis=1).mean())
    assert list(judged.overall) == ["accuracy", "log_loss", "balanced_accuracy", "coverage", "set_size"]


def test_the_least_covered_group_is_named(model: TableModel) -> None:
    judged = model.evaluate(TABLE, resamples=20)
    least = judged.least_covered
    assert least is not None
    assert least.metrics["coverage"].value == min(score.metrics["coverage"].value for score in judged.groups)
    assert f"least covered: {least.group}" in str(judged)
    bare = replace(model, held_out=None).evaluate(TABLE, resamples=20)
    assert bare.least_covered is None
    assert "least covered" not in str(bare)
    for metric in bare.overall:  # what predictions are judged by is the same with and without intervals
        assert judged.overall[metric] == bare.overall[metric]


def test_predict_writes_sets(toporo: Any, classes: TableModel, tmp_path: Path) -> None:
    classes.save("model")
    table = kinds()
    with Path("new.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    done = toporo("predict", "model", "new.csv", "--interval", "0.9")
    assert done.code == 0, done.err
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert list(rows[0])[:3] == ["station", "prediction", "set"]
    names = [name.replace("|", "\\|") for name in classes.classes or ()]
    _, sets = classes.predict(table, interval=0.9)
    assert [row["set"] for row in rows] == [
        "|".join(name for name, inside in zip(names, kept, strict=True) if inside) for kept in sets
    ]
    assert any("\\|" in row["set"] for row in rows)
    for name in ("p.parquet", "p.feather"):
        assert toporo("predict", "model", "new.csv", "--interval", "0.9", "--out", name).code == 0
    done = toporo("evaluate", "model", "new.csv", "--set", "resamples=20")
    assert "set of classes" in done.out
    assert "least" in done.out.partition("worst first")[0]


def test_the_group_is_needed_only_where_distance_counts(model: TableModel) -> None:
    bare = {name: values for name, values in TABLE.items() if name != "station"}
    assert len(model.predict(bare)) == 360
    with pytest.raises(DataError, match=r"lacks the column 'station'\. Intervals are wider far from"):
        model.predict(bare, interval=0.9)
    free = fit(graph=None)
    _, lower, upper = free.predict(bare, interval=0.9)
    assert np.ptp(upper - lower) < 1e-9


@pytest.mark.parametrize("kind", ["auto", "mlp"])
def test_intervals_of_too_few_groups_are_refused_before_anything_is_fitted(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toporo.tables.fit._fitted", lambda *_, **__: pytest.fail("a model was fitted"))
    rng = np.random.default_rng(0)
    table = {"g": ["a", "b"] * 20, "x": rng.normal(size=40), "y": rng.normal(size=40)}
    with pytest.raises(SettingError, match="intervals need at least 3 groups, and the table has 2 training groups"):
        fit_table(table, target="y", group="g", model=kind, intervals=True)


def test_votes_have_intervals_without_further_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to twelve fits of all candidates used to fail, unseen."""
    monkeypatch.setattr("toporo.tables.fit.refitted", lambda *_, **__: pytest.fail("it was fitted again"))
    rng = np.random.default_rng(0)
    table = {"g": ["a", "b", "c"] * 20, "x": rng.normal(size=60), "y": rng.normal(size=60)}
    assert fit_table(table, target="y", group="g", folds=2, intervals=True).has_intervals


def test_costly_models_are_asked_for_intervals() -> None:
    table = only(TABLE, station=STATIONS[:4])
    quick = {"model": "mlp", "epochs": 2, "hidden": (4,), "graph": None, "test_groups": ()}
    with pytest.raises(SettingError, match=r"up to twelve more fits.*--set intervals=true \(intervals=True\)"):
        fit(table, **quick).predict(table, interval=0.9)
    _, lower, upper = fit(table, **quick, intervals=True).predict(table, interval=0.9)
    assert (lower < upper).all()
    kriged = fit(kinds(table), "kind", model="kriged", graph=None, test_groups=(), penalty="auto", intervals=True)
    assert kriged.held_out is not None
    assert kriged.predict(kinds(table), interval=0.9)[1].any(axis=1).all()
    own = fit(table, model="kriged", graph=None, test_groups=(), penalty="auto", intervals=True)
    assert own.held_out is None
    assert own.has_intervals


def test_too_few_groups_and_old_folders_have_none() -> None:
    few = fit(only(TABLE, station=STATIONS[:2]), graph=None, test_groups=())
    with pytest.raises(SettingError, match="fitted to 2 groups, and from fewer than 3 nobody can tell"):
        few.predict(TABLE, interval=0.9)
    assert "coverage" not in few.evaluate(TABLE, resamples=0).overall
    old = load_model(HERE / "linear")
    with pytest.raises(SettingError, match="saved before toporo had them"):
        old.predict(HERE / "rows.csv", interval=0.9)


@pytest.mark.parametrize("interval", [0, 1, 1.5, -0.1, "0.9"])
def test_an_interval_is_a_share(model: TableModel, interval: Any) -> None:
    with pytest.raises(SettingError, match=r"interval is .* expected a share between 0 and 1"):
        model.predict(TABLE, interval=interval)


def test_a_column_to_keep_may_not_be_called_set(toporo: Any, classes: TableModel, tmp_path: Path) -> None:
    classes.save("model")
    Path("new.csv").write_text("station,x,depth,bed,set\nmouth,1,1,sand,a\n")
    done = toporo("predict", "model", "new.csv", "--interval", "0.9", "--keep", "set")
    assert done.code == 1
    assert "of the same name: 'set'" in done.err
