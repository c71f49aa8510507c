"""``toporo evaluate``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toporo.cli.common import (
    INTERRUPTED,
    Delimiter,
    ModelFolder,
    check_writable,
    data_source,
    many,
    option,
    plain_warnings,
)
from toporo.cli.output import print_table, refuse_inside
from toporo.errors import SettingError

if TYPE_CHECKING:
    from toporo.tables import Evaluation, Interval


_DATA, _OUTPUT = "Data", "Output"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(evaluate)


def evaluate(
    model: ModelFolder,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="CSV, Parquet or Feather file with the target and group; - is CSV on standard input."
        ),
    ],
    delimiter: Delimiter = ",",
    unseen: Annotated[
        bool, option("Only groups that the model was not trained on.", _DATA, "--unseen", metavar="")
    ] = False,
    against: Annotated[
        Path | None,
        option("Another model of the same target, to compare with: a control, say.", _DATA, metavar="FOLDER"),
    ] = None,
    resamples: Annotated[int, option("Of the bootstrap.", _DATA, min=20, metavar="N")] = 1000,
    level: Annotated[float, option("Of the intervals.", _DATA, min=0.5, max=0.999, metavar="LEVEL")] = 0.95,
    seed: Annotated[int, option("Of the bootstrap.", _DATA, min=0, metavar="N")] = 0,
    out: Annotated[Path | None, option("Write one line a group to this CSV file.", _OUTPUT, metavar="FILE")] = None,
    as_json: Annotated[bool, option("Print everything as JSON.", _OUTPUT, "--json", metavar="")] = False,
) -> None:
    """Judge a model by group, the worst first, and by how far a group is from those trained on.

    Intervals are bootstrapped: rows within groups, and for means over groups
    the groups too. Rows without a target are left out.

    Example: toporo evaluate model new.csv --against control
    """
    from toporo.files import write_text
    from toporo.tables import compare, load_model

    if against is not None and data == "-":
        raise typer.BadParameter("standard input can be read once: with --against, give a file.")
    check_writable(data, {"--out": out})
    for folder in (model, against) if against is not None else (model,):
        refuse_inside(folder, {"--out": out})
    loaded, control = load_model(model), None if against is None else load_model(against)
    if control is not None and (control.task, control.target) != (loaded.task, loaded.target):
        raise SettingError(
            f"{against} is a {control.task} of {control.target!r}, {model} a {loaded.task} of {loaded.target!r}: only "
            "models of the same target can be compared."
        )
    settings: dict[str, Any] = {"resamples": resamples, "level": level, "seed": seed, "delimiter": delimiter}
    other = None
    try:
        with plain_warnings():
            found = loaded.evaluate(data_source(data), unseen=unseen, **settings)
            if control is not None:
                other = control.evaluate(data_source(data), unseen=unseen, **settings)
    except KeyboardInterrupt:
        typer.echo("toporo: interrupted; nothing was written.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if out is not None:
        write_text(out, found.to_csv())
    if as_json:
        content = found.to_dict() | (
            {} if other is None else {"against": other.to_dict(), "gain": compare(found, other).to_dict()}
        )
        typer.echo(json.dumps(content, indent=1, ensure_ascii=False))
    else:
        _show(found)
        if other is not None:
            _compare(found, other, str(model), str(against))
    if out is not None:
        typer.echo(f"by group: {out}", err=as_json)


def _show(found: Evaluation) -> None:
    metrics = list(found.overall)
    print_table(
        ["group", "rows", "hops", "trained on", *metrics],
        [
            [
                score.group,
                str(score.rows),
                "" if score.hops is None else "no path" if math.isinf(score.hops) else f"{score.hops:g}",
                "yes" if score.trained else "no",
                *(_interval(score.metrics[name]) for name in metrics),
            ]
            for score in found.groups
        ],
        numbers=[1, 2, *range(4, 4 + len(metrics))],
    )
    lines = _lines(found) | {f"worst group ({found.worst.group})": found.worst.metrics}
    print_table(
        ["", *metrics],
        [[title, *(_interval(scores[name]) for name in metrics)] for title, scores in lines.items()],
        numbers=range(1, 1 + len(metrics)),
    )
    typer.echo(
        f"{many(len(found.groups), 'group')}, worst first by {found.metric}; in brackets {100 * found.level:g} % "
        f"intervals of {found.resamples} bootstrap samples."
    )
    if found.by_hop:
        typer.echo("Hops are edges to the nearest group that the model was trained on.")
    if "r2" in metrics:
        typer.echo("R² is within a group: below 0, the group's own mean would have been nearer.")


def _lines(found: Evaluation) -> dict[str, Mapping[str, Interval]]:
    lines: dict[str, Mapping[str, Interval]] = {"mean over groups": found.overall, "all rows together": found.pooled}
    return lines | {f"hops {hop}": scores for hop, scores in found.by_hop.items()}


def _compare(found: Evaluation, other: Evaluation, name: str, control: str) -> None:
    """Two models on the same rows, by the leading metric."""
    from toporo.tables import compare

    metric, theirs = found.metric, _lines(other)
    rows = [
        [title, _interval(scores[metric]), _interval(theirs[title][metric])]
        for title, scores in _lines(found).items()
        if title in theirs
    ]
    worst = [f"{e.worst.group}: {_interval(e.worst.metrics[metric])}" for e in (found, other)]
    print_table([metric, name, control], [*rows, ["worst group", *worst]], numbers=[1, 2])
    gain = compare(found, other)
    typer.echo(
        f"{name} gains {_interval(gain.gain)} over {control}, mean over groups (the interval is of the difference); it "
        f"is better in {gain.better} of {many(len(gain.gains), 'group')}."
    )


def _interval(interval: Interval) -> str:
    if math.isnan(interval.value):
        return "–"
    around = "" if math.isnan(interval.low) else f" [{interval.low:.3g}, {interval.high:.3g}]"
    return f"{interval.value:.3g}{around}"
