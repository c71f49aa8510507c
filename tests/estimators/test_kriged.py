"""Kriged regression as scikit-learn has it: rows, groups, intervals, what it saw, and bad input."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning, UnknownNameError
from toporo.estimators.kriged import KrigedRegressor
from toporo.estimators.places import Places
from toporo.groups import Groups

CHAIN = [(place, place + 1) for place in range(11)]
TEST = (2, 5, 8)


def rows(seed: int = 0, per_group: int = 25, *, follow: float = 1.0, noise: float = 0.5) -> tuple[Any, ...]:
    """Twelve groups in a row; slope and level follow their place."""
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(12), per_group)
    x = rng.normal(size=(len(g), 2))
    y = (1 + follow * np.sin(g / 3)) * x[:, 0] - x[:, 1] + follow * np.cos(g / 4) + noise * rng.normal(size=len(g))
    return x, y, g, ~np.isin(g, TEST)


def fitted(seed: int = 0, **settings: Any) -> tuple[KrigedRegressor, tuple[Any, ...]]:
    x, y, g, known = rows(seed)
    model = KrigedRegressor(**{"graph": CHAIN, **settings}).fit(x[known], y[known], groups=g[known])
    return model, (x, y, g, known)


def test_a_graph_that_coefficients_follow_is_worth_its_while() -> None:
    errors = {}
    for name, graph in (("graph", CHAIN), ("none", None)):
        found = []
        for seed in range(3):
            model, (x, y, g, known) = fitted(seed, graph=graph)
            with pytest.warns(TopoRoWarning, match="there is no graph") if graph is None else nullcontext():
                found.append(np.mean((model.predict(x[~known], groups=g[~known]) - y[~known]) ** 2))
        errors[name] = np.mean(found)
    assert errors["graph"] < 0.6 * errors["none"]
    model, _ = fitted()
    assert model.gate_ > 0.9
    assert sum(model.evidence_.values()) == pytest.approx(1.0)
    assert model.saw_ == ("test adjacency", "test inputs")
    assert fitted(graph=None, context="row")[0].saw_ == ()


def test_intervals_hold_what_they_say() -> None:
    inside = []
    for seed in range(6):
        model, (x, y, g, known) = fitted(seed)
        values, low, high = model.predict(x[~known], groups=g[~known], interval=0.9)
        np.testing.assert_array_equal(values, model.predict(x[~known], groups=g[~known]))
        inside.append(np.mean((low <= y[~known]) & (y[~known] <= high)))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.06)


def test_an_interval_is_wider_for_a_group_never_trained_on() -> None:
    model, _ = fitted()
    x = np.zeros((2, 2))
    _, low, high = model.predict(x, groups=[1, 5], interval=0.9)
    assert (high - low)[1] > (high - low)[0]


def test_units_make_no_difference() -> None:
    x, y, g, known = rows()
    model, _ = fitted()
    other = KrigedRegressor(graph=CHAIN).fit(x[known] * [1000, 0.01] + 5, 7 * y[known] - 3, groups=g[known])
    ours, theirs = model.predict(x[~known], groups=g[~known]), other.predict(x[~known] * [1000, 0.01] + 5, g[~known])
    np.testing.assert_allclose(theirs, 7 * ours - 3, rtol=1e-4)


def test_rows_one_at_a_time_lean_on_what_is_known() -> None:
    """A single row says little of its group's mean: trusted less, the fewer there are and the less groups differ."""
    model, (x, _, g, known) = fitted()
    alone = [float(model.predict(x[[i]], groups=g[[i]])[0]) for i in np.flatnonzero(~known)[:5]]
    assert np.isfinite(alone).all()
    plain, _ = fitted(context="row")
    single = plain.predict(x[~known][:1], groups=g[~known][:1])
    np.testing.assert_allclose(plain.predict(x[~known], groups=g[~known])[:1], single)


def test_a_group_outside_the_graph_needs_neighbours() -> None:
    model, (x, _, _, _) = fitted()
    with pytest.raises(GroupMismatchError, match=r"not in the graph: 'new'.*neighbors="):
        model.predict(x[:2], groups=["new", 5])
    placed = model.predict(x[:2], groups=["new", "new"], neighbors={"new": [5]})
    np.testing.assert_allclose(placed, model.predict(x[:2], groups=[5, 5]), atol=1e-9)
    with pytest.raises(GroupMismatchError):
        model.predict(x[:1], groups=["new"], neighbors={"new": ["nobody"]})


