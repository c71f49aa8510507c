"""``toporo predict``."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, BinaryIO

import numpy as np
import pyarrow as pa
import typer
from pyarrow import compute, ipc, parquet

from toporo.cli.options import (
    DataFile,
    Delimiter,
    DropUnknown,
    Engine,
    Flags,
    ModelFolder,
    data_source,
    option,
    out_option,
    split_names,
    takes_flags,
)
from toporo.cli.outputs import outputs
from toporo.cli.running import register, working
from toporo.cli.terminal import say
from toporo.data.frame import NoRowsError
from toporo.data.table import Table, find_table
from toporo.errors import SettingError, listed
from toporo.files import replacing
from toporo.pool import LOCAL, Pool, RayPool, check_engine, open_pool
from toporo.progress import Progress
from toporo.tables.model import Prediction, TableModel, UnknownGroupsError, load_model, skipped_in_words
from toporo.text import many, write_data

_DATA, _OUTPUT = "Data", "Output"
#: How --out is written, by the end of its name.
TABLES = ("csv", "parquet", "feather", "jsonl")
#: Columns that are new, by numbers that no class has.
NEW = {"prediction": -1, "lower": -2, "upper": -3, "set": -4, "reach": -5, "outside": -6}
#: Rows whose reach is looked at unasked: in the first portion, and in each of the others.
LOOKED_AT, OF_OTHERS = 4096, 256
#: Bytes of a table by which its rows are counted.
SAMPLED = 1 << 18
#: What stands between the labels of a set; in a label it has a backslash before it.
BETWEEN = "|"
#: Numbers from here to there that are not whole look the same to Python and to pyarrow: no exponent, the same digits.
ALIKE = (1e-4, 1e10)
#: What begins a formula in a spreadsheet, and a number, which begins none.
_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
Columns = dict[str, Any]  # arrays of pyarrow: of text, or of numbers


@register("predict")
@takes_flags(memory_limit=True)
def predict(
    model: ModelFolder,
    data: DataFile,
    keep: Annotated[
        str | None,
        option("Columns to repeat beside the predictions.", _DATA, metavar="NAMES", show_default="the group, if there"),
    ] = None,
    delimiter: Delimiter = ",",
    drop_rows: DropUnknown = False,
    engine: Engine = LOCAL,
    neighbors: Annotated[
        list[str] | None,
        option(
            "A group that is not in the graph of a kriged model or one by votes, and those there it is next to. May be "
            "repeated.",
            _DATA,
            metavar="NAME=a,b",
        ),
    ] = None,
    interval: Annotated[
        float | None,
        option(
            "Columns lower and upper between which a target lies with this probability in groups not trained on; of "
            "classes a column set: the labels that may be right, with | between them.",
            _OUTPUT,
            min=0.01,
            max=0.999,
            metavar="SHARE",
        ),
    ] = None,
    reach: Annotated[
        bool,
        option(
            "Columns reach, at most 1 inside of what validation has seen, and outside, why a row is not.",
            _OUTPUT,
            "--reach",
            metavar="",
        ),
    ] = False,
    probabilities: Annotated[bool, option("A column for the probability of every class.", _OUTPUT, metavar="")] = True,
    out: Annotated[
        Path | None,
        out_option("Write to this .csv, .parquet, .feather or .jsonl file.", show_default="CSV on standard output"),
    ] = None,
    safe_csv: Annotated[
        bool,
        option(
            "Put ' before text in the CSV that a spreadsheet takes for a formula: what begins with = + - @.",
            _OUTPUT,
            "--safe-csv",
            metavar="",
        ),
    ] = False,
    *,
    flags: Flags,
) -> None:
    """Predict every row of a table, a portion at a time: files may be larger than memory.

    A model by votes or a kriged one needs the group of every row, and looks
    at all rows of a group together: what does not fit below --memory-limit,
    and tables in chunks, it reads twice. Standard input must fit.

    Example: toporo predict model new.csv > predictions.csv
    """
    if out is not None:
        if flags.json:
            raise typer.BadParameter("--json prints to standard output; with --out, name a .jsonl file instead.")
        outputs([out], {"table": TABLES}, data=data, models=[model])
    if safe_csv and (flags.json or (out is not None and out.suffix.lower() != ".csv")):
        raise typer.BadParameter("--safe-csv is for CSV: leave it out, or write a .csv file.")
    loaded = load_model(model)
    kept = split_names(keep, "--keep")
    ends = ["lower", "upper"] if loaded.classes is None else ["set"]
    new = [*ends * (interval is not None), *["reach", "outside"] * reach]
    titles = _titles(loaded, kept if kept is not None else [loaded.group], probabilities, new)
    optional = [] if kept is not None else [loaded.group]
    near = _neighbors(neighbors)
    check_engine(engine)
    counts = _Counts()
    asked: dict[str, Any] = {"interval": interval, "neighbors": near, "delimiter": delimiter, "reach": reach}
    asked |= {"drop_rows": drop_rows, "memory_limit": flags.memory_limit}
    asked |= {"keep": kept or (), "optional": optional}
    outcome = "not all rows were printed" if out is None else out
    try:
        with (
            working("predicting", outcome, quiet=flags.quiet or (out is None and (flags.json or sys.stdout.isatty()))),
            _writer(out, flags.json, plain_text if safe_csv else str) as write,
            open_pool(engine) as workers,
        ):
            table = find_table(data_source(data), delimiter=delimiter)
            with Progress("predicting", rows_expected(data, table), False) as shown:
                for columns in _all_columns(workers, loaded, table, titles, asked, counts):
                    write(columns)
                    rows = len(next(iter(columns.values())))
                    shown.step(f"predicting: {shown.done + rows:,} rows", steps=rows)
    except BrokenPipeError:  # the reader has had enough, as with `| head`
        sys.stderr.close()
        raise typer.Exit from None
    counts.say()
    if out is not None:
        say(f"predictions: {out}", err=True)


def _all_columns(
    workers: Pool, model: TableModel, source: Any, titles: dict[str, str | int], asked: dict[str, Any], counts: _Counts
) -> Iterator[Columns]:
    """The columns of every portion, in order: predicted here, or by workers a chunk of the table each."""
    shared = workers.share(model)
    parts, inputs = model.parts(source, workers, shared, asked)
    if not isinstance(workers, RayPool):
        for number, part in enumerate(parts):
            own = _Counts()
            yield from _columns_of(model, part, titles, {**asked, "inputs": inputs}, number == 0, own)
            counts.merge(own)
    else:
        calls = ((shared, part, titles, asked, number == 0, inputs) for number, part in enumerate(parts))
        for several, own in workers.map(predict_part, calls):
            yield from several
            counts.merge(own)
    if not counts.rows and counts.empty is not None:
        raise UnknownGroupsError(counts.skipped) if counts.skipped else counts.empty


def predict_part(
    model: TableModel, part: Any, titles: dict[str, str | int], asked: dict[str, Any], first: bool, inputs: Any
) -> tuple[list[Columns], _Counts]:
    """What a worker does with a chunk of a table."""
    counts = _Counts()
    return list(_columns_of(model, part, titles, {**asked, "inputs": inputs}, first, counts)), counts


def _columns_of(
    model: TableModel, part: Any, titles: dict[str, str | int], asked: dict[str, Any], first: bool, counts: _Counts
) -> Iterator[Columns]:
    """The columns of a part's portions; it may have no rows if others have some."""
    try:
        for portion in model.portions(part, **asked):
            counts.add(portion, model, asked["neighbors"], first=first and not counts.rows)
            yield _columns(portion, titles, model.classes)
    except NoRowsError as error:
        counts.empty = error
        counts.skipped.update(getattr(error, "skipped", {}))


