"""What one training step minimises: one file a method, one line in the registry, one conformance suite for all."""

from __future__ import annotations

from typing import Any

from toporo.errors import SettingError, UnknownNameError
from toporo.groups import Groups
from toporo.objectives.base import GroupMeans, Objective, WeightedObjective, group_means
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
    "VREx",
    "WeightedObjective",
    "get_objective",
    "group_means",
    "make_objective",
]

#: Name to class.
OBJECTIVES: dict[str, type[Objective]] = {
    "erm": ERM,
    "iw-erm": IWERM,
    "irm": IRM,
    "vrex": VREx,
    "sd": SD,
    "coral": CORAL,
    "mmd": MMD,
    "dann": DANN,
    "group-dro": GroupDRO,
    "tro": TRO,
}


def get_objective(name: str) -> type[Objective]:
    """An objective's class by its name."""
    if name not in OBJECTIVES:
        raise UnknownNameError("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def make_objective(name: str, groups: Groups, prior: Prior | None = None, **settings: Any) -> Objective:
    """An objective by its name over these groups; methods with a prior need it, the others leave it aside."""
    method: Any = get_objective(name)
    if not method.takes_prior:
        return method(groups, **settings)  # type: ignore[no-any-return]
    if prior is None:
        raise SettingError(f"the objective {name!r} needs a prior: Prior.uniform(groups) or graph.prior(...).")
    return method(prior, groups=groups, **settings)  # type: ignore[no-any-return]
