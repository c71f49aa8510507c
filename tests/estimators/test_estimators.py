"""TRO and group DRO estimators: exact fits in any unit, everything by group name, and a place among scikit-learn's."""

import math
import pickle
import subprocess
import sys
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.estimators.cases import CHAIN, labels, numbers
from toporo.choice.splits import GraphHopSplit
from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoError, TopoRoWarning, UnknownNameError
from toporo.estimators import GroupDROClassifier, GroupDRORegressor, Net, Radius, TROClassifier, TRORegressor
from toporo.estimators import training_rows as training
from toporo.groups import GroupIds, Groups
from toporo.robust.divergences import get_divergence
from toporo.robust.factors import GroupFactors
from toporo.robust.linear import fit_linear, fit_logistic
from toporo.topology import GroupGraph, Prior

mpl.use("Agg")

NUMBERS, LABELS = numbers(), labels()
BOTH = [pytest.param(TRORegressor, NUMBERS, id="numbers"), pytest.param(TROClassifier, LABELS, id="classes")]
FIT: dict[str, Any] = {"X": NUMBERS.x, "y": NUMBERS.y, "groups": NUMBERS.groups}


def standardised(values: Any) -> Any:
    return (values - values.mean(axis=0)) / values.std(axis=0)


# ---------------------------------------------------------------- the fit itself


def test_regression_is_the_exact_solution_on_standardised_data_in_the_original_units() -> None:
    table = NUMBERS
    model = TRORegressor(penalty=0.3, ridge=0.01).fit(table.x, table.y, groups=table.groups)
    exact = fit_linear(standardised(table.x), standardised(table.y), table.groups, penalty=0.3, ridge=0.01)
    expected = exact.predict(standardised(table.x)) * table.y.std() + table.y.mean()
    np.testing.assert_allclose(model.predict(table.x), expected, rtol=1e-8)
    np.testing.assert_allclose(table.x @ model.coef_ + model.intercept_, expected, rtol=1e-8)
    assert model.group_weights_ == pytest.approx(exact.weights, rel=1e-6)
    for name in "abcd":
        own = table.groups == name
        assert model.group_losses_[name] == pytest.approx(mean_squared_error(table.y[own], expected[own]))
    assert model.history_[0].value == pytest.approx(exact.value)
    assert model.history_[0].relative_gap < 1e-6


@pytest.mark.parametrize("classes", [2, 3])
def test_classification_is_the_exact_solution_on_standardised_data(classes: int) -> None:
    table = labels(classes=classes)
    x = table.x * [1.0, 100.0, 0.01] + 3.0
    model = TROClassifier(penalty=0.3, ridge=0.01).fit(x, table.y, groups=table.groups)
    exact = fit_logistic(standardised(x), table.y, table.groups, penalty=0.3, ridge=0.01)
    np.testing.assert_allclose(model.decision_function(x), exact.scores(standardised(x)), atol=1e-5)
    assert model.group_weights_ == pytest.approx(exact.weights, abs=1e-5)
    for name in "abcd":
        own = table.groups == name
        chances = model.predict_proba(x[own])
        assert model.group_losses_[name] == pytest.approx(log_loss(table.y[own], chances, labels=model.classes_))


@pytest.mark.filterwarnings("ignore::toporo.errors.TopoRoWarning")
def test_without_groups_it_is_scikit_learns_regression() -> None:
    x, y = standardised(NUMBERS.x), standardised(NUMBERS.y)
    peer = Ridge(alpha=0.1 * len(x)).fit(x, y)
    model = TRORegressor(ridge=0.1).fit(NUMBERS.x, NUMBERS.y)
    np.testing.assert_allclose(model.predict(NUMBERS.x), peer.predict(x) * NUMBERS.y.std() + NUMBERS.y.mean())
    assert model.coef_.shape == peer.coef_.shape
    assert isinstance(model.intercept_, float)
    x, y = standardised(LABELS.x), LABELS.y
    logistic = LogisticRegression(C=1 / (0.2 * len(x)), tol=1e-10).fit(x, y)
    robust = TROClassifier(ridge=0.1).fit(LABELS.x, y)
    np.testing.assert_allclose(robust.predict_proba(LABELS.x), logistic.predict_proba(x), atol=1e-3)
    assert (robust.coef_.shape, robust.intercept_.shape) == (logistic.coef_.shape, logistic.intercept_.shape)


