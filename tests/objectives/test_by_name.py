"""Priors and losses are joined by group name. The reference implementation joins them by position, and its headline
result comes from a prior that belongs to other groups: the one bug this package must not have."""

import numpy as np
import pytest
import torch

from toporo.groups import Groups
from toporo.objectives import OBJECTIVES, TRO, make_objective
from toporo.topology.prior import Prior

#: The paper's training groups of DG-15 as it lists them, which is not their sorted order.
LISTED = (0, 12, 3, 4, 14, 8)
PRIOR = dict(zip(LISTED, (0.05, 0.1, 0.15, 0.2, 0.2, 0.3), strict=True))
LOSS = dict(zip(LISTED, (0.3, 0.1, 0.9, 0.5, 0.2, 0.4), strict=True))
SOME_ORDERS = [LISTED, tuple(sorted(LISTED)), tuple(reversed(LISTED)), (8, 0, 14, 3, 12, 4)]


def step(objective, order):
    """One step on a batch whose rows come group by group in this order."""
    losses = torch.tensor([LOSS[name] for name in order], dtype=torch.float64)
    return objective(losses, Groups.of(order)).item()


@pytest.mark.parametrize("update", ["ascent", "exact", "mirror", "constrained"])
@pytest.mark.parametrize("prior_order", SOME_ORDERS)
@pytest.mark.parametrize("data_order", SOME_ORDERS)
def test_the_order_of_priors_and_losses_does_not_matter(update, prior_order, data_order):
    settings = {"update": update} | ({"radius": 0.02} if update == "constrained" else {})
    reference = TRO(PRIOR, **settings)
    expected = step(reference, LISTED)
    objective = TRO({name: PRIOR[name] for name in prior_order}, **settings)
    assert step(objective, data_order) == pytest.approx(expected, rel=1e-14)
    assert objective.weights == pytest.approx(reference.weights, rel=1e-14)
    assert len(set(reference.weights.values())) > 1


@pytest.mark.parametrize("data_order", SOME_ORDERS)
def test_weights_belong_to_the_names_they_are_given_under(data_order):
    """One step of Eq. 7 by arithmetic on names alone; inside the simplex the projection takes off the mean."""
    objective = TRO(PRIOR, penalty=1.0, step=0.1)
    value = step(objective, data_order)
    mean = sum(LOSS.values()) / len(LOSS)
    expected = {name: PRIOR[name] + 0.1 * (LOSS[name] - mean) for name in LISTED}
    assert objective.weights == pytest.approx(expected, rel=1e-12)
    assert value == pytest.approx(sum(expected[name] * LOSS[name] for name in LISTED), rel=1e-12)


@pytest.mark.parametrize("method", [name for name, cls in OBJECTIVES.items() if cls.takes_prior])
@pytest.mark.parametrize("prior_order", SOME_ORDERS)
def test_the_groups_argument_does_not_reorder_a_prior(method, prior_order):
    """The registry's way of building, where groups come from the data and the prior from a graph."""
    prior = Prior({name: PRIOR[name] for name in prior_order})
    objective = make_objective(method, Groups(np.array(LISTED)), prior)
    assert objective.weights == pytest.approx(PRIOR)
