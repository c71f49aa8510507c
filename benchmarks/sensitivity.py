"""How much the DG-15 table depends on choices a table does not show.

- `penalty_sensitivity.md`: TRO-physical over λ.
- `prior_sensitivity.md`: TRO-data over ways of learning its topology.

Everything else is as in the table (last epoch, same seeds). Nothing here is used to choose a setting.

Run it with: python benchmarks/sensitivity.py [DATA_FOLDER]
"""

from __future__ import annotations

import functools
import math
import statistics
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F

import toporo as tr
from toporo.files import write_text
from toporo.paper import BENCHMARKS
from toporo.paper.fits import build_model
from toporo.paper.protocols import BENCH_METHODS
from toporo.training import Batches, TrainingPlan, accuracy_by_group, fit, outputs_of

SEEDS = 3
PENALTIES = (0.1, 1.0, 10.0, 100.0, math.inf)
CUTS = (
    {"cut": "percentile", "percentile": 80.0},
    {"cut": "percentile", "percentile": 60.0},
    {"cut": "percentile", "percentile": 40.0},
    {"cut": "mst-knn"},
)
loss = functools.partial(F.cross_entropy, reduction="none")


class Study:
    """DG-15 under the table's protocol, one objective at a time."""

    def __init__(self, folder: str | None) -> None:
        self.benchmark = tr.load_dataset("dg15", folder)
        self.protocol = BENCHMARKS["dg15"].protocol
        train_rows = self.benchmark.data.select(self.benchmark.train)
        self.splits = [train_rows.split(self.protocol.validation, seed) for seed in range(SEEDS)]
        self.test = self.benchmark.data.select(self.benchmark.test)

    def fit(self, objective: tr.objectives.Objective, seed: int) -> torch.nn.Module:
        model = build_model(self.protocol, self.benchmark, seed)
        plan = TrainingPlan(self.protocol.rounds, learning_rate=self.protocol.learning_rate, seed=seed)
        fit(model, objective, Batches.of(self.splits[seed].train, self.protocol.per_group), loss, plan)
        return model

    def accuracy(self, model: torch.nn.Module) -> float:
        return 100 * statistics.mean(accuracy_by_group(model, self.test).values())

    def head(self, title: str) -> list[str]:
        epochs = self.protocol.rounds
        about = f"{self.benchmark.source} data, {SEEDS} seeds, {epochs} epochs, test accuracy (%) at the last."
        return [f"# {title}", "", f"Made by `python benchmarks/sensitivity.py`: {about}", ""]


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def over_penalties(study: Study) -> list[str]:
    prior = study.benchmark.physical_prior(measure="betweenness")
    lines = [*study.head("TRO-physical on DG-15 over λ"), "| λ | test accuracy |", "|---|---|"]
    for penalty in PENALTIES:
        objectives = [tr.objectives.TRO(prior, penalty, update="exact") for _ in range(SEEDS)]
        values = [study.accuracy(study.fit(objective, seed)) for seed, objective in enumerate(objectives)]
        lines.append(f"| {'∞ (IW-ERM)' if math.isinf(penalty) else f'{penalty:g}'} | {spread(values)} |")
    return [*lines, ""]


def over_topologies(study: Study) -> list[str]:
    train_names = study.benchmark.train
    erm = [study.fit(tr.objectives.ERM(train_names), seed) for seed in range(SEEDS)]
    lines = [
        *study.head("TRO-data on DG-15 over ways of learning the topology"),
        f"ERM: {spread([study.accuracy(model) for model in erm])}.",
        "",
        "| sigma | scales K | cut | favoured group by seed | test accuracy |",
        "|---|---|---|---|---|",
    ]
    favourites: Counter[object] = Counter()
    for sigma in ("knn", "median"):
        for scales in (5, 10):
            for cut in CUTS:
                tops, values = [], []
                for seed, model in enumerate(erm):
                    rows = study.splits[seed].train
                    features, ids = outputs_of(model, rows, features=True), rows.ids
                    graph = tr.learn_topology(features, ids, sigma=sigma, scales=scales, **cut)
                    prior = graph.prior(train_names, measure="betweenness")
                    tops.append(max(prior.weights, key=prior.weights.__getitem__))
                    objective = tr.objectives.TRO(prior, **BENCH_METHODS["tro-data"].settings)
                    values.append(study.accuracy(study.fit(objective, seed)))
                favourites.update(tops)
                name = f"{cut['cut']} {cut['percentile']:g}" if "percentile" in cut else cut["cut"]
                lines.append(f"| {sigma} | {scales} | {name} | {', '.join(map(str, tops))} | {spread(values)} |")
    shares = ", ".join(f"group {name} {count}" for name, count in favourites.most_common())
    return [*lines, "", f"Favoured over all {favourites.total()} priors: {shares}.", ""]


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", tr.TopoRoWarning)  # disconnected cuts are part of the study
    study = Study(sys.argv[1] if len(sys.argv) > 1 else None)
    for name, part in (("penalty_sensitivity", over_penalties), ("prior_sensitivity", over_topologies)):
        text = "\n".join(part(study))
        print(text)
        write_text(Path(__file__).parent / "results" / f"{name}.md", text)


if __name__ == "__main__":
    main()
