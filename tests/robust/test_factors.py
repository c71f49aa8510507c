"""Factors of rows by group: views equal their definitions, and sums, maps and portions change no digit that counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.robust.cases import LAW
from toporo.groups import Groups
from toporo.robust.factors import GroupFactors


def make_rows(seed=0, n=200, d=3, k=2, m=6, offset=0.0):
    """Inputs, targets, groups of unlike sizes (one with a single row) and weights."""
    rng = np.random.default_rng(seed)
    group = np.minimum(rng.geometric(0.3, n) - 1, m - 2)
    group[n // 2] = m - 1
    return rng.normal(size=(n, d)) + offset, rng.normal(size=(n, k)), group, rng.uniform(0.5, 2.0, n)


def assert_same(one, other, rtol=1e-9):
    """Equal in all that does not depend on which root of a Gram matrix is kept."""
    assert one.groups == other.groups
    assert one.columns == other.columns
    for name in ("rows", "squares", "mass", "both_means"):
        assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol, atol=1e-12, err_msg=name)
    scale = np.abs(one.targets).max() ** 2
    assert_allclose(gram(one), gram(other), rtol=rtol, atol=1e-12 * scale)
    assert_allclose(cross(one), cross(other), rtol=rtol, atol=1e-12 * scale)
    assert_allclose(squares(one), squares(other), rtol=rtol, atol=1e-12 * scale)


def squares(factors):
    return factors.residual + (factors.targets**2).sum(axis=1)


def gram(factors):
    return factors.roots.transpose(0, 2, 1) @ factors.roots


def cross(factors):
    return factors.roots.transpose(0, 2, 1) @ factors.targets


@pytest.mark.parametrize("d", [1, 3, 30], ids=["narrow", "some", "more columns than rows in most groups"])
def test_views_are_their_definitions(d):
    x, y, group, weight = make_rows(d=d)
    factors = GroupFactors.from_rows(x, y, group, weight)
    for e in range(6):
        own, w = group == e, weight[group == e, None]
        design = np.column_stack([np.ones(own.sum()), x[own]])
        assert_allclose(gram(factors)[e], design.T @ (w * design), rtol=1e-9, atol=1e-12)
        assert_allclose(cross(factors)[e], design.T @ (w * y[own]), rtol=1e-9, atol=1e-12)
        fitted = design @ np.linalg.lstsq(np.sqrt(w) * design, np.sqrt(w) * y[own], rcond=None)[0]
        assert_allclose(factors.residual[e], (w * (y[own] - fitted) ** 2).sum(axis=0), atol=1e-10)
        assert_allclose(factors.means[e], np.average(x[own], axis=0, weights=weight[own]))
        assert_allclose(factors.mass[e], weight[own].sum())
        centred = design - np.append(0.0, factors.means[e])
        assert_allclose(
            factors.centred_roots[e].T @ factors.centred_roots[e], centred.T @ (w * centred), rtol=1e-9, atol=1e-12
        )
    both = np.column_stack([x, y])
    mean = np.average(both, axis=0, weights=weight)
    assert_allclose(factors.mean, mean, atol=1e-14)
    assert_allclose(factors.variance, np.average((both - mean) ** 2, axis=0, weights=weight))


@LAW
@given(seed=st.integers(0, 1000), cut=st.integers(1, 199), d=st.integers(1, 8))
def test_factors_of_two_sets_of_rows_add_up(seed, cut, d):
    x, y, group, weight = make_rows(seed, d=d)
    parts = [GroupFactors.from_rows(x[s], y[s], group[s], weight[s]) for s in (slice(cut), slice(cut, None))]
    assert_same(parts[0] + parts[1], GroupFactors.from_rows(x, y, group, weight))


def test_a_column_that_a_portion_lacks_is_zero_there():
    x, y, group, _ = make_rows(d=3)
    names = [f"group {e}" for e in range(6)]
    first, second = slice(120), slice(120, None)
    x[first, 2] = x[second, 0] = 0.0
    total = GroupFactors.from_portion(names, group[first], {"a": x[first, 0], "b": x[first, 1]}, y[first])
    total += GroupFactors.from_portion(names, group[second], {"c": x[second, 2], "b": x[second, 1]}, y[second])
    assert total.columns == ("a", "b", "c")
    whole = GroupFactors.from_rows(x, y, [names[e] for e in group])
    assert_allclose(gram(total), gram(whole), rtol=1e-9, atol=1e-12)
    assert total.groups == Groups(names)


def test_inputs_are_mapped_selected_and_scaled():
    x, y, group, weight = make_rows(d=4)
    factors, rng = GroupFactors.from_rows(x, y, group, weight), np.random.default_rng(1)
    for rows in (2, 4, 7):
        matrix = rng.normal(size=(rows, 4))
        assert_same(factors.mapped(range(rows), matrix), GroupFactors.from_rows(x @ matrix.T, y, group, weight))
    some = factors.select_columns([2, 0])
    assert some.columns == (2, 0)
    assert_allclose(gram(some), gram(GroupFactors.from_rows(x[:, [2, 0]], y, group, weight)), rtol=1e-9)
    center, scale = rng.normal(size=6), rng.uniform(0.5, 3.0, 6)
    both = (np.column_stack([x, y]) - center) / scale
    assert_same(factors.scaled(center, scale), GroupFactors.from_rows(both[:, :4], both[:, 4:], group, weight))


def test_rows_without_inputs_have_means_and_squares():
    _, y, group, weight = make_rows()
    factors = GroupFactors.from_rows(np.zeros((len(y), 0)), y, group, weight)
    assert factors.roots.shape == (6, 1, 1)
    mean = factors.both_means[group]
    assert_allclose(factors.residual.sum(axis=0), (weight[:, None] * (y - mean) ** 2).sum(axis=0))


@pytest.mark.parametrize("near", [1e-5, 1e-7])
def test_columns_that_nearly_repeat_each_other_keep_their_difference(near):
    """A Gram matrix squares the condition number: half of the digits, or all of them, would be gone."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=500), rng.normal(size=500)
    factors = GroupFactors.from_rows(np.column_stack([x, x + near * noise]), noise, np.zeros(500, int))
    inner = factors.roots[0, 1:, 1:]
    assert_allclose(abs(inner[1, 1]), near * np.linalg.norm(noise - noise.mean()), rtol=0.05)
    slopes = np.linalg.solve(inner, factors.targets[0, 1:])[:, 0]
    assert_allclose(slopes * near, [-1.0, 1.0], rtol=1e-6)


def test_far_from_the_origin_no_digits_are_lost():
    here, far = (GroupFactors.from_rows(*make_rows(offset=offset)) for offset in (0.0, 2.0**30))
    inner = [factors.roots[:, 1:, 1:] for factors in (here, far)]
    assert_allclose(*(part.transpose(0, 2, 1) @ part for part in inner), atol=1e-5)


def test_ridge_regressions_weigh_groups_and_not_rows():
    x, y, group, _ = make_rows(d=2)
    share = np.array([[0.5, 0.1, 0.1, 0.1, 0.1, 0.1], np.full(6, 1 / 6)])
    found = GroupFactors.from_rows(x, y, group).weighted_ridge(share, 0.3)
    design, penalty = np.column_stack([np.ones(200), x]), np.diag([0.0, 0.3, 0.3])
    for own, coef in zip(share, found, strict=True):
        w = (own / np.bincount(group))[group, None]
        assert_allclose(coef, np.linalg.solve(design.T @ (w * design) + penalty, design.T @ (w * y)), rtol=1e-9)
