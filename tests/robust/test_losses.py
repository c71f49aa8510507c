"""Group losses are the means they claim to be, their derivatives are right, and their certificate is never too good."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.robust.by_hand import KINDS, group_losses, least, random_rows
from toporo.groups import Groups
from toporo.robust import rows as module
from toporo.robust.logistic import LogisticLosses
from toporo.robust.losses import SquaredLosses


def prepared(rows, **settings):
    return (LogisticLosses if rows.logistic else SquaredLosses).from_arrays(rows.x, rows.y, rows.group, **settings)


def ridge_of(losses, ridge):
    """The ridge's second derivative: none for the intercept."""
    pull = np.full(losses.shape, 2.0 * ridge)
    if losses.intercept:
        pull[-1] = 0.0
    return pull


@pytest.fixture(params=KINDS)
def rows(request):
    return random_rows(3, request.param, n=60, d=3, m=4)


@pytest.fixture
def model(rows):
    """Losses and a random model for them."""
    losses = prepared(rows)
    return losses, np.random.default_rng(0).normal(size=losses.shape)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_are_means_over_the_rows_as_they_came(rows, intercept, weighted):
    """``coefficients`` turns a model of shifted rows into one of the rows themselves."""
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.1, 3, len(rows.x)) if weighted else None
    losses = prepared(rows, intercept=intercept, sample_weight=weight)
    theta = rng.normal(size=losses.shape)
    coef, constant = losses.coefficients(theta)
    assert_allclose(losses.at(theta).losses, group_losses(rows, coef, constant, weight), rtol=1e-12)
    assert coef.shape == (3, losses.shape[1])
    assert intercept or not constant.any()


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_are_the_same_as_few(monkeypatch, kind):
    """Rows are worked on in chunks; where a chunk ends must not matter."""
    rows = random_rows(1, kind, n=100, m=3)
    theta = np.random.default_rng(0).normal(size=prepared(rows).shape)
    q = np.array([0.2, 0.5, 0.3])
    few = prepared(rows)
    whole = few.at(theta)
    monkeypatch.setattr(module, "CHUNK", 7)
    monkeypatch.setattr(module, "cores", lambda: 2)
    many = prepared(rows)
    parts = many.at(theta)
    assert_allclose(parts.losses, whole.losses, rtol=1e-12)
    assert_allclose(parts.jacobian, whole.jacobian, rtol=1e-10, atol=1e-14)
    assert_allclose(many.hessian(theta, q), few.hessian(theta, q), rtol=1e-10, atol=1e-14)


def test_scores_of_any_size_stay_finite():
    for kind in ("binary", "softmax"):
        rows = random_rows(0, kind)
        losses = prepared(rows)
        for size in (1e3, 1e6):
            point = losses.at(size * np.random.default_rng(0).normal(size=losses.shape))
            assert np.isfinite(point.losses).all()
            assert np.isfinite(point.jacobian).all()
            assert np.isfinite(losses.hessian(point.theta, np.full(4, 0.25))).all()


# ---------------------------------------------------------------- derivatives


def test_derivatives_match_finite_differences(model):
    losses, theta = model
    q = np.array([0.1, 0.2, 0.3, 0.4])
    point = losses.at(theta)
    hessian = losses.hessian(theta, q)
    for column, index in enumerate(np.ndindex(*losses.shape)):
        step = np.zeros(losses.shape)
        step[index] = 1e-5
        up, down = losses.at(theta + step), losses.at(theta - step)
        assert_allclose(point.jacobian[:, column], (up.losses - down.losses) / 2e-5, rtol=1e-6, atol=1e-8)
        assert_allclose(hessian[:, column], q @ (up.jacobian - down.jacobian) / 2e-5, rtol=1e-6, atol=1e-8)


def test_a_squared_loss_is_never_negative():
    """Rounding would make some losses of an exact fit slightly negative."""
    x = np.random.default_rng(0).normal(size=(40, 2))
    losses = SquaredLosses.from_arrays(x, 1e4 * x @ [1.0, 2.0], np.arange(40) % 4)
    exact = losses.at(np.array([[1e4], [2e4], [0.0]]))
    assert (exact.losses >= 0).all()


# ---------------------------------------------------------------- suboptimality: the certificate's part


