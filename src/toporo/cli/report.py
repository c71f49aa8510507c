"""``toporo report``."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from os.path import realpath  # unlike Path.resolve, it bears links in a loop
from pathlib import Path
from typing import Annotated, Any

import typer

from toporo.cli.evaluate import judge
from toporo.cli.options import Coordinates, Delimiter, DropUnknown, Flags, ModelFolder, Unseen, out_option, takes_flags
from toporo.cli.outputs import check_writable
from toporo.cli.running import register, working
from toporo.cli.settings import setting, takes_settings
from toporo.cli.terminal import say, say_data, tell
from toporo.coordinates import read_coordinates
from toporo.errors import SettingError
from toporo.pages.model import describe_model, write_model_report
from toporo.tables.folder import MANIFEST, WEIGHTS
from toporo.tables.model import load_model
from toporo.text import spelled


@dataclass(frozen=True)
class ReportSettings:
    """Expert settings of ``toporo report``."""

    resamples: int = setting(1000, "how often to draw the rows anew, for intervals; 0 is none", least=0)
    seed: int = setting(0, "of the resamples", least=0)


@register("report")
@takes_flags(memory_limit=True)
@takes_settings(ReportSettings)
def report(
    model: ModelFolder,
    settings: dict[str, Any],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Table with targets and groups to judge the model by, as for toporo evaluate; - is standard input.",
            show_default="no evaluation",
        ),
    ] = None,
    delimiter: Delimiter = ",",
    unseen: Unseen = False,
    drop_rows: DropUnknown = False,
    coordinates: Coordinates = None,
    out: Annotated[Path, out_option("Write the page to this file; one that is there is replaced.")] = Path(
        "report.html"
    ),
    *,
    flags: Flags,
) -> None:
    """Write one page about a model: its groups, weights and losses.

    With a table it also shows how the model does there, by group and by distance
    from the groups it was trained on, with intervals.
    The page is a single HTML file that opens offline and loads nothing.

    Example: toporo report model/ holdout.csv --out page.html
    """
    _check_files(model, data, out)
    settings |= {"unseen": unseen, "drop_rows": drop_rows, "delimiter": delimiter, "memory_limit": flags.memory_limit}
    with working("writing the page", out, quiet=flags.silent):
        fitted = load_model(model)
        if coordinates is not None:
            if fitted.graph is None:
                raise SettingError(f"--coordinates {coordinates}: {model} has no graph to draw. Leave them out.")
            fitted = replace(fitted, graph=read_coordinates(coordinates).place(fitted.graph))
        content: dict[str, Any] = {"evaluation": None, "source": None}
        if data is not None:
            source = "standard input" if data == "-" else spelled(Path(data.partition("?")[0]).name)
            (judged,) = judge({str(model): fitted}, data, **settings)
            content = {"evaluation": judged, "source": source}
        write_model_report(fitted, out, **content)
        described = describe_model(fitted, **content)
    if flags.json:
        say_data(json.dumps(described, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        tell(described["verdict"])
        for sentence in described["summary"]:
            tell(sentence)
    say(f"report: {out}", err=flags.json)


def _check_files(model: Path, data: str | None, out: Path) -> None:
    """What would keep the page from being written, or make it replace the model, is an error before the work."""
    check_writable(data or "-", {"--out": out})
    if realpath(out) in {realpath(model / name) for name in (MANIFEST, *WEIGHTS)}:
        raise SettingError(f"--out {out}: that is a file of the model itself. Choose another name.")
