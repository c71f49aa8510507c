"""Coordinates of groups from a table, for drawing a graph as a map."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toporo.data.frame import Frame, Texts, number, read_frame
from toporo.errors import DataError, GroupMismatchError, closest, listed, warn
from toporo.graphs import SUFFIXES, delimiter_of
from toporo.text import many
from toporo.topology.graph import GroupGraph

#: Names of columns in lower case, eastwards and northwards: degrees, and other coordinates.
DEGREES = ("lon", "lng", "long", "longitude"), ("lat", "latitude")
PLAIN = ("x",), ("y",)
#: The column of groups, unless it is the first of the others.
GROUP = "group"
EXPECTED = "expected a column of groups, and lat and lon (or latitude and longitude), or x and y"


@dataclass(frozen=True)
class Coordinates:
    """Places of groups, by their names as text.

    Attributes
    ----------
    at : longitude and latitude in degrees, or x and y.
    degrees : whether they are degrees.
    where : the table they are from, for messages.
    """

    at: Mapping[str, tuple[float, float]]
    degrees: bool
    where: str

    def place(self, graph: GroupGraph) -> GroupGraph:
        """Return the graph with its groups at these places, north up; a warning lists groups that have none.

        Degrees of longitude are as long as at the mean latitude of the groups.
        """
        known = {name: self.at[str(name)] for name in graph.names if str(name) in self.at}
        lacking = [name for name in graph.names if name not in known]
        if not known:
            near = closest(str(lacking[0]), list(self.at))
            hint = f" Is {near!r} meant to be {lacking[0]!r}?" if near else ""
            raise GroupMismatchError(
                f"{self.where} has coordinates of none of the graph's groups. It has {listed(self.at)}; the graph has "
                f"{listed(graph.names)}.{hint} Name the groups there as in the graph."
            )
        if lacking:
            warn(
                f"{self.where} has no coordinates of {many(len(lacking), 'group')} of the graph: {listed(lacking)}. "
                "They are drawn among their neighbours."
            )
        if self.degrees:
            shrink = math.cos(math.radians(float(np.mean([latitude for _, latitude in known.values()]))))
            known = {name: (longitude * shrink, latitude) for name, (longitude, latitude) in known.items()}
        return graph.replace(positions=known)


def read_coordinates(source: Any) -> Coordinates:
    """Read coordinates of groups.

    Parameters
    ----------
    source : a table as :func:`toporo.data.frame.read_frame` takes it, one row per group: the columns lat (latitude) and
        lon (lng, long, longitude), or x and y, and one of groups, called group or else the first of the others. Rows
        that lack a number are ignored.
    """
    if isinstance(source, Coordinates):
        return source
    settings = {}
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if not path.is_file():
            raise DataError(f"no such file of coordinates: {path}. {EXPECTED.capitalize()}, one row per group.")
        if SUFFIXES.get(Path(path.name.lower().removesuffix(".gz")).suffix) == "text":
            settings["delimiter"] = delimiter_of(path)
    frame = read_frame(source, **settings)
    across, up, degrees = _axes(frame)
    others = [name for name in frame.names if name not in (across, up)]
    if not others:
        raise DataError(f"{frame.where} has no column of groups: {EXPECTED}; found the columns {listed(frame.names)}.")
    group = next((name for name in others if name.lower() == GROUP), others[0])
    if not isinstance(frame[group], Texts):  # names are text as written: 01 is not 1
        frame = read_frame(source, text=[group], **settings)
    return Coordinates(_places(frame, group, across, up, degrees), degrees, frame.where)


def _axes(frame: Frame) -> tuple[str, str, bool]:
    """Find the columns of coordinates, eastwards and northwards, and whether they are degrees."""
    name_of = {name.lower(): name for name in frame.names}
    for axes, degrees in ((DEGREES, True), (PLAIN, False)):
        found = [next((name_of[word] for word in words if word in name_of), None) for words in axes]
        if found[0] is not None and found[1] is not None:
            return found[0], found[1], degrees
    raise DataError(f"{frame.where} has no coordinates: {EXPECTED}; found the columns {listed(frame.names)}.")


def _places(frame: Frame, group: str, across: str, up: str, degrees: bool) -> dict[str, tuple[float, float]]:
    """Return the checked places by group."""
    at: dict[str, tuple[float, float]] = {}
    rows = zip(frame.text(group).tolist(), _numbers(frame, across), _numbers(frame, up), strict=True)
    for row, (name, x, y) in enumerate(rows, frame.first):
        if name is None:
            raise DataError(f"{frame.where}, row {row}: {group!r} is empty: expected the name of a group.")
        if math.isnan(x) or math.isnan(y):
            continue
        if degrees and (abs(y) > 90 or not -180 <= x <= 360):
            swapped = " Are the two columns swapped?" if abs(x) <= 90 and abs(y) <= 180 else ""
            raise DataError(
                f"{frame.where}, row {row}, {name!r}: {up} is {y:g} and {across} {x:g}: expected a latitude from -90 "
                f"to 90 and a longitude from -180 to 180, in degrees.{swapped} Call other coordinates x and y."
            )
        if at.setdefault(name, (x, y)) != (x, y):
            raise DataError(
                f"{frame.where}, row {row}: {name!r} is there twice, at {at[name]} and {(x, y)}: expected one row per "
                "group. Keep one of them, or the mean."
            )
    return at


def _numbers(frame: Frame, name: str) -> list[float]:
    """Return a column of numbers, which the reader of the table has checked to be finite or missing."""
    column = frame[name]
    if isinstance(column, Texts):
        cells = [cell or "" for cell in column.tolist()]
        row = next(row for row, cell in enumerate(cells) if number(cell) is None)
        raise DataError(
            f"{frame.where}, row {row + frame.first}: {name!r} is {cells[row]!r:.40}, which is no number. Write "
            "coordinates as decimals, such as 48.21."
        )
    if column.kind != "number":
        raise DataError(f"{frame.where}: {name!r} holds dates: expected coordinates, such as 48.21.")
    return [float(value) for value in column.values]
