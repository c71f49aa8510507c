"""The graph built on a device is the host's: points, entries, pieces and distances; and what does not fit is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from tests.topology.test_grid import DEVICES, lattice, many_scales, normal, piles
from toporo.errors import DataError, SettingError
from toporo.topology import build, diffusion, plan
from toporo.topology.build import on_device_pays
from toporo.topology.device import DeviceOperator, build_operator, distinct, symmetrised
from toporo.topology.diffusion import GroupDiffusion, diffusion_emd
from toporo.topology.engine import TorchEngine
from toporo.topology.operator import DiffusionOperator, DistinctPoints
from toporo.topology.plan import Plan, with_room


def two_clouds(n: int, d: int, seed: int) -> np.ndarray:
    points = normal(n, d, seed)
    points[: n // 3] += 60.0
    return points


def coarse(n: int, d: int, seed: int) -> np.ndarray:
    """Rounded: coincident points, and ties at most distances."""
    return normal(n, d, seed).round(1)


CLOUDS = [normal, coarse, two_clouds, many_scales]


def host_matrix(operator: DeviceOperator) -> sparse.csr_array:
    matrix = operator.symmetric.cpu()
    parts = matrix.values().numpy(), matrix.col_indices().numpy(), matrix.crow_indices().numpy()
    return sparse.csr_array(parts, shape=tuple(matrix.shape))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("budget", [1 << 14, 1 << 24])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_operator_is_the_hosts(cloud: Any, d: int, budget: int, device: str) -> None:
    """The same points are neighbours, ties included; entries agree up to the last bits of an exponential."""
    points = cloud(600, d, d)
    host, place, how = build.build(points, "knn", "knn", 7, "kd-tree", "cpu", on_device=False)
    built, here, told = build_operator(points, "knn", 7, device, budget)
    assert told["sigma_value"] == pytest.approx(how["sigma_value"], rel=1e-15)
    assert len(built) == len(host)
    assert built.nonzeros == host.nonzeros
    there = np.empty(len(host), dtype=np.intp)
    there[place] = here  # where the host's points are
    entries = host.symmetric.tocoo()
    rows, columns = (there[axis] for axis in entries.coords)
    expected = sparse.csr_array((entries.data, (rows, columns)), shape=host.symmetric.shape)
    expected.sort_indices()
    matrix = host_matrix(built)
    np.testing.assert_array_equal(matrix.indptr, expected.indptr)
    np.testing.assert_array_equal(matrix.indices, expected.indices)
    np.testing.assert_allclose(matrix.data, expected.data, rtol=1e-12)
    np.testing.assert_allclose(built.density[there], host.density, rtol=1e-13)
    np.testing.assert_array_equal(built.weights[there], host.weights)
    np.testing.assert_array_equal(np.bincount(built.pieces()), np.bincount(host.pieces()))
    if cloud is two_clouds:
        assert built.pieces().max() > 0


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_bytes_from_any_portions_and_threads(device: str) -> None:
    points, before = coarse(800, 3, 0), torch.get_num_threads()
    answers = set()
    for threads, budget in [(1, 1 << 14), (2, 1 << 24), (3, None)]:
        torch.set_num_threads(threads)
        built, place, _ = build_operator(points, "knn", 9, device, budget)
        matrix = host_matrix(built)
        answers.add(matrix.data.tobytes() + matrix.indices.tobytes() + place.tobytes() + built.pieces().tobytes())
    torch.set_num_threads(before)
    assert len(answers) == 1


@pytest.mark.parametrize("cloud", [lattice, piles, normal])
def test_distinct_points_are_the_hosts(cloud: Any) -> None:
    points = cloud(200, 3, 0)
    points[3] = -0.0 * np.abs(points[3])
    points[4] = 0.0
    expected = DistinctPoints.of(points)
    rows, place, counts = distinct(torch.tensor(points))
    np.testing.assert_array_equal(rows.numpy(), expected.points)
    np.testing.assert_array_equal(place.numpy(), expected.place)
    np.testing.assert_array_equal(counts.numpy(), expected.counts)


def test_a_relation_made_symmetric_by_hand() -> None:
    """0 → 1 → 2 → 1: the pair (0, 1) is one-sided; (2, 1) is worth nothing and is left out."""
    near, values = torch.tensor([[1], [2], [1]]), torch.tensor([[0.5], [0.0], [0.0]], dtype=torch.float64)
    indptr, columns, entries = symmetrised(near, values, 1)
    assert indptr.tolist() == [0, 2, 4, 5]
    assert columns.tolist() == [0, 1, 0, 1, 2]
    assert entries.tolist() == [1.0, 0.5, 0.5, 1.0, 1.0]


@pytest.fixture
def resident(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of a GPU on the CPU: the graph is built by torch and stays where it is."""
    monkeypatch.setattr(diffusion, "on_device_pays", lambda *_: True)


