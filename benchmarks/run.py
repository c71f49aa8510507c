"""Measure toporo against named peers, each pair in the same run; tables go to benchmarks/results/.

Run all of it with ``make bench`` (about forty minutes), or some with ``make bench ONLY="start steps"``.
"""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accuracy import bench_accuracy
from convex import bench_convex, bench_million, bench_path
from engine import bench_geodesic, bench_growth, bench_large, bench_neighbors, bench_peers
from kriged_speed import bench_mixed, bench_scale, bench_votes
from outofcore import bench_outofcore
from ranks import bench_ranks
from report import RESULTS, markdown, median_seconds, write_page

import toporo as tr
from tables import bench_stream, bench_tables
from vision import bench_vision


def bench_steps() -> list[str]:
    data = tr.load_dataset("dg15", source="generated")
    train = data.data.select(data.train)
    prior = data.graph.prior(data.train, data.test, measure="betweenness")
    batch = next(iter(tr.group_batches(train, per_group=32)))
    kinds = {
        "ERM": tr.objectives.ERM(data.train),
        "TRO, ascent": tr.objectives.TRO(prior, 1.0, 0.1),
        "TRO, exact": tr.objectives.TRO(prior, 1.0, update="exact"),
        "TRO, constrained": tr.objectives.TRO(prior, update="constrained", radius=0.1),
        "Group DRO": tr.objectives.GroupDRO(data.train),
        "IRM": tr.objectives.IRM(data.train),
    }
    loops = [partial(_steps, objective, batch, 30) for objective in kinds.values()]
    took = [1000 * seconds / 30 for seconds in median_seconds(*loops)]
    cells = [[title, f"{ms:.2f}", f"{ms / took[0]:.2f}×"] for title, ms in zip(kinds, took, strict=True)]
    return markdown(["objective", "step (ms)", "over ERM"], cells)[:-1]


def _steps(objective: tr.objectives.Objective, batch: tuple, count: int) -> None:
    net = tr.training.MLP(2, 2, (512, 512))
    optimizer = torch.optim.Adam(net.parameters())
    x, y, groups = batch
    for _ in range(count):
        logits = net(x)
        extra = {"logits": logits} if "logits" in objective.needs else {}
        loss = objective(F.cross_entropy(logits, y, reduction="none"), groups, **extra)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def bench_start() -> list[str]:
    lines = ["| command | wall time, warm (s) | over `python -c pass` |", "|---|---|---|"]
    base = 0.0
    for title, command in (
        ("`python -c pass`", [sys.executable, "-c", "pass"]),
        ("`python -c 'import toporo'`", [sys.executable, "-c", "import toporo"]),
        ("`toporo --help`", [str(Path(sys.executable).parent / "toporo"), "--help"]),
    ):
        times = []
        for _ in range(8):
            start = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        took = statistics.median(times[1:])
        base = base or took
        lines.append(f"| {title} | {took:.2f} | {took / base:.1f}× |")
    return lines


#: Name of a results file to its title and what fills it; the order is that of a run.
BENCHES: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "start": ("Starting up", bench_start),
    "steps": ("A training step by objective (MLP 2-512-512-2, 6 × 32 samples)", bench_steps),
    "vision": ("The cost of an objective in a training step on images", bench_vision),
    "ranks": ("The cost of joining ranks in a training step", bench_ranks),
    "accuracy": ("Distances between groups against the exact geodesic earth mover's distance", bench_accuracy),
    "geodesic": ("Diffusion EMD against exact EMD with geodesic cost", bench_geodesic),
    "neighbors": ("Nearest neighbours", bench_neighbors),
    "growth": ("Diffusion EMD as points and groups grow", bench_growth),
    "large": ("A million points in bounded memory", bench_large),
    "convex": ("The exact convex solver against cvxpy and dro", bench_convex),
    "path": ("A path over twenty penalties against one fit", bench_path),
    "million": ("The exact convex solver at a million rows", bench_million),
    "mixed": ("A mixed model against statsmodels", bench_mixed),
    "scale": ("Kriged models of many rows and of many groups", bench_scale),
    "votes": ("Models with votes on a million rows", bench_votes),
    "tables": ("`toporo fit` on a million rows", bench_tables),
    "stream": ("`toporo predict` on files larger than its memory", bench_stream),
    "outofcore": ("`toporo fit` on tables larger than memory", bench_outofcore),
    "peers": ("Diffusion EMD against DiffusionEMD (Tong et al. 2021)", bench_peers),
}


def main() -> None:
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or list(BENCHES)
    if unknown := [name for name in wanted if name not in BENCHES]:
        raise SystemExit(f"benchmarks: no such table: {', '.join(unknown)}. There are: {', '.join(BENCHES)}.")
    about = f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}"
    for name in wanted:
        title, bench = BENCHES[name]
        print(f"# {title}", flush=True)
        write_page(RESULTS / f"{name}.md", title, f"Made by `make bench ONLY={name}`. {about}.", bench())


if __name__ == "__main__":
    main()
