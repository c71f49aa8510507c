"""toporo's estimators on real tables with regions held out, beside what people use today.

``python benchmarks/tables_suite.py TABLES`` takes the four tables that things are settled on and writes
results/tables_suite.md; ``--judge`` takes the others and writes results/tables_suite-judged.md: not to be looked at
before all is settled. TABLES holds NAME.csv, NAME.graph.csv and NAME.json (see real_tables.py).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from libraries.bench_boosted_trees import boosted_trees
from real_tables import Task, read_tasks, shuffled
from report import markdown, run_suite
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import toporo as tr

TREES, AUTO = "boosted trees", "auto"
#: What is shown of every split.
ROWS = (
    *("constant", "linear", "TRO, linear", TREES, "LightGBM", "CatBoost", "safe mean", "picked", "votes, no effect"),
    *(AUTO, "auto, no graph", "auto, shuffled graph", "best candidate"),
)


def on_split(task: Task, test: tuple[str, ...]) -> dict[str, float]:
    """Errors in the test groups by method (root of the mean square, or log loss), and seconds."""
    known = ~np.isin(task.groups, test)
    x, new, y, target = task.x[known], task.x[~known], task.y[known], task.y[~known]
    groups, asked = task.groups[known].tolist(), task.groups[~known].tolist()
    labels = np.unique(y)

    def error(said: Any) -> float:
        if task.classes:
            return float(log_loss(target, np.clip(said, 1e-6, 1.0), labels=labels))
        return float(np.sqrt(np.mean((said - target) ** 2)))

    def said_by(model: Any, *given: Any) -> Any:
        return (model.predict_proba if task.classes else model.predict)(*given)

    start = time.process_time()
    kind = HistGradientBoostingClassifier if task.classes else HistGradientBoostingRegressor
    errors = {TREES: error(said_by(kind(random_state=0).fit(x, y), new))}
    single = time.process_time() - start
    for name, peer in boosted_trees(task.classes).items():
        errors[name] = error(said_by(peer.fit(plain(x), y), plain(new)))
    numbers = task.numbers(known)
    errors["linear"] = error(said_by(*linear(task.classes, numbers[known], y, numbers[~known])))
    tro = (tr.TROClassifier if task.classes else tr.TRORegressor)(graph=task.graph, test_groups=test, penalty="auto")
    errors["TRO, linear"] = error(said_by(tro.fit(numbers[known], y, groups=groups), numbers[~known]))
    auto = tr.AutoClassifier if task.classes else tr.AutoRegressor
    start = time.process_time()
    model = auto(graph=task.graph, test_groups=test).fit(x, y, groups=groups)
    errors["fits of trees"] = (time.process_time() - start) / single
    each = model.predict_each(new, groups=asked)
    safe = np.mean([each[name] for name in model._safe if name in each], axis=0)
    best = min(model.leaderboard_, key=lambda row: np.nan_to_num(row.error, nan=np.inf)).name
    errors |= {
        "constant": error(each["constant"]),
        "safe mean": error(safe),
        "picked": error(each[best]),
        "votes, no effect": error(sum(vote * each[name] for name, vote in model.weights_.items())),
        AUTO: error(said_by(model, new, asked)),
        "best candidate": min(error(values) for values in each.values()),
    }
    for name, graph in (("auto, no graph", None), ("auto, shuffled graph", shuffled(task.graph))):
        errors[name] = error(said_by(auto(graph=graph).fit(x, y, groups=groups), new, asked))
    return errors


def plain(x: pd.DataFrame) -> np.ndarray:
    """Categories by their codes, so that every library takes them."""
    return np.column_stack([column.cat.codes if column.dtype == "category" else column for _, column in x.items()])


def linear(classes: bool, x: np.ndarray, y: np.ndarray, new: np.ndarray) -> tuple[Any, np.ndarray]:
    """scikit-learn's linear model as it comes, on standardised inputs, and rows to predict."""
    kind = LogisticRegression(max_iter=1000) if classes else Ridge()
    return make_pipeline(StandardScaler(), kind).fit(x, y), new


def geometric(ratios: list[float]) -> str:
    r = np.array(ratios)
    return f"{np.exp(np.log(r).mean()):.3f}, {np.mean(r < 1):.0%}, {r.max():.2f}"


def suite(folder: Path, names: tuple[str, ...]) -> list[str]:
    errors: dict[str, list[dict[str, float]]] = {}
    for task in read_tasks(folder, names):
        errors[task.name] = [on_split(task, test) for test in task.splits.values()]
        print(f"{task.name}: done", flush=True)
    everything = {**errors, "all": [split for splits in errors.values() for split in splits]}
    cells = [
        [name, *(geometric([split[name] / split[TREES] for split in splits]) for splits in everything.values())]
        for name in ROWS
        if all(name in split for split in everything["all"])
    ]
    titles = ["method", *(f"{name} ({len(splits)})" for name, splits in everything.items())]
    return [
        "Error over that of scikit-learn's histogram gradient boosting as it comes, in groups never trained on: "
        "geometric mean over splits, share of splits with a lower one, worst. Root of the mean squared error, log loss "
        "of classes.",
        "",
        *markdown(titles, cells),
        "“Picked” is the candidate with the least error in groups left out, “best candidate” the one with the least in "
        "the test groups, which nobody can know.",
        "",
        f"A fit of auto takes as long as {np.median([each['fits of trees'] for each in everything['all']]):.1f} of "
        "the trees (median of CPU times).",
    ]


if __name__ == "__main__":
    run_suite(
        "tables_suite",
        "toporo's estimators on tables with regions held out",
        suite,
        "Measure toporo's default on tables with regions held out.",
    )