@pytest.mark.parametrize("cloud", CLOUDS[:3])
@pytest.mark.parametrize("sigma", ["knn", "median", 0.7])
@pytest.mark.filterwarnings("ignore:the data graph falls")
def test_distances_are_those_of_the_host(cloud: Any, sigma: Any, request: pytest.FixtureRequest) -> None:
    points, labels = cloud(500, 3, 1), np.arange(500) % 6
    settings: dict[str, Any] = {"kernel": "knn", "neighbors": 10, "scales": 6, "engine": "torch", "sigma": sigma}
    host = diffusion_emd(points, labels, **settings)
    request.getfixturevalue("resident")
    built = diffusion_emd(points, labels, **settings)
    np.testing.assert_allclose(built.matrix, host.matrix, rtol=1e-10)
    assert built.settings["search"] == "grid"
    changed = {"search", "sigma_value"}
    assert {k: v for k, v in built.settings.items() if k not in changed} == {
        k: v for k, v in host.settings.items() if k not in changed
    }


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine has none")
@pytest.mark.parametrize("cloud", CLOUDS[:2])
def test_on_a_gpu_from_features_to_distances(cloud: Any) -> None:
    points, labels = cloud(3000, 3, 1), np.arange(3000) % 6
    host, *there = (diffusion_emd(points, labels, kernel="knn", device=where) for where in ("cpu", "cuda", "cuda"))
    assert [found.settings["search"] for found in there] == ["grid", "grid"]
    np.testing.assert_allclose(there[0].matrix, host.matrix, rtol=1e-9)
    if there[0].settings["engine"] == "triton":
        assert there[0].matrix.tobytes() == there[1].matrix.tobytes()


@pytest.mark.usefixtures("resident")
def test_the_order_of_rows_does_not_matter() -> None:
    points, labels = coarse(400, 2, 0), np.arange(400) % 5
    shuffle = np.random.default_rng(0).permutation(400)
    settings: dict[str, Any] = {"kernel": "knn", "scales": 5, "engine": "torch"}
    first = diffusion_emd(points, labels, **settings)
    second = diffusion_emd(points[shuffle], labels[shuffle], **settings)
    np.testing.assert_allclose(second.matrix, first.matrix, rtol=1e-12)


@pytest.mark.usefixtures("resident")
def test_errors_are_those_of_the_host() -> None:
    with pytest.raises(DataError, match="all 30 points coincide"):
        diffusion_emd(np.ones((30, 2)), np.arange(30) % 2, kernel="knn")
    with pytest.raises(DataError, match=r"4 distinct points \(of 40\) cannot have 15 neighbours each.*neighbors=3"):
        diffusion_emd(np.tile(np.eye(4), (10, 1)), np.arange(40) % 2, kernel="knn")


# ---------------------------------------------------------------------- memory of a device


