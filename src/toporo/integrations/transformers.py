"""Hugging Face's ``Trainer``, with an objective in place of the mean loss.

.. code-block:: python

    objective = tr.objectives.TRO(prior)
    trainer = ObjectiveTrainer(model, args, train_dataset=rows, objective=objective, group="hospital")
    trainer.train()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import Trainer  # pip install 'toporo[transformers]'

from toporo.errors import DataError, SettingError, listed
from toporo.objectives import Objective
from toporo.training import reset_state
from toporo.training.checkpoint import read_checkpoint, write_checkpoint

#: Name of the file in a checkpoint's folder that holds the objective's state.
STATE = "objective.safetensors"


def cross_entropy(outputs: Any, labels: Tensor) -> Tensor:
    """Return the cross entropy of ``outputs.logits``, (n, classes), for integer labels (n,), one per sample."""
    return F.cross_entropy(outputs.logits.float(), labels, reduction="none")


class ObjectiveTrainer(Trainer):
    """A ``Trainer`` whose loss is an objective of per-sample losses and groups.

    A column of the training data names the group of each row; the model does not see it. Every checkpoint has a file
    with the objective's state, from which training resumes exactly. With several ranks the objective joins them
    (:meth:`~toporo.objectives.Objective.over_ranks`). Optimisers get the objective's ``betas``, and their state is
    reset when its warm-up is over.

    The loss of a step is the objective of each batch, averaged over the batches that the step accumulates; with
    ``gradient_accumulation_steps`` group weights change with every batch. In evaluation the loss is the mean over
    samples, and rows need no group.

    Parameters
    ----------
    args : arguments of ``Trainer``.
    objective : the quantity that a step minimises, built with all training groups.
    group : column with the name of each row's group.
    loss : per-sample loss ``(outputs, labels) -> (n,)``, e.g. for numbers
        ``lambda outputs, labels: (outputs.logits[:, 0] - labels) ** 2``.
    features : ``outputs -> (n, d)``, for methods that compare features, e.g. ``lambda o: o.hidden_states[-1][:, 0]``
        with ``output_hidden_states=True`` in the model's config.
    kwargs : keyword arguments of ``Trainer``.
    """

    def __init__(
        self,
        *args: Any,
        objective: Objective,
        group: str = "group",
        loss: Callable[[Any, Tensor], Tensor] = cross_entropy,
        features: Callable[[Any], Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        self.objective, self.group, self._loss, self._features, self._calls = objective, group, loss, features, 0
        super().__init__(*args, **kwargs)
        if self.args.label_smoothing_factor or kwargs.get("compute_loss_func"):
            raise SettingError(
                "label_smoothing_factor and compute_loss_func would give one loss for the whole batch: give loss=, one "
                "per sample, e.g. lambda o, y: F.cross_entropy(o.logits, y, reduction='none', label_smoothing=0.1)."
            )
        # Have the Trainer divide by the number of accumulated batches. Release 4 reads the first of these.
        self.model_accepts_loss_kwargs = self.loss_is_scaled_for_ga = False
        self._collate: Any = self.data_collator
        self.data_collator: Any = self._collate_with_codes
        if objective.betas != Objective.betas:
            self.args.adam_beta1, self.args.adam_beta2 = objective.betas
        if self.args.world_size > 1:
            objective.over_ranks()

    def _collate_with_codes(self, rows: Sequence[dict[str, Any]]) -> Any:
        """Batch with the codes of the groups in place of their names; −1 for rows that can only be evaluated."""
        groups, names = self.objective.groups, [row.get(self.group) for row in rows]
        codes = [groups.encode([name])[0] if name in groups else -1 for name in names]
        bare = [{key: value for key, value in row.items() if key != self.group} for row in rows]
        return {**self._collate(bare), self.group: torch.tensor(codes)}

    def _prepare_inputs(self, inputs: dict[str, Any]) -> Any:
        self._codes = inputs.pop(self.group)
        return super()._prepare_inputs(inputs)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        if self.group not in self._signature_columns:
            self._signature_columns.append(self.group)

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any) -> Any:
        outputs = model(**inputs)
        losses = self._loss(outputs, inputs["labels"])
        if model.training:
            features = None if self._features is None else self._features(outputs)
            if (self._codes < 0).any():
                raise DataError(
                    f"rows of the training data have no group in the column {self.group!r}, or one that the objective "
                    f"does not know: expected {listed(self.objective.groups)}. Give the column's name, group=NAME, and "
                    "build the objective with all training groups."
                )
            if self._calls and self._calls == self.objective.warm_up:
                reset_state(self.optimizer)
            self._calls += 1
            value = self.objective(losses, self._codes, logits=getattr(outputs, "logits", None), features=features)
        else:
            value = losses.mean()
        return (value, outputs) if return_outputs else value

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            write_checkpoint(Path(output_dir) / STATE, self.objective.state_dict(), {"calls": self._calls})

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            state, about = read_checkpoint(Path(checkpoint) / STATE)
            self.objective.load_state_dict(state)
            self._calls = int(about["calls"])
