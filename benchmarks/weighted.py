"""Any model by weights of its rows, in groups never trained on: by rows, by groups, by the prior, by TRO, and controls.

``python benchmarks/weighted.py TABLES linear`` or ``trees``: the tables to develop on, and made-up data in which a few
groups are of another kind and half of the test groups are. Settings were chosen with these figures in view.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from real_tables import Task, markdown, read_tasks, shuffled
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import toporo as tr
from toporo.files import write_text

RESULTS = Path(__file__).parent / "results"
TABLES = ("gapminder", "covid_italy", "homicide", "state_income")
#: Splits of a task, the first of them; trees take long.
SPLITS = {"linear": None, "trees": 3}
#: How rows are weighted; the first is what the others are compared with.
VARIANTS: dict[str, dict[str, Any]] = {
    "rows": {"weights": "rows"},
    "groups": {"weights": "groups"},
    "prior": {"weights": "prior"},
    "prior of a shuffled graph": {"weights": "prior", "shuffled": True},
    "tro": {"weights": "tro"},
}
MADE_UP = {name: each for name, each in VARIANTS.items() if name in ("rows", "groups", "tro")}
MADE_UP["tro, penalty=0.3"] = {"weights": "tro", "penalty": 0.3}


def inner(model: str, classes: bool) -> Any:
    if model == "trees":
        return (HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor)(random_state=0)
    return make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression() if classes else Ridge())


def on_split(
    task: Task, test: Sequence[str], model: str, settings: dict[str, Any]
) -> tuple[float, float, float, float]:
    """Error over all test rows and in the worst test group, seconds, and rows in effect as a share."""
    settings = dict(settings)
    known = ~np.isin(task.groups, test)
    graph = shuffled(task.graph) if settings.pop("shuffled", False) else task.graph
    kind = tr.RobustClassifier if task.classes else tr.RobustRegressor
    x, start = task.x.to_numpy(float), time.perf_counter()
    fitted = kind(inner(model, task.classes), graph=graph, test_groups=list(test), **settings)
    fitted.fit(x[known], task.y[known], groups=task.groups[known])
    seconds = time.perf_counter() - start

    def error(rows: np.ndarray) -> float:
        if task.classes:
            return float(log_loss(task.y[rows], fitted.predict_proba(x[rows]), labels=fitted.classes_))
        return float(np.sqrt(np.mean((fitted.predict(x[rows]) - task.y[rows]) ** 2)))

    weights = fitted.sample_weight(task.groups[known])
    worst = max(error(task.groups == name) for name in test)
    return error(~known), worst, seconds, weights.sum() ** 2 / (weights**2).sum() / len(weights)


def on_tables(tasks: Sequence[Task], model: str) -> list[str]:
    measured = {
        name: np.array(
            [on_split(t, test, model, s) for t in tasks for test in list(t.splits.values())[: SPLITS[model]]]
        )
        for name, s in VARIANTS.items()
    }
    base = measured["rows"]
    rows = []
    for name, each in measured.items():
        whole, worst = (each[:, k] / base[:, k] for k in (0, 1))
        cells = [mean(whole), f"{whole.max():.2f}", f"{np.mean(whole < 1):.0%}", mean(worst)]
        rows.append([name, *cells, f"{each[:, 2].sum() / base[:, 2].sum():.1f}", f"{each[:, 3].mean():.2f}"])
    titles = ["weights", "error", "at worst", "lower in", "worst test group", "time", "rows in effect"]
    return [f"{len(base)} splits.", "", *markdown(titles, rows)]


def mean(ratios: np.ndarray) -> str:
    return f"{np.exp(np.log(ratios).mean()):.3f}"


def on_made_up(model: str) -> list[str]:
    """Thirty groups, five of them of the other kind; ten test groups, five of them of that kind."""
    errors: dict[str, list[tuple[float, float, float]]] = {name: [] for name in MADE_UP}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(40), 40)
        odd = np.isin(np.arange(40), [*rng.permutation(30)[:5], *range(30, 35)])
        x = rng.normal(size=(len(groups), 3)) + 2.0 * np.outer(odd[groups], [0, 0, 1])
        y = x[:, 0] + np.where(odd[groups], 2 * np.sin(2 * x[:, 1]), x[:, 1]) + 0.3 * rng.normal(size=len(groups))
        known = groups < 30
        for name, settings in MADE_UP.items():
            fitted = tr.RobustRegressor(inner(model, False), **settings).fit(x[known], y[known], groups=groups[known])
            left = (fitted.predict(x) - y) ** 2
            by_group = [left[groups == each].mean() for each in range(30, 40)]
            share = sum(weight for each, weight in fitted.group_weights_.items() if odd[each])
            errors[name].append((float(np.mean(by_group)), float(np.max(by_group)), share))
    rows = [[name, *(f"{value:.3f}" for value in np.mean(each, axis=0))] for name, each in errors.items()]
    return markdown(["weights", "squared error", "in the worst test group", "weight of the other kind"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure any model by weights in groups never trained on.")
    parser.add_argument("tables", type=Path, help="the folder of tables")
    parser.add_argument("model", choices=list(SPLITS))
    given = parser.parse_args()
    works: list[tuple[str, Callable[[], list[str]]]] = [
        (
            "Tables. Error over that by rows (RMSE, log loss of classes), geometric means",
            lambda: on_tables(read_tasks(given.tables, TABLES), given.model),
        ),
        ("Made-up data: a few groups of another kind, and more of them in the test", lambda: on_made_up(given.model)),
    ]
    lines = [f"# Weighted {given.model}", "", f"Made by `python benchmarks/weighted.py TABLES {given.model}`.", ""]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for title, work in works:
            lines += [f"{title}.", "", *work()]
    text = "\n".join(lines)
    print(text)
    write_text(RESULTS / f"weighted_{given.model}.md", text)


if __name__ == "__main__":
    main()
