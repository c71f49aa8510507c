r"""A linear model whose coefficients follow a graph of the groups: kriging, from group statistics alone.

The model of row i in group g, inputs standardised, :math:`\bar x_g` the group's mean input:

.. math:: y_i = b_0 + x_i^\top b + \bar x_g^\top c + u_g + (x_i - \bar x_g)^\top v_g + \varepsilon_i,
          \qquad \varepsilon_i \sim N(0, s^2 / w_i),

.. math:: b \sim N(0, s^2 \omega_b I), \quad c \sim N(0, s^2 \omega_c I), \quad
          u \sim N(0, s^2 (\tau_0 K + \omega_0 I)), \quad v_{\cdot j} \sim N(0, s^2 (\tau_1 K + \omega_1 I)),

with a flat prior on :math:`b_0`. c is the *context*: what groups with larger means have in common beside the rows'
own inputs. K says which groups are alike,

.. math:: K \propto \exp(-t L / \bar d), \qquad \text{constant mode taken out, mean of the diagonal } 1,

L the graph's Laplacian over all groups, test groups among them, :math:`\bar d` the mean degree, t the diffusion time.

**How it is computed.** In a group the mean of y is :math:`Z_g \theta_g`, :math:`Z_g = [1, x - \bar x_g]`, and all that
its rows say of :math:`\theta_g` is in the thin QR factors of :math:`W_g^{1/2} Z_g`. The independent parts make blocks,
:math:`D_g = I + R_g \Omega R_g^\top`, one a group. What groups share is a vector :math:`\gamma` of :math:`b_0`, b, c
and the modes of K, :math:`\theta_g = B_g \gamma + \text{independent}`, with variances C. With
:math:`S_g = R_g^\top D_g^{-1} R_g`, :math:`H = \sum_g B_g^\top S_g B_g` and
:math:`M = \mathrm{diag}(0, 1, …) + C^{1/2} H C^{1/2}` (0 for :math:`b_0`, whose variance is infinite),

.. math:: -2 \log L = (n - 1) \log Q + \sum_g \log|D_g| + \log|M| + \text{const},

.. math:: Q = \text{rss} + \sum_g z_g^\top D_g^{-1} z_g - \eta^\top M \eta, \qquad
          M \eta = C^{1/2} \sum_g B_g^\top R_g^\top D_g^{-1} z_g,

the restricted likelihood with :math:`s^2 = Q / (n - 1)` put in. By :math:`\log C_i` its derivative is
:math:`1 - (M^{-1})_{ii} - (n - 1)\, \eta_i^2 / Q`. A step costs the cube of the length of :math:`\gamma`, and nothing
that grows with the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg as sla
from scipy.optimize import minimize

from toporo.errors import DataError, warn
from toporo.groups import GroupIds, Groups
from toporo.robust.group_losses import as_inputs, as_numbers
from toporo.types import Array

#: The hyper-parameters, in the order of a vector of their logarithms: variances over s², and the diffusion time.
PARAMETERS = ("omega_b", "omega_c", "omega_0", "omega_1", "tau_0", "tau_1", "time")
#: Where they are searched for, as logarithms; a variance at its least is as good as none.
BOUNDS = {**dict.fromkeys(PARAMETERS[:-1], (-16.0, 9.0)), "time": (-4.0, 5.0)}
START = {"omega_b": 0.0, "omega_c": -1.0, "omega_0": -2.0, "omega_1": -4.0, "tau_0": -2.0, "tau_1": -4.0, "time": 0.0}
#: The nested models that are averaged: names to what each of them has.
MODELS: dict[str, tuple[str, ...]] = {
    "one model": ("omega_b",),
    "independent groups": ("omega_b", "omega_0", "omega_1"),
    "context": ("omega_b", "omega_c", "omega_0", "omega_1"),
    "graph": ("omega_b", "omega_0", "omega_1", "tau_0", "tau_1", "time"),
    "context and graph": PARAMETERS,
}
#: Modes of K beyond this many effects in all are left to the independent parts.
MOST_EFFECTS = 1600


# ---------------------------------------------------------------------- what rows say


@dataclass(frozen=True)
class GroupFactors:
    r"""What the rows of every group say: thin QR factors of :math:`W^{1/2}[1, x - \bar x]`, and y in their terms.

    Attributes
    ----------
    groups : in the order of the arrays.
    means : weighted mean inputs, (m, d).
    roots : R, (m, d + 1, d + 1), rows of zeros below where a group has few rows.
    targets : :math:`Q^\top W^{1/2} y`, (m, d + 1, k).
    residual : sum of squares that no coefficients explain, (k,).
    rows : how many rows there are in each group, those with weights counted by them, (m,).
    """

    groups: Groups
    means: Array
    roots: Array
    targets: Array
    residual: Array
    rows: Array

    @classmethod
    def from_rows(cls, x: Any, y: Any, groups: Any, sample_weight: Any = None) -> GroupFactors:
        """Read the rows once.

        Parameters
        ----------
        x : inputs, rows × features, standardised.
        y : targets, one or several per row, centred.
        groups : the group of every row.
        sample_weight : weights above 0; a row with weight 2 counts as two. 1 unless given.
        """
        inputs, ids = as_inputs(x, groups)
        targets = as_numbers(y, "y").reshape(len(inputs), -1).astype(np.float64)
        weights = np.ones(len(inputs)) if sample_weight is None else as_numbers(sample_weight, "sample_weight")
        if weights.shape != (len(inputs),) or not np.all(np.isfinite(weights)) or weights.min(initial=1.0) <= 0:
            raise DataError(f"sample_weight: expected {len(inputs)} finite weights above 0, one per row.")
        if not (np.isfinite(inputs).all() and np.isfinite(targets).all()):
            raise DataError("x and y must be finite: fill in or leave out missing values first.")
        parts = [_factor(*part) for part in _by_group(inputs, targets, weights, ids)]
        return cls(
            ids.groups,
            np.stack([part[0] for part in parts]),
            np.stack([part[1] for part in parts]),
            np.stack([part[2] for part in parts]),
            np.sum([part[3] for part in parts], axis=0),
            np.array([part[4] for part in parts]),
        )

    @classmethod
    def from_values(cls, values: Any, groups: Any, sample_weight: Any = None) -> GroupFactors:
        """Read rows without inputs: what is left of them by a model, say.

        Parameters
        ----------
        values : one or several numbers per row.
        groups, sample_weight : as in :meth:`from_rows`.
        """
        factors = cls.from_rows(np.zeros((len(values), 1)), values, groups, sample_weight)
        # An input that never varies explains nothing: what fell on its direction is left over.
        left = np.einsum("gik,gik->k", factors.targets[:, 1:], factors.targets[:, 1:])
        return replace(
            factors,
            means=factors.means[:, :0],
            roots=factors.roots[:, :1, :1],
            targets=factors.targets[:, :1],
            residual=factors.residual + left,
        )

    @property
    def width(self) -> int:
        """Features."""
        return int(self.means.shape[1])

    @property
    def outputs(self) -> int:
        """Targets per row."""
        return int(self.targets.shape[2])


def _by_group(x: Array, y: Array, weights: Array, ids: GroupIds) -> Any:
    order = np.argsort(ids.codes, kind="stable")
    ends = np.cumsum(np.bincount(ids.codes, minlength=len(ids.groups)))
    for name, rows in zip(ids.groups, np.split(order, ends[:-1]), strict=True):
        if not len(rows):
            raise DataError(f"group {name!r} has no row: leave it out of the groups.")
        yield x[rows].astype(np.float64), y[rows], weights[rows]


def _factor(x: Array, y: Array, weights: Array) -> tuple[Array, Array, Array, Array, float]:
    """Mean, R, Q'y, what is left of y'y, rows; of one group."""
    n, d = x.shape
    mean = np.average(x, axis=0, weights=weights)
    root = np.sqrt(weights)[:, None]
    design = np.column_stack([np.ones(n), x - mean]) * root
    q, r = np.linalg.qr(design)
    scaled = y * root
    inside = q.T @ scaled
    full_r, full_z = np.zeros((d + 1, d + 1)), np.zeros((d + 1, y.shape[1]))
    full_r[: len(r)], full_z[: len(r)] = r, inside
    left = scaled - q @ inside
    return mean, full_r, full_z, np.einsum("nk,nk->k", left, left), float(weights.sum())


# ---------------------------------------------------------------------- which groups are alike


@dataclass(frozen=True)
class GraphModes:
    """The modes of a graph's Laplacian over its mean degree, smoothest first, without the constant one.

    Attributes
    ----------
    values : (k,).
    vectors : (groups, k), columns of length 1.
    """

    values: Array
    vectors: Array

    @classmethod
    def of(cls, adjacency: Any) -> GraphModes:
        """The modes of a symmetric matrix of weights that are at least 0."""
        weights = np.asarray(adjacency, dtype=np.float64)
        degrees = weights.sum(axis=1)
        laplacian = np.diag(degrees) - weights
        values, vectors = np.linalg.eigh(laplacian / max(float(degrees.mean()), 1e-12))
        m = len(weights)
        # In a graph of several pieces the constant is one of several modes of value 0: take it out of all of them.
        flat = int(np.sum(values < 1e-9))
        smooth = vectors[:, :flat] - vectors[:, :flat].mean(axis=0)
        pieces = np.linalg.svd(smooth, full_matrices=False)[0][:, : flat - 1]
        return cls(
            np.concatenate([np.zeros(flat - 1), np.maximum(values[flat:], 0.0)]),
            np.column_stack([pieces, vectors[:, flat:]]) if m > 1 else np.zeros((m, 0)),
        )

    def first(self, count: int) -> GraphModes:
        """The smoothest ones."""
        return GraphModes(self.values[:count], self.vectors[:, :count])

    def shares(self, time: float) -> tuple[Array, Array]:
        """Variances of the modes of K, mean of its diagonal 1, and the derivative of their logarithms by the time."""
        falling = np.exp(-time * self.values)
        total = falling.sum()
        return len(self.vectors) * falling / total, float(falling @ self.values / total) - self.values


# ---------------------------------------------------------------------- the likelihood


class Likelihood:
    """The restricted likelihood of the variances, and what follows from them.

    Parameters
    ----------
    factors : of the training rows.
    modes : over all groups, or None without a graph.
    places : the row of ``modes.vectors`` of every training group.
    level : whether there is a :math:`b_0`; without it, targets are taken to have mean 0.
    """

    def __init__(
        self, factors: GroupFactors, modes: GraphModes | None, places: Sequence[int] = (), *, level: bool = True
    ) -> None:
        self.factors, self.modes, self.level = factors, modes, level
        d, k = factors.width, 0 if modes is None else len(modes.values)
        self.vectors = np.zeros((len(factors.groups), 0)) if modes is None else modes.vectors[np.asarray(places)]
        self.parts = {
            "omega_b": slice(1, 1 + d),
            "omega_c": slice(1 + d, 1 + 2 * d),
            "tau_0": slice(1 + 2 * d, 1 + 2 * d + k),
            "tau_1": slice(1 + 2 * d + k, 1 + 2 * d + k + k * d),  # mode by mode, feature by feature
        }
        self.effects = 1 + 2 * d + k * (d + 1)
        rows = float(factors.rows.sum())
        self.freedom = rows - level
        if rows <= 1:
            raise DataError(f"{rows:g} row(s): expected at least two.")

    def value(self, names: Sequence[str], logs: Array) -> tuple[float, Array]:
        """Minus its logarithm at these parameters, and the derivatives; the others are absent."""
        given = dict(zip(names, np.asarray(logs, dtype=float), strict=True))
        state = self.solve({name: math.exp(value) for name, value in given.items()})
        outputs = self.factors.outputs
        nll = 0.5 * (self.freedom * float(np.log(state.q).sum()) + outputs * state.log_determinant)
        # By the logarithm of every effect's variance.
        by_effect = outputs * (1.0 - state.inverse_diagonal) - self.freedom * (state.eta**2 / state.q).sum(axis=1)
        gradient = {name: float(by_effect[part].sum()) for name, part in self.parts.items()}
        if self.modes is not None and "time" in given:
            slopes = self.modes.shares(math.exp(given["time"]))[1] * math.exp(given["time"])
            both = by_effect[self.parts["tau_0"]] + by_effect[self.parts["tau_1"]].reshape(len(slopes), -1).sum(axis=1)
            gradient["time"] = float(both @ slopes)
        for name, index in (("omega_0", 0), ("omega_1", 1)):
            if name in given:
                gradient[name] = math.exp(given[name]) * self._by_independent(state, index)
        return nll, 0.5 * np.array([gradient[name] for name in names])

    def _by_independent(self, state: Solved, index: int) -> float:
        """Twice the derivative by the variance of the independent intercepts (0) or slopes (1)."""
        part = slice(0, 1) if index == 0 else slice(1, None)
        shapes = state.shapes
        own = float(np.trace(shapes[:, part, part], axis1=1, axis2=2).sum())
        squares = np.zeros_like(shapes)
        squares[:, part, part] = shapes[:, part, part] @ shapes[:, part, part]
        shared = state.scale[:, None] * self._gather(squares) * state.scale
        determinant = own - float(np.sum(state.inverse * shared))
        pull = state.pull[:, part]
        return self.factors.outputs * determinant - self.freedom * float(((pull**2).sum(axis=(0, 1)) / state.q).sum())

    def solve(self, parameters: Mapping[str, float]) -> Solved:
        """All that follows from the parameters."""
        f, d = self.factors, self.factors.width
        independent = np.concatenate([[parameters.get("omega_0", 0.0)], np.full(d, parameters.get("omega_1", 0.0))])
        blocks = np.eye(d + 1) + np.einsum("gij,j,gkj->gik", f.roots, independent, f.roots)
        lower = np.linalg.cholesky(blocks)
        white = np.linalg.solve(lower, np.concatenate([f.roots, f.targets], axis=2))
        roots, targets = white[:, :, : d + 1], white[:, :, d + 1 :]
        shapes = np.einsum("gij,gik->gjk", roots, roots)
        # Rows are centred in their group: intercept and slopes have nothing to do with each other but for rounding.
        shapes[:, 0, 1:] = shapes[:, 1:, 0] = 0.0
        sums = np.einsum("gij,gik->gjk", roots, targets)
        scale = self._scale(parameters)
        inner = scale[:, None] * self._gather(shapes) * scale
        some = np.arange(int(self.level), self.effects)
        inner[some, some] += 1.0
        factor = sla.cholesky(inner, lower=True, check_finite=False)
        inverse = sla.cho_solve((factor, True), np.eye(self.effects), check_finite=False)
        right = scale[:, None] * self._project(sums)
        eta = inverse @ right
        gamma = scale[:, None] * eta
        shared = self._spread(gamma)  # θ by group without its independent part
        left = targets - np.einsum("gij,gjk->gik", roots, shared)  # squares, so that nothing cancels
        q = f.residual + np.einsum("gik,gik->k", left, left) + np.einsum("ik,ik->k", eta[some], eta[some])
        pull = sums - np.einsum("gij,gjk->gik", shapes, shared)
        log_determinant = 2.0 * float(
            np.log(np.diagonal(lower, axis1=1, axis2=2)).sum() + np.log(np.diagonal(factor)).sum()
        )
        return Solved(
            dict(parameters),
            independent,
            scale,
            inverse,
            eta,
            gamma,
            np.maximum(q, 1e-300),
            log_determinant,
            shapes,
            pull,
        )

    def _scale(self, parameters: Mapping[str, float]) -> Array:
        scale = np.zeros(self.effects)
        scale[0] = float(self.level)
        scale[self.parts["omega_b"]] = math.sqrt(parameters.get("omega_b", 0.0))
        scale[self.parts["omega_c"]] = math.sqrt(parameters.get("omega_c", 0.0))
        if self.modes is not None and "time" in parameters:
            shares = np.sqrt(self.modes.shares(parameters["time"])[0])
            scale[self.parts["tau_0"]] = math.sqrt(parameters.get("tau_0", 0.0)) * shares
            slopes = math.sqrt(parameters.get("tau_1", 0.0)) * shares
            scale[self.parts["tau_1"]] = np.repeat(slopes, self.factors.width)
        return scale

    def _gather(self, shapes: Array) -> Array:
        r""":math:`\sum_g B_g^\top S_g B_g` for blocks that join no intercept to a slope."""
        p, u, d = self.factors.means, self.vectors, self.factors.width
        of_level, of_slopes = shapes[:, 0, 0], shapes[:, 1:, 1:]
        level = np.column_stack([np.ones(len(p)), p, p, u])  # what of γ an intercept is made of
        count = level.shape[1]
        out = np.zeros((self.effects, self.effects))
        out[:count, :count] = level.T @ (of_level[:, None] * level)
        b, v = self.parts["omega_b"], self.parts["tau_1"]
        out[b, b] += of_slopes.sum(axis=0)
        k = u.shape[1]
        if k:
            across = np.einsum("gi,gjl->jil", u, of_slopes, optimize=True).reshape(d, k * d)
            out[b, v] = across
            out[v, b] = across.T
            pairs = (u[:, :, None] * u[:, None, :]).reshape(len(u), k * k)
            inner = (pairs.T @ of_slopes.reshape(len(u), d * d)).reshape(k, k, d, d)
            out[v, v] = inner.transpose(0, 2, 1, 3).reshape(k * d, k * d)
        return out

    def _project(self, sums: Array) -> Array:
        r""":math:`\sum_g B_g^\top s_g`, (effects, outputs)."""
        p, u = self.factors.means, self.vectors
        level, slopes = sums[:, 0], sums[:, 1:]
        context = p.T @ level
        of_modes = np.einsum("gi,gjk->ijk", u, slopes).reshape(-1, sums.shape[2])
        return np.concatenate([level.sum(axis=0)[None], context + slopes.sum(axis=0), context, u.T @ level, of_modes])

    def _spread(self, gamma: Array) -> Array:
        r""":math:`B_g \gamma` by training group, (m, d + 1, outputs)."""
        return self.spread(gamma, self.factors.means, self.vectors)

    def spread(self, gamma: Array, means: Array, vectors: Array) -> Array:
        r""":math:`B_g \gamma` of groups with these means and places in the modes."""
        b, c, u, v = (gamma[self.parts[name]] for name in ("omega_b", "omega_c", "tau_0", "tau_1"))
        level = gamma[0] + means @ (b + c) + vectors @ u
        own = np.einsum("gi,ijk->gjk", vectors, v.reshape(vectors.shape[1], self.factors.width, gamma.shape[1]))
        return np.concatenate([level[:, None], b[None] + own], axis=1)

    def rows(self, z: Array, means: Array, vectors: Array) -> Array:
        r""":math:`z^\top B_g` of rows, (rows, effects): what of :math:`\gamma` a row is made of."""
        level, slopes = z[:, :1], z[:, 1:]
        of_modes = (vectors[:, :, None] * slopes[:, None, :]).reshape(len(z), -1)
        return np.concatenate([level, level * means + slopes, level * means, level * vectors, of_modes], axis=1)


@dataclass(frozen=True)
class Solved:
    r"""The model at given parameters.

    Attributes
    ----------
    parameters : those present.
    independent : variances of a group's own intercept and slopes, over s², (d + 1,).
    scale, inverse, eta, gamma : :math:`C^{1/2}`, :math:`M^{-1}`, :math:`\eta` and :math:`\gamma = C^{1/2}\eta`.
    q : Q by output.
    log_determinant : :math:`\sum \log|D_g| + \log|M|`.
    shapes : :math:`S_g`.
    pull : :math:`R_g^\top (V^{-1} (z - b_0))_g`: what a group's own part is made of.
    """

    parameters: dict[str, float]
    independent: Array
    scale: Array
    inverse: Array
    eta: Array
    gamma: Array
    q: Array
    log_determinant: float
    shapes: Array
    pull: Array

    @cached_property
    def inverse_diagonal(self) -> Array:
        """Of :math:`M^{-1}`; 1 for what has no variance, so that it has no derivative."""
        diagonal: Array = np.diagonal(self.inverse).copy()
        return diagonal


# ---------------------------------------------------------------------- fitting


@dataclass(frozen=True)
class FittedModel:
    """One of the nested models at its best parameters.

    Attributes
    ----------
    name : in :data:`MODELS`.
    solved : the model there.
    nll : minus the logarithm of the restricted likelihood.
    score : that plus half the logarithm of the number of groups for every parameter: the less, the better.
    converged : whether the search ended well.
    """

    name: str
    solved: Solved
    nll: float
    score: float
    converged: bool


@dataclass(frozen=True)
class KrigedFit:
    """The nested models, each with the weight of its evidence.

    Attributes
    ----------
    likelihood : the data and the graph.
    models : in the order of :data:`MODELS`.
    weights : summing to 1.
    """

    likelihood: Likelihood
    models: tuple[FittedModel, ...]
    weights: Array

    def coefficients(self, means: Array, vectors: Array, own: Sequence[int | None]) -> Array:
        """θ of groups: intercept at the group's mean and slopes, (groups, d + 1, outputs).

        Parameters
        ----------
        means : mean inputs of the groups.
        vectors : their places in the modes, (groups, modes).
        own : which training group each is, None for one never trained on.
        """
        each = [self._coefficients(model, means, vectors, own) for model in self.models]
        return np.tensordot(self.weights, each, axes=1)

    def moments(self, x: Array, means: Array, vectors: Array, own: Any) -> tuple[Array, Array]:
        """Mean and variance of the value of rows without their own noise, (rows, outputs) each.

        Parameters
        ----------
        x : inputs.
        means, vectors : every row's group: its mean input and its place in the modes.
        own : which training group that is, -1 for one never trained on.
        """
        z = np.column_stack([np.ones(len(x)), x - means])
        inside = own >= 0
        centres, variances = [], []
        for model in self.models:
            solved, omega = model.solved, model.solved.independent
            centre = self.likelihood.rows(z, means, vectors) @ solved.gamma
            scaled = omega * z
            centre[inside] += np.einsum("nj,njk->nk", scaled[inside], solved.pull[own[inside]])
            known = np.zeros_like(z)  # of a group's own part, what its rows have told
            known[inside] = np.einsum("nij,nj->ni", solved.shapes[own[inside]], scaled[inside])
            shared = self.likelihood.rows(z - known, means, vectors) * solved.scale
            spread = np.einsum("ni,ni->n", shared @ solved.inverse, shared) + np.einsum("nj,nj->n", scaled, z - known)
            centres.append(centre)
            variances.append(spread[:, None] * self.variance(model))
        centre = np.tensordot(self.weights, centres, axes=1)
        between = [(each - centre) ** 2 for each in centres]
        return centre, np.tensordot(self.weights, np.add(variances, between), axes=1)

    def variance(self, model: FittedModel) -> Array:
        """s² of every output."""
        return np.asarray(model.solved.q / self.likelihood.freedom)

    @property
    def noise(self) -> Array:
        """s² of every output, mean over the models."""
        return np.tensordot(self.weights, [self.variance(model) for model in self.models], axes=1)

    def _coefficients(self, model: FittedModel, means: Array, vectors: Array, own: Sequence[int | None]) -> Array:
        theta = self.likelihood.spread(model.solved.gamma, means, vectors)
        for place, index in enumerate(own):
            if index is not None:
                theta[place] += model.solved.independent[:, None] * model.solved.pull[index]
        return theta

    @property
    def evidence(self) -> dict[str, float]:
        """Weights by name."""
        return {model.name: float(weight) for model, weight in zip(self.models, self.weights, strict=True)}


def fit_kriged(
    factors: GroupFactors,
    modes: GraphModes | None = None,
    places: Sequence[int] = (),
    models: Mapping[str, Sequence[str]] | None = None,
    *,
    level: bool = True,
) -> KrigedFit:
    """Fit the nested models, each by its restricted likelihood, and weigh them by their evidence.

    Parameters
    ----------
    factors : of the training rows.
    modes : over all groups; None without a graph.
    places : the row of ``modes.vectors`` of every training group.
    models : names to parameters; :data:`MODELS` unless given. Without a graph, those that need one are left out.
    level : whether there is a :math:`b_0`.
    """
    if modes is not None:
        room = (MOST_EFFECTS - 1 - 2 * factors.width) // (factors.width + 1)
        modes = modes.first(max(1, room))
    likelihood = Likelihood(factors, modes, places, level=level)
    wanted = {
        name: tuple(parameters)
        for name, parameters in (models or MODELS).items()
        if modes is not None or "time" not in parameters
    }
    fitted: list[FittedModel] = []
    known: dict[str, float] = {}
    for name, parameters in wanted.items():
        model = _fit_one(likelihood, name, parameters, known)
        known |= {key: math.log(value) for key, value in model.solved.parameters.items()}
        fitted.append(model)
    if not all(model.converged for model in fitted):
        late = ", ".join(model.name for model in fitted if not model.converged)
        warn(f"the search for variances did not settle ({late}): standardise the inputs, or leave some of them out.")
    scores = np.array([model.score for model in fitted])
    weights = np.exp(scores.min() - scores)
    return KrigedFit(likelihood, tuple(fitted), weights / weights.sum())


def _fit_one(likelihood: Likelihood, name: str, parameters: Sequence[str], known: Mapping[str, float]) -> FittedModel:
    """From what smaller models found and from the usual start; the better one."""
    if not parameters:
        nll = likelihood.value((), np.zeros(0))[0]
        return FittedModel(name, likelihood.solve({}), nll, nll, True)
    best: Any = None
    starts = [[START[key] for key in parameters]]
    if known:
        starts.append([known.get(key, START[key]) for key in parameters])
    for start in starts:
        done = minimize(
            lambda logs: likelihood.value(parameters, logs),
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[BOUNDS[key] for key in parameters],
            options={"maxiter": 200, "ftol": 1e-10, "gtol": 1e-5},
        )
        if best is None or done.fun < best.fun:
            best = done
    solved = likelihood.solve({key: math.exp(value) for key, value in zip(parameters, best.x, strict=True)})
    punished = 0.5 * math.log(len(likelihood.factors.groups)) * len(parameters)
    return FittedModel(name, solved, float(best.fun), float(best.fun) + punished, bool(best.success))
