"""Diffusion EMD on a GPU: up to ten million points, and the ratios to the CPU beside it.

Run it on a machine with a GPU: ``python benchmarks/gpu.py [FOLDER]``; it writes gpu.md and gpu.json there.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engine import GROUPS, blobs

from toporo.machine import usable_threads
from toporo.topology.diffusion import GroupDiffusion
from toporo.topology.torch_engine import TorchEngine


def run(n: int, device: str, repeats: int = 1, engine: Any = None) -> tuple[dict[str, Any], np.ndarray]:
    """Seconds to build the graph and copy it and to compute distances; the distances."""
    points, labels = blobs(n)
    start = time.perf_counter()
    prepared = GroupDiffusion.prepare(points, labels, kernel="knn", device=device)
    if engine is not None:
        prepared = replace(prepared, engine=engine(prepared.graph.operator, device))
    if device != "cpu":
        torch.cuda.synchronize()
    graph = time.perf_counter() - start
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    times, found = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        found.append(prepared.distances())
        times.append(time.perf_counter() - start)
    row = {
        "points": n,
        "device": device,
        "engine": prepared.engine.name,
        "threads": usable_threads() if device == "cpu" else None,
        "entries": prepared.graph.operator.nonzeros,
        "order": found[0].settings["order"],
        "graph_s": graph,
        "distances_s": min(times),
        "predicted_peak": found[0].settings["predicted_peak"],
        "peak": torch.cuda.max_memory_allocated() if device != "cpu" else None,
        "same_bytes_twice": len({item.matrix.tobytes() for item in found}) == 1 if repeats > 1 else None,
    }
    print(row, flush=True)
    return row, found[0].matrix


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results")
    torch.zeros(1, device="cuda")
    rows = []
    small, _ = run(20_000, "cuda", 2)  # loads the libraries
    rows.append(run(100_000, "cuda", 3))
    rows.append(run(1_000_000, "cuda", 3))
    rows.append(run(1_000_000, "cuda", 3, TorchEngine))
    rows.append(run(10_000_000, "cuda", 2))
    rows.append(run(1_000_000, "cpu"))
    ratio = rows[-1][0]["distances_s"] / rows[1][0]["distances_s"]
    off = float(np.abs(rows[-1][1] - rows[1][1]).max() / rows[-1][1].max())
    about = f"{torch.cuda.get_device_name()}, Python {platform.python_version()}, torch {torch.__version__}"
    lines = [
        "# Diffusion EMD on a GPU",
        "",
        f"Made by `python benchmarks/gpu.py` on {about}. {GROUPS} groups, three dimensions, `tol=1e-6`. The graph is",
        "built on the CPU. Wall seconds, the best of the runs.",
        "",
        "| points | device | engine | threads | graph (s) | distances (s) | GPU memory (GiB) | same bytes twice |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, _ in rows:
        peak = f"{row['peak'] / 2**30:.1f}" if row["peak"] else ""
        twice = {True: "yes", False: "no", None: ""}[row["same_bytes_twice"]]
        lines.append(
            f"| {row['points']} | {row['device']} | {row['engine']} | {row['threads'] or ''} | {row['graph_s']:.1f} | "
            f"{row['distances_s']:.2f} | {peak} | {twice} |"
        )
    lines += [
        "",
        f"At 1 000 000 points the GPU computes the distances **{ratio:.0f} times** as fast as the CPU of its machine "
        f"({rows[-1][0]['engine']} engine, {rows[-1][0]['threads']} threads); they agree to {off:.0e} of the largest.",
        "",
    ]
    print("\n".join(lines))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.md").write_text("\n".join(lines), encoding="utf-8")
    record = {"about": about, "rows": [small, *(row for row, _ in rows)], "ratio": ratio, "largest_difference": off}
    (folder / "gpu.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
