"""Settings of a training run, and the device it uses."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from toporo.checks import non_negative, one_of, positive, whole
from toporo.errors import SettingError

UNITS = ("epochs", "steps")
PRECISIONS = ("fp32", "bf16")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class TrainingPlan:
    """Length and settings of a training run with Adam.

    Parameters
    ----------
    rounds : length of the run.
    unit : ``"epochs"`` (passes over the largest group) or ``"steps"``; also the unit of ``average`` and
        ``evaluate_every``.
    learning_rate, weight_decay : Adam's.
    seed : of the order of the rows, augmentation and dropout.
    average : number of rounds after which the weights of every step are averaged: the network ends with the mean as
        its weights. None keeps the last ones.
    half_life : epochs in which the learning rate halves; None keeps it constant.
    evaluate_every : rounds between evaluations; the last round is always evaluated.
    precision : ``"fp32"``, or ``"bf16"`` for automatic mixed precision.
    device : ``"cpu"`` or ``"cuda"``; see :func:`pick_device`.
    graph : compile the network, capture a step as a CUDA graph and replay it. The network and its augmentation must
        then work without Python code that depends on values.
    """

    rounds: int = 20
    unit: str = "epochs"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    seed: int = 0
    average: int | None = None
    half_life: float | None = None
    evaluate_every: int = 1
    precision: str = "fp32"
    device: str = "cpu"
    graph: bool = False

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("evaluate_every", 1), ("seed", 0)):
            object.__setattr__(self, name, whole(getattr(self, name), name, least))  # 3 for 3.0
        non_negative(self.weight_decay, "weight_decay")
        positive(self.learning_rate, "learning_rate")
        one_of(self.unit, "unit", UNITS)
        one_of(self.precision, "precision", PRECISIONS)
        if self.half_life is not None:
            positive(self.half_life, "half_life")
            if self.unit != "epochs" or self.graph:
                raise SettingError(f"half_life={self.half_life}: expected unit='epochs' and graph=False with it.")
        if self.graph and not self.on_gpu:
            raise SettingError(f"graph=True, but the device is {self.device!r}: only a GPU captures steps.")
        if self.average is not None:
            whole(self.average, "average", 0, self.rounds - 1, f", fewer than the {self.rounds} {self.unit} of the run")

    @property
    def on_gpu(self) -> bool:
        """True if the device is a CUDA GPU."""
        return torch.device(self.device).type == "cuda"


def pick_device(name: str = "auto") -> str:
    """Return ``"cuda"`` or ``"cpu"``.

    Parameters
    ----------
    name : either, or ``"auto"`` for the GPU if there is one. A GPU that is not there is an error.
    """
    one_of(name, "device", DEVICES)
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if not torch.cuda.is_available():
        raise SettingError(
            f"no GPU: PyTorch {torch.__version__} finds none that it can use. Use the device 'cpu' (slow), or a CUDA "
            "build of PyTorch on a machine with an NVIDIA GPU."
        )
    return "cuda"