class PretendedGpu:
    """An engine that says it works on a GPU."""

    name, device = "torch", "cuda:0"

    def __init__(self, operator: DiffusionOperator) -> None:
        self._engine = TorchEngine(operator, "cpu")
        self.widths: list[int] = []

    def widest(self) -> int:
        return self._engine.widest()

    def fields(self, measures: sparse.csc_array, rows: Sequence[np.ndarray], tick: Any) -> torch.Tensor:
        self.widths.append(measures.shape[1])
        return self._engine.fields(measures, rows, tick)

    def city_block(self, a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
        return self._engine.city_block(a, b)


@pytest.mark.usefixtures("resident")
def test_groups_beyond_a_devices_memory_are_taken_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    n, m = 600, 70
    points, labels = normal(n, 3, 0), np.arange(n) % m
    prepared = GroupDiffusion.prepare(points, labels, kernel="knn", neighbors=8, scales=5, engine="torch")
    plans: list[Plan] = []
    plain = GroupDiffusion._plan
    monkeypatch.setattr(GroupDiffusion, "_plan", lambda self, rows: plans.append(plain(self, rows)) or plans[-1])
    matrices = []
    for free in (10**9, 2_000_000, 500_000, 8 * 8 * n * 4):
        monkeypatch.setattr(diffusion, "free_memory", lambda device, free=free: {"cuda:0": free}[device])
        gpu = PretendedGpu(prepared.operator)
        matrices.append(replace(prepared, engine=gpu).distances().matrix)
        assert plans[-1].peak <= free
        assert sum(gpu.widths) >= m
    assert [len(each.blocks) for each in plans] == sorted(len(each.blocks) for each in plans)
    assert len(plans[0].blocks) == 2
    assert len(plans[-1].blocks) == 9
    assert len(plans[-1].filters) > 1
    for matrix in matrices[1:]:
        np.testing.assert_allclose(matrix, matrices[0], rtol=1e-12)


def test_a_graph_that_does_not_fit_is_an_error_or_stays_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, _, _ = build.build(normal(300, 2, 0), "knn", "knn", 9, "auto", "cpu", on_device=False)
    needed = 12 * operator.nonzeros + 8 * 300 * 8 * 4
    monkeypatch.setattr(plan, "free_memory", lambda device: needed)
    assert with_room(operator, "cuda:0", insisted=True) == "cuda:0"
    monkeypatch.setattr(plan, "free_memory", lambda device: needed - 1)
    assert with_room(operator, "cpu", insisted=True) == "cpu"
    assert with_room(operator, "cuda:0", insisted=False) == "cpu"
    with pytest.raises(SettingError, match=r"cuda:0 has .* free, but the data graph of 300 points .* device='cpu'"):
        with_room(operator, "cuda:0", insisted=True)


def test_the_host_takes_over_where_a_device_is_too_small_after_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError

    points = normal(200, 2, 0)
    expected = build.build(points, "knn", "knn", 5, "auto", "cpu", on_device=False)
    monkeypatch.setattr(build, "build_operator", full)
    with caplog.at_level("INFO", "toporo"):
        built = build.build(points, "knn", "knn", 5, "auto", "cpu", on_device=True)
    np.testing.assert_array_equal(built[0].symmetric.data, expected[0].symmetric.data)
    assert "too little memory to build the data graph" in caplog.text


def test_when_the_graph_is_built_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "free_memory", lambda device: 10**11)

    def pays(
        n: int, d: int, device: str = "cuda", kernel: str = "knn", search: str = "auto", limit: Any = None
    ) -> bool:
        return on_device_pays((n, d), kernel, search, 15, device, limit)

    assert pays(10**7, 3)
    assert pays(10**7, 3, search="exact")
    assert pays(10**7, 6, search="grid")
    assert not pays(10**7, 3, device="cpu")
    assert not pays(10**7, 3, kernel="dense")
    assert not pays(10**7, 3, search="kd-tree")
    assert not pays(10**7, 7, search="grid"), "an error of its own follows"
    assert not pays(10**7, 6), "brute force is next"
    assert not pays(10**9, 3), "more than is free"
    assert not pays(10**7, 3, limit=10**9), "more than is allowed"
