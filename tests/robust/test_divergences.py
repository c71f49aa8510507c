"""Every divergence in the registry is one, and its best response is the optimum it claims to be."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given
from numpy.testing import assert_allclose

from tests.robust.cases import LAW, priors, problems
from toporo.errors import SettingError
from toporo.robust import DIVERGENCES, best_response

PRIOR = np.array([0.5, 0.3, 0.2])
LOSSES = np.array([1.0, 3.0, 2.0])


@pytest.fixture(params=DIVERGENCES, scope="module")
def divergence(request):
    return DIVERGENCES[request.param]


@pytest.fixture(params=["kl", "chi2"], scope="module")
def supported(request):
    """The divergences that are infinite outside the prior's support."""
    return DIVERGENCES[request.param]


@LAW
@given(q=priors(st.just(4)), prior=priors(st.just(4)))
def test_a_divergence_is_zero_at_the_prior_and_at_least_a_share_of_the_squared_distance(array, divergence, q, prior):
    """Pinsker for KL and 1/p >= 1 for chi-square: all three are bounded below by ½‖q - p‖², hence non-negative."""
    assert_allclose(np.asarray(divergence.value(array(prior), array(prior))), 0, atol=1e-16)
    assert np.asarray(divergence.value(array(q), array(prior))) >= 0.5 * ((q - prior) ** 2).sum() - 1e-15


@pytest.mark.parametrize(("name", "expected"), [("l2", 0.25), ("kl", math.log(2)), ("chi2", 0.5)])
def test_value_by_hand(array, name, expected):
    value = DIVERGENCES[name].value(array([1.0, 0.0]), array([0.5, 0.5]))
    assert_allclose(np.asarray(value), expected, rtol=1e-15)


@LAW
@given(q=priors(st.just(4)), prior=priors(st.just(4)))
def test_gradient_matches_finite_differences(array, divergence, q, prior):
    h = 1e-6 * np.eye(4)
    slope = [
        (divergence.value(array(q + e), array(prior)) - divergence.value(array(q - e), array(prior))) / 2e-6 for e in h
    ]
    assert_allclose(np.asarray(divergence.gradient(array(q), array(prior))), np.array(slope), rtol=1e-6, atol=1e-8)


@LAW
@given(problem=problems())
def test_best_response_is_first_order_optimal(array, divergence, problem):
    """The problem is concave: no vertex may promise an improvement along its direction (a duality gap of zero)."""
    losses, prior, penalty = problem
    q = np.asarray(best_response(array(losses), array(prior), penalty, divergence))
    assert (q >= 0).all()
    assert_allclose(q.sum(), 1, rtol=1e-12)
    slope = losses - penalty * np.asarray(divergence.gradient(array(q), array(prior)))
    assert slope.max() - slope @ q <= 1e-9 * (1 + np.abs(losses).max() + penalty)


@pytest.mark.parametrize(
    ("penalty", "losses", "expected"),
    [(math.inf, LOSSES, PRIOR), (1e12, LOSSES, PRIOR), (0.0, [3.0, 3.0, 2.0], [0.5, 0.5, 0])]
    + [(penalty, LOSSES, [0, 1, 0]) for penalty in (0.0, 1e-3, 1e-20)],
)
def test_the_best_response_at_the_ends(array, divergence, penalty, losses, expected):
    """The prior at infinity and the worst groups, which share equally, without a penalty."""
    found = np.asarray(best_response(array(losses), array(PRIOR), penalty, divergence))
    assert_allclose(found, expected, atol=1e-11 if penalty == 1e12 else 0, rtol=0)
    single = array(np.array(losses, dtype=np.float32))
    assert best_response(single, array(PRIOR.astype(np.float32)), penalty, divergence).dtype == single.dtype


@pytest.mark.parametrize("penalty", [0.0, 1e-3, 1.0, math.inf])
def test_a_group_outside_the_prior_never_gets_weight(array, supported, penalty):
    """... however large its loss: D is infinite there. The others are weighed as if it did not exist."""
    losses, prior = array([1.0, 500.0, 1.5]), array([0.4, 0.0, 0.6])
    found = np.asarray(best_response(losses, prior, penalty, supported))
    rest = best_response(array([1.0, 1.5]), array([0.4, 0.6]), penalty, supported)
    assert found[1] == 0
    assert_allclose(found[[0, 2]], np.asarray(rest), rtol=1e-12)


