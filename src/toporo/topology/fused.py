r"""The recurrence on the CPU, compiled by numba (extra ``fast``): product, recurrence and accumulation in one pass.

One step takes, row by row, :math:`T_j = 2 S T_{j-1} - T_{j-2}` and adds :math:`T_{j-2}` and :math:`T_j` to the filters
that need them. A row lives in vector registers meanwhile, so memory sees every row once. Compilers do not find this
form by themselves; the row is therefore written in LLVM's own terms, with vectors as wide as the processor's
(:class:`Registers`), or as wide as numba was told to use (``NUMBA_CPU_NAME`` and ``NUMBA_CPU_FEATURES``).

Rows are independent and points are added up in fixed chunks, so the result is the same on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from scipy import sparse

from toporo.topology.engine import Schedule, Tick, available_threads
from toporo.topology.operator import DiffusionOperator
from toporo.types import Array

T = TypeVar("T")
R = TypeVar("R")

#: float64 in a cache line.
LINE = 8
#: Points whose columns are compared at a time: 64 points of 50 groups fit the first-level cache.
TILE = 64
#: Rows of the matrix between what is fetched and what is used: memory answers in the meantime.
AHEAD = 8
#: Rows of x fetched in advance by one row of the matrix; one is new on average, and two catch up where many are.
FETCHES = 2
#: Bytes that stay in a core's own cache, so that nothing need be fetched in advance.
CACHED = 2**20
#: Points added up by one thread before the partial sums meet; fixed, so that the order of sums is.
CHUNK = 64 * TILE
#: Products of eight numbers in one call, about a tenth of a second, so that progress shows and interrupts are heard.
AT_ONCE = 200_000_000
#: Fewer rows are not worth a second thread.
ROWS_PER_THREAD = 4096

_COMPILE = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()


class Registers(NamedTuple):
    """What a row of the recurrence has to live in.

    Attributes
    ----------
    lanes : float64 in a vector.
    widest : columns taken through the recurrence at a time.
    """

    lanes: int
    widest: int

    @classmethod
    def of(cls, features: str) -> Registers:
        """For LLVM's list of a processor's features, such as ``"+avx2,+fma"``.

        AVX-512 has 32 registers of eight: seven hold the sums, seven the row before, and a pass over the matrix serves
        56 columns. AVX2 has 16 of four: seven sums are what hides the latency of a product, and 28 columns at a time
        stay in cache better than 56, which would fit as well. Elsewhere (SSE, NEON) vectors of four are two registers.
        """
        known = features.split(",")
        return cls(8, 56) if "+avx512f" in known else cls(4, 28) if "+avx2" in known else cls(4, 24)


@cache
def registers() -> Registers:
    """Those of the processor that numba compiles for: this one, unless it was told another."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return Registers.of(features)


