"""Whether errors on held-out folds estimate the errors in test groups: four tables, five ways to hold out.

``python benchmarks/folds.py DIR`` (DIR holds tables as real_tables.py reads them) writes results/folds.md in three
minutes.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from real_tables import Task, markdown, read_tasks
from scipy.stats import spearmanr
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import toporo as tr
from toporo.files import write_text

TABLES = ("gapminder", "covid_italy", "homicide", "state_income")
#: Rows of a table at most, and groups that are left out one at a time.
ROWS, SINGLE = 2000, 24
FOLDS = 5
MODELS: dict[str, Callable[[], Any]] = {
    "trees": lambda: HistGradientBoostingRegressor(random_state=0),
    "ridge": lambda: make_pipeline(StandardScaler(), Ridge(1.0)),
}
RANDOM_ROWS, WHOLE, ONE, REGIONS = "random rows", "whole groups", "one group at a time", "GraphHopSplit"
MATCHED = "GraphHopSplit, repeats=1"
WAYS = (RANDOM_ROWS, WHOLE, ONE, REGIONS, MATCHED)


def thinned(task: Task) -> Task:
    """At most so many rows, drawn at random; every group keeps one."""
    if len(task.y) <= ROWS:
        return task
    order = np.random.default_rng(0).permutation(len(task.y))
    firsts = order[np.unique(task.groups[order], return_index=True)[1]]
    rows = np.union1d(firsts, order[: ROWS - len(firsts)])
    return replace(task, x=task.x.iloc[rows].reset_index(drop=True), y=task.y[rows], groups=task.groups[rows])


def held_out(
    task: Task, known: np.ndarray, test: Sequence[str]
) -> tuple[dict[str, list[np.ndarray]], dict[str, float]]:
    """By way, the rows that each fold holds out; and how like the test the distances of each way's groups are."""
    rows, names = np.flatnonzero(known), sorted(set(task.groups[known]))
    drawn = np.random.default_rng(0).permutation(names)[:SINGLE]
    splits = {
        WHOLE: tr.GraphHopSplit(n_splits=FOLDS, repeats=1),
        REGIONS: tr.GraphHopSplit(task.graph, test, n_splits=FOLDS),
        MATCHED: tr.GraphHopSplit(task.graph, test, n_splits=FOLDS, repeats=1),
    }
    regions = {way: split.regions(names) for way, split in splits.items()} | {ONE: [(name,) for name in drawn]}
    folds = {way: [rows[np.isin(task.groups[rows], names)] for names in parts] for way, parts in regions.items()}
    folds[RANDOM_ROWS] = [rows[part] for _, part in KFold(FOLDS, shuffle=True, random_state=0).split(rows)]
    never = 1 - len({name for part in regions[REGIONS] for name in part}) / len(names)
    return folds, {way: splits[way].likeness(names) for way in (REGIONS, MATCHED)} | {"never": never}


def errors(task: Task, test: Sequence[str]) -> list[dict[str, Any]]:
    """By model: the root mean squared error in the test groups, and what every way to hold out says it will be."""
    known = ~np.isin(task.groups, test)
    present = sorted(set(task.groups[~known]))
    folds, likeness = held_out(task, known, present)
    inputs = {"trees": task.x, "ridge": pd.DataFrame(task.numbers(known))}
    every = []
    for title, make in MODELS.items():
        x = inputs[title]

        def squares(train: np.ndarray, rows: np.ndarray, x: Any = x, make: Callable[[], Any] = make) -> np.ndarray:
            model = make().fit(x.iloc[train], task.y[train])
            return (model.predict(x.iloc[rows]) - task.y[rows]) ** 2

        outcome = {"test": squares(np.flatnonzero(known), np.flatnonzero(~known)).mean()}
        for way, parts in folds.items():
            lost = [squares(np.setdiff1d(np.flatnonzero(known), part), part) for part in parts]
            outcome[way] = np.concatenate(lost).mean()
        roots = {name: float(np.sqrt(value)) for name, value in outcome.items()}
        every.append({"table": task.name.split(",")[0], "model": title, **roots, "likeness": likeness})
    return every


def rank(a: Sequence[float], b: Sequence[float]) -> float:
    return float(spearmanr(a, b).statistic)


def level(outcomes: pd.DataFrame, way: str) -> tuple[float, float]:
    """Mean and mean absolute value of the log ratio."""
    off = np.log(outcomes[way] / outcomes["test"])
    return float(off.mean()), float(off.abs().mean())


