"""A fitted kriged model as plain values and arrays, and back.

What is kept is what the rows of every group say and the variances that were settled on. All else follows from these and
is solved for again, which takes a moment and spares a matrix of the size of all effects for every nested model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt

from toporo.checks import one_of
from toporo.errors import DataError, SettingError, listed
from toporo.estimators.kriged import CONTEXTS, KrigedLevels, KrigedRegressor
from toporo.estimators.kriged_classes import KrigedClassifier
from toporo.estimators.rows import Scaling
from toporo.estimators.stored import Arrays, StoredClasses, check_arrays, classes_from_json, classes_to_json
from toporo.groups import Groups, name_from_json, name_to_json
from toporo.robust.factors import GroupFactors
from toporo.robust.kriged import LEVELS, MODELS, OF_X, FittedModel, KrigedFit
from toporo.robust.likelihood import Likelihood
from toporo.robust.modes import GraphModes
from toporo.schema import AtLeastOne, Finite, Positive, Share, as_type
from toporo.text import number_to_json
from toporo.topology.graph import GroupGraph
from toporo.types import Name

#: How far a likelihood may be from the one stored, in all and relative to it: other machines round in other ways.
SAME = 1e-4, 1e-6
#: Arrays of what rows say.
FACTORS = ("rows", "squares", "roots", "targets", "residual")
#: Kriged estimators by the name of their class.
KRIGED: dict[str, type[KrigedRegressor | KrigedClassifier]] = {
    kind.__name__: kind for kind in (KrigedRegressor, KrigedLevels, KrigedClassifier)
}


class StoredNested(msgspec.Struct):
    """One of the nested models: its variances, and its weight by their likelihood."""

    name: str
    parameters: dict[str, Positive]
    nll: Finite
    score: Finite
    weight: Share
    converged: bool


class StoredPlace(msgspec.Struct):
    """A training group and its rows."""

    name: Any
    size: AtLeastOne


class StoredKriged(msgspec.Struct):
    """What :func:`dump_kriged` gives."""

    kind: str = msgspec.field(name="class")
    settings: dict[str, Any]
    inputs: AtLeastOne
    feature_names: list[str] | None
    one_column: bool
    groups: list[StoredPlace]
    graph: dict[str, Any] | None
    models: list[StoredNested]
    classes: StoredClasses | None = None
    held_out: list[list[Any]] | None = None


def dump_kriged(estimator: KrigedRegressor | KrigedClassifier) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """What a fitted estimator is: values that JSON can hold, and arrays.

    Parameters
    ----------
    estimator : a fitted one of :data:`KRIGED`.
    """
    if isinstance(estimator, KrigedRegressor):
        return _dumped(estimator)
    content, arrays = _dumped(estimator.model_)
    columns = getattr(estimator, "feature_names_in_", None)
    content |= {
        "class": type(estimator).__name__,
        "feature_names": None if columns is None else [str(name) for name in columns],
        "classes": classes_to_json(estimator.classes_),
        "held_out": [[name_to_json(name) for name in part] for part in estimator.held_out_],
    }
    return content, {**arrays, "calibration.scale": estimator.scale_, "calibration.bias": estimator.bias_}


def _dumped(estimator: KrigedRegressor) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    if estimator.panel_ is not None:
        raise SettingError(
            "a kriged model that was fitted with time= cannot be stored: fit it without, or keep it in use."
        )
    columns = getattr(estimator, "feature_names_in_", None)
    content = {
        "class": type(estimator).__name__,
        "settings": {
            name: number_to_json(value) if isinstance(value, float) else value
            for name, value in estimator.get_params(deep=False).items()
            if name != "graph"
        },
        "inputs": int(estimator.n_features_in_),
        "feature_names": None if columns is None else [str(name) for name in columns],
        "one_column": estimator._one_column,
        "groups": [{"name": name_to_json(name), "size": size} for name, size in estimator.group_sizes_.items()],
        "graph": None if estimator.topology_ is None else json.loads(estimator.topology_.to_json()),
        "models": nested_to_json(estimator.fit_),
    }
    modes = estimator.fit_.likelihood.modes
    arrays = {
        "scaling.center": estimator.scaling_.center,
        "scaling.scale": estimator.scaling_.scale,
        "targets.center": estimator.target_scaling_.center,
        "targets.scale": estimator.target_scaling_.scale,
        "range.low": estimator.range_[0],
        "range.high": estimator.range_[1],
        "spread.between": estimator.spread_[0],
        "spread.within": estimator.spread_[1],
        **factors_of(estimator.fit_),
    }
    if modes is not None:
        arrays |= {"modes.values": modes.values, "modes.vectors": modes.vectors}
    return content, {key: np.array(value, dtype=np.float64, order="C") for key, value in arrays.items()}


def nested_to_json(fit: KrigedFit) -> list[dict[str, Any]]:
    """The nested models of a fit.

    Parameters
    ----------
    fit : what was found.
    """
    return [
        {
            "name": model.name,
            "parameters": model.solved.parameters,
            "nll": model.solved.nll,
            "score": model.score,
            "weight": float(weight),
            "converged": model.converged,
        }
        for model, weight in zip(fit.models, fit.weights, strict=True)
    ]


def factors_of(fit: KrigedFit) -> dict[str, npt.NDArray[Any]]:
    """What the rows of every group say, as arrays by name.

    Parameters
    ----------
    fit : what was found.
    """
    return {f"factors.{name}": getattr(fit.likelihood.factors, name) for name in FACTORS}


def load_kriged(content: Any, arrays: Arrays) -> KrigedRegressor | KrigedClassifier:
    """The estimator that :func:`dump_kriged` was given; it predicts and explains the same.

    Parameters
    ----------
    content, arrays : from :func:`dump_kriged`; anything else is a :class:`~toporo.errors.DataError`.
    """
    stored = as_type(content, StoredKriged, "its form is wrong")
    if stored.kind != KrigedClassifier.__name__:
        return _loaded(stored, arrays, KrigedLevels if stored.kind == KrigedLevels.__name__ else KrigedRegressor)
    classes = classes_from_json(stored.classes)
    own = {"calibration.scale", "calibration.bias"}
    check_arrays({key: arrays[key] for key in own & set(arrays)}, dict.fromkeys(own, (len(classes),)))
    model = _loaded(stored, {key: value for key, value in arrays.items() if key not in own})
    outputs = model.fit_.likelihood.factors.outputs
    if model._one_column or outputs != (1 if len(classes) == 2 else len(classes)):
        raise DataError(f"it has {outputs} target(s) for {len(classes)} classes.")
    given = model.get_params(deep=False)
    estimator = KrigedClassifier(**{name: given[name] for name in KrigedClassifier().get_params()})
    estimator.classes_, estimator.n_features_in_ = classes, model.n_features_in_
    if hasattr(model, "feature_names_in_"):
        estimator.feature_names_in_ = model.feature_names_in_
        del model.feature_names_in_  # rows come to it without names
    estimator.scale_, estimator.bias_ = (np.array(arrays[key]) for key in ("calibration.scale", "calibration.bias"))
    estimator.held_out_ = [tuple(name_from_json(name) for name in part) for part in stored.held_out or ()]
    estimator._adopt(model)
    return estimator


def _loaded(stored: StoredKriged, arrays: Arrays, kind: type[KrigedRegressor] = KrigedRegressor) -> KrigedRegressor:
    graph = None if stored.graph is None else GroupGraph.from_dict(stored.graph, "its graph")
    estimator = kind(graph=graph, **_settings(stored.settings))
    one_of(estimator.context, "context", CONTEXTS)
    estimator.n_features_in_, estimator._one_column = stored.inputs, stored.one_column
    if stored.feature_names is not None:
        if len(stored.feature_names) != stored.inputs:
            raise DataError(f"it has {len(stored.feature_names)} names of features, expected {stored.inputs}.")
        estimator.feature_names_in_ = np.asarray(stored.feature_names, dtype=object)
    names = [name_from_json(row.name) for row in stored.groups]
    estimator.groups_ = Groups(names)
    if list(estimator.groups_) != names:
        raise DataError("its groups are out of order, or one is there twice.")
    estimator.group_sizes_ = {name: row.size for name, row in zip(names, stored.groups, strict=True)}
    estimator.topology_ = graph
    if graph is not None:
        graph.require(names)
    plain = _checked(arrays, stored, 0 if graph is None else len(graph), graph is not None)
    estimator.scaling_ = Scaling(plain["scaling.center"], plain["scaling.scale"])
    estimator.target_scaling_ = Scaling(plain["targets.center"], plain["targets.scale"])
    estimator.range_ = plain["range.low"], plain["range.high"]
    estimator.spread_ = plain["spread.between"], plain["spread.within"]
    modes = None if graph is None else kind._modes(plain["modes.values"], plain["modes.vectors"])
    places = [] if graph is None else [graph.names.index(name) for name in names]
    estimator.fit_ = fit_again(stored.models, plain, names, modes, places, MODELS if kind._slopes else LEVELS)
    estimator._weigh()
    estimator.panel_ = None
    return estimator


def _settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a regression, which is inside of a classifier too."""
    kind = KrigedRegressor
    types = {name: hint for name, hint in get_type_hints(kind.__init__).items() if name not in ("return", "graph")}
    differ = set(stored) ^ set(types)
    if differ:
        raise DataError(f"a {kind.__name__} has no such setting, or it is missing: {listed(sorted(differ))}.")
    given = {name: math.inf if value == "inf" else value for name, value in stored.items()}
    return {name: as_type(given[name], hint, f"its setting {name!r}") for name, hint in types.items()}


