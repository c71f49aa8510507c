r"""The convex case solved exactly: linear and logistic models under the worst mixture of groups near a prior.

.. math:: \min_{W, b} \max_{q \in \Delta} \; \sum_e q_e \ell_e(W, b) + \rho \|W\|^2 - \lambda D(q\|p)

with :math:`\ell_e` a group's mean squared error (summed over outputs) or mean negative log-likelihood. No step sizes,
no epochs, no seed: the answer comes with an upper and a lower bound of the optimal value, at most ``tol`` apart.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> x, state = rng.normal(size=(300, 2)), np.repeat(["NY", "PA", "OH"], 100)
>>> y = x @ [1.0, 2.0] + (state == "OH") * x[:, 0] + 0.1 * rng.normal(size=300)
>>> fit = fit_linear(x, y, state, penalty=0.1, ridge=1e-3)
>>> max(fit.weights, key=fit.weights.get), fit.relative_gap < 1e-6
('OH', True)
>>> fit.predict([[1.0, 1.0]]).shape
(1,)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.checks import as_number, non_negative, number, penalty_number
from toporo.errors import DataError, SettingError, listed, warn
from toporo.groups import GroupIds, Groups
from toporo.machine import one_thread
from toporo.robust.divergences import get_divergence
from toporo.robust.logistic import LogisticLosses
from toporo.robust.losses import GroupLosses, SquaredLosses
from toporo.robust.rows import as_numbers, refuse_infinite
from toporo.robust.saddle import Saddle, SaddleProblem
from toporo.types import Array, Name

#: A design whose smallest direction is this far below its largest is taken for singular.
SINGULAR = 1e-11


@dataclass(frozen=True, eq=False)
class RobustFit:
    """A fitted model with the worst-case weights it was fitted against, and the proof of its optimality.

    Attributes
    ----------
    coef, intercept : features × outputs, and one per output. For two classes there is one output, the log-odds of the
        second; for more, one per class.
    classes : the classes of a logistic model, None for a linear one.
    weights, losses, prior : q, every group's loss and p, by group name.
    penalty : the penalty; for a radius, the multiplier that was found for it.
    radius, divergence, ridge : as given.
    distance : D(q‖p).
    value, bound : the upper and the lower bound of the optimal value. ``gap`` is their difference.
    steps : how many Newton steps it took.
    """

    coef: Array
    intercept: Array
    classes: tuple[Any, ...] | None
    weights: dict[Name, float]
    losses: dict[Name, float]
    prior: dict[Name, float]
    penalty: float
    radius: float | None
    divergence: str
    ridge: float
    distance: float
    value: float
    bound: float
    steps: int

    @property
    def gap(self) -> float:
        """Upper bound of the distance between the value and the optimal one."""
        return self.value - self.bound

    @property
    def relative_gap(self) -> float:
        """The gap relative to the value."""
        return self.gap / abs(self.value) if self.value else 0.0

    def scores(self, x: Any) -> Array:
        """Return predicted values, or scores: log-odds for two classes, one score per class for more."""
        rows = as_numbers(x, "x")
        if rows.ndim != 2 or rows.shape[1] != len(self.coef):
            raise DataError(f"x has shape {rows.shape}: expected rows × {len(self.coef)} features, as in fitting.")
        refuse_infinite(rows, "x")
        scores: Array = rows @ self.coef + self.intercept
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """Return predicted values, or the most probable class of every row."""
        scores = self.scores(x)
        if self.classes is None:
            return scores
        chosen = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(np.asarray(self.classes)[chosen])


def fit_linear(
    x: Any,
    y: Any,
    groups: Iterable[Name] | GroupIds,
    prior: Mapping[Any, float] | Any = None,
    *,
    intercept: bool = True,
    sample_weight: Any = None,
    **settings: Any,
) -> RobustFit:
    r"""Fit least squares under the worst mixture of groups.

    Parameters
    ----------
    x, y, groups : one row per sample; y may have several columns, whose squared errors are added.
    prior : p by group name (a mapping, or a :class:`toporo.Prior`); uniform unless given.
    intercept : whether the model has one.
    sample_weight : one weight per row, within its group.
    settings : ``penalty``, ``radius``, ``divergence``, ``ridge`` and ``tol`` of :func:`solve`.

    >>> x, state = np.array([[0.0], [1.0], [2.0], [3.0]] * 2), np.repeat(["NY", "PA"], 4)
    >>> y = x[:, 0] * np.where(state == "PA", 3.0, 1.0)
    >>> fit = fit_linear(x, y, state, penalty=0.0)
    >>> fit.predict([[1.0]]).round(3), fit.relative_gap <= 1e-6  # half way: the worst of the two loses the least
    (array([2.]), True)
    """
    losses = SquaredLosses.from_arrays(x, y, groups, intercept=intercept, sample_weight=sample_weight)
    return solve(losses, prior, **settings)


def fit_logistic(
    x: Any,
    y: Any,
    groups: Iterable[Name] | GroupIds,
    prior: Mapping[Any, float] | Any = None,
    *,
    intercept: bool = True,
    sample_weight: Any = None,
    **settings: Any,
) -> RobustFit:
    r"""Fit logistic regression, binary or multinomial, under the worst mixture of groups.

    Parameters
    ----------
    x, y, groups : one row per sample; y holds classes.
    prior, intercept, sample_weight : as for :func:`fit_linear`.
    settings : as for :func:`fit_linear`, with a ``ridge`` of 1e-3 unless given. It must be positive, because classes
        that can be separated have no best model without it.

    >>> x, state = np.array([[-2.0], [-1.0], [1.0], [2.0]] * 2), np.repeat(["NY", "PA"], 4)
    >>> fit = fit_logistic(x, x[:, 0] > 0, state, ridge=0.1)
    >>> bool(fit.coef[0, 0] > 0), fit.bound <= fit.value
    (True, True)
    """
    losses = LogisticLosses.from_arrays(x, y, groups, intercept=intercept, sample_weight=sample_weight)
    return solve(losses, prior, **{"ridge": 1e-3, **settings})


def solve(
    losses: GroupLosses,
    prior: Mapping[Any, float] | Any = None,
    *,
    penalty: float = 1.0,
    radius: float | None = None,
    start: Array | None = None,
    **settings: Any,
) -> RobustFit:
    r"""Fit to prepared losses, e.g. for several priors or ridges.

    Parameters
    ----------
    losses : :class:`SquaredLosses` or :class:`LogisticLosses` of the rows.
    prior : p by group name; uniform unless given.
    penalty : :math:`\lambda`: infinity weights the groups by p, 0 is the worst group alone.
    radius : instead of a penalty, :math:`D(q\|p) \le \tau`.
    start : a model near the solution (D × k) to start from; zeros unless given.
    settings : ``divergence``, ``ridge``, ``tol`` and ``most`` (not with a radius) of :func:`path`.

    >>> x, state = np.array([[0.0], [1.0], [2.0], [3.0]] * 2), np.repeat(["NY", "PA"], 4)
    >>> losses = SquaredLosses.from_arrays(x, x[:, 0] * np.where(state == "PA", 3.0, 1.0), state)
    >>> [solve(losses, penalty=0.0, ridge=ridge).predict([[1.0]]).round(2).item() for ridge in (0.0, 0.1)]
    [2.0, 2.13]
    """
    with one_thread():
        problem = _problem(losses, prior, start=start, **settings)
        if radius is None:
            return _fit(problem, problem.penalised(penalty_number(penalty)))
        if problem.most is not None:
            raise SettingError("a radius and the most weight of groups do not go together: give a penalty.")
        largest = non_negative(radius, "radius", "a finite number of at least 0 (0 keeps q at the prior)")
        return _fit(problem, problem.constrained(largest), largest)


def path(
    losses: GroupLosses, prior: Mapping[Any, float] | Any = None, *, penalties: Sequence[float], **settings: Any
) -> list[RobustFit]:
    r"""Fit with many penalties, from the largest to the smallest, each fit starting from the one before.

    Parameters
    ----------
    losses, prior : as for :func:`solve`.
    penalties : fits come in their order.
    settings : ``divergence``, D: ``"l2"``, ``"kl"`` or ``"chi2"``. ``ridge``, :math:`\rho`, 0 unless given; the
        intercept is free of it, and features of different units should be standardised first. ``tol``, the relative
        gap to reach, 1e-6 unless given; a fit that does not get there warns and reports the gap it has. ``most``, the
        largest weight by group, not below the prior, with l2 only; no limit unless given.

    >>> x, state = np.array([[0.0], [1.0], [2.0], [3.0]] * 2), np.repeat(["NY", "PA"], 4)
    >>> losses = SquaredLosses.from_arrays(x, x[:, 0] * np.where(state == "PA", 3.0, 1.0), state)
    >>> [round(fit.weights["PA"], 2) for fit in path(losses, {"NY": 1, "PA": 3}, penalties=[np.inf, 0])]
    [0.75, 0.5]
    """
    values = [penalty_number(value) for value in penalties]
    fits: dict[float, RobustFit] = {}
    with one_thread():
        problem = _problem(losses, prior, **settings)
        last = before = None
        for value in sorted(set(values), reverse=True):
            near = last if last is None or before is None else problem.extrapolated(value, last, before)
            before, last = last, problem.penalised(value, near)
            fits[value] = _fit(problem, last)
    return [fits[value] for value in values]


def _problem(
    losses: GroupLosses,
    prior: Mapping[Any, float] | Any,
    *,
    divergence: str = "l2",
    ridge: float = 0.0,
    tol: float = 1e-6,
    most: Mapping[Any, float] | None = None,
    start: Array | None = None,
) -> SaddleProblem:
    ridge = non_negative(ridge, "ridge")
    tol = number(tol, "tol", "a number between 0 and 1, such as 1e-6", above=0.0, below=1.0)
    weights, chosen = _weights(losses.groups, prior), get_divergence(divergence)
    if ridge == 0:
        _refuse_singular(losses, np.ones(len(weights), bool) if chosen.bounded else weights > 0)
    caps = None if most is None else losses.groups.align(most, what="the most weight")
    if caps is not None and (chosen.name != "l2" or caps.sum() < 1.0 or (weights > caps * (1.0 + 1e-9)).any()):
        raise SettingError("the most weight of groups goes with l2, sums to one at least, and is not below the prior.")
    return SaddleProblem(losses, ridge, weights, chosen, tol=tol, most=caps, start=start)


def _weights(groups: Groups, prior: Mapping[Any, float] | Any) -> Array:
    given = dict.fromkeys(groups, 1.0) if prior is None else getattr(prior, "weights", prior)
    if not isinstance(given, Mapping):
        raise DataError(
            f"the prior is of type {type(prior).__name__}: expected {{group name: weight}} or a Prior, because weights "
            "are joined by name."
        )
    groups.require_same(given, what="the prior")
    weights = groups.align({name: as_number(weight) for name, weight in given.items()})
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise DataError(
            f"prior weights must be finite, non-negative and not all zero; found {listed(given.items(), 4)}."
        )
    return np.asarray(weights / weights.sum())


def _refuse_singular(losses: GroupLosses, counted: npt.NDArray[np.bool_]) -> None:
    """Without a ridge the best model must be unique, by the rows of groups that can have weight."""
    if not isinstance(losses, SquaredLosses):
        raise SettingError(
            "ridge is 0: a logistic model needs a positive one, because classes that can be told apart without error "
            "have no best model. Use a small number such as 1e-6."
        )
    pooled = losses.gram[counted].mean(axis=0)
    features = len(pooled) - losses.intercept
    scale = np.sqrt(pooled.diagonal())
    shift = np.abs(losses.input_shift)
    scale[:features] = np.where(scale[:features] > 1e-12 * shift, scale[:features], shift)  # a constant is rounding
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(pooled / np.outer(scale, scale))
    if values[0] <= SINGULAR * values[-1]:
        share = np.abs(vectors[:features, 0])
        part = [int(i) for i in np.flatnonzero(share > 0.1 * share.max())]
        raise DataError(
            f"the design is singular: feature column(s) {listed(part)} (counted from 0) do not vary or are linear "
            "combinations of one another. Drop some of them, or set a ridge above 0."
        )


def _fit(problem: SaddleProblem, saddle: Saddle, radius: float | None = None) -> RobustFit:
    losses = problem.losses
    if not problem.certified(saddle):
        warn(
            f"the gap is {saddle.gap / max(abs(saddle.value), 1e-300):.1e} of the value after {saddle.steps} Newton "
            f"steps, more than tol = {problem.tol:g}: the fit is within that of the best. A larger ridge or penalty, "
            "or standardised features, help."
        )
    coef, intercept = losses.coefficients(saddle.point.theta)
    return RobustFit(
        coef=coef,
        intercept=intercept,
        classes=getattr(losses, "classes", None),
        weights=losses.groups.named(saddle.q),
        losses=losses.groups.named(saddle.point.losses),
        prior=losses.groups.named(problem.over_all(problem.prior)),
        penalty=saddle.penalty,
        radius=radius,
        divergence=problem.divergence.name,
        ridge=0.5 * float(problem.ridge[0, 0]),
        distance=float(problem.divergence.value(saddle.q[problem.support], problem.prior)),
        value=saddle.value,
        bound=saddle.value - saddle.gap,
        steps=saddle.steps,
    )
