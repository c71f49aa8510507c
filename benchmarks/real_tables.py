"""Real tables whose rows belong to groups on a graph: tasks with splits.

A folder holds NAME.csv (column ``group``), NAME.graph.csv (``a,b``) and NAME.json: target, kind of task, features,
categories, ``splits`` (names to test groups) and ``other_tasks`` with a target and features of their own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

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
