"""Kriged models as values that can be stored.

What is kept is what the rows of every group say and the variances that were settled on. All else follows from these and
is solved for again, which takes a moment and spares a matrix of the size of all effects for every nested model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError, listed
from toporo.estimators.kriged import KrigedLevels, KrigedRegressor
from toporo.estimators.kriged_classes import KrigedClassifier
from toporo.estimators.rows import Scaling
from toporo.robust.factors import GroupFactors
from toporo.robust.kriged import LEVELS, MODELS, OF_X, FittedModel, KrigedFit
from toporo.robust.likelihood import Likelihood
from toporo.robust.modes import GraphModes
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

#: How far a likelihood may be from the one stored, in all and relative to it: other machines round in other ways.
SAME = 1e-4, 1e-6


@dataclass(frozen=True)
class NestedModel:
    """One of the nested models: its variances, and its weight by their likelihood."""

    name: str
    parameters: dict[str, float]
    nll: float
    score: float
    weight: float
    converged: bool

    def check(self) -> None:
        """Raise unless its numbers can be those of a model."""
        if not all(0 < value < math.inf for value in self.parameters.values()):
            raise DataError(f"its model {self.name!r:.50} has a variance that is not > 0.")
        if not (math.isfinite(self.nll) and math.isfinite(self.score) and 0 <= self.weight <= 1):
            raise DataError(f"its model {self.name!r:.50} has no finite likelihood, or no weight from 0 to 1.")


@dataclass(frozen=True, eq=False)
class KrigedState:
    """Factors of the rows by group, the modes of the graph, and the variances of the nested models.

    Attributes
    ----------
    factors : of the training rows.
    modes, places : over all groups of the graph, and where the training groups are; None and empty without a graph.
    level : whether there is a :math:`b_0`.
    models : in the order of their definitions.
    """

    factors: GroupFactors
    modes: GraphModes | None
    places: npt.NDArray[np.int64]
    level: bool
    models: tuple[NestedModel, ...]

    @classmethod
    def of(cls, fit: KrigedFit) -> Self:
        """Take from a fit what it can be made of again."""
        models = tuple(
            NestedModel(m.name, m.solved.parameters, m.solved.nll, m.score, float(weight), bool(m.converged))
            for m, weight in zip(fit.models, fit.weights, strict=True)
        )
        likelihood = fit.likelihood
        places = np.asarray(likelihood.places, dtype=np.int64)
        return cls(likelihood.factors, likelihood.modes, places, bool(likelihood.level), models)

    def check(self) -> None:
        """Raise unless the arrays have the shapes and ranges that they need."""
        f, m = self.factors, len(self.factors.groups)
        d, k = len(f.columns), f.targets.shape[-1] if f.targets.ndim == 3 else 0
        shapes = {"rows": (m,), "squares": (m,), "roots": (m, d + 1, d + 1), "targets": (m, d + 1, k)}
        for name, shape in (shapes | {"residual": (m, k)}).items():
            array = getattr(f, name)
            if array.shape != shape or not m * k:
                raise DataError(f"its array 'factors.{name}' has shape {array.shape}, expected {shape}.")
        for name, least in (("rows", 1), ("squares", 0), ("residual", 0)):
            if (getattr(f, name) < least).any():
                raise DataError(f"its array 'factors.{name}' holds numbers beyond what it may.")
        modes = self.modes
        if modes is not None and (modes.values.shape != modes.vectors.shape[1:] or (modes.values < 0).any()):
            raise DataError(f"its array 'modes.vectors' has shape {modes.vectors.shape}, or modes.values are negative.")
        nodes = 0 if modes is None else len(modes.vectors)
        if self.places.shape != ((m,) if nodes else (0,)) or (self.places < 0).any() or (self.places >= nodes).any():
            raise DataError("its groups are not among those of the graph.")
        if abs(math.fsum(model.weight for model in self.models) - 1.0) > 1e-6:
            raise DataError("the weights of its models do not sum to one.")

    def solve(self, definitions: Mapping[str, tuple[str, ...]]) -> KrigedFit:
        """Solve the nested models again for what follows from their variances.

        Parameters
        ----------
        definitions : the variances that each of the models has.
        """
        for model in self.models:
            wanted = definitions.get(model.name)
            lacking = wanted is None or set(model.parameters) != set(wanted)
            if lacking or (self.modes is None and "time" in model.parameters):
                parts = listed(model.parameters)
                raise DataError(f"its model {model.name!r:.50} has {parts}: not one of this version's.")
        try:
            with np.errstate(all="ignore"):
                likelihood = Likelihood(self.factors, self.modes, self.places.tolist(), level=self.level)
                models = []
                for model in self.models:
                    solved = likelihood.solve(model.parameters, centred=not model.name.endswith(OF_X))
                    models.append(FittedModel(model.name, solved, model.score, model.converged))
                    sound = abs(solved.nll - model.nll) <= SAME[0] + SAME[1] * abs(model.nll)
                    if not sound:
                        break
        except (np.linalg.LinAlgError, ValueError):
            sound = False
        if not sound:
            raise DataError("its numbers have no solution, or not the one they were written with. Fit the model again.")
        return KrigedFit(likelihood, tuple(models), np.array([model.weight for model in self.models]))


@dataclass(frozen=True, eq=False)
class KrigedModel:
    """A fitted :class:`~toporo.KrigedRegressor`, or one whose groups differ in their levels alone."""

    context: Literal["rows", "row", "none"]
    levels: bool
    graph: GroupGraph | None
    inputs: int
    feature_names: tuple[str, ...] | None
    one_column: bool
    sizes: dict[Name, int]
    scaling: Scaling
    targets: Scaling
    low: Array
    high: Array
    between: Array
    within: Array
    fit: KrigedState

    @classmethod
    def of(cls, estimator: KrigedRegressor) -> Self:
        """Take from a fitted estimator what it can be made of again."""
        if estimator.panel_ is not None:
            raise SettingError(
                "a kriged model that was fitted with time= cannot be stored: fit it without, or keep it in use."
            )
        return cls(
            context=estimator.context,  # type: ignore[arg-type]  # checked when it was fitted
            levels=isinstance(estimator, KrigedLevels),
            graph=estimator.topology_,
            inputs=int(estimator.n_features_in_),
            feature_names=names_of_features(estimator),
            one_column=estimator._one_column,
            sizes=estimator.group_sizes_,
            scaling=estimator.scaling_,
            targets=estimator.target_scaling_,
            low=estimator.range_[0],
            high=estimator.range_[1],
            between=estimator.spread_[0],
            within=estimator.spread_[1],
            fit=KrigedState.of(estimator.fit_),
        )

    def check(self) -> None:
        """Raise unless its parts fit together."""
        d, k = self.inputs, len(self.targets.scale)
        if len(self.fit.factors.columns) != d or not d:
            raise DataError(f"its factors are of {len(self.fit.factors.columns)} inputs, expected {d}.")
        for name, array in {
            "scaling.scale": self.scaling.scale,
            "low": self.low,
            "high": self.high,
            "between": self.between,
            "within": self.within,
        }.items():
            if array.shape != (d,):
                raise DataError(f"its array {name!r} has shape {array.shape}, expected {(d,)}.")
        if (self.between < 0).any() or (self.within < 0).any() or (self.low > self.high).any():
            raise DataError(
                "its arrays 'low' and 'high', or 'between' and 'within', hold numbers beyond what they may."
            )
        if self.fit.factors.outputs != k or (k > 1 and self.one_column):
            raise DataError(f"it has {k} targets in {'one column' if self.one_column else 'columns'}.")
        groups = self.fit.factors.groups
        if tuple(self.sizes) != groups.names or min(self.sizes.values()) < 1:
            raise DataError("its groups are out of order, or one has no rows.")
        check_names(self.feature_names, d)
        check_places(self.fit, self.graph)

    def estimator(self) -> KrigedRegressor:
        """Make the estimator; it predicts and explains the same."""
        kind = KrigedLevels if self.levels else KrigedRegressor
        made = kind(graph=self.graph, context=self.context)
        made.n_features_in_, made._one_column, made.topology_ = self.inputs, self.one_column, self.graph
        if self.feature_names is not None:
            made.feature_names_in_ = np.asarray(self.feature_names, dtype=object)
        made.groups_, made.group_sizes_ = self.fit.factors.groups, self.sizes
        made.scaling_, made.target_scaling_ = self.scaling, self.targets
        made.range_, made.spread_ = (self.low, self.high), (self.between, self.within)
        made.fit_ = self.fit.solve(LEVELS if self.levels else MODELS)
        made._weigh()
        made.panel_ = None
        return made


@dataclass(frozen=True, eq=False)
class KrigedClassModel:
    """A fitted :class:`~toporo.KrigedClassifier`: the regression, and how its values become probabilities."""

    regression: KrigedModel
    feature_names: tuple[str, ...] | None
    classes: npt.NDArray[Any]
    held_out: list[tuple[Name, ...]]
    scale: Array
    bias: Array

    @classmethod
    def of(cls, estimator: KrigedClassifier) -> Self:
        """Take from a fitted estimator what it can be made of again."""
        return cls(
            regression=KrigedModel.of(estimator.model_),
            feature_names=names_of_features(estimator),
            classes=estimator.classes_,
            held_out=estimator.held_out_,
            scale=estimator.scale_,
            bias=estimator.bias_,
        )

    def check(self) -> None:
        """Raise unless its parts fit together."""
        count, outputs = len(self.classes), len(self.regression.targets.scale)
        if self.regression.one_column or outputs != (1 if count == 2 else count):
            raise DataError(f"it has {outputs} target(s) for {count} classes.")
        if self.scale.shape != (count,) or self.bias.shape != (count,):
            raise DataError(f"its calibration is of {self.scale.shape} and {self.bias.shape}, expected {(count,)}.")
        if not (self.scale > 0).all():
            raise DataError("its calibration has scales that are not positive.")
        check_names(self.feature_names, self.regression.inputs)

    def estimator(self) -> KrigedClassifier:
        """Make the estimator; it predicts and explains the same."""
        model = self.regression.estimator()
        made = KrigedClassifier(graph=model.graph, context=model.context)
        made.classes_, made.n_features_in_ = self.classes, model.n_features_in_
        if self.feature_names is not None:
            made.feature_names_in_ = np.asarray(self.feature_names, dtype=object)
        made.scale_, made.bias_, made.held_out_ = self.scale, self.bias, self.held_out
        made._adopt(model)
        return made


def names_of_features(estimator: KrigedRegressor | KrigedClassifier) -> tuple[str, ...] | None:
    """Return the names of the columns that an estimator was fitted to, if they had any."""
    columns = getattr(estimator, "feature_names_in_", None)
    return None if columns is None else tuple(str(name) for name in columns)


def check_names(names: tuple[str, ...] | None, inputs: int) -> None:
    """Raise unless there is a name for each input, or none."""
    if names is not None and len(names) != inputs:
        raise DataError(f"it has {len(names)} names of features, expected {inputs}.")


def check_places(fit: KrigedState, graph: GroupGraph | None) -> None:
    """Raise unless the modes are those of the graph's groups, at the places of the training groups."""
    if (graph is None) != (fit.modes is None):
        raise DataError("its graph and the modes of the graph do not go together.")
    if graph is not None and fit.modes is not None:
        graph.require(fit.factors.groups)
        places = [graph.names.index(name) for name in fit.factors.groups]
        if len(fit.modes.vectors) != len(graph) or places != fit.places.tolist():
            raise DataError("its array 'modes.vectors' is not that of the graph's groups.")