def test_sums_of_rows_are_enough_for_a_regression() -> None:
    whole = TRORegressor(graph=CHAIN, test_groups=["x"]).fit(**FIT)
    low, high = (end(np.column_stack([NUMBERS.x, NUMBERS.y]), axis=0) for end in (np.min, np.max))
    moments = GroupFactors.from_rows(NUMBERS.x[:90], NUMBERS.y[:90], NUMBERS.groups[:90])
    moments += GroupFactors.from_rows(NUMBERS.x[90:], NUMBERS.y[90:], NUMBERS.groups[90:])
    summed = TRORegressor(graph=CHAIN, test_groups=["x"]).fit_moments(moments, low, high)
    np.testing.assert_allclose(summed.coef_, whole.coef_, rtol=1e-6)
    assert summed.group_losses_ == pytest.approx(whole.group_losses_)
    with pytest.raises(SettingError, match="a network is trained on rows, not on their sums"):
        TRORegressor(model=Net()).fit_moments(moments, low, high)


def test_shapes_of_many_classes_and_of_several_targets() -> None:
    table = labels(classes=4)
    model = TROClassifier().fit(table.x, table.y, groups=table.groups)
    assert (model.coef_.shape, model.intercept_.shape) == ((4, 3), (4,))
    assert model.decision_function(table.x).shape == (len(table.x), 4)
    assert model.classes_.tolist() == sorted(set(table.y))
    y = np.column_stack([NUMBERS.y, -NUMBERS.x[:, 0]])
    regression = TRORegressor().fit(NUMBERS.x, y, groups=NUMBERS.groups)
    assert (regression.coef_.shape, regression.intercept_.shape) == ((2, 3), (2,))
    assert regression.predict(NUMBERS.x).shape == y.shape
    assert TRORegressor().fit(NUMBERS.x, y[:, :1], groups=NUMBERS.groups).predict(NUMBERS.x).shape == (len(y), 1)


def test_several_targets_are_each_in_their_own_unit() -> None:
    """With the mixture held fast, targets have nothing to do with one another."""
    y = np.column_stack([NUMBERS.y, 1e-4 * NUMBERS.x[:, 0] ** 2])
    together = TRORegressor(penalty=math.inf, ridge=0.1).fit(NUMBERS.x, y, groups=NUMBERS.groups)
    alone = [TRORegressor(penalty=math.inf, ridge=0.1).fit(NUMBERS.x, y[:, k], groups=NUMBERS.groups) for k in (0, 1)]
    np.testing.assert_allclose(together.coef_, [one.coef_ for one in alone], rtol=1e-7)
    np.testing.assert_allclose(together.intercept_, [one.intercept_ for one in alone], rtol=1e-7)
    own = NUMBERS.groups == "b"
    assert together.group_losses_["b"] == pytest.approx(mean_squared_error(y[own], together.predict(NUMBERS.x[own])))


@settings(max_examples=20, deadline=None)
@given(
    units=st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=3), moved=st.floats(-1e3, 1e3), unit=st.floats(1e-6, 1e6)
)
def test_units_change_nothing_but_units(units: list[float], moved: float, unit: float) -> None:
    table = NUMBERS
    model = TRORegressor(penalty=0.5).fit(table.x, table.y, groups=table.groups)
    x, y = table.x * units + moved * np.array(units), unit * (table.y + moved)
    other = TRORegressor(penalty=0.5).fit(x, y, groups=table.groups)
    assert other.group_weights_ == pytest.approx(model.group_weights_, abs=1e-5)
    np.testing.assert_allclose(other.predict(x) / unit - moved, model.predict(table.x), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("kind", "table"), BOTH)
