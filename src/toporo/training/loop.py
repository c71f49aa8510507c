"""A small, plain training loop: seeded, resumable, the same bytes for the same seed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from toporo.data.batches import batch_rows, tensors
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, SettingError
from toporo.groups import name_from_json, name_to_json
from toporo.objectives import Objective
from toporo.topology.prior import Prior
from toporo.training.checkpoint import load_checkpoint, read_about_run, save_checkpoint

Loss = Callable[[Tensor, Tensor], Tensor]


def check_ranges(settings: object, *rules: tuple[str, bool, str]) -> None:
    """Raise for the first setting that does not fit; a rule is its name, whether it does, and what is expected."""
    for name, fits, expected in rules:
        if not fits:
            raise SettingError(f"{name} is {getattr(settings, name)!r}: expected {expected}.")


@dataclass(frozen=True)
class TrainSettings:
    """How to train: Adam on group-balanced batches."""

    epochs: int = 20
    per_group: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_ranges(
            self,
            ("epochs", self.epochs >= 1, "at least 1"),
            ("per_group", self.per_group >= 1, "at least 1"),
            ("learning_rate", 0 < self.learning_rate < math.inf, "a positive number"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "at least 0"),
            ("seed", self.seed >= 0, "at least 0"),
        )


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch left behind. ``metrics`` is whatever ``evaluate`` returned, empty where it was not called."""

    epoch: int
    loss: float
    weights: dict[Hashable, float]
    metrics: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        weights = [[name_to_json(name), value] for name, value in self.weights.items()]
        return {"epoch": self.epoch, "loss": self.loss, "weights": weights, "metrics": _to_json(self.metrics)}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> EpochRecord:
        """The inverse of :meth:`to_dict`."""
        weights = {name_from_json(name): value for name, value in content["weights"]}
        return cls(content["epoch"], content["loss"], weights, _from_json(content["metrics"]))


def train(
    model: nn.Module,
    objective: Objective,
    data: GroupedData,
    loss: Loss,
    settings: TrainSettings,
    *,
    evaluate: Callable[[nn.Module], dict[str, Any]] | None = None,
    evaluate_every: int = 1,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 25,
    device: str | torch.device = "cpu",
) -> list[EpochRecord]:
    """Train ``model`` in place and return one record an epoch.

    Parameters
    ----------
    loss : per-sample task loss ``(outputs, targets) -> (n,)``, e.g. cross entropy with ``reduction="none"``.
    evaluate : called with the model in evaluation mode; its result goes into the epoch's record.
    evaluate_every : after how many epochs; the last one is always evaluated.
    on_epoch : called with every new record (progress).
    checkpoint : file to resume from if it is there, written every ``checkpoint_every`` epochs. A resumed run ends in
        the same state as one that was never interrupted.
    """
    data.groups.require_same(objective.groups, what=f"the groups of {type(objective).__name__}")
    for what, every in (("checkpoint_every", checkpoint_every), ("evaluate_every", evaluate_every)):
        if every < 1:
            raise SettingError(f"{what} is {every!r}: expected a number of epochs of at least 1.")
    model.to(device)
    objective.to(device)
    parameters = [*model.parameters(), *objective.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    history: list[EpochRecord] = []
    identity = identity_of(objective, data, asdict(settings))
    if checkpoint is not None and Path(checkpoint).is_file():
        about = read_about_run(checkpoint, identity)
        load_checkpoint(checkpoint, model=model, objective=objective, optimizer=optimizer)
        history = [EpochRecord.from_dict(record) for record in about["history"]]
    x, y, codes = tensors(data, device)
    for epoch in range(len(history), settings.epochs):
        model.train()
        objective.train()
        batches = torch.as_tensor(
            batch_rows(data, settings.per_group, seed=settings.seed, epoch=epoch), device=torch.device(device)
        )
        total = torch.zeros((), device=device)
        with seeded(settings.seed, epoch, device):
            for rows in batches:
                total += _step(model, objective, optimizer, loss, x[rows], y[rows], codes[rows])
        model.eval()
        objective.eval()
        due = (epoch + 1) % evaluate_every == 0 or epoch + 1 == settings.epochs
        metrics = evaluate(model) if evaluate is not None and due else {}
        mean_loss = float(total) / len(batches)
        if not np.isfinite(mean_loss):
            raise DataError(
                f"the training loss became {mean_loss} in epoch {epoch + 1}: lower the learning rate "
                f"({settings.learning_rate:g}) or the penalty, and check the scale of the inputs."
            )
        record = EpochRecord(epoch + 1, mean_loss, objective.weights, metrics)
        history.append(record)
        if on_epoch is not None:
            on_epoch(record)
        if checkpoint is not None and ((epoch + 1) % checkpoint_every == 0 or epoch + 1 == settings.epochs):
            about = {"run": identity, "history": [record.to_dict() for record in history]}
            save_checkpoint(checkpoint, model=model, objective=objective, optimizer=optimizer, about=about)
    return history


def identity_of(objective: Objective, data: GroupedData, settings: dict[str, Any]) -> dict[str, Any]:
    """What decides a run besides the network; a checkpoint is only good for the run it was made in."""
    prior = getattr(objective, "prior", None)
    return settings | {
        "objective": repr(objective),
        "prior": prior.to_dict() if isinstance(prior, Prior) else None,
        "data": data.fingerprint,
    }


@contextmanager
def seeded(seed: int, epoch: int, device: str | torch.device) -> Iterator[None]:
    """Torch's global random stream (dropout draws from it) as a function of seed and epoch, put back afterwards."""
    target = torch.device(device)
    stream = int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint32)[0])
    with torch.random.fork_rng(devices=[target] if target.type == "cuda" else []):
        # Not torch.manual_seed: for devices that are not in use it keeps a stack trace a call.
        torch.default_generator.manual_seed(stream)
        if target.type == "cuda":
            torch.cuda.manual_seed_all(stream)
        yield


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the model's mode is put back."""
    before = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(before)


