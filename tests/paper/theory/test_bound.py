"""Theorem 3, term by term: each is what its formula says, and together they do bound the risk."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tests.paper.theory.cases import blobs
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, GroupMismatchError, SettingError, UnknownNameError
from toporo.paper.theory import (
    BallProblem,
    bound_breakdown,
    classifier_distance,
    minimum_on_ball,
    mixture_emd,
    rademacher,
)
from toporo.paper.theory.bound import BOUNDED_LOSSES, confidence_term
from toporo.topology import diffusion_emd

EVEN = {"g0": 0.5, "g1": 0.25, "g2": 0.25}
Q = np.array([0.5, 0.25, 0.25])
THETA = np.array([0.6, -0.3, 0.1])


def small(**changes):
    data = blobs(rows=10)
    given = {"ball_radius": 1.0, "signs": 200, "classifier": "logistic", "emd": {"scales": 3, "neighbors": 5}} | changes
    test = given.pop("test", data.x[:12] + 0.1)
    return bound_breakdown(given.pop("theta", THETA), data, given.pop("weights", EVEN), test, **given)


# ---------------------------------------------------------------- complexity


def test_the_complexity_is_the_mean_over_all_signs() -> None:
    """Six rows have 64 sign vectors, which can be listed."""
    data = blobs(rows=2)
    points = (Q / 2)[data.codes][:, None] * np.column_stack([data.x, np.ones(6)])
    exact = 3.0 * np.mean([np.linalg.norm(np.array(s) @ points) for s in itertools.product([-1, 1], repeat=6)])
    found = rademacher(data, Q, ball_radius=3.0, signs=4000)
    assert abs(found.value - exact) <= 5 * found.error
    assert found.error < 0.02 * exact


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 12))
def test_the_complexity_lies_between_its_two_inequalities(seed: int, rows: int) -> None:
    """Jensen above, Khintchine–Kahane (with the best constant, √2) below."""
    data = blobs(rows=rows, seed=seed)
    q = np.random.default_rng(seed).dirichlet(np.ones(3))
    points = (q / rows)[data.codes][:, None] * np.column_stack([data.x, np.ones(len(data))])
    ceiling = float(np.sqrt((points**2).sum()))
    found = rademacher(data, q, ball_radius=1.0, signs=500, seed=seed)
    assert ceiling / math.sqrt(2.0) - 5 * found.error <= found.value <= ceiling + 5 * found.error


def test_the_complexity_scales_with_the_radius_and_falls_with_the_rows() -> None:
    few, many = blobs(rows=10), blobs(rows=1000)
    one = rademacher(few, Q, ball_radius=1.0)
    assert rademacher(few, Q, ball_radius=2.5).value == pytest.approx(2.5 * one.value)
    assert rademacher(many, Q, ball_radius=1.0).value < 0.2 * one.value
    assert rademacher(few, Q, ball_radius=1.0) == one
    assert rademacher(few, Q, ball_radius=1.0, seed=1) != one


def test_memory_does_not_change_the_complexity(monkeypatch: pytest.MonkeyPatch) -> None:
    from toporo.paper.theory import bound

    whole = rademacher(blobs(), Q, ball_radius=1.0)
    monkeypatch.setattr(bound, "BLOCK_NUMBERS", 50)
    assert rademacher(blobs(), Q, ball_radius=1.0).value == pytest.approx(whole.value, rel=1e-12)


# ---------------------------------------------------------------- confidence


def test_the_confidence_term() -> None:
    counts = np.array([100.0, 300.0])
    pooled = confidence_term(np.array([0.25, 0.75]), counts, 1.0, 0.05)
    assert pooled == pytest.approx(3 * math.sqrt(math.log(40) / (2 * 400)))  # weights by size: one sample of 400
    alone = confidence_term(np.array([1.0, 0.0]), counts, 1.0, 0.05)
    assert alone == pytest.approx(3 * math.sqrt(math.log(40) / (2 * 100)))  # all weight on one group: a sample of 100
    assert confidence_term(np.array([0.25, 0.75]), counts, 2.0, 0.05) == pytest.approx(2 * pooled)
    assert confidence_term(np.array([0.25, 0.75]), counts, 1.0, 0.01) > pooled


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_delta_is_a_probability(delta: float) -> None:
    with pytest.raises(SettingError, match="delta is"):
        confidence_term(Q, np.full(3, 10.0), 1.0, delta)
    with pytest.raises(SettingError, match="delta is"):
        small(delta=delta)


@pytest.mark.parametrize("loss", BOUNDED_LOSSES)
def test_without_a_shift_the_bound_holds_for_a_model_fitted_to_noise(loss: str) -> None:
    """Labels that have nothing to do with the inputs: all that training gains is overfitting; the terms cover it."""
    ball_radius, features, chosen = 4.0, 12, BOUNDED_LOSSES[loss]
    gains, room = [], []
    for draw in range(25):
        rng = np.random.default_rng([7, draw])
        x = rng.normal(size=(60, features))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        data = GroupedData.from_arrays(x, rng.integers(0, 2, 60), ["a"] * 20 + ["b"] * 40)
        q = np.array([0.5, 0.5])
        task = BallProblem.from_data(data, loss="logistic", ball_radius=ball_radius, intercept=False)
        theta = minimum_on_ball(task, q).theta
        signs = 2.0 * data.y - 1.0
        rows = (q / [20, 40])[data.codes]
        empirical = float(rows @ chosen.value(data.x @ theta * signs))
        fresh = rng.normal(size=(4000, features))
        fresh /= np.linalg.norm(fresh, axis=1, keepdims=True)
        true = float(chosen.value(fresh @ theta * rng.choice([-1.0, 1.0], 4000)).mean())
        complexity = (
            2 * chosen.lipschitz * rademacher(data, q, ball_radius=ball_radius, intercept=False, signs=300).value
        )
        gains.append(true - empirical)
        room.append(complexity + confidence_term(q, np.array([20.0, 40.0]), chosen.largest(ball_radius), 0.05))
    assert min(gains) > 0  # the empirical risk alone is no bound
    assert (np.array(gains) <= room).all()


# ---------------------------------------------------------------- distances


def shifted(by: float, rows: int = 250, seed: int = 0) -> tuple[GroupedData, np.ndarray]:
    rng = np.random.default_rng(seed)
    data = GroupedData.from_arrays(rng.normal(size=(2 * rows, 1)), np.arange(2 * rows) % 2, ["a"] * rows + ["b"] * rows)
    return data, rng.normal(loc=by, size=(rows, 1))


@pytest.mark.parametrize("classifier", ["logistic", "boosting"])
@pytest.mark.parametrize("by", [0.0, 1.0, 3.0])
def test_the_classifier_sees_at_most_the_total_variation(by: float, classifier: str) -> None:
    """Between two unit Gaussians it is 2Φ(d/2) − 1, and one threshold sees all of it."""
    data, test = shifted(by)
    true = 2 * norm.cdf(by / 2) - 1
    found = classifier_distance(data, {"a": 0.5, "b": 0.5}, test, classifier=classifier)
    assert found.value <= true + 3 * max(found.error, 0.02)
    if classifier == "logistic":
        assert found.value >= true - 4 * max(found.error, 0.02)
    assert 0.0 <= found.value <= 1.0


def test_the_distance_follows_the_weights() -> None:
    rng = np.random.default_rng(0)
    near, far = rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 6.0
    data = GroupedData.from_arrays(np.concatenate([near, far]), np.arange(200) % 2, ["near"] * 100 + ["far"] * 100)
    test = rng.normal(size=(80, 2))
    distance = [classifier_distance(data, {"near": q, "far": 1 - q}, test).value for q in (1.0, 0.5, 0.0)]
    assert distance[0] < 0.25
    assert distance[1] == pytest.approx(0.5, abs=0.2)
    assert distance[2] > 0.95
    emd = [mixture_emd(data, {"near": q, "far": 1 - q}, test, kernel="dense", sigma=3.0) for q in (1.0, 0.5, 0.0)]
    assert emd[0] < emd[1] < emd[2]


def test_a_group_without_weight_has_no_say_in_the_distance() -> None:
    data = blobs(rows=10)
    test = data.x[:12] + 0.3
    moved = data.x.copy()
    moved[data.rows("g2")] += 100.0
    other = GroupedData.from_arrays(moved, data.y, data.ids)
    q = {"g0": 0.6, "g1": 0.4, "g2": 0.0}
    first, again = (classifier_distance(rows, q, test, classifier="logistic") for rows in (data, other))
    assert first == again


def test_the_mixtures_emd_is_the_groups_own_at_a_vertex() -> None:
    """All weight on one group: the distance is the one between that group and the test group on the same data graph."""
    data = blobs(rows=12)
    test = blobs(rows=8, seed=5).x[:14]
    names = [*data.ids.names, *["test"] * 14]
    pairs = diffusion_emd(np.concatenate([data.x, test]), names, scales=4)
    for name in data.groups:
        q = {other: float(other == name) for other in data.groups}
        assert mixture_emd(data, q, test, scales=4) == pytest.approx(pairs.between(name, "test"), rel=1e-5)


def test_the_mixtures_emd_is_convex_in_the_weights() -> None:
    """Densities are linear in the weights and a norm is convex: a mixture is never farther than its parts' mean."""
    data = blobs(rows=12)
    test = blobs(rows=8, seed=5).x
    ends = [mixture_emd(data, {n: float(n == name) for n in data.groups}, test, scales=4) for name in data.groups]
    assert mixture_emd(data, EVEN, test, scales=4) <= float(Q @ ends) * (1 + 1e-6)


