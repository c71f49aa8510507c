"""Files of every format give typed columns, and what is damaged or a trap is an error in words, never a crash."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import feather, ipc, parquet

from tests.data.cases import rows_as_csv
from tests.data.sources import content, plain
from toporo.data import formats, frame
from toporo.data.frame import Frame, read_frame, stream_frames
from toporo.errors import DataError, SettingError

WRITE = {"t.parquet": parquet.write_table, "t.feather": feather.write_feather}
PLAIN = "height,weight,state\n1.5,10,PA\n2,20,NY\n-3e2,30,PA\n"


def csv_of(text: str | bytes) -> io.BytesIO:
    return io.BytesIO(text if isinstance(text, bytes) else text.encode())


def same(one: Frame, other: Frame) -> None:
    assert content(one) == content(other)


# ---------------------------------------------------------------------- cells of CSV


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", "-2.5", "3e2", ".5", "5.", "+7"], "number", [1, -2.5, 300, 0.5, 5, 7]),
        ([" 1 ", "\t2", "3\xa0"], "number", [1, 2, 3]),
        (["1", "", "NaN", "NA", " n/a ", "#N/A", "null", "None", "nan"], "number", [1, *[None] * 8]),
        (["", "NA", ""], "number", [None] * 3),
        (["007", "1"], "number", [7, 1]),
        (["1e-999", "9007199254740993"], "number", [0, 2.0**53]),
        (["1_000", "1"], "text", ["1_000", "1"]),
        (["0x10", "1"], "text", ["0x10", "1"]),
        (["1,5", "1"], "text", ["1,5", "1"]),
        (["True", "false"], "text", ["True", "false"]),
        (["a", " a ", "", "NA", "A"], "text", ["a", "a", None, "NA", "A"]),
        (["inf", "x"], "text", ["inf", "x"]),
        (["1970-01-02", "", "NA", "2020-02-29"], "date", [1, None, None, 18321]),
        (["1970-01-02T12:00", "1970-01-02 06:00:00", " 1970-01-02"], "date", [1.5, 1.25, 1]),
        (["1970-01-02T00:00Z", "", "1970-01-02T12:00:00+02:00"], "date", [1, None, 1 + 10 / 24]),
        (["2020-02-30", "2020-02-01"], "text", ["2020-02-30", "2020-02-01"]),
        (["20200101", "2020-01-01"], "text", ["20200101", "2020-01-01"]),
        (["12:30", "13:30"], "text", ["12:30", "13:30"]),
        (["ÅÄ", "日本", "a\0b", 'say "x"', "two\nlines"], "text", ["ÅÄ", "日本", "a\0b", 'say "x"', "two\nlines"]),
        (["x" * 300_000, "y"], "text", ["x" * 300_000, "y"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_column_is_what_all_its_cells_are(cells: list[str], kind: str, values: list[Any]) -> None:
    table = rows_as_csv({"x": cells, "i": [str(i) for i in range(len(cells))]})
    read = read_frame(csv_of(table))
    assert (read["x"].kind, plain(read, "x")) == (kind, values)
    (portion,) = stream_frames(csv_of(table), {"x": kind})
    assert plain(portion, "x") == values


@pytest.mark.parametrize("late", ["q", "2020-01-01", ""])
def test_cells_beyond_the_first_rows_decide_too(late: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows suggest a kind; where a later cell differs, the table is read again."""
    monkeypatch.setattr(formats, "BLOCK", 64)
    rows = {"n": [*map(str, range(99)), late], "e": [""] * 99 + [late], "d": ["2020-01-01"] * 99 + [late]}
    read = read_frame(csv_of(rows_as_csv(rows)))
    expected = {"q": ["text", "text", "text"], "": ["number", "number", "date"], "2020-01-01": ["text", "date", "date"]}
    assert [read[name].kind for name in "ned"] == expected[late]
    assert read.text("n").tolist() == [*map(str, range(99)), late or None]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        "\n" + PLAIN.replace("\n", "\n\n"),
        PLAIN.rstrip("\n"),
        PLAIN.replace(",", " , "),
        '"height","weight","state"\n"1.5","10","PA"\n2,"20 ",NY\n-3e2,30,"PA"\n',
    ],
    ids=["BOM", "CRLF", "CR", "blank lines", "no last newline", "spaces", "quotes"],
)
def test_the_usual_ways_to_write_a_table_are_the_same_table(text: str) -> None:
    same(read_frame(csv_of(text)), read_frame(csv_of(PLAIN)))


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " "])
def test_another_delimiter(delimiter: str, tmp_path: Path) -> None:
    text = PLAIN.replace(",", delimiter)
    same(read_frame(csv_of(text), delimiter=delimiter), read_frame(csv_of(PLAIN)))
    (tmp_path / "t.tsv").write_text(PLAIN.replace(",", "\t"))
    same(read_frame(tmp_path / "t.tsv"), read_frame(csv_of(PLAIN)))


