"""``toporo fit``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os.path import realpath  # unlike Path.resolve, it bears links in a loop
from pathlib import Path
from typing import Annotated, Any

import typer

from toporo.cli.options import (
    Coordinates,
    DataFile,
    Delimiter,
    Engine,
    Flags,
    choice,
    data_source,
    either,
    option,
    seconds,
    takes_flags,
)
from toporo.cli.roles import takes_roles
from toporo.cli.running import register, working
from toporo.cli.settings import setting, takes_settings
from toporo.cli.terminal import print_table, say, say_data, say_more, shown_of, tell
from toporo.errors import listed
from toporo.robust.divergences import DIVERGENCES
from toporo.tables.fit import METHODS, MODELS, default_model, fit_table
from toporo.tables.folder import MANIFEST, check_target
from toporo.tables.model import TableModel
from toporo.tables.roles import Roles
from toporo.text import SAW, many, number_to_json
from toporo.topology.centrality import MEASURES

#: Columns and groups shown after a fit, which then fits a screen; --verbose shows all.
COLUMNS, SHOWN = 10, 10
#: Which columns come first where not all are shown.
ROLES = ("target", "group", "weight", "left out", "feature")
_MODEL, _OUTPUT = "Model", "Output"
#: Models that draw at random.
SEEDED = ("auto", "trees", "mlp")


@dataclass(frozen=True)
class FitSettings:
    """Expert settings of ``toporo fit``."""

    seed: int = setting(0, "of auto and an mlp", least=0)
    epochs: int = setting(100, "of an mlp", least=1)
    intervals: bool = setting(
        False, "of an mlp, or kriged classes: up to 12 more fits, for predict --interval; others have it anyway"
    )
    method: str = setting(
        "tro", "of linear and mlp: tro; group-dro: the worst group; erm: all groups alike", choices=METHODS
    )
    prior: str = setting(
        "auto",
        "of tro: harmonic with test groups, else betweenness, half of it even; uniform without a graph",
        choices=("auto", "uniform", *MEASURES),
    )
    penalty: float = setting(
        "auto",
        "of tro: how strongly weights are held to the prior (inf is possible); auto leaves groups out to choose",
        choices=("auto",),
        least=0,
    )
    radius: float = setting(None, "of tro, instead of a penalty: how far weights may go", least=0)
    divergence: str = setting("l2", "of tro", choices=DIVERGENCES)
    ridge: float = setting(
        "auto", "shrinks the coefficients; auto goes with columns over rows in effect", choices=("auto",), least=0
    )


@register("fit")
@takes_flags(memory_limit=True)
@takes_roles()
@takes_settings(FitSettings)
def fit(
    data: DataFile,
    roles: Roles,
    settings: dict[str, Any],
    out: Annotated[Path, option("Folder to write the model to.", _OUTPUT, "--out", "-o", metavar="FOLDER")],
    delimiter: Delimiter = ",",
    engine: Engine = "local",
    coordinates: Coordinates = None,
    model: Annotated[
        str | None,
        choice(
            "auto: several, weighted; trees: boosted trees alone, a control; linear (exact); mlp; or kriged: "
            "coefficients by group that follow the graph.",
            _MODEL,
            MODELS,
            metavar="MODEL",
            show_default="auto; linear with a setting of weights",
        ),
    ] = None,
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
    overwrite: Annotated[bool, option("Replace a model that is there.", _OUTPUT, "--overwrite", metavar="")] = False,
    *,
    flags: Flags,
) -> None:
    """Fit a model that must hold in groups nobody has seen.

    Columns are typed by their cells; text becomes categories, missing
    features are filled in, and all that is kept with the model. Several
    models are weighted by how they do in training groups left out, and
    what they leave follows the graph. Settings of weights ask for a linear
    model instead, fitted against the worst mixture of groups near the
    graph's prior. A table may be larger than memory, a folder of files, a
    pattern or an address: linear and kriged models of numbers then read all
    rows once, logistic ones several times, others some of the rows.

    Example: toporo fit sales.csv --target y --group state --graph
    borders.csv --test-groups NV,UT --out model
    """
    check_target(out, overwrite=overwrite)
    seed, intervals = settings.pop("seed", None), settings.pop("intervals", False)
    kind = model or default_model(settings)
    if seed is not None and kind not in SEEDED:
        raise typer.BadParameter(f"--set seed is of model {either(SEEDED)}, and this is {kind}: leave it out.")
    if budget is not None and kind != "auto":
        raise typer.BadParameter(f"--budget is of model auto, and this is {kind}: leave it out.")
    if seed is not None:
        settings["random_state"] = seed
    with working("fitting", out / MANIFEST, quiet=flags.silent), _resumable(kind, out) as kept:
        if kind == "auto":
            settings |= {"budget": budget, "resume": kept}
        fitted = fit_table(
            data_source(data),
            **vars(roles),
            coordinates=coordinates,
            model=kind,
            intervals=intervals,
            delimiter=delimiter,
            memory_limit=flags.memory_limit,
            engine=engine,
            **settings,
        )
        fitted.save(out, overwrite=overwrite)
    if flags.json:
        say_data(json.dumps(summary(fitted), indent=1, ensure_ascii=False))
    else:
        _show(fitted, flags.verbose)
    say(f"model: {out}", err=flags.json)


@contextmanager
def _resumable(kind: str, out: Path) -> Iterator[Path]:
    """Return where an ensemble keeps what the next fit goes on from, until this one is done."""
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
    table, prior = model.explain(), getattr(model.estimator, "prior_", None)
    return {
        "task": model.task,
        "target": model.target,
        "group": model.group,
        "classes": None if model.classes is None else list(model.classes),
        "columns": [vars(column) | {} for column in model.columns],
        "inputs": len(model.encoder.names),
        "test_groups": list(model.test_groups),
        "penalty": number_to_json(getattr(model.estimator, "penalty_", None)),
        "penalty_scores": [
            {
                "penalty": number_to_json(score.penalty),
                "score": score.score,
                "spread": score.spread,
                "folds": score.folds,
            }
            for score in getattr(model.estimator, "penalty_scores_", None) or ()
        ],
        "ridge": getattr(model.estimator, "ridge_", None),
        "rows_in_effect": getattr(model.estimator, "rows_in_effect_", None),
        "prior_capped_mass": getattr(prior, "capped_mass", 0.0),
        "prior_bootstrap_rms": getattr(prior, "bootstrap_rms", None),
        "prior_fallback_reason": getattr(prior, "fallback_reason", ""),
        "prior_saw": [] if prior is None else list(prior.saw),
        "groups": None,
        "leaderboard": None,
        table.key: table.to_dict(),
        "kriged": table.about if model.kriged else None,
        "auto": table.about if table.key == "leaderboard" else None,
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
    prior = getattr(model.estimator, "prior_", None)
    if prior is not None:
        saw = f"; of the test groups it saw {' and '.join(SAW[what] for what in prior.saw)}" if prior.saw else ""
        even = f", {100 * prior.uniform_share:g} % of it even" if prior.uniform_share else ""
        even += f", {100 * prior.capped_mass:.2g} % taken from groups of few rows" if prior.capped_mass else ""
        tell(f"Prior: {prior.measure}{even} ({prior.effective_groups:.1f} groups in effect{saw}).")
    choice = getattr(model.estimator, "penalty_scores_", None)
    if choice:
        tell(
            f"Penalty: {model.estimator.penalty_:g}, the best of {len(choice)} over {many(choice[0].folds, 'fold')} of "
            "groups left out."
        )
    elif getattr(model.estimator, "penalty_", None) is not None:
        say(f"Penalty: {model.estimator.penalty_:g}.")
    table = model.explain()
    most = shown_of(len(table), None if verbose else SHOWN)
    say(f"{table.who}{f', the {most} {table.first} of {len(table)}' if len(table) > most else ''}:")
    say(table[:most].lines())
    say_more(len(table) - most, "line")
    for sentence in (*table.about.get("words", getattr(table, "effect", ())), *table.remarks):
        tell(sentence)
