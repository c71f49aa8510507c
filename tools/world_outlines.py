"""Make the outlines of the continents that the report's map of flood events is drawn on.

    python tools/world_outlines.py world-atlas/land-110m.json src/toporo/pages/world_outlines.json

The input is one file of the npm package world-atlas 2.0.2 (ISC licence; land of Natural Earth 4.1.0, which is in the
public domain), as ``npm pack world-atlas@2.0.2`` fetches it. What happens to it:

1. Land that lies wholly south of ``SOUTHERNMOST`` goes: nobody lives there. What crosses the 180th meridian goes on
   beyond it, and is there a second time at the other end of the map.
2. Points move to a grid of ``GRID`` degrees.
3. Rings lose the points that span less than ``DETAIL`` with their neighbours (Visvalingam & Whyatt 1993).
4. Islands, and lakes, that are then below ``SMALLEST`` go.

The output holds the polygons, each as its outer ring and then its holes; a ring is its first point (longitude,
latitude) and then steps, in grid units. The licence beside the input is copied to ``<output stem>.LICENSE``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from us_outlines import count_crossings, simplified

from toporo.files import write_text

SOURCE = "world-atlas 2.0.2 (npm), land-110m.json"
SHA256 = "ead5f68119c49a9250902e7da303bcb209341bbb8fefe7369a439b48b704658a"
GRID = 0.1  # degrees
DETAIL = 0.25  # square degrees
SMALLEST = 1.5  # square degrees
SOUTHERNMOST = -60.0
HALF = round(180 / GRID)

Points = npt.NDArray[np.int64]


def outlines(source: bytes) -> dict[str, Any]:
    """The content of the output file."""
    found = hashlib.sha256(source).hexdigest()
    if found != SHA256:
        raise SystemExit(f"expected {SOURCE} with SHA-256 {SHA256}, found {found}: fetch it anew.")
    topology = json.loads(source)
    arcs = [_on_grid(arc, topology["transform"]) for arc in topology["arcs"]]
    polygons = []
    for polygon in (p for land in topology["objects"]["land"]["geometries"] for p in land["arcs"]):
        rings = [simplified(_unrolled(_joined(ring, arcs)), DETAIL / GRID**2) for ring in polygon]
        if rings[0][:, 1].max() * GRID < SOUTHERNMOST or _area(rings[0]) * GRID**2 < SMALLEST:
            continue
        kept = [rings[0], *(ring for ring in rings[1:] if _area(ring) * GRID**2 >= SMALLEST)]
        polygons.append(kept)
        west, east = int(rings[0][:, 0].min()), int(rings[0][:, 0].max())
        if west < -HALF or east > HALF:
            turn = np.array([2 * HALF if west < -HALF else -2 * HALF, 0])
            polygons.append([ring + turn for ring in kept])
    polygons.sort(key=lambda rings: -_area(rings[0]))
    crossings = count_crossings(ring for rings in polygons for ring in rings)
    if crossings:
        raise SystemExit(f"{crossings} pair(s) of coast segments cross after simplification: lower DETAIL.")
    return {
        "about": {
            "what": "outlines of the continents and large islands, without Antarctica; longitude, latitude",
            "source": SOURCE,
            "source_sha256": SHA256,
            "data": "Natural Earth 4.1.0, land, 1:110m; public domain",
            "licence": "ISC, Copyright 2013-2019 Michael Bostock; see world_outlines.LICENSE",
            "changes": f"rings simplified (Visvalingam, {DETAIL:g} square degrees), islands and lakes below "
            f"{SMALLEST:g} square degrees left out, points rounded to the grid; made by tools/world_outlines.py",
        },
        "grid": GRID,
        "polygons": [[_as_steps(ring) for ring in rings] for rings in polygons],
    }


def _on_grid(arc: Sequence[Sequence[int]], transform: dict[str, list[float]]) -> Points:
    place = np.cumsum(np.array(arc), axis=0) * transform["scale"] + transform["translate"]
    points: Points = np.rint(place / GRID).astype(np.int64)
    return points


def _joined(ring: Sequence[int], arcs: Sequence[Points]) -> Points:
    """The closed line of a ring, no point twice in a row; the last point is the first."""
    parts = [arcs[arc] if arc >= 0 else arcs[~arc][::-1] for arc in ring]
    line = np.concatenate([parts[0], *(part[1:] for part in parts[1:])])
    kept: Points = line[np.append(True, (np.diff(line, axis=0) != 0).any(axis=1))]
    return kept


def _unrolled(ring: Points) -> Points:
    """The ring without jumps from one end of the map to the other."""
    turns = np.cumsum(np.rint(np.diff(ring[:, 0], prepend=ring[0, 0]) / (2 * HALF)).astype(np.int64))
    line: Points = ring - np.stack([2 * HALF * turns, np.zeros_like(turns)], axis=1)
    return line


def _area(ring: Points) -> float:
    x, y = ring.T
    return abs(float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum())) / 2


def _as_steps(points: Points) -> list[int]:
    return [int(value) for value in np.vstack([points[:1], np.diff(points, axis=0)]).ravel()]


def as_text(content: dict[str, Any]) -> str:
    """JSON with one line for each polygon, so that a change can be read."""
    about = json.dumps(content["about"], indent=1)
    polygons = ",\n".join(json.dumps(rings, separators=(",", ":")) for rings in content["polygons"])
    return f'{{"about":{about},\n"grid":{content["grid"]},\n"polygons":[\n{polygons}]}}\n'


def main() -> None:
    """Read the arguments, write the outlines and their licence."""
    parser = argparse.ArgumentParser(description="Make the outlines of the continents.")
    parser.add_argument("topojson", type=Path, help="land-110m.json of world-atlas 2.0.2")
    parser.add_argument("output", type=Path, help="the JSON file to write")
    given = parser.parse_args()
    licence = given.topojson.with_name("LICENSE").read_text(encoding="utf-8")
    content = outlines(given.topojson.read_bytes())
    text = as_text(content)
    write_text(given.output, text)
    write_text(given.output.with_suffix(".LICENSE"), licence)
    points = sum(len(ring) // 2 for rings in content["polygons"] for ring in rings)
    sys.stdout.write(f"{len(content['polygons'])} pieces, {points} points, {len(text)} characters: {given.output}\n")


if __name__ == "__main__":
    main()
