"""Kriged classification: what the graph is worth, probabilities that hold in held-out regions, and bad input."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import toporo as tr
from toporo.choice.splits import GraphHopSplit
from toporo.errors import DataError, GroupMismatchError, TopoRoWarning, UnknownNameError
from toporo.estimators.kriged_classes import KrigedClassifier

CHAIN = [(place, place + 1) for place in range(15)]
TEST = (4, 5, 12)
NAMES = np.array(["maybe", "no", "yes"])


def rows(seed: int = 0, classes: int = 3, *, follow: float = 3.0, per_group: int = 30) -> tuple[Any, ...]:
    """Sixteen groups in a row; what inputs say of the classes follows their place."""
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(16), per_group)
    x = rng.normal(size=(len(g), 2))
    turn = follow * np.cos(g / 3.5)
    scores = np.column_stack([turn * x[:, 0] + x[:, 1], -turn * x[:, 0], 2 * np.sin(g / 4) - x[:, 1]])[:, :classes]
    codes = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return x, NAMES[codes], g, ~np.isin(g, TEST)


def fitted(seed: int = 0, classes: int = 3, **settings: Any) -> tuple[KrigedClassifier, tuple[Any, ...]]:
    x, y, g, known = rows(seed, classes)
    model = KrigedClassifier(**{"graph": CHAIN, **settings}).fit(x[known], y[known], groups=g[known])
    return model, (x, y, g, known)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_graph_that_classes_follow_is_worth_its_while(classes: int) -> None:
    ours, theirs = [], []
    for seed in range(2):
        model, (x, y, g, known) = fitted(seed, classes)
        chances = model.predict_proba(x[~known], groups=g[~known])
        np.testing.assert_allclose(chances.sum(axis=1), 1.0)
        plain = LogisticRegression().fit(x[known], y[known])
        ours.append(log_loss(y[~known], chances, labels=model.classes_))
        theirs.append(log_loss(y[~known], plain.predict_proba(x[~known]), labels=plain.classes_))
        said = model.predict(x[~known], groups=g[~known])
        assert np.mean(said == y[~known]) > np.mean(plain.predict(x[~known]) == y[~known])
        np.testing.assert_array_equal(said, model.classes_[chances.argmax(axis=1)])
    assert np.mean(ours) < 0.8 * np.mean(theirs)
    assert model.gate_ > 0.9
    assert sum(model.evidence_.values()) == pytest.approx(1.0)
    assert model.saw_ == ("test adjacency", "test inputs")
    assert set(model.groups_.names) == set(range(16)) - set(TEST)
    assert model.classes_.tolist() == NAMES[:classes].tolist()


def test_probabilities_are_those_of_what_happens() -> None:
    """In groups never trained on: of rows with a chance near p, about a share p is of the class."""
    chances, right = [], []
    for seed in range(3):
        model, (x, y, g, known) = fitted(seed)
        chances.append(model.predict_proba(x[~known], groups=g[~known]).ravel())
        right.append((y[~known][:, None] == model.classes_).ravel())
    p, hit = np.concatenate(chances), np.concatenate(right)
    part = np.minimum((p * 5).astype(int), 4)
    gap = sum(abs(p[part == i].mean() - hit[part == i].mean()) * np.mean(part == i) for i in range(5))
    assert gap < 0.06


def test_new_spirals_are_told_apart() -> None:
    """DG-15 anew; a linear model without groups is right on half of the rows."""
    data = tr.load_dataset("dg15", source="generated", seed=101)
    g = np.array(data.data.ids.names)
    new = np.isin(g, list(data.test))
    x, y = np.asarray(data.data.x, float), np.asarray(data.data.y)
    x[new] = np.clip(x[new], x[~new].min(axis=0), x[~new].max(axis=0))
    model = KrigedClassifier(graph=data.graph).fit(x[~new], y[~new], groups=g[~new])
    assert np.mean(model.predict(x[new], groups=g[new]) == y[new]) > 0.95


def test_where_groups_do_not_differ_it_is_a_linear_classifier() -> None:
    x, y, g, known = rows(follow=0.0)
    y = np.where(x[:, 0] + 0.5 * np.random.default_rng(1).normal(size=len(x)) > 0.8, "rare", "usual")
    model = KrigedClassifier(graph=CHAIN).fit(x[known], y[known], groups=g[known])
    plain = LogisticRegression().fit(x[known], y[known])
    ours, theirs = model.predict_proba(x[~known], groups=g[~known]), plain.predict_proba(x[~known])
    assert log_loss(y[~known], ours) < 1.25 * log_loss(y[~known], theirs)


def test_it_is_calibrated_on_regions_as_far_away_as_the_test() -> None:
    model, _ = fitted()
    assert len(model.held_out_) == 5
    assert all(len(region) < 13 for region in model.held_out_)
    by_hops = GraphHopSplit(CHAIN, test_groups=TEST).regions(model.groups_)
    assert model.held_out_ == by_hops
    alone, _ = fitted(graph=None)
    assert sorted(name for region in alone.held_out_ for name in region) == sorted(alone.groups_.names)


def test_calibration_mends_what_a_normal_model_gets_wrong() -> None:
    """Many groups that do not differ, classes that inputs tell apart wholly: surer than targets of 0 and 1 suggest."""
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(1200, 1)), np.arange(1200) % 40
    y = x[:, 0] > 0
    model = KrigedClassifier().fit(x, y, groups=g)
    assert model.scale_.mean() > 1.3
    plain = KrigedClassifier.from_model(replace(model.model_, scale=np.ones(2)))
    assert log_loss(y, model.predict_proba(x, groups=g)) < 0.9 * log_loss(y, plain.predict_proba(x, groups=g))


@pytest.mark.parametrize("graph", [CHAIN, None])
def test_a_row_of_weight_two_is_a_row_twice(graph: Any) -> None:
    x, y, g, known = rows(per_group=12)
    x, y, g = x[known], y[known], g[known]
    weights = np.random.default_rng(0).integers(1, 4, len(x))
    one = KrigedClassifier(graph=graph).fit(x, y, groups=g, sample_weight=weights)
    twice = [np.repeat(each, weights, axis=0) for each in (x, y, g)]
    other = KrigedClassifier(graph=graph).fit(twice[0], twice[1], groups=twice[2])
    new = x[:20], np.full(20, 5)
    with pytest.warns(TopoRoWarning, match="there is no graph") if graph is None else nullcontext():
        np.testing.assert_allclose(one.predict_proba(*new), other.predict_proba(*new), rtol=1e-3)


def test_a_class_of_one_region_and_too_few_groups() -> None:
    x, y, g, known = rows()
    y = y.copy()
    y[g == 0] = "rare"
    model = KrigedClassifier(graph=CHAIN).fit(x[known], y[known], groups=g[known])
    assert np.isfinite(model.predict_proba(x[known], groups=g[known])).all()
    assert all(0 not in region for region in model.held_out_)
    with pytest.warns(TopoRoWarning, match="not calibrated"):
        two = KrigedClassifier().fit(x[:60], np.repeat(["a", "b"], 30), groups=np.repeat([0, 1], 30))
    assert two.held_out_ == []
    assert np.isfinite(two.predict_proba(x[:60], groups=g[:60])).all()


def test_a_group_outside_the_graph_needs_neighbours() -> None:
    model, (x, _, _, _) = fitted()
    with pytest.raises(GroupMismatchError, match="neighbors="):
        model.predict(x[:2], groups=["new", 5])
    near = model.predict_proba(x[:2], groups=["new", "new"], neighbors={"new": [5]})
    np.testing.assert_allclose(near, model.predict_proba(x[:2], groups=[5, 5]), atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "fitting", "error", "message"),
    [
        ({"context": "column"}, {}, UnknownNameError, "unknown context"),
        ({"graph": CHAIN[:3]}, {}, GroupMismatchError, "group"),
        ({}, {"y": ["same"] * 480}, DataError, "one class only, 'same'"),
        ({}, {"y": np.linspace(0, 1, 480)}, DataError, "For numbers use KrigedRegressor"),
        ({}, {"sample_weight": np.r_[1.0, np.zeros(479)]}, DataError, "without a row that counts"),
    ],
)
def test_bad_input_is_an_error(settings: dict[str, Any], fitting: dict[str, Any], error: Any, message: str) -> None:
    x, y, g, _ = rows()
    with pytest.raises(error, match=message):
        KrigedClassifier(**{"graph": CHAIN, **settings}).fit(**{"X": x, "y": y, "groups": g, **fitting})


def test_equal_rows_of_one_group_are_not_divided_to_calibrate() -> None:
    with pytest.warns(TopoRoWarning, match="probabilities are not calibrated"):
        KrigedClassifier().fit(np.ones((8, 1)), [0, 1] * 4, groups=["a"] * 8)
