"""Many small networks trained as one program: seeds and settings of one protocol, each as if it were alone.

A network of a few thousand weights keeps a core busy with calling functions, not with arithmetic. Here the weights of
all runs lie in one tensor, a layer is one batched product, q is one row of a matrix a run. The order of rows, initial
weights, optimiser and objective of every run are those of :func:`toporo.training.train`; figures agree to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toporo.data.batches import batch_rows, tensors
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, SettingError
from toporo.models import MLP
from toporo.objectives import Objective, stack
from toporo.training.loop import Loss, RoundRecord, TrainSettings, warn_within_warm_up

#: From outputs of all runs for rows of the same shape (runs, n, d) to what :class:`RoundRecord` keeps of every run.
EvaluateMany = Callable[["ManyMLP"], Sequence[dict[str, Any]]]
#: Adam's.
EPS = 1e-8


class ManyMLP:
    """Perceptrons of one shape, their weights in one tensor (runs, weights).

    Parameters
    ----------
    models : one a run; :meth:`give_back` writes what was learned into them.
    device : where the weights are to be.
    """

    def __init__(self, models: Sequence[MLP], device: str | torch.device = "cpu") -> None:
        shapes = [[tuple(p.shape) for p in model.parameters()] for model in models]
        if any(shape != shapes[0] for shape in shapes):
            raise SettingError("networks of different shapes cannot be trained as one.")
        self.models = models
        self.shapes = shapes[0]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        rows = [torch.cat([p.detach().flatten() for p in model.parameters()]) for model in models]
        self.theta = torch.stack(rows).to(device).requires_grad_()

    def __len__(self) -> int:
        return len(self.theta)

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs (runs, n, outputs) for inputs (runs, n, inputs), or (n, inputs) that all runs share."""
        parts = [
            part.view(-1, *shape)
            for part, shape in zip(torch.split(self.theta, self.sizes, dim=1), self.shapes, strict=True)
        ]
        out = x.to(self.theta.dtype).expand(len(self), *x.shape[-2:])
        for weight, bias in zip(parts[0::2], parts[1::2], strict=True):
            if weight is not parts[0]:
                out = out.relu_()
            out = torch.baddbmm(bias.unsqueeze(1), out, weight.mT)
        return out

    def give_back(self) -> None:
        """Write every run's weights into its model."""
        for model, row in zip(self.models, self.theta.detach().cpu(), strict=True):
            nn.utils.vector_to_parameters(row, model.parameters())


class _Adam:
    """torch's Adam on (runs, weights), with a learning rate a run."""

    def __init__(self, theta: Tensor, betas: tuple[float, float], weight_decay: float) -> None:
        self.theta, self.betas, self.weight_decay = theta, betas, weight_decay
        # What a step needs has its place: memory that is asked for anew each time costs more than the arithmetic.
        self.mean, self.square, self.move = (torch.zeros_like(theta.detach()) for _ in range(3))
        self.taken = 0

    def forget(self) -> None:
        self.mean.zero_()
        self.square.zero_()
        self.taken = 0

    @torch.no_grad()
    def step(self, rates: Tensor) -> None:
        gradient = self.theta.grad
        if gradient is None:
            raise DataError("no gradient reaches the weights: does the loss come from the network's outputs?")
        if self.weight_decay:
            gradient = gradient + self.weight_decay * self.theta
        self.taken += 1
        first, second = self.betas
        self.mean.lerp_(gradient, 1.0 - first)
        self.square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
        scale = torch.sqrt(self.square, out=self.move).div_(math.sqrt(1.0 - second**self.taken)).add_(EPS)
        self.theta.sub_(torch.div(self.mean, scale, out=self.move).mul_(rates / (1.0 - first**self.taken)))
        self.theta.grad = None


