"""The states: a map that agrees with itself, and splits that mean what they say."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toporo.errors import DataError, GraphError, TopoRoError, UnknownNameError
from toporo.paper.tpt48 import (
    BORDERS,
    SPLITS,
    STATES,
    StateSplit,
    border_graph,
    check_split,
    get_split,
    hop_classes,
    make_split,
)
from toporo.topology.graph import GroupGraph

CODES = sorted(STATES)


def test_48_states_numbered_by_noaa_in_the_order_of_their_names() -> None:
    assert len(STATES) == 48
    assert all(code == state.code for code, state in STATES.items())
    by_name = sorted(STATES.values(), key=lambda state: state.name)
    assert [state.noaa for state in by_name] == list(range(1, 49))


def test_every_border_is_there_once_and_between_states_that_lie_close() -> None:
    assert len(BORDERS) == len(set(BORDERS)) == 105
    assert all(one < other for one, other in BORDERS)
    graph = border_graph()
    assert len(graph.components()) == 1
    assert set(graph.names) == set(STATES)
    assert {tuple(sorted(pair)) for pair in graph.edges} == set(BORDERS)
    assert list(graph.neighbors("ME")) == ["NH"]
    assert graph.positions is not None
    lengths = {pair: math.dist(graph.positions[pair[0]], graph.positions[pair[1]]) for pair in graph.edges}
    assert max(lengths.values()) < 12.5, max(lengths, key=lengths.__getitem__)
    assert graph.positions["ME"][0] > graph.positions["WA"][0]
    assert graph.positions["ND"][1] > graph.positions["TX"][1]


@pytest.mark.parametrize(
    ("name", "title", "sizes"), [("east-west", "E→W", (8, 7, 9)), ("north-south", "N→S", (10, 6, 8))]
)
def test_the_papers_splits_are_halves_with_its_hop_classes(name: str, title: str, sizes: tuple[int, ...]) -> None:
    split = SPLITS[name]
    assert (split.name, split.title) == (name, title)
    assert len(split.train) == len(split.test) == 24
    assert sorted(split.train + split.test) == CODES
    classes = hop_classes(name)
    assert list(classes) == list(split.test)
    counts = Counter(classes.values())
    assert tuple(counts[hop] for hop in (1, 2, 3)) == sizes
    hops = border_graph().hops(split.train)
    assert all(classes[code] == min(hops[code], 3) for code in split.test)
    assert max(hops.values()) > 3, "so that the last class really gathers"


def test_facts_agree_with_the_file_they_come_with(real_data: Path) -> None:
    facts = json.loads((real_data / "tpt48/us_states.json").read_text())
    assert {tuple(edge) for edge in facts["edges"]} == set(BORDERS)
    found = {s["abbr"]: (s["name"], int(s["noaa"]), s["lat"], s["lon"]) for s in facts["states"]}
    assert found == {c: (s.name, s.noaa, s.latitude, s.longitude) for c, s in STATES.items()}
    for key, name in (("EW", "east-west"), ("NS", "north-south")):
        assert sorted(facts["splits"][key]["train"]) == sorted(SPLITS[name].train)
        assert sorted(facts["splits"][key]["test"]) == sorted(SPLITS[name].test)
        assert facts["splits"][key]["hop"] == hop_classes(name)


# ---------------------------------------------------------------------- one's own split


def test_a_split_by_name_or_ones_own() -> None:
    assert get_split("east-west") is SPLITS["east-west"]
    own = make_split(["New york", " pa"], ["OH", "indiana", "IL", "IA"], name="mid", title="to the middle")
    assert own == StateSplit("mid", "to the middle", ("NY", "PA"), ("IA", "IL", "IN", "OH"))
    assert get_split(own) is own
    assert hop_classes(own) == {"IA": 3, "IL": 3, "IN": 2, "OH": 1}
    with pytest.raises(UnknownNameError, match=r"unknown split 'east'. Did you mean 'east-west'\? Valid"):
        get_split("east")


@given(st.sets(st.sampled_from(CODES), min_size=2), st.data())
@settings(max_examples=40, deadline=None)
def test_the_hops_of_any_split_are_those_of_the_graph(states: set[str], data: st.DataObject) -> None:
    """A test group at h hops has a neighbour at h - 1, and none nearer."""
    train = data.draw(st.sets(st.sampled_from(sorted(states)), min_size=1, max_size=len(states) - 1))
    graph = border_graph()
    hops = check_split(graph, train, states - train)
    assert set(hops) == states - train
    everywhere = graph.hops(train)
    for name, hop in hops.items():
        assert min(everywhere[other] for other in graph.neighbors(name)) == hop - 1


@pytest.mark.parametrize(
    ("train", "test", "error", "message"),
    [
        (["OH"], ["New Yorck"], UnknownNameError, r"unknown state 'New Yorck'. Did you mean 'New York'\? Valid names"),
        (["XX"], ["NY"], UnknownNameError, "unknown state 'XX'"),
        (["OH", "NY"], ["NY", "PA"], DataError, "'NY' among both the training and the test groups"),
        (["OH", "Ohio"], ["NY"], DataError, r"training group\(s\) 'OH' more than once"),
        (["OH"], [], DataError, "no test groups"),
        ([], ["OH"], DataError, "no training groups"),
        ("OH", ["NY"], DataError, r"found the text 'OH'. Write \['OH'\]"),
    ],
)
def test_a_split_that_makes_no_sense_says_why(
    train: list[str], test: list[str], error: type[TopoRoError], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_split(train, test)


def test_a_test_group_out_of_reach_is_an_error_on_any_graph() -> None:
    graph = GroupGraph.from_edges([("a", "b"), ("b", "c"), ("x", "y")])
    assert check_split(graph, ["a"], ["c", "b"]) == {"c": 2, "b": 1}
    with pytest.raises(GraphError, match=r"to test group\(s\) 'x', 'y': add the edges"):
        check_split(graph, ["a"], ["c", "x", "y"])
    with pytest.raises(UnknownNameError, match="unknown test group 'd'"):
        check_split(graph, ["a"], ["d"])