def test_columns_kept_as_text_and_columns_without_a_name() -> None:
    text = "zip,n,d,,\n01,1,2020-01-01,inf,x\n1,2,NA,,x\n,3,,,x\n1.0,4,2020-01-02,,x\n"
    read = read_frame(csv_of(text), text=["zip", "d", "absent"])
    assert read.names == ("zip", "n", "d")
    assert plain(read, "zip") == ["01", "1", None, "1.0"]
    assert plain(read, "d") == ["2020-01-01", "NA", None, "2020-01-02"]
    assert plain(read_frame(csv_of(text), text="zip"), "d")[0] == 18262


def test_a_last_cell_of_several_lines_is_told_from_an_open_quote() -> None:
    for end in ("", "\n", "\n" * 100):
        assert plain(read_frame(csv_of('x,g\n1,a\n2,"b\nc"' + end)), "g") == ["a", "b\nc"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "standard input cannot be read as CSV .Empty CSV file"),
        ("x,g", "cannot be read as CSV .*Empty CSV file"),
        ("x,g\n\n\n", "has a header but no rows"),
        (b"x,g\n1,\xe9\n", "cannot be read as CSV .*UTF8.*whole text in UTF-8"),
        (b"x,\xe9\n1,2\n", "cannot be read as CSV .*0xe9.*whole text in UTF-8"),
        ("x,g\n1,a\n".encode("utf-16"), "standard input is a workbook, an archive or text in UTF-16"),
        ("x,g\n1,a\n\n2,b,3\n4\n", "cannot be read as CSV .*Expected 2 columns, got 3: 2,b,3.*stands in double quotes"),
        ('x,g\n1,"a\nb"\n2\n', "Row #3: Expected 2 columns, got 1: 2"),
        ('x,g\n1,a\n2,"b\n', r"not valid CSV \(a double quote before 'b' is not closed"),
        ('x,g\n1,a\n2,"b\n3,c\n4,d\n', "not valid CSV"),
        ('x,"g\n1,2\n', "cannot be read as CSV .*Empty CSV file"),
        ("x,y, x\n1,2,3\n", "several columns named 'x'"),
        (PLAIN.replace(",", ";"), "separated by ';'. Say so: --delimiter ';'"),
        (PLAIN.replace(",", "\t"), "--delimiter tab"),
        ("x,y\n1,2\n3,inf\n5,-Infinity\n", r"2 infinite value\(s\) \(first: row 2, column 'y'\)"),
        ("x,y\n1,2\n3,1e999\n", r"first: row 2, column 'y'"),
        (",\n1,2\n", "has no column that can be used"),
        (b"PK\x03\x04...", "standard input is a workbook, an archive or text in UTF-16"),
        (b"PAR1....", "cannot be read as a Parquet file"),
        (b"ARROW1......", r"cannot be read as a Feather \(Arrow IPC\) file"),
    ],
)  # fmt: skip
def test_unusable_content_is_refused_in_words(text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_frame(csv_of(text))
    with pytest.raises(SettingError, match="expected a single character"):
        read_frame(csv_of(text), delimiter=", ")


def test_a_row_longer_than_a_block_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "BLOCK", 100)
    with pytest.raises(DataError, match=r"cannot be read as CSV .*straddling.*quote"):
        read_frame(csv_of('x,g\n1,"a\n' + "2,b\n" * 100))


# ---------------------------------------------------------------------- packed with gzip


@pytest.mark.parametrize("name", ["t.csv.gz", "T.CSV.GZ", "t.tsv.gz", "any"])
def test_a_packed_file_is_the_same_table(name: str, tmp_path: Path) -> None:
    text = "x,colour\n" + "".join(f"{i / 7!r},{'red' if i % 3 else 'blue'}\n" for i in range(400))
    packed = text.replace(",", "\t" if ".tsv" in name else ",").encode()
    # Several members in one file are what `cat a.gz b.gz` makes.
    (tmp_path / name).write_bytes(gzip.compress(packed[:1000]) + gzip.compress(packed[1000:]))
    same(read_frame(tmp_path / name), read_frame(csv_of(text)))


