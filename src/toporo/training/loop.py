"""A small, plain training loop: seeded, resumable, the same bytes for the same seed."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
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
from toporo.training.checkpoint import load_checkpoint, save_checkpoint

__all__ = ["EpochRecord", "TrainSettings", "accuracy_by_group", "features_of", "train"]

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class TrainSettings:
    """How to train: Adam on group-balanced batches."""

    epochs: int = 20
    per_group: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or not self.learning_rate > 0:
            raise SettingError(
                f"epochs={self.epochs!r}, learning_rate={self.learning_rate!r}: expected at least one epoch and a "
                "positive learning rate."
            )


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch left behind. ``metrics`` is whatever ``evaluate`` returned."""

    epoch: int
    loss: float
    weights: dict[Hashable, float]
    metrics: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self) | {"weights": [[name_to_json(name), value] for name, value in self.weights.items()]}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> EpochRecord:
        """The inverse of :meth:`to_dict`."""
        return cls(**(content | {"weights": {name_from_json(name): value for name, value in content["weights"]}}))


def train(
    model: nn.Module,
    objective: Objective,
    data: GroupedData,
    loss: Loss,
    settings: TrainSettings,
    *,
    evaluate: Callable[[nn.Module], dict[str, Any]] | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 25,
    device: str | torch.device = "cpu",
) -> list[EpochRecord]:
    """Train ``model`` in place and return one record an epoch.

    Parameters
    ----------
    loss : per-sample task loss ``(outputs, targets) -> (n,)``, e.g. cross entropy with ``reduction="none"``.
    evaluate : called after every epoch with the model in evaluation mode; its result goes into the record.
    on_epoch : called with every new record (progress).
    checkpoint : file to resume from if it is there, written every ``checkpoint_every`` epochs. A resumed run ends in
        the same state as one that was never interrupted.
    """
    objective.groups.require_same(data.groups, what=f"the groups of {type(objective).__name__}")
    model.to(device)
    objective.to(device)
    parameters = [*model.parameters(), *objective.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    history: list[EpochRecord] = []
    identity = asdict(settings) | {"objective": type(objective).__name__, "rows": len(data)}
    if checkpoint is not None and Path(checkpoint).is_file():
        about = load_checkpoint(checkpoint, model=model, objective=objective, optimizer=optimizer)
        if about.get("run") != identity:
            raise DataError(
                f"the checkpoint {checkpoint} is of another run ({about.get('run')}, now {identity}). "
                "Delete it, or train with its settings."
            )
        history = [EpochRecord.from_dict(record) for record in about["history"]]
    x, y, codes = tensors(data, device)
    for epoch in range(len(history), settings.epochs):
        model.train()
        objective.train()
        batches = torch.as_tensor(
            batch_rows(data, settings.per_group, seed=settings.seed, epoch=epoch), device=torch.device(device)
        )
        total = torch.zeros((), device=device)
        for rows in batches:
            total += _step(model, objective, optimizer, loss, x[rows], y[rows], codes[rows])
        model.eval()
        objective.eval()
        metrics = evaluate(model) if evaluate is not None else {}
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
    with torch.no_grad():
        right = (model(x).argmax(dim=1) == y).to(torch.float64)
    sums = torch.zeros(len(data.groups), dtype=torch.float64, device=device).index_add(0, codes, right)
    return data.groups.named((sums.cpu().numpy() / np.bincount(data.codes, minlength=len(data.groups))).tolist())


def features_of(model: nn.Module, data: GroupedData, device: str | torch.device = "cpu") -> npt.NDArray[Any]:
    """Penultimate activations of every row."""
    model.eval()
    with torch.no_grad():
        found: Tensor = model.features(tensors(data, device)[0])  # type: ignore[operator]
    return found.cpu().numpy()
