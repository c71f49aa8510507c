"""How well distances between groups follow the earth mover's distance along a manifold whose geometry is known.

Points lie on a Swiss roll, groups are arcs of it. The truth is the exact earth mover's distance with shortest paths on
the roll as ground cost; every method sees the points and the groups only.

Run it with: make bench
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from libraries.bench_diffusion_emd import diffusion_emd_peer, l1_distances
from libraries.bench_pot import pot
from reference import indicators_of, relative_differences, squaring_densities, weighted_l1
from report import timed
from scipy.sparse.csgraph import dijkstra
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr
from sklearn.neighbors import kneighbors_graph
from threadpoolctl import threadpool_limits

import toporo as tr
from toporo.topology.kernel import gaussian_kernel

POINTS = 2000
SEEDS = 4
Labels = np.ndarray


def swiss_roll(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points spread evenly over a roll of three half turns, and their position along it, from 0 to 1.

    The curve is (t cos t, t sin t), t from 1.5 π to 4.5 π; its arc length is inverted, so that no part is denser.
    """
    t = np.linspace(1.5 * np.pi, 4.5 * np.pi, 10_000)
    length = (t * np.sqrt(1 + t**2) + np.arcsinh(t)) / 2
    along = rng.uniform(size=count)
    angle = np.interp(length[0] + along * (length[-1] - length[0]), length, t)
    return np.c_[angle * np.cos(angle), 21 * rng.uniform(size=count), angle * np.sin(angle)], along


def even_arcs(along: np.ndarray, rng: np.random.Generator) -> Labels:
    """Ten arcs of one length; each reaches a quarter of a step into its neighbours' on either side."""
    centres = (np.arange(10) + 0.5) / 10
    return _into_arcs(along, centres, np.full(10, 0.15), rng)


def random_arcs(along: np.ndarray, rng: np.random.Generator) -> Labels:
    """Twenty arcs of 3 % to 30 % of the roll, anywhere: some apart, some across, some inside others."""
    lengths = np.exp(rng.uniform(np.log(0.03), np.log(0.3), size=20))
    return _into_arcs(along, rng.uniform(lengths / 2, 1 - lengths / 2), lengths, rng)


