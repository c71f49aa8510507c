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
(:mod:`.chebyshev`) that an engine runs (:mod:`.engine`, :mod:`.fused`, :mod:`.gpu`), for as many groups and filters as
fit the memory (:mod:`.plan`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from toporo.checks import as_number, parse_memory, whole
from toporo.errors import DataError, SettingError, UnknownNameError, warn
from toporo.groups import GroupIds, Groups
from toporo.machine import one_thread
from toporo.progress import Progress, Report
from toporo.text import human
from toporo.topology.chebyshev import FINEST_TAIL, DyadicFilters
from toporo.topology.choose_engine import ENGINES, LOG_ABOVE, choose_device, make_engine, with_room
from toporo.topology.data_graph import DataGraph, check_codes, choose_kernel
from toporo.topology.engine import Engine, TorchEngine
from toporo.topology.kernel import Sigma, check_features
from toporo.topology.plan import Plan, free_memory, graph_bytes, make_plan, operator_bytes
from toporo.types import Array

PointIndices: TypeAlias = npt.NDArray[np.intp]

#: The coarsest diffusion time is 2^scales; beyond this nothing is left to diffuse, only memory to fill.
MOST_SCALES = 20
#: The smallest distance to expect; the first series is cut for it.
LIKELY_SMALLEST = 0.05
#: What float64 arithmetic leaves uncertain in a distance, by time step of the coarsest scale.
ROUNDING = 5e-17


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
    engine : ``"numba"`` (fused, on the CPU, extra ``fast``), ``"triton"`` (fused, on a GPU), ``"torch"``, ``"auto"``.
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
        alpha=alpha, device=device, engine=engine, memory_limit=memory_limit, progress=progress, tol=tol,
    ).distances(tol)  # fmt: skip


@dataclass(frozen=True)
class GroupDiffusion:
    """A data graph with groups on it, ready to give distances, also between reweighted groups.

    Attributes
    ----------
    graph : the data graph.
    filters : the dyadic filters.
    engine : what runs the recurrence.
    limit : bytes to stay within, or None.
    settings : what the graph was made from, and how distances are computed.
    progress : as :func:`diffusion_emd` takes it.
    """

    graph: DataGraph
    filters: DyadicFilters
    engine: Engine
    limit: int | None
    settings: dict[str, Any]
    progress: bool | Report | None = field(default=None, compare=False)

    @classmethod
    def prepare(
        cls,
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
    ) -> GroupDiffusion:
        """Check everything, build the graph and choose an engine; the parameters are :func:`diffusion_emd`'s."""
        ids = groups if isinstance(groups, GroupIds) else Groups.of(groups)
        filters, tol = _check_filters(scales, alpha, tol)
        neighbors = whole(neighbors, "neighbors", 1)
        kernel = choose_kernel(kernel, len(ids))
        if engine not in ENGINES:
            raise UnknownNameError("engine", engine, ENGINES)
        choose_device(device, 0.0)  # one that is not there is an error before the work
        limit = parse_memory(memory_limit)
        if affinity is not None:
            graph = DataGraph.from_affinity(affinity, ids, features)
        elif features is not None:
            points = check_features(features)
            check_codes(len(points), ids)
            lengths = _orders(filters.truncated(tol * LIKELY_SMALLEST)[0])
            _check_memory(points.shape, kernel, len(ids.groups), neighbors, lengths, limit, progress)
            graph = DataGraph.from_points(points, ids, kernel, sigma, neighbors)
        else:
            raise DataError("neither features nor affinity given: pass one of them.")
        rows, _ = filters.truncated(tol * LIKELY_SMALLEST / graph.spread(graph.measures()))
        work = float(graph.operator.nonzeros) * len(ids.groups) * max(len(row) for row in rows)
        where = with_room(graph.operator, choose_device(device, work), insisted=str(device) != "auto")
        runner = make_engine(engine, graph.operator, where, work)
        settings = {"scales": filters.scales, "alpha": filters.alpha, **graph.settings, "points": len(ids)}
        settings |= {"distinct_points": len(graph.operator), "entries": graph.operator.nonzeros}
        settings |= {"engine": runner.name, "device": runner.device, "pieces": graph.warn_of_pieces()}
        graph.warn_of_giants()
        return cls(graph, filters, runner, limit, settings, progress)

    def distances(self, tol: float = 1e-6, row_weights: Array | None = None) -> GroupDistances:
        """Compute distances to a relative accuracy of ``tol``, with a longer series where the first falls short.

        ``row_weights`` gives each row a weight within its group, as a bootstrap does.
        """
        measures = self.graph.measures(row_weights)
        spread = self.graph.spread(measures)
        allowance = tol * LIKELY_SMALLEST / spread
        while True:
            rows, missing = self.filters.truncated(allowance)
            plan = self._plan(rows)
            with one_thread(torch=True) if not self.graph.operator.is_sparse else nullcontext():
                matrix = self._run(measures, rows, plan)
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
        _warn_if_uncertified(self.graph.ids.groups, matrix, error, tol, self.filters.scales)
        settings = self.settings | {"tol": float(tol), "order": max(len(row) for row in rows) - 1}
        return GroupDistances(self.graph.ids.groups, matrix, error, settings | {"predicted_peak": plan.peak})

    def _plan(self, rows: Sequence[Array]) -> Plan:
        """Plan blocks that fit the memory; a limit that was given counts alone on the CPU."""
        on_cpu, limit = self.engine.device == "cpu", self.limit
        if limit is None or not on_cpu:
            limit = min((size for size in (limit, free_memory(self.engine.device)) if size is not None), default=None)
        operator = self.graph.operator
        fixed = operator_bytes(operator.nonzeros, len(operator), is_sparse=operator.is_sparse)
        return make_plan(
            points=len(operator), groups=len(self.graph.ids.groups), lengths=_orders(rows),
            fixed=fixed if on_cpu else 0,  # a GPU has the operator already
            widest=self.engine.widest, padded=self.engine.padded, limit=limit, given=self.limit is not None,
        )  # fmt: skip

    def _run(self, measures: sparse.csc_array, rows: Sequence[Array], plan: Plan) -> Array:
        """Compute the distance matrix: filters in portions, blocks of groups in turns."""
        m = len(self.graph.ids.groups)
        sums = np.zeros((len(rows), m, m))  # weighted at the end, so that portions do not change the last bits
        large = float(self.graph.operator.nonzeros) * m * max(len(row) for row in rows) >= LOG_ABOVE
        show = self.progress if large or callable(self.progress) else self.progress or False
        with Progress("diffusion EMD", plan.products, show) as bar:
            if large:
                bar.say(
                    f"diffusion EMD: {len(self.graph.operator)} points, {m} groups, {plan.products} products on "
                    f"{self.engine.device} ({self.engine.name}); about {human(plan.peak)} at the peak"
                    + (f", limit {human(self.limit)}" if self.limit else "")
                )
            for portion in plan.filters:
                self._run_portion(sums, measures, rows, plan, portion, bar)
        matrix = np.zeros((m, m))
        for weight, part in zip(self.filters.weights, sums, strict=True):
            matrix += weight * part
        return matrix

    def _run_portion(
        self, sums: Array, measures: sparse.csc_array, rows: Sequence[Array], plan: Plan, portion: tuple[int, ...],
        bar: Progress,
    ) -> None:  # fmt: skip
        """Compute the distances of some filters, between each block of groups and each other, into ``sums``."""

        def fields(block: int) -> Any:
            return self.engine.fields(measures[:, slice(*plan.blocks[block])], [rows[k] for k in portion], bar.step)

        def compare(a: int, b: int, x: Any, y: Any) -> None:
            part = self.engine.city_block(x, y)
            sums[list(portion), slice(*plan.blocks[a]), slice(*plan.blocks[b])] = part
            sums[list(portion), slice(*plan.blocks[b]), slice(*plan.blocks[a])] = part.transpose(0, 2, 1)

        for held, others in plan.turns():
            resident = {block: fields(block) for block in held}
            for position, a in enumerate(held):
                for b in held[position:]:
                    compare(a, b, resident[a], resident[b])
            for b in others:
                passing = fields(b)
                for a in held:
                    compare(a, b, resident[a], passing)
                del passing  # before the next are made
            del resident


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


