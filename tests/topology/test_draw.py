"""Pictures of a graph: the right nodes in the right colours, sizes and places, the same at every call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba

from toporo.errors import GroupMismatchError
from toporo.topology import GroupGraph
from toporo.topology.draw import LABEL_LIMIT, OTHER_COLOR, TEST_COLOR, TRAIN_COLOR, layout

CHAIN = GroupGraph.from_edges([("a", "b"), ("b", "c"), ("c", "x")])


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def nodes(ax: Axes) -> dict[str, PathCollection]:
    """The drawn nodes by their legend title."""
    return {str(drawn.get_label()): drawn for drawn in ax.collections if isinstance(drawn, PathCollection)}


def test_train_test_and_other_groups_have_their_own_colours() -> None:
    ax = CHAIN.plot(train=["a", "b"], test=["x"])
    drawn = nodes(ax)
    colours = {title: to_rgba(collection.get_facecolor()[0]) for title, collection in drawn.items()}
    assert colours == {
        "training groups": to_rgba(TRAIN_COLOR),
        "test groups": to_rgba(TEST_COLOR),
        "other groups": to_rgba(OTHER_COLOR),
    }
    assert {title: len(collection.get_offsets()) for title, collection in drawn.items()} == {
        "training groups": 2,
        "test groups": 1,
        "other groups": 1,
    }
    assert {text.get_text() for text in ax.get_legend().get_texts()} == set(drawn)


def test_every_edge_is_drawn_between_its_groups() -> None:
    ax = CHAIN.plot()
    at = layout(CHAIN)
    (lines,) = [drawn for drawn in ax.collections if isinstance(drawn, LineCollection)]
    found = {frozenset(map(tuple, np.round(segment, 9))) for segment in lines.get_segments()}
    assert found == {frozenset(tuple(np.round(at[name], 9)) for name in pair) for pair in CHAIN.edges}


def test_it_draws_on_the_given_axes_or_makes_new_ones() -> None:
    _, ax = plt.subplots()
    assert CHAIN.plot(ax) is ax
    assert isinstance(CHAIN.plot(), Axes)
    assert len(plt.get_fignums()) == 2


def test_a_nodes_area_grows_with_its_size() -> None:
    ax = CHAIN.plot(train=["a", "b", "c"], sizes={"c": 4.0, "b": 2.0})  # a has none
    smallest, middle, largest = nodes(ax)["training groups"].get_sizes()
    assert smallest < middle < largest
    assert largest - middle == pytest.approx(middle - smallest)
    assert nodes(ax)["other groups"].get_sizes() == pytest.approx([smallest])


@pytest.mark.parametrize("sizes", [None, {}, {"a": 0.0}])
def test_without_sizes_all_nodes_are_alike(sizes: Any) -> None:
    assert len(set(nodes(CHAIN.plot(sizes=sizes))["groups"].get_sizes())) == 1


def test_labels_name_the_groups_where_there_is_room() -> None:
    many = GroupGraph(range(LABEL_LIMIT + 1), {})
    assert {text.get_text() for text in CHAIN.plot().texts} == set("abcx")
    assert not CHAIN.plot(labels=False).texts
    assert not many.plot().texts
    assert len(many.plot(labels=True).texts) == LABEL_LIMIT + 1


@pytest.mark.parametrize(
    "graph",
    [
        CHAIN,
        GroupGraph.from_edges([("a", "b"), ("x", "y")]),
        GroupGraph(["lone"], {}),
        GroupGraph.from_edges([((1, "a"), (2, "b"))]),
    ],
    ids=["connected", "in pieces", "one node", "tuple names"],
)
def test_the_layout_is_the_same_at_every_call_and_the_graph_can_be_drawn(graph: GroupGraph) -> None:
    first, second = layout(graph), layout(graph)
    assert list(first) == list(second) == list(graph.names)
    np.testing.assert_array_equal(list(first.values()), list(second.values()))
    offsets = nodes(graph.plot())["groups"].get_offsets()
    np.testing.assert_allclose(offsets, list(first.values()))


def test_own_positions_are_used_when_they_cover_all_groups() -> None:
    at = {"a": (0.0, 0.0), "b": (5.0, 1.0)}
    edges = {("a", "b"): 1.0}
    assert layout(GroupGraph("ab", edges, positions=at)) == at
    np.testing.assert_array_equal(
        nodes(GroupGraph("ab", edges, positions=at).plot())["groups"].get_offsets(), list(at.values())
    )
    assert set(layout(GroupGraph("abc", edges, positions=at))) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": ["Q"]}, r"training group\(s\) not in the graph: 'Q'"),
        ({"test": ["Q"]}, r"test group\(s\) not in the graph: 'Q'"),
        ({"sizes": {"Q": 1.0}}, r"sized group\(s\) not in the graph: 'Q'"),
    ],
)
def test_unknown_groups_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(GroupMismatchError, match=message):
        CHAIN.plot(**arguments)
