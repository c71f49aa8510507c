"""``toporo fit``."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os.path import realpath  # unlike Path.resolve, it bears links in a loop
from pathlib import Path
from typing import Annotated, Any

import typer

from toporo.cli.common import (
    Categorical,
    DataFile,
    Delimiter,
    DropRows,
    Exclude,
    Features,
    GroupColumn,
    MemoryLimit,
    Quiet,
    TargetColumn,
    Verbose,
    WeightColumn,
    choice,
    columns_asked,
    coordinates_option,
    data_source,
    engine_option,
    names_or_file,
    option,
    print_table,
    register,
    say,
    say_data,
    say_more,
    seconds,
    shown_of,
    tell,
    working,
)
from toporo.errors import listed
from toporo.robust.divergences import DIVERGENCES
from toporo.tables.fit import METHODS, MODELS, default_model, fit_table
from toporo.tables.folder import MANIFEST, check_target
from toporo.tables.model import TableModel
from toporo.tables.roles import TASKS
from toporo.text import SAW, many, number_to_json
from toporo.topology.centrality import MEASURES

#: Columns and groups shown after a fit, which then fits a screen; --verbose shows all.
COLUMNS, SHOWN = 10, 10
#: Which columns come first where not all are shown.
ROLES = ("target", "group", "weight", "left out", "feature")
USUAL = (("prior", "auto"), ("divergence", "l2"), ("ridge", "auto"))
PRIORS = ("auto", "uniform", *MEASURES)


def _penalty(text: str | None) -> str | None:
    return _auto_or_number(text, math.inf)


def _ridge(text: str | None) -> str | None:
    return _auto_or_number(text, sys.float_info.max)


def _auto_or_number(text: str | None, most: float) -> str | None:
    try:
        usable = text in (None, "auto") or 0 <= float(text or "") <= most
    except ValueError:
        usable = False
    if not usable:
        also = " (inf is one)" if math.isinf(most) else ""
        raise typer.BadParameter(f"{text!r} is neither auto nor a number of at least 0{also}.")
    return text


_DATA, _TOPOLOGY, _MODEL, _OUTPUT = "Data", "Topology", "Model", "Output"
_WEIGHTS = "Weights of groups (linear and mlp)"
#: What is predicted; `toporo doctor` has the option too.
TaskName = Annotated[
    str, choice("auto: text, and numbers of which only two differ, are classes.", _DATA, TASKS, metavar="TASK")
]


@register("fit")
def fit(
    data: DataFile,
    target: TargetColumn,
    group: GroupColumn,
    out: Annotated[Path, option("Folder to write the model to.", _OUTPUT, metavar="FOLDER")],
    task: TaskName = "auto",
    features: Features = None,
    exclude: Exclude = None,
    categorical: Categorical = None,
    weight: WeightColumn = None,
    delimiter: Delimiter = ",",
    drop_rows: DropRows = False,
    memory_limit: MemoryLimit = None,
    engine: Annotated[str, engine_option(_DATA)] = "local",
    graph: Annotated[
        str | None,
        option(
            "Which groups touch: lines NY,PA (or NY,PA,2: lengths count if kriged), and HI alone if it touches nobody; "
            "or JSON of toporo topology. learn: learn it from the features, at 4 scales; if resamples of the rows "
            "would give another prior, all groups have the same.",
            _TOPOLOGY,
            metavar="FILE",
        ),
    ] = None,
    coordinates: Annotated[Path | None, coordinates_option(_TOPOLOGY)] = None,
    test_groups: Annotated[
        str | None,
        option("Groups that are not trained on, e.g. a,b or @FILE with one name per line.", _TOPOLOGY, metavar="NAMES"),
    ] = None,
    model: Annotated[
        str | None,
        choice(
            "auto: several, with a vote each; linear (exact), mlp, or kriged: coefficients by group that follow the "
            "graph.",
            _MODEL,
            MODELS,
            metavar="MODEL",
            show_default="auto; linear with a setting of weights",
        ),
    ] = None,
    fast: Annotated[bool, option("The linear model alone.", _MODEL, "--fast", metavar="")] = False,
    budget: Annotated[
        str | None,
        option(
            "Of auto: how long to try models, e.g. 90s, 2min or 1h.",
            _MODEL,
            callback=seconds,
            metavar="TIME",
            show_default="by size",
        ),
    ] = None,
    seed: Annotated[int, option("Of auto and an mlp.", _MODEL, min=0, metavar="N")] = 0,
    epochs: Annotated[int, option("Of an mlp.", _MODEL, min=1, metavar="N")] = 100,
    method: Annotated[
        str | None,
        choice(
            "tro; group-dro: the worst group; erm: all groups alike.",
            _WEIGHTS,
            METHODS,
            metavar="METHOD",
            show_default="tro",
        ),
    ] = None,
    prior: Annotated[
        str | None,
        choice(
            "auto: harmonic with test groups, else betweenness, half of it even; uniform without a graph.",
            _WEIGHTS,
            PRIORS,
            metavar="PRIOR",
            show_default="auto",
        ),
    ] = None,
    penalty: Annotated[
        str | None,
        option(
            "How strongly weights are held to the prior; auto leaves groups out to choose.",
            _WEIGHTS,
            callback=_penalty,
            metavar="NUMBER",
            show_default="auto",
        ),
    ] = None,
    radius: Annotated[
        float | None, option("Instead of a penalty: how far weights may go.", _WEIGHTS, min=0.0, metavar="NUMBER")
    ] = None,
    divergence: Annotated[str | None, choice("", _WEIGHTS, DIVERGENCES, metavar="NAME", show_default="l2")] = None,
    ridge: Annotated[
        str | None,
        option(
            "Shrinks the coefficients; auto goes with columns over rows in effect.",
            _WEIGHTS,
            callback=_ridge,
            metavar="NUMBER",
            show_default="auto",
        ),
    ] = None,
    intervals: Annotated[
        bool,
        option(
            "Of an mlp, or kriged classes: up to 12 more fits, for predict --interval. Others have it anyway.",
            _MODEL,
            "--intervals",
            metavar="",
        ),
    ] = False,
    overwrite: Annotated[bool, option("Replace a model that is there.", _OUTPUT, "--overwrite", metavar="")] = False,
    as_json: Annotated[bool, option("Print a summary as JSON.", _OUTPUT, "--json", metavar="")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Fit a model that must hold in groups nobody has seen.

    Columns are typed by their cells; text becomes categories, missing
    features are filled in, and all that is kept with the model. Several
    models get a vote each by how they do in training groups left out, and
    what they leave follows the graph. Settings of weights ask for a linear
    model instead, fitted against the worst mixture of groups near the
    graph's prior. A table may be larger than memory, a folder of files, a
    pattern or an address: linear and kriged models of numbers then read all
    rows once, logistic ones several times, others some of the rows.

    Example: toporo fit sales.csv --target y --group state --graph
    borders.csv --test-groups NV,UT --out model
    """
    check_target(out, overwrite=overwrite)
    asked = {"method": method, "prior": prior, "penalty": penalty, "radius": radius}
    asked |= {"divergence": divergence, "ridge": ridge}
    settings: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    for name in ("penalty", "ridge"):
        if settings.get(name, "auto") != "auto":
            settings[name] = float(settings[name])
    kind = _model(model, fast, settings)
    if kind != "auto":
        settings = {name: value for name, value in settings.items() if (name, value) not in USUAL}
    if kind == "mlp":
        settings |= {"epochs": epochs, "random_state": seed}
    if budget is not None and kind != "auto":
        raise typer.BadParameter(f"--budget is of model auto, and this is {kind}: leave it out.")
    with working("fitting", out / MANIFEST, quiet=as_json or quiet), _resumable(kind, out) as kept:
        if kind == "auto":
            settings |= {"random_state": seed, "budget": budget, "resume": kept}
        fitted = fit_table(
            data_source(data),
            target=target,
            group=group,
            graph=graph,
            coordinates=coordinates,
            test_groups=names_or_file(test_groups, "--test-groups") or [],
            task=task,
            **columns_asked(features, exclude, categorical),
            weight=weight,
            drop_rows=drop_rows,
            model=kind,
            intervals=intervals,
            delimiter=delimiter,
            memory_limit=memory_limit,
            engine=engine,
            **settings,
        )
        fitted.save(out, overwrite=overwrite)
    if as_json:
        say_data(json.dumps(summary(fitted), indent=1, ensure_ascii=False))
    else:
        _show(fitted, verbose)
    say(f"model: {out}", err=as_json)


