"""The linear model of an estimator: scaled, its penalty chosen where asked for, solved exactly, scaled back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from toporo.choice.penalty import Losses, NoChoiceError, PenaltyChoice, PriorMaker, choose_penalty
from toporo.errors import warn
from toporo.estimators.rows import Rows, draw
from toporo.estimators.settings import PENALTY, RIDGE, Settings
from toporo.estimators.summary import PassedRows, Summary
from toporo.robust.factors import GroupFactors
from toporo.robust.linear import RobustFit, solve
from toporo.robust.logistic import LogisticLosses
from toporo.robust.losses import SquaredLosses
from toporo.topology.effect import rows_in_effect
from toporo.topology.prior import Prior
from toporo.types import Array, Name

#: A penalty for logistic models is chosen on at most about this many rows.
MOST_ROWS = 20_000
#: Groups that choosing a penalty by leaving groups out needs.
FEWEST_TO_CHOOSE = 4
#: An automatic ridge is this many times columns over rows in effect: at ten rows per column, ten times the least one.
PER_ROW = 0.1


@dataclass(frozen=True)
class SolveRecord:
    """How an exact solution was reached.

    Attributes
    ----------
    value, bound : upper and lower bound of the optimal value, in the units the problem was solved in.
    relative_gap : their difference, relative to the value.
    steps : Newton steps.
    penalty : that of the solution; for a radius the multiplier that was found.
    """

    value: float
    bound: float
    relative_gap: float
    steps: int
    penalty: float


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A solution in the units of the data (features × outputs), the scaled one behind it, and its choice of penalty."""

    coef: Array
    intercept: Array
    solved: RobustFit
    choice: PenaltyChoice | None

    @property
    def record(self) -> SolveRecord:
        """For the history."""
        return SolveRecord(**{name: getattr(self.solved, name) for name in SolveRecord.__dataclass_fields__})


#: Rows at hand, or what is known of rows that are not.
AnyRows = Rows | Summary | PassedRows


def prepare(rows: Rows | Summary, intercept: bool) -> Losses:
    """Prepare the losses by group of scaled data."""
    if isinstance(rows, Summary):
        return rows.squared_losses(_target_units(rows), intercept=intercept)
    x, scale = rows.x, rows.inputs.scale
    if rows.targets is None:
        return LogisticLosses.from_arrays(x / scale, rows.y, rows.ids, intercept=intercept, sample_weight=rows.weights)
    units = np.append(scale, _target_units(rows))
    center = np.append(np.zeros(len(scale)), rows.targets.center)
    factors = GroupFactors.from_rows(x, rows.y, rows.ids, rows.weights).scaled(center, units)
    return SquaredLosses.from_factors(factors, intercept=intercept)


def _chosen(
    rows: AnyRows,
    losses: Losses,
    maker: PriorMaker,
    test: Sequence[Name] | None,
    settings: Settings,
    labels: Sequence[Any],
    how: dict[str, Any],
) -> PenaltyChoice | None:
    """The penalty that does best in groups left out; None, with a warning if that is odd, where nobody can tell."""
    if len(rows.groups) < FEWEST_TO_CHOOSE:
        return None
    try:
        return choose_penalty(_fewer(rows, losses, settings, labels), maker.graph, test, maker.fold, **how)
    except NoChoiceError as error:
        warn(f"{str(error).partition(' Give a number')[0]} The penalty is {PENALTY:g}.")
        return None


def fit(
    rows: AnyRows,
    prior: Prior | None,
    maker: PriorMaker,
    test: Sequence[Name] | None,
    settings: Settings,
    *,
    labels: Sequence[Any] = (),
) -> LinearFit:
    """Choose the penalty where asked for, solve, and give the model in the units of the data.

    Parameters
    ----------
    prior : over the groups; None for a single one.
    maker, test : make the priors of folds; ``test`` are the test groups.
    labels : what messages call the classes.
    """
    losses: Losses
    if isinstance(rows, PassedRows):
        losses = rows.passes(rows.inputs, settings.fit_intercept)
    else:
        losses = prepare(rows, settings.fit_intercept)
    penalty, radius, choice = settings.penalty, settings.radius, None
    # Who asks for the worst group alone, or for a distance, gets it; kl and chi2 stay near a prior that is within it.
    held = radius is None and penalty != 0 and settings.divergence == "l2"
    most = maker.most if held else lambda _: None
    ridge = ridge_for(rows, dict.fromkeys(rows.groups, 1.0) if prior is None else prior.weights, settings)
    if prior is None:
        penalty, radius = math.inf, None
    elif isinstance(penalty, str):
        how: dict[str, Any] = {"divergence": settings.divergence, "ridge": ridge, "most": most}
        choice = _chosen(rows, losses, maker, test, settings, labels, how)
        penalty = PENALTY if choice is None else choice.penalty
    rows.warn_of_one_class(float(penalty))
    wanted: dict[str, Any] = {"penalty": penalty, "radius": radius, "most": most(rows.groups)}
    wanted |= {"divergence": settings.divergence, "tol": settings.tol}
    start = None
    if isinstance(rows, PassedRows):  # the rows at hand get near, at no pass
        near = solve(prepare(rows.some, settings.fit_intercept), prior, **wanted, ridge=ridge)
        start = losses.model(near.coef, near.intercept)
    solved = solve(losses, prior, **wanted, ridge=ridge, start=start)
    again = ridge_for(rows, solved.weights, settings)
    if again != ridge:
        if isinstance(rows, PassedRows):
            start = losses.model(solved.coef, solved.intercept)
        solved = solve(losses, prior, **wanted, ridge=again, start=start)
    coef, intercept = solved.coef / rows.inputs.scale[:, None], solved.intercept
    if rows.targets is not None:
        units = _target_units(rows)
        coef, intercept = coef * units, intercept * units + rows.targets.center
    return LinearFit(coef, intercept, solved, choice)


def ridge_for(rows: AnyRows, weights: Mapping[Name, float], settings: Settings) -> float:
    r"""The ridge that was given, or one for the rows that weights of groups leave in effect.

    .. math:: \rho = \max(0.001, 0.1 \, d / n)

    for d columns and n rows in effect. A single group has no weights, so its ridge is the least one.
    """
    if settings.ridge is not None:
        return settings.ridge
    if len(rows.groups) == 1:
        return RIDGE
    return max(RIDGE, PER_ROW * rows.width / rows_in_effect(weights, rows.in_effect))


def _fewer(rows: AnyRows, losses: Losses, settings: Settings, labels: Sequence[Any]) -> Losses:
    """What a penalty is chosen on: for a logistic model, not all of many rows."""
    if isinstance(rows, PassedRows):
        return _fewer(rows.some, prepare(rows.some, settings.fit_intercept), settings, labels)
    if isinstance(rows, Rows) and rows.classes is not None and rows.count > MOST_ROWS:
        some = rows.take(draw(rows.ids, max(MOST_ROWS // len(rows.groups), 1), settings.seed))
        if len(np.unique(some.y)) == rows.classes:
            losses = prepare(some, settings.fit_intercept)
    if isinstance(losses, LogisticLosses):
        losses = replace(losses, classes=tuple(labels) or losses.classes)
    return losses


def _target_units(rows: AnyRows) -> Array:
    """Of each output: a model that knows only the means then has squared errors of 1 in all."""
    if rows.targets is None:
        return np.ones(1)
    return np.asarray(rows.targets.scale * math.sqrt(len(rows.targets.scale)))
