"""Rows in effect in the estimators: what is said, warned of, limited and shrunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.linear_model import Ridge

from toporo.errors import SettingError, TopoRoWarning
from toporo.estimators import GroupDRORegressor, RobustRegressor, TROClassifier, TRORegressor
from toporo.estimators.state import dump_state, load_state

SIZES = {"a": 400, "b": 300, "c": 200, "tiny": 3}


def table(columns: int = 8, seed: int = 0, **sizes: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], list[str]]:
    """Groups alike, but for a tiny one that no model of the others fits."""
    rng = np.random.default_rng(seed)
    groups = [name for name, size in (sizes or SIZES).items() for _ in range(size)]
    x = rng.normal(size=(len(groups), columns))
    y = x.sum(axis=1) + 0.5 * rng.normal(size=len(groups)) + 30.0 * np.array([name == "tiny" for name in groups])
    return x, y, groups


def kish(model: Any, sizes: dict[str, int]) -> float:
    return 1.0 / sum(weight**2 / sizes[name] for name, weight in model.group_weights_.items())


def test_three_rows_have_no_quarter_of_the_weight_unless_asked_for() -> None:
    x, y, groups = table()
    with pytest.warns(TopoRoWarning, match=r"15 of 903 rows are in effect for 8 columns.*those of 'tiny', 'b'"):
        named = TRORegressor(prior="uniform", penalty=1.0).fit(x, y, groups=groups)
    assert named.group_weights_["tiny"] > 0.25
    model = TRORegressor(penalty=1.0).fit(x, y, groups=groups)
    assert model.group_weights_["tiny"] == pytest.approx(3 / 90)
    assert model.prior_.weights["tiny"] == pytest.approx(3 / 90)
    assert model.prior_.capped_mass == pytest.approx(0.25 - 3 / 90)
    assert model.history_[0].relative_gap < 1e-6


@pytest.mark.parametrize("penalty", [1.0, 0.01, "auto"])
def test_ten_rows_a_column_are_in_effect_under_an_automatic_prior(penalty: Any) -> None:
    x, y, groups = table(20)
    model = TRORegressor(penalty=penalty).fit(x, y, groups=groups)
    assert model.rows_in_effect_ == pytest.approx(kish(model, SIZES))
    assert model.rows_in_effect_ >= 200
    labels = np.append(x[:900, 0] + np.sin(y[:900]) > 0, [True, True, False])
    chosen = TROClassifier(penalty=penalty).fit(x, labels, groups=groups)
    assert chosen.rows_in_effect_ >= 200


def test_who_asks_for_the_worst_group_gets_it_and_is_told() -> None:
    x, y, groups = table()
    for model in (TRORegressor(penalty=0.0), GroupDRORegressor()):
        with pytest.warns(TopoRoWarning, match="fewer than 10 per column"):
            model.fit(x, y, groups=groups)
        assert model.group_weights_["tiny"] > 0.25


def test_the_worst_mixture_is_the_worst_within_the_limits() -> None:
    """No other mixture within them is worse for the model."""
    x, y, groups = table()
    model = TRORegressor(penalty=0.3, ridge=1e-3).fit(x, y, groups=groups)
    most = np.array([min(1.0, size / 90) for size in SIZES.values()])
    losses, p = (np.array(list(each.values())) for each in (model.group_losses_, model.prior_.weights))
    losses = losses / y.var()

    def worth(q: npt.NDArray[Any]) -> float:
        return float(q @ losses - 0.15 * ((q - p) ** 2).sum())

    best = worth(np.array(list(model.group_weights_.values())))
    tries = np.random.default_rng(0).dirichlet(np.ones(4), 20_000)
    assert max(worth(q) for q in tries if (q <= most).all()) <= best + 1e-6
    assert max(worth(q) for q in tries) > best, "without limits there is a worse one"


# ---------------------------------------------------------------- the ridge


def test_the_ridge_goes_with_columns_over_rows_in_effect() -> None:
    x, y, groups = table(20)
    model = TRORegressor().fit(x, y, groups=groups)
    again = TRORegressor(ridge=model.ridge_).fit(x, y, groups=groups)
    assert 0.1 * 20 / 903 < model.ridge_ < 0.1 * 20 / 150
    np.testing.assert_array_equal(model.coef_, again.coef_)
    long = table(2, **dict.fromkeys("abc", 500))
    assert TRORegressor().fit(long[0], long[1], groups=long[2]).ridge_ == 1e-3


def test_a_ridge_that_is_given_is_that_ridge() -> None:
    x, y, groups = table(20)
    for ridge in (0.0, 1e-3, 0.5):
        assert TRORegressor(ridge=ridge).fit(x, y, groups=groups).ridge_ == ridge
    with pytest.raises(SettingError, match="or 'auto'"):
        TRORegressor(ridge="much").fit(x, y, groups=groups)


def test_a_single_group_has_the_least_ridge_and_no_warning_of_its_rows() -> None:
    x, y, _ = table(20, a=40)
    with pytest.warns(TopoRoWarning) as caught:
        model = TRORegressor().fit(x, y, groups=["a"] * 40)
    assert model.ridge_ == 1e-3
    assert model.rows_in_effect_ == 40
    assert not any("in effect" in str(each.message) for each in caught)


# ---------------------------------------------------------------- what is said


def test_the_table_says_how_many_groups_and_rows_are_in_effect() -> None:
    x, y, groups = table()
    model = TRORegressor().fit(x, y, groups=groups)
    said = " ".join(model.explain().notes)
    assert f"groups and {model.rows_in_effect_:.0f} rows are in effect" in said
    assert "22 % of the prior was taken from groups of few rows" in said
    assert model.explain()[:1].notes == model.explain().notes


def test_it_is_kept_with_the_model() -> None:
    x, y, groups = table()
    weight = np.random.default_rng(0).uniform(0.1, 2.0, len(y))
    model = TRORegressor().fit(x, y, groups=groups, sample_weight=weight)
    assert model.rows_in_effect_ < kish(model, SIZES)
    kept = load_state(*dump_state(model))
    assert (kept.rows_in_effect_, kept.ridge_) == (model.rows_in_effect_, model.ridge_)
    assert kept.explain().notes == model.explain().notes


# ---------------------------------------------------------------- any model


def test_any_model_has_no_quarter_in_three_rows_unless_asked_for() -> None:
    x, y, groups = table()
    model = RobustRegressor(Ridge()).fit(x, y, groups=groups)
    assert model.group_weights_["tiny"] <= 3 / 90 + 1e-12
    assert model.rows_in_effect_ == pytest.approx(kish(model, SIZES))
    with pytest.warns(TopoRoWarning, match="46 of 903 rows are in effect for 8 columns"):
        alike = RobustRegressor(Ridge(), prior="uniform").fit(x, y, groups=groups)
    assert alike.group_weights_["tiny"] == 0.25
