"""``toporo explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from toporo.cli import options as opt
from toporo.cli.outputs import PICTURES, graph_figure, outputs, write_picture
from toporo.cli.running import register, working
from toporo.cli.terminal import say, say_data, say_files, say_more, tell
from toporo.estimators.explain import MOST_BELOW
from toporo.files import write_text
from toporo.tables.model import load_model

#: Lines shown; --verbose shows all.
SHOWN = 18


@register("explain")
@opt.takes_options
def explain(
    model: opt.ModelFolder,
    out: Annotated[list[Path] | None, opt.option("Table: .csv. Picture: .png, .svg or .pdf.", "-o")] = None,
    *,
    flags: opt.Flags,
) -> None:
    """Show what a model is made of: candidates or groups by weight.

    Of every group: its rows, the model's loss there, its centrality and
    prior, its weight in the worst case, and hops to the nearest test group;
    of a linear model also its coefficients, the largest first. Of auto: its
    candidates, their errors in groups left out, their ensemble weights, and
    what the graph adds. Of a kriged model: coefficients by group, and what
    would change without the graph.

    Example: toporo explain model --out weights.png
    """
    files = outputs(out, {"table": ("csv",), "picture": PICTURES}, model)
    with working("reading the model", quiet=flags.silent):
        loaded = load_model(model)
        table = loaded.explain()
        if "table" in files:
            write_text(files["table"], table.to_csv())
        if "picture" in files:
            write_picture(files["picture"], lambda: graph_figure(loaded.estimator.plot, len(loaded.graph or table)))
    if flags.json:
        say_data({**table.about, table.key: table.to_dict()} if table.about else table.to_dict())
    else:
        shown = table if flags.verbose else table[:SHOWN]
        say(shown.lines())
        say_more(len(table) - len(shown), "line")
        if below := table.below(None if flags.verbose else MOST_BELOW):
            blank, title, *lines = below.split("\n")
            say(blank)
            tell(title)
            say("\n".join(lines))
        tell(*table.notes)
    say_files(files, err=flags.json)
