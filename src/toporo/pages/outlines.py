"""Outlines of the 48 contiguous states.

They ship with the package (``us_outlines.json`` names its source and licence) as arcs: a border that two states share
is one line that both use, so neighbours meet without gaps.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from matplotlib.path import Path

from toporo.errors import GroupMismatchError, listed
from toporo.types import Array


@dataclass(frozen=True)
class Outlines:
    """The states as rings of shared arcs; y points north, the units are those of the file.

    Attributes
    ----------
    arcs : border lines, an (n, 2) array each.
    rings : numbers of arcs by state, the largest piece first; ``~i`` is arc i backwards.
    """

    arcs: tuple[Array, ...]
    rings: Mapping[str, tuple[tuple[int, ...], ...]]

    def require(self, codes: Iterable[Any], *, what: str = "state(s)") -> list[str]:
        """Return the codes as a list; codes that are not on the map are an error that lists them."""
        wanted = list(dict.fromkeys(codes))
        unknown = [code for code in wanted if code not in self.rings]
        if unknown:
            raise GroupMismatchError(
                f"{what} not on the map: {listed(unknown)}. Expected two-letter codes of the 48 contiguous states, "
                f"such as {listed(list(self.rings)[:3])}. Rename them, or leave them out of the map."
            )
        return wanted

    def polygons(self, code: str) -> list[Array]:
        """Return the closed lines around a state's pieces; the last point of each is the first."""
        lines = []
        for ring in self.rings[code]:
            parts = [self.arcs[arc] if arc >= 0 else self.arcs[~arc][::-1] for arc in ring]
            lines.append(np.concatenate([parts[0], *(part[1:] for part in parts[1:])]))
        return lines

    def path(self, code: str) -> Path:
        """Return a state with all its pieces as one path."""
        return Path.make_compound_path(*(Path(polygon, closed=True) for polygon in self.polygons(code)))

    def border(self, codes: Iterable[str]) -> list[Array]:
        """Return the lines around a set of states: the arcs that only one of the states uses."""
        arcs = (arc if arc >= 0 else ~arc for code in codes for ring in self.rings[code] for arc in ring)
        return [self.arcs[arc] for arc, uses in sorted(Counter(arcs).items()) if uses == 1]


@cache
def load_outlines() -> Outlines:
    """Load the outlines that ship with the package."""
    content = json.loads(files("toporo.pages").joinpath("us_outlines.json").read_text(encoding="utf-8"))
    grid = float(content["grid"])
    return Outlines(  # a line is stored as a start and steps from point to point
        arcs=tuple(np.cumsum(np.reshape(arc, (-1, 2)), axis=0) * grid for arc in content["arcs"]),
        rings={code: tuple(tuple(ring) for ring in state["rings"]) for code, state in content["states"].items()},
    )
