"""Networks that predict a class for every pixel."""

from __future__ import annotations

from math import gcd

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toporo.errors import DataError
from toporo.vision.network import ImageNetwork
from toporo.vision.resnet import NORMS, ResNet


class FCN(ImageNetwork):
    """A fully convolutional network [1]_ on a ResNet that keeps an eighth of the resolution, as torchvision builds it.

    With two channels it is the baseline of Sen1Floods11 [2]_ with group normalisation and without the auxiliary head:
    the deepest maps pass a 3×3 convolution to a quarter of their channels, a norm, a ReLU, dropout of 0.1 and a 1×1
    convolution, and the logits are interpolated to the input's size. Inputs are standardised, 0 for pixels without a
    measurement; with three channels they are colours in [0, 1], which :class:`~toporo.vision.ResNet` standardises.

    Parameters
    ----------
    outputs : number of classes.
    channels : number of channels of the input; radar has two, VV and VH.
    depth : 18 or 50, that of the ResNet.
    seed : determines the initial weights.

    References
    ----------
    .. [1] Long, Shelhamer and Darrell, "Fully convolutional networks for semantic segmentation", CVPR 2015.
    .. [2] Bonafilia et al., "Sen1Floods11: a georeferenced dataset to train and test deep learning flood algorithms for
       Sentinel-1", CVPR workshops 2020.
    """

    def __init__(self, outputs: int = 2, *, channels: int = 2, depth: int = 50, seed: int = 0) -> None:
        super().__init__()
        self.body = ResNet(outputs, depth=depth, channels=channels, norm="group", dilated=True, seed=seed)
        self.body.fc = nn.Identity()  # type: ignore[assignment]  # no layer may be unused
        self.channels, self.width = channels, self.body.width
        inner = self.width // 4
        self.norm = NORMS["group"](inner, self.body.style.eps)
        self.drop = nn.Dropout(0.1)
        with torch.device("meta"):
            self.reduce = nn.Conv2d(self.width, inner, 3, padding=1, bias=False)
            self.head = nn.Conv2d(inner, outputs, 1)
        # Another random stream: with the ResNet's seed, these layers would start with the same numbers.
        stream = int(np.random.SeedSequence([seed, 1]).generate_state(1, np.uint32)[0])
        generator = torch.Generator().manual_seed(stream)
        for layer in (self.reduce, self.head):
            _draw(layer.to_empty(device="cpu"), generator, last=layer is self.head)

    def encode(self, x: Tensor) -> list[Tensor]:
        return self.body.encode(x)

    def decode(self, maps: list[Tensor], features: Tensor, size: torch.Size) -> Tensor:  # noqa: ARG002  # from maps
        inner = self.norm(self.reduce(maps[-1])).relu()
        return F.interpolate(self.head(self.drop(inner)), size=size, mode="bilinear", align_corners=False)


class UNet(ImageNetwork):
    """A small U-Net (Ronneberger et al., 2015): ``levels`` halvings, as many doublings, and skip connections.

    Every block has two 3×3 convolutions, each with group normalisation and a ReLU; the first has ``base`` channels and
    each level doubles them. As batches are small, the logits of a tile do not depend on the other tiles.

    Parameters
    ----------
    outputs : number of classes.
    channels : number of channels of the input; radar has two, VV and VH.
    base : number of channels of the first block.
    levels : number of halvings; height and width must be multiples of ``2**levels``.
    seed : determines the initial weights.
    """

    def __init__(self, outputs: int = 2, *, channels: int = 2, base: int = 16, levels: int = 3, seed: int = 0) -> None:
        super().__init__()
        sizes = [base * 2**level for level in range(levels + 1)]
        self.channels, self.width, self.multiple = channels, sizes[-1], 2**levels
        with torch.device("meta"):  # without drawing from the global random stream
            self.down = nn.ModuleList(
                _block(before, after) for before, after in zip([channels, *sizes[:-1]], sizes, strict=True)
            )
            self.pool = nn.MaxPool2d(2)
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, stride=2) for size in reversed(sizes[:-1]))
            self.join = nn.ModuleList(_block(2 * size, size) for size in reversed(sizes[:-1]))
            self.head = nn.Conv2d(base, outputs, 1)
        self.to_empty(device="cpu")
        generator = torch.Generator().manual_seed(seed)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
                _draw(layer, generator, last=layer is self.head)
            elif isinstance(layer, nn.GroupNorm):
                layer.reset_parameters()

    def encode(self, x: Tensor) -> list[Tensor]:
        self._check_input(x)
        height, width = x.shape[2:]
        if min(height, width) < 1 or height % self.multiple or width % self.multiple:
            raise DataError(
                f"expected a height and width that are multiples of {self.multiple}, 2 to the number of levels; found "
                f"{height} and {width}. Cut or pad the inputs, or make the network with fewer levels."
            )
        maps = [self.down[0](x.to(self.head.weight.dtype))]
        for block in self.down[1:]:
            maps.append(block(self.pool(maps[-1])))
        return maps

    def decode(self, maps: list[Tensor], features: Tensor, size: torch.Size) -> Tensor:  # noqa: ARG002  # from maps
        *skipped, merged = maps
        for up, join, level in zip(self.up, self.join, reversed(skipped), strict=True):
            raised = up(merged)
            merged = join(torch.cat([level.to(raised.dtype), raised], dim=1))
        logits: Tensor = self.head(merged)
        return logits


def _block(before: int, after: int) -> nn.Sequential:
    """Return 3×3 convolution, normalisation over each quarter of the channels and ReLU, twice."""
    layers: list[nn.Module] = []
    for inputs in (before, after):
        layers += [
            nn.Conv2d(inputs, after, 3, padding=1, bias=False),  # the norm adds one
            nn.GroupNorm(gcd(after, 4), after),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


@torch.no_grad()
def _draw(layer: nn.Conv2d | nn.ConvTranspose2d, generator: torch.Generator, *, last: bool) -> None:
    """Draw initial weights: torch's default for the last layer, He's by fan-in and zero biases for others."""
    # An output pixel of the transposed convolutions (2×2, stride 2) comes from one pixel.
    pixels = 1 if isinstance(layer, nn.ConvTranspose2d) else layer.weight[0, 0].numel()
    bound = (layer.in_channels * pixels) ** -0.5
    if last:
        layer.weight.uniform_(-bound, bound, generator=generator)
    else:
        layer.weight.normal_(0, 2**0.5 * bound, generator=generator)
    if layer.bias is not None:
        layer.bias.uniform_(-bound, bound, generator=generator) if last else layer.bias.zero_()
