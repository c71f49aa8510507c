"""What other validation rules than the one in use would have chosen on TPT-48, and what that gives on the test states.

``python benchmarks/choice.py DIR`` (DIR holds the NOAA file; a few minutes) writes results/choice_sensitivity.md. The
rule in use leaves out a region around every training state, in every size up to half of them. It was settled on with
tables like these in view, so they belong to the result: they show how much hangs on it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import toporo as tr
from toporo.choice.penalty import GRID, PRIORS, ROUGH, named_prior
from toporo.choice.splits import grow_region
from toporo.data.grouped import GroupedData
from toporo.files import write_text
from toporo.paper import BenchmarkData
from toporo.robust.group_losses import SquaredLosses
from toporo.robust.linear import path

RIDGES = (0.001, 0.01, 0.03)
TARGETS = {"east-west": 0.26, "north-south": 0.21}
Key = tuple[str, float, float]  # prior, ridge, penalty


@dataclass(frozen=True)
class Fold:
    """States left out, how far each is from those kept, and every candidate's error on each."""

    size: int
    region: tuple[str, ...]
    hops: dict[str, float]
    errors: dict[Key, dict[str, float]]


def candidates(
    graph: tr.GroupGraph, train: GroupedData, ahead: Sequence[Any], judged: GroupedData, tol: float = ROUGH
) -> dict:
    losses = SquaredLosses.from_arrays(train.x, train.y, train.ids)
    errors = {}
    for name in PRIORS:
        prior = named_prior(name, graph, list(train.groups), ahead)
        for ridge in RIDGES:
            for fit in path(losses, prior, penalties=GRID, ridge=ridge, tol=tol):
                squares = ((fit.predict(judged.x) - judged.y) ** 2).sum(axis=1)
                means = np.bincount(judged.codes, squares) / np.bincount(judged.codes)
                errors[name, ridge, fit.penalty] = judged.groups.named(means)
    return errors


def leave_out(benchmark: BenchmarkData, train: GroupedData, size: int, region: tuple[Any, ...]) -> Fold:
    world = benchmark.graph.subgraph(benchmark.train)
    kept = [name for name in benchmark.train if name not in region]
    errors = candidates(world, train.select(kept), region, train.select(region))
    hops = world.hops(kept)
    return Fold(size, tuple(sorted(region)), {name: hops[name] for name in region}, errors)


def all_regions(benchmark: BenchmarkData, train: GroupedData) -> list[Fold]:
    world = benchmark.graph.subgraph(benchmark.train)
    return [
        leave_out(benchmark, train, size, grow_region(world, name, size))
        for name in world.names
        for size in range(1, len(benchmark.train) // 2 + 1)
    ]


def mean_score(folds: list[Fold], key: Key) -> float:
    return float(np.mean([np.mean(list(fold.errors[key].values())) for fold in folds]))


def hop_matched(folds: list[Fold], key: Key, hops: dict[Any, int]) -> float:
    """Errors by hop class, weighted as the test states' classes are."""
    total, mass = 0.0, 0.0
    for level in (1, 2, 3):
        values = [e for f in folds for name, e in f.errors[key].items() if min(f.hops[name], 3) == level]
        share = sum(value == level for value in hops.values())
        if values:
            total, mass = total + share * float(np.mean(values)), mass + share
    return total / mass


def distinct(folds: list[Fold]) -> list[Fold]:
    return list({fold.region: fold for fold in folds}.values())


def study(benchmark: BenchmarkData) -> dict[str, tuple[Key, float]]:
    train = benchmark.data.select(benchmark.train)
    test = candidates(benchmark.graph, train, benchmark.test, benchmark.data.select(benchmark.test), tol=1e-6)
    error = {key: float(np.mean(list(values.values()))) for key, values in test.items()}
    folds = all_regions(benchmark, train)
    near = benchmark.graph.hops(benchmark.test)
    edge = tuple(name for name in benchmark.train if near[name] == 1)
    frontier = [leave_out(benchmark, train, len(edge), edge)]
    inside = in_distribution(benchmark, train)
    hops = dict(benchmark.about["hops"])
    fixed = [key for key in error if key[1] == 0.01]
    rules: dict[str, tuple[list[Key], Callable[[Key], float]]] = {
        "**every size from 1 to 12 (in use)**": (fixed, lambda key: mean_score(folds, key)),
        "the same, ridge chosen too": (list(error), lambda key: mean_score(folds, key)),
        "the same, equal regions counted once": (fixed, lambda key: mean_score(distinct(folds), key)),
        "the same, weighted to the test states' hop classes": (fixed, lambda key: hop_matched(folds, key, hops)),
    }
    for size in (1, 2, 3, 4, 6, 8, 10, 12):
        part = [fold for fold in folds if fold.size == size]
        rules[f"size {size} alone"] = (fixed, lambda key, part=part: mean_score(part, key))
    rules["the states that touch test states, at once (frontier)"] = (fixed, lambda key: mean_score(frontier, key))
    rules["a fifth of every state's rows (in-distribution)"] = (fixed, lambda key: inside[key])
    rules["test labels (oracle)"] = (fixed, lambda key: error[key])
    chosen = {title: min(keys, key=score) for title, (keys, score) in rules.items()}
    return {title: (key, error[key]) for title, key in chosen.items()}


def in_distribution(benchmark: BenchmarkData, train: GroupedData) -> dict[Key, float]:
    totals: dict[Key, float] = {}
    for seed in range(5):
        split = train.split(0.2, seed)
        for key, errors in candidates(benchmark.graph, split.train, benchmark.test, split.validation).items():
            totals[key] = totals.get(key, 0.0) + float(np.mean(list(errors.values()))) / 5
    return totals


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: python benchmarks/choice.py DIR, with NOAA's climdiv-tmpcst file in DIR or DIR/tpt48")
    found = {split: study(tr.load_dataset("tpt48", sys.argv[1], split=split, window="season")) for split in TARGETS}
    lines = [
        "# Which validation chooses what on TPT-48 (linear model, season windows)",
        "",
        "Made by `python benchmarks/choice.py DIR`. Candidates: five priors × ten λ at ridge 0.01 unless said "
        "otherwise; test MSE (all) of the chosen one. No rule but the oracle sees a label of a test state.",
        "",
        "| left out | E→W chosen | test MSE | N→S chosen | test MSE | both targets |",
        "|---|---|---:|---|---:|---|",
    ]
    for title in found["east-west"]:
        cells, met = [], True
        for split, target in TARGETS.items():
            (prior, ridge, penalty), error = found[split][title]
            shown = "∞" if math.isinf(penalty) else f"{penalty:g}"
            cells.append(f"{prior}, λ = {shown}{'' if ridge == 0.01 else f', ridge {ridge:g}'} | {error:.4f}")
            met = met and error <= target
        lines.append(f"| {title} | {' | '.join(cells)} | {'yes' if met else 'no'} |")
    text = "\n".join([*lines, "", "Targets: 0.26 for E→W, 0.21 for N→S.", ""])
    print(text)
    write_text(Path(__file__).parent / "results" / "choice_sensitivity.md", text)


if __name__ == "__main__":
    main()