def rows_expected(data: str, table: Table) -> int:
    """Estimate how many rows a table has; 0 where that cannot be told without reading it."""
    if table.rows is not None:
        return table.rows
    try:
        with Path(data).open("rb") as stream:
            start = stream.read(SAMPLED)
        return 0 if b"\0" in start else Path(data).stat().st_size * start.count(b"\n") // max(len(start), 1)
    except (OSError, pa.ArrowException):  # reading it says what is the matter
        return 0


def _neighbors(given: list[str] | None) -> dict[str, list[str]] | None:
    """Groups by name, each with those that it is next to."""
    near = {}
    for text in given or ():
        name, sign, others = text.partition("=")
        if not name or not sign:
            raise typer.BadParameter(f"{text!r} is not NAME=a,b.", param_hint="--neighbors")
        near[name] = split_names(others, "--neighbors") or []
    return near or None


def _titles(model: TableModel, kept: list[str], probabilities: bool, asked: list[str]) -> dict[str, str | int]:
    """Output column to where it comes from: a column of the table, a class by its place, or one of :data:`NEW`."""
    titles: dict[str, str | int] = {name: name for name in kept}
    new: dict[str, str | int] = {name: NEW[name] for name in ("prediction", *asked)}
    if probabilities and model.classes is not None:
        new |= {f"probability of {name}": place for place, name in enumerate(model.classes)}
    both = [name for name in new if name in titles]
    if both:
        raise SettingError(
            f"column(s) to keep would stand beside new ones of the same name: {listed(both)}. Rename them in the "
            "table, or keep other columns (--keep)."
        )
    return titles | new


