"""``toporo fit``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from toporo.cli.common import (
    Categorical,
    DataFile,
    Delimiter,
    Exclude,
    Features,
    GroupColumn,
    data_source,
    either,
    interruptible,
    names_or_file,
    one_of,
    option,
    print_table,
    register,
    say,
    say_data,
    split_names,
)
from toporo.errors import listed
from toporo.robust.divergences import DIVERGENCES
from toporo.tables.fit import METHODS, MODELS, fit_table
from toporo.tables.folder import MANIFEST, check_target
from toporo.tables.model import TASKS, TableModel
from toporo.text import SAW, many, number_to_json
from toporo.topology.centrality import MEASURES

#: Groups shown after a fit; `toporo explain` shows all.
SHOWN = 12
AUTO_OR_TASK = ("auto", *TASKS)
#: Unless given.
RIDGE = 1e-3
PRIORS = ("auto", "uniform", *MEASURES)


def _penalty(text: str) -> str:
    try:
        usable = text == "auto" or float(text) >= 0
    except ValueError:
        usable = False
    if not usable:
        raise typer.BadParameter(f"{text!r} is neither auto nor a number of at least 0 (inf is one).")
    return text


_DATA, _TOPOLOGY, _MODEL, _OUTPUT = "Data", "Topology", "Model", "Output"
#: What is predicted; `toporo doctor` has the option too.
TaskName = Annotated[
    str,
    option(
        f"{either(AUTO_OR_TASK)}. auto: text, and numbers of which only two differ, are classes.",
        _DATA,
        callback=one_of(AUTO_OR_TASK),
        metavar="TASK",
    ),
]


@register("fit")
def fit(
    data: DataFile,
    target: Annotated[str, option("Column to predict.", _DATA, metavar="COLUMN")],
    group: GroupColumn,
    out: Annotated[Path, option("Folder to write the model to.", _OUTPUT, metavar="FOLDER")],
    task: TaskName = "auto",
    features: Features = None,
    exclude: Exclude = None,
    categorical: Categorical = None,
    weight: Annotated[
        str | None, option("Column with the weight of every row in its group.", _DATA, metavar="COLUMN")
    ] = None,
    delimiter: Delimiter = ",",
    drop_missing: Annotated[
        bool,
        option(
            "Leave out rows that lack target, group or weight; else they are an error.",
            _DATA,
            "--drop-missing",
            metavar="",
        ),
    ] = False,
    graph: Annotated[
        Path | None,
        option(
            "Which groups touch: a file of edges (lengths count if kriged), or JSON of toporo topology.",
            _TOPOLOGY,
            metavar="FILE",
        ),
    ] = None,
    learn_graph: Annotated[
        bool,
        option(
            "Learn it from the features, at 4 scales; toporo topology has all settings.",
            _TOPOLOGY,
            "--learn-graph",
            metavar="",
        ),
    ] = False,
    test_groups: Annotated[
        str | None,
        option("Groups that are not trained on, e.g. a,b or @FILE with one name per line.", _TOPOLOGY, metavar="NAMES"),
    ] = None,
    prior: Annotated[
        str,
        option(
            f"{either(PRIORS)}. auto: harmonic with test groups, else betweenness, half of it even; uniform without a "
            "graph.",
            _TOPOLOGY,
            callback=one_of(PRIORS),
            metavar="PRIOR",
        ),
    ] = "auto",
    method: Annotated[
        str,
        option(
            "tro; group-dro: the worst group; erm: all groups alike.",
            _MODEL,
            callback=one_of(METHODS),
            metavar="METHOD",
        ),
    ] = "tro",
    model: Annotated[
        str,
        option(
            "linear (exact), mlp, or kriged: coefficients by group that follow the graph.",
            _MODEL,
            callback=one_of(MODELS),
            metavar="MODEL",
        ),
    ] = "linear",
    penalty: Annotated[
        str,
        option(
            "How strongly weights are held to the prior; auto leaves groups out to choose.",
            _MODEL,
            callback=_penalty,
            metavar="NUMBER",
        ),
    ] = "auto",
    radius: Annotated[
        float | None, option("Instead of a penalty: how far weights may go.", _MODEL, min=0.0, metavar="NUMBER")
    ] = None,
    divergence: Annotated[
        str, option(f"{either(DIVERGENCES)}.", _MODEL, callback=one_of(DIVERGENCES), metavar="NAME")
    ] = "l2",
    ridge: Annotated[float, option("Shrinks the coefficients.", _MODEL, min=0.0, metavar="NUMBER")] = RIDGE,
    intervals: Annotated[
        bool,
        option(
            "Of an mlp, or kriged classes: up to 12 more fits, for predict --interval. Others have it anyway.",
            _MODEL,
            "--intervals",
            metavar="",
        ),
    ] = False,
    epochs: Annotated[int, option("Of an mlp.", _MODEL, min=1, metavar="N")] = 100,
    seed: Annotated[int, option("Of an mlp.", _MODEL, min=0, metavar="N")] = 0,
    overwrite: Annotated[bool, option("Replace a model that is there.", _OUTPUT, "--overwrite", metavar="")] = False,
    as_json: Annotated[bool, option("Print a summary as JSON.", _OUTPUT, "--json", metavar="")] = False,
) -> None:
    """Fit a model that must hold in groups nobody has seen.

    Columns are typed by their cells; text becomes categories, missing
    features are filled in, and all that is kept with the model. Groups are
    weighed against the worst mixture near the graph's prior; a kriged model
    has none of that, but coefficients of its own for every group.

    Example: toporo fit sales.csv --target y --group state --graph
    borders.csv --test-groups NV,UT --out model
    """
    check_target(out, overwrite=overwrite)
    settings: dict[str, Any] = {"ridge": ridge} if model != "kriged" or ridge != RIDGE else {}
    if model == "mlp":
        settings |= {"epochs": epochs, "random_state": seed}
    if prior != "auto":
        settings["prior"] = prior
    if divergence != "l2":
        settings["divergence"] = divergence
    with interruptible(out / MANIFEST):
        fitted = fit_table(
            data_source(data),
            target=target,
            group=group,
            graph=graph,
            learn_graph=learn_graph,
            test_groups=names_or_file(test_groups, "--test-groups") or [],
            task=task,
            features=split_names(features, "--features"),
            exclude=split_names(exclude, "--exclude") or [],
            categorical=split_names(categorical, "--categorical") or [],
            weight=weight,
            drop_missing=drop_missing,
            method=method,
            model=model,
            penalty=penalty if penalty == "auto" else float(penalty),
            radius=radius,
            intervals=intervals,
            delimiter=delimiter,
            **settings,
        )
        fitted.save(out, overwrite=overwrite)
    if as_json:
        say_data(json.dumps(summary(fitted), indent=1, ensure_ascii=False))
    else:
        _show(fitted)
    say(f"model: {out}", err=as_json)


def summary(model: TableModel) -> dict[str, Any]:
    """What a fit came to, as plain values for JSON."""
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
        "prior_saw": list(model.estimator.prior_.saw) if model.estimator.prior_ is not None else [],
        "groups": model.explain().to_dict(),
        "kriged": model.explain().about or None,
        "about": model.about,
    }


def _show(model: TableModel) -> None:
    print_table(["column", "role", "type", "note"], [[c.name, c.role, c.kind, c.note] for c in model.columns])
    rows, apart, dropped = (model.about[key] for key in ("rows", "rows_set_aside", "rows_dropped"))
    say(
        f"{model.task.capitalize()} of {model.target!r}: {rows} rows, {many(model.about['groups'], 'group')}, "
        f"{many(len(model.encoder.names), 'input')}{f'; {apart} rows set aside' if apart else ''}"
        f"{f'; {dropped} rows dropped' if dropped else ''}."
    )
    if model.test_groups:
        say(f"Test groups: {listed(model.test_groups)}.")
    prior = model.estimator.prior_
    if prior is not None:
        saw = f"; of the test groups it saw {' and '.join(SAW[what] for what in prior.saw)}" if prior.saw else ""
        even = f", {100 * prior.even:g} % of it even" if prior.even else ""
        say(f"Prior: {prior.measure}{even} ({prior.effective_groups:.1f} groups in effect{saw}).")
    choice = model.estimator.penalty_scores_
    if choice:
        say(
            f"Penalty: {model.estimator.penalty_:g}, the best of {len(choice)} over {many(choice[0].folds, 'fold')} of "
            "groups left out."
        )
    elif model.estimator.penalty_ is not None:
        say(f"Penalty: {model.estimator.penalty_:g}.")
    table = model.explain()
    say(f"{table.who}{f', the {SHOWN} {table.first} of {len(table)}' if len(table) > SHOWN else ''}:")
    say(str(table[:SHOWN]))
    for sentence in table.about.get("words", ()):
        say(sentence)
