"""Random changes of images for training, from given uniform numbers.

The functions draw nothing: they are given uniform numbers, so one seed gives the same image on every machine. They
work on whole batches, never wait for the device, and can be compiled or recorded as a CUDA graph.

:func:`augment` changes photographs as DomainBed does (Gulrajani & Lopez-Paz, 2021), with torchvision's distributions: a
random crop resized to the full size, a flip in half of the cases, brightness, contrast, saturation and hue by up to
0.3, and grey in one case of ten. Three things differ from torchvision. It shuffles the four colour changes for every
image; here their order is fixed. (The first three commute if no value leaves the range, so little is lost.) It rounds
to 256 levels after every change; here nothing is rounded. It crops the original photograph; here, the stored image,
which should be square.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from toporo.errors import DataError

#: Number of crops that are tried until one fits into the image, as in torchvision.
ATTEMPTS = 10
#: Share of the image's area that a crop keeps, and its width over its height.
SCALE = (0.7, 1.0)
RATIO = (3 / 4, 4 / 3)
#: Brightness, contrast and saturation change by a factor of up to one plus or minus this, hue by this part of a turn.
JITTER = 0.3
#: Probability that an image loses its colours.
GREY = 0.1

#: Columns of an image's uniform numbers.
AREAS, RATIOS = slice(0, ATTEMPTS), slice(ATTEMPTS, 2 * ATTEMPTS)
TOP, LEFT, FLIP, BRIGHTNESS, CONTRAST, SATURATION, HUE, TO_GREY = range(2 * ATTEMPTS, 2 * ATTEMPTS + 8)
#: Number of uniform numbers that :func:`augment` needs for an image, and :func:`flip_rotate` for a tile.
DRAWS = 2 * ATTEMPTS + 8
DRAWS_TILES = 1


class Crops(NamedTuple):
    """One box per image, in whole pixels: tensors of shape ``(n,)``."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


def unit_range(x: Tensor) -> Tensor:
    """Scale images from 0…255 to [0, 1], for evaluation.

    Parameters
    ----------
    x : ``(n, 3, height, width)``.
    """
    _check_images(x)
    return x.float().div_(255.0)


def augment(x: Tensor, u: Tensor) -> Tensor:
    """Change photographs as DomainBed does.

    Parameters
    ----------
    x : uint8, ``(n, 3, height, width)``: red, green, blue; fastest in the memory format ``channels_last``.
    u : ``(n, DRAWS)``, uniform on [0, 1).

    Returns
    -------
    float32 of the shape of ``x``, in [0, 1], in the memory format ``channels_last``.
    """
    _check_images(x)
    u = u.float()
    red, green, blue = _crop(x, random_crops(u, x.shape[2], x.shape[3]), u[:, FLIP] < 0.5).unbind(1)
    factors = 1.0 + JITTER * (2.0 * u[:, BRIGHTNESS : SATURATION + 1, None, None] - 1.0)
    pixels = _jitter((red, green, blue), *factors.unbind(1))
    pixels = turn_hue(*pixels, JITTER * (2.0 * u[:, HUE, None, None] - 1.0))
    grey, lost = luminance(*pixels), u[:, TO_GREY, None, None] < GREY
    return torch.stack([torch.where(lost, grey, part) for part in pixels], dim=-1).permute(0, 3, 1, 2)


