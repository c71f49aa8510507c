"""Diffusion EMD: the Chebyshev route against plain repeated squaring, its error bound, its laws and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning, UnknownNameError
from toporo.groups import GroupIds, Groups
from toporo.topology import diffusion
from toporo.topology.affinity import dense_affinity, knn_affinity
from toporo.topology.diffusion import GroupDistances, diffusion_emd, dyadic_coefficients

quick = settings(deadline=None, max_examples=25)


def oracle(kernel: Any, labels: Any, scales: int = 10, alpha: float = 0.5) -> np.ndarray:
    """The distances straight from the definition: dense matrices, powers by repeated squaring, float64."""
    dense = kernel.toarray() if sparse.issparse(kernel) else np.asarray(kernel, dtype=float)
    q = dense.sum(axis=1)
    m = dense / q[:, None] / q[None, :]
    walk = m / m.sum(axis=1, keepdims=True)
    members = np.asarray(labels)[:, None] == np.unique(labels)[None, :]
    start = members / members.sum(axis=0)
    mu = []
    for _ in range(scales + 1):
        mu.append(walk @ start)
        walk = walk @ walk
    terms = [2.0 ** (-(scales - k - 1) * alpha) * (mu[k + 1] - mu[k]) for k in range(scales)] + [mu[scales]]
    return np.asarray(sum(cdist(term.T, term.T, "cityblock") for term in terms))


def clusters(groups: int = 4, size: int = 20, dimensions: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Groups of points along a line, next ones overlapping."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(groups), size)
    return rng.normal(size=(groups * size, dimensions)) + 1.5 * labels[:, None], labels


def assert_close(found: GroupDistances, expected: np.ndarray, relative: float = 1e-6) -> None:
    np.testing.assert_allclose(found.matrix, expected, rtol=relative, atol=0)


# ---------------------------------------------------------------------- against the definition


@pytest.mark.parametrize("alpha", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("scales", [1, 4, 10])
@pytest.mark.parametrize("kernel", ["dense", "knn"])
def test_agrees_with_repeated_squaring(kernel: str, scales: int, alpha: float) -> None:
    points, labels = clusters()
    build = dense_affinity if kernel == "dense" else knn_affinity
    found = diffusion_emd(points, labels, kernel=kernel, sigma=1.2, neighbors=6, scales=scales, alpha=alpha)
    assert_close(found, oracle(build(points, 1.2, neighbors=6), labels, scales, alpha))


@pytest.mark.parametrize("kernel", ["dense", "knn"])
@pytest.mark.parametrize("dimensions", [1, 12])
def test_agrees_for_groups_that_are_one_cloud(kernel: str, dimensions: int) -> None:
    points, labels = clusters(groups=1, size=90, dimensions=dimensions)
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(3), 30))
    build = dense_affinity if kernel == "dense" else knn_affinity
    found = diffusion_emd(points, labels, kernel=kernel, sigma=1.0, neighbors=8)
    assert_close(found, oracle(build(points, 1.0, neighbors=8), labels))


@pytest.mark.parametrize("shift", [1e-2, 1e-4, 1e-6])
def test_agrees_for_tiny_distances(shift: float) -> None:
    """Every point of one group beside its twin in the other: the absolute tail must follow the distance down."""
    points, _ = clusters(groups=1, size=30)
    twins = np.concatenate([points, points + shift])
    labels = np.repeat(["a", "b"], 30)
    found = diffusion_emd(twins, labels, kernel="dense", sigma=1.0)
    assert found.between("a", "b") < 10 * shift
    assert_close(found, oracle(dense_affinity(twins, 1.0), labels))


def test_two_points_by_hand() -> None:
    """P = [[1, c], [c, 1]] / (1 + c) has eigenvalue x = (1 - c) / (1 + c) on (1, -1): ||mu_a^t - mu_b^t|| = 2 x^t."""
    c, scales, alpha = 0.1, 6, 0.5
    x = (1 - c) / (1 + c)
    by_hand = 2 * x ** (2**scales) + sum(
        2.0 ** (-(scales - k - 1) * alpha) * 2 * (x ** (2**k) - x ** (2 ** (k + 1))) for k in range(scales)
    )
    found = diffusion_emd(None, ["a", "b"], affinity=[[1, c], [c, 1]], scales=scales, alpha=alpha)
    assert found.between("a", "b") == pytest.approx(by_hand, rel=1e-6)


@quick
@given(
    hnp.arrays(float, (7, 7), elements=st.floats(0, 1)), st.integers(1, 10), st.sampled_from([1e-1, 1e-3, 1e-5, 1e-7])
)
def test_the_error_bound_holds_and_meets_the_tolerance(values: np.ndarray, scales: int, tol: float) -> None:
    kernel = values + values.T + 0.01 * np.eye(7) + 1e-9  # connected, if barely
    labels = [0, 0, 0, 1, 1, 2, 2]
    expected = oracle(kernel, labels, scales)
    smallest = expected[np.triu_indices(3, 1)].min()
    assume(smallest > 1e-6)  # groups that cannot be told apart have a test of their own
    found = diffusion_emd(None, labels, affinity=kernel, scales=scales, tol=tol)
    assert found.error <= tol * smallest * (1 + 1e-9)
    assert np.abs(found.matrix - expected).max() <= found.error + 1e-13  # rounding of the oracle


def test_a_coarse_tolerance_really_truncates_within_its_bound() -> None:
    """The bound is tested where truncation, not rounding, makes the error."""
    points, labels = clusters()
    found = diffusion_emd(points, labels, sigma=0.3, tol=0.5)
    error = np.abs(found.matrix - oracle(dense_affinity(points, 0.3), labels)).max()
    assert 1e-11 < error <= found.error


def test_groups_that_cannot_be_told_apart_warn() -> None:
    points, _ = clusters(groups=1)
    with pytest.warns(TopoRoWarning, match="'a' and 'b' can hardly be told apart"):
        found = diffusion_emd(np.tile(points, (2, 1)), np.repeat(["a", "b"], len(points)), sigma=1.0)
    assert found.between("a", "b") < 1e-12


# ---------------------------------------------------------------------- Chebyshev coefficients


@pytest.mark.parametrize("tail", [1e-2, 1e-6, 1e-17])
@pytest.mark.parametrize("scales", [1, 5, 10])
def test_coefficients_reproduce_the_powers_to_the_tail(scales: int, tail: float) -> None:
    x = np.linspace(-1, 1, 301)
    coefficients = dyadic_coefficients(scales, tail)
    basis = np.cos(np.outer(np.arange(coefficients.shape[1]), np.arccos(x)))  # T_j(x) = cos(j arccos x)
    powers = np.array([x ** (2**k) for k in range(scales + 1)])
    assert np.abs(coefficients @ basis - powers).max() <= tail + 1e-13


@pytest.mark.parametrize(("tail", "columns"), [(1e-4, 125), (1e-6, 157)])
def test_ten_scales_take_125_or_157_columns(tail: float, columns: int) -> None:
    assert dyadic_coefficients(10, tail).shape == (11, columns)


def test_coefficients_are_exact_where_nothing_is_cut() -> None:
    """x = T_1, x^2 = (1 + T_2) / 2, x^4 = (3 + 4 T_2 + T_4) / 8."""
    expected = [[0, 1, 0, 0, 0], [1 / 2, 0, 1 / 2, 0, 0], [3 / 8, 0, 1 / 2, 0, 1 / 8]]
    np.testing.assert_allclose(dyadic_coefficients(2, 1e-9), expected, rtol=1e-14)


# ---------------------------------------------------------------------- laws


@quick
@given(st.integers(0, 999), st.integers(2, 6), st.sampled_from(["dense", "knn"]))
def test_is_a_metric(seed: int, groups: int, kernel: str) -> None:
    points, labels = clusters(groups, size=8, seed=seed)
    matrix = diffusion_emd(points, labels, kernel=kernel, neighbors=5, scales=5).matrix
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(matrix.diagonal(), 0.0)
    assert (matrix[~np.eye(groups, dtype=bool)] > 0).all()
    detours = (matrix[:, :, None] + matrix[None, :, :]).min(axis=1)
    assert (matrix <= detours * (1 + 1e-12)).all()


@quick
@given(st.integers(0, 999), st.sampled_from(["dense", "knn"]))
def test_the_order_of_the_points_does_not_matter(seed: int, kernel: str) -> None:
    points, labels = clusters(seed=seed, size=9)
    order = np.random.default_rng(seed).permutation(len(points))
    settings = {"kernel": kernel, "neighbors": 5, "scales": 6}
    shuffled = diffusion_emd(points[order], labels[order], **settings)
    assert_close(shuffled, diffusion_emd(points, labels, **settings).matrix, 1e-9)


@quick
@given(st.integers(0, 99), st.permutations(["x", 3, ("a", 1), "b"]))
def test_names_are_only_names(seed: int, names: list[Any]) -> None:
    """Renaming the groups, which also reorders them, renames the distances."""
    points, labels = clusters(seed=seed, size=9)
    by_number = diffusion_emd(points, labels, scales=6)
    by_name = diffusion_emd(points, [names[code] for code in labels], scales=6)
    for a in range(4):
        for b in range(4):
            assert by_name.between(names[a], names[b]) == pytest.approx(by_number.between(a, b), rel=1e-9)


def test_neighbouring_groups_are_nearer_than_distant_ones() -> None:
    points, labels = clusters(groups=4)
    matrix = diffusion_emd(points, labels, scales=4).matrix
    assert (np.diff(matrix[0]) > 0).all()


def test_given_kernels_dense_or_sparse_are_the_same_as_their_features() -> None:
    points, labels = clusters()
    kernel = knn_affinity(points, 1.0, neighbors=6)
    expected = diffusion_emd(points, labels, kernel="knn", sigma=1.0, neighbors=6).matrix
    for given_kernel in (
        kernel,
        kernel.tocoo(),
        sparse.csc_matrix(kernel),
        kernel.toarray(),
        kernel.toarray().tolist(),
    ):
        found = diffusion_emd(None, labels, affinity=given_kernel)
        assert found.settings["kernel"] == "given"
        assert_close(found, expected, 1e-10)


@pytest.mark.parametrize(
    "convert",
    [
        pytest.param(lambda x, g: (torch.tensor(x, requires_grad=True), g.tolist()), id="torch features"),
        pytest.param(lambda x, g: (x.tolist(), Groups.of(g)), id="lists and ids"),
        pytest.param(lambda x, g: (x, GroupIds(torch.tensor(g), Groups(g))), id="ids with torch codes"),
        pytest.param(lambda x, g: (x, torch.tensor(g)), id="torch labels"),
    ],
)
def test_labels_and_features_in_any_container(convert: Any) -> None:
    points, labels = clusters()
    expected = diffusion_emd(points, labels).matrix
    np.testing.assert_array_equal(diffusion_emd(*convert(points, labels)).matrix, expected)


# ---------------------------------------------------------------------- determinism and records


@pytest.mark.parametrize("kernel", ["dense", "knn"])
@pytest.mark.parametrize("dimensions", [3, 20])
def test_same_bytes_twice_and_on_one_thread_or_two(kernel: str, dimensions: int) -> None:
    points, labels = clusters(groups=7, size=80, dimensions=dimensions)
    found = []
    for threads in (1, 1, 2):
        with threadpool_limits(threads):
            found.append(diffusion_emd(points, labels, kernel=kernel, scales=4).matrix.tobytes())
    assert found[0] == found[1], "two runs on one thread differ"
    assert found[0] == found[2], "one thread and two differ"


def test_the_result_records_how_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    points, labels = clusters()
    dense = diffusion_emd(points, labels, sigma="median", scales=3, alpha=0.4, tol=1e-5)
    width = np.median(cdist(points, points)[np.triu_indices(len(points), 1)])
    assert dense.settings == {
        "kernel": "dense",
        "sigma": "median",
        "sigma_value": pytest.approx(width),
        "scales": 3,
        "alpha": 0.4,
        "tol": 1e-5,
        "order": 8,  # x^8 has degree 8, and nothing of it may be left out
        "points": len(points),
        "distinct_points": len(points),
        "entries": len(points) ** 2,
        "pieces": 1,
        "engine": "torch",
        "device": "cpu",
        "predicted_peak": 8 * 80**2 + 40 * 80 + 80 * 8 * 8 * (2 + 4),  # kernel, factors, two states and four filters
    }
    monkeypatch.setattr(diffusion, "DENSE_LIMIT", len(points) - 1)
    settings = diffusion_emd(points, labels, neighbors=9).settings
    assert (settings["kernel"], settings["neighbors"]) == ("knn", 9)


def test_between_is_by_name() -> None:
    distances = GroupDistances(Groups(["b", "a"]), np.array([[0, 2.0], [2.0, 0]]), 0.0, {})
    assert distances.names == ("a", "b")
    assert distances.between("b", "a") == 2.0
    with pytest.raises(GroupMismatchError, match="'c'"):
        distances.between("a", "c")


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"groups": ["a"] * 8}, DataError, "only one group, 'a': .* at least two"),
        ({"groups": list("aabb")}, DataError, "8 points but 4 group labels"),
        ({"groups": []}, DataError, "no groups given"),
        ({"features": None}, DataError, "neither features nor affinity given"),
        ({"features": [[0.0], [np.nan]] * 4}, DataError, r"NaN or infinite values in 4 of 8 rows \(first: row 1\)"),
        ({"features": None, "affinity": np.eye(7)}, DataError, "7 points but 8 group labels"),
        (
            {"features": None, "affinity": np.eye(8)[:7]},
            DataError,
            r"square matrix over all points; found shape \(7, 8\)",
        ),
        ({"kernel": "gauss"}, UnknownNameError, "unknown kernel 'gauss'.*auto, dense, knn"),
        ({"sigma": "mean"}, UnknownNameError, "unknown sigma 'mean'"),
        ({"neighbors": 8}, DataError, "8 points cannot have 8 neighbours"),
        ({"scales": 0}, SettingError, "scales is 0"),
        ({"scales": 2.5}, SettingError, "scales is 2.5"),
        ({"scales": np.nan}, SettingError, "scales is nan"),
        ({"alpha": 0}, SettingError, "alpha is 0"),
        ({"alpha": -0.5}, SettingError, "alpha is -0.5"),
        ({"alpha": np.nan}, SettingError, "alpha is nan"),
        ({"alpha": np.inf}, SettingError, "alpha is inf"),
        ({"tol": 0}, SettingError, "tol is 0"),
        ({"tol": 1}, SettingError, "tol is 1"),
        ({"tol": np.nan}, SettingError, "tol is nan"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_bad_input(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"features": np.arange(8.0), "groups": list("aaaabbbb"), "neighbors": 3} | changes
    with pytest.raises(error, match=message):
        diffusion_emd(arguments.pop("features"), arguments.pop("groups"), **arguments)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.coo_matrix], ids=["dense", "csr", "coo"])
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({(0, 1): -0.5, (1, 0): -0.5}, r"negative entries \(smallest: -0.5\)"),
        ({(0, 1): 0.5}, r"not symmetric \(largest difference: 0.5\)"),
        ({(0, 1): np.nan, (1, 0): np.nan}, "NaN or infinite"),
        ({(0, 1): np.inf, (1, 0): np.inf}, "NaN or infinite"),
        ({(2, 2): 0.0}, r"1 point\(s\) have no affinity to any point, themselves included \(first: 2\)"),
    ],
    ids=["negative", "asymmetric", "nan", "inf", "isolated"],
)
def test_bad_affinity(form: Any, entry: dict[tuple[int, int], float], message: str) -> None:
    kernel = np.eye(4)
    for at, value in entry.items():
        kernel[at] = value
    with pytest.raises(DataError, match=message):
        diffusion_emd(None, list("aabb"), affinity=form(kernel))


def test_a_group_without_points_is_named() -> None:
    with pytest.raises(DataError, match=r"group\(s\) without a single point: 'c'"):
        diffusion_emd(np.arange(4.0), GroupIds(np.array([0, 0, 1, 1]), Groups("abc")), sigma=1.0)
