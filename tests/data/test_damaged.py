"""Files of strangers: what is damaged or a trap is an error in words, never a crash, and takes no endless memory."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

from toporo.data import formats
from toporo.data.frame import read_frame, stream_frames
from toporo.errors import DataError

FORMATS = {"t.parquet": parquet.write_table, "t.feather": feather.write_feather}


@pytest.mark.parametrize("name", FORMATS)
def test_text_that_is_none(name: str, tmp_path: Path) -> None:
    """In cells, in categories, in the name of a column, and in a time zone."""
    columns = {"wörd": ["añb", "ok"], "c": pa.array(["cäb", "ok"]).dictionary_encode()}
    path, table = tmp_path / name, pa.table(columns | {"t": pa.array([1, 2], pa.timestamp("us", "zöne"))})
    FORMATS[name](table.replace_schema_metadata(), path, compression="uncompressed" if name[-1] == "r" else "none")
    content = path.read_bytes()
    assert read_frame(path)["wörd"].tolist() == ["añb", "ok"]
    for word in ("añb", "cäb", "wörd", "zöne") if name == "t.feather" else ("añb", "cäb", "wörd"):
        path.write_bytes(content.replace(word.encode(), word.encode().replace(b"\xc3", b"\xff")))
        with pytest.raises(DataError, match=r"cannot be read as a .* file .*UTF-?8"):
            read_frame(path)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_cut_short_while_it_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    table = pa.table({"x": np.random.default_rng(0).normal(size=200_000)})
    settings: dict[str, Any] = {"row_group_size": 50_000} if name == "t.parquet" else {"chunksize": 50_000}
    FORMATS[name](table, path, **settings)
    frames = stream_frames(path, {"x": "number"}, rows=10_000)
    assert len(next(frames)) == 10_000
    with path.open("r+b") as stream:
        stream.truncate(1000)
    with pytest.raises(DataError, match=f"{name} cannot be read as a"):
        list(frames)


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_that_unpacks_without_end_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    table = pa.table({"x": np.zeros(2_000_000), "n": pa.nulls(2_000_000)})
    FORMATS[name](table, path, compression="zstd")
    assert len(read_frame(path)) == 2_000_000  # a little is always let through
    monkeypatch.setattr(formats, "ALWAYS", 0)
    with pytest.raises(DataError, match=f"{name} unpacks to more than 1,000 times its size"):
        read_frame(path)
    assert sum(map(len, stream_frames(path, {"x": "number"}))) == 2_000_000  # no more than a portion at a time


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("column", [np.zeros(1000), pa.array(["a" * 7997] * 2).dictionary_encode()])
def test_lengths_are_looked_at_before_memory_is_taken(column: Any, stream: bool) -> None:
    sink, table = io.BytesIO(), pa.table({"x": column})
    start = ipc.new_stream if stream else ipc.new_file
    with start(sink, table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    content = sink.getvalue()
    assert len(read_frame(io.BytesIO(content), format="feather")) == len(table)
    told = struct.pack("<q", 8000 if isinstance(column, np.ndarray) else 7997)  # it stands before each packed part
    before, _, after = content.rpartition(told)
    assert before
    for length in (1 << 31, 1 << 60):
        with pytest.raises(DataError, match="standard input unpacks to more than 1,000 times its size and 256 MiB"):
            read_frame(io.BytesIO(before + struct.pack("<q", length) + after), format="feather")


# ---------------------------------------------------------------------- row labels of pandas


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_row_labels_that_pandas_wrote_are_no_column(suffix: str, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    path = tmp_path / f"t.{suffix}"
    source = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "g": ["a", "b", "c", "d"]})

    def names(given: Any) -> tuple[str, ...]:
        table = pa.Table.from_pandas(given)
        FORMATS[path.name](table, path)
        assert read_frame(table).names == read_frame(path).names
        return read_frame(path).names

    assert names(source) == ("x", "g")
    shuffled = source.sample(frac=1, random_state=0)
    assert "__index_level_0__" in pa.Table.from_pandas(shuffled).column_names
    assert names(shuffled) == ("x", "g")
    assert names(shuffled.set_index(["g", shuffled.index])) == ("x", "g")
    assert names(shuffled.set_index("g")) == ("x", "g")  # one with a name was given it by somebody


@pytest.mark.parametrize(
    "metadata",
    [None, b"", b"\xff", b"[]", b"{}", b'{"index_columns": 1}', b'{"index_columns": [[]]}', b"[" * 100_000, b"9" * 9000,
     json.dumps({"index_columns": ["x", None]}).encode()],
)  # fmt: skip
def test_without_word_from_pandas_a_column_is_a_column(metadata: bytes | None, tmp_path: Path) -> None:
    table = pa.table({"__index_level_0__": [2, 1], "x": [1, 2]})
    table = table.replace_schema_metadata(None if metadata is None else {"pandas": metadata})
    with ipc.new_file(str(tmp_path / "t.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert read_frame(tmp_path / "t.arrow").names == ("__index_level_0__", "x")
