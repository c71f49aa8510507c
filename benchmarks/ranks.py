"""What joining ranks costs in a training step: an objective with ``over_ranks()`` and without it, turn by turn.

``python benchmarks/ranks.py [FOLDER]`` measures ResNet-50 on the GPU, or where there is none a small network on the
CPU: a process group of one, whose messages are sent all the same, then one of two, on GPUs where there are two. It
writes ranks.md and ranks.json; only the figures of the device at hand are new, those of the other are kept.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from report import RESULTS, in_turn
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import toporo as tr
from toporo.files import write_text
from toporo.vision.resnet import ResNet
from vision import CLASSES, PRIOR, with_kept, write_both

#: Hands a rank of two the file to write to.
AT = "TOPORO_BENCH_RANKS"


@dataclass(frozen=True)
class Setup:
    """A network, its batches, and how often they are timed: ``rounds`` times ``steps``, with and without in turn."""

    device: str
    depth: int
    size: int
    per_group: int
    rounds: int
    steps: int


SETUPS = {"cuda": Setup("cuda", 50, 224, 32, rounds=15, steps=20), "cpu": Setup("cpu", 18, 64, 4, rounds=11, steps=1)}
#: All send rows: losses, features, or a number per row.
OBJECTIVES: dict[str, Callable[[int], tr.objectives.Objective]] = {
    "TRO": lambda width: tr.objectives.TRO(PRIOR, 1.0, 0.1),
    "CORAL": lambda width: tr.objectives.CORAL(list(PRIOR)),
    "IRM": lambda width: tr.objectives.IRM(list(PRIOR)),
}


class Loop:
    """Plain steps as a user of DDP writes them, of one network, on one batch."""

    def __init__(self, setup: Setup, ranks: int, rank: int) -> None:
        self.setup = setup
        device = torch.device(setup.device, rank) if setup.device == "cuda" else torch.device("cpu")
        draw = torch.Generator().manual_seed(rank)
        n = setup.per_group * len(PRIOR)
        self.x = torch.rand(n, 3, setup.size, setup.size, generator=draw).to(device)
        self.y = torch.randint(CLASSES, (n,), generator=draw).to(device)
        self.codes = (torch.arange(n) % len(PRIOR)).to(device)
        net = ResNet(CLASSES, depth=setup.depth).to(device)
        self.width = net.width
        both = _Both(net).to(device)
        self.net = DistributedDataParallel(both) if ranks > 1 else both
        self.optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1e-4)

    def step_ms(self, objective: tr.objectives.Objective) -> float:
        """Milliseconds of wall time per step."""
        self._wait()
        start = time.perf_counter()
        for _ in range(self.setup.steps):
            with torch.autocast(self.setup.device, torch.bfloat16, enabled=self.setup.device == "cuda"):
                logits, features = self.net(self.x)
            logits, features = logits.float(), features.float()
            losses = F.cross_entropy(logits, self.y, reduction="none")
            extra = {"logits": logits, "features": features}
            value = objective(losses, self.codes, **{key: extra[key] for key in objective.needs})
            self.optimizer.zero_grad(set_to_none=True)
            value.backward()
            self.optimizer.step()
        self._wait()
        return 1000 * (time.perf_counter() - start) / self.setup.steps

    def objective_ms(self, objective: tr.objectives.Objective, calls: int = 100) -> float:
        """Milliseconds of a call and its backward pass by themselves, the median of many."""
        features = torch.randn(len(self.y), self.width, device=self.x.device, requires_grad=True)
        times = []
        for _ in range(calls):
            self._wait()
            start = time.perf_counter()
            logits = features[:, :CLASSES] * 1.0
            losses = F.cross_entropy(logits, self.y, reduction="none")
            extra = {"logits": logits, "features": features}
            objective(losses, self.codes, **{key: extra[key] for key in objective.needs}).backward()
            self._wait()
            times.append(1000 * (time.perf_counter() - start))
        return statistics.median(times)

    def _wait(self) -> None:
        if self.setup.device == "cuda":
            torch.cuda.synchronize()


class _Both(nn.Module):
    """Logits and features, from the forward pass that DDP knows."""

    def __init__(self, net: ResNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.net.with_features(x)


def _join(ranks: Any, _: Any, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return dict(zip(rows, ranks.join_rows(*rows.values()), strict=True))


def measure(setup: Setup, ranks: int, rank: int) -> list[dict[str, Any]]:
    """Medians over the rounds, and the middle half of the ratios."""
    loop = Loop(setup, ranks, rank)
    rows = []
    for title, make in OBJECTIVES.items():
        pair = [make(loop.width), make(loop.width).over_ranks()]
        pair[1]._ranks.join = partial(_join, pair[1]._ranks)  # one rank sends its messages too, for what they cost
        for objective in (*pair, *pair):
            loop.step_ms(objective)
        times, ratios = in_turn(setup.rounds, lambda place, pair=pair: loop.step_ms(pair[place]))
        ms = [statistics.median(each) for each in times]
        alone = [loop.objective_ms(objective) for objective in pair]
        rows.append({"ranks": ranks, "title": title, "ms": ms, **ratios, "alone": alone})
        if rank == 0:
            print(f"{ranks} rank(s), {title}: {ms[0]:.2f} ms without, {ratios['over']:.4f} of it with", flush=True)
    return rows


def one(setup: Setup) -> list[dict[str, Any]]:
    """In this process."""
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(str(Path(folder) / "store"), 1)
        dist.init_process_group(backend(setup), store=store, rank=0, world_size=1)
        try:
            return measure(setup, 1, 0)
        finally:
            dist.destroy_process_group()


def two(setup: Setup) -> list[dict[str, Any]]:
    """In two processes, or nothing where they would share a GPU."""
    if setup.device == "cuda" and torch.cuda.device_count() < 2:
        return []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run([*torchrun, __file__], env=os.environ | {AT: str(file)}, check=True)
        return json.loads(file.read_text(encoding="utf-8"))


def work(setup: Setup, file: Path) -> None:
    """What each of two processes does."""
    rank = int(os.environ["RANK"])
    if setup.device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend(setup))
    rows = measure(setup, 2, rank)
    if rank == 0:
        write_text(file, json.dumps(rows))
    dist.destroy_process_group()


def backend(setup: Setup) -> str:
    return "cpu:gloo,cuda:nccl" if setup.device == "cuda" else "gloo"


def table(record: dict[str, Any]) -> list[str]:
    """One device's figures."""
    setup = Setup(**record["setup"])
    precision = "bf16" if setup.device == "cuda" else "fp32"
    lines = [
        f"## ResNet-{setup.depth} on {record['device']}",
        "",
        f"{setup.per_group * len(PRIOR)} images of {setup.size} × {setup.size} per rank and step, three groups, "
        f"{precision}, plain eager steps with SGD, wall time; {setup.rounds} rounds of {setup.steps}, with and without "
        f"in turn. {record['versions']}. One rank sends its messages to itself; two have DDP in both cases.",
        "",
        "| ranks | objective | a step without (ms) | with over_ranks() (ms) | over, median of rounds | middle half "
        "| the objective alone without (ms) | with (ms) | more, of a step |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        over, low, high = (100 * (row[key] - 1) for key in ("over", "low", "high"))
        lines.append(
            f"| {row['ranks']} | {row['title']} | {row['ms'][0]:.2f} | {row['ms'][1]:.2f} | {over:+.1f} % | "
            f"{low:+.1f} to {high:+.1f} % | {row['alone'][0]:.3f} | {row['alone'][1]:.3f} | "
            f"{100 * (row['alone'][1] - row['alone'][0]) / row['ms'][0]:+.2f} % |"
        )
    return [*lines, ""]


def bench_ranks(folder: Path = RESULTS) -> list[str]:
    """Measure on the device at hand; the table of both, the other one from the file of results."""
    here = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if here == "cuda" else f"the CPU, {torch.get_num_threads()} thread per rank"
    setup = SETUPS[here]
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    rows = one(setup) + two(setup)
    record = {"device": name, "versions": versions, "setup": asdict(setup), "rows": rows}
    records = with_kept("ranks.json", folder, here, record)
    lines = []
    if "cuda" not in records:
        lines = [
            "Not measured on a GPU yet: there was none. `python benchmarks/ranks.py` does it where there is one.",
            "",
        ]
    for device in SETUPS:
        lines += table(records[device]) if device in records else []
    return lines[:-1]


def main() -> None:
    torch.set_num_threads(1)
    if AT in os.environ:
        work(SETUPS["cuda" if torch.cuda.is_available() else "cpu"], Path(os.environ[AT]))
        return
    write_both("ranks", "The cost of joining ranks in a training step", bench_ranks)


if __name__ == "__main__":
    main()
