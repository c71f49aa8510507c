r"""Effective numbers of rows and groups under weights of groups, and the weight that a group's rows can bear.

A row of group e, of which there are :math:`n_e`, weighs :math:`q_e / n_e`, so by Kish's count a fit rests on

.. math:: \frac{(\sum_i w_i)^2}{\sum_i w_i^2} = \Big(\sum_e q_e^2 / n_e\Big)^{-1}

rows. Ten per column are a usual minimum. Where no row weighs more than 1/T, :math:`q_e \le n_e / T`, at least T rows
are in effect, so one limit per group is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from toporo.groups import Groups
from toporo.types import Array, Name

#: Rows in effect that a column needs.
PER_COLUMN = 10
#: However few rows there are, a row may weigh this many times its share.
TIMES = 2.0
#: Counts that differ by less, relative to their size, are equal.
ROUNDING = 1e-9


def effective_rows(codes: Any, groups: Groups, shares: Array | None = None) -> dict[Name, float]:
    """Count the rows in effect within each group: their number, or fewer if they weigh differently.

    Parameters
    ----------
    codes, groups : the group of each row.
    shares : weight of each row within its group; None if all are equal.
    """
    if shares is None:
        return groups.named(np.bincount(codes, minlength=len(groups)).astype(np.float64))
    sums, squares = (np.bincount(codes, values, minlength=len(groups)) for values in (shares, shares**2))
    return groups.named(sums**2 / squares)


def rows_in_effect(weights: Mapping[Any, float], rows: Mapping[Any, float]) -> float:
    """Count rows by Kish's formula from weights of groups, which sum to one, and their numbers of rows.

    >>> round(rows_in_effect({"a": 0.75, "b": 0.25}, {"a": 2886, "b": 3}), 1)
    47.6
    """
    return 1.0 / sum(weight**2 / rows[name] for name, weight in weights.items())


def groups_in_effect(weights: Iterable[float]) -> float:
    """Return the exponential of the entropy of weights that sum to one: m for m equal weights."""
    values = np.asarray([value for value in weights if value > 0])
    return float(np.exp(-(values * np.log(values)).sum()))


def too_few(rows: float, columns: int) -> bool:
    """Return whether there are fewer than ten rows in effect per column."""
    return rows < (1.0 - ROUNDING) * PER_COLUMN * columns


def most_weight(rows: Mapping[Any, float], columns: int) -> dict[Name, float] | None:
    """Return the most weight of each group that leaves at least ten rows in effect per column.

    The intercept is a column too. Where there are fewer than twice as many rows, a row may have twice its share of all
    weight, so at least half of the rows are in effect. None if no group is limited.

    Parameters
    ----------
    rows, columns : rows in effect by group, and the number of features.

    >>> round(most_weight({"a": 2886, "b": 3}, 1)["b"], 3)
    0.15
    """
    heaviest_row = max(1.0 / (PER_COLUMN * (columns + 1)), TIMES / sum(rows.values()))
    most = {name: heaviest_row * count for name, count in rows.items()}
    return most if min(most.values()) < 1.0 else None


def cap_weights(weights: Array, most: Array) -> Array:
    """Cap weights at limits, and raise those below their limits in proportion.

    Parameters
    ----------
    weights, most : by group; the weights sum to one, the limits to one at least.

    >>> cap_weights(np.array([0.25, 0.25, 0.5]), np.array([0.1, 0.9, 0.9])).round(3)
    array([0.1, 0.3, 0.6])
    """
    free = np.ones(len(weights), bool)
    while free.any():
        left, mass = 1.0 - most[~free].sum(), weights[free].sum()
        grown = weights * (left / mass) if mass > 0 else most * (left / most[free].sum())
        over = free & (grown > most)
        if not over.any():
            return np.where(free, grown, most)
        free &= ~over
    return np.asarray(most / most.sum())


def heaviest(weights: Mapping[Any, float], rows: Mapping[Any, float]) -> list[Name]:
    """Return up to three groups whose weights cost the most rows in effect, the costliest first.

    Parameters
    ----------
    weights, rows : weight and rows in effect by group.
    """
    costs = {name: weight**2 / rows[name] for name, weight in weights.items() if weight > 0}
    return sorted(costs, key=lambda name: (-costs[name], str(name)))[:3]
