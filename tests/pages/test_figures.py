"""The figures of benchmarks show the values that they are given."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from tests.pages.test_rows import dots, labels
from toporo.data.grouped import GroupedData
from toporo.pages.charts import Line, line_chart, line_styles, to_svg
from toporo.pages.figures import (
    HOP_FILLS,
    TRAIN_FILL,
    Score,
    TopologyRuns,
    centrality_map,
    decision_boundaries,
    error_map,
    event_map,
    group_table,
    learned_topology,
    method_scores,
    metrics_by_epoch,
    penalty_curve,
    weights_over_training,
)
from toporo.pages.outlines import load_outlines
from toporo.topology.graph import GroupGraph

HOPS = dict.fromkeys(["CA", "NV", "UT"], 1) | dict.fromkeys(["AZ", "NM"], 2) | {"TX": 3, "LA": 5}
TRAIN = [code for code in load_outlines().rings if code not in HOPS]
CENTRALITY = {code: 1.0 + i / 10 for i, code in enumerate(TRAIN)}
ERRORS = {code: 0.1 * hop for code, hop in HOPS.items()}
SCORES = {
    "1 hop": [Score("ERM", (90.0, 92.0), 97.8), Score("TRO", (95.0,)), Score("none", ())],
    "all": [Score("ERM", (80.0, 82.0)), Score("uniform", (84.0, 85.0), None, True)],
}


def chain(*names: str) -> GroupGraph:
    return GroupGraph(sorted(names), dict.fromkeys(pairwise(names), 1.0))


GRAPHS = (chain("a", "b", "c"), chain("a", "b", "c"), chain("b", "a", "c"))
LEARNED = TopologyRuns(GRAPHS, tuple(graph.prior(["a", "b", "c"]) for graph in GRAPHS))
PLACES = {"a": (10.0, 20.0), "b": (-60.0, -15.0), "c": (80.0, 30.0), "d": (120.0, 10.0)}
FIGURES: dict[str, Callable[[], Figure]] = {
    "centrality": lambda: centrality_map({"N": CENTRALITY, "M": CENTRALITY}, {"N": HOPS, "M": HOPS}),
    "errors": lambda: error_map(dict.fromkeys("ABC", ERRORS), TRAIN),
    "scores": lambda: method_scores(SCORES, label="accuracy (%)", reference="ERM", highlight=["TRO"]),
    "topology": lambda: learned_topology(LEARNED),
    "events": lambda: event_map(LEARNED, PLACES, "abc", "d"),
    "penalties": lambda: penalty_curve({"test": {0.1: [0.4, 0.5], 10.0: [0.6]}}, {"ERM": 0.3}, label="IoU"),
    "weights": lambda: weights_over_training({"TRO": [{"a": 0.5, "b": 0.5}, {"a": 0.4, "b": 0.6}]}, at=[1, 2]),
    "metrics": lambda: metrics_by_epoch({"test": {"A": np.eye(3) + 1}}, [1, 2, 3], line_styles("A"), log=True),
}


def written(figure: Figure) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", to_svg("f", figure))


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_the_same_bytes_at_every_call_and_nothing_is_cut_off(name: str) -> None:
    figure = FIGURES[name]()
    assert to_svg("f", figure) == to_svg("f", FIGURES[name]())
    assert figure.get_figwidth() == 4.3, "a phone can show it"
    figure.draw_without_rendering()
    box = figure.get_tightbbox()
    assert box.x0 >= -0.03
    assert box.x1 <= figure.get_figwidth() + 0.03


def test_a_centrality_map_has_test_states_by_hop() -> None:
    figure = centrality_map({"North": CENTRALITY}, {"North": HOPS}, label="betweenness")
    colors = [to_hex(state.get_facecolor()) for state in figure.axes[0].patches]
    assert [colors.count(fill) for fill in HOP_FILLS] == [3, 2, 2]
    texts = written(figure)
    for text in ("North", "betweenness of training states", "test, 1 hop", "test, 2 hops", "test, 3 hops or more"):
        assert text in texts


def test_an_error_map_has_training_states_in_grey_and_the_mean_in_its_title() -> None:
    figure = error_map({"ERM": ERRORS}, TRAIN)
    assert [to_hex(state.get_facecolor()) for state in figure.axes[0].patches].count(TRAIN_FILL) == len(TRAIN)
    assert "mean 0.2" in figure.axes[0].get_title()


@pytest.mark.parametrize("accuracy", [{}, {"ERM": 45.06}])
def test_decision_boundaries_have_the_accuracy_where_it_is_known(accuracy: dict[str, float]) -> None:
    data = GroupedData.from_arrays(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0, 1]), ["a", "b"])
    grids = dict.fromkeys(("ERM", "TRO", "last"), np.tile(np.linspace(0, 1, 5), (5, 1)))
    figure = decision_boundaries(grids, (-1, 1, -1, 1), data, ["a"], accuracy=accuracy)
    titles = [ax.get_title() for ax in figure.axes if ax.get_visible()]
    assert titles == ["ERM: 45.1 %" if accuracy else "ERM", "TRO", "last"]


def test_scores_stand_in_the_row_of_their_method() -> None:
    figure = FIGURES["scores"]()
    assert labels(figure) == ["ERM", "TRO", "none", "uniform"]
    first, second = figure.axes
    assert sorted(place for place in dots(first) if place[0] == int(place[0])) == [(0, 91.0), (1, 95.0)]
    assert sorted(place for place in dots(first) if place[0] != int(place[0])) == [(0.3, 90.0), (0.3, 92.0)]
    assert dots(first, "D") == [(0, 97.8)]
    assert [text.get_text() for text in first.texts] == ["no value"] * 2
    assert sorted(round(x, 1) for row, x in dots(second) if row == int(row)) == [81.0, 84.5]
    (line,) = (line for line in first.lines if line.get_linestyle() == ":")
    assert list(line.get_xdata()) == [91.0, 91.0]
    assert {"paper", "single seeds", "mean ± sd over seeds", "ERM"} <= set(written(figure))


def test_scores_far_apart_on_one_scale_are_logarithmic() -> None:
    far = {"a": [Score("A", (1.0,))], "b": [Score("A", (20.0,))]}
    assert [ax.get_xscale() for ax in method_scores(far, shared=True).axes] == ["log", "log"]
    assert method_scores(far).axes[0].get_xscale() == "linear"


def test_learned_edges_are_counted_over_seeds() -> None:
    assert LEARNED.counts == {("a", "b"): 3, ("b", "c"): 2, ("a", "c"): 1}
    assert LEARNED.kinds == 2
    assert LEARNED.centrality == pytest.approx({"a": 1 / 3, "b": 2 / 3, "c": 0.0})
    texts = written(learned_topology(LEARNED, what="domain"))
    assert [text for text in texts if text.startswith("edge in")] == [f"edge in {i} of 3 seeds" for i in (3, 2, 1)]
    assert texts.count("a") == 2, "a node and a bar"


def test_events_without_a_place_are_left_out() -> None:
    figure = event_map(None, PLACES, ["a", "nowhere"], ["b"])
    assert {"a", "b", "held-out event"} <= set(written(figure))
    assert "nowhere" not in written(figure)


def test_a_table_of_groups_has_dashes_for_missing_values_and_the_best_in_bold() -> None:
    values = {"A": {"x": 0.25, "y": math.nan}, "B": {"x": 0.5}}
    table = group_table(values, ["x", "y"], label="IoU", marked=["y"])
    assert table.columns == ("IoU", "x", "y (held out)")
    assert table.rows == (("A", "0.25", "–"), ("B", "0.50", "–"))
    assert [getattr(row[1], "style", "") for row in table.rows] == ["", "best"]


def test_panels_on_one_scale_show_all_of_their_lines() -> None:
    histories = {"DRO": [{"a": 0.1, "b": 0.2}] * 2, "TRO": [{"a": 0.0, "b": 1.0}] * 2}
    for ax in weights_over_training(histories, at=[1, 2]).axes:
        low, high = ax.get_ylim()
        assert low == 0.0
        assert high > 1.0


def test_lines_over_names_have_a_name_each() -> None:
    figure = line_chart(["x", "y"], {"accuracy": [Line([1.0, 2.0], "A")]}, "group", levels={"guessing": 1.5})
    assert {"x", "y", "A", "guessing"} <= set(written(figure))
    assert 'data-series="A"' in to_svg("f", figure)
