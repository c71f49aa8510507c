"""Names on a drawing: whatever the picture, none is over another, and all stay inside."""

from __future__ import annotations

import io

import networkx as nx
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from toporo.topology import GroupGraph

SHORT, LONG = 3, 30


def graph_of(count: int, letters: int, placed: bool) -> GroupGraph:
    """Groups that touch those near them, some in pieces of their own; with their places or without."""
    near = nx.random_geometric_graph(count, 1.4 / count**0.5, seed=count)
    names = [f"{i:03d} and its surroundings, in short"[:letters] for i in range(count)]
    at = {names[i]: tuple(place) for i, place in near.nodes(data="pos")}
    return GroupGraph(names, {(names[a], names[b]): 1.0 for a, b in near.edges}, positions=at if placed else None)


def shown(ax: Axes) -> list[Text]:
    return [text for text in ax.texts if text.get_visible()]


def check(ax: Axes) -> None:
    """No two names overlap, and none leaves the axes, as the picture is drawn."""
    ax.figure.draw_without_rendering()
    texts = shown(ax)
    boxes = np.array([Text.get_window_extent(text).extents for text in texts]).reshape(-1, 4)
    over = (boxes[:, None, :2] < boxes[None, :, 2:]).all(axis=2) & (boxes[None, :, :2] < boxes[:, None, 2:]).all(axis=2)
    np.fill_diagonal(over, val=False)
    assert not over.any(), [texts[i].get_text() for i in np.flatnonzero(over.any(axis=1))]
    frame = ax.get_window_extent()
    assert (boxes[:, :2] >= frame.min - 1).all()
    assert (boxes[:, 2:] <= frame.max + 1).all()


@pytest.mark.parametrize(("count", "letters", "least"), [(15, LONG, 8), (60, SHORT, 40), (200, LONG, 20)])
@pytest.mark.parametrize("placed", [True, False])
def test_no_name_is_over_another_and_the_important_come_first(
    count: int, letters: int, least: int, placed: bool
) -> None:
    graph = graph_of(count, letters, placed)
    first = graph.names[count // 2]
    ax = Figure(figsize=(8, 6.5), layout="constrained").subplots()
    graph.plot(ax, train=graph.names[: count // 2], sizes={first: 1.0})
    check(ax)
    assert len(shown(ax)) >= least
    assert str(first)[:3] in {text.get_text()[:3] for text in shown(ax)}


def test_names_are_placed_for_the_picture_that_is_made() -> None:
    """A smaller one has room for fewer."""
    graph = graph_of(40, LONG, placed=True)
    figure = Figure(figsize=(12, 10), layout="constrained")
    ax = figure.subplots()
    graph.plot(ax)
    counts = []
    for size, dpi in (((12, 10), 100), ((3, 3), 100), ((12, 10), 40)):
        figure.set_size_inches(size)
        figure.set_dpi(dpi)
        figure.savefig(io.BytesIO(), format="png", dpi="figure")
        check(ax)
        counts.append(len(shown(ax)))
    assert counts[0] > 2 * counts[1]
    assert abs(counts[0] - counts[2]) <= 3