# ---------------------------------------------------------------- the breakdown


def test_the_breakdown_adds_up() -> None:
    data = blobs(rows=10)
    found = small(test_group="new")
    margins = np.column_stack([data.x, np.ones(30)]) @ THETA * (2 * data.y - 1)
    ramp = np.clip(1 - margins, 0, 1)
    assert found.empirical == pytest.approx(sum(q * ramp[data.codes == e].mean() for e, q in enumerate(Q)))
    assert found.complexity == pytest.approx(2 * rademacher(data, Q, ball_radius=1.0, signs=200).value)
    assert found.confidence == pytest.approx(confidence_term(Q, np.full(3, 10.0), 1.0, 0.05))
    assert found.terms["distance"] == found.distance * found.largest_loss
    assert found.total == pytest.approx(sum(found.terms.values()))
    assert found.complexity <= found.complexity_ceiling + 5 * found.complexity_error
    assert found.test_group == "new"
    assert found.weights == EVEN


def test_weights_found_from_the_rows_cost_more() -> None:
    """A bound for every q at once is above the one for this q, term by term."""
    found = small()
    assert found.chosen_complexity >= found.complexity
    assert found.chosen_confidence == pytest.approx(3 * math.sqrt(math.log(2 * 3 / 0.05) / 20))
    assert found.total_if_chosen > found.total


