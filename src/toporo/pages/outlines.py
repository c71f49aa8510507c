"""Outlines of the 48 contiguous states.

They ship with the package (``us_outlines.json`` names its source and licence) as arcs: a border that two states share
is one line that both use, so neighbours meet without gaps. y points north; the units are those of the file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import numpy as np

from toporo.errors import GroupMismatchError, listed
from toporo.types import Array

_CONTENT = json.loads(files("toporo.pages").joinpath("us_outlines.json").read_text(encoding="utf-8"))
#: Border lines, an (n, 2) array each; the file has a start and steps from point to point.
ARCS = tuple(np.cumsum(np.reshape(arc, (-1, 2)), axis=0) * float(_CONTENT["grid"]) for arc in _CONTENT["arcs"])
#: Numbers of arcs around each piece of a state, the largest piece first; ``~i`` is arc i backwards.
RINGS: Mapping[str, list[list[int]]] = {code: state["rings"] for code, state in _CONTENT["states"].items()}


def require_states(codes: Iterable[Any]) -> None:
    """Raise an error that lists the codes which are not on the map, if there are any."""
    unknown = [code for code in dict.fromkeys(codes) if code not in RINGS]
    if unknown:
        raise GroupMismatchError(
            f"state(s) not on the map: {listed(unknown)}. Expected two-letter codes of the 48 contiguous states, such "
            f"as {listed(list(RINGS)[:3])}. Rename them, or leave them out of the map."
        )


def polygons(code: str) -> list[Array]:
    """Return the closed lines around a state's pieces; the last point of each is the first."""
    lines = []
    for ring in RINGS[code]:
        parts = [ARCS[arc] if arc >= 0 else ARCS[~arc][::-1] for arc in ring]
        lines.append(np.concatenate([parts[0], *(part[1:] for part in parts[1:])]))
    return lines


def border(codes: Iterable[str]) -> list[Array]:
    """Return the lines around a set of states: the arcs that only one of the states uses."""
    arcs = (arc if arc >= 0 else ~arc for code in codes for ring in RINGS[code] for arc in ring)
    return [ARCS[arc] for arc, uses in sorted(Counter(arcs).items()) if uses == 1]
