"""Residual networks compatible with published weights, fast to train with frozen normalisation statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toporo.checks import one_of
from toporo.errors import SettingError
from toporo.training.mlp import _linear
from toporo.vision.network import ImageNetwork


@dataclass(frozen=True)
class Style:
    """Architecture details and input scaling that published weights need.

    Attributes
    ----------
    name : key of :data:`STYLES`.
    strided : convolution of a bottleneck that halves the resolution: "conv2" (3×3) or "conv1" (1×1).
    eps : added to variances in batch normalisation.
    order : of the colour channels: "rgb" or "bgr".
    scale : value of a full channel: 1 or 255.
    mean, sd : subtracted from each channel, and divided by, in the style's own order and scale.
    """

    name: str
    strided: str
    eps: float
    order: str
    scale: float
    mean: tuple[float, float, float]
    sd: tuple[float, float, float]


#: "torchvision" is also timm's; "caffe" is the original release by the authors of ResNet, as distributed by Keras.
STYLES = {
    "torchvision": Style("torchvision", "conv2", 1e-5, "rgb", 1.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "caffe": Style("caffe", "conv1", 1e-3, "bgr", 255.0, (103.939, 116.779, 123.68), (1.0, 1.0, 1.0)),
}

#: Blocks in each of the four layers, and whether they are bottlenecks.
DEPTHS = {18: ((2, 2, 2, 2), False), 50: ((3, 4, 6, 3), True)}

#: Channels that group normalisation takes together.
GROUP_CHANNELS = 16


class FrozenNorm(nn.BatchNorm2d):
    """Batch normalisation by stored statistics, in training too; scale and shift are trained.

    Networks do not run it: :meth:`fold` merges it into the preceding convolution. With
    ``k = weight / sqrt(var + eps)``, normalising ``w * x`` is convolving with ``k w`` and adding ``bias - k mean``.
    """

    def fold(self, kernel: Tensor) -> tuple[Tensor, Tensor]:
        """Return kernel and bias of the convolution followed by this normalisation, in at least single precision."""
        mean, var = cast(Tensor, self.running_mean), cast(Tensor, self.running_var)
        exact = torch.promote_types(kernel.dtype, torch.float32)
        k = self.weight.to(exact) * torch.rsqrt(var.to(exact) + self.eps)
        return kernel.to(exact) * k[:, None, None, None], self.bias.to(exact) - mean.to(exact) * k


NORMS: dict[str, Callable[[int, float], nn.Module]] = {
    "frozen": lambda channels, eps: FrozenNorm(channels, eps),
    "batch": lambda channels, eps: nn.BatchNorm2d(channels, eps),
    "group": lambda channels, eps: nn.GroupNorm(channels // GROUP_CHANNELS, channels, eps),
}


@dataclass(frozen=True)
class _Maker:
    """Makes the layers of a network."""

    bottleneck: bool
    style: Style
    norm: str
    generator: torch.Generator

    def conv(self, inputs: int, outputs: int, size: int, *, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
        """Return a convolution that keeps the resolution except for its stride; He's initialisation by fan-out."""
        layer = nn.Conv2d(
            inputs, outputs, size, stride, padding=dilation * (size // 2), dilation=dilation, bias=False, device="meta"
        ).to_empty(device="cpu")
        with torch.no_grad():
            layer.weight.normal_(0.0, math.sqrt(2.0 / (outputs * size * size)), generator=self.generator)
        return layer

    def normalise(self, channels: int) -> nn.Module:
        return NORMS[self.norm](channels, self.style.eps)

    def layer(self, inputs: int, width: int, count: int, stride: int, before: int, after: int) -> nn.Sequential:
        """Return ``count`` blocks; the first has the stride, or the step from one dilation to the next."""
        outputs = width * 4 if self.bottleneck else width
        first = _Residual(self, inputs, width, outputs, stride, before, after)
        rest = (_Residual(self, outputs, width, outputs, 1, after, after) for _ in range(count - 1))
        return nn.Sequential(first, *rest)


class _Residual(nn.Module):
    """Two 3×3 convolutions, or 1×1, 3×3, 1×1 (bottleneck), added to the input.

    Convolutions up to and including the strided one have the dilation ``before``, those after it ``after``, so a layer
    with dilation instead of stride gives the same values at the positions that the strided one has.
    """

    def __init__(
        self, make: _Maker, inputs: int, width: int, outputs: int, stride: int, before: int, after: int
    ) -> None:
        super().__init__()
        if make.bottleneck:
            early = make.style.strided == "conv1"
            self.conv1 = make.conv(inputs, width, 1, stride=stride if early else 1)
            self.bn1 = make.normalise(width)
            self.conv2 = make.conv(width, width, 3, stride=1 if early else stride, dilation=after if early else before)
            self.bn2 = make.normalise(width)
            self.conv3: nn.Conv2d | None = make.conv(width, outputs, 1)
            self.bn3: nn.Module | None = make.normalise(outputs)
        else:
            self.conv1 = make.conv(inputs, width, 3, stride=stride, dilation=before)
            self.bn1 = make.normalise(width)
            self.conv2 = make.conv(width, outputs, 3, dilation=after)
            self.bn2 = make.normalise(outputs)
            self.conv3 = self.bn3 = None
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(make.conv(inputs, outputs, 1, stride=stride), make.normalise(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = convolve(self.conv1, self.bn1, x).relu_()
        out = convolve(self.conv2, self.bn2, out)
        if self.conv3 is not None and self.bn3 is not None:
            out = convolve(self.conv3, self.bn3, out.relu_())
        if self.downsample is not None:
            x = convolve(cast(nn.Conv2d, self.downsample[0]), self.downsample[1], x)
        return (out + x).relu_()


def convolve(conv: nn.Conv2d, norm: nn.Module, x: Tensor) -> Tensor:
    """Apply a convolution and its normalisation, in one operation if the statistics are frozen."""
    if isinstance(norm, FrozenNorm):
        kernel, bias = norm.fold(conv.weight)
        return F.conv2d(x, kernel.to(x.dtype), bias.to(x.dtype), conv.stride, conv.padding, conv.dilation)
    out: Tensor = norm(conv(x))
    return out


class ResNet(ImageNetwork):
    """ResNet-18 or -50 [1]_ for images or other rasters of any number of channels.

    Parameters
    ----------
    outputs : number of values per sample, e.g. classes.
    depth : 18 or 50.
    channels : number of channels of an input. With three, inputs are red, green, blue in [0, 1], and the network
        converts them to the order and scale of its style; with any other number they are used unchanged.
    style : style of the weights to be loaded; see :func:`toporo.vision.weights.load_weights`.
    norm : "frozen" (batch normalisation by the stored statistics, in training too, for loaded weights), "batch" (by
        each batch's own) or "group" (16 channels of each sample together).
    dilated : widen the kernels of layers 3 and 4 instead of halving the resolution, for segmentation: maps then have an
        eighth of the input's resolution instead of a 32nd.
    seed : determines the initial weights.

    Names of tensors are torchvision's. ``features(x)`` are the pooled activations before the last layer.

    References
    ----------
    .. [1] He, Zhang, Ren and Sun, "Deep residual learning for image recognition", CVPR 2016.
    """

    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        outputs: int,
        *,
        depth: int = 50,
        channels: int = 3,
        style: Style = STYLES["torchvision"],
        norm: str = "frozen",
        dilated: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if depth not in DEPTHS:
            raise SettingError(f"depth = {depth!r}: there are ResNets of depth {' and '.join(map(str, DEPTHS))} here.")
        one_of(norm, "norm", NORMS)
        counts, bottleneck = DEPTHS[depth]
        make = _Maker(bottleneck, style, norm, torch.Generator().manual_seed(seed))
        self.depth, self.channels, self.style, self.norm, self.dilated = depth, channels, style, norm, dilated
        self.width = 2048 if bottleneck else 512
        self.conv1 = make.conv(channels, 64, 7, stride=2)
        self.bn1 = make.normalise(64)
        growth = 4 if bottleneck else 1
        self.layer1 = make.layer(64, 64, counts[0], 1, 1, 1)
        self.layer2 = make.layer(64 * growth, 128, counts[1], 2, 1, 1)
        self.layer3 = make.layer(128 * growth, 256, counts[2], *((1, 1, 2) if dilated else (2, 1, 1)))
        self.layer4 = make.layer(256 * growth, 512, counts[3], *((1, 2, 4) if dilated else (2, 1, 1)))
        self.fc = _linear(self.width, outputs, make.generator)
        mean, sd = torch.tensor(style.mean), torch.tensor(style.sd)
        self.register_buffer("scale", (style.scale / sd)[:, None, None], persistent=False)
        self.register_buffer("shift", (-mean / sd)[:, None, None], persistent=False)

    def encode(self, x: Tensor) -> list[Tensor]:
        """Return the activations before pooling: a 32nd of the input's resolution, or an eighth if dilated."""
        self._check_input(x)
        x = x.to(self.conv1.weight.dtype)
        if self.channels == 3:
            x = (x.flip(1) if self.style.order == "bgr" else x) * self.scale + self.shift
        x = F.max_pool2d(convolve(self.conv1, self.bn1, x).relu_(), 3, stride=2, padding=1)
        return [self.layer4(self.layer3(self.layer2(self.layer1(x))))]

    def decode(self, maps: list[Tensor], features: Tensor, size: torch.Size) -> Tensor:  # noqa: ARG002  # one per image
        """Return the logits of an image from its features."""
        logits: Tensor = self.fc(features)
        return logits
