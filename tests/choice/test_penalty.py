"""Choosing a penalty by holding groups out: from what, judged how, and the same in any order of the rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.robust.by_hand import KINDS, group_losses, random_rows
from toporo.choice.penalty import PENALTIES, PenaltyChoice, choose_penalty, held_out_losses
from toporo.choice.splits import GraphHopSplit, LeaveRegionOut
from toporo.errors import DataError, GraphError, GroupMismatchError, SettingError
from toporo.estimators.packing import pack, unpack
from toporo.robust.linear import fit_linear, fit_logistic, path, solve
from toporo.robust.logistic import LogisticLosses
from toporo.robust.losses import SquaredLosses
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior

CHAIN = GroupGraph.from_edges([(i, i + 1) for i in range(9)])
TEST = (7, 8, 9)


def uniform(kept, held_out):
    return None


def from_held_out(kept, held_out):
    """A prior that looks from the kept groups to those held out."""
    return CHAIN.subgraph([*kept, *held_out]).prior(list(kept), list(held_out))


def prepared(rows, **settings):
    return (LogisticLosses if rows.logistic else SquaredLosses).from_arrays(rows.x, rows.y, rows.group, **settings)


def drifting(groups=7, seed=0, per_group=30):
    """Groups along the chain, whose slope drifts."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), per_group)
    x = rng.normal(size=(len(group), 2))
    return x, x[:, 0] * (1.0 + 0.2 * group) - x[:, 1] + 0.3 * rng.normal(size=len(group)), group


@pytest.fixture(scope="module")
def drift():
    return SquaredLosses.from_arrays(*drifting())


# ---------------------------------------------------------------- judging


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_losses_of_groups_held_out_are_those_of_predicting_their_rows(kind, intercept, weighted):
    """Far from the origin, where a shift forgotten or taken twice is seen."""
    rows = random_rows(2, kind, n=80, m=4)
    rows = rows._replace(x=rows.x + 5.0, y=rows.y if rows.logistic else rows.y + 7.0)
    weight = np.random.default_rng(0).uniform(0.1, 2.0, len(rows.x)) if weighted else None
    losses = prepared(rows, intercept=intercept, sample_weight=weight)
    fit = solve(losses.select([0, 2]), penalty=0.5, ridge=0.01)
    expected = group_losses(rows, fit.coef, fit.intercept, weight)[[1, 3]]
    assert_allclose(held_out_losses(losses.select([1, 3]), fit), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["squared", "outputs", "binary", "softmax"])
def test_scores_are_those_of_fitting_and_predicting_raw_rows(kind):
    """Everything once more, fold by fold, from the rows: what is computed from losses alone must come to the same."""
    rows = random_rows(1, kind, n=150, m=5)
    choice = choose_penalty(prepared(rows), CHAIN, None, uniform, penalties=(10.0, 0.1), ridge=0.02)
    fit_rows = fit_logistic if rows.logistic else fit_linear
    logs = np.zeros((len(choice.held_out), 2))
    for i, held_out in enumerate(choice.held_out):
        for k, score in enumerate(choice.scores):
            kept = ~np.isin(rows.group, held_out)
            fit = fit_rows(rows.x[kept], rows.y[kept], rows.group[kept], penalty=score.penalty, ridge=0.02, tol=1e-8)
            logs[i, k] = np.log(group_losses(rows, fit.coef, fit.intercept)[list(held_out)].mean())
    relative = logs - logs.mean(axis=1, keepdims=True)
    for k, score in enumerate(choice.scores):
        assert score.score == pytest.approx(np.exp(logs[:, k].mean()), rel=5e-3)
        assert score.spread == pytest.approx(score.score * relative[:, k].std(ddof=1), rel=5e-2, abs=1e-4)
        assert score.folds == len(logs)


