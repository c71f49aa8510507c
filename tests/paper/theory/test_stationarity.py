"""Theorem 2's quantities are what they claim, and measuring them changes nothing."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.paper.theory.cases import blobs, problem
from toporo.errors import DataError, GroupMismatchError, SettingError
from toporo.objectives import ERM, IWERM, TRO, GroupDRO, WeightedObjective
from toporo.paper.theory import (
    SigmoidProblem,
    SmoothConstants,
    Stationarity,
    inner_suboptimality,
    measure_stationarity,
    stationarity_bound,
    stationarity_steps,
)
from toporo.robust import ascent, get_divergence
from toporo.training import MLP, TrainSettings, train

PRIOR = {"g0": 0.5, "g1": 0.3, "g2": 0.2}
LOSSES = np.array([0.3, 1.1, 0.7])
cross_entropy = nn.CrossEntropyLoss(reduction="none")


def squared(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (outputs[:, 0] - y) ** 2


def set_weights(objective: WeightedObjective, q: list[float]) -> None:
    objective.q = torch.tensor(q, dtype=torch.float64)


@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_the_gradient_is_that_of_the_weighted_loss_over_all_rows(rows: int) -> None:
    data = blobs(rows=10)
    objective = TRO(PRIOR)
    set_weights(objective, [0.1, 0.2, 0.7])
    model = nn.Linear(2, 1).double()
    x, y = torch.as_tensor(data.x), torch.as_tensor(data.y)
    residuals = model(x.float().double()).detach()[:, 0].numpy() - y.numpy()
    inputs = np.column_stack([data.x, np.ones(len(data))])
    shares = np.array([0.1, 0.2, 0.7])[data.codes] / 10
    by_hand = (2 * shares * residuals) @ inputs

    def loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - y) ** 2

    class Wide(nn.Module):
        """The loop hands out float32."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.double())

    found = Stationarity(objective, data, loss, rows=rows).measure(Wide())
    assert found.gradient_norm == pytest.approx(float(np.linalg.norm(by_hand)), rel=1e-6)
    group = np.array([(residuals[data.codes == e] ** 2).mean() for e in range(3)])
    assert found.dual_suboptimality == pytest.approx(inner_suboptimality(objective, group, [0.1, 0.2, 0.7]), rel=1e-6)


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
    objective = TRO(PRIOR, penalty, update="exact", divergence=divergence)
    rng = np.random.default_rng(seed)
    q, others = rng.dirichlet(np.ones(3)), rng.dirichlet(np.full(3, 0.5), size=300)
    prior = np.array(list(PRIOR.values()))
    value = get_divergence(divergence).value
    here = q @ losses - penalty * value(q, prior)
    best = (others @ losses - penalty * value(others, prior)).max()
    found = inner_suboptimality(objective, losses, q)
    assert found >= max(best - here, 0.0) - 1e-9
    vertices = np.eye(3) @ losses - penalty * value(np.eye(3), prior)
    assert found >= vertices.max() - here - 1e-9


@pytest.mark.parametrize("divergence", ["l2", "kl", "chi2"])
def test_the_best_response_itself_is_optimal(divergence: str) -> None:
    objective = TRO(PRIOR, 0.8, update="exact", divergence=divergence)
    best = get_divergence(divergence).best_response(LOSSES, np.array(list(PRIOR.values())), 0.8)
    assert inner_suboptimality(objective, LOSSES, best) == pytest.approx(0.0, abs=1e-12)
    assert inner_suboptimality(objective, LOSSES, np.array([0.9, 0.05, 0.05])) > 0.1


