"""The engines: each filter to the last digits against plain numpy, the same bytes on any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.spatial.distance import cdist

from toporo.errors import SettingError, UnknownNameError
from toporo.topology import choose_engine
from toporo.topology.choose_engine import check_device, choose_device, make_engine
from toporo.topology.operator import DiffusionOperator

from .engines import ON_CPU, make, needs_cuda, needs_numba

#: Name of an engine, and whether its operator is sparse.
KINDS = [
    pytest.param("scipy", True, id="scipy sparse"),
    pytest.param("scipy", False, id="scipy dense"),
    pytest.param("torch", True, id="torch sparse"),
    pytest.param("torch", False, id="torch dense"),
    pytest.param("numba", True, id="numba", marks=needs_numba),
    pytest.param("cuda", True, id="cuda sparse", marks=needs_cuda),
    pytest.param("cuda", False, id="cuda dense", marks=needs_cuda),
    pytest.param("triton", True, id="triton", marks=needs_cuda),
]


def make_operator(n: int, as_sparse: bool = True, seed: int = 0, reach: int = 6) -> DiffusionOperator:
    """Points on a ring with random affinities to the next few and some far ones, each standing for one to three."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(n), reach)
    columns = (rows + rng.integers(0, min(n, 40), len(rows))) % n
    values = sparse.coo_array((rng.random(len(rows)), (rows, columns)), shape=(n, n)).tocsr()
    kernel = values + values.T + 0.1 * sparse.eye_array(n)
    weights = rng.integers(1, 4, n).astype(float)
    return DiffusionOperator.from_kernel(sparse.csr_array(kernel) if as_sparse else kernel.toarray(), weights)


def make_measures(n: int, columns: int, seed: int = 0) -> sparse.csc_array:
    """A few weighted points a column; the first column holds them all."""
    rng = np.random.default_rng(seed)
    values = rng.random((n, columns)) * (rng.random((n, columns)) < 0.3)
    values[:, 0] = rng.random(n)
    return sparse.csc_array(values)


def make_rows(lengths: list[int], seed: int = 0) -> list[np.ndarray]:
    """Coefficients of these lengths; like those of dyadic powers, zero at odd orders above 1."""
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=length) for length in lengths]
    for row in rows:
        row[3::2] = 0.0
    return rows


def reference(operator: DiffusionOperator, measures: sparse.csc_array, rows: list[np.ndarray]) -> np.ndarray:
    """The fields by numpy: all T_j first, then their sums."""
    matrix = operator.symmetric.toarray() if operator.is_sparse else operator.symmetric
    terms = [operator.enter[:, None] * measures.toarray()]
    terms.append(matrix @ terms[0])
    while len(terms) < max(len(row) for row in rows):
        terms.append(2.0 * matrix @ terms[-1] - terms[-2])
    return np.array([sum(c * term for c, term in zip(row, terms, strict=False)) for row in rows])


def plain(fields: Any) -> np.ndarray:
    """An engine's block of fields as numpy's array (filters, points, columns)."""
    return np.asarray(fields.cpu() if isinstance(fields, torch.Tensor) else fields)


def nothing() -> None:
    """No progress to show."""


# ---------------------------------------------------------------------- fields


@pytest.mark.parametrize("columns", [1, 3, 8, 9, 20, 56])
@pytest.mark.parametrize(("name", "as_sparse"), KINDS)
def test_fields_are_those_of_numpy_at_any_width(name: str, as_sparse: bool, columns: int) -> None:
    operator, measures = make_operator(130, as_sparse), make_measures(130, columns)
    rows = make_rows([4, 1, 13, 8])
    found = plain(make(name, operator).fields(measures, rows, nothing))
    assert found.shape == (4, 130, columns)
    np.testing.assert_allclose(found, reference(operator, measures, rows), rtol=0, atol=1e-13)


@pytest.mark.parametrize("length", range(1, 14))
@pytest.mark.parametrize(("name", "as_sparse"), KINDS)
def test_one_filter_of_any_order(name: str, as_sparse: bool, length: int) -> None:
    """The fused engine adds terms in pairs; each way for the series to end is another case."""
    operator, measures, rows = make_operator(50, as_sparse), make_measures(50, 3), make_rows([length])
    found = make(name, operator).fields(measures, rows, nothing)
    np.testing.assert_allclose(plain(found), reference(operator, measures, rows), rtol=0, atol=1e-13)


# ---------------------------------------------------------------------- distances


