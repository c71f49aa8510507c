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

from tests.paper.theory.cases import blobs, problem
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, GroupMismatchError, SettingError, UnknownNameError
from toporo.objectives import ERM, TRO, GroupDRO, WeightedObjective
from toporo.paper.theory import BallProblem, SmoothConstants, measure_stationarity, training_stationarity
from toporo.paper.theory.stationarity import inner_suboptimality, sigmoid_constants, stationarity_at
from toporo.robust import get_divergence
from toporo.training import MLP, Batches, TrainingPlan, fit

PRIOR = {"g0": 0.5, "g1": 0.3, "g2": 0.2}
P = np.array(list(PRIOR.values()))
Q = np.array([0.1, 0.2, 0.7])
LOSSES = np.array([0.3, 1.1, 0.7])
cross_entropy = nn.CrossEntropyLoss(reduction="none")


def squared(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (outputs[:, 0] - y) ** 2


def at(objective: WeightedObjective, q: np.ndarray = Q) -> WeightedObjective:
    """The objective with these weights."""
    objective.q = torch.as_tensor(q)
    return objective


def test_the_gradient_is_that_of_the_weighted_loss_over_all_rows() -> None:
    data, model = blobs(rows=10), nn.Linear(2, 1)
    theta = np.array([*model.weight.detach().numpy()[0], model.bias.item()])
    inputs = np.column_stack([data.x, np.ones(len(data))])
    residuals = inputs @ theta - data.y
    by_hand = (2 * Q[data.codes] / 10 * residuals) @ inputs
    found = training_stationarity(model, at(TRO(PRIOR)), data, squared)
    assert found.gradient_norm == pytest.approx(float(np.linalg.norm(by_hand)), rel=1e-5)
    losses = np.array([(residuals[data.codes == e] ** 2).mean() for e in range(3)])
    assert found.dual_suboptimality == pytest.approx(float(inner_suboptimality(losses, Q, P, 1.0)), rel=1e-5)


def test_weights_and_rows_are_joined_by_name() -> None:
    data, model, objective = blobs(rows=5), nn.Linear(2, 1), at(TRO(PRIOR))
    order = np.argsort(-data.codes, kind="stable")
    swapped = GroupedData.from_arrays(data.x[order], data.y[order], np.array(data.ids.names)[order].tolist())
    first, again = (training_stationarity(model, objective, rows, squared) for rows in (data, swapped))
    assert again == pytest.approx(first, rel=1e-5)


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
    value = get_divergence(divergence).value
    here = q @ losses - penalty * value(q, P)
    best = (others @ losses - penalty * value(others, P)).max()
    assert inner_suboptimality(np.array(losses), q, P, penalty, divergence) >= max(best - here, 0.0) - 1e-9


@pytest.mark.parametrize("divergence", ["l2", "kl", "chi2"])
def test_the_best_response_is_optimal_and_another_point_is_not(divergence: str) -> None:
    best = get_divergence(divergence).best_response(LOSSES, P, 0.8)
    assert inner_suboptimality(LOSSES, best, P, 0.8, divergence) == pytest.approx(0.0, abs=1e-12)
    assert inner_suboptimality(LOSSES, np.array([0.9, 0.05, 0.05]), P, 0.8, divergence) > 0.1


def test_the_inner_maximum_of_group_dro_is_the_worst_group() -> None:
    data, model = blobs(rows=4), nn.Linear(2, 1)
    found = training_stationarity(model, at(GroupDRO(data.groups)), data, squared)
    rows = squared(model(torch.as_tensor(data.x, dtype=torch.float32)), torch.as_tensor(data.y)).detach().numpy()
    losses = np.array([rows[data.codes == e].mean() for e in range(3)])
    assert found.dual_suboptimality == pytest.approx(losses.max() - Q @ losses, rel=1e-5)


def test_measuring_while_training_leaves_no_trace() -> None:
    """Networks with dropout, running statistics and a frozen part end in the same bytes with and without it."""

    def trained(*, watched: bool) -> tuple[list, dict[str, torch.Tensor]]:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 2)
        )
        objective, data = TRO(PRIOR, step=0.5), blobs()

        def measure(model: nn.Module) -> dict[str, float]:
            gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
            with torch.no_grad():
                found = training_stationarity(model, objective, data, cross_entropy)
            after = [parameter.grad for parameter in model.parameters()]
            assert all(new is old or torch.equal(new, old) for new, old in zip(after, gradients, strict=True))
            return found._asdict()

        batches, plan = Batches.of(data, per_group=2), TrainingPlan(rounds=4)
        history = fit(model, objective, batches, cross_entropy, plan, evaluate=measure if watched else None).history
        return history, model.state_dict() | {"q": objective.q}

    _, plain = trained(watched=False)
    history, same = trained(watched=True)
    assert all(torch.equal(plain[key], same[key]) for key in plain)
    assert all(record.metrics["dual_suboptimality"] >= 0 for record in history)
    assert len({record.metrics["gradient_norm"] for record in history}) == 4  # of each epoch's model


