"""``toporo explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from toporo.cli.common import (
    PICTURES,
    ModelFolder,
    Quiet,
    Verbose,
    check_writable,
    graph_figure,
    option,
    refuse_inside,
    register,
    say,
    say_data,
    say_more,
    shown_of,
    tell,
    working,
    write_picture,
)
from toporo.estimators.explain import MOST_BELOW
from toporo.files import write_text
from toporo.tables.model import load_model

#: Lines shown; --verbose shows all.
SHOWN = 18
_OUTPUT = "Output"


@register("explain")
def explain(
    model: ModelFolder,
    out: Annotated[Path | None, option("Write the table to this CSV file.", _OUTPUT, metavar="FILE")] = None,
    plot: Annotated[
        Path | None,
        option(
            "Draw groups by weight (kriged: difference; auto: effect, or votes): .png, .svg or .pdf.",
            _OUTPUT,
            metavar="FILE",
        ),
    ] = None,
    as_json: Annotated[bool, option("Print the table as JSON.", _OUTPUT, "--json", metavar="")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show what a model is made of: candidates by vote, groups by weight.

    Of every group: its rows, the model's loss there, its centrality and
    prior, its weight in the worst case, and hops to the nearest test group;
    of a linear model also its coefficients, the largest first.
    Of a model by votes: its candidates, their errors in groups left out and
    their votes, and what the graph adds. Of a kriged model: coefficients by
    group, the most different first, how much the graph counts, and what would
    change without it.

    Example: toporo explain model --plot weights.png
    """
    check_writable("-", {"--out": out, "--plot": plot}, endings={"--plot": PICTURES})
    refuse_inside(model, {"--out": out, "--plot": plot})
    with working("reading the model", "not everything was written", quiet=as_json or quiet):
        loaded = load_model(model)
        table = loaded.explain()
        if out is not None:
            write_text(out, table.to_csv())
        if plot is not None:
            write_picture(plot, lambda: graph_figure(loaded.estimator.plot, len(loaded.graph or table)))
    if as_json:
        content = {**table.about, table.key: table.to_dict()} if table.about else table.to_dict()
        say_data(json.dumps(content, indent=1, ensure_ascii=False))
    else:
        most = shown_of(len(table), None if verbose else SHOWN)
        say(table[:most].lines())
        say_more(len(table) - most, "line")
        if below := table.below(None if verbose else MOST_BELOW):
            blank, title, *lines = below.split("\n")
            say(blank)
            tell(title)
            say("\n".join(lines))
        for note in table.notes:
            tell(note)
    for what, path in (("table", out), ("picture", plot)):
        if path is not None:
            say(f"{what + ':':<10} {path}", err=as_json)
