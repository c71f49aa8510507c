"""The training loop: seeded, resumable from one file, with the same bytes for the same seed."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from toporo.errors import DataError, DivergedError, warn
from toporo.objectives import Objective
from toporo.objectives.identity import differences
from toporo.progress import tracked
from toporo.training.batches import Batches
from toporo.training.checkpoint import read_checkpoint, write_checkpoint
from toporo.training.plan import TrainingPlan
from toporo.training.record import RoundRecord
from toporo.training.step import Loss, Stepper
from toporo.types import AVERAGED, Record

#: Shortest time between two checkpoints.
CHECKPOINT_SECONDS = 60.0


@dataclass(frozen=True)
class FitResult:
    """Records and speed of a training run.

    Attributes
    ----------
    history : one record per epoch, or per evaluation if the plan counts steps.
    seconds : duration, evaluations included; since the last resumption.
    steps_per_second : without evaluations and checkpoints.
    """

    history: list[RoundRecord]
    seconds: float
    steps_per_second: float


def fit(
    model: nn.Module,
    objective: Objective,
    batches: Batches,
    loss: Loss,
    plan: TrainingPlan,
    *,
    evaluate: Callable[[nn.Module], dict[str, Any]] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> FitResult:
    """Train ``model`` in place.

    The batches, augmentation and dropout of a step depend on the seed and the number of the step alone, so a resumed
    run ends in the same state as one that was never interrupted.

    Parameters
    ----------
    model : the network. An objective that needs features needs ``model.with_features(x)``: outputs and features.
    objective : what a step minimises; it must have the groups of the rows.
    batches : the training rows.
    loss : per-sample task loss ``(outputs, targets) -> (n,)``, e.g. cross entropy with ``reduction="none"``.
    plan : length, settings and device.
    evaluate : called with the network in evaluation mode; its result goes into the record. If weights are averaged, it
        is also called for their mean, and the names of those results begin with ``averaged_``.
    checkpoint : file to resume from if it exists, rewritten every minute and after the last round. A checkpoint of
        another run is an error.

    Examples
    --------
    >>> import toporo as tr
    >>> from toporo.training import MLP, Batches, TrainingPlan, fit
    >>> data = tr.GroupedData.from_arrays([[0.0], [1.0], [2.0]], [0, 1, 1], ["NY", "PA", "PA"])
    >>> result = fit(MLP(1, 2), tr.objectives.ERM(data.groups), Batches.of(data, per_group=2),
    ...              torch.nn.CrossEntropyLoss(reduction="none"), TrainingPlan(rounds=3))
    >>> [record.round for record in result.history]
    [1, 2, 3]
    """
    began = saved = time.perf_counter()
    if 0 < batches.steps(plan) <= objective.warm_up:
        warn(
            f"the run ends within the warm-up of {type(objective).__name__}: it has {batches.steps(plan)} steps, the "
            f"warm-up {objective.warm_up}, so the penalty never counts in full. Train for longer, or set a shorter "
            "warm_up."
        )
    stepper = Stepper(model, objective, batches, loss, plan)
    identity = _identity(objective, batches, plan) if checkpoint is not None else {}
    history = _resume(checkpoint, stepper, identity) if checkpoint is not None else []
    done = history[-1].round if history else 0
    stepper.done = batches.steps(plan, done)
    stride = 1 if plan.unit == "epochs" else plan.evaluate_every
    stops = [stop for stop in (*range(stride, plan.rounds, stride), plan.rounds) if stop > done]
    timed_steps, timed_seconds = 0, 0.0
    for stop in tracked(stops, "training the network"):
        drawn = batches.draw(plan, done, stop)
        for group in stepper.optimizer.param_groups:
            group["lr"] = plan.learning_rate * 0.5 ** (done / (plan.half_life or math.inf))
        start = time.perf_counter()
        with _seeded(plan, done):
            mean_loss = stepper.run(*drawn)
        timed_steps += batches.steps(plan, stop - done)
        timed_seconds += time.perf_counter() - start
        done = stop
        if not math.isfinite(mean_loss):
            raise DivergedError(
                f"the training loss became {mean_loss} by {plan.unit[:-1]} {done}: lower the learning rate "
                f"({plan.learning_rate:g}) or the penalty, and check the scale of the inputs."
            )
        last = done == plan.rounds
        metrics = _evaluate(stepper, evaluate) if last or done % plan.evaluate_every == 0 else {}
        history.append(RoundRecord(done, mean_loss, objective.weights, metrics))
        if checkpoint is not None and (last or time.perf_counter() - saved >= CHECKPOINT_SECONDS):
            about = {"run": identity, "history": [record.to_dict() for record in history]}
            write_checkpoint(checkpoint, stepper.state(), about)
            saved = time.perf_counter()
    if stepper.average is not None and (mean := stepper.average.mean()) is not None:
        model.load_state_dict(mean.state_dict())
    speed = timed_steps / timed_seconds if timed_seconds > 0 else 0.0
    return FitResult(history, time.perf_counter() - began, speed)


def _evaluate(stepper: Stepper, evaluate: Callable[[nn.Module], dict[str, Any]] | None) -> dict[str, Any]:
    """Metrics of the network and of the mean of its weights."""
    stepper.network.eval()
    stepper.objective.eval()
    metrics = {} if evaluate is None else evaluate(stepper.network)
    if stepper.average is not None:
        mean = stepper.average.mean()
        if evaluate is not None and mean is not None:
            metrics |= {f"{AVERAGED}{name}": value for name, value in evaluate(mean).items()}
    return metrics


def _identity(objective: Objective, batches: Batches, plan: TrainingPlan) -> Record:
    """Everything that determines a run except the network; a checkpoint is only good for the run it was made in."""
    settings = {name: value for name, value in asdict(plan).items() if name not in ("device", "graph")}
    settings |= {f"objective.{name}": value for name, value in objective.identity.items()}
    return settings | {"per_group": batches.per_group, "paired": batches.paired, "data": batches.rows.fingerprint}


def _resume(path: str | os.PathLike[str], stepper: Stepper, identity: Record) -> list[RoundRecord]:
    """Restore the state of a checkpoint and return its history; without a file, nothing happens."""
    try:
        state, about = read_checkpoint(path)
        history = [RoundRecord.from_dict(record) for record in about["history"]]
        if different := differences(about["run"], identity, "there", "here"):
            raise DataError(f"it is of another run: {', '.join(different)}")
        stepper.restore(state)
    except FileNotFoundError:
        return []
    except (DataError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"the checkpoint {path} does not fit ({error}). Delete it to start over, or train with the settings it was "
            "made with."
        ) from None
    return history


@contextmanager
def _seeded(plan: TrainingPlan, done: int) -> Iterator[None]:
    """Make torch's global random numbers (for dropout) a function of seed and rounds done; restore them afterwards."""
    stream = int(np.random.SeedSequence([plan.seed, done]).generate_state(1, np.uint32)[0])
    with torch.random.fork_rng(devices=[torch.device(plan.device)] if plan.on_gpu else []):
        # Not torch.manual_seed: for devices that are not in use it keeps a stack trace per call.
        torch.default_generator.manual_seed(stream)
        if plan.on_gpu:
            torch.cuda.manual_seed_all(stream)
        yield
