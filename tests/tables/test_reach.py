"""How far rows are from what was trained on: what counts, what does not, and what a folder keeps of it."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from tests.tables.cases import NEW, RIVER, STATIONS, STREAM, as_csv, floods, only, river
from tests.tables.test_folder import rewrite
from toporo.errors import DataError, SettingError
from toporo.groups import GroupIds, Groups
from toporo.tables import Reach, TableModel, fit_table, load_model
from toporo.tables import reach as reaches
from toporo.tables.evaluate import evaluate
from toporo.tables.reach import hops_from, listened_to
from toporo.topology.graph import GroupGraph


class Linear:
    """A model that is its coefficients."""

    def __init__(self, *coef: float) -> None:
        self.coef = np.array(coef)

    def predict(self, x: np.ndarray) -> Any:
        return x @ self.coef


def ids_of(names: list[str]) -> GroupIds:
    return Groups.of(names)


def some_rows(groups: int = 12, rows: int = 40, columns: int = 3) -> tuple[np.ndarray, GroupIds]:
    x = np.random.default_rng(0).normal(size=(groups * rows, columns))
    return x, ids_of([f"g{place:02}" for place in range(groups) for _ in range(rows)])


def chain(groups: int = 12, more: int = 6) -> GroupGraph:
    return GroupGraph.from_edges(list(pairwise([f"g{place:02}" for place in range(groups + more)])))


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fit_table(river(groups=STATIONS), target="y", group="station", graph=STREAM, test_groups=NEW, penalty=1.0)


def a_row(**changes: Any) -> dict[str, list[Any]]:
    return {"station": ["mouth"], "x": [0.1], "depth": [0.1], "bed": ["sand"]} | {
        name: [value] for name, value in changes.items()
    }


# ---------------------------------------------------------------- distance


def test_a_model_listens_to_an_input_by_its_coefficient_times_its_deviation() -> None:
    x, ids = some_rows(rows=100)
    weights = listened_to(Linear(1.0, -0.05, 0.001), x * [2.0, 20.0, 1.0], ids)
    assert weights[0] == 1.0
    assert weights[1] == pytest.approx(0.5, rel=0.15)
    assert weights[2] == 0.0, "what hardly counts is left out"


def test_inputs_that_the_model_does_not_listen_to_do_not_count() -> None:
    x, ids = some_rows()
    reach = Reach.of(Linear(1.0, 1.0, 0.0), x, ids)
    assert reach is not None
    assert reach.rows.shape == (480, 2)
    far = reach.of_rows(np.array([[0.0, 0.0, 1e300], [4.5, 4.5, 0.0]]))
    assert far.values[0] <= 1.0
    assert far.values[1] > 1.0
    assert far.reasons[0] == ""
    assert far.reasons[1].startswith("far from any training row")


def test_distances_are_over_the_mean_between_training_rows() -> None:
    x, ids = some_rows(groups=4, rows=5)
    reach = Reach.of(Linear(1.0, 1.0, 1.0), x, ids)
    assert reach is not None
    new = np.array([[5.0, 0.0, 0.0]])
    scaled, at = (x - reach.center) / reach.scale * reach.weights, (new - reach.center) / reach.scale * reach.weights
    between = np.linalg.norm(scaled[:, None] - scaled[None], axis=2)
    usual = between.sum() / (20 * 19)
    assert reach.of_rows(new).distance[0] == pytest.approx(np.linalg.norm(scaled - at, axis=1).min() / usual)
    assert reach.of_rows(x).distance == pytest.approx(np.zeros(20), abs=1e-9)


def test_the_limit_is_the_upper_whisker_of_rows_of_groups_held_out() -> None:
    """Two far places with three groups each: with a group left out there are others beside it; with rows alone too."""
    place = np.repeat([0.0, 100.0], 60) + np.random.default_rng(0).normal(size=120)
    names = [f"{'ab'[row // 60]}{row % 3}" for row in range(120)]
    together = Reach.of(Linear(1.0), place[:, None], ids_of(names))
    apart = Reach.of(Linear(1.0), place[:, None], ids_of([name[0] for name in names]))
    assert together is not None
    assert apart is not None
    between = np.array([[50.0]])
    assert together.of_rows(between).outside[0]
    assert not apart.of_rows(between).outside[0], "groups held out were a hundred away, so validation has seen that"


def test_a_hair_out_of_range_does_not_count_and_a_deviation_does() -> None:
    x, ids = some_rows(columns=20)
    reach = Reach.of(Linear(*[1.0] * 3, 0.1, 0.1, *[1.0] * 15), x, ids)
    assert reach is not None
    row = x[:1].copy()
    row[0, 3] = x[:, 3].max() + 0.5 * x[:, 3].std()
    near = reach.of_rows(row)
    row[0, 3] = x[:, 3].max() + 1.5 * x[:, 3].std()
    row[0, 4] = x[:, 4].min() - 1.5 * x[:, 4].std()
    far = reach.of_rows(row)
    assert not near.outside[0]
    assert far.values[0] == pytest.approx(1.5, abs=0.1)
    assert far.reasons[0] == "2 inputs far out of range"


def test_a_model_that_listens_to_nothing_reaches_everywhere() -> None:
    x, ids = some_rows()
    reach = Reach.of(Linear(0.0, 0.0, 0.0), x, ids)
    assert reach is not None
    assert not reach.of_rows(x + 1e9).outside.any()


def test_one_group_holds_out_rows() -> None:
    x, _ = some_rows(groups=1)
    reach = Reach.of(Linear(1.0, 1.0, 1.0), x, ids_of(["a"] * 40), graph=None)
    assert reach is not None
    assert reach.most_hops is None
    assert 0 < reach.limit < 1
    assert reach.of_rows(x + 20.0).outside.all()


def test_rows_without_weight_are_no_part_of_it() -> None:
    x, ids = some_rows()
    weights = np.ones(480)
    weights[:40], x[:40] = 0.0, x[:40] + 1000.0
    reach = Reach.of(Linear(1.0, 1.0, 1.0), x, ids, sample_weight=weights)
    assert reach is not None
    assert reach.rows.shape == (440, 3)
    assert reach.of_rows(x[:40]).outside.all()


def test_numbers_too_large_to_be_squared_have_no_reach() -> None:
    x, ids = some_rows(groups=2)
    assert Reach.of(Linear(0.0, 0.0, 0.0), np.where(x > 0, 1.7e308, -1.7e308), ids) is None


def test_many_rows_are_drawn_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaches, "MOST_ROWS", 100)
    x, ids = some_rows(groups=20)
    reach = Reach.of(Linear(1.0, 1.0, 1.0), x, ids)
    assert reach is not None
    assert len(reach.rows) == 100
    monkeypatch.setattr(reaches, "MOST_ROWS", 15)
    fewer = Reach.of(Linear(1.0, 1.0, 1.0), x, ids)
    assert fewer is not None
    assert len(fewer.rows) == 15, "more groups than rows to keep"


def test_the_order_of_rows_makes_no_difference_to_whole_tables() -> None:
    x, ids = some_rows()
    order = np.random.default_rng(1).permutation(480)
    one, other = (
        Reach.of(Linear(1.0, 1.0, 1.0), a, b) for a, b in ((x, ids), (x[order], GroupIds(ids.codes[order], ids.groups)))
    )
    assert one is not None
    assert other is not None
    assert one.limit == pytest.approx(other.limit, rel=0.1), "which rows are shuffled depends on their order"


# ---------------------------------------------------------------- hops


def test_hops_count_against_the_most_that_validation_bridged() -> None:
    x, ids = some_rows()
    graph = chain()
    reach = Reach.of(Linear(1.0, 1.0, 1.0), x, ids, graph=graph, test_groups=["g12"])
    assert reach is not None
    assert reach.most_hops is not None
    hops = hops_from(graph, list(map(str, ids.groups)))
    names = np.array(["g00", "g12", "g17", "elsewhere", None], dtype=object)
    rows = reach.of_rows(x[:5], names, hops)
    assert rows.values[:2].tolist() == pytest.approx([0.0, 1.0 / reach.most_hops], abs=1e-6)
    assert rows.values[2] == 6.0 / reach.most_hops
    assert rows.reasons.tolist() == ["", "", "6 hops from any training group", "", ""]
    assert set(rows.by_group) == {"g00", "g12", "g17", "elsewhere"}
    assert rows.by_group["g17"].hops == 6
    assert rows.by_group["elsewhere"].hops is None


def test_folds_are_as_far_apart_as_the_test_groups() -> None:
    x, ids = some_rows()
    test = [f"g{place}" for place in range(12, 16)]
    far = Reach.of(Linear(1.0, 1.0, 1.0), x, ids, graph=chain(), test_groups=test)
    near = Reach.of(Linear(1.0, 1.0, 1.0), x, ids, graph=chain(), test_groups=test[:1])
    assert far is not None
    assert near is not None
    assert (far.most_hops or 0) > (near.most_hops or 0)


def test_hops_do_not_count_where_test_groups_were_not_named() -> None:
    """Folds are groups drawn at random then, and have been next to others whatever is asked later."""
    x, ids = some_rows()
    reach = Reach.of(Linear(1.0, 1.0, 1.0), x, ids, graph=chain())
    assert reach is not None
    assert reach.most_hops is None
    hops = hops_from(chain(), list(map(str, ids.groups))) or {}
    rows = reach.of_rows(x[:2], np.array(["g17", "lost"], dtype=object), hops | {"lost": np.inf})
    assert rows.reasons.tolist() == ["", "no path to any training group"]
    assert rows.by_group["g17"].hops == 6
    assert (reach.too_many(6), reach.too_many(np.inf)) == (False, True)


def test_no_path_is_outside_unless_validation_met_it() -> None:
    x, ids = some_rows(groups=4)
    joined = [("g00", "g01"), ("g01", "g02"), ("g02", "g03"), ("far", "away")]
    apart = [("g00", "g01"), ("g02", "away"), ("g03", "far")]
    outside = {}
    for name, edges in (("joined", joined), ("apart", apart)):
        table = {"g": ids.names, "a": x[:, 0], "b": x[:, 1], "y": x[:, 0] + 0.1 * x[:, 2]}
        model = fit_table(table, target="y", group="g", graph=edges, penalty=1.0, prior="uniform")
        outside[name] = model.reach_of({"g": ["far"], "a": [0.0], "b": [0.0]})
    assert outside["joined"].reasons[0] == "no path to any training group"
    assert outside["joined"].values[0] > 4
    assert outside["apart"].reasons[0] == ""


def test_groups_beside_those_of_the_graph_are_a_hop_further() -> None:
    hops = hops_from(chain(3, 2), ["g00"], {"new": ["g02", "g03"], "lost": ["nowhere"]})
    assert hops is not None
    assert (hops["g02"], hops["new"], hops["lost"]) == (2, 3, np.inf)


# ---------------------------------------------------------------- models of tables


def test_a_table_model_says_how_far_rows_are_and_why(model: TableModel) -> None:
    rows = model.reach_of({name: a_row()[name] + a_row(x=30.0, depth=-30.0)[name] for name in a_row()})
    assert len(rows) == 2
    assert rows.outside.tolist() == [False, True]
    assert rows.reasons[1] == "far from any training row; 2 inputs far out of range"
    mouth = rows.by_group["mouth"]
    assert (mouth.rows, mouth.outside, mouth.hops, mouth.reason) == (2, 1, 2, "")


@pytest.mark.parametrize("kind", ["mlp", "kriged"])
def test_every_model_has_a_reach(kind: str) -> None:
    settings: dict[str, Any] = {"epochs": 2} if kind == "mlp" else {}
    fitted = fit_table(river(), target="y", group="station", graph=RIVER, test_groups=["mouth"], model=kind, **settings)
    assert fitted.reach is not None
    assert fitted.reach.weights.max() == 1.0
    assert fitted.reach_of(a_row(x=30.0)).outside[0]
    assert not fitted.reach_of(a_row()).outside[0]


def test_classes_have_a_reach() -> None:
    fitted = fit_table(floods(), target="flood", group="station", penalty=1.0)
    assert fitted.reach is not None
    assert fitted.reach.weights[0] > 0.5, "x matters most"
    assert fitted.reach_of(a_row(x=50.0)).outside[0]


def test_without_a_group_column_there_is_distance_alone(model: TableModel) -> None:
    table = {name: values for name, values in a_row().items() if name != "station"}
    rows = model.reach_of(table)
    assert rows.by_group == {}
    assert rows.groups is None
    assert rows.distance == pytest.approx(model.reach_of(a_row()).distance)


def test_a_row_without_a_group_has_distance_alone(model: TableModel) -> None:
    rows = model.reach_of({name: a_row()[name] * 2 for name in a_row()} | {"station": ["mouth", None]})
    assert list(rows.by_group) == ["mouth"]
    assert rows.distance[0] == rows.distance[1]


def test_portions_make_no_difference(model: TableModel) -> None:
    table = as_csv(river(seed=3, groups=STATIONS)).encode()
    at_once = model.reach_of(io.BytesIO(table))
    in_parts = model.reach_of(io.BytesIO(table), rows=7)
    assert in_parts.values == pytest.approx(at_once.values)
    assert in_parts.reasons.tolist() == at_once.reasons.tolist()
    assert in_parts.by_group.keys() == at_once.by_group.keys()


def test_the_same_rows_give_the_same_bytes(tmp_path: Path, model: TableModel) -> None:
    other = fit_table(river(groups=STATIONS), target="y", group="station", graph=STREAM, test_groups=NEW, penalty=1.0)
    for place, each in enumerate((model, other)):
        each.save(tmp_path / str(place))
    load_model(tmp_path / "0").save(tmp_path / "2")
    for file in ("model.json", "weights.safetensors"):
        assert len({(tmp_path / str(place) / file).read_bytes() for place in range(3)}) == 1, file


def test_a_loaded_model_reaches_as_far(tmp_path: Path, model: TableModel) -> None:
    model.save(tmp_path / "model")
    table = river(seed=5, groups=STATIONS)
    one, other = model.reach_of(table), load_model(tmp_path / "model").reach_of(table)
    assert np.array_equal(one.values, other.values)
    assert one.reasons.tolist() == other.reasons.tolist()


def test_a_folder_without_reach_says_so(tmp_path: Path, model: TableModel) -> None:
    replace(model, reach=None).save(tmp_path / "none")
    bare = load_model(tmp_path / "none")
    assert bare.predict(a_row()) == model.predict(a_row())
    assert "reach.rows" not in load((tmp_path / "none" / "weights.safetensors").read_bytes())
    assert bare.reach is None
    with pytest.raises(SettingError, match=r"does not know how far its training rows reach.*Fit it again"):
        bare.reach_of(a_row())
    assert bare.evaluate(river()).by_reach == {}


@pytest.mark.parametrize(
    ("values", "arrays", "told"),
    [
        ({"limit": 0.0}, {}, "its reach is wrong"),
        ({"most_hops": "many"}, {}, "its reach is wrong"),
        ({}, {"scale": np.zeros(6)}, "not positive"),
        ({}, {"scale": np.ones(5)}, "'scale'"),
        ({}, {"weights": np.full(6, 2.0)}, "not from 0 to 1"),
        ({}, {"weights": np.zeros(6)}, "'rows'"),
        ({}, {"rows": np.zeros((0, 6))}, "no rows"),
        ({}, {"rows": np.zeros(5)}, "'rows'"),
        ({}, {"rows": None}, "its arrays are"),
        ({}, {"low": np.full(6, np.nan)}, "'low'"),
    ],
)
def test_a_reach_that_nobody_wrote_is_refused(
    values: dict[str, Any], arrays: dict[str, Any], told: str, tmp_path: Path, model: TableModel
) -> None:
    model.save(tmp_path / "model")
    content = json.loads((tmp_path / "model" / "model.json").read_text(encoding="utf-8"))
    file = tmp_path / "model" / "weights.safetensors"
    kept = load(file.read_bytes()) | {f"reach.{name}": array for name, array in arrays.items()}
    file.write_bytes(save({name: array for name, array in kept.items() if array is not None}))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    rewrite(tmp_path / "model", reach=content["reach"] | values, files={file.name: digest})
    with pytest.raises(DataError, match=told):
        load_model(tmp_path / "model")


# ---------------------------------------------------------------- evaluation


def test_errors_inside_and_outside_are_compared(model: TableModel) -> None:
    table = only(river(seed=9, groups=STATIONS), station=NEW)
    table["x"] = [20.0 if row % 4 == 0 else x / 2 for row, x in enumerate(table["x"])]
    table["depth"] = [0.1] * len(table["x"])
    result = model.evaluate(table, resamples=50)
    assert {where: (score.rows, score.groups) for where, score in result.by_reach.items()} == {
        "inside": (60, 2),
        "outside": (20, 2),
    }
    inside, outside = (result.by_reach[where].metrics["rmse"].value for where in ("inside", "outside"))
    assert outside > 2 * inside
    rows = 80 * result.pooled["rmse"].value ** 2
    assert 60 * inside**2 + 20 * outside**2 == pytest.approx(rows)
    assert {score.outside for score in result.groups} == {0.25}
    again = type(result).from_dict(json.loads(json.dumps(result.to_dict())))
    assert again.by_reach["outside"].rows == 20
    assert [score.outside for score in again.groups] == [0.25, 0.25]
    assert result.to_csv().splitlines()[0].startswith("group,rows,hops,trained,outside,rmse")
    assert "rows outside" in str(result)


def test_an_evaluation_needs_the_group_column(model: TableModel) -> None:
    table = {name: values for name, values in river().items() if name != "station"}
    with pytest.raises(DataError, match=r"lacks the column.* 'station'"):
        model.evaluate(table)


def test_evaluations_of_before_are_read(model: TableModel) -> None:
    content = model.evaluate(river(groups=STATIONS), resamples=20).to_dict()
    del content["by_reach"]
    for entry in content["groups"]:
        del entry["outside"]
    old = type(model.evaluate(river(groups=STATIONS), resamples=20)).from_dict(content)
    assert old.by_reach == {}
    assert old.groups[0].outside is None
    assert old.to_csv().splitlines()[0].startswith("group,rows,hops,trained,rmse")


def test_all_rows_may_be_outside() -> None:
    result = evaluate("regression", [1.0, 2.0], [1.0, 3.0], ["a", "b"], outside=[True, True], resamples=0)
    assert list(result.by_reach) == ["outside"]
    assert result.by_reach["outside"].groups == 2
