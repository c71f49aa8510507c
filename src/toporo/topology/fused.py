r"""The recurrence on the CPU, compiled by numba (extra ``fast``): product, recurrence and accumulation in one pass.

One step takes, row by row, :math:`T_j = 2 S T_{j-1} - T_{j-2}` and adds :math:`T_{j-2}` and :math:`T_j` to the filters
that need them. A row stays in vector registers meanwhile, so memory sees every row once. Plain numba code does not
become vector code for few columns, and cannot prefetch, so three small intrinsics do that (:func:`_multiply_add`,
:func:`_on_stack`, :func:`_prefetch`); the number of columns is a constant of the compiled code.

Rows are independent and points are added up in fixed chunks, so the result is the same on any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from scipy import sparse

from toporo.machine import usable_threads
from toporo.topology.chebyshev import Schedule
from toporo.topology.engine import CHUNK, Advance, Engine
from toporo.topology.memory import LINE
from toporo.topology.operator import DiffusionOperator
from toporo.types import Array

#: Points whose columns are compared at a time: 64 points of 50 groups fit the first-level cache.
TILE = 64
#: Rows of the matrix between what is prefetched and what is used: memory answers in the meantime.
AHEAD = 8
#: Rows of x prefetched per row of the matrix; one is new on average, and two catch up where many are.
FETCHES = 2
#: Fewer rows are not worth a second thread.
ROWS_PER_THREAD = 4096

_COMPILE = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
_I32, _I64, _VECTOR = ir.IntType(32), ir.IntType(64), ir.VectorType(ir.DoubleType(), LINE)


def _row(context: Any, builder: Any, signature: Any, arguments: Any, array: int, width: int) -> Any:
    """Emit a pointer to a row of an array with ``width`` columns; its number is the argument behind the array."""
    index = arguments[array + 1]
    index = builder.zext(index, _I64) if index.type.width < 64 else index
    data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
    return builder.gep(data, [builder.mul(index, ir.Constant(_I64, width))])


@intrinsic(prefer_literal=True)
def _on_stack(_typing: Any, width: Any) -> Any:
    """Return a pointer to ``width`` numbers on the stack; LLVM keeps those in registers, unlike an ``np.empty``."""

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        memory = cgutils.alloca_once(builder, ir.ArrayType(ir.DoubleType(), width.literal_value))
        return builder.bitcast(memory, ir.DoubleType().as_pointer())

    return types.CPointer(types.float64)(width), generate


@intrinsic(prefer_literal=True)
def _multiply_add(_typing: Any, out: Any, i: Any, factor: Any, x: Any, j: Any, y: Any, k: Any, width: Any) -> Any:
    """Compute out[i] = factor x[j] + y[k] for rows of ``width`` numbers, in vectors of eight."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = [_row(context, builder, signature, arguments, array, width.literal_value) for array in (0, 3, 5)]
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(undefined, arguments[2], ir.Constant(_I32, 0))
        spread = builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, LINE), [0] * LINE))
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LINE}f64")
        for column in range(0, width.literal_value, LINE):
            at = [builder.gep(row, [ir.Constant(_I64, column)]) for row in rows]
            target, left, right = (builder.bitcast(pointer, _VECTOR.as_pointer()) for pointer in at)
            loaded = builder.load(left, align=LINE), builder.load(right, align=LINE)
            builder.store(builder.call(fma, [spread, *loaded]), target, align=LINE)
        return context.get_dummy_value()

    return types.void(out, i, factor, x, j, y, k, width), generate


