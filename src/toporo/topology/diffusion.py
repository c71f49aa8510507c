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
from toporo.errors import DataError, SettingError, warn
from toporo.groups import GroupIds, Groups
from toporo.machine import one_thread
from toporo.progress import Progress, Report
from toporo.text import human
from toporo.topology.chebyshev import FINEST_TAIL, DyadicFilters, Schedule
from toporo.topology.choose_engine import ENGINES, check_device, choose_device, make_engine
from toporo.topology.data_graph import DataGraph, check_codes
from toporo.topology.engine import Engine
from toporo.topology.kernel import Sigma, check_features
from toporo.topology.memory import LIMIT, Blocks, free_memory, graph_bytes, least_bytes, operator_bytes, plan_blocks
from toporo.types import Array

#: Up to this many points ``kernel="auto"`` takes the dense kernel of the paper, beyond it the kNN kernel.
DENSE_LIMIT = 2000
#: The coarsest diffusion time is 2^scales; beyond this all has diffused, and more scales only take memory.
MOST_SCALES = 20
#: The smallest distance to expect; the first series is cut for it.
LIKELY_SMALLEST = 0.05
#: Rounding error of a distance by float64 arithmetic, per time step of the coarsest scale.
ROUNDING = 5e-17
#: Multiplications from which on a run shows its progress unasked.
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


def diffusion_emd(
    features: Any,
    groups: Any,
    *,
    affinity: Any = None,
    kernel: str = "auto",
    neighbors: int = 15,
    sigma: Sigma = "knn",
    scales: int = 10,
    alpha: float = 0.5,
    tol: float = 1e-6,
    device: str = "auto",
    engine: str = "auto",
    memory_limit: int | float | str | None = None,
    progress: bool | Report | None = None,
) -> GroupDistances:
    """Compute distances between all pairs of groups of points (the formula is at the head of this module).

    Parameters
    ----------
    features : (n, d) numbers, numpy or torch; may be None if ``affinity`` is given.
    groups : one group name per row, or :class:`~toporo.groups.GroupIds`.
    affinity : a ready symmetric, non-negative (n, n) kernel, dense or scipy-sparse. Features given beside it only
        serve to reorder a large one for locality.
    kernel : ``"dense"``, ``"knn"``, or ``"auto"`` (dense up to 2000 points).
    neighbors, sigma : of the kernel; see :mod:`toporo.topology.kernel`.
    scales : K, the number of dyadic scales; the coarsest diffusion time is 2^K.
    alpha : how strongly fine scales are damped, in (0, 1/2] for an equivalence with the geodesic EMD.
    tol : relative accuracy of the distances; the recurrence is lengthened until its bound meets it.
    device : where the recurrence runs: ``"auto"`` (a GPU if there is one and the work is large), ``"cpu"``,
        ``"cuda"``, ``"cuda:1"``, … The kernel is built on the CPU.
    engine : ``"scipy"`` (on the CPU), ``"numba"`` (compiled, on the CPU, extra ``fast``), ``"torch"``, ``"triton"``
        (compiled, on a GPU), ``"auto"``.
    memory_limit : bytes, or a text such as ``"4GiB"``, that this call may hold on top of what the process has; the work
        is done in portions that fit. Unless given, the limit is what is free.
    progress : True for a bar, a function ``(done, total)``, False for silence; None, for large runs, for a bar on a
        terminal and lines in the log ``toporo`` elsewhere.

    Deterministic: the same input gives the same bytes, on one thread or several, and on a GPU with ``engine="triton"``.
    The order of the rows does not matter.

    >>> points = np.array([[0.0], [0.1], [1.0], [1.1], [3.0], [3.1]])
    >>> distances = diffusion_emd(points, ["a", "a", "b", "b", "c", "c"], sigma=1.0)
    >>> distances.groups.names, distances.matrix.round(2).tolist()[0]
    (('a', 'b', 'c'), [0.0, 0.06, 0.79])
    """
    return GroupDiffusion.prepare(
        features, groups, affinity=affinity, kernel=kernel, neighbors=neighbors, sigma=sigma, scales=scales,
        alpha=alpha, tol=tol, device=device, engine=engine, memory_limit=memory_limit, progress=progress,
    ).distances()  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Settings of :func:`diffusion_emd`, which describes them; checked."""

    kernel: str = "auto"
    neighbors: int = 15
    sigma: Sigma = "knn"
    scales: int = 10
    alpha: float = 0.5
    tol: float = 1e-6
    device: str = "auto"
    engine: str = "auto"
    memory_limit: Any = None
    progress: bool | Report | None = None

    def __post_init__(self) -> None:
        checked = {
            "kernel": one_of(self.kernel, "kernel", ["auto", "dense", "knn"]),
            "neighbors": whole(self.neighbors, "neighbors", 1),
            "scales": whole(self.scales, "scales", 1, MOST_SCALES, " (the paper uses 10)"),
            "alpha": positive(self.alpha, "alpha", "a positive number (the paper uses 0.5)"),
            "tol": number(self.tol, "tol", "a relative accuracy between 0 and 1", above=0.0, below=1.0),
            "device": check_device(self.device),
            "engine": one_of(self.engine, "engine", ENGINES),
            "memory_limit": parse_memory(self.memory_limit),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


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
    def prepare(cls, features: Any, groups: Any, *, affinity: Any = None, **settings: Any) -> GroupDiffusion:
        """Check everything, build the graph and choose an engine; the parameters are :func:`diffusion_emd`'s."""
        ids = groups if isinstance(groups, GroupIds) else Groups.of(groups)
        chosen = Settings(**settings)
        filters = DyadicFilters(chosen.scales, chosen.alpha)
        kernel = chosen.kernel if chosen.kernel != "auto" else "dense" if len(ids) <= DENSE_LIMIT else "knn"
        if affinity is not None:
            graph = DataGraph.from_affinity(affinity, ids, features)
        elif features is not None:
            points = check_features(features)
            check_codes(len(points), ids)
            _check_memory(points, kernel, len(ids.groups), chosen)
            graph = DataGraph.from_points(points, ids, kernel, chosen.sigma, chosen.neighbors)
        else:
            raise DataError("neither features nor affinity given: pass one of them.")
        operator = graph.operator
        rows, _ = filters.truncated(chosen.tol * LIKELY_SMALLEST / graph.spread(graph.measures()))
        work = _work(graph, rows)
        size = len(operator), len(ids.groups), chosen.scales + 1
        fixed = operator_bytes(operator.nonzeros, len(operator), is_sparse=operator.is_sparse)
        device = choose_device(chosen.device, work, least_bytes(*size[:2], fixed))
        blocks = plan_blocks(*size, fixed, *_limit(chosen, device))
        engine = make_engine(chosen.engine, operator, device, work)
        graph.warn_of_pieces()
        graph.warn_of_giants()
        return cls(graph, filters, engine, blocks, chosen)

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
            if not np.isfinite(matrix).all():
                raise DataError(
                    "the distances overflow or underflow: the kernel's entries are too large or too small for float64. "
                    "Scale it, e.g. so that its largest entry is 1."
                )
            if _certified(matrix, error, tol) or allowance < FINEST_TAIL:
                break
            # Overlapping groups have small distances: what is relative to them needs a finer absolute tail.
            allowance = min(tol * _smallest(matrix) / spread, allowance / 10.0) / 2.0
        groups, operator = self.graph.ids.groups, self.graph.operator
        _warn_if_uncertified(groups, matrix, error, tol, self.filters.scales)
        settings = {"scales": self.filters.scales, "alpha": self.filters.alpha, **self.graph.settings}
        settings |= {"points": len(self.graph.ids), "distinct_points": len(operator), "entries": operator.nonzeros}
        settings |= {"engine": self.engine.name, "device": self.engine.device, "pieces": self.graph.pieces}
        settings |= {"tol": float(tol), "order": max(map(len, rows)) - 1, "predicted_peak": self.blocks.peak}
        return GroupDistances(groups, matrix, error, settings)

    def _run(self, measures: sparse.csc_array, rows: list[Array]) -> Array:
        """Compute the distance matrix, for as many filters at a time as fit the memory."""
        m = len(self.graph.ids.groups)
        starts, width, together, peak = self.blocks
        portions = [slice(max(0, stop - together), stop) for stop in range(len(rows), 0, -together)]  # long with long
        products = len(starts) * sum(Schedule.of(rows[portion]).order for portion in portions)
        sums = np.zeros((len(rows), m, m))
        large, progress = _work(self.graph, rows) >= LOG_ABOVE, self.settings.progress
        show = progress if large or callable(progress) else progress or False
        with Progress("diffusion EMD", products, show) as bar:
            if large:
                slow = self.engine.name == "scipy" and self.graph.operator.is_sparse
                bar.say(
                    f"diffusion EMD: {len(self.graph.operator)} points, {m} groups, {products} products on "
                    f"{self.engine.device} ({self.engine.name}); about {human(peak)} at the peak"
                    + ("; several times as fast with numba: pip install 'toporo[fast]'" if slow else "")
                )
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


