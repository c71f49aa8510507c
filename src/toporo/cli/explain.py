"""``toporo explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from toporo.cli.options import Flags, ModelFolder, out_option, takes_flags
from toporo.cli.outputs import PICTURES, graph_figure, outputs, write_picture
from toporo.cli.running import register, working
from toporo.cli.terminal import say, say_data, say_more, shown_of, tell
from toporo.estimators.explain import MOST_BELOW
from toporo.files import write_text
from toporo.tables.model import load_model

#: Lines shown; --verbose shows all.
SHOWN = 18
#: What ``--out`` writes, by suffix.
KINDS = {"table": ("csv",), "picture": tuple(PICTURES)}


@register("explain")
@takes_flags()
def explain(
    model: ModelFolder,
    out: Annotated[
        list[Path] | None,
        out_option(
            "Write the table to a .csv file, or draw groups by weight (kriged: difference; auto: effect or weight): "
            ".png, .svg or .pdf."
        ),
    ] = None,
    *,
    flags: Flags,
) -> None:
    """Show what a model is made of: candidates and groups by weight.

    Of every group: its rows, the model's loss there, its centrality and
    prior, its weight in the worst case, and hops to the nearest test group;
    of a linear model also its coefficients, the largest first.
    Of an ensemble: its candidates, their errors in groups left out and their
    weights, and what the graph adds. Of a kriged model: coefficients by
    group, the most different first, how much the graph counts, and what would
    change without it.

    Example: toporo explain model --out weights.png
    """
    files = outputs(out, KINDS, models=[model])
    with working("reading the model", "not everything was written", quiet=flags.silent):
        loaded = load_model(model)
        table = loaded.explain()
        if "table" in files:
            write_text(files["table"], table.to_csv())
        if "picture" in files:
            write_picture(files["picture"], lambda: graph_figure(loaded.estimator.plot, len(loaded.graph or table)))
    if flags.json:
        content = {**table.about, table.key: table.to_dict()} if table.about else table.to_dict()
        say_data(json.dumps(content, indent=1, ensure_ascii=False))
    else:
        most = shown_of(len(table), None if flags.verbose else SHOWN)
        say(table[:most].lines())
        say_more(len(table) - most, "line")
        if below := table.below(None if flags.verbose else MOST_BELOW):
            blank, title, *lines = below.split("\n")
            say(blank)
            tell(title)
            say("\n".join(lines))
        for note in table.notes:
            tell(note)
    for what, path in files.items():
        say(f"{what + ':':<10} {path}", err=flags.json)