def _model(model: str | None, fast: bool, given: Iterable[str]) -> str:
    """Which model is asked for."""
    if fast and model not in (None, "linear"):
        raise typer.BadParameter(f"--fast is the linear model, and --model is {model}: decide for one.")
    return "linear" if fast else model or default_model(given)


@contextmanager
def _resumable(kind: str, out: Path) -> Iterator[Path]:
    """Where models by votes keep what the next fit goes on from, until this one is done."""
    place = Path(realpath(out))
    kept = place.with_name(f".{place.name}.resume")
    try:
        yield kept
    except BaseException:
        if kind == "auto" and kept.exists():
            say(
                f"toporo: what was fitted so far is in {out.parent / kept.name}: the same command goes on from there.",
                err=True,
            )
        raise
    shutil.rmtree(kept, ignore_errors=True)


def summary(model: TableModel) -> dict[str, Any]:
    """What a fit came to, as plain values for JSON."""
    table = model.explain()
    return {
        "task": model.task,
        "target": model.target,
        "group": model.group,
        "classes": None if model.classes is None else list(model.classes),
        "columns": [vars(column) | {} for column in model.columns],
        "inputs": len(model.encoder.names),
        "test_groups": list(model.test_groups),
        "penalty": number_to_json(model.estimator.penalty_),
        "penalty_scores": [
            {
                "penalty": number_to_json(score.penalty),
                "score": score.score,
                "spread": score.spread,
                "folds": score.folds,
            }
            for score in model.estimator.penalty_scores_ or ()
        ],
        "ridge": getattr(model.estimator, "ridge_", None),
        "rows_in_effect": getattr(model.estimator, "rows_in_effect_", None),
        "prior_capped_mass": getattr(model.estimator.prior_, "capped_mass", 0.0),
        "prior_bootstrap_rms": getattr(model.estimator.prior_, "bootstrap_rms", None),
        "prior_fallback_reason": getattr(model.estimator.prior_, "fallback_reason", ""),
        "prior_saw": list(model.estimator.prior_.saw) if model.estimator.prior_ is not None else [],
        "groups": None,
        "league": None,
        table.key: table.to_dict(),
        "kriged": table.about if model.kriged else None,
        "auto": table.about if table.key == "league" else None,
        "about": model.about,
    }


