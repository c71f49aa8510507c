"""The grid: neighbours of brute force to the last bit, ties by index, in any cloud and in blocks of any size."""

from __future__ import annotations

import platform
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toporo.topology import grid
from toporo.topology.grid import Cells, interleave, nearest_in_cells
from toporo.topology.neighbors import nearest

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine has none"),
    ),
]


def brute_force(points: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest by squared distance, then by index; squares added up from the first coordinate on."""
    squares = np.zeros((len(points), len(points)))
    for axis in points.T:
        difference = axis - axis[:, None]
        squares += difference * difference
    np.fill_diagonal(squares, np.inf)
    order = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return np.sqrt(np.take_along_axis(squares, order, axis=1)), order


def normal(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def lattice(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, size=(n, d)).astype(np.float64)


def coincident(n: int, d: int, seed: int) -> np.ndarray:
    return np.full((n, d), 0.1 + seed)


def outlier(n: int, d: int, seed: int) -> np.ndarray:
    points = normal(n, d, seed)
    points[seed % n] = 1e12
    return points


def many_scales(n: int, d: int, seed: int) -> np.ndarray:
    return normal(n, d, seed) * 10.0 ** np.random.default_rng(seed).integers(-8, 8, size=(n, 1))


def flat(n: int, d: int, seed: int) -> np.ndarray:
    points = normal(n, d, seed)
    points[:, 0] = 7.0
    return points


def piles(n: int, d: int, seed: int) -> np.ndarray:
    """A few places with very many points each, and some around them."""
    rng = np.random.default_rng(seed)
    points = normal(3, d, seed)[rng.integers(0, 3, size=n)]
    points[: n // 4] += 1e-9 * rng.normal(size=(n // 4, d))
    return points


def single_precision(n: int, d: int, seed: int) -> np.ndarray:
    return normal(n, d, seed).astype(np.float32).astype(np.float64)


def underflowing(n: int, d: int, seed: int) -> np.ndarray:
    """Squares of most differences are no numbers, beside one coordinate that keeps the cloud from being scaled."""
    points = 1e-200 * normal(n, d, seed)
    points[0] = 1.0
    return points


CLOUDS = [normal, lattice, coincident, outlier, many_scales, flat, piles, single_precision, underflowing]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cloud", CLOUDS)
@settings(deadline=None, max_examples=12)
@given(st.integers(2, 150), st.integers(1, 6), st.integers(1, 25), st.integers(0, 999), st.sampled_from([12, 16, 24]))
def test_neighbours_of_brute_force_to_the_last_bit(
    device: str, cloud: Callable[..., np.ndarray], n: int, d: int, k: int, seed: int, bits: int
) -> None:
    k = min(k, n - 1)
    points = cloud(n, d, seed)
    distances, indices, order = nearest_in_cells(torch.tensor(points, device=device), k, budget=1 << bits)
    expected, which = brute_force(points, k)
    np.testing.assert_array_equal(indices.cpu().numpy(), which)
    np.testing.assert_array_equal(distances.cpu().numpy(), expected)
    np.testing.assert_array_equal(np.sort(order.cpu().numpy()), np.arange(n))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6])
def test_the_tree_and_the_grid_agree(device: str, cloud: Callable[..., np.ndarray], d: int) -> None:
    """Of larger clouds, over many levels, ties included: the same indices, and the same distances."""
    points = cloud(300 if d == 6 else 900, d, d)
    tree, cells = nearest(points, 15, backend="kd-tree"), nearest(points, 15, backend="grid", device=device)
    np.testing.assert_array_equal(cells.indices, tree.indices)
    np.testing.assert_allclose(cells.distances, tree.distances, rtol=5e-16)
    if platform.machine() == "x86_64":  # elsewhere scipy may have been compiled with fused multiplications
        assert cells.distances.tobytes() == tree.distances.tobytes()
    assert cells.indices.dtype == tree.indices.dtype == np.int32


def test_all_others_are_neighbours() -> None:
    points = normal(40, 3, 0)
    distances, indices, _ = nearest_in_cells(torch.tensor(points), 39)
    np.testing.assert_array_equal(indices.numpy(), brute_force(points, 39)[1])
    assert distances.isfinite().all()


@pytest.mark.parametrize("cloud", [normal, lattice, piles])
def test_threads_and_blocks_do_not_change_a_byte(cloud: Callable[..., np.ndarray]) -> None:
    points = torch.tensor(cloud(1500, 3, 1))
    before, answers = torch.get_num_threads(), set()
    for threads, budget in [(1, 1 << 13), (1, 1 << 24), (2, 1 << 18), (3, 1 << 24)]:
        torch.set_num_threads(threads)
        answers.add(b"".join(part.numpy().tobytes() for part in nearest_in_cells(points, 9, budget)))
    torch.set_num_threads(before)
    assert len(answers) == 1


def test_a_budget_bounds_the_candidates_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """In all blocks but those of a single point."""
    held: list[tuple[int, int]] = []
    plain = Cells._squares

    def watched(self: Cells, rows: torch.Tensor, *ranges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spots, squares = plain(self, rows, *ranges)
        held.append((len(rows), squares.numel()))
        return spots, squares

    monkeypatch.setattr(Cells, "_squares", watched)
    budget = 1 << 17
    nearest_in_cells(torch.tensor(normal(2000, 3, 0)), 15, budget)
    assert max(size for rows, size in held if rows > 1) <= budget // grid.CANDIDATE_BYTES
    assert sum(rows for rows, _ in held) < 2 * 2000, "few have to look twice"
    assert sum(size for _, size in held) < 700 * 2000, "and at a small part of the cloud"


def test_outliers_and_duplicates_do_not_make_everyone_look_at_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    plain = Cells._squares

    def watched(self: Cells, rows: torch.Tensor, *ranges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spots, squares = plain(self, rows, *ranges)
        looked.append(squares.numel())
        return spots, squares

    monkeypatch.setattr(Cells, "_squares", watched)
    for cloud in (outlier, piles, coincident):
        looked.clear()
        nearest_in_cells(torch.tensor(cloud(4000, 3, 0)), 5)
        assert sum(looked) < 4000 * 4000 / 4, cloud.__name__


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_codes_interleave_bits(d: int) -> None:
    bits = min(30, 62 // d)
    corner = np.random.default_rng(d).integers(0, 2**bits, size=(50, d))
    expected = [
        sum(((int(c) >> b) & 1) << (b * d + j) for j, c in enumerate(row) for b in range(bits)) for row in corner
    ]
    assert interleave(torch.tensor(corner), bits).tolist() == expected
