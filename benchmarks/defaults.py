"""What the estimators' defaults are worth on real data, beside what else they could have been.

``python benchmarks/defaults.py DIR`` (DIR holds the NOAA file; about a minute) writes results/defaults.md: 36 problems
with monthly temperatures of the 48 states. The defaults were settled with tables like this one in view.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import toporo as tr
from toporo.choice.penalty import PriorMaker, choose_penalty
from toporo.estimators import linear
from toporo.estimators.rows import Rows
from toporo.files import write_text
from toporo.groups import Groups
from toporo.paper.tpt48 import SPLITS, border_graph, find_releases, read_temperatures
from toporo.topology import prior as priors
from toporo.topology.prior import DEFAULT_SPREAD

MONTHS = {"July": slice(6, 7), "October": slice(9, 10), "December": slice(11, 12), "July to December": slice(6, 12)}
REGIONS = ("AZ CA ID NV OR UT WA", "CT MA ME NH RI VT", "AL FL GA LA MS SC", "MN MT ND SD WI", "AR LA NM OK TX")
RIDGE = 1e-3
#: Errors that differ by less are the same, up to rounding.
SAME = 1e-6


@dataclass(frozen=True, eq=False)
class Problem:
    """Predict a later month's mean temperature from those of January to June, in states nobody has seen."""

    half: bool
    test: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray
    states: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    def error(self, model: Any) -> float:
        """Mean squared error; all states have as many rows, so that it is the mean over test states too."""
        return float(np.mean((model.predict(self.test_x) - self.test_y) ** 2))


@dataclass(frozen=True)
class Outcome:
    error: float
    penalty: float


Setting = Callable[[Problem], Outcome]


