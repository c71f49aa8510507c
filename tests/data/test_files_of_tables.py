"""Tables of many files: folders, patterns, hive's keys, and addresses of a store that a server of our own plays."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from pyarrow import feather, parquet

from toporo.data import stores
from toporo.data import table as data_table
from toporo.data.frame import Frame, read_frame, stream_frames
from toporo.data.table import find_table
from toporo.errors import DataError, SettingError

WRITE = {"parquet": parquet.write_table, "feather": feather.write_feather, "csv": arrow_csv.write_csv}


def table(rows: int = 10, start: int = 0) -> Any:
    numbers = np.arange(start, start + rows, dtype=float)
    return pa.table({"x": numbers / 8, "g": [f"g{int(i) % 3}" for i in numbers]})


def content(frame: Frame) -> dict[str, list[Any]]:
    """Columns as lists, what is missing as None."""
    texts = {name: frame.text(name).tolist() for name in frame.columns}
    kinds: dict[str, Any] = {name: frame[name].kind for name in frame.columns}
    return texts | {"kinds": [kinds]}


def streamed(source: Any, kinds: dict[str, str], rows: int = 7) -> dict[str, list[str | None]]:
    frames = list(stream_frames(source, kinds, rows=rows))
    return {name: [cell for frame in frames for cell in frame.text(name).tolist()] for name in kinds}


# ---------------------------------------------------------------- what a table is


@st.composite
def splits(draw: Any) -> tuple[Any, list[int], int, str]:
    """A table, where it is cut into files, how long row groups are, and the format."""
    rows = draw(st.integers(1, 40))
    number = st.none() | st.floats(-100, 100).map(lambda x: round(x, 3))
    columns = {
        "x": pa.array(draw(st.lists(number, min_size=rows, max_size=rows)), pa.float64()),
        "n": pa.array(draw(st.lists(st.integers(-5, 5), min_size=rows, max_size=rows)), pa.int64()),
        "g": pa.array(draw(st.lists(st.sampled_from(["a", "b", "ü c", "NA"]), min_size=rows, max_size=rows))),
    }
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=4)))
    return pa.table(columns), cuts, draw(st.integers(1, 20)), draw(st.sampled_from(["parquet", "feather", "csv"]))


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=splits(), few=st.integers(1, 30))
def test_any_split_is_the_same_table(tmp_path_factory: Any, case: Any, few: int) -> None:
    whole, cuts, in_group, kind = case
    folder = tmp_path_factory.mktemp("split")
    bounds = [0, *cuts, len(whole)]
    for place, (start, stop) in enumerate(pairwise(bounds)):
        more = {"row_group_size": in_group} if kind == "parquet" else {}
        WRITE[kind](whole.slice(start, stop - start), str(folder / f"part-{place}.{kind}"), **more)
    WRITE[kind](whole, str(folder / f"_whole.{kind}"))  # hidden
    expected = read_frame(folder / f"_whole.{kind}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_table, "CHUNK_ROWS", few)
        for source in (folder, f"{folder}/*.{kind}", f"{folder}/part-?.{kind}", folder.as_uri()):
            assert content(read_frame(source)) == content(expected)
        kinds = {name: expected[name].kind for name in expected.columns}
        assert streamed(folder, kinds, few) == streamed(folder / f"_whole.{kind}", kinds)
        pieces = find_table(folder)
        one_by_one = [streamed(pieces.only([piece]), kinds) for piece in pieces.chunks if kind == "parquet"]
        if one_by_one:
            assert {n: [cell for part in one_by_one for cell in part[n]] for n in kinds} == streamed(folder, kinds)
        if kind == "parquet":
            assert pieces.rows == len(whole)


def test_keys_that_are_no_numbers(tmp_path: Path) -> None:
    for value in ("01", "%C3%BC", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"month={value}" / "year=2024").mkdir(parents=True)
        parquet.write_table(table(2), tmp_path / f"month={value}" / "year=2024" / "a.parquet")
    read = read_frame(tmp_path)
    assert read.text("month").tolist() == ["ü", "ü", "01", "01", None, None]
    assert read["year"].kind == "number"
    assert read_frame(tmp_path, columns=["year"])["year"].values.tolist() == [2024.0] * 6  # type: ignore[union-attr]


def test_files_that_do_not_count(tmp_path: Path) -> None:
    parquet.write_table(table(3), tmp_path / "a.parquet")
    parquet.write_table(table(0), tmp_path / "b.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".a.parquet.crc").write_bytes(b"\1\2")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "c.parquet").write_bytes(b"half")
    assert len(read_frame(tmp_path)) == 3
    assert len(find_table(tmp_path).chunks) == 1
    parquet.write_table(table(0), tmp_path / "a.parquet")
    for read in (read_frame, lambda source: list(stream_frames(source, {"x": "number"}))):
        with pytest.raises(DataError, match="has a header but no rows"):
            read(tmp_path)


def test_columns_of_other_types_and_in_another_order(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"x": [1, 2], "g": ["a", "b"], "t": pa.nulls(2)}), tmp_path / "a.parquet")
    other = {"t": ["u", None], "g": pa.array(["b", "a"]).dictionary_encode(), "x": pa.array([0.5, None], pa.float32())}
    parquet.write_table(pa.table(other), tmp_path / "b.parquet")
    half = {"x": pa.array(np.asarray([3, 4], np.float16)), "g": ["c", "c"], "t": ["u", "u"]}
    parquet.write_table(pa.table(half), tmp_path / "c.parquet")
    read = read_frame(tmp_path)
    assert read.text("x").tolist() == ["1", "2", "0.5", None, "3", "4"]
    assert read.text("g").tolist() == ["a", "b", "b", "a", "c", "c"]
    assert read.text("t").tolist() == [None, None, "u", None, "u", "u"]
    assert streamed(tmp_path, {"t": "text", "x": "number"})["t"] == read.text("t").tolist()


def test_packed_and_tabbed_files_of_cells(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.csv").write_text("x,g\n1,a\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"g,x\nb,2\n"))
    (tmp_path / "c.tsv").write_text("g\tx\nc\t3\n")
    assert read_frame(tmp_path).text("g").tolist() == ["a", "b", "c"]
    assert read_frame(tmp_path)["x"].values.tolist() == [1.0, 2.0, 3.0]  # type: ignore[union-attr]


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    parquet.write_table(table(3), tmp_path / "a[1].parquet")
    assert len(read_frame(tmp_path / "a[1].parquet")) == 3
    with pytest.raises(DataError, match="A name of a file has no NUL"):
        read_frame("a\0*")


def test_messages_name_the_file_and_its_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,g\n1,a\n2,b\n")
    (tmp_path / "b.csv").write_text("x,g\n1,a\nwhat,b\n")
    with pytest.raises(DataError, match=r"b\.csv, row 2, column 'x': 'what' is not a number"):
        list(stream_frames(tmp_path, {"x": "number"}))
    (tmp_path / "b.csv").write_text("x,g\n1,a,3\n")
    with pytest.raises(DataError, match=r"b\.csv, row 1 after the header: found 3 cells, expected 2"):
        read_frame(tmp_path)


# ---------------------------------------------------------------- what is none


def hive_twice(folder: Path) -> None:
    (folder / "g=a").mkdir()
    parquet.write_table(table(), folder / "g=a" / "a.parquet")


def other_keys(folder: Path) -> None:
    for name in ("s=a", "state=b"):
        (folder / name).mkdir()
        parquet.write_table(table(), folder / name / "a.parquet")


def key_twice(folder: Path) -> None:
    (folder / "s=a" / "s=b").mkdir(parents=True)
    parquet.write_table(table(), folder / "s=a" / "s=b" / "a.parquet")


def truncated(folder: Path) -> None:
    parquet.write_table(table(), folder / "a.parquet")
    (folder / "b.parquet").write_bytes((folder / "a.parquet").read_bytes()[:-20])


def two(other: Any) -> Any:
    def write(folder: Path) -> None:
        parquet.write_table(table(), folder / "a.parquet")
        if isinstance(other, tuple):
            (folder / other[0]).write_text(other[1])
        else:
            parquet.write_table(other, folder / "b.parquet")

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (two(("b.csv", "x,g\n1,a\n")), r"holds files of several formats: \S*a\.parquet is parquet, \S*b\.csv is csv"),
        (two(("README.md", "text")), r"README\.md: what kind of table is a \.md file\?"),
        (two(("b.parquet", "")), r"b\.parquet is empty: expected a Parquet file"),
        (two(table().drop_columns(["g"])), r"b\.parquet has other columns than \S*a\.parquet: it lacks 'g'\. Expected"),
        (two(table().append_column("h", table()["x"])), r"b\.parquet has other columns than .*: it has 'h' besides"),
        (two(table().rename_columns(["g", "x"])), r"b\.parquet, column 'g': it holds values of type double, but th"),
        (truncated, r"b\.parquet cannot be read as a Parquet file \(.*\)\. Is it whole"),
        (hive_twice, r"a\.parquet has the column\(s\) 'g', which the names of its folders say too"),
        (other_keys, r"lies in folders that say 'state', but \S*a\.parquet in folders that say 's'"),
        (key_twice, r"lies in folders that say 's' twice"),
        (lambda folder: None, r"holds no table: expected files"),
    ],
)  # fmt: skip
def test_folders_that_are_no_table(tmp_path: Path, write: Any, message: str) -> None:
    write(tmp_path)
    for read in (read_frame, find_table, lambda source: list(stream_frames(source, {"x": "number"}))):
        with pytest.raises(DataError, match=message):
            read(str(tmp_path))


def test_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    parquet.write_table(table(), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"b\*\.parquet matches no file: expected files in Parquet"):
        read_frame(str(tmp_path / "b*.parquet"))


def test_files_that_go_or_change_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_table, "CHUNK_ROWS", 2)
    path = tmp_path / "b.parquet"
    for name in ("a", "b"):
        parquet.write_table(table(6), tmp_path / f"{name}.parquet", row_group_size=2)
    before = find_table(tmp_path)
    assert [piece.first for piece in before.chunks] == [1, 3, 5, 1, 3, 5]
    parquet.write_table(table(5), path, row_group_size=2)
    with pytest.raises(DataError, match=r"b\.parquet has changed since the table was listed: it has 1 row by now wh"):
        list(stream_frames(before, {"x": "number"}))
    parquet.write_table(table(6).drop_columns(["g"]), path, row_group_size=2)
    with pytest.raises(DataError, match=r"b\.parquet has changed since the table was listed: it lacks 'g' by now"):
        list(stream_frames(before, {"x": "number"}))
    path.unlink()
    with pytest.raises(DataError, match=r"b\.parquet has disappeared since the table was listed"):
        list(stream_frames(before, {"x": "number"}))
    frames = stream_frames(before, {"x": "number"})
    next(frames)
    (tmp_path / "a.parquet").unlink()  # between two pieces of it
    with pytest.raises(DataError, match=r"a\.parquet has disappeared since the table was listed"):
        next(frames)


# ---------------------------------------------------------------- addresses


class Fake(BaseHTTPRequestHandler):
    """As much of S3 as reading takes; ``objects`` holds the content by key, ``requests`` what was asked."""

    objects: dict[str, bytes]
    requests: list[str]
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one, else they wait for each other

    def log_message(self, *_: Any) -> None:
        return

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        body = self.objects.get(unquote(urlsplit(self.path).path).lstrip("/"))
        if body is None:
            self.answer(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()

    def do_GET(self) -> None:
        self.requests.append(self.path)
        parts = urlsplit(self.path)
        key, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query)
        if "list-type" in query:
            return self.answer(200, self.listing(key, query.get("prefix", [""])[0]), Content_Type="application/xml")
        body = self.objects.get(key)
        if body is None:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not span:
            return self.answer(200, body)
        first, last = int(span[1]), min(int(span[2]), len(body) - 1)
        said = f"bytes {first}-{last}/{len(body)}"
        return self.answer(206, body[first : last + 1], Content_Range=said)

    def listing(self, bucket: str, prefix: str) -> bytes:
        bucket = bucket.strip("/")
        keys = [key.removeprefix(f"{bucket}/") for key in sorted(self.objects) if key.startswith(f"{bucket}/{prefix}")]
        each = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[f'{bucket}/{key}'])}</Size>"
            "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        return (
            f'<?xml version="1.0"?><ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>'
            f"<KeyCount>{len(keys)}</KeyCount><IsTruncated>false</IsTruncated>{each}</ListBucketResult>"
        ).encode()


@contextmanager
def serving(handler: Any) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[Fake], str]]:
    for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "Sesame", "AWS_REGION": "eu-x",
                        "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    fake = type("Served", (Fake,), {"objects": {}, "requests": []})
    with serving(fake) as place:
        yield fake, place


def put(fake: type[Fake], key: str, folder: Path, content: Any) -> None:
    kind = key.rpartition(".")[2]
    WRITE[kind](content, str(folder / f"file.{kind}"))
    fake.objects[key] = (folder / f"file.{kind}").read_bytes()


@pytest.mark.parametrize("kind", ["parquet", "feather", "csv"])
def test_tables_of_a_store(
    store: tuple[type[Fake], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fake, place = store
    for month in (1, 2):
        put(fake, f"bucket/sales/month={month}/part-0.{kind}", tmp_path, table(5, start=5 * month))
    fake.objects["bucket/sales/_SUCCESS"] = b""
    expected = [str(i / 8).removesuffix(".0") for i in range(5, 15)]
    asking = f"?scheme=http&endpoint_override={place}"
    for source in (f"s3://bucket/sales{asking}", f"s3://bucket/sales/month=*/*.{kind}{asking}"):
        read = read_frame(source)
        assert read.text("x").tolist() == expected
        assert read.text("month").tolist() == ["1"] * 5 + ["2"] * 5
        assert read.where.startswith("s3://bucket/sales")
        assert "?" not in read.where
        assert streamed(source, {"x": "number", "month": "number"})["x"] == expected
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{place}")
    assert len(read_frame(f"s3://bucket/sales/month=2/part-0.{kind}")) == 5
    assert not any("Sesame" in request for request in fake.requests)


def test_a_store_s_file_that_disappears(store: tuple[type[Fake], str], tmp_path: Path) -> None:
    fake, place = store
    for name in "ab":
        put(fake, f"bucket/sales/{name}.parquet", tmp_path, table(5))
    sales = find_table(f"s3://bucket/sales?scheme=http&endpoint_override={place}")
    del fake.objects["bucket/sales/b.parquet"]
    with pytest.raises(DataError, match=r"s3://bucket/sales/b\.parquet has disappeared since the table was listed"):
        list(stream_frames(sales, {"x": "number"}))
    with pytest.raises(DataError, match=r"s3://bucket/nothing holds no table"):
        find_table(f"s3://bucket/nothing?scheme=http&endpoint_override={place}")


def test_addresses_without_an_answer(store: tuple[type[Fake], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "ATTEMPTS", 1)
    refusing = type("Refusing", (Fake,), {"do_HEAD": lambda self: self.answer(403)})
    message = r"cannot read s3://bucket/a: .*ACCESS_DENIED.*Check the address"
    with serving(refusing) as place, pytest.raises(DataError, match=message) as caught:
        read_frame(f"s3://bucket/a?scheme=http&endpoint_override={place}")
    assert "Sesame" not in str(caught.value)
    started = time.monotonic()
    with pytest.raises(DataError, match=r"cannot read s3://bucket/a: .*[Cc]onnect.*Check the address, the network"):
        read_frame("s3://bucket/a?scheme=http&endpoint_override=127.0.0.1:1")
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("s3://key:Sesame@bucket/a", SettingError, "holds a user or a secret"),
        ("s3://bucket/a?endpoint_override=me:Sesame@host", SettingError, "holds a user or a secret"),
        ("s3://bucket/a?secret_key=Sesame", SettingError, r"s3://bucket/a has 'secret_key' behind its \?"),
        ("https://me:Sesame@host/a.csv?X-Signature=Sesame", DataError, r"cannot read https://host/a\.csv: expected"),
        ("s3://", DataError, "s3:// names no bucket"),
        ("file:///no/such/folder", DataError, "file:///no/such/folder holds no table"),
    ],
)  # fmt: skip
def test_addresses_that_are_none(address: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        read_frame(address)
    assert "Sesame" not in str(caught.value)


# ---------------------------------------------------------------- ahead of use


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no such advice")
def test_a_piece_is_fetched_from_where_it_begins_to_where_the_next_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_table, "CHUNK_ROWS", 200)
    table = pa.table({"x": np.arange(1000.0), "name": [f"row {row}" for row in range(1000)]})
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    whole = find_table(tmp_path / "t.parquet")
    size = (tmp_path / "t.parquet").stat().st_size
    spans = [piece.span for piece in whole.chunks]
    assert len(spans) == 5
    assert [spans[0][0], spans[-1][1]] == [4, size]
    assert all(one[1] == other[0] for one, other in pairwise(spans))
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, start, length, __: asked.append((start, length)))
    for piece in whole.chunks:
        whole.fetch(piece)
    assert [start for start, _ in asked] == [start for start, _ in spans]
    assert all(start + length >= end for (start, length), (_, end) in zip(asked, spans, strict=True))
    whole.fetch(replace(whole.chunks[0], span=(4, 2**62)))
    assert len(asked) == 6, "none beyond the end of the file"
    (tmp_path / "t.parquet").unlink()
    whole.fetch(whole.chunks[0])  # reading it says what is wrong