def _checked(arrays: Arrays, stored: StoredKriged, places: int, graph: bool) -> dict[str, npt.NDArray[Any]]:
    """The arrays, which are of the shapes that the values speak of."""
    d, m, k = stored.inputs, len(stored.groups), int(np.size(arrays.get("targets.scale", ())))
    if k < 1 or (k > 1 and stored.one_column):
        raise DataError(f"it has {k} targets in {'one column' if stored.one_column else 'columns'}.")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(
        ("scaling.center", "scaling.scale", "range.low", "range.high", "spread.between", "spread.within"), (d,)
    )
    shapes |= {"targets.center": (k,), "targets.scale": (k,), "factors.rows": (m,), "factors.squares": (m,)}
    shapes |= {"factors.roots": (m, d + 1, d + 1), "factors.targets": (m, d + 1, k), "factors.residual": (m, k)}
    if graph:
        modes = int(np.size(arrays.get("modes.values", ())))
        shapes |= {"modes.values": (modes,), "modes.vectors": (places, modes)}
    check_arrays(arrays, shapes)
    positive = ["spread.between", "spread.within", "modes.values"]
    positive += ["factors.squares", "factors.residual"]
    wrong = [key for key in positive if key in arrays and (arrays[key] < 0).any()]
    if (arrays["factors.rows"] < 1).any():
        wrong.append("factors.rows")
    if wrong or (arrays["range.low"] > arrays["range.high"]).any():
        raise DataError(f"its array {(wrong or ['range.low'])[0]!r} holds numbers beyond what it may.")
    return {key: np.array(arrays[key], order="C") for key in shapes}


