"""Make the outlines of the 48 contiguous states that the report's maps are drawn with.

    python tools/us_outlines.py us-atlas/states-albers-10m.json src/toporo/pages/us_outlines.json

The input is one file of the npm package us-atlas 3.0.1 (ISC licence; data of the US Census Bureau, 2017 edition), as
``npm pack us-atlas@3.0.1`` fetches it. It is a TopoJSON file: a border that two states share is stored once, as an
"arc". So the arcs are simplified, not the states, and neighbours still meet exactly. What happens to the input:

1. Alaska, Hawaii and the territories go; the District of Columbia becomes part of Maryland.
2. Islands below ``SMALLEST_ISLAND`` go; a state's largest piece always stays.
3. Points move to a grid of ``GRID`` of the file's units (about 0.5 km), with y pointing north.
4. Each arc loses the points that span less than ``DETAIL`` with their neighbours (Visvalingam & Whyatt 1993).
5. Each state gets a point where a short label sits well: far from the border, then near the middle.

The output holds all arcs (first point, then steps, in grid units), the rings of each state as numbers of arcs (``~i``
is arc i backwards), and where it comes from. The licence beside the input is copied to ``<output stem>.LICENSE``.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.files import write_text

SOURCE = "us-atlas 3.0.1 (npm), states-albers-10m.json"
SHA256 = "6e7bb086a3c791490361968a3094f377f7726c5d0c4900fec03cc42db2305a3d"
GRID = 0.1
DETAIL = 2.0  # square units of the file; one unit is about 4.9 km
SMALLEST_ISLAND = 12.0  # square units: about 290 square kilometres
LABEL_ASPECT, LABEL_ROOM = 1.8, 0.8

#: Federal numbers of the states and what everyone calls them.
CODES = {
    "01": "AL", "04": "AZ", "05": "AR", "06": "CA", "08": "CO", "09": "CT", "10": "DE", "12": "FL", "13": "GA",
    "16": "ID", "17": "IL", "18": "IN", "19": "IA", "20": "KS", "21": "KY", "22": "LA", "23": "ME", "24": "MD",
    "25": "MA", "26": "MI", "27": "MN", "28": "MS", "29": "MO", "30": "MT", "31": "NE", "32": "NV", "33": "NH",
    "34": "NJ", "35": "NM", "36": "NY", "37": "NC", "38": "ND", "39": "OH", "40": "OK", "41": "OR", "42": "PA",
    "44": "RI", "45": "SC", "46": "SD", "47": "TN", "48": "TX", "49": "UT", "50": "VT", "51": "VA", "53": "WA",
    "54": "WV", "55": "WI", "56": "WY",
}  # fmt: skip
CAPITAL, AROUND_CAPITAL = "11", "24"

Points = npt.NDArray[np.int64]
Ring = list[int]


def outlines(source: bytes) -> dict[str, Any]:
    """The content of the output file."""
    found = hashlib.sha256(source).hexdigest()
    if found != SHA256:
        raise SystemExit(f"expected {SOURCE} with SHA-256 {SHA256}, found {found}: fetch it anew.")
    topology = json.loads(source)
    arcs = [_on_grid(arc, topology["transform"]) for arc in topology["arcs"]]
    rings = _rings_by_state(topology["objects"]["states"]["geometries"], arcs)
    used = sorted({_index(arc) for pieces in rings.values() for ring in pieces for arc in ring})
    simple = {index: simplified(arcs[index], DETAIL / GRID**2) for index in used}
    first = _first_alike(simple)
    kept = [index for index in used if first[index] == index]
    number = {index: kept.index(first[index]) for index in used}
    crossings = count_crossings(simple.values())
    if crossings:
        raise SystemExit(f"{crossings} pair(s) of border segments cross after simplification: lower DETAIL.")
    return {
        "about": {
            "what": "outlines of the 48 contiguous states of the USA; the District of Columbia is part of Maryland",
            "source": SOURCE,
            "source_sha256": SHA256,
            "data": "US Census Bureau, cartographic boundary files, 2017 edition",
            "licence": "ISC, Copyright 2013-2019 Michael Bostock; see us_outlines.LICENSE",
            "projection": "Albers equal-area: d3.geoAlbersUsa().scale(1300).translate([487.5, 305]), y northwards",
            "changes": f"arcs simplified (Visvalingam, {DETAIL} square units), islands below {SMALLEST_ISLAND:g} "
            "square units left out, points rounded to the grid; made by tools/us_outlines.py",
        },
        "grid": GRID,
        "arcs": [_as_steps(simple[index]) for index in kept],
        "states": {
            code: {
                "label": label_point([_joined(ring, simple.__getitem__) for ring in pieces]),
                "rings": [[number[arc] if arc >= 0 else ~number[~arc] for arc in ring] for ring in pieces],
            }
            for code, pieces in sorted(rings.items())
        },
    }


def simplified(points: Points, detail: float) -> Points:
    """Take out, smallest first, every point whose triangle with its neighbours is below ``detail``; the ends stay.

    A closed line keeps at least a triangle.
    """
    count = len(points)
    before, after = np.arange(-1, count - 1), np.arange(1, count + 1)
    alive = np.ones(count, dtype=bool)

    def area(i: int) -> float:
        a, b, c = points[before[i]], points[i], points[after[i]]
        return abs(float((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1]))) / 2

    queue = [(area(i), i) for i in range(1, count - 1)]
    current = {i: size for size, i in queue}
    heapq.heapify(queue)
    least = 4 if (points[0] == points[-1]).all() else 2
    while queue and alive.sum() > least:
        size, i = heapq.heappop(queue)
        if not alive[i] or size != current[i]:
            continue
        if size >= detail:
            break
        alive[i] = False
        left, right = int(before[i]), int(after[i])
        after[left], before[right] = right, left
        for j in (left, right):
            if 0 < j < count - 1:
                current[j] = max(area(j), size)  # a point is never less important than one already gone beside it
                heapq.heappush(queue, (current[j], j))
    return points[alive]


def count_crossings(lines: Iterable[Points]) -> int:
    """How many pairs of segments cross in their inside."""
    parts = list(lines)
    start = np.concatenate([part[:-1] for part in parts])
    end = np.concatenate([part[1:] for part in parts])

    def side(a: Points, b: Points, c: Points) -> Points:
        step, way = b - a, c - a
        sign: Points = np.sign(step[..., 0] * way[..., 1] - step[..., 1] * way[..., 0])
        return sign

    total = 0
    for a, b in zip(start, end, strict=True):
        apart = side(start, end, a[None]) * side(start, end, b[None]) < 0
        total += int((apart & (side(a, b, start) * side(a, b, end) < 0)).sum())
    return total // 2


def label_point(rings: Sequence[Points]) -> list[int]:
    """A point deep inside the largest ring, where across counts less than up and down.

    Of all points with at least ``LABEL_ROOM`` of the deepest one's distance to the border, the nearest to the middle.
    """
    ring = max(rings, key=_area)
    scale = np.array([1 / LABEL_ASPECT, 1.0])
    low, high = ring.min(axis=0), ring.max(axis=0)
    xs, ys = (np.linspace(low[k], high[k], 120) for k in (0, 1))
    spots = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
    spots = spots[_inside(spots, ring)]
    room = _distance(spots * scale, ring * scale)
    roomy = spots[room >= LABEL_ROOM * room.max()]
    best = roomy[((roomy - spots.mean(axis=0)) ** 2).sum(axis=1).argmin()]
    return [round(float(value)) for value in best]


def _on_grid(arc: Sequence[Sequence[int]], transform: dict[str, list[float]]) -> Points:
    place = np.cumsum(np.array(arc), axis=0) * transform["scale"] + transform["translate"]
    points: Points = np.rint(place * (1, -1) / GRID).astype(np.int64)
    moved = np.append(True, (np.diff(points, axis=0) != 0).any(axis=1))
    moved[-1] = True
    kept: Points = points[moved]
    return kept


def _rings_by_state(geometries: Iterable[dict[str, Any]], arcs: Sequence[Points]) -> dict[str, list[Ring]]:
    """Rings of arcs by state code: the largest piece first, then islands worth drawing."""
    polygons = {g["id"]: g["arcs"] if g["type"] == "MultiPolygon" else [g["arcs"]] for g in geometries}
    polygons[AROUND_CAPITAL] = _merged(polygons[AROUND_CAPITAL] + polygons[CAPITAL], arcs)
    states = {}
    for number, code in CODES.items():
        if any(len(polygon) > 1 for polygon in polygons[number]):
            raise SystemExit(f"{code} has a hole, which the output cannot hold.")
        rings = [polygon[0] for polygon in polygons[number]]
        area = {i: _area(_joined(ring, arcs.__getitem__)) for i, ring in enumerate(rings)}
        order = sorted(area, key=lambda i: (-area[i], i))
        states[code] = [rings[i] for i in order if i == order[0] or area[i] * GRID**2 >= SMALLEST_ISLAND]
    return states


def _merged(polygons: Iterable[Sequence[Ring]], arcs: Sequence[Points]) -> list[list[Ring]]:
    """The union of polygons: arcs that two of them share go, the others are strung together again."""
    every = [arc for polygon in polygons for ring in polygon for arc in ring]
    outer = [arc for arc in every if ~arc not in every]
    rings = []
    while outer:
        ring = [outer.pop(0)]
        while _end(ring[-1], arcs) != _end(~ring[0], arcs):
            following = next(arc for arc in outer if _end(~arc, arcs) == _end(ring[-1], arcs))
            outer.remove(following)
            ring.append(following)
        rings.append([ring])
    return rings


def _end(arc: int, arcs: Sequence[Points]) -> tuple[int, int]:
    x, y = arcs[arc][-1] if arc >= 0 else arcs[~arc][0]
    return int(x), int(y)


def _index(arc: int) -> int:
    return arc if arc >= 0 else ~arc


def _joined(ring: Ring, points: Callable[[int], Points]) -> Points:
    """The closed line of a ring; the last point is the first."""
    parts = [points(arc) if arc >= 0 else points(~arc)[::-1] for arc in ring]
    line: Points = np.concatenate([parts[0], *(part[1:] for part in parts[1:])])
    return line


def _area(ring: Points) -> float:
    x, y = ring.T
    return abs(float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum())) / 2


def _inside(spots: npt.NDArray[np.float64], ring: Points) -> npt.NDArray[np.bool_]:
    (x, y), (x0, y0), (x1, y1) = spots.T[:, :, None], ring[:-1].T[:, None], ring[1:].T[:, None]
    rise = np.where(y1 == y0, 1, y1 - y0)
    left = ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) * (x1 - x0) / rise)
    odd: npt.NDArray[np.bool_] = left.sum(axis=1) % 2 == 1
    return odd


def _distance(spots: npt.NDArray[np.float64], ring: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    a, step = ring[:-1], np.diff(ring, axis=0)
    way = spots[:, None] - a
    length = np.maximum((step**2).sum(axis=1), 1e-12)
    along = np.clip((way * step).sum(axis=2) / length, 0, 1)
    nearest: npt.NDArray[np.float64] = np.sqrt(((way - along[..., None] * step) ** 2).sum(axis=2)).min(axis=1)
    return nearest


def _first_alike(lines: dict[int, Points]) -> dict[int, int]:
    """For each line the first that is the same: rounding makes one border of the two sides of a sliver."""
    found: dict[bytes, int] = {}
    for index, line in lines.items():
        found.setdefault(line.tobytes(), index)
    return {index: found[line.tobytes()] for index, line in lines.items()}


def _as_steps(points: Points) -> list[int]:
    return [int(value) for value in np.vstack([points[:1], np.diff(points, axis=0)]).ravel()]


def as_text(content: dict[str, Any]) -> str:
    """JSON with one line for each arc and each state, so that a change can be read."""
    tight = (",", ":")
    about = json.dumps(content["about"], indent=1)
    arcs = ",\n".join(json.dumps(arc, separators=tight) for arc in content["arcs"])
    states = ",\n".join(
        f"{json.dumps(code)}:{json.dumps(at, separators=tight)}" for code, at in content["states"].items()
    )
    return f'{{"about":{about},\n"grid":{content["grid"]},\n"arcs":[\n{arcs}],\n"states":{{\n{states}}}}}\n'


def main() -> None:
    """Read the arguments, write the outlines and their licence."""
    parser = argparse.ArgumentParser(description="Make the outlines of the 48 contiguous states.")
    parser.add_argument("topojson", type=Path, help="states-albers-10m.json of us-atlas 3.0.1")
    parser.add_argument("output", type=Path, help="the JSON file to write")
    given = parser.parse_args()
    licence = given.topojson.with_name("LICENSE").read_text(encoding="utf-8")
    content = outlines(given.topojson.read_bytes())
    text = as_text(content)
    write_text(given.output, text)
    write_text(given.output.with_suffix(".LICENSE"), licence)
    points = sum(len(arc) // 2 for arc in content["arcs"])
    sys.stdout.write(f"{len(content['states'])} states, {points} points, {len(text)} characters: {given.output}\n")


if __name__ == "__main__":
    main()
