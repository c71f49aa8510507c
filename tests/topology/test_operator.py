"""The diffusion operator: its spectrum, and dense kernels that are nearly empty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from toporo.topology.kernel import dense_kernel
from toporo.topology.operator import DiffusionOperator


@settings(deadline=None, max_examples=40)
@given(hnp.arrays(float, (6, 6), elements=st.floats(0, 1)), hnp.arrays(np.int64, 6, elements=st.integers(1, 9)))
def test_the_spectrum_lies_within_one(values: np.ndarray, counts: np.ndarray) -> None:
    found = DiffusionOperator.from_kernel(values + values.T + 1e-3 * np.eye(6), counts.astype(float))
    spectrum = np.linalg.eigvalsh(found.symmetric)
    assert spectrum.min() >= -1 - 1e-12
    assert spectrum.max() == pytest.approx(1.0, abs=1e-12)  # constants stay


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_dense_and_sparse_kernels_give_the_same_walk_without_denormal_numbers(form: type) -> None:
    kernel = dense_kernel(np.arange(60.0)[:, None], 0.5)
    row_sums = kernel.sum(axis=1)
    scaled = kernel / row_sums[:, None] / row_sums[None, :]
    walk = scaled / scaled.sum(axis=1, keepdims=True)
    found = DiffusionOperator.from_kernel(form(kernel), np.ones(60))
    symmetric = found.symmetric.toarray() if found.is_sparse else found.symmetric
    np.testing.assert_allclose(symmetric, found.enter[:, None] * walk / found.enter, rtol=1e-12, atol=1e-25)
    assert found.is_sparse or symmetric[symmetric > 0].min() > 1e-30


def test_pieces_are_those_that_no_entry_joins() -> None:
    kernel = np.kron(np.eye(2), np.ones((2, 2)))
    assert DiffusionOperator.from_kernel(kernel, np.ones(4)).pieces.tolist() == [0, 0, 1, 1]
    assert DiffusionOperator.from_kernel(np.ones((4, 4)), np.ones(4)).pieces.tolist() == [0, 0, 0, 0]