def _show(model: TableModel, verbose: bool) -> None:
    ranked = model.columns if verbose else sorted(model.columns, key=lambda column: ROLES.index(column.role))
    print_table(
        ["column", "role", "type", "note"],
        [[c.name, c.role, c.kind, c.note] for c in ranked],
        most=None if verbose else COLUMNS,
        thing="column",
    )
    rows, apart, dropped = (model.about[key] for key in ("rows", "rows_set_aside", "rows_dropped"))
    parts = [many(rows, "row"), many(model.about["groups"], "group"), many(len(model.encoder.names), "input")]
    rest = [f"; {many(count, 'row')} {what}" for count, what in ((apart, "set aside"), (dropped, "dropped")) if count]
    tell(f"{model.task.capitalize()} of {model.target!r}: {', '.join(parts)}{''.join(rest)}.")
    if model.test_groups:
        tell(f"Test groups: {listed(model.test_groups)}.")
    prior = model.estimator.prior_
    if prior is not None:
        saw = f"; of the test groups it saw {' and '.join(SAW[what] for what in prior.saw)}" if prior.saw else ""
        even = f", {100 * prior.uniform_share:g} % of it even" if prior.uniform_share else ""
        even += f", {100 * prior.capped_mass:.2g} % taken from groups of few rows" if prior.capped_mass else ""
        tell(f"Prior: {prior.measure}{even} ({prior.effective_groups:.1f} groups in effect{saw}).")
    choice = model.estimator.penalty_scores_
    if choice:
        tell(
            f"Penalty: {model.estimator.penalty_:g}, the best of {len(choice)} over {many(choice[0].folds, 'fold')} of "
            "groups left out."
        )
    elif model.estimator.penalty_ is not None:
        say(f"Penalty: {model.estimator.penalty_:g}.")
    table = model.explain()
    most = shown_of(len(table), None if verbose else SHOWN)
    say(f"{table.who}{f', the {most} {table.first} of {len(table)}' if len(table) > most else ''}:")
    say(table[:most].lines())
    say_more(len(table) - most, "line")
    for sentence in (*table.about.get("words", getattr(table, "effect", ())), *table.remarks):
        tell(sentence)
