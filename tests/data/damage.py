"""Read damaged files one after another: ``python -m tests.data.damage KIND COUNT`` in a process that may crash."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import feather, ipc, parquet

from toporo.data.frame import read_frame, stream_frames
from toporo.errors import DataError

ROWS = 60
KINDS = ("feather", "feather-lz4", "feather-zstd", "stream", "parquet", "parquet-zstd")


def table() -> pa.Table:
    """Columns of every type that files have, with gaps."""

    def column(*cells: Any, kind: Any = None) -> Any:
        return pa.array([cells[row % len(cells)] for row in range(ROWS)], kind)

    return pa.table(
        {
            "number": column(0.5, None, -3.0),
            "count": column(*range(ROWS)),
            "text": column("", "añb", "Ünïcode", "x" * 30, None),
            "category": column("NV", "UT", None, "ÄZ").dictionary_encode(),
            "flag": column(True, False, None),
            "when": column(10**15, None, 1, kind=pa.timestamp("us", "UTC")),
            "day": column(10, None, kind=pa.date32()),
            "decimal": column(None, 3, kind=pa.decimal128(10, 2)),
            "large": column("long", None, kind=pa.large_string()),
            "list": column([1, 2], [], None),
            "struct": column({"a": 1, "b": "x"}, None),
            "nothing": pa.nulls(ROWS),
        }
    )


def whole(kind: str) -> bytes:
    """An undamaged file."""
    name, _, packed = kind.partition("-")
    stream, given = io.BytesIO(), table()
    if name == "feather":
        feather.write_feather(given, stream, compression=packed or "uncompressed", chunksize=25)
    elif name == "stream":
        with ipc.new_stream(stream, given.schema) as writer:
            writer.write_table(given, max_chunksize=25)
    else:
        parquet.write_table(given, stream, compression=packed or "none", row_group_size=25)
    return stream.getvalue()


def damaged(kind: str, count: int) -> Iterator[bytes]:
    """The file with another byte in one place each."""
    content, chance = whole(kind), random.Random(kind)
    for _ in range(count):
        at = chance.randrange(len(content))
        other = content[at] ^ 1 << chance.randrange(8) if chance.random() < 0.5 else chance.randrange(256)
        yield content[:at] + bytes([other]) + content[at + 1 :]


def read(content: bytes, kind: str) -> None:
    """All of a table, and some of it in portions; only a DataError is let through."""
    form: Any = {"format": "parquet" if kind.startswith("parquet") else "feather"}
    kinds = {"number": "number", "when": "date", "text": "text", "category": "text", "flag": "text"}
    read_frame(io.BytesIO(content), **form)
    for _ in stream_frames(io.BytesIO(content), kinds, optional=kinds, rows=10, **form):
        pass


if __name__ == "__main__":
    wanted, number = sys.argv[1], int(sys.argv[2])
    read(whole(wanted), wanted)
    for damage in damaged(wanted, number):
        with suppress(DataError):
            read(damage, wanted)
    print(number)
