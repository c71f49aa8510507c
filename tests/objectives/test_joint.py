"""TRO with a topology learned with the network: its prior, its gradient, its state."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from toporo.data.grouped import GroupedData
from toporo.errors import DataError, SettingError
from toporo.models import MLP
from toporo.objectives import TRO, TROJoint
from toporo.topology.prior import Prior
from toporo.training import TrainSettings, train

CHAIN = ("a", "b", "c", "d", "e")


def chain(rows: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of five groups, each a step beyond the one before, and their codes."""
    codes = torch.arange(len(CHAIN)).repeat_interleave(rows)
    noise = torch.randn(len(codes), 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return noise + 2.0 * torch.stack([codes, 0 * codes], dim=1), codes


def step(objective: TROJoint, seed: int = 0, losses: Tensor | None = None) -> Tensor:
    x, codes = chain(seed=seed)
    return objective(torch.ones(len(codes), dtype=torch.float64) if losses is None else losses, codes, features=x)


def test_the_prior_starts_uniform_and_comes_to_favour_the_middle_of_a_chain() -> None:
    objective = TROJoint(CHAIN, penalty=100.0, step=0.01, momentum=0.9)
    assert set(objective.learned_prior.values()) == {0.2}
    for seed in range(5):
        step(objective, seed)
    prior = objective.learned_prior
    assert max(prior, key=prior.__getitem__) == "c"
    assert prior["b"] > prior["a"]
    assert prior["d"] > prior["e"]
    for weights in (prior, objective.weights):
        assert sum(weights.values()) == pytest.approx(1.0)
        assert min(weights.values()) >= 0


def test_a_network_trained_with_it_finds_the_chain_too() -> None:
    """End to end, with the prior of features that training moves."""
    x, codes = chain(rows=40)
    y = (x[:, 1] > 0).long()
    data = GroupedData.from_arrays(x.numpy().astype(np.float32), y.numpy(), [CHAIN[code] for code in codes])
    objective = TROJoint(data.groups, penalty=100.0, step=0.01, momentum=0.9)
    model = MLP(2, 2, (16,), seed=0)
    losses = nn.CrossEntropyLoss(reduction="none")
    history = train(model, objective, data, losses, TrainSettings(15, per_group=10, learning_rate=0.02, seed=0))
    assert history[-1].loss < 0.5 * history[0].loss
    prior = objective.learned_prior
    assert max(prior, key=prior.__getitem__) == "c"
    assert prior["a"] < 0.2 > prior["e"]


def test_weights_move_by_the_rule_of_tro() -> None:
    """The same losses and the prior it has learned, given to TRO, move q to the same place."""
    objective = TROJoint(CHAIN, penalty=3.0, step=0.05)
    losses = torch.rand(60, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    step(objective, losses=losses)
    tro = TRO(Prior.from_weights(objective.learned_prior), penalty=3.0, step=0.05, start="uniform")
    tro(losses, chain()[1])
    assert objective.weights == pytest.approx(tro.weights)


@pytest.mark.parametrize("penalty", [2.0, 50.0])
def test_the_value_is_the_loss_as_written(penalty: float) -> None:
    objective = TROJoint(CHAIN, penalty=penalty, step=0.01)
    losses = torch.linspace(0.0, 1.0, 60, dtype=torch.float64)
    value = step(objective, losses=losses)
    q, p = (np.array(list(weights.values())) for weights in (objective.weights, objective.learned_prior))
    by_group = losses.reshape(5, -1).mean(dim=1).numpy()
    assert float(value) == pytest.approx(q @ by_group - 0.5 * penalty * ((q - p) ** 2).sum())


def slope(coupling: float, penalty: float = 10.0) -> Tensor:
    """The gradient by the features alone: the losses do not depend on them."""
    objective = TROJoint(CHAIN, penalty=penalty, step=0.01, coupling=coupling)
    x, codes = chain()
    x.requires_grad_()
    value = objective(codes.double() + 0.0 * x.sum(), codes, features=x)
    return torch.autograd.grad(value, x)[0]


def test_coupling_scales_the_gradient_through_the_prior() -> None:
    assert slope(1.0).abs().max() > 0
    torch.testing.assert_close(slope(-1.0), -slope(1.0))
    assert not slope(0.0).any()
    assert not slope(1.0, penalty=math.inf).any()


def test_the_gradient_makes_a_group_with_a_large_loss_less_central() -> None:
    """And the more central, if it is reversed: the sign that the docstring speaks of."""
    codes = chain()[1]
    losses = (codes == 2).double()  # the middle of the chain
    moved = {}
    for coupling in (1.0, -1.0):
        x = chain()[0].requires_grad_()
        objective = TROJoint(CHAIN, penalty=10.0, step=0.1, coupling=coupling)
        value = objective(losses + 0.0 * x.sum(), codes, features=x)
        before = objective.learned_prior["c"]
        x = x.detach() - 0.05 * torch.autograd.grad(value, x)[0]
        objective(losses, codes, features=x)
        moved[coupling] = objective.learned_prior["c"] - before
    assert moved[1.0] < 0 < moved[-1.0]


def test_a_pair_that_is_not_in_a_batch_keeps_its_distance() -> None:
    objective = TROJoint(CHAIN)
    step(objective)
    before = objective.distances.clone()
    x, codes = chain(seed=1)
    few = codes < 2
    objective(torch.ones(int(few.sum()), dtype=torch.float64), codes[few], features=x[few])
    after = objective.distances
    assert torch.equal(after[2:], before[2:])
    assert after[0, 1] != before[0, 1]


def test_a_pair_never_seen_is_as_far_apart_as_the_others_on_average() -> None:
    objective = TROJoint(CHAIN)
    x, codes = chain()
    some = codes < 3
    objective(torch.ones(int(some.sum()), dtype=torch.float64), codes[some], features=x[some])
    known = objective.distances[:3, :3]
    assert float(objective.distances[0, 4]) == pytest.approx(float(known.sum()) / 6)
    step(objective)
    assert objective.met.all()
    fresh = TROJoint(CHAIN)
    step(fresh)
    torch.testing.assert_close(objective.distances, fresh.distances)


def test_momentum_is_a_running_mean_of_distances() -> None:
    objective, batches = TROJoint(CHAIN, momentum=0.75), []
    for seed in range(3):
        step(objective, seed)
        alone = TROJoint(CHAIN)
        step(alone, seed)
        batches.append(alone.distances)
    expected = 0.75 * (0.75 * batches[0] + 0.25 * batches[1]) + 0.25 * batches[2]
    torch.testing.assert_close(objective.distances, expected)


def test_features_that_overflow_leave_the_topology_alone() -> None:
    objective = TROJoint(CHAIN)
    step(objective)
    before = objective.learned_prior
    x, codes = chain()
    objective(torch.ones(len(codes), dtype=torch.float64), codes, features=torch.full_like(x, torch.nan))
    assert objective.learned_prior == pytest.approx(before)
    assert objective.distances.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coupling": math.nan}, r"coupling is nan: expected a finite number \(1 is the loss as written"),
        ({"coupling": "reversed"}, "coupling is 'reversed': expected a finite number"),
        ({"momentum": 1.0}, r"momentum is 1\.0: expected a number from 0 to below 1"),
        ({"momentum": -0.1}, r"momentum is -0\.1: expected"),
        ({"scales": 0}, "scales is 0: expected a whole number from 1 to 20"),
        ({"scales": 2.5}, r"scales is 2\.5: expected a whole number"),
        ({"sigma": 0.0}, r"sigma is 0\.0: expected a positive number"),
        ({"reach": -1}, "reach is -1: expected a positive number"),
        ({"temperature": 0}, "temperature is 0: expected a positive number"),
        ({"penalty": -1.0}, r"penalty is -1\.0: expected a number of at least 0"),
        ({"step": 0.0}, r"step is 0\.0: expected a positive number"),
    ],
)
def test_bad_settings(settings: dict[str, float], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        TROJoint(CHAIN, **settings)


def test_bad_features_and_groups() -> None:
    objective = TROJoint(CHAIN)
    with pytest.raises(DataError, match=r"features are of shape \(5,\): expected one row per sample"):
        objective(torch.ones(5), torch.arange(5), features=torch.ones(5))
    with pytest.raises(DataError, match=r"at least two training groups"):
        TROJoint(["alone"])