def test_vacuous_and_the_rows_it_would_take() -> None:
    found = replace(small(), empirical=0.1, complexity=0.3, distance=0.2, confidence=0.5)
    assert found.total == pytest.approx(1.1)
    assert found.vacuous
    assert found.rows_factor == pytest.approx((0.8 / 0.7) ** 2)
    shrunk = math.sqrt(found.rows_factor)
    enough = replace(found, complexity=0.3 / shrunk, confidence=0.5 / shrunk)
    assert enough.total == pytest.approx(1.0)
    assert not replace(found, complexity=0.1).vacuous
    assert replace(found, distance=0.9).rows_factor is None


def test_labels_of_the_test_group_are_for_comparison_only() -> None:
    labels = np.arange(12) % 2
    blind, seeing = small(), small(test_labels=labels)
    assert blind.test_risk is None
    assert replace(seeing, test_risk=None) == blind
    test = np.column_stack([blobs(rows=10).x[:12] + 0.1, np.ones(12)])
    assert seeing.test_risk == pytest.approx(np.clip(1 - test @ THETA * (2 * labels - 1), 0, 1).mean())


def test_the_logistic_loss_is_bounded_by_the_largest_input() -> None:
    found = small(loss="logistic")
    longest = max(
        np.linalg.norm(np.column_stack([x, np.ones(len(x))]), axis=1).max()
        for x in (blobs(rows=10).x, blobs(rows=10).x[:12] + 0.1)
    )
    assert found.largest_loss == pytest.approx(math.log1p(math.exp(longest)))
    assert found.terms["distance"] == pytest.approx(found.largest_loss * found.distance)


