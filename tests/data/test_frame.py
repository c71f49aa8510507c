"""Tables of every kind give the same typed columns, whole or in portions, or are refused in words."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import feather, ipc, parquet

from tests.data.cases import rows_as_csv
from tests.data.sources import plain
from toporo.data import cells
from toporo.data.frame import Frame, Numbers, Texts, read_frame, stream_frames
from toporo.errors import DataError, SettingError, TopoRoError, UnknownNameError

NA = float("nan")


def csv_of(text: str | bytes) -> io.BytesIO:
    return io.BytesIO(text if isinstance(text, bytes) else text.encode())


def same(one: Frame, other: Frame) -> None:
    assert one.names == other.names
    for name in one.names:
        assert one[name].kind == other[name].kind, name
        assert plain(one, name) == plain(other, name), name


def joined(frames: list[Frame]) -> dict[str, list[Any]]:
    return {name: [value for frame in frames for value in plain(frame, name)] for name in frames[0].names}


# ---------------------------------------------------------------------- columns


def test_columns_know_what_is_missing_and_give_rows() -> None:
    frame = Frame({"x": Numbers(np.array([1.5, NA, 3.0])), "g": Texts(np.array([1, -1, 0], np.int32), ("a", "b"))})
    assert (len(frame), frame.names, frame.first) == (3, ("x", "g"), 1)
    assert frame["x"].missing.tolist() == frame["g"].missing.tolist() == [False, True, False]
    for rows in (np.array([True, True, False]), [0, 1], slice(0, 2)):
        part = frame.take(rows)
        assert plain(part, "x") == [1.5, None]
        assert plain(part, "g") == ["b", None]
        assert part.text("g").levels == ("b",)
    assert (frame.distinct("x"), frame.distinct("g")) == (2, 2)
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


# ---------------------------------------------------------------------- CSV


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", "-2.5", "3e2", ".5", "5.", "+7"], "number", [1, -2.5, 300, 0.5, 5, 7]),
        ([" 1 ", "\t2", "3\xa0"], "number", [1, 2, 3]),
        (["1", "", "NaN", "NA", " n/a ", "#N/A", "null", "None", "nan"], "number", [1, *[None] * 8]),
        (["", "NA", ""], "number", [None] * 3),
        (["-nan", "1"], "number", [None, 1]),
        (["007", "1"], "number", [7, 1]),
        (["9007199254740993", "1"], "number", [2.0**53, 1]),
        (["1e-999", "1"], "number", [0, 1]),
        (["nan(1)", "1"], "text", ["nan(1)", "1"]),
        (["1_000", "1"], "text", ["1_000", "1"]),
        (["0x10", "1"], "text", ["0x10", "1"]),
        (["1,5", "1"], "text", ["1,5", "1"]),
        (["True", "false"], "text", ["True", "false"]),
        (["a", " a ", "", "NA", "A"], "text", ["a", "a", None, "NA", "A"]),
        (["inf", "x"], "text", ["inf", "x"]),
        (["1970-01-02", "1969-12-31", "2020-02-29"], "date", [1, -1, 18321]),
        (["1970-01-02", "", "NA"], "date", [1, None, None]),
        (["1970-01-02T12:00", "1970-01-02 06:00:00", "1970-01-02"], "date", [1.5, 1.25, 1]),
        (["1970-01-02T00:00Z", "1970-01-02T12:00:00+02:00"], "date", [1, 1 + 10 / 24]),
        (["1970-01-02T12:00:00+0200", "1970-01-02 12:00"], "date", [1 + 10 / 24, 1.5]),
        (["1970-01-01T00:00:00.123456789", "1970-01-02"], "date", [0.123456 / 86400, 1]),
        (["2020-02-30", "2020-02-01"], "text", ["2020-02-30", "2020-02-01"]),
        (["2020-W01-1", "2020-01-01"], "text", ["2020-W01-1", "2020-01-01"]),
        (["20200101", "2020-01-01"], "text", ["20200101", "2020-01-01"]),
        (["12:30", "13:30"], "text", ["12:30", "13:30"]),
        (["ÅÄ", "日本", "a\0b", 'say "x"', "two\nlines"], "text", ["ÅÄ", "日本", "a\0b", 'say "x"', "two\nlines"]),
        (["x" * 300_000, "y"], "text", ["x" * 300_000, "y"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_column_is_what_all_its_cells_are(cells: list[str], kind: str, values: list[Any]) -> None:
    frame = read_frame(csv_of(rows_as_csv({"x": cells, "i": [str(i) for i in range(len(cells))]})))
    assert frame["x"].kind == kind
    assert plain(frame, "x") == values
    (portion,) = stream_frames(csv_of(rows_as_csv({"x": cells, "i": cells})), {"x": kind})
    assert plain(portion, "x") == values


def test_a_cell_in_the_last_portion_decides_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "BLOCK", 64)
    rows = {"n": [str(i) for i in range(100)], "t": [*map(str, range(99)), "q"], "d": ["2020-01-01"] * 99 + [""]}
    frame = read_frame(csv_of(rows_as_csv(rows)))
    assert [frame[name].kind for name in "ntd"] == ["number", "text", "date"]
    assert plain(frame, "n") == list(range(100))
    assert plain(frame, "t") == rows["t"]
    assert plain(frame, "d") == [18262.0] * 99 + [None]


PLAIN = "height,weight,state\n1.5,10,PA\n2,20,NY\n-3e2,30,PA\n"


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.replace("\n", "\n\n"),
        "\n  \n" + PLAIN.replace("\n", "\n \t\n"),
        PLAIN.rstrip("\n"),
        PLAIN.replace(",", " , "),
        '"height","weight","state"\n"1.5","10","PA"\n2,"20 ",NY\n-3e2,30,"PA"\n',
        '"hei\nght",weight,state\n1.5,10,PA\n2,20,NY\n-3e2,30,PA\n'.replace("hei\nght", "height"),
    ],
    ids=["BOM", "CRLF", "CR", "blank lines", "blank lines with spaces", "no last newline", "spaces", "quotes", "head"],
)
def test_the_usual_ways_to_write_a_table_are_the_same_table(text: str) -> None:
    same(read_frame(csv_of(text)), read_frame(csv_of(PLAIN)))
    kinds = {"height": "number", "weight": "number", "state": "text"}
    same(next(stream_frames(csv_of(text), kinds)), read_frame(csv_of(PLAIN)))


def test_columns_named_as_text_stay_as_written() -> None:
    text = "zip,n,d\n01,1,2020-01-01\n1,2,NA\n,3,\n1.0,4,2020-01-02\n"
    frame = read_frame(csv_of(text), text=["zip", "d", "absent"])
    assert plain(frame, "zip") == ["01", "1", None, "1.0"]
    assert plain(frame, "d") == ["2020-01-01", "NA", None, "2020-01-02"]
    assert plain(read_frame(csv_of(text), text="zip"), "d")[0] == 18262
    assert plain(read_frame(csv_of(text)), "zip") == [1, 1, None, 1]


@pytest.mark.parametrize("name", ["t.txt", "t", "t.DATA", "t.dat"])
def test_suffixes_of_text_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PLAIN)
    same(read_frame(tmp_path / name), read_frame(csv_of(PLAIN)))


def test_columns_without_a_name_are_dropped() -> None:
    assert read_frame(csv_of(",x,bad,g,\n0,1,inf,a,\n1,2,3,b,\n"), exclude=["bad"]).names == ("x", "g")


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " "])
def test_another_delimiter(delimiter: str, tmp_path: Path) -> None:
    text = PLAIN.replace(",", delimiter)
    same(read_frame(csv_of(text), delimiter=delimiter), read_frame(csv_of(PLAIN)))
    path = tmp_path / "t.tsv"
    path.write_text(text)
    if delimiter == "\t":
        same(read_frame(path), read_frame(csv_of(PLAIN)))
    path.write_text(PLAIN)
    same(read_frame(path), read_frame(csv_of(PLAIN)))


def test_a_last_cell_of_several_lines_is_told_from_an_open_quote() -> None:
    for end in ("", "\n", "\n\n", " \n" * 100):
        assert plain(read_frame(csv_of('x,g\n1,a\n2,"b\nc"' + end)), "g") == ["a", "b\nc"]


def test_the_stream_is_left_open_and_may_give_little_at_a_time() -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 7, 7))

    stream = Slow(PLAIN.encode() * 1)
    frame = read_frame(stream)
    same(frame, read_frame(csv_of(PLAIN)))
    assert frame.where == "standard input"
    assert not stream.closed


def test_a_table_longer_than_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read to find the header is not lost, also where it ends within a character."""
    for size in range(16, 40):
        monkeypatch.setattr(cells, "HEAD", size)
        frame = read_frame(csv_of("å,b\n" + "éé,2\n" * 20))
        assert plain(frame, "å") == ["éé"] * 20
        assert plain(frame, "b") == [2] * 20
    monkeypatch.setattr(cells, "HEAD", 4)
    with pytest.raises(DataError, match=r"first line: not valid CSV .it is longer than"):
        read_frame(csv_of("aaaa,b\n1,2\n"))


