"""Where groups lie: coordinates from a table, for drawing a graph as a map."""

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
from toporo.types import Array

#: Names of columns in small letters: degrees, and other coordinates.
LATITUDE, LONGITUDE = ("lat", "latitude"), ("lon", "lng", "long", "longitude")
PLAIN = (("x",), ("y",))
#: The column of groups, unless it is the first of the others.
GROUP = "group"
EXPECTED = "expected a column of groups, and lat and lon (or latitude and longitude), or x and y"


@dataclass(frozen=True)
class Coordinates:
    """Where groups lie, by their names as text.

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
        """The graph with its groups at these places, north up; a warning names groups that have none.

        Degrees of longitude are as long as in the mean latitude of the groups.
        """
        written = {str(name): name for name in graph.names}
        known = {name: self.at[text] for text, name in written.items() if text in self.at}
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
                "They are drawn among their neighbours. Add them to the table."
            )
        if self.degrees:
            shrink = math.cos(math.radians(float(np.mean([latitude for _, latitude in known.values()]))))
            known = {name: (longitude * shrink, latitude) for name, (longitude, latitude) in known.items()}
        return graph.replace(positions=known)


def read_coordinates(source: Any) -> Coordinates:
    """Read where groups lie.

    Parameters
    ----------
    source : a table as :func:`toporo.data.frame.read_frame` takes it, one row per group: the columns lat (latitude) and
        lon (lng, long, longitude), or x and y, and one of groups, called group or else the first of the others. Groups
        that lack a number count as not there.
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
    group = _group(frame, (across, up))
    if not isinstance(frame[group], Texts):  # as it is written: 01 is not 1
        frame = read_frame(source, text=[group], **settings)
    return Coordinates(_places(frame, group, across, up, degrees), degrees, frame.where)


def _axes(frame: Frame) -> tuple[str, str, bool]:
    """The columns of coordinates, across and up, and whether they are degrees."""
    lower = {name.lower(): name for name in frame.names}
    for (first, second), degrees in (((LONGITUDE, LATITUDE), True), (PLAIN, False)):
        across, up = (next((lower[word] for word in words if word in lower), None) for words in (first, second))
        if across is not None and up is not None:
            return across, up, degrees
    raise DataError(f"{frame.where} has no coordinates: {EXPECTED}; found the columns {listed(frame.names)}.")


def _group(frame: Frame, others: tuple[str, str]) -> str:
    left = [name for name in frame.names if name not in others]
    if not left:
        raise DataError(f"{frame.where} has no column of groups: {EXPECTED}; found the columns {listed(frame.names)}.")
    return next((name for name in left if name.lower() == GROUP), left[0])


def _places(frame: Frame, group: str, across: str, up: str, degrees: bool) -> dict[str, tuple[float, float]]:
    """Places by group, checked."""
    names = frame.text(group).tolist()
    x, y = _numbers(frame, across), _numbers(frame, up)
    at: dict[str, tuple[float, float]] = {}
    for row, (name, *place) in enumerate(zip(names, x.tolist(), y.tolist(), strict=True), frame.first):
        if name is None:
            raise DataError(f"{frame.where}, row {row}: {group!r} is empty: expected the name of a group.")
        if any(map(math.isnan, place)):
            continue
        _check_place(place, degrees, (across, up), f"{frame.where}, row {row}, {name!r}")
        if at.setdefault(name, (place[0], place[1])) != (place[0], place[1]):
            raise DataError(
                f"{frame.where}, row {row}: {name!r} is there twice, at {at[name]} and {tuple(place)}: expected one "
                "row per group. Keep one of them, or the mean."
            )
    return at


def _numbers(frame: Frame, name: str) -> Array:
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
    return column.values


def _check_place(place: list[float], degrees: bool, columns: tuple[str, str], where: str) -> None:
    """Degrees must be on the globe; that numbers are finite the reader of the table has seen to."""
    if degrees and (abs(place[1]) > 90 or not -180 <= place[0] <= 360):
        swapped = " Are the two columns swapped?" if abs(place[0]) <= 90 and abs(place[1]) <= 180 else ""
        raise DataError(
            f"{where}: {columns[1]} is {place[1]:g} and {columns[0]} {place[0]:g}: expected a latitude from -90 to 90 "
            f"and a longitude from -180 to 180, in degrees.{swapped} Call other coordinates x and y."
        )
