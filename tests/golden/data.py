"""Small generated tables and graphs for the golden parts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

#: Stations along a river; the last two are never trained on.
STATIONS = ("spring", "brook", "upper", "ford", "middle", "weir", "lower", "lock", "mouth")
RIVER_EDGES = list(pairwise(STATIONS))
NEW_STATIONS = ("lock", "mouth")


def river(*, rows: int = 40, classes: bool = False, seed: int = 0) -> dict[str, list[Any]]:
    """Stations along a river: slopes change downstream; there is a category and a column with gaps."""
    rng = np.random.default_rng(seed)
    place = np.repeat(np.arange(len(STATIONS), dtype=float), rows)
    rain, depth = rng.normal(size=len(place)), rng.normal(size=len(place))
    bed = rng.choice(["sand", "rock", "mud"], size=len(place))
    noise = 0.2 * rng.normal(size=len(place))
    level = (1 + 0.2 * place) * rain + 0.5 * depth**2 + (bed == "rock") + 0.3 * place + noise
    table = {
        "station": np.repeat(STATIONS, rows).tolist(),
        "rain": rain.tolist(),
        "depth": [None if row % 17 == 0 else value for row, value in enumerate(depth.tolist())],
        "bed": bed.tolist(),
    }
    if classes:
        return table | {"flood": np.where(level > 2.0, "yes", "no").tolist()}
    return table | {"level": level.tolist()}


def grid(side: int = 4, rows: int = 25, seed: int = 1) -> tuple[dict[str, list[Any]], list[tuple[str, str]]]:
    """Three classes in the cells of a square grid, with weights of rows; and the grid's edges."""
    rng = np.random.default_rng(seed)
    cells = [(i, j) for i in range(side) for j in range(side)]
    code = np.repeat(np.arange(len(cells)), rows)
    across, down = (np.array(cells, dtype=float)[code] / side).T
    x = rng.normal(size=(len(code), 3))
    scores = np.stack([x[:, 0], across + x[:, 1], down - x[:, 2]], axis=1) + 0.4 * rng.gumbel(size=(len(code), 3))
    names = [f"c{i}{j}" for i, j in cells]
    table = {
        "cell": [names[i] for i in code],
        **{f"x{k}": x[:, k].tolist() for k in range(3)},
        "weight": (0.5 + rng.random(len(code))).tolist(),
        "kind": np.array(["low", "middle", "high"])[scores.argmax(axis=1)].tolist(),
    }
    edges = [
        (f"c{i}{j}", f"c{k}{m}")
        for n, (i, j) in enumerate(cells)
        for k, m in cells[n + 1 :]
        if abs(i - k) + abs(j - m) == 1
    ]
    return table, edges
