"""Any model plus a kriged effect of the group: what is gained, what is left alone, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning
from toporo.estimators import Kriged

CHAIN = [(place, place + 1) for place in range(19)]
TEST = (3, 4, 9, 10, 16)


def rows(seed: int = 0, *, level: float = 1.5, per_group: int = 30) -> tuple[Any, ...]:
    """Twenty groups in a row, whose level follows their place."""
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(20), per_group)
    x = rng.normal(size=(len(g), 2))
    eta = np.sin(2 * x[:, 0]) + level * np.sin(g / 4)
    return x, eta, g, ~np.isin(g, TEST), rng


def regression(seed: int = 0, **settings: Any) -> tuple[Any, ...]:
    x, eta, g, known, rng = rows(seed, **settings)
    return x, eta + 0.5 * rng.normal(size=len(g)), g, known


def test_an_effect_that_follows_the_graph_is_found() -> None:
    x, y, g, known = regression()
    for inner in (HistGradientBoostingRegressor(random_state=0), make_pipeline(StandardScaler(), Ridge())):
        model = Kriged(inner, graph=CHAIN).fit(x[known], y[known], groups=g[known])
        alone = clone(inner).fit(x[known], y[known])
        error, before = (
            np.mean((values - y[~known]) ** 2)
            for values in (model.predict(x[~known], groups=g[~known]), alone.predict(x[~known]))
        )
        assert error < 0.6 * before
        assert model.gate_ > 0.95
        assert sum(model.evidence_.values()) == pytest.approx(1.0)
    assert is_regressor(model)
    assert model.saw_ == ("test adjacency",)
    assert set(model.effects_) == set(g[known].tolist())


def test_where_there_is_no_effect_hardly_anything_is_added() -> None:
    x, y, g, known = regression(level=0.0)
    model = Kriged(HistGradientBoostingRegressor(random_state=0), graph=CHAIN).fit(x[known], y[known], groups=g[known])
    alone = HistGradientBoostingRegressor(random_state=0).fit(x[known], y[known])
    added = model.predict(x[~known], groups=g[~known]) - alone.predict(x[~known])
    assert np.abs(added).max() < 0.05


def test_groups_that_the_model_knows_are_left_to_it() -> None:
    x, y, g, known = regression()
    model = Kriged(LinearRegression(), graph=CHAIN).fit(x[known], y[known], groups=g[known])
    alone = LinearRegression().fit(x[known], y[known])
    np.testing.assert_array_equal(model.predict(x[known], groups=g[known]), alone.predict(x[known]))


@pytest.mark.parametrize("classes", [2, 3])
def test_effects_on_classes_are_on_the_log_odds(classes: int) -> None:
    x, eta, g, known, rng = rows(level=2.0)
    scores = np.column_stack([eta, -eta, np.cos(g / 4) + x[:, 1]])[:, :classes]
    y = np.array(["no", "yes", "maybe"])[(scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]
    inner = HistGradientBoostingClassifier(max_iter=40, random_state=0)
    model = Kriged(inner, graph=CHAIN).fit(x[known], y[known], groups=g[known])
    alone = clone(inner).fit(x[known], y[known])
    ours, before = model.predict_proba(x[~known], groups=g[~known]), alone.predict_proba(x[~known])
    np.testing.assert_allclose(ours.sum(axis=1), 1.0)
    place = np.searchsorted(model.classes_, y[~known])
    loss, plain = (-np.log(np.clip(p, 1e-3, 1)[np.arange(len(place)), place]).mean() for p in (ours, before))
    assert loss < 0.9 * plain
    assert np.mean(model.predict(x[~known], groups=g[~known]) == y[~known]) > np.mean(
        alone.predict(x[~known]) == y[~known]
    )
    np.testing.assert_array_equal(model.predict_proba(x[known], groups=g[known]), alone.predict_proba(x[known]))
    assert is_classifier(model)


def test_a_class_that_a_part_lacks_is_no_obstacle() -> None:
    x, eta, g, known, _ = rows()
    y = np.where(eta > 0, "up", "down")
    y[g == 0] = "rare"
    model = Kriged(LogisticRegression(), graph=CHAIN).fit(x[known], y[known], groups=g[known])
    assert np.isfinite(model.predict_proba(x[~known], groups=g[~known])).all()


def test_frames_weights_and_neighbours() -> None:
    x, y, g, known = regression()
    frame = pd.DataFrame(x, columns=["a", "b"])
    weights = np.ones(known.sum())
    model = Kriged(LinearRegression(), graph=CHAIN)
    plain = clone(model).fit(x[known], y[known], groups=g[known])
    other = clone(model).fit(frame[known], y[known], groups=g[known], sample_weight=weights)
    new = x[~known], g[~known]
    np.testing.assert_allclose(plain.predict(*new), other.predict(frame[~known], g[~known]), rtol=1e-6)
    with pytest.raises(GroupMismatchError, match="neighbors="):
        plain.predict(x[:1], groups=["new"])
    placed = plain.predict(x[:1], groups=["new"], neighbors={"new": [3]})
    np.testing.assert_allclose(placed, plain.predict(x[:1], groups=[3]), atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "fitting", "error", "message"),
    [
        ({"folds": 1}, {}, SettingError, "folds"),
        ({}, {"groups": [0, 1] * 300}, DataError, "at least three"),
        ({"graph": CHAIN[:4]}, {}, GroupMismatchError, "group"),
        ({"estimator": KNeighborsRegressor()}, {"sample_weight": np.ones(600)}, SettingError, "takes no sample_weight"),
        ({}, {"groups": None}, SettingError, "graph is over groups"),
        ({}, {"y": np.zeros((600, 2))}, DataError, "one target per row"),
    ],
)
def test_bad_input_is_an_error(settings: dict[str, Any], fitting: dict[str, Any], error: Any, message: str) -> None:
    x, y, g, _ = regression()
    model = Kriged(**{"estimator": Ridge(), "graph": CHAIN, **settings})
    with pytest.raises(error, match=message):
        model.fit(**{"X": x, "y": y, "groups": g.tolist(), **fitting})


@pytest.mark.parametrize("inner", [Ridge(), LogisticRegression()])
def test_without_groups_it_is_the_estimator_inside(inner: Any) -> None:
    x, y, g, known = regression()
    y = y > 0 if is_classifier(inner) else y
    weights = np.linspace(0.0, 1.0, len(y))
    model, alone = Kriged(inner).fit(x, y, sample_weight=weights), clone(inner).fit(x, y, sample_weight=weights)
    np.testing.assert_array_equal(model.predict(x), alone.predict(x))
    assert model.score(x, y) == alone.score(x, y)
    assert (model.gate_, model.effects_) == (0.0, {})
    if is_classifier(inner):
        np.testing.assert_array_equal(model.predict_proba(x), alone.predict_proba(x))
    else:
        with pytest.raises(SettingError, match="fitted without groups"):
            model.predict(x, interval=0.9)
    with pytest.raises(DataError, match="fitted without groups"):
        model.effect([3])
    grouped = Kriged(inner, graph=CHAIN).fit(x[known], y[known], groups=g[known])
    with pytest.warns(TopoRoWarning, match="no groups were given for the rows to predict"):
        np.testing.assert_array_equal(grouped.predict(x), clone(inner).fit(x[known], y[known]).predict(x))


def test_weights_reach_the_last_step_of_a_pipeline() -> None:
    x, y, g, known = regression()
    weights = np.where(np.arange(known.sum()) % 2, 1.0, 0.0)
    piped = Kriged(make_pipeline(StandardScaler(with_mean=False, with_std=False), Ridge()), graph=CHAIN)
    one = piped.fit(x[known], y[known], groups=g[known], sample_weight=weights)
    other = Kriged(Ridge(), graph=CHAIN).fit(x[known], y[known], groups=g[known], sample_weight=weights)
    np.testing.assert_allclose(one.predict(x, groups=g), other.predict(x, groups=g))


def test_intervals_hold_what_they_say_in_groups_never_trained_on() -> None:
    inside, widths = [], []
    for seed in range(8):
        x, y, g, known = regression(seed)
        model = Kriged(make_pipeline(StandardScaler(), Ridge()), graph=CHAIN).fit(x[known], y[known], groups=g[known])
        values, low, high = model.predict(x[~known], groups=g[~known], interval=0.9)
        np.testing.assert_array_equal(values, model.predict(x[~known], groups=g[~known]))
        inside.append(np.mean((low <= y[~known]) & (y[~known] <= high)))
        widths.append(np.mean(high - low))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.05)
    assert np.mean(widths) < 0.9 * 2 * 1.645 * np.std(y)  # and say something


def test_effects_are_known_of_any_group_in_the_graph() -> None:
    x, y, g, known = regression()
    model = Kriged(Ridge(), graph=CHAIN).fit(x[known], y[known], groups=g[known])
    effects = model.effect([3, 2, "new"], neighbors={"new": [3]})
    assert (effects[2].value, effects[2].sd) == pytest.approx(
        (model.effects_[2].value, model.effects_[2].sd), rel=1e-12
    )
    assert [effects[name].trained for name in (2, 3, "new")] == [True, False, False]
    assert effects[3].value == pytest.approx(effects["new"].value)
    assert effects[3].sd > effects[2].sd > 0
    added = model.predict(x[:1], groups=[3]) - model.estimator_.predict(x[:1])
    assert added[0] == pytest.approx(effects[3].value)
    truth = 1.5 * np.sin(np.arange(20) / 4)
    assert np.corrcoef(truth[known[::30]], [effect.value for effect in model.effects_.values()])[0, 1] > 0.95


def test_effects_of_classes_have_one_for_each() -> None:
    x, eta, g, known, _ = rows()
    y = np.where(eta > 0, "up", "down")
    model = Kriged(LogisticRegression(), graph=CHAIN).fit(x[known], y[known], groups=g[known])
    effect = model.effect([3])[3]
    assert len(effect.value) == len(effect.sd) == 2
    assert model.score(x[~known], y[~known], groups=g[~known]) > 0.7
    with pytest.raises(SettingError, match="predict_proba"):
        model.predict(x, groups=g, interval=0.9)
