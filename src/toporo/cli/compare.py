"""``toporo compare``."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from toporo.cli.options import DataFile, Delimiter, Flags, data_source, option, out_option, seconds, takes_flags
from toporo.cli.outputs import PAGES, outputs
from toporo.cli.roles import takes_roles
from toporo.cli.running import register, working
from toporo.cli.settings import setting, takes_settings
from toporo.cli.terminal import print_table, say, say_data, tell
from toporo.errors import SettingError, closest, listed
from toporo.files import write_text
from toporo.tables import Contest, compare_models
from toporo.tables.roles import Roles
from toporo.text import many

_MODELS = "Models"
#: What ``--out`` writes, by suffix.
KINDS = {"page": PAGES, "table": ("csv",)}


@dataclass(frozen=True)
class CompareSettings:
    """Expert settings of ``toporo compare``."""

    folds: int = setting(4, "regions to hold out in turn", least=2)
    seed: int = setting(0, "of regions, models and intervals", least=0)


@register("compare")
@takes_flags()
@takes_roles()
@takes_settings(CompareSettings)
def compare(
    data: DataFile,
    roles: Roles,
    settings: dict[str, Any],
    delimiter: Delimiter = ",",
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
    out: Annotated[
        list[Path] | None, out_option("Write one page about it to an .html file, or one line per model to a .csv file.")
    ] = None,
    *,
    flags: Flags,
) -> None:
    """Judge many models on regions of a table held out, beside controls and your own.

    Every model is fitted without some groups at a time and judged by what it
    says of these: auto, each of its candidates, kriged and linear models; as
    controls a constant, all groups alike, the worst group, a uniform prior
    and a shuffled graph. Intervals of differences are paired, over groups.
    Where the table has targets of test groups, models are judged there too.

    Example: toporo compare sales.csv --target y --group state --graph
    borders.csv --against-estimator my_models:forest --out compare.html
    """
    files = outputs(out, KINDS, data=data)
    own = {path: _imported(path) for path in estimators or ()}
    with working("comparing", "nothing was written", quiet=flags.silent):
        contest = compare_models(
            data_source(data),
            **vars(roles),
            estimators=own,
            fast=fast,
            budget=budget,  # type: ignore[arg-type]  # its callback makes a number of it
            delimiter=delimiter,
            **settings,
        )
    if (table := files.get("table")) is not None:
        write_text(table, contest.to_csv())
    if (page := files.get("page")) is not None:
        from toporo.pages.compare import write_comparison  # matplotlib, which most calls do without

        with working("drawing the page", "the page was not written", quiet=flags.silent):
            write_comparison(contest, page)
    if flags.json:
        say_data(json.dumps(contest.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show(contest)
    for what, path in files.items():
        say(f"{what}: {path}", err=flags.json)


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
