"""Row charts, line charts and the figures of benchmarks show the values they are given."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toporo.pages.charts import Line, line_chart, line_styles
from toporo.pages.figures import Score, method_scores, prior_table
from toporo.pages.rows import SHOWN, Marks, Panel, row_chart
from toporo.pages.svg import alternative_text, to_svg
from toporo.tables.resample import Interval
from toporo.topology.graph import GroupGraph


def labels(figure: Figure) -> list[str]:
    return [text.get_text().strip() for text in figure.axes[0].get_yticklabels()]


def words(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def dots(ax: Axes, marker: str = "o") -> list[tuple[float, float]]:
    """Row and value of the marks."""
    lines = [line for line in ax.lines if line.get_marker() == marker]
    return [(float(y), float(x)) for line in lines for x, y in zip(*line.get_data(), strict=True)]


def texts(figure: Figure) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", to_svg("f", figure))


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("count", [1, SHOWN, SHOWN + 1, SHOWN + 2, 200])
def test_rows_beyond_the_first_are_left_to_the_table(count: int) -> None:
    values = np.arange(count, dtype=float)
    figure = row_chart([f"g{i}" for i in range(count)], [Panel([Marks(values, "value", values - 1, values + 1)])])
    shown = count if count <= SHOWN + 1 else SHOWN
    assert labels(figure) == [f"g{i}" for i in range(shown)]
    (ax,) = figure.axes
    assert dots(ax) == [(i, i) for i in range(shown)]
    assert words(ax) == ([] if count == shown else [f"{count - shown} more: see the table"])


def test_intervals_are_drawn_where_there_are_any_and_missing_values_are_named() -> None:
    intervals = [Interval(2.0, 1.5, 2.5), Interval(1.0, math.nan, math.nan), Interval(*[math.nan] * 3), None]
    (ax,) = row_chart(list("abcd"), [Panel([Marks.of_intervals(intervals)])]).axes
    assert dots(ax) == [(0, 2.0), (1, 1.0)]
    segments = [segment for box in ax.containers for segment in box.lines[2][0].get_segments()]
    assert segments[0].tolist() == [[1.5, 0.0], [2.5, 0.0]]
    assert words(ax) == ["no value", "no value"]


def test_the_key_names_marks_once_and_so_does_the_alternative_text() -> None:
    panels = [Panel([Marks([1.0], "mean")], "error", "first", reference=2.0, reference_label="control")] * 2
    figure = row_chart(["a"], panels)
    assert alternative_text(figure) == "first, across: error. first, across: error. key: mean; control"


def test_characters_that_the_font_lacks_are_left_to_the_browser(recwarn: pytest.WarningsRecorder) -> None:
    svg = to_svg("effects", row_chart(["北海道", "$x$"], [Panel([Marks([1.0, -2.0])], "change")]))
    assert "$x$" in svg
    assert 'data-key="北海道" class="hit"' in svg
    assert not recwarn.list


def test_a_figure_has_identifiers_of_its_own_and_short_numbers() -> None:
    one, other = (to_svg(name, row_chart(list("ab"), [Panel([Marks([1.0, 2.0], "value")])])) for name in ("f", "g"))
    names = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (one, other)]
    assert names[0]
    assert not names[0] & names[1]
    assert not re.search(r"\.\d{3}|\n", "".join(re.findall(r' d="([^"]*)"', one)))


# ---------------------------------------------------------------- lines


def test_lines_are_marked_and_their_band_is_over_seeds() -> None:
    line = Line.over_seeds([[1.0, 2.0], [3.0, math.nan]], "A", line_styles("A")["A"])
    assert line.y == pytest.approx([2.0, 2.0])
    assert line.high == pytest.approx([2.0 + math.sqrt(2), 2.0])
    figure = line_chart([1, 2], {"accuracy": [line]}, "epoch", levels={"guessing": 1.5})
    assert {"A", "guessing"} <= set(texts(figure))
    svg = to_svg("f", figure)
    assert svg.count('data-key="A" class="hit line"') == 4, "line, band, and two parts of its key"


def test_panels_on_one_scale_show_all_of_their_lines() -> None:
    for ax in line_chart([1, 2], {"DRO": [Line([0.1, 0.2])], "TRO": [Line([0.0, 1.0])]}, "epoch", shared=True).axes:
        low, high = ax.get_ylim()
        assert low == 0.0
        assert high > 1.0


@pytest.mark.parametrize("log", ["", "x", "y", "xy"])
def test_axes_are_logarithmic_where_asked(log: str) -> None:
    (ax,) = line_chart([16, 256, 4096], {"gap": [Line([1.0, 0.25, 0.06])]}, "steps", log=log, shared=True).axes
    assert [axis for axis, scale in (("x", ax.get_xscale()), ("y", ax.get_yscale())) if scale == "log"] == list(log)


# ---------------------------------------------------------------- benchmarks


def test_scores_are_in_the_row_of_their_method() -> None:
    scores = {
        "1 hop": [Score("ERM", (90.0, 92.0), 97.8), Score("TRO", (95.0,)), Score("none", ())],
        "all": [Score("ERM", (80.0, 82.0)), Score("uniform", (84.0, 85.0), None, True)],
    }
    figure = method_scores(scores, reference="ERM", highlight=["TRO"])
    assert labels(figure) == ["ERM", "TRO", "none", "uniform"]
    first, second = figure.axes
    assert sorted(dots(first)) == [(0, 91.0), (1, 95.0)]
    assert sorted(dots(first, "|")) == [(0, 90.0), (0, 92.0)]
    assert dots(first, "D") == [(0, 97.8)]
    assert words(first) == ["no value"] * 2
    assert sorted(round(x, 1) for _, x in dots(second)) == [81.0, 84.5]
    (line,) = (line for line in first.lines if line.get_linestyle() == ":")
    assert list(line.get_xdata()) == [91.0, 91.0]


def test_a_table_of_priors_has_their_mean_and_range() -> None:
    chains = ([("a", "b"), ("b", "c")], [("b", "a"), ("a", "c")])
    priors = [GroupGraph.from_edges(edges).prior("abc", measure="betweenness") for edges in chains]
    table = prior_table(priors)
    assert table.columns == ("group", "weight", "over seeds")
    for name, mean, ends in table.rows:
        weights = [prior.weights[name] for prior in priors]
        assert float(mean) == pytest.approx(np.mean(weights), abs=1e-3)
        assert ends == f"{min(weights):.3f} to {max(weights):.3f}"
