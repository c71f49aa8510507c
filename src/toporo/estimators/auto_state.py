"""Votes, the candidates that have one, and the effects on what they leave, as plain values and arrays, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError, listed
from toporo.estimators.auto import AutoClassifier, AutoEstimator, AutoRegressor
from toporo.estimators.candidates import Boosted, InContext, Inputs, Linear, OfModel, Same, Say, Sum
from toporo.estimators.effects import EFFECTS
from toporo.estimators.held_out import HeldOut
from toporo.estimators.kriged import KrigedRegressor
from toporo.estimators.kriged_state import (
    FACTORS,
    StoredNested,
    StoredPlace,
    dump_kriged,
    factors_of,
    fit_again,
    load_kriged,
    nested_to_json,
)
from toporo.estimators.league import Standing
from toporo.estimators.stored import Arrays, StoredClasses, check_arrays, classes_from_json, classes_to_json
from toporo.estimators.trees import StoredTrees
from toporo.groups import Groups, name_from_json, name_to_json
from toporo.robust.kriged import KrigedFit
from toporo.robust.modes import WalkModes
from toporo.schema import AtLeastOne, Count, Finite, NonNegative, Positive, Share, as_type
from toporo.topology.graph import GroupGraph
from toporo.types import Name

#: By the name of the class.
AUTO: dict[str, type[AutoEstimator]] = {kind.__name__: kind for kind in (AutoRegressor, AutoClassifier)}
#: Arrays of how linear models see inputs.
OF_INPUTS = ("fill", "center", "scale", "low", "high")


class StoredSay(msgspec.Struct):
    """What a candidate is: of parts, or a model of its own."""

    kind: Literal["same", "linear", "trees", "kriged", "context", "sum"]
    parts: list[StoredSay] = []
    model: dict[str, Any] | None = None


class StoredCandidate(msgspec.Struct):
    """A candidate with a vote."""

    name: str
    vote: Positive
    says: StoredSay


class StoredStanding(msgspec.Struct):
    """A candidate in the league."""

    name: str
    error: Finite | None
    worst: Finite | None
    vote: Share
    note: str


class StoredAuto(msgspec.Struct):
    """What :func:`dump_auto` gives."""

    kind: str = msgspec.field(name="class")
    folds: AtLeastOne
    seed: Count
    inputs: AtLeastOne
    groups: list[StoredPlace]
    graph: dict[str, Any] | None
    test_groups: list[Any] | None
    candidates: list[StoredCandidate]
    league: list[StoredStanding]
    effects: list[list[StoredNested]]
    classes: StoredClasses | None = None
    sureness: NonNegative | None = None


def dump_auto(estimator: AutoEstimator) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """What a fitted estimator is: values that JSON can hold, and arrays.

    Candidates without a vote are left out: ``predict_each`` of what is loaded knows those that have one.

    Parameters
    ----------
    estimator : a fitted one of :data:`AUTO`.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    own = set(estimator.candidates or ())
    voting = {name: estimator.votes_[name] for name in estimator.candidates_ if estimator.votes_[name] > 0.0}
    if own & voting.keys():
        raise SettingError(
            f"candidate(s) of one's own have a vote and cannot be stored: {listed(sorted(own & voting.keys()))}. Only "
            "their code can make them again: keep the model with joblib, and load only what you trust."
        )
    test = estimator.test_groups
    content: dict[str, Any] = {
        "class": type(estimator).__name__,
        "folds": int(estimator.folds),
        "seed": int(estimator.random_state),
        "inputs": int(estimator.n_features_in_),
        "groups": [{"name": name_to_json(name), "size": size} for name, size in estimator.group_sizes_.items()],
        "graph": None if estimator.topology_ is None else json.loads(estimator.topology_.to_json()),
        "test_groups": None if test is None else [name_to_json(name) for name in test],
        "candidates": [
            {"name": name, "vote": vote, "says": _dumped(estimator.candidates_[name], f"candidates.{place}", arrays)}
            for place, (name, vote) in enumerate(voting.items())
        ],
        "league": [
            {
                "name": row.name,
                "error": None if math.isnan(row.error) else row.error,
                "worst": None if math.isnan(row.worst) else row.worst,
                "vote": row.vote,
                "note": row.note,
            }
            for row in estimator.league_
        ],
        "effects": [nested_to_json(fit) for fit in estimator.fits_],
    }
    for place, fit in enumerate(estimator.fits_):
        arrays |= {f"effects.{place}.{name}": value for name, value in factors_of(fit).items()}
    if estimator.intervals_ is not None:
        arrays |= {f"intervals.{name}": value for name, value in estimator.intervals_.to_arrays().items()}
    modes = estimator.fits_[0].likelihood.modes
    if modes is not None:
        arrays |= {"modes.values": modes.values, "modes.vectors": modes.vectors}
    if isinstance(estimator, AutoClassifier):
        content |= {"classes": classes_to_json(estimator.classes_), "sureness": estimator.sureness_}
    return content, {key: np.array(value, order="C") for key, value in arrays.items()}


