"""Objectives of a training step: one file per method, registered there, and one conformance suite for all."""

from __future__ import annotations

from typing import Any

from toporo.errors import SettingError
from toporo.groups import Groups
from toporo.objectives.base import (
    OBJECTIVES,
    GroupMeans,
    Objective,
    PenalizedObjective,
    WeightedObjective,
    group_means,
    register,
)
from toporo.objectives.coral import CORAL
from toporo.objectives.dann import DANN
from toporo.objectives.erm import ERM
from toporo.objectives.group_dro import GroupDRO
from toporo.objectives.irm import IRM
from toporo.objectives.iw_erm import IWERM
from toporo.objectives.mmd import MMD
from toporo.objectives.sd import SD
from toporo.objectives.tro import TRO
from toporo.objectives.vrex import VREx
from toporo.topology.prior import Prior

__all__ = [
    "CORAL",
    "DANN",
    "ERM",
    "IRM",
    "IWERM",
    "MMD",
    "OBJECTIVES",
    "SD",
    "TRO",
    "GroupDRO",
    "GroupMeans",
    "Objective",
    "PenalizedObjective",
    "VREx",
    "WeightedObjective",
    "group_means",
    "make_objective",
    "register",
]


def make_objective(name: str, groups: Groups, prior: Prior | None = None, **settings: Any) -> Objective:
    """Build an objective by its name.

    Parameters
    ----------
    name : a key of :data:`OBJECTIVES`.
    groups : all groups of the training rows.
    prior : for the methods that take one; the others ignore it.
    settings : further arguments of the method's constructor.
    """
    method: Any = OBJECTIVES[name]
    if not method.takes_prior:
        return method(groups, **settings)  # type: ignore[no-any-return]
    if prior is None:
        raise SettingError(f"the objective {name!r} needs a prior: Prior.uniform(groups) or graph.prior(...).")
    groups.require_same(prior.weights, what="the prior")
    return method(prior, **settings)  # type: ignore[no-any-return]
