r"""The restricted likelihood of a kriged model (:mod:`toporo.robust.kriged`), from group statistics alone.

The mean of y in a group is :math:`Z_g \theta_g`, :math:`Z_g = [1, x - \bar x_g]`, and the thin QR factors of
:math:`W_g^{1/2} Z_g` hold all that its rows tell about :math:`\theta_g`. The independent parts make one block per
group, :math:`D_g = I + R_g \Omega R_g^\top`. The shared effects are a vector :math:`\gamma` of :math:`b_0`, b, c and
the modes of K, :math:`\theta_g = B_g \gamma + \text{independent}`, with variances C
(:class:`~toporo.robust.layout.Layout`). With :math:`S_g = R_g^\top D_g^{-1} R_g`,
:math:`H = \sum_g B_g^\top S_g B_g` and :math:`M = \mathrm{diag}(0, 1, …) + C^{1/2} H C^{1/2}` (0 for :math:`b_0`,
whose variance is infinite),

.. math:: -2 \log L = (n - 1) \log Q + \sum_g \log|D_g| + \log|M| + \text{const},

.. math:: Q = \text{rss} + \sum_g z_g^\top D_g^{-1} z_g - \eta^\top M \eta, \qquad
          M \eta = C^{1/2} \sum_g B_g^\top R_g^\top D_g^{-1} z_g,

the restricted likelihood with :math:`s^2 = Q / (n - 1)` put in. By :math:`\log C_i` its derivative is
:math:`1 - (M^{-1})_{ii} - (n - 1)\, \eta_i^2 / Q`. A step costs the cube of the length of :math:`\gamma` and
does not depend on the number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as sla

from toporo.errors import DataError
from toporo.robust.factors import GroupFactors
from toporo.robust.layout import Layout
from toporo.robust.modes import GraphModes
from toporo.types import Array

#: Up to ``MOST_EFFECTS`` effects, all modes of K count; with more, the smoothest that make ``SMOOTH_EFFECTS``. Solving
#: with 3,000 took several times as long: with inputs it predicted no better on grids of 200 and 1,000 groups, and
#: effects alone on one of 2,500 groups had 1 % less squared error.
MOST_EFFECTS, SMOOTH_EFFECTS = 1600, 1200
#: Modes that could move the likelihood by no more than this are left out.
NEGLIGIBLE_MODE = 1e-7


class Likelihood:
    """The restricted likelihood of the variances, and the solution at given variances.

    Parameters
    ----------
    factors : of the training rows.
    modes : over all groups, or None without a graph.
    places : the row of ``modes.vectors`` of each training group.
    level : whether there is a :math:`b_0`; without it, targets are taken to have mean 0.
    """

    def __init__(
        self, factors: GroupFactors, modes: GraphModes | None, places: Sequence[int] = (), *, level: bool = True
    ) -> None:
        self.factors, self.modes, self.level = factors, modes, level
        self.places = np.asarray(places, dtype=np.intp)
        self.vectors = np.zeros((len(factors.groups), 0)) if modes is None else modes.vectors[self.places]
        rows = float(factors.mass.sum())
        self.freedom = rows - level
        if self.freedom <= 0.0:
            raise DataError(f"{rows:g} row(s): expected at least two.")
        squares = np.einsum("gij,gij->gj", factors.roots, factors.roots)
        k, d = self.vectors.shape[1], factors.width
        #: Largest number of effects.
        self.limit = MOST_EFFECTS if 1 + 2 * d + k * (d + 1) <= MOST_EFFECTS else SMOOTH_EFFECTS
        #: The most that the rows of one group tell about an intercept and about a slope.
        self.most = float(squares[:, 0].max()), float(squares[:, 1:].sum(axis=1).max(initial=0.0))

    def select(self, groups: npt.NDArray[np.intp]) -> Likelihood:
        """Return the likelihood of the rows of some of the groups, whose numbers are given in ascending order.

        The squares that no coefficients explain are shared by weight.
        """
        factors = self.factors.select(groups)
        shares = factors.mass / self.factors.mass.sum()
        factors = replace(factors, residual=shares[:, None] * self.factors.residual.sum(axis=0))
        places = () if self.modes is None else self.places[groups].tolist()
        return Likelihood(factors, self.modes, places, level=self.level)

    def layout(self, parameters: Mapping[str, float], *, centred: bool = True) -> Layout:
        """Return the effects that count at these parameters: only the smooth modes of a graph have any variance."""
        d, levels, slopes = self.factors.width, 0, 0
        if self.modes is not None and "time" in parameters:
            shares = self.modes.shares(parameters["time"])[0]
            levels, slopes = (
                int(np.sum(parameters.get(f"tau_{part}", 0.0) * shares * most > NEGLIGIBLE_MODE))
                for part, most in enumerate(self.most)
            )
            left = self.limit - 1 - 2 * d
            levels = min(levels, max(1, left // 2 if slopes and d else left))
            slopes = min(slopes, max(1, (left - levels) // max(1, d)))
        return Layout(d, levels, slopes if d else 0, centred)

    def value(self, names: Sequence[str], logs: Array, *, centred: bool = True) -> tuple[float, Array]:
        """Return minus the logarithm of the likelihood and its derivatives.

        Parameters
        ----------
        names, logs : the parameters that are present, and their logarithms.
        centred : as for :meth:`solve`.
        """
        parameters = {name: math.exp(log) for name, log in zip(names, logs, strict=True)}
        solved = self.solve(parameters, centred=centred)
        outputs, layout = self.factors.outputs, solved.layout
        # By the logarithm of the variance of each effect.
        explained = (solved.eta**2 / solved.noise).sum(axis=1)
        by_effect = outputs * (1.0 - np.diagonal(solved.inverse)) - explained
        gradient = {name: float(by_effect[part].sum()) for name, part in layout.parts.items()}
        if self.modes is not None and "time" in parameters:
            by_time = self.modes.shares(parameters["time"])[1] * parameters["time"]
            levels, slopes = by_effect[layout.parts["tau_0"]], by_effect[layout.parts["tau_1"]]
            slopes = slopes.reshape(layout.slopes, layout.width).sum(axis=1)
            gradient["time"] = float(levels @ by_time[: len(levels)] + slopes @ by_time[: len(slopes)])
        if "omega_0" in parameters or "omega_1" in parameters:
            shapes, covariance = solved.shapes, solved.scale[:, None] * solved.inverse * solved.scale
            explained = shapes @ layout.within(covariance, self.factors.means, self.vectors) @ shapes
            traces = np.diagonal(shapes - explained, axis1=1, axis2=2).sum(axis=0)
            by_variance = outputs * traces - ((solved.pull**2).sum(axis=0) / solved.noise).sum(axis=1)
            gradient["omega_0"] = parameters.get("omega_0", 0.0) * float(by_variance[0])
            gradient["omega_1"] = parameters.get("omega_1", 0.0) * float(by_variance[1:].sum())
        return solved.nll, 0.5 * np.array([gradient[name] for name in names])

    def solve(self, parameters: Mapping[str, float], *, centred: bool = True) -> Solved:
        r"""Solve the model at given parameters.

        Parameters
        ----------
        parameters : those that are present; variances of the others are 0.
        centred : whether slopes are of :math:`x - \bar x_g`.
        """
        f, d = self.factors, self.factors.width
        layout, root = self.layout(parameters, centred=centred), f.centred_roots if centred else f.roots
        independent = np.concatenate([[parameters.get("omega_0", 0.0)], np.full(d, parameters.get("omega_1", 0.0))])
        lower = np.linalg.cholesky(np.eye(d + 1) + (root * independent) @ root.transpose(0, 2, 1))
        white = np.linalg.solve(lower, np.concatenate([root, f.targets], axis=2))
        roots, targets = white[:, :, : d + 1], white[:, :, d + 1 :]
        shapes = roots.transpose(0, 2, 1) @ roots
        if centred:  # intercepts and slopes are orthogonal but for rounding
            shapes[:, 0, 1:] = shapes[:, 1:, 0] = 0.0
        sums = roots.transpose(0, 2, 1) @ targets
        scale = self._scale(parameters, layout)
        inner = layout.gather(shapes, f.means, self.vectors)
        inner *= scale
        inner *= scale[:, None]
        random = np.arange(int(self.level), layout.effects)
        inner[random, random] += 1.0
        diagonal, inverse = _inverse(inner)
        eta = inverse @ (scale[:, None] * layout.project(sums, f.means, self.vectors))
        shared = layout.spread(scale[:, None] * eta, f.means, self.vectors)  # θ by group without its independent part
        left = targets - roots @ shared  # squares, so that nothing cancels
        q = f.residual.sum(axis=0) + (left**2).sum(axis=(0, 1)) + (eta[random] ** 2).sum(axis=0)
        q = np.maximum(q, 1e-300)
        log_determinant = 2.0 * float(np.log(np.diagonal(lower, axis1=1, axis2=2)).sum() + np.log(diagonal).sum())
        nll = 0.5 * (self.freedom * float(np.log(q).sum()) + f.outputs * log_determinant)
        pull = sums - shapes @ shared
        return Solved(dict(parameters), layout, independent, scale, inverse, eta, q / self.freedom, nll, shapes, pull)

    def _scale(self, parameters: Mapping[str, float], layout: Layout) -> Array:
        """Return the square roots of the effects' variances."""
        scale = np.zeros(layout.effects)
        scale[0] = float(self.level)
        for name, part in layout.parts.items():
            scale[part] = math.sqrt(parameters.get(name, 0.0))
        if self.modes is not None and "time" in parameters:
            shares = np.sqrt(self.modes.shares(parameters["time"])[0])
            scale[layout.parts["tau_0"]] *= shares[: layout.levels]
            scale[layout.parts["tau_1"]] *= np.repeat(shares[: layout.slopes], layout.width)
        return scale


