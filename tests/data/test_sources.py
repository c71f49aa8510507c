"""Tables of many files: folders, patterns, hive partitions, and addresses of a store that a server of our own plays."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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

from toporo.data import table as data_table
from toporo.data.frame import Frame, read_frame, stream_frames
from toporo.data.table import find_table
from toporo.errors import DataError, SettingError

WRITE = {"parquet": parquet.write_table, "feather": feather.write_feather, "csv": arrow_csv.write_csv}


def table(rows: int = 10, start: int = 0) -> Any:
    numbers = np.arange(start, start + rows, dtype=float)
    return pa.table({"x": numbers / 8, "g": [f"g{int(i) % 3}" for i in numbers]})


def texts(frame: Frame) -> dict[str, list[Any]]:
    """Columns as lists of text, and their kinds."""
    return {name: [frame[name].kind, *frame.text(name).tolist()] for name in frame.names}


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
    return pa.table(columns), cuts, draw(st.integers(1, 20)), draw(st.sampled_from([*WRITE]))


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=splits(), few=st.integers(1, 30))
def test_any_split_is_the_same_table(tmp_path_factory: Any, case: Any, few: int) -> None:
    whole, cuts, in_group, kind = case
    folder = tmp_path_factory.mktemp("split")
    for place, (start, stop) in enumerate(pairwise([0, *cuts, len(whole)])):
        more = {"row_group_size": in_group} if kind == "parquet" else {}
        WRITE[kind](whole.slice(start, stop - start), str(folder / f"part-{place}.{kind}"), **more)
    WRITE[kind](whole, str(folder / f"_whole.{kind}"))  # hidden
    expected = read_frame(folder / f"_whole.{kind}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_table, "CHUNK_ROWS", few)
        for source in (folder, f"{folder}/*.{kind}", f"{folder}/part-?.{kind}", folder.as_uri()):
            assert texts(read_frame(source)) == texts(expected)
        kinds = {name: expected[name].kind for name in expected.columns}
        found, one_by_one = find_table(folder), []
        for chunk in found.chunks:
            if chunk.rows is not None:
                one_by_one.append(streamed(found.only([chunk]), kinds))
        if kind == "parquet":
            assert found.rows == len(whole)
            assert {n: [cell for part in one_by_one for cell in part[n]] for n in kinds} == streamed(folder, kinds)


def test_partitions(tmp_path: Path) -> None:
    for value in ("01", "%C3%BC", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"month={value}" / "year=2024").mkdir(parents=True)
        parquet.write_table(table(2), tmp_path / f"month={value}" / "year=2024" / "a.parquet")
    read = read_frame(tmp_path)
    assert read.text("month").tolist() == ["ü", "ü", "01", "01", None, None]
    assert read["year"].kind == "number"
    assert read_frame(tmp_path, columns=["year"])["year"].values.tolist() == [2024.0] * 6  # type: ignore[union-attr]
    assert read_frame(f"{tmp_path}/month=01/*/*.parquet").names == ("x", "g", "year")
    assert read_frame(f"{tmp_path}/**/a.parquet", text=["year"]).text("year").levels == ("2024",)


def test_files_that_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_table(table(3), tmp_path / "a.parquet")
    parquet.write_table(table(0), tmp_path / "b.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".a.parquet.crc").write_bytes(b"\1\2")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "c.parquet").write_bytes(b"half")
    assert len(read_frame(tmp_path)) == 3
    assert len(find_table(tmp_path).chunks) == 1
    monkeypatch.chdir(tmp_path)
    assert read_frame("*.parquet").where == "*.parquet"
    parquet.write_table(table(0), tmp_path / "a.parquet")
    for read in (read_frame, lambda source: list(stream_frames(source, {"x": "number"}))):
        with pytest.raises(DataError, match="has a header but no rows"):
            read(tmp_path)


def test_columns_of_other_types_and_in_another_order(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"x": [1, 2], "g": ["a", "b"], "t": pa.nulls(2)}), tmp_path / "a.parquet")
    other = {"t": ["u", None], "g": pa.array(["b", "a"]).dictionary_encode(), "x": pa.array([0.5, None], pa.float32())}
    parquet.write_table(pa.table(other), tmp_path / "b.parquet")
    read = read_frame(tmp_path)
    assert read.text("x").tolist() == ["1", "2", "0.5", None]
    assert read.text("g").tolist() == ["a", "b", "b", "a"]
    assert read.text("t").tolist() == [None, None, "u", None]


def test_packed_and_tabbed_files_of_cells(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.csv").write_text("x,g\n1,a\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"g,x\nb,2\n"))
    (tmp_path / "c.tsv").write_text("g\tx\nc\t3\n")
    assert read_frame(tmp_path).text("g").tolist() == ["a", "b", "c"]
    assert read_frame(tmp_path)["x"].values.tolist() == [1.0, 2.0, 3.0]  # type: ignore[union-attr]


def test_messages_name_the_file_and_its_row(tmp_path: Path) -> None:
    parquet.write_table(table(3), tmp_path / "a[1].parquet")
    assert len(read_frame(tmp_path / "a[1].parquet")) == 3  # not a pattern
    (tmp_path / "a[1].parquet").unlink()
    (tmp_path / "a.csv").write_text("x,g\n1,a\n2,b\n")
    (tmp_path / "b.csv").write_text("x,g\n1,a\nwhat,b\n")
    with pytest.raises(DataError, match=r"b\.csv, row 2, column 'x': 'what' is not a number"):
        list(stream_frames(tmp_path, {"x": "number"}))
    (tmp_path / "b.csv").write_text("x,g\n1,a,3\n")
    with pytest.raises(DataError, match=r"b\.csv cannot be read as CSV .*Expected 2 columns, got 3: 1,a,3"):
        read_frame(tmp_path)


# ---------------------------------------------------------------- what is none


def write(folder: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, pa.Table):
            parquet.write_table(content, folder / name)
        else:
            (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.parquet": table(), "b.csv": b"x,g\n1,a\n"}, r"b\.csv cannot be read as a Parquet file"),
        ({"a.parquet": table(), "b.parquet": b""}, r"b\.parquet cannot be read as a Parquet file"),
        ({"a.parquet": table(), "b.parquet": table().drop_columns(["g"])},
         r"b\.parquet has other columns than \S*a\.parquet: .g.\. Expected the same"),
        ({"a.parquet": table(), "b.parquet": table().rename_columns(["g", "x"])},
         r"b\.parquet has other columns than \S*a\.parquet: .*incompatible types: .* vs "),
        ({"g=a/a.parquet": table()}, r"does not fit the table .*: expected folders .* \('g'\)"),
        ({"s=a/a.parquet": table(), "state=b/a.parquet": table()}, r"state=b/a\.parquet does not fit the table"),
        ({"s=a/s=b/a.parquet": table()}, r"s=a/s=b/a\.parquet does not fit the table"),
        ({}, r"holds no table: expected files"),
    ],
)  # fmt: skip
def test_folders_that_are_no_table(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    write(tmp_path, files)
    with pytest.raises(DataError, match=message):
        find_table(str(tmp_path))


@pytest.mark.parametrize(
    ("source", "message"),
    [("b*.parquet", "b.*parquet matches no file: expected files in CSV"), ("none.csv", "no such file: .*none.csv"),
     ("a\0", "cannot be read .*NUL"), ("[z-a].csv", "cannot be read .*bad character range")],
)  # fmt: skip
def test_names_that_nothing_has(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_frame(f"{tmp_path}/{source}")


def test_files_that_go_or_change_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_table, "CHUNK_ROWS", 2)
    path = tmp_path / "b.parquet"
    for name in ("a", "b"):
        parquet.write_table(table(6), tmp_path / f"{name}.parquet", row_group_size=2)
    before = find_table(tmp_path)
    assert [chunk.first for chunk in before.chunks] == [1, 3, 5, 1, 3, 5]
    parquet.write_table(table(5), path, row_group_size=2)
    with pytest.raises(DataError, match=r"b\.parquet has changed since the table was listed, .* found 1 rows where 2"):
        list(stream_frames(before, {"x": "number"}))
    parquet.write_table(table(6).drop_columns(["g"]), path, row_group_size=2)
    with pytest.raises(DataError, match=r"b\.parquet cannot be read as a Parquet file"):
        list(stream_frames(before, {"g": "text"}))
    path.unlink()
    with pytest.raises(DataError, match=r"b\.parquet has disappeared since the table was listed"):
        list(stream_frames(before, {"x": "number"}))


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
        self.answer(404) if body is None else self.answer(200, body)

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
        return self.answer(206, body[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(body)}")

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


@pytest.mark.parametrize("kind", [*WRITE])
def test_tables_of_a_store(
    store: tuple[type[Fake], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fake, place = store
    for month in (1, 2):
        WRITE[kind](table(5, start=5 * month), str(tmp_path / "file"))
        fake.objects[f"bucket/sales/month={month}/part-0.{kind}"] = (tmp_path / "file").read_bytes()
    fake.objects["bucket/sales/_SUCCESS"] = b""
    expected = [str(i / 8).removesuffix(".0") for i in range(5, 15)]
    asking = f"?scheme=http&endpoint_override={place}"
    for source in (f"s3://bucket/sales{asking}", f"s3://bucket/sales/month=*/*.{kind}{asking}"):
        read = read_frame(source)
        assert read.text("x").tolist() == expected
        assert read.text("month").tolist() == ["1"] * 5 + ["2"] * 5
        assert read.where == source.removesuffix(asking)
        assert streamed(source, {"x": "number", "month": "number"})["x"] == expected
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{place}")
    assert len(read_frame(f"s3://bucket/sales/month=2/part-0.{kind}")) == 5
    assert not any("Sesame" in request for request in fake.requests)
    found = find_table(f"s3://bucket/sales{asking}")
    fake.objects.clear()
    with pytest.raises(DataError, match=rf"s3://bucket/sales/month=1/part-0\.{kind} has disappeared since"):
        list(stream_frames(found, {"x": "number"}))
    with pytest.raises(DataError, match=r"s3://bucket/sales holds no table"):
        find_table(f"s3://bucket/sales{asking}")


def test_a_store_that_refuses(store: tuple[type[Fake], str]) -> None:
    refusing = type("Refusing", (Fake,), {"do_HEAD": lambda self: self.answer(403)})
    message = r"s3://bucket/a cannot be read .*ACCESS_DENIED.*the network and the credentials"
    with serving(refusing) as place, pytest.raises(DataError, match=message) as caught:
        read_frame(f"s3://bucket/a?scheme=http&endpoint_override={place}")
    assert "Sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("s3://key:Sesame@bucket/a", SettingError, "holds a user or a secret"),
        ("s3://bucket/a?endpoint_override=me:Sesame@host", SettingError, "holds a user or a secret"),
        ("s3://bucket/a?endpoint_override=me%3ASesame%40host", SettingError, "holds a user or a secret"),
        ("s3://bucket/a?secret_key=Sesame", SettingError, r"s3://bucket/a has 'secret_key' behind its \?"),
        ("https://me:Sesame@host/a.csv?X-Signature=Sesame", DataError, r"cannot read https://host/a\.csv: expected"),
        ("s3://", DataError, "s3:// names no bucket"),
        ("file:///no/such/folder", DataError, "no such file: /no/such/folder"),
    ],
)  # fmt: skip
def test_addresses_that_are_none(address: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        read_frame(address)
    assert "Sesame" not in str(caught.value)
