"""Training by steps on data that lie on the device: one GPU kept busy, or a CPU for small things.

A step waits for nothing: row numbers and random numbers of many steps are copied over at once, a counter on the device
says which of them is next, and losses add up there. On a GPU the network is compiled and the whole step (gathering,
augmentation, forward, objective, backward, optimiser) is captured once as a CUDA graph and replayed.

What a run sees is a function of its seed and the number of the step alone, so that an interrupted run goes on exactly.
On a CPU the same seed gives the same bytes; on a GPU the order of sums is the hardware's, and runs agree up to
rounding.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from toporo.checks import number, one_of
from toporo.data.grouped import GroupedData, group_rng
from toporo.data.images import ImageStore, TileStore
from toporo.errors import DataError, SettingError
from toporo.objectives import Objective
from toporo.training.average import make_average
from toporo.training.loop import (
    Loss,
    Resumable,
    RoundRecord,
    TrainSettings,
    make_optimizer,
    require_finite,
    reset_state,
    seeded,
    warn_within_warm_up,
)

#: (inputs as stored, targets, random numbers in [0, 1)) of a batch to what the network and the loss get.
Prepare = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]

PRECISIONS: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
DEVICES = ("auto", "cpu", "cuda")
#: Steps whose random numbers are drawn together.
BLOCK = 50
#: Steps done one by one before the graph is captured: compilation, choice of kernels and the optimiser's state.
WARM_UP = 3


@dataclass(frozen=True)
class StepSettings(TrainSettings):
    """How to train, by steps: Adam on group-balanced batches.

    Parameters
    ----------
    rounds : how long, in steps.
    per_group : rows of every group in a batch.
    learning_rate, weight_decay : Adam's.
    seed : of rows, augmentation and dropout.
    average : see :class:`TrainSettings`.
    half_life, paired : not for runs by steps.
    evaluate_every : after how many steps; also after the last.
    precision : ``"fp32"``, or ``"bf16"`` for automatic mixed precision.
    device : ``"cpu"`` or ``"cuda"``; see :func:`pick_device`.
    compiled, graph : whether to compile the network and to capture the step; None is yes on a GPU and no elsewhere.
    checkpoint_seconds : least time from one checkpoint to the next; they are taken after evaluations.
    """

    unit: ClassVar[str] = "steps"
    pace: ClassVar[frozenset[str]] = frozenset({"device", "compiled", "graph", "checkpoint_seconds"})

    rounds: int = 600
    learning_rate: float = 5e-5
    evaluate_every: int = 150
    precision: str = "fp32"
    device: str = "cpu"
    compiled: bool | None = None
    graph: bool | None = None
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        number(self.evaluate_every, "evaluate_every", "at least 1", least=1)
        number(self.checkpoint_seconds, "checkpoint_seconds", "at least 0", least=0, infinite=True)
        one_of(self.precision, "precision", PRECISIONS)
        if self.graph and not self.on_gpu:
            raise SettingError(f"graph=True, but the device is {self.device!r}: only a GPU captures steps.")

    def steps(self, data: GroupedData) -> int:  # noqa: ARG002  # as of runs by epochs
        return self.rounds

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a CUDA GPU."""
        return torch.device(self.device).type == "cuda"


def pick_device(name: str = "auto") -> str:
    """``"cuda"`` or ``"cpu"``.

    Parameters
    ----------
    name : either, or ``"auto"`` for the GPU where there is one. It is an error to ask for one in vain.
    """
    one_of(name, "device", DEVICES)
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        why = "this PyTorch was built without CUDA" if torch.version.cuda is None else "PyTorch finds no usable GPU"
        raise SettingError(
            f"no GPU: {why} ({torch.__version__}). Use the device 'cpu' (slow), or a CUDA build of PyTorch on a "
            "machine with an NVIDIA GPU."
        )
    return "cuda" if available and name != "cpu" else "cpu"


@dataclass(frozen=True, eq=False)
class Resident:
    """All inputs and targets of a data set, on the device; rows are gathered there.

    Parameters
    ----------
    x, y : one input, of any type, and one target per row.
    """

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise DataError(f"{len(self.x)} inputs but {len(self.y)} targets: give one per row.")

    @classmethod
    def of(cls, store: ImageStore | TileStore | None, data: GroupedData, device: str = "cpu") -> Resident:
        """All pictures of a store as bytes (n, height, width, 3), and their classes.

        ``data.x`` are row numbers in the store; a row that the data leave out has the class −1, which no loss takes.
        """
        if not isinstance(store, ImageStore):
            instead = "tiles, which are to be scaled first" if isinstance(store, TileStore) else "no pictures"
            raise DataError(f"there are {instead} to train on: make Resident(inputs, targets) of them.")
        classes = np.full(len(store), -1, dtype=np.int64)
        classes[data.x] = data.y
        return cls(torch.from_numpy(np.array(store.images)).to(device), torch.from_numpy(classes).to(device))


