r"""How many rows weights of groups leave in effect, and how much weight a group's rows can bear.

A row of group e, of which there are :math:`n_e`, weighs :math:`q_e / n_e`, so by Kish's count a fit rests on

.. math:: \frac{(\sum_i w_i)^2}{\sum_i w_i^2} = \Big(\sum_e q_e^2 / n_e\Big)^{-1}

rows. Ten per column are a usual minimum. Where no row weighs more than 1/T, :math:`q_e \le n_e / T`, at least T rows
are in effect: one limit per group is all that it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from toporo.groups import Groups
from toporo.text import many
from toporo.types import Array, Name

#: Rows in effect that a column needs.
PER_COLUMN = 10
#: However few rows there are, a row may weigh this many times its share.
TIMES = 2.0
#: Counts that differ by less, relative to their size, are the same.
ROUNDING = 1e-9


def own_rows(codes: Any, groups: Groups, shares: Array | None = None) -> dict[Name, float]:
    """Rows in effect within every group: their number, or fewer where they do not count alike.

    Parameters
    ----------
    codes, groups : every row's group.
    shares : how much a row counts within its group; None: all alike.
    """
    if shares is None:
        return groups.named(np.bincount(codes, minlength=len(groups)).astype(np.float64))
    sums, squares = (np.bincount(codes, values, minlength=len(groups)) for values in (shares, shares**2))
    return groups.named(sums**2 / squares)


def rows_in_effect(weights: Mapping[Any, float], rows: Mapping[Any, float]) -> float:
    """Kish's count of rows, from weights of groups and their rows.

    Parameters
    ----------
    weights, rows : by group; the weights sum to one.

    >>> round(rows_in_effect({"a": 0.75, "b": 0.25}, {"a": 2886, "b": 3}), 1)
    47.6
    """
    return 1.0 / sum(weight**2 / rows[name] for name, weight in weights.items())


def groups_in_effect(weights: Iterable[float]) -> float:
    """The exponential of the entropy: how many groups count, were they to count alike.

    Parameters
    ----------
    weights : of the groups; they sum to one.
    """
    values = np.asarray([value for value in weights if value > 0])
    return float(np.exp(-(values * np.log(values)).sum()))


def too_few(rows: float, columns: int) -> bool:
    """Whether so many rows in effect are fewer than ten per column.

    Parameters
    ----------
    rows, columns : how many there are.
    """
    return rows < (1.0 - ROUNDING) * PER_COLUMN * columns


def most_weight(rows: Mapping[Any, float], columns: int) -> dict[Name, float] | None:
    """The most weight that every group's rows can bear: at least ten rows per column are then in effect.

    The intercept is a column too. Where there are fewer than twice as many rows, a row may have twice its share of all
    weight, so at least half of the rows are in effect. None where it limits no group.

    Parameters
    ----------
    rows, columns : rows in effect by group, and columns of features.

    >>> round(most_weight({"a": 2886, "b": 3}, 1)["b"], 3)
    0.15
    """
    heaviest = max(1.0 / (PER_COLUMN * (columns + 1)), TIMES / sum(rows.values()))
    most = {name: heaviest * count for name, count in rows.items()}
    return most if min(most.values()) < 1.0 else None


def hold(weights: Array, most: Array) -> Array:
    """Weights of which none is above its limit; those below keep their proportions.

    Parameters
    ----------
    weights, most : by group; the weights sum to one, the limits to one at least.

    >>> hold(np.array([0.25, 0.25, 0.5]), np.array([0.1, 0.9, 0.9])).round(3)
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
    """Up to three groups by which most rows in effect are lost, those first that lose most.

    Parameters
    ----------
    weights, rows : by group: its weight, and its rows in effect.
    """
    pulls = {name: weight**2 / rows[name] for name, weight in weights.items() if weight > 0}
    return sorted(pulls, key=lambda name: (-pulls[name], str(name)))[:3]


def weights_in_words(names: Iterable[Any], weights: Mapping[Any, float], sizes: Mapping[Any, int]) -> str:
    """Groups with their weights and rows.

    Parameters
    ----------
    names : which.
    weights, sizes : by group.
    """
    shown = {name: 100 * weights[name] for name in names}
    return ", ".join(
        f"{name!r} ({share:.{0 if share >= 1 else 2}f} % in {many(sizes[name], 'row')})"
        for name, share in shown.items()
    )