def test_the_assumptions_say_what_is_estimated_and_what_is_not() -> None:
    text = " ".join(small().assumptions)
    for words in ("lower bound", "no certificate", "covariate shift", "fixed beforehand", "independent", "δ = 0.05"):
        assert words in text


def test_a_breakdown_as_json() -> None:
    import json

    content = json.loads(json.dumps(small(test_group=("a", 1)).to_dict()))
    assert content["test_group"] == {"tuple": ["a", 1]}
    assert content["weights"] == [["g0", 0.5], ["g1", 0.25], ["g2", 0.25]]
    assert content["total"] == pytest.approx(small().total)


def test_the_order_of_the_rows_and_of_the_weights_does_not_matter() -> None:
    """By name, never by position; only the random signs go with the rows."""
    data = blobs(rows=10)
    found = small(weights={"g2": 0.25, "g0": 0.5, "g1": 0.25})
    assert found == small()
    assert data.groups.names == ("g0", "g1", "g2")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"weights": {"g0": 0.5, "g1": 0.5}}, GroupMismatchError, "In the data but not in the weights: 'g2'"),
        ({"weights": EVEN | {"g3": 0.0}}, GroupMismatchError, "In the weights but not in the data: 'g3'"),
        ({"weights": {"g0": 0.5, "g1": 0.5, "g2": 0.5}}, DataError, "no distribution: they sum to 1.5"),
        ({"weights": {"g0": 1.5, "g1": -0.5, "g2": 0.0}}, DataError, "the smallest is -0.5"),
        ({"weights": {"g0": float("nan"), "g1": 0.5, "g2": 0.5}}, DataError, "no distribution"),
        ({"weights": [0.5, 0.25, 0.25]}, DataError, "joined by name"),
        ({"test": np.zeros((4, 3))}, DataError, "the test inputs have 3 feature"),
        ({"test": np.zeros(4)}, DataError, r"x has shape \(4,\)"),
        ({"test": np.zeros((0, 2))}, DataError, "no rows"),
        ({"test": np.full((4, 2), np.nan)}, DataError, "test inputs hold NaN"),
        ({"test": np.zeros((1, 2))}, DataError, "needs two of each"),
        ({"theta": np.zeros(2)}, DataError, "θ has 2 coefficient"),
        ({"theta": np.array([np.nan, 0.0, 0.0])}, DataError, "θ holds NaN"),
        ({"theta": np.array([2.0, 0.0, 0.0])}, DataError, "outside the class ‖θ‖ ≤ 1"),
        ({"ball_radius": 0.0, "theta": np.zeros(3)}, SettingError, "ball_radius is 0.0"),
        ({"signs": 1}, SettingError, "signs is 1"),
        ({"loss": "hinge"}, UnknownNameError, "unknown bounded loss 'hinge'"),
        ({"classifier": "tree"}, UnknownNameError, "unknown classifier 'tree'"),
        ({"test_labels": np.arange(11) % 2}, DataError, "12 test inputs but 11 test labels"),
        ({"test_labels": np.full(12, 7)}, DataError, "label.* that training never saw: 7"),
    ],
)
def test_bad_input(changes: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        small(**changes)


def test_three_classes_are_refused() -> None:
    data = blobs(rows=9)
    three = GroupedData.from_arrays(data.x, np.arange(len(data)) % 3, data.ids)
    with pytest.raises(DataError, match="two classes"):
        bound_breakdown(THETA, three, EVEN, data.x, ball_radius=1.0)
