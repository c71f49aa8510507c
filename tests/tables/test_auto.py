"""Models by votes, the default for a table: fitted, asked with groups, judged by hop, kept in a folder, explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from tests.tables.cases import NEW, RIVER, STATIONS, STREAM, floods, only, river
from toporo import AutoRegressor
from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning, UnknownNameError
from toporo.estimators.league import LeagueTable
from toporo.tables import TableModel, fit_table, load_model
from toporo.tables.fit import MODELS, default_model

TABLE = river(groups=STATIONS)
AFTER = river(3, groups=STATIONS)


def fit(table: Any = None, **settings: Any) -> TableModel:
    """By default, on the stream, without its last two stations unless told otherwise."""
    given = {"target": "y", "group": "station", "graph": STREAM, "test_groups": NEW}
    return fit_table(TABLE if table is None else table, **{**given, **settings})


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fit()


# ---------------------------------------------------------------- which model it is


def test_it_is_the_default_and_the_estimator_on_rows_that_are_not_set_aside(model: TableModel) -> None:
    assert MODELS[0] == "auto"
    assert model.about["method"] == "auto"
    assert model.about["rows_set_aside"] == 80
    kept = only(TABLE, station=[name for name in STATIONS if name not in NEW])
    assert model.groups == tuple(sorted(set(kept["station"])))
    x = model.encoder.transform(next(model.portions(kept)).frame).matrix
    given = {"graph": STREAM} | ({"test_groups": list(NEW)} if "test_groups" in AutoRegressor().get_params() else {})
    alone = AutoRegressor(**given).fit(x, np.asarray(kept["y"]), groups=kept["station"])
    assert alone.votes_ == model.estimator.votes_
    assert np.array_equal(model.predict(kept), alone.predict(x, groups=kept["station"]))


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "erm"},
        {"method": "tro"},
        {"penalty": 1.0},
        {"radius": 0.1},
        {"prior": "uniform"},
        {"ridge": 0.1, "penalty": 1.0},
        {"divergence": "kl", "penalty": 1.0},
    ],
)
def test_a_setting_of_the_linear_model_asks_for_it(settings: dict[str, Any]) -> None:
    """Whatever was fitted before there were votes is fitted still."""
    plain = fit(**settings)
    assert type(plain.estimator).__name__ == "TRORegressor"
    assert plain.about["method"] == settings.get("method", "tro")
    assert not plain.by_group
    new = only(AFTER, station=NEW)
    assert np.array_equal(plain.predict(new), fit(model="linear", **settings).predict(new))


def test_the_linear_model_alone_is_what_was_the_default() -> None:
    alone, named = fit(model="linear"), fit(method="tro", penalty="auto")
    assert alone.estimator.penalty_ == named.estimator.penalty_
    assert np.array_equal(alone.estimator.coef_, named.estimator.coef_)


def test_settings_of_both_decide_nothing() -> None:
    assert default_model(["random_state", "folds", "candidates"]) == "auto"
    assert default_model(["random_state", "temperature"]) == "linear"
    with_mine = fit(candidates={"mine": Ridge()}, random_state=3)
    assert "mine" in with_mine.estimator.votes_
    assert with_mine.estimator.random_state == 3


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (
            {"model": "auto", "penalty": 1.0},
            SettingError,
            r"does not take penalty: leave penalty out, or .*--model linear",
        ),
        ({"model": "auto", "method": "erm", "prior": "uniform"}, SettingError, r"method and prior.*model='linear'"),
        ({"model": "forest"}, UnknownNameError, r"unknown model 'forest'.*auto, kriged, linear, mlp, trees"),
        ({"penalti": 1.0}, UnknownNameError, r"unknown setting 'penalti'. Did you mean 'penalty'\?"),
        ({"foldz": 3}, UnknownNameError, r"Did you mean 'folds'\?"),
        ({"folds": 1}, SettingError, "folds"),
    ],
)
def test_what_cannot_be_is_said(settings: dict[str, Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        fit(**settings)


def test_what_is_of_the_fit_alone_is_not_kept(model: TableModel) -> None:
    assert not {"report", "resume"} & {name for name, value in model.estimator.get_params().items() if value}


# ---------------------------------------------------------------- asked and judged


def test_new_rows_need_their_group(model: TableModel) -> None:
    bare = {name: values for name, values in AFTER.items() if name != "station"}
    with pytest.raises(DataError, match=r"lacks the column 'station'. A model by votes looks at all rows of a group"):
        model.predict(bare)
    with pytest.raises(DataError, match=r"row 3: no group in column 'station'"):
        model.predict(AFTER | {"station": [*AFTER["station"][:2], None, *AFTER["station"][3:]]})


def test_portions_do_not_change_predictions(model: TableModel) -> None:
    """The mean inputs of a group are those of all its rows, however few are read at a time."""
    assert np.array_equal(model.predict(AFTER, rows=7), model.predict(AFTER))


def test_a_group_beside_the_graph_has_neighbors(model: TableModel) -> None:
    sea = only(AFTER, station=["mouth"])
    at_sea = sea | {"station": ["sea"] * 40}
    with pytest.raises(GroupMismatchError, match=r"not in the graph: 'sea'.*neighbors="):
        model.predict(at_sea)
    assert np.allclose(model.predict(at_sea, neighbors={"sea": ["mouth"]}), model.predict(sea))


def test_it_is_judged_by_hop_and_by_its_intervals(model: TableModel) -> None:
    judged = model.evaluate(AFTER, resamples=20)
    assert list(judged.by_hop) == ["0 (trained on)", "1", "2"]
    assert list(judged.overall) == ["rmse", "mae", "r2", "coverage", "width"]
    values, lower, upper = model.predict(AFTER, interval=0.9)
    inside = (lower <= AFTER["y"]) & (upper >= AFTER["y"])
    assert judged.pooled["coverage"].value == pytest.approx(inside.mean(), abs=1e-12)
    assert np.array_equal(values, model.predict(AFTER))


def test_without_a_graph_any_group_may_come() -> None:
    model = fit(graph=None, test_groups=())
    assert np.isfinite(model.predict(AFTER | {"station": ["sea"] * 360})).all()
    assert "There is no graph" in str(model.explain())
    assert model.evaluate(AFTER, resamples=20).by_hop == {}


@pytest.mark.filterwarnings("ignore:the learned topology is not informative")
def test_a_graph_may_be_learned() -> None:
    """Inputs of all stations are alike, so the graph is by chance."""
    with pytest.warns(
        TopoRoWarning, match=r"another sample would give another prior.*Candidates weigh all groups alike"
    ):
        model = fit(graph="learn")
    assert "another prior, so it is the same for all groups" in model.explain().remarks[1]
    assert model.estimator.topology_ is not None
    assert set(model.graph.names) == set(STATIONS)  # type: ignore[union-attr]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.filterwarnings("ignore:all .* rows are of one group")
def test_one_or_two_groups_will_do(count: int) -> None:
    few = only(TABLE, station=STATIONS[:count])
    model = fit(few, test_groups=())
    assert np.isfinite(model.predict(AFTER)).all()
    assert model.groups == tuple(sorted(STATIONS[:count]))
    assert "It is carried by" in str(model.explain())
    assert model.evaluate(AFTER, resamples=20).by_hop


def test_weights_count() -> None:
    wrong = [name in ("upper", "weir") for name in TABLE["station"]]
    table = TABLE | {
        "y": [-y if bad else y for y, bad in zip(TABLE["y"], wrong, strict=True)],
        "count": [1e-4 if bad else 1.0 for bad in wrong],
    }
    model, plain = fit(table, weight="count"), fit(table, exclude=["count"])
    new = only(AFTER, station=NEW)
    errors = [np.mean((each.predict(new) - new["y"]) ** 2) for each in (model, plain)]
    assert errors[0] < errors[1]
    assert model.weight == "count"


def test_rows_without_weight_do_not_count() -> None:
    some = [float(place % 4 > 0) for place in range(len(TABLE["y"]))]
    spoiled = TABLE | {"count": some, "y": [y if kept else 1e6 for y, kept in zip(TABLE["y"], some, strict=True)]}
    new = only(AFTER, station=NEW)
    assert np.array_equal(*(fit(each, weight="count").predict(new) for each in (TABLE | {"count": some}, spoiled)))
    with pytest.raises(DataError, match=r"the weight .* is zero in every row"):
        fit(TABLE | {"count": [0.0] * 360}, weight="count")
    with pytest.raises(DataError, match="'weir'"):
        fit(TABLE | {"count": [float(name != "weir") for name in TABLE["station"]]}, weight="count")


def test_classes_have_probabilities_and_one_may_be_missing_in_a_region() -> None:
    table = floods()
    model = fit(table, target="flood", graph=RIVER, test_groups=["mouth"])
    chances = model.predict_proba(table)
    assert np.allclose(chances.sum(axis=1), 1.0)
    assert set(model.predict(table)) <= {"no", "yes"}
    judged = model.evaluate(table, resamples=20)
    assert judged.overall["set_size"].value >= 1.0
    labels, sets = model.predict(table, interval=0.9)
    own = np.asarray(model.classes, dtype=object) == labels[:, None]
    assert sets[own].all()  # the likeliest is always among those that may be right
    rare = table | {"flood": [
        "perhaps" if station == "upper" and x > 1 else flood
        for station, x, flood in zip(table["station"], table["x"], table["flood"], strict=True)
    ]}  # fmt: skip
    of_one = fit(rare, target="flood", graph=RIVER, test_groups=["mouth"])
    assert of_one.classes == ("no", "perhaps", "yes")
    assert np.allclose(of_one.predict_proba(table).sum(axis=1), 1.0)


# ---------------------------------------------------------------- explained and kept


def test_it_is_explained_by_its_league(model: TableModel) -> None:
    table = model.explain()
    assert isinstance(table, LeagueTable)
    assert {row.name for row in table} >= {"constant", "linear", "trees", "trees with context"}
    assert "It is carried by" in str(table)
    json.dumps([table.about, table.to_dict()], allow_nan=False)


def test_a_saved_model_is_the_same_to_the_last_bit(model: TableModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    for was, now in zip(model.predict(AFTER, interval=0.8), again.predict(AFTER, interval=0.8), strict=True):
        assert np.array_equal(was, now)
    assert again.explain() == model.explain()
    assert again.groups == model.groups
    assert again.evaluate(AFTER, resamples=20).to_dict() == model.evaluate(AFTER, resamples=20).to_dict()


def test_the_same_seed_gives_the_same_bytes(model: TableModel, tmp_path: Path) -> None:
    model.save(tmp_path / "one")
    fit().save(tmp_path / "other")
    for name in ("model.json", "weights.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_boosted_trees_alone_are_a_control(tmp_path: Path) -> None:
    """They are scikit-learn's on the inputs of the table, without a graph and without other candidates."""
    control = fit(model="trees", random_state=3)
    assert control.about["method"] == "trees"
    assert dict(control.estimator.votes_) == {"trees": 1.0}
    kept = only(TABLE, station=[name for name in STATIONS if name not in NEW])
    x = control.encoder.transform(next(control.portions(kept)).frame).matrix
    alone = HistGradientBoostingRegressor(random_state=3).fit(x, np.asarray(kept["y"]))
    at = control.encoder.transform(next(control.portions(AFTER)).frame).matrix
    assert np.allclose(control.predict(AFTER), alone.predict(at))
    control.save(tmp_path / "control")
    assert np.array_equal(load_model(tmp_path / "control").predict(AFTER), control.predict(AFTER))
    with pytest.raises(SettingError, match="model 'trees' decides for itself"):
        fit(model="trees", penalty=1.0)