def test_a_weight_of_two_is_a_row_twice_and_none_is_no_row(kind: Any, table: Any) -> None:
    weights = np.random.default_rng(1).integers(0, 3, len(table.x))
    given = {"penalty": 0.3, "prior": "uniform", "ridge": 1e-3}  # automatic ones go by rows in effect
    weighted = kind(**given).fit(table.x, table.y, groups=table.groups, sample_weight=weights)
    repeated = kind(**given).fit(*(np.repeat(part, weights, axis=0) for part in (table.x, table.y, table.groups)))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)
    assert weighted.group_losses_ == pytest.approx(repeated.group_losses_)
    assert weighted.group_sizes_ == {n: int((weights[table.groups == n] > 0).sum()) for n in "abcd"}
    tenfold = kind(**given).fit(table.x, table.y, groups=table.groups, sample_weight=10.0 * weights)
    np.testing.assert_allclose(weighted.coef_, tenfold.coef_, rtol=1e-6)


@pytest.mark.parametrize(("kind", "table"), BOTH)
def test_constant_and_repeated_columns_do_no_harm(kind: Any, table: Any) -> None:
    x = np.column_stack([np.full(len(table.x), 0.1), table.x, table.x[:, 0], np.zeros(len(table.x))])
    before = x.copy()
    model = kind().fit(x, table.y, groups=table.groups)
    assert (x == before).all()
    assert np.isfinite(model.coef_).all()
    assert np.abs(model.coef_.reshape(-1)[[0, -1]]).max() < 1e-9
    plain = kind().fit(table.x, table.y, groups=table.groups)
    assert model.score(x, table.y) == pytest.approx(plain.score(table.x, table.y), abs=0.02)


def test_a_constant_target_is_predicted() -> None:
    model = TRORegressor().fit(NUMBERS.x, np.full(len(NUMBERS.x), 7.0), groups=NUMBERS.groups)
    np.testing.assert_allclose(model.predict(NUMBERS.x), 7.0)


# ---------------------------------------------------------------- penalty and radius


def test_penalty_runs_from_the_worst_group_to_the_prior() -> None:
    worst, fixed = TRORegressor(penalty=0.0).fit(**FIT), TRORegressor(penalty=math.inf).fit(**FIT)
    dro = GroupDRORegressor().fit(**FIT)
    assert fixed.group_weights_ == pytest.approx(dict.fromkeys("abcd", 0.25))
    assert max(worst.group_losses_.values()) < max(fixed.group_losses_.values())
    assert dro.group_weights_ == worst.group_weights_
    np.testing.assert_array_equal(dro.coef_, worst.coef_)
    assert dro.penalty_ == 0.0
    assert set(dro.get_params()) == {"model", "ridge", "random_state"}
    classes = GroupDROClassifier().fit(LABELS.x, LABELS.y, groups=LABELS.groups)
    tro = TROClassifier(penalty=0.0).fit(LABELS.x, LABELS.y, groups=LABELS.groups)
    np.testing.assert_array_equal(classes.predict_proba(LABELS.x), tro.predict_proba(LABELS.x))


@pytest.mark.parametrize("divergence", ["l2", "kl", "chi2"])
def test_a_radius_keeps_the_mixture_near_the_prior(divergence: str) -> None:
    model = TRORegressor(penalty=Radius(0.02), divergence=divergence).fit(**FIT)
    q = np.array([model.group_weights_[name] for name in "abcd"])
    assert float(get_divergence(divergence).value(q, np.full(4, 0.25))) == pytest.approx(0.02, rel=1e-3)
    assert model.penalty_ > 0


def test_auto_chooses_by_groups_held_out_and_records_it() -> None:
    table = numbers(240, "abcdef")
    world: Any = {"graph": [*CHAIN, ("d", "e"), ("e", "f"), ("f", "x")], "test_groups": ["x"]}
    model = TRORegressor(**world).fit(table.x, table.y, groups=table.groups)
    assert model.choice_.penalty == model.penalty_
    assert model.penalty_scores_ == model.choice_.scores
    assert model.choice_.splitter == "GraphHopSplit"
    best = min(score.score for score in model.penalty_scores_)
    assert next(s.score for s in model.penalty_scores_ if s.penalty == model.penalty_) == pytest.approx(best)
    plain = TRORegressor(**world, penalty=model.penalty_).fit(table.x, table.y, groups=table.groups)
    np.testing.assert_array_equal(plain.coef_, model.coef_)
    assert plain.choice_ is plain.penalty_scores_ is None


