"""Priors and losses are joined by group name.

The reference implementation joins them by position, and its headline result comes from a prior of other groups.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from toporo.groups import Groups
from toporo.objectives import TRO

#: The paper's training groups of DG-15 as it lists them, which is not their sorted order.
LISTED = (0, 12, 3, 4, 14, 8)
PRIOR = dict(zip(LISTED, (0.05, 0.1, 0.15, 0.2, 0.2, 0.3), strict=True))
LOSS = dict(zip(LISTED, (0.3, 0.1, 0.9, 0.5, 0.2, 0.4), strict=True))


@given(prior_order=st.permutations(LISTED), data_order=st.permutations(LISTED))
def test_weights_belong_to_names_in_any_order(prior_order, data_order):
    """One step of Eq. 7 by arithmetic on names; inside the simplex the projection subtracts the mean."""
    objective = TRO({name: PRIOR[name] for name in prior_order}, penalty=1.0, step=0.1)
    losses = torch.tensor([LOSS[name] for name in data_order], dtype=torch.float64)
    value = objective(losses, Groups.of(data_order)).item()
    mean = sum(LOSS.values()) / len(LOSS)
    expected = {name: PRIOR[name] + 0.1 * (LOSS[name] - mean) for name in LISTED}
    assert objective.weights == pytest.approx(expected, rel=1e-12)
    assert value == pytest.approx(sum(expected[name] * LOSS[name] for name in LISTED), rel=1e-12)
