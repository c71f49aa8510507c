"""Each update rule follows its formula, settles where it should, and refuses bad settings."""

import inspect
import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq

from tests.robust.cases import LAW, problems, simplex_by_root_finding
from toporo.errors import SettingError, TopoRoWarning, UnknownNameError
from toporo.robust import DIVERGENCES, RULES, ascent, best_response, constrained, constrained_response, exact, mirror

PRIOR = np.array([0.2, 0.5, 0.3])
LOSSES = np.array([0.1, 0.3, 0.2])
Q = np.array([0.6, 0.1, 0.3])


def rule_named(name, **settings):
    """A rule by its name, with a radius where it needs one."""
    taken = inspect.signature(RULES[name]).parameters
    return RULES[name](**{key: value for key, value in ({"radius": 0.05} | settings).items() if key in taken})


def iterate(rule, losses, prior, steps, start=None):
    """The last two of a run of updates at fixed losses."""
    before = q = prior if start is None else start
    for _ in range(steps):
        before, q = q, rule(q, losses, prior)
    return np.asarray(before), np.asarray(q)


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("name", RULES)
@LAW
@given(problem=problems())
def test_every_rule_stays_on_the_simplex(array, name, divergence, problem):
    losses, prior, _ = problem
    _, q = iterate(rule_named(name, divergence=divergence), array(losses), array(prior), 2)
    assert (q >= 0).all()
    assert_allclose(q.sum(), 1, rtol=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_rules_are_pure_and_keep_the_precision(array, name):
    """Nothing given is modified, nothing returned shares its memory."""
    rule, single = rule_named(name), array(PRIOR.astype(np.float32))
    assert rule(single, array(LOSSES.astype(np.float32)), single).dtype == single.dtype
    given_arrays = [array(values.copy()) for values in (Q, LOSSES, PRIOR)]
    first = rule(*given_arrays)
    assert_array_equal(np.asarray(rule(*given_arrays)), np.asarray(first))
    first[:] = 7.0
    for kept, values in zip(given_arrays, (Q, LOSSES, PRIOR), strict=True):
        assert_array_equal(np.asarray(kept), values)


# ---------------------------------------------------------------- ascent


def test_ascent_is_equation_7(array):
    """q <- Proj(q + eta (l - lambda (q - p)))."""
    expected = simplex_by_root_finding(Q + 0.7 * (LOSSES - 1.3 * (Q - PRIOR)))
    assert_allclose(np.asarray(ascent(0.7, 1.3)(array(Q), array(LOSSES), array(PRIOR))), expected, atol=1e-14)


@LAW
@given(problem=problems())
def test_one_ascent_step_of_one_over_the_penalty_is_exact(array, problem):
    """... from wherever q stands."""
    losses, prior, penalty = problem
    q = array(np.eye(len(prior))[0])
    step = ascent(1 / penalty, penalty)(q, array(losses), array(prior))
    best = exact(penalty)(q, array(losses), array(prior))
    assert_allclose(np.asarray(step), np.asarray(best), atol=1e-10)


@pytest.mark.parametrize("product", [0.1, 1.0, 1.9])
def test_ascent_settles_at_the_best_response_below_two(array, product):
    losses, prior = array(LOSSES), array(PRIOR)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule = ascent(product / 4, 4.0)
    _, q = iterate(rule, losses, prior, 400)
    assert_allclose(q, np.asarray(best_response(losses, prior, 4.0)), atol=1e-12)


@pytest.mark.parametrize("product", [2.0, 2.5, 100.0])
def test_ascent_cycles_from_two_on(product):
    """The reference's settings (eta 1, lambda 100) are a period-2 cycle: what the warning is for."""
    with pytest.warns(TopoRoWarning, match=r"will not settle but cycle.*update='exact'"):
        rule = ascent(product / 4, 4.0)
    before, q = iterate(rule, LOSSES, PRIOR, 400)
    assert np.abs(q - before).max() > 0.01
    assert_allclose(rule(q, LOSSES, PRIOR), before, atol=1e-9)


@pytest.mark.parametrize("name", ["ascent", "mirror"])
@pytest.mark.parametrize("divergence", ["kl", "chi2"])
def test_a_group_outside_the_prior_never_gets_weight(array, name, divergence):
    """D is infinite there, whatever its loss and whatever the rule's geometry."""
    rule, prior = rule_named(name, step=0.5, penalty=1.0, divergence=divergence), array([0.5, 0.5, 0.0])
    q = prior
    for _ in range(4):
        q = rule(q, array([0.0, 0.1, 3.0]), prior)
        assert np.asarray(q)[2] == 0
        assert_allclose(np.asarray(q).sum(), 1, rtol=1e-12)


# ---------------------------------------------------------------- mirror


def test_mirror_without_penalty_is_the_exponentiated_gradient(array):
    expected = Q * np.exp(0.7 * LOSSES)
    found = mirror(0.7)(array(Q), array(LOSSES), array(PRIOR))
    assert_allclose(np.asarray(found), expected / expected.sum(), rtol=1e-14)


@pytest.mark.parametrize("large", [800.0, 1e6])
def test_mirror_survives_any_loss(array, large):
    """A huge loss gives a vertex, and a huge loss of a group that has no weight gives no NaN."""
    prior = array([0.5, 0.5, 0.0])
    for losses, expected in (([0.0, large, 0.0], [0, 1, 0]), ([0.0, 0.0, large], [0.5, 0.5, 0])):
        assert_allclose(np.asarray(mirror(1.0)(prior, array(losses), prior)), expected)


# ---------------------------------------------------------------- constrained


@pytest.mark.parametrize("divergence", DIVERGENCES)
@LAW
@given(problem=problems())
def test_constrained_attains_the_maximum_inside_the_ball(array, divergence, problem):
    """Feasible, and equal to the penalised best response at the multiplier that scipy's root finder gives."""
    losses, prior, radius = problem[0], problem[1], problem[2] / 100
    assume(np.ptp(losses) > 1e-3)
    chosen = DIVERGENCES[divergence]
    found = np.asarray(constrained_response(array(losses), array(prior), radius, divergence))
    assert chosen.value(found, prior) <= radius * (1 + 1e-12)

    def excess(exponent):
        return chosen.value(best_response(losses, prior, 10.0**exponent, divergence), prior) - radius

    low = np.log10(np.ptp(losses)) - 6
    if excess(low) <= 0:  # the ball as good as holds the worst group: what it holds may not be better
        assert found @ losses >= best_response(losses, prior, 10.0**low, divergence) @ losses - 1e-12
    else:
        multiplier = 10.0 ** brentq(excess, low, 6, xtol=1e-14)
        assert_allclose(found, best_response(losses, prior, multiplier, divergence), atol=1e-8)


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize(
    ("losses", "radius", "expected"),
    [(LOSSES, 0.0, PRIOR), (LOSSES, 1e9, [0, 1, 0]), (LOSSES, math.inf, [0, 1, 0]), ([0.7, 0.7, 0.7], 0.05, PRIOR)],
    ids=["radius 0", "large radius", "infinite radius", "equal losses"],
)
def test_constrained_at_its_ends(array, divergence, losses, radius, expected):
    """The prior at radius 0 and for equal losses, the worst group when the ball holds it; never a numpy warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = constrained(radius, divergence)(array(Q), array(losses), array(PRIOR))
    assert_allclose(np.asarray(found), expected, atol=1e-15)


def test_one_prior_serves_many_losses_and_the_other_way_round(array):
    rng = np.random.default_rng(0)
    losses, priors = rng.normal(size=(4, 3)), rng.dirichlet(np.ones(3), 4)
    for many_losses, many_priors in ((losses, PRIOR), (LOSSES, priors)):
        batch = np.asarray(constrained_response(array(many_losses), array(many_priors), 0.05))
        pairs = zip(*np.broadcast_arrays(many_losses, many_priors), strict=True)
        rows = [constrained_response(a, p, 0.05) for a, p in pairs]
        assert_allclose(batch, rows, atol=1e-15)


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ascent(0.0), SettingError, "step is 0.0: expected a positive number"),
        (lambda: mirror(math.nan), SettingError, "step is nan"),
        (lambda: ascent(0.1, -1.0), SettingError, "penalty is -1.0: expected a number of at least 0, or infinity"),
        (lambda: exact(math.nan), SettingError, "penalty is nan"),
        (lambda: constrained(-0.1), SettingError, "radius is -0.1: expected a number of at least 0"),
        (lambda: constrained(0.1, "tv"), UnknownNameError, "unknown divergence 'tv'. Valid names: chi2, kl, l2"),
    ],
)
def test_bad_settings_say_what_was_expected(make, error, message):
    with pytest.raises(error, match=message):
        make()
