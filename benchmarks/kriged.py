"""What kriged coefficients are worth in groups never trained on, beside their controls: the half to develop on.

``python benchmarks/kriged.py DIR`` (DIR holds NOAA's file; a few minutes) writes results/kriged.md. Temperatures are
those of 1900 to 2007, which no table of the paper uses; the other problems are made here. The years 2008 to 2019, the
published splits and real tables are kept for judging.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import toporo as tr
from toporo.bench.tpt48 import border_graph, find_releases, read_temperatures
from toporo.choice.splits import grow_region
from toporo.files import write_text

RESULTS = Path(__file__).parent / "results"
YEARS, SPAN, REGIONS, MADE = range(1900, 2008), 12, 20, 20
RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows of groups, a graph over them, and which of them are not trained on."""

    x: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    graph: tr.GroupGraph
    test: tuple[Any, ...]

    @property
    def known(self) -> np.ndarray:
        return ~np.isin(self.groups, self.test)

    def error(self, predict: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
        new = ~self.known
        return float(np.mean((predict(self.x[new], self.groups[new]) - self.y[new]) ** 2))


# ---------------------------------------------------------------------- problems


def temperatures(folder: Path) -> list[Problem]:
    """July to December from January to June, in a connected region of states that nobody has seen."""
    by_state = read_temperatures(find_releases(folder)[0], YEARS)
    graph, rng = border_graph(), np.random.default_rng(0)
    made = []
    for _ in range(REGIONS):
        size, first = int(rng.integers(4, 25)), int(rng.integers(0, len(YEARS) - SPAN + 1))
        test = grow_region(graph, graph.names[int(rng.integers(len(graph.names)))], size)
        rows = np.concatenate([by_state[name][first : first + SPAN] for name in graph.names])
        y = (rows[:, 6:] - rows[:, 6:].mean(axis=0)) / rows[:, 6:].std(axis=0)
        made.append(Problem(rows[:, :6], y, np.repeat(graph.names, SPAN), graph, tuple(test)))
    return made


def chain(kind: str) -> list[Problem]:
    """Twenty groups in a row, four inputs; a run of five groups at an end or in the middle is not trained on."""
    return [_chain(kind, seed) for seed in range(MADE)]


def _chain(kind: str, seed: int, m: int = 20, per_group: int = 20) -> Problem:
    rng = np.random.default_rng([seed, len(kind)])
    g = np.repeat(np.arange(m), per_group)
    first = int(rng.integers(0, m - 5))
    test = tuple(range(first, first + 5))
    x = rng.normal(size=(len(g), 4)) + rng.normal(size=(m, 4))[g]
    place = np.linspace(-1, 1, m)
    common, direction, level = rng.normal(size=4), rng.normal(size=4), rng.normal()
    slopes = np.tile(common, (m, 1))
    intercepts = np.zeros(m)
    if kind == "smooth":
        slopes, intercepts = slopes + np.sin(2 * place)[:, None] * direction, level * np.cos(2 * place)
    elif kind == "unrelated":
        slopes, intercepts = slopes + 0.5 * rng.normal(size=(m, 4)), 0.5 * rng.normal(size=m)
    elif kind == "turning":  # grows over the training groups and falls beyond them
        end = np.abs(place - place[first + 2])
        slopes, intercepts = (
            slopes + np.minimum(end, 0.8 - end)[:, None] * 2 * direction,
            level * np.minimum(end, 0.8 - end),
        )
    y = np.einsum("nj,nj->n", x, slopes[g]) + intercepts[g] + rng.normal(size=len(g))
    return Problem(x, y, g, tr.GroupGraph.from_edges([(i, i + 1) for i in range(m - 1)]), test)


def spirals(seeds: Sequence[int] = tuple(range(5))) -> list[Problem]:
    """DG-15 anew: classes as targets of ±1."""
    made = []
    for seed in seeds:
        data = tr.load_dataset("dg15", source="generated", seed=seed + 100)
        names = np.array([str(name) for name in data.data.ids.names])
        graph = tr.GroupGraph.from_edges([(str(a), str(b)) for a, b in data.graph.edges])
        test = tuple(str(name) for name in data.test)
        made.append(Problem(np.asarray(data.data.x, float), 2.0 * data.data.y - 1.0, names, graph, test))
    return made


# ---------------------------------------------------------------------- methods


def exact(penalty: float, prior: str = "auto") -> Callable[[Problem], float]:
    def run(problem: Problem) -> float:
        model = tr.TRORegressor(
            graph=problem.graph, test_groups=problem.test, penalty=penalty, prior=prior, ridge=RIDGE
        )
        known = problem.known
        model.fit(problem.x[known], problem.y[known], groups=problem.groups[known].tolist())
        return problem.error(lambda x, _: model.predict(x))

    return run


def group_dro(problem: Problem) -> float:
    known = problem.known
    model = tr.GroupDRORegressor(ridge=RIDGE)
    model.fit(problem.x[known], problem.y[known], groups=problem.groups[known].tolist())
    return problem.error(lambda x, _: model.predict(x))


def kriged(change: Callable[[Problem], Any], **settings: Any) -> Callable[[Problem], float]:
    def run(problem: Problem) -> float:
        known = problem.known
        model = tr.KrigedRegressor(graph=change(problem), **settings)
        model.fit(problem.x[known], problem.y[known], groups=problem.groups[known].tolist())
        return problem.error(lambda x, g: model.predict(x, groups=g.tolist()))

    return run


def shuffled(problem: Problem) -> tr.GroupGraph:
    """The same graph with the groups at other places."""
    names = list(problem.graph.names)
    other = dict(zip(names, np.random.default_rng(1).permutation(len(names)), strict=True))
    return tr.GroupGraph.from_edges([(names[other[a]], names[other[b]]) for a, b in problem.graph.edges])


def learned(problem: Problem) -> tr.GroupGraph:
    """A graph of the inputs of all groups."""
    scaled = (problem.x - problem.x.mean(axis=0)) / problem.x.std(axis=0)
    return tr.learn_topology(scaled, problem.groups.tolist(), scales=4, resamples=0)


METHODS: dict[str, Callable[[Problem], float]] = {
    "linear ERM": exact(math.inf, "uniform"),
    "IW-ERM": exact(math.inf),
    "exact TRO, λ = 10": exact(10.0),
    "group DRO": group_dro,
    "kriged without a graph": kriged(lambda problem: None),
    "kriged, shuffled graph": kriged(shuffled),
    "kriged, learned graph": kriged(learned),
    "kriged": kriged(lambda problem: problem.graph),
    "kriged, every row by itself": kriged(lambda problem: problem.graph, context="row"),
}


def main(folder: str) -> None:
    problems = {
        "TPT-48, 1900–2007": temperatures(Path(folder)),
        "smooth": chain("smooth"),
        "unrelated": chain("unrelated"),
        "no differences": chain("null"),
        "turning": chain("turning"),
        "DG-15 anew": spirals(),
    }
    errors = {
        kind: {name: np.array([method(problem) for problem in each]) for name, method in METHODS.items()}
        for kind, each in problems.items()
    }
    titles = ["method", *(f"{kind} ({len(each)})" for kind, each in problems.items())]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for name in METHODS:
        ratios = [errors[kind][name] / errors[kind]["linear ERM"] for kind in problems]
        cells = [f"{r.mean():.3f}, {np.mean(r < 1):.0%}, {r.max():.2f}" for r in ratios]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    text = "\n".join(
        [
            "# Kriged coefficients in groups never trained on",
            "",
            "Made by `python benchmarks/kriged.py DIR`. Squared error over linear ERM's: mean, share of problems with "
            "a lower one, worst. All of this is development: settings may be chosen with these figures in view.",
            "",
            *lines,
            "",
        ]
    )
    print(text)
    write_text(RESULTS / "kriged.md", text)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(sys.argv[1])
