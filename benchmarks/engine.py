"""How fast the diffusion-EMD engine is: against its peers, as data grow, and against what the memory can deliver.

Run it with ``make bench``, or a part of it with, say, ``make bench ONLY="geodesic peers"``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import torch
from accuracy import swiss_roll
from libraries.bench_diffusion_emd import fit_peer, l1_distances, match_weights, transform_peer
from libraries.bench_pot import pot
from reference import indicators_of
from report import in_process, timed
from scipy.sparse.csgraph import dijkstra
from sklearn.neighbors import NearestNeighbors, kneighbors_graph
from threadpoolctl import threadpool_limits

import toporo as tr
from toporo.topology.chebyshev import DyadicFilters
from toporo.topology.data_graph import DataGraph
from toporo.topology.diffusion import GroupDiffusion, Settings
from toporo.topology.fused import FusedEngine
from toporo.topology.kernel import gaussian_kernel
from toporo.topology.memory import plan_blocks
from toporo.topology.neighbors import TREE_DIMENSIONS, locality_order, nearest
from toporo.topology.operator import DiffusionOperator

GROUPS = 50
#: Have numba compile for a processor with AVX2 and no more. Tests and all benchmarks can be run under it.
AVX2 = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "+avx2,+fma"}
#: Have glibc keep the memory that a process frees, for that process.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}


def roll(n: int, m: int = GROUPS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A Swiss roll cut into m arcs."""
    points, along = swiss_roll(n, np.random.default_rng(seed))
    return points, np.argsort(np.argsort(along)) * m // n


def blobs(n: int, m: int = GROUPS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping Gaussian clouds in three dimensions, one per group."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % m
    return 2 * rng.normal(size=(m, 3))[labels] + rng.normal(size=(n, 3)), labels


def graph_of(points: np.ndarray, labels: np.ndarray) -> tuple[Any, np.ndarray]:
    """The kNN kernel of the points, ordered so that near ones are near each other, and their labels."""
    order = locality_order(points)
    return gaussian_kernel(points[order], "knn", "knn", 15)[0], labels[order]


def ours(kernel: Any, labels: np.ndarray, tol: float = 1e-6) -> tr.topology.GroupDistances:
    """From the kernel to the distances, by the fused engine."""
    operator, ids = DiffusionOperator.from_kernel(kernel.copy(), np.ones(len(labels))), tr.Groups.of(labels)
    blocks = plan_blocks(len(labels), len(ids.groups), 11, operator.size, None)
    graph = DataGraph(operator, ids, np.arange(len(labels)), {"kernel": "knn"})
    return GroupDiffusion(graph, DyadicFilters(10, 0.5), FusedEngine(operator), blocks, Settings(tol=tol)).distances()


def peer(kernel: Any, indicators: np.ndarray, order: int) -> np.ndarray:
    """DiffusionEMD from the kernel to the distances, its l1 by scipy as in its own examples."""
    fitted = fit_peer(kernel, order=order)
    return l1_distances(match_weights(transform_peer(fitted, indicators)))


def bench_peers() -> list[str]:
    head = [
        "| data | points | DiffusionEMD, 128 (s) | error | DiffusionEMD, 32 (s) | error | toporo, default (s) | error "
        "| ratio to 128 | toporo, matched (s) | error | ratio to 128 | ratio to 32 |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines = [
        f"The graph is given to both, {GROUPS} groups; single thread; CPU seconds from graph to distances, a process a",
        "row: the median of three for toporo, one run for the peer, which goes first. Errors are largest relative",
        "differences from toporo at `tol=1e-10`. `matched` is the loosest `tol` of 1e-6, 1e-5, … at which toporo is no",
        "less accurate than the peer at order 128.",
        "",
        *head,
    ]

    def add(title: str, n: int, about: str = "", **environment: str) -> None:
        command = [sys.executable, __file__, title, str(n)]
        done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True)
        lines.append(done.stdout.strip().replace(title, title + about, 1))
        print(lines[-1], flush=True)

    for title, n in (("roll", 2_000), ("roll", 20_000), ("blobs", 20_000), ("roll", 100_000), ("blobs", 100_000)):
        add(title, n)
    limits, keep = (" ".join(f"{key}={value}" for key, value in each.items()) for each in (AVX2, KEEP_MEMORY))
    lines += [
        "",
        "The same with the fused kernel limited to AVX2: a row is printed by",
        f"`{limits} python benchmarks/engine.py roll 20000`.",
        "Half of the peer's time goes into pages that it gives back to the system and asks for again at every step.",
        f"Where the C library keeps them (`{keep}`, which a process",
        "that freed a large array before may come near to), there is none of that; `memory kept` is the ratio of the",
        "arithmetic alone.",
        "",
        *head,
    ]
    for title in ("roll", "blobs"):
        add(title, 20_000, ", AVX2", **AVX2)
        add(title, 20_000, ", memory kept", **KEEP_MEMORY)
        add(title, 20_000, ", AVX2, memory kept", **AVX2, **KEEP_MEMORY)
    return lines


