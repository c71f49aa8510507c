"""Lightning: a callback that manages an objective while a ``LightningModule`` trains with it.

.. code-block:: python

    class Network(L.LightningModule):
        def training_step(self, batch, _):
            x, y, groups = batch
            return self.objective(F.cross_entropy(self(x), y, reduction="none"), groups)

    trainer = L.Trainer(callbacks=[ObjectiveCallback(tr.objectives.TRO(prior))])
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback  # pip install 'toporo[lightning]'

from toporo.objectives import Objective
from toporo.training import reset_state


class ObjectiveCallback(Callback):
    """Train a ``LightningModule`` with an objective: the module's ``training_step`` returns ``self.objective(…)``.

    The callback gives the module the objective, stores its state in Lightning's checkpoints, joins the ranks if there
    are several (:meth:`~toporo.objectives.Objective.over_ranks`), resets the state of optimisers when the objective's
    warm-up is over, and holds the objective's state during validation and tests.

    The objective is not a submodule, so strategies such as DDP and FSDP leave it alone. Give optimisers its ``betas``.
    With ``accumulate_grad_batches`` its state changes with every batch, not with every step of the optimiser.

    Parameters
    ----------
    objective : the quantity that a step minimises, built with all training groups.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._calls = 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002  # Lightning's signature
        vars(pl_module)["objective"] = self.objective  # setattr would make it a submodule

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.objective.to(pl_module.device)
        if trainer.world_size > 1:
            self.objective.over_ranks()

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self.objective.train()
        if self._calls and self._calls == self.objective.warm_up:
            for optimizer in trainer.optimizers:
                reset_state(optimizer)
        self._calls += 1

    def on_validation_start(self, *_: Any) -> None:
        self.objective.eval()

    on_test_start = on_validation_start

    def state_dict(self) -> dict[str, Any]:
        return {"objective": self.objective.state_dict(), "calls": self._calls}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.objective.load_state_dict(state_dict["objective"])
        self._calls = int(state_dict["calls"])
