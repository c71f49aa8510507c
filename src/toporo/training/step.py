"""One training step, repeated without waiting for the device.

Row numbers and random numbers of many steps are copied to the device at once, and losses are summed there. With
``graph``, the network is compiled and the whole step (gathering, augmentation, forward, objective, backward, optimiser)
is captured once as a CUDA graph and replayed.

On a CPU the same seed gives the same bytes. On a GPU the hardware determines the order of sums, and runs agree up to
rounding.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from toporo.objectives import Objective
from toporo.training.average import UniformAverage
from toporo.training.batches import Batches, RowNumbers
from toporo.training.plan import TrainingPlan

#: Per-sample task loss: (outputs, targets) to (n,).
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]

#: Steps done one by one before the graph is captured: compilation, choice of kernels and the optimiser's state.
WARM_UP = 3
#: Beginning of the names of the optimiser's state.
OPTIMIZER = "optimizer."


class Stepper:
    """Trains a network step by step, as :func:`fit` does.

    Parameters
    ----------
    network, objective, batches, loss, plan : as in :func:`fit`.
    """

    def __init__(
        self, network: nn.Module, objective: Objective, batches: Batches, loss: Loss, plan: TrainingPlan
    ) -> None:
        batches.rows.groups.require_same(objective.groups, what=f"the groups of {type(objective).__name__}")
        device = torch.device(plan.device)
        self.network, self.objective, self.plan = network.to(device), objective.to(device), plan
        if plan.on_gpu:
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch has it
        self.optimizer = torch.optim.Adam(
            network.parameters(),
            lr=plan.learning_rate,
            betas=objective.betas,
            weight_decay=plan.weight_decay,
            fused=plan.on_gpu or None,
            capturable=plan.on_gpu,
        )
        averaged: dict[str, nn.Module] = {}
        self.average: UniformAverage | None = None
        if plan.average is not None:
            self.average = averaged["average"] = UniformAverage(network, batches.steps(plan, plan.average))
        self._modules = nn.ModuleDict({"model": network, "objective": objective, **averaged})
        #: Steps done, also before a run was resumed.
        self.done = 0
        self._loss, self._forward, self._prepare = loss, _forward, batches.prepare
        if plan.graph:
            self._forward = _compiled(_forward)
            self._prepare = None if batches.prepare is None else _compiled(batches.prepare)
        codes = torch.full((len(batches.x),), -1, dtype=torch.long)
        codes[torch.as_tensor(batches.numbers)] = torch.as_tensor(batches.rows.codes, dtype=torch.long)
        self._x, self._y, self._codes = (value.to(device) for value in (batches.x, batches.y, codes))
        #: Row numbers and random numbers of the present step, and the sum of losses: a graph reads and writes these.
        self._rows = torch.zeros(batches.size, dtype=torch.long, device=device)
        self._uniforms = torch.zeros((batches.size, batches.draws), device=device)
        self._total = torch.zeros((), device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._early = 0  # steps done before the graph is captured

    def run(self, rows: RowNumbers, uniforms: npt.NDArray[np.float32]) -> float:
        """Do some steps and return their mean loss, which waits for the device.

        Parameters
        ----------
        rows : row numbers, (steps, rows).
        uniforms : random numbers, (steps, rows, draws).
        """
        self.network.train()
        self.objective.train()
        self._total.zero_()
        drawn = (torch.as_tensor(values).to(self._x.device) for values in (rows, uniforms))
        for step_rows, step_uniforms in zip(*drawn, strict=True):
            self._rows.copy_(step_rows)
            self._uniforms.copy_(step_uniforms)
            if self.done and self.done == self.objective.warm_up:
                reset_state(self.optimizer)
            if self.plan.graph:
                self._replay()
            else:
                self._step()
            if self.average is not None:
                self.average.step(self.network, self.done)
            self.done += 1
        return float(self._total) / len(rows)

    def _replay(self) -> None:
        """Replay a step. The first steps run in a separate stream, and the next one is captured."""
        if self._early < WARM_UP:
            self._early += 1
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._step()
            torch.cuda.current_stream().wait_stream(side)
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(self._graph):
                self._step()
        self._graph.replay()

    def _step(self) -> None:
        x, y = self._x.index_select(0, self._rows), self._y.index_select(0, self._rows)
        if self._prepare is not None:
            with torch.no_grad():
                x, y = self._prepare(x, y, self._uniforms)
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.plan):
            outputs, features = self._forward(self.network, x, "features" in self.objective.needs)
        if self.plan.precision != "fp32":
            outputs, features = outputs.float(), None if features is None else features.float()
        losses = self._loss(outputs, y)
        codes = self._codes.index_select(0, self._rows)
        self.objective(losses, codes, logits=outputs, features=features).backward()
        self.optimizer.step()
        self._total.add_(losses.detach().mean())

    def state(self) -> dict[str, Tensor]:
        """State of network, objective, average and optimiser as tensors by name."""
        state: dict[str, Tensor] = self._modules.state_dict()
        for index, values in self.optimizer.state_dict()["state"].items():
            state |= {f"{OPTIMIZER}{index}.{key}": value for key, value in values.items()}
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a :meth:`state`; torch raises an error if it is of another network or objective."""
        self._modules.load_state_dict({name: state[name] for name in state if not name.startswith(OPTIMIZER)})
        by_parameter: defaultdict[int, dict[str, Tensor]] = defaultdict(dict)
        for name in (name for name in state if name.startswith(OPTIMIZER)):
            index, _, key = name.removeprefix(OPTIMIZER).partition(".")
            by_parameter[int(index)][key] = state[name]
        groups = self.optimizer.state_dict()["param_groups"]  # settings come from the plan
        self.optimizer.load_state_dict({"state": dict(by_parameter), "param_groups": groups})


def _forward(network: Any, x: Tensor, features: bool) -> tuple[Tensor, Tensor | None]:
    return network.with_features(x) if features else (network(x), None)


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile once per process: for the second network of an architecture it is ready."""
    return torch.compile(function, dynamic=False)


def autocast(plan: TrainingPlan) -> torch.autocast:
    """Context with the plan's precision."""
    # Without the cache of converted weights, or a graph would replay steps with the weights of the first.
    device, mixed = torch.device(plan.device).type, plan.precision == "bf16"
    return torch.autocast(device, dtype=torch.bfloat16, enabled=mixed, cache_enabled=False)


def reset_state(optimizer: torch.optim.Optimizer) -> None:
    """Reset an optimiser's state to zero, as before its first step, in place, where captured CUDA graphs read it.

    In your own training loop, call it after ``objective.warm_up`` steps, unless that is 0.

    Parameters
    ----------
    optimizer : the optimiser.
    """
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()
