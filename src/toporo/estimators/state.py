"""Fitted estimators as plain values and arrays, and back: nothing in them is ever executed."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from toporo.errors import DataError, SettingError, TopoRoError
from toporo.estimators.auto import AutoClassifier, AutoRegressor, TreesClassifier, TreesRegressor
from toporo.estimators.auto_state import AutoModel
from toporo.estimators.classes import KINDS, FittedTRO
from toporo.estimators.kriged import KrigedLevels, KrigedRegressor
from toporo.estimators.kriged_classes import KrigedClassifier
from toporo.estimators.kriged_state import KrigedClassModel, KrigedModel
from toporo.estimators.packing import Arrays, pack, unpack
from toporo.estimators.weighted import FittedWeighted, RobustClassifier, RobustRegressor
from toporo.schema import as_type

SCHEMA = "toporo.estimator/1"
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
