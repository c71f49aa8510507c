"""Theorem 2's quantities are what they claim, measuring them changes nothing, and the bound covers them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.paper.theory.cases import PRIOR, blobs, problem
from toporo.data import GroupedData
from toporo.errors import GroupMismatchError, SettingError, UnknownNameError
from toporo.objectives import ERM, TRO, GroupDRO, WeightedObjective
from toporo.paper.theory import BallProblem, measure_stationarity, training_stationarity
from toporo.paper.theory.ball import inner_suboptimality
from toporo.paper.theory.stationarity import SmoothConstants, sigmoid_constants
from toporo.robust import get_divergence

P = np.array([0.5, 0.3, 0.2])
Q = np.array([0.1, 0.2, 0.7])


def at(objective: WeightedObjective, q: np.ndarray = Q) -> WeightedObjective:
    """The objective with these weights."""
    objective.q = torch.as_tensor(q)
    return objective


def sigmoid_loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(-y * outputs[:, 0])


def sigmoid(penalty: float = 1.0) -> BallProblem:
    return problem("sigmoid", penalty, math.inf, rows=8)


@pytest.mark.parametrize("objective", [TRO(PRIOR), GroupDRO(PRIOR.groups)], ids=["tro", "group-dro"])
def test_the_measurement_is_that_of_the_weighted_loss_over_all_rows(objective: WeightedObjective) -> None:
    data, model = blobs(rows=8), nn.Linear(2, 1)
    prior = data.groups.align(objective.prior.weights)
    task = sigmoid(penalty=1.0 if isinstance(objective, TRO) else 0.0)
    theta = np.array([*model.weight.detach().numpy()[0], model.bias.item()])
    gap = float(inner_suboptimality(task.losses(theta), Q, prior, task.penalty))
    order = np.argsort(-data.codes, kind="stable")  # rows and weights are joined by name
    swapped = GroupedData.from_arrays(data.x[order], data.y[order], np.array(data.ids.names)[order].tolist())
    for rows in (data, swapped):
        measured = training_stationarity(model, at(objective), rows, sigmoid_loss)
        assert measured == pytest.approx((np.linalg.norm(task.gradient(theta, Q)), gap), rel=1e-5)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["l2", "kl", "chi2"]),
    st.sampled_from([0.0, 0.2, 1.0, 30.0]),
    st.lists(st.floats(0.0, 5.0), min_size=3, max_size=3),
    st.integers(0, 1000),
)
def test_nothing_on_the_simplex_beats_the_inner_maximum(
    divergence: str, penalty: float, losses: list[float], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    q, others = rng.dirichlet(np.ones(3)), np.concatenate([np.eye(3), rng.dirichlet(np.full(3, 0.5), size=300)])
    rule = get_divergence(divergence)
    here = q @ losses - penalty * rule.value(q, P)
    best = (others @ losses - penalty * rule.value(others, P)).max()
    assert inner_suboptimality(np.array(losses), q, P, penalty, divergence) >= max(best - here, 0.0) - 1e-9


def test_measuring_leaves_no_trace_in_the_model() -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 1))
    model.eval()
    model[0].weight.grad = held = torch.ones(8, 2)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert training_stationarity(model, TRO(PRIOR), blobs(), sigmoid_loss).gradient_norm > 0
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert torch.equal(held, torch.ones(8, 2))
    assert model[3].weight.grad is None


def test_what_cannot_be_measured_is_refused() -> None:
    data, model = blobs(), nn.Linear(2, 1)
    for objective in (ERM(data.groups), TRO(PRIOR, math.inf), TRO(PRIOR, radius=1.0)):
        with pytest.raises(SettingError, match=f"inner maximum of {type(objective).__name__} is not known"):
            training_stationarity(model, objective, data, sigmoid_loss)
    with pytest.raises(GroupMismatchError, match="'g2'"):
        training_stationarity(model, TRO({"g0": 0.5, "g1": 0.5}), data, sigmoid_loss)


# ---------------------------------------------------------------- the bound


def test_the_constants_hold_everywhere() -> None:
    task = sigmoid()
    c, rng, vertices = sigmoid_constants(task), np.random.default_rng(0), np.eye(3)
    for _ in range(300):
        theta, move = rng.normal(scale=3.0, size=3), rng.normal(scale=10.0 ** rng.uniform(-4, 1), size=3)
        length, q = np.linalg.norm(move), rng.dirichlet(np.full(3, 0.3))
        slopes, bent = ([task.gradient(point, vertex) for vertex in vertices] for point in (theta, theta + move))
        assert np.linalg.norm(np.subtract(bent, slopes), axis=1).max() <= c.smoothness * length * (1 + 1e-6)
        assert np.linalg.norm(task.losses(theta + move) - task.losses(theta)) <= c.jacobian * length * (1 + 1e-6)
        loss = 1.0 / (1.0 + np.exp(task.data.y * (task.data.x @ theta)))
        assert q @ task.group_means((loss * (1.0 - loss) * np.linalg.norm(task.data.x, axis=1)) ** 2) <= c.theta**2
        drawn = loss[task.starts + rng.integers(0, task.counts)] - 0.5
        assert np.linalg.norm(drawn - task.penalty * (q - task.p)) <= c.q
        assert 0.5 - task.p @ task.losses(theta) <= c.above


@pytest.mark.parametrize("penalty", [0.3, 1.0, 10.0])
def test_the_bound_holds_where_every_constant_is_known(penalty: float) -> None:
    rates = measure_stationarity(sigmoid(penalty), (64, 256, 1024), range(3))
    assert [rate.quantity for rate in rates] == ["gradient_norm", "dual_suboptimality"]
    assert all(rate.holds and rate.bound_slope < 0 for rate in rates)
    assert rates[0].slope < 0


def test_the_bound_has_its_rate_and_the_steps_are_the_best() -> None:
    constants = sigmoid_constants(sigmoid())
    near, far = (constants.bound(2**k, constants.step_sizes(2**k)) for k in (50, 60))
    assert math.log2(far.gradient_norm / near.gradient_norm) / 10 == pytest.approx(-1 / 5, abs=1e-3)
    assert math.log2(far.dual_suboptimality / near.dual_suboptimality) / 10 == pytest.approx(-2 / 5, abs=2e-3)
    sizes = constants.step_sizes(2**60)
    for factors in ((0.7, 1.0), (1.4, 1.0), (1.0, 0.7), (1.0, 1.4), (1.4, 1.4)):
        other = constants.bound(2**60, (sizes[0] * factors[0], sizes[1] * factors[1]))
        assert other.gradient_norm > far.gradient_norm


def test_understated_constants_break_the_bound() -> None:
    """Half a square in one dimension, and a step of 2: the iterate jumps from 1 to -1 and back, with gradient 1."""
    true = SmoothConstants(smoothness=1.0, jacobian=1.0, theta=1.0, q=1.0, above=0.5, penalty=1e6)
    assert true.bound(1000, (2.0, 1e-6)).gradient_norm >= 1.0
    for wrong in ({"smoothness": 0.25}, {"theta": 0.5}):
        assert replace(true, **wrong).bound(1000, (2.0, 1e-6)).gradient_norm < 1.0


def test_what_has_no_bound_is_refused() -> None:
    with pytest.raises(SettingError, match="at λ = 0 Theorem 2 has no bound here"):
        sigmoid_constants(sigmoid(penalty=0.0))
    with pytest.raises(UnknownNameError, match=r"unknown loss with known constants 'logistic'.*sigmoid"):
        sigmoid_constants(problem())