def peers_row(title: str, n: int) -> str:
    """One line of the table: toporo and its peer on the same graph, the peer first."""
    with threadpool_limits(1):
        points, labels = {"roll": roll, "blobs": blobs}[title](n)
        kernel, labels = graph_of(points, labels)
        indicators = indicators_of(labels)
        peer(kernel, indicators, 4)  # imports and warms up
        slow, slow_result = timed(partial(peer, kernel, indicators, 128), 1)
        fast, fast_result = timed(partial(peer, kernel, indicators, 32), 1)
        exact = ours(kernel, labels, tol=1e-10).matrix

        def off(distances: np.ndarray) -> float:
            return float((np.abs(distances - exact)[exact > 0] / exact[exact > 0]).max())

        default, result = timed(partial(ours, kernel, labels))
        matched, matched_off = default, off(result.matrix)
        for tol in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
            taken, looser = timed(partial(ours, kernel, labels, tol=tol))
            if off(looser.matrix) > off(slow_result):
                break
            matched, matched_off = taken, off(looser.matrix)
    return (
        f"| {title} | {n} | {slow:.2f} | {off(slow_result):.0e} | {fast:.2f} | {off(fast_result):.0e} | "
        f"{default:.3f} | {off(result.matrix):.0e} | **{slow / default:.1f}×** | {matched:.3f} | "
        f"{matched_off:.0e} | **{slow / matched:.1f}×** | {fast / default:.1f}× |"
    )


def bench_geodesic() -> list[str]:
    points, labels = roll(2000, 10)
    with threadpool_limits(1):
        edges = kneighbors_graph(points, 15, mode="distance")
        edges = edges.maximum(edges.T)
        kernel, ordered = graph_of(points, labels)
        members = [np.flatnonzero(labels == code) for code in range(10)]

        def exact() -> None:
            cost = dijkstra(edges, directed=False)
            for a in range(10):
                for b in range(a):
                    pot().emd2([], [], cost[np.ix_(members[a], members[b])])

        rounds = []
        for _ in range(7):  # both in every round, so that what else the machine does hits them alike
            rounds.append((timed(exact, 1)[0], timed(partial(ours, kernel, ordered), 5)[0]))
    lines = [
        "2000 points of a Swiss roll, 10 groups, the graph given to both: shortest paths (scipy) and all pairs of",
        "`emd2` (POT) against toporo; single thread, CPU seconds, medians of seven rounds.",
        "",
        "| all-pairs exact EMD, geodesic cost (s) | toporo (s) | ratio |",
        "|---|---|---|",
    ]
    truth, own = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(a / b for a, b in rounds)
    return [*lines, f"| {truth:.3f} | {own:.4f} | **{ratio:.0f}×** |"]


