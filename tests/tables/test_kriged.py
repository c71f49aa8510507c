"""Kriged models of tables: fitted by name, kept in a folder, asked with groups, judged by hop, explained."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from tests.tables.cases import NEW, RIVER, STATIONS, STREAM, floods, only, river
from toporo import KrigedRegressor
from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning, UnknownNameError, UnsafeFileError
from toporo.tables import Evaluation, TableModel, fit_table, load_model

TABLE = river(groups=STATIONS)
AFTER = river(3, groups=STATIONS)


def fit(table: Any = None, **settings: Any) -> TableModel:
    """Kriged, on the stream, without its last two stations unless told otherwise."""
    given = {"target": "y", "group": "station", "graph": STREAM, "test_groups": NEW, "model": "kriged"}
    return fit_table(TABLE if table is None else table, **{**given, **settings})


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fit()


@pytest.fixture
def saved(model: TableModel, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


# ---------------------------------------------------------------- fitted, asked, judged


def test_it_is_the_estimator_on_rows_that_are_not_set_aside(model: TableModel) -> None:
    kept = only(TABLE, station=[name for name in STATIONS if name not in NEW])
    x = model.encoder.transform(next(model.portions(kept)).frame).matrix
    alone = KrigedRegressor(graph=STREAM).fit(x, kept["y"], groups=kept["station"])
    assert alone.evidence_ == model.estimator.evidence_
    assert model.groups == tuple(sorted(set(kept["station"])))
    assert model.estimator.group_sizes_ == dict.fromkeys(model.groups, 40)
    assert model.about["rows_set_aside"] == 80
    assert np.array_equal(model.predict(kept), alone.predict(x, groups=kept["station"]))


def test_new_groups_get_what_the_graph_suggests(model: TableModel) -> None:
    """The slope grows downstream: it is 3.1 and 3.4 at the last two stations, and 1.9 on average before."""
    new = only(AFTER, station=NEW)
    plain = fit(model="linear", method="erm")
    errors = [np.sqrt(np.mean((each.predict(new) - new["y"]) ** 2)) for each in (model, plain)]
    assert errors[0] < 0.4 < 1.0 < errors[1]


def test_it_is_judged_by_hop_and_by_its_intervals(model: TableModel) -> None:
    judged = model.evaluate(AFTER, resamples=50)
    assert list(judged.by_hop) == ["0 (trained on)", "1", "2"]
    assert list(judged.overall) == ["rmse", "mae", "r2", "coverage", "width"]
    values, lower, upper = model.predict(AFTER, interval=0.9)
    inside = (lower <= AFTER["y"]) & (upper >= AFTER["y"])
    assert judged.pooled["coverage"].value == pytest.approx(inside.mean(), abs=1e-12)
    assert judged.pooled["width"].value == pytest.approx((upper - lower).mean(), rel=1e-12)
    assert 0.8 < judged.pooled["coverage"].low < judged.pooled["coverage"].high < 1.0
    assert np.array_equal(values, model.predict(AFTER))
    plain = fit(model="linear", penalty=1.0).evaluate(AFTER, resamples=0)
    assert list(plain.by_hop) == ["0 (trained on)", "1", "2"]
    assert list(plain.overall) == ["rmse", "mae", "r2", "coverage", "width"]


def test_portions_do_not_change_predictions(model: TableModel) -> None:
    """The mean inputs of a new group are those of all its rows, however few are read at a time."""
    assert np.array_equal(model.predict(AFTER, rows=7), model.predict(AFTER))
    alone = fit(context="row")
    assert np.allclose(alone.predict(AFTER, rows=7), alone.predict(AFTER), rtol=1e-12)
    one = only(AFTER, station=["mouth"])
    apart = [alone.predict({name: values[i : i + 1] for name, values in one.items()})[0] for i in range(5)]
    assert np.allclose(apart, alone.predict(one)[:5], rtol=1e-12)


def test_a_group_beside_the_graph_has_neighbors(model: TableModel) -> None:
    sea = only(AFTER, station=["mouth"])
    at_sea = sea | {"station": ["sea"] * 40}
    with pytest.raises(GroupMismatchError, match=r"not in the graph: 'sea'.*neighbors="):
        model.predict(at_sea)
    assert np.allclose(model.predict(at_sea, neighbors={"sea": ["mouth"]}), model.predict(sea))


@pytest.mark.parametrize("context", ["rows", "row"])
def test_rows_of_unknown_groups_can_be_left_out(model: TableModel, context: str) -> None:
    """With ``context="row"`` portions of which nothing is left come first and last."""
    asked = model if context == "rows" else fit(context="row")
    known = only(AFTER, station=["spring", "mouth"])
    table = {name: column[:1] * 40 + column + column[:3] for name, column in known.items()}
    table["station"] = ["sea"] * 40 + known["station"] + ["ocean"] * 3
    with pytest.raises(GroupMismatchError, match="leave their rows out, --drop-rows"):
        asked.predict(table)
    said = "left out 43 rows of 2 groups that the graph does not have: 'sea' .40., 'ocean' .3."
    with pytest.warns(TopoRoWarning, match=said):
        predicted = asked.predict(table, drop_rows=True, rows=20)
    assert np.array_equal(predicted, asked.predict(known))
    assert np.array_equal(asked.predict(known, drop_rows=True), predicted), "and says nothing"
    judged = asked.evaluate(table, resamples=0, drop_rows=True)
    assert judged.skipped == {"sea": 40, "ocean": 3}
    assert replace(judged, skipped={}) == asked.evaluate(known, resamples=0)
    assert Evaluation.from_dict(judged.to_dict()).skipped == judged.skipped
    with pytest.raises(DataError, match="no row is of a group that the model knows: all 3 are of 'ocean'"):
        asked.predict({name: column[-3:] for name, column in table.items()}, drop_rows=True)


def test_a_bad_row_keeps_its_number_when_others_are_left_out(model: TableModel) -> None:
    table = only(AFTER, station=["mouth"])
    table = {name: column[:10] for name, column in table.items()} | {"station": ["ocean"] * 5 + ["mouth"] * 5}
    table["x"][7] = 1e308
    plain = fit(model="linear", penalty=1.0)
    plain.estimator.coef_[:] = 10.0  # what is added up is infinite
    with pytest.raises(DataError, match="row 8: the prediction is not finite"):
        list(plain.portions(table, require=["station"], drop_rows=True, known_to=[model]))


def test_models_are_judged_by_rows_that_all_know(model: TableModel) -> None:
    table = only(AFTER, station=["spring", "mouth"])
    table["station"][-40:] = ["sea"] * 40
    plain = fit(model="linear", penalty=1.0)
    assert len(plain.evaluate(table, resamples=0, drop_rows=True).groups) == 2, "it takes any group"
    both = [each.evaluate(table, resamples=0, drop_rows=True, known_to=[model]) for each in (model, plain)]
    assert [each.skipped for each in both] == [{"sea": 40}] * 2
    assert [each.worst.group for each in both] == ["spring"] * 2


def test_a_fit_leaves_out_what_the_graph_does_not_have() -> None:
    left = [edge for edge in STREAM if "mouth" not in edge]
    with pytest.raises(GroupMismatchError, match="--drop-rows"):
        fit(graph=left, test_groups=(), model="linear", penalty=1.0)
    with pytest.warns(TopoRoWarning, match=r"left out 40 rows of 1 group that the graph does not have: 'mouth'"):
        fitted = fit(graph=left, test_groups=(), model="linear", penalty=1.0, drop_rows=True)
    assert fitted.groups == tuple(sorted(set(STATIONS) - {"mouth"}))
    with pytest.raises(DataError, match="no row is of a group of the graph"):
        fit(graph=[("a", "b")], test_groups=(), drop_rows=True)


# ---------------------------------------------------------------- explained


def test_the_evidence_is_said_in_words(model: TableModel) -> None:
    table = model.explain()
    assert {row.group for row in table} == set(STATIONS)
    differences = [row.difference for row in table]
    assert differences == sorted(differences, reverse=True)
    slopes = {row.group: row.slopes["x"] for row in table}
    truth = {name: 1 + 0.3 * place for place, name in enumerate(STATIONS)}
    assert all(abs(slopes[name] - truth[name]) < 0.5 for name in STATIONS)
    assert table.columns[7] == "slope of x"  # it varies most
    words = " ".join(table.notes)
    assert "The graph counts for over 99 %: neighbours are alike." in words
    assert "their place in the graph and their inputs" in words
    assert "Without the graph, predictions in groups that were not trained on (2) would change by 1." in words
    assert table.about["follows_graph"]["slopes"]["share"] > 0.9
    assert {row.group: row.hops for row in table}["mouth"] == 2
    json.dumps([table.about, table.to_dict()], allow_nan=False)


def test_without_a_graph_nothing_is_said_of_it() -> None:
    table = fit(graph=None, test_groups=()).explain()
    assert all(row.hops is None and row.without_graph is None for row in table)
    assert "without_graph" not in str(table)
    assert "There is no graph" in " ".join(table.notes)


def test_where_groups_do_not_differ_the_words_say_so() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=360)
    table = {"station": TABLE["station"], "x": x.tolist(), "y": (x + rng.normal(size=360)).tolist()}
    model = fit(table, test_groups=())
    words = " ".join(model.explain().notes)
    assert model.estimator.evidence_["one model"] > 0.5
    assert "Differences between groups count for 43 %: the rows leave open whether groups differ." in words
    assert "The graph counts for 2 %: neighbours are no more alike than other groups" in words


# ---------------------------------------------------------------- kept


def test_a_saved_model_is_the_same_to_the_last_bit(model: TableModel, saved: Path) -> None:
    again = load_model(saved)
    for was, now in zip(model.predict(AFTER, interval=0.8), again.predict(AFTER, interval=0.8), strict=True):
        assert np.array_equal(was, now)
    assert again.explain() == model.explain()
    assert again.evaluate(AFTER, resamples=20) == model.evaluate(AFTER, resamples=20)
    for name in ("evidence_", "gate_", "saw_", "group_sizes_"):
        assert getattr(again.estimator, name) == getattr(model.estimator, name)
    assert sorted(path.name for path in saved.iterdir()) == ["model.json", "weights.safetensors"]
    model.save(saved.parent / "again")
    for file in saved.iterdir():
        assert file.read_bytes() == (saved.parent / "again" / file.name).read_bytes()


def test_more_effects_than_there_is_room_for_are_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toporo.robust.likelihood.MOST_EFFECTS", 45)
    model = fit()
    assert model.estimator.fit_.models[-1].solved.layout.slopes < 8
    model.save(tmp_path / "m")
    assert np.array_equal(load_model(tmp_path / "m").predict(AFTER), model.predict(AFTER))


def altered(folder: Path, change: Any) -> None:
    """Change what is stored, and make the checksums agree again."""
    from hashlib import sha256

    from toporo.tables import folder as folders

    content = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    arrays = load_file(folder / "weights.safetensors")
    change(content["estimator"].get("model"), arrays)
    weights = save(arrays)
    (folder / "weights.safetensors").write_bytes(weights)
    content["files"] = {"weights.safetensors": sha256(weights).hexdigest()}
    content["checksum"] = folders._checksum(content)
    (folder / "model.json").write_text(json.dumps(content), encoding="utf-8")


def put(key: str, value: Any) -> Any:
    return lambda content, _: content.__setitem__(key, value)


DAMAGE = {
    "an array is missing": (lambda _, arrays: arrays.pop("fit.factors.roots"), "factors.roots' is missing"),
    "another type": (lambda _, a: a.update({"fit.factors.rows": a["fit.factors.rows"].astype("f4")}), "float32"),
    "another shape": (lambda _, a: a.update({"fit.modes.vectors": a["fit.modes.vectors"][:, 1:]}), "modes.vectors"),
    "not a number": (lambda _, a: a["fit.factors.roots"].__setitem__((0, 0, 0), np.nan), "holds NaN"),
    "no spread": (lambda _, arrays: arrays["scaling.scale"].__setitem__(0, 0.0), "not positive"),
    "less than no rows": (lambda _, arrays: arrays["fit.factors.rows"].__setitem__(0, -1.0), "factors.rows"),
    "no rows": (lambda _, arrays: arrays["fit.factors.rows"].__setitem__(0, 0.0), "factors.rows"),
    "no weight": (lambda _, arrays: arrays["fit.factors.roots"].__setitem__((0, 0, 0), 0.0), "no solution"),
    "an end before its start": (lambda _, arrays: arrays["low"].fill(1e9), "'low'"),
    "other rows": (lambda _, arrays: arrays["fit.factors.targets"].__imul__(2.0), "no solution"),
    "another likelihood": (lambda c, _: c["fit"]["models"][2].update(nll=1.0), "no solution"),
    "beyond measure": (lambda _, arrays: arrays["fit.factors.roots"].fill(1e200), "no solution"),
    "a setting": (put("context", 3), "context"),
    "no such context": (put("context", "weather"), "did not expect 'weather'"),
    "another setting": (put("depth", 3), "no such field"),
    "no models": (lambda c, _: c["fit"].update(models=[]), "do not sum to one"),
    "a model's name": (lambda c, _: c["fit"]["models"][0].update(name="two models"), "two models"),
    "a negative variance": (lambda c, _: c["fit"]["models"][0]["parameters"][0].__setitem__(1, -1.0), "> 0"),
    "weights": (lambda c, _: c["fit"]["models"][3].update(weight=0.1), "do not sum to one"),
    "a group twice": (lambda c, _: c["sizes"].append(c["sizes"][0]), "there twice"),
    "a group elsewhere": (lambda c, _: c["sizes"][-1].__setitem__(0, "zoo"), "out of order"),
    "a place elsewhere": (lambda _, arrays: arrays["fit.places"].__setitem__(0, 99), "not among those of the graph"),
    "no graph": (put("graph", None), "do not go together"),
    "inputs": (put("inputs", 3), "inputs, expected 3"),
    "levels": (put("levels", True), "not one of this version's"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused(saved: Path, damage: str) -> None:
    change, words = DAMAGE[damage]
    altered(saved, change)
    with pytest.raises(DataError, match=words):
        load_model(saved)


def test_what_is_altered_without_a_checksum_is_refused(saved: Path) -> None:
    content = bytearray((saved / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (saved / "weights.safetensors").write_bytes(content)
    with pytest.raises(UnsafeFileError, match="does not match the checksum"):
        load_model(saved)


# ---------------------------------------------------------------- odd tables


def test_predicting_takes_groups(model: TableModel) -> None:
    without = {name: values for name, values in AFTER.items() if name != "station"}
    with pytest.raises(DataError, match=r"lacks the column 'station'\. A kriged model .* add the column"):
        model.predict(without)
    with pytest.raises(DataError, match=r"row 3: no group in column 'station'"):
        model.predict(AFTER | {"station": [*AFTER["station"][:2], None, *AFTER["station"][3:]]})


def test_one_group_is_an_ordinary_regression() -> None:
    with pytest.warns(TopoRoWarning, match="of one group, 'spring'"):
        model = fit(only(TABLE, station=["spring"]), test_groups=())
    assert model.estimator.evidence_ == {"one model": 1.0}
    assert "There is one training group" in model.explain().notes[0]
    here = only(TABLE, station=["spring"])
    assert np.allclose(model.predict(here), model.predict(here | {"station": ["brook"] * 40}), atol=0.1)


@pytest.mark.filterwarnings("ignore::toporo.errors.TopoRoWarning")
@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (1, 20), (2, 25), (40, 0)])
def test_narrow_and_wide_tables_have_finite_predictions(rows: int, columns: int, tmp_path: Path) -> None:
    """Groups of one row, more columns than rows, and a column that never varies beside one that does in no group."""
    rng = np.random.default_rng(1)
    station = np.repeat(STATIONS, rows)
    table = {"station": station.tolist(), "constant": [1.0] * len(station)}
    table |= {"of_group": np.repeat(np.arange(9.0), rows).tolist()}
    table |= {f"x{j}": rng.normal(size=len(station)).tolist() for j in range(columns)}
    table |= {"y": rng.normal(size=len(station)).tolist()}
    model = fit(table, test_groups=("mouth",))
    values, lower, upper = model.predict(table, interval=0.9)
    assert np.isfinite([values, lower, upper]).all()
    assert (lower < values).all()
    model.save(tmp_path / "m")
    assert np.array_equal(load_model(tmp_path / "m").predict(table), values)
    assert len(model.explain()) == 9


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"method": "erm"}, SettingError, "does not take method for regression: leave method out"),
        ({"normalization": "sum", "prior": "uniform"}, SettingError, "leave normalization and prior out"),
        ({"radius": 0.1}, SettingError, "leave radius out"),
        ({"ridge": 0.1, "epochs": 3}, SettingError, "leave ridge and epochs out"),
        ({"contxt": "row"}, UnknownNameError, "Did you mean 'context'"),
        ({"context": "weather"}, UnknownNameError, "unknown context 'weather'"),
        ({"model": "krigged"}, UnknownNameError, "Did you mean 'kriged'"),
        ({"graph": STREAM[:3], "test_groups": ()}, GroupMismatchError, "not in the graph"),
    ],
)
def test_what_it_does_not_take_is_said(settings: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        fit(**settings)


# ---------------------------------------------------------------- classes


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_have_probabilities_and_are_kept(classes: int, tmp_path: Path) -> None:
    level = np.digitize(TABLE["y"], [0.0] if classes == 2 else [-0.7, 0.7])
    table = {name: values for name, values in TABLE.items() if name != "y"} | {"y": [f"level {i}" for i in level]}
    model = fit(table)
    assert model.task == "classification"
    chances = model.predict_proba(table)
    assert chances.shape == (360, classes)
    judged = model.evaluate(table, resamples=0)
    assert list(judged.by_hop) == ["0 (trained on)", "1", "2"]
    assert judged.overall["accuracy"].value > 0.8
    assert "coverage" not in judged.overall
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert np.array_equal(again.predict_proba(table), chances)
    assert again.explain() == model.explain()
    assert again.estimator.held_out_ == model.estimator.held_out_
    assert "Coefficients are of the share of" in " ".join(model.explain().notes)
    with pytest.raises(SettingError, match=r"no intervals: it takes up to twelve more fits.*--set intervals=true"):
        model.predict(table, interval=0.9)


CLASS_DAMAGE = {
    "no classes": (put("classes", None), "no classes"),
    "more classes": (lambda c, _: c["classes"]["values"].append("maybe"), "1 target.s. for 3 classes"),
    "no scale": (lambda _, arrays: arrays.pop("scale"), "'scale' is missing"),
    "a scale below 0": (lambda _, arrays: arrays["scale"].fill(-1.0), "not positive"),
    "one column": (lambda c, _: c["regression"].update(one_column=True), "1 target"),
}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes") / "model"
    fit_table(floods(), target="flood", group="station", graph=RIVER, model="kriged").save(folder)
    return folder


@pytest.mark.parametrize("damage", CLASS_DAMAGE)
def test_a_damaged_classifier_is_refused(classifier: Path, tmp_path: Path, damage: str) -> None:
    folder = Path(shutil.copytree(classifier, tmp_path / "model"))
    change, words = CLASS_DAMAGE[damage]
    altered(folder, change)
    with pytest.raises(DataError, match=words):
        load_model(folder)


def test_others_take_no_neighbors() -> None:
    plain = fit(model="linear", penalty=1.0)
    with pytest.raises(SettingError, match="only a kriged model and one by votes take neighbors"):
        plain.predict(AFTER, neighbors={"sea": ["mouth"]})
