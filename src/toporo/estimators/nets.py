"""Train the network of an estimator: a perceptron, or a module of the user's own, on scaled rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toporo.data.grouped import GroupedData
from toporo.errors import DataError, SettingError
from toporo.estimators.linear import RIDGE
from toporo.estimators.models import Fit, Layer, Model, Perceptron, as_scores
from toporo.estimators.rows import Scaling
from toporo.estimators.settings import PENALTY, Net, Settings
from toporo.estimators.training_rows import TrainingRows
from toporo.objectives import ERM, TRO, GroupDRO, Objective
from toporo.robust.rows import chunks
from toporo.topology.prior import Prior
from toporo.training import MLP, Batches, TrainingPlan
from toporo.training import fit as fit_network
from toporo.types import Array, Name


class TorchModule(Model):
    """Trained module of the user's own, on scaled rows; only its code can make it again, so it cannot be stored."""

    def __init__(self, net: nn.Module, inputs: Scaling, targets: Scaling | None, device: Any) -> None:
        self.net, self.inputs, self.targets, self.device = net, inputs, targets, device

    def __call__(self, x: npt.NDArray[Any]) -> Array:
        """Predict with the device that trained the module."""
        _check_device(self.device)
        dtype = next((p.dtype for p in self.net.parameters() if p.is_floating_point()), torch.float32)
        self.net.to(self.device).eval()
        outputs = []
        with torch.no_grad():
            for part in chunks(len(x)):
                scaled = torch.as_tensor(self.inputs.apply(x[part]), dtype=dtype).to(self.device)
                outputs.append(self.net(scaled).reshape(len(scaled), -1).double().cpu().numpy())
        return as_scores(np.concatenate(outputs), self.targets)

    def packed(self) -> Model:
        """Raise: a module is code."""
        raise SettingError(
            f"a network of one's own ({type(self.net).__name__}) cannot be stored, because only its code can make it "
            "again. Use Net without a module, or save estimator.model_.net.state_dict() beside that code."
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of inputs, and of outputs for a row of zeros."""
        inputs = len(self.inputs.scale)
        return inputs, self(np.zeros((1, inputs))).shape[1]


def fit(
    rows: TrainingRows, prior: Prior | None, settings: Settings, plan: Net, *, group_dro: bool
) -> tuple[Fit, Mapping[Name, float]]:
    """Train a network, and return it and the last weights of the groups.

    Parameters
    ----------
    rows : to train on; in memory.
    prior : over the groups; None for a single one.
    settings : of the estimator.
    plan : the network.
    group_dro : use the updates of group DRO for the weights of the groups, not those of TRO.
    """
    penalty = math.inf if prior is None else settings.penalty
    if penalty is None and settings.radius is None:
        penalty = PENALTY
    ridge = RIDGE if settings.ridge is None else settings.ridge
    rows.warn_of_one_class(penalty)
    objective: Objective = ERM(rows.groups)
    if prior is not None and group_dro:
        objective = GroupDRO(rows.groups, step=plan.step or 0.01)
    elif prior is not None:
        objective = TRO(
            prior,
            PENALTY if penalty is None else penalty,
            plan.step or 0.1,
            divergence=settings.divergence,
            radius=settings.radius,
        )
    _check_device(plan.device)
    training = TrainingPlan(
        rounds=plan.epochs,
        learning_rate=plan.learning_rate,
        weight_decay=2.0 * ridge,  # the gradient of ridge * |theta|^2
        seed=settings.seed,
        device=str(plan.device),
    )
    net = MLP(rows.width, rows.outputs, plan.hidden, seed=settings.seed)
    if plan.module is not None:
        net = copy.deepcopy(plan.module).float()
    history = _train(net, rows, objective, training, plan.per_group)
    net.to("cpu").eval()
    model: Model = TorchModule(net, rows.inputs, rows.targets, plan.device)
    if plan.module is None:
        linear = [each.double() for each in net.modules() if isinstance(each, nn.Linear)]
        layers = tuple(Layer(each.weight.detach().numpy(), each.bias.detach().numpy()) for each in linear)
        model = Perceptron(rows.inputs, rows.targets, layers)
    found = Fit(
        model=model,
        scaling=rows.inputs,
        group_losses=rows.losses_of_scores(model(rows.in_memory.x)),
        penalty=penalty,
        ridge=ridge,
        choice=None,
        history=tuple(history),
    )
    return found, {name: float(weight) for name, weight in objective.weights.items()}


def _train(net: nn.Module, rows: TrainingRows, objective: Objective, plan: TrainingPlan, per_group: int) -> Any:
    """Train in place and return the history.

    A row's weight goes with its target, as the last column, in units of its group's mean weight.
    """
    known = rows.in_memory
    x = rows.inputs.apply(known.x, np.float32)
    _check_outputs(net, x[: min(len(x), 2)], rows)
    means = known.mass / np.bincount(known.ids.codes)
    targets = rows.targets.apply(known.y) if rows.targets is not None else known.y[:, None].astype(np.float64)
    data = GroupedData(
        x,
        np.column_stack([targets, known.shares / means[known.ids.codes]]).astype(np.float32),
        np.asarray(known.ids.codes, dtype=np.int64),
        rows.groups,
    )
    loss: Callable[[Tensor, Tensor], Tensor] = _log_loss if rows.targets is None else _squared_error
    return fit_network(net, objective, Batches.of(data, per_group), loss, plan).history


def _squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the mean over outputs, times the row's weight."""
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


def _check_outputs(net: nn.Module, x: npt.NDArray[Any], rows: TrainingRows) -> None:
    """Raise unless a module takes the rows and returns as many numbers as there are classes or targets."""
    kind = f"{rows.outputs} {'classes' if rows.labels is not None else 'target(s)'}"
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
    if rows.outputs == 1 or (rows.labels is not None and rows.outputs == 2):
        allowed += [(len(x),), (len(x), 1)]
    if shape not in allowed or not answer.is_floating_point():
        got = f"shape {shape}" if shape is not None else f"a {type(answer).__name__}"
        raise DataError(
            f"the network gives {got} for {len(x)} row(s): expected {' or '.join(map(str, allowed))}, "
            f"for {kind}{' (log-odds, without a softmax or sigmoid)' if rows.labels is not None else ''}."
        )