def bench_growth() -> list[str]:
    lines = [
        "CPU seconds from graph to distances, single thread, median of three; the exponent is the slope",
        "of the least-squares line through the logarithms; beside it, the slope between the two sizes where it is",
        "steepest.",
        "",
        "| data | varied | at | seconds | exponent | steepest step |",
        "|---|---|---|---|---|---|",
    ]

    def row(title: str, varied: str, sizes: list[int], seconds: list[float]) -> None:
        slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        steepest = (np.diff(np.log(seconds)) / np.diff(np.log(sizes))).max()
        shown = ", ".join(f"{size}" for size in sizes)
        times = ", ".join(f"{second:.2f}" for second in seconds)
        lines.append(f"| {title} | {varied} | {shown} | {times} | **{slope:.2f}** | {steepest:.2f} |")
        print(lines[-1], flush=True)

    with threadpool_limits(1):
        for title, make in (("roll", roll), ("blobs", blobs)):
            sizes, seconds = [10_000, 30_000, 100_000, 300_000], []
            for n in sizes:
                seconds.append(timed(partial(ours, *graph_of(*make(n))))[0])
            row(title, f"points, {GROUPS} groups", sizes, seconds)
        for n in (10_000, 100_000):
            sizes, seconds = [10, 20, 50, 100, 200], []
            for m in sizes:
                seconds.append(timed(partial(ours, *graph_of(*roll(n, m))))[0])
            row("roll", f"groups, {n} points", sizes, seconds)
    return lines


def _graph(points: np.ndarray) -> DataGraph:
    return DataGraph.from_points(points, tr.Groups.of(np.arange(len(points)) % GROUPS), "knn", "knn", 15)


def bench_neighbors() -> list[str]:
    lines = ["CPU seconds on one thread, 15 neighbours; clusters that vary in four directions or fewer. The peer is",
             "scikit-learn's `NearestNeighbors` as it comes. Graph: distinct points, neighbours, kernel, operator.", "",
             "| points | dimensions | search | seconds | scikit-learn (s) | ratio | graph (s) |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for n, d in ((100_000, 3), (1_000_000, 3), (20_000, 16)):
        rng = np.random.default_rng(0)
        basis = rng.normal(size=(4, d))
        centres = 3 * rng.normal(size=(GROUPS, d))
        points = centres[np.arange(n) % GROUPS] + rng.normal(size=(n, 4)) @ basis + 0.05 * rng.normal(size=(n, d))
        search = "k-d tree" if d <= TREE_DIMENSIONS else "brute force"
        with threadpool_limits(1):
            own, _ = timed(partial(nearest, points, 15), 1)
            peers, _ = timed(NearestNeighbors(n_neighbors=15).fit(points).kneighbors, 1)
            graph, _ = timed(partial(_graph, points), 1)
        lines.append(f"| {n} | {d} | {search} | {own:.2f} | {peers:.2f} | {peers / own:.1f}× | {graph:.1f} |")
        print(lines[-1], flush=True)
    return lines


LARGE = """
import json, sys, time
import numpy as np, toporo as tr
from toporo.machine import usable_threads

def peak():  # of this process image alone, unlike getrusage's, which a child inherits
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

n, m, limit = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(0)
labels = np.arange(n) % m
points = 2 * rng.normal(size=(m, 3))[labels] + rng.normal(size=(n, 3))
start, cpu = time.perf_counter(), time.process_time()
found = tr.diffusion_emd(points, labels, device="cpu", memory_limit=limit)
print(json.dumps({"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu, "peak": peak(),
                  "threads": usable_threads(), "predicted": found.settings["predicted_peak"]}))
"""


def bench_large() -> list[str]:
    lines = [
        "From raw features (three dimensions) to distances, in a process of its own, on the cores there are.",
        "",
        "| points | groups | memory_limit | threads | wall (s) | CPU (s) | predicted (GiB) | resident, peak (GiB) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for n, m, limit in ((1_000_000, 50, "3GiB"), (1_000_000, 50, "1500MiB"), (100_000, 500, "1GiB")):
        run = in_process(LARGE, n, m, limit)
        lines.append(
            f"| {n} | {m} | {limit} | {run['threads']} | {run['wall']:.0f} | {run['cpu']:.0f} | "
            f"{run['predicted'] / 2**30:.2f} | {run['peak'] / 2**30:.2f} |"
        )
        print(lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(peers_row(sys.argv[1], int(sys.argv[2])))
