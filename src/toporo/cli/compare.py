"""``toporo compare``."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from toporo.cli import options as opt
from toporo.cli.outputs import PAGES, outputs
from toporo.cli.roles import FitRoles
from toporo.cli.running import register, working
from toporo.cli.settings import setting, settings_option
from toporo.cli.terminal import print_table, say_data, say_files, tell
from toporo.errors import SettingError
from toporo.files import write_text
from toporo.tables import compare_models
from toporo.text import many


@dataclass(frozen=True)
class CompareSettings:
    """Expert settings of ``toporo compare``."""

    folds: int = setting(4, "regions to hold out in turn", least=2)
    seed: int = setting(0, "of regions, models and intervals", least=0)


@register("compare")
@opt.takes_options
def compare(
    data: opt.DataFile,
    roles: FitRoles,
    settings: Annotated[list[Any] | None, settings_option(CompareSettings)] = None,
    delimiter: opt.Delimiter = ",",
    against_estimator: Annotated[
        list[str] | None, opt.option("MODULE:NAME of an estimator of yours. May be repeated.")
    ] = None,
    fast: Annotated[bool, opt.option("Linear models, controls and yours alone.")] = False,
    budget: opt.Minutes = None,
    out: Annotated[list[Path] | None, opt.option("Page: .html. One line per model: .csv.", "-o")] = None,
    *,
    flags: opt.Flags,
) -> None:
    """Compare models and controls on groups of a table held out.

    Every model is fitted without some groups at a time and evaluated on
    these: auto, each of its candidates, kriged and linear models; as controls
    a constant, all groups alike, the worst group, a uniform prior and a
    shuffled graph. Intervals of differences are paired, over groups. Where
    the table has targets of test groups, models are evaluated there too.

    Example: toporo compare sales.csv --target y --group state --graph
    borders.csv --against-estimator my_models:forest --out compare.html
    """
    files = outputs(out, {"page": PAGES, "table": ("csv",)}, data)
    asked = roles.given | {"fast": fast, "delimiter": delimiter, **dict(settings or ())}
    asked |= {"estimators": {path: _import(path) for path in against_estimator or ()}}
    with working("comparing", quiet=flags.silent):
        contest = compare_models(opt.data_source(data), budget=None if budget is None else 60.0 * budget, **asked)
        if "table" in files:
            write_text(files["table"], contest.to_csv())
        if "page" in files:
            from toporo.pages.compare import write_comparison  # matplotlib, which most calls do without

            write_comparison(contest, files["page"])
    if flags.json:
        say_data(contest.to_dict())
    else:
        tell(*contest.words())
        titles, lines = contest.cells()
        print_table(titles, lines, numbers=range(2, len(titles)))
        groups, regions = many(sum(map(len, contest.regions)), "group"), many(len(contest.regions), "region")
        level = f"{100 * contest.level:g} % intervals of the difference, paired by group"
        tell(f"Errors are means over {groups}, held out in {regions}; in brackets {level}.")
    say_files(files, err=flags.json)


def _import(path: str) -> Any:
    """Import an estimator, or what makes one, as ``module:NAME``, also from the folder that the user is in."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        thing = pkgutil.resolve_name(path)
        return thing() if inspect.isclass(thing) or not hasattr(thing, "fit") else thing
    except Exception as error:  # whatever a stranger's module does
        raise SettingError(
            f"--against-estimator {path}: {type(error).__name__}: {error}. Expected MODULE:NAME, a module in this "
            "folder or an installed one, and an estimator in it, or a class or function that makes one by itself."
        ) from None
    finally:
        sys.path.remove(here)