@pytest.mark.parametrize("prior", ["auto", "uniform", {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}])
def test_auto_scores_do_not_depend_on_units(prior: Any) -> None:
    table = NUMBERS
    first = TRORegressor(prior=prior).fit(table.x, table.y, groups=table.groups)
    second = TRORegressor(prior=prior).fit(1e3 * table.x, 1e-3 * table.y, groups=table.groups)
    assert first.choice_.splitter == "LeaveOneGroupOut"
    scores = [[score.score for score in model.penalty_scores_] for model in (first, second)]
    assert scores[1] == pytest.approx(scores[0], rel=1e-4)


def test_a_given_prior_is_that_of_the_groups_kept_when_a_penalty_is_chosen() -> None:
    """All of its weight on groups held out leaves the uniform prior."""
    one = TRORegressor(prior={"a": 1, "b": 0, "c": 0, "d": 0}).fit(**FIT)
    uniform = TRORegressor().fit(**FIT)
    assert one.penalty_scores_[0].score != uniform.penalty_scores_[0].score
    assert len(one.choice_.held_out) == 4


def test_a_penalty_for_many_rows_of_classes_is_chosen_on_some(monkeypatch: pytest.MonkeyPatch) -> None:
    every = TROClassifier().fit(LABELS.x, LABELS.y, groups=LABELS.groups)
    monkeypatch.setattr(training, "MOST_ROWS", 80)
    some = TROClassifier().fit(LABELS.x, LABELS.y, groups=LABELS.groups)
    assert some.group_sizes_ == dict.fromkeys("abcd", 60)
    assert [score.score for score in some.penalty_scores_] != [score.score for score in every.penalty_scores_]


# ---------------------------------------------------------------- priors and graphs


def test_automatic_priors() -> None:
    graph = GroupGraph.from_edges(CHAIN)
    alone = TRORegressor().fit(**FIT)
    assert (alone.prior_, alone.topology_) == (Prior.uniform("abcd"), None)
    assert {(row.centrality, row.hops) for row in alone.explain()} == {(None, None)}
    among = TRORegressor(graph=CHAIN).fit(**FIT)
    assert among.prior_ == graph.prior(list("abcd"))
    assert among.prior_.weights == pytest.approx({"a": 0.125, "b": 0.375, "c": 0.375, "d": 0.125})
    aimed = TRORegressor(graph=graph, test_groups=["x", "y"], penalty=math.inf).fit(**FIT)
    assert aimed.prior_ == graph.prior(list("abcd"), ["x", "y"])
    assert {row.group: row.hops for row in aimed.explain()} == {"a": 4, "b": 3, "c": 2, "d": 1}
    assert aimed.group_weights_ == pytest.approx({"a": 0.125, "b": 0.125, "c": 0.125, "d": 0.625})
    with pytest.warns(TopoRoWarning, match="the prior has 1.00 groups in effect"):
        named = TRORegressor(graph=graph, test_groups=["x", "y"], prior="harmonic", penalty=math.inf).fit(**FIT)
    assert named.group_weights_ == pytest.approx({"a": 0, "b": 0, "c": 0, "d": 1}), "as asked for, nothing is spread"
    assert (aimed.topology_, aimed.test_groups_) == (graph, ("x", "y"))


@pytest.mark.parametrize("measure", ["betweenness", "degree", "closeness"])
def test_measures_by_name_are_shares(measure: str) -> None:
    graph = GroupGraph.from_edges(CHAIN)
    shares = TRORegressor(graph=graph, prior=measure).fit(**FIT).prior_
    assert shares == graph.prior(list("abcd"), measure=measure, normalization="sum")


def test_priors_that_are_given() -> None:
    weights = {"a": 4, "b": 3, "c": 2, "d": 1}
    model = TRORegressor(prior=weights, penalty=math.inf).fit(**FIT)
    assert model.group_weights_ == pytest.approx({name: weight / 10 for name, weight in weights.items()})
    prior = Prior.from_weights(weights)
    same = TRORegressor(prior=prior, graph=CHAIN, penalty=math.inf).fit(**FIT)
    assert same.prior_ is prior
    np.testing.assert_allclose(same.coef_, model.coef_)
    centrality = GroupGraph.from_edges(CHAIN).prior(list("abcd")).centrality
    assert {row.group: row.centrality for row in same.explain()} == centrality


