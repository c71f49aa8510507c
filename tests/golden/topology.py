"""Golden parts of the topology: distances, cuts, centralities and priors."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import toporo as tr
from toporo.paper.tpt48 import SPLITS, border_graph
from toporo.topology import choose_engine
from toporo.topology.centrality import MEASURES, centrality
from toporo.topology.cuts import CUTS
from toporo.topology.diffusion import GroupDistances
from toporo.topology.learn import cut_graph

from .parts import part, patched

NAMES = tuple("abcdefgh")
ITERATED = "stops at a relative error of 1e-6, wherever rounding puts it"


@cache
def points() -> tuple[np.ndarray, list[str]]:
    """300 points of eight groups along an arc in three dimensions."""
    rng = np.random.default_rng(3)
    code = np.sort(rng.integers(0, len(NAMES), 300))
    angle = code / len(NAMES) * np.pi + 0.15 * rng.normal(size=300)
    x = np.stack([np.cos(angle), np.sin(angle), 0.2 * angle], axis=1) + 0.1 * rng.normal(size=(300, 3))
    return x, [NAMES[i] for i in code]


def distances(**settings: Any) -> GroupDistances:
    """Diffusion EMD between the eight groups."""
    return tr.diffusion_emd(*points(), device="cpu", **settings)


def by_pair(result: GroupDistances) -> dict[tuple[Any, Any], float]:
    """Distances by pair of names."""
    return {(a, b): result.between(a, b) for a, b in combinations(result.names, 2)}


@part("emd")
def emd(folder: Path) -> Any:
    """Dense and nearest-neighbour kernels in scipy, and other scales and widths."""
    return {
        "dense": by_pair(distances(kernel="dense")),
        "dense-median": by_pair(distances(kernel="dense", sigma="median", scales=5)),
        "knn": by_pair(distances(kernel="knn")),
        "knn-7": by_pair(distances(kernel="knn", neighbors=7, alpha=0.25, tol=1e-4)),
        "error": {kernel: distances(kernel=kernel).error for kernel in ("dense", "knn")},
    }


@part("emd-numba", modules=("numba",))
def emd_numba(folder: Path) -> Any:
    """The compiled kernel on nearest neighbours."""
    with patched(choose_engine, LARGE_WORK=0.0):
        result = distances(kernel="knn")
    return {"knn": by_pair(result), "error": result.error}


@part("cuts")
def cuts(folder: Path) -> Any:
    """Every cut, and a learned graph with its stability."""
    measured = distances()
    x, groups = points()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tr.TopoRoWarning)
        graphs = {name: cut_graph(measured, name, percentile=40.0) for name in sorted(CUTS)}
        learned = tr.learn_topology(x, groups, resamples=5, device="cpu")
    return {
        "edges": {name: graph.edges for name, graph in graphs.items()},
        "learned": learned.edges,
        "stability": learned.stability,
        "prior": learned.prior(NAMES).weights,
    }


def graphs() -> dict[str, tuple[tr.GroupGraph, tuple[Any, ...], tuple[Any, ...]]]:
    """Three graphs, each with training and test groups."""
    rng = np.random.default_rng(5)
    at = rng.random((30, 2))
    apart = np.linalg.norm(at[:, None] - at[None], axis=-1)
    near = {(int(i), int(j)): float(apart[i, j]) for i in range(30) for j in np.argsort(apart[i])[1:4]}
    random = tr.GroupGraph.from_edges([(f"n{i}", f"n{j}", length) for (i, j), length in near.items()])
    path = tr.GroupGraph.from_edges([("A", "X"), ("X", "B"), ("B", "C"), ("C", "D"), ("D", "Y")])
    split = SPLITS["east-west"]
    return {
        "path": (path, ("A", "B", "C", "D"), ("X", "Y")),
        "states": (border_graph(), split.train, split.test),
        "random": (random, tuple(f"n{i}" for i in range(20)), tuple(f"n{i}" for i in range(20, 30))),
    }


@part("centralities")
def centralities(folder: Path) -> Any:
    """Every measure, towards test groups."""
    result: dict[str, Any] = {}
    for name, (graph, train, test) in graphs().items():
        for measure in sorted(MEASURES):
            result[f"{name}-{measure}"] = centrality(graph, train, test, measure=measure)
        result[f"{name}-hops"] = graph.hops(test)
        result[f"{name}-components"] = [len(names) for names in graph.components()]
    return result


@part("centralities-among-training-groups")
def centralities_among(folder: Path) -> Any:
    """Every measure that is defined without test groups."""
    result = {}
    for name, (graph, train, _) in graphs().items():
        for measure in sorted(MEASURES):
            if measure != "harmonic":  # which walks from the test groups
                result[f"{name}-{measure}"] = centrality(graph, train, measure=measure)
    return result


def described(prior: tr.Prior) -> dict[str, Any]:
    """What a prior is compared by."""
    return {"weights": prior.weights, "effective_groups": prior.effective_groups, "saw": prior.saw}


@part("priors")
def priors(folder: Path) -> Any:
    """Priors by measure and normalisation, and what can be done with one."""
    result: dict[str, Any] = {}
    for name, (graph, train, test) in graphs().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tr.TopoRoWarning)
            made = {
                f"{measure}-{normalization}": graph.prior(
                    train, test, measure=measure, normalization=normalization, temperature=temperature
                )
                for measure in sorted(MEASURES)
                for normalization, temperature in (("softmax", 1.0), ("softmax", 50.0), ("sum", 1.0))
            }
        result[name] = {key: described(prior) for key, prior in made.items()}
        harmonic = made["harmonic-sum"]
        result[name] |= {
            "spread": harmonic.spread(0.5).weights,
            "within": harmonic.within(dict.fromkeys(train, 0.3)).weights,
            "shuffled": harmonic.shuffled(1).weights,
            "uniform": tr.Prior.uniform(train).weights,
        }
    return result


@part("default-prior")
def default_prior(folder: Path) -> Any:
    """The prior that is made when nothing but the groups is named."""
    result: dict[str, Any] = {}
    for name, (graph, train, test) in graphs().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tr.TopoRoWarning)
            made = {"test groups": graph.prior(train, test), "training groups alone": graph.prior(train)}
        result[name] = {key: described(prior) for key, prior in made.items()}
    return result