def _orders(rows: Sequence[Array]) -> list[int]:
    """Return the orders of series; the recurrence takes a product at least."""
    return [max(1, len(row) - 1) for row in rows]


def _check_filters(scales: Any, alpha: Any, tol: Any) -> tuple[DyadicFilters, float]:
    """Check the number of scales, the damping of fine ones and the accuracy."""
    count = whole(scales, "scales", 1, MOST_SCALES, " (the paper uses 10)")
    damping, accuracy = as_number(alpha), as_number(tol)
    if not (damping > 0 and np.isfinite(damping)):
        raise SettingError(f"alpha is {alpha!r}: expected a positive number (the paper uses 0.5).")
    if not 0 < accuracy < 1:
        raise SettingError(f"tol is {tol!r}: expected a relative accuracy between 0 and 1.")
    return DyadicFilters(count, damping), accuracy


def _check_memory(
    shape: tuple[int, ...], kernel: str, groups: int, neighbors: int, lengths: Sequence[int], limit: int | None,
    progress: bool | Report | None,
) -> None:  # fmt: skip
    """Raise an error for a limit that cannot be met before the work starts; tell how much memory a large run takes."""
    given = limit is not None
    limit = free_memory("cpu") if limit is None else limit
    points, dimensions = shape
    building, fixed = graph_bytes(points, dimensions, neighbors if kernel == "knn" else None)
    if limit is not None and building > limit:
        instead = "fewer neighbours" if kernel == "knn" else "kernel='knn'"
        raise SettingError(
            f"{'memory_limit is' if given else 'free memory is'} {human(limit)}, but building the {kernel} kernel of "
            f"{points} points and {groups} groups takes about {human(building)}. Raise the limit, use {instead}, or "
            "give fewer points."
        )
    plan = make_plan(
        points=points, groups=groups, lengths=lengths, fixed=fixed, widest=56, padded=TorchEngine.padded, limit=limit,
        given=given,
    )  # fmt: skip
    if points * neighbors * groups * max(lengths) >= LOG_ABOVE and not callable(progress):
        with Progress("diffusion EMD", 1, progress) as bar:
            bar.say(
                f"diffusion EMD of {points} points and {groups} groups: about {human(max(building, plan.peak))} at the "
                f"peak, {human(building)} while the {kernel} kernel is built"
            )
