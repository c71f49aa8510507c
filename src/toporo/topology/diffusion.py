r"""Diffusion Earth Mover's Distance between groups of points on a data graph.

From a symmetric kernel K over all points (Qiao & Peng 2023, Sec. 3.1; Tong et al. 2021):

.. math::
    Q = \mathrm{diag}(K 1),\quad M = Q^{-1} K Q^{-1},\quad D = \mathrm{diag}(M 1),\quad P = D^{-1} M,\quad
    \mu_e^{t} = P^{t}\, 1_{X_e} / n_e ,

.. math::
    W(e, e') = \sum_{k=0}^{K} \| T_k(e) - T_k(e') \|_1,\qquad
    T_k = 2^{-(K-k-1)\alpha} (\mu^{2^{k+1}} - \mu^{2^k})\ (k < K),\qquad T_K = \mu^{2^K} .

Coincident points are merged, and a kernel (:mod:`.kernel`, with :mod:`.neighbors`) is made a symmetric operator
(:mod:`.operator`) with groups on it (:mod:`.data_graph`). All filters :math:`T_k` come out of one Chebyshev recurrence
(:mod:`.chebyshev`) that an engine runs (:mod:`.engine`, :mod:`.fused`, :mod:`.torch_engine`, :mod:`.gpu`), for as many
groups as fit the memory (:mod:`.memory`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from toporo.checks import number, one_of, parse_memory, positive, whole
from toporo.errors import warn
from toporo.groups import GroupIds, Groups
from toporo.machine import one_thread
from toporo.progress import Progress
from toporo.topology.chebyshev import FINEST_TAIL, DyadicFilters, Schedule
from toporo.topology.choose_engine import check_device, choose_device, make_engine
from toporo.topology.data_graph import DataGraph
from toporo.topology.engine import Engine
from toporo.topology.kernel import Sigma, check_features
from toporo.topology.memory import Blocks, plan_blocks, usable_memory
from toporo.types import Array

#: The coarsest diffusion time is 2^scales; beyond this all has diffused, and more scales only take memory.
MOST_SCALES = 20
#: The smallest distance to expect; the first series is cut for it.
LIKELY_SMALLEST = 0.05
#: Rounding error of a distance by float64 arithmetic, per time step of the coarsest scale.
ROUNDING = 5e-17
#: Multiplications from which on a run shows its progress.
LOG_ABOVE = 2e10


@dataclass(frozen=True)
class GroupDistances:
    """Distances between groups, and how they were computed.

    Attributes
    ----------
    groups : the groups, in the order of the matrix.
    matrix : (m, m), symmetric, zero diagonal.
    error : bound on the absolute truncation error of an entry.
    settings : what was used: kernel, sigma, neighbours, scales, alpha, Chebyshev order, engine, device, memory, …
    """

    groups: Groups
    matrix: Array
    error: float
    settings: dict[str, Any]

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The groups, in the order of the matrix."""
        return self.groups.names

    def between(self, a: Hashable, b: Hashable) -> float:
        """Return the distance between two groups, by name."""
        i, j = self.groups.encode([a, b])
        return float(self.matrix[i, j])


