"""What an objective, or averaging weights, costs in a training step on images: each against ERM, turn by turn.

``python benchmarks/vision.py [FOLDER]`` measures on the GPU, or where there is none a small network on the CPU, and
writes vision.md and vision.json there. Only the figures of the device at hand are new; those of the other are kept.
"""

from __future__ import annotations

import functools
import gc
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from report import RESULTS, in_turn, write_page
from torch import Tensor

import toporo as tr
from toporo.data import GroupedData
from toporo.files import write_text
from toporo.training import Batches, Stepper, TrainingPlan
from toporo.vision.augmentation import DRAWS, augment
from toporo.vision.resnet import ResNet

CLASSES, PRIOR = 7, {"art": 0.5, "cartoon": 0.3, "photo": 0.2}


@dataclass(frozen=True)
class Setup:
    """A network, its batches, and how often they are timed: ``rounds`` times ``steps``, all in turn with ERM."""

    device: str
    depth: int
    size: int
    per_group: int
    precision: str
    rounds: int
    steps: int
    images: int

    @property
    def batch(self) -> int:
        return len(PRIOR) * self.per_group


SETUPS = {
    "cuda": Setup("cuda", 50, 224, 32, "bf16", rounds=9, steps=10, images=3000),
    "cpu": Setup("cpu", 18, 32, 4, "fp32", rounds=9, steps=1, images=60),
}

#: Title to objective, of (groups, width of the features). A second ERM shows what the measurement itself is worth.
OBJECTIVES: dict[str, Callable[[tr.Groups, int], tr.objectives.Objective]] = {
    "ERM, once more": lambda groups, width: tr.objectives.ERM(groups),
    "Group DRO": lambda groups, width: tr.objectives.GroupDRO(groups, step=0.01),
    "TRO, penalised": lambda groups, width: tr.objectives.TRO(PRIOR, 1.0, 0.1),
    "TRO, exact": lambda groups, width: tr.objectives.TRO(PRIOR, 1.0, update="exact"),
    "TRO, constrained": lambda groups, width: tr.objectives.TRO(PRIOR, radius=0.1),
    "CORAL": lambda groups, width: tr.objectives.make_objective("coral", groups),
    "MMD": lambda groups, width: tr.objectives.make_objective("mmd", groups),
    "DANN": lambda groups, width: tr.objectives.make_objective("dann", groups, width=width),
    "IRM": lambda groups, width: tr.objectives.IRM(groups),
    "ERM, weights averaged": lambda groups, width: tr.objectives.ERM(groups),
}
#: Under which weights are averaged from the first step on.
AVERAGED = "ERM, weights averaged"


