"""``toporo report``."""

from __future__ import annotations

import json
from dataclasses import replace
from os.path import realpath  # unlike Path.resolve, it bears links in a loop
from pathlib import Path
from typing import Annotated, Any

import typer

from toporo.cli.common import (
    Delimiter,
    DropUnknown,
    ModelFolder,
    Quiet,
    check_writable,
    coordinates_option,
    option,
    register,
    say,
    say_data,
    tell,
    working,
)
from toporo.cli.evaluate import judge, load_control
from toporo.coordinates import read_coordinates
from toporo.data.stores import without_query
from toporo.errors import SettingError
from toporo.pages.model import describe_model, write_model_report
from toporo.tables.folder import MANIFEST, WEIGHTS
from toporo.tables.model import load_model
from toporo.text import spelled

_DATA, _OUTPUT = "Data", "Output"


@register("report")
def report(
    model: ModelFolder,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Table with targets and groups to judge the model by, as for toporo evaluate; - is standard input.",
            show_default="no evaluation",
        ),
    ] = None,
    delimiter: Delimiter = ",",
    unseen: Annotated[
        bool, option("Judge only by groups that it was not trained on.", _DATA, "--unseen", metavar="")
    ] = False,
    drop_rows: DropUnknown = False,
    against: Annotated[
        Path | None,
        option("Another model of the same target, to compare with by group: a control, say.", _DATA, metavar="FOLDER"),
    ] = None,
    resamples: Annotated[
        int, option("How often to draw the rows anew, for intervals; 0 is none.", _DATA, min=0, metavar="N")
    ] = 1000,
    seed: Annotated[int, option("Of the resamples.", _DATA, min=0, metavar="N")] = 0,
    coordinates: Annotated[Path | None, coordinates_option(_OUTPUT)] = None,
    out: Annotated[
        Path, option("Write the page to this file; one that is there is replaced.", _OUTPUT, metavar="FILE")
    ] = Path("report.html"),
    as_json: Annotated[
        bool, option("Print what the page says as JSON instead of sentences.", _OUTPUT, "--json", metavar="")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write one page about a model: its groups, weights and losses.

    With a table it also shows how the model does there, by group and by distance
    from the groups it was trained on, with intervals, and beside another model.
    The page is a single HTML file that opens offline and loads nothing.

    Example: toporo report model/ holdout.csv --against control/ --out page.html
    """
    if against is not None and data in (None, "-"):
        raise typer.BadParameter("with --against, give a table in a file: both models are judged by its rows.")
    for folder in (model, against) if against is not None else (model,):
        _check_files(folder, data, out)
    settings: dict[str, Any] = {"unseen": unseen, "resamples": resamples, "seed": seed, "delimiter": delimiter}
    settings["drop_rows"] = drop_rows
    with working("writing the page", out, quiet=as_json or quiet):
        fitted = load_model(model)
        if coordinates is not None:
            if fitted.graph is None:
                raise SettingError(f"--coordinates {coordinates}: {model} has no graph to draw. Leave them out.")
            fitted = replace(fitted, graph=read_coordinates(coordinates).place(fitted.graph))
        models = {str(model): fitted}
        models |= {} if against is None else {str(against): load_control(against, fitted, model)}
        content: dict[str, Any] = {"evaluation": None, "source": None}
        if data is not None:
            source = "standard input" if data == "-" else spelled(Path(without_query(data)).name)
            judged, *other = judge(models, data, **settings)
            content = {"evaluation": judged, "source": source}
            content |= {"against": (str(against), other[0])} if other else {}
        write_model_report(fitted, out, **content)
        described = describe_model(fitted, **content)
    if as_json:
        say_data(json.dumps(described, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        tell(described["verdict"])
        for sentence in described["summary"]:
            if sentence not in described["verdict"]:
                tell(sentence)
    say(f"report: {out}", err=as_json)


def _check_files(model: Path, data: str | None, out: Path) -> None:
    """What would keep the page from being written, or make it replace the model, is an error before the work."""
    check_writable(data or "-", {"--out": out})
    if realpath(out) in {realpath(model / name) for name in (MANIFEST, *WEIGHTS)}:
        raise SettingError(f"--out {out}: that is a file of the model itself. Choose another name.")
