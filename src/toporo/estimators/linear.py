"""Fit a linear model: choose its penalty where asked for, and solve exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from toporo.choice.penalty import Losses, NoChoiceError, PenaltyChoice, choose_penalty
from toporo.errors import warn
from toporo.estimators.base import GroupPrior
from toporo.estimators.models import Fit
from toporo.estimators.settings import PENALTY, Settings
from toporo.estimators.training_rows import TrainingRows
from toporo.robust.linear import solve
from toporo.topology.effect import rows_in_effect
from toporo.types import Name

#: Groups that choosing a penalty by leaving groups out needs.
FEWEST_TO_CHOOSE = 4
#: The least automatic ridge, which is also that of networks and of a single group.
RIDGE = 1e-3
#: An automatic ridge is this many times columns over rows in effect: at ten rows per column, ten times the least one.
PER_ROW = 0.1


def fit(rows: TrainingRows, known: GroupPrior, settings: Settings) -> tuple[Fit, Mapping[Name, float]]:
    """Choose the penalty where asked for, solve, and return the model and the weights of the groups.

    Parameters
    ----------
    rows : to train on.
    known : graph, test groups and prior.
    settings : of the estimator.
    """
    losses, prior = rows.losses(), known.prior
    penalty, radius, choice = settings.penalty, settings.radius, None
    # Who asks for the worst group alone, or for a distance, gets it; kl and chi2 stay near a prior that is within it.
    limited = radius is None and penalty != 0 and settings.divergence == "l2"
    most = known.maker.most if limited else lambda _: None
    ridge = ridge_for(rows, dict.fromkeys(rows.groups, 1.0) if prior is None else prior.weights, settings)
    if prior is None:
        penalty, radius = math.inf, None
    elif penalty is None and radius is None:
        how = {"divergence": settings.divergence, "ridge": ridge, "most": most}
        choice = _chosen(rows.losses_to_choose_by(losses, settings.seed), known, how)
        penalty = PENALTY if choice is None else choice.penalty
    rows.warn_of_one_class(penalty)
    wanted: dict[str, Any] = {"penalty": PENALTY if penalty is None else penalty, "radius": radius}
    wanted |= {"most": most(rows.groups), "divergence": settings.divergence}
    near, start = rows.sample_losses(), None
    if near is not None:  # the solution for the rows at hand is near, and takes no pass
        found = solve(near, prior, **wanted, ridge=ridge)
        start = losses.model(found.coef, found.intercept)
    solved = solve(losses, prior, **wanted, ridge=ridge, start=start)
    again = ridge_for(rows, solved.weights, settings)
    if again != ridge:
        if near is not None:
            start = losses.model(solved.coef, solved.intercept)
        solved = solve(losses, prior, **wanted, ridge=again, start=start)
    model = rows.model(solved)
    fitted = Fit(
        model=model,
        scaling=rows.inputs,
        group_losses=rows.squared_errors(model) if rows.labels is None else dict(solved.losses),
        penalty=solved.penalty,
        ridge=solved.ridge,
        choice=choice,
        history=(solved,),
    )
    return fitted, solved.weights


def _chosen(losses: Losses, known: GroupPrior, how: Mapping[str, Any]) -> PenaltyChoice | None:
    """Return the penalty that does best in groups left out; None, with a warning if that is odd, where none does."""
    if len(losses.groups) < FEWEST_TO_CHOOSE:
        return None
    try:
        return choose_penalty(losses, known.graph, known.test_groups, known.maker.fold, **how)
    except NoChoiceError as error:
        warn(f"{str(error).partition(' Give a number')[0]} The penalty is {PENALTY:g}.")
        return None


def ridge_for(rows: TrainingRows, weights: Mapping[Name, float], settings: Settings) -> float:
    r"""Return the ridge that was given, or one for the rows that weights of groups leave in effect.

    .. math:: \rho = \max(0.001, 0.1 \, d / n)

    for d columns and n rows in effect. A single group has no weights, so its ridge is the least one.
    """
    if settings.ridge is not None:
        return settings.ridge
    if len(rows.groups) == 1:
        return RIDGE
    return max(RIDGE, PER_ROW * rows.width / rows_in_effect(weights, rows.in_effect))
