"""CORAL, MMD and DANN against plain loops over groups, as in DomainBed."""

import copy
import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from toporo.errors import DataError
from toporo.objectives import CORAL, DANN, MMD

NAMES = ("a", "b", "c", "d")
#: Codes of batches.
MAKE_UPS = {
    "uneven": (0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3, 3),
    "absent": (0, 0, 2, 3, 2, 3, 0, 3),
    "single": (0, 0, 0, 1, 2, 2, 3, 3),
    "two": (1, 1, 1, 3, 3),
    "one": (2, 2, 2, 2),
    "sample": (1,),
}

every_make_up = pytest.mark.parametrize("codes", MAKE_UPS.values(), ids=MAKE_UPS)
every_width = pytest.mark.parametrize("width", [2, 9])


def rows(codes, width, seed=0, dtype=torch.float64):
    """Losses and features of a batch; each group lies elsewhere and has another spread."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.tensor(codes)
    x = (1 + codes[:, None]) * torch.randn(len(codes), width, dtype=torch.float64, generator=generator) + codes[:, None]
    losses = torch.rand(len(codes), dtype=torch.float64, generator=generator)
    return losses.to(dtype), codes, (0.5 * x).to(dtype).requires_grad_()


def mean_loss(losses, codes):
    return torch.stack([losses[codes == e].mean() for e in codes.unique()]).mean()


def mean_over_pairs(distance, x, codes):
    present = [x[codes == e] for e in codes.unique()]
    found = [distance(one, other) for one, other in itertools.combinations(present, 2)]
    return sum(found) / len(found) if found else 0.0 * x.sum()


def coral_distance(x, y):
    """DomainBed's distance, except for groups of one sample, which have no covariance."""
    apart = (x.mean(dim=0) - y.mean(dim=0)).pow(2).mean()
    if min(len(x), len(y)) > 1:
        apart = apart + (x.T.cov() - y.T.cov()).reshape(-1).pow(2).mean()
    return apart


def mmd_distance(x, y):
    def mean_kernel(x, y):
        squares = ((x[:, None] - y[None]) ** 2).sum(dim=2)
        return sum(torch.exp(-gamma * squares) for gamma in (0.001, 0.01, 0.1, 1, 10, 100, 1000)).mean()

    return mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)


@every_make_up
@every_width
@pytest.mark.parametrize(("method", "distance"), [(CORAL, coral_distance), (MMD, mmd_distance)], ids=["coral", "mmd"])
def test_value_and_gradient_are_those_of_loops_over_pairs(method, distance, codes, width):
    losses, codes, x = rows(codes, width)
    found = method(NAMES, penalty=0.7)(losses, codes, features=x)
    expected = mean_loss(losses, codes) + 0.7 * mean_over_pairs(distance, x, codes)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=0)
    slopes = [torch.autograd.grad(value, x)[0] for value in (found, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("shape", [(4,), (4, 3, 2, 2)])
@pytest.mark.parametrize("objective", [CORAL(NAMES), MMD(NAMES), DANN(NAMES, 3)], ids=["coral", "mmd", "dann"])
def test_features_must_be_rows(objective, shape):
    with pytest.raises(DataError, match=r"4 losses but features of shape \(4,.*expected \(n, d\)"):
        objective(torch.ones(4), torch.arange(4), features=torch.ones(shape))


@pytest.mark.parametrize("method", [CORAL, MMD])
def test_a_common_offset_costs_no_digits(method):
    """Features far from zero, like activations without a norm; single precision represents these exactly."""
    losses, codes, x = rows(MAKE_UPS["uneven"], 9, dtype=torch.float32)
    near = (x.detach() * 64).round() / 64
    values = [method(NAMES)(losses, codes, features=near + offset).item() for offset in (0.0, 4096.0)]
    assert values[1] == pytest.approx(values[0], rel=1e-5)


# ---------------------------------------------------------------- DANN


def dann(width, penalty, **settings):
    """A discriminator whose last layer has left its start at zero, in double precision."""
    objective = DANN(NAMES, width, penalty, hidden=5, **settings).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for last in objective._layers(objective.discriminator)[-2:]:
            last.copy_(torch.randn(last.shape, dtype=torch.float64, generator=generator))
    return objective


def guessing_loss(objective, x, codes):
    """Mean over groups of the cross entropy of the group."""
    w = objective._layers(objective.discriminator)
    logits = F.linear(F.relu(F.linear(F.relu(F.linear(x, w[0], w[1])), w[2], w[3])), w[4], w[5])
    return mean_loss(F.cross_entropy(logits, codes, reduction="none"), codes)


@every_make_up
@pytest.mark.parametrize("penalty", [0.0, 0.7, 10.0])
def test_dann_steps_its_discriminator_first(codes, penalty):
    """A step of Adam for the discriminator on the guessing loss; then the network's loss with the new one."""
    losses, codes, x = rows(codes, 4)
    losses = losses * x.sum(dim=1)
    objective = dann(4, penalty, learning_rate=0.01)
    peer = copy.deepcopy(objective)
    peer.discriminator.requires_grad_()
    optimizer = torch.optim.Adam([peer.discriminator], lr=0.01, betas=(0.5, 0.9))
    for _ in range(3):
        optimizer.zero_grad()
        (peer.discriminator.grad,) = torch.autograd.grad(guessing_loss(peer, x, codes), peer.discriminator)
        optimizer.step()
        value = objective(losses, codes, features=x)
        expected = mean_loss(losses, codes) - penalty * guessing_loss(peer, x, codes)
        torch.testing.assert_close(objective.discriminator, peer.discriminator.detach(), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
        slopes = [torch.autograd.grad(loss, x, retain_graph=True)[0] for loss in (value, expected)]
        torch.testing.assert_close(*slopes, rtol=1e-7, atol=1e-11)
    assert not list(objective.parameters()), "nothing for the network's optimiser"


def test_the_first_discriminator_gives_all_groups_the_same_probability():
    losses, codes, x = rows(MAKE_UPS["uneven"], 4)
    value = DANN(NAMES, 4, penalty=2.0).eval()(losses, codes, features=x)
    assert value.item() == pytest.approx(mean_loss(losses, codes).item() - 2 * math.log(4), rel=1e-6)
    assert not torch.autograd.grad(value, x)[0].any()


def test_dann_always_starts_the_same():
    before = torch.random.get_rng_state()
    assert torch.equal(DANN(NAMES, 6).discriminator, DANN(NAMES, 6).discriminator)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_dann_refuses_features_of_another_width():
    with pytest.raises(DataError, match=r"shape \(4, 3\), but the discriminator takes 5 per sample.*width=3"):
        DANN(NAMES, 5)(torch.ones(4), torch.arange(4), features=torch.ones(4, 3))
