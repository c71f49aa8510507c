"""Small tables with groups that differ."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

#: A chain of groups; "x" and "y" never occur in the data.
CHAIN = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "x"), ("x", "y")]


@dataclass(frozen=True)
class Table:
    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    groups: npt.NDArray[Any]


def numbers(rows: int = 200, names: str = "abcd", seed: int = 0, differ: float = 1.0) -> Table:
    """A regression whose first coefficient, and whose noise, grow from group to group."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)) * [1.0, 2.0, 3.0] + 5.0
    place = np.arange(rows) % len(names)
    y = x.sum(axis=1) + differ * place * x[:, 0] + 0.3 * (place + 1) * rng.normal(size=rows)
    return Table(x, 10.0 * y + 100.0, np.array(list(names))[place])


def labels(rows: int = 240, names: str = "abcd", seed: int = 0, classes: int = 2) -> Table:
    """A classification whose boundary turns from group to group; classes are text."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    place = np.arange(rows) % len(names)
    scores = np.stack([x @ rng.normal(size=3) + 0.5 * place * x[:, k % 3] for k in range(classes)], axis=1)
    chosen = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return Table(x, np.array(["no", "yes", "maybe", "never"])[chosen], np.array(list(names))[place])