@dataclass(frozen=True)
class Settings:
    """Settings of :func:`diffusion_emd`, which describes them."""

    kernel: str = "auto"
    neighbors: int = 15
    sigma: Sigma = "knn"
    scales: int = 10
    alpha: float = 0.5
    tol: float = 1e-6
    device: str = "auto"
    memory_limit: Any = None

    def __post_init__(self) -> None:
        checked = {
            "kernel": one_of(self.kernel, "kernel", ["auto", "dense", "knn"]),
            "neighbors": whole(self.neighbors, "neighbors", 1),
            "scales": whole(self.scales, "scales", 1, MOST_SCALES, " (the paper uses 10)"),
            "alpha": positive(self.alpha, "alpha", "a positive number (the paper uses 0.5)"),
            "tol": number(self.tol, "tol", "a relative accuracy between 0 and 1", above=0.0, below=1.0),
            "device": check_device(self.device),
            "memory_limit": parse_memory(self.memory_limit),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def diffusion_emd(features: Any, groups: Any, **settings: Any) -> GroupDistances:
    """Compute distances between all pairs of groups of points (the formula is at the head of this module).

    Parameters
    ----------
    features : (n, d) numbers, numpy or torch.
    groups : one group name per row, or :class:`~toporo.groups.GroupIds`.
    settings : any of

        - ``kernel``: ``"dense"``, ``"knn"``, or ``"auto"``, the default (dense up to 2000 points); see
          :mod:`toporo.topology.kernel`.
        - ``neighbors``: the number of nearest points, for the kNN kernel and for ``sigma="knn"``; 15.
        - ``sigma``: the width of the kernel, a positive number, ``"median"`` or ``"knn"``, the default.
        - ``scales``: K, the number of dyadic scales; the coarsest diffusion time is 2^K. 10 as in the paper.
        - ``alpha``: how strongly fine scales are damped, in (0, 1/2] for an equivalence with the geodesic EMD; 0.5.
        - ``tol``: relative accuracy of the distances; the recurrence is lengthened until its bound meets it. 1e-6.
        - ``device``: where the recurrence runs, ``"auto"`` (the default: a GPU if there is one and the work is large),
          ``"cpu"``, ``"cuda"``, ``"cuda:1"``, … The kernel is built on the CPU. There, large work on sparse kernels is
          compiled if numba is installed (extra ``fast``).
        - ``memory_limit``: bytes, or a text such as ``"4GiB"``, that the recurrence may hold; it takes the groups in
          portions that fit. What is free limits it too.

    Deterministic: the same input gives the same bytes, on one thread or several, and on a GPU with Triton. The order of
    the rows does not matter.

    >>> points = np.array([[0.0], [0.1], [1.0], [1.1], [3.0], [3.1]])
    >>> distances = diffusion_emd(points, ["a", "a", "b", "b", "c", "c"], sigma=1.0)
    >>> distances.groups.names, distances.matrix.round(2).tolist()[0]
    (('a', 'b', 'c'), [0.0, 0.06, 0.79])
    """
    return GroupDiffusion.prepare(features, groups, **settings).distances()


@dataclass(frozen=True)
class GroupDiffusion:
    """A data graph with groups on it, ready to give distances, also between reweighted groups.

    Attributes
    ----------
    graph : the data graph.
    filters : the dyadic filters.
    engine : what runs the recurrence.
    blocks : the groups and filters that go through it together.
    settings : the settings.
    """

    graph: DataGraph
    filters: DyadicFilters
    engine: Engine
    blocks: Blocks
    settings: Settings

    @classmethod
    def prepare(cls, features: Any, groups: Any, **settings: Any) -> GroupDiffusion:
        """Check everything, build the graph and choose an engine; the parameters are :func:`diffusion_emd`'s."""
        ids = groups if isinstance(groups, GroupIds) else Groups.of(groups)
        chosen = Settings(**settings)
        filters = DyadicFilters(chosen.scales, chosen.alpha)
        graph = DataGraph.from_points(check_features(features), ids, chosen.kernel, chosen.sigma, chosen.neighbors)
        operator = graph.operator
        rows, _ = filters.truncated(chosen.tol * LIKELY_SMALLEST / graph.spread(graph.measures()))
        work = _work(graph, rows)
        device = choose_device(chosen.device, work)
        memory = usable_memory(device, chosen.memory_limit)
        blocks = plan_blocks(len(operator), len(ids.groups), chosen.scales + 1, operator.size, memory)
        return cls(graph, filters, make_engine(operator, device, work), blocks, chosen)

    def distances(self, tol: float | None = None, row_weights: Array | None = None) -> GroupDistances:
        """Compute distances to a relative accuracy of ``tol``, with a longer series where the first falls short.

        ``row_weights`` gives each row a weight within its group, as a bootstrap does.
        """
        tol = self.settings.tol if tol is None else tol
        measures = self.graph.measures(row_weights)
        spread = self.graph.spread(measures)
        allowance = tol * LIKELY_SMALLEST / spread
        while True:
            rows, missing = self.filters.truncated(allowance)
            with one_thread(torch=self.engine.name == "torch"):  # several would change the order of sums
                matrix = self._run(measures, rows)
            error = spread * missing
            if _certified(matrix, error, tol) or allowance < FINEST_TAIL:
                break
            # Overlapping groups have small distances: what is relative to them needs a finer absolute tail.
            allowance = min(tol * _smallest(matrix) / spread, allowance / 10.0) / 2.0
        groups, operator = self.graph.ids.groups, self.graph.operator
        if not _certified(matrix, error + ROUNDING * 2**self.filters.scales, tol):
            smallest = _smallest(matrix)
            i, j = np.argwhere((matrix == smallest) & ~np.eye(len(matrix), dtype=bool))[0]
            warn(
                f"groups {groups.names[i]!r} and {groups.names[j]!r} can hardly be told apart (distance "
                f"{smallest:.1e}): float64 cannot certify the relative accuracy tol={tol:g} for them."
            )
        settings = {"scales": self.filters.scales, "alpha": self.filters.alpha, **self.graph.settings}
        settings |= {"points": len(self.graph.ids), "distinct_points": len(operator), "entries": operator.nonzeros}
        settings |= {"engine": self.engine.name, "device": self.engine.device, "pieces": self.graph.pieces}
        settings |= {"tol": float(tol), "order": max(map(len, rows)) - 1, "predicted_peak": self.blocks.peak}
        return GroupDistances(groups, matrix, error, settings)

    def _run(self, measures: sparse.csc_array, rows: list[Array]) -> Array:
        """Compute the distance matrix, for as many filters at a time as fit the memory."""
        m = len(self.graph.ids.groups)
        starts, width, together, _ = self.blocks
        portions = [slice(max(0, stop - together), stop) for stop in range(len(rows), 0, -together)]  # long with long
        products = len(starts) * sum(Schedule.of(rows[portion]).order for portion in portions)
        sums = np.zeros((len(rows), m, m))
        with Progress("diffusion EMD", products, None if _work(self.graph, rows) >= LOG_ABOVE else False) as bar:
            for portion in portions:
                fields = []
                for groups in (slice(start, start + width) for start in starts):
                    fields.append((groups, self.engine.fields(measures[:, groups], rows[portion], bar.step)))
                for position, (groups, block) in enumerate(fields):
                    for others, other_block in fields[position:]:
                        part = self.engine.city_block(block, other_block)
                        sums[portion, groups, others] = part
                        sums[portion, others, groups] = part.transpose(0, 2, 1)
                del fields, block, other_block  # before the next are made
        return np.asarray(sum(weight * part for weight, part in zip(self.filters.weights, sums, strict=True)))


def _work(graph: DataGraph, rows: list[Array]) -> float:
    """Return the multiplications of the recurrence."""
    return float(graph.operator.nonzeros) * len(graph.ids.groups) * max(map(len, rows))


def _certified(matrix: Array, error: float, tol: float) -> bool:
    """Return whether the error is within ``tol`` of the smallest *true* distance, which the error may have raised."""
    return error <= tol * (_smallest(matrix) - error)


def _smallest(matrix: Array) -> float:
    return float(matrix[np.triu_indices(len(matrix), 1)].min())