def _to_json(value: Any) -> Any:
    """Metrics as JSON can hold them; mappings by group name become ``{"pairs": [[name, value], …]}``."""
    if isinstance(value, np.generic | np.ndarray | Tensor):
        return value.tolist()
    if not isinstance(value, dict):
        return value
    if all(isinstance(key, str) for key in value):
        return {key: _to_json(item) for key, item in value.items()}
    return {"pairs": [[name_to_json(key), _to_json(item)] for key, item in value.items()]}


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if set(value) == {"pairs"}:
        return {name_from_json(key): _from_json(item) for key, item in value["pairs"]}
    return {key: _from_json(item) for key, item in value.items()}


def _step(
    model: nn.Module,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    codes: Tensor,
) -> Tensor:
    """One step; returns the detached mean loss, still on the device."""
    extra: dict[str, Tensor] = {}
    if "features" in objective.needs:
        extra["features"] = model.features(x)  # type: ignore[operator]  # models of this package have features()
        outputs = model.head(extra["features"])  # type: ignore[operator]
    else:
        outputs = model(x)
    if "logits" in objective.needs:
        extra["logits"] = outputs
    losses = loss(outputs, y)
    value = objective(losses, codes, **extra)
    optimizer.zero_grad(set_to_none=True)
    value.backward()
    optimizer.step()
    return losses.detach().mean()


def accuracy_by_group(model: nn.Module, data: GroupedData, device: str | torch.device = "cpu") -> dict[Hashable, float]:
    """Fraction of rows classified right, by group."""
    x, y, codes = tensors(data, device)
    with _evaluating(model):
        right = (model(x).argmax(dim=1) == y).to(torch.float64)
    sums = torch.zeros(len(data.groups), dtype=torch.float64, device=device).index_add(0, codes, right)
    return data.groups.named((sums.cpu().numpy() / np.bincount(data.codes, minlength=len(data.groups))).tolist())


def outputs_of(model: nn.Module, data: GroupedData, device: str | torch.device = "cpu") -> npt.NDArray[Any]:
    """Logits or predicted values of every row."""
    with _evaluating(model):
        found: Tensor = model(tensors(data, device)[0])
    return found.cpu().numpy()


def features_of(model: nn.Module, data: GroupedData, device: str | torch.device = "cpu") -> npt.NDArray[Any]:
    """Penultimate activations of every row."""
    with _evaluating(model):
        found: Tensor = model.features(tensors(data, device)[0])  # type: ignore[operator]
    return found.cpu().numpy()
