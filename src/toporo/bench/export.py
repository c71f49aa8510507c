"""A benchmark as the files that anyone's own data comes in: a table, a list of edges, a list of groups to come."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from toporo.bench.datasets import DATASETS, load_dataset
from toporo.bench.tpt48 import YEARS
from toporo.errors import SettingError, UnknownNameError

#: Data sets whose rows are numbers.
TABLES = ("dg15", "dg60", "tpt48")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun")


@dataclass(frozen=True)
class BenchmarkTable:
    """A benchmark in the form of files.

    Attributes
    ----------
    table, edges, test : the text of a CSV of rows, of a CSV of edges, and of a list of the test groups, a name a line.
    group, target : the names of two of the table's columns.
    """

    table: str
    edges: str
    test: str
    group: str
    target: str


def export(name: str, folder: str | os.PathLike[str] | None = None, *, source: str = "auto") -> BenchmarkTable:
    """A benchmark as files.

    DG: a point a row, its class as ``label``. TPT-48: a year of a state a row, in °F, with the mean temperature from
    July to December as ``rest_of_year``.
    """
    if name not in DATASETS:
        raise UnknownNameError("dataset", name, DATASETS)
    if name not in TABLES:
        raise SettingError(
            f"{name} is made of pictures, which are no table. To write as one: {', '.join(TABLES)}; to load the "
            f"pictures in Python: toporo.load_dataset({name!r})."
        )
    benchmark = load_dataset(name, folder, source=source)
    data, about = benchmark.data, benchmark.about
    names = data.ids.names
    if benchmark.task == "regression":
        mean, deviation = about["mean"], about["sd"]
        group, target, header = "state", "rest_of_year", ["state", "year", *MONTHS, "rest_of_year"]
        years = {state: iter(YEARS) for state in data.groups}
        rows: Iterable[Sequence[Any]] = (
            [
                state,
                next(years[state]),
                *_degrees(given * deviation + mean),
                *_degrees([later.mean() * deviation + mean]),
            ]
            for state, given, later in zip(names, data.x, data.y, strict=True)
        )
    else:
        group, target, header = "domain", "label", ["domain", "x1", "x2", "label"]
        rows = (
            [domain, *point.tolist(), ("blue", "red")[int(label)]]
            for domain, point, label in zip(names, data.x, data.y, strict=True)
        )
    return BenchmarkTable(
        table=_csv([header, *rows]),
        edges=_csv([["source", "target"], *benchmark.graph.edges]),
        test="".join(f"{state}\n" for state in benchmark.test),
        group=group,
        target=target,
    )


def _degrees(values: Iterable[float]) -> list[float]:
    return [round(float(value), 2) for value in values]


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