# ---------------------------------------------------------------------- what CSV is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "standard input is empty: expected a first line"),
        ("\n \n", "standard input is empty"),
        ("x,g\n", "has a header but no rows"),
        ("x,g", "has a header but no rows"),
        ("x,g\n\n  \n", "has a header but no rows"),
        (b"x,g\n1,\xe9\n", "is not text in UTF-8"),
        (b"x,\xe9\n1,2\n", r"is not text in UTF-8 \(byte 0xe9"),
        ("x,g\n1,a\n".encode("utf-16"), "is not text in UTF-8"),
        ("x,g\n1,a\n\n \n2,b,3\n4\n", "row 2 after the header: found 3 cells, expected 2"),
        ('x,g\n1,"a\nb"\n2\n', "row 2 after the header: found 1 cells, expected 2"),
        ('x,g\n1,a\n2,"b\n', r"not valid CSV \(a double quote before 'b' is not closed"),
        ('x,g\n1,a\n2,"b\n3,c\n4,d\n', "not valid CSV"),
        ('x,"g\n1,2\n', "first line: not valid CSV"),
        ("x,y, x\n1,2,3\n", "several columns named 'x'"),
        (PLAIN.replace(",", ";"), "separated by ';'. Say so: --delimiter ';'"),
        (PLAIN.replace(",", "\t"), "--delimiter tab"),
        ("x,y\n1,2\n3,inf\n5,-Infinity\n", r"2 infinite value\(s\) \(first: row 2, column 'y'\)"),
        ("x,y\n1,2\n3,1e999\n", r"first: row 2, column 'y'"),
        (",\n1,2\n", "has no column that can be used"),
        (b"PAR1....", "is a Parquet file, not text"),
        (b"PK\x03\x04...", "is a workbook or a zip archive, not text"),
        (b"\x1f\x8b...", "is a gzip archive, not text"),
    ],
)
def test_unusable_cells_are_refused_in_words(text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_frame(csv_of(text))


def test_a_row_longer_than_a_block_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "BLOCK", 100)
    with pytest.raises(DataError, match=r"a row of more than .* MiB: a double quote that is not closed"):
        read_frame(csv_of('x,g\n1,"a\n' + "2,b\n" * 100))


