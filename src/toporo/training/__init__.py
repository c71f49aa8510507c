"""A small network for plain rows, the training loop, its checkpoints and its progress."""

from toporo.training.loop import (
    RoundRecord,
    TrainSettings,
    accuracy_by_group,
    features_of,
    load_checkpoint,
    outputs_of,
    reset_state,
    save_checkpoint,
    train,
)
from toporo.training.mlp import MLP
from toporo.training.steps import Resident, Stepper, StepSettings, Trained, outputs_at, pick_device, train_steps

__all__ = [
    "MLP",
    "Resident",
    "RoundRecord",
    "StepSettings",
    "Stepper",
    "TrainSettings",
    "Trained",
    "accuracy_by_group",
    "features_of",
    "load_checkpoint",
    "outputs_at",
    "outputs_of",
    "pick_device",
    "reset_state",
    "save_checkpoint",
    "train",
    "train_steps",
]
