"""All sources of tables behave alike: one suite of tests for each of them, and one property."""

from __future__ import annotations

import string
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.sources import SOURCES, content, plain
from toporo.data import formats
from toporo.data import table as data_table
from toporo.data.frame import Frame, Texts, read_frame, stream_frames
from toporo.data.table import Table, find_table
from toporo.errors import DataError, UnknownNameError

DAY = datetime(1970, 1, 2)
COLUMNS: dict[str, list[Any]] = {
    "x": [1.5, None, -300.0, 0.25, 2.0],
    " d ": [DAY, datetime(1969, 12, 31, 12), None, DAY, datetime(2020, 1, 2)],
    "g": ["b", " ü c ", None, "NA", "b"],
}
KINDS = {"x": "number", "d": "date", "g": "text"}
EXPECTED = {
    "x": ("number", [1.5, None, -300.0, 0.25, 2.0]),
    "d": ("date", [1.0, -0.5, None, 1.0, 18263.0]),
    "g": ("text", ["b", "ü c", None, "NA", "b"]),
}


@pytest.fixture(params=SOURCES)
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that opens columns as a source of this kind."""

    def made(columns: dict[str, list[Any]]) -> Table:
        return find_table(SOURCES[request.param](columns, tmp_path_factory.mktemp("source")))

    return made


def own(frame: Frame) -> dict[str, Any]:
    """Return the content of the columns that are not hive partitions."""
    return {name: column for name, column in content(frame).items() if name != "part"}


def streamed(source: Any, kinds: dict[str, str], rows: int = 2) -> dict[str, list[Any]]:
    frames = list(stream_frames(source, kinds, rows=rows))
    assert max(map(len, frames)) <= rows
    return {name: [value for frame in frames for value in plain(frame, name)] for name in kinds}


def test_a_whole_table(make: Callable[..., Any]) -> None:
    frame = read_frame(make(COLUMNS))
    assert own(frame) == EXPECTED
    assert frame.first == 1
    assert frame.unusable == {}


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_portions(make: Callable[..., Any], rows: int) -> None:
    assert streamed(make(COLUMNS), KINDS, rows) == {name: values for name, (_, values) in EXPECTED.items()}
    frames = list(stream_frames(make(COLUMNS), {"g": "text", "x": "text"}, rows=rows))
    assert all(frame.names == ("g", "x") for frame in frames)
    assert [cell for frame in frames for cell in frame.text("x").tolist()][3] == "0.25"
    firsts: dict[str, int] = {}
    for frame in frames:
        assert frame.first == firsts.get(frame.where, 1)
        firsts[frame.where] = frame.first + len(frame)


def test_chunks(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_table, "CHUNK_ROWS", 2)
    table = make(COLUMNS)
    assert find_table(table) is table
    assert set(table.names) - {"part"} == {"x", "d", "g"}
    parts = [streamed(table.only([chunk]), KINDS, 100) for chunk in table.chunks]
    assert {name: [v for part in parts for v in part[name]] for name in KINDS} == streamed(table, KINDS)
    if table.rows is not None:
        assert table.rows == 5
        assert [chunk.rows for chunk in table.chunks] == [len(part["x"]) for part in parts]


def test_text_is_as_it_is_written(make: Callable[..., Any]) -> None:
    assert streamed(make(COLUMNS), {"x": "text"})["x"][1] is None
    frame = read_frame(make(COLUMNS), text=["x", "absent"])
    assert frame["x"].kind == "text"
    assert [float(cell) if cell else None for cell in plain(frame, "x")] == EXPECTED["x"][1]


def test_columns_are_chosen_or_excluded(make: Callable[..., Any]) -> None:
    assert read_frame(make(COLUMNS), columns=["g", "x"]).names == ("x", "g")
    assert read_frame(make(COLUMNS), columns=["g", "x"], exclude="x").names == ("g",)
    for more in ({"columns": ["z"]}, {"exclude": ["z"]}):
        with pytest.raises(UnknownNameError, match=r"unknown column 'z'. Valid names: d, g, "):
            read_frame(make(COLUMNS), **more)


def test_columns_that_are_absent(make: Callable[..., Any]) -> None:
    assert set(streamed(make(COLUMNS), {"x": "number"})) == {"x"}
    with pytest.raises(DataError, match=r"lacks the column\(s\) 'h', 'i'. It has: 'x', 'd', 'g'"):
        next(stream_frames(make(COLUMNS), {"x": "number", "h": "date", "i": "text"}))
    (name,) = next(stream_frames(make(COLUMNS), {"x": "number", "h": "date"}, optional=["h"])).names
    assert name == "x"
    with pytest.raises(DataError, match=r"lacks the column\(s\) 'h'"):
        next(stream_frames(make(COLUMNS), {"h": "text"}, optional=["h"]))


@pytest.mark.parametrize(
    ("cells", "kind", "message"),
    [
        (["1", "2", "", "q", "4"], "number", "'q' is not a number, which is what the column must hold"),
        (["1", "", "2", "1_0", "4"], "number", "'1_0' is not a number"),
        (["", "2020-01-01", "", "May", ""], "date", r"'May' is not a date \(2024-05-31"),
        (["2020-01-01", "", "", "5", ""], "date", "'5' is not a date"),
    ],
)
@pytest.mark.parametrize("rows", [1, 5])
def test_a_cell_of_another_kind_is_an_error_with_its_row(
    make: Callable[..., Any], cells: list[str], kind: str, message: str, rows: int
) -> None:
    """The fourth row, which is the second of the second file."""
    frames = stream_frames(make({"x": cells, "g": list("abcde")}), {"x": kind}, rows=rows)
    with pytest.raises(DataError, match=rf"row [24], column 'x': {message}"):
        list(frames)


@pytest.mark.parametrize(("value", "what"), [(float("-inf"), "infinite value"), (-2e100, r"value\(s\) beyond 1e\+100")])
def test_numbers_beyond_measure_are_an_error_with_their_row(make: Callable[..., Any], value: float, what: str) -> None:
    table = {"x": [1.0, None, 3.0, value]}
    message = rf"holds 1 {what}.* \(first: row [24], column 'x'\)"
    with pytest.raises(DataError, match=message):
        read_frame(make(table))
    with pytest.raises(DataError, match=message):
        list(stream_frames(make(table), {"x": "number"}, rows=1))


def test_a_column_of_another_type_is_an_error(make: Callable[..., Any]) -> None:
    """Dates are not numbers, nor numbers dates, whatever the source."""
    for name, kind in (("d", "number"), ("x", "date")):
        with pytest.raises(DataError, match=rf"column '{name}'.*(each must be|is not) a {kind}"):
            list(stream_frames(make(COLUMNS), {name: kind}))


def test_all_missing_is_of_every_kind(make: Callable[..., Any]) -> None:
    for kind in KINDS.values():
        assert streamed(make({"x": [None, None, None], "g": ["a", "b", "c"]}), {"x": kind})["x"] == [None] * 3


def test_no_rows(make: Callable[..., Any]) -> None:
    with pytest.raises(DataError, match="has a header but no rows"):
        read_frame(make({"x": [], "g": []}))
    with pytest.raises(DataError, match="has a header but no rows"):
        next(stream_frames(make({"x": [], "g": []}), {"x": "number"}))


def test_two_columns_of_one_name(make: Callable[..., Any]) -> None:
    with pytest.raises(DataError, match="several columns named 'x'"):
        make({"x": [1.0, 2.0], " x": [1.0, 2.0]})


# ---------------------------------------------------------------------- any table

WORDS = st.text(st.characters(codec="utf-8"), max_size=6).map(str.strip)
NUMBERS = st.floats(-1e100, 1e100)
DATES = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(lambda moment: moment.replace(microsecond=0))


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Columns of all kinds, some cells missing; their kinds can be told from the cells."""
    count = draw(st.integers(1, 12))

    def column(cells: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(st.none() | cells, min_size=count, max_size=count))

    columns = {
        "number": [*column(NUMBERS), 1.5],
        "date": [*column(DATES), datetime(2020, 1, 2, 3, 4, 5)],
        "text": [*(cell or None for cell in column(WORDS)), "some text"],
    }
    return {draw(st.sampled_from(string.ascii_letters)) + name: cells for name, cells in columns.items()}