def test_a_packed_file_is_read_in_portions_and_damage_is_met_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What comes before the damage was good, so only the end can tell."""
    monkeypatch.setattr(formats, "BLOCK", 1 << 12)
    values = np.random.default_rng(0).normal(size=20_000)
    whole = gzip.compress(("x\n" + "".join(f"{value!r}\n" for value in values.tolist())).encode(), mtime=0)
    file = tmp_path / "t.csv.gz"
    file.write_bytes(whole)
    frames = list(stream_frames(file, {"x": "number"}, rows=1000))
    assert len(frames) > 20
    assert_array_equal(np.concatenate([frame["x"].values for frame in frames]), values)  # type: ignore[union-attr]
    for damaged in (whole[: len(whole) // 2], whole[:-8] + bytes(4) + whole[-4:], whole + b"more", whole[:5]):
        file.write_bytes(damaged)
        with pytest.raises(
            DataError, match=r"t\.csv\.gz cannot be read as CSV \((Truncated compressed stream|zlib inflate failed)"
        ):
            list(stream_frames(file, {"x": "number"}, rows=1000))
        with pytest.raises(DataError, match=r"cannot be read as CSV \((Trunc|zlib)"):
            read_frame(file)


def test_a_packed_table_does_not_fill_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """80 MB of text in a file of some hundred kB; a few blocks of it are there at a time."""
    monkeypatch.setattr(formats, "BLOCK", 1 << 18)
    file = tmp_path / "t.csv.gz"
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(b"x,note\n")
        for _ in range(200):
            stream.write(b"1.5,a note that says nothing much at all\n" * 10_000)
    before, most = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    try:
        rows = 0
        for portion in stream_frames(file, {"x": "number"}):
            rows, most = rows + len(portion), max(most, pa.total_allocated_bytes() - before)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == 2_000_000
    assert peak + most < 20e6


# ---------------------------------------------------------------------- Parquet and Feather


def test_a_large_row_group_comes_in_portions(tmp_path: Path) -> None:
    for name, write in WRITE.items():
        write(pa.table({"x": np.arange(1000.0), "y": np.arange(1000)}), tmp_path / name)
        frames = list(stream_frames(tmp_path / name, {"y": "text", "x": "number"}, rows=300))
        assert [(len(frame), frame.first) for frame in frames] == [(300, 1), (300, 301), (300, 601), (100, 901)]
        assert [cell for frame in frames for cell in plain(frame, "y")] == [str(i) for i in range(1000)]


@pytest.mark.parametrize("name", WRITE)
def test_text_that_is_none(name: str, tmp_path: Path) -> None:
    """In cells, in categories, in the name of a column, and in a time zone."""
    columns = {"wörd": ["añb", "ok"], "c": pa.array(["cäb", "ok"]).dictionary_encode()}
    path, table = tmp_path / name, pa.table(columns | {"t": pa.array([1, 2], pa.timestamp("us", "zöne"))})
    WRITE[name](table.replace_schema_metadata(), path, compression="uncompressed" if name[-1] == "r" else "none")
    whole = path.read_bytes()
    assert read_frame(path)["wörd"].tolist() == ["añb", "ok"]  # type: ignore[union-attr]
    for word in ("añb", "cäb", "wörd"):
        path.write_bytes(whole.replace(word.encode(), word.encode().replace(b"\xc3", b"\xff")))
        with pytest.raises(DataError, match=r"cannot be read as a .* file .*[uU][tT][fF]-?8"):
            read_frame(path)
    path.write_bytes(whole.replace("zöne".encode(), b"z\xff\xb6ne"))
    assert len(read_frame(path)) == 2  # moments count from 1970, whatever the zone


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    """Before it is read, and meanwhile."""
    table = pa.table({"x": np.random.default_rng(0).normal(size=200_000)})
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=50_000)
    feather.write_feather(table, str(tmp_path / "t.feather"), chunksize=50_000)
    with ipc.new_stream(str(tmp_path / "s.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=50_000)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[:-500])
        with pytest.raises(DataError, match=rf"{path.name} cannot be read as a .* file .* Write it anew"):
            read_frame(path)
        path.write_bytes(whole)
        if path.suffix == ".arrow":  # a stream may end after any batch
            continue
        frames = stream_frames(path, {"x": "number"}, rows=10_000)
        assert len(next(frames)) == 10_000
        with path.open("r+b") as stream:
            stream.truncate(1000)
        with pytest.raises(DataError, match=f"{path.name} (cannot be read as a|has changed .*, or is damaged: found)"):
            list(frames)


@pytest.mark.parametrize("name", WRITE)
def test_a_table_that_unpacks_without_end_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    WRITE[name](pa.table({"x": np.zeros(2_000_000), "n": pa.nulls(2_000_000)}), path, compression="zstd")
    assert len(read_frame(path)) == 2_000_000  # a little is always let through
    monkeypatch.setattr(frame, "ALWAYS", 0)
    with pytest.raises(DataError, match=f"{name} unpacks to more than 1,000 times its size"):
        read_frame(path)
    assert sum(map(len, stream_frames(path, {"x": "number"}))) == 2_000_000  # no more than a portion at a time


def test_too_little_memory_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    """As where a damaged file claims to hold more than there is."""
    sink, table = io.BytesIO(), pa.table({"x": np.zeros(1000)})
    with ipc.new_file(sink, table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    claim = (8000).to_bytes(8, "little")  # stands before the packed part
    before, _, after = sink.getvalue().rpartition(claim)
    (tmp_path / "t.feather").write_bytes(before + (1 << 60).to_bytes(8, "little") + after)
    with pytest.raises(DataError, match=r"t\.feather cannot be read: not enough memory .*it is damaged"):
        read_frame(tmp_path / "t.feather")


@pytest.mark.parametrize("name", WRITE)
def test_row_labels_that_pandas_wrote_are_no_column(name: str, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    source = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "g": ["a", "b", "c", "d"]}).sample(frac=1, random_state=0)
    for given in (source, source.set_index(["g", source.index]), source.set_index("g")):
        table = pa.Table.from_pandas(given)
        WRITE[name](table, tmp_path / name)
        assert read_frame(table).names == read_frame(tmp_path / name).names == ("x", "g")
