"""Train a network with an objective: :func:`fit`, its plan, batches, checkpoints and records."""

from toporo.training.batches import Batches
from toporo.training.checkpoint import read_checkpoint
from toporo.training.loop import FitResult, fit
from toporo.training.mlp import MLP
from toporo.training.outputs import outputs_at, outputs_of
from toporo.training.plan import TrainingPlan, pick_device
from toporo.training.record import RoundRecord
from toporo.training.step import Stepper, reset_state

__all__ = [
    "MLP",
    "Batches",
    "FitResult",
    "RoundRecord",
    "Stepper",
    "TrainingPlan",
    "fit",
    "outputs_at",
    "outputs_of",
    "pick_device",
    "read_checkpoint",
    "reset_state",
]