# ---------------------------------------------------------------- groups


GROUPS = {
    "list": list(NUMBERS.groups),
    "objects": NUMBERS.groups.astype(object),
    "category": pd.Series(NUMBERS.groups, dtype="category"),
    "polars": pl.Series(NUMBERS.groups),
    "ids of more groups": GroupIds(Groups("abcdz").encode(NUMBERS.groups), Groups("abcdz")),
}


@pytest.mark.parametrize("form", GROUPS)
def test_groups_in_any_form(form: str) -> None:
    expected = TRORegressor().fit(**FIT)
    model = TRORegressor().fit(NUMBERS.x, NUMBERS.y, groups=GROUPS[form])
    assert model.group_weights_ == expected.group_weights_


@pytest.mark.parametrize(("kind", "table"), BOTH)
def test_one_group_is_an_ordinary_regression_and_says_so(kind: Any, table: Any) -> None:
    with pytest.warns(TopoRoWarning, match=r"got no groups.*Pass groups="):
        none = kind().fit(table.x, table.y)
    with pytest.warns(TopoRoWarning, match="all .* rows are of one group, 'only'"):
        one = kind().fit(table.x, table.y, groups=["only"] * len(table.x))
    np.testing.assert_array_equal(none.coef_, one.coef_)
    assert none.group_weights_ == {"all": 1.0}
    assert one.group_weights_ == {"only": 1.0}
    assert (one.prior_, one.penalty_, one.choice_) == (None, math.inf, None)
    (row,) = one.explain()
    assert (row.group, row.prior, row.weight, row.hops, row.centrality) == ("only", 1.0, 1.0, None, None)


def test_groups_of_one_class_are_fitted_with_a_warning() -> None:
    y = np.where(LABELS.groups == "a", "yes", LABELS.y)
    with pytest.warns(TopoRoWarning, match=r"1 of 4 group\(s\) have rows of one class only: 'a'"):
        TROClassifier().fit(LABELS.x, y, groups=LABELS.groups)
    TROClassifier(penalty=math.inf).fit(LABELS.x, y, groups=LABELS.groups)  # nothing to meet there


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"model": "tree"}, SettingError, "model is 'tree': expected 'linear' or a toporo.Net"),
        ({"penalty": -1}, SettingError, "penalty is -1"),
        ({"penalty": "much"}, SettingError, "penalty is 'much'.*'auto'"),
        ({"penalty": math.nan}, SettingError, "penalty is nan"),
        ({"ridge": -1}, SettingError, "ridge is -1"),
        ({"ridge": "some"}, SettingError, "ridge is 'some'.*or 'auto'"),
        ({"divergence": "l3"}, UnknownNameError, "'l3'"),
        ({"prior": "pagerank", "graph": CHAIN}, UnknownNameError, "unknown prior 'pagerank'"),
        ({"prior": 3}, SettingError, "prior is of type int"),
        ({"prior": "degree"}, SettingError, r"prior='degree' is a centrality in a graph.*give a graph"),
        ({"prior": "harmonic", "graph": CHAIN}, SettingError, r"name them \(test_groups="),
        ({"prior": {"a": 1.0, "b": 1.0}}, GroupMismatchError, r"not in the prior: 'c', 'd'"),
        ({"test_groups": ["x"]}, SettingError, "pass graph= too"),
        ({"graph": CHAIN[1:]}, GroupMismatchError, r"training group\(s\) not in the graph: 'a'"),
        ({"graph": CHAIN, "test_groups": ["z"]}, GroupMismatchError, r"test group\(s\) not in the graph: 'z'"),
        ({"graph": CHAIN, "test_groups": ["a"]}, GroupMismatchError, "in the training data: 'a'"),
        ({"random_state": -1}, SettingError, "random_state is -1"),
        ({"random_state": "now"}, SettingError, "random_state is 'now'"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        TRORegressor(**settings).fit(**FIT)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Radius(-1), "radius is -1"),
        (lambda: Net(hidden=64), "hidden is 64: expected the layers' sizes"),
        (lambda: Net(hidden=(0,)), "a layer in hidden is 0"),
        (lambda: Net(epochs=0), "epochs is 0"),
        (lambda: Net(step=0), "step is 0"),
        (lambda: Net(module="mlp"), "module is 'mlp': expected a torch.nn.Module"),
    ],
)
def test_radii_and_networks_that_cannot_be(make: Any, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        make()


def test_logistic_models_need_a_ridge() -> None:
    with pytest.raises(SettingError, match="ridge is 0: a logistic model needs a positive one"):
        TROClassifier(ridge=0).fit(LABELS.x, LABELS.y, groups=LABELS.groups)


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ("abc", "expected a group name for each of the 200 rows"),
        (["a"] * 199, "X has 200 rows and groups 199"),
        (np.zeros((200, 2)), r"groups has shape \(200, 2\)"),
        ([None, *NUMBERS.groups[1:]], "a group name is missing"),
        ([["a"]] * 200, "group names must be hashable"),
        (GroupIds(np.full(200, 9), Groups("ab")), "codes run from 9 to 9"),
    ],
)
def test_groups_that_cannot_be(groups: Any, says: str) -> None:
    with pytest.raises(TopoRoError, match=says):
        TRORegressor().fit(NUMBERS.x, NUMBERS.y, groups=groups)


