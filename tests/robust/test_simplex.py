"""The simplex projection is the nearest point, batched, differentiable, on numpy and torch."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from tests.robust.cases import LAW, simplex_by_root_finding, vectors
from toporo.robust import project_simplex


@LAW
@given(values=vectors(), shift=st.floats(-100, 100))
def test_agrees_with_root_finding_and_ignores_a_common_shift(array, values, shift):
    projected = np.asarray(project_simplex(array(values)))
    assert (projected >= 0).all()
    assert_allclose(projected.sum(), 1, rtol=1e-13)
    assert_allclose(projected, simplex_by_root_finding(values), atol=1e-12)
    assert_allclose(np.asarray(project_simplex(array(values + shift))), projected, atol=1e-12)


@pytest.mark.parametrize(("dtype", "large"), [("float64", 1e20), ("float32", 1e10)])
@pytest.mark.parametrize("sign", [1, -1])
def test_stays_on_the_simplex_far_from_it(array, dtype, large, sign):
    """Beyond the precision's reach of 1 the answer is still a distribution: the vertex of the largest entry."""
    values = sign * np.array([3, 1, 2], dtype=dtype) * large
    assert_array_equal(np.asarray(project_simplex(array(values))), np.eye(3)[values.argmax()])


def test_a_batch_is_its_rows(array):
    values = np.random.default_rng(0).normal(size=(2, 3, 5))
    rows = [[np.asarray(project_simplex(array(row))) for row in block] for block in values]
    assert_array_equal(np.asarray(project_simplex(array(values))), rows)


def test_keeps_single_precision_and_its_input(array):
    values = array(np.array([0.9, 0.5, -1.0], dtype=np.float32))
    projected = project_simplex(values)
    assert type(projected) is type(values)
    assert projected.dtype == values.dtype
    assert_allclose(np.asarray(projected), [0.7, 0.3, 0.0], atol=1e-7)
    assert_array_equal(np.asarray(values), np.array([0.9, 0.5, -1.0], dtype=np.float32))


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0], ids=["all positive", "some zero", "a vertex"])
def test_derivative_matches_finite_differences(scale):
    values = scale * torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(project_simplex, values.requires_grad_())
