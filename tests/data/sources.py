"""Every kind of source that a table can be read from, made from the same columns."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from pyarrow import feather, ipc, parquet

from tests.data.cases import rows_as_csv
from toporo.data.frame import Frame, Texts

Columns = Mapping[str, Sequence[Any]]


def plain(frame: Frame, name: str) -> list[Any]:
    """Return a column row by row, None where a value is missing."""
    column = frame[name]
    if isinstance(column, Texts):
        assert column.codes.dtype == np.int32
        assert list(column.levels) == sorted({level for level in column.tolist() if level is not None})
        return column.tolist()
    assert column.values.dtype == np.float64
    return [None if np.isnan(value) else value for value in column.values.tolist()]


def content(frame: Frame) -> dict[str, tuple[str, list[Any]]]:
    """Return the kind and the values of every column."""
    return {name: (frame[name].kind, plain(frame, name)) for name in frame.names}


def as_cells(columns: Columns) -> str:
    """Write columns as CSV."""
    texts = {
        name: ["" if cell is None else repr(cell) if isinstance(cell, float) else str(cell) for cell in column]
        for name, column in columns.items()
    }
    return rows_as_csv(texts)


def as_arrow(columns: Columns) -> Any:
    """Return columns as a table of pyarrow."""
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def _numpy(columns: Columns, folder: Path) -> Any:
    kinds: dict[type, Any] = {float: float, int: float, datetime: "datetime64[us]"}
    first = {name: next((type(cell) for cell in column if cell is not None), str) for name, column in columns.items()}
    return {name: np.array(column, kinds.get(first[name], object)) for name, column in columns.items()}


def _stream(columns: Columns, file: Path) -> Any:
    table = as_arrow(columns)
    with ipc.new_stream(str(file), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return file


def _file(name: str, write: Callable[[Columns, Path], Any]) -> Callable[[Columns, Path], Any]:
    def make(columns: Columns, folder: Path) -> Any:
        write(columns, folder / name)
        return folder / name

    return make


def _text(columns: Columns, file: Path) -> None:
    content = as_cells(columns).encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def _parquet(columns: Columns, file: Path) -> None:
    parquet.write_table(as_arrow(columns), file, row_group_size=3)


def _feather(columns: Columns, file: Path) -> None:
    feather.write_feather(as_arrow(columns), str(file), chunksize=3)


def _folder(write: Callable[[Columns, Path], Any], suffix: str, *, hive: bool = False) -> Callable[..., Any]:
    """Make a folder of two files; with ``hive`` each lies in a folder that says the value of a column ``part``."""

    def make(columns: Columns, folder: Path) -> Any:
        length = len(next(iter(columns.values())))
        for place, (start, stop) in enumerate(pairwise([0, length // 2, length])):
            inner = folder / (f"part={place}" if hive else ".")
            inner.mkdir(exist_ok=True)
            write({name: column[start:stop] for name, column in columns.items()}, inner / f"{place}{suffix}")
        return folder

    return make


def _bytes(write: Callable[[Columns, Path], Any]) -> Callable[[Columns, Path], Any]:
    def make(columns: Columns, folder: Path) -> Any:
        write(columns, folder / "bytes")
        return io.BytesIO((folder / "bytes").read_bytes())

    return make


#: Functions of columns and an empty folder that return a source, by name.
SOURCES: dict[str, Callable[[Columns, Path], Any]] = {
    "mapping": lambda columns, _: dict(columns),
    "numpy": _numpy,
    "pandas": lambda columns, _: pd.DataFrame(dict(columns)),
    "pandas of arrow": lambda columns, _: as_arrow(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda columns, _: pl.DataFrame(as_arrow(columns)),
    "arrow": lambda columns, _: as_arrow(columns),
    "record batch": lambda columns, _: pa.RecordBatch.from_pydict(dict(columns), as_arrow(columns).schema),
    "csv": _file("t.csv", _text),
    "csv.gz": _file("t.csv.gz", _text),
    "csv stream": _bytes(_text),
    "parquet": _file("t.parquet", _parquet),
    "parquet stream": _bytes(_parquet),
    "feather": _file("t.feather", _feather),
    "arrow stream": _file("t.arrow", _stream),
    "folder of csv": _folder(_text, ".csv"),
    "folder of parquet": _folder(_parquet, ".parquet"),
    "folder of feather": _folder(_feather, ".feather"),
    "hive of csv": _folder(_text, ".csv", hive=True),
    "hive of parquet": _folder(_parquet, ".parquet", hive=True),
    "pattern": lambda columns, folder: f"{_folder(_parquet, '.parquet')(columns, folder)}/?.parquet",
    "address": lambda columns, folder: _folder(_parquet, ".parquet")(columns, folder).as_uri(),
}
