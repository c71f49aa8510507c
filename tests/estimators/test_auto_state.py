"""Votes and effects as plain values and arrays, and back."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save
from sklearn.linear_model import LinearRegression

from toporo.errors import DataError, SettingError
from toporo.estimators.auto import AutoClassifier, AutoRegressor
from toporo.estimators.state import dump_state, load_state

M, PER = 9, 25
CHAIN = [(f"g{place}", f"g{place + 1}") for place in range(M)]


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    g = np.repeat([f"g{place}" for place in range(M)], PER)
    x = rng.normal(size=(len(g), 3))
    x[::17, 1] = np.nan
    step = np.repeat(np.arange(M), PER)
    return x, x[:, 0] + np.sign(x[:, 2]) + np.sin(step / 2.0) + 0.3 * rng.normal(size=len(g)), g


def stored(estimator: Any) -> tuple[Any, Any]:
    """Through the text of a file and the bytes of another."""
    content, arrays = dump_state(estimator)
    return json.loads(json.dumps(content, allow_nan=False)), load(save(arrays))


def numbers(**settings: Any) -> AutoRegressor:
    x, y, g = rows()
    return AutoRegressor(**settings).fit(x, y, groups=g)


def classes(count: int, **settings: Any) -> AutoClassifier:
    x, y, g = rows()
    labels = np.array(["low", "high", "most"], dtype=object)[np.digitize(y, [0.0, 1.5][: count - 1])]
    return AutoClassifier(**settings).fit(x, labels, groups=g)


@pytest.fixture(scope="module")
def whole() -> AutoRegressor:
    return numbers(graph=CHAIN, test_groups=[f"g{M}"])


CASES: dict[str, Callable[[], Any]] = {
    "graph": lambda: numbers(graph=CHAIN),
    "no graph": numbers,
    "no groups": lambda: AutoRegressor().fit(*rows()[:2]),
    "two classes": lambda: classes(2, graph=CHAIN),
    "three classes": lambda: classes(3),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_predicts_the_same_bytes(case: str) -> None:
    model = CASES[case]()
    other = load_state(*stored(model))
    assert type(other) is type(model)
    x, _, g = rows(1)
    asked: Any = None if case == "no groups" else np.where(g == "g3", f"g{M}" if case == "graph" else "g2", g)
    work = "predict" if isinstance(model, AutoRegressor) else "predict_proba"
    np.testing.assert_array_equal(getattr(other, work)(x, asked), getattr(model, work)(x, asked))
    assert str(other.explain()) == str(model.explain())
    assert other.effects_ == model.effects_
    assert other.weights_ == model.weights_
    assert other.group_sizes_ == model.group_sizes_
    assert dump_state(other)[0] == dump_state(model)[0]
    assert other.out_of_fold_ is None
    assert set(other.predict_each(x, asked)) == {name for name, vote in model.weights_.items() if vote > 0}


def test_intervals_and_new_groups_are_the_same(whole: AutoRegressor) -> None:
    other = load_state(*stored(whole))
    x, _, g = rows(1)
    new = np.where(g == "g3", "elsewhere", g)
    asked = {"neighbors": {"elsewhere": ["g3", "g4"]}, "interval": 0.9}
    for a, b in zip(whole.predict(x, new, **asked), other.predict(x, new, **asked), strict=True):
        np.testing.assert_array_equal(a, b)
    assert other.fit(*rows()[:2], rows()[2]).weights_ == whole.weights_


def test_what_cannot_be_stored_says_why() -> None:
    x, y, g = rows()
    y = 3.0 * x[:, 0]
    with pytest.raises(SettingError, match="of one's own have a weight and cannot be stored: 'mine'"):
        dump_state(AutoRegressor(candidates={"mine": Thrice()}).fit(x, y, groups=g))


class Thrice(LinearRegression):  # type: ignore[misc]
    """Knows the answer."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return self

    def predict(self, X: Any) -> Any:
        return 3.0 * X[:, 0]


def _break(path: str, value: Any) -> Callable[[Any, Any], None]:
    def work(content: Any, arrays: Any) -> None:
        place: Any = content
        *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
        for step in way:
            place = place[step]
        place[last] = value

    return work


