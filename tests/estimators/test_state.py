"""Fitted estimators as plain values and arrays, and back."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load, save
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from torch import nn

from tests.estimators.cases import CHAIN, labels, numbers
from toporo.errors import DataError, SettingError
from toporo.estimators import (
    GroupDROClassifier,
    GroupDRORegressor,
    Net,
    Radius,
    RobustClassifier,
    RobustRegressor,
    TROClassifier,
    TRORegressor,
)
from toporo.estimators.state import dump_state, load_state
from toporo.topology import GroupGraph, Prior

NUMBERS, LABELS = numbers(120), labels(120)
QUICK: dict[str, Any] = {"model": Net((8,), epochs=2)}
TOWARDS: dict[str, Any] = {"graph": CHAIN, "test_groups": ["x", "y"]}


def fitted(kind: Any, *, y: Any = None, groups: Any = None, **settings: Any) -> Any:
    table = NUMBERS if kind in (TRORegressor, GroupDRORegressor, RobustRegressor) else LABELS
    target = table.y if y is None else y
    return kind(**settings).fit(table.x, target, groups=table.groups if groups is None else groups)


def stored(estimator: Any) -> tuple[Any, Any]:
    """Through the text of a file and the bytes of another."""
    content, arrays = dump_state(estimator)
    return json.loads(json.dumps(content, allow_nan=False)), load(save(arrays))


TREES: dict[str, Any] = {"max_iter": 8, "random_state": 3}
CASES: dict[str, Callable[[], Any]] = {
    "regression": lambda: fitted(TRORegressor),
    "group dro": lambda: fitted(GroupDRORegressor),
    "group dro classes": lambda: fitted(GroupDROClassifier),
    "graph and choice": lambda: fitted(TRORegressor, **TOWARDS),
    "no path": lambda: fitted(TRORegressor, graph=[("a", "b"), ("c", "d"), ("d", "x")], test_groups=["x"]),
    "infinite penalty": lambda: fitted(TROClassifier, penalty=math.inf),
    "radius": lambda: fitted(TRORegressor, penalty=Radius(np.float64(0.1)), divergence="kl"),
    "a prior": lambda: fitted(TRORegressor, prior=Prior.from_weights({"a": 4, "b": 3, "c": 2, "d": 1})),
    "two targets": lambda: fitted(TRORegressor, y=np.column_stack([NUMBERS.y, NUMBERS.x[:, 0]])),
    "one column in two dimensions": lambda: fitted(TRORegressor, y=NUMBERS.y[:, None]),
    "three classes": lambda: fitted(TROClassifier, y=np.arange(120) % 3),
    "boolean classes": lambda: fitted(TROClassifier, y=LABELS.y == "yes"),
    "classes as objects": lambda: fitted(TROClassifier, y=LABELS.y.astype(object)),
    "groups by pairs": lambda: fitted(TRORegressor, groups=[("site", k % 3) for k in range(120)]),
    "one group": lambda: fitted(TRORegressor, groups=["all"] * 120),
    "perceptron": lambda: fitted(TRORegressor, **QUICK, **TOWARDS),
    "perceptron for classes": lambda: fitted(TROClassifier, **QUICK, penalty=Radius(0.1)),
    "perceptron of two targets": lambda: fitted(GroupDRORegressor, **QUICK, y=np.column_stack([NUMBERS.y, NUMBERS.x])),
    "perceptron without layers": lambda: fitted(GroupDROClassifier, model=Net((), epochs=2)),
    "weighted trees": lambda: fitted(RobustRegressor, estimator=HistGradientBoostingRegressor(**TREES), **TOWARDS),
    "weighted trees for classes": lambda: fitted(RobustClassifier, estimator=HistGradientBoostingClassifier(**TREES)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::toporo.errors.TopoRoWarning")
def test_what_is_loaded_predicts_the_same_bytes_and_explains_the_same(case: str) -> None:
    model = CASES[case]()
    other = load_state(*stored(model))
    assert type(other) is type(model)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, method):
            was, now = getattr(model, method)(NUMBERS.x), getattr(other, method)(NUMBERS.x)
            assert (now.dtype, now.shape, now.tolist()) == (was.dtype, was.shape, was.tolist())
    same = ("group_weights_", "prior_", "topology_", "test_groups_", "rows_in_effect_", "n_features_in_")
    if hasattr(model, "explain"):
        assert other.explain() == model.explain()
        assert type(getattr(other, "intercept_", None)) is type(getattr(model, "intercept_", None))
        assert {name: value for name, value in other.get_params().items() if name not in ("graph", "test_groups")} == {
            name: value for name, value in model.get_params().items() if name not in ("graph", "test_groups")
        }
        same += ("choice_", "penalty_scores_", "penalty_", "ridge_")
    for name in same:
        assert getattr(other, name) == getattr(model, name), name
    content, arrays = dump_state(other)
    assert json.dumps(content) == json.dumps(dump_state(model)[0])
    assert save(arrays) == save(dump_state(model)[1])


def test_settings_come_back_and_can_be_fitted_again() -> None:
    model = fitted(TRORegressor, **TOWARDS, ridge=0.5, random_state=np.int64(3))
    other = load_state(*stored(model))
    assert other.graph == GroupGraph.from_edges(CHAIN)
    assert (other.ridge, other.random_state, other.test_groups) == (0.5, 3, ["x", "y"])
    again = other.fit(NUMBERS.x, NUMBERS.y, groups=NUMBERS.groups)
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_names_of_features_come_back() -> None:
    frame = pd.DataFrame(NUMBERS.x, columns=["height", "größe", "<b>"])
    model = TRORegressor().fit(frame, NUMBERS.y, groups=NUMBERS.groups)
    other = load_state(*stored(model))
    assert other.feature_names_in_.tolist() == ["height", "größe", "<b>"]
    assert other.predict(frame).tobytes() == model.predict(frame).tobytes()


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (
            lambda: fitted(TRORegressor, model=Net(epochs=1, module=nn.Linear(3, 1))),
            SettingError,
            "cannot be stored.*Net",
        ),
        (lambda: fitted(RobustRegressor, estimator=Ridge()), SettingError, "found a Ridge: expected a HistGradient"),
        (Ridge, SettingError, "found a Ridge: expected one of TRORegressor"),
        (TRORegressor, NotFittedError, "not fitted"),
        (
            lambda: fitted(TRORegressor, groups=[frozenset({name}) for name in NUMBERS.groups]),
            DataError,
            "cannot be written to a file",
        ),
    ],
)
def test_what_cannot_be_stored(make: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        dump_state(make())


# ---------------------------------------------------------------- what is not a stored estimator

STATES = {
    "linear": stored(fitted(TRORegressor, **TOWARDS)),
    "net": stored(fitted(TROClassifier, **QUICK)),
    "classes": stored(fitted(TROClassifier)),
    "trees": stored(CASES["weighted trees"]()),
}


def changed(state: tuple[Any, Any], where: str, value: Any) -> tuple[Any, Any]:
    whole: Any = {"arrays": dict(state[1]), **copy.deepcopy(state[0])}
    holder, (*way, last) = whole, [int(key) if key.isdigit() else key for key in where.split("/")]
    for key in way:
        holder = holder[key]
    if value is ...:
        del holder[last]
    else:
        holder[last] = value
    arrays = whole.pop("arrays")
    return whole, arrays


@pytest.mark.parametrize(
    ("state", "where", "value", "says"),
    [
        ("linear", "schema", "toporo.estimator/9", "schema is 'toporo.estimator/9'"),
        ("linear", "class", "Ridge", "Ridge"),
        ("linear", "class", ["TRORegressor"], "its class: expected text, found a list"),
        ("linear", "class", "GroupDRORegressor", "its class is GroupDRORegressor, its model that of a TRORegressor"),
        ("linear", "model/kind", "TROClassifier", "with"),
        ("linear", "model/settings/ridge", "much", "its form is wrong"),
        ("linear", "model/settings/ridge", -1.0, "ridge is -1"),
        ("linear", "model/settings/divergence", "l3", "'l3'"),
        ("linear", "model/settings/seed", -1, "random_state is -1"),
        ("linear", "model/settings/extra", 1, "no such field, or it is missing: 'extra'"),
        ("linear", "model/settings/device", "cuda", "no such field"),
        ("linear", "model/groups/group_sizes", [], "no groups given"),
        ("linear", "model/groups/group_sizes/0/0", "b", "a name is there twice"),
        ("linear", "model/groups/group_sizes/0/0", None, "not a group name"),
        ("linear", "model/groups/group_sizes/0/1", 1.5, "expected a whole number, found a number"),
        ("linear", "model/groups/group_weights/0/1", 3.0, "do not sum to one"),
        ("linear", "model/fit/group_losses/0/1", -1.0, "not numbers from 0 to 1e307"),
        ("linear", "model/fit/group_losses/0/1", 1.7e308, "not numbers from 0 to 1e307"),
        ("linear", "model/fit/group_losses/0/0", "zz", "losses are those of other groups"),
        ("linear", "model/groups/prior", None, "its prior is missing"),
        ("linear", "model/groups/prior/weights", [["a", 0.5], ["b", 0.5]], "same groups"),
        ("linear", "model/groups/topology", None, "test groups and no graph"),
        ("linear", "model/groups/topology/edges", [["a", "nowhere", 1]], "nowhere"),
        ("linear", "model/groups/test_groups", ["moon"], "not in the graph: 'moon'"),
        ("linear", "model/one_column", "yes", "expected true or false, found text"),
        ("linear", "model/fit/choice", {"penalty": 1}, "a PenaltyChoice has no such field, or it is missing"),
        ("linear", "model/feature_names", ["a"], "1 names of features, expected 3"),
        ("linear", "arrays/fit.model.coef", ..., "'fit.model.coef' is missing"),
        ("linear", "arrays/more", np.zeros(1), "belong to nothing"),
        ("linear", "arrays/fit.model.coef", np.zeros((1, 2)), "scaling.scale' has shape"),
        ("linear", "arrays/fit.model.coef", np.full((1, 3), np.nan), "holds NaN"),
        ("linear", "arrays/fit.model.coef", np.zeros((1, 3), np.float32), "float32"),
        ("linear", "arrays/fit.scaling.scale", np.zeros(3), "not positive"),
        ("net", "arrays/fit.model.layers.1.bias", np.zeros(3), "its layers have shapes"),
        ("net", "model/settings/network/epochs", 0, "epochs is 0"),
        ("classes", "model/classes/values", ["no", "no"], "at least two distinct"),
        ("classes", "model/classes/values", ["no", "maybe", "yes"], "1 output(s), expected 3"),
        ("classes", "model/classes/values", ["no", "very long"], "at least two distinct"),
        ("classes", "model/classes/type", "<U9999999", "of type '<U9999999'"),
        ("classes", "model/classes", None, "without classes"),
        ("trees", "model/groups/group_weights/0/1", 0.9, "do not sum to one"),
        ("trees", "model/trees/link", "probit", "probit"),
        ("trees", "class", "RobustClassifier", "its model that of a RobustRegressor"),
    ],
)
def test_malformed_content_is_an_error_that_says_what_is_wrong(state: str, where: str, value: Any, says: str) -> None:
    with pytest.raises(DataError, match="not a stored estimator: ") as caught:
        load_state(*changed(STATES[state], where, value))
    assert says in str(caught.value)


@pytest.mark.parametrize("content", [None, 3, [], {}, "text", {"schema": []}])
def test_what_is_nothing_at_all(content: Any) -> None:
    with pytest.raises(DataError, match="not a stored estimator"):
        load_state(content, {})


@pytest.mark.parametrize("name", STATES)
def test_no_part_can_be_missing(name: str) -> None:
    content, arrays = STATES[name]
    parts = [*content, *(f"model/{key}" for key in content["model"]), *(f"arrays/{key}" for key in arrays)]
    for where in parts:
        with pytest.raises(DataError, match="not a stored estimator"):
            load_state(*changed(STATES[name], where, ...))
