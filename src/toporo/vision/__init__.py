"""Networks for images by name, published weights, augmentation, label maps and images on the training device."""

from __future__ import annotations

from functools import partial
from typing import Any

from toporo.checks import one_of
from toporo.errors import SettingError
from toporo.vision.augmentation import DRAWS, DRAWS_TILES, augment, flip_rotate, unit_range
from toporo.vision.device import images_on_device
from toporo.vision.label_maps import accuracy, count_pixels, f1, iou, pixel_loss
from toporo.vision.network import ImageNetwork
from toporo.vision.resnet import STYLES, ResNet, Style
from toporo.vision.segmentation import FCN, UNet
from toporo.vision.weights import Weights, load_weights, read_weights

__all__ = [
    "DRAWS",
    "DRAWS_TILES",
    "FCN",
    "NETWORKS",
    "STYLES",
    "ImageNetwork",
    "ResNet",
    "Style",
    "UNet",
    "Weights",
    "accuracy",
    "augment",
    "count_pixels",
    "f1",
    "flip_rotate",
    "images_on_device",
    "iou",
    "load_weights",
    "make_network",
    "pixel_loss",
    "read_weights",
    "unit_range",
]


#: Classes of networks by name.
NETWORKS: dict[str, partial[Any]] = {
    "resnet18": partial(ResNet, depth=18),
    "resnet50": partial(ResNet, depth=50),
    "fcn18": partial(FCN, depth=18),
    "fcn50": partial(FCN, depth=50),
    "unet": partial(UNet),
}


def make_network(
    name: str, *, outputs: int, channels: int, weights: Weights | None = None, seed: int = 0, **options: Any
) -> ImageNetwork:
    """Return a network for images by its name.

    Parameters
    ----------
    name : a key of :data:`NETWORKS`.
    outputs, channels : number of classes, and of channels of the input.
    weights : initial weights, for a ResNet; those of layers that the weights lack depend on the seed alone.
    seed : determines the initial weights.
    options : further arguments of the network's class.
    """
    make = partial(NETWORKS[one_of(name, "network", NETWORKS)], outputs, channels=channels, seed=seed, **options)
    if weights is None:
        network: ImageNetwork = make()
        return network
    if make.func is not ResNet:
        raise SettingError(
            f"weights from {weights.source}, but this network is trained from a random start: leave them out."
        )
    pretrained: ResNet = make(style=weights.style)
    load_weights(pretrained, weights)
    return pretrained
