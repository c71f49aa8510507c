"""Coordinates of groups from a table, for drawing a graph as a map."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toporo.data.frame import Frame, Numbers, stream_frames
from toporo.data.table import find_table
from toporo.errors import DataError, GroupMismatchError, closest, listed, warn
from toporo.graphs import delimiter_of
from toporo.text import many
from toporo.topology.graph import GroupGraph

#: Names of columns in lower case, eastwards and northwards: degrees, and other coordinates.
AXES = ((("lon", "lng", "long", "longitude"), ("lat", "latitude")), (("x",), ("y",)))
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
    source : a table as :func:`toporo.data.table.find_table` takes it, one row per group: the columns lat (latitude) and
        lon (lng, long, longitude), or x and y, and one of groups, called group or else the first of the others. Names
        of groups are text, as written. Rows that lack a number are ignored.
    """
    delimiter = delimiter_of(Path(source)) if isinstance(source, str | os.PathLike) else ","
    table = find_table(source, delimiter=delimiter)
    name_of = {name.lower(): name for name in reversed(table.names)}
    pairs = [[next((name_of[word] for word in words if word in name_of), "") for words in axes] for axes in AXES]
    across, up = next(filter(all, pairs), ("", ""))
    others = [name for name in table.names if name not in (across, up)]
    if not across or not others:
        what = "group" if across else "coordinates"
        raise DataError(f"{table.where} has no column of {what}: {EXPECTED}; found {listed(table.names)}.")
    group, degrees = name_of.get(GROUP, others[0]), across.lower() in AXES[0][0]
    at: dict[str, tuple[float, float]] = {}
    for frame in stream_frames(table, {group: "text", across: "number", up: "number"}):
        columns = frame.text(group).tolist(), _values(frame, across), _values(frame, up)
        for row, (name, x, y) in enumerate(zip(*columns, strict=True), frame.first):
            where = f"{frame.where}, row {row}"
            if name is None:
                raise DataError(f"{where}: {group!r} is empty: expected the name of a group.")
            if math.isnan(x) or math.isnan(y):
                continue
            if degrees and (abs(y) > 90 or not -180 <= x <= 360):
                raise DataError(
                    f"{where}, {name!r}: {up} is {y:g} and {across} {x:g}: expected a latitude from -90 to 90 and a "
                    "longitude from -180 to 180, in degrees. If the columns are swapped, rename them; call other "
                    "coordinates x and y."
                )
            if at.setdefault(name, (x, y)) != (x, y):
                raise DataError(
                    f"{where}: {name!r} is there twice, at {at[name]} and {(x, y)}: expected one row per group. Keep "
                    "one of them, or the mean."
                )
    return Coordinates(at, degrees, table.where)


def _values(frame: Frame, name: str) -> list[float]:
    """Return a column that was read as numbers."""
    column = frame[name]
    return column.values.tolist() if isinstance(column, Numbers) else []
