"""Networks of an estimator: a perceptron, or a module of the user's own, trained on scaled rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toporo.data.grouped import GroupedData
from toporo.errors import DataError, SettingError
from toporo.estimators.rows import Rows, Scaling
from toporo.estimators.settings import Settings
from toporo.objectives import ERM, TRO, GroupDRO, Objective
from toporo.robust.rows import chunks
from toporo.topology.prior import Prior
from toporo.training import MLP, Batches, RoundRecord, TrainingPlan
from toporo.training import fit as fit_network
from toporo.types import Array


@dataclass(frozen=True, eq=False)
class NetFit:
    """A trained network, on the CPU and in evaluation mode, one record per epoch, and the last weights."""

    net: nn.Module
    history: list[RoundRecord]
    weights: dict[Any, float]


def fit(rows: Rows, prior: Prior | None, settings: Settings, *, model: Any, robust: str, device: Any) -> NetFit:
    """Train the network that an estimator's settings ask for."""
    objective = make_objective(
        rows,
        prior,
        robust=robust,
        step=settings.step,
        penalty=settings.penalty,
        divergence=settings.divergence,
        radius=settings.radius,
    )
    _check_device(device)
    plan = TrainingPlan(
        rounds=settings.epochs,
        learning_rate=settings.learning_rate,
        weight_decay=2.0 * (settings.ridge or 0.0),  # the gradient of ridge * |theta|^2
        seed=settings.seed,
        device=str(device),
    )
    net = make_net(model, rows.x.shape[1], rows.outputs, settings.hidden, settings.seed)
    return train_net(net, rows, objective, plan, settings.per_group)


def make_net(model: Any, inputs: int, outputs: int, hidden: Sequence[int], seed: int) -> nn.Module:
    """A fresh perceptron, or a copy of the module that was given."""
    if isinstance(model, nn.Module):
        return copy.deepcopy(model).float()
    return MLP(inputs, outputs, hidden, seed=seed)


def make_objective(rows: Rows, prior: Prior | None, *, robust: str, step: float, **settings: Any) -> Objective:
    """What one step minimises; with a single group, its mean loss."""
    if prior is None:
        return ERM(rows.groups)
    if robust == "group-dro":
        return GroupDRO(rows.groups, step=step)
    return TRO(prior, step=step, **settings)


def train_net(net: nn.Module, rows: Rows, objective: Objective, plan: TrainingPlan, per_group: int) -> NetFit:
    """Train in place.

    Rows are scaled; a row's weight goes with its target, as the last column, in units of its group's mean weight.
    """
    x = rows.inputs.apply(rows.x, np.float32)
    _check_outputs(net, x[: min(len(x), 2)], rows)
    weights = np.ones(len(x)) if rows.weights is None else rows.weights
    means = np.bincount(rows.ids.codes, weights) / np.bincount(rows.ids.codes)
    targets = rows.targets.apply(rows.y) if rows.targets is not None else rows.y[:, None].astype(np.float64)
    data = GroupedData(
        x,
        np.column_stack([targets, weights / means[rows.ids.codes]]).astype(np.float32),
        np.asarray(rows.ids.codes, dtype=np.int64),
        rows.groups,
    )
    loss: Callable[[Tensor, Tensor], Tensor] = _squared_error if rows.classes is None else _log_loss
    history = fit_network(net, objective, Batches.of(data, per_group), loss, plan).history
    net.to("cpu").eval()
    if isinstance(net, MLP):
        net.double()  # a row's answer then does not depend on the rows beside it
    return NetFit(net, history, {name: float(weight) for name, weight in objective.weights.items()})


def apply_net(net: nn.Module, x: npt.NDArray[Any], inputs: Scaling, device: Any = "cpu") -> Array:
    """Outputs of scaled rows, rows × outputs."""
    _check_device(device)
    dtype = next((p.dtype for p in net.parameters() if p.is_floating_point()), torch.float32)
    net.to(device).eval()
    outputs = []
    with torch.no_grad():
        for part in chunks(len(x)):
            scaled = torch.as_tensor(inputs.apply(x[part]), dtype=dtype).to(device)
            outputs.append(net(scaled).reshape(len(scaled), -1).double().cpu().numpy())
    return np.concatenate(outputs)


def restore_net(tensors: Mapping[str, npt.NDArray[Any]], inputs: int, hidden: Sequence[int], outputs: int) -> MLP:
    """A perceptron in evaluation mode from its tensors by name."""
    net = MLP(inputs, outputs, hidden).double()
    net.load_state_dict({key: torch.from_numpy(value) for key, value in tensors.items()})
    return net.eval()


def restore_record(stored: Any) -> RoundRecord:
    """An entry of a network's history from JSON."""
    return RoundRecord.from_dict(stored)


def _squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    """Mean over outputs, times the row's weight."""
    return ((outputs.reshape(len(y), -1) - y[:, :-1]) ** 2).mean(dim=1) * y[:, -1]


def _log_loss(outputs: Tensor, y: Tensor) -> Tensor:
    scores = outputs.reshape(len(y), -1)
    if scores.shape[1] == 1:  # log-odds of the second of two classes
        scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
    return F.cross_entropy(scores, y[:, 0].long(), reduction="none") * y[:, 1]


def _check_device(device: Any) -> None:
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise SettingError(f"device is {device!r}, which torch cannot use here ({reason}). Try device='cpu'.") from None


def _check_outputs(net: nn.Module, x: npt.NDArray[Any], rows: Rows) -> None:
    """A module must take the rows and answer with as many numbers as there are classes or targets."""
    kind = f"{rows.outputs} classes" if rows.classes is not None else f"{rows.outputs} target(s)"
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise SettingError("the network has no parameters to train.")
    try:
        net.eval()
        with torch.no_grad():
            answer = net(torch.as_tensor(x))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise DataError(
            f"the network cannot be applied to rows of {x.shape[1]} feature(s): {error}. It gets a float32 tensor of "
            f"shape (rows, {x.shape[1]}) and must give (rows, {rows.outputs}), for {kind}."
        ) from None
    shape = tuple(answer.shape) if isinstance(answer, Tensor) else None
    allowed: list[tuple[int, ...]] = [(len(x), rows.outputs)]
    if rows.outputs == 1 or rows.classes == 2:
        allowed += [(len(x),), (len(x), 1)]
    if shape not in allowed or not answer.is_floating_point():
        got = f"shape {shape}" if shape is not None else f"a {type(answer).__name__}"
        raise DataError(
            f"the network gives {got} for {len(x)} row(s): expected {' or '.join(map(str, allowed))}, "
            f"for {kind}{' (log-odds, without a softmax or sigmoid)' if rows.classes is not None else ''}."
        )
