r"""What training on images takes: changing them at random, and losses and scores of label maps.

**Changes.** The functions here draw nothing: they are given uniform numbers, so one seed gives one picture on every
machine. They work on whole batches, never wait for the device, and may be compiled or recorded as a CUDA graph.

The changes to photographs are those of DomainBed (Gulrajani & Lopez-Paz, 2021), with torchvision's laws: a random crop
resized to the whole, a flip in half of the cases, brightness, contrast, saturation and hue by up to 0.3, and grey in
one case of ten. Three things differ from torchvision. It shuffles brightness, contrast, saturation and hue for every
image; here that is their order. (The first three commute wherever no value leaves the range, so little is lost.) It
rounds to 256 levels after every change; here nothing is rounded. And it crops the picture as it was shot; here, the
picture as it was stored, which should be square.

**Label maps.** A label map ``y`` holds one class per pixel; a negative number says that the pixel has no label. Scores
are those of class 1 against all others. They come from four whole numbers per group, so they can be counted batch by
batch, in any order and on any device, and are exact: with :math:`t_p, f_p, f_n, t_n` the pixels of a group that are
rightly and wrongly given class 1, wrongly and rightly another,

.. math:: \mathrm{IoU} = \frac{t_p}{t_p + f_p + f_n}, \qquad F_1 = \frac{2 t_p}{2 t_p + f_p + f_n}, \qquad
          \mathrm{accuracy} = \frac{t_p + t_n}{t_p + f_p + f_n + t_n}.

Nothing waits for a GPU except the three scores, which bring the counts to the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from toporo.errors import DataError
from toporo.types import Array

#: Crops are tried this often until one fits into the image, as torchvision does.
ATTEMPTS = 10
#: Share of the image's area that a crop keeps, and its width over its height.
SCALE = (0.7, 1.0)
RATIO = (3 / 4, 4 / 3)
#: Brightness, contrast and saturation change by a factor of up to one plus or minus this, hue by this part of a turn.
JITTER = 0.3
#: How often a picture loses its colours.
GREY = 0.1

#: Which of an image's uniform numbers decides what.
AREAS, RATIOS = slice(0, ATTEMPTS), slice(ATTEMPTS, 2 * ATTEMPTS)
TOP, LEFT, FLIP, BRIGHTNESS, CONTRAST, SATURATION, HUE, TO_GREY = range(2 * ATTEMPTS, 2 * ATTEMPTS + 8)
#: How many uniform numbers :func:`augment` wants for an image.
DRAWS = 2 * ATTEMPTS + 8
#: How many uniform numbers :func:`flip_rotate` wants for a tile.
DRAWS_TILES = 1


class Crops(NamedTuple):
    """One box per image, in whole pixels: tensors of shape ``(n,)``."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


