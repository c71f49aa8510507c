"""Ways to damage a file: any bytes, and with care what a format's own checks would stop: JSON, cells, pickles, PNG."""

from __future__ import annotations

import gzip
import json
import pickle
import pickletools
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

#: From a source of randomness, a seed's content and the other seeds to something like it.
Mutator = Callable[[Random, bytes, Sequence[bytes]], bytes]

#: Numbers where counters, lengths and offsets break.
NUMBERS = (
    0,
    1,
    -1,
    2,
    127,
    255,
    256,
    *(2**bits - less for bits in (15, 16, 20, 24, 26, 28, 31, 32, 63) for less in (0, 1)),
)
#: JSON as text, for not all of it can be written by a library.
ODD_JSON = (
    "null", "true", "0", "-1", "1.5", "-0.0", "NaN", "Infinity", "-Infinity", "1e400", "1e308", "5e-324", "2147483648",
    "9223372036854775808", "1" + "0" * 400, "9" * 5000, '""', '"x"', '"\\u0000"', '"\\ud800"', '"\\udc80x"', '"nan"',
    '"inf"', '"1e400"', '"=1+1"', '"\\u001b[31m"', '"../../x"', '"' + "x" * 150_000 + '"', "[]", "{}", "[[]]", "[null]",
    "[1,2,3]", '{"a":1}', '["a","b",1]', "[" * 100_000 + "]" * 100_000, "[" * 800 + "]" * 800,
    '{"a":' * 900 + "1" + "}" * 900,
)  # fmt: skip
ODD_CELLS = (
    "", " ", "0", "-1", "nan", "inf", "-inf", "1e308", "1e400", "-1e200", "5e-324", "9" * 400, "9" * 5000, "1_000",
    "0x10", "1,5", '"', '""', '"a', 'a"b', '"a,b"', '"a\nb"', "\r", "\n", "\x00", "\x1b[31m", "=1+1", "@x", "true",
    "NULL", "2024-02-30", "2024-01-01", "0000-00-00", "9999-12-31T23:59:59.999999+14:00", "10000-01-01", "-0001-01-01",
    "12:00", "ä", "\u202e", "\ufeff", "\ufffe", "x" * 140_000, '"' + "x" * 140_000 + '"', "x" * 200, ",", ";", "\t",
)  # fmt: skip


