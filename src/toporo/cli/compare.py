"""``toporo compare``."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
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
    Quiet,
    TargetColumn,
    WeightColumn,
    check_writable,
    columns_asked,
    data_source,
    names_or_file,
    option,
    print_table,
    register,
    say,
    say_data,
    seconds,
    tell,
    working,
)
from toporo.cli.fit import TaskName
from toporo.errors import SettingError, closest, listed
from toporo.files import write_text
from toporo.tables import Contest, compare_models
from toporo.text import many

_DATA, _TOPOLOGY, _MODELS, _OUTPUT = "Data", "Topology", "Models", "Output"


@register("compare")
def compare(
    data: DataFile,
    target: TargetColumn,
    group: GroupColumn,
    task: TaskName = "auto",
    features: Features = None,
    exclude: Exclude = None,
    categorical: Categorical = None,
    weight: WeightColumn = None,
    delimiter: Delimiter = ",",
    drop_rows: DropRows = False,
    graph: Annotated[
        str | None,
        option(
            "Which groups touch: lines NY,PA, and HI alone if it touches nobody; or JSON of toporo topology. "
            "learn: learn it from the features.",
            _TOPOLOGY,
            metavar="FILE",
        ),
    ] = None,
    test_groups: Annotated[
        str | None,
        option(
            "Groups that are not trained on; models are judged there too, where the table has targets of them.",
            _TOPOLOGY,
            metavar="NAMES",
        ),
    ] = None,
    estimators: Annotated[
        list[str] | None,
        option(
            "An estimator of yours: a module that Python can import, and what makes it there. May be repeated.",
            _MODELS,
            "--against-estimator",
            metavar="MODULE:NAME",
        ),
    ] = None,
    fast: Annotated[bool, option("Linear models, controls and yours alone.", _MODELS, "--fast", metavar="")] = False,
    budget: Annotated[
        str | None,
        option(
            "After so long no further region is held out, e.g. 90s, 2min or 1h.",
            _MODELS,
            callback=seconds,
            metavar="TIME",
        ),
    ] = None,
    folds: Annotated[int, option("Regions to hold out in turn.", _MODELS, min=2, metavar="N")] = 4,
    seed: Annotated[int, option("Of regions, models and intervals.", _MODELS, min=0, metavar="N")] = 0,
    out: Annotated[Path | None, option("Write one page about it to this HTML file.", _OUTPUT, metavar="FILE")] = None,
    table: Annotated[
        Path | None, option("Write one line per model to this CSV file.", _OUTPUT, "--csv", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, option("Print everything as JSON.", _OUTPUT, "--json", metavar="")] = False,
    quiet: Quiet = False,
) -> None:
    """Judge many models on regions of a table held out, beside controls and your own.

    Every model is fitted without some groups at a time and judged by what it
    says of these: auto, each of its candidates, kriged and linear models; as
    controls a constant, all groups alike, the worst group, a uniform prior
    and a shuffled graph. Intervals of differences are paired, over groups.

    Example: toporo compare sales.csv --target y --group state --graph
    borders.csv --against-estimator my_models:forest --out compare.html
    """
    check_writable(data, {"--out": out, "--csv": table}, endings={"--out": ("html", "htm"), "--csv": ("csv",)})
    own = {path: _imported(path) for path in estimators or ()}
    with working("comparing", "nothing was written", quiet=as_json or quiet):
        contest = compare_models(
            data_source(data),
            target=target,
            group=group,
            graph=graph,
            test_groups=names_or_file(test_groups, "--test-groups") or [],
            task=task,
            **columns_asked(features, exclude, categorical),
            weight=weight,
            drop_rows=drop_rows,
            estimators=own,
            fast=fast,
            budget=budget,  # type: ignore[arg-type]  # its callback makes a number of it
            folds=folds,
            seed=seed,
            delimiter=delimiter,
        )
    if table is not None:
        write_text(table, contest.to_csv())
    if out is not None:
        from toporo.pages.compare import write_comparison  # matplotlib, which most calls do without

        with working("drawing the page", out, quiet=as_json or quiet):
            write_comparison(contest, out)
    if as_json:
        say_data(json.dumps(contest.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show(contest)
    for what, path in (("page", out), ("table", table)):
        if path is not None:
            say(f"{what}: {path}", err=as_json)


def _imported(path: str) -> Any:
    """What an import path leads to, as an estimator: ``module:NAME``, NAME an estimator or what makes one.

    The module is the user's own code, named on purpose: it is imported as Python would from the folder they are in.
    """
    flag = "--against-estimator"
    module, sign, name = path.partition(":")
    if not sign or not module or not name:
        raise typer.BadParameter(f"{path!r} is not MODULE:NAME, such as my_models:forest.", param_hint=flag)
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        thing: Any = importlib.import_module(module)
    except Exception as error:  # whatever a stranger's module does
        raise SettingError(
            f"{flag} {path}: cannot import {module!r} ({type(error).__name__}: {error}). Expected a module in this "
            "folder, or one that is installed."
        ) from None
    finally:
        sys.path.remove(here)
    for part in name.split("."):
        if not hasattr(thing, part):
            public = sorted(each for each in dir(thing) if not each.startswith("_"))
            close = closest(part, public)
            hint = f"Did you mean {close!r}?" if close else f"It has {listed(public, 12)}."
            raise SettingError(f"{flag} {path}: {module!r} has no {name!r}. {hint}")
        thing = getattr(thing, part)
    if inspect.isclass(thing) or (callable(thing) and not hasattr(thing, "fit")):
        try:
            thing = thing()
        except Exception as error:
            raise SettingError(
                f"{flag} {path}: calling it without arguments failed ({type(error).__name__}: {error}). Expected an "
                "estimator, or a class or function that makes one by itself."
            ) from None
    return thing


def _show(contest: Contest) -> None:
    for sentence in contest.words():
        tell(sentence)
    titles, lines = contest.cells()
    print_table(titles, lines, numbers=range(2, len(titles)))
    held = many(sum(map(len, contest.regions)), "group")
    tell(
        f"Errors are means over {held}, held out in {many(len(contest.regions), 'region')}; in brackets "
        f"{100 * contest.level:g} % intervals of the difference, paired by group."
    )
