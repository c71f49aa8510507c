r"""A linear model whose coefficients follow a graph of the groups: kriging, from group statistics alone.

The model of row i in group g, inputs standardised, :math:`\bar x_g` the group's mean input:

.. math:: y_i = b_0 + x_i^\top b + \bar x_g^\top c + u_g + (x_i - \bar x_g)^\top v_g + \varepsilon_i,
          \qquad \varepsilon_i \sim N(0, s^2 / w_i),

.. math:: b \sim N(0, s^2 \omega_b I), \quad c \sim N(0, s^2 \omega_c I), \quad
          u \sim N(0, s^2 (\tau_0 K + \omega_0 I)), \quad v_{\cdot j} \sim N(0, s^2 (\tau_1 K + \omega_1 I)),

with a flat prior on :math:`b_0`; or with :math:`x_i^\top v_g` in the place of :math:`(x_i - \bar x_g)^\top v_g`, which
the evidence decides as well. c is the effect of the *context*, a group's mean inputs, beside that of the rows' inputs.
K says which groups are alike,

.. math:: K \propto \exp(-t L / \bar d), \qquad \text{constant mode taken out, mean of the diagonal } 1,

with L the graph's Laplacian over all groups, test groups included, :math:`\bar d` the mean degree and t the diffusion
time.

**How it is computed.** The mean of y in a group is :math:`Z_g \theta_g`, :math:`Z_g = [1, x - \bar x_g]`, and the
thin QR factors of :math:`W_g^{1/2} Z_g` hold all that its rows tell about :math:`\theta_g`. The independent parts make
one block per group, :math:`D_g = I + R_g \Omega R_g^\top`. The shared effects are a vector :math:`\gamma` of
:math:`b_0`, b, c and the modes of K, :math:`\theta_g = B_g \gamma + \text{independent}`, with variances C. With
:math:`S_g = R_g^\top D_g^{-1} R_g`, :math:`H = \sum_g B_g^\top S_g B_g` and
:math:`M = \mathrm{diag}(0, 1, …) + C^{1/2} H C^{1/2}` (0 for :math:`b_0`, whose variance is infinite),

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
from scipy.optimize import minimize

from toporo.errors import DataError, warn
from toporo.groups import Groups
from toporo.progress import tracked
from toporo.robust.factors import GroupFactors
from toporo.robust.layout import Layout
from toporo.robust.modes import GraphModes
from toporo.types import Array

#: The hyper-parameters, in the order of a vector of their logarithms: variances over s², and the diffusion time.
PARAMETERS = ("omega_b", "omega_c", "omega_0", "omega_1", "tau_0", "tau_1", "time")
#: Bounds of the search, as logarithms; a variance at its lower bound is as good as none.
BOUNDS = {**dict.fromkeys(PARAMETERS[:-1], (-16.0, 9.0)), "time": (-4.0, 5.0)}
START = {"omega_b": 0.0, "omega_c": -1.0, "omega_0": -2.0, "omega_1": -4.0, "tau_0": -2.0, "tau_1": -4.0, "time": 0.0}
#: The nested models that are averaged: names to parameters.
MODELS: dict[str, tuple[str, ...]] = {
    "one model": ("omega_b",),
    "independent groups": ("omega_b", "omega_0", "omega_1"),
    "context": ("omega_b", "omega_c", "omega_0", "omega_1"),
    "graph": ("omega_b", "omega_0", "omega_1", "tau_0", "tau_1", "time"),
    "context and graph": PARAMETERS,
    "independent groups, slopes of x": ("omega_b", "omega_0", "omega_1"),
    "graph, slopes of x": ("omega_b", "omega_0", "omega_1", "tau_0", "tau_1", "time"),
    "context and graph, slopes of x": PARAMETERS,
}
#: The same for groups that differ in their intercepts alone.
LEVELS: dict[str, tuple[str, ...]] = {
    name: tuple(part for part in parts if part not in ("omega_1", "tau_1"))
    for name, parts in MODELS.items()
    if not name.endswith("slopes of x")
}
#: End of the names of models with x'v in the place of (x - mean)'v.
OF_X = ", slopes of x"
#: Up to this many effects, all modes of K count. With more, variances are searched for with the smoothest modes that
#: make up to ``SEARCHED`` effects, and the solution at these variances has up to ``SOLVED``.
MOST_EFFECTS, SEARCHED, SOLVED = 1600, 1200, 3000
#: A model with less weight than this gets none.
NEGLIGIBLE = 1e-6
#: With more effects than this, a search starts from the variances of smaller models only, not from the usual ones too,
#: and ends when the likelihood changes by less than a share of 1e-9, not 1e-10.
LARGE = 700
#: Modes that could move the likelihood by no more than this are left out.
NOTHING = 1e-7


# ---------------------------------------------------------------------- the likelihood


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
        self.vectors = np.zeros((len(factors.groups), 0)) if modes is None else modes.vectors[np.asarray(places)]
        rows = float(factors.mass.sum())
        self.freedom = rows - level
        if self.freedom <= 0.0:
            raise DataError(f"{rows:g} row(s): expected at least two.")
        squares = np.einsum("gij,gij->gj", factors.roots, factors.roots)
        k, d = self.vectors.shape[1], factors.width
        #: Largest number of effects.
        self.limit = MOST_EFFECTS if 1 + 2 * d + k * (d + 1) <= MOST_EFFECTS else SEARCHED
        #: The most that the rows of one group tell about an intercept and about a slope.
        self.most = float(squares[:, 0].max()), float(squares[:, 1:].sum(axis=1).max(initial=0.0))

    def layout(self, parameters: Mapping[str, float], *, centred: bool = True) -> Layout:
        """Return the effects that count at these parameters: only the smooth modes of a graph have any variance."""
        d, counts = self.factors.width, [0, 0]
        if self.modes is not None and "time" in parameters:
            shares = self.modes.shares(parameters["time"])[0]
            for part, most in enumerate(self.most):
                counts[part] = int(np.sum(parameters.get(f"tau_{part}", 0.0) * shares * most > NOTHING))
            left = self.limit - 1 - 2 * d
            counts[0] = min(counts[0], max(1, left // 2 if counts[1] and d else left))
            counts[1] = min(counts[1], max(1, (left - counts[0]) // max(1, d)))
        return Layout(d, "omega_b" in parameters, "omega_c" in parameters, counts[0], counts[1] if d else 0, centred)

    def value(self, names: Sequence[str], logs: Array, *, centred: bool = True) -> tuple[float, Array]:
        """Return minus the logarithm of the likelihood and its derivatives; parameters without a name are absent."""
        given = dict(zip(names, np.asarray(logs, dtype=float), strict=True))
        solved = self.solve({name: math.exp(value) for name, value in given.items()}, centred=centred)
        outputs, layout = self.factors.outputs, solved.layout
        # By the logarithm of the variance of each effect.
        explained = (solved.eta**2 / solved.noise).sum(axis=1)
        by_effect = outputs * (1.0 - np.diagonal(solved.inverse)) - explained
        gradient = {name: float(by_effect[part].sum()) for name, part in layout.parts.items()}
        if self.modes is not None and "time" in given:
            by_time = self.modes.shares(math.exp(given["time"]))[1] * math.exp(given["time"])
            levels, slopes = by_effect[layout.parts["tau_0"]], by_effect[layout.parts["tau_1"]]
            slopes = slopes.reshape(layout.slopes, layout.width).sum(axis=1)
            gradient["time"] = float(levels @ by_time[: len(levels)] + slopes @ by_time[: len(slopes)])
        if "omega_0" in given or "omega_1" in given:
            # Independent intercepts and slopes.
            shapes, covariance = solved.shapes, solved.scale[:, None] * solved.inverse * solved.scale
            explained = shapes @ layout.within(covariance, self.factors.means, self.vectors) @ shapes
            traces = np.diagonal(shapes - explained, axis1=1, axis2=2).sum(axis=0)
            by_variance = outputs * traces - ((solved.pull**2).sum(axis=0) / solved.noise).sum(axis=1)
            gradient["omega_0"] = math.exp(given.get("omega_0", 0.0)) * float(by_variance[0])
            gradient["omega_1"] = math.exp(given.get("omega_1", 0.0)) * float(by_variance[1:].sum())
        return solved.nll, 0.5 * np.array([gradient[name] for name in names])

    def solve(self, parameters: Mapping[str, float], *, centred: bool = True) -> Solved:
        r"""Solve the model at given parameters.

        Parameters
        ----------
        parameters : those that are present.
        centred : whether slopes are of :math:`x - \bar x_g`.
        """
        f, d = self.factors, self.factors.width
        layout, root = self.layout(parameters, centred=centred), f.centred_roots if centred else f.roots
        independent = np.concatenate([[parameters.get("omega_0", 0.0)], np.full(d, parameters.get("omega_1", 0.0))])
        blocks = np.eye(d + 1) + (root * independent) @ root.transpose(0, 2, 1)
        lower = np.linalg.cholesky(blocks)
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
        gamma = scale[:, None] * eta
        shared = layout.spread(gamma, f.means, self.vectors)  # θ by group without its independent part
        left = targets - roots @ shared  # squares, so that nothing cancels
        q = f.residual.sum(axis=0) + (left**2).sum(axis=(0, 1)) + (eta[random] ** 2).sum(axis=0)
        q = np.maximum(q, 1e-300)
        log_determinant = 2.0 * float(np.log(np.diagonal(lower, axis1=1, axis2=2)).sum() + np.log(diagonal).sum())
        nll = 0.5 * (self.freedom * float(np.log(q).sum()) + f.outputs * log_determinant)
        pull = sums - shapes @ shared
        return Solved(
            dict(parameters), layout, independent, scale, inverse, eta, gamma, q / self.freedom, nll, shapes, pull
        )

    def _scale(self, parameters: Mapping[str, float], layout: Layout) -> Array:
        """Return the square roots of the effects' variances."""
        scale = np.zeros(layout.effects)
        scale[0] = float(self.level)
        for name in ("omega_b", "omega_c"):
            scale[layout.parts[name]] = math.sqrt(parameters.get(name, 0.0))
        if self.modes is not None and "time" in parameters:
            shares = np.sqrt(self.modes.shares(parameters["time"])[0])
            scale[layout.parts["tau_0"]] = math.sqrt(parameters.get("tau_0", 0.0)) * shares[: layout.levels]
            slopes = math.sqrt(parameters.get("tau_1", 0.0)) * shares[: layout.slopes]
            scale[layout.parts["tau_1"]] = np.repeat(slopes, layout.width)
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
    vectors, and ``own``, the number of the training group, or -1 for a group never trained on.

    Attributes
    ----------
    parameters : those present.
    layout : of the effects.
    independent : variances of a group's independent intercept and slopes, over s², (d + 1,).
    scale, inverse, eta, gamma : :math:`C^{1/2}`, :math:`M^{-1}`, :math:`\eta` and :math:`\gamma = C^{1/2}\eta`.
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
    gamma: Array
    noise: Array
    nll: float
    shapes: Array
    pull: Array

    def coefficients(self, means: Array, vectors: Array, own: Any) -> Array:
        """Return θ of groups: intercept at the group's mean and slopes, (groups, d + 1, outputs)."""
        theta, inside = self.layout.spread(self.gamma, means, vectors), own >= 0
        theta[inside] += self.independent[:, None] * self.pull[own[inside]]
        if not self.layout.centred:
            theta[:, 0] += np.einsum("gj,gjk->gk", means, theta[:, 1:])
        return theta

    def variances(self, z: Array, means: Array, vectors: Array, own: Any, *, apart: bool = False) -> Array:
        r"""Return the variance of :math:`z^\top \theta_g` given the rows, over s².

        Parameters
        ----------
        z : (rows, d + 1).
        means, vectors, own : of the group of each row.
        apart : whether to leave out the effects that all groups have in common.
        """
        inside, scaled = own >= 0, self.independent * z
        explained = np.zeros_like(z)  # of a group's independent part, by its rows
        explained[inside] = np.einsum("nij,nj->ni", self.shapes[own[inside]], scaled[inside])
        shared = self.layout.rows(z, means, vectors)
        if apart:
            shared[:, : self.layout.parts["tau_0"].start] = 0.0
        shared = (shared - self.layout.rows(explained, means, vectors)) * self.scale
        spread = np.einsum("ni,ni->n", shared @ self.inverse, shared) + np.einsum("nj,nj->n", scaled, z - explained)
        return np.asarray(spread)

    def between(self, z: Array, means: Array, vectors: Array) -> Array:
        r"""Return the variance of :math:`z^\top \theta_g` between groups, over s², before any row is seen."""
        shared = (self.layout.rows(z, means, vectors) * self.scale)[:, self.layout.parts["tau_0"].start :]
        return np.asarray(np.einsum("ni,ni->n", shared, shared) + z**2 @ self.independent)