def test_the_prior_of_a_fold_is_asked_for_with_its_groups(drift):
    asked = []

    def make_prior(kept, held_out):
        asked.append((kept, held_out))
        return from_held_out(kept, held_out)

    choice = choose_penalty(drift, CHAIN, TEST, make_prior, penalties=[1.0], ridge=0.01)
    assert [held_out for _, held_out in asked] == list(choice.held_out)
    assert all(sorted([*kept, *held_out]) == list(range(7)) for kept, held_out in asked)
    means = []
    for kept, held_out in asked:
        fit = path(drift.select(kept), from_held_out(kept, held_out), penalties=[1.0], ridge=0.01, tol=1e-4)[0]
        means.append(held_out_losses(drift.select(held_out), fit).mean())
    assert choice.scores[0].score == pytest.approx(np.exp(np.mean(np.log(means))), rel=1e-12)
    other = choose_penalty(drift, CHAIN, TEST, uniform, penalties=[1.0], ridge=0.01)
    assert other.scores[0].score != pytest.approx(choice.scores[0].score, rel=1e-3), "the prior must matter here"


# ---------------------------------------------------------------- folds


def test_folds_come_from_the_best_source_there_is(drift):
    by_hops = choose_penalty(drift, CHAIN, TEST, from_held_out, ridge=0.01)
    assert by_hops.splitter == "GraphHopSplit"
    assert by_hops.held_out == tuple(GraphHopSplit(CHAIN, TEST, n_splits=12).regions(range(7)))
    assert by_hops.test_hops == 2.0
    assert 1.0 <= by_hops.held_out_hops <= 2.0
    by_region = choose_penalty(drift, CHAIN, None, from_held_out, ridge=0.01)
    assert by_region.splitter == "LeaveRegionOut"
    assert by_region.held_out == tuple(LeaveRegionOut(CHAIN, max_splits=12).regions(range(7)))
    assert by_region.test_hops is None
    assert by_region.held_out_hops >= 1.0
    by_name = choose_penalty(drift, None, None, uniform, ridge=0.01)
    assert by_name.splitter == "LeaveOneGroupOut"
    assert by_name.held_out == tuple((i,) for i in range(7))
    assert by_name.held_out_hops is by_name.test_hops is None


@pytest.mark.parametrize("groups", [3, 4, 5, 12, 13, 31])
@pytest.mark.parametrize("most", [2, 3, 12])
def test_without_a_graph_every_group_is_held_out_at_most_once_and_two_are_kept(groups, most):
    losses = SquaredLosses.from_arrays(*drifting(groups, per_group=6))
    choice = choose_penalty(losses, None, None, uniform, penalties=[1.0], ridge=0.1, max_folds=most)
    held_out = [name for fold in choice.held_out for name in fold]
    assert len(choice.held_out) <= most
    assert len(held_out) == len(set(held_out))
    assert all(len(fold) <= groups - 2 for fold in choice.held_out)
    if most == 12:
        assert sorted(held_out) == list(range(groups))
        assert max(map(len, choice.held_out)) <= math.ceil(groups / 12)


@pytest.mark.parametrize("graph", [None, CHAIN])
@pytest.mark.parametrize("test", [None, (8, 9)])
def test_three_groups_are_enough(graph, test):
    losses = SquaredLosses.from_arrays(*drifting(3))
    choice = choose_penalty(losses, graph, test, uniform, ridge=0.01)
    assert {len(fold) for fold in choice.held_out} == {1}


# ---------------------------------------------------------------- choosing


def test_the_lowest_score_wins_and_the_record_holds_all(drift):
    choice = choose_penalty(drift, CHAIN, TEST, from_held_out, ridge=0.01)
    assert [score.penalty for score in choice.scores] == sorted(PENALTIES, reverse=True)
    assert choice.penalty == min(choice.scores, key=lambda score: score.score).penalty
    assert {score.folds for score in choice.scores} == {len(choice.held_out)} == {12}
    assert choose_penalty(drift, CHAIN, TEST, from_held_out, ridge=0.01) == choice


