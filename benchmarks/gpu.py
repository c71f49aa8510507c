"""Diffusion EMD on a GPU: up to ten million points, graph and neighbours included, and the ratios to the CPU beside it.

Run it on a machine with a GPU: ``python benchmarks/gpu.py [FOLDER]``; it writes gpu.md and gpu.json there. With numbers
of points, ``python benchmarks/gpu.py --neighbors 10000000``, it prints the rows on neighbours and graphs alone.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from toporo.machine import cores
from toporo.topology.build import build
from toporo.topology.diffusion import GroupDiffusion
from toporo.topology.engine import available_threads
from toporo.topology.neighbors import nearest

GROUPS = 50


def blobs(n: int, seed: int = 0, dimensions: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping Gaussian clouds, one a group."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % GROUPS
    return 2 * rng.normal(size=(GROUPS, dimensions))[labels] + rng.normal(size=(n, dimensions)), labels


def run(n: int, device: str, repeats: int = 1, engine: str = "auto") -> tuple[dict[str, Any], np.ndarray]:
    """Seconds to build the graph (and copy it, if it was built elsewhere) and to compute distances; the distances."""
    points, labels = blobs(n)
    start = time.perf_counter()
    prepared = GroupDiffusion.prepare(points, labels, kernel="knn", device=device, engine=engine, progress=False)
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
        "threads": available_threads() if device == "cpu" else None,
        "entries": prepared.operator.nonzeros,
        "order": found[0].settings["order"],
        "graph_s": graph,
        "distances_s": min(times),
        "predicted_peak": found[0].settings["predicted_peak"],
        "peak": torch.cuda.max_memory_allocated() if device != "cpu" else None,
        "same_bytes_twice": len({item.matrix.tobytes() for item in found}) == 1 if repeats > 1 else None,
    }
    print(row, flush=True)
    return row, found[0].matrix


def search(n: int, device: str = "cuda", repeats: int = 3) -> dict[str, Any]:
    """Seconds for 15 neighbours and for the whole graph, by the grid on the device and by the tree on the CPU."""
    points, _ = blobs(n)
    times: dict[str, list[float]] = {}
    found: dict[str, Any] = {}
    steps = {
        "grid_s": (repeats, lambda: nearest(points, 15, backend="grid", device=device)),
        "tree_s": (1, lambda: nearest(points, 15, backend="kd-tree")),
        "graph_device_s": (repeats, lambda: build(points, "knn", "knn", 15, "grid", device, True)),
        "graph_host_s": (1, lambda: build(points, "knn", "knn", 15, "kd-tree", "cpu", False)),
    }
    for name, (count, step) in steps.items():
        for _ in range(count):
            start = time.perf_counter()
            result = step()
            if device != "cpu":
                torch.cuda.synchronize()
            times.setdefault(name, []).append(time.perf_counter() - start)
            if name in ("grid_s", "tree_s"):
                found[name] = result
            del result
    same = all(
        getattr(found["grid_s"], part).tobytes() == getattr(found["tree_s"], part).tobytes()
        for part in ("indices", "distances")
    )
    row = {"points": n, "device": device, "same_bytes": same} | {name: min(values) for name, values in times.items()}
    print(row, flush=True)
    return row


def neighbor_lines(rows: list[dict[str, Any]]) -> list[str]:
    """A table of neighbours and graphs."""
    lines = [
        "| points | device | neighbours there (s) | k-d tree, CPU (s) | ratio | same bytes "
        "| graph there (s) | graph, CPU (s) | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        grid, tree, there, host = (row[name] for name in ("grid_s", "tree_s", "graph_device_s", "graph_host_s"))
        lines.append(
            f"| {row['points']} | {row['device']} | {grid:.2f} | {tree:.2f} | {tree / grid:.1f}× | "
            f"{'yes' if row['same_bytes'] else 'no'} | {there:.2f} | {host:.2f} | {host / there:.1f}× |"
        )
    return lines


def main() -> None:
    if sys.argv[1:2] == ["--neighbors"]:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        print("\n".join(neighbor_lines([search(int(count), device) for count in sys.argv[2:]])))
        return
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results")
    torch.zeros(1, device="cuda")
    rows = []
    small, _ = run(20_000, "cuda", 2)  # loads the libraries
    rows.append(run(100_000, "cuda", 3))
    rows.append(run(1_000_000, "cuda", 3))
    rows.append(run(1_000_000, "cuda", 3, "torch"))
    rows.append(run(10_000_000, "cuda", 2))
    rows.append(run(1_000_000, "cpu"))
    searches = [search(1_000_000), search(10_000_000)]
    ratio = rows[-1][0]["distances_s"] / rows[1][0]["distances_s"]
    off = float(np.abs(rows[-1][1] - rows[1][1]).max() / rows[-1][1].max())
    about = f"{torch.cuda.get_device_name()}, Python {platform.python_version()}, torch {torch.__version__}"
    lines = [
        "# Diffusion EMD on a GPU",
        "",
        f"Made by `python benchmarks/gpu.py` on {about}. {GROUPS} groups, three dimensions, `tol=1e-6`. The graph is",
        "built on the device of its row. Wall seconds, the best of the runs.",
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
        f"15 neighbours, and the whole graph: distinct points, neighbours, kernel, operator. CPU: {cores()} cores.",
        "",
        *neighbor_lines(searches),
        "",
    ]
    print("\n".join(lines))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.md").write_text("\n".join(lines), encoding="utf-8")
    record = {
        "about": about,
        "rows": [small, *(row for row, _ in rows)],
        "neighbors": searches,
        "ratio": ratio,
        "largest_difference": off,
    }
    (folder / "gpu.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
