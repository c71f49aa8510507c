"""``toporo report``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from toporo.cli import options as opt
from toporo.cli.evaluate import EvaluationSettings, evaluate_all
from toporo.cli.outputs import check_writable
from toporo.cli.running import register, working
from toporo.cli.settings import settings_option
from toporo.cli.terminal import say, say_data, tell
from toporo.coordinates import read_coordinates
from toporo.data.stores import without_query
from toporo.errors import SettingError
from toporo.pages.model import describe_model, write_model_report
from toporo.tables.model import load_model
from toporo.text import spelled

_TABLE = "Table with targets and groups to evaluate the model on, as for toporo evaluate."


@register("report")
@opt.takes_options
def report(
    model: opt.ModelFolder,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help=_TABLE)] = None,
    settings: Annotated[list[Any] | None, settings_option(EvaluationSettings)] = None,
    delimiter: opt.Delimiter = ",",
    unseen: opt.Unseen = False,
    drop_rows: opt.DropUnknown = False,
    coordinates: opt.Coordinates = None,
    out: Annotated[Path, opt.option("Write the page to this file; one that is there is replaced.", "-o")] = Path(
        "report.html"
    ),
    *,
    flags: opt.LimitedFlags,
) -> None:
    """Write a page about a model: its groups, weights and losses.

    With a table it also shows the model's errors there, by group and by
    distance from the groups it was trained on, with intervals. The page is a
    single HTML file that opens offline and loads nothing.

    Example: toporo report model/ holdout.csv --out page.html
    """
    check_writable(out, data or "-", model)
    reading = {"unseen": unseen, "drop_rows": drop_rows, "delimiter": delimiter, "memory_limit": flags.memory_limit}
    with working("writing the page", quiet=flags.silent):
        fitted = load_model(model)
        content: dict[str, Any] = {}
        if coordinates is not None:
            if fitted.graph is None:
                raise SettingError(f"--coordinates {coordinates}: {model} has no graph to draw. Leave them out.")
            fitted = replace(fitted, graph=read_coordinates(coordinates).place(fitted.graph))
        if data is not None:
            source = "standard input" if data == "-" else spelled(Path(without_query(data)).name)
            (evaluation,) = evaluate_all({str(model): fitted}, data, **reading, **dict(settings or ())).values()
            content = {"evaluation": evaluation, "source": source}
        write_model_report(fitted, out, **content)
        described = describe_model(fitted, **content)
    if flags.json:
        say_data(described)
    else:
        tell(described["verdict"], *described["summary"])
    say(f"report: {out}", err=flags.json)
