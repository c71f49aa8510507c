"""A fitted estimator as plain values and arrays, and back: nothing in them is ever executed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from toporo.choice.penalty import PenaltyChoice
from toporo.errors import DataError, SettingError, TopoRoError, listed
from toporo.estimators.auto import AutoClassifier, AutoRegressor, TreesClassifier, TreesRegressor
from toporo.estimators.auto_model import AutoModel
from toporo.estimators.base import ClassifierPart, GroupEstimator, RegressorPart, torch_part
from toporo.estimators.candidates import CANDIDATES
from toporo.estimators.classes import GroupDROClassifier, GroupDRORegressor, TROClassifier, TRORegressor
from toporo.estimators.kriged import KrigedRegressor
from toporo.estimators.kriged_classes import KrigedClassifier, KrigedClassModel
from toporo.estimators.kriged_model import KrigedModel
from toporo.estimators.linear import SolveRecord
from toporo.estimators.packing import Arrays, check_arrays, labels_from_json, labels_to_json, pack, unpack
from toporo.estimators.rows import Scaling
from toporo.estimators.settings import check_settings
from toporo.estimators.trees import BOOSTED, StoredTrees
from toporo.estimators.weighted import RobustClassifier, RobustEstimator, RobustRegressor
from toporo.groups import Groups, name_from_json, name_to_json, named_from_json
from toporo.schema import AtLeastOne, Count, Finite, NonNegative, OrInfinite, Positive, as_type
from toporo.text import number_to_json
from toporo.topology.effect import rows_in_effect
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Name

SCHEMA = "toporo.estimator/1"
KINDS: dict[str, type[GroupEstimator]] = {
    kind.__name__: kind for kind in (TROClassifier, TRORegressor, GroupDROClassifier, GroupDRORegressor)
}
WEIGHTED: dict[str, type[RobustEstimator]] = {kind.__name__: kind for kind in (RobustClassifier, RobustRegressor)}
#: Estimators that hold a model, which is stored.
MODELS: dict[Any, type[KrigedModel | KrigedClassModel | AutoModel]] = {
    KrigedRegressor: KrigedModel,
    KrigedClassifier: KrigedClassModel,
    AutoRegressor: AutoModel,
    AutoClassifier: AutoModel,
    TreesRegressor: AutoModel,
    TreesClassifier: AutoModel,
}
#: Settings that hold plain values and are kept as they are.
PLAIN = (
    *("model", "radius", "divergence", "normalization", "temperature", "ridge", "fit_intercept", "standardize", "tol"),
    *("epochs", "per_group", "learning_rate", "step", "weights", "rounds", "folds"),
)
#: What is not among the stored settings of a constructor's annotations.
UNSTORED = ("return", "device", "test_groups", "estimator")
#: Settings by the names that older files have for them.
RENAMED = {"tau": "radius"}


class StoredGroup(msgspec.Struct):
    """A training group, as JSON has it."""

    name: Any
    size: AtLeastOne
    loss: OrInfinite
    weight: NonNegative
    centrality: Finite | None
    hops: Count | Literal["inf"] | None


class StoredEstimator(msgspec.Struct):
    """What :func:`dump_state` gives."""

    kind: Literal["TROClassifier", "TRORegressor", "GroupDROClassifier", "GroupDRORegressor"] = msgspec.field(
        name="class"
    )
    settings: dict[str, Any]
    inputs: AtLeastOne
    feature_names: list[str] | None
    classes: dict[str, Any] | None
    one_column: bool | None
    groups: list[StoredGroup]
    prior: dict[str, Any] | None
    graph: dict[str, Any] | None
    test_groups: list[Any] | None
    penalty: OrInfinite | None
    choice: dict[str, Any] | None
    history: list[dict[str, Any]]
    rows_in_effect: Positive | None = None
    ridge: NonNegative | None = None


class StoredShare(msgspec.Struct):
    """A training group of a weighted model, as JSON has it."""

    name: Any
    weight: NonNegative
    loss: NonNegative | None


class StoredWeighted(msgspec.Struct):
    """What :func:`dump_state` gives of boosted trees that are fitted to a mixture of groups."""

    kind: Literal["RobustClassifier", "RobustRegressor"] = msgspec.field(name="class")
    settings: dict[str, Any]
    estimator: dict[str, bool | int | float | str | None]
    trees: dict[str, Any]
    groups: list[StoredShare]
    prior: dict[str, Any] | None
    graph: dict[str, Any] | None
    test_groups: list[Any] | None
    rows_in_effect: Positive | None = None


def dump_state(estimator: Any) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """What a fitted estimator is: values that JSON can hold, and arrays.

    A network of one's own class cannot be stored: making it again would take its code. Of models by weights, boosted
    trees of scikit-learn can.
    """
    if type(estimator) not in (*KINDS.values(), *WEIGHTED.values(), *MODELS):
        known = ", ".join([*KINDS, *WEIGHTED, *(kind.__name__ for kind in MODELS)])
        raise SettingError(f"found a {type(estimator).__name__}: expected one of {known}.")
    check_is_fitted(estimator)
    if isinstance(estimator, RobustEstimator):
        return _dumped_weighted(estimator)
    if type(estimator) in MODELS:
        values, numbers = pack(estimator.model_)
        columns = getattr(estimator, "feature_names_in_", None)
        names = None if columns is None else [str(name) for name in columns]
        return {
            "schema": SCHEMA, "class": type(estimator).__name__, "feature_names": names, "model": values,
        }, numbers  # fmt: skip
    if not isinstance(estimator.model, str):
        raise SettingError(
            f"a network of one's own ({type(estimator.net_).__name__}) cannot be stored, because only its code can "
            "make it again. Use model='mlp', or save estimator.net_.state_dict() beside that code."
        )
    columns = getattr(estimator, "feature_names_in_", None)
    classifier = isinstance(estimator, ClassifierPart)
    content = {
        "schema": SCHEMA,
        "class": type(estimator).__name__,
        "settings": _settings_to_json(estimator),
        "inputs": int(estimator.n_features_in_),
        "feature_names": None if columns is None else [str(name) for name in columns],
        "classes": labels_to_json(estimator.classes_) if classifier else None,
        "one_column": None if classifier else bool(getattr(estimator, "_one_column")),  # noqa: B009  # a regressor's
        "groups": [
            {
                "name": name_to_json(name),
                "size": size,
                "loss": _stored(estimator.group_losses_[name]),
                "weight": estimator.group_weights_[name],
                "centrality": None if estimator.centrality_ is None else estimator.centrality_[name],
                "hops": None if estimator.hops_ is None else _stored(estimator.hops_[name]),
            }
            for name, size in estimator.group_sizes_.items()
        ],
        "prior": None if estimator.prior_ is None else estimator.prior_.to_dict(),
        "graph": None if estimator.topology_ is None else json.loads(estimator.topology_.to_json()),
        "test_groups": None if estimator.test_groups_ is None else [name_to_json(n) for n in estimator.test_groups_],
        "penalty": None if estimator.penalty_ is None else _stored(estimator.penalty_),
        "choice": None if estimator.choice_ is None else pack(estimator.choice_)[0],
        "history": [_record_to_json(record) for record in estimator.history_],
        "rows_in_effect": estimator.rows_in_effect_,
        "ridge": estimator.ridge_,
    }
    return content, _arrays_of(estimator)


def load_state(content: Any, arrays: Arrays) -> Any:
    """The estimator that :func:`dump_state` was given; it predicts the same bytes and explains the same.

    Its ``fit_`` is None, and its device the CPU. Content that is not what :func:`dump_state` gave is a
    :class:`~toporo.errors.DataError`.
    """
    try:
        schema = content.get("schema") if isinstance(content, dict) else type(content).__name__
        if schema != SCHEMA:
            raise DataError(f"its schema is {schema!r:.50}, expected {SCHEMA!r}.")
        kind = as_type(content.get("class"), str, "its class")
        made = {each.__name__: each for each in MODELS}.get(kind)
        if made is not None:
            len(CANDIDATES)  # imports other packages' candidates, which a model may hold
            estimator = made.from_model(unpack(MODELS[made], content.get("model"), arrays))
            given = content.get("feature_names")
            if given is not None:
                names = as_type(given, list[str], "its form is wrong: feature_names")
                if len(names) != estimator.n_features_in_:
                    raise DataError(f"it has {len(names)} names of features, expected {estimator.n_features_in_}.")
                estimator.feature_names_in_ = np.asarray(names, dtype=object)
            return estimator
        if kind in WEIGHTED:
            return _loaded_weighted(as_type(content, StoredWeighted, "its form is wrong"), arrays)
        return _loaded(as_type(content, StoredEstimator, "its form is wrong"), arrays)
    except (TopoRoError, TypeError, ValueError, IndexError, ArithmeticError, MemoryError, RecursionError) as error:
        raise DataError(f"not a stored estimator: {error}") from None


def _loaded(stored: StoredEstimator, arrays: Arrays) -> GroupEstimator:
    kind = KINDS[stored.kind]
    graph = None if stored.graph is None else GroupGraph.from_dict(stored.graph, "its graph")
    test = None if stored.test_groups is None else tuple(name_from_json(name) for name in stored.test_groups)
    estimator = kind(**_settings_from_json(kind, stored.settings, graph, test))
    settings = check_settings(estimator, classes=issubclass(kind, ClassifierPart))
    estimator.n_features_in_ = stored.inputs
    if stored.feature_names is not None:
        if len(stored.feature_names) != stored.inputs:
            raise DataError(f"it has {len(stored.feature_names)} names of features, expected {stored.inputs}.")
        estimator.feature_names_in_ = np.asarray(stored.feature_names, dtype=object)
    if isinstance(estimator, ClassifierPart):
        estimator.classes_ = labels_from_json(stored.classes)
    elif isinstance(estimator, RegressorPart):
        if stored.one_column is None:
            raise DataError("one_column is missing.")
        estimator._one_column = stored.one_column
    _restore_groups(estimator, stored, graph, test)
    estimator.topology_, estimator.fit_ = graph, None
    # Files of before say neither: their rows count alike, and their ridge is a number.
    known = stored.rows_in_effect or rows_in_effect(estimator.group_weights_, estimator.group_sizes_)
    estimator.rows_in_effect_ = known
    estimator.ridge_ = stored.ridge if stored.ridge is not None else settings.ridge or 0.0
    estimator.penalty_ = None if stored.penalty is None else float(stored.penalty)
    estimator.choice_ = estimator.penalty_scores_ = None
    if stored.choice is not None:
        estimator.choice_ = unpack(PenaltyChoice, stored.choice, {})
        estimator.penalty_scores_ = estimator.choice_.scores
    restore = _round_from_json if settings.network else _solve_from_json
    estimator.history_ = [restore(record, set(estimator.group_sizes_)) for record in stored.history]
    _restore_arrays(estimator, arrays, settings.hidden if settings.network else None)
    return estimator


# ---------------------------------------------------------------- any model by weights


def _dumped_weighted(estimator: RobustEstimator) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    inner = estimator.estimator_
    trees, arrays = pack(inner if isinstance(inner, StoredTrees) else StoredTrees.of(inner))
    given = {name: _plain(value) for name, value in estimator.estimator.get_params(deep=False).items()}
    odd = [name for name, value in given.items() if not isinstance(value, bool | int | float | str | None)]
    if odd:
        raise SettingError(
            f"{type(estimator.estimator).__name__} has settings that are no plain values: {listed(odd)}."
        )
    losses = estimator.losses_ or {}
    content = {
        "schema": SCHEMA,
        "class": type(estimator).__name__,
        "settings": _settings_to_json(estimator),
        "estimator": given,
        "trees": trees,
        "groups": [
            {"name": name_to_json(name), "weight": weight, "loss": losses.get(name)}
            for name, weight in estimator.group_weights_.items()
        ],
        "prior": None if estimator.prior_ is None else estimator.prior_.to_dict(),
        "graph": None if estimator.topology_ is None else json.loads(estimator.topology_.to_json()),
        "test_groups": None if estimator.test_groups_ is None else [name_to_json(n) for n in estimator.test_groups_],
        "rows_in_effect": estimator.rows_in_effect_,
    }
    return content, arrays


def _loaded_weighted(stored: StoredWeighted, arrays: Arrays) -> RobustEstimator:
    """Its ``estimator_`` is a :class:`~toporo.estimators.trees.StoredTrees`; its ``estimator`` can be fitted anew."""
    kind = WEIGHTED[stored.kind]
    inner = BOOSTED[issubclass(kind, RobustClassifier)]
    unknown = set(stored.estimator) - set(inner().get_params())
    if unknown:
        raise DataError(f"a {inner.__name__} has no such setting: {listed(sorted(unknown))}.")
    graph = None if stored.graph is None else GroupGraph.from_dict(stored.graph, "its graph")
    test = None if stored.test_groups is None else tuple(name_from_json(name) for name in stored.test_groups)
    estimator = kind(inner(**stored.estimator), **_settings_from_json(kind, stored.settings, graph, test))
    estimator._check_settings()
    estimator.estimator_ = unpack(StoredTrees, stored.trees, arrays)
    if (estimator.estimator_.classes_ is not None) != issubclass(kind, RobustClassifier):
        raise DataError(f"its class is {stored.kind}, its trees are of another kind of target.")
    names = _names_of(stored.groups)
    estimator.group_weights_ = {name: row.weight for name, row in zip(names, stored.groups, strict=True)}
    _require_one(estimator.group_weights_)
    estimator.losses_ = _column({n: row.loss for n, row in zip(names, stored.groups, strict=True)}, "loss")
    estimator.prior_ = None if stored.prior is None else Prior.from_dict(stored.prior)
    if estimator.prior_ is not None:
        names.require_same(estimator.prior_.weights, what="its prior")
    estimator.topology_, estimator.test_groups_ = graph, test
    estimator.rows_in_effect_ = stored.rows_in_effect
    _require_places(graph, names, test)
    return estimator


# ---------------------------------------------------------------- settings


def _settings_to_json(estimator: GroupEstimator | RobustEstimator) -> dict[str, Any]:
    """Those of its constructor, but for the device; a graph is stored by itself."""
    given = estimator.get_params(deep=False)
    out = {name: _plain(given[name]) for name in PLAIN if name in given}
    if "hidden" in given:
        out["hidden"] = [int(units) for units in given["hidden"]]
    seed = _plain(given["random_state"])
    out["random_state"] = seed if isinstance(seed, int) else None
    if "penalty" in given:
        out["penalty"] = given["penalty"] if isinstance(given["penalty"], str) else _stored(given["penalty"])
        learned = isinstance(given["graph"], str) and given["graph"] == "learn"
        out["graph"] = "learn" if learned else None if given["graph"] is None else "given"
        out["prior"] = _prior_to_json(given["prior"])
    return out


def _settings_from_json(
    kind: type[GroupEstimator | RobustEstimator],
    stored: Mapping[str, Any],
    graph: GroupGraph | None,
    test: tuple[Name, ...] | None,
) -> dict[str, Any]:
    """As the constructor's own annotations say they are; :func:`check_settings` sees to the values."""
    given = {RENAMED.get(name, name): value for name, value in stored.items()}
    types = {name: hint for name, hint in get_type_hints(kind.__init__).items() if name not in UNSTORED}
    differ = set(given) ^ set(types)
    if differ:
        raise DataError(f"a {kind.__name__} has no such setting, or it is missing: {listed(sorted(differ))}.")
    types |= {"penalty": Any} if "penalty" in types else {}  # a number that may be infinite, seen to below
    settings = {name: as_type(given[name], hint, f"its setting {name!r}") for name, hint in types.items()}
    if "hidden" in settings:
        settings["hidden"] = tuple(settings["hidden"])
    if "penalty" in settings:
        if settings["penalty"] != "auto":
            settings["penalty"] = float(as_type(settings["penalty"], OrInfinite, "penalty"))  # type: ignore[arg-type]
        if settings["graph"] not in (None, "learn", "given") or (settings["graph"] == "given") > (graph is not None):
            raise DataError(f"its graph is {settings['graph']!r:.50}, and there is {'' if graph else 'not '}one.")
        settings["graph"] = graph if settings["graph"] == "given" else settings["graph"]
        settings["test_groups"] = None if test is None else list(test)
        settings["prior"] = _prior_from_json(settings["prior"])
    return settings


