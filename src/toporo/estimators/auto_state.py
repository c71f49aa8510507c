"""Fitted models of several candidates as values that can be stored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError, listed
from toporo.estimators.auto import AutoClassifier, AutoEstimator, AutoRegressor, TreesClassifier, TreesRegressor
from toporo.estimators.candidates import Boosted, InContext, Inputs, Linear, OfKriged, Predictor, Same, Sum
from toporo.estimators.effects import EFFECTS
from toporo.estimators.held_out import HeldOut
from toporo.estimators.kriged_state import KrigedState, check_places
from toporo.estimators.league import Standing
from toporo.groups import Groups
from toporo.topology.graph import GroupGraph
from toporo.types import Name

#: Predictors that a candidate lies within at most.
DEEPEST = 2


@dataclass(frozen=True, eq=False)
class AutoModel:
    """A fitted :class:`~toporo.AutoRegressor` or :class:`~toporo.AutoClassifier`, without candidates of no weight."""

    trees_alone: bool
    folds: int
    seed: int
    test_groups: tuple[Name, ...] | None
    graph: GroupGraph | None
    inputs: int
    sizes: dict[Name, int]
    classes: npt.NDArray[Any] | None
    sureness: float
    weights: dict[str, float]
    candidates: dict[str, Predictor]
    leaderboard: tuple[Standing, ...]
    effects: tuple[KrigedState, ...]
    intervals: HeldOut | None

    @classmethod
    def of(cls, estimator: AutoEstimator) -> Self:
        """Take from a fitted estimator what it can be made of again."""
        weights = {name: estimator.votes_[name] for name in estimator.candidates_ if estimator.votes_[name] > 0.0}
        own = sorted(weights.keys() & set(estimator.candidates or ()))
        if own:
            raise SettingError(
                f"candidate(s) of one's own have a vote and cannot be stored: {listed(own)}. Only their code can make "
                "them again: keep the model with joblib, and load only what you trust."
            )
        test, classes = estimator.test_groups, isinstance(estimator, AutoClassifier)
        candidates: Any = {name: estimator.candidates_[name] for name in weights}
        return cls(
            trees_alone=isinstance(estimator, TreesRegressor | TreesClassifier),
            folds=int(estimator.folds),
            seed=int(estimator.random_state),
            test_groups=None if test is None else tuple(test),
            graph=estimator.topology_,
            inputs=int(estimator.n_features_in_),
            sizes=estimator.group_sizes_,
            classes=estimator.classes_ if classes else None,
            sureness=estimator.sureness_ if classes else 1.0,
            weights=weights,
            candidates=candidates,
            leaderboard=estimator.league_,
            effects=tuple(map(KrigedState.of, estimator.fits_)),
            intervals=estimator.intervals_,
        )

    def check(self) -> None:
        """Raise unless its parts fit together."""
        groups = Groups(self.sizes)
        if tuple(self.sizes) != groups.names or min(self.sizes.values()) < 1:
            raise DataError("its groups are out of order, or one has no rows.")
        if self.graph is not None:
            self.graph.require([*groups, *(self.test_groups or ())])
        if self.folds < 2 or self.seed < 0 or self.inputs < 1 or not 0.0 <= self.sureness <= 1.0:
            raise DataError("its folds, seed, inputs or sureness are beyond what they may be.")
        sound = all(0.0 < weight <= 1.0 for weight in self.weights.values())
        if not sound or abs(math.fsum(self.weights.values()) - 1.0) > 1e-6 or set(self.weights) != set(self.candidates):
            raise DataError("the weights of its candidates do not sum to one.")
        if len(self.effects) != (1 if self.classes is None else len(self.classes)):
            raise DataError(f"it has {len(self.effects)} effect(s) of a group.")
        for effect in self.effects:
            if effect.factors.groups.names != groups.names or effect.factors.columns or effect.factors.outputs != 1:
                raise DataError("its effects are of other groups, or of inputs.")
            check_places(effect, self.graph)
        for candidate in self.candidates.values():
            check_candidate(candidate, self.inputs, self.classes)

    def estimator(self) -> AutoEstimator:
        """Make the estimator; it predicts the same, and knows the candidates that have a weight."""
        kinds = (TreesRegressor, TreesClassifier) if self.trees_alone else (AutoRegressor, AutoClassifier)
        kind: type[AutoEstimator] = kinds[self.classes is not None]
        test = None if self.test_groups is None else list(self.test_groups)
        made: AutoEstimator = kind(graph=self.graph, test_groups=test, folds=self.folds, random_state=self.seed)
        made.topology_, made.n_features_in_ = self.graph, self.inputs
        made.groups_, made.group_sizes_ = Groups(self.sizes), self.sizes
        made.held_out_, made.intervals_, made._classes = None, self.intervals, self.classes is not None
        if self.classes is not None:
            made.classes_, made.sureness_ = self.classes, self.sureness
        tried = (row.name for row in self.leaderboard if not math.isnan(row.error))
        made.candidates_, made.league_ = dict(self.candidates), self.leaderboard
        made.votes_ = dict.fromkeys(tried, 0.0) | self.weights
        made.fits_ = [effect.solve(EFFECTS) for effect in self.effects]
        made._settle()
        return made


def check_candidate(candidate: Predictor, inputs: int, classes: npt.NDArray[Any] | None, depth: int = 0) -> None:
    """Raise unless a candidate predicts rows of so many inputs, and nothing in it is larger than that needs.

    Parameters
    ----------
    candidate : the predictor, before it is used.
    inputs, classes : of the model.
    depth : how many predictors it is within.
    """
    outputs = 1 if classes is None else len(classes)
    if depth > DEEPEST:
        raise DataError("its candidates lie too deep within each other.")
    if isinstance(candidate, InContext):
        check_candidate(candidate.say, 2 * inputs, classes, depth + 1)
    elif isinstance(candidate, Sum):
        check_candidate(candidate.below, inputs, classes, depth + 1)
        check_candidate(candidate.above, inputs, classes, depth + 1)
    elif isinstance(candidate, Same):
        _check_shape("values", candidate.values, (outputs,))
    elif isinstance(candidate, Linear):
        scores = 1 if outputs < 3 else outputs
        _check_inputs(candidate.inputs, inputs)
        _check_shape("coef", candidate.coef, (inputs, scores))
        _check_shape("intercept", candidate.intercept, (scores,))
        _check_outputs(candidate, classes)
    elif isinstance(candidate, Boosted):
        if candidate.kept.ndim != 1 or not len(candidate.kept) or candidate.kept.max() >= inputs:
            raise DataError("its trees look at columns that are not there.")
        if candidate.model.link != ("identity" if classes is None else "classes"):
            raise DataError(f"its trees are linked by {candidate.model.link!r:.20}.")
        if classes is not None and not np.array_equal(candidate.model.classes_, classes):
            raise DataError("its trees are of other classes.")
        _check_outputs(candidate, classes)
    elif isinstance(candidate, OfKriged):
        _check_inputs(candidate.inputs, inputs)
        if classes is not None or candidate.model.n_features_in_ != inputs or not candidate.model._one_column:
            raise DataError("its kriged candidate is of other inputs, of several targets, or of classes.")


def _check_inputs(scaling: Inputs, inputs: int) -> None:
    for name in ("fill", "center", "scale", "low", "high"):
        _check_shape(name, getattr(scaling, name), (inputs,))


def _check_shape(name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise DataError(f"its array {name!r} has shape {array.shape}, expected {shape}.")


def _check_outputs(candidate: Linear | Boosted, classes: npt.NDArray[Any] | None) -> None:
    """Raise unless a candidate predicts every class, each at its place."""
    outputs = 1 if classes is None else len(classes)
    places = None if candidate.places is None else candidate.places.tolist()
    if candidate.count != outputs or places != (None if classes is None else [*range(outputs)]):
        raise DataError(f"its candidate has {candidate.count} output(s), expected {outputs}.")
