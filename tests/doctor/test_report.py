"""The page and the pictures: complete, safe, and the same every time."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.doctor.cases import sound
from tests.pages.page import figures, without_script
from toporo.doctor import Diagnosis, Distances, examine
from toporo.doctor.results import group_table
from toporo.pages.doctor import MOST_LABELS, distance_map, write_doctor_report
from toporo.topology.draw import TEST_COLOR

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    table = sound(30)
    table["g"] = [EVIL if g == "ash" else g for g in table["g"]]
    table["code & <b>"] = [f"{g}!" for g in table["g"]]
    return examine(table, group="g", target="z", exclude=["y"], test_groups=["birch"])


def line(count: int) -> Distances:
    names = tuple(f"group {i} $\\alpha$" for i in range(count))
    place = np.arange(count, dtype=float)
    matrix = np.abs(place[:, None] - place[None, :])
    return Distances(names, matrix, names[::-1], 1.0, 0.5, 0.1, np.ones_like(matrix), True, 3.0, 1.0, 10 * count)


def test_the_page_stands_alone_and_holds_everything(diagnosis: Diagnosis, tmp_path: Path) -> None:
    write_doctor_report(diagnosis, tmp_path / "doctor.html")
    page = (tmp_path / "doctor.html").read_text(encoding="utf-8")
    for finding in diagnosis.findings:
        assert finding.code in page
    assert figures(page) == 2
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "toporo fit TABLE.csv" in page


@pytest.mark.usefixtures("quick")
def test_the_page_says_what_was_measured_of_shifts(tmp_path: Path) -> None:
    columns = sound(40, [f"g{i}" for i in range(9)]) | {"year": [1980 + i % 40 for i in range(360)]}
    edges = [(f"g{i}", f"g{i + 1}") for i in range(8)]
    write_doctor_report(examine(columns, group="g", target="y", exclude=["z"], graph=edges), tmp_path / "doctor.html")
    page = (tmp_path / "doctor.html").read_text(encoding="utf-8")
    for words in ("held-out regions", "later rows", "likeness of neighbours", "1 shuffled graphs"):
        assert words in page


def test_names_from_the_table_are_text_on_the_page(diagnosis: Diagnosis, tmp_path: Path) -> None:
    write_doctor_report(diagnosis, tmp_path / "doctor.html")
    page = (tmp_path / "doctor.html").read_text(encoding="utf-8")
    assert "<script" not in without_script(page)
    assert "&lt;script&gt;" in page
    assert "<b>" not in page


@pytest.mark.usefixtures("quick")
def test_a_table_with_nothing_to_measure_has_a_page_too(tmp_path: Path) -> None:
    diagnosis = examine({"g": ["a", "b"], "x": [1, 1]}, group="g")
    write_doctor_report(diagnosis, tmp_path / "doctor.html")
    page = (tmp_path / "doctor.html").read_text(encoding="utf-8")
    assert "<svg" not in page
    assert "distances not measured" in page


def test_a_map_puts_groups_in_order_and_marks_test_groups() -> None:
    distances = line(5)
    figure = distance_map(distances, [distances.names[1]])
    ax = figure.axes[0]
    texts = [tick.get_text() for tick in ax.get_yticklabels()]
    assert texts == list(distances.order)
    colors = {tick.get_text(): tick.get_color() for tick in ax.get_yticklabels()}
    assert [name for name, color in colors.items() if color == TEST_COLOR] == [distances.names[1]]
    shown = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_allclose(shown[0, 1:], distances.matrix[::-1, ::-1][0, 1:])


@pytest.mark.parametrize("chance", [2.0, 1e9])
def test_the_colours_of_a_map_show_what_chance_gives(chance: float) -> None:
    bar = distance_map(replace(line(5), chance=chance)).axes[1]
    marks = [tick.get_xdata()[0] for tick in bar.lines if tick.get_color() == TEST_COLOR]
    assert marks == ([chance] if chance < 1e9 else [])
    assert bar.get_xlabel().startswith("diffusion EMD (orange line: by chance)") == bool(marks)


@pytest.mark.parametrize("count", [2, 30, 130])
def test_a_map_of_many_groups_has_labels_that_can_be_read(count: int) -> None:
    figure = distance_map(line(count))
    labels = figure.axes[0].get_yticklabels()
    assert 2 <= len(labels) <= MOST_LABELS
    assert labels[0].get_fontsize() >= 8
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in labels]
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))


def test_a_short_table_keeps_the_groups_that_findings_name(diagnosis: Diagnosis) -> None:
    full, short = group_table(diagnosis), group_table(diagnosis, limit=2)
    assert len(full.rows) == 4
    assert len(short.rows) == 2
    assert short.left_out == 2
    assert set(short.rows) <= set(full.rows)
    assert all(len(row) == len(full.columns) for row in full.rows)