def train_many(
    models: Sequence[MLP],
    objectives: Sequence[Objective],
    data: Sequence[GroupedData],
    loss: Loss,
    settings: Sequence[TrainSettings],
    *,
    evaluate: EvaluateMany | None = None,
    evaluate_every: int = 1,
    device: str | torch.device = "cpu",
) -> list[list[RoundRecord]]:
    """Train the models in place, each with its objective on its data, and return the history of each.

    A run whose loss is no longer a number ends there: its history is shorter, and the others go on.

    Parameters
    ----------
    models : of one shape, one a run.
    objectives : of one class that is ``stackable``, one a run; their numbers may differ, and so may their priors.
    data : training rows of every run, with the same groups and as many batches an epoch. Pass the same object where
        runs share one.
    loss : per-sample task loss ``(outputs, targets) -> (n,)``.
    settings : one a run, alike but for seed and learning rate.
    evaluate : called with all networks as one (:class:`ManyMLP`); gives what to keep, a run.
    evaluate_every : after how many epochs; the last one is always evaluated.
    device : where to train; the models stay where they are.
    """
    runs = len(models)
    if not runs or not runs == len(objectives) == len(data) == len(settings):
        raise SettingError(
            f"{runs} models, {len(objectives)} objectives, {len(data)} data sets, {len(settings)} settings: expected "
            "one of each for every run."
        )
    common = settings[0]
    if any(replace(one, seed=0, learning_rate=1.0) != replace(common, seed=0, learning_rate=1.0) for one in settings):
        raise SettingError("runs that are trained as one may differ in seed and learning rate, in no other setting.")
    if common.average is not None:
        raise SettingError(
            f"average={common.average!r}: weights are averaged in runs by themselves, not in many as one."
        )
    if set(objectives[0].needs) - {"logits"}:
        raise SettingError(f"{type(objectives[0]).__name__} looks at features: it is trained by itself.")
    for one, objective in zip(data, objectives, strict=True):
        one.groups.require_same(objective.groups, what=f"the groups of {type(objective).__name__}")
    warn_within_warm_up(objectives[0], common.steps(data[0]))
    network = ManyMLP(models, device)
    objective = stack(objectives, network.theta.dtype, device)
    objective.train()
    adam = _Adam(network.theta, objective.betas, common.weight_decay)
    x, y, streams, codes = _together(data, settings, device)
    base = torch.tensor([[one.learning_rate] for one in settings], dtype=network.theta.dtype, device=device)
    histories: list[list[RoundRecord]] = [[] for _ in models]
    done = 0
    for epoch in range(common.rounds):
        batches = torch.stack([order(epoch) for order in streams], dim=1).to(device)  # (steps, runs, n)
        rates = base * 0.5 ** (epoch / (common.half_life or math.inf))
        total = torch.zeros(runs, dtype=network.theta.dtype, device=device)
        for rows in batches:
            if done and done == objective.warm_up:
                adam.forget()
            outputs = network(x[rows])
            losses = loss(outputs.flatten(0, 1), y[rows].flatten(0, 1)).view(runs, -1)
            value = objective.compute(losses, codes, logits=outputs, features=None)
            value.sum().backward()  # type: ignore[no-untyped-call]  # torch's
            adam.step(rates)
            total += losses.detach().mean(dim=1)
            done += 1
        last = epoch + 1 == common.rounds
        due = evaluate is not None and ((epoch + 1) % evaluate_every == 0 or last)
        with torch.no_grad():
            metrics: Sequence[dict[str, Any]] = evaluate(network) if due and evaluate else [{}] * runs
        weights = _weights(objective, runs)
        for history, mean, q, measured in zip(
            histories, (total / len(batches)).tolist(), weights, metrics, strict=True
        ):
            if math.isfinite(mean) and len(history) == epoch:
                history.append(RoundRecord(epoch + 1, mean, objective.groups.named(q), measured))
    network.give_back()
    return histories


def _together(
    data: Sequence[GroupedData], settings: Sequence[TrainSettings], device: str | torch.device
) -> tuple[Tensor, Tensor, list[partial[Tensor]], Tensor]:
    """Rows of all data sets, one below the other; for every run its batches of an epoch; the groups of a batch."""
    distinct = {id(one): one for one in data}
    start, offsets, parts = 0, {}, []
    for key, one in distinct.items():
        offsets[key] = start
        start += len(one)
        parts.append(tensors(one, device))
    drawn: dict[tuple[int, int, int], Tensor] = {}

    def batches(one: GroupedData, setting: TrainSettings, epoch: int) -> Tensor:
        key = (id(one), setting.seed, epoch)
        if key not in drawn:
            if len(drawn) > len(data):
                drawn.clear()  # of the epochs before
            rows = batch_rows(one, setting.per_group, seed=setting.seed, epoch=epoch, paired=setting.paired)
            drawn[key] = torch.as_tensor(rows + offsets[id(one)])
        return drawn[key]

    lengths = {len(batches(one, setting, 0)) for one, setting in zip(data, settings, strict=True)}
    if len(lengths) > 1:
        raise DataError(f"epochs of {sorted(lengths)} batches: runs that are trained as one have equally many.")
    streams = [partial(batches, one, setting) for one, setting in zip(data, settings, strict=True)]
    codes = torch.as_tensor(np.repeat(np.arange(len(data[0].groups)), settings[0].per_group)).to(device)
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]), streams, codes


def _weights(objective: Objective, runs: int) -> list[list[float]]:
    q = getattr(objective, "q", None)
    if isinstance(q, Tensor):
        return q.tolist()
    m = len(objective.groups)
    return [[1.0 / m] * m for _ in range(runs)]
