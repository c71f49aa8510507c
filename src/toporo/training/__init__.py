"""The training loop, its checkpoints and its progress."""

from toporo.training.checkpoint import load_checkpoint, save_checkpoint
from toporo.training.loop import EpochRecord, TrainSettings, accuracy_by_group, features_of, outputs_of, train

__all__ = [
    "EpochRecord",
    "TrainSettings",
    "accuracy_by_group",
    "features_of",
    "load_checkpoint",
    "outputs_of",
    "save_checkpoint",
    "train",
]
