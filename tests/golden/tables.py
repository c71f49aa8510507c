"""Golden parts of tables: predictions, reach and intervals in memory, out of core and by Ray."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import toporo as tr
from toporo.data import table as data_table
from toporo.tables import TableModel, large

from .data import NEW_STATIONS, RIVER_EDGES, grid, river
from .models import LBFGS, NEWTON
from .parts import part, patched

#: Rows of a chunk of a table read out of core, here.
CHUNK_ROWS = 100
CELLS, CELL_EDGES = grid()
#: Three tables, by name: columns, settings of the fit.
TABLES: dict[str, tuple[dict[str, list[Any]], dict[str, Any]]] = {
    "river": (
        river(rows=50),
        {"target": "level", "group": "station", "graph": RIVER_EDGES, "test_groups": NEW_STATIONS},
    ),
    "floods": (
        river(rows=50, classes=True, seed=2),
        {"target": "flood", "group": "station", "graph": RIVER_EDGES, "test_groups": NEW_STATIONS},
    ),
    "cells": (CELLS, {"target": "kind", "group": "cell", "graph": CELL_EDGES, "weight": "weight"}),
}


@contextlib.contextmanager
def out_of_core() -> Iterator[None]:
    """Read every table in chunks, however small it is."""
    with patched(data_table, CHUNK_ROWS=CHUNK_ROWS), patched(large, needs_scan=lambda table: True):
        yield


def facts(model: TableModel, table: dict[str, list[Any]]) -> dict[str, Any]:
    """What a model says of some rows, and how it is judged."""
    some = {name: column[::40] for name, column in table.items()}
    result: dict[str, Any] = {}
    if model.task == "classification":
        result["probabilities"] = model.predict_proba(some)
    if model.has_intervals:
        result["interval"] = model.predict(some, interval=0.9)
    else:
        result["predictions"] = model.predict(some)
    if model.reach is not None:
        reach = model.reach_of(some)
        result["reach"] = {"distance": reach.distance, "outside": reach.outside}
    judged = model.evaluate(table).to_dict()
    result["evaluation"] = {key: judged[key] for key in ("overall", "constant") if key in judged}
    return result


def fitted(folder: Path, model: str, how: str) -> dict[str, Any]:
    """Fit a kind of model to the three tables."""
    result = {}
    for name, (table, settings) in TABLES.items():
        source: Any = table
        if how != "memory":
            source = folder / name
            source.mkdir()
            whole = pa.table(table)
            for number, rows in enumerate(np.array_split(np.arange(len(whole)), 3)):
                parquet.write_table(whole.take(rows), source / f"{number}.parquet", row_group_size=CHUNK_ROWS)
        extra = {"engine": "ray"} if how == "ray" else {}
        reading = contextlib.nullcontext() if how == "memory" else out_of_core()
        with reading, warnings.catch_warnings():
            warnings.simplefilter("ignore", tr.TopoRoWarning)
            result[name] = facts(tr.fit_table(source, model=model, **settings, **extra), table)
    return result


for _model, _tolerance, _reason in (("linear", 1e-6, NEWTON), ("kriged", 1e-5, LBFGS), ("auto", 1e-5, LBFGS)):
    for _how, _suffix in (("memory", ""), ("pieces", "-pieces")):
        part(f"table-{_model}{_suffix}", tolerance=_tolerance, reason=_reason)(partial(fitted, model=_model, how=_how))


@part("table-ray", tolerance=1e-5, reason=LBFGS, modules=("ray",))
def table_ray(folder: Path) -> Any:
    """All three, by Ray on this machine."""
    from toporo.pool import open_pool

    result = {}
    with open_pool("ray"):
        for model in ("linear", "kriged", "auto"):
            place = folder / model
            place.mkdir()
            result[model] = fitted(place, model, "ray")
    return result
