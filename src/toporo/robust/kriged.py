r"""A linear model whose coefficients follow a graph of the groups: kriging, from group statistics alone.

The model of row i in group g, inputs standardised, :math:`\bar x_g` the group's mean input:

.. math:: y_i = b_0 + x_i^\top b + \bar x_g^\top c + u_g + (x_i - \bar x_g)^\top v_g + \varepsilon_i,
          \qquad \varepsilon_i \sim N(0, s^2 / w_i),

.. math:: b \sim N(0, s^2 \omega_b I), \quad c \sim N(0, s^2 \omega_c I), \quad
          u \sim N(0, s^2 (\tau_0 K + \omega_0 I)), \quad v_{\cdot j} \sim N(0, s^2 (\tau_1 K + \omega_1 I)),

with a flat prior on :math:`b_0`; or with :math:`x_i^\top v_g` in the place of :math:`(x_i - \bar x_g)^\top v_g`, which
the evidence tells apart, too. c is the *context*: what groups with larger means have in common beside the rows'
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
    "independent groups, slopes of x": ("omega_b", "omega_0", "omega_1"),
    "graph, slopes of x": ("omega_b", "omega_0", "omega_1", "tau_0", "tau_1", "time"),
    "context and graph, slopes of x": PARAMETERS,
}
#: And those of models whose groups differ in their level alone.
LEVELS: dict[str, tuple[str, ...]] = {
    name: tuple(part for part in parts if part not in ("omega_1", "tau_1"))
    for name, parts in MODELS.items()
    if not name.endswith("slopes of x")
}
#: How names of models end in which x'v takes the place of (x - mean)'v.
OF_X = ", slopes of x"
#: With up to so many effects all modes of K count. With more, variances are searched for with the smoothest modes that
#: make up to ``SEARCHED`` effects, and what follows from them is computed with up to ``SOLVED``.
MOST_EFFECTS, SEARCHED, SOLVED = 1600, 1200, 3000
#: A model whose weight is below this is left out of what is predicted.
NEGLIGIBLE = 1e-6
#: With more effects than this, a search starts from what smaller models found alone, not from the usual start too, and
#: ends when the likelihood changes by less than a share of 1e-9, not 1e-10.
LARGE = 700
#: Modes that could move the likelihood by no more than this are left out.
NOTHING = 1e-7


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
        self.vectors = np.zeros((len(factors.groups), 0)) if modes is None else modes.vectors[np.asarray(places)]
        rows = float(factors.mass.sum())
        self.freedom = rows - level
        if self.freedom <= 0.0:
            raise DataError(f"{rows:g} row(s): expected at least two.")
        squares = np.einsum("gij,gij->gj", factors.roots, factors.roots)
        k, d = self.vectors.shape[1], factors.width
        #: Effects that are counted with, at most.
        self.limit = MOST_EFFECTS if 1 + 2 * d + k * (d + 1) <= MOST_EFFECTS else SEARCHED
        #: The most that rows of one group say of an intercept and of a slope.
        self.most = float(squares[:, 0].max()), float(squares[:, 1:].sum(axis=1).max(initial=0.0))

    def layout(self, parameters: Mapping[str, float], *, centred: bool = True) -> Layout:
        """The effects that count at these parameters: of a graph's modes, only the smooth ones have any variance."""
        d, counts = self.factors.width, [0, 0]
        if self.modes is not None and "time" in parameters:
            shares = self.modes.shares(parameters["time"])[0]
            for place, most in enumerate(self.most):
                counts[place] = int(np.sum(parameters.get(f"tau_{place}", 0.0) * shares * most > NOTHING))
            left = self.limit - 1 - 2 * d
            counts[0] = min(counts[0], max(1, left // 2 if counts[1] and d else left))
            counts[1] = min(counts[1], max(1, (left - counts[0]) // max(1, d)))
        return Layout(d, "omega_b" in parameters, "omega_c" in parameters, counts[0], counts[1] if d else 0, centred)

    def value(self, names: Sequence[str], logs: Array, *, centred: bool = True) -> tuple[float, Array]:
        """Minus its logarithm at these parameters, and the derivatives; the others are absent."""
        given = dict(zip(names, np.asarray(logs, dtype=float), strict=True))
        state = self.solve({name: math.exp(value) for name, value in given.items()}, centred=centred)
        outputs, layout = self.factors.outputs, state.layout
        nll = 0.5 * (self.freedom * float(np.log(state.q).sum()) + outputs * state.log_determinant)
        # By the logarithm of every effect's variance.
        by_effect = outputs * (1.0 - np.diagonal(state.inverse)) - self.freedom * (state.eta**2 / state.q).sum(axis=1)
        gradient = {name: float(by_effect[part].sum()) for name, part in layout.parts.items()}
        if self.modes is not None and "time" in given:
            slopes = self.modes.shares(math.exp(given["time"]))[1] * math.exp(given["time"])
            levels, others = by_effect[layout.parts["tau_0"]], by_effect[layout.parts["tau_1"]]
            others = others.reshape(layout.slopes, layout.width).sum(axis=1)
            gradient["time"] = float(levels @ slopes[: len(levels)] + others @ slopes[: len(others)])
        if "omega_0" in given or "omega_1" in given:
            by_variance = self._by_independent(state)
            gradient |= {name: math.exp(given[name]) * slope for name, slope in by_variance.items() if name in given}
        return nll, 0.5 * np.array([gradient[name] for name in names])

    def _by_independent(self, state: Solved) -> dict[str, float]:
        """Twice the derivatives by the variances of the independent intercepts and slopes."""
        shapes, outputs = state.shapes, self.factors.outputs
        spread = state.scale[:, None] * state.inverse * state.scale
        known = shapes @ state.layout.within(spread, self.factors.means, self.vectors) @ shapes
        own = np.diagonal(shapes - known, axis1=1, axis2=2).sum(axis=0)
        pull = ((state.pull**2).sum(axis=0) / state.q).sum(axis=1)
        slopes = outputs * own - self.freedom * pull
        return {"omega_0": float(slopes[0]), "omega_1": float(slopes[1:].sum())}

    def solve(self, parameters: Mapping[str, float], *, centred: bool = True) -> Solved:
        r"""All that follows from the parameters.

        Parameters
        ----------
        parameters : those that are present.
        centred : whether slopes are of :math:`x - \bar x_g`.
        """
        f, d = self.factors, self.factors.width
        layout, own = self.layout(parameters, centred=centred), f.centred_roots if centred else f.roots
        independent = np.concatenate([[parameters.get("omega_0", 0.0)], np.full(d, parameters.get("omega_1", 0.0))])
        blocks = np.eye(d + 1) + (own * independent) @ own.transpose(0, 2, 1)
        lower = np.linalg.cholesky(blocks)
        white = np.linalg.solve(lower, np.concatenate([own, f.targets], axis=2))
        roots, targets = white[:, :, : d + 1], white[:, :, d + 1 :]
        shapes = roots.transpose(0, 2, 1) @ roots
        if centred:  # intercept and slopes have nothing to do with each other but for rounding
            shapes[:, 0, 1:] = shapes[:, 1:, 0] = 0.0
        sums = roots.transpose(0, 2, 1) @ targets
        scale = self._scale(parameters, layout)
        inner = layout.gather(shapes, f.means, self.vectors)
        inner *= scale
        inner *= scale[:, None]
        some = np.arange(int(self.level), layout.effects)
        inner[some, some] += 1.0
        factor, inverse = _inverse(inner)
        right = scale[:, None] * layout.project(sums, f.means, self.vectors)
        eta = inverse @ right
        gamma = scale[:, None] * eta
        shared = layout.spread(gamma, f.means, self.vectors)  # θ by group without its independent part
        left = targets - roots @ shared  # squares, so that nothing cancels
        q = f.residual.sum(axis=0) + np.einsum("gik,gik->k", left, left) + np.einsum("ik,ik->k", eta[some], eta[some])
        pull = sums - shapes @ shared
        log_determinant = 2.0 * float(np.log(np.diagonal(lower, axis1=1, axis2=2)).sum() + np.log(factor).sum())
        return Solved(
            dict(parameters),
            layout,
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

    def _scale(self, parameters: Mapping[str, float], layout: Layout) -> Array:
        scale = np.zeros(layout.effects)
        scale[0] = float(self.level)
        scale[layout.parts["omega_b"]] = math.sqrt(parameters.get("omega_b", 0.0))
        scale[layout.parts["omega_c"]] = math.sqrt(parameters.get("omega_c", 0.0))
        if self.modes is not None and "time" in parameters:
            shares = np.sqrt(self.modes.shares(parameters["time"])[0])
            scale[layout.parts["tau_0"]] = math.sqrt(parameters.get("tau_0", 0.0)) * shares[: layout.levels]
            slopes = math.sqrt(parameters.get("tau_1", 0.0)) * shares[: layout.slopes]
            scale[layout.parts["tau_1"]] = np.repeat(slopes, layout.width)
        return scale


def _inverse(matrix: Array) -> tuple[Array, Array]:
    """Of a positive definite matrix: the diagonal of its Cholesky factor, and its inverse."""
    factor, failed = sla.lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=0)
    inverse, failed_too = sla.lapack.dpotri(factor, lower=1) if not failed else (factor, 1)
    if failed or failed_too:
        raise np.linalg.LinAlgError("the information matrix is not positive definite")
    lower = np.tril(inverse)
    return np.diagonal(factor).copy(), lower + np.tril(lower, -1).T


@dataclass(frozen=True)
class Solved:
    r"""The model at given parameters.

    Attributes
    ----------
    parameters : those present.
    layout : which effects there are.
    independent : variances of a group's own intercept and slopes, over s², (d + 1,).
    scale, inverse, eta, gamma : :math:`C^{1/2}`, :math:`M^{-1}`, :math:`\eta` and :math:`\gamma = C^{1/2}\eta`.
    q : Q by output.
    log_determinant : :math:`\sum \log|D_g| + \log|M|`.
    shapes : :math:`S_g`.
    pull : :math:`R_g^\top (V^{-1} (z - b_0))_g`: what a group's own part is made of.
    """

    parameters: dict[str, float]
    layout: Layout
    independent: Array
    scale: Array
    inverse: Array
    eta: Array
    gamma: Array
    q: Array
    log_determinant: float
    shapes: Array
    pull: Array

    def variances(self, z: Array, means: Array, vectors: Array, own: Any, *, apart: bool = False) -> Array:
        r"""Of :math:`z^\top \theta_g` given the rows, over s².

        Parameters
        ----------
        z : of every row, (rows, d + 1).
        means, vectors, own : of every row's group, as in :meth:`KrigedFit.moments`.
        apart : only of what groups do not have in common.
        """
        inside, scaled = own >= 0, self.independent * z
        known = np.zeros_like(z)  # of a group's own part, what its rows have told
        known[inside] = np.einsum("nij,nj->ni", self.shapes[own[inside]], scaled[inside])
        shared = self.layout.rows(z, means, vectors)
        if apart:
            shared[:, : self.layout.parts["tau_0"].start] = 0.0
        shared = (shared - self.layout.rows(known, means, vectors)) * self.scale
        spread = np.einsum("ni,ni->n", shared @ self.inverse, shared) + np.einsum("nj,nj->n", scaled, z - known)
        return np.asarray(spread)

    def between(self, z: Array, means: Array, vectors: Array) -> Array:
        r"""The variance of :math:`z^\top \theta_g` between groups, over s², before any row is seen.

        Parameters
        ----------
        z, means, vectors : as in :meth:`variances`.
        """
        shared = (self.layout.rows(z, means, vectors) * self.scale)[:, self.layout.parts["tau_0"].start :]
        return np.asarray(np.einsum("ni,ni->n", shared, shared) + z**2 @ self.independent)


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

    def values(self, x: Array, means: Array, vectors: Array, own: Any) -> Array:
        """Means of the values of rows, (rows, outputs).

        Parameters
        ----------
        x, means, vectors, own : as in :meth:`moments`.
        """
        each, shares = self._centres(x, means, vectors, own), [weight for _, weight in self.counting]
        return np.tensordot(shares, each, axes=1)

    def moments(self, x: Array, means: Array, vectors: Array, own: Any) -> tuple[Array, Array]:
        """Mean and variance of the value of rows without their own noise, (rows, outputs) each.

        Parameters
        ----------
        x : inputs.
        means, vectors : every row's group: its mean input and its place in the modes.
        own : which training group that is, -1 for one never trained on.
        """
        centres, shares = self._centres(x, means, vectors, own), [weight for _, weight in self.counting]
        centre = np.tensordot(shares, centres, axes=1)
        variances = [
            model.solved.variances(model.solved.layout.terms(x, means), means, vectors, own)[:, None]
            * self.variance(model)
            for model, _ in self.counting
        ]
        between = [(each - centre) ** 2 for each in centres]
        return centre, np.tensordot(shares, np.add(variances, between), axes=1)

    def _centres(self, x: Array, means: Array, vectors: Array, own: Any) -> list[Array]:
        """Means of the values of rows, by every model that counts."""
        inside, out = own >= 0, []
        for model, _ in self.counting:
            solved = model.solved
            theta = solved.layout.spread(solved.gamma, means, vectors)
            theta[inside] += solved.independent[:, None] * solved.pull[own[inside]]
            out.append(np.einsum("nj,njk->nk", solved.layout.terms(x, means), theta))
        return out

    @property
    def counting(self) -> list[tuple[FittedModel, float]]:
        """Models whose weight is not negligible, and their weights."""
        counts = self.weights > NEGLIGIBLE
        shares = self.weights[counts] / self.weights[counts].sum()
        return [(model, float(shares[place])) for place, model in enumerate(np.array(self.models, object)[counts])]

    def variance(self, model: FittedModel) -> Array:
        """s² of every output."""
        return np.asarray(model.solved.q / self.likelihood.freedom)

    @property
    def noise(self) -> Array:
        """s² of every output, mean over the models."""
        return np.tensordot(self.weights, [self.variance(model) for model in self.models], axes=1)

    def _coefficients(self, model: FittedModel, means: Array, vectors: Array, own: Sequence[int | None]) -> Array:
        theta = model.solved.layout.spread(model.solved.gamma, means, vectors)
        for place, index in enumerate(own):
            if index is not None:
                theta[place] += model.solved.independent[:, None] * model.solved.pull[index]
        if not model.solved.layout.centred:
            theta[:, 0] += np.einsum("gj,gjk->gk", means, theta[:, 1:])
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
    start: KrigedFit | None = None,
) -> KrigedFit:
    """Fit the nested models, each by its restricted likelihood, and weigh them by their evidence.

    Parameters
    ----------
    factors : of the training rows.
    modes : over all groups; None without a graph.
    places : the row of ``modes.vectors`` of every training group.
    models : names to parameters; :data:`MODELS` unless given. Without a graph, those that need one are left out.
    level : whether there is a :math:`b_0`.
    start : a fit to nearly the same rows, whose variances the search begins with: several times as quick.
    """
    likelihood = Likelihood(factors, modes, places, level=level)
    begun = {} if start is None else {model.name: model.solved.parameters for model in start.models}
    wanted = {
        name: tuple(parameters)
        for name, parameters in (models or MODELS).items()
        if modes is not None or "time" not in parameters
    }
    fitted: list[FittedModel] = []
    known: dict[str, float] = {}
    for name, parameters in tracked(wanted.items(), "searching for variances"):
        known |= {key: math.log(value) for key, value in begun.get(name, {}).items()}
        model = _fit_one(likelihood, name, parameters, known, near=name in begun)
        known |= {key: math.log(value) for key, value in model.solved.parameters.items()}
        fitted.append(model)
    if not all(model.converged for model in fitted):
        late = ", ".join(model.name for model in fitted if not model.converged)
        warn(f"the search for variances did not settle ({late}): standardise the inputs, or leave some of them out.")
    scores = np.array([model.score for model in fitted])
    weights = np.exp(scores.min() - scores)
    weights /= weights.sum()
    return finished(KrigedFit(likelihood, tuple(fitted), weights))


def finished(fit: KrigedFit) -> KrigedFit:
    """The same with as many modes as a solution may have, where the search was made with fewer.

    Parameters
    ----------
    fit : as the search left it.
    """
    likelihood = fit.likelihood
    if likelihood.limit != SEARCHED:
        return fit
    likelihood.limit = SOLVED
    again = [
        replace(model, solved=likelihood.solve(model.solved.parameters, centred=model.solved.layout.centred))
        if weight > NEGLIGIBLE
        else model
        for model, weight in zip(fit.models, fit.weights, strict=True)
    ]
    return KrigedFit(likelihood, tuple(again), fit.weights)


def without(fit: KrigedFit, places: Sequence[int], gone: npt.NDArray[np.bool_]) -> KrigedFit:
    """The same models, with the same variances, if some of the training groups had not been seen.

    Parameters
    ----------
    fit : to all of them.
    places : the row of ``modes.vectors`` of every training group; nothing without a graph.
    gone : which of them.
    """
    full = fit.likelihood
    kept = np.flatnonzero(~gone)
    arrays = {name: getattr(full.factors, name)[kept] for name in ("rows", "squares", "roots", "targets")}
    shares = full.factors.mass[kept] / full.factors.mass.sum()  # of the unexplained squares
    residual = shares[:, None] * full.factors.residual.sum(axis=0)
    groups = Groups(full.factors.groups.decode(kept))
    factors = replace(full.factors, groups=groups, residual=residual, **arrays)
    there = np.asarray(places, dtype=np.intp)[kept].tolist() if len(places) else ()
    likelihood = Likelihood(factors, full.modes, there, level=full.level)
    likelihood.limit = full.limit
    models = tuple(
        replace(model, solved=likelihood.solve(model.solved.parameters, centred=model.solved.layout.centred))
        for model in fit.models
    )
    return KrigedFit(likelihood, models, fit.weights)


def _fit_one(
    likelihood: Likelihood, name: str, parameters: Sequence[str], known: Mapping[str, float], *, near: bool
) -> FittedModel:
    centred = not name.endswith(OF_X)
    usual = likelihood.layout({key: math.exp(START[key]) for key in parameters})
    value = partial(likelihood.value, centred=centred)
    logs, nll, converged = search(value, parameters, known, twice=usual.effects <= LARGE and not near)
    there = {key: math.exp(log) for key, log in zip(parameters, logs, strict=True)}
    punished = 0.5 * math.log(len(likelihood.factors.groups)) * len(parameters)
    return FittedModel(name, likelihood.solve(there, centred=centred), nll, nll + punished, converged)


def search(
    value: Callable[[Sequence[str], Array], tuple[float, Array]],
    parameters: Sequence[str],
    known: Mapping[str, float],
    *,
    twice: bool = True,
) -> tuple[Array, float, bool]:
    """Where minus the logarithm of a likelihood is least: the logarithms of the parameters, the value, success.

    Parameters
    ----------
    value : the value and its derivatives, by names and logarithms of the parameters.
    parameters : names.
    known : what smaller models found, to start from.
    twice : start from the usual values, too, take the better end, and look closely.
    """
    if not parameters:
        return np.zeros(0), value((), np.zeros(0))[0], True
    usual, nested = ([values.get(key, START[key]) for key in parameters] for values in (START, known))
    ends = [
        minimize(
            lambda logs: value(parameters, logs),
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[BOUNDS[key] for key in parameters],
            options={"maxiter": 200, "ftol": 1e-10 if twice else 1e-9, "gtol": 1e-5},
        )
        for start in ([nested, usual] if known and twice else [nested])
    ]
    best = min(ends, key=lambda end: end.fun)
    return best.x, float(best.fun), bool(best.success)