def test_special_cases() -> None:
    q = np.array([0.5, 0.25, 0.25])
    dro = GroupDRO(PRIOR)
    assert inner_suboptimality(dro, LOSSES, q) == pytest.approx(1.1 - q @ LOSSES)
    assert inner_suboptimality(IWERM(PRIOR), LOSSES, np.array(list(PRIOR.values()))) == 0.0
    assert inner_suboptimality(TRO(PRIOR, math.inf), LOSSES, np.array(list(PRIOR.values()))) == 0.0
    fixed = TRO(PRIOR, radius=0.0)
    assert inner_suboptimality(fixed, LOSSES, np.array(list(PRIOR.values()))) == 0.0
    wide = TRO(PRIOR, radius=10.0)  # a radius that excludes nothing
    assert inner_suboptimality(wide, LOSSES, q) == pytest.approx(1.1 - q @ LOSSES, abs=1e-6)


class Fussy(nn.Module):
    """A network in which a careless measurement would leave traces: dropout, running statistics, a frozen part."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.frozen(self.body(x)))


def test_measuring_leaves_no_trace() -> None:
    data, model, objective = blobs(), Fussy(), TRO(PRIOR)
    model.train()
    model.body[1].eval()  # a part with a mode of its own
    model(torch.zeros(4, 2)).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    before, state = copy.deepcopy(model.state_dict()), copy.deepcopy(objective.state_dict())
    modes = [part.training for part in model.modules()]
    random = torch.get_rng_state()
    measure = Stationarity(objective, data, cross_entropy)
    first = measure(model)
    assert measure(model) == first  # dropout is off
    assert [part.training for part in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    for name, p in model.named_parameters():
        assert (p.grad is None) == (name not in gradients)
        assert p.grad is None or torch.equal(p.grad, gradients[name])
    for now, then in ((model.state_dict(), before), (objective.state_dict(), state)):
        assert all(torch.equal(now[key], then[key]) for key in then)
    with torch.no_grad():
        assert measure(model) == first


def test_modes_are_put_back_when_the_measurement_fails() -> None:
    model = Fussy().train()
    measure = Stationarity(TRO(PRIOR), blobs(), lambda outputs, y: (outputs[:, 0] - y).square().mean())
    with pytest.raises(DataError, match=r"reduction='none'"):
        measure(model)
    assert all(part.training for part in model.modules())


def trained(evaluate) -> tuple[list, dict[str, torch.Tensor]]:
    model, objective, data = MLP(2, 2, (8,)), TRO(PRIOR, step=0.5), blobs()
    chosen = evaluate(objective, data) if evaluate else None
    history = train(model, objective, data, cross_entropy, TrainSettings(rounds=4, per_group=2), evaluate=chosen)
    return history, model.state_dict() | {"q": objective.q}


def test_training_with_and_without_it_ends_in_the_same_bytes() -> None:
    _, plain = trained(None)
    history, watched = trained(lambda objective, data: Stationarity(objective, data, cross_entropy))
    assert all(torch.equal(plain[key], watched[key]) for key in plain)
    for record in history:
        assert record.metrics["gradient_norm"] > 0
        assert record.metrics["dual_suboptimality"] >= 0
    assert len({record.metrics["gradient_norm"] for record in history}) == 4  # of the model as it is, not as it was


def test_another_evaluation_is_called_as_well() -> None:
    history, _ = trained(
        lambda objective, data: Stationarity(objective, data, cross_entropy, then=lambda model: {"more": 1})
    )
    assert set(history[0].metrics) == {"gradient_norm", "dual_suboptimality", "more"}
    taken = Stationarity(TRO(PRIOR), blobs(), cross_entropy, then=lambda model: {"gradient_norm": 0})
    with pytest.raises(SettingError, match="gradient_norm"):
        taken(MLP(2, 2))


def test_a_stationary_point_measures_zero() -> None:
    """Least squares with all groups alike: the solution is stationary for any q."""
    data = blobs(rows=4)
    targets = data.x @ [1.0, -2.0] + 0.5
    data = type(data).from_arrays(data.x.astype(np.float32), targets.astype(np.float32), data.ids)
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0]]))
        model.bias.fill_(0.5)
    found = Stationarity(GroupDRO(data.groups), data, squared).measure(model)
    assert found.gradient_norm < 1e-6
    assert found.dual_suboptimality < 1e-12


def test_what_cannot_be_measured_is_refused_at_once() -> None:
    data = blobs()
    with pytest.raises(SettingError, match="ERM has no weights q"):
        Stationarity(ERM(data.groups), data, cross_entropy)
    with pytest.raises(GroupMismatchError, match="'g2'"):
        Stationarity(TRO({"g0": 0.5, "g1": 0.5}), data, cross_entropy)

    class Own(WeightedObjective):
        pass

    with pytest.raises(SettingError, match="Own does not say"):
        Stationarity(Own(PRIOR, ascent()), data, cross_entropy)
    frozen = MLP(2, 2).requires_grad_(False)
    with pytest.raises(DataError, match="no parameters that are trained"):
        Stationarity(TRO(PRIOR), data, cross_entropy).measure(frozen)
    with pytest.raises(DataError, match="each of the 3 groups"):
        inner_suboptimality(TRO(PRIOR), np.zeros(2), np.zeros(3))
    with pytest.raises(DataError, match="not finite"):
        inner_suboptimality(TRO(PRIOR), np.array([0.0, np.nan, 1.0]), np.full(3, 1 / 3))
    with pytest.raises(SettingError, match="rows is 0"):
        Stationarity(TRO(PRIOR), data, cross_entropy, rows=0)


# ---------------------------------------------------------------- the bound


def sigmoid(penalty: float = 1.0) -> SigmoidProblem:
    return SigmoidProblem(problem(penalty=penalty, rows=8))


def values_and_slopes(case: SigmoidProblem, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The loss of every row and its gradient, by hand."""
    rows = case.rows
    loss = 1.0 / (1.0 + np.exp(rows.y * (rows.x @ theta)))
    return loss, (-loss * (1.0 - loss) * rows.y)[:, None] * rows.x


