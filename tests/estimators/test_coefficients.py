"""Kriged models as plain values and back, and their coefficients by group."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from toporo.estimators import KrigedRegressor
from toporo.estimators.state import dump_state, load_state


def test_several_targets_and_odd_names_are_stored_and_explained() -> None:
    rng = np.random.default_rng(3)
    names = [("site", place) for place in range(6)]
    groups = [name for name in names for _ in range(15)]
    x = rng.normal(size=(90, 2))
    y = np.column_stack([x[:, 0] * np.repeat(np.arange(6.0), 15), x[:, 1]]) + rng.normal(size=(90, 2))
    model = KrigedRegressor(graph=list(pairwise(names)), context="row").fit(x, y, groups=groups)
    content, arrays = dump_state(model)
    again = load_state(json.loads(json.dumps(content, allow_nan=False)), arrays)
    assert np.array_equal(again.predict(x, groups=groups), model.predict(x, groups=groups))
    assert again.explain() == model.explain()
    assert again.get_params()["context"] == "row"
    assert model.explain().inputs[:2] == ("x0 (0)", "x0 (1)")
    assert len(model.explain()) == 6
    assert model.explain().columns[5:7] == ["level (0)", "level (1)"]


def test_levels_are_compared_in_the_same_context() -> None:
    """Groups whose inputs lie elsewhere, and that differ in nothing else, have one level."""
    rng = np.random.default_rng(4)
    groups = np.repeat(range(10), 30)
    x = rng.normal(size=(300, 1)) + groups[:, None]
    model = KrigedRegressor().fit(x, 2 * x[:, 0] + 0.1 * rng.normal(size=300), groups=groups)
    levels = [row.levels["level"] for row in model.explain()]
    assert np.ptp(levels) < 0.1
    assert levels[0] == pytest.approx(2 * x.mean(), abs=0.1)


def test_panels_are_stored() -> None:
    rng = np.random.default_rng(6)
    groups, times = np.repeat(range(6), 15), np.tile(range(15), 6)
    x, y = rng.normal(size=(90, 1)), rng.normal(size=90) + np.sin(times)
    model = KrigedRegressor(graph=list(pairwise(range(7)))).fit(x, y, groups=groups, time=times)
    assert "targets of training groups at the same time" in " ".join(model.explain().notes)
    content, arrays = dump_state(model)
    again = load_state(json.loads(json.dumps(content, allow_nan=False)), arrays)
    for asked in ({}, {"interval": 0.9}):
        np.testing.assert_array_equal(
            again.predict(x, np.full(90, 6), time=times, **asked), model.predict(x, np.full(90, 6), time=times, **asked)
        )


def test_coefficients_are_those_that_predict() -> None:
    """Also in a group never trained on, where the local regression has a share."""
    rng = np.random.default_rng(7)
    groups = np.repeat(range(10), 30)
    x = rng.normal(size=(300, 2)) * [1.0, 5.0] + 3.0
    y = groups * x[:, 0] + x[:, 1] + rng.normal(size=300)
    model = KrigedRegressor(graph=list(pairwise(range(10))), context="none").fit(
        x[groups != 9], y[groups != 9], groups=groups[groups != 9]
    )
    assert model.model_.local_coefficients is not None
    for row in model.explain():
        middle = x[groups != 9].mean(axis=0)
        level, one, other = model.predict(middle + np.array([[0, 0], [1, 0], [0, 1]]), groups=[row.group] * 3)
        slopes = [row.slopes["x0"], row.slopes["x1"]]
        assert slopes == pytest.approx([one - level, other - level], abs=1e-6)
        if row.group == 9:  # the others are at their own mean inputs
            assert row.levels["level"] == pytest.approx(level, abs=1e-6)
