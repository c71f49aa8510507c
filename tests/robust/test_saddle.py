"""The solver's parts: F's derivatives, Newton's direction, the search for a multiplier, what a path starts from."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.robust.by_hand import random_rows, worst
from toporo.robust import DIVERGENCES
from toporo.robust.logistic import LogisticLosses
from toporo.robust.losses import SquaredLosses
from toporo.robust.saddle import Saddle, SaddleProblem, _Inner, _Search

PRIOR = np.array([0.1, 0.2, 0.3, 0.25, 0.15])
#: Fewer groups than parameters (solved in the space of groups), more, and a Hessian between outputs.
SHAPES = {
    "groups": ("outputs", 4),
    "parameters": ("outputs", 1),
    "one output": ("squared", 2),
    "softmax": ("softmax", 2),
}


def a_problem(shape, divergence, prior=PRIOR):
    kind, d = SHAPES[shape]
    rows = random_rows(5, kind, n=90, d=d, m=len(prior))
    losses = (LogisticLosses if rows.logistic else SquaredLosses).from_arrays(rows.x, rows.y, rows.group)
    return SaddleProblem(losses, 0.05, prior, DIVERGENCES[divergence], tol=1e-9)


@pytest.fixture(params=SHAPES)
def shape(request):
    return request.param


@pytest.fixture(params=DIVERGENCES)
def divergence(request):
    return request.param


def gradient(problem, game, theta):
    place = problem.losses.at(theta)
    q, _ = problem._worst(place, game)
    return q @ place.jacobian[problem.support] + (problem.pull * theta).reshape(-1)


@pytest.mark.parametrize("penalty", [0.0, 0.7, math.inf])
def test_f_is_the_worst_case_plus_the_ridge(divergence, penalty):
    problem = a_problem("groups", divergence)
    theta = np.random.default_rng(0).normal(size=problem.losses.shape)
    place = problem.losses.at(theta)
    if penalty == 0:
        value = problem._proximal(0.0, place).value
        theta = problem._proximal(0.0, place).point.theta
        place = problem.losses.at(theta)
    else:
        _, value = problem._worst(place, _Inner(problem.divergence, problem.prior, penalty))
    expected = worst(place.losses, PRIOR, divergence, penalty) + 0.05 * np.sum(theta[:-1] ** 2)
    assert_allclose(value, expected, rtol=1e-10)


def test_newtons_direction_solves_newtons_equation(shape, divergence):
    """F's gradient changes along the direction d as H d = -g says, with the Hessian of q's answer in it."""
    problem = a_problem(shape, divergence)
    game = _Inner(problem.divergence, problem.prior, 3.0)
    theta = 0.3 * np.random.default_rng(0).normal(size=problem.losses.shape)
    place = problem.losses.at(theta)
    q, _ = problem._worst(place, game)
    assert (q > 1e-3).sum() >= 3  # q moves
    assert not ((q > 0) & (q < 1e-3)).any() or divergence == "kl"  # and no kink is near
    slope = gradient(problem, game, theta)
    bend = game.bend(place.jacobian[problem.support], q)
    direction = problem._direction(place, q, slope, bend).reshape(theta.shape)
    h = 1e-6
    change = (gradient(problem, game, theta + h * direction) - gradient(problem, game, theta - h * direction)) / (2 * h)
    assert_allclose(change, -slope, atol=1e-5 * np.abs(slope).max())


def test_q_that_cannot_move_does_not_bend(divergence):
    problem = a_problem("groups", divergence)
    jacobian = problem.losses.at(np.ones(problem.losses.shape)).jacobian
    lone = np.array([0.0, 0.0, 1.0, 0.0, 0.0])
    assert not len(_Inner(problem.divergence, PRIOR, math.inf).bend(jacobian, PRIOR))
    if divergence != "chi2":
        assert not len(_Inner(problem.divergence, PRIOR, 1e-3).bend(jacobian, lone))


def test_groups_without_prior_are_out_of_the_game_unless_it_is_l2(divergence):
    problem = a_problem("groups", divergence, np.array([0.0, 0.4, 0.3, 0.3, 0.0]))
    expected = range(5) if divergence == "l2" else [1, 2, 3]
    assert problem.support.tolist() == list(expected)
    assert_allclose(problem.over_all(np.ones(len(problem.support))), np.isin(np.arange(5), expected))


@pytest.mark.parametrize("penalty", [0.3, 1e-4])
def test_a_foreseen_start_is_never_worse(divergence, penalty):
    problem = a_problem("groups", divergence)
    game = _Inner(problem.divergence, problem.prior, penalty)
    rng = np.random.default_rng(0)
    place = problem.penalised(1.0).point
    _, here = problem._worst(place, game)
    for size in (1e-3, 0.1, 10.0):
        chosen = problem.extrapolated(penalty, place, size * rng.normal(size=problem.losses.shape))
        assert problem._worst(chosen, game)[1] <= here


def test_any_start_leads_to_the_same_value(shape, divergence):
    problem = a_problem(shape, divergence)
    cold = problem.penalised(0.05)
    far = problem.losses.at(5.0 * np.random.default_rng(0).normal(size=problem.losses.shape))
    for penalty in (math.inf, 1e-3):  # what the other saddle point was one of
        warm = problem.penalised(0.05, Saddle(far, PRIOR, math.inf, math.inf, penalty, 0))
        assert_allclose(warm.value, cold.value, rtol=1e-8)


@pytest.mark.parametrize("penalty", [1e-6, 1e-9])
def test_without_a_penalty_no_start_is_too_near(shape, penalty):
    """q is held near the last q by a second penalty; one that is too small for Newton's method must grow again."""
    problem = a_problem(shape, "l2")
    rng = np.random.default_rng(0)
    far = problem.losses.at(rng.normal(size=problem.losses.shape))
    found = problem.penalised(0.0, Saddle(far, rng.dirichlet(np.ones(5)), math.inf, math.inf, penalty, 0))
    assert found.gap <= problem._allowed(found.value)
    assert_allclose(found.value, problem.penalised(0.0).value, rtol=1e-8)


@pytest.mark.parametrize(
    "distance",
    [
        pytest.param(lambda s: 1.0 / (1.0 + s**2), id="smooth"),
        pytest.param(lambda s: min(1.0, (1e-4 / s) ** 2), id="flat at first"),
        pytest.param(lambda s: 0.3 * (s < 10) + 0.7 * math.exp(-s), id="with a step"),
        pytest.param(lambda s: math.exp(-s), id="a thin tail"),
    ],
)
@pytest.mark.parametrize("target", [1e-6, 0.05, 0.6])
def test_the_search_closes_in_on_the_multiplier(distance, target):
    """From any start; D only has to fall as the multiplier grows."""
    search = _Search(1.0)
    for _ in range(200):
        search = search.after(distance(search.penalty) / target)
        if search.settled:
            break
    assert search.low > 0
    assert search.high <= search.low * (1 + 1e-9)
    assert distance(search.low) >= target >= distance(search.high)


def test_the_search_gives_up_where_even_zero_stays_inside():
    search = _Search(1.0)
    for _ in range(12):
        search = search.after(0.2)
    assert search.low == 0
    assert search.penalty < 1e-12
