"""Outlines of the 48 contiguous states and of the continents.

They ship with the package (``us_outlines.json`` and ``world_outlines.json``, which say where they come from and under
which licence). Those of the states are arcs: a border that two states share is one line that both use. So neighbours
meet without gaps, and the border of a set of states is the arcs that only one of its states uses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from matplotlib.path import Path

from toporo.errors import GroupMismatchError, listed
from toporo.topology.states import STATES
from toporo.types import Array

Point = tuple[float, float]


@dataclass(frozen=True)
class Outlines:
    """The states as rings of shared arcs; y points north, the units are those of the file.

    Attributes
    ----------
    arcs : border lines, an (n, 2) array each.
    rings : numbers of arcs by state, the largest piece first; ``~i`` is arc i backwards.
    labels : where a state's code is written.
    """

    arcs: tuple[Array, ...]
    rings: Mapping[str, tuple[tuple[int, ...], ...]]
    labels: Mapping[str, Point]

    def require(self, codes: Iterable[Any], *, what: str = "state(s)") -> list[str]:
        """The codes as a list; an error that lists those which are no state of the map."""
        wanted = list(dict.fromkeys(codes))
        unknown = [code for code in wanted if code not in self.rings]
        if unknown:
            raise GroupMismatchError(
                f"{what} not on the map: {listed(unknown)}. Expected two-letter codes of the 48 contiguous states, "
                f"such as {listed(list(self.rings)[:3])}. Rename them, or leave them out of the map."
            )
        return wanted

    def polygons(self, code: str) -> list[Array]:
        """The closed lines around a state's pieces; the last point of each is the first."""
        self.require([code])
        return [self._joined(ring) for ring in self.rings[code]]

    def path(self, code: str) -> Path:
        """A state with all its pieces as one path."""
        return Path.make_compound_path(*(Path(polygon, closed=True) for polygon in self.polygons(code)))

    def border(self, codes: Iterable[str]) -> list[Array]:
        """The lines around a set of states, without the borders inside it."""
        used: dict[int, int] = {}
        for code in self.require(codes):
            for arc in (arc for ring in self.rings[code] for arc in ring):
                index = arc if arc >= 0 else ~arc
                used[index] = used.get(index, 0) + 1
        return [self.arcs[index] for index, times in sorted(used.items()) if times == 1]

    def corners(self, codes: Iterable[str]) -> tuple[Array, Array]:
        """The south-west and the north-east corner of these states together."""
        points = np.concatenate([polygon for code in codes for polygon in self.polygons(code)])
        return points.min(axis=0), points.max(axis=0)

    def _joined(self, ring: tuple[int, ...]) -> Array:
        parts = [self.arcs[arc] if arc >= 0 else self.arcs[~arc][::-1] for arc in ring]
        return np.concatenate([parts[0], *(part[1:] for part in parts[1:])])


def _content(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(files("toporo.pages").joinpath(name).read_text(encoding="utf-8"))
    return content


def _line(steps: Sequence[int], grid: float) -> Array:
    """The points of a line that is stored as a start and steps from point to point."""
    return np.cumsum(np.reshape(steps, (-1, 2)), axis=0) * grid


@cache
def load_outlines() -> Outlines:
    """The states' outlines that ship with the package."""
    content = _content("us_outlines.json")
    grid, states = float(content["grid"]), content["states"]
    return Outlines(
        arcs=tuple(_line(arc, grid) for arc in content["arcs"]),
        rings={code: tuple(tuple(ring) for ring in at["rings"]) for code, at in states.items()},
        labels={code: STATES[code][1:] for code in states},
    )


@cache
def load_land() -> tuple[Path, ...]:
    """The continents and large islands, the largest first; lakes are holes."""
    content = _content("world_outlines.json")
    grid = float(content["grid"])
    return tuple(
        Path.make_compound_path(*(Path(_line(ring, grid), closed=True) for ring in rings))
        for rings in content["polygons"]
    )