# ---------------------------------------------------------------------- fitting


@dataclass(frozen=True)
class FittedModel:
    """One of the nested models at its best parameters.

    Attributes
    ----------
    name : in :data:`MODELS`.
    solved : the solution there.
    nll : minus the logarithm of the restricted likelihood.
    score : ``nll`` plus half the logarithm of the number of groups for each parameter; lower is better.
    converged : whether the search ended well.
    """

    name: str
    solved: Solved
    nll: float
    score: float
    converged: bool


@dataclass(frozen=True)
class KrigedFit:
    """The nested models, weighted by their evidence.

    Methods take ``means``, ``vectors`` and ``own`` as those of :class:`Solved` do, of groups or of the group of each
    row.

    Attributes
    ----------
    likelihood : the data and the graph.
    models : in the order of :data:`MODELS`.
    weights : summing to 1.
    """

    likelihood: Likelihood
    models: tuple[FittedModel, ...]
    weights: Array

    @property
    def counting(self) -> list[tuple[Solved, float]]:
        """The models that have weight, and their weights."""
        return [(model.solved, float(w)) for model, w in zip(self.models, self.weights, strict=True) if w > 0]

    @property
    def evidence(self) -> dict[str, float]:
        """Weights by name."""
        return {model.name: float(weight) for model, weight in zip(self.models, self.weights, strict=True)}

    @property
    def noise(self) -> Array:
        """s² of each output, mean over the models."""
        return np.asarray(sum(weight * solved.noise for solved, weight in self.counting))

    def coefficients(self, means: Array, vectors: Array, own: Any) -> Array:
        """Return θ of groups: intercept at the group's mean and slopes, (groups, d + 1, outputs)."""
        return np.asarray(sum(weight * solved.coefficients(means, vectors, own) for solved, weight in self.counting))

    def values(self, x: Array, means: Array, vectors: Array, own: Any) -> Array:
        """Return the means of the values of rows, (rows, outputs)."""
        return np.tensordot(*self._values(x, means, vectors, own), axes=1)

    def moments(self, x: Array, means: Array, vectors: Array, own: Any) -> tuple[Array, Array]:
        """Return mean and variance of the values of rows without their noise, (rows, outputs) each."""
        shares, centres = self._values(x, means, vectors, own)
        centre = np.tensordot(shares, centres, axes=1)
        variances = [
            solved.variances(solved.layout.terms(x, means), means, vectors, own)[:, None] * solved.noise
            + (each - centre) ** 2
            for (solved, _), each in zip(self.counting, centres, strict=True)
        ]
        return centre, np.tensordot(shares, variances, axes=1)

    def _values(self, x: Array, means: Array, vectors: Array, own: Any) -> tuple[list[float], Any]:
        """Return the weights of the models that have weight, and the values of rows by each."""
        z = np.column_stack([np.ones(len(x)), x - means])
        values = [np.einsum("nj,njk->nk", z, solved.coefficients(means, vectors, own)) for solved, _ in self.counting]
        return [weight for _, weight in self.counting], values

    def solved_again(self, likelihood: Likelihood) -> KrigedFit:
        """Return the models that have weight, with the same variances, for other rows or with more modes."""
        models = tuple(
            replace(model, solved=likelihood.solve(model.solved.parameters, centred=model.solved.layout.centred))
            if weight > 0
            else model
            for model, weight in zip(self.models, self.weights, strict=True)
        )
        return KrigedFit(likelihood, models, self.weights)