def test_inputs_far_beyond_what_was_seen_count_as_if_they_were_a_little_beyond() -> None:
    model, (x, _, _, known) = fitted()
    with pytest.warns(TopoRoWarning, match="1 of 2 rows have inputs far beyond what was seen"):
        far = model.predict([[1e6, 0.0], [0.0, 0.0]], groups=[1, 1])
    beyond = x[known][:, 0].max() + 0.999999 * x[known][:, 0].std()
    edge = model.predict([[beyond, 0.0], [0.0, 0.0]], groups=[1, 1])
    np.testing.assert_allclose(far, edge, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"groups": None, "interval": 0.9}, DataError, "no groups were given"),
        ({"groups": [1]}, DataError, "must agree"),
        ({"interval": 1.5}, SettingError, "interval"),
        ({"interval": math.nan}, SettingError, "interval"),
    ],
)
def test_bad_input_to_predict_is_an_error(change: dict[str, Any], error: Any, message: str) -> None:
    model, (x, _, g, _) = fitted()
    with pytest.raises(error, match=message):
        model.predict(**{"X": x[:3], "groups": g[:3], **change})


def test_rows_to_predict_without_groups_are_of_an_unknown_group() -> None:
    """Each gets what all groups have in common, whatever else is predicted."""
    model, (x, y, g, _) = fitted()
    with pytest.warns(TopoRoWarning, match="no groups were given for the rows to predict"):
        values = model.predict(x)
    with pytest.warns(TopoRoWarning, match="no groups were given"):
        np.testing.assert_allclose(model.predict(x[:3]), values[:3], rtol=1e-12)
    with pytest.warns(TopoRoWarning, match="no groups were given"):
        assert model.score(x, y) < model.score(x, y, groups=g)


def test_bad_input_to_fit_is_an_error() -> None:
    x, y, g, _ = rows()
    with pytest.raises(UnknownNameError, match="unknown context 'column'"):
        KrigedRegressor(context="column").fit(x, y, groups=g)
    with pytest.raises(GroupMismatchError):
        KrigedRegressor(graph=CHAIN[:3]).fit(x, y, groups=g)