def _prior_to_json(prior: Any) -> Any:
    if isinstance(prior, str):
        return prior
    if isinstance(prior, Prior):
        return {"prior": prior.to_dict()}
    return {"weights": [[name_to_json(_plain(name)), float(weight)] for name, weight in prior.items()]}


def _prior_from_json(stored: Any) -> Any:
    if isinstance(stored, str):
        return stored
    if isinstance(stored, dict) and set(stored) == {"prior"}:
        return Prior.from_dict(stored["prior"])
    rows = as_type(stored, dict[Literal["weights"], list[tuple[Any, NonNegative]]], "its setting 'prior'")
    return named_from_json(rows.get("weights", []), "its setting 'prior'")


# ---------------------------------------------------------------- groups


def _restore_groups(
    estimator: GroupEstimator, stored: StoredEstimator, graph: GroupGraph | None, test: tuple[Name, ...] | None
) -> None:
    groups = _names_of(stored.groups)
    by_name = dict(zip(groups, stored.groups, strict=True))
    estimator.group_sizes_ = {name: row.size for name, row in by_name.items()}
    estimator.group_losses_ = {name: float(row.loss) for name, row in by_name.items()}
    estimator.group_weights_ = {name: row.weight for name, row in by_name.items()}
    _require_one(estimator.group_weights_)
    estimator.centrality_ = _column({name: row.centrality for name, row in by_name.items()}, "centrality")
    hops = {name: math.inf if row.hops == "inf" else row.hops for name, row in by_name.items()}
    estimator.hops_ = _column(hops, "hops")
    estimator.prior_ = None if stored.prior is None else Prior.from_dict(stored.prior)
    if estimator.prior_ is not None:
        groups.require_same(estimator.prior_.weights, what="its prior")
    elif len(groups) > 1:
        raise DataError("its prior is missing.")
    estimator.test_groups_ = test
    _require_places(graph, groups, test)


