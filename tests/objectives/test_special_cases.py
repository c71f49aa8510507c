"""The special cases of the paper coincide step by step, not only in the limit."""

import math

import pytest
import torch

from tests.objectives.cases import NAMES, batch, fit, flat
from toporo.objectives import ERM, IWERM, TRO, GroupDRO
from toporo.topology.prior import Prior

PRIOR = {"a": 0.4, "b": 0.1, "c": 0.2, "d": 0.3}
#: Balanced over the groups that are there; in the second set some are not.
FULL = [(0, 0, 1, 1, 2, 2, 3, 3)] * 6
LACKING = [(0, 1, 2, 3), (0, 0, 2, 2), (3,), (1, 2, 3), (0, 0), (0, 1, 2, 3)]
#: Nor are all groups equally large here.
UNEVEN = [(0, 1, 1, 1, 2, 3, 3), (2, 2, 0), (3, 3, 3), (1, 2, 0, 0, 0), (0, 1, 2, 3), (1,)]


def same_run(one, other, make_ups, exactly):
    """Two objectives lead a network through the same values and weights to the same place."""
    batches = [batch(seed, codes) for seed, codes in enumerate(make_ups)]
    values, weights, net = fit(one, batches)
    other_values, other_weights, other_net = fit(other, batches)
    tolerance = {"rtol": 0.0, "atol": 0.0} if exactly else {"rtol": 1e-12, "atol": 1e-15}
    torch.testing.assert_close(values, other_values, **tolerance)
    torch.testing.assert_close(flat(net), flat(other_net), **tolerance)
    for step, other_step in zip(weights, other_weights, strict=True):
        assert step == pytest.approx(other_step, rel=tolerance["rtol"], abs=tolerance["atol"])


@pytest.mark.parametrize("make_ups", [FULL, LACKING, UNEVEN], ids=["full", "lacking", "uneven"])
@pytest.mark.parametrize("divergence", ["l2", "kl", "chi2"])
@pytest.mark.parametrize("update", ["ascent", "exact", "mirror"])
def test_an_infinite_penalty_is_iw_erm(update, divergence, make_ups):
    tro = TRO(PRIOR, penalty=math.inf, update=update, divergence=divergence)
    same_run(tro, IWERM(PRIOR), make_ups, exactly=True)


@pytest.mark.parametrize("make_ups", [FULL, LACKING, UNEVEN], ids=["full", "lacking", "uneven"])
def test_a_radius_of_zero_is_iw_erm(make_ups):
    same_run(TRO(PRIOR, update="constrained", radius=0.0), IWERM(PRIOR), make_ups, exactly=True)


@pytest.mark.parametrize("make_ups", [FULL, LACKING], ids=["full", "lacking"])
@pytest.mark.parametrize("update", ["ascent", "exact", "mirror"])
def test_an_infinite_penalty_and_a_uniform_prior_is_erm(update, make_ups):
    """... on balanced batches, also where groups are absent from them."""
    tro = TRO(Prior.uniform(NAMES), penalty=math.inf, update=update)
    same_run(tro, ERM(NAMES), make_ups, exactly=False)


@pytest.mark.parametrize("make_ups", [FULL, LACKING, UNEVEN], ids=["full", "lacking", "uneven"])
def test_no_penalty_is_group_dro_by_projected_gradients(make_ups):
    tro = TRO(Prior.uniform(NAMES), penalty=0.0, step=0.05)
    same_run(tro, GroupDRO(NAMES, step=0.05, update="projected"), make_ups, exactly=True)


@pytest.mark.parametrize("make_ups", [FULL, LACKING, UNEVEN], ids=["full", "lacking", "uneven"])
def test_no_penalty_by_mirror_steps_is_group_dro_as_published(make_ups):
    tro = TRO(Prior.uniform(NAMES), penalty=0.0, step=0.05, update="mirror")
    same_run(tro, GroupDRO(NAMES, step=0.05), make_ups, exactly=True)


def test_a_step_of_one_over_the_penalty_is_exact_on_full_batches():
    same_run(TRO(PRIOR, penalty=4.0, step=0.25), TRO(PRIOR, penalty=4.0, update="exact"), FULL, exactly=False)


def test_the_cases_are_not_all_the_same():
    """Guards the tests above: with a finite penalty, an uneven prior or none, the runs do part."""
    batches = [batch(seed, codes) for seed, codes in enumerate(FULL)]
    methods = [ERM(NAMES), IWERM(PRIOR), TRO(PRIOR), TRO(PRIOR, penalty=0.0), GroupDRO(NAMES, step=0.1)]
    ends = torch.stack([flat(fit(method, batches)[2]) for method in methods])
    apart = torch.cdist(ends, ends) + torch.eye(len(methods), dtype=torch.float64)
    assert apart.min() > 1e-4  # 1e8 times what the tests above allow