def fit_kriged(
    factors: GroupFactors,
    modes: GraphModes | None = None,
    places: Sequence[int] = (),
    models: Mapping[str, Sequence[str]] | None = None,
    *,
    level: bool = True,
    start: KrigedFit | None = None,
) -> KrigedFit:
    """Fit the nested models, each by its restricted likelihood, and weight them by their evidence.

    Parameters
    ----------
    factors : of the training rows.
    modes : over all groups; None without a graph.
    places : the row of ``modes.vectors`` of each training group.
    models : names to parameters; :data:`MODELS` unless given. Without a graph, those that need one are left out.
    level : whether there is a :math:`b_0`.
    start : a fit to nearly the same rows, from whose variances the search starts; several times as fast.
    """
    likelihood = Likelihood(factors, modes, places, level=level)
    (fit,) = fit_nested([likelihood], models or MODELS, len(factors.groups), start)
    late = [model.name for model in fit.models if not model.converged]
    if late:
        warn(
            f"the search for variances did not settle ({', '.join(late)}): standardise the inputs, or leave some of "
            "them out."
        )
    return with_all_modes(fit)


def fit_nested(
    likelihoods: Sequence[Likelihood], models: Mapping[str, Sequence[str]], groups: int, start: KrigedFit | None = None
) -> list[KrigedFit]:
    """Fit nested models to one or several independent sets of rows with the same variances; one fit per set.

    Parameters
    ----------
    likelihoods : of the sets.
    models : names to parameters, smaller models first. Without a graph, those that need one are left out.
    groups : number of groups, by which a model pays for its parameters.
    start : as for :func:`fit_kriged`.
    """
    begun = {} if start is None else {model.name: model.solved.parameters for model in start.models}
    wanted = {name: parts for name, parts in models.items() if likelihoods[0].modes is not None or "time" not in parts}
    found: dict[str, float] = {}
    fitted: list[list[FittedModel]] = [[] for _ in likelihoods]
    for name, parameters in tracked(wanted.items(), "searching for variances"):
        found |= {key: math.log(value) for key, value in begun.get(name, {}).items()}
        logs, nll, converged = _search(likelihoods, name, parameters, found, near=name in begun)
        found |= dict(zip(parameters, logs.tolist(), strict=True))
        best = {key: math.exp(log) for key, log in zip(parameters, logs, strict=True)}
        score = nll + 0.5 * math.log(groups) * len(parameters)
        for likelihood, own in zip(likelihoods, fitted, strict=True):
            own.append(FittedModel(name, likelihood.solve(best, centred=_centred(name)), nll, score, converged))
    weights = evidence_weights([model.score for model in fitted[0]])
    return [KrigedFit(one, tuple(own), weights) for one, own in zip(likelihoods, fitted, strict=True)]


