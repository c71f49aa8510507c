"""The exact solver against an independent one: every loss, divergence and form, on random problems."""

import math
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import softmax

from tests.robust import cvx
from tests.robust.by_hand import KINDS, random_rows
from toporo.robust.linear import fit_linear, fit_logistic

FORMS = [{"penalty": value} for value in (math.inf, 3.0, 0.1, 0.0)] + [{"radius": value} for value in (0.02, 0.3, 5.0)]
CASES = [(seed, *case) for seed, case in enumerate(product(KINDS, ("l2", "kl", "chi2"), FORMS))]


def a_problem(seed, kind):
    """Sizes, prior, ridge and intercept all change with the seed."""
    rng = np.random.default_rng([seed, 7])
    m = int(rng.integers(2, 9))
    rows = random_rows(seed, kind, n=int(rng.integers(80, 300)), d=int(rng.integers(1, 7)), m=m)
    prior = rng.dirichlet(np.full(m, 2.0))
    if seed % 5 == 0 and m > 2:
        prior[0] = 0.0
    settings = {"ridge": (0.01, 0.1, 0.0 if not rows.logistic else 1e-3)[seed % 3], "intercept": seed % 4 != 0}
    return rows, prior / prior.sum(), settings


@pytest.mark.parametrize(("seed", "kind", "divergence", "form"), CASES)
def test_agrees_with_an_interior_point_method(seed, kind, divergence, form):
    """Values to 1e-5 (they agree to 1e-7), models where they are unique, which they are up to a softmax's intercept."""
    rows, prior, settings = a_problem(seed, kind)
    fit = fit_logistic if rows.logistic else fit_linear
    found = fit(rows.x, rows.y, rows.group, dict(enumerate(prior)), divergence=divergence, tol=1e-9, **form, **settings)
    expected = cvx.solve(
        rows.x,
        rows.y,
        rows.group,
        prior,
        kind="squared" if kind == "outputs" else kind,
        divergence=divergence,
        **form,
        **settings,
    )
    assert_allclose(found.value, expected.value, rtol=1e-5)
    assert found.bound <= expected.value * (1 + 1e-6)
    assert_allclose(found.coef, expected.coef, atol=1e-3)
    scores, others = (rows.x @ model.coef + model.intercept for model in (found, expected))
    if kind == "softmax":
        scores, others = softmax(scores, axis=1), softmax(others, axis=1)
    assert_allclose(scores, others, atol=2e-3)
