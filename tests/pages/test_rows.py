"""Row charts: every value stands in its row, and what is missing is written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toporo.pages.charts import alternative_text, to_svg
from toporo.pages.rows import SHOWN, Marks, Panel, row_chart
from toporo.tables.resample import Interval


def labels(figure: Figure) -> list[str]:
    return [text.get_text().strip() for text in figure.axes[0].get_yticklabels()]


def words(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def dots(ax: Axes, marker: str = "o") -> list[tuple[float, float]]:
    """Places of the marks, row and value."""
    lines = [line for line in ax.lines if line.get_marker() == marker]
    return [(float(y), float(x)) for line in lines for x, y in zip(*line.get_data(), strict=True)]


@pytest.mark.parametrize("count", [1, 2, SHOWN, SHOWN + 1, SHOWN + 2, 200])
def test_rows_beyond_the_first_are_left_to_the_table(count: int) -> None:
    values = np.arange(count, dtype=float)
    bars, marks = Marks(values, marker=""), Marks(values, "value", values - 1, values + 1)
    figure = row_chart([f"g{i}" for i in range(count)], [Panel([bars]), Panel([marks])])
    shown = count if count <= SHOWN + 1 else SHOWN
    assert labels(figure) == [f"g{i}" for i in range(shown)]
    left, right = figure.axes
    assert [bar.get_width() for bar in left.containers[0]] == list(range(shown))
    assert dots(right) == [(i, i) for i in range(shown)]
    assert words(left) == ([] if count == shown else [f"{count - shown} more: see the table"])


def test_intervals_are_drawn_where_there_are_any_and_missing_values_are_named() -> None:
    intervals = [Interval(2.0, 1.5, 2.5), Interval(1.0, math.nan, math.nan), Interval(*[math.nan] * 3), None]
    panel = Panel([Marks.of_intervals(intervals)], notes={3: "not fitted"})
    (ax,) = row_chart(list("abcd"), [panel]).axes
    assert dots(ax) == [(0, 2.0), (1, 1.0)]
    segments = [segment for box in ax.containers for segment in box.lines[2][0].get_segments()]
    assert segments[0].tolist() == [[1.5, 0.0], [2.5, 0.0]]
    assert words(ax) == ["no value", "not fitted"]


def test_bars_below_zero_have_another_colour() -> None:
    (ax,) = row_chart(list("ab"), [Panel([Marks([1.0, -1.0], marker="")])]).axes
    one, other = (bar.get_facecolor() for bar in ax.containers[0])
    assert one != other


def test_the_key_names_marks_once_and_the_alternative_text_has_them() -> None:
    panels = [Panel([Marks([1.0], "mean")], "error", "first", reference=2.0, reference_label="control")] * 2
    figure = row_chart(["a"], panels, bold=["a"])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["mean", "control"]
    assert alternative_text(figure) == "first, across: error. first, across: error. key: mean; control"
    assert figure.axes[0].get_yticklabels()[0].get_fontweight() == "bold"


def test_a_logarithmic_axis_says_so() -> None:
    (ax,) = row_chart(list("ab"), [Panel([Marks([0.1, 10.0])], "error", log=True)]).axes
    assert (ax.get_xscale(), ax.get_xlabel()) == ("log", "error, log scale")


def test_panels_on_one_scale_show_all_of_their_marks() -> None:
    panels = [Panel([Marks([1.0])]), Panel([Marks([50.0])])]
    for ax in row_chart(["a"], panels, shared=True).axes:
        assert ax.get_xlim()[0] < 1 < 50 < ax.get_xlim()[1]


def test_characters_that_the_font_lacks_are_left_to_the_browser(recwarn: pytest.WarningsRecorder) -> None:
    svg = to_svg("effects", row_chart(["北海道", "$x$"], [Panel([Marks([1.0, -2.0], marker="")], "change")]))
    assert "北海道" in svg
    assert "$x$" in svg
    assert 'data-key="北海道" class="hit"' in svg
    assert not recwarn.list


def test_a_figure_has_the_same_bytes_at_every_call_and_identifiers_of_its_own() -> None:
    def draw(name: str) -> str:
        return to_svg(name, row_chart(list("ab"), [Panel([Marks([1.0, 2.0], "value")])]))

    assert draw("one") == draw("one")
    one, other = ({part.split('"')[0] for part in draw(name).split(' id="')[1:]} for name in ("one", "other"))
    assert one
    assert not one & other
