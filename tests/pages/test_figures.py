"""The figures of a regression over states: what is given is what is drawn, odd input is told or refused by name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import LogNorm, Normalize, to_hex
from matplotlib.figure import Figure

from toporo.data.grouped import GroupedData
from toporo.errors import DataError, GroupMismatchError, SettingError
from toporo.pages.charts import WIDE, WIDTH, to_svg
from toporo.pages.figures import Configuration, decision_boundaries, error_by_hop, importance_bars, selection_scatter
from toporo.pages.maps import HOP_FILLS, MISSING, TRAIN_FILL, Shift, centrality_map, error_map, load_outlines

HOPS = {
    **dict.fromkeys(["CA", "NV", "UT", "CO", "KS", "MO", "KY", "WV", "MD", "DE"], 1),
    **dict.fromkeys(["AZ", "NM", "OK", "AR", "TN", "VA"], 2),
    **dict.fromkeys(["TX", "LA", "MS", "AL", "GA", "FL", "SC", "NC"], 3),
}
TEST = list(HOPS)
TRAIN = [code for code in load_outlines().rings if code not in HOPS]
EVEN = {code: 1.0 + i / 10 for i, code in enumerate(TRAIN)}
PRIOR = {code: 2.0 * (i + 1) / (24 * 25) for i, code in enumerate(TRAIN)}
ERRORS = {code: 0.1 * HOPS[code] + 0.001 * i for i, code in enumerate(TEST)}
METHODS = [f"method {i}" for i in range(12)]
TABLE: dict[str, dict[str, tuple[float, float | None]]] = {
    title: {hop: (0.5 + 0.01 * i + 0.1 * j, 0.02) for j, hop in enumerate(("1", "2", "3", "all"))}
    for i, title in enumerate(METHODS)
}
CANDIDATES = [Configuration(f"lambda = {k}", 0.3 + 0.01 * k, 0.2 - 0.01 * k, 0.25 + 0.02 * k) for k in range(6)]

SHIFT = Shift("North to South", EVEN, TRAIN, TEST, HOPS)
FIGURES: dict[str, Callable[[], Figure]] = {
    "one centrality map": lambda: centrality_map(SHIFT),
    "two centrality maps": lambda: centrality_map(SHIFT, Shift("again", PRIOR, TRAIN, TEST), label="prior weight"),
    "importance": lambda: importance_bars({"DRO": PRIOR, "TRO": dict(reversed(PRIOR.items()))}, PRIOR),
    "error by hop": lambda: error_by_hop(TABLE, {"method 1": {"all": (1.7, None)}}, reference="method 0"),
    "error maps": lambda: error_map(dict.fromkeys("ABC", ERRORS), TRAIN),
    "selection": lambda: selection_scatter(CANDIDATES),
}


def svg(figure: Figure) -> str:
    return to_svg("f", figure)


def texts(figure: Figure) -> list[str]:
    return re.findall(r">([^<>]+)</text>", svg(figure))


def maps(figure: Figure) -> list[Axes]:
    return [ax for ax in figure.axes if any(isinstance(c, PathCollection) for c in ax.collections)]


def states(ax: Axes, *, value: bool) -> list[PathCollection]:
    """The states that have a value, or have none."""
    return [c for c in ax.collections if isinstance(c, PathCollection) and (c.get_array() is not None) == value]


def scale(ax: Axes) -> Normalize:
    """The scale of the coloured states, which is one."""
    (norm,) = {state.norm for state in states(ax, value=True)}
    return norm


def values(ax: Axes) -> list[float]:
    """What the coloured states show."""
    return sorted(float(state.get_array()[0]) for state in states(ax, value=True))


def plain(ax: Axes) -> list[str]:
    """Colours of the states without a value."""
    return [to_hex(state.get_facecolor()[0]) for state in states(ax, value=False)]


def dots(ax: Axes, marker: str = "o") -> list[tuple[float, float]]:
    lines = [line for line in ax.lines if line.get_marker() == marker]
    return [(float(x), float(y)) for line in lines for x, y in zip(*line.get_data(), strict=True)]


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_the_same_bytes_at_every_call_and_as_wide_as_others(name: str) -> None:
    figure = FIGURES[name]()
    assert svg(figure) == svg(FIGURES[name]())
    assert figure.get_figwidth() == (WIDE if "map" in name else WIDTH)


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_cut_off(name: str) -> None:
    figure = FIGURES[name]()
    figure.draw_without_rendering()
    page = figure.bbox
    for ax in figure.axes:
        box = ax.get_tightbbox()
        if box is not None:
            assert box.x0 >= page.x0 - 1
            assert box.x1 <= page.x1 + 1
            assert box.y0 >= page.y0 - 1
            assert box.y1 <= page.y1 + 1


class TestCentralityMap:
    def test_training_states_by_centrality_and_test_states_by_hop(self) -> None:
        figure = centrality_map(SHIFT, label="betweenness")
        (ax,) = maps(figure)
        assert values(ax) == sorted(EVEN.values())
        assert {fill: plain(ax).count(fill) for fill in HOP_FILLS} == dict(zip(HOP_FILLS, (10, 6, 8), strict=True))
        written = texts(figure)
        for text in ("North to South", "betweenness of training states", "test states: 1 hop", "2 hops", "3 hops"):
            assert text in written
        assert sum(len(text) == 2 and text.isupper() for text in written) == 48

    def test_two_splits_share_one_scale(self) -> None:
        figure = centrality_map(SHIFT, Shift("other", dict.fromkeys(TRAIN, 9.0), TRAIN, TEST, HOPS))
        first, second = maps(figure)
        assert scale(first) is scale(second)
        assert scale(first).vmax == 9.0

    def test_without_hops_there_is_one_grey(self) -> None:
        figure = centrality_map(Shift("t", EVEN, TRAIN, TEST))
        assert len(set(plain(maps(figure)[0]))) == 1
        assert "test states" in texts(figure)

    def test_skewed_centralities_get_a_logarithmic_scale_that_says_where_zero_is(self) -> None:
        skewed = {code: float(10 ** (i % 3)) if i else 0.0 for i, code in enumerate(TRAIN)}
        figure = centrality_map(Shift("t", skewed, TRAIN, TEST, HOPS))
        assert isinstance(scale(maps(figure)[0]), LogNorm)
        assert "centrality of training states, log scale; less, or zero, at the arrow" in texts(figure)

    def test_values_for_other_states_than_the_training_states_are_refused(self) -> None:
        some = {code: value for code, value in EVEN.items() if code != "NY"} | {"TX": 1.0}
        with pytest.raises(GroupMismatchError, match=r"North to South.*missing 'NY'; not expected 'TX'"):
            centrality_map(Shift("North to South", some, TRAIN, TEST))

    def test_a_state_is_in_train_or_in_test(self) -> None:
        with pytest.raises(GroupMismatchError, match="both train and test: 'NY'"):
            centrality_map(Shift("t", EVEN, TRAIN, [*TEST, "NY"]))

    def test_nothing_to_draw_is_refused(self) -> None:
        with pytest.raises(SettingError, match="at least one split"):
            centrality_map()


@pytest.mark.parametrize("accuracy", [None, {"ERM": 45.06}])
def test_decision_boundaries_say_how_well_a_model_does_where_that_is_known(accuracy: dict[str, float] | None) -> None:
    data = GroupedData.from_arrays(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0, 1]), ["a", "b"])
    plane = np.tile(np.linspace(0, 1, 5), (5, 1))
    grids = {"ERM": plane, "TRO": plane, "other": plane, "last": plane}
    figure = decision_boundaries(grids, (-1, 1, -1, 1), data, ["a"], accuracy=accuracy)
    titles = [ax.get_title() for ax in figure.axes if ax.get_visible()]
    assert titles == ["ERM: 45.1 %" if accuracy else "ERM", "TRO", "other", "last"]


class TestImportanceBars:
    def test_panels_have_one_order_the_most_central_first(self) -> None:
        weights = {code: 1.0 if code == "NY" else 0.0 for code in TRAIN}
        figure = importance_bars({"DRO": weights, "TRO": PRIOR}, PRIOR)
        order = sorted(TRAIN, key=PRIOR.__getitem__, reverse=True)
        assert [text.get_text() for text in figure.axes[-1].get_xticklabels()] == order
        for ax, given in zip(figure.axes, (weights, PRIOR), strict=True):
            assert [bar.get_height() for bar in ax.patches if bar.get_gid() is None] == [given[code] for code in order]
            assert [y for _, y in dots(ax, "D")] == [PRIOR[code] for code in order]
        assert [ax.get_title(loc="left") for ax in figure.axes] == ["DRO", "TRO"]
        assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()

    def test_one_method_will_do(self) -> None:
        assert len(importance_bars({"TRO": PRIOR}, PRIOR).axes) == 1

    def test_equal_priors_are_ordered_by_name(self) -> None:
        even = {"b": 0.5, "a": 0.5}
        labels = importance_bars({"TRO": even}, even).axes[0].get_xticklabels()
        assert [text.get_text() for text in labels] == ["a", "b"]

    def test_weights_of_other_groups_are_refused(self) -> None:
        with pytest.raises(GroupMismatchError, match=r"weights of 'DRO'.*missing 'b'"):
            importance_bars({"DRO": {"a": 1.0}}, {"a": 0.5, "b": 0.5})

    @pytest.mark.parametrize("value", [-0.1, math.nan])
    def test_weights_must_be_weights(self, value: float) -> None:
        with pytest.raises(DataError, match="DRO: b"):
            importance_bars({"DRO": {"a": 1.0, "b": value}}, {"a": 0.5, "b": 0.5})

    def test_nothing_to_draw_is_refused(self) -> None:
        with pytest.raises(SettingError, match="at least one method"):
            importance_bars({}, PRIOR)


class TestErrorByHop:
    def test_every_method_is_a_row_and_every_class_a_panel(self) -> None:
        figure = error_by_hop(TABLE)
        assert [ax.get_title(loc="left") for ax in figure.axes] == ["1 hop", "2 hops", "3 hops", "all test states"]
        assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == METHODS
        for ax, hop in zip(figure.axes, ("1", "2", "3", "all"), strict=True):
            assert dots(ax) == [(TABLE[title][hop][0], float(i)) for i, title in enumerate(METHODS)]
            bars = [c.get_segments()[0] for c in ax.collections if isinstance(c, LineCollection)]
            assert [tuple(bar[:, 0]) for bar in bars] == [
                pytest.approx((mean - 0.02, mean + 0.02)) for mean, _ in dots(ax)
            ]

    def test_published_values_stand_in_the_row_of_their_method_or_in_one_of_their_own(self) -> None:
        figure = error_by_hop({"ERM": {"all": (0.3, None)}}, {"TRO": {"all": (0.5, None)}, "ERM": {"all": (0.4, None)}})
        (ax,) = figure.axes
        assert [text.get_text() for text in ax.get_yticklabels()] == ["ERM", "TRO"]
        assert dots(ax) == [(0.3, 0.0)]
        assert sorted(dots(ax, "D")) == [(0.4, 0.0), (0.5, 1.0)]
        assert {"ours", "paper"} <= set(texts(figure))
        assert "ours, mean ± sd" in texts(error_by_hop(TABLE))

    def test_what_is_missing_or_not_finite_is_said(self) -> None:
        figure = error_by_hop({"ERM": {"1": (0.3, 0.1), "2": (0.4, None)}, "DRO": {"1": (math.inf, None)}})
        assert [dots(ax) for ax in figure.axes] == [[(0.3, 0.0)], [(0.4, 0.0)]]
        assert texts(figure).count("no value") == 1
        assert texts(figure).count("not finite") == 1

    def test_errors_far_apart_get_a_logarithmic_axis_and_others_start_at_zero(self) -> None:
        far = error_by_hop({"ERM": {"all": (0.2, 0.5)}}, {"ERM": {"all": (2.0, None)}}).axes[0]
        assert far.get_xscale() == "log"
        assert far.get_xlabel() == "test MSE, log scale"
        assert far.get_xlim()[0] > 0.1
        near = error_by_hop({"ERM": {"all": (0.2, 0.5)}}, {"ERM": {"all": (0.3, None)}}).axes[0]
        assert (near.get_xscale(), near.get_xlim()[0]) == ("linear", 0.0)

    def test_the_reference_is_a_line_in_every_panel(self) -> None:
        figure = error_by_hop(TABLE, reference="method 3", highlight=["method 5"])
        for ax, hop in zip(figure.axes, ("1", "2", "3", "all"), strict=True):
            assert [list(line.get_xdata()) for line in ax.lines if line.get_linestyle() == ":"] == [
                [TABLE["method 3"][hop][0]] * 2
            ]
        bold = [text.get_text() for text in figure.axes[0].get_yticklabels() if text.get_fontweight() == "bold"]
        assert bold == ["method 5"]

    @pytest.mark.parametrize("how", [{"reference": "EMR"}, {"highlight": ["EMR"]}])
    def test_methods_to_point_out_must_exist(self, how: dict[str, object]) -> None:
        with pytest.raises(GroupMismatchError, match=r"'EMR'.*'ERM'"):
            error_by_hop({"ERM": {"all": (0.3, None)}}, **how)  # type: ignore[arg-type]

    @pytest.mark.parametrize("table", [{}, {"ERM": {}}])
    def test_nothing_to_draw_is_refused(self, table: dict[str, dict[str, tuple[float, None]]]) -> None:
        with pytest.raises(SettingError, match="at least one"):
            error_by_hop(table)  # type: ignore[arg-type]


class TestErrorMap:
    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_a_panel_a_method_on_one_scale(self, count: int) -> None:
        errors = {f"method {i}": {code: value * (i + 1) for code, value in ERRORS.items()} for i in range(count)}
        figure = error_map(errors, TRAIN)
        panels = maps(figure)
        assert len(panels) == count
        for ax, by_state in zip(panels, errors.values(), strict=True):
            assert values(ax) == sorted(by_state.values())
            assert set(plain(ax)) == {TRAIN_FILL}
            assert scale(ax).vmax == max(ERRORS.values()) * count
            mean = np.mean(list(by_state.values()))
            assert f"mean {mean:.3f}" in ax.get_title()
        boxes = [ax.get_position() for ax in panels]
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])

    def test_test_states_without_a_value_are_shown_as_such(self) -> None:
        some = {code: value for code, value in ERRORS.items() if code != "TX"}
        figure = error_map({"ERM": some}, TRAIN)
        assert plain(maps(figure)[0]).count(MISSING) == 1
        assert "no value" in texts(figure)
        assert "no value" not in texts(error_map({"ERM": ERRORS}, TRAIN))

    def test_a_state_that_one_method_lacks_is_explained_although_another_has_it(self) -> None:
        some = {code: value for code, value in ERRORS.items() if code != "TX"}
        assert "no value" in texts(error_map({"ERM": ERRORS, "DRO": some}, TRAIN))

    def test_the_scale_is_logarithmic_only_for_skewed_errors(self) -> None:
        skewed = ERRORS | {"TX": 50.0}
        assert type(scale(maps(error_map({"ERM": ERRORS}, TRAIN))[0])) is Normalize
        figure = error_map({"ERM": skewed}, TRAIN)
        assert isinstance(scale(maps(figure)[0]), LogNorm)
        assert "test MSE, log scale" in texts(figure)

    def test_errors_of_training_states_are_refused(self) -> None:
        with pytest.raises(GroupMismatchError, match="'ERM' for training states: 'NY'"):
            error_map({"ERM": ERRORS | {"NY": 1.0}}, TRAIN)

    def test_a_method_without_errors_is_refused(self) -> None:
        with pytest.raises(DataError, match="no test errors for 'ERM'"):
            error_map({"ERM": {}}, TRAIN)
        with pytest.raises(SettingError, match="at least one method"):
            error_map({}, TRAIN)

    def test_unknown_states_are_named(self) -> None:
        with pytest.raises(GroupMismatchError, match="'AK'"):
            error_map({"ERM": {"AK": 1.0}}, TRAIN)


class TestSelectionScatter:
    def test_each_rule_rings_the_candidate_it_scores_best(self) -> None:
        figure = selection_scatter(CANDIDATES, rules=("frontier", "in-distribution"))
        left, right = figure.axes
        assert dots(left)[:6] == [(c.honest, c.test) for c in CANDIDATES]
        assert dots(right)[:6] == [(c.in_distribution, c.test) for c in CANDIDATES]
        assert dots(left)[6:] == [(CANDIDATES[0].honest, CANDIDATES[0].test)]
        assert dots(right)[6:] == [(CANDIDATES[5].in_distribution, CANDIDATES[5].test)]
        written = " | ".join(texts(figure))
        assert "frontier | chosen: lambda = 0 | test MSE 0.250, lowest of all 0.250, rank | correlation 1.00" in written
        assert "chosen: lambda = 5 | test MSE 0.350, lowest of all 0.250, rank | correlation -1.00" in written

    def test_the_choice_may_be_given(self) -> None:
        left, _ = selection_scatter(CANDIDATES, chosen=("lambda = 3", None)).axes
        assert dots(left)[6:] == [(CANDIDATES[3].honest, CANDIDATES[3].test)]

    def test_scores_that_are_not_finite_are_counted_not_drawn(self) -> None:
        figure = selection_scatter([*CANDIDATES, ("diverged", math.nan, 0.3, 0.1)])
        left, right = figure.axes
        assert left.get_xlabel() == "validation MSE (1 of 7 not finite, not shown)"
        assert right.get_xlabel() == "validation MSE"
        assert len(dots(left)) == 7
        for ax in figure.axes:  # the best test error is the same in both panels, drawn or not
            assert "lowest of all 0.100" in ax.get_title(loc="left")

    def test_very_different_scores_get_logarithmic_axes(self) -> None:
        left, right = selection_scatter([*CANDIDATES, ("bad", 100.0, 0.2, 50.0)]).axes
        assert (left.get_xscale(), right.get_xscale(), left.get_yscale()) == ("log", "linear", "log")

    def test_one_candidate_has_no_rank_correlation(self) -> None:
        assert "rank" not in " ".join(texts(selection_scatter(CANDIDATES[:1])))

    def test_nothing_finite_still_gives_the_panels(self) -> None:
        figure = selection_scatter([("diverged", math.nan, math.nan, math.nan)])
        assert [dots(ax) for ax in figure.axes] == [[], []]

    def test_bad_input_is_refused(self) -> None:
        with pytest.raises(SettingError, match="at least one candidate"):
            selection_scatter([])
        with pytest.raises(GroupMismatchError, match="'lambda = 9'"):
            selection_scatter(CANDIDATES, chosen=("lambda = 9", None))
