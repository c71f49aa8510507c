"""A small, plain training loop: seeded, resumable from one safetensors file, the same bytes for the same seed."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from msgspec import Struct
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from toporo.checks import number, one_of, positive, whole
from toporo.data.batches import batch_rows, steps_per_epoch, tensors
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, DivergedError, SettingError, warn
from toporo.files import parse_json, write_whole
from toporo.groups import name_from_json, name_to_json
from toporo.objectives import Objective
from toporo.progress import tracked
from toporo.schema import Count, NonNegative, as_type
from toporo.training.average import SWAD, WeightAverage, make_average
from toporo.types import Name, Record

SCHEMA = "toporo.checkpoint/2"
#: Without a checksum.
EARLIER = "toporo.checkpoint/1"


def save_checkpoint(
    path: str | os.PathLike[str],
    *,
    model: nn.Module,
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
    about: dict[str, Any],
    average: WeightAverage | None = None,
) -> None:
    """Write everything needed to go on exactly.

    Parameters
    ----------
    path : the file, replaced as a whole.
    model, objective, optimizer : whose state is kept.
    about : what else to know of the run, as JSON (its identity, its history).
    average : of the model's weights, if there is one.
    """
    means, counted = average.save() if average is not None else ({}, None)
    about = about | ({"average": counted} if means else {})
    tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
    tensors |= {f"objective.{key}": value for key, value in objective.state_dict().items()}
    tensors |= {f"average.{key}": value for key, value in means.items()}
    plain: dict[str, dict[str, Any]] = {}
    for index, state in optimizer.state_dict()["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{key}"] = value
            else:
                plain.setdefault(str(index), {})[key] = value
    groups = [_plain_settings(group) for group in optimizer.state_dict()["param_groups"]]
    content = {"about": json.dumps(about), "optimizer": json.dumps({"state": plain, "groups": groups})}
    # Tensors that share memory are refused by the format; a checkpoint wants values, so copy.
    copies = {key: value.detach().cpu().clone().contiguous() for key, value in tensors.items()}
    packed = save(copies, metadata={"schema": SCHEMA, "checksum": _checksum(copies, content), **content})
    write_whole(path, lambda stream: stream.write(packed))


def _checksum(tensors: dict[str, Tensor], content: dict[str, str]) -> str:
    digest = hashlib.sha256(save(tensors))
    digest.update(f"{content['about']}\n{content['optimizer']}".encode())
    return digest.hexdigest()


def load_checkpoint(
    path: str | os.PathLike[str], *, model: nn.Module, objective: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Restore all three in place and return what :func:`save_checkpoint` was told ``about`` the run.

    A checkpoint that does not fit is an error and changes nothing.

    Parameters
    ----------
    path : the file.
    model, objective, optimizer : built as they were when it was written.
    """
    try:
        stored = _read(Path(path))
    except FileNotFoundError:
        raise DataError(f"no such checkpoint: {path}.") from None
    _restore(stored, model, objective, optimizer)
    return stored.about


def _restore(stored: _Stored, model: nn.Module, objective: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    parts: tuple[Any, ...] = (model, objective, optimizer)
    before = [copy.deepcopy(part.state_dict()) for part in parts]
    try:
        model.load_state_dict(_part(stored.tensors, "model."))
        objective.load_state_dict(_part(stored.tensors, "objective."))
        plain = stored.optimizer
        state: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in plain["state"].items()}
        for key, value in _part(stored.tensors, "optimizer.").items():
            index, name = key.split(".", 1)
            state.setdefault(int(index), {})[name] = value
        now = optimizer.state_dict()["param_groups"]
        groups = [group | _restored(earlier) for group, earlier in zip(now, plain["groups"], strict=True)]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        for part, earlier in zip(parts, before, strict=True):
            part.load_state_dict(earlier)
        raise DataError(
            f"the checkpoint {stored.path} belongs to another model, objective or optimiser ({error}). "
            "Delete it to start over, or go back to the settings it was made with."
        ) from None


def _plain_settings(group: dict[str, Any]) -> dict[str, Any]:
    """Learning rate and the like: what JSON can hold of a parameter group, tensors as numbers."""
    values = {key: value.item() if isinstance(value, Tensor) else value for key, value in group.items()}
    return {k: v for k, v in values.items() if k != "params" and isinstance(v, bool | int | float | str | tuple | None)}


def _restored(group: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in group.items()}


