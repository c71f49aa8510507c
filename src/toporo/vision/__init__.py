"""Networks for images, by name; each has ``features(x)``, ``with_features(x)`` and ``forward(x)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from toporo.errors import SettingError, UnknownNameError
from toporo.vision.device import images_on_device
from toporo.vision.resnet import STYLES, ResNet, Style
from toporo.vision.segmentation import FCN, UNet
from toporo.vision.weights import Weights, load_weights, read_weights, save_weights

__all__ = [
    "FCN",
    "NETWORKS",
    "STYLES",
    "ResNet",
    "Style",
    "UNet",
    "Weights",
    "images_on_device",
    "load_weights",
    "make_network",
    "read_weights",
    "save_weights",
]


def _resnet(depth: int) -> Callable[..., nn.Module]:
    def make(outputs: int, channels: int, weights: Weights | None, seed: int, **options: Any) -> nn.Module:
        style = STYLES["torchvision"] if weights is None else weights.style
        network = ResNet(outputs, depth=depth, channels=channels, style=style, seed=seed, **options)
        if weights is not None:
            load_weights(network, weights)
        return network

    return make


def _scratch(network: Callable[..., nn.Module], **fixed: Any) -> Callable[..., nn.Module]:
    def make(outputs: int, channels: int, weights: Weights | None, seed: int, **options: Any) -> nn.Module:
        if weights is not None:
            raise SettingError(
                f"weights from {weights.source}, but this network is trained from a random start: leave them out."
            )
        return network(outputs, channels=channels, seed=seed, **fixed, **options)

    return make


#: Name to builder: (outputs, channels, weights or None, seed, options) to a network.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": _resnet(18),
    "resnet50": _resnet(50),
    "fcn18": _scratch(FCN, depth=18),
    "fcn50": _scratch(FCN, depth=50),
    "unet": _scratch(UNet),
}


def make_network(
    name: str, *, outputs: int, channels: int, weights: Weights | None = None, seed: int = 0, **options: Any
) -> nn.Module:
    """A network for images by its name.

    Parameters
    ----------
    name : a key of :data:`NETWORKS`.
    outputs, channels : classes, and channels of the input.
    weights : initial ones, of networks that take some; those of the other layers depend on the seed alone.
    seed : of the random start.
    options : what else the network's class takes.
    """
    if name not in NETWORKS:
        raise UnknownNameError("network", name, NETWORKS)
    return NETWORKS[name](outputs, channels, weights, seed, **options)
