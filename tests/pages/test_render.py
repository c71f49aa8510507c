"""Templates and colours: text is escaped, nothing is silently left out, and colours differ for everybody."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from jinja2 import UndefinedError

from tests.pages.page import Page
from toporo.pages.charts import COLORS
from toporo.pages.render import DARK_COLORS, Section, render
from toporo.pages.table import LONG, Table
from toporo.topology.draw import OTHER_COLOR, TEST_COLOR, TRAIN_COLOR

#: Linear RGB as seen without one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1).
BLIND = {
    "red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "none": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
}
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]


def test_a_section_shows_everything_in_order() -> None:
    long = Table(("c",), (("3",),) * (LONG + 1), title="More")
    short = Table(("a", "b"), (("x", "1"), ("total", "2")), words=("a",), row_styles={1: "total"})
    section = Section("one", "Title", "Text", "<svg></svg>", tables=(short, long))
    html = render("base.html", title="A <b>", caption="C.", verdict=None, sections=[section], settings=[("k", "<v>")])
    page = Page(html)
    assert page.by_tag["h1"] == ["A <b>"]
    assert page.by_tag["td"] == ["x", "1", "total", "2", *["3"] * (LONG + 1), "k", "<v>"]
    assert page.by_tag["summary"] == ["More", "Settings"], "a long table is folded"
    places = [html.index(words) for words in ("Text", "<svg>", 'class="total">', "More", "Settings")]
    assert places == sorted(places)


def test_a_missing_variable_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="settings"):
        render("base.html", title="A", caption="C.", verdict=None, sections=[])


def seen(color: str, cones: str) -> np.ndarray:
    """Return a colour as it is seen, in CIELAB, where 10 is a difference that nobody overlooks."""
    parts = np.array(list(bytes.fromhex(color[1:]))) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = np.array(TO_XYZ) @ np.clip(np.array(BLIND[cones]) @ linear, 0, 1) / (0.95047, 1.0, 1.08883)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("cones", BLIND)
@pytest.mark.parametrize("colors", [COLORS, (TRAIN_COLOR, TEST_COLOR, OTHER_COLOR)])
def test_colours_differ_in_both_modes_whatever_cones_are_missing(colors: tuple[str, ...], cones: str) -> None:
    for shown in (colors, [DARK_COLORS[color] for color in colors]):
        apart = {pair: np.linalg.norm(np.subtract(*(seen(c, cones) for c in pair))) for pair in combinations(shown, 2)}
        assert min(apart.values()) > 15, min(apart, key=apart.__getitem__)