@pytest.mark.parametrize(("settings", "named"), [({"graph": CHAIN}, "graph"), ({"prior": {"a": 1, "b": 1}}, "prior")])
def test_settings_that_speak_of_groups_need_groups(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingError, match=rf"{named} speak of groups, but fit\(\) got none"):
        TRORegressor(**settings).fit(NUMBERS.x, NUMBERS.y)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (np.zeros(200), "zero in every row"),
        (-np.ones(200), "at least 0"),
        (np.ones(3), "expected 200"),
        (1.0 * (NUMBERS.groups != "b"), "without a row that counts: 'b'"),
    ],
)
def test_weights_that_cannot_be(weights: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        TRORegressor().fit(**FIT, sample_weight=weights)


def test_targets_that_cannot_be() -> None:
    with pytest.raises(DataError, match=r"Unknown label type.*For numbers use TRORegressor"):
        TROClassifier().fit(NUMBERS.x, NUMBERS.y, groups=NUMBERS.groups)
    with pytest.raises(DataError, match="one class only, 'yes'"):
        TROClassifier().fit(LABELS.x, ["yes"] * len(LABELS.x), groups=LABELS.groups)
    with pytest.raises(DataError, match=r"y holds numbers up to 2e\+307, too large to be squared"):
        TRORegressor().fit(NUMBERS.x, np.linspace(1e307, 2e307, 200), groups=NUMBERS.groups)


# ---------------------------------------------------------------- among scikit-learn's


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_keep_their_names(library: Any) -> None:
    columns = {name: NUMBERS.x[:, place] for place, name in enumerate(["age", "height", "weight"])}
    frame, target, groups = library.DataFrame(columns), library.Series(NUMBERS.y), library.Series(NUMBERS.groups)
    model = TRORegressor().fit(frame, target, groups=groups)
    assert model.feature_names_in_.tolist() == ["age", "height", "weight"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["height", "age", "weight"]])


@pytest.mark.parametrize(("kind", "table"), BOTH)
def test_copies_and_pickles_predict_the_same_bytes(kind: Any, table: Any) -> None:
    graph = GroupGraph.from_edges(CHAIN)
    model = kind(graph=graph, test_groups=["x"]).fit(table.x, table.y, groups=table.groups)
    other = pickle.loads(pickle.dumps(model))
    assert other.predict(table.x).tobytes() == model.predict(table.x).tobytes()
    assert other.explain() == model.explain()
    fresh = clone(model)
    assert fresh.graph == graph
    assert not hasattr(fresh, "coef_")
    assert fresh.fit(table.x, table.y, groups=table.groups).group_weights_ == model.group_weights_


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("kind", "table"), BOTH)
def test_groups_and_weights_are_routed(kind: Any, table: Any) -> None:
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(table.x))
    given = {"groups": table.groups, "sample_weight": weights}
    world: Any = {"graph": CHAIN, "test_groups": ["x"]}
    with sklearn.config_context(enable_metadata_routing=True):
        model = kind(**world).set_fit_request(groups=True, sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"penalty": [0.1, 10.0]}, cv=GroupKFold(2)).fit(table.x, table.y, **given)
        direct = kind(**world, **search.best_params_).fit(table.x, table.y, **given)
        assert search.best_estimator_.group_weights_ == direct.group_weights_
        scores = cross_validate(model, table.x, table.y, params=given, cv=GroupKFold(2), return_estimator=True)
        first, second = ({*one.group_weights_} for one in scores["estimator"])
        assert (first | second, first & second) == (set("abcd"), set())
        line = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        alone = kind(**world).fit(table.x, table.y, **given)
        weights_in_line = line.fit(table.x, table.y, **given)[-1].group_weights_
        assert weights_in_line["a"] == pytest.approx(alone.group_weights_["a"], rel=1e-4)