def _names_of(rows: Sequence[StoredGroup] | Sequence[StoredShare]) -> Groups:
    names = [name_from_json(row.name) for row in rows]
    groups = Groups(names)
    if list(groups) != names:
        raise DataError("its groups are out of order, or one is there twice.")
    return groups


def _require_one(weights: Mapping[Name, float]) -> None:
    if abs(math.fsum(weights.values()) - 1.0) > 1e-6:
        raise DataError("the weights of its groups do not sum to one.")


def _require_places(graph: GroupGraph | None, groups: Groups, test: tuple[Name, ...] | None) -> None:
    if graph is not None:
        graph.require([*groups, *(test or ())])
    elif test is not None:
        raise DataError("it has test groups and no graph.")


def _column(values: Mapping[Name, float | None], what: str) -> dict[Name, float] | None:
    """Of all groups or of none."""
    known = {name: value for name, value in values.items() if value is not None}
    if known and len(known) < len(values):
        raise DataError(f"its {what} is missing for {listed(name for name in values if name not in known)}.")
    return known or None


# ---------------------------------------------------------------- history


def _record_to_json(record: Any) -> dict[str, Any]:
    if isinstance(record, SolveRecord):
        return {name: _stored(getattr(record, name)) for name in SolveRecord.__dataclass_fields__}
    stored: dict[str, Any] = record.to_dict()
    return stored