def damage(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A few changes of bytes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        data = rng.choice(_CHANGES)(rng, data, others)
    return data


def _flip(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) or 1)
    return data[:at] + bytes([(data[at] if data else 0) ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _set(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) or 1)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _number(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at, size = rng.randrange(len(data) or 1), rng.choice((1, 2, 4, 8))
    value = rng.choice(NUMBERS) % (1 << 8 * size)
    return data[:at] + value.to_bytes(size, rng.choice(("little", "big"))) + data[at + size :]


def _digits(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Text for a number where there is one, else somewhere."""
    places = [at for at, sign in enumerate(data[:100_000]) if 48 <= sign < 58] or [rng.randrange(len(data) or 1)]
    at = rng.choice(places)
    text = rng.choice((*map(str, NUMBERS), "1e400", "-0", "9" * 5000, "NaN"))
    return data[:at] + text.encode() + data[at + 1 :]


def _cut(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _block(rng: Random, data: bytes) -> tuple[int, int]:
    at = rng.randrange(len(data) or 1)
    return at, at + rng.choice((1, 2, 4, 8, 64, 1024, len(data) - at))


def _delete(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _block(rng, data)
    return data[:start] + data[end:]


def _repeat(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _block(rng, data)
    times = rng.choice((1, 2, 10, 1000)) if end - start < 200 else 1
    return data[:end] + data[start:end] * times + data[end:]


def _insert(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 7, 64, 5000))
    return data[:at] + rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size))) + data[at:]


def _splice(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


_CHANGES: tuple[Mutator, ...] = (
    _flip, _flip, _set, _set, _number, _number, _digits, _cut, _delete, _repeat, _insert, _splice,
)  # fmt: skip


# ---------------------------------------------------------------------- JSON


def json_value(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Changes of what JSON holds: it stays JSON."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return damage(rng, data, others)
    return changed_json(rng, value).encode("utf-8", "surrogatepass")


def changed_json(rng: Random, value: Any) -> str:
    """The text of a value with one to three places changed."""
    raw: list[str] = []
    holder = [value]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change(rng, holder, raw)
    try:
        text = json.dumps(holder[0], ensure_ascii=False)
    except RecursionError:  # deeper than Python writes
        return "[" * 100_000
    for place, odd in enumerate(raw):
        text = text.replace(f'"\\u0001{place}\\u0002"', odd)
    return text


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with every key in it; without recursion, for a seed may be nested deeply."""
    pending = [value]
    while pending:
        inner = pending.pop()
        for key in list(inner) if isinstance(inner, dict) else range(len(inner)):
            yield inner, key
            if isinstance(inner[key], dict | list):
                pending.append(inner[key])


def _change(rng: Random, holder: list[Any], raw: list[str]) -> None:
    places = list(_places(holder))
    named = [place for place in places if isinstance(place[1], str)] or places  # long lists must not take all changes
    parent, key = rng.choice(named if rng.random() < 0.5 else places)
    old, kind = parent[key], rng.randrange(10)
    if isinstance(old, str) and old[:1] in ("{", "[") and rng.random() < 0.9:  # JSON in JSON
        parent[key] = json_value(rng, old.encode("utf-8", "surrogatepass"), [b"{}"]).decode("utf-8", "replace")
    elif kind < 5:
        raw.append(rng.choice(ODD_JSON))
        parent[key] = f"\x01{len(raw) - 1}\x02"
    elif kind == 5 and parent is not holder:
        del parent[key]
    elif kind == 6:
        other, name = rng.choice(places)
        parent[key] = json.loads(json.dumps(other[name])) if rng.random() < 0.5 else [old]
    elif kind == 7 and isinstance(old, list):
        old.extend(old[: rng.choice((1, 2, 100))])
    elif kind == 8 and isinstance(old, list):
        rng.shuffle(old)
    elif kind == 8 and isinstance(old, dict):
        old[rng.choice(("", "extra", "key", "__class__", "\ud800"))] = rng.choice((None, 1, "x", []))
    elif isinstance(old, bool | int | float):
        parent[key] = rng.choice((-old, old + 1, 1e308, str(old), 0, bool(old)))
    else:
        parent[key] = str(old)[: rng.randrange(50)]


def tensors(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A safetensors file whose table of contents is changed."""
    if data[:1] == b"{":
        return json_value(rng, data, others)
    size = int.from_bytes(data[:8], "little")
    header = json_value(rng, data[8 : 8 + size], [data])
    length = len(header) if rng.random() < 0.9 else rng.choice(NUMBERS) % 2**64
    return struct.pack("<Q", length) + header + data[8 + size :]


# ---------------------------------------------------------------------- tables of cells


def cells(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Changes of cells, lines and signs of a text file; one that is packed is packed again."""
    if data[:2] == b"\x1f\x8b":
        try:
            return gzip.compress(cells(rng, gzip.decompress(data), []), mtime=0)
        except (OSError, EOFError, zlib.error):
            return damage(rng, data, others)
    text = data.decode("utf-8", "surrogateescape")
    sign = next((sign for sign in "\t;," if sign in text), ",")
    rows = [line.split(sign) for line in text.split("\n")]
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change_cells(rng, rows)
    text = "\n".join(sign.join(row) for row in rows)
    for old, new in (("\n", "\r\n"), ("\n", "\r"), (sign, rng.choice(";\t| ")), ("", "\ufeff"), ("\n", "\n\n")):
        if rng.random() < 0.04:
            text = text.replace(old, new) if old else new + text
    return text.encode("utf-8", "surrogateescape")


def _change_cells(rng: Random, rows: list[list[str]]) -> None:
    rows[:] = [row or [""] for row in rows] or [[""]]
    row = rng.choice(rows[:2]) if rng.random() < 0.3 else rng.choice(rows)
    kind, column = rng.randrange(12), rng.randrange(50)
    if kind < 7:
        row[rng.randrange(len(row))] = rng.choice(ODD_CELLS)
    elif kind == 7:  # a whole column
        odd = rng.choice(ODD_CELLS)
        for each in rows[rng.randrange(2) :]:
            each[column % len(each)] = odd if len(odd) < 1000 else odd[:1000]
    elif kind == 8:
        rows[rng.randrange(len(rows))] = row * rng.choice((0, 1, 2, 500))
    elif kind == 9:
        del rows[rng.randrange(len(rows)) :]
        rows.append(row)
    elif kind == 10:
        for each in rows:
            each.insert(column % (len(each) + 1), rng.choice(ODD_CELLS[:20]))
    else:
        del row[column % len(row)]


# ---------------------------------------------------------------------- pickles, pictures

_CODES = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]
_NAMES = [f"{name}\n".encode() for name in ("numpy\nndarray", "numpy\ndtype", "numpy.core.multiarray\n_reconstruct",
          "numpy.core.numeric\n_frombuffer", "_codecs\nencode", "os\nsystem")]  # fmt: skip
#: Few bytes that ask for much: places in the memo, and texts and bytes of a length.
_LENGTHS = ((b"r", "<I"), (b"B", "<I"), (b"T", "<i"), (b"X", "<I"), (b"\x8e", "<Q"), (b"\x96", "<Q"))
_HUNGRY = [b"N" + code + struct.pack(form, n) for n in (2**26, 2**28, 2**31 - 1) for code, form in _LENGTHS]


def opcodes(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A pickle with a program of its own, or with one put into it."""
    program = b"".join(_step(rng) for _ in range(rng.choice((1, 5, 30, 200))))
    if rng.random() < 0.1:
        program = rng.choice(_HUNGRY)
    elif rng.random() < 0.2:  # one thing within the other, without end
        program = rng.choice((b"(", b"]", b"}", b"\x85", b"(l", b"2", b"\x94", b"K\x01", b"]\x94h\x00a")) * 300_000
        program = rng.choice((b"", b")", b"N")) + program + rng.choice((b"", b"t" * 100_000, b"\x85" * 300_000))
    at = rng.choice((0, 2, rng.randrange(len(data) or 1)))
    return data[:at] + program + rng.choice((b".", data[at:]))


def _step(rng: Random) -> bytes:
    code = rng.choice(_CODES)
    number = rng.choice(NUMBERS)
    packed = struct.pack("<Q", number % 2**64)[: rng.choice((1, 2, 4, 8))]
    texts = (b"%d\n" % number, b"9" * 5000 + b"\n", b"'x'\n", rng.choice(_NAMES))
    return code + rng.choice((b"", packed, packed, *texts, pickle.dumps(number)[2:-1]))


def png_chunks(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A PNG file whose parts are changed and have the right checksums all the same."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        return damage(rng, data, others)
    chunks, at = [], 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    place = rng.randrange(len(chunks))
    chunks[place] = (chunks[place][0], damage(rng, chunks[place][1], [data]))
    parts = (struct.pack(">I", len(c)) + name + c + struct.pack(">I", zlib.crc32(name + c)) for name, c in chunks)
    return data[:8] + b"".join(parts)