def _sets(portion: Prediction, classes: Sequence[str] | None) -> list[str] | None:
    """The labels in every row's set, in one text."""
    if portion.sets is None or classes is None:
        return None
    names = [name.replace("\\", "\\\\").replace(BETWEEN, f"\\{BETWEEN}") for name in classes]
    kinds, which = np.unique(portion.sets, axis=0, return_inverse=True)
    texts = [BETWEEN.join(name for name, inside in zip(names, kind, strict=True) if inside) for kind in kinds]
    return [texts[kind] for kind in which.reshape(-1)]


def _columns(portion: Prediction, titles: dict[str, str | int], classes: Sequence[str] | None) -> Columns:
    labels = _sets(portion, classes)
    columns: Columns = {}
    for title, place in titles.items():
        if isinstance(place, str):
            if place in portion.frame.columns:
                column = portion.frame.text(place)
                columns[title] = pa.array(column.levels, pa.string()).take(pa.array(column.codes, mask=column.missing))
        elif place == NEW["reach"] and portion.reach is not None:
            columns[title] = pa.array(portion.reach.values, pa.float64())
        elif place == NEW["outside"] and portion.reach is not None:
            columns[title] = pa.array(portion.reach.reasons, pa.string())
        elif place < 0:
            values = (portion.values, portion.lower, portion.upper, labels)[-1 - place]
            columns[title] = pa.array(values, pa.float64() if portion.probabilities is None else pa.string())
        elif portion.probabilities is not None:
            columns[title] = pa.array(portion.probabilities[:, place], pa.float64())
    return columns


class _Counts:
    """What the model had to do to make sense of the rows."""

    def __init__(self) -> None:
        self.rows, self.looked_at, self.beyond, self.asked = 0, 0, 0.0, False
        self.filled: Counter[str] = Counter()
        self.outside: Counter[str] = Counter()
        self.unseen: dict[str, Counter[str]] = {}
        self.skipped: Counter[str] = Counter()
        self.empty: NoRowsError | None = None

    def merge(self, other: _Counts) -> None:
        """Add those of the next part of a table."""
        self.rows, self.looked_at = self.rows + other.rows, self.looked_at + other.looked_at
        self.beyond, self.asked = self.beyond + other.beyond, self.asked or other.asked
        self.filled.update(other.filled)
        self.outside.update(other.outside)
        self.skipped.update(other.skipped)
        for name, levels in other.unseen.items():
            self.unseen.setdefault(name, Counter()).update(levels)
        self.empty = other.empty or self.empty

    def add(
        self, portion: Prediction, model: TableModel, neighbors: dict[str, list[str]] | None, *, first: bool
    ) -> None:
        if model.reach is not None:
            self._look(portion, model, neighbors, first=first)
        self.rows += len(portion.values)
        self.skipped.update(portion.skipped)
        self.filled.update(portion.encoded.filled)
        self.outside.update(portion.encoded.outside)
        for name, levels in portion.encoded.unseen.items():
            self.unseen.setdefault(name, Counter()).update(levels)

    def _look(
        self, portion: Prediction, model: TableModel, neighbors: dict[str, list[str]] | None, *, first: bool
    ) -> None:
        """Count rows outside of what validation has seen: all if that is known, else some."""
        rows, reach = len(portion.values), portion.reach
        self.asked = reach is not None
        if reach is None:
            looked_at = min(rows, LOOKED_AT if first else OF_OTHERS)
            places = np.linspace(0, rows - 1, looked_at).astype(np.intp)
            reach = model.reach_in(portion.frame, portion.encoded, places, neighbors=neighbors)
        self.looked_at += len(reach)
        self.beyond += reach.outside.mean() * rows

    def say(self) -> None:
        lines = [f"{many(self.rows, 'row')} predicted"]
        if self.skipped:
            lines.append(skipped_in_words(self.skipped))
        if self.beyond:
            about = "" if self.looked_at == self.rows else "about "
            hint = "" if self.asked else " (--reach says which and why)"
            lines.append(f"outside of what validation has seen: {about}{many(round(self.beyond), 'row')}{hint}")
        if +self.filled:
            lines.append(f"missing values filled in: {_counted(self.filled)}")
        if +self.outside:
            lines.append(f"outside the range seen in training: {_counted(self.outside)}")
        for name, levels in self.unseen.items():
            lines.append(f"levels of {name!r} not seen in training: {_counted(levels)}")
        for line in lines:
            say(f"toporo: {line}", err=True)


