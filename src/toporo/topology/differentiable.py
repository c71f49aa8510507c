r"""Diffusion EMD between groups as a differentiable function of the features, in torch.

The distances are those at the head of :mod:`toporo.topology.diffusion`, over the all-pairs Gaussian kernel. Qiao & Peng
(2023) compute the topology once, from features that stay as they are, and leave learning it end to end to future work:
this is what such work would differentiate. Three steps have their derivative written out, each in operations that can
be differentiated again: the kernel, the Chebyshev recurrence (whose adjoint is Clenshaw's, so that the n x n gradient
is one product instead of one per step) and the l1 distances (which recompute signs instead of storing all pairs).
"""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from toporo.errors import DataError, SettingError
from toporo.groups import GroupIds, Groups
from toporo.topology.operator import (
    LIKELY_SMALLEST,
    DistinctPoints,
    bandwidth,
    check_codes,
    check_scales,
    dyadic_coefficients,
)

#: Beyond this many points the n x n matrices fill tens of gigabytes.
MOST_POINTS = 20_000
#: Smaller kernel entries change no row sum (which is at least 1) and only breed denormal numbers: they become 0.
NEGLIGIBLE = 1e-25
#: The smallest mean square that a batch's features are divided by.
TINY = 1e-200


def differentiable_emd(
    features: Tensor,
    groups: Any,
    *,
    sigma: float | Tensor | Literal["median", "knn"] = "knn",
    neighbors: int = 15,
    scales: int = 10,
    alpha: float = 0.5,
    tol: float = 1e-6,
) -> Tensor:
    """Distances between all pairs of groups: (m, m), differentiable in ``features``, of their dtype and device.

    Rows and columns are in the order of ``Groups.of(groups).groups.names``. Use it as a term of a loss; for the
    distances alone :func:`~toporo.topology.diffusion.diffusion_emd` is faster, takes more points and bounds its error.

    Parameters
    ----------
    features : (n, d) tensor, float32 or float64.
    groups : one group name per row, or :class:`~toporo.groups.GroupIds`.
    sigma : width of the kernel. ``"median"`` and ``"knn"`` are computed from the detached features and held constant:
        no gradient flows through them. A tensor with one number gets a gradient of its own.
    neighbors : of ``sigma="knn"``.
    scales, alpha : K and the damping of fine scales, as in ``diffusion_emd``.
    tol : accuracy. The recurrence stops where its error bound is ``0.05 * tol``, an *absolute* error, or where
        the dtype rounds anyway; it is not lengthened for groups that hardly differ.

    In float32 a distance is good to about ``2^scales * 1e-7``, absolute: the coarsest power multiplies the rounding of
    the walk. TF32 products, if switched on, cost more. The l1 norm has a kink where two densities are equal: the
    gradient there is 0.

    Memory at the peak: about five n x n matrices (n = 20 000 in float32: 8 GB) and six times the n x m activations of
    the recurrence (about 150 to 200 for scales=10, twice as many for every two scales more).

    >>> import torch
    >>> points = torch.tensor([[0.0], [0.1], [1.0], [1.1], [3.0], [3.1]], requires_grad=True)
    >>> distances = differentiable_emd(points, ["a", "a", "b", "b", "c", "c"], sigma=1.0)
    >>> bool(distances[0, 1] < distances[0, 2]), distances.requires_grad
    (True, True)
    """
    if not isinstance(features, Tensor) or features.dtype not in (torch.float32, torch.float64):
        given = f"a {features.dtype} tensor" if isinstance(features, Tensor) else type(features).__name__
        raise DataError(
            f"features are {given}: expected a float32 or float64 torch tensor. Pass torch.as_tensor(features, "
            "dtype=torch.float32); without a gradient, diffusion_emd takes arrays of any kind."
        )
    scales, alpha, tol = check_scales(scales, alpha, tol)
    points = _checked(features)
    starts = _starts(groups, points)
    with torch.autocast(features.device.type, enabled=False):  # half precision would not survive the recurrence
        centred = points.double() - points.detach().double().mean(dim=0)
        symmetric, root = _walk(centred / _width(centred, sigma, neighbors), points.dtype)
        coefficients = _coefficients(root.detach() ** 2, starts, int(scales), alpha, tol)
        return _distances(symmetric, root, starts, coefficients, alpha)