def _solve_from_json(stored: dict[str, Any], _: set[Name]) -> SolveRecord:
    if set(stored) != set(SolveRecord.__dataclass_fields__):
        raise DataError("its history is not that of a linear model.")
    plain = {name: math.inf if value == "inf" else value for name, value in stored.items()}
    return as_type(plain, SolveRecord, "its history")


def _round_from_json(stored: dict[str, Any], groups: set[Name]) -> Any:
    record = torch_part().restore_record(stored)
    if set(record.weights) != groups:
        raise DataError("its history is that of other groups.")
    return record


# ---------------------------------------------------------------- arrays


def _arrays_of(estimator: GroupEstimator) -> dict[str, npt.NDArray[Any]]:
    arrays = {"scaling.center": estimator.scaling_.center, "scaling.scale": estimator.scaling_.scale}
    if estimator.target_scaling_ is not None:
        arrays["targets.center"] = estimator.target_scaling_.center
        arrays["targets.scale"] = estimator.target_scaling_.scale
    if estimator.net_ is None:
        model: Any = estimator
        arrays["coef"] = np.atleast_2d(model.coef_)
        arrays["intercept"] = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    else:
        arrays |= {f"net.{key}": value.cpu().numpy() for key, value in estimator.net_.state_dict().items()}
    return {key: np.array(value, dtype=np.float64, order="C") for key, value in arrays.items()}