def _forged(arrays: Any, name: str, value: int) -> dict[str, np.ndarray]:
    """Trees one of whose indices is changed."""
    found = next(key for key in arrays if key.endswith(f"model.{name}"))
    other = arrays[found].copy()
    other.reshape(-1)[-1] = value
    return {found: other}


def _change(ending: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any, Any], None]:
    """Change the first array whose name ends so."""

    def work(content: Any, arrays: Any) -> None:
        name = next(key for key in arrays if key.endswith(ending))
        arrays[name] = change(arrays[name])

    return work


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_break("model/ensemble/weights/0/1", 7.0), "weights .* do not sum to one"),
        (_break("model/ensemble/weights/0/1", "nan"), "do not sum to one"),
        (_break("model/ensemble/members/0/1/class", "Sum"), "a Sum has no such field"),
        (_break("model/ensemble/members/0/1/class", "os.system"), "of class 'os.system', expected one of"),
        (_break("model/ensemble/members/0/1/class", ["Sum"]), "of class"),
        (_break("model/sizes/0/0", "zebra"), "out of order"),
        (_break("model/effects/fits", []), "effect"),
        (_break("model/effects/fits/0/models/1/parameters", [["magic", 1.0]]), "unknown"),
        (_break("model/effects/fits/0/modes/class", "GraphFactors"), "expected one of"),
        (_break("model/inputs", 1), "."),
        (_break("model/inputs", 10**13), "."),
        (_break("model/folds", "many"), "folds"),
        (_break("model/more", 1), "no such field"),
        (_break("class", "AutoClassifier"), "its class is AutoClassifier, its model one of numbers"),
        (lambda content, arrays: arrays.pop("effects.fits.0.modes.values"), "modes.values' is missing"),
        (lambda content, arrays: arrays.update({"stranger": np.zeros(1)}), "stranger.*belong to nothing"),
        (lambda content, arrays: arrays["effects.fits.0.factors.rows"].fill(-1.0), "beyond what it may"),
        (lambda content, arrays: arrays["effects.fits.0.factors.roots"].fill(np.nan), "holds NaN"),
        (_change(".fill", lambda array: array[:2]), "."),
        (_change(".fill", lambda array: np.full_like(array, np.inf)), "infinite values"),
        (_change(".kept", lambda array: np.array(0)), "has no dimension"),
        (lambda content, arrays: arrays.update(_forged(arrays, "left", 0)), "a node leads nowhere, back"),
        (lambda content, arrays: arrays.update(_forged(arrays, "feature", 10**6)), "a feature that is not there"),
        (lambda content, arrays: arrays.update(_forged(arrays, "roots", -1)), "a node leads nowhere"),
    ],
)
def test_damage_is_an_error_that_says_what_is_wrong(
    whole: AutoRegressor, damage: Callable[[Any, Any], None], message: str
) -> None:
    content, arrays = copy.deepcopy(stored(whole))
    damage(content, arrays)
    with pytest.raises(DataError, match=rf"(?s)not a stored estimator: .*({message})"):
        load_state(content, arrays)


def test_no_part_can_be_missing(whole: AutoRegressor) -> None:
    content, arrays = stored(whole)
    for key in content["model"]:
        rest = {name: value for name, value in content["model"].items() if name != key}
        with pytest.raises(DataError, match="not a stored estimator"):
            load_state({**content, "model": rest}, arrays)
    for key in arrays:
        with pytest.raises(DataError, match="is missing"):
            load_state(content, {name: value for name, value in arrays.items() if name != key})


def test_means_of_groups_within_each_other_are_refused(whole: AutoRegressor) -> None:
    """Each would double the columns."""
    content, arrays = copy.deepcopy(stored(whole))
    candidate = next(each for each in content["model"]["ensemble"]["members"] if each[1].get("class") == "WithContext")
    candidate[1] = {"class": "WithContext", "trees": candidate[1]}
    with pytest.raises(DataError, match="a Boosted has no such field"):
        load_state(content, arrays)