@dataclass(frozen=True)
class Trained:
    """What a run leaves: one record per evaluation, and how fast it went.

    Attributes
    ----------
    history : the records.
    seconds, training_seconds : with and without evaluations, compilation and checkpoints; of a run that was resumed,
        the last part.
    steps_per_second, images_per_second : over the training seconds; 0 where nothing was left to do.
    """

    history: list[RoundRecord]
    seconds: float
    training_seconds: float
    steps_per_second: float
    images_per_second: float


def stream_rows(data: GroupedData, per_group: int, *, seed: int, first: int, count: int) -> npt.NDArray[np.int64]:
    """Row numbers (``data.x``) of steps ``first`` to ``first + count - 1``, shape (count, groups * per_group).

    Every group's rows pass by again and again, each time in a new order, whatever the other groups and whichever steps
    are asked for together.
    """
    columns = []
    for name in data.groups:
        rows = data.x[data.rows(name)]
        start, stop = first * per_group, (first + count) * per_group
        passes = range(start // len(rows), -(-stop // len(rows)))
        order = np.concatenate([group_rng(name, seed, number).permutation(rows) for number in passes])
        offset = start - passes.start * len(rows)
        columns.append(order[offset : offset + stop - start].reshape(count, per_group))
    return np.concatenate(columns, axis=1)


def stream_uniforms(width: int, draws: int, *, seed: int, first: int, count: int) -> npt.NDArray[np.float32]:
    """Uniform random numbers of these steps, shape (count, width, draws): a function of seed and step."""
    blocks = range(first // BLOCK, -(-(first + count) // BLOCK))
    drawn = [
        np.random.default_rng([seed, 1, block]).random((BLOCK, width, draws), dtype=np.float32) for block in blocks
    ]
    return np.concatenate(drawn)[first - blocks.start * BLOCK :][:count]


class Stepper:
    """Does steps of a network under an objective; the machinery of :func:`train_steps`, for loops of one's own.

    ``load`` a number of steps' row numbers and random numbers, then ``run`` them; nothing waits for the device until
    ``mean_loss`` is asked for.

    Parameters
    ----------
    network, objective, data, rows, loss, settings, prepare, draws : as :func:`train_steps` takes them.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        data: Resident,
        rows: GroupedData,
        loss: Loss,
        settings: StepSettings,
        *,
        prepare: Prepare,
        draws: int,
    ) -> None:
        rows.groups.require_same(objective.groups, what=f"the groups of {type(objective).__name__}")
        self.settings = settings
        self.device = torch.device(settings.device)
        self.network = network.to(self.device)
        if settings.on_gpu:
            self.network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch has it
        self.objective = objective.to(self.device)
        self.data, self.loss, self.prepare, self.draws = data, loss, prepare, draws
        self.width = len(rows.groups) * settings.per_group
        codes = torch.full((len(data.x),), -1, dtype=torch.long)
        codes[torch.as_tensor(rows.x)] = torch.as_tensor(objective.groups.encode(rows.groups.names))[
            torch.as_tensor(rows.codes)
        ]
        self.codes = codes.to(self.device)
        self.optimizer = make_optimizer(network, objective, settings, fused=True, capturable=settings.on_gpu)
        #: Steps done, by this stepper and before a run was resumed.
        self.done = 0
        compiled = settings.on_gpu if settings.compiled is None else settings.compiled
        self.average = make_average(self.network, settings.average)
        self._forward = _compiled(_forward) if compiled else _forward
        self._prepare = _compiled(prepare) if compiled else prepare
        self._graph: torch.cuda.CUDAGraph | None = None
        self._wants_graph = settings.on_gpu if settings.graph is None else settings.graph
        self._left = 0
        self._rows = torch.zeros((0, self.width), dtype=torch.long)
        self._uniforms = torch.zeros((0, self.width, draws))
        self._next = torch.zeros(1, dtype=torch.long, device=self.device)
        self._total = torch.zeros((), device=self.device)
        # A graph reads and writes fixed places; objectives put new tensors in place of old ones.
        self._state = [
            (module, name, value)
            for module in objective.modules()
            for name, value in module.named_buffers(recurse=False)
        ]

    def load(self, rows: npt.NDArray[np.int64], uniforms: npt.NDArray[np.float32]) -> None:
        """Row numbers (steps, batch) and random numbers (steps, batch, draws) of the steps to come."""
        if rows.shape != (len(rows), self.width) or uniforms.shape != (len(rows), self.width, self.draws):
            raise DataError(
                f"rows {rows.shape} and random numbers {uniforms.shape}: expected (steps, {self.width}) and (steps, "
                f"{self.width}, {self.draws})."
            )
        new = torch.as_tensor(rows), torch.as_tensor(uniforms)
        if len(rows) > len(self._rows):
            self._rows, self._uniforms = (value.to(self.device) for value in new)
            self._graph = None
        else:
            self._rows[: len(rows)].copy_(new[0])
            self._uniforms[: len(rows)].copy_(new[1])
        self._next.zero_()
        self._total.zero_()
        self._left = len(rows)

    def run(self, count: int) -> None:
        """Do this many of the loaded steps."""
        if count > self._left:
            raise SettingError(f"{count} steps to run, but {self._left} are loaded: load() more of them first.")
        self._left -= count
        self.network.train()
        self.objective.train()
        until = self.objective.warm_up - self.done
        if 0 < until <= count:
            self._run(until)
            reset_state(self.optimizer)
            count -= until
        self._run(count)

    def _run(self, count: int) -> None:
        if not count:
            return
        if not self._wants_graph:
            for _ in range(count):
                self._step()
                self._count()
            return
        if self._graph is None:
            early = min(count, WARM_UP)
            side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]  # torch's
            side.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(side):
                for _ in range(early):
                    self._step()
                    self._count()
            torch.cuda.current_stream(self.device).wait_stream(side)
            count -= early
            if not count:
                return
            self._graph = torch.cuda.CUDAGraph()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(self._graph):
                self._step()
        for _ in range(count):
            self._graph.replay()
            self._count()

    def _count(self) -> None:
        """A step was done. What an average needs to know of it is known here: the device is not asked."""
        self.average.step(self.done)
        self.done += 1

    def mean_loss(self, count: int) -> float:
        """The mean loss over the last ``count`` steps; waits for the device."""
        return float(self._total) / count

    def _step(self) -> None:
        rows = self._rows.index_select(0, self._next)[0]
        uniforms = self._uniforms.index_select(0, self._next)[0]
        targets = self.data.y.index_select(0, rows)
        with torch.no_grad():
            x, y = self._prepare(self.data.x.index_select(0, rows), targets, uniforms)
        self.optimizer.zero_grad(set_to_none=True)
        with _autocast(self.settings):
            outputs, features = self._forward(self.network, x)
        outputs = outputs.float()
        losses = self.loss(outputs, y)
        needs = self.objective.needs
        extra = {"logits": outputs} if "logits" in needs else {}
        if "features" in needs:
            extra["features"] = features.float()
        value = self.objective(losses, self.codes.index_select(0, rows), **extra)
        with torch.no_grad():
            for module, name, place in self._state:
                new = getattr(module, name)
                if new is not place:
                    place.copy_(new)
                    setattr(module, name, place)
        value.backward()
        self.optimizer.step()
        self._total.add_(losses.detach().mean())
        self._next.add_(1)


def _forward(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    both: tuple[Tensor, Tensor] = network.with_features(x)  # type: ignore[operator]  # networks for images have it
    return both


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled once a process: of networks of one architecture, the second finds it ready."""
    return torch.compile(function, dynamic=False)


@contextmanager
def _autocast(settings: StepSettings) -> Iterator[None]:
    if settings.precision == "fp32":
        yield
        return
    # Without the cache of converted weights: a graph replays the conversion, and must not keep the first step's.
    with torch.autocast(torch.device(settings.device).type, dtype=PRECISIONS[settings.precision], cache_enabled=False):
        yield


def train_steps(
    network: nn.Module,
    objective: Objective,
    data: Resident,
    rows: GroupedData,
    loss: Loss,
    settings: StepSettings,
    *,
    prepare: Prepare,
    draws: int,
    evaluate: Callable[[nn.Module], dict[str, Any]],
    on_record: Callable[[RoundRecord, float], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Trained:
    """Train ``network`` in place, by steps, on these rows of resident data.

    Parameters
    ----------
    network : has ``with_features(x)``, giving outputs and features.
    objective : what a step minimises; it must know the groups of the rows.
    data : inputs and targets on the device.
    rows : grouped data whose inputs are row numbers in ``data``.
    loss : per-sample task loss ``(outputs, targets) -> (n,)``.
    settings : how long, how fast and where.
    prepare : from stored rows, targets and uniform random numbers (n, ``draws``) to the network's input: augmentation.
    draws : random numbers per row that ``prepare`` wants.
    evaluate : called every ``evaluate_every`` steps and after the last, with the network in evaluation mode; where
        weights are averaged, for the mean, too: names of its results begin with ``averaged_``.
    on_record : called with every record and the images per second so far.
    checkpoint : file to resume from if it is there; written after evaluations, at most every ``checkpoint_seconds``.
    """
    began = time.perf_counter()
    warn_within_warm_up(objective, settings.rounds)
    stepper = Stepper(network, objective, data, rows, loss, settings, prepare=prepare, draws=draws)
    run = Resumable(checkpoint, network, objective, stepper.optimizer, rows, settings, stepper.average)
    history = _resume(run)
    saved = time.perf_counter()
    training, timed = 0.0, 0
    at = stepper.done = history[-1].round if history else 0
    longest = min(settings.evaluate_every, settings.rounds)
    while at < settings.rounds:
        count = min(longest, settings.rounds - at)
        wanted = {"seed": settings.seed, "first": at, "count": count}
        stepper.load(stream_rows(rows, settings.per_group, **wanted), stream_uniforms(stepper.width, draws, **wanted))
        with seeded(settings.seed, at, settings.device):
            warm = min(count, WARM_UP + 1) if not timed else 0  # compilation and capture are not what is timed
            stepper.run(warm)
            start = _now(settings)
            stepper.run(count - warm)
            mean_loss = stepper.mean_loss(count)
        training += _now(settings) - start
        timed += count - warm
        at += count
        require_finite(mean_loss, f"before step {at}", settings)
        network.eval()
        objective.eval()
        with torch.no_grad():
            metrics = stepper.average.evaluate(network, evaluate)
        record = RoundRecord(at, mean_loss, objective.weights, metrics)
        history.append(record)
        speed = timed * stepper.width / training if timed else 0.0
        if on_record is not None:
            on_record(record, speed)
        if time.perf_counter() - saved >= settings.checkpoint_seconds and at < settings.rounds:
            run.save(history)
            saved = time.perf_counter()
    stepper.average.finish()
    per_second = timed / training if timed and training > 0 else 0.0
    return Trained(history, time.perf_counter() - began, training, per_second, per_second * stepper.width)


def _now(settings: StepSettings) -> float:
    if settings.on_gpu:
        torch.cuda.synchronize(settings.device)
    return time.perf_counter()


def _resume(run: Resumable) -> list[RoundRecord]:
    flags = [{key: group[key] for key in ("fused", "capturable")} for group in run.optimizer.param_groups]
    history = run.resume()
    for group, flag in zip(run.optimizer.param_groups, flags, strict=True):
        group.update(flag)  # of this device, not of the one the checkpoint was made on
    return history


@torch.no_grad()
def outputs_at(
    network: nn.Module,
    data: Resident,
    rows: npt.NDArray[np.int64],
    settings: StepSettings,
    *,
    prepare: Callable[[Tensor], Tensor],
    of: Callable[[nn.Module, Tensor], Tensor] = lambda network, x: network(x),
    batch: int = 500,
) -> Iterator[tuple[Tensor, Tensor]]:
    """``(row numbers, outputs)`` of portions of rows, on the device, in evaluation mode and the run's precision.

    Parameters
    ----------
    network : the network.
    data : inputs on the device.
    rows : which of them, by number.
    settings : those of the run.
    prepare : from stored rows to the network's input.
    of : what to ask of the network, e.g. its features instead of its outputs.
    batch : rows per portion.
    """
    before = network.training
    network.eval()
    wanted = torch.as_tensor(rows, device=torch.device(settings.device))
    try:
        for part in torch.split(wanted, batch):
            with _autocast(settings):
                outputs = of(network, prepare(data.x.index_select(0, part)))
            yield part, outputs.float()
    finally:
        network.train(before)