def test_equal_scores_choose_the_largest_penalty():
    """Without noise every penalty finds the true model; what is left is rounding, which must not choose."""
    x, _, group = drifting()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(x))
        losses = SquaredLosses.from_arrays(x[order], (x @ [1.0, 2.0])[order], group[order])
        assert choose_penalty(losses, CHAIN, TEST, uniform, ridge=0.0).penalty == math.inf


def test_penalties_may_come_in_any_order_and_twice(drift):
    orders = ([1, 0.1, 30], [30, 1, 1, 0.1])
    few = [choose_penalty(drift, CHAIN, TEST, from_held_out, penalties=given, ridge=0.01) for given in orders]
    assert few[0] == few[1]
    assert [score.penalty for score in few[0].scores] == [30.0, 1.0, 0.1]


@pytest.mark.parametrize("kind", ["squared", "binary"])
def test_the_order_of_rows_and_other_names_change_nothing(kind):
    rows = random_rows(4, kind, n=140, m=7)
    plain = choose_penalty(prepared(rows), CHAIN, TEST, uniform, ridge=0.05)
    order = np.random.default_rng(0).permutation(len(rows.x))
    shuffled = rows._replace(x=rows.x[order], y=rows.y[order], group=rows.group[order])
    again = choose_penalty(prepared(shuffled), CHAIN, TEST, uniform, ridge=0.05)
    assert again.penalty == plain.penalty
    assert again.held_out == plain.held_out
    assert_allclose([s.score for s in again.scores], [s.score for s in plain.scores], rtol=1e-6)
    text = [f"state {i}" for i in range(10)]
    graph = GroupGraph.from_edges([(text[a], text[b]) for a, b in CHAIN.edges])
    named = rows._replace(group=np.array(text)[rows.group])
    other = choose_penalty(prepared(named), graph, [text[i] for i in TEST], uniform, ridge=0.05)
    assert other.scores == plain.scores
    assert other.held_out == tuple(tuple(text[i] for i in fold) for fold in plain.held_out)


def test_where_groups_drift_apart_the_worst_case_helps_and_where_they_do_not_it_does_not():
    """The choice follows the data: pooled where all groups are alike, robust where the next one is further out."""
    x, y, group = drifting(seed=3)
    apart = choose_penalty(SquaredLosses.from_arrays(x, y, group), CHAIN, TEST, uniform, ridge=0.01)
    assert apart.penalty < 3.0
    noise = np.random.default_rng(1).normal(size=len(x)) * (0.5 + 0.5 * (group == 3))
    alike = choose_penalty(SquaredLosses.from_arrays(x, x[:, 0] + noise, group), CHAIN, TEST, uniform, ridge=0.01)
    assert alike.penalty > apart.penalty


# ---------------------------------------------------------------- folds that do not count


def test_a_fold_whose_kept_groups_lack_a_class_does_not_count():
    rows = random_rows(0, "softmax", n=160, m=5)
    y = np.where(rows.group == 4, rows.y, np.minimum(rows.y, 1))  # only group 4 has class 2
    losses = prepared(rows._replace(y=y))
    choice = choose_penalty(losses, None, None, uniform, penalties=[1.0, math.inf], ridge=0.05)
    assert choice.held_out == ((0,), (1,), (2,), (3,))
    assert choice.notes == ("The fold that holds out 4 does not count: no row of the groups kept is of class 2.",)
    assert choice.scores[0].folds == 4


def test_a_fold_that_no_path_joins_does_not_count_where_others_do():
    graph = GroupGraph.from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (5, 6)])

    def make_prior(kept, held_out):
        return graph.prior(list(kept), list(held_out), measure="closeness", normalization="sum")

    choice = choose_penalty(SquaredLosses.from_arrays(*drifting()), graph, None, make_prior, ridge=0.01, max_folds=60)
    assert (5, 6) not in choice.held_out
    assert any("holds out 5, 6 does not count: no path leads" in note for note in choice.notes)
    assert len(choice.held_out) + len(choice.notes) == len(LeaveRegionOut(graph).regions(range(7)))


