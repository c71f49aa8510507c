"""How much TRO-data on DG-15 depends on how its topology was learned.

Trains TRO as the table does, with the data-driven prior learned under other kernels, scales and cuts, and reports which
training group the prior favours and what follows in the test groups. Nothing here is used to choose a setting.

Run it with: python benchmarks/prior_sensitivity.py [DATA_FOLDER]
"""

from __future__ import annotations

import functools
import statistics
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F

import toporo as tr
from toporo.experiments.jobs import build_model
from toporo.experiments.protocols import METHODS, PROTOCOLS
from toporo.files import write_text
from toporo.training import TrainSettings, accuracy_by_group, features_of, train

SEEDS = 3
CUTS = (
    {"cut": "percentile", "percentile": 80.0},
    {"cut": "percentile", "percentile": 60.0},
    {"cut": "percentile", "percentile": 40.0},
    {"cut": "mst-knn"},
)
loss = functools.partial(F.cross_entropy, reduction="none")


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", tr.TopoRoWarning)  # disconnected cuts are part of the study
    benchmark = tr.load_dataset("dg15", sys.argv[1] if len(sys.argv) > 1 else None)
    protocol, method = PROTOCOLS["dg15"], METHODS["tro-data"]
    test = benchmark.data.select(benchmark.test)
    splits = [benchmark.data.select(benchmark.train).split(protocol.validation, seed) for seed in range(SEEDS)]

    def fit(objective: tr.objectives.Objective, seed: int) -> torch.nn.Module:
        model = build_model(protocol, benchmark, seed)
        settings = TrainSettings(protocol.epochs, protocol.per_group, protocol.learning_rate, seed=seed)
        train(model, objective, splits[seed].train, loss, settings)
        return model

    def accuracy(model: torch.nn.Module) -> float:
        return 100 * statistics.mean(accuracy_by_group(model, test).values())

    erm = [fit(tr.objectives.ERM(benchmark.train), seed) for seed in range(SEEDS)]
    lines = [
        "# TRO-data on DG-15 under other ways of learning the topology",
        "",
        f"Made by `python benchmarks/prior_sensitivity.py`, {benchmark.source} data, {SEEDS} seeds, last epoch. "
        f"ERM: {statistics.mean(map(accuracy, erm)):.1f} %.",
        "",
        "| sigma | scales K | cut | favoured group by seed | test accuracy (%), mean ± sd |",
        "|---|---|---|---|---|",
    ]
    favourites: Counter[object] = Counter()
    for sigma in ("knn", "median"):
        for scales in (5, 10):
            for cut in CUTS:
                tops, values = [], []
                for seed, model in enumerate(erm):
                    features, ids = features_of(model, splits[seed].train), splits[seed].train.ids
                    prior = tr.learn_topology(features, ids, sigma=sigma, scales=scales, **cut).prior(benchmark.train)
                    tops.append(max(prior.weights, key=prior.weights.__getitem__))
                    values.append(accuracy(fit(tr.objectives.TRO(prior, **method.settings), seed)))
                favourites.update(tops)
                name = f"{cut['cut']} {cut['percentile']:g}" if "percentile" in cut else cut["cut"]
                spread = f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
                lines.append(f"| {sigma} | {scales} | {name} | {', '.join(map(str, tops))} | {spread} |")
                print(lines[-1], flush=True)
    total = sum(favourites.values())
    shares = ", ".join(f"group {name} {count}" for name, count in favourites.most_common())
    lines += ["", f"Favoured over all {total} priors: {shares}.", ""]
    write_text(Path(__file__).parent / "results" / "prior_sensitivity.md", "\n".join(lines))
    print("\n".join(lines[-2:]))


if __name__ == "__main__":
    main()
