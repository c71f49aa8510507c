"""Networks; each gives ``features(x)``, ``forward(x)`` and ``predict(x)``."""

from toporo.models.mlp import MLP
from toporo.models.networks import NETWORKS, make_network
from toporo.models.resnet import STYLES, ResNet, Style
from toporo.models.segmentation import FCN, UNet
from toporo.models.weights import Weights, load_weights, read_weights, save_weights

__all__ = [
    "FCN",
    "MLP",
    "NETWORKS",
    "STYLES",
    "ResNet",
    "Style",
    "UNet",
    "Weights",
    "load_weights",
    "make_network",
    "read_weights",
    "save_weights",
]