def table(outcomes: pd.DataFrame) -> list[str]:
    """A line for each way: bias by table and over all, and ranks."""
    off = {way: np.log(outcomes[way] / outcomes["test"]) for way in WAYS}
    trees, ridge = (outcomes[outcomes["model"] == model].reset_index() for model in ("trees", "ridge"))
    rows = []
    for way in WAYS:
        by_table = [off[way][outcomes["table"] == name] for name in TABLES]
        within = [
            rank(part[way], part["test"])
            for _, part in outcomes.groupby(["table", "model"])  # over the splits of a table
        ]
        choice = rank(np.log(ridge[way] / trees[way]), np.log(ridge["test"] / trees["test"]))
        beaten = (off[MATCHED].abs() < off[way].abs()).sum()
        rows.append(
            [
                way,
                *(f"{each.mean():+.2f}, {each.abs().mean():.2f}" for each in by_table),
                f"**{off[way].mean():+.3f}**, {off[way].abs().mean():.3f}",
                "" if way == MATCHED else f"{beaten} of {len(outcomes)}",
                f"{np.mean(within):+.2f}",
                f"{choice:+.2f}",
            ]
        )
    titles = ["held out", *TABLES, "all", f"{MATCHED} is nearer", "rank over splits", "rank of ridge over trees"]
    return markdown(titles, rows)


ABOUT = """\
{splits} splits, two models each: scikit-learn's HistGradientBoosting as it comes, and `Ridge(1)` on standardised
columns; the main target of each table, {rows} rows at most. A cell: mean and mean absolute value of log(estimated
error / test error), errors being roots of mean squares over all rows held out. Negative: the test is worse than was
said. Folds: {folds}; one group at a time: at most {single} groups, drawn at random. “Nearer”: cases (splits and
models) with a smaller absolute value. “Rank over splits”: Spearman's correlation of estimated and test errors over
the splits of a table, for one model; mean over tables and models. “Rank of ridge over trees”: the same of log(error
of the ridge / error of the trees) over all splits: can the estimate tell where one model is better than the other?

Likeness (Wasserstein-1 distance between distributions of hops, pooled over folds; mean, worst): {old} without
repeats, {new} with. Without repeats, {never:.0%} of the groups are never held out; with repeats every group is,
equally often.

**As a level it is better, as a ranking it is not.** Folds like the test take away most of the bias: {matched[0]:+.3f}
with repeats and {regions[0]:+.3f} without, against {random[0]:+.3f} for random rows and {one[0]:+.3f} for one group
at a time. A single estimate is hardly nearer: {matched[1]:.3f} against {random[1]:.3f} and {one[1]:.3f}. No way to
hold out ranks the splits. All correlations are negative: when a hard region is the test, those left to hold out are
the easy ones, and the other way round. Nor is full coverage what helps: without repeats the estimates are as good,
and tell a little better where the ridge beats the trees. The splits of a table share groups and rows, so differences
of a few hundredths say little.
"""


def main() -> None:
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / f"{TABLES[0]}.csv").exists():
        raise SystemExit(
            f"usage: python benchmarks/folds.py DIR, with {', '.join(TABLES)} (.csv, .json, .graph.csv) in DIR"
        )
    warnings.simplefilter("ignore", tr.TopoRoWarning)
    every = []
    for name in TABLES:
        task = thinned(read_tasks(Path(sys.argv[1]), [name])[0])
        for test in task.splits.values():
            every += errors(task, test)
        print(f"{name}: {time.process_time():.0f} s of CPU", file=sys.stderr, flush=True)
    outcomes = pd.DataFrame(every)
    like = pd.DataFrame(list(outcomes["likeness"]))
    old, new = (f"{like[way].mean():.2f}, {like[way].max():.2f}" for way in (REGIONS, MATCHED))
    names = {"matched": MATCHED, "regions": REGIONS, "random": RANDOM_ROWS, "one": ONE}
    about = ABOUT.format(
        splits=len(outcomes) // len(MODELS), rows=ROWS, folds=FOLDS, single=SINGLE, old=old, new=new,
        never=like["never"].mean(),
        **{name: level(outcomes, way) for name, way in names.items()},
    )  # fmt: skip
    lines = [
        "# Errors on held-out folds as estimates of test errors",
        "",
        "Made by `python benchmarks/folds.py DIR`.",
        "",
    ]
    text = "\n".join([*lines, *table(outcomes), about])
    print(text)
    write_text(Path(__file__).parent / "results" / "folds.md", text)


if __name__ == "__main__":
    main()