def random_crops(u: Tensor, height: int, width: int) -> Crops:
    """Return boxes with uniform area, uniform logarithm of width over height, and uniform position where they fit.

    The first attempt that fits is taken. If none does (one image in 4 000 if they are square), it is the largest
    central box whose sides are within :data:`RATIO`.
    """
    area = height * width * (SCALE[0] + (SCALE[1] - SCALE[0]) * u[:, AREAS])
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    ratio = torch.exp(low + (high - low) * u[:, RATIOS])
    widths, heights = torch.round(torch.sqrt(area * ratio)), torch.round(torch.sqrt(area / ratio))
    fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
    first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
    some = fits.any(dim=1)
    full_height = float(min(height, max(1, round(width / RATIO[0]))))
    full_width = float(min(width, max(1, round(height * RATIO[1]))))
    h = torch.where(some, heights.gather(1, first)[:, 0], full_height)
    w = torch.where(some, widths.gather(1, first)[:, 0], full_width)
    return Crops(
        torch.where(some, _uniform_integer(u[:, TOP], height - h), (height - full_height) // 2),
        torch.where(some, _uniform_integer(u[:, LEFT], width - w), (width - full_width) // 2),
        h,
        w,
    )


def luminance(red: Tensor, green: Tensor, blue: Tensor) -> Tensor:
    """Return the perceived brightness of colours (ITU-R 601, as in Pillow and JPEG)."""
    return 0.299 * red + 0.587 * green + 0.114 * blue


def turn_hue(red: Tensor, green: Tensor, blue: Tensor, by: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rotate hues by a part of a full turn; value and saturation stay the same."""
    larger = torch.maximum(green, blue)
    value = torch.maximum(red, larger)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    inverse = 1.0 / torch.where(chroma > 0, chroma, 1.0)
    sixths = torch.where(
        red >= larger,
        (green - blue) * inverse,
        torch.where(green >= blue, (blue - red) * inverse + 2.0, (red - green) * inverse + 4.0),
    )
    sixths = sixths + 6.0 * by
    # A channel has its largest value over a third of the circle, its smallest over another, and is linear in between.
    parts = [
        value - chroma * (2.0 - (torch.remainder(sixths + at, 6.0) - 2.0).abs()).clamp(0.0, 1.0) for at in (5, 3, 1)
    ]
    return parts[0], parts[1], parts[2]


def flip_rotate(x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Apply one of the eight symmetries of the square, each equally likely, to a tile and its labels.

    Seen from above, all directions are equivalent; in photographs they are not.

    Parameters
    ----------
    x : ``(n, channels, side, side)``.
    y : ``(n, side, side)``.
    u : ``(n, DRAWS_TILES)``, uniform on [0, 1); 0 leaves a tile unchanged.
    """
    if x.ndim != 4 or x.shape[2] != x.shape[3] or y.shape != (x.shape[0], *x.shape[2:]):
        raise DataError(
            f"tiles of shape {tuple(x.shape)} with labels of shape {tuple(y.shape)}: expected (n, channels, side, "
            "side) and (n, side, side). Cut square tiles."
        )
    symmetry = (8.0 * u[:, 0].float()).long()
    return _apply_symmetry(x, symmetry), _apply_symmetry(y, symmetry)


def _apply_symmetry(x: Tensor, symmetry: Tensor) -> Tensor:
    """Transpose, reverse the rows and reverse the columns, according to the three bits of a number from 0 to 7."""
    symmetry = symmetry.view(-1, *[1] * (x.ndim - 1))
    x = torch.where(symmetry % 2 == 1, x.transpose(-1, -2), x)
    x = torch.where(symmetry // 2 % 2 == 1, x.flip(-2), x)
    return torch.where(symmetry // 4 == 1, x.flip(-1), x)


def _crop(x: Tensor, crops: Crops, flip: Tensor) -> Tensor:
    """Cut boxes out, resize them to the full size (bilinear, nothing from outside the box) and flip some."""
    height, width = x.shape[2:]
    rows = _sample_points(crops.top, crops.height, height)
    columns = _sample_points(crops.left, crops.width, width)
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    shape = (len(x), height, width)
    grid = torch.stack([columns[:, None, :].expand(shape), rows[:, :, None].expand(shape)], dim=-1)
    return F.grid_sample(unit_range(x), grid, mode="bilinear", padding_mode="border", align_corners=True)


def _sample_points(start: Tensor, length: Tensor, size: int) -> Tensor:
    """Return the positions of a resized side's ``size`` pixels, from −1 (first original pixel) to 1 (last)."""
    centres = torch.arange(size, device=start.device, dtype=torch.float32) + 0.5
    within = (centres * (length[:, None] / size) - 0.5).clamp_min(0.0).minimum(length[:, None] - 1.0)
    return (start[:, None] + within) * (2.0 / max(size - 1, 1)) - 1.0


def _jitter(
    pixels: tuple[Tensor, Tensor, Tensor], brightness: Tensor, contrast: Tensor, saturation: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Scale distances from black, from the image's mean grey and from each pixel's grey; clamp after each step."""
    red, green, blue = ((part * brightness).clamp(0.0, 1.0) for part in pixels)
    mean = luminance(red, green, blue).mean(dim=(1, 2), keepdim=True) * (1.0 - contrast)
    red, green, blue = ((part * contrast + mean).clamp(0.0, 1.0) for part in (red, green, blue))
    grey = luminance(red, green, blue) * (1.0 - saturation)
    red, green, blue = ((part * saturation + grey).clamp(0.0, 1.0) for part in (red, green, blue))
    return red, green, blue


def _uniform_integer(u: Tensor, most: Tensor) -> Tensor:
    """Return an integer from 0 to ``most``, both included."""
    return torch.minimum(torch.floor(u * (most + 1.0)), most)


def _check_images(x: Tensor) -> None:
    if x.ndim != 4 or x.shape[1] != 3 or x.dtype != torch.uint8:
        raise DataError(
            f"images of type {x.dtype} and shape {tuple(x.shape)}: expected torch.uint8 and (n, 3, height, width). "
            "A store's images are (n, height, width, 3): permute(0, 3, 1, 2) them."
        )