def _centred(name: str) -> bool:
    return not name.endswith(OF_X)


def _search(
    likelihoods: Sequence[Likelihood], name: str, parameters: Sequence[str], found: Mapping[str, float], *, near: bool
) -> tuple[Array, float, bool]:
    """Minimise minus the logarithm of the likelihood: logarithms of the parameters, the value, success.

    Parameters
    ----------
    likelihoods, name, parameters : the sets of rows, and the model.
    found : best parameters of smaller models, to start from.
    near : whether these are of the same model, so that no other start is needed.
    """

    def value(logs: Array) -> tuple[float, Array]:
        each = [likelihood.value(parameters, logs, centred=_centred(name)) for likelihood in likelihoods]
        return sum(one for one, _ in each), np.sum([gradient for _, gradient in each], axis=0)

    if not parameters:
        return np.zeros(0), value(np.zeros(0))[0], True
    usual, nested = ([values.get(key, START[key]) for key in parameters] for values in (START, found))
    effects = likelihoods[0].layout({key: math.exp(START[key]) for key in parameters}).effects
    twice = effects <= LARGE and not near
    ends = [
        minimize(
            value,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[BOUNDS[key] for key in parameters],
            options={"maxiter": 200, "ftol": 1e-10 if twice else 1e-9, "gtol": 1e-5},
        )
        for start in ([nested, usual] if found and twice else [nested])
    ]
    best = min(ends, key=lambda end: end.fun)
    return best.x, float(best.fun), bool(best.success)