def _row_step(vectors: int, lanes: int, fetch: bool) -> Any:
    """An intrinsic for one row of ``vectors`` vectors: out = 2 (values · rows of x) - out; fields += a old + b new.

    All of it in registers: the sums, the old content of ``out``, and the new. With ``fetch``, the rows ``coming`` from
    ``due[row]`` on, which are needed soon, are called for in advance.
    """
    vector_type = ir.VectorType(ir.DoubleType(), lanes)

    @intrinsic
    def row_step(
        _typing: Any, values: Any, columns: Any, low: Any, high: Any, x: Any, out: Any, row: Any, fields: Any, use: Any,
        before: Any, after: Any, due: Any, coming: Any,
    ) -> Any:  # fmt: skip
        signature = types.void(values, columns, low, high, x, out, row, fields, use, before, after, due, coming)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            def array(position: int) -> Any:
                return context.make_array(signature.args[position])(context, builder, arguments[position])

            def number(value: int) -> ir.Constant:
                return ir.Constant(_I64, value)

            def vector_at(data: Any, offset: Any, v: int) -> Any:
                place = builder.gep(data, [builder.add(offset, number(lanes * v))])
                return builder.bitcast(place, vector_type.as_pointer())

            def load(data: Any, offset: Any, v: int) -> Any:
                loaded = builder.load(vector_at(data, offset, v))
                loaded.align = 8
                return loaded

            def store(value: Any, data: Any, offset: Any, v: int) -> None:
                builder.store(value, vector_at(data, offset, v)).align = 8

            def scalar(data: Any, index: Any) -> Any:
                return builder.load(builder.gep(data, [index]))

            def spread(value: Any) -> Any:
                undefined = ir.Constant(vector_type, ir.Undefined)
                first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
                return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))

            fma = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(vector_type, [vector_type] * 3), f"llvm.fmuladd.v{lanes}f64"
            )
            prefetch = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), [_BYTES, _I32, _I32, _I32]), "llvm.prefetch.p0"
            )
            value_data, column_data, x_data, out_data = (array(k).data for k in (0, 1, 4, 5))
            low, high, row = arguments[2], arguments[3], arguments[6]
            width = number(lanes * vectors)

            if fetch:
                first = builder.sext(scalar(array(11).data, row), _I64)
                for k in range(FETCHES):
                    soon = builder.sext(scalar(array(12).data, builder.add(first, number(k))), _I64)
                    offset = builder.mul(soon, width)
                    for v in range(0, vectors, LINE // lanes):
                        address = builder.bitcast(vector_at(x_data, offset, v), _BYTES)
                        builder.call(prefetch, [address, *(ir.Constant(_I32, flag) for flag in (0, 3, 1))])

            # sums over the row's entries
            entry = builder.block
            head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
            builder.branch(head)
            builder.position_at_end(head)
            place = builder.phi(_I64)
            place.add_incoming(low, entry)
            sums = [builder.phi(vector_type) for _ in range(vectors)]
            for total in sums:
                total.add_incoming(ir.Constant(vector_type, [0.0] * lanes), entry)
            builder.cbranch(builder.icmp_signed("<", place, high), body, done)
            builder.position_at_end(body)
            factor = spread(scalar(value_data, place))
            offset = builder.mul(builder.sext(scalar(column_data, place), _I64), width)
            added = [builder.call(fma, [factor, load(x_data, offset, v), sums[v]]) for v in range(vectors)]
            place.add_incoming(builder.add(place, number(1)), body)
            for total, more in zip(sums, added, strict=True):
                total.add_incoming(more, body)
            builder.branch(head)
            builder.position_at_end(done)

            # the recurrence
            own = builder.mul(row, width)
            old = [load(out_data, own, v) for v in range(vectors)]
            two = ir.Constant(vector_type, [2.0] * lanes)
            new = [builder.fsub(builder.fmul(two, total), was) for total, was in zip(sums, old, strict=True)]
            for v in range(vectors):
                store(new[v], out_data, own, v)

            # accumulation
            field_array, use_array = array(7), array(8)
            before_data, after_data = array(9).data, array(10).data
            rows = builder.extract_value(field_array.shape, 1)
            count = builder.extract_value(use_array.shape, 0)
            entry = builder.block
            head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
            builder.branch(head)
            builder.position_at_end(head)
            k = builder.phi(_I64)
            k.add_incoming(number(0), entry)
            builder.cbranch(builder.icmp_signed("<", k, count), body, done)
            builder.position_at_end(body)
            a, b = spread(scalar(before_data, k)), spread(scalar(after_data, k))
            field = builder.add(builder.mul(scalar(use_array.data, k), rows), row)
            offset = builder.mul(field, width)
            for v in range(vectors):
                total = load(field_array.data, offset, v)
                total = builder.call(fma, [a, old[v], total])
                store(builder.call(fma, [b, new[v], total]), field_array.data, offset, v)
            k.add_incoming(builder.add(k, number(1)), body)
            builder.branch(head)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return signature, generate

    return row_step


@cache
def _steps(vectors: int, lanes: int, fetch: bool) -> Callable[..., None]:
    """Steps ``first`` to ``last`` for the rows ``start`` to ``stop``; compiled at its first call, in under a second.

    ``even`` and ``odd`` hold the last term of even and of odd order; the next one takes the place of its kind.
    """
    row_step = _row_step(vectors, lanes, fetch)

    @njit(**_COMPILE)
    def steps(
        start: Any, stop: Any, first: Any, last: Any, indptr: Any, columns: Any, values: Any, even: Any, odd: Any,
        fields: Any, starts: Any, use: Any, before: Any, after: Any, due: Any, coming: Any,
    ) -> None:  # fmt: skip
        for j in range(first, last):
            x, out = (odd, even) if j % 2 == 0 else (even, odd)
            part = slice(starts[j], starts[j + 1])
            u, b, a = use[part], before[part], after[part]
            for row in range(start, stop):
                row_step(values, columns, indptr[row], indptr[row + 1], x, out, row, fields, u, b, a, due, coming)

    return steps  # type: ignore[no-any-return]


@njit(**_COMPILE)
def _city_block(start: Any, stop: Any, a: Any, b: Any, same: Any, scale: Any, out: Any) -> None:
    """Add ``sum_i |a_ix - b_iy| scale_i`` over points start … stop to out[x, y]; only y > x where both are the same."""
    left = np.zeros((out.shape[0], TILE))
    right = left if same else np.zeros((out.shape[1], TILE))
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        if size < TILE:
            left[:] = 0.0
            right[:] = 0.0
        for i in range(size):
            for x in range(out.shape[0]):
                left[x, i] = a[first + i, x] * scale[first + i]
        if not same:
            for i in range(size):
                for y in range(out.shape[1]):
                    right[y, i] = b[first + i, y] * scale[first + i]
        for x in range(out.shape[0]):
            for y in range(x + 1 if same else 0, out.shape[1]):
                total = 0.0
                for i in range(TILE):
                    total += abs(left[x, i] - right[y, i])
                out[x, y] += total


class _Block(NamedTuple):
    fields: Array  # (filters, points, columns padded to whole vectors)
    columns: int


class FusedEngine:
    """Fields and their distances on the CPU; see :class:`toporo.topology.engine.Engine`."""

    name = "numba"
    device = "cpu"

    def __init__(self, operator: DiffusionOperator) -> None:
        matrix: sparse.csr_array = operator.symmetric
        self._indptr = matrix.indptr.astype(np.int64)
        self._columns = matrix.indices.astype(np.int32, copy=False)
        self._values = matrix.data
        self._due, self._coming = _fetch_order(matrix)
        self._enter, self._leave = operator.enter, operator.leave
        self._threads = max(1, min(available_threads(), len(operator) // ROWS_PER_THREAD))

    @staticmethod
    def widest() -> int:
        """The most columns to take through the recurrence at a time; see :class:`Registers`."""
        return registers().widest

    def fields(self, measures: sparse.csc_array, rows: Sequence[Array], tick: Tick) -> _Block:
        """Every filter applied to every column of ``measures``."""
        n, m = measures.shape
        lanes = registers().lanes
        vectors = -(-m // lanes)
        width = vectors * lanes
        steps = _steps(vectors, lanes, n * width * 8 > CACHED)
        even, odd = _zeros(n, width), _zeros(n, width)  # T_0, and what T_1 replaces
        entries = measures.tocoo()
        even[entries.coords] = entries.data * self._enter[entries.coords[0]]
        fields = _zeros(len(rows), n, width)
        plan = Schedule.of(rows)
        shares = _ranges(n, -(-n // self._threads))
        with _Pool(self._threads) as pool:

            def advance(first: int, last: int) -> None:
                def part(bounds: tuple[int, int]) -> None:
                    steps(
                        *bounds, first, last, self._indptr, self._columns, self._values, even, odd, fields, plan.starts,
                        plan.use, plan.before, plan.after, self._due, self._coming,
                    )  # fmt: skip

                for _ in pool.map(part, shares):
                    pass
                for _ in range(first, last):
                    tick()

            advance(1, 2)
            odd *= 0.5  # the step took 2 S x
            for first, last in _ranges(n, CHUNK):
                for field, row in zip(fields, rows, strict=True):
                    np.multiply(even[first:last], row[0], out=field[first:last])
                    if len(row) > 1 and row[1] != 0.0:
                        field[first:last] += row[1] * odd[first:last]
            # With one thread no step waits for others: as many in one call as take a moment.
            at_once = max(1, LINE * AT_ONCE // (len(self._values) * width)) if self._threads == 1 else 1
            order = max(len(row) for row in rows) - 1
            for j in range(2, order + 1, at_once):
                advance(j, min(j + at_once, order + 1))
        return _Block(fields, m)

    def city_block(self, a: _Block, b: _Block) -> Array:
        """Distances between the columns of two blocks of fields, one matrix a filter."""
        filters, points, _ = a.fields.shape
        chunks = _ranges(points, CHUNK)
        result = np.zeros((filters, a.columns, b.columns))
        with _Pool(self._threads) as pool:
            for k in range(filters):

                def part(bounds: tuple[int, int], x: Array = a.fields[k], y: Array = b.fields[k]) -> Array:
                    out = np.zeros((a.columns, b.columns))
                    _city_block(*bounds, x, y, a is b, self._leave, out)
                    return out

                for partial in pool.map(part, chunks):
                    result[k] += partial
        return result + result.transpose(0, 2, 1) if a is b else result


def _fetch_order(matrix: sparse.csr_array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """For every row the place in a list from which on to fetch rows of x, and that list: rows as they are first needed.

    A row of x is first needed by the first entry of its column, which in a symmetric matrix is that of its row. What
    row r + AHEAD needs is fetched by row r, no more than FETCHES rows at a time.
    """
    n = matrix.shape[0]
    first = matrix.indices[matrix.indptr[:-1]]
    needed = np.cumsum(np.bincount(first, minlength=n))[np.minimum(np.arange(n) + AHEAD, n - 1)]
    most = FETCHES * np.arange(1, n + 1)
    fetched = most + np.minimum(np.minimum.accumulate(needed - most), 0)
    coming = np.append(np.argsort(first, kind="stable"), np.zeros(FETCHES))  # a read beyond the end does no harm
    return np.append(0, fetched[:-1]).astype(np.int32), coming.astype(np.int32)


class _Pool:
    """Threads for what releases the interpreter; with one, plain calls."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
        """Results in the order of the items."""
        return map(function, items) if self._pool is None else self._pool.map(function, items)


def _ranges(total: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def _zeros(*shape: int) -> Array:
    """Zeros from the start of a cache line on, so that no vector straddles two."""
    size = int(np.prod(shape))
    memory = np.zeros(size + LINE)
    skip = -memory.ctypes.data % 64 // 8
    return memory[skip : skip + size].reshape(shape)