@settings(max_examples=60, deadline=None)
@given(
    columns=tables(),
    name=st.sampled_from([*SOURCES]),
    rows=st.integers(1, 14),
    block=st.sampled_from([1 << 12, 1 << 20]),
)
def test_every_source_gives_the_same_frame(
    columns: dict[str, list[Any]], name: str, rows: int, block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    expected = read_frame(columns)
    kinds = {column: expected[column].kind for column in expected.names}
    assert [*kinds.values()] == ["number", "date", "text"]

    def source() -> Any:
        return SOURCES[name](columns, tmp_path_factory.mktemp("law"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "BLOCK", block)
        patch.setattr(data_table, "CHUNK_ROWS", rows)
        frame = read_frame(source())
        assert own(frame) == content(expected)
        assert streamed(source(), kinds, rows) == {column: plain(expected, column) for column in kinds}


@given(st.lists(st.integers(-1, 4), min_size=1), st.randoms())
def test_levels_are_those_of_the_rows_taken(codes: list[int], random: Any) -> None:
    words = ["e", "a", "d", "b", "c"]
    cells = [None if code < 0 else words[code] for code in codes]
    texts = read_frame({"x": [*cells, "e"]}).text("x")
    rows = random.choices(range(len(cells)), k=len(cells))
    part = texts.take(rows)
    assert isinstance(part, Texts)
    assert part.tolist() == [cells[row] for row in rows]
    assert list(part.levels) == sorted({cells[row] for row in rows} - {None})
    assert np.array_equal(part.missing, [cells[row] is None for row in rows])