def group_means(case: SigmoidProblem, values: np.ndarray) -> np.ndarray:
    return np.array([part.mean(axis=0) for part in np.split(values, case.rows.starts[1:])])


def test_the_constants_hold_wherever_one_looks() -> None:
    case = sigmoid()
    rows, c = case.rows, case.constants
    rng = np.random.default_rng(0)
    for _ in range(300):
        theta, move = rng.normal(scale=3.0, size=3), rng.normal(scale=10.0 ** rng.uniform(-4, 1), size=3)
        loss, slope = values_and_slopes(case, theta)
        there, bent = (group_means(case, part) for part in values_and_slopes(case, theta + move))
        length, q = np.linalg.norm(move), rng.dirichlet(np.full(3, 0.3))
        assert np.linalg.norm(bent - group_means(case, slope), axis=1).max() <= c.smoothness * length * (1 + 1e-6)
        assert np.linalg.norm(there - group_means(case, loss)) <= c.jacobian * length * (1 + 1e-6)
        assert q @ group_means(case, (slope**2).sum(axis=1)) <= c.theta**2
        drawn = loss[rows.starts + rng.integers(0, rows.counts)] - 0.5
        assert np.linalg.norm(drawn - rows.penalty * (q - rows.prior)) <= c.q
        assert 0.5 - rows.prior @ group_means(case, loss) <= c.above


def test_both_sides_measure_the_same_thing_as_while_a_network_trains() -> None:
    case, data = sigmoid(), blobs(rows=8)
    objective = TRO({"g0": 0.7, "g1": 0.3, "g2": 0.0})
    set_weights(objective, [0.1, 0.2, 0.7])
    model = nn.Linear(2, 1)

    def loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid((1 - 2 * y) * outputs[:, 0])

    found = Stationarity(objective, data, loss).measure(model)
    theta = np.array([*model.weight.detach().numpy()[0], model.bias.item()])
    square, below = case.measure(theta, np.array([0.1, 0.2, 0.7]))
    assert math.sqrt(square) == pytest.approx(found.gradient_norm, rel=1e-5)
    assert float(below) == pytest.approx(found.dual_suboptimality, rel=1e-5)