@pytest.mark.parametrize("ridge", [1e-3, 0.1])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_suboptimality_is_never_less_than_what_can_be_gained(rows, ridge, intercept, seed):
    """... by any model, under any weights. For squared errors it is exactly that."""
    rng = np.random.default_rng(seed)
    losses = prepared(rows, intercept=intercept)
    q, pull = rng.dirichlet(np.ones(4)), ridge_of(losses, ridge)
    point = losses.at(0.5 * rng.normal(size=losses.shape))
    gained = q @ point.losses + 0.5 * np.sum(pull * point.theta**2) - least(rows, q, ridge, intercept)
    found = losses.suboptimality(point, q, pull)
    assert found >= gained * (1 - 1e-9)
    if not rows.logistic:
        assert_allclose(found, gained, rtol=1e-9)


@pytest.mark.parametrize("kind", ["binary", "softmax"])
@pytest.mark.parametrize("constant", [-3.0, 10.0, 30.0, 200.0])
def test_suboptimality_sees_an_intercept_that_is_far_off(kind, constant):
    """If all probabilities are 0 or 1 there is no curvature to follow; the intercept must not pass for its best."""
    rows = random_rows(0, kind, m=3)
    mirrored = rows._replace(  # the mean of x is the same in every class: the gradient by the weights is zero
        x=np.vstack([rows.x, -rows.x]), y=np.tile(rows.y, 2), group=np.tile(rows.group, 2)
    )
    losses, q = prepared(mirrored), np.full(3, 1 / 3)
    theta = np.zeros(losses.shape)
    theta[-1, 0] = constant
    gained = q @ losses.at(theta).losses - least(mirrored, q, 0.1)
    assert losses.suboptimality(losses.at(theta), q, ridge_of(losses, 0.1)) >= gained * (1 - 1e-6)


def test_suboptimality_of_squared_errors_where_the_weights_leave_a_direction_free():
    """q on a group with fewer rows than features: the model is not unique, the least loss is."""
    rows = random_rows(0, n=40, d=6, m=2)._replace(group=np.repeat([0, 1], [4, 36]))
    losses, q = prepared(rows), np.array([1.0, 0.0])
    point = losses.at(np.random.default_rng(0).normal(size=losses.shape))
    assert_allclose(losses.suboptimality(point, q, ridge_of(losses, 0.0)), point.losses[0], rtol=1e-9)


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, bool, np.float16])
def test_small_types_neither_wrap_nor_round(dtype):
    """Sums of squares are formed in double precision: 200 squared is not 64."""
    x = np.random.default_rng(0).integers(0, 2 if dtype is bool else 120, (50, 2)).astype(dtype)
    y, group = x[:, 0], np.arange(50) % 2
    given = SquaredLosses.from_arrays(x, y, group)
    wide = SquaredLosses.from_arrays(x.astype(np.float64), y.astype(np.float64), group)
    assert_array_equal(given.gram, wide.gram)
    labels = np.arange(50) // 2 % 2
    assert_array_equal(
        LogisticLosses.from_arrays(x, labels, group).memory.inputs,
        LogisticLosses.from_arrays(x.astype(np.float64), labels, group).memory.inputs,
    )


# ---------------------------------------------------------------- some of the groups


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_selected_groups_lose_what_they_lost_among_all(rows, intercept, weighted):
    """The same model is worth the same: shifts are those of all rows, whoever is selected, in whatever order."""
    weight = np.random.default_rng(0).uniform(0.1, 3, len(rows.x)) if weighted else None
    losses = prepared(rows, intercept=intercept, sample_weight=weight)
    theta = np.random.default_rng(1).normal(size=losses.shape)
    some = losses.select([3, 1])
    assert some.groups == Groups([1, 3])
    whole, part = losses.at(theta), some.at(theta)
    assert_allclose(part.losses, whole.losses[[1, 3]], rtol=1e-13)
    assert_allclose(part.jacobian, whole.jacobian[[1, 3]], rtol=1e-12, atol=1e-14)
    hessian = losses.hessian(theta, np.array([0.0, 0.3, 0.0, 0.7]))
    assert_allclose(some.hessian(theta, np.array([0.3, 0.7])), hessian, rtol=1e-10, atol=1e-13)
    for of_part, of_whole in zip(some.coefficients(theta), losses.coefficients(theta), strict=True):
        assert_array_equal(of_part, of_whole)


def test_classes_stay_though_no_selected_group_has_them():
    """The columns of a model must mean the same in every fold."""
    rows = random_rows(0, "softmax", n=60, m=3)
    y = np.where(rows.group == 0, rows.y, np.minimum(rows.y, 1))
    losses = prepared(rows._replace(y=y)).select([1, 2])
    assert losses.classes == (0, 1, 2)
    assert losses.shape == (4, 3)
    assert set(losses.memory.classes) == {0, 1}
