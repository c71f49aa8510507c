"""Fitted estimators as plain values and arrays, and back: nothing in them is ever executed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from toporo.errors import DataError, SettingError, TopoRoError
from toporo.estimators.auto import AutoClassifier, AutoRegressor, TreesClassifier, TreesRegressor
from toporo.estimators.auto_state import AutoModel
from toporo.estimators.base import WeighedGroups
from toporo.estimators.classes import GroupDROClassifier, GroupDRORegressor, TROClassifier, TROEstimator, TRORegressor
from toporo.estimators.kriged import KrigedLevels, KrigedRegressor
from toporo.estimators.kriged_classes import KrigedClassifier
from toporo.estimators.kriged_state import KrigedClassModel, KrigedModel
from toporo.estimators.models import Fit
from toporo.estimators.packing import Arrays, pack, unpack
from toporo.estimators.settings import Settings
from toporo.estimators.trees import StoredTrees
from toporo.estimators.weighted import RobustClassifier, RobustEstimator, RobustRegressor
from toporo.schema import as_type

SCHEMA = "toporo.estimator/1"
KINDS = {each.__name__: each for each in (TRORegressor, TROClassifier, GroupDRORegressor, GroupDROClassifier)}


@dataclass(frozen=True, eq=False)
class FittedTRO:
    """Fitted TRO or group DRO estimator as a value.

    Attributes
    ----------
    kind : name of the estimator's class.
    settings : of the estimator.
    feature_names, classes, one_column : columns and classes of the training rows.
    groups, fit : groups and their weights, and the model.
    """

    kind: str
    settings: Settings
    feature_names: tuple[str, ...] | None
    classes: npt.NDArray[Any] | None
    one_column: bool
    groups: WeighedGroups
    fit: Fit

    @classmethod
    def of(cls, estimator: TROEstimator) -> Self:
        """Take from a fitted estimator what it can be made of again."""
        columns = getattr(estimator, "feature_names_in_", None)
        return cls(
            kind=type(estimator).__name__,
            settings=estimator._settings,
            feature_names=None if columns is None else tuple(map(str, columns)),
            classes=getattr(estimator, "classes_", None),
            one_column=getattr(estimator, "_one_column", False),
            groups=estimator._groups,
            fit=estimator._found,
        )

    def check(self) -> None:
        """Raise unless its parts fit together."""
        if self.kind not in KINDS or issubclass(KINDS[self.kind], TROClassifier) != (self.classes is not None):
            raise DataError(f"its class is {self.kind!r:.50}, with{'' if self.classes is not None else 'out'} classes.")
        if self.fit.group_losses.keys() != self.groups.group_sizes.keys():
            raise DataError("its losses are those of other groups.")
        inputs, outputs = self.fit.model.shape
        if self.feature_names is not None and len(self.feature_names) != inputs:
            raise DataError(f"it has {len(self.feature_names)} names of features, expected {inputs}.")
        classes = 0 if self.classes is None else len(self.classes)
        expected = outputs if not classes and not self.one_column else 1 if classes in (0, 2) else classes
        if outputs != expected:
            raise DataError(f"its model has {outputs} output(s), expected {expected}.")
        Settings.of(self.estimator(), classes=self.classes is not None)

    def estimator(self) -> TROEstimator:
        """Make the estimator: it predicts and explains the same, and can be fitted anew."""
        given = self.groups.settings() | dict(self.settings.parameters())
        kind = KINDS[self.kind]
        made: TROEstimator = kind(**{name: given[name] for name in kind._get_param_names()})
        made.n_features_in_ = self.fit.model.shape[0]
        if self.feature_names is not None:
            made.feature_names_in_ = np.asarray(self.feature_names, dtype=object)
        if isinstance(made, TROClassifier) and self.classes is not None:
            made.classes_ = self.classes
        elif isinstance(made, TRORegressor):
            made._one_column = self.one_column
        made._settings = self.settings
        return made._adopt(self.groups, self.fit)


@dataclass(frozen=True, eq=False)
class FittedWeighted:
    """Fitted weighted model as a value: boosted trees of scikit-learn, and the weights that they were fitted with.

    Attributes
    ----------
    trees : the fitted trees.
    groups : groups and their weights.
    """

    trees: StoredTrees
    groups: WeighedGroups

    @classmethod
    def of(cls, estimator: RobustEstimator) -> Self:
        """Take from a fitted estimator what it can be made of again."""
        inner = estimator.estimator_
        return cls(inner if isinstance(inner, StoredTrees) else StoredTrees.of(inner), estimator._groups)

    def estimator(self) -> RobustEstimator:
        """Make the estimator, which predicts the same; to fit it anew, set its ``estimator`` first."""
        kind = RobustRegressor if self.trees.classes_ is None else RobustClassifier
        made: RobustEstimator = kind(self.trees, **self.groups.settings())
        return made._adopt(self.trees, self.groups)


#: Values that estimators are stored as; each is made ``of`` a fitted estimator and makes the ``estimator`` again.
MODELS: dict[type, Any] = {
    **dict.fromkeys(KINDS.values(), FittedTRO),
    RobustRegressor: FittedWeighted,
    RobustClassifier: FittedWeighted,
    KrigedRegressor: KrigedModel,
    KrigedLevels: KrigedModel,
    KrigedClassifier: KrigedClassModel,
    AutoRegressor: AutoModel,
    AutoClassifier: AutoModel,
    TreesRegressor: AutoModel,
    TreesClassifier: AutoModel,
}


def dump_state(estimator: Any) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Convert a fitted estimator to values that JSON can hold, and arrays.

    A network of one's own class cannot be stored: making it again would take its code. Of models by weights, boosted
    trees of scikit-learn can.
    """
    kind = type(estimator)
    if kind not in MODELS:
        known = ", ".join(each.__name__ for each in MODELS)
        raise SettingError(f"found a {kind.__name__}: expected one of {known}.")
    check_is_fitted(estimator)
    values, arrays = pack(MODELS[kind].of(estimator))
    return {"schema": SCHEMA, "class": kind.__name__, "model": values}, arrays


def load_state(content: Any, arrays: Arrays) -> Any:
    """Make the estimator again from the output of :func:`dump_state`; it predicts the same bytes and explains the same.

    Other content is a :class:`~toporo.errors.DataError`.
    """
    try:
        schema = content.get("schema") if isinstance(content, dict) else type(content).__name__
        if schema != SCHEMA:
            raise DataError(f"its schema is {schema!r:.50}, expected {SCHEMA!r}.")
        kind = as_type(content.get("class"), str, "its class")
        models = {made.__name__: model for made, model in MODELS.items()}
        if kind not in models:
            raise DataError(f"its class is {kind!r:.50}, expected one of {', '.join(models)}.")
        estimator = unpack(models[kind], content.get("model"), arrays).estimator()
    except (TopoRoError, TypeError, ValueError, IndexError, ArithmeticError, MemoryError, RecursionError) as error:
        raise DataError(f"not a stored estimator: {error}") from None
    if type(estimator).__name__ != kind:
        raise DataError(f"not a stored estimator: its class is {kind}, its model that of a {type(estimator).__name__}.")
    return estimator
