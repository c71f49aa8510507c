"""Hugging Face's ``Trainer``, with an objective in place of the mean loss.

.. code-block:: python

    objective = tr.objectives.TRO(prior)
    trainer = ObjectiveTrainer(model, args, train_dataset=rows, objective=objective, group="hospital")
    trainer.train()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toporo.errors import DataError, SettingError
from toporo.groups import Groups
from toporo.objectives import Objective
from toporo.training import reset_state
from toporo.training.checkpoint import read_checkpoint, write_checkpoint

try:
    from transformers import Trainer
except ImportError as error:
    raise SettingError(
        f"toporo.integrations.transformers needs Hugging Face's transformers and accelerate, which cannot be imported "
        f"({error}): pip install 'toporo[transformers]'."
    ) from error

#: The file in a checkpoint's folder that holds the objective's state.
STATE = "objective.safetensors"


class ObjectiveTrainer(Trainer):
    """A ``Trainer`` whose loss is an objective of per-sample losses and groups.

    The group of a row is a column of the training data, by name; it is kept from ``remove_unused_columns`` and from
    the model. The objective's state is a file in every checkpoint, and training resumes from it exactly. With several
    ranks the objective joins them (:meth:`~toporo.objectives.Objective.over_ranks`). Optimisers get its ``betas`` and
    its own parameters, and their state is reset when its warm-up is over.

    A value is the objective of one batch, divided by the number of batches that a step of the optimiser accumulates;
    with ``gradient_accumulation_steps`` weights move with every batch. In evaluation the loss is the mean over samples,
    and rows need no group.

    Parameters
    ----------
    args : arguments of ``Trainer``.
    objective : what a step minimises, built with all training groups.
    group : the column with the name of each row's group.
    loss : per-sample task loss ``(outputs, labels) -> (n,)``; by default cross entropy of ``outputs.logits``, which are
        (n, classes), for integer labels, and the squared error for others.
    features : ``outputs -> (n, d)``, for methods that compare features, e.g. ``lambda o: o.hidden_states[-1][:, 0]``.
    kwargs : arguments of ``Trainer``.
    """

    def __init__(
        self,
        *args: Any,
        objective: Objective,
        group: str = "group",
        loss: Callable[[Any, Tensor], Tensor] | None = None,
        features: Callable[[Any], Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        if "features" in objective.needs and features is None:
            raise SettingError(
                f"{type(objective).__name__} compares features: say which, e.g. features=lambda outputs: "
                "outputs.hidden_states[-1][:, 0], with output_hidden_states=True in the model's config."
            )
        self.objective, self.group = objective, group
        self._loss, self._features = loss or sample_losses, features
        self._calls = 0
        super().__init__(*args, **kwargs)
        if self.args.label_smoothing_factor or kwargs.get("compute_loss_func"):
            raise SettingError(
                "label_smoothing_factor and compute_loss_func would give one loss for the whole batch: give loss=, one "
                "per sample, e.g. lambda o, y: F.cross_entropy(o.logits, y, reduction='none', label_smoothing=0.1)."
            )
        # The Trainer is to divide a batch's value by the batches of a step. Release 4 reads the first of these.
        self.model_accepts_loss_kwargs = False
        self.loss_is_scaled_for_ga = False
        self.data_collator: Any = partial(_collate, collate=self.data_collator, column=group)
        if self.args.world_size > 1:
            objective.over_ranks()

    def get_train_dataloader(self) -> Any:
        """The Trainer's, with the codes of the rows' groups in its batches."""
        without_groups = self.data_collator
        self.data_collator = partial(without_groups, groups=self.objective.groups)
        try:
            return super().get_train_dataloader()
        finally:
            self.data_collator = without_groups

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        if self.group not in self._signature_columns:
            self._signature_columns.append(self.group)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's, with the objective's parameters and betas."""
        fresh = self.optimizer is None
        optimizer = super().create_optimizer(*args, **kwargs)
        own = list(self.objective.to(self.args.device).parameters())
        if fresh and own:
            optimizer.add_param_group({"params": own})
        if fresh and self.objective.betas != Objective.betas:
            for group in optimizer.param_groups:
                if "betas" in group:
                    group["betas"] = self.objective.betas
        return optimizer

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ARG002  # the Trainer's signature
    ) -> Any:
        """The objective in training, the mean loss in evaluation.

        Parameters
        ----------
        model : the network.
        inputs : a batch.
        return_outputs : return the network's outputs, too.
        num_items_in_batch : ignored: an objective is of one batch.
        """
        inputs = dict(inputs)
        codes = inputs.pop(self.group, None)
        outputs = model(**inputs)
        losses = self._loss(outputs, inputs["labels"])
        if model.training:
            if self._calls and self._calls == self.objective.warm_up:
                reset_state(self.optimizer)
            self._calls += 1
            extra: dict[str, Any] = {"logits": lambda outputs: outputs.logits, "features": self._features}
            value = self.objective(losses, codes, **{name: extra[name](outputs) for name in self.objective.needs})
        else:
            value = losses.mean()
        return (value, outputs) if return_outputs else value

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            write_checkpoint(Path(output_dir) / STATE, self.objective.state_dict(), {"calls": self._calls})

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        try:
            state, about = read_checkpoint(Path(checkpoint) / STATE)
        except (FileNotFoundError, DataError) as error:
            raise DataError(
                f"{Path(checkpoint) / STATE} cannot be read ({error}), so the weights of the groups are unknown: "
                "resume from a checkpoint that an ObjectiveTrainer has written whole, or train anew."
            ) from None
        self.objective.load_state_dict(state)
        self._calls = int(about["calls"])


def _collate(
    rows: Sequence[dict[str, Any]], *, collate: Callable[..., Any], column: str, groups: Groups | None = None
) -> Any:
    """A batch by any collator without the column of groups, or with their codes in its place."""
    batch = collate([{key: value for key, value in row.items() if key != column} for row in rows])
    if groups is not None:
        missing = [row for row in rows if column not in row]
        if missing:
            raise DataError(
                f"rows of the training data have no column {column!r}, but {', '.join(missing[0])}: say which has the "
                "groups, group=NAME."
            )
        batch[column] = torch.as_tensor(groups.encode([row[column] for row in rows]))
    return batch


def sample_losses(outputs: Any, labels: Tensor) -> Tensor:
    """Cross entropy for integer labels, the squared error for others, one per sample.

    Parameters
    ----------
    outputs : outputs of the model; their ``logits`` are (n, classes), or (n, values).
    labels : (n,), or (n, values).
    """
    logits = outputs.logits.float()
    if logits.ndim != 2 or labels.ndim > 2:
        raise DataError(
            f"logits of shape {tuple(logits.shape)} and labels of shape {tuple(labels.shape)}: the loss of a sample "
            "depends on the task. Give loss=, a function of outputs and labels that returns one loss per sample."
        )
    if labels.is_floating_point():
        return F.mse_loss(logits, labels.view(len(logits), -1).float(), reduction="none").mean(dim=1)
    return F.cross_entropy(logits, labels, reduction="none")