def test_a_network_s_penalty_is_searched_for_by_groups_held_out() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = TRORegressor(graph=CHAIN, test_groups=["x"], model=Net((4,), epochs=1))
        search = GridSearchCV(model, {"penalty": [0.1, 1.0]}, cv=GraphHopSplit(GroupGraph.from_edges(CHAIN), ["x"]))
        search.fit(**FIT)
    assert search.best_estimator_.penalty_ == search.best_params_["penalty"]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_without_routing_a_search_says_what_to_switch_on() -> None:
    search = GridSearchCV(TRORegressor(graph=CHAIN), {"penalty": [0.1]}, cv=GroupKFold(2), error_score="raise")
    with pytest.raises(SettingError, match=r"enable_metadata_routing=True"):
        search.fit(**FIT)


def test_pipelines_with_columns_of_all_kinds() -> None:
    frame = pd.DataFrame({"size": NUMBERS.x[:, 0], "colour": np.where(NUMBERS.x[:, 1] > 5, "red", "blue")})
    columns = ColumnTransformer([("text", OneHotEncoder(), ["colour"])], remainder="passthrough")
    line = Pipeline([("columns", columns), ("tro", TRORegressor(penalty=0.1))])
    line.fit(frame, NUMBERS.y, tro__groups=NUMBERS.groups)
    assert set(line["tro"].group_weights_) == set("abcd")
    assert line.predict(frame).shape == (200,)


def test_a_linear_model_needs_no_torch() -> None:
    program = (
        "import sys, numpy as np\n"
        "from toporo.estimators import TRORegressor, TROClassifier\n"
        "from toporo.estimators.state import dump_state, load_state\n"
        "x = np.random.default_rng(0).normal(size=(90, 2)); g = np.repeat(['a', 'b', 'c'], 30)\n"
        "m = TRORegressor(graph=[('a','b'),('b','c'),('c','x')], test_groups=['x'])\n"
        "m.fit(x, x[:, 0] + np.arange(90) % 7, groups=g); load_state(*dump_state(m)).predict(x); m.explain()\n"
        "TROClassifier().fit(x, np.arange(90) % 3, groups=g).predict_proba(x)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("False", 0), done.stderr


# ---------------------------------------------------------------- explaining


def test_explain_joins_everything_by_name() -> None:
    model = TRORegressor(graph=CHAIN, test_groups=["x"], penalty=5.0).fit(**FIT)
    table = model.explain()
    assert [row.weight for row in table] == sorted(model.group_weights_.values(), reverse=True)
    for row in table:
        assert (row.size, row.loss) == (50, model.group_losses_[row.group])
        assert (row.prior, row.centrality) == (model.prior_[row.group], model.prior_.centrality[row.group])
        assert row.hops == {"a": 4, "b": 3, "c": 2, "d": 1}[row.group]
    assert math.fsum(row.weight for row in table) == pytest.approx(1.0)


def test_pictures() -> None:
    from matplotlib import pyplot as plt

    model = TRORegressor().fit(**FIT)
    bars = model.plot()
    assert [patch.get_width() for patch in bars.patches] == [row.weight for row in model.explain()]
    assert [label.get_text() for label in bars.get_yticklabels()] == [row.group for row in model.explain()]
    _, ax = plt.subplots()
    drawn = TRORegressor(graph=CHAIN, test_groups=["x"]).fit(**FIT).plot(ax)
    assert drawn is ax
    titles = {text.get_text() for text in ax.get_legend().get_texts()}
    assert titles == {"training groups", "test groups", "other groups"}
    plt.close("all")