def augmented(x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """What a step does to its images before the network sees them."""
    return augment(x.permute(0, 3, 1, 2), u), y


class Bench:
    """Random images on the device, and steppers over them."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        rng = np.random.default_rng(0)
        n, size = setup.images, setup.size
        targets = rng.integers(0, CLASSES, n)
        images = torch.as_tensor(rng.integers(0, 256, (n, size, size, 3), dtype=np.uint8))
        x, y = images.to(setup.device), torch.as_tensor(targets).to(setup.device)
        names = np.array(list(PRIOR))[np.arange(n) % len(PRIOR)]
        self.rows = GroupedData.from_arrays(np.arange(n), targets, names.tolist())
        self.batches = Batches(x, y, self.rows, setup.per_group, prepare=augmented, draws=DRAWS)
        self.drawn = [
            np.stack([self._batch(rng) for _ in range(self.warm_up)]),
            rng.random((self.warm_up, setup.batch, DRAWS), dtype=np.float32),
        ]

    @property
    def warm_up(self) -> int:
        """Steps before the clock runs: on a GPU they compile and capture, which takes a few."""
        return max(self.setup.steps, 6)

    def _batch(self, rng: np.random.Generator) -> np.ndarray:
        return np.concatenate(
            [rng.choice(self.rows.rows(name), self.setup.per_group, replace=False) for name in self.rows.groups]
        )

    def stepper(self, make: Callable[[tr.Groups, int], tr.objectives.Objective], average: int | None = None) -> Stepper:
        """A fresh network under an objective, warmed up."""
        setup = self.setup
        network = ResNet(CLASSES, depth=setup.depth)
        objective = make(self.rows.groups, network.width)
        plan = TrainingPlan(
            unit="steps",
            learning_rate=5e-5,
            precision=setup.precision,
            device=setup.device,
            average=average,
            graph=setup.device == "cuda",
        )
        loss = functools.partial(F.cross_entropy, reduction="none")
        stepper = Stepper(network, objective, self.batches, loss, plan)
        if not math.isfinite(value := stepper.run(*self.drawn)):
            raise SystemExit(f"benchmarks: the loss under {objective} became {value}: times would mean nothing.")
        return stepper

    def seconds(self, work: Callable[[], object]) -> float:
        """Of the wall on a GPU, waiting for it; of the processor on a CPU that others use too."""
        clock = time.process_time if self.setup.device == "cpu" else time.perf_counter
        self.wait()
        start = clock()
        work()
        self.wait()
        return clock() - start

    def wait(self) -> None:
        if self.setup.device == "cuda":
            torch.cuda.synchronize()

    def step_ms(self, stepper: Stepper) -> float:
        """Milliseconds a step, over one round's steps."""
        drawn = [values[: self.setup.steps] for values in self.drawn]
        return 1000 * self.seconds(lambda: stepper.run(*drawn)) / self.setup.steps

    def augmentation_ms(self) -> float:
        """Milliseconds that the images of a step take to be gathered and changed, as the steps here do it."""
        on_gpu = self.setup.device == "cuda"
        rows, u = (torch.as_tensor(part[0]).to(self.setup.device) for part in self.drawn)
        change = torch.compile(augmented, dynamic=False) if on_gpu else augmented

        def once() -> None:
            change(self.batches.x.index_select(0, rows), self.batches.y.index_select(0, rows), u)

        once()
        again = captured(once) if on_gpu else once

        def work() -> None:
            for _ in range(self.setup.steps):
                again()

        work()
        return statistics.median(1000 * self.seconds(work) / self.setup.steps for _ in range(self.setup.rounds))


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """The same work on a GPU, replayed without its launches."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def measure(setup: Setup) -> dict[str, Any]:
    """Medians over the rounds, and the middle half of the ratios."""
    bench = Bench(setup)
    erm = bench.stepper(lambda groups, width: tr.objectives.ERM(groups))
    all_erm: list[float] = []
    rows = []
    for title, make in OBJECTIVES.items():
        other = bench.stepper(make, average=1 if title == AVERAGED else None)
        pair = erm, other
        (plain, own), ratios = in_turn(setup.rounds, lambda place, pair=pair: bench.step_ms(pair[place]))
        rows.append({"title": title, "ms": statistics.median(own), **ratios})
        all_erm += plain
        print(f"{title}: {rows[-1]['ms']:.2f} ms, {ratios['over']:.4f} of ERM", flush=True)
        del other, pair  # with its network and its captured graph, before the next
        gc.collect()
        if setup.device == "cuda":
            torch.cuda.empty_cache()
    return {
        "device": torch.cuda.get_device_name() if setup.device == "cuda" else "CPU, one thread",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}",
        "setup": asdict(setup),
        "erm_ms": statistics.median(all_erm),
        "augmentation_ms": bench.augmentation_ms(),
        "rows": rows,
    }


def table(record: dict[str, Any]) -> list[str]:
    """One device's figures."""
    setup = Setup(**record["setup"])
    how = "compiled and captured as a CUDA graph, wall time" if setup.device == "cuda" else "processor time"
    rounds = f"{setup.rounds} rounds of {setup.steps} step{'s' * (setup.steps > 1)}"
    erm = record["erm_ms"]
    lines = [
        f"## ResNet-{setup.depth} on {record['device']}",
        "",
        f"{setup.batch} images of {setup.size} × {setup.size} a step, three groups, {setup.precision}, batch "
        f"normalisation frozen, Adam; {how}. {record['versions']}. Each objective in turn with ERM, {rounds}.",
        "",
        "| objective | step (ms) | images a second | over ERM, median of rounds | middle half of the rounds |",
        "|---|---|---|---|---|",
        f"| ERM | {erm:.2f} | {1000 * setup.batch / erm:.0f} | | |",
    ]
    for row in record["rows"]:
        over, low, high = (100 * (row[key] - 1) for key in ("over", "low", "high"))
        speed = 1000 * setup.batch / row["ms"]
        lines.append(
            f"| {row['title']} | {row['ms']:.2f} | {speed:.0f} | {over:+.1f} % | {low:+.1f} to {high:+.1f} % |"
        )
    share = 100 * record["augmentation_ms"] / erm
    lines += [
        "",
        f"Gathering and augmenting the images takes {record['augmentation_ms']:.2f} ms by itself, {share:.0f} % of a "
        "step under ERM.",
        "",
    ]
    return lines


def with_kept(name: str, folder: Path, here: str, record: dict[str, Any]) -> dict[str, Any]:
    """Figures by device: those of this one, and of the other from the file of results; written to the folder."""
    kept = RESULTS / name
    records = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    records[here] = record
    write_text(folder / name, json.dumps(records, indent=1) + "\n")
    return records


def bench_vision(folder: Path = RESULTS) -> list[str]:
    """Measure on the device at hand; the table of both, the other one from the file of results."""
    here = "cuda" if torch.cuda.is_available() else "cpu"
    records = with_kept("vision.json", folder, here, measure(SETUPS[here]))
    lines = []
    if here == "cpu":
        lines.append("No GPU on this machine: what is new is the small network on the CPU.")
        if "cuda" in records:
            lines[0] += " The figures of a GPU are those of its last run."
        lines.append("")
    for device in SETUPS:
        lines += table(records[device]) if device in records else []
    return lines[:-1]


def write_both(name: str, title: str, bench: Callable[[Path], list[str]]) -> None:
    """Measure, print, and write to the folder that was given, or to that of the results."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    write_page(folder / f"{name}.md", title, f"Made by `python benchmarks/{name}.py`.", bench(folder))


if __name__ == "__main__":
    torch.set_num_threads(1)
    write_both("vision", "The cost of an objective in a training step on images", bench_vision)