def _limit(settings: Settings, device: str) -> tuple[int | None, str]:
    """Return the bytes to stay within, and where they are from; on a GPU what is free counts too."""
    given, free = settings.memory_limit, None
    if given is None or device != "cpu":
        free = free_memory(device)
    if free is None or (given is not None and given <= free):
        return given, LIMIT
    return free, "free memory" if device == "cpu" else f"free memory of {device}"


def _warn_if_uncertified(groups: Groups, matrix: Array, error: float, tol: float, scales: int) -> None:
    rounding = ROUNDING * 2**scales
    if not _certified(matrix, error + rounding, tol):
        smallest = _smallest(matrix)
        i, j = np.argwhere((matrix == smallest) & ~np.eye(len(matrix), dtype=bool))[0]
        why = (
            "can hardly be told apart"
            if smallest < 1e6 * rounding
            else "are as near as float64 can resolve at this tol"
        )
        warn(
            f"groups {groups.names[i]!r} and {groups.names[j]!r} {why} (distance {smallest:.1e}): "
            f"the relative accuracy tol={tol:g} is not certified for them."
        )


def _certified(matrix: Array, error: float, tol: float) -> bool:
    """Return whether the error is within ``tol`` of the smallest *true* distance, which the error may have raised."""
    return error <= tol * (_smallest(matrix) - error)


def _smallest(matrix: Array) -> float:
    return float(matrix[np.triu_indices(len(matrix), 1)].min())


def _check_memory(points: Array, kernel: str, groups: int, settings: Settings) -> None:
    """Raise an error for a limit that cannot be met, before the work starts."""
    limit, source = _limit(settings, "cpu")
    building, fixed = graph_bytes(len(points), points.shape[1], settings.neighbors if kernel == "knn" else None)
    if limit is not None and building > limit:
        instead = "fewer neighbours" if kernel == "knn" else "kernel='knn'"
        raise SettingError(
            f"{source} is {human(limit)}, but building the {kernel} kernel of {len(points)} points and {groups} groups "
            f"takes about {human(building)}. Raise the limit, use {instead}, or give fewer points."
        )
    plan_blocks(len(points), groups, settings.scales + 1, fixed, limit, source)