@intrinsic(prefer_literal=True)
def _prefetch(_typing: Any, x: Any, row: Any, width: Any) -> Any:
    """Prefetch a row of ``x``, of ``width`` numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        start = _row(context, builder, signature, arguments, 0, width.literal_value)
        for column in range(0, width.literal_value, LINE):
            address = builder.bitcast(builder.gep(start, [ir.Constant(_I64, column)]), byte)
            builder.call(fetch, [address, *(ir.Constant(_I32, flag) for flag in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(x, row, width), generate


@cache
def _step(width: int) -> Callable[..., None]:
    """One step of ``width`` columns for the rows ``start`` to ``stop``; compiled at its first call, in a second.

    ``x`` holds :math:`T_{j-1}`; in ``out``, :math:`T_j` replaces :math:`T_{j-2}`. Filter ``use[k]`` gets
    ``before[k]`` times the old term and ``after[k]`` times the new one. Indices are unsigned: numba need not check for
    negative ones.
    """

    @njit(**_COMPILE)
    def step(
        start: Any, stop: Any, indptr: Any, columns: Any, values: Any, x: Any, out: Any, fields: Any, use: Any,
        before: Any, after: Any, due: Any, coming: Any,
    ) -> None:  # fmt: skip
        total = carray(_on_stack(width), (1, width))  # type: ignore[call-arg]  # numba passes the typing context
        old = carray(_on_stack(width), (1, width))
        for row in range(start, stop):
            for k in range(FETCHES):
                _prefetch(x, coming[due[row] + k], width)
            _multiply_add(old, 0, 0.0, out, row, out, row, width)
            _multiply_add(total, 0, -2.0, out, row, out, row, width)
            for p in range(indptr[row], indptr[row + 1]):
                _multiply_add(total, 0, 2.0 * values[p], x, columns[p], total, 0, width)
            _multiply_add(out, row, 0.0, old, 0, total, 0, width)
            for k in range(len(use)):
                field = fields[use[k]]
                _multiply_add(field, row, before[k], old, 0, field, row, width)
                _multiply_add(field, row, after[k], total, 0, field, row, width)

    return step  # type: ignore[no-any-return]


@njit(**_COMPILE)
def _load(tile: Any, block: Any, scale: Any, first: Any, stop: Any) -> None:
    """Set tile[x, i] = block[first + i, x] scale[first + i] up to the point ``stop``, and what is left to zero."""
    tile[:, stop - first :] = 0.0
    for i in range(first, stop):
        for x in range(tile.shape[0]):
            tile[x, i - first] = block[i, x] * scale[i]


@njit(**_COMPILE)
def _city_block(start: Any, stop: Any, a: Any, b: Any, same: Any, scale: Any, out: Any) -> None:
    """Add ``sum_i |a_ix - b_iy| scale_i`` over points start … stop to out[x, y]; only y > x where both are the same."""
    left = np.empty((out.shape[0], TILE))
    right = left if same else np.empty((out.shape[1], TILE))
    for first in range(start, stop, TILE):
        last = min(first + TILE, stop)
        _load(left, a, scale, first, last)
        if not same:
            _load(right, b, scale, first, last)
        for x in range(out.shape[0]):
            for y in range(x + 1 if same else 0, out.shape[1]):
                total = 0.0
                for i in range(TILE):
                    total += abs(left[x, i] - right[y, i])
                out[x, y] += total


class FusedEngine(Engine):
    """Fields and their distances on the CPU, on several threads."""

    name = "numba"

    def __init__(self, operator: DiffusionOperator) -> None:
        super().__init__(operator)
        matrix: sparse.csr_array = operator.symmetric
        self._rows = matrix.indptr.astype(np.uint32), matrix.indices.astype(np.uint32), matrix.data
        self._fetches = _fetch_order(matrix)
        threads = max(1, min(usable_threads(), len(operator) // ROWS_PER_THREAD))
        self._shares = _ranges(len(operator), -(-len(operator) // threads))
        self._map: Callable[..., Iterable[Any]] = ThreadPoolExecutor(threads).map if threads > 1 else map

    def city_block(self, a: Array, b: Array) -> Array:
        chunks = _ranges(a.shape[1], CHUNK)

        def distances(k: int, chunk: tuple[int, int]) -> Array:
            out = np.zeros((a.shape[2], b.shape[2]))
            _city_block(*chunk, a[k], b[k], a is b, self._leave, out)
            return out

        result = np.array([sum(self._map(partial(distances, k), chunks)) for k in range(len(a))])
        return result + result.transpose(0, 2, 1) if a is b else result

    def _zeros(self, *shape: int) -> Array:
        """Allocate zeros in rows of whole cache lines, from the start of one on, so that no vector straddles two."""
        *others, columns = shape
        padded = (*others, LINE * -(-columns // LINE))
        size = math.prod(padded)
        memory = np.zeros(size + LINE)
        skip = -memory.ctypes.data % 64 // 8
        return memory[skip : skip + size].reshape(padded)

    def _advance(self, schedule: Schedule, fields: Array) -> Advance:
        def advance(j: int, older: Array, newer: Array) -> None:
            due = slice(schedule.starts[j], schedule.starts[j + 1])
            self._step(newer, older, fields, [schedule.use[due], schedule.before[due], schedule.after[due]])

        return advance

    def _step(self, x: Array, out: Array, fields: Array, terms: Sequence[Any]) -> None:
        """Replace ``out`` by 2 S x - out, and add both to the fields, each thread in its share of the rows."""
        step, rest = _step(x.shape[1]), (*self._rows, x, out, fields, *terms, *self._fetches)
        for _ in self._map(lambda rows: step(*rows, *rest), self._shares):
            pass


def _fetch_order(matrix: sparse.csr_array) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Order rows of x as they are first needed; return for every row where in that order to fetch from, and the order.

    A row of x is first needed by the first entry of its column, which in a symmetric matrix is that of its row. What
    row r + AHEAD needs is fetched by row r, no more than FETCHES rows at a time.
    """
    n = matrix.shape[0]
    first = matrix.indices[matrix.indptr[:-1]]
    needed = np.cumsum(np.bincount(first, minlength=n))[np.minimum(np.arange(n) + AHEAD, n - 1)]
    most = FETCHES * np.arange(1, n + 1)
    fetched = most + np.minimum(np.minimum.accumulate(needed - most), 0)
    coming = np.append(np.argsort(first, kind="stable"), np.zeros(FETCHES))  # a read beyond the end does no harm
    return np.append(0, fetched[:-1]).astype(np.uint32), coming.astype(np.uint32)


def _ranges(total: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, total)) for start in range(0, total, size)]
