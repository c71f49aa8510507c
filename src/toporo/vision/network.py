"""Base class of networks for images."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from toporo.errors import DataError


class ImageNetwork(nn.Module, ABC):
    """A network that encodes images into maps, pools the deepest ones to features, and decodes both into logits.

    Attributes
    ----------
    channels : number of channels of an input.
    width : number of features.
    """

    channels: int
    width: int

    @abstractmethod
    def encode(self, x: Tensor) -> list[Tensor]:
        """Return maps, the deepest last."""

    @abstractmethod
    def decode(self, maps: list[Tensor], features: Tensor, size: torch.Size) -> Tensor:
        """Return logits from the maps, their features, and height and width of the input."""

    def features(self, x: Tensor) -> Tensor:
        """Return the mean of the deepest maps over positions: ``(n, width)``."""
        return self.encode(x)[-1].mean((2, 3))

    def with_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and features, computed once."""
        maps = self.encode(x)
        features = maps[-1].mean((2, 3))
        return self.decode(maps, features, x.shape[2:]), features

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.with_features(x)[0]

    def _check_input(self, x: Tensor) -> None:
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise DataError(
                f"expected inputs of shape (samples, {self.channels}, height, width), as this network was made for "
                f"{self.channels} channels; found {tuple(x.shape)}."
            )
        if not x.is_floating_point():
            raise DataError(
                f"expected floating-point inputs, colours between 0 and 1; found {x.dtype}. Divide bytes by 255."
            )
