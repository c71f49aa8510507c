"""Weights that rows can bear, and a ridge by rows in effect: linear TRO with and without them, against ERM.

``python benchmarks/in_effect.py TABLES`` (about two minutes) writes results/in_effect.md: the tables to develop on, and
made-up tables whose groups have 3 to 300 rows. Both rules were settled with these figures in view.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from real_tables import markdown, read_tasks
from sklearn.metrics import log_loss

import toporo as tr
from toporo.choice import penalty as priors
from toporo.files import write_text

RESULTS = Path(__file__).parent / "results"
TABLES = ("gapminder", "covid_italy", "homicide", "state_income")
RIDGE = 1e-3
FREE = "no limit, ridge 0.001"
#: What is compared; the first is what the others are compared with. ``free``: without limits on weights.
VARIANTS: dict[str, dict[str, Any]] = {
    "ERM, all groups alike": {"penalty": math.inf, "prior": "uniform", "ridge": RIDGE},
    f"λ = auto, {FREE}": {"penalty": "auto", "ridge": RIDGE, "free": True},
    "λ = auto, limits": {"penalty": "auto", "ridge": RIDGE},
    "**λ = auto, limits, ridge by rows in effect**": {"penalty": "auto"},
    f"λ = 1, {FREE}": {"ridge": RIDGE, "free": True},
    "λ = 1, limits": {"ridge": RIDGE},
    "**λ = 1, limits, ridge by rows in effect**": {},
}


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows of training and test groups."""

    x: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    graph: Any
    test: Sequence[str]
    classes: bool = False

    def outcome(self, free: bool = False, **settings: Any) -> tuple[float, float, float]:
        """Error in the test groups, rows in effect as a share, and the most weight of a group of six rows or fewer."""
        known = ~np.isin(self.groups, self.test)
        model = (tr.TROClassifier if self.classes else tr.TRORegressor)(
            graph=self.graph, test_groups=list(self.test), **settings
        )
        change: AbstractContextManager[Any] = patch.object(priors, "most_weight", lambda *_: None)
        with change if free else nullcontext():
            model.fit(self.x[known], self.y[known], groups=self.groups[known])
        if self.classes:
            error = float(log_loss(self.y[~known], model.predict_proba(self.x[~known]), labels=model.classes_))
        else:
            error = float(np.sqrt(np.mean((model.predict(self.x[~known]) - self.y[~known]) ** 2)))
        small = [model.group_weights_[name] for name, rows in model.group_sizes_.items() if rows <= 6]
        return error, model.rows_in_effect_ / known.sum(), max(small, default=0.0)


def from_tables(folder: Path) -> list[Problem]:
    return [
        Problem(task.numbers(~np.isin(task.groups, test)), task.y, task.groups, task.graph, test, task.classes)
        for task in read_tasks(folder, TABLES)
        for test in task.splits.values()
    ]


def made_up(columns: int, seed: int) -> Problem:
    """A map of six by eight groups whose coefficients turn from west to east; the twelve in the east are the test."""
    rng = np.random.default_rng(seed)
    places = [(i, j) for i in range(6) for j in range(8)]
    edges = [((i, j), (i + a, j + b)) for i, j in places for a, b in ((0, 1), (1, 0)) if (i + a, j + b) in places]
    slopes = rng.normal(size=columns) * (rng.random(columns) < 0.3)
    turn = 0.15 * rng.normal(size=columns) * (rng.random(columns) < 0.3)
    xs, ys, names = [], [], []
    for i, j in places:
        rows = int(3 * 10 ** rng.uniform(0, 2)) if j < 6 else 100
        x = rng.normal(size=(rows, columns)) + 0.3 * rng.normal(size=columns)
        noise = np.linalg.norm(slopes) * rng.normal(size=rows)
        xs, ys, names = [*xs, x], [*ys, x @ (slopes + turn * (j - 3.5)) + noise], names + [f"{i}{j}"] * rows
    graph = [(f"{a}{b}", f"{c}{d}") for (a, b), (c, d) in edges]
    test = [f"{i}{j}" for i, j in places if j >= 6]
    return Problem(np.concatenate(xs), np.concatenate(ys), np.array(names), graph, test)


def table(problems: Sequence[Problem]) -> list[str]:
    measured = {name: np.array([p.outcome(**settings) for p in problems]) for name, settings in VARIANTS.items()}
    base = next(iter(measured.values()))[:, 0]
    rows = []
    for name, each in measured.items():
        ratios = each[:, 0] / base
        cells = [f"{np.exp(np.log(ratios).mean()):.3f}", f"{ratios.max():.2f}", f"{each[:, 1].mean():.2f}"]
        rows.append([name, *cells, f"{each[:, 2].max():.2f}"])
    return markdown(["model", "error", "at worst", "rows in effect", "most weight of six rows or fewer"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure limits on weights and a ridge by rows in effect.")
    parser.add_argument("tables", type=Path, help="the folder of tables")
    given = parser.parse_args()
    works = {"Tables to develop on": from_tables(given.tables)}
    works |= {f"Made-up tables, {d} columns": [made_up(d, seed) for seed in range(8)] for d in (5, 30, 80)}
    lines = [
        "# Weights that rows can bear",
        "",
        "Made by `python benchmarks/in_effect.py TABLES`. Errors (RMSE, log loss of classes) in groups never trained "
        "on, over those of ERM: geometric mean and worst. Rows in effect: their mean share.",
        "",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for title, problems in works.items():
            lines += [f"{title}, {len(problems)} splits.", "", *table(problems)]
    text = "\n".join(lines)
    print(text)
    write_text(RESULTS / "in_effect.md", text)


if __name__ == "__main__":
    main()
