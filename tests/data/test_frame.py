"""Columns and frames, and tables in memory of every library and type."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.data.sources import content, plain
from toporo.data.frame import Frame, Numbers, OtherKindError, Texts, read_frame, stream_frames
from toporo.errors import DataError, UnknownNameError

NA = float("nan")
DAY, NOON = "1970-01-02", "1970-01-02T12:00:00"


def test_columns_know_what_is_missing_and_give_rows() -> None:
    frame = Frame({"x": Numbers(np.array([1.5, NA, 3.0])), "g": Texts(np.array([1, -1, 0], np.int32), ("a", "b"))})
    assert (len(frame), frame.names, frame.first) == (3, ("x", "g"), 1)
    assert frame["x"].missing.tolist() == frame["g"].missing.tolist() == [False, True, False]
    for rows in (np.array([True, True, False]), [0, 1], slice(0, 2)):
        part = frame.take(rows)
        assert plain(part, "x") == [1.5, None]
        assert plain(part, "g") == ["b", None]
        assert part.text("g").levels == ("b",)
    assert "x" in frame
    assert "y" not in frame
    with pytest.raises(UnknownNameError, match=r"unknown column 'h'. Valid names: g, x"):
        frame["h"]


def test_numbers_and_dates_as_text() -> None:
    days = [0.0, 1.5, 18263.0, NA, -1.0, 0.000001]
    frame = Frame({"x": Numbers(np.array([3.0, 2.5, -0.0, NA, 1e300, 2.0**53])), "d": Numbers(np.array(days), "date")})
    assert frame.text("x").tolist() == ["3", "2.5", "0", None, "1e+300", "9007199254740992"]
    assert frame.text("d").tolist() == [
        "1970-01-01", "1970-01-02T12:00:00", "2020-01-02", None, "1969-12-31", "1970-01-01T00:00:00.086",
    ]  # fmt: skip


def test_words_for_missing_are_texts_until_told_otherwise() -> None:
    texts = read_frame({"x": ["NA", "b", "None", "", "a", "NA"]}).text("x")
    assert texts.tolist() == ["NA", "b", "None", None, "a", "NA"]
    assert texts.known().tolist() == [None, "b", None, None, "a", None]
    assert texts.known().levels == ("a", "b")


def test_a_frame_is_read_like_any_table() -> None:
    frame = read_frame({"x": [1, 2], "g": ["a", "b"], "list": [[1], [2]]})
    assert read_frame(frame, text=["x"], exclude=["g"]).text("x").tolist() == ["1", "2"]
    assert read_frame(frame, columns=["g"]).names == ("g",)
    assert set(read_frame(frame).unusable) == {"list"}
    with pytest.raises(UnknownNameError, match="unknown column 'h'"):
        read_frame(frame, columns=["h"])


def test_errors_come_when_their_row_does_and_travel() -> None:
    """What stands before a bad cell was given out already: nothing waits for the end of the file."""
    frames = stream_frames({"x": ["1", "2", "q"]}, {"x": "number"}, rows=2)
    assert plain(next(frames), "x") == [1, 2]
    with pytest.raises(OtherKindError, match="row 3, column 'x': 'q'") as caught:
        next(frames)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.column, copy.kind) == (str(caught.value), "x", "text")


# ---------------------------------------------------------------------- columns with types


def test_types_of_arrow() -> None:
    utc, plus2 = datetime(1970, 1, 2, 12, tzinfo=UTC), datetime(1970, 1, 2, 14, tzinfo=timezone(timedelta(hours=2)))
    words = pa.array(["b", "a", None])
    #: By column: the array, its values as numbers or text, and its values kept as text.
    columns: dict[str, tuple[Any, list[Any], list[Any]]] = {
        "int": (pa.array([3, None, 2**53 + 1]), [3, None, 2.0**53], ["3", None, "9007199254740993"]),
        "big": (pa.array([2**64 - 1, 0, None], pa.uint64()), [2.0**64, 0, None], ["18446744073709551615", "0", None]),
        "half": (pa.array(np.array([0.5, 1, 2], np.float16)), [0.5, 1, 2], ["0.5", "1", "2"]),
        "float": (pa.array([0.25, NA, None]), [0.25, None, None], ["0.25", None, None]),
        "decimal": (pa.array([Decimal("1.50"), None, Decimal("-2.25")]), [1.5, None, -2.25], ["1.50", None, "-2.25"]),
        "null": (pa.nulls(3), [None] * 3, [None] * 3),
        "bool": (pa.array([True, None, False]), ["true", None, "false"], ["true", None, "false"]),
        "date32": (pa.array([date(1970, 1, 2), None, date(1969, 1, 1)]), [1, None, -365], [DAY, None, "1969-01-01"]),
        "date64": (pa.array([date(1970, 1, 2)] * 3, pa.date64()), [1, 1, 1], [DAY] * 3),
        "stamp": (pa.array([datetime(1970, 1, 2, 12)] * 3, pa.timestamp("ns")), [1.5] * 3, [NOON] * 3),
        "zone": (pa.array([utc, plus2, None], pa.timestamp("s", "Asia/Tokyo")), [1.5, 1.5, None], [NOON, NOON, None]),
        "string": (words, ["b", "a", None], ["b", "a", None]),
        "large": (words.cast(pa.large_string()), ["b", "a", None], ["b", "a", None]),
        "view": (words.cast(pa.string_view()), ["b", "a", None], ["b", "a", None]),
        "dictionary": (pa.array([" x ", None, "x"]).dictionary_encode(), ["x", None, "x"], ["x", None, "x"]),
        "categories": (pa.array([1, None, 2]).dictionary_encode(), ["1", None, "2"], ["1", None, "2"]),
        " padded ": (pa.array([1.0, 2.0, 3.0]), [1, 2, 3], ["1", "2", "3"]),
        "digits": (pa.array(["01", "", "3"]), ["01", None, "3"], ["01", None, "3"]),
    }  # fmt: skip
    table = pa.table({name: array for name, (array, *_) in columns.items()})
    frame, written = read_frame(table), read_frame(table, text=[name.strip() for name in columns])
    for name, (_, values, texts) in columns.items():
        assert plain(frame, name.strip()) == values, name
        assert plain(written, name.strip()) == texts, name
    assert {name for name in frame.names if frame[name].kind == "date"} == {"date32", "date64", "stamp", "zone"}
    kinds = {name: frame[name].kind for name in frame.names}
    assert content(next(stream_frames(table, kinds))) == content(frame)


def test_columns_that_are_no_numbers_dates_or_text_are_an_error_when_used() -> None:
    table = pa.table({"x": [1.0], "list": [[1]], "struct": [{"a": 1}], "bytes": [b"a"], "time": [timedelta(1)]})
    frame = read_frame(table)
    assert frame.names == ("x",)
    assert set(frame.unusable) == {"list", "struct", "bytes", "time"}
    message = r"column 'list' of the data frame cannot be used: it holds values of type list<.*> *, which are neither"
    with pytest.raises(DataError, match=message):
        frame["list"]
    with pytest.raises(DataError, match=message):
        list(stream_frames(table, {"list": "text"}))
    with pytest.raises(DataError, match=r"no column that can be used \('list': it holds values of type"):
        read_frame(table, columns=["list"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"x": [1], "y": [1, 2]},
            "the data cannot be made a table: Column 1 named y expected length 1 but got length 2",
        ),
        ({1: [1], "1": [2]}, "several columns named '1'"),
        ({"x": [object(), "a"]}, "no column that can be used .'x': .* object"),
        ({"x": [1j, 2j]}, "'x': .* complex"),
        ({"x": np.zeros((2, 2))}, "'x': Unsupported cast from list"),
        ({"x": [10**400, 1]}, "'x': Python int too large"),
        ({"x": 5}, "column 'x' of the data is a int: expected a sequence"),
        ({"x": []}, "has a header but no rows"),
        ({}, "has no columns"),
        ([1, 2], "cannot read a table from list"),
        (3, "cannot read a table from int"),
        ({"\ud800": [1]}, "the data cannot be made a table: .*utf-8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_table_in_memory(source: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_frame(source)


def test_pandas() -> None:
    pd = pytest.importorskip("pandas")
    source = pd.DataFrame(
        {
            "x": [1.5, None, 3.0],
            "nullable": pd.array([1, None, 2**53 + 1], dtype="Int64"),
            "flag": pd.array([True, None, False], dtype="boolean"),
            "text": pd.array(["a", None, "b"], dtype="string"),
            "object": np.array(["a", 1, None], dtype=object),
            "category": pd.Categorical(["q", None, "p"], categories=["unused", "q", "p"]),
            "levels": pd.Categorical([2, 1, 2]),
            "when": pd.to_datetime(["1970-01-02 00:00", None, "1970-01-03 12:00"]),
            "zone": pd.to_datetime(["1970-01-02 00:00", None, "1970-01-03 12:00"]).tz_localize("Europe/Berlin"),
            "read": [1, 2, 3],
            7: [1, 2, 3],
            "nested": [[1], [2], [3]],
            "complex": [1j, 2j, 3j],
        },
        index=["r1", "r2", "r3"],
    )
    frame = read_frame(source, text=["nullable"])
    hour = 1 / 24
    assert {name: plain(frame, name) for name in frame.names} == {
        "x": [1.5, None, 3],
        "nullable": ["1", None, "9007199254740993"],
        "flag": ["true", None, "false"],
        "text": ["a", None, "b"],
        "object": ["a", "1", None],
        "category": ["q", None, "p"],
        "levels": ["2", "1", "2"],
        "when": [1, None, 2.5],
        "zone": [pytest.approx(1 - hour), None, pytest.approx(2.5 - hour)],
        "read": [1, 2, 3],
        "7": [1, 2, 3],
    }
    assert set(frame.unusable) == {"nested", "complex"}
    with pytest.raises(DataError, match="several columns named 'x'"):
        read_frame(pd.concat([source, source[["x"]]], axis=1))


def test_polars(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    source = pl.DataFrame(
        {
            "x": [1, None, 3],
            "t": ["a", None, "b"],
            "c": pl.Series(["p", "q", None], dtype=pl.Categorical),
            "e": pl.Series(["p", "q", None], dtype=pl.Enum(["q", "p"])),
            "d": [date(1970, 1, 2), None, date(1970, 1, 3)],
            "b": [True, None, False],
        }
    )
    frame = read_frame(source)
    assert {name: plain(frame, name) for name in frame.names} == {
        "x": [1, None, 3],
        "t": ["a", None, "b"],
        "c": ["p", "q", None],
        "e": ["p", "q", None],
        "d": [1, None, 2],
        "b": ["true", None, "false"],
    }
    for name, write in (
        ("t.parquet", source.write_parquet),
        ("t.arrow", source.write_ipc),
        ("s.arrow", source.write_ipc_stream),
    ):
        write(tmp_path / name)
        assert content(read_frame(tmp_path / name)) == content(frame)
    with pytest.raises(DataError, match="lazy frame: collect"):
        read_frame(source.lazy())
