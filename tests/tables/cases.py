"""Small tables whose right answers are known."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

RIVER = [("spring", "upper"), ("upper", "middle"), ("middle", "lower"), ("lower", "mouth")]
TRAINED = ("spring", "upper", "middle", "lower")


def river(seed: int = 0, rows: int = 40, groups: tuple[str, ...] = (*TRAINED, "mouth")) -> dict[str, list[Any]]:
    """Stations along a river: the slope of y on x grows downstream; a category and a column with gaps matter too."""
    rng = np.random.default_rng(seed)
    station = np.repeat(groups, rows)
    place = np.repeat(np.arange(len(groups), dtype=float), rows)
    x, depth = rng.normal(size=len(place)), rng.normal(size=len(place))
    bed = rng.choice(["sand", "rock", "mud"], size=len(place))
    y = (1 + 0.3 * place) * x + 0.5 * depth + (bed == "rock") + 0.2 * rng.normal(size=len(place))
    depths: list[float | None] = depth.tolist()
    for gap in range(0, len(depths), 17):
        depths[gap] = None
    return {"station": station.tolist(), "x": x.tolist(), "depth": depths, "bed": bed.tolist(), "y": y.tolist()}


def floods(seed: int = 0, rows: int = 60) -> dict[str, list[Any]]:
    """The same with classes: whether it floods."""
    table = river(seed, rows)
    level = np.asarray(table.pop("y")) + 0.3 * np.random.default_rng(seed + 1).normal(size=len(table["x"]))
    return table | {"flood": np.where(level > 0.3, "yes", "no").tolist()}


def only(table: dict[str, list[Any]], **wanted: Any) -> dict[str, list[Any]]:
    """The rows whose columns hold one of the values wanted."""
    keep = [
        all(table[name][i] in values for name, values in wanted.items()) for i in range(len(next(iter(table.values()))))
    ]
    return {name: [value for value, kept in zip(column, keep, strict=True) if kept] for name, column in table.items()}


def as_csv(table: dict[str, list[Any]]) -> str:
    lines = [",".join(table)]
    rows = zip(*table.values(), strict=True)
    return "\n".join([*lines, *(",".join("" if cell is None else str(cell) for cell in row) for row in rows)]) + "\n"


#: A longer river, of which the last two stations are never trained on; and the same stations in a row.
STATIONS = ("spring", "brook", "upper", "ford", "middle", "weir", "lower", "lock", "mouth")
STREAM = list(pairwise(STATIONS))
NEW = ("lock", "mouth")
