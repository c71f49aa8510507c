"""Fitted estimators as plain values and arrays, and back."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save
from torch import nn

from tests.estimators.cases import CHAIN, labels, numbers
from toporo.errors import DataError, SettingError
from toporo.estimators import GroupDROClassifier, GroupDRORegressor, TROClassifier, TRORegressor
from toporo.estimators.state import dump_state, load_state
from toporo.topology import GroupGraph, Prior

NUMBERS, LABELS = numbers(120), labels(120)
QUICK: dict[str, Any] = {"model": "mlp", "hidden": (8,), "epochs": 2}
TOWARDS: dict[str, Any] = {"graph": CHAIN, "test_groups": ["x", "y"]}


def fitted(kind: Any, *, y: Any = None, groups: Any = None, **settings: Any) -> Any:
    table = NUMBERS if kind in (TRORegressor, GroupDRORegressor) else LABELS
    target = table.y if y is None else y
    return kind(**settings).fit(table.x, target, groups=table.groups if groups is None else groups)


def stored(estimator: Any) -> tuple[Any, Any]:
    """Through the text of a file and the bytes of another."""
    content, arrays = dump_state(estimator)
    return json.loads(json.dumps(content, allow_nan=False)), load(save(arrays))


PRIOR = Prior.from_weights({"a": 4, "b": 3, "c": 2, "d": 1})
CASES: dict[str, Callable[[], Any]] = {
    "regression": lambda: fitted(TRORegressor),
    "classification": lambda: fitted(TROClassifier),
    "group dro": lambda: fitted(GroupDRORegressor),
    "group dro classes": lambda: fitted(GroupDROClassifier),
    "graph and choice": lambda: fitted(TRORegressor, **TOWARDS, penalty="auto"),
    "no path": lambda: fitted(TRORegressor, graph=[("a", "b"), ("c", "d"), ("d", "x")], test_groups=["x"]),
    "infinite penalty": lambda: fitted(TROClassifier, penalty=math.inf),
    "radius": lambda: fitted(TRORegressor, radius=np.float64(0.1), divergence="kl"),
    "a prior": lambda: fitted(TRORegressor, prior=PRIOR),
    "weights by name": lambda: fitted(TRORegressor, prior={"a": 1, "b": 2, "c": 3, "d": 4}),
    "two targets": lambda: fitted(TRORegressor, y=np.column_stack([NUMBERS.y, NUMBERS.x[:, 0]])),
    "one column in two dimensions": lambda: fitted(TRORegressor, y=NUMBERS.y[:, None]),
    "three classes": lambda: fitted(TROClassifier, y=np.arange(120) % 3),
    "classes of half numbers": lambda: fitted(TROClassifier, y=np.arange(120) % 2 + 1.0),
    "boolean classes": lambda: fitted(TROClassifier, y=LABELS.y == "yes"),
    "classes as objects": lambda: fitted(TROClassifier, y=LABELS.y.astype(object)),
    "no intercept": lambda: fitted(TROClassifier, fit_intercept=False, standardize=False),
    "groups by pairs": lambda: fitted(TRORegressor, groups=[("site", k % 3) for k in range(120)]),
    "perceptron": lambda: fitted(TRORegressor, **QUICK, **TOWARDS),
    "perceptron for classes": lambda: fitted(TROClassifier, **QUICK, radius=0.1),
    "perceptron of two targets": lambda: fitted(GroupDRORegressor, **QUICK, y=np.column_stack([NUMBERS.y, NUMBERS.x])),
    "perceptron without layers": lambda: fitted(GroupDROClassifier, **{**QUICK, "hidden": ()}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::toporo.errors.TopoRoWarning")
def test_what_is_loaded_predicts_the_same_bytes_and_explains_the_same(case: str) -> None:
    model = CASES[case]()
    other = load_state(*stored(model))
    assert type(other) is type(model)
    x = NUMBERS.x
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, method):
            was, now = getattr(model, method)(x), getattr(other, method)(x)
            assert (now.dtype, now.shape, now.tolist()) == (was.dtype, was.shape, was.tolist())
    assert other.explain() == model.explain()
    assert other.history_ == model.history_
    assert other.prior_ == model.prior_
    assert other.topology_ == model.topology_
    assert other.choice_ == model.choice_
    assert other.penalty_scores_ == model.penalty_scores_
    assert (other.penalty_, other.test_groups_) == (model.penalty_, model.test_groups_)
    assert type(getattr(other, "intercept_", None)) is type(getattr(model, "intercept_", None))
    content, arrays = dump_state(other)
    assert json.dumps(content) == json.dumps(dump_state(model)[0])
    assert save(arrays) == save(dump_state(model)[1])


def test_settings_come_back_and_can_be_fitted_again() -> None:
    model = fitted(TRORegressor, **TOWARDS, ridge=0.5, random_state=np.int64(3))
    other = load_state(*stored(model))
    assert other.graph == GroupGraph.from_edges(CHAIN)
    assert (other.ridge, other.random_state, other.test_groups, other.device) == (0.5, 3, ["x", "y"], "cpu")
    again = other.fit(NUMBERS.x, NUMBERS.y, groups=NUMBERS.groups)
    np.testing.assert_array_equal(again.coef_, model.coef_)


@pytest.mark.filterwarnings("ignore::toporo.errors.TopoRoWarning")
def test_without_groups() -> None:
    model = TRORegressor().fit(NUMBERS.x, NUMBERS.y)
    other = load_state(*stored(model))
    assert other.prior_ is None
    assert other.explain() == model.explain()


def test_names_of_features_come_back() -> None:
    import pandas as pd

    frame = pd.DataFrame(NUMBERS.x, columns=["height", "größe", "<b>"])
    model = TRORegressor().fit(frame, NUMBERS.y, groups=NUMBERS.groups)
    other = load_state(*stored(model))
    assert other.feature_names_in_.tolist() == ["height", "größe", "<b>"]
    assert other.predict(frame).tobytes() == model.predict(frame).tobytes()


def test_a_module_of_ones_own_is_not_stored() -> None:
    model = fitted(TRORegressor, model=nn.Linear(3, 1), epochs=1)
    with pytest.raises(SettingError, match=r"\(Linear\) cannot be stored.*model='mlp', or save"):
        dump_state(model)


def test_only_fitted_estimators_of_ours_are_stored() -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.linear_model import Ridge

    with pytest.raises(SettingError, match="found a Ridge: expected one of TROClassifier"):
        dump_state(Ridge())
    with pytest.raises(NotFittedError):
        dump_state(TRORegressor())


def test_names_that_no_file_can_hold() -> None:
    groups = [frozenset({name}) for name in NUMBERS.groups]
    with pytest.raises(DataError, match="cannot be written to a file"):
        dump_state(fitted(TRORegressor, groups=groups))


# ---------------------------------------------------------------- what is not a stored estimator

LINEAR, NET, CLASSES = (
    stored(fitted(TRORegressor, **TOWARDS)),
    stored(fitted(TROClassifier, **QUICK)),
    stored(fitted(TROClassifier)),
)


def changed(state: tuple[Any, Any], where: tuple[Any, ...], value: Any) -> tuple[Any, Any]:
    content, arrays = copy.deepcopy(state[0]), dict(state[1])
    place: Any = {"content": content, "arrays": arrays}
    for key in where[:-1]:
        place = place[key]
    if value is ...:
        del place[where[-1]]
    else:
        place[where[-1]] = value
    return content, arrays


@pytest.mark.parametrize(
    ("state", "where", "value", "says"),
    [
        (LINEAR, ("content", "schema"), "toporo.estimator/2", "schema is 'toporo.estimator/2'"),
        (LINEAR, ("content", "class"), "Ridge", "Ridge"),
        (LINEAR, ("content", "class"), "GroupDRORegressor", "has no such setting"),
        (LINEAR, ("content", "class"), "TROClassifier", "not a stored estimator"),
        (LINEAR, ("content", "inputs"), 0, "expected a whole number >= 1, at inputs"),
        (LINEAR, ("content", "inputs"), 4, "'scaling.center' has shape"),
        (
            LINEAR,
            ("content", "settings", "ridge"),
            "much",
            "ridge is 'much': expected a finite number of at least 0, or 'auto'",
        ),
        (LINEAR, ("content", "settings", "extra"), 1, "has no such setting, or it is missing: 'extra'"),
        (LINEAR, ("content", "settings", "graph"), "/etc/passwd", "its graph is '/etc/passwd'"),
        (LINEAR, ("content", "settings", "prior"), ..., "has no such setting, or it is missing: 'prior'"),
        (LINEAR, ("content", "settings", "prior"), 3, "its setting 'prior': expected a mapping, found a whole number"),
        (LINEAR, ("content", "settings", "model"), "mlp", "not a stored estimator"),
        (LINEAR, ("content", "settings"), [], "not a stored estimator"),
        (LINEAR, ("content", "groups"), [], "no groups given"),
        (LINEAR, ("content", "groups", 0, "name"), "b", "there twice"),
        (LINEAR, ("content", "groups", 0, "name"), None, "not a group name"),
        (LINEAR, ("content", "groups", 0, "size"), 1.5, "expected a whole number, found a number, at groups[0].size"),
        (LINEAR, ("content", "groups", 0, "weight"), 3.0, "do not sum to one"),
        (LINEAR, ("content", "groups", 0, "loss"), -1, "expected a number >= 0.0, at groups[0].loss"),
        (LINEAR, ("content", "groups", 0, "hops"), None, "its hops is missing for 'a'"),
        (LINEAR, ("content", "prior"), None, "its prior is missing"),
        (LINEAR, ("content", "prior", "weights"), [["a", 0.5], ["b", 0.5]], "same groups"),
        (LINEAR, ("content", "graph"), None, "graph"),
        (LINEAR, ("content", "graph", "edges"), [["a", "nowhere", 1]], "nowhere"),
        (LINEAR, ("content", "test_groups"), ["moon"], "not in the graph: 'moon'"),
        (LINEAR, ("content", "penalty"), -2, "expected a number >= 0.0, at penalty"),
        (LINEAR, ("content", "one_column"), "yes", "expected true or false or nothing, found text, at one_column"),
        (LINEAR, ("content", "history"), [{"value": 1}], "its history is not that of a linear model"),
        (LINEAR, ("content", "history"), 3, "expected a list, found a whole number, at history"),
        (LINEAR, ("content", "choice"), {"penalty": 1}, "a PenaltyChoice has no such field, or it is missing"),
        (LINEAR, ("content", "feature_names"), ["a"], "1 names of features, expected 3"),
        (LINEAR, ("arrays", "coef"), ..., "its arrays are"),
        (LINEAR, ("arrays", "more"), np.zeros(1), "its arrays are"),
        (LINEAR, ("arrays", "coef"), np.zeros((1, 2)), "'coef' has shape"),
        (LINEAR, ("arrays", "coef"), np.full((1, 3), np.nan), "finite numbers"),
        (LINEAR, ("arrays", "coef"), np.zeros((1, 3), np.float32), "float32"),
        (LINEAR, ("arrays", "scaling.scale"), np.zeros(3), "not positive"),
        (LINEAR, ("arrays", "targets.scale"), np.ones(2), "2 targets in one column"),
        (NET, ("content", "settings", "hidden"), [8, 8], "its arrays are"),
        (NET, ("content", "settings", "hidden"), [10**9], "'net.body.0.weight' has shape"),
        (
            NET,
            ("content", "history", 0, "weights"),
            3,
            "the record of a round: expected a list, found a whole number, at weights",
        ),
        (NET, ("arrays", "net.head.bias"), np.zeros(3), "'net.head.bias' has shape"),
        (CLASSES, ("content", "classes", "values"), ["no"], "at least two distinct"),
        (CLASSES, ("content", "classes", "values"), ["no", "no"], "at least two distinct"),
        (CLASSES, ("content", "classes", "values"), ["no", None], "a number or text, found nothing, at [1]"),
        (CLASSES, ("content", "classes", "values"), ["no", "very long"], "at least two distinct"),
        (CLASSES, ("content", "classes", "type"), "<i8", "not a stored estimator"),
        (CLASSES, ("content", "classes", "type"), "<U9999999", "of type '<U9999999'"),
        (CLASSES, ("content", "classes", "type"), "<M8[s]", "not a stored estimator"),
        (CLASSES, ("content", "classes"), None, "it has no classes"),
    ],
)
def test_malformed_content_is_an_error_that_says_what_is_wrong(
    state: Any, where: tuple[Any, ...], value: Any, says: str
) -> None:
    load_state(*state)
    with pytest.raises(DataError, match="not a stored estimator: ") as caught:
        load_state(*changed(state, where, value))
    assert says in str(caught.value)


@pytest.mark.parametrize("content", [None, 3, [], {}, "text", {"schema": []}])
def test_what_is_nothing_at_all(content: Any) -> None:
    with pytest.raises(DataError, match="not a stored estimator"):
        load_state(content, {})


@pytest.mark.parametrize("state", [LINEAR, NET], ids=["linear", "perceptron"])
def test_no_part_can_be_missing(state: Any) -> None:
    later = {"rows_in_effect", "ridge"}  # files of before lack them
    for where in [("content", key) for key in state[0] if key not in later] + [("arrays", key) for key in state[1]]:
        with pytest.raises(DataError, match="not a stored estimator"):
            load_state(*changed(state, where, ...))
