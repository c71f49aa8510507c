"""The diffusion operator: merged points, the two frames, the order in memory, and what a kernel must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from toporo.errors import DataError
from toporo.topology.kernel import dense_affinity
from toporo.topology.operator import DiffusionOperator, check_kernel

quick = settings(deadline=None, max_examples=40)


def kernel(n: int = 12, seed: int = 0, density: float = 1.0) -> np.ndarray:
    """A random symmetric kernel with a positive diagonal."""
    rng = np.random.default_rng(seed)
    values = rng.random((n, n)) * (rng.random((n, n)) < density)
    return np.asarray((values + values.T) / 2 + 0.1 * np.eye(n))


def walk(dense: np.ndarray) -> np.ndarray:
    """The anisotropic walk P over all points, straight from the definition."""
    q = dense.sum(axis=1)
    m = dense / q[:, None] / q[None, :]
    return np.asarray(m / m.sum(axis=1, keepdims=True))


def dense_of(found: DiffusionOperator) -> np.ndarray:
    return found.symmetric.toarray() if found.is_sparse else found.symmetric


FORMS = [pytest.param(np.array, id="dense"), pytest.param(sparse.csr_array, id="csr")]


# ---------------------------------------------------------------------- the walk and its symmetric form


@quick
@given(hnp.arrays(float, (6, 6), elements=st.floats(0, 1)), hnp.arrays(np.int64, 6, elements=st.integers(1, 9)))
def test_the_spectrum_lies_within_one(values: np.ndarray, counts: np.ndarray) -> None:
    found = DiffusionOperator.from_kernel(values + values.T + 1e-3 * np.eye(6), counts.astype(float))
    spectrum = np.linalg.eigvalsh(dense_of(found))
    assert spectrum.min() >= -1 - 1e-12
    assert spectrum.max() == pytest.approx(1.0, abs=1e-12)  # constants stay


# ---------------------------------------------------------------------- pieces


def test_zeros_that_a_sparse_kernel_stores_join_nothing() -> None:
    stored = sparse.csr_array(np.kron(np.eye(2), np.ones((2, 2))) + 1.0)
    stored.data -= 1.0  # the entries are still there
    assert stored.nnz == 16
    assert DiffusionOperator.from_kernel(stored).pieces.tolist() == [0, 0, 1, 1]


# ---------------------------------------------------------------------- dense kernels that are nearly empty


def test_a_dense_kernel_with_little_left_becomes_sparse_and_acts_the_same() -> None:
    points = np.arange(60.0)[:, None]
    wide, narrow = dense_affinity(points, 40.0), dense_affinity(points, 0.5)
    assert not DiffusionOperator.from_kernel(wide).is_sparse
    found = DiffusionOperator.from_kernel(narrow)
    assert found.is_sparse
    assert 60 < found.nonzeros < 0.2 * 60**2
    moved = (found.enter[:, None] * walk(narrow)) / found.enter[None, :]
    np.testing.assert_allclose(found.symmetric.toarray(), moved, rtol=1e-12, atol=1e-25)


# ---------------------------------------------------------------------- what a kernel must be


@pytest.mark.parametrize("form", [np.array, sparse.csr_array, sparse.coo_array, sparse.csc_matrix, sparse.lil_array])
def test_the_callers_matrix_is_left_alone(form: Any) -> None:
    given_kernel = form(kernel(density=0.5))
    before = given_kernel.toarray().copy() if sparse.issparse(given_kernel) else given_kernel.copy()
    found = DiffusionOperator.from_kernel(given_kernel)
    after = given_kernel.toarray() if sparse.issparse(given_kernel) else given_kernel
    np.testing.assert_array_equal(after, before)
    assert np.abs(dense_of(found) - before).max() > 0.01  # it was scaled, in a copy


def test_entries_given_twice_in_csr_are_added_up_before_they_are_judged() -> None:
    """-1 + 2 is 1; and the caller's arrays stay."""
    twice = sparse.csr_array((np.array([-1.0, 2.0, 1.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    assert check_kernel(twice).toarray().tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert twice.data.tolist() == [-1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((3, 4)), r"square matrix over all points; found shape \(3, 4\)"),
        (np.zeros(3), r"found shape \(3,\)"),
        (np.zeros((2, 2, 2)), r"found shape \(2, 2, 2\)"),
        (sparse.csr_array((3, 4)), r"found shape \(3, 4\)"),
        (np.zeros((0, 0)), r"found shape \(0, 0\)"),
        (sparse.csr_array((0, 0)), r"found shape \(0, 0\)"),
        (np.array([["a", "b"], ["b", "a"]]), "must hold numbers; found <U1"),
        (np.array([[1, None], [None, 1]], dtype=object), "NaN or infinite|must hold numbers; found object"),
        (np.array([[1, {}], [{}, 1]], dtype=object), "must hold numbers; found object"),
        (np.array([[1, 1j], [1j, 1]]), "must hold numbers; found complex128"),
        ([[1, 2], [1]], "square matrix|must hold numbers"),
        ([[1, np.nan], [np.nan, 1]], "NaN or infinite"),
        ([[1, -2], [-2, 1]], r"negative entries \(smallest: -2\)"),
        ([[1, 2], [1, 1]], r"not symmetric \(largest difference: 1\)"),
    ],
    ids=[
        "not square", "one dimension", "three dimensions", "sparse not square", "nothing", "nothing, sparse", "text",
        "None", "objects", "complex", "ragged", "nan", "negative", "asymmetric",
    ],
)  # fmt: skip
def test_what_is_no_kernel(bad: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_kernel(bad)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("form", FORMS)
def test_symmetry_is_judged_by_the_size_of_the_entries(form: Any, unit: float) -> None:
    slightly, clearly = kernel(), kernel()
    slightly[0, 1] *= 1 + 1e-13
    clearly[0, 1] *= 1 + 1e-6
    check_kernel(form(unit * slightly))
    with pytest.raises(DataError, match="not symmetric"):
        check_kernel(form(unit * clearly))


@pytest.mark.parametrize("form", FORMS)
def test_asymmetry_among_small_entries_is_seen(form: Any) -> None:
    small = np.eye(4)
    small[:2, :2] = 1e-11 * np.array([[1, 9], [0, 1]])
    with pytest.raises(DataError, match="not symmetric"):
        check_kernel(form(small))


@pytest.mark.parametrize("form", FORMS)
def test_points_without_any_affinity_are_counted(form: Any) -> None:
    given_kernel = kernel()
    given_kernel[[3, 5]] = given_kernel[:, [3, 5]] = 0.0
    with pytest.raises(DataError, match=r"2 point\(s\) have no affinity to any point, .* \(first: 3\)"):
        check_kernel(form(given_kernel))
