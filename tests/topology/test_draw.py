"""Pictures of a graph: the right nodes in the right colours, sizes and places, the same at every call."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.text import Text

from toporo.cli.outputs import graph_figure
from toporo.errors import GroupMismatchError
from toporo.topology import GroupGraph
from toporo.topology.draw import FIRM_COLOR, OTHER_COLOR, TEST_COLOR, TRAIN_COLOR, layout
from toporo.topology.states import STATES

CHAIN = GroupGraph.from_edges([("a", "b"), ("b", "c"), ("c", "x")])


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def nodes(ax: Axes) -> dict[str, Line2D]:
    """The drawn nodes by their groups."""
    return {str(line.get_gid()).removeprefix("group:"): line for line in ax.lines}


def test_train_test_and_other_groups_have_their_own_colours() -> None:
    ax = CHAIN.plot(train=["a", "b"], test=["x"])
    looks = {name: (node.get_markerfacecolor(), node.get_marker()) for name, node in nodes(ax).items()}
    train = (TRAIN_COLOR, "o")
    assert looks == {"a": train, "b": train, "c": (OTHER_COLOR, "o"), "x": (TEST_COLOR, "s")}
    titles = [text.get_text() for text in ax.get_legend().get_texts()]
    assert titles == ["training groups", "test groups", "other groups"]


def test_every_edge_is_drawn_between_its_groups_and_all_are_alike_without_resamples() -> None:
    ax = CHAIN.plot()
    assert len(set(edge_lines(ax).get_linewidths())) == 1
    assert ax.get_legend() is None
    at = layout(CHAIN)
    found = {frozenset(map(tuple, np.round(segment, 9))) for segment in edge_lines(ax).get_segments()}
    assert found == {frozenset(tuple(np.round(at[name], 9)) for name in pair) for pair in CHAIN.edges}


def test_a_nodes_area_grows_with_its_size() -> None:
    drawn = nodes(CHAIN.plot(train=["a", "b", "c"], sizes={"c": 4.0, "b": 2.0}))  # a and x have none
    assert list(drawn)[:2] == ["c", "b"], "small ones on top of large ones"
    area = {name: node.get_markersize() ** 2 for name, node in drawn.items()}
    assert area["a"] == area["x"] < area["b"] < area["c"]
    assert area["c"] - area["b"] == pytest.approx(area["b"] - area["a"], rel=0.02)


@pytest.mark.parametrize("sizes", [None, {}, {"a": 0.0}])
def test_without_sizes_all_nodes_are_alike(sizes: Any) -> None:
    assert len({node.get_markersize() for node in nodes(CHAIN.plot(sizes=sizes)).values()}) == 1


def test_labels_name_the_groups_where_there_is_room() -> None:
    assert set(written(CHAIN.plot())) == set("abcx")
    crowd = GroupGraph([f"member {i}" for i in range(200)], {}).plot(sizes={"member 77": 1.0})
    assert 30 < len(written(crowd)) < 200
    assert "member 77" in written(crowd)


def written(ax: Axes) -> dict[str, Text]:
    """The names that a picture shows."""
    ax.figure.draw_without_rendering()
    return {text.get_text(): text for text in ax.texts if text.get_visible()}


def edge_lines(ax: Axes) -> LineCollection:
    (lines,) = [drawn for drawn in ax.collections if isinstance(drawn, LineCollection)]
    return lines


def test_edges_that_more_resamples_keep_are_thicker_and_darker() -> None:
    kept = {("a", "b"): 1.0, ("b", "c"): 0.0, ("c", "d"): 0.5}
    draws = [{("a", "b"): 1.0, ("c", "d"): 1.0}, {("a", "b"): 1.0}]
    graph = GroupGraph("abcd", dict.fromkeys(kept, 1.0), bootstrap_edges=draws)
    ax = graph.plot()
    lines, at = edge_lines(ax), layout(graph)
    found = {
        frozenset(map(tuple, np.round(segment, 9))): (float(width), float(color[3]), tuple(color[:3]))
        for segment, width, color in zip(lines.get_segments(), lines.get_linewidths(), lines.get_colors(), strict=True)
    }
    drawn = {pair: found[frozenset(tuple(np.round(at[name], 9)) for name in pair)] for pair in kept}
    faint, middle, firm = drawn["b", "c"], drawn["c", "d"], drawn["a", "b"]
    assert faint[0] < middle[0] < firm[0]
    assert 0.2 < faint[1] < middle[1] < firm[1] == 1.0
    assert firm[2] == pytest.approx(to_rgb(FIRM_COLOR))


def test_the_legend_is_in_the_picture_below_the_axes() -> None:
    graph = GroupGraph("ab", {("a", "b"): 1.0}, bootstrap_edges=[{("a", "b"): 1.0}])
    ax = graph.plot(train=["a"], test=["b"])
    ax.figure.canvas.draw()
    titles = [text.get_text() for text in ax.get_legend().get_texts()]
    assert titles == ["training groups", "test groups", "in all resamples", "in half of them", "in none"]
    box = ax.get_legend().get_window_extent()
    assert box.y1 <= ax.get_window_extent().y0 + 1
    assert ax.figure.bbox.contains(box.x0, box.y0)
    assert ax.figure.bbox.contains(box.x1, box.y1)


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
    drawn = {name: tuple(np.ravel(node.get_data())) for name, node in nodes(graph.plot()).items()}
    assert drawn == {str(name): place for name, place in first.items()}


def test_groups_without_a_position_stand_among_their_neighbours_or_below() -> None:
    at = {"a": (0.0, 0.0), "b": (10.0, 0.0), "c": (5.0, 8.0)}
    edges = {("a", "x"): 1.0, ("b", "x"): 1.0, ("x", "y"): 1.0}
    places = layout(GroupGraph("abcxyz", edges, positions=at))
    assert {name: places[name] for name in at} == at
    assert places["x"] == pytest.approx((5.0, 0.0), abs=1.0)
    assert places["y"] == pytest.approx(places["x"], abs=1.0)
    assert places["y"] != places["x"]
    assert places["z"][1] < 0


@pytest.mark.parametrize("lone", [1, 30])
def test_groups_that_touch_nobody_do_not_press_the_others_together(lone: int) -> None:
    ring = [f"r{i}" for i in range(12)]
    edges = dict.fromkeys([*pairwise(ring), (ring[-1], ring[0]), ("p", "q")], 1.0)
    at = layout(GroupGraph([*ring, "p", "q", *(f"lone{i}" for i in range(lone))], edges))
    points = np.array(list(at.values()))
    whole, round_ = np.ptp(points, axis=0), np.ptp([at[name] for name in ring], axis=0)
    assert round_.prod() > 0.2 * whole.prod()
    apart = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1)) + 1e9 * np.eye(len(points))
    assert apart.min() > 0.75
    assert 0.5 < whole[0] / whole[1] < 4


def test_a_picture_of_a_map_is_no_higher_than_the_map() -> None:
    names = ("WA", "MT", "ND", "MN", "CA", "FL")
    pictures = [graph_figure(GroupGraph(part, {}).plot, 6) for part in (names, names[:4], "abcdef")]
    ratios = [figure.get_figheight() / figure.get_figwidth() for figure in pictures]
    assert ratios[1] < ratios[0] < ratios[2] == pytest.approx(1 / 1.2)


def test_states_lie_where_they_do_on_a_map_if_all_groups_are_states() -> None:
    names = ("ME", "CA", "WA", "TX", "FL", "AK", "DC")
    at = layout(GroupGraph(names, {}))
    assert at == {code: STATES[code][1:] for code in sorted(names)}
    assert list(layout(GroupGraph([STATES[code][0] for code in names], {})).values()) == list(at.values())
    assert at["CA"][0] < at["TX"][0] < at["FL"][0] < at["ME"][0]
    assert at["AK"][1] < at["FL"][1] < at["TX"][1] < at["CA"][1] < at["WA"][1]
    for others in (("NY", "PA"), (*names, "Quebec"), (1, 2, 3)):
        assert GroupGraph(others, {}).plot().get_aspect() == "auto"


def test_a_map_has_one_scale_and_the_graphs_own_positions_come_first() -> None:
    names = ("NY", "PA", "OH")
    edges = {("NY", "PA"): 1.0, ("OH", "PA"): 1.0}
    ax = GroupGraph(names, edges).plot()
    assert ax.get_aspect() == 1.0
    assert ax.get_adjustable() == "datalim"
    at = {name: (float(i), 0.0) for i, name in enumerate(names)}
    assert layout(GroupGraph(names, edges, positions=at)) == at
    assert CHAIN.plot().get_aspect() == "auto"
    _, framed = plt.subplots()
    framed.set_xlim(0, 1000)
    assert GroupGraph(names, edges).plot(framed).get_aspect() == "auto"
    assert framed.get_xlim() == (0, 1000)


def test_every_group_has_an_id_that_a_file_of_text_can_hold() -> None:
    ax = GroupGraph(["a\x1bb\u202e", "c"], {}).plot()
    text = io.StringIO()
    ax.figure.savefig(text, format="svg")
    assert all(f'<g id="group:{name}">' in text.getvalue() for name in (r"a\u001bb\u202e", "c"))


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