def test_weight_outside_the_prior_is_infinitely_far(array, supported):
    assert np.asarray(supported.value(array([0.5, 0.5]), array([1.0, 0.0]))) == math.inf
    assert np.isfinite(np.asarray(supported.gradient(array([0.5, 0.5]), array([1.0, 0.0]))[0]))


def test_a_batch_is_its_rows(array, divergence):
    """Leading axes of losses, priors and penalties (with a trailing axis of one) are a batch."""
    rng = np.random.default_rng(0)
    losses, prior = rng.normal(size=(2, 3, 4)), rng.dirichlet(np.ones(4), (2, 3))
    penalty = rng.uniform(0.1, 5, (2, 3, 1))
    batch = divergence.best_response(array(losses), array(prior), array(penalty))
    value, gradient = divergence.value(batch, array(prior)), divergence.gradient(batch, array(prior))
    for i in np.ndindex(2, 3):
        row = best_response(array(losses[i]), array(prior[i]), float(penalty[i][0]), divergence)
        assert_allclose(np.asarray(batch[i]), np.asarray(row), atol=1e-15)
        assert_allclose(np.asarray(value[i]), np.asarray(divergence.value(row, array(prior[i]))), rtol=1e-12)
        assert_allclose(np.asarray(gradient[i]), np.asarray(divergence.gradient(row, array(prior[i]))), rtol=1e-12)


@pytest.mark.parametrize("penalty", [-1.0, math.nan])
def test_a_negative_penalty_is_refused(penalty):
    """It would make the problem convex and the answer silently that of penalty 0."""
    with pytest.raises(SettingError, match="at least 0"):
        best_response(LOSSES, PRIOR, penalty)


# ---------------------------------------------------------------- mobility


@LAW
@given(problem=problems())
def test_mobility_is_how_the_best_response_gives_way(array, divergence, problem):
    """Its derivative by the losses, by finite differences; where a group is about to leave or join there is none."""
    losses, prior, penalty = problem
    q = np.asarray(best_response(array(losses), array(prior), penalty, divergence))
    h = 1e-6 * penalty
    moved = [
        np.asarray(best_response(array(losses + sign * step), array(prior), penalty, divergence))
        for step in h * np.eye(len(losses))
        for sign in (1, -1)
    ]
    assume(all(((row > 0) == (q > 0)).all() for row in moved))
    slopes = np.array([(up - down) / 2e-6 for up, down in zip(moved[::2], moved[1::2], strict=True)])
    w = np.asarray(divergence.mobility(array(q), array(prior)))
    assert_allclose(slopes.T, np.diag(w) - np.outer(w, w) / w.sum(), atol=1e-5)


def test_what_has_no_weight_does_not_move(array, divergence):
    """Neither does what has no prior, for the divergences that are infinite there."""
    mobility = np.asarray(divergence.mobility(array([0.0, 0.4, 0.6]), array(PRIOR)))
    assert mobility[0] == 0
    assert (mobility[1:] > 0).all()


@pytest.mark.parametrize("size", [1e-3, 1e-5])
def test_near_the_prior_a_divergence_is_a_square(array, divergence, size):
    """... and its digits are not lost: times a large penalty they decide whether a value is true."""
    move = size * np.array([1.0, -3.0, 2.0])
    value = float(divergence.value(array(PRIOR + move), array(PRIOR)))
    slope = np.asarray(divergence.gradient(array(PRIOR + move), array(PRIOR)))
    assert value == pytest.approx(0.5 * float((slope - slope @ PRIOR) @ move), rel=1e-2)
    metric = {"l2": np.ones(3), "kl": 1 / PRIOR, "chi2": 1 / PRIOR}.get(divergence.name)
    assert metric is None or value == pytest.approx(0.5 * (metric * move**2).sum(), rel=1e-2)
