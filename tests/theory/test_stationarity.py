"""Theorem 2's quantities are what they claim, and measuring them changes nothing."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.theory.cases import blobs
from toporo.errors import DataError, GroupMismatchError, SettingError
from toporo.models import MLP
from toporo.objectives import ERM, IWERM, TRO, GroupDRO, WeightedObjective
from toporo.robust import ascent, get_divergence
from toporo.theory import Stationarity, inner_suboptimality
from toporo.training import TrainSettings, train

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