def test_what_cannot_be_measured_is_refused() -> None:
    data, model = blobs(), MLP(2, 2)
    for objective in (ERM(data.groups), TRO(PRIOR, math.inf), TRO(PRIOR, radius=1.0)):
        with pytest.raises(SettingError, match=f"inner maximum of {type(objective).__name__} is not known"):
            training_stationarity(model, objective, data, cross_entropy)
    with pytest.raises(GroupMismatchError, match="'g2'"):
        training_stationarity(model, TRO({"g0": 0.5, "g1": 0.5}), data, cross_entropy)
    with pytest.raises(DataError, match="no parameters that are trained"):
        training_stationarity(MLP(2, 2).requires_grad_(False), TRO(PRIOR), data, cross_entropy)
    with pytest.raises(DataError, match="reduction='none'"):
        training_stationarity(model, TRO(PRIOR), data, nn.CrossEntropyLoss())
    with pytest.raises(DataError, match="not finite"):
        training_stationarity(model, TRO(PRIOR), data, lambda outputs, y: squared(outputs, y) * math.nan)


# ---------------------------------------------------------------- the bound


def sigmoid(penalty: float = 1.0) -> BallProblem:
    return replace(problem("sigmoid", penalty, rows=8), ball_radius=math.inf)


def values_and_slopes(rows: BallProblem, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The loss of every row and its gradient, by hand."""
    loss = 1.0 / (1.0 + np.exp(rows.y * (rows.x @ theta)))
    return loss, (-loss * (1.0 - loss) * rows.y)[:, None] * rows.x


def group_means(rows: BallProblem, values: np.ndarray) -> np.ndarray:
    return np.array([part.mean(axis=0) for part in np.split(values, rows.starts[1:])])


def test_the_constants_hold_everywhere() -> None:
    rows = sigmoid()
    c, rng = sigmoid_constants(rows), np.random.default_rng(0)
    for _ in range(300):
        theta, move = rng.normal(scale=3.0, size=3), rng.normal(scale=10.0 ** rng.uniform(-4, 1), size=3)
        loss, slope = values_and_slopes(rows, theta)
        there, bent = (group_means(rows, part) for part in values_and_slopes(rows, theta + move))
        length, q = np.linalg.norm(move), rng.dirichlet(np.full(3, 0.3))
        assert np.linalg.norm(bent - group_means(rows, slope), axis=1).max() <= c.smoothness * length * (1 + 1e-6)
        assert np.linalg.norm(there - group_means(rows, loss)) <= c.jacobian * length * (1 + 1e-6)
        assert q @ group_means(rows, (slope**2).sum(axis=1)) <= c.theta**2
        drawn = loss[rows.starts + rng.integers(0, rows.counts)] - 0.5
        assert np.linalg.norm(drawn - rows.penalty * (q - rows.prior)) <= c.q
        assert 0.5 - rows.prior @ group_means(rows, loss) <= c.above


def test_the_measurement_is_the_one_of_a_network_in_training() -> None:
    model = nn.Linear(2, 1)
    objective = at(TRO({"g0": 0.7, "g1": 0.3, "g2": 0.0}))

    def loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid((1 - 2 * y) * outputs[:, 0])

    found = training_stationarity(model, objective, blobs(rows=8), loss)
    theta = np.array([*model.weight.detach().numpy()[0], model.bias.item()])
    square, gap = stationarity_at(sigmoid(), theta, Q)
    assert (math.sqrt(square), float(gap)) == pytest.approx(found, rel=1e-5)


@pytest.mark.parametrize("penalty", [0.3, 1.0, 10.0])
def test_the_bound_holds_where_every_constant_is_known(penalty: float) -> None:
    result = measure_stationarity(sigmoid(penalty), (64, 256, 1024), range(3))
    for rate in result.rates().values():
        assert rate.holds
        assert rate.bound_slope < 0
    assert (result.gradient_norm.values > 0).all()
    assert result.gradient_norm.slope < 0
    alone = measure_stationarity(sigmoid(penalty), (64, 256), [1]).gradient_norm.values
    assert alone == pytest.approx(result.gradient_norm.values[:2, 1:2])  # every T and seed is a run of its own


def test_the_bound_has_its_rate_and_the_steps_are_the_best() -> None:
    constants = sigmoid_constants(sigmoid())
    near, far = (constants.bound(2**k, constants.step_sizes(2**k)) for k in (50, 60))
    assert math.log2(far.gradient_norm / near.gradient_norm) / 10 == pytest.approx(-1 / 5, abs=1e-3)
    assert math.log2(far.dual_suboptimality / near.dual_suboptimality) / 10 == pytest.approx(-2 / 5, abs=2e-3)
    sizes = constants.step_sizes(2**60)
    for factors in ((0.7, 1.0), (1.4, 1.0), (1.0, 0.7), (1.0, 1.4), (1.4, 1.4)):
        other = constants.bound(2**60, (sizes[0] * factors[0], sizes[1] * factors[1]))
        assert other.gradient_norm > far.gradient_norm


def test_understated_smoothness_breaks_the_bound() -> None:
    """Half a square in one dimension, and a step of 2: the iterate jumps from 1 to -1 and back for ever."""
    steps, theta, squares = 1000, 1.0, []
    for _ in range(steps):
        squares.append(theta**2)
        theta -= 2.0 * theta
    left = math.sqrt(np.mean(squares))
    true = SmoothConstants(smoothness=1.0, jacobian=1.0, theta=1.0, q=1.0, above=0.5, penalty=1e6)
    assert left <= true.bound(steps, (2.0, 1e-6)).gradient_norm
    for wrong in ({"smoothness": 0.25}, {"theta": 0.5}):
        assert left > replace(true, **wrong).bound(steps, (2.0, 1e-6)).gradient_norm


def test_a_smaller_constant_is_a_smaller_bound() -> None:
    constants, sizes = sigmoid_constants(sigmoid()), (0.05, 0.1)
    whole = constants.bound(100, sizes)
    for name in ("smoothness", "jacobian", "theta", "q", "above"):
        less = replace(constants, **{name: 0.9 * getattr(constants, name)}).bound(100, sizes)
        assert less.gradient_norm < whole.gradient_norm
        assert (less.dual_suboptimality < whole.dual_suboptimality) == (name in ("jacobian", "theta", "q"))


def test_what_has_no_bound_is_refused() -> None:
    with pytest.raises(SettingError, match="at λ = 0 Theorem 2 has no bound here"):
        sigmoid_constants(sigmoid(penalty=0.0))
    with pytest.raises(UnknownNameError, match=r"unknown loss with known constants 'logistic'.*sigmoid"):
        sigmoid_constants(problem())
    constants = sigmoid_constants(sigmoid(penalty=4.0))
    for sizes in ((0.1, 0.3), (0.0, 0.1)):
        with pytest.raises(SettingError, match=r"at most 1/λ = 0.25"):
            constants.bound(10, sizes)