def unit_range(x: Tensor, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Images as they are, from 0…255 to [0, 1]: what :func:`augment` is while testing."""
    _check_images(x)
    return x.to(dtype).div_(255.0)


def augment(x: Tensor, u: Tensor, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Change photographs as DomainBed does.

    Parameters
    ----------
    x : uint8, ``(n, 3, height, width)``: red, green, blue; fastest in the memory format ``channels_last``.
    u : ``(n, DRAWS)``, uniform on [0, 1).
    dtype : of the result; the work is done in float32.

    Returns
    -------
    Of the shape of ``x``, in [0, 1], in the memory format ``channels_last``.
    """
    _check_images(x)
    _check_draws(u, len(x), DRAWS)
    u = u.float()
    red, green, blue = _crop(x, random_crops(u, x.shape[2], x.shape[3]), u[:, FLIP] < 0.5).unbind(1)
    factors = 1.0 + JITTER * (2.0 * u[:, BRIGHTNESS : SATURATION + 1, None, None] - 1.0)
    pixels = _jitter((red, green, blue), *factors.unbind(1))
    pixels = turn_hue(*pixels, JITTER * (2.0 * u[:, HUE, None, None] - 1.0))
    grey, lost = luminance(*pixels), u[:, TO_GREY, None, None] < GREY
    return torch.stack([torch.where(lost, grey, part).to(dtype) for part in pixels], dim=-1).permute(0, 3, 1, 2)


def random_crops(u: Tensor, height: int, width: int) -> Crops:
    """Boxes whose area and whose logarithm of width over height are uniform, in place uniform over where they fit.

    The first attempt that fits is taken. Where none does (one image in 4 000 if they are square), it is the largest
    box in the middle whose sides are within :data:`RATIO`.
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
        torch.where(some, _uniform_whole(u[:, TOP], height - h), (height - full_height) // 2),
        torch.where(some, _uniform_whole(u[:, LEFT], width - w), (width - full_width) // 2),
        h,
        w,
    )


def luminance(red: Tensor, green: Tensor, blue: Tensor) -> Tensor:
    """How bright a colour looks (ITU-R 601, as in Pillow and JPEG)."""
    return 0.299 * red + 0.587 * green + 0.114 * blue


def turn_hue(red: Tensor, green: Tensor, blue: Tensor, by: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Turn colours around the circle of hues by a part of a full turn; their value and saturation stay."""
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
    # A channel is at the full value over a third of the circle, at the least over another, on a line in between.
    parts = [
        value - chroma * (2.0 - (torch.remainder(sixths + at, 6.0) - 2.0).abs()).clamp(0.0, 1.0) for at in (5, 3, 1)
    ]
    return parts[0], parts[1], parts[2]


def flip_rotate(x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Turn square tiles and their labels together by quarters and mirror them: one of eight ways each, equally likely.

    From above, no direction is special; a camera would know up from down.

    Parameters
    ----------
    x : ``(n, channels, side, side)``.
    y : ``(n, side, side)``.
    u : ``(n, DRAWS_TILES)``, uniform on [0, 1); 0 leaves a tile as it is.
    """
    if x.ndim != 4 or x.shape[2] != x.shape[3] or y.shape != (x.shape[0], *x.shape[2:]):
        raise DataError(
            f"tiles of shape {tuple(x.shape)} with labels of shape {tuple(y.shape)}: expected (n, channels, side, "
            "side) and (n, side, side). Cut square tiles."
        )
    _check_draws(u, len(x), DRAWS_TILES)
    way = (8.0 * u[:, 0].float()).long()
    return _turn(x, way), _turn(y, way)


def _turn(x: Tensor, way: Tensor) -> Tensor:
    """The three bits of a way: swap rows with columns, mirror the rows, mirror the columns. All eight ways differ."""
    as_given = torch.channels_last if _is_channels_last(x) else torch.contiguous_format
    way = way.view(-1, *[1] * (x.ndim - 1))
    x = torch.where(way % 2 == 1, x.transpose(-1, -2), x)
    x = torch.where(way // 2 % 2 == 1, x.flip(-2), x)
    return torch.where(way // 4 == 1, x.flip(-1), x).contiguous(memory_format=as_given)


def _is_channels_last(x: Tensor) -> bool:
    return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def _crop(x: Tensor, crops: Crops, flip: Tensor) -> Tensor:
    """Cut boxes out, stretch them to the full size (bilinear, nothing from outside the box) and mirror some."""
    height, width = x.shape[2:]
    rows = _places(crops.top, crops.height, height)
    columns = _places(crops.left, crops.width, width)
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    shape = (len(x), height, width)
    grid = torch.stack([columns[:, None, :].expand(shape), rows[:, :, None].expand(shape)], dim=-1)
    return F.grid_sample(unit_range(x), grid, mode="bilinear", padding_mode="border", align_corners=True)


def _places(start: Tensor, length: Tensor, size: int) -> Tensor:
    """Where the ``size`` pixels of a stretched side lie on the old one, from −1 (first pixel) to 1 (last)."""
    centres = torch.arange(size, device=start.device, dtype=torch.float32) + 0.5
    within = (centres * (length[:, None] / size) - 0.5).clamp_min(0.0).minimum(length[:, None] - 1.0)
    return (start[:, None] + within) * (2.0 / max(size - 1, 1)) - 1.0


def _jitter(
    pixels: tuple[Tensor, Tensor, Tensor], brightness: Tensor, contrast: Tensor, saturation: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Move away from black, from the mean grey of the image, from each pixel's grey; in the range each time."""
    red, green, blue = ((part * brightness).clamp(0.0, 1.0) for part in pixels)
    mean = luminance(red, green, blue).mean(dim=(1, 2), keepdim=True) * (1.0 - contrast)
    red, green, blue = ((part * contrast + mean).clamp(0.0, 1.0) for part in (red, green, blue))
    grey = luminance(red, green, blue) * (1.0 - saturation)
    red, green, blue = ((part * saturation + grey).clamp(0.0, 1.0) for part in (red, green, blue))
    return red, green, blue


def _uniform_whole(u: Tensor, most: Tensor) -> Tensor:
    """A whole number from 0 to ``most``, both included."""
    return torch.minimum(torch.floor(u * (most + 1.0)), most)


def _check_images(x: Tensor) -> None:
    if x.ndim != 4 or x.shape[1] != 3 or x.dtype != torch.uint8:
        raise DataError(
            f"images of type {x.dtype} and shape {tuple(x.shape)}: expected torch.uint8 and (n, 3, height, width). "
            "A store's images are (n, height, width, 3): permute(0, 3, 1, 2) them."
        )


def _check_draws(u: Tensor, n: int, draws: int) -> None:
    if u.shape != (n, draws) or not u.is_floating_point():
        raise DataError(
            f"uniform numbers of type {u.dtype} and shape {tuple(u.shape)}: expected floats and {(n, draws)}."
        )


# ---------------------------------------------------------------- label maps

_SCORED = 1
_NO_LABEL = -1


@dataclass(frozen=True, eq=False)
class Counts:
    """Labelled pixels by group and by what was said of them; each an int64 tensor with one entry per group.

    Attributes
    ----------
    tp : class 1, called that.
    fp : another class, called 1.
    fn : class 1, called another.
    tn : another class, called another.
    """

    tp: Tensor
    fp: Tensor
    fn: Tensor
    tn: Tensor

    @classmethod
    def zero(cls, m: int, device: str | torch.device = "cpu") -> Self:
        """No pixels yet, in m groups: where a sum over batches begins."""
        return cls(*torch.zeros(4, m, dtype=torch.int64, device=device))

    def __add__(self, other: Counts) -> Counts:
        if self.tp.shape != other.tp.shape:
            raise DataError(
                f"counts of {len(self.tp)} groups and of {len(other.tp)}: only those of the same groups add up."
            )
        return Counts(self.tp + other.tp, self.fp + other.fp, self.fn + other.fn, self.tn + other.tn)

    def pooled(self) -> Counts:
        """All groups taken as one: the counts of a single group."""
        return Counts(*(each.sum(0, keepdim=True) for each in (self.tp, self.fp, self.fn, self.tn)))


def pixel_loss(logits: Tensor, y: Tensor) -> Tensor:
    r"""Cross entropy of each sample: the mean over its labelled pixels :math:`V_i = \{v : y_{iv} \ge 0\}`,

    .. math:: \ell_i = \frac{1}{|V_i|} \sum_{v \in V_i} -\log \mathrm{softmax}(z_{iv})_{y_{iv}},

    and 0, with no gradient, for a sample that has none. Every sample weighs the same however much of it is labelled.

    Parameters
    ----------
    logits : ``(n, classes, height, width)``, any float type; the loss is computed in float32.
    y : ``(n, height, width)``, whole numbers: the class, negative where there is no label.

    Returns
    -------
    float32, ``(n,)``.
    """
    if logits.ndim != 4 or y.shape != (logits.shape[0], *logits.shape[2:]):
        raise DataError(
            f"logits of shape {tuple(logits.shape)} and labels of shape {tuple(y.shape)} do not belong together; "
            "expected (n, classes, height, width) and (n, height, width)."
        )
    target = y.long().clamp(min=_NO_LABEL)
    losses = F.cross_entropy(logits.float(), target, ignore_index=_NO_LABEL, reduction="none")
    return losses.sum((1, 2)) / (target >= 0).sum((1, 2)).clamp(min=1)


def count_pixels(predicted: Tensor, y: Tensor, codes: Tensor, m: int) -> Counts:
    """Count the labelled pixels of each of m groups, class 1 against all others.

    Parameters
    ----------
    predicted : ``(n, height, width)``, the class given to each pixel.
    y : the same shape, the true class, negative where there is no label.
    codes : ``(n,)``, int64, the group of each sample, 0 … m − 1.
    m : the number of groups.
    """
    if predicted.shape != y.shape or codes.shape != y.shape[:1]:
        raise DataError(
            f"predictions of shape {tuple(predicted.shape)}, labels of shape {tuple(y.shape)} and group codes of shape "
            f"{tuple(codes.shape)} do not belong together; expected (n, height, width) twice and (n,)."
        )
    called, scored, others = predicted == _SCORED, y == _SCORED, (y >= 0) & (y != _SCORED)
    cells = (called & scored, called & others, ~called & scored, ~called & others)
    by_sample = torch.stack([cell.flatten(1).sum(1) for cell in cells])
    return Counts(*by_sample.new_zeros(4, m).index_add(1, codes, by_sample))


def iou(counts: Counts) -> Array:
    """Intersection over union of class 1, by group; NaN where there is none of it and none was predicted."""
    return _ratio(counts.tp, counts.tp + counts.fp + counts.fn)


def f1(counts: Counts) -> Array:
    """Harmonic mean of precision and recall of class 1, by group; NaN where there is none and none was predicted."""
    return _ratio(2 * counts.tp, 2 * counts.tp + counts.fp + counts.fn)


def accuracy(counts: Counts) -> Array:
    """Fraction of labelled pixels classified right, by group; NaN where a group has no labelled pixel."""
    right = counts.tp + counts.tn
    return _ratio(right, right + counts.fp + counts.fn)


def _ratio(part: Tensor, whole: Tensor) -> Array:
    """part / whole in float64, NaN where the whole is 0."""
    over, under = (values.cpu().numpy().astype(np.float64) for values in (part, whole))
    return np.asarray(np.divide(over, under, out=np.full(over.shape, np.nan), where=under > 0))