def evidence_weights(scores: Sequence[float]) -> Array:
    """Return weights proportional to exp(-score), none for models whose weight is negligible."""
    weights = np.exp(min(scores) - np.asarray(scores))
    weights[weights <= NEGLIGIBLE * weights.sum()] = 0.0
    return np.asarray(weights / weights.sum())


def with_all_modes(fit: KrigedFit) -> KrigedFit:
    """Solve again with as many modes as a solution may have, if the search was made with fewer."""
    if fit.likelihood.limit != SEARCHED:
        return fit
    fit.likelihood.limit = SOLVED
    return fit.solved_again(fit.likelihood)


def without(fit: KrigedFit, places: Sequence[int], gone: npt.NDArray[np.bool_]) -> KrigedFit:
    """Return the models, with the same variances, as if some of the training groups had not been seen.

    Parameters
    ----------
    fit : to all groups.
    places : the row of ``modes.vectors`` of each training group; empty without a graph.
    gone : mask of the groups to leave out.
    """
    full = fit.likelihood
    kept = np.flatnonzero(~gone)
    arrays = {name: getattr(full.factors, name)[kept] for name in ("rows", "squares", "roots", "targets")}
    shares = full.factors.mass[kept] / full.factors.mass.sum()  # of the unexplained squares
    residual = shares[:, None] * full.factors.residual.sum(axis=0)
    groups = Groups(full.factors.groups.decode(kept))
    factors = replace(full.factors, groups=groups, residual=residual, **arrays)
    likelihood = Likelihood(
        factors, full.modes, np.asarray(places, dtype=np.intp)[kept].tolist() if len(places) else (), level=full.level
    )
    likelihood.limit = full.limit
    return fit.solved_again(likelihood)