def test_where_no_path_joins_anything_priors_are_uniform():
    """Groups that touch nobody are a sorry graph, but no reason to refuse a fit."""
    graph = GroupGraph(range(7), {})

    def make_prior(kept, held_out):
        raise GraphError("no path leads anywhere.")

    losses = SquaredLosses.from_arrays(*drifting())
    choice = choose_penalty(losses, graph, None, make_prior, ridge=0.01)
    assert choice.scores == choose_penalty(losses, graph, None, uniform, ridge=0.01).scores
    assert "uniform prior" in choice.notes[0]
    assert choice.held_out_hops is None


def test_a_fold_that_leaves_the_model_undetermined_does_not_count():
    """A column that varies in one group only: without a ridge nothing is known of it when that group is held out."""
    x, y, group = drifting()
    x = np.column_stack([x, np.where(group == 3, np.arange(len(x)), 0.0)])
    losses = SquaredLosses.from_arrays(x, y, group)
    choice = choose_penalty(losses, None, None, uniform, ridge=0.0)
    assert (3,) not in choice.held_out
    assert len(choice.held_out) == 6
    assert "singular" in choice.notes[0]
    assert not choose_penalty(losses, None, None, uniform, ridge=0.01).notes


def test_no_fold_at_all_says_what_to_do():
    x, y, group = drifting(3)
    x = np.column_stack([x, x[:, 0]])
    with pytest.raises(DataError, match=r"none of 3 folds can be fitted\. .*singular.*penalty=1\.0"):
        choose_penalty(SquaredLosses.from_arrays(x, y, group), None, None, uniform, ridge=0.0)


# ---------------------------------------------------------------- the record, and what is refused


@pytest.mark.parametrize("test", [None, TEST])
def test_a_record_is_packed_and_comes_back(drift, test):
    choice = choose_penalty(drift, CHAIN, test, uniform, penalties=[math.inf, 1.0], ridge=0.01)
    content, arrays = pack(choice)
    assert content["scores"][0]["penalty"] == "inf"
    assert unpack(PenaltyChoice, content, arrays) == choice
    for name, value in (("penalty", 7.0), ("scores", [])):
        with pytest.raises(DataError, match="has no score"):
            unpack(PenaltyChoice, content | {name: value}, arrays)


def test_bad_requests(drift):
    with pytest.raises(DataError, match=r"from 2 group\(s\), 0, 1: .* Give a number instead"):
        choose_penalty(drift.select([0, 1]), CHAIN, TEST, uniform, ridge=0.01)
    with pytest.raises(SettingError, match="max_folds is 1"):
        choose_penalty(drift, CHAIN, TEST, uniform, ridge=0.01, max_folds=1)
    for penalties in ([], [-1.0], ["much"], [math.nan]):
        with pytest.raises(SettingError, match="penalties are"):
            choose_penalty(drift, CHAIN, TEST, uniform, ridge=0.01, penalties=penalties)
    with pytest.raises(GroupMismatchError, match=r"test group\(s\) in the data: 6"):
        choose_penalty(drift, CHAIN, [6, 7], uniform, ridge=0.01)
    for test in (None, [9]):
        with pytest.raises(GroupMismatchError, match="not in the graph: 0"):
            choose_penalty(drift, CHAIN.subgraph(range(1, 10)), test, uniform, ridge=0.01)


def test_a_prior_for_other_groups_is_an_error_not_a_skipped_fold(drift):
    with pytest.raises(GroupMismatchError, match="the prior"):
        choose_penalty(drift, CHAIN, TEST, lambda kept, held_out: Prior.uniform((*held_out, 0, 1)), ridge=0.01)
