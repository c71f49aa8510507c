"""Whether errors are larger outside of what validation has seen, in groups never trained on.

``python benchmarks/reach.py TABLES`` takes the four tables that things are settled on and writes results/reach.md;
``--judge`` takes the others and writes results/reach-judged.md: not to be looked at before all is settled. TABLES holds
NAME.csv, NAME.graph.csv and NAME.json (see real_tables.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from real_tables import Task, read_tasks
from report import markdown, run_suite

import toporo as tr
from toporo.estimators.rows import group_ids
from toporo.tables import Reach, RowReach

ANY = "any of the three"
UNNAMED = "any of the three, test groups not named"
#: What makes a row be outside, by a word in its reason.
REASONS = {"far from training rows": "training row", "too many hops": "training group", "inputs out of range": "range"}
#: Fewer rows on a side say nothing.
FEWEST = 10


def on_split(task: Task, test: tuple[str, ...]) -> dict[str, dict[str, tuple[float, float]]]:
    """By model and reason, the error outside over that inside (nan without rows on a side), and the share outside."""
    frame = task.x.assign(target=task.y, group=task.groups)
    known = ~np.isin(task.groups, test)
    kind: dict[str, Any] = {"task": "classification" if task.classes else "regression", "model": "linear"}
    model = tr.fit_table(frame, target="target", group="group", graph=task.graph, test_groups=test, **kind)
    (portion,) = model.portions(frame[~known], rows=len(frame))
    (trained,) = model.portions(frame[known], rows=len(frame))
    x, new = trained.encoded.matrix, portion.encoded.matrix
    groups, asked = task.groups[known].tolist(), task.groups[~known].tolist()
    ids, hops = group_ids(groups, len(x)), task.graph.hops(sorted(set(groups)))
    settings: dict[str, Any] = {"graph": task.graph, "test_groups": test}
    names = task.groups[~known].astype(object)
    outputs = {"linear": (portion.values if portion.probabilities is None else portion.probabilities, model.estimator)}
    if not task.classes:
        auto = tr.AutoRegressor(graph=task.graph).fit(x, task.y[known], groups=groups)
        outputs["auto"] = auto.predict(new, groups=asked), auto
    compared = {}
    for name, (output, estimator) in outputs.items():
        squares = _squares(task, output, task.y[~known], model.classes)
        reach = Reach.of(estimator, x, ids, **settings).of_rows(new, names, hops)
        unnamed = Reach.of(estimator, x, ids, graph=task.graph).of_rows(new, names, hops)
        outside = _outside(reach) | {UNNAMED: unnamed.outside}
        compared[name] = {reason: _compared(squares, rows) for reason, rows in outside.items()}
    return compared


def _outside(reach: RowReach) -> dict[str, np.ndarray]:
    """By reason, the rows outside."""
    reasons = reach.reasons.astype(str)
    return {ANY: reach.outside} | {title: np.char.find(reasons, word) >= 0 for title, word in REASONS.items()}


def _squares(task: Task, said: np.ndarray, target: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
    """Squared errors by row; of classes those of the probabilities."""
    if not task.classes:
        return (said - target) ** 2
    return ((said - (target.astype(str)[:, None] == np.array(classes)[None, :])) ** 2).sum(axis=1)


def _compared(squares: np.ndarray, outside: np.ndarray) -> tuple[float, float]:
    few = min(outside.sum(), (~outside).sum()) < FEWEST
    ratio = np.nan if few else float(np.sqrt(squares[outside].mean() / squares[~outside].mean()))
    return ratio, float(outside.mean())


def cell(pairs: list[tuple[float, float]]) -> str:
    ratios, shares = np.array(pairs).T
    r = ratios[np.isfinite(ratios)]
    told = f"{np.exp(np.log(r).mean()):.2f}, {np.mean(r > 1):.0%} of {len(r)}" if len(r) else "–"
    return f"{told}, {shares.mean():.0%}"


def suite(folder: Path, names: tuple[str, ...]) -> list[str]:
    by_task: dict[str, list[dict[str, dict[str, tuple[float, float]]]]] = {}
    for task in read_tasks(folder, names):
        by_task[task.name] = [on_split(task, test) for test in task.splits.values()]
        print(f"{task.name}: done", flush=True)
    everything = {**by_task, "all": [split for splits in by_task.values() for split in splits]}
    lines = [
        "Root of the mean squared error of rows outside of what validation has seen over that of rows inside, in test "
        "groups: geometric mean over splits, share of the splits where it is above 1 (of those with at least "
        f"{FEWEST} rows on either side), and the share of rows outside. Of classes, the error of probabilities. “Any "
        "of the three” is what `predict --reach` marks; groups held out are as many hops from the others as test "
        "groups are from training groups, or drawn at random where test groups are not named in the fit.",
        "",
    ]
    for model in ("linear", "auto"):
        fitted = {name: [split[model] for split in splits if model in split] for name, splits in everything.items()}
        fitted = {name: splits for name, splits in fitted.items() if splits}
        cells = [
            [reason, *(cell([split[reason] for split in splits]) for splits in fitted.values())]
            for reason in (ANY, *REASONS, UNNAMED)
        ]
        titles = [f"{model}: outside because", *(f"{name} ({len(splits)})" for name, splits in fitted.items())]
        lines += markdown(titles, cells)
    return lines


if __name__ == "__main__":
    run_suite(
        "reach",
        "Errors inside and outside of what validation has seen",
        suite,
        "Compare errors inside and outside of what validation has seen.",
    )