def fit_again(
    stored: Sequence[StoredNested],
    arrays: Arrays,
    names: Sequence[Name],
    modes: GraphModes | None,
    places: Sequence[int],
    definitions: Mapping[str, tuple[str, ...]],
    *,
    level: bool = True,
) -> KrigedFit:
    """The nested models, solved again for what follows from their variances.

    Parameters
    ----------
    stored : from :func:`nested_to_json`.
    arrays : from :func:`factors_of`, of the right shapes.
    names, modes, places : the training groups, the graph's modes and where the groups are in them.
    definitions : what each of the models has.
    level : whether there is a :math:`b_0`.
    """
    for model in stored:
        wanted = definitions.get(model.name)
        if wanted is None or set(model.parameters) != set(wanted) or (modes is None and "time" in wanted):
            raise DataError(f"its model {model.name!r:.50} has {listed(model.parameters)}: not one of this version's.")
    weights = np.array([model.weight for model in stored])
    if abs(math.fsum(weights) - 1.0) > 1e-6:
        raise DataError("the weights of its models do not sum to one.")
    of_factors = {name: arrays[f"factors.{name}"] for name in FACTORS}
    try:
        with np.errstate(all="ignore"):
            columns = tuple(range(of_factors["roots"].shape[1] - 1))
            factors = GroupFactors(Groups(names), columns, **of_factors)
            likelihood = Likelihood(factors, modes, places, level=level)
            models = tuple(
                FittedModel(
                    model.name,
                    likelihood.solve(model.parameters, centred=not model.name.endswith(OF_X)),
                    model.score,
                    model.converged,
                )
                for model in stored
            )
            pairs = zip((model.solved.nll for model in models), (model.nll for model in stored), strict=True)
            sound = all(abs(found - nll) <= SAME[0] + SAME[1] * abs(nll) for found, nll in pairs)
    except (np.linalg.LinAlgError, ValueError):
        sound = False
    if not sound:
        raise DataError("its numbers have no solution, or not the one they were written with. Fit the model again.")
    return KrigedFit(likelihood, models, weights)