def batch_emd(features: Tensor, members: Tensor, coefficients: Tensor, *, width: float, alpha: float = 0.5) -> Tensor:
    r"""The same distances for a step of training, where nothing may look at a value: (m, m) in float64.

    The width of the kernel is relative to the features, and differentiated as they are:
    :math:`\sigma^2 = w^2 \, \frac{2}{n} \sum_i \|x_i - \bar x\|^2`, w times the root mean square distance between
    rows. So the distances do not change if all features are multiplied by a number. A group without a row in the batch
    is 0 away from the others without one, and nothing that means anything from the rest.

    Parameters
    ----------
    features : (n, d), of any float type.
    members : (n, m) of zeros and ones: which row is of which group.
    coefficients : of the powers, as :func:`~toporo.topology.operator.dyadic_coefficients` gives them; one row more than
        there are scales.
    width : w.
    alpha : the damping of fine scales.
    """
    points, members = features.double(), members.double()
    centred = points - points.mean(dim=0)
    squared = 2.0 * centred.square().sum() / len(points)
    # Rows that all coincide leave the width at a number too small to matter, where nothing divides by zero.
    symmetric, root = _walk(centred * squared.clamp(min=TINY).rsqrt() / width, torch.float64)
    starts = members.T / members.sum(dim=0).clamp(min=1.0)[:, None]
    return _distances(symmetric, root, starts, coefficients.double(), alpha)