def test_odd_tables_can_be_fitted() -> None:
    """One row a group, more columns than rows, a column that never varies, a graph in pieces, two groups."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 20))
    x[:, 3] = 1.0
    pieces = [edge for edge in CHAIN if edge != (5, 6)]
    model = KrigedRegressor(graph=pieces).fit(x, x[:, 0], groups=list(range(12)))
    assert np.isfinite(model.predict(x, groups=list(range(12)))).all()
    two = KrigedRegressor(graph=[(0, 1), (1, 2)]).fit(x, x[:, 0], groups=[0, 1] * 6)
    assert np.isfinite(two.predict(x, groups=[2] * 12)).all()


# ---------------------------------------------------------------- panels


def panel_rows(seed=0):
    """Twelve groups in a row, ten steps; neighbours have a shock in common at every step."""
    rng = np.random.default_rng(seed)
    g, t = np.repeat(np.arange(12), 10), np.tile(np.arange(10), 12)
    x = rng.normal(size=(120, 2))
    shocks = np.cumsum(rng.normal(size=(12, 10)), axis=0)
    return x, x @ [1.0, -1.0] + shocks[g, t] + 0.3 * rng.normal(size=120), g, t


def test_what_neighbours_have_at_the_same_time_helps_groups_never_trained_on():
    x, y, g, t = panel_rows()
    known = g != 6
    chain = [(i, i + 1) for i in range(11)]
    plain = KrigedRegressor(graph=chain).fit(x[known], y[known], groups=g[known])
    model = KrigedRegressor(graph=chain).fit(x[known], y[known], groups=g[known], time=t[known])
    errors = [
        np.mean((one.predict(x[~known], groups=g[~known], **more) - y[~known]) ** 2)
        for one, more in ((plain, {}), (model, {"time": t[~known]}))
    ]
    assert errors[1] < 0.6 * errors[0]
    assert model.saw_[-1] == "targets of training groups at the same time"
    values, low, high = model.predict(x[~known], groups=g[~known], time=t[~known], interval=0.9)
    assert np.mean((low <= y[~known]) & (y[~known] <= high)) >= 0.7
    assert np.mean(high - low) < np.mean(np.subtract(*plain.predict(x[~known], groups=g[~known], interval=0.9)[:0:-1]))
    days = np.datetime64("2020-01-01") + t.astype("timedelta64[D]")
    dated = KrigedRegressor(graph=chain).fit(x[known], y[known], groups=g[known], time=days[known])
    np.testing.assert_allclose(dated.predict(x[~known], groups=g[~known], time=days[~known]), values)


def test_bad_times_are_named():
    x, y, g, t = panel_rows()
    chain = [(i, i + 1) for i in range(11)]
    model = KrigedRegressor(graph=chain).fit(x, y, groups=g, time=t)
    with pytest.raises(DataError, match="got no time, but the model was fitted with one"):
        model.predict(x, groups=g)
    with pytest.raises(DataError, match="fitted without"):
        KrigedRegressor(graph=chain).fit(x, y, groups=g).predict(x, groups=g, time=t)
    with pytest.raises(DataError, match=r"time holds .* such as 'May': expected numbers, or dates"):
        model.predict(x, groups=g, time=["May"] * len(x))
    with pytest.raises(DataError, match=r"time has shape \(120,\) and 1 missing value"):
        KrigedRegressor(graph=chain).fit(x, y, groups=g, time=np.where(np.arange(120) == 3, np.nan, t))


# ---------------------------------------------------------------- the local regression, context


def test_the_local_regression_is_a_ridge_weighted_by_random_walks():
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(9), 15)
    x = rng.normal(size=(135, 2)) + rng.normal(size=(9, 2))[g]
    y = np.einsum("nj,nj->n", x, np.column_stack([g, -g])[..., :]) + rng.normal(size=135)
    known = ~np.isin(g, [4, 5])
    model = KrigedRegressor(graph=[(i, i + 1) for i in range(8)]).fit(x[known], y[known], groups=g[known])
    value = replace(model.model_, local=1.0 / model.gate_)
    scaled = value.inputs.apply(x)
    weights = np.where(g == 3, 2 / 3, 0.0) + np.where(g == 6, 1 / 3, 0.0)  # from 4 a walk ends in 3 twice as often
    design = np.column_stack([np.ones(135), scaled])
    squares = (design * weights[:, None]).T @ design / 15 + np.diag([0.0, 0.01, 0.01])
    target = value.targets.apply(y[:, None])
    theta = np.linalg.solve(squares, (design * weights[:, None]).T @ target / 15)
    expected = (design[g == 4] @ theta * value.targets.scale + value.targets.center)[:, 0]
    predicted = value(x[g == 4], Places(Groups.of(g[g == 4].tolist())))
    np.testing.assert_allclose(predicted[:, 0], expected)


def test_a_piece_of_the_graph_without_training_groups_gets_what_all_have_in_common():
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(8), 15)
    x = rng.normal(size=(120, 2))
    y = x @ [1.0, 2.0] + g + rng.normal(size=120)
    edges = [(i, i + 1) for i in range(7)] + [(20, 21)]
    model = KrigedRegressor(graph=edges).fit(x, y, groups=g)
    with pytest.warns(TopoRoWarning, match="not connected"):
        far = model.predict(np.zeros((1, 2)), groups=[20])
    assert abs(far[0] - y.mean()) < 2.5


def test_without_context_no_other_row_is_looked_at():
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(10), 15)
    x = rng.normal(size=(150, 2)) + 0.3 * rng.normal(size=(10, 2))[g]
    y = x @ [1.0, 2.0] + rng.normal(size=150)
    model = KrigedRegressor(graph=[(i, i + 1) for i in range(9)], context="none").fit(
        x[g > 1], y[g > 1], groups=g[g > 1]
    )
    assert not any("context" in name for name in model.evidence_)
    assert model.saw_ == ("test adjacency",)
    together = model.predict(x[g < 2], groups=g[g < 2])
    alone = np.concatenate(
        [model.predict(row[None], groups=[name]) for row, name in zip(x[g < 2], g[g < 2], strict=True)]
    )
    np.testing.assert_allclose(together, alone)


def test_what_cannot_be_known_without_a_graph_or_without_groups_is_said():
    rng = np.random.default_rng(0)
    x, y, g = rng.normal(size=(60, 2)), rng.normal(size=60), np.repeat(np.arange(6), 10)
    model = KrigedRegressor().fit(x, y, groups=g)
    model.predict(x, groups=g)
    with pytest.warns(TopoRoWarning, match=r"1 of 2 group\(s\) were not trained on \(9\), and there is no graph"):
        model.predict(x[:2], groups=[5, 9])
    with pytest.raises(SettingError, match="graph is over groups, but fit\\(\\) got none"):
        KrigedRegressor(graph=CHAIN).fit(x, y)


def test_groups_far_from_any_training_group_are_warned_of():
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(12), 20)
    x = rng.normal(size=(240, 1))
    y = g * x[:, 0] + rng.normal(size=240)
    edges = [(i, i + 1) for i in range(14)] + [(30, 31)]
    model = KrigedRegressor(graph=edges).fit(x, y, groups=g)
    model.predict(x[:2], groups=[12, 13])
    with pytest.warns(TopoRoWarning, match=r"1 of 2 group\(s\) are three hops or more .*14.*3.7 times"):
        model.predict(x[:2], groups=[13, 14])
    with pytest.warns(TopoRoWarning, match=r"not connected to any training group \(30\)"):
        model.predict(x[:2], groups=[13, 30])
