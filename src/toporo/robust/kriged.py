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
time. Variances and t maximise the restricted likelihood (:mod:`toporo.robust.likelihood`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from toporo.errors import DataError, warn
from toporo.progress import tracked
from toporo.robust.factors import GroupFactors
from toporo.robust.likelihood import Likelihood, Solved
from toporo.robust.modes import GraphModes
from toporo.types import Array

#: Variances over s², and the diffusion time, with the logarithms at which a search starts.
START = {"omega_b": 0.0, "omega_c": -1.0, "omega_0": -2.0, "omega_1": -4.0, "tau_0": -2.0, "tau_1": -4.0, "time": 0.0}
PARAMETERS = tuple(START)
#: Bounds of the search, as logarithms; a variance at its lower bound is as good as none.
BOUNDS = {**dict.fromkeys(PARAMETERS[:-1], (-16.0, 9.0)), "time": (-4.0, 5.0)}
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
#: A model with less weight than this gets none.
NEGLIGIBLE = 1e-6
#: With more effects than this, a search starts from the variances of smaller models only, not from the usual ones too,
#: and ends when the likelihood changes by less than a share of 1e-9, not 1e-10. Of 30 random problems the second start
#: led some model to a higher likelihood in 20.
LARGE = 700


@dataclass(frozen=True)
class FittedModel:
    """One of the nested models at its best parameters.

    Attributes
    ----------
    name : in :data:`MODELS`.
    parameters : the variances over s² and the diffusion time that it has.
    nll : minus the logarithm of the restricted likelihood, of all sets of rows that were fitted together.
    score : ``nll`` plus half the logarithm of the number of groups for each parameter; lower is better.
    converged : whether the search ended well.
    """

    name: str
    parameters: dict[str, float]
    nll: float
    score: float
    converged: bool

    def check(self) -> None:
        """Raise unless its numbers can be those of a model."""
        if not set(self.parameters) <= set(PARAMETERS) or not all(0 < v < math.inf for v in self.parameters.values()):
            raise DataError(f"its model {self.name!r:.50} has variances that are unknown, or not > 0.")
        if not (math.isfinite(self.nll) and math.isfinite(self.score)):
            raise DataError(f"its model {self.name!r:.50} has no finite likelihood.")


@dataclass(frozen=True, eq=False)
class KrigedFit:
    """The nested models, weighted by their evidence.

    It holds the statistics of the rows and the variances; everything else follows from these and is solved for when it
    is needed. Methods take ``means``, ``vectors`` and ``trained`` as those of
    :class:`~toporo.robust.likelihood.Solved` do, of groups or of the group of each row.

    Attributes
    ----------
    factors : of the training rows.
    modes : over all groups of the graph; None without one.
    places : the row of ``modes.vectors`` of each training group; empty without a graph.
    level : whether there is a :math:`b_0`.
    models : in the order of :data:`MODELS`.
    weights : summing to 1.
    """

    factors: GroupFactors
    modes: GraphModes | None
    places: npt.NDArray[np.int64]
    level: bool
    models: tuple[FittedModel, ...]
    weights: Array

    @cached_property
    def likelihood(self) -> Likelihood:
        """The data and the graph."""
        return Likelihood(self.factors, self.modes, self.places.tolist(), level=self.level)

    @cached_property
    def counting(self) -> list[tuple[Solved, float]]:
        """Solutions of the models that have weight, and their weights."""
        return [
            (self.likelihood.solve(model.parameters, centred=not model.name.endswith(OF_X)), float(weight))
            for model, weight in zip(self.models, self.weights, strict=True)
            if weight > 0
        ]

    def check(self) -> None:
        """Raise unless the arrays fit together and the models can be solved."""
        self.factors.check()
        nodes = 0 if self.modes is None else len(self.modes.vectors)
        expected = (len(self.factors.groups) if nodes else 0,)
        if self.places.shape != expected or (self.places < 0).any() or (self.places >= nodes).any():
            raise DataError("its groups are not among those of the graph.")
        sound = len(self.models) == len(self.weights) and bool((self.weights >= 0).all())
        if not sound or abs(self.weights.sum() - 1.0) > 1e-6:
            raise DataError("the weights of its models do not sum to one.")
        if self.modes is None and any("time" in model.parameters for model in self.models):
            raise DataError("one of its models follows a graph, and it has none.")
        try:
            with np.errstate(all="ignore"):
                sound = all(math.isfinite(solved.nll) for solved, _ in self.counting)
        except (np.linalg.LinAlgError, ValueError):
            sound = False
        if not sound:
            raise DataError("its numbers have no solution: fit the model again.")

    @property
    def evidence(self) -> dict[str, float]:
        """Weights by name."""
        return {model.name: float(weight) for model, weight in zip(self.models, self.weights, strict=True)}

    @property
    def noise(self) -> Array:
        """s² of each output, mean over the models."""
        return np.asarray(sum(weight * solved.noise for solved, weight in self.counting))

    def coefficients(self, means: Array, vectors: Array, trained: Any) -> Array:
        """Return θ of groups: intercept at the group's mean and slopes, (groups, d + 1, outputs)."""
        by_model = [weight * solved.coefficients(means, vectors, trained) for solved, weight in self.counting]
        return np.asarray(sum(by_model))

    def values(self, x: Array, means: Array, vectors: Array, trained: Any) -> Array:
        """Return the means of the values of rows, (rows, outputs)."""
        return _values(x - means, self.coefficients(means, vectors, trained))

    def moments(self, x: Array, means: Array, vectors: Array, trained: Any) -> tuple[Array, Array]:
        """Return mean and variance of the values of rows without their noise, (rows, outputs) each."""
        centre = self.values(x, means, vectors, trained)
        variance = np.zeros_like(centre)
        for solved, weight in self.counting:
            own = solved.variances(solved.layout.terms(x, means), means, vectors, trained)[:, None] * solved.noise
            apart = _values(x - means, solved.coefficients(means, vectors, trained)) - centre
            variance += weight * (own + apart**2)
        return centre, variance

    def without(self, gone: npt.NDArray[np.bool_]) -> KrigedFit:
        """Return the models, with the same variances, as if some of the training groups had not been seen.

        Parameters
        ----------
        gone : mask of the groups to leave out.
        """
        some = self.likelihood.select(np.flatnonzero(~gone))
        return replace(self, factors=some.factors, places=np.asarray(some.places, dtype=np.int64))


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
    return fit


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
    earlier = {} if start is None else {model.name: model.parameters for model in start.models}
    wanted = {name: parts for name, parts in models.items() if likelihoods[0].modes is not None or "time" not in parts}
    logs = dict[str, float]()
    fitted: list[FittedModel] = []
    for name, names in tracked(wanted.items(), "searching for variances"):
        logs |= {key: math.log(value) for key, value in earlier.get(name, {}).items()}
        centred = not name.endswith(OF_X)
        found, nll, converged = _search(likelihoods, names, logs, centred=centred, near=name in earlier)
        logs |= found
        best = {key: math.exp(log) for key, log in found.items()}
        score = nll + 0.5 * math.log(groups) * len(names)
        fitted.append(FittedModel(name, best, nll, score, converged))
    weights = evidence_weights([model.score for model in fitted])
    return [
        KrigedFit(one.factors, one.modes, np.asarray(one.places, np.int64), one.level, tuple(fitted), weights)
        for one in likelihoods
    ]


def _search(
    likelihoods: Sequence[Likelihood], names: Sequence[str], found: Mapping[str, float], *, centred: bool, near: bool
) -> tuple[dict[str, float], float, bool]:
    """Minimise minus the logarithm of the likelihood: logarithms of the parameters, the value, success.

    Parameters
    ----------
    likelihoods, names, centred : the sets of rows, and the model.
    found : best parameters of smaller models, to start from.
    near : whether these are of the same model, so that no other start is needed.
    """

    def value(logs: Array) -> tuple[float, Array]:
        by_set = [likelihood.value(names, logs, centred=centred) for likelihood in likelihoods]
        return sum(nll for nll, _ in by_set), np.sum([gradient for _, gradient in by_set], axis=0)

    if not names:
        return {}, value(np.zeros(0))[0], True
    twice = likelihoods[0].layout({name: math.exp(START[name]) for name in names}).effects <= LARGE and not near
    starts = [found, {}] if found and twice else [found]
    ends = [
        minimize(
            value,
            [start.get(name, START[name]) for name in names],
            jac=True,
            method="L-BFGS-B",
            bounds=[BOUNDS[name] for name in names],
            options={"maxiter": 200, "ftol": 1e-10 if twice else 1e-9, "gtol": 1e-5},
        )
        for start in starts
    ]
    best = min(ends, key=lambda end: end.fun)
    return dict(zip(names, best.x.tolist(), strict=True)), float(best.fun), bool(best.success)


def _values(x: Array, theta: Array) -> Array:
    """Return the values of rows of centred inputs by the coefficients of each, (rows, outputs)."""
    return np.asarray(theta[:, 0] + np.einsum("nj,njk->nk", x, theta[:, 1:]))


def evidence_weights(scores: Sequence[float]) -> Array:
    """Return weights proportional to exp(-score), none for models whose weight is negligible."""
    weights = np.exp(min(scores) - np.asarray(scores))
    weights[weights <= NEGLIGIBLE * weights.sum()] = 0.0
    return np.asarray(weights / weights.sum())