def read_about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint says about its run, without restoring anything."""
    return _read(Path(path)).about


def _require_run(stored: _Stored, identity: dict[str, Any]) -> None:
    """A checkpoint of another run is an error that says what differs."""
    there = stored.about.get("run")
    if not isinstance(there, dict):
        raise DataError(f"the checkpoint {stored.path} does not say which run it is of. Delete it to start over.")
    none = object()
    other = [key for key in identity | there if identity.get(key, none) != there.get(key, none)]
    if other:
        told = ", ".join(f"{key}{_both(there.get(key), identity.get(key))}" for key in other)
        raise DataError(
            f"the checkpoint {stored.path} is of another run: it differs in {told}. Delete it, or train with what it "
            "was made with."
        )


def _both(there: Any, here: Any) -> str:
    """The two values where a line has room for them: numbers and short texts."""
    short = all(isinstance(value, bool | int | float | str) and len(str(value)) <= 40 for value in (there, here))
    return f" ({there!r} there, {here!r} here)" if short else ""


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


@dataclass(frozen=True)
class _Stored:
    """What a checkpoint holds, read at one go: another process may replace the file at any time."""

    path: Path
    tensors: dict[str, Tensor]
    about: dict[str, Any]
    optimizer: Any


def _read(path: Path) -> _Stored:
    again = "Delete it to start over."
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a dict
    except FileNotFoundError:
        raise
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} is not a readable checkpoint ({error}). {again}") from None
    schema = metadata.get("schema")
    if schema not in (SCHEMA, EARLIER):
        raise DataError(f"{path} has schema {schema!r}, expected {SCHEMA!r}. {again}")
    content = {key: metadata.get(key, "") for key in ("about", "optimizer")}
    if schema != EARLIER and metadata.get("checksum") != _checksum(tensors, content):
        raise DataError(f"the checkpoint {path} is damaged: its checksum is of other content. {again}")
    about, optimizer = (parse_json(text, f"the {key!r} of {path}") for key, text in content.items())
    if not isinstance(about, dict):
        raise DataError(f"the 'about' of {path} is not an object. {again}")
    return _Stored(path, tensors, about, optimizer)


Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class TrainSettings:
    """How to train, by epochs: Adam on group-balanced batches.

    Parameters
    ----------
    rounds : how long, in epochs.
    per_group : rows of every group in a batch.
    learning_rate, weight_decay : Adam's.
    seed : of the order of the rows and of dropout.
    average : of the weights: over every step once so many rounds are done, or ``"swad"`` for a window that the
        validation loss finds (:class:`~toporo.training.average.SwadAverage`). The network ends with the mean as its
        weights. None leaves it at the last ones.
    half_life : epochs in which the learning rate falls to a half, evenly; None keeps it.
    paired : whether rows at the same places of all groups come together in batches, for groups of one size.
    """

    #: What a round is.
    unit: ClassVar[str] = "epochs"
    #: Settings that change how fast a result comes about, and not the result.
    pace: ClassVar[frozenset[str]] = frozenset()

    rounds: int = 20
    per_group: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    seed: int = 0
    average: int | str | None = None
    half_life: float | None = None
    paired: bool = False

    def __post_init__(self) -> None:
        for name in ("rounds", "per_group"):
            number(getattr(self, name), name, "at least 1", least=1)
        positive(self.learning_rate, "learning_rate")
        for name in ("weight_decay", "seed"):
            number(getattr(self, name), name, "at least 0", least=0)
        if self.half_life is not None:
            positive(self.half_life, "half_life")
        if self.unit != "epochs" and (self.half_life is not None or self.paired):
            raise SettingError(f"half_life={self.half_life}, paired={self.paired}: these are for runs by epochs alone.")
        if isinstance(self.average, str):
            one_of(self.average, "average", (SWAD,))
        elif self.average is not None:
            hint = f": a number of {self.unit} after which some are left, for a run of {self.rounds}"
            whole(self.average, "average", 0, self.rounds - 1, hint)

    def steps(self, data: GroupedData) -> int:
        """How many steps a run on these rows has.

        Parameters
        ----------
        data : the training rows.
        """
        return self.rounds * steps_per_epoch(data, self.per_group)

    @property
    def deciding(self) -> Record:
        """What the outcome depends on."""
        unset = {
            name
            for name in ("average", "half_life", "paired")
            if getattr(self, name) is None or getattr(self, name) is False
        }
        left_out = self.pace | unset
        return {"unit": self.unit} | {name: value for name, value in asdict(self).items() if name not in left_out}


class StoredRound(Struct):
    """A round in a file."""

    loss: float
    weights: list[tuple[Any, NonNegative]]
    metrics: dict[str, Any]
    round: Count | None = None
    epoch: Count | None = None


@dataclass(frozen=True)
class RoundRecord:
    """What is known after a round: an epoch, or the step of an evaluation.

    Parameters
    ----------
    round : its number, from 1.
    loss : the mean training loss since the record before.
    weights : of the objective, by group.
    metrics : what ``evaluate`` returned, empty where it was not called.
    """

    round: int
    loss: float
    weights: dict[Name, float]
    metrics: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> Record:
        """As plain values for JSON."""
        weights = [[name_to_json(name), value] for name, value in self.weights.items()]
        return {"round": self.round, "loss": self.loss, "weights": weights, "metrics": _to_json(self.metrics)}

    @classmethod
    def from_dict(cls, content: Record) -> RoundRecord:
        """The inverse of :meth:`to_dict`; older model folders say "epoch" for the round."""
        stored = as_type(content, StoredRound, "the record of a round")
        at = stored.epoch if stored.round is None else stored.round
        if at is None:
            raise DataError("the record of a round lacks its number.")
        try:
            weights = {name_from_json(name): value for name, value in stored.weights}
            metrics: dict[str, Any] = _from_json(stored.metrics)
        except (TypeError, ValueError) as error:
            raise DataError(f"the record of a round cannot be read ({error}).") from None
        return cls(at, stored.loss, weights, metrics)


@dataclass(frozen=True)
class Resumable:
    """A run's checkpoint and the parts it holds; without a file, nothing is read or written."""

    path: str | os.PathLike[str] | None
    model: nn.Module
    objective: Objective
    optimizer: torch.optim.Optimizer
    data: GroupedData
    settings: TrainSettings
    average: WeightAverage

    def resume(self) -> list[RoundRecord]:
        """Restore model, objective and optimiser, and return the history so far; empty for a new run."""
        if self.path is None:
            return []
        identity = self.identity  # one that cannot be told is an error now, not at the first checkpoint
        try:
            stored = _read(Path(self.path))
        except FileNotFoundError:
            return []
        _require_run(stored, identity)
        try:
            history = [RoundRecord.from_dict(record) for record in stored.about["history"]]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"the checkpoint {self.path} has no history that can be read ({error}). Delete it to start over."
            ) from None
        if "average" in stored.about:
            self.average.load(_part(stored.tensors, "average."), stored.about["average"])
        _restore(stored, self.model, self.objective, self.optimizer)
        return history

    def save(self, history: list[RoundRecord]) -> None:
        """Write the checkpoint."""
        if self.path is not None:
            about = {"run": self.identity, "history": [record.to_dict() for record in history]}
            save_checkpoint(
                self.path,
                model=self.model,
                objective=self.objective,
                optimizer=self.optimizer,
                about=about,
                average=self.average,
            )

    @cached_property
    def identity(self) -> Record:
        """What decides a run besides the network; a checkpoint is only good for the run it was made in."""
        objective = {f"objective.{name}": value for name, value in self.objective.identity.items()}
        return self.settings.deciding | objective | {"data": self.data.fingerprint}