def _inverse(matrix: Array) -> tuple[Array, Array]:
    """Return the diagonal of the Cholesky factor of a positive definite matrix, and its inverse."""
    factor, failed = sla.lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=0)
    inverse, failed_too = sla.lapack.dpotri(factor, lower=1) if not failed else (factor, 1)
    if failed or failed_too:
        raise np.linalg.LinAlgError("the information matrix is not positive definite")
    lower = np.tril(inverse)
    return np.diagonal(factor).copy(), lower + np.tril(lower, -1).T


@dataclass(frozen=True)
class Solved:
    r"""The model at given parameters.

    Rows and groups are described by ``means`` and ``vectors``, the mean inputs of a group and its row of the modes'
    vectors, and ``trained``, the number of the training group, or -1 for a group never trained on.

    Attributes
    ----------
    parameters : those present.
    layout : of the effects.
    independent : variances of a group's independent intercept and slopes, over s², (d + 1,).
    scale, inverse, eta : :math:`C^{1/2}`, :math:`M^{-1}` and :math:`\eta`; :math:`\gamma = C^{1/2}\eta`.
    noise : s² by output.
    nll : minus the logarithm of the likelihood.
    shapes : :math:`S_g`.
    pull : :math:`R_g^\top (V^{-1} (z - b_0))_g`, which times ``independent`` is a group's independent part.
    """

    parameters: dict[str, float]
    layout: Layout
    independent: Array
    scale: Array
    inverse: Array
    eta: Array
    noise: Array
    nll: float
    shapes: Array
    pull: Array

    def coefficients(self, means: Array, vectors: Array, trained: Any) -> Array:
        """Return θ of groups: intercept at the group's mean and slopes, (groups, d + 1, outputs)."""
        theta, inside = self.layout.spread(self.scale[:, None] * self.eta, means, vectors), trained >= 0
        theta[inside] += self.independent[:, None] * self.pull[trained[inside]]
        if not self.layout.centred:
            theta[:, 0] += np.einsum("gj,gjk->gk", means, theta[:, 1:])
        return theta

    def variances(self, z: Array, means: Array, vectors: Array, trained: Any) -> Array:
        r"""Return the variance of :math:`z^\top \theta_g` given the rows, over s².

        Parameters
        ----------
        z : (rows, d + 1).
        means, vectors, trained : of the group of each row.
        """
        inside, scaled = trained >= 0, self.independent * z
        explained = np.zeros_like(z)  # of a group's independent part, by its rows
        explained[inside] = np.einsum("nij,nj->ni", self.shapes[trained[inside]], scaled[inside])
        shared = self._rows(z, means, vectors) - self._rows(explained, means, vectors)
        return np.asarray(
            np.einsum("ni,ni->n", shared @ self.inverse, shared) + np.einsum("nj,nj->n", scaled, z - explained)
        )

    def _rows(self, z: Array, means: Array, vectors: Array) -> Array:
        r"""Return :math:`z^\top B_g C^{1/2}` by row."""
        return self.layout.rows(z, means, vectors) * self.scale