@pytest.mark.parametrize("points", [1, 63, 64, 65, 129, 4095, 4096, 4099])
@pytest.mark.parametrize("name", ["scipy", "torch", pytest.param("numba", marks=needs_numba)])
def test_city_block_is_that_of_scipy_at_the_borders_of_chunks(name: str, points: int) -> None:
    """Tiles of 64 points, chunks of 4096: at, one before and some after."""
    operator = make_operator(points, reach=2)
    runner = make(name, operator)
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=(2, points, 5)), rng.normal(size=(2, points, 9))
    a, b = (torch.from_numpy(x) if name == "torch" else x for x in (left, right))
    for first, second, x, y in ((a, a, left, left), (a, b, left, right), (b, a, right, left)):
        expected = [
            cdist((operator.leave[:, None] * x[k]).T, (operator.leave[:, None] * y[k]).T, "cityblock") for k in range(2)
        ]
        np.testing.assert_allclose(runner.city_block(first, second), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("name", "as_sparse"), KINDS)
def test_a_block_with_itself_is_symmetric_with_a_zero_diagonal(name: str, as_sparse: bool) -> None:
    runner = make(name, make_operator(90, as_sparse))
    measures, rows = make_measures(90, 9), make_rows([3, 7])
    fields, again = runner.fields(measures, rows, nothing), runner.fields(measures, rows, nothing)
    same = runner.city_block(fields, fields)
    np.testing.assert_array_equal(same, same.transpose(0, 2, 1))
    np.testing.assert_array_equal(np.diagonal(same, axis1=1, axis2=2), 0.0)
    assert (same[:, ~np.eye(9, dtype=bool)] > 0).all()
    np.testing.assert_allclose(runner.city_block(fields, again), same, rtol=1e-13, atol=1e-14)


# ---------------------------------------------------------------------- threads


@pytest.mark.parametrize("name", ON_CPU)
@pytest.mark.parametrize("points", [4097, 9001])
def test_same_bytes_twice_and_on_one_thread_or_two(name: str, points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, measures, rows = make_operator(points), make_measures(points, 9), make_rows([9, 4])
    found = []
    for threads in (1, 1, 2, 2):
        if name == "numba":
            from toporo.topology import fused

            monkeypatch.setattr(fused, "ROWS_PER_THREAD", 100)
            monkeypatch.setattr(fused, "usable_threads", lambda threads=threads: threads)
        runner = make(name, operator)
        fields = runner.fields(measures, rows, nothing)
        found.append((plain(fields).tobytes(), runner.city_block(fields, fields).tobytes()))
    assert found[0] == found[1], "two runs on one thread differ"
    assert found[0] == found[2], "one thread and two differ"
    assert found[2] == found[3], "two runs on two threads differ"


# ---------------------------------------------------------------------- which engine, where


@pytest.mark.parametrize(
    ("as_sparse", "share", "modules", "expected"),
    [
        (True, 1.0, {"numba", "torch"}, "numba"),
        (True, 0.99, {"numba", "torch"}, "scipy"),
        (False, 1.0, {"numba", "torch"}, "scipy"),
        (True, 1.0, set(), "scipy"),
    ],
)
@needs_numba
def test_large_work_on_sparse_operators_is_compiled_if_numba_is_there(
    as_sparse: bool, share: float, modules: set[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose_engine, "installed", modules.__contains__)
    work = share * choose_engine.LARGE_WORK
    assert make_engine(make_operator(20, as_sparse), choose_device("cpu", work), work).name == expected


@pytest.mark.parametrize(
    ("gpus", "device", "expected"),
    [
        (0, "auto", "auto"),
        (0, torch.device("cpu"), "cpu"),
        (1, "cuda:0", "cuda:0"),
        (1, "cuda", "cuda"),
        (0, "cuda", r"device='cuda', but torch sees 0 GPU\(s\).*device='cpu'"),
        (1, "cuda:1", r"device='cuda:1', but torch sees 1 GPU\(s\)"),
        (1, "cuda:x", "device='cuda:x', but"),
        (1, "gpu", "unknown device 'gpu'.*auto, cpu, cuda"),
        (1, None, "unknown device"),
    ],
)
def test_devices(gpus: int, device: Any, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    if " " in expected:
        with pytest.raises((SettingError, UnknownNameError), match=expected):
            check_device(device)
    else:
        assert check_device(device) == expected


@pytest.mark.parametrize(
    ("available", "device", "share", "expected"),
    [
        (True, "auto", 1.0, "cuda"),
        (True, "auto", 0.99, "cpu"),
        (False, "auto", 1.0, "cpu"),
        (True, "cpu", 9.0, "cpu"),
        (True, "cuda:1", 0.0, "cuda:1"),
    ],
)
def test_a_gpu_is_chosen_for_large_work(
    available: bool, device: str, share: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    assert choose_device(device, share * choose_engine.LARGE_WORK) == expected
