"""``toporo fit``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os.path import realpath  # unlike Path.resolve, it bears links in a loop
from pathlib import Path
from typing import Annotated, Any

from toporo.cli import options as opt
from toporo.cli.roles import FitRoles
from toporo.cli.running import register, working
from toporo.cli.settings import setting, settings_option
from toporo.cli.terminal import print_table, say, say_data, say_more, tell
from toporo.robust.divergences import DIVERGENCES
from toporo.tables.fit import METHODS, MODELS, default_model, fit_table
from toporo.tables.folder import check_target
from toporo.tables.model import TableModel
from toporo.text import number_to_json
from toporo.topology.centrality import MEASURES

#: Columns and groups shown after a fit, which then fits a screen; --verbose shows all.
SHOWN = 10
#: Columns that come first where not all are shown.
ROLES = ("target", "group", "weight", "left out", "feature")
_MODEL = (
    "auto: a weighted mean of several; trees: boosted trees, a control; linear (exact); kriged: coefficients by group "
    "that follow the graph; mlp: a small network. Unless given auto, or linear with a setting of weights."
)


@dataclass(frozen=True)
class FitSettings:
    """Expert settings of ``toporo fit``."""

    seed: int = setting(0, "of auto, trees and mlp", least=0)
    epochs: int = setting(100, "of mlp", least=1)
    intervals: bool = setting(False, "up to 12 more fits of mlp or kriged classes, for predict --interval")
    method: str = setting("tro", "group-dro: the worst group; erm: all groups alike", choices=METHODS)
    prior: str = setting("auto", "of tro: by centrality in the graph", choices=("auto", "uniform", *MEASURES))
    penalty: float = setting("auto", "holds weights to the prior; auto: by held-out groups", choices=("auto",), least=0)
    radius: float = setting(None, "of tro, instead of a penalty: how far weights may go", least=0)
    divergence: str = setting("l2", "of tro", choices=DIVERGENCES)
    ridge: float = setting("auto", "shrinks the coefficients", choices=("auto",), least=0)


@register("fit")
@opt.takes_options
def fit(
    data: opt.DataFile,
    roles: FitRoles,
    out: Annotated[Path, opt.option("Folder to write the model to.", "-o")],
    settings: Annotated[list[Any] | None, settings_option(FitSettings)] = None,
    delimiter: opt.Delimiter = ",",
    engine: opt.Engine = "local",
    coordinates: opt.Coordinates = None,
    model: Annotated[str | None, opt.option(**opt.choice(_MODEL, MODELS))] = None,
    budget: opt.Minutes = None,
    overwrite: Annotated[bool, opt.option("Replace a model that is there.")] = False,
    *,
    flags: opt.LimitedFlags,
) -> None:
    """Fit a model for groups that are absent from training.

    Columns are typed by their cells; text becomes categories, missing
    features are filled in, and all that is kept with the model. A table may
    be larger than memory: linear and kriged models of numbers then read all
    rows once, logistic ones several times, others some of the rows.

    Example: toporo fit sales.csv --target y --group state --graph
    borders.csv --test-groups NV,UT --out model
    """
    check_target(out, overwrite=overwrite)
    given = {"random_state" if name == "seed" else name: value for name, value in settings or ()}
    if budget is not None:
        given["budget"] = 60.0 * budget
    kind = model or default_model([name for name in given if name != "intervals"])
    with working("fitting", quiet=flags.silent), _resumable(out) as kept:
        if kind == "auto":
            given["resume"] = kept
        reading = {"delimiter": delimiter, "memory_limit": flags.memory_limit, "engine": engine}
        asked = {**roles.given, **given, **reading, "coordinates": coordinates}
        fitted = fit_table(opt.data_source(data), model=kind, **asked)
        fitted.save(out, overwrite=overwrite)
    _show(fitted, flags)
    say(f"model: {out}", err=flags.json)


@contextmanager
def _resumable(out: Path) -> Iterator[Path]:
    """Yield where auto keeps what the next fit goes on from, until this one is done."""
    target = Path(realpath(out))
    kept = target.with_name(f".{target.name}.resume")
    try:
        yield kept
    except BaseException:
        if kept.exists():
            say(f"toporo: what was fitted so far is in {kept.name}: the same command goes on from there.", err=True)
        raise
    shutil.rmtree(kept, ignore_errors=True)


def _show(model: TableModel, flags: opt.Flags) -> None:
    from toporo.pages.model_text import ModelReport, summary  # jinja2, which a fit does without

    table, sentences = model.explain(), summary(ModelReport(model))
    if flags.json:
        facts = {name: getattr(model, name) for name in ("task", "target", "group", "classes", "test_groups", "about")}
        facts |= {"columns": [vars(column) for column in model.columns], "summary": sentences}
        facts["penalty"] = number_to_json(model.estimator.penalty_)
        say_data({**facts, **table.about, table.key: table.to_dict()})
        return
    most = None if flags.verbose else SHOWN
    columns = sorted(model.columns, key=lambda column: ROLES.index(column.role))
    rows = [[column.name, column.role, column.kind, column.note] for column in columns]
    print_table(["column", "role", "type", "note"], rows[:most])
    say_more(len(rows[most:]) if most else 0, "column")
    tell(*sentences)
    shown = table[:most]
    say(f"{table.title(len(shown))}\n{shown.lines()}")
    say_more(len(table) - len(shown), "line")
