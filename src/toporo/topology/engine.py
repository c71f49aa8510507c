"""The Chebyshev recurrence, which applies dyadic filters to groups, and the plain engine that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from toporo.topology.chebyshev import Schedule
from toporo.topology.operator import DiffusionOperator
from toporo.types import Array

#: A step of the recurrence: ``advance(j, older, newer)``.
Advance: TypeAlias = Callable[[int, Any, Any], None]

#: Points compared at a time; fixed, so that the order of sums is.
CHUNK = 4096


class Engine:
    """The recurrence of one operator, and the plain engine: scipy's sparse or numpy's dense products on the CPU.

    A subclass works on arrays of its own kind, which may be on another device.
    """

    name = "scipy"
    device = "cpu"

    def __init__(self, operator: DiffusionOperator) -> None:
        self._matrix: Any = operator.symmetric
        self._enter, self._leave = operator.enter, self._array(operator.leave)

    def fields(self, measures: sparse.csc_array, rows: Sequence[Array], tick: Callable[[], object]) -> Any:
        """Apply filters to groups: an array (filters, points, groups) where the engine works.

        Parameters
        ----------
        measures : (points, groups).
        rows : Chebyshev coefficients of each filter.
        tick : called after every product with the operator.
        """
        entries = measures.tocoo()
        older = self._zeros(*measures.shape)
        values = entries.data * self._enter[entries.coords[0]]
        older[tuple(self._array(axis.astype(np.int64)) for axis in entries.coords)] = self._array(values)
        newer = self._first(older)
        tick()
        fields = self._zeros(len(rows), *older.shape)
        for field, row in zip(fields, rows, strict=True):
            if len(row) > 1 and row[1] != 0.0:
                self._add(field, float(row[1]), newer)
        schedule = Schedule.of(rows)
        advance = self._advance(schedule, fields)
        for j in range(2, schedule.order + 1):
            advance(j, older, newer)
            older, newer = newer, older
            tick()
        return fields[:, :, : measures.shape[1]]  # an engine may have padded them

    def city_block(self, a: Any, b: Any) -> Array:
        """Compute l1 distances over all points between the groups of two blocks of fields, one matrix per filter."""
        result = np.zeros((len(a), a.shape[2], b.shape[2]))
        for start in range(0, a.shape[1], CHUNK):
            part = slice(start, start + CHUNK)
            scale = self._leave[part, None]
            for k in range(len(a)):
                left = (a[k, part] * scale).T
                result[k] += cdist(left, left if a is b else (b[k, part] * scale).T, "cityblock")
        return result

    def _array(self, values: Any) -> Any:
        """Move an array to where the engine works."""
        return values

    def _zeros(self, *shape: int) -> Any:
        """Allocate zeros where the engine works."""
        return np.zeros(shape)

    def _first(self, x: Any) -> Any:
        """Compute T_1 = S x."""
        out = self._zeros(*x.shape)
        out[:] = self._matrix @ x
        return out

    def _replace(self, older: Any, newer: Any) -> None:
        """Replace T_{j-2} by T_j = 2 S T_{j-1} - T_{j-2}."""
        product = self._matrix @ newer
        product *= 2.0
        np.subtract(product, older, out=older)

    def _add(self, field: Any, factor: float, term: Any) -> None:
        """Add a multiple of a term to a field."""
        for start in range(0, len(term), CHUNK):  # what is multiplied stays in the cache
            field[start : start + CHUNK] += factor * term[start : start + CHUNK]

    def _advance(self, schedule: Schedule, fields: Any) -> Advance:
        """Return the step that replaces T_{j-2} by T_j and adds both to the filters where they are due."""

        def advance(j: int, older: Any, newer: Any) -> None:
            due = slice(schedule.starts[j], schedule.starts[j + 1])
            for k, before in zip(schedule.use[due], schedule.before[due], strict=True):
                self._add(fields[k], float(before), older)
            self._replace(older, newer)
            for k, after in zip(schedule.use[due], schedule.after[due], strict=True):
                self._add(fields[k], float(after), older)

        return advance