def _walk(points: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The symmetric operator of points in units of the kernel's width, and the root of the stationary density."""
    kernel = _apply(_Gaussian, points, dtype)
    degree = kernel.sum(dim=1)
    root = (kernel @ degree.reciprocal() / degree).sqrt()
    factors = (degree * root).reciprocal()
    return factors[:, None] * kernel * factors, root


def _distances(symmetric: Tensor, root: Tensor, starts: Tensor, coefficients: Tensor, alpha: float) -> Tensor:
    """All scales' densities of the groups, damped, and the l1 distances between them."""
    terms = _apply(_Chebyshev, symmetric, starts * root, coefficients.shape[1] - 1)
    powers = torch.tensordot(coefficients, terms, 1) / root  # (scales + 1, m, n)
    exponents = torch.arange(len(powers) - 2, -1, -1, dtype=root.dtype, device=root.device)
    profile = torch.cat([(2.0 ** (-alpha * exponents))[:, None, None] * powers.diff(dim=0), powers[-1:]])
    return _apply(_Cityblock, profile.transpose(0, 1).flatten(1))


def _apply(function: type[Function], *arguments: Any) -> Tensor:
    apply: Any = function.apply  # torch leaves it untyped
    return cast(Tensor, apply(*arguments))


class _Gaussian(Function):
    """``exp(-|z_i - z_j|^2)`` of float64 points around the origin, rounded to a dtype. No root, so no pole at 0.

    The squares are good to ``1e-16 * max |z|^2``: float64 whatever the dtype, for groups many widths apart.
    """

    @staticmethod
    def forward(ctx: Any, points: Tensor, dtype: torch.dtype) -> Tensor:
        squares = (points * points).sum(dim=1)
        squared = torch.addmm(squares[:, None] + squares, points, points.mT, alpha=-2.0).clamp_(min=0.0)
        kernel = torch.threshold_(squared.fill_diagonal_(0.0).neg_().exp_(), NEGLIGIBLE, 0.0).to(dtype)
        ctx.save_for_backward(points, kernel)
        return kernel

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        points, kernel = ctx.saved_tensors
        pull = ((grad + grad.mT) * kernel).fill_diagonal_(0.0).to(points.dtype)
        return 2.0 * (pull @ points - pull.sum(dim=1, keepdim=True) * points), None


class _Chebyshev(Function):
    """``x T_j(S)`` for j = 0 … order, stacked, of the rows x; ``T_j = 2 T_{j-1} S - T_{j-2}``."""

    @staticmethod
    def forward(ctx: Any, symmetric: Tensor, start: Tensor, order: int) -> Tensor:
        terms = start.new_empty((order + 1, *start.shape))
        terms[0] = start
        torch.mm(start, symmetric, out=terms[1])
        for j in range(2, order + 1):
            torch.addmm(terms[j - 2], terms[j - 1], symmetric, beta=-1.0, alpha=2.0, out=terms[j])
        ctx.save_for_backward(symmetric, terms)
        return terms

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> Any:
        symmetric, terms = ctx.saved_tensors
        back = symmetric.mT
        adjoint, above = grads[-1], torch.zeros_like(grads[-1])
        pulls = []  # the gradients of the products x T_{j-1} S, the last first
        for j in range(len(grads) - 2, 0, -1):
            pulls.append(2.0 * adjoint)
            adjoint, above = grads[j] + pulls[-1] @ back - above, adjoint
        pulls.append(adjoint)
        pulled = torch.stack(pulls[::-1]).flatten(0, 1)
        return terms[:-1].flatten(0, 1).mT @ pulled, grads[0] + adjoint @ back - above, None


class _Cityblock(Function):
    """l1 distances between rows; at a kink the gradient is 0."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        upper = rows.new_zeros(len(rows), len(rows))
        for i in range(len(rows) - 1):
            upper[i, i + 1 :] = (rows[i] - rows[i + 1 :]).abs_().sum(dim=1)
        return upper + upper.mT

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (rows,) = ctx.saved_tensors
        both = grad + grad.mT
        return torch.stack([both[i] @ torch.sign(rows[i] - rows) for i in range(len(rows))])


def _coefficients(density: Tensor, starts: Tensor, scales: int, alpha: float, tol: float) -> Tensor:
    """Chebyshev coefficients, cut where the bound on a distance's error (as in ``diffusion_emd``) is small enough."""
    start = (density * starts**2).sum(dim=1).max().sqrt()
    weights = 2.0 * sum(2.0 ** (-(scales - k - 1) * alpha) for k in range(scales)) + 1.0
    per_tail = float(2.0 * weights * start * density.reciprocal().sum().sqrt())
    tail = max(torch.finfo(density.dtype).eps, min(1e-4, tol * LIKELY_SMALLEST / per_tail))
    return torch.as_tensor(dyadic_coefficients(scales, tail), dtype=density.dtype, device=density.device)


def _width(points: Tensor, sigma: float | Tensor | Literal["median", "knn"], neighbors: int) -> float | Tensor:
    if isinstance(sigma, Tensor):
        if sigma.numel() != 1:
            raise SettingError(f"sigma is a tensor of shape {tuple(sigma.shape)}: expected one positive number.")
        bandwidth(np.empty((0, 0)), sigma.item())  # the check of the number
        return sigma.reshape(()).to(points)
    distinct = DistinctPoints.of(points.detach().cpu().numpy()).points  # coincident points count once
    if len(distinct) == 1 and isinstance(sigma, str):
        raise DataError(f"all {len(points)} points coincide: there is nothing to tell groups apart by.")
    return bandwidth(distinct, sigma, neighbors=neighbors)


def _starts(groups: Any, points: Tensor) -> Tensor:
    """Rows ``1_{X_e} / n_e``, one per group."""
    ids = groups if isinstance(groups, GroupIds) else Groups.of(groups)
    codes = torch.as_tensor(check_codes(len(points), ids), device=points.device)
    members = torch.nn.functional.one_hot(codes.long(), len(ids.groups)).mT.to(points.dtype)
    counts = members.sum(dim=1, keepdim=True)
    return members / counts


def _checked(features: Tensor) -> Tensor:
    points = features[:, None] if features.ndim == 1 else features
    if points.ndim != 2 or 0 in points.shape:
        raise DataError(f"features must be a table of shape (points, dimensions); found shape {tuple(features.shape)}.")
    if len(points) > MOST_POINTS:
        raise DataError(
            f"{len(points)} points: a dense differentiable kernel takes at most {MOST_POINTS}. Use a subsample (a "
            "batch), or diffusion_emd with kernel='knn' if no gradient is needed."
        )
    bad = ~points.detach().isfinite().all(dim=1)
    if bool(bad.any()):
        raise DataError(
            f"features hold NaN or infinite values in {int(bad.sum())} of {len(bad)} rows (first: row "
            f"{int(bad.nonzero()[0])}). Impute or drop those rows first."
        )
    return points
