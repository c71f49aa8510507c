"""The special cases of the paper coincide step by step, not only in the limit."""

import math

import pytest
import torch

from tests.objectives.cases import NAMES, batch, fit, flat
from toporo.objectives import ERM, IWERM, TRO, GroupDRO
from toporo.topology.prior import Prior

PRIOR = {"a": 0.4, "b": 0.1, "c": 0.2, "d": 0.3}
UNIFORM = Prior.uniform(NAMES)
#: Codes of batches with as many rows of every group; without some groups; and with groups of unequal size.
FULL = [(0, 0, 1, 1, 2, 2, 3, 3)] * 6
LACKING = [(0, 1, 2, 3), (0, 0, 2, 2), (3,), (1, 2, 3), (0, 0), (0, 1, 2, 3)]
UNEVEN = [(0, 1, 1, 1, 2, 3, 3), (2, 2, 0), (3, 3, 3), (1, 2, 0, 0, 0), (0, 1, 2, 3), (1,)]
EXACT = {"rtol": 0.0, "atol": 0.0}
ROUNDED = {"rtol": 1e-12, "atol": 1e-15}


def same_run(one, other, codes, tolerance):
    """Two objectives lead a network through the same values and weights to the same parameters."""
    batches = [batch(seed, batch_codes) for seed, batch_codes in enumerate(codes)]
    (values, weights, net), (other_values, other_weights, other_net) = fit(one, batches), fit(other, batches)
    torch.testing.assert_close(
        (values, weights, flat(net)), (other_values, other_weights, flat(other_net)), **tolerance
    )


@pytest.mark.parametrize("codes", [FULL, LACKING, UNEVEN], ids=["full", "lacking", "uneven"])
def test_special_cases_of_tro(codes):
    for update in ("ascent", "exact", "mirror"):
        for divergence in ("l2", "kl", "chi2"):
            tro = TRO(PRIOR, penalty=math.inf, update=update, divergence=divergence)
            same_run(tro, IWERM(PRIOR), codes, EXACT)
    same_run(TRO(PRIOR, update="constrained", radius=0.0), IWERM(PRIOR), codes, EXACT)
    same_run(TRO(UNIFORM, penalty=0.0, step=0.05, update="mirror"), GroupDRO(NAMES, step=0.05), codes, EXACT)


@pytest.mark.parametrize("codes", [FULL, LACKING], ids=["full", "lacking"])
def test_an_infinite_penalty_and_a_uniform_prior_is_erm_on_balanced_batches(codes):
    same_run(TRO(UNIFORM, penalty=math.inf), ERM(NAMES), codes, ROUNDED)


def test_other_settings_do_not_coincide():
    batches = [batch(seed, codes) for seed, codes in enumerate(FULL)]
    methods = [ERM(NAMES), IWERM(PRIOR), TRO(PRIOR), TRO(PRIOR, penalty=0.0), GroupDRO(NAMES, step=0.1)]
    ends = torch.stack([flat(fit(method, batches)[2]) for method in methods])
    apart = torch.cdist(ends, ends) + torch.eye(len(methods), dtype=torch.float64)
    assert apart.min() > 1e-4  # 1e8 times the tolerance above