def _counted(counts: Counter[str]) -> str:
    shown = ", ".join(f"{name!r} {count}" for name, count in counts.most_common(8) if count)
    return f"{shown}{', …' if len(counts) > 8 else ''}"


# ---------------------------------------------------------------- writing


@contextmanager
def _writer(out: Path | None, as_json: bool, cell: Callable[[str], str]) -> Iterator[Callable[[Columns], None]]:
    """Something to hand one portion's columns to after the other; ``cell`` is how a CSV has a text."""
    if out is None:
        yield _as_lines(sys.stdout) if as_json else _as_csv(sys.stdout, cell)
        return
    with replacing(out) as stream:
        if out.suffix.lower() in (".parquet", ".feather"):
            with _arrow(stream, out.suffix.lower()) as write:
                yield write
        else:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
            yield _as_csv(text, cell) if out.suffix.lower() == ".csv" else _as_lines(text)
            text.detach()


def plain_text(text: str) -> str:
    """A text that no spreadsheet takes for a formula.

    >>> plain_text("=1+1"), plain_text("-1.5"), plain_text("a=b")
    ("'=1+1", '-1.5', 'a=b')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _as_csv(stream: Any, cell: Callable[[str], str]) -> Callable[[Columns], None]:
    started = False

    def write(columns: Columns) -> None:
        nonlocal started
        if not started:
            header = io.StringIO()
            csv.writer(header, lineterminator="\n").writerow(map(cell, columns))
            write_data(stream, header.getvalue())
            started = True
        write_data(stream, csv_lines(list(columns.values()), cell))

    return write


def csv_lines(columns: Sequence[Any], cell: Callable[[str], str] = str) -> str:
    """Arrays of text and of numbers as the text that Python's csv module writes, at several times its speed."""
    cells = [_number_cells(c) if pa.types.is_floating(c.type) else _text_cells(c, cell) for c in columns]
    lines = compute.binary_join_element_wise(*cells, ",")
    whole = compute.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")
    return f"{whole[0].as_py()}\n"


def _text_cells(column: Any, cell: Callable[[str], str]) -> Any:
    """Text in quotes where it needs them, by the csv module: once for every text that occurs."""
    encoded = column.dictionary_encode()
    lines: list[str] = []
    # With a second cell: an empty one alone in its row would be quoted.
    rows = ((cell(text), "") for text in encoded.dictionary.to_pylist())
    csv.writer(SimpleNamespace(write=lines.append), lineterminator="\n").writerows(rows)
    cells = pa.array([line.removesuffix(",\n") for line in lines], pa.string())
    return cells.take(encoded.indices).fill_null("")


def _number_cells(column: Any) -> Any:
    """Numbers as Python writes them, which for most, not all, is as pyarrow does."""
    values = column.to_numpy(zero_copy_only=False)
    size = np.abs(values)
    other = ~((size >= ALIKE[0]) & (size < ALIKE[1]) & (values != np.rint(values)))
    cells = column.cast(pa.string())
    if other.any():
        written = pa.array([repr(value) for value in values[other].tolist()], pa.string())
        cells = compute.replace_with_mask(cells, pa.array(other), written)
    return cells


def _as_lines(stream: Any) -> Callable[[Columns], None]:
    def write(columns: Columns) -> None:
        rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
        lines = (json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows)
        write_data(stream, "".join(f"{line}\n" for line in lines))

    return write


@contextmanager
def _arrow(stream: BinaryIO, suffix: str) -> Iterator[Callable[[Columns], None]]:
    writer: Any = None

    def write(columns: Columns) -> None:
        nonlocal writer
        table = pa.table(columns)
        if writer is None:
            writer = _open_arrow(stream, suffix, table.schema)
        writer.write(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _open_arrow(stream: BinaryIO, suffix: str, schema: Any) -> Any:
    return parquet.ParquetWriter(stream, schema) if suffix == ".parquet" else ipc.new_file(stream, schema)