def train(
    model: nn.Module,
    objective: Objective,
    data: GroupedData,
    loss: Loss,
    settings: TrainSettings,
    *,
    evaluate: Callable[[nn.Module], dict[str, Any]] | None = None,
    evaluate_every: int = 1,
    on_record: Callable[[RoundRecord], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 25,
    device: str | torch.device = "cpu",
) -> list[RoundRecord]:
    """Train ``model`` in place, by epochs, and return one record per epoch.

    Parameters
    ----------
    model : the network; a method that needs features wants one with ``features(x)`` and ``head(features)``.
    objective : what a step minimises; it must know the data's groups.
    data : the training rows.
    loss : per-sample task loss ``(outputs, targets) -> (n,)``, e.g. cross entropy with ``reduction="none"``.
    settings : how long and how fast.
    evaluate : called with the model in evaluation mode; its result goes into the epoch's record. Where weights are
        averaged it is called for the mean, too, whose results have names that begin with ``averaged_``.
    evaluate_every : after how many epochs; the last one is always evaluated.
    on_record : called with every new record (progress).
    checkpoint : file to resume from if it is there, written every ``checkpoint_every`` epochs. A resumed run ends in
        the same state as one that was never interrupted. A checkpoint of another run is an error.
    checkpoint_every : after how many epochs; the last one is always saved.
    device : where to train.
    """
    data.groups.require_same(objective.groups, what=f"the groups of {type(objective).__name__}")
    for what, every in (("checkpoint_every", checkpoint_every), ("evaluate_every", evaluate_every)):
        number(every, what, "a number of epochs of at least 1", least=1)
    if settings.unit != "epochs":
        raise SettingError(f"{type(settings).__name__} counts {settings.unit}: use train_steps, or TrainSettings.")
    warn_within_warm_up(objective, settings.steps(data))
    model.to(device)
    objective.to(device)
    optimizer = make_optimizer(model, objective, settings)
    average = make_average(model, settings.average)
    run = Resumable(checkpoint, model, objective, optimizer, data, settings, average)
    history = run.resume()
    x, y, codes = tensors(data, device)
    for epoch in tracked(range(len(history), settings.rounds), "training the network"):
        model.train()
        objective.train()
        batches = torch.as_tensor(
            batch_rows(data, settings.per_group, seed=settings.seed, epoch=epoch, paired=settings.paired),
            device=torch.device(device),
        )
        total = torch.zeros((), device=device)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * 0.5 ** (epoch / (settings.half_life or math.inf))
        with seeded(settings.seed, epoch, device):
            for step, rows in enumerate(batches, epoch * len(batches)):
                if step and step == objective.warm_up:
                    reset_state(optimizer)
                total += _step(model, objective, optimizer, loss, x[rows], y[rows], codes[rows])
                average.step(epoch)
        model.eval()
        objective.eval()
        last = epoch + 1 == settings.rounds
        due = (epoch + 1) % evaluate_every == 0 or last
        metrics = average.evaluate(model, evaluate or (lambda _: {})) if due else {}
        mean_loss = float(total) / len(batches)
        require_finite(mean_loss, f"in epoch {epoch + 1}", settings)
        record = RoundRecord(epoch + 1, mean_loss, objective.weights, metrics)
        history.append(record)
        if on_record is not None:
            on_record(record)
        if (epoch + 1) % checkpoint_every == 0 or last:
            run.save(history)
    average.finish()
    return history


def make_optimizer(
    model: nn.Module, objective: Objective, settings: TrainSettings, **flags: Any
) -> torch.optim.Optimizer:
    """Adam for a network and what an objective has to learn, with the objective's betas."""
    return torch.optim.Adam(
        [*model.parameters(), *objective.parameters()],
        lr=settings.learning_rate,
        betas=objective.betas,
        weight_decay=settings.weight_decay,
        **flags,
    )


def reset_state(optimizer: torch.optim.Optimizer) -> None:
    """Reset an optimiser's state to zero, as before its first step, in place so that captured CUDA graphs see it.

    In a training loop of your own, call it once ``objective.warm_up`` steps are done, unless that is 0.

    Parameters
    ----------
    optimizer : the optimiser.
    """
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()


def warn_within_warm_up(objective: Objective, steps: int) -> None:
    """Warn of a run that ends before the objective's warm-up does, so its penalty never counts in full."""
    if 0 < steps <= objective.warm_up:
        warn(
            f"the run ends within the warm-up of {type(objective).__name__}: it has {steps} steps, the warm-up "
            f"{objective.warm_up}, so the penalty never counts in full. Train for longer, or set a shorter warm_up."
        )


def require_finite(loss: float, when: str, settings: TrainSettings) -> None:
    """Raise for a training loss that is no number, with what to try."""
    if not math.isfinite(loss):
        raise DivergedError(
            f"the training loss became {loss} {when}: lower the learning rate ({settings.learning_rate:g}) or the "
            "penalty, and check the scale of the inputs."
        )


@contextmanager
def seeded(seed: int, done: int, device: str | torch.device) -> Iterator[None]:
    """Torch's global random stream (dropout draws from it) as a function of seed and rounds done; put back after."""
    target = torch.device(device)
    stream = int(np.random.SeedSequence([seed, done]).generate_state(1, np.uint32)[0])
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


def accuracy_by_group(model: nn.Module, data: GroupedData, device: str | torch.device = "cpu") -> dict[Name, float]:
    """Fraction of rows classified right, by group.

    Parameters
    ----------
    model : the network.
    data : the rows.
    device : where to work.
    """
    x, y, codes = tensors(data, device)
    with _evaluating(model):
        right = (model(x).argmax(dim=1) == y).to(torch.float64)
    sums = torch.zeros(len(data.groups), dtype=torch.float64, device=device).index_add(0, codes, right)
    return data.groups.named((sums.cpu().numpy() / np.bincount(data.codes, minlength=len(data.groups))).tolist())


def outputs_of(model: nn.Module, data: GroupedData, device: str | torch.device = "cpu") -> npt.NDArray[Any]:
    """Logits or predicted values of every row.

    Parameters
    ----------
    model : the network.
    data : the rows.
    device : where to work.
    """
    with _evaluating(model):
        outputs: Tensor = model(tensors(data, device)[0])
    return outputs.cpu().numpy()


def features_of(model: nn.Module, data: GroupedData, device: str | torch.device = "cpu") -> npt.NDArray[Any]:
    """Penultimate activations of every row.

    Parameters
    ----------
    model : the network.
    data : the rows.
    device : where to work.
    """
    with _evaluating(model):
        features: Tensor = model.features(tensors(data, device)[0])  # type: ignore[operator]
    return features.cpu().numpy()
