r"""Diffusion Earth Mover's Distance between groups of points on a data graph.

From a symmetric kernel K over all points (Qiao & Peng 2023, Sec. 3.1; Tong et al. 2021):

.. math::
    Q = \mathrm{diag}(K 1),\quad M = Q^{-1} K Q^{-1},\quad D = \mathrm{diag}(M 1),\quad P = D^{-1} M,\quad
    \mu_e^{t} = P^{t}\, 1_{X_e} / n_e ,

.. math::
    W(e, e') = \sum_{k=0}^{K} \| T_k(e) - T_k(e') \|_1,\qquad
    T_k = 2^{-(K-k-1)\alpha} (\mu^{2^{k+1}} - \mu^{2^k})\ (k < K),\qquad T_K = \mu^{2^K} .

Coincident points are merged and a kernel is built (:mod:`.kernel`, with :mod:`.neighbors`) and made a symmetric
operator (:mod:`.operator`). All filters :math:`T_k` come out of one Chebyshev recurrence (:mod:`.chebyshev`) that an
engine runs (:mod:`.engine`, :mod:`.fused`, :mod:`.gpu`), for as many groups and filters at a time as fit the memory
(:mod:`.plan`).
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
from toporo.errors import DataError, GroupMismatchError, SettingError, UnknownNameError, listed, warn
from toporo.groups import GroupIds, Groups
from toporo.machine import one_thread
from toporo.progress import Progress, Report
from toporo.text import human
from toporo.topology.chebyshev import FINEST_TAIL, DyadicFilters
from toporo.topology.engine import ENGINES, LOG_ABOVE, Engine, TorchEngine, choose_device, make_engine, with_room
from toporo.topology.kernel import Sigma, build_kernel, check_features
from toporo.topology.operator import DiffusionOperator, check_kernel, reordered
from toporo.topology.plan import Plan, free_memory, graph_bytes, make_plan, operator_bytes
from toporo.types import Array

PointIndices: TypeAlias = npt.NDArray[np.intp]

#: Up to this many points ``kernel="auto"`` takes the dense kernel of the paper, beyond it the kNN kernel.
DENSE_LIMIT = 2000
#: The coarsest diffusion time is 2^scales; beyond this nothing is left to diffuse, only memory to fill.
MOST_SCALES = 20
#: The smallest distance to expect; the first series is cut for it.
LIKELY_SMALLEST = 0.05
#: What float64 arithmetic leaves uncertain in a distance, by time step of the coarsest scale.
ROUNDING = 5e-17
#: What to do about a data graph in pieces, by kernel. Commands that only learn a graph on the way lack these settings.
PIECES_ADVICE = {
    "dense": "a larger sigma (toporo topology --sigma; --graph of other commands takes the graph that it writes).",
    "knn": "more neighbours or kernel='dense' (toporo topology --neighbors or --kernel dense; --graph of other "
    "commands takes the graph that it writes).",
    "given": "an affinity that joins them.",
}
#: A group with a larger share of the points makes the data graph its own.
LARGEST_SHARE = 0.95


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
    affinity : a ready symmetric, non-negative (n, n) kernel, dense or scipy-sparse. Features given beside it only help
        to put a large one into an order that memory likes.
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
    operator : the diffusion operator.
    ids : the groups of the rows given.
    point_of_row : for each row given, its point in the operator.
    filters : the dyadic filters.
    engine : what runs the recurrence.
    limit : bytes to stay within, or None.
    settings : what the graph was made from.
    progress : as :func:`diffusion_emd` takes it.
    """

    operator: DiffusionOperator
    ids: GroupIds
    point_of_row: PointIndices
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
        kernel = _choose_kernel(kernel, len(ids))
        if engine not in ENGINES:
            raise UnknownNameError("engine", engine, ENGINES)
        choose_device(device, 0.0)  # one that is not there is an error before the work
        limit = parse_memory(memory_limit)
        if affinity is not None:
            operator, point_of_row = _operator_from_affinity(affinity, features, ids)
            described: dict[str, Any] = {"kernel": "given"}
        else:
            if features is None:
                raise DataError("neither features nor affinity given: pass one of them.")
            points = check_features(features)
            check_codes(len(points), ids)
            lengths = _orders(filters.truncated(tol * LIKELY_SMALLEST)[0])
            _check_memory(points.shape, kernel, ids, neighbors, lengths, limit, progress)
            with one_thread(torch=True):
                built = build_kernel(points, kernel, sigma, neighbors)
                operator = DiffusionOperator.from_kernel(built.matrix, built.distinct.counts, checked=True)
            point_of_row, described = built.distinct.of_rows, built.described
        rows, _ = filters.truncated(
            tol * LIKELY_SMALLEST / _spread(operator, group_measures(ids, point_of_row, operator))
        )
        work = float(operator.nonzeros) * len(ids.groups) * max(len(row) for row in rows)
        where = with_room(operator, choose_device(device, work), insisted=str(device) != "auto")
        runner = make_engine(engine, operator, where, work)
        settings = {"scales": filters.scales, "alpha": filters.alpha, **described, "points": len(ids)}
        settings |= {"distinct_points": len(operator), "entries": operator.nonzeros}
        settings |= {"engine": runner.name, "device": runner.device}
        prepared = cls(operator, ids, point_of_row, filters, runner, limit, settings, progress)
        settings["pieces"] = prepared._warn_of_pieces()
        _warn_of_giants(ids)
        return prepared

    def distances(self, tol: float = 1e-6, row_weights: Array | None = None) -> GroupDistances:
        """Compute distances to a relative accuracy of ``tol``, with a longer series where the first falls short.

        ``row_weights`` gives each row a weight within its group, as a bootstrap does.
        """
        measures = group_measures(self.ids, self.point_of_row, self.operator, row_weights)
        spread = _spread(self.operator, measures)
        allowance = tol * LIKELY_SMALLEST / spread
        while True:
            rows, missing = self.filters.truncated(allowance)
            plan = self._plan(rows)
            with one_thread(torch=True) if not self.operator.is_sparse else nullcontext():
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
        _warn_if_uncertified(self.ids.groups, matrix, error, tol, self.filters.scales)
        settings = self.settings | {"tol": float(tol), "order": max(len(row) for row in rows) - 1}
        return GroupDistances(self.ids.groups, matrix, error, settings | {"predicted_peak": plan.peak})

    def _plan(self, rows: Sequence[Array]) -> Plan:
        """Plan blocks that fit the memory; a limit that was given counts alone on the CPU."""
        on_cpu, limit = self.engine.device == "cpu", self.limit
        if limit is None or not on_cpu:
            limit = min((size for size in (limit, free_memory(self.engine.device)) if size is not None), default=None)
        fixed = operator_bytes(self.operator.nonzeros, len(self.operator), is_sparse=self.operator.is_sparse)
        return make_plan(
            points=len(self.operator), groups=len(self.ids.groups), lengths=_orders(rows),
            fixed=fixed if on_cpu else 0,  # a GPU has the operator already
            widest=self.engine.widest, padded=self.engine.padded, limit=limit, given=self.limit is not None,
        )  # fmt: skip

    def _run(self, measures: sparse.csc_array, rows: Sequence[Array], plan: Plan) -> Array:
        """Compute the distance matrix: filters in portions, blocks of groups in turns."""
        m = len(self.ids.groups)
        sums = np.zeros((len(rows), m, m))  # weighted at the end, so that portions do not change the last bits
        large = float(self.operator.nonzeros) * m * max(len(row) for row in rows) >= LOG_ABOVE
        show = self.progress if large or callable(self.progress) else self.progress or False
        with Progress("diffusion EMD", plan.products, show) as bar:
            if large:
                bar.say(
                    f"diffusion EMD: {len(self.operator)} points, {m} groups, {plan.products} products on "
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

    def _warn_of_pieces(self) -> int:
        """Count the pieces of the data graph, and warn if it is not connected."""
        pieces = self.operator.pieces()
        count = int(pieces.max()) + 1
        if count > 1:
            sizes = np.bincount(pieces, weights=self.operator.weights).astype(int)
            shown = []
            for piece in range(min(count, 3)):
                codes = np.unique(np.asarray(self.ids.codes)[pieces[self.point_of_row] == piece])
                shown.append(f"{sizes[piece]} points of {listed([self.ids.groups.names[c] for c in codes], limit=3)}")
            warn(
                f"the data graph falls into {count} pieces that nothing diffuses between ({'; '.join(shown)}"
                f"{'; …' if count > 3 else ''}). Between groups in different pieces the "
                "distance is as large as it can be, however near or far the pieces lie. Use "
                + PIECES_ADVICE[self.settings["kernel"]]
            )
        return count


def check_codes(points: int, ids: GroupIds) -> npt.NDArray[Any]:
    """Check that there is one code per point, at least two groups, and a point in every group."""
    if len(ids.groups) < 2:
        raise DataError(f"only one group, {ids.groups.names[0]!r}: distances between groups need at least two.")
    if points != len(ids):
        raise DataError(f"{points} points but {len(ids)} group labels: give one label per point, in the same order.")
    codes = np.asarray(ids.codes.detach().cpu() if hasattr(ids.codes, "detach") else ids.codes)
    if codes.shape != (points,) or codes.dtype.kind not in "iu":
        raise GroupMismatchError(
            f"group codes are {codes.dtype} of shape {codes.shape}: expected one integer per point."
        )
    if not 0 <= codes.min() <= codes.max() < len(ids.groups):
        raise GroupMismatchError(
            f"group codes are {codes.dtype} from {codes.min()} to {codes.max()}: expected integers from 0 to "
            f"{len(ids.groups) - 1}."
        )
    counts = np.bincount(codes, minlength=len(ids.groups))
    if (counts == 0).any():
        empty = [name for name, count in zip(ids.groups, counts, strict=True) if count == 0]
        raise DataError(f"group(s) without a single point: {listed(empty)}. Leave them out or give them points.")
    return codes


def group_measures(
    ids: GroupIds, point_of_row: PointIndices, operator: DiffusionOperator, row_weights: Array | None = None
) -> sparse.csc_array:
    """Return columns :math:`1_{X_e} / n_e`, one per group, as means over the rows that each point stands for."""
    codes = np.asarray(ids.codes)
    weights = np.ones(len(codes)) if row_weights is None else np.asarray(row_weights, dtype=np.float64)
    if weights.shape != codes.shape:
        raise DataError(f"row_weights have shape {weights.shape} for {len(codes)} rows: give one weight per row.")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise DataError("row_weights hold negative or NaN or infinite values: weights are finite and at least 0.")
    totals = np.bincount(codes, weights, minlength=len(ids.groups))
    if (totals == 0).any():
        weightless = [name for name, total in zip(ids.groups, totals, strict=True) if total == 0]
        raise DataError(f"row_weights add up to 0 in group(s) {listed(weightless)}: give some row of each a weight.")
    values = weights / totals[codes] / operator.weights[point_of_row]
    shape = (len(operator), len(ids.groups))
    return sparse.coo_array((values, (point_of_row, codes)), shape=shape).tocsc()  # adds up what falls together


def _spread(operator: DiffusionOperator, measures: sparse.csc_array) -> float:
    r"""Bound the error of a distance if the filters, weighted, are together off by at most 1 in operator norm.

    In the frame of S, :math:`\|\delta\|_2 \le \|(wD)^{1/2} x\|_2`, and back in the walk's frame
    :math:`\|(w/D)^{1/2}\delta\|_1 \le \|(w/D)^{1/2}\|_2\,\|\delta\|_2`; a distance has two groups.
    """
    start = np.sqrt((measures.power(2).T @ operator.enter**2).max())
    return float(2.0 * start * np.sqrt((operator.leave**2).sum()))  # no BLAS: its last bits depend on threads


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


def _choose_kernel(kernel: str, points: int) -> str:
    if kernel not in ("auto", "dense", "knn"):
        raise UnknownNameError("kernel", kernel, ["auto", "dense", "knn"])
    return kernel if kernel != "auto" else "dense" if points <= DENSE_LIMIT else "knn"


def _check_filters(scales: Any, alpha: Any, tol: Any) -> tuple[DyadicFilters, float]:
    """Check the number of scales, the damping of fine ones and the accuracy."""
    count = whole(scales, "scales", 1, MOST_SCALES, " (the paper uses 10)")
    damping, accuracy = as_number(alpha), as_number(tol)
    if not (damping > 0 and np.isfinite(damping)):
        raise SettingError(f"alpha is {alpha!r}: expected a positive number (the paper uses 0.5).")
    if not 0 < accuracy < 1:
        raise SettingError(f"tol is {tol!r}: expected a relative accuracy between 0 and 1.")
    return DyadicFilters(count, damping), accuracy


def _operator_from_affinity(affinity: Any, features: Any, ids: GroupIds) -> tuple[DiffusionOperator, PointIndices]:
    """Make the operator of a given kernel, large ones in an order that memory likes; and the point of each row."""
    matrix = check_kernel(affinity)
    check_codes(matrix.shape[0], ids)
    points = None if features is None else check_features(features)
    if points is not None and len(points) != matrix.shape[0]:
        raise DataError(f"features have {len(points)} rows, the affinity {matrix.shape[0]}: they must agree.")
    matrix, order = reordered(matrix, points)
    with nullcontext() if sparse.issparse(matrix) else one_thread(torch=True):
        operator = DiffusionOperator.from_kernel(matrix, checked=True)
    return operator, np.arange(len(operator)) if order is None else np.argsort(order)


def _check_memory(
    shape: tuple[int, ...],
    kernel: str,
    ids: GroupIds,
    neighbors: int,
    lengths: Sequence[int],
    limit: int | None,
    progress: bool | Report | None,
) -> None:
    """Raise an error for a limit that cannot be met before the work starts; log what a large run will hold."""
    given = limit is not None
    limit = free_memory("cpu") if limit is None else limit
    points, dimensions = shape
    what = f"{points} points and {len(ids.groups)} groups"
    building, fixed = graph_bytes(points, dimensions, neighbors if kernel == "knn" else None)
    instead = "fewer neighbours" if kernel == "knn" else "kernel='knn'"
    if limit is not None and building > limit:
        raise SettingError(
            f"{'memory_limit is' if given else 'free memory is'} {human(limit)}, but building the {kernel} kernel of "
            f"{what} takes about {human(building)}. Raise the limit, use "
            f"{instead}, or give fewer points."
        )
    plan = make_plan(
        points=points, groups=len(ids.groups), lengths=lengths, fixed=fixed, widest=56,
        padded=TorchEngine.padded, limit=limit, given=given,
    )  # fmt: skip
    if points * neighbors * len(ids.groups) * max(lengths) >= LOG_ABOVE and not callable(progress):
        with Progress("diffusion EMD", 1, progress) as bar:
            bar.say(
                f"diffusion EMD of {what}: about {human(max(building, plan.peak))} at the peak, {human(building)} "
                f"while the {kernel} kernel is built"
            )


def _warn_of_giants(ids: GroupIds) -> None:
    counts = np.bincount(np.asarray(ids.codes))
    share = counts.max() / counts.sum()
    if share > LARGEST_SHARE:
        warn(
            f"group {ids.groups.names[int(counts.argmax())]!r} holds {share:.1%} of the points: the data graph is "
            "nearly its own, and the others' distances rest on few points. Consider a subsample of it."
        )