def make_problems(temperatures: dict[str, np.ndarray]) -> list[Problem]:
    names = sorted(temperatures)
    splits: list[tuple[bool, tuple[str, ...]]] = []
    for split in SPLITS.values():
        splits += [(True, split.test), (True, split.train)]
    splits += [(False, tuple(region.split())) for region in REGIONS]
    found = []
    for half, test in splits:
        train = [name for name in names if name not in test]
        for months in MONTHS.values():
            x, y = rows_of(temperatures, train, months)
            test_x, test_y = rows_of(temperatures, test, months)
            found.append(Problem(half, test, x, y, np.repeat(train, len(x) // len(train)), test_x, test_y))
    return found


def rows_of(temperatures: dict[str, np.ndarray], states: Any, months: slice) -> tuple[np.ndarray, np.ndarray]:
    years = np.concatenate([temperatures[name] for name in states])
    return years[:, :6], years[:, months].mean(axis=1)


# ---------------------------------------------------------------- settings


def tro(graph: tr.GroupGraph, *, even: float | None = None, **settings: Any) -> Setting:
    """The estimator towards the test states; ``even`` is the share of an automatic prior that is spread evenly."""

    def run(problem: Problem) -> Outcome:
        change: AbstractContextManager[Any] = (
            nullcontext() if even is None else patch.object(priors, "DEFAULT_SPREAD", even)
        )
        with change:
            model = tr.TRORegressor(graph=graph, test_groups=problem.test, ridge=RIDGE, **settings)
            model.fit(problem.x, problem.y, groups=problem.states)
        return Outcome(problem.error(model), model.penalty_)

    return run


def alone(model: Any) -> Setting:
    """An estimator that has no graph."""

    def run(problem: Problem) -> Outcome:
        model.fit(problem.x, problem.y, groups=problem.states)
        return Outcome(problem.error(model), model.penalty_)

    return run


def without_graph_folds(graph: tr.GroupGraph) -> Setting:
    """The automatic prior, but states are held out in turn, three or four at a time, wherever they lie."""

    def run(problem: Problem) -> Outcome:
        ids = Groups.of(problem.states)
        rows = Rows.prepare(problem.x, problem.y[:, None], ids, None, classes=None, standardize=True, center=True)
        maker = PriorMaker("auto", graph, with_test=True)
        choice = choose_penalty(linear.prepare(rows, True), None, None, maker.fold, ridge=RIDGE)
        return tro(graph, penalty=choice.penalty)(problem)

    return run


AUTO = f"**auto: harmonic, {DEFAULT_SPREAD:g} of it even** | **auto**"
BLIND = "auto | auto, states held out without regard to the graph"
FIXED, WEIGHTED = "auto | 10", "auto | ∞"


def settings_of(graph: tr.GroupGraph) -> dict[str, Setting]:
    erm = tr.TRORegressor(penalty=math.inf, prior="uniform", ridge=RIDGE)
    return {
        "ERM": alone(erm),
        "group DRO": alone(tr.GroupDRORegressor(ridge=RIDGE)),
        AUTO: tro(graph, penalty="auto"),
        "harmonic | auto": tro(graph, penalty="auto", prior="harmonic"),
        "harmonic, 0.25 of it even | auto": tro(graph, penalty="auto", even=0.25),
        "harmonic, 0.75 of it even | auto": tro(graph, penalty="auto", even=0.75),
        "uniform | auto": tro(graph, penalty="auto", prior="uniform"),
        "betweenness | auto": tro(graph, penalty="auto", prior="betweenness"),
        BLIND: without_graph_folds(graph),
        "auto | 0.1": tro(graph, penalty=0.1),
        "auto | 1 (the estimators' default before)": tro(graph, penalty=1.0),
        FIXED: tro(graph, penalty=10.0),
        WEIGHTED: tro(graph, penalty=math.inf),
    }


# ---------------------------------------------------------------- the table


def compared(errors: list[float], reference: list[float]) -> str:
    ratios = np.divide(errors, reference)
    better = (ratios < 1 - SAME).sum()
    return f"{mean_ratio(errors, reference):.3f} | {better} of {len(ratios)} | {ratios.max():.2f}"


def mean_ratio(errors: list[float], reference: list[float]) -> float:
    return float(np.exp(np.log(np.divide(errors, reference)).mean()))


def table(problems: list[Problem], outcomes: dict[str, list[Outcome]]) -> list[str]:
    part = "relative MSE | better | worst"
    lines = [f"| prior | λ | halves: {part} | regions: {part} | all: {part} | median λ |", "|---|---|" + "---:|" * 10]
    for title, found in outcomes.items():
        cells = []
        for wanted in ((True,), (False,), (True, False)):
            places = [place for place, problem in enumerate(problems) if problem.half in wanted]
            cells.append(compared([found[k].error for k in places], [outcomes["ERM"][k].error for k in places]))
        middle = float(np.median([outcome.penalty for outcome in found]))
        name = title if "|" in title else f"{title} |"
        lines.append(f"| {name} | {' | '.join(cells)} | {'∞' if math.isinf(middle) else f'{middle:g}'} |")
    return lines


ABOUT = """
The problems: the mean temperature of July, of October, of December, and of July to December, from the monthly means of
January to June of the same year, in twelve years; test states are a half of the country (west, east, south, north) or a
region ({regions}).
Models are linear (`TRORegressor`, ridge {ridge:g}), the graph is that of common borders, test states are named and none
of their rows is seen.
An error is the mean over the test states of their MSE, relative to ERM (λ = ∞, uniform prior); over problems, geometric
means. “Better”: problems with an error below ERM's. “Worst”: the largest ratio. λ = auto is chosen by holding out
training states that are as far from the others as the test states are (`GraphHopSplit`).

Over all problems the default with λ = auto is at {auto:.3f} of ERM; with states held out without regard to the graph it
would be at {blind:.3f}. Without a choice it is at {fixed:.3f} for λ = 10 and at {weighted:.3f} for λ = ∞, which is ERM
weighted by the prior.

**This is no held-out evidence.** That half of an automatic prior is spread evenly (`DEFAULT_SPREAD` in
`topology/prior.py`; shares of 0, 0.25, 0.5, 0.75 and 1 were compared) and that a penalty's score is the geometric mean
over the folds (`estimators/auto.py`) was settled with these test errors in view. To take the best row now would be the
same again. The problems share states and months, so that they are far from {count} independent ones: differences of a
few hundredths say little.
"""


def main() -> None:
    if len(sys.argv) != 2 or not (releases := find_releases(Path(sys.argv[1]))):
        raise SystemExit(
            "usage: python benchmarks/defaults.py DIR, with NOAA's climdiv-tmpcst file in DIR or DIR/tpt48"
        )
    warnings.simplefilter("ignore", tr.TopoRoWarning)
    problems = make_problems(read_temperatures(releases[0]))
    outcomes: dict[str, list[Outcome]] = {}
    for title, run in settings_of(border_graph()).items():
        start = time.process_time()
        outcomes[title] = [run(problem) for problem in problems]
        print(f"{title}: {time.process_time() - start:.1f} s of CPU", file=sys.stderr, flush=True)
    errors = {title: [outcome.error for outcome in found] for title, found in outcomes.items()}
    against = {title: mean_ratio(values, errors["ERM"]) for title, values in errors.items()}
    about = ABOUT.format(
        count=len(problems),
        regions=", ".join(region.replace(" ", "–") for region in REGIONS),
        ridge=RIDGE,
        auto=against[AUTO],
        blind=against[BLIND],
        fixed=against[FIXED],
        weighted=against[WEIGHTED],
    )
    lines = [
        f"# The estimators' defaults on {len(problems)} problems with real temperatures",
        "",
        f"Made by `python benchmarks/defaults.py DIR` from NOAA's release of {releases[0].name[-8:]}.",
        "",
        *table(problems, outcomes),
        about,
    ]
    text = "\n".join(lines)
    print(text)
    write_text(Path(__file__).parent / "results" / "defaults.md", text)


if __name__ == "__main__":
    main()
