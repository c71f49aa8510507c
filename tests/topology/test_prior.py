"""The prior: centralities to weights by name, a full record of how, and no silent change on the way to a file."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toporo.choice.penalty import PriorMaker
from toporo.errors import DataError, SettingError, TopoRoWarning, UnknownNameError
from toporo.groups import Groups
from toporo.topology import GroupGraph, Origin, Prior, make_prior

quick = settings(deadline=None, max_examples=100)
names = st.text(max_size=3) | st.integers(-9, 9) | st.tuples(st.text(max_size=2), st.integers(0, 9))
weights = st.dictionaries(names, st.floats(0, 1), min_size=2, max_size=9).filter(
    lambda given: sum(given.values()) > 0.01
)

#: a – b – c – x – y: betweenness towards x and y is 0, 2, 4.
EDGES = [("a", "b"), ("b", "c"), ("c", "x"), ("x", "y")]
CHAIN = GroupGraph.from_edges(EDGES)

on_few_groups = pytest.mark.filterwarnings("ignore:the prior has .* groups in effect")


# ---------------------------------------------------------------------- from a graph


@pytest.mark.parametrize(("test", "measure"), [("xy", "harmonic"), (None, "betweenness")])
def test_the_default_is_the_prior_of_the_estimators(test: str | None, measure: str) -> None:
    """All of the centrality is on one group, and half of the prior is spread over all of them."""
    prior = CHAIN.prior("abc", test)
    top = max(prior.centrality, key=prior.centrality.__getitem__)
    assert prior.weights == pytest.approx(dict.fromkeys("abc", 1 / 6) | {top: 2 / 3})
    assert (prior.measure, prior.normalization, prior.uniform_share) == (measure, "sum", 0.5)
    assert prior == PriorMaker("auto", CHAIN, with_test=test is not None).prior(Groups("abc"), test)


@on_few_groups
@pytest.mark.parametrize(
    ("settings", "expected", "recorded"),
    [
        ({"temperature": 2}, {"a": 1, "b": math.e, "c": math.e**2}, ("softmax", 2.0)),
        ({"temperature": 1e-3}, {"a": 0, "b": 0, "c": 1}, ("softmax", 1e-3)),  # without an overflow
        ({"normalization": "sum"}, {"a": 0, "b": 1, "c": 2}, ("sum", None)),
    ],
)
def test_centralities_become_weights_and_the_prior_records_how(settings: Any, expected: Any, recorded: Any) -> None:
    prior = make_prior(CHAIN, "abc", "xy", measure="betweenness", **settings)
    assert prior.weights == pytest.approx(Prior.from_weights(expected).weights, rel=1e-14)
    assert prior.centrality == {"a": 0, "b": 2, "c": 4}
    assert (prior.measure, prior.normalization, prior.temperature) == ("betweenness", *recorded)


@pytest.mark.parametrize("normalization", ["softmax", "sum"])
def test_weights_do_not_depend_on_the_order_of_names_or_edges(normalization: str) -> None:
    """The published implementation joins by position; its headline prior belongs to other groups."""
    expected = make_prior(CHAIN, "abc", "xy", normalization=normalization)
    assert list(expected.weights) == ["a", "b", "c"]
    for train in itertools.permutations("abc"):
        graph = GroupGraph.from_edges([(b, a) for a, b in reversed(EDGES)])
        prior = graph.prior(train, "yx", normalization=normalization)
        assert prior == expected
        assert list(prior.weights) == list(expected.weights)


@pytest.mark.parametrize(
    ("origin", "test", "saw"),
    [
        (Origin("given"), None, ()),
        (Origin("given"), "xy", ("test adjacency",)),
        (Origin("learned", saw_test_inputs=False), None, ()),
        (Origin("learned", saw_test_inputs=True), None, ("test inputs",)),
        (Origin("learned", saw_test_inputs=True), "xy", ("test inputs",)),
        (Origin("learned", saw_test_inputs=False), "xy", ("test inputs",)),  # or the graph would not have them
    ],
)
def test_the_prior_records_what_it_saw(origin: Origin, test: str | None, saw: tuple[str, ...]) -> None:
    graph = GroupGraph(CHAIN.names, CHAIN.edges, origin=origin)
    assert make_prior(graph, "abc", test).saw == saw


def test_a_flat_prior_warns() -> None:
    triangle = GroupGraph.from_edges([("a", "b"), ("b", "c"), ("a", "c")])
    for graph, test, how in ((CHAIN, "xy", {"temperature": 1e4}), (triangle, None, {"normalization": "sum"})):
        with pytest.warns(TopoRoWarning, match=r"the prior is flat \(0\.333 to 0\.333 over 3 groups\)"):
            prior = make_prior(graph, "abc", test, measure="betweenness", **how)
        assert prior.weights == pytest.approx(dict.fromkeys("abc", 1 / 3), abs=1e-3)


# Three groups in a row, with another one in the middle, and all alike.
MIDDLE_B, MIDDLE_A = {("a", "b"): 1.0, ("b", "c"): 1.0}, {("a", "b"): 1.0, ("a", "c"): 1.0}
EQUAL = MIDDLE_A | MIDDLE_B


def resampled(*redrawn: tuple[int, dict[Any, float]]) -> GroupGraph:
    """A chain with b in the middle; of its resamples, so many have these edges."""
    draws = [edges for count, edges in redrawn for _ in range(count)]
    return GroupGraph("abc", MIDDLE_B, origin=Origin("learned"), bootstrap_edges=draws)


@pytest.mark.parametrize(
    ("graph", "moved", "trusted"),
    [
        (resampled((10, MIDDLE_B)), 0.0, True),
        (resampled((90, MIDDLE_B), (10, MIDDLE_A)), 0.163, True),  # wrong in less than a sixth
        (resampled((80, MIDDLE_B), (20, MIDDLE_A)), 0.230, False),
        (resampled((55, MIDDLE_B), (45, EQUAL)), 0.200, True),  # alike in less than a half
        (resampled((45, MIDDLE_B), (55, EQUAL)), 0.221, False),
        (resampled((10, {})), 0.297, False),
    ],
)
def test_a_cautious_prior_is_uniform_where_resamples_do_not_bear_it_out(
    graph: GroupGraph, moved: float, trusted: bool
) -> None:
    """Its squared distance from uniform, 0.0884, must be twice the mean square of its moves."""
    plain = graph.prior("abc", measure="betweenness")
    assert plain.distance_to_uniform == pytest.approx(0.2973, abs=1e-4)
    if trusted:
        prior = graph.prior("abc", measure="betweenness", cautious=True)  # no warning: pytest would raise it
        assert prior.weights == plain.weights
        assert (prior.measure, prior.fallback_reason) == ("betweenness", "")
    else:
        with pytest.warns(TopoRoWarning, match=rf"moves the learned prior by {moved:.2f}, .*0\.30 from uniform"):
            prior = graph.prior("abc", measure="betweenness", cautious=True)
        assert prior.weights == Prior.uniform("abc").weights
        assert (prior.measure, prior.normalization, prior.temperature) == ("uniform", None, None)
        assert "not distinguishable from chance" in prior.fallback_reason
    assert prior.bootstrap_rms == pytest.approx(moved, abs=1e-3)
    assert prior.centrality == {"a": 0.0, "b": 1.0, "c": 0.0}
    assert Prior.from_dict(json.loads(json.dumps(prior.to_dict()))) == prior


def test_the_default_prior_is_cautious_where_there_are_resamples() -> None:
    doubtful, stable = resampled((55, MIDDLE_B), (45, MIDDLE_A)), resampled((10, MIDDLE_B))
    with pytest.warns(TopoRoWarning, match="another sample would give another prior"):
        assert doubtful.prior("abc") == doubtful.prior("abc", cautious=True)
    assert doubtful.prior("abc", cautious=False).weights == stable.prior("abc").weights
    assert stable.prior("abc")["b"] == pytest.approx(2 / 3)


def test_groups_that_are_equally_central_need_no_resample_to_be_uniform() -> None:
    graph = GroupGraph("abc", EQUAL, origin=Origin("learned"), bootstrap_edges=[EQUAL, MIDDLE_A])
    with pytest.warns(TopoRoWarning, match="the prior is flat") as caught:
        prior = graph.prior("abc", cautious=True)
    assert len(caught) == 1
    assert (prior.fallback_reason, prior.distance_to_uniform) == ("", pytest.approx(0.0))


def test_a_resample_that_leads_to_no_test_group_says_that_all_are_alike() -> None:
    apart = {("a", "b"): 1.0, ("b", "c"): 1.0}
    edges = apart | {("c", "x"): 1.0}
    origin = Origin("learned", saw_test_inputs=True)
    graph = GroupGraph("abcx", edges, origin=origin, bootstrap_edges=[edges] * 9 + [apart])
    prior = graph.prior("abc", "x")  # no warning of pieces
    assert prior.weights == pytest.approx({"a": 1 / 6, "b": 1 / 6, "c": 2 / 3})
    assert prior.bootstrap_rms == pytest.approx((2 / 3 / 10) ** 0.5)


def test_a_given_graph_is_taken_at_its_word_and_a_learned_one_without_resamples_is_not() -> None:
    assert CHAIN.prior("abc", "xy", cautious=True) == CHAIN.prior("abc", "xy")
    with pytest.raises(SettingError, match=r"cautious prior .* learn it with resamples=20"):
        GroupGraph("abc", MIDDLE_B, origin=Origin("learned")).prior("abc", cautious=True)


def test_a_prior_with_fewer_than_two_groups_in_effect_warns() -> None:
    """The paper's softmax of raw path counts: training with it is training on one group."""
    with pytest.warns(TopoRoWarning, match=r"1\.55 groups in effect, of 3: 86\.7 % of the weight is on 'c'"):
        prior = make_prior(CHAIN, "abc", "xy", measure="betweenness")
    assert prior.normalization == "softmax"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"measure": "pagerank"}, UnknownNameError, "unknown centrality measure 'pagerank'"),
        ({"normalization": "max"}, UnknownNameError, "unknown normalization 'max'.*softmax, sum"),
        ({"temperature": 0}, SettingError, "temperature is 0"),
        ({"temperature": math.inf}, SettingError, "temperature is inf"),
        ({"temperature": 6.0}, SettingError, "temperature is 6.0, but normalization is 'sum'"),
    ],
)
def test_bad_settings(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_prior(CHAIN, **({"train": "abc", "test": "xy"} | arguments))


# ---------------------------------------------------------------------- from weights


def test_effective_groups_run_from_one_to_m() -> None:
    assert Prior.from_weights({"a": 1, "b": 0}).effective_groups == pytest.approx(1)
    assert Prior.from_weights({"a": 1, "b": 1, "c": 0}).effective_groups == pytest.approx(2)
    prior = Prior.uniform(["b", "a", "c", "a"])
    assert prior.weights == pytest.approx(dict.fromkeys("abc", 1 / 3))
    assert (prior.measure, prior.saw, prior.effective_groups) == ("uniform", (), pytest.approx(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Prior.uniform(["a"]), r"a prior over 1 group\(s\) \('a'\) leaves nothing to weigh.*use ERM"),
        (lambda: Prior.from_weights({"a": 1}), r"a prior over 1 group\(s\)"),
        (lambda: Prior({}), r"a prior over 0 group\(s\)"),
        (lambda: Prior.uniform([]), "no groups given"),
        (lambda: Prior({"a": -0.5, "b": 1.5}), r"finite and non-negative; found \{'a': -0.5\}"),
        (lambda: Prior({"a": math.nan, "b": 1}), "finite and non-negative; found"),
        (lambda: Prior({"a": 0.5, "b": 0.4}), "sum to 0.9, expected 1"),
        (lambda: Prior.from_weights({"a": 0, "b": 0}), "sum to 0"),
        (lambda: Prior.from_weights({"a": 1, None: 1}), "group name is missing"),
    ],
)
def test_bad_weights(make: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


# ---------------------------------------------------------------------- shuffled, and to a file and back


def test_shuffled_permutes_weights_and_centralities_and_keeps_what_was_seen() -> None:
    prior = make_prior(CHAIN, "abc", "xy", measure="closeness")
    controls = [prior.shuffled(seed) for seed in range(20)]
    assert len({tuple(control.weights.values()) for control in controls}) == 6
    assert controls == [prior.shuffled(seed) for seed in range(20)]
    for control in controls:
        assert (control.measure, control.saw) == ("shuffled closeness", ("test adjacency",))
        assert sorted(control, key=control.weights.__getitem__) == sorted(control, key=control.centrality.__getitem__)


@quick
@given(
    weights,
    st.none() | st.sampled_from(["softmax", "sum"]),
    st.none() | st.floats(0.01, 100),
    st.booleans(),
    st.booleans(),
)
def test_json_gives_the_very_same_prior_back(
    given_weights: dict[Any, float], normalization: str | None, temperature: float | None, edges: bool, inputs: bool
) -> None:
    prior = Prior.from_weights(
        given_weights,
        measure="degree",
        normalization=normalization,
        temperature=temperature,
        saw_test_adjacency=edges,
        saw_test_inputs=inputs,
        centrality=given_weights,
    )
    assert Prior.from_dict(json.loads(json.dumps(prior.to_dict()))) == prior


STORED = Prior.uniform("ab").to_dict()


@pytest.mark.parametrize(
    "content",
    [
        {},
        {key: value for key, value in STORED.items() if key != "weights"},
        STORED | {"weights": [["a", 1.0]]},
        STORED | {"weights": [["a", "much"], ["b", 0.5]]},
        STORED | {"weights": [[None, 0.5], ["b", 0.5]]},
        STORED | {"weights": {"a": 0.5, "b": 0.5}},
        STORED | {"colour": "red"},
    ],
    ids=["empty", "incomplete", "one group", "text", "no name", "wrong form", "unknown field"],
)
def test_what_is_no_stored_prior_is_refused(content: Any) -> None:
    with pytest.raises(DataError, match="not a stored prior"):
        Prior.from_dict(content)


@given(share=st.floats(0, 1), again=st.floats(0, 1), seed=st.integers(0, 20))
def test_spreading_mixes_with_the_uniform_prior_and_keeps_count(share: float, again: float, seed: int) -> None:
    raw = np.random.default_rng(seed).dirichlet([0.3] * 5)
    prior = Prior(dict(zip("abcde", raw, strict=True)), measure="harmonic", saw_test_adjacency=True)
    twice = prior.spread(share).spread(again)
    assert twice.weights == pytest.approx(prior.spread(twice.uniform_share).weights, abs=1e-9)
    assert 1 - twice.uniform_share == pytest.approx((1 - share) * (1 - again), abs=1e-12)
    assert (twice.measure, twice.saw) == ("harmonic", ("test adjacency",))
    assert Prior.from_dict(twice.to_dict()) == twice
    assert prior.spread(1.0).weights == pytest.approx(dict.fromkeys("abcde", 0.2))


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_only_a_share_can_be_spread(share: float) -> None:
    with pytest.raises(SettingError, match="from 0 to 1"):
        Prior.uniform("ab").spread(share)