@pytest.mark.parametrize(
    ("name", "content", "settings", "error", "message"),
    [
        ("absent.csv", None, {}, DataError, "no such file: .*absent.csv. Expected a CSV file"),
        ("absent.parquet", None, {}, DataError, "no such file: .*absent.parquet. Expected a Parquet file"),
        ("t.xlsx", b"PK", {}, DataError, "what kind of table is a .xlsx file"),
        ("t.csv.gz", b"PK", {}, DataError, "t.csv.gz is not packed with gzip, though its name ends in .gz"),
        ("t.csv.gz", b"x,y\n1,2\n", {}, DataError, "is not packed with gzip"),
        ("t.csv.gz", None, {}, DataError, "no such file: .*t.csv.gz. Expected a CSV file"),
        ("t.csv.gz", b"", {}, DataError, "t.csv.gz is empty: expected a first line"),
        ("t.csv.gz", gzip.compress(b"", mtime=0), {}, DataError, "t.csv.gz is empty: expected a first line"),
        (
            "t.csv.gz",
            gzip.compress(b"x,y\n1,2\n", mtime=0)[:-9],
            {},
            DataError,
            "is damaged or cut short: it ends too soon",
        ),
        (
            "t.csv.gz",
            gzip.compress(b"x,y\n1,2\n", mtime=0)[:5],
            {},
            DataError,
            "is damaged or cut short: it ends too soon",
        ),
        (
            "t.csv.gz",
            gzip.compress(b"x,y\n1,2\n", mtime=0) + b"more",
            {},
            DataError,
            "is damaged or cut short: Not a gzipped",
        ),
        ("t.csv.gz", b"\x1f\x8b\x08" + b"\0" * 7 + b"\xff" * 30, {}, DataError, "is damaged or cut short: Error -3"),
        ("t.csv.gz", gzip.compress(b"PAR1....", mtime=0), {}, DataError, "t.csv.gz is a Parquet file, not text"),
        (
            "t.csv",
            gzip.compress(b"x,y\n1,2\n", mtime=0),
            {},
            DataError,
            "is a gzip archive, not text: .* the ending .csv.gz",
        ),
        ("t.parquet.gz", b"", {}, DataError, "only CSV files are read packed with gzip. .*: gunzip t.parq"),
        ("t.xlsx.gz", b"", {}, DataError, "what kind of table is a .xlsx file"),
        ("t.parquet", b"", {}, DataError, "is empty: expected a Parquet file"),
        ("t.parquet", b"x,y\n1,2\n", {}, DataError, "cannot be read as a Parquet file"),
        ("t.feather", b"x,y\n1,2\n", {}, DataError, r"cannot be read as a Feather \(Arrow IPC\) file"),
        ("t.arrow", b"ARROW1..........", {}, DataError, r"cannot be read as a Feather \(Arrow IPC\) file"),
        ("t.csv", b"x\n1\n", {"format": "parquet"}, DataError, "cannot be read as a Parquet file"),
        ("t.csv", b"x\n1\n", {"format": "excel"}, UnknownNameError, "unknown format 'excel'"),
        ("t.csv", b"x\n1\n", {"delimiter": ", "}, SettingError, "expected a single character"),
    ],
)
def test_unusable_files_are_refused_in_words(
    name: str, content: bytes | None, settings: dict[str, Any], error: type[TopoRoError], message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=message):
        read_frame(tmp_path / name, **settings)
    with pytest.raises(error, match=message):
        list(stream_frames(str(tmp_path / name), {"x": "number"}, **settings))


