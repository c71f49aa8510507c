r"""Loss and scores of label maps.

A label map ``y`` holds one class per pixel; a negative number marks a pixel without a label. Scores are those of class
1 against all others. They are computed from four integers per group, which can be added batch by batch, in any order
and on any device. With :math:`t_p, f_p, f_n, t_n` the true and false positives, false and true negatives of a group,

.. math:: \mathrm{IoU} = \frac{t_p}{t_p + f_p + f_n}, \qquad F_1 = \frac{2 t_p}{2 t_p + f_p + f_n}, \qquad
          \mathrm{accuracy} = \frac{t_p + t_n}{t_p + f_p + f_n + t_n}.

Only the three scores wait for a GPU, as they bring the counts to the host.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from toporo.errors import DataError
from toporo.types import Array


def pixel_loss(logits: Tensor, y: Tensor) -> Tensor:
    r"""Cross entropy of each sample: the mean over its labelled pixels :math:`V_i = \{v : y_{iv} \ge 0\}`,

    .. math:: \ell_i = \frac{1}{|V_i|} \sum_{v \in V_i} -\log \mathrm{softmax}(z_{iv})_{y_{iv}},

    and 0, with no gradient, for a sample that has none. Every sample has the same weight, however much of it is
    labelled.

    Parameters
    ----------
    logits : ``(n, classes, height, width)``, any float type; the loss is computed in float32.
    y : ``(n, height, width)``, integers: the class, negative for pixels without a label.

    Returns
    -------
    float32, ``(n,)``.
    """
    target = y.long().clamp(min=-1)
    losses = F.cross_entropy(logits.float(), target, ignore_index=-1, reduction="none")
    return losses.sum((1, 2)) / (target >= 0).sum((1, 2)).clamp(min=1)


def count_pixels(predicted: Tensor, y: Tensor, codes: Tensor, m: int) -> Tensor:
    """Count true and false positives, false and true negatives of each of m groups: int64, ``(4, m)``.

    Counts of batches are added; ``counts.sum(1, keepdim=True)`` are those of all groups together.

    Parameters
    ----------
    predicted : ``(n, height, width)``, the predicted class of each pixel.
    y : the same shape, the true class, negative for pixels without a label.
    codes : ``(n,)``, int64, the group of each sample, 0 … m − 1.
    m : the number of groups.
    """
    if predicted.shape != y.shape or codes.shape != y.shape[:1]:
        raise DataError(
            f"predictions of shape {tuple(predicted.shape)}, labels of shape {tuple(y.shape)} and group codes of shape "
            f"{tuple(codes.shape)} do not belong together; expected (n, height, width) twice and (n,)."
        )
    positive, true, other = predicted == 1, y == 1, (y >= 0) & (y != 1)
    cells = (positive & true, positive & other, ~positive & true, ~positive & other)
    by_sample = torch.stack([cell.flatten(1).sum(1) for cell in cells])
    return by_sample.new_zeros(4, m).index_add(1, codes, by_sample)


def iou(counts: Tensor) -> Array:
    """Return intersection over union of class 1 by group; NaN for groups without true and predicted pixels of it.

    Parameters
    ----------
    counts : sums of :func:`count_pixels`.
    """
    tp, fp, fn, _ = counts
    return _ratio(tp, tp + fp + fn)


def f1(counts: Tensor) -> Array:
    """Return the harmonic mean of precision and recall of class 1 by group; NaN where :func:`iou` is.

    Parameters
    ----------
    counts : sums of :func:`count_pixels`.
    """
    tp, fp, fn, _ = counts
    return _ratio(2 * tp, 2 * tp + fp + fn)


def accuracy(counts: Tensor) -> Array:
    """Return the fraction of labelled pixels with the right class by group; NaN for groups without labelled pixels.

    Parameters
    ----------
    counts : sums of :func:`count_pixels`.
    """
    tp, _, _, tn = counts
    return _ratio(tp + tn, counts.sum(0))


def _ratio(part: Tensor, whole: Tensor) -> Array:
    over, under = (values.cpu().numpy().astype(np.float64) for values in (part, whole))
    return np.asarray(np.divide(over, under, out=np.full(over.shape, np.nan), where=under > 0))