def _dumped(say: Say, where: str, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """What a candidate is; its arrays are put among the others."""

    def put(named: Mapping[str, npt.NDArray[Any]]) -> None:
        arrays.update({f"{where}.{name}": value for name, value in named.items()})

    def see(inputs: Inputs | None) -> None:
        if inputs is None or inputs.encode is not None:
            raise SettingError(
                "a model that was fitted to a pandas frame cannot be stored: fit it to an array of numbers, or let "
                "tr.fit_table make one of the table."
            )
        put({name: getattr(inputs, name) for name in OF_INPUTS})

    if isinstance(say, InContext):
        return {"kind": "context", "parts": [_dumped(say.say, f"{where}.0", arrays)]}
    if isinstance(say, Sum):
        parts = [_dumped(part, f"{where}.{place}", arrays) for place, part in enumerate((say.below, say.above))]
        return {"kind": "sum", "parts": parts}
    if isinstance(say, Same):
        put({"values": say.values})
        return {"kind": "same"}
    if isinstance(say, Linear):
        see(say.inputs)
        put({"coef": say.coef, "intercept": say.intercept})
        return {"kind": "linear"}
    if isinstance(say, Boosted):
        trees = say.model if isinstance(say.model, StoredTrees) else StoredTrees.of(say.model)
        put({"kept": say.kept, **trees.arrays()})
        return {"kind": "trees"}
    if isinstance(say, OfModel) and isinstance(say.model, KrigedRegressor):
        see(say.inputs)
        content, of_model = dump_kriged(say.model)
        put({f"model.{name}": value for name, value in of_model.items()})
        return {"kind": "kriged", "model": content}
    raise SettingError(f"a candidate of class {type(say).__name__} cannot be stored.")


def load_auto(content: Any, arrays: Arrays) -> AutoEstimator:
    """The estimator that :func:`dump_auto` was given; it predicts the same, and knows the candidates with a vote.

    Parameters
    ----------
    content, arrays : from :func:`dump_auto`; anything else is a :class:`~toporo.errors.DataError`.
    """
    stored = as_type(content, StoredAuto, "its form is wrong")
    kind = AUTO[stored.kind]
    graph = None if stored.graph is None else GroupGraph.from_dict(stored.graph, "its graph")
    test = None if stored.test_groups is None else [name_from_json(name) for name in stored.test_groups]
    estimator = kind(graph=graph, test_groups=test, folds=stored.folds, random_state=stored.seed)
    names = [name_from_json(row.name) for row in stored.groups]
    estimator.groups_ = Groups(names)
    if not names or list(estimator.groups_) != names:
        raise DataError("its groups are missing, out of order, or one is there twice.")
    if graph is not None:
        graph.require([*names, *(test or ())])
    estimator.group_sizes_ = {name: row.size for name, row in zip(names, stored.groups, strict=True)}
    estimator.topology_, estimator.n_features_in_ = graph, stored.inputs
    estimator.held_out_, estimator._classes = None, isinstance(estimator, AutoClassifier)
    classes = None
    if estimator._classes:
        estimator.classes_ = classes = classes_from_json(stored.classes)
        estimator.sureness_ = as_type(stored.sureness, float, "its sureness")
    groups = _by_candidate(arrays, len(stored.candidates))
    estimator.votes_ = {each.name: each.vote for each in stored.candidates}
    if abs(math.fsum(estimator.votes_.values()) - 1.0) > 1e-6 or len(estimator.votes_) < len(stored.candidates):
        raise DataError("the votes of its candidates do not sum to one.")
    estimator.candidates_ = {
        each.name: _loaded(each.says, groups[place], stored.inputs, classes, 0)
        for place, each in enumerate(stored.candidates)
    }
    estimator.league_ = tuple(
        Standing(
            row.name,
            math.nan if row.error is None else row.error,
            math.nan if row.worst is None else row.worst,
            row.vote,
            row.note,
        )
        for row in stored.league
    )
    estimator.votes_ = dict.fromkeys((row.name for row in stored.league if not math.isnan(row.error or 0.0)), 0.0) | (
        estimator.votes_
    )
    if len(stored.effects) != (1 if classes is None else len(classes)):
        raise DataError(f"it has {len(stored.effects)} effect(s) of a group.")
    intervals = _below(groups[-1], "intervals")
    estimator.intervals_ = HeldOut.from_arrays(intervals) if intervals else None
    others = {name: value for name, value in groups[-1].items() if not name.startswith("intervals.")}
    estimator.fits_ = _effects(stored.effects, others, graph, names)
    estimator._settle()
    return estimator


def _by_candidate(arrays: Arrays, count: int) -> list[dict[str, npt.NDArray[Any]]]:
    """Arrays of the candidates in turn, and the rest."""
    out: list[dict[str, npt.NDArray[Any]]] = [{} for _ in range(count + 1)]
    heads = {f"candidates.{place}": place for place in range(count)}
    for name, value in arrays.items():
        head = ".".join(name.split(".")[:2])
        place = heads.get(head, count)
        out[place][name if place == count else name[len(head) + 1 :]] = value
    return out


def _loaded(stored: StoredSay, arrays: Arrays, inputs: int, classes: npt.NDArray[Any] | None, depth: int) -> Say:
    """A candidate from its arrays, all of which must be of use."""
    outputs = 1 if classes is None else len(classes)
    wanted = {"context": 1, "sum": 2}.get(stored.kind, 0)
    if len(stored.parts) != wanted or depth > 2:
        raise DataError(f"a candidate of kind {stored.kind!r} has {len(stored.parts)} part(s), expected {wanted}.")
    if wanted:
        width = 2 * inputs if stored.kind == "context" else inputs
        parts = [
            _loaded(part, _below(arrays, str(place)), width, classes, depth + 1)
            for place, part in enumerate(stored.parts)
        ]
        strange = [name for name in arrays if name.split(".")[0] not in map(str, range(wanted))]
        if strange:
            raise DataError(f"a candidate has arrays of no use: {listed(strange)}.")
        return InContext(parts[0]) if wanted == 1 else Sum(parts[0], parts[1])
    if stored.kind == "same":
        check_arrays(arrays, {"values": (outputs,)})
        return Same(arrays["values"])
    if stored.kind == "trees":
        kept = arrays.get("kept", np.zeros(0))
        if kept.dtype != np.int64 or kept.ndim != 1 or not kept.size or kept.min() < 0 or kept.max() >= inputs:
            raise DataError("its trees look at columns that are not there.")
        of_trees = {name: value for name, value in arrays.items() if name != "kept"}
        trees = StoredTrees.from_arrays(of_trees, len(kept), "identity" if classes is None else "classes", classes)
        return Boosted(kept, trees) if classes is None else Boosted(kept, trees, np.arange(outputs), outputs)
    seen = {name: arrays[name] for name in OF_INPUTS if name in arrays}
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(OF_INPUTS, (inputs,))
    if stored.kind == "linear":
        scores = 1 if outputs < 3 else outputs
        check_arrays(arrays, shapes | {"coef": (inputs, scores), "intercept": (scores,)})
        places = None if classes is None else np.arange(outputs)
        return Linear(Inputs(**seen), arrays["coef"], arrays["intercept"], places, outputs)
    check_arrays(seen, shapes)
    model = load_kriged(stored.model, _below(arrays, "model"))
    strange = [name for name in arrays if name not in OF_INPUTS and not name.startswith("model.")]
    if strange or classes is not None or model.n_features_in_ != inputs or not isinstance(model, KrigedRegressor):
        raise DataError("its kriged candidate is of other inputs, or of classes.")
    return OfModel(model, grouped=True, classes=None, inputs=Inputs(**seen))


def _below(arrays: Arrays, head: str) -> dict[str, npt.NDArray[Any]]:
    return {name[len(head) + 1 :]: value for name, value in arrays.items() if name.startswith(f"{head}.")}


def _effects(
    stored: Sequence[Sequence[StoredNested]], arrays: Arrays, graph: GroupGraph | None, names: list[Name]
) -> list[KrigedFit]:
    m = len(names)
    shapes: dict[str, tuple[int, ...]] = {}
    for place in range(len(stored)):
        sizes: dict[str, tuple[int, ...]] = {
            "rows": (m,), "squares": (m,), "roots": (m, 1, 1), "targets": (m, 1, 1), "residual": (m, 1)
        }  # fmt: skip
        shapes |= {f"effects.{place}.factors.{name}": sizes[name] for name in FACTORS}
    modes, places = None, []
    if graph is not None:
        count = int(np.size(arrays.get("modes.values", ())))
        shapes |= {"modes.values": (count,), "modes.vectors": (len(graph), count)}
        places = [graph.names.index(name) for name in names]
    check_arrays(arrays, shapes)
    if graph is not None:
        modes = WalkModes(arrays["modes.values"], arrays["modes.vectors"])
    negative = [key for key in arrays if key.endswith((".residual", ".rows", ".values")) and (arrays[key] < 0).any()]
    if negative:
        raise DataError(f"its array {negative[0]!r} holds numbers beyond what it may.")
    return [
        fit_again(models, _below(arrays, f"effects.{place}"), names, modes, places, EFFECTS, level=False)
        for place, models in enumerate(stored)
    ]