def test_a_file_that_was_cut_short(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(10_000.0)})
    parquet.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, tmp_path / "t.feather")
    with ipc.new_stream(tmp_path / "s.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("t.parquet", "t.feather", "s.arrow"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-500])
        with pytest.raises(DataError, match=rf"{name} cannot be read as a"):
            read_frame(path)


# ---------------------------------------------------------------------- packed with gzip


@pytest.mark.parametrize(
    ("name", "sign", "settings"),
    [
        ("t.csv.gz", ",", {}),
        ("T.CSV.GZ", ",", {}),
        ("t.gz", ",", {}),
        ("t.txt.gz", ";", {"delimiter": ";"}),
        ("t.tsv.gz", "\t", {}),
        ("packed.gz", ",", {"format": "csv"}),
    ],
)
def test_a_packed_file_is_the_same_table(name: str, sign: str, settings: dict[str, Any], tmp_path: Path) -> None:
    text = "x,colour\n" + "".join(f"{i / 7!r},{'red' if i % 3 else 'blue'}\n" for i in range(400))
    plain = read_frame(io.BytesIO(text.encode()))
    packed = text.replace(",", sign).encode()
    # Several members in one file are what `cat a.gz b.gz` makes.
    (tmp_path / name).write_bytes(gzip.compress(packed[:1000]) + gzip.compress(packed[1000:]))
    frame = read_frame(tmp_path / name, **settings)
    assert frame.names == plain.names
    assert_array_equal(frame["x"].values, plain["x"].values)  # type: ignore[union-attr]
    assert frame.text("colour").tolist() == plain.text("colour").tolist()


def test_a_packed_file_is_read_in_portions_and_damage_is_met_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What comes before the damage was good, so only the end can tell."""
    monkeypatch.setattr(cells, "BLOCK", 1 << 12)
    monkeypatch.setattr(cells, "HEAD", 1 << 10)
    values = np.random.default_rng(0).normal(size=20_000)
    whole = gzip.compress(("x\n" + "".join(f"{value!r}\n" for value in values.tolist())).encode(), mtime=0)
    file = tmp_path / "t.csv.gz"
    file.write_bytes(whole)
    frames = list(stream_frames(file, {"x": "number"}, rows=1000))
    assert len(frames) > 20
    assert_array_equal(np.concatenate([frame["x"].values for frame in frames]), values)  # type: ignore[union-attr]
    wrong_sum = whole[:-8] + bytes(4) + whole[-4:]
    for content, why in ((whole[: len(whole) // 2], "it ends too soon"), (wrong_sum, "CRC check failed")):
        file.write_bytes(content)
        seen: list[Frame] = []
        with pytest.raises(DataError, match=rf"t\.csv\.gz is damaged or cut short: {why}\. Copy it again"):
            seen.extend(stream_frames(file, {"x": "number"}, rows=1000))
        assert seen
        with pytest.raises(DataError, match=why):
            read_frame(file)


def test_a_packed_table_does_not_fill_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """80 MB of text in a file of some hundred kB; a few blocks of it are there at a time."""
    monkeypatch.setattr(cells, "BLOCK", 1 << 18)
    monkeypatch.setattr(cells, "HEAD", 1 << 16)
    file = tmp_path / "t.csv.gz"
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(b"x,note\n")
        for _ in range(200):
            stream.write(b"1.5,a note that says nothing much at all\n" * 10_000)
    tracemalloc.start()
    try:
        rows = sum(len(frame) for frame in stream_frames(file, {"x": "number"}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == 2_000_000
    assert peak < 20e6  # how many blocks wait depends on the scheduler


# ---------------------------------------------------------------------- columns with types


def test_types_of_arrow() -> None:
    utc, plus2 = datetime(1970, 1, 2, 12, tzinfo=UTC), datetime(1970, 1, 2, 14, tzinfo=timezone(timedelta(hours=2)))
    words = pa.array(["b", "a", None])
    table = pa.table(
        {
            "int": pa.array([3, None, 2**53 + 1], pa.int64()),
            "big": pa.array([2**64 - 1, 0, None], pa.uint64()),
            "half": pa.array(np.array([0.5, 1, 2], np.float16)),
            "float": pa.array([0.25, float("nan"), None]),
            "decimal": pa.array([Decimal("1.50"), None, Decimal("-2.25")]),
            "null": pa.nulls(3),
            "bool": pa.array([True, None, False]),
            "date32": pa.array([date(1970, 1, 2), None, date(1969, 12, 31)]),
            "date64": pa.array([date(1970, 1, 2), None, date(1969, 12, 31)], pa.date64()),
            "stamp": pa.array([datetime(1970, 1, 2, 12), None, datetime(1960, 1, 1)], pa.timestamp("ns")),
            "zone": pa.array([utc, plus2, None], pa.timestamp("s", "Asia/Tokyo")),
            "string": words,
            "large": words.cast(pa.large_string()),
            "view": words.cast(pa.string_view()),
            "dictionary": pa.array([" x ", None, "x"]).dictionary_encode(),
            "categories": pa.array([1, None, 2]).dictionary_encode(),
            " padded ": pa.array([1.0, 2.0, 3.0]),
            "digits": pa.array(["01", "", "3"]),
        }
    )
    frame = read_frame(table)
    expected: dict[str, list[Any]] = {
        "int": [3, None, 2**53],
        "big": [2.0**64, 0, None],
        "half": [0.5, 1, 2],
        "float": [0.25, None, None],
        "decimal": [1.5, None, -2.25],
        "null": [None] * 3,
        "bool": ["true", None, "false"],
        "date32": [1, None, -1],
        "date64": [1, None, -1],
        "stamp": [1.5, None, -3653],
        "zone": [1.5, 1.5, None],
        "string": ["b", "a", None],
        "large": ["b", "a", None],
        "view": ["b", "a", None],
        "dictionary": ["x", None, "x"],
        "categories": ["1", None, "2"],
        "padded": [1, 2, 3],
        "digits": ["01", None, "3"],
    }
    assert {name: plain(frame, name) for name in frame.names} == expected
    assert {name for name in frame.names if frame[name].kind == "date"} == {"date32", "date64", "stamp", "zone"}
    assert frame.where == "the data frame"
    written = read_frame(table, text=frame.names)
    assert plain(written, "int") == ["3", None, "9007199254740993"]
    assert plain(written, "big") == ["18446744073709551615", "0", None]
    assert plain(written, "decimal") == ["1.50", None, "-2.25"]
    assert plain(written, "float") == ["0.25", None, None]
    assert plain(written, "zone") == ["1970-01-02T12:00:00", "1970-01-02T12:00:00", None]
    assert plain(written, "date32") == ["1970-01-02", None, "1969-12-31"]
    kinds = {name: frame[name].kind for name in frame.names}
    same(next(stream_frames(table, kinds)), frame)
    same(next(stream_frames(table, dict.fromkeys(kinds, "text"))), written)
    same(read_frame(table.to_batches()[0]), frame)


def test_columns_that_are_no_numbers_dates_or_text_are_an_error_when_used(tmp_path: Path) -> None:
    table = pa.table({"x": [1.0], "list": [[1]], "struct": [{"a": 1}], "bytes": [b"a"], "time": [timedelta(1)]})
    frame = read_frame(table)
    assert frame.names == ("x",)
    assert set(frame.unusable) == {"list", "struct", "bytes", "time"}
    with pytest.raises(
        DataError, match=r"column 'list' of the data frame cannot be used: it holds values of type list<"
    ):
        frame["list"]
    for kind in ("text", "number"):
        with pytest.raises(DataError, match="column 'bytes' of the data frame cannot be used: it holds"):
            list(stream_frames(table, {"bytes": kind}))
    with pytest.raises(DataError, match=r"no column that can be used .'list': it holds"):
        read_frame(table, columns=["list"])
    parquet.write_table(table.drop_columns("time"), tmp_path / "t.parquet")
    assert set(read_frame(tmp_path / "t.parquet").unusable) == {"list", "struct", "bytes"}
    same(next(stream_frames(tmp_path / "t.parquet", {"x": "number"})), frame)


@pytest.mark.parametrize(
    ("values", "kind", "found"),
    [
        ([1, 2.5, None], "number", [1, 2.5, None]),
        (np.array([1, 2], np.int8), "number", [1, 2]),
        ([2**70, 1], "number", [2.0**70, 1]),
        ([Decimal("1.5"), 2], "number", [1.5, 2]),
        (["a", None, "b"], "text", ["a", None, "b"]),
        (np.array(["a", "b"]), "text", ["a", "b"]),
        (("a", 1, 2.5, True, None, float("nan")), "text", ["a", "1", "2.5", "true", None, None]),
        ([True, False], "text", ["true", "false"]),
        ([date(1970, 1, 2), None], "date", [1, None]),
        (np.array(["1970-01-02", "NaT"], "datetime64[D]"), "date", [1, None]),
        ([None, None], "number", [None, None]),
        (pa.chunked_array([[1.0], [2.0]]), "number", [1, 2]),
    ],
    ids=str,
)
def test_columns_of_python_and_numpy(values: Any, kind: str, found: list[Any]) -> None:
    frame = read_frame({"x": values, "other": list(range(len(values)))})
    assert frame["x"].kind == kind
    assert plain(frame, "x") == found


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"x": "abc"}, "column 'x' of the data is a str: expected a sequence"),
        ({"x": 3}, "column 'x' of the data is a int"),
        ({"x": [1], "y": [1, 2]}, "differ in length: {'x': 1, 'y': 2}"),
        ({1: [1], "1": [2]}, "several columns named '1'"),
        ({"x": [object(), "a"]}, "no column that can be used .'x': it holds Python objects such as object"),
        ({"x": [1j, 2j]}, "'x': it holds Python objects such as complex"),
        ({"x": np.zeros((2, 2))}, "'x': it has 2 dimensions"),
        ({"x": []}, "has a header but no rows"),
        ({}, "has no columns"),
        ([1, 2], "cannot read a table from list"),
        (3, "cannot read a table from int"),
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
            "period": pd.period_range("2020", periods=3, freq="D"),
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
    assert set(frame.unusable) == {"nested", "period"}
    with pytest.raises(DataError, match="column 'period' of the data frame cannot be used"):
        frame["period"]
    with pytest.raises(DataError, match="several columns named 'x'"):
        read_frame(pd.concat([source, source[["x"]]], axis=1))
    (portion,) = stream_frames(source[["x", "when"]], {"when": "date"})
    assert plain(portion, "when") == [1, None, 2.5]


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
        same(read_frame(tmp_path / name), frame)
    with pytest.raises(DataError, match="lazy frame: collect"):
        read_frame(source.lazy())


# ---------------------------------------------------------------------- portions


@pytest.mark.parametrize(
    ("values", "kind"),
    [([True], "number"), ([1.0], "date"), ([date(2020, 1, 1)], "number"), ([True], "date"), ([[1]], "text")],
)
def test_a_column_of_another_type_is_an_error(values: list[Any], kind: str) -> None:
    with pytest.raises(DataError, match=r"column 'x'.*: it holds values of type "):
        list(stream_frames(pa.table({"x": values}), {"x": kind}))


def test_errors_come_when_their_row_does() -> None:
    """What stands before a bad cell was given out already: nothing waits for the end of the file."""
    frames = stream_frames(csv_of("x\n1\n2\nq\n"), {"x": "number"}, rows=2)
    assert plain(next(frames), "x") == [1, 2]
    with pytest.raises(DataError, match="row 3, column 'x': 'q'"):
        next(frames)


def test_a_large_row_group_comes_in_portions(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"x": np.arange(1000.0), "y": np.arange(1000)}), tmp_path / "t.parquet")
    feather.write_feather(pa.table({"x": np.arange(1000.0), "y": np.arange(1000)}), tmp_path / "t.feather")
    for name in ("t.parquet", "t.feather"):
        frames = list(stream_frames(tmp_path / name, {"y": "text", "x": "number"}, rows=300))
        assert [(len(frame), frame.first) for frame in frames] == [(300, 1), (300, 301), (300, 601), (100, 901)]
        assert joined(frames) == {"y": [str(i) for i in range(1000)], "x": list(range(1000))}
