"""A fitted ensemble with group effects, as a value that predicts and can be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError
from toporo.estimators.effects import GroupEffects
from toporo.estimators.ensemble import Ensemble
from toporo.estimators.intervals import Intervals
from toporo.estimators.leaderboard import CandidateScore
from toporo.estimators.places import Context, Places, hops_to
from toporo.estimators.rows import one_group
from toporo.groups import GroupIds
from toporo.types import Array, Name


@dataclass(frozen=True, eq=False)
class AutoModel:
    """Weighted candidates, the effects of groups on what they leave, and intervals.

    Attributes
    ----------
    ensemble : the candidates that have weight.
    effects : of the groups.
    intervals : None for fewer than three groups.
    scores : of all candidates, the largest weight first.
    sizes : rows by training group.
    inputs : number of inputs.
    classes : sorted; None for numbers.
    test_groups, folds, seed : settings of the fit.
    """

    ensemble: Ensemble
    effects: GroupEffects
    intervals: Intervals | None
    scores: tuple[CandidateScore, ...]
    sizes: dict[Name, int]
    inputs: int
    classes: npt.NDArray[Any] | None
    test_groups: tuple[Name, ...] | None
    folds: int
    seed: int

    def __call__(self, x: Array, at: Places) -> Array:
        """Predict rows: (rows, 1), or probabilities, (rows, classes)."""
        return self.effects.add_to(self.ensemble(x, at), at)

    def group_context(self, x: Array, ids: GroupIds) -> Context:
        """Return the means of inputs by group that predictions take, from some of the rows to predict."""
        return self.ensemble.group_context(x, ids)

    def distances(self, at: Places) -> Array:
        """Return the hops from rows to the nearest training group."""
        hops = hops_to(self.effects.graph, self.effects.groups, at.ids.groups, at.neighbors)
        return np.asarray(hops[at.ids.codes])

    def check(self) -> None:
        """Raise unless its parts fit together."""
        if tuple(self.sizes) != self.effects.groups.names or min(self.sizes.values()) < 1:
            raise DataError("its groups are out of order, or one has no rows.")
        if self.effects.graph is not None:
            self.effects.graph.require(self.test_groups or ())
        if self.folds < 2 or self.seed < 0 or self.inputs < 1:
            raise DataError("its folds, seed or inputs are beyond what they may be.")
        if len(self.effects.fits) != (1 if self.classes is None else len(self.classes)):
            raise DataError(f"it has {len(self.effects.fits)} effect(s) of a group.")
        x, at = np.zeros((1, self.inputs)), Places(one_group(self.effects.groups.names[0], 1))
        for name, member in self.ensemble.members.items():
            with np.errstate(all="ignore"):
                found = member(x, at)
            if found.shape != (1, len(self.effects.fits)) or not np.isfinite(found).all():
                raise DataError(f"its candidate {name!r:.50} does not predict rows of {self.inputs} inputs.")
