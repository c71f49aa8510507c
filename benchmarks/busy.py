"""Time ``toporo fit`` alone and next to as many busy processes as there are cores.

``python benchmarks/busy.py`` prints seconds on the clock and of CPU. ``--before SRC`` also measures the ``src``
folder of another version, each right after the other, and prints the ratio.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from toporo.machine import cores

HERE = Path(__file__).parents[1] / "src"
ROWS, INPUTS, GROUPS = 8_000, 12, 20


def write_table(path: Path) -> None:
    """Write steps, waves and levels of groups, with noise."""
    rng = np.random.default_rng(0)
    group = rng.integers(GROUPS, size=ROWS)
    x = rng.normal(size=(ROWS, INPUTS)) + 0.5 * rng.normal(size=(GROUPS, INPUTS))[group]
    y = x[:, 0] * np.sign(x[:, 1]) + np.sin(2.0 * x[:, 2]) + rng.normal(size=GROUPS)[group] + rng.normal(size=ROWS)
    pd.DataFrame(x).add_prefix("x").assign(site=group, y=y).to_csv(path, index=False)


def measure(source: Path, folder: Path, limit: float) -> tuple[float, float]:
    """Return seconds on the clock and of CPU; infinity on the clock where the fit did not end in time."""
    command = [sys.executable, "-m", "toporo", "fit", "table.csv", "--target", "y", "--group", "site", "--overwrite"]
    settings = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    try:
        subprocess.run(
            [*command, "--out", "model", "--quiet"],
            cwd=folder,
            env=settings | {"PYTHONPATH": str(source)},
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=limit,
        )
        wall = time.perf_counter() - start
    except subprocess.TimeoutExpired:
        wall = float("inf")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print one line per version and surrounding."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds per fit")
    asked = parser.parse_args()
    versions = {"this": HERE} | ({} if asked.before is None else {"before": asked.before.resolve()})
    with TemporaryDirectory() as folder:
        write_table(Path(folder) / "table.csv")
        for busy in (0, cores()):
            others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in versions}
            try:
                for _ in range(asked.repeats):
                    for name, source in versions.items():
                        times[name].append(measure(source, Path(folder), asked.limit))
            finally:
                for process in others:
                    process.kill()
            for name, measured in times.items():
                walls, cpu = (
                    ", ".join(f"{seconds:.1f}" for seconds in sorted(each)) for each in zip(*measured, strict=True)
                )
                print(f"{busy} busy, {name}: {walls} s; {cpu} s of CPU; load {os.getloadavg()[0]:.1f}")
            if asked.before is not None:
                ratios = (then[0] / now[0] for then, now in zip(times["before"], times["this"], strict=True))
                print(f"{busy} busy, before / this, run by run: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


if __name__ == "__main__":
    main()