def _restore_arrays(estimator: GroupEstimator, arrays: Arrays, hidden: Sequence[int] | None) -> None:
    inputs = estimator.n_features_in_
    shapes: dict[str, tuple[int, ...]] = {"scaling.center": (inputs,), "scaling.scale": (inputs,)}
    if isinstance(estimator, ClassifierPart):
        outputs = len(estimator.classes_)
        rows = 1 if outputs == 2 else outputs
    else:
        outputs = rows = int(np.size(arrays.get("targets.scale", ())))
        if outputs < 1 or (outputs > 1 and getattr(estimator, "_one_column", False)):
            raise DataError(f"it has {outputs} targets in one column.")
        shapes |= {"targets.center": (outputs,), "targets.scale": (outputs,)}
    if hidden is None:
        shapes |= {"coef": (rows, inputs), "intercept": (rows,)}
    else:
        shapes |= {f"net.{key}": shape for key, shape in _layers(inputs, hidden, outputs).items()}
    check_arrays(arrays, shapes)
    plain = {key: np.array(arrays[key], order="C") for key in shapes}
    estimator.scaling_ = Scaling(plain["scaling.center"], plain["scaling.scale"])
    estimator.target_scaling_ = None
    if "targets.scale" in plain:
        estimator.target_scaling_ = Scaling(plain["targets.center"], plain["targets.scale"])
    estimator.net_ = None
    if hidden is None:
        estimator._set_coefficients(plain["coef"], plain["intercept"])
    else:
        tensors = {key.removeprefix("net."): value for key, value in plain.items() if key.startswith("net.")}
        estimator.net_ = torch_part().restore_net(tensors, inputs, hidden, outputs)


def _layers(inputs: int, hidden: Sequence[int], outputs: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a perceptron's tensors."""
    sizes = [inputs, *hidden]
    shapes: dict[str, tuple[int, ...]] = {}
    for place, (before, after) in enumerate(pairwise(sizes)):
        shapes |= {f"body.{2 * place}.weight": (after, before), f"body.{2 * place}.bias": (after,)}
    return shapes | {"head.weight": (outputs, sizes[-1]), "head.bias": (outputs,)}


# ---------------------------------------------------------------- numbers


def _plain(value: Any) -> Any:
    """A numpy number as a Python one."""
    return value.item() if isinstance(value, np.generic) else value


def _stored(value: Any) -> Any:
    """A number as JSON holds it; what is not a number stays, and writing the JSON refuses it."""
    number = _plain(value)
    return number if number != number else number_to_json(number)
