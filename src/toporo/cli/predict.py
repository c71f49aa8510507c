"""``toporo predict``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv
import typer
from pyarrow import compute, ipc, parquet

from toporo.cli import options as opt
from toporo.cli.outputs import outputs
from toporo.cli.running import register, working
from toporo.cli.terminal import say
from toporo.data.frame import NoRowsError
from toporo.data.table import find_table
from toporo.errors import SettingError, listed
from toporo.files import replacing
from toporo.pool import LOCAL, RayPool, check_engine, open_pool
from toporo.progress import Progress
from toporo.tables.model import Prediction, TableModel, UnknownGroupsError, load_model, skipped_in_words
from toporo.text import many, write_data

#: Writers of files, by suffix.
WRITERS: dict[str, Callable[..., Any]] = {
    "csv": pyarrow.csv.CSVWriter,
    "parquet": parquet.ParquetWriter,
    "feather": ipc.new_file,
}
#: Rows of a portion whose reach is measured unasked, and names that are listed in a remark.
REACH_ROWS, LISTED = 1024, 8
#: Between the labels of a set; in a label it has a backslash before it.
BETWEEN = "|"
#: Beginning of a formula in a spreadsheet, and a number, which is none.
FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
#: Rows by remark and by what the remark is about: a group, a column or one of its levels.
Counts: TypeAlias = Counter[tuple[str, str]]
ROWS, MEASURED, OUTSIDE, SKIPPED = ("rows", ""), ("measured", ""), ("outside", ""), "skipped"
_INTERVAL = (
    "Columns lower and upper between which a target lies with this probability in groups not trained on; of classes a "
    "column set: the labels that may be right, with | between them."
)


@register("predict")
@opt.takes_options
def predict(
    model: opt.ModelFolder,
    data: opt.DataFile,
    keep: Annotated[
        str | None, opt.option("Columns to repeat; the group unless given.", callback=opt.split_names)
    ] = None,
    delimiter: opt.Delimiter = ",",
    drop_rows: opt.DropUnknown = False,
    engine: opt.Engine = LOCAL,
    interval: Annotated[float | None, opt.option(_INTERVAL, min=0.01, max=0.999)] = None,
    reach: Annotated[
        bool, opt.option("Columns reach, at most 1 inside of what validation has seen, and why not.")
    ] = False,
    out: Annotated[
        Path | None, opt.option("File: .csv, .parquet or .feather; unless given, CSV is printed.", "-o")
    ] = None,
    safe_csv: Annotated[
        bool, opt.option("Put ' before text in the CSV that a spreadsheet takes for a formula.")
    ] = False,
    *,
    flags: opt.LimitedFlags,
) -> None:
    """Predict every row of a table, which may be larger than memory.

    An auto or kriged model needs the group of every row, and looks at all
    rows of a group together: what does not fit below --memory-limit, and
    tables in chunks, it reads twice. Standard input must fit. With --json a
    row is a line.

    Example: toporo predict model new.csv > predictions.csv
    """
    outputs([] if out is None else [out], {"table": WRITERS}, data, model)
    if flags.json and (out is not None or safe_csv):
        raise typer.BadParameter("--json prints to standard output, and no CSV: leave --out and --safe-csv out.")
    if safe_csv and out is not None and out.suffix.lower() != ".csv":
        raise typer.BadParameter("--safe-csv is for CSV: leave it out, or write a .csv file.")
    loaded, counts = load_model(model), Counts()
    reading: dict[str, Any] = {"keep": keep or (), "optional": [] if keep else [loaded.group], "delimiter": delimiter}
    reading |= {"interval": interval, "reach": reach, "drop_rows": drop_rows, "memory_limit": flags.memory_limit}
    quiet = flags.quiet or (out is None and (flags.json or sys.stdout.isatty()))
    try:
        with (
            working("predicting", quiet=quiet, outcome="not all rows were written"),
            _writer(out, as_json=flags.json) as write,
        ):
            for table in predicted(loaded, data, check_engine(engine), reading, counts):
                write(without_formulas(table) if safe_csv else table)
    except BrokenPipeError:  # the reader has had enough, as with `| head`
        sys.stderr.close()
        raise typer.Exit from None
    _say(counts, asked=reach)
    if out is not None:
        say(f"predictions: {out}", err=True)


# ---------------------------------------------------------------- predictions


def predicted(model: TableModel, data: str, engine: str, reading: dict[str, Any], counts: Counts) -> Iterator[pa.Table]:
    """Yield the rows of a table with predictions, a portion at a time and in order.

    Parameters
    ----------
    model, data, engine : the model, the table and who predicts its chunks.
    reading : keywords of :meth:`TableModel.portions`.
    counts : to which remarks about the rows are added.
    """
    empty: NoRowsError | None = None
    with open_pool(engine) as pool:
        shared = pool.share(model)
        table = find_table(opt.data_source(data), delimiter=reading["delimiter"])
        parts, inputs = model.parts(table, pool, shared, reading)
        calls = ((shared, part, reading, inputs) for part in parts)
        several = pool.map(predict_part, calls) if isinstance(pool, RayPool) else (_portions(*each) for each in calls)
        with Progress("predicting", len(parts), False) as shown:
            for portions in several:
                for portion, found in portions:
                    counts.update(found)
                    if isinstance(portion, NoRowsError):
                        empty = portion
                    else:
                        yield portion
                shown.step(f"predicting: {counts[ROWS]:,} rows")
    if empty is not None and not counts[ROWS]:
        skipped = {name: rows for (remark, name), rows in counts.items() if remark == SKIPPED}
        raise UnknownGroupsError(skipped) if skipped else empty


def predict_part(*call: Any) -> list[tuple[pa.Table | NoRowsError, Counts]]:
    """Predict a chunk of a table, as a worker does."""
    return list(_portions(*call))


def _portions(
    model: TableModel, part: Any, reading: dict[str, Any], inputs: Any
) -> Iterator[tuple[pa.Table | NoRowsError, Counts]]:
    """Yield portions of a part with what is to be said of them; it may have no rows if others have some."""
    try:
        for portion in model.portions(part, **reading, inputs=inputs):
            yield _table(portion, model, reading), _counts(portion, model)
    except NoRowsError as error:
        yield error, Counts({(SKIPPED, name): rows for name, rows in getattr(error, "skipped", {}).items()})


def _table(portion: Prediction, model: TableModel, reading: dict[str, Any]) -> pa.Table:
    """Return the columns to keep and those of the predictions."""
    kept = {}
    for name in reading["keep"] or reading["optional"]:
        if name in portion.frame.columns:
            column = portion.frame.text(name)
            kept[name] = pa.array(column.levels, pa.string()).take(pa.array(column.codes, mask=column.missing))
    new = {"prediction": pa.array(portion.values, pa.string() if model.classes else pa.float64())}
    if portion.lower is not None and portion.upper is not None:
        new |= {"lower": pa.array(portion.lower), "upper": pa.array(portion.upper)}
    if portion.sets is not None and model.classes is not None:
        names = [name.replace("\\", "\\\\").replace(BETWEEN, f"\\{BETWEEN}") for name in model.classes]
        kinds, which = np.unique(portion.sets, axis=0, return_inverse=True)
        labels = [BETWEEN.join(np.compress(kind, names)) for kind in kinds]
        new["set"] = pa.array(labels, pa.string()).take(pa.array(which.reshape(-1)))
    if portion.reach is not None:
        new |= {"reach": pa.array(portion.reach.values), "outside": pa.array(portion.reach.reasons, pa.string())}
    if portion.probabilities is not None:
        columns = zip(model.classes or (), portion.probabilities.T, strict=True)
        new |= {f"probability of {name}": pa.array(column) for name, column in columns}
    if both := kept.keys() & new.keys():
        raise SettingError(
            f"column(s) to keep would stand beside new ones of the same name: {listed(sorted(both))}. Rename them in "
            "the table, or keep other columns (--keep)."
        )
    return pa.table(kept | new)


def without_formulas(table: pa.Table) -> pa.Table:
    """Put ' before text that a spreadsheet takes for a formula, in titles too.

    >>> without_formulas(pa.table({"a": ["=1+1", "-1.5", "a=b"]}))["a"].to_pylist()
    ["'=1+1", '-1.5', 'a=b']
    """

    def guarded(column: Any) -> Any:
        if not pa.types.is_string(column.type):
            return column
        kinds = [compute.match_substring_regex(column, pattern) for pattern in (FORMULA, NUMBER)]
        return compute.if_else(compute.and_not(*kinds), compute.binary_join_element_wise("'", column, ""), column)

    titles = guarded(pa.array(table.column_names, pa.string())).to_pylist()
    return pa.table([guarded(column) for column in table.columns], names=titles)


# ---------------------------------------------------------------- remarks


def _counts(portion: Prediction, model: TableModel) -> Counts:
    """Count what the model had to do to make sense of the rows."""
    rows, reach, found = len(portion.values), portion.reach, portion.encoded.differences
    remarks = {SKIPPED: portion.skipped, "missing values filled in": found.filled}
    remarks |= {"outside the range seen in training": found.outside}
    remarks |= {f"levels of {name!r} not seen in training": levels for name, levels in found.unseen.items()}
    counts = Counts({(remark, name): number for remark, by_name in remarks.items() for name, number in by_name.items()})
    counts[ROWS] = rows
    if model.reach is not None:
        if reach is None:
            some = np.linspace(0, rows - 1, min(rows, REACH_ROWS)).astype(np.intp)
            reach = model.reach_in(portion.frame, portion.encoded, some)
        counts.update({MEASURED: len(reach), OUTSIDE: reach.outside.mean() * rows})
    return counts


def _say(counts: Counts, *, asked: bool) -> None:
    """Print remarks on standard error; ``asked`` is whether there is a column of the rows outside."""
    rows, measured, outside = (counts.pop(key, 0) for key in (ROWS, MEASURED, OUTSIDE))
    lines = [f"{many(rows, 'row')} predicted"]
    if outside:
        about, hint = "" if measured == rows else "about ", "" if asked else " (--reach says which and why)"
        lines.append(f"outside of what validation has seen: {about}{many(round(outside), 'row')}{hint}")
    by_remark: dict[str, dict[str, int]] = {}
    for (remark, name), count in counts.most_common():
        if count:
            by_remark.setdefault(remark, {})[name] = count
    for remark, found in by_remark.items():
        shown = ", ".join(f"{name!r} {count}" for name, count in list(found.items())[:LISTED])
        more = f", … ({len(found)} in all)" if len(found) > LISTED else ""
        lines.append(skipped_in_words(found) if remark == SKIPPED else f"{remark}: {shown}{more}")
    for line in lines:
        say(f"toporo: {line}", err=True)


# ---------------------------------------------------------------- writing


@contextmanager
def _writer(out: Path | None, *, as_json: bool) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that writes a portion after the other, to a file whole or not at all."""
    writer: Any = None
    with ExitStack() as stack:
        stream = None if out is None else stack.enter_context(replacing(out))

        def write(table: pa.Table) -> None:
            nonlocal writer
            if as_json:
                write_data(sys.stdout, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in table.to_pylist()))
            elif out is None:
                write_data(sys.stdout, csv_text(table, titles=writer is None))
                writer = sys.stdout
            else:
                if writer is None:
                    make = WRITERS[out.suffix.lower().removeprefix(".")]
                    writer = stack.enter_context(make(stream, table.schema))
                writer.write_table(table)

        yield write


def csv_text(table: pa.Table, *, titles: bool) -> str:
    """Return a table as CSV: text in double quotes, numbers with all digits, nothing where there is no text."""
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(table, sink, pyarrow.csv.WriteOptions(include_header=titles))
    return str(sink.getvalue().to_pybytes(), "utf-8")
