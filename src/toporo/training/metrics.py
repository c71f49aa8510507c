r"""Losses and scores of label maps, where pixels without a label count for nothing.

A label map ``y`` holds one class per pixel; a negative number says that the pixel has no label. Scores are those of
class 1 against all others. They come from four whole numbers per group, so they can be counted batch by batch, in any
order and on any device, and are exact: with :math:`t_p, f_p, f_n, t_n` the pixels of a group that are rightly and
wrongly given class 1, wrongly and rightly another,

.. math:: \mathrm{IoU} = \frac{t_p}{t_p + f_p + f_n}, \qquad F_1 = \frac{2 t_p}{2 t_p + f_p + f_n}, \qquad
          \mathrm{accuracy} = \frac{t_p + t_n}{t_p + f_p + f_n + t_n}.

Nothing here waits for a GPU except the three scores, which bring the counts to the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from toporo.errors import DataError
from toporo.types import Array

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
