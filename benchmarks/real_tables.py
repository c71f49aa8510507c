"""Real tables whose rows belong to groups on a graph: tasks with splits, and trees with a kriged effect on them.

A folder holds NAME.csv (column ``group``), NAME.graph.csv (``a,b``) and NAME.json: target, kind of task, features,
categories, ``splits`` (names to test groups) and ``other_tasks`` with a target and features of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss

import toporo as tr


@dataclass(frozen=True, eq=False)
class Task:
    """One target of a table.

    Attributes
    ----------
    name : of the table and the target.
    classes : whether the target is a class.
    x : the features; columns of categories have that type.
    y, groups : one per row.
    graph : over the groups.
    splits : names to test groups.
    """

    name: str
    classes: bool
    x: pd.DataFrame
    y: np.ndarray
    groups: np.ndarray
    graph: tr.GroupGraph
    splits: dict[str, tuple[str, ...]]

    def numbers(self, known: np.ndarray) -> np.ndarray:
        """The features for a linear model: categories as indicators, gaps filled with medians of known rows."""
        wide = pd.get_dummies(self.x, dtype=float).astype(float)
        wide = wide.fillna(wide[known].median())
        return wide.loc[:, wide[known].nunique() > 1].to_numpy()


def shuffled(graph: tr.GroupGraph) -> tr.GroupGraph:
    """The same graph with the groups at other places."""
    names = list(graph.names)
    other = dict(zip(names, np.random.default_rng(1).permutation(len(names)), strict=True))
    return tr.GroupGraph.from_edges([(names[other[a]], names[other[b]]) for a, b in graph.edges])


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [titles, ["---"] * len(titles), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def read_tasks(folder: Path, names: Sequence[str]) -> list[Task]:
    """All tasks of the named tables."""
    return [task for name in names for task in _tasks(folder, name)]


def _tasks(folder: Path, name: str) -> list[Task]:
    about = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    frame = pd.read_csv(folder / f"{name}.csv", dtype={"group": str}, keep_default_na=True)
    links = pd.read_csv(folder / f"{name}.graph.csv", dtype=str, keep_default_na=False)
    graph = tr.GroupGraph.from_edges(list(links.itertuples(index=False, name=None)))
    made = []
    for task in (about, *about.get("other_tasks", ())):
        x = frame[task["features"]].copy()
        for column in x.select_dtypes(exclude="number"):
            x[column] = x[column].astype("category")
        splits = {split: tuple(groups) for split, groups in about["splits"].items()}
        groups, y = frame["group"].to_numpy(str), frame[task["target"]].to_numpy()
        title = f"{name}, {task['target']}"
        made.append(Task(title, task["task"] == "classification", x, y, groups, graph, splits))
    return made


# ---------------------------------------------------------------------- trees, and what they leave

TREES = "boosted trees"
#: By task, errors by method of every split.
Trees = dict[str, list[dict[str, float]]]
TREE_ROWS = ("kriged effect", "kriged effect, shuffled graph", "linear kriged alone")


def on_table(task: Task, test: Sequence[str]) -> dict[str, float]:
    """Errors in the test groups by method: squared error, or log loss of classes."""
    known = ~np.isin(task.groups, test)
    x, new, y, target = task.x[known], task.x[~known], task.y[known], task.y[~known]
    groups, asked = task.groups[known].tolist(), task.groups[~known].tolist()
    trees = (HistGradientBoostingClassifier if task.classes else HistGradientBoostingRegressor)(random_state=0)

    def error(model: Any, rows: Any, **named: Any) -> float:
        if task.classes:
            return float(log_loss(target, model.predict_proba(rows, **named), labels=np.unique(task.y)))
        return float(np.mean((model.predict(rows, **named) - target) ** 2))

    errors = {}
    for name, graph in (("kriged effect", task.graph), ("kriged effect, shuffled graph", shuffled(task.graph))):
        model = tr.Kriged(trees, graph=graph).fit(x, y, groups=groups)
        errors[TREES] = error(model.estimator_, new)
        errors[name] = error(model, new, groups=asked)
    linear = getattr(tr, "KrigedClassifier", None) if task.classes else tr.KrigedRegressor
    if linear is not None:
        numbers = task.numbers(known)
        model = linear(graph=task.graph).fit(numbers[known], y, groups=groups)
        errors["linear kriged alone"] = error(model, numbers[~known], groups=asked)
    return errors


def on_tables(tasks: Sequence[Task]) -> Trees:
    out = {}
    for task in tasks:
        out[task.name] = [on_table(task, test) for test in task.splits.values()]
        print(f"{task.name}: done", flush=True)
    return out


def over_trees(splits: Sequence[dict[str, float]], name: str) -> np.ndarray:
    return np.array([errors[name] / errors[TREES] for errors in splits if name in errors])


def trees_table(tasks: Sequence[Task], errors: Trees) -> list[str]:
    totals = {
        "all regressions": [split for task in tasks if not task.classes for split in errors[task.name]],
        "all classifications": [split for task in tasks if task.classes for split in errors[task.name]],
    }
    rows = []
    for title, splits in {**errors, **totals}.items():
        cells = [over_trees(splits, name) for name in TREE_ROWS]
        shown = [f"{r.mean():.3f}, {np.mean(r < 1):.0%}, {r.max():.2f}" if len(r) else "–" for r in cells]
        if splits:
            rows.append([f"{title} ({len(splits)})", *shown])
    return markdown(["table, target", *TREE_ROWS], rows)