def _into_arcs(along: np.ndarray, centres: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> Labels:
    """Every point goes to one of the arcs that cover it, all equally likely; where none does, to the nearest one."""
    beyond = np.maximum(np.abs(along[:, None] - centres) - lengths / 2, 0.0)
    chosen = np.argmin(beyond + 1e-9 * rng.uniform(size=beyond.shape), axis=1)
    return np.unique(chosen, return_inverse=True)[1]


def geodesics(points: np.ndarray) -> np.ndarray:
    """Shortest paths between all points along the edges to their ten nearest neighbours."""
    edges = kneighbors_graph(points, 10, mode="distance")
    return np.asarray(dijkstra(edges.maximum(edges.T), directed=False))


def by_pairs(members: list[Any], distance: Callable[[Any, Any], float]) -> np.ndarray:
    return squareform([distance(a, b) for a, b in combinations(members, 2)])


def split(points: np.ndarray, labels: Labels) -> list[np.ndarray]:
    return [points[labels == code] for code in range(labels.max() + 1)]


def geodesic_emd(costs: np.ndarray, labels: Labels) -> np.ndarray:
    return by_pairs(split(np.arange(len(labels)), labels), lambda a, b: float(pot().emd2([], [], costs[np.ix_(a, b)])))


def euclidean_emd(points: np.ndarray, labels: Labels) -> np.ndarray:
    return by_pairs(split(points, labels), lambda a, b: float(pot().emd2([], [], pot().dist(a, b, "euclidean"))))


def sinkhorn(points: np.ndarray, labels: Labels) -> np.ndarray:
    def distance(a: np.ndarray, b: np.ndarray) -> float:
        costs = pot().dist(a, b, "euclidean")
        return float(pot().sinkhorn2([], [], costs, reg=0.05 * np.median(costs), warn=False))

    return by_pairs(split(points, labels), distance)


def sliced(points: np.ndarray, labels: Labels) -> np.ndarray:
    return by_pairs(
        split(points, labels),
        lambda a, b: float(pot().sliced_wasserstein_distance(a, b, n_projections=100, p=1, seed=0)),
    )


def mmd(points: np.ndarray, labels: Labels) -> np.ndarray:
    squares = pdist(points, "sqeuclidean")
    kernel = squareform(np.exp(-squares / (2 * np.median(squares))))
    np.fill_diagonal(kernel, 1.0)
    return np.sqrt(np.maximum(_quadratic(kernel, labels), 0.0))


def energy(points: np.ndarray, labels: Labels) -> np.ndarray:
    return _quadratic(-squareform(pdist(points)), labels)


def _quadratic(matrix: np.ndarray, labels: Labels) -> np.ndarray:
    """(a - b)' A (a - b) for the indicators a, b of all pairs of groups."""
    indicators = indicators_of(labels)
    means = indicators.T @ matrix @ indicators
    own = np.diag(means)
    return own[:, None] + own[None, :] - 2 * means


def centroids(points: np.ndarray, labels: Labels) -> np.ndarray:
    return squareform(pdist([group.mean(axis=0) for group in split(points, labels)]))


def toporo_emd(points: np.ndarray, labels: Labels, *, kernel: str) -> np.ndarray:
    return tr.diffusion_emd(points, labels, kernel=kernel).matrix


def peer_emd(points: np.ndarray, labels: Labels, *, order: int) -> np.ndarray:
    return l1_distances(diffusion_emd_peer(_kernel(points, "knn"), indicators_of(labels), order=order))


TRUTH = "exact EMD, shortest paths (the truth)"
SETTINGS = {"even arcs": even_arcs, "random arcs": random_arcs}
METHODS: dict[str, Callable[[np.ndarray, Labels], np.ndarray]] = {
    "toporo, kNN kernel": partial(toporo_emd, kernel="knn"),
    "toporo, dense kernel": partial(toporo_emd, kernel="dense"),
    "DiffusionEMD, order 32": partial(peer_emd, order=32),
    "DiffusionEMD, order 128": partial(peer_emd, order=128),
    "EMD, Euclidean (POT)": euclidean_emd,
    "Sinkhorn, Euclidean (POT)": sinkhorn,
    "sliced Wasserstein (POT)": sliced,
    "MMD": mmd,
    "energy distance": energy,
    "centroids": centroids,
}
#: The kernel of those that approximate a diffusion EMD, to compare them with its exact value.
KERNELS = {
    "toporo, kNN kernel": "knn",
    "toporo, dense kernel": "dense",
    "DiffusionEMD, order 32": "knn",
    "DiffusionEMD, order 128": "knn",
}
NOTES = f"""
Spearman's correlation with the truth over all pairs of groups, mean ± sd over {SEEDS} seeds; {POINTS} points on a Swiss
roll, evenly dense. Even arcs: 10 groups of one length, neighbours overlap. Random arcs: 20 groups of 3 % to 30 % of
the roll, anywhere on it. A point under several arcs belongs to one of them at random. CPU seconds, one thread, median
over the seeds, from the points to all distances, kernels and costs included.

The truth: 10 nearest neighbours, Dijkstra from every point, POT's `emd2`. toporo: its defaults but for the kernel.
DiffusionEMD 0.5: `DiffusionCheb` on toporo's kNN kernel, powers 2^0 … 2^10,
weights matched, then `pdist(…, "cityblock")`; 32 is its default order. Sinkhorn: regularisation 0.05 of the median
cost, POT's default
iterations and threshold. Sliced: 100 projections, p = 1. MMD: Gaussian kernel of the median distance. Last column: the
largest relative difference, over pairs, settings and seeds, from the exact diffusion EMD of the same kernel (dense
repeated squaring).
""".strip()


def bench_accuracy() -> list[str]:
    scores, seconds, off = defaultdict(list), defaultdict(list), defaultdict(list)
    paths_seconds = []
    with threadpool_limits(limits=1):
        points, along = swiss_roll(300, np.random.default_rng(0))
        for method in METHODS.values():  # warm up: imports and first calls
            method(points, even_arcs(along, np.random.default_rng(0)))
        for seed in range(SEEDS):
            rng = np.random.default_rng([seed, POINTS])
            points, along = swiss_roll(POINTS, rng)
            groups = {setting: draw(along, rng) for setting, draw in SETTINGS.items()}
            took, costs = timed(partial(geodesics, points))
            if not np.isfinite(costs).all():
                raise RuntimeError(f"seed {seed}: the neighbour graph is not connected, so there is no truth.")
            paths_seconds.append(took)
            exact = _exact(points, groups)
            for setting, labels in groups.items():
                took_emd, truth = timed(partial(geodesic_emd, costs, labels))
                seconds[TRUTH, setting].append(took + took_emd)
                pairs = np.triu_indices(len(truth), 1)
                for name, method in METHODS.items():
                    took_own, found = timed(partial(method, points, labels))
                    seconds[name, setting].append(took_own)
                    scores[name, setting].append(float(spearmanr(found[pairs], truth[pairs]).statistic))
                    if name in KERNELS:
                        off[name].append(relative_differences(found, exact[KERNELS[name], setting]).max())
    lines = ["| method |", "|---|"]
    for setting in SETTINGS:
        lines[0] += f" {setting}: Spearman | CPU (s) | faster than the truth |"
        lines[1] += "---|---|---|"
    lines = [lines[0] + " from exact diffusion EMD |", lines[1] + "---|"]
    for name in (TRUTH, *METHODS):
        line = f"| {name} |"
        for setting in SETTINGS:
            took = statistics.median(seconds[name, setting])
            if name == TRUTH:
                line += f" 1 | {took:.4f} | |"
                continue
            ranks = scores[name, setting]
            ratio = statistics.median(seconds[TRUTH, setting]) / took
            line += f" {statistics.mean(ranks):.3f} ± {statistics.stdev(ranks):.3f} | {took:.4f} | {_times(ratio)} |"
        lines.append(f"{line} {f'{max(off[name]):.1e}' if name in KERNELS else ''} |")
    own, truth_took = (statistics.median(seconds[name, "even arcs"]) for name in ("toporo, kNN kernel", TRUTH))
    paths = statistics.median(paths_seconds)
    return [
        *lines,
        "",
        f"Of the truth's {truth_took:.2f} s at 10 groups, shortest paths take {paths:.2f} s and the transport problems "
        f"{truth_took - paths:.2f} s; toporo with the kNN kernel takes {own:.3f} s, {truth_took / own:.0f} times less.",
        "",
        NOTES,
    ]


def _exact(points: np.ndarray, groups: dict[str, Labels]) -> dict[tuple[str, str], np.ndarray]:
    """The diffusion EMD by definition for both kernels; the powers are taken once for all settings."""
    indicators = {setting: indicators_of(labels) for setting, labels in groups.items()}
    cuts = np.cumsum([part.shape[1] for part in indicators.values()])[:-1]
    exact = {}
    for title in ("knn", "dense"):
        stacked = squaring_densities(_kernel(points, title), np.hstack(list(indicators.values())))
        parts = [np.split(density, cuts, axis=1) for density in stacked]
        for i, setting in enumerate(indicators):
            exact[title, setting] = weighted_l1([part[i] for part in parts])
    return exact


def _kernel(points: np.ndarray, kind: str) -> Any:
    return gaussian_kernel(points, kind, "knn", 15)[0]


def _times(ratio: float) -> str:
    return f"{ratio:.0f}×" if ratio >= 9.5 else f"{ratio:.1f}×"