@pytest.mark.parametrize("penalty", [0.3, 1.0, 10.0])
def test_the_bound_holds_where_every_constant_is_known(penalty: float) -> None:
    rates = measure_stationarity(sigmoid(penalty), (64, 256, 1024), seeds=range(3))
    assert rates.holds
    assert (rates.gradient_norm > 0).all()
    for left, right in rates.sides.values():
        assert (left <= right).all()
        assert left.shape == right.shape == (3,)
    assert rates.slopes["gradient_norm"][0] < 0
    assert all(right < 0 for _, right in rates.slopes.values())
    assert measure_stationarity(sigmoid(penalty), (64, 256), seeds=[1]).gradient_norm == pytest.approx(
        rates.gradient_norm[:2, 1:2]
    )  # every T and seed is a run of its own


def test_the_rate_is_as_claimed_and_the_steps_are_the_best() -> None:
    constants = sigmoid().constants
    near, far = (stationarity_bound(constants, 2**k) for k in (50, 60))
    assert math.log2(far.gradient_norm / near.gradient_norm) / 10 == pytest.approx(-1 / 5, abs=1e-3)
    assert math.log2(far.dual_suboptimality / near.dual_suboptimality) / 10 == pytest.approx(-2 / 5, abs=2e-3)
    sizes = stationarity_steps(constants, 2**60)
    for factors in ((0.7, 1.0), (1.4, 1.0), (1.0, 0.7), (1.0, 1.4), (1.4, 1.4)):
        other = stationarity_bound(constants, 2**60, (sizes[0] * factors[0], sizes[1] * factors[1]))
        assert other.gradient_norm > far.gradient_norm


def test_understated_smoothness_breaks_the_bound() -> None:
    """Half a square in one dimension, and a step of 2: the iterate jumps from 1 to -1 and back for ever."""
    steps, theta, squares = 1000, 1.0, []
    for _ in range(steps):
        squares.append(theta**2)
        theta -= 2.0 * theta
    left = math.sqrt(np.mean(squares))
    true = SmoothConstants(smoothness=1.0, jacobian=1.0, theta=1.0, q=1.0, above=0.5, penalty=1e6)
    assert left <= stationarity_bound(true, steps, (2.0, 1e-6)).gradient_norm
    for wrong in ({"smoothness": 0.25}, {"theta": 0.5}):
        assert left > stationarity_bound(replace(true, **wrong), steps, (2.0, 1e-6)).gradient_norm


def test_a_smaller_constant_is_a_smaller_bound() -> None:
    constants, sizes = sigmoid().constants, (0.05, 0.1)
    whole = stationarity_bound(constants, 100, sizes)
    for name in ("smoothness", "jacobian", "theta", "q", "above"):
        less = stationarity_bound(replace(constants, **{name: 0.9 * getattr(constants, name)}), 100, sizes)
        assert less.gradient_norm < whole.gradient_norm
        assert (less.dual_suboptimality < whole.dual_suboptimality) == (name in ("jacobian", "theta", "q"))


def test_what_has_no_bound_is_refused() -> None:
    with pytest.raises(SettingError, match="at λ = 0 Theorem 2 has no bound here"):
        sigmoid(penalty=0.0)
    with pytest.raises(DataError, match="targets -1 and 1"):
        SigmoidProblem(replace(sigmoid().rows, y=np.zeros(24)))
    constants = sigmoid(penalty=4.0).constants
    with pytest.raises(SettingError, match=r"at most 1/λ = 0.25"):
        stationarity_bound(constants, 10, (0.1, 0.3))
    with pytest.raises(SettingError, match="η_θ"):
        stationarity_bound(constants, 10, (0.0, 0.1))
    with pytest.raises(SettingError, match="smoothness"):
        replace(constants, smoothness=-1.0)
    with pytest.raises(SettingError, match="at least two different"):
        measure_stationarity(sigmoid(), (64,))
    with pytest.raises(SettingError, match="none twice"):
        measure_stationarity(sigmoid(), (64, 128), seeds=[1, 1])
