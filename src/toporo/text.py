"""Words and numbers as people and JSON read them: each form is written once, here."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from typing import TextIO

#: Instead of a distance where nothing joins two groups.
NO_PATH = "no path"
#: What a prior may have seen of the test groups, in words.
SAW = {"test adjacency": "their place in the graph", "test inputs": "their inputs, without targets"}

#: Kinds of signs that command a terminal, cannot be seen, or are halves; of these, two that writing needs; and two that
#: SVG cannot hold.
_UNSEEN, _JOINERS, _NO_SIGNS = {"Cc", "Cf", "Cs", "Zl", "Zp"}, "\u200c\u200d", "\ufffe\uffff"
#: Begins an address; a single letter is a drive.
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")


def printable(text: str, keep: str = "\n\t") -> str:
    r"""Text that a terminal shows and does not obey: other signs than ``keep`` that could mislead it stand as in JSON.

    >>> print(printable("a\x1b[2Jb\r\u202ec\nd"))
    a\u001b[2Jb\r\u202ec
    d
    """
    if text.isprintable():
        return text
    return "".join(
        json.dumps(sign)[1:-1].replace("\x7f", "\\u007f")  # which JSON leaves as it is
        if (unicodedata.category(sign) in _UNSEEN and sign not in keep + _JOINERS) or sign in _NO_SIGNS
        else sign
        for sign in text
    )


def is_address(text: str) -> bool:
    """Return whether a text begins as an address does.

    >>> is_address("s3://bucket/sales"), is_address("C:/sales.csv"), is_address("sales/*.csv")
    (True, False, False)
    """
    return bool(_ADDRESS.match(text))


def spelled(text: object) -> str:
    r"""Text that any file can hold: halves of signs, as in names of files that are no UTF-8, stand as in Python.

    >>> print(spelled("Z\u00fcrich"), spelled("sales\udcff.csv"))
    Zürich sales\udcff.csv
    """
    return str(text).encode(errors="backslashreplace").decode()


def write_data(stream: TextIO, text: str) -> None:
    """Write data for programs: as it is, but on a terminal, see :func:`printable`."""
    stream.write(printable(text) if stream.isatty() else text)
    stream.flush()


def many(count: int, thing: str, things: str | None = None) -> str:
    """A count and its noun.

    >>> many(1, "edge"), many(1200, "edge"), many(2, "entry", "entries")
    ('1 edge', '1,200 edges', '2 entries')
    """
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def number(value: float | None, like: float | None = None, *, digits: int = 3, zeros: bool = False) -> str:
    """A number as people write it: so many digits that matter, thousands apart, powers of ten only where it must be.

    With ``like`` it has as many decimals as that number needs, so several stand in one line; ``zeros`` keeps those at
    the end. What is no number is a dash.

    >>> number(8039.6), number(0.83), number(-1234567.0), number(4.0), number(0.00001234), number(math.nan)
    ('8,040', '0.83', '-1,234,567', '4', '1.23e-05', '–')
    >>> number(0.83, zeros=True), number(0.83, like=12.5)
    ('0.830', '0.8')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(like) if like else abs(value)
    if size == 0:
        return "0"
    if not 1e-4 <= size < 1e7:
        return f"{value:.{digits - 1}e}"
    text = f"{value:,.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"
    if "." in text and not zeros and like is None:
        text = text.rstrip("0").rstrip(".")
    return text.removeprefix("-") if not text.strip("-0.") else text


def human(size: float) -> str:
    """Bytes for people.

    >>> human(3 * 2**30)
    '3.0 GiB'
    """
    if size < 1024:
        return f"{size:.0f} bytes"
    power = min(int(math.log(size, 1024)), 4)
    return f"{size / 1024**power:.1f} {('', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def time_text(seconds: float) -> str:
    """A time to wait, for people.

    >>> time_text(0.4), time_text(41.7), time_text(193), time_text(9000)
    ('1 s', '42 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def hops_text(hops: float | None) -> str:
    """Edges between two groups: ``"2"``, ``"no path"`` where it is infinite, nothing where it is not known.

    >>> hops_text(2), hops_text(math.inf), hops_text(None)
    ('2', 'no path', '')
    """
    return "" if hops is None else NO_PATH if math.isinf(hops) else f"{hops:g}"


def number_to_json(value: float | None) -> float | str | None:
    """JSON has no infinity: it is the text ``"inf"`` (or ``"-inf"``), and what is not a number is null.

    >>> number_to_json(0.5), number_to_json(math.inf), number_to_json(math.nan)
    (0.5, 'inf', None)
    """
    if value is None or math.isnan(value):
        return None
    return value if math.isfinite(value) else "inf" if value > 0 else "-inf"


def short_name(name: object, most: int = 30) -> str:
    """A name on one line, at most this many columns wide; what is too long loses its middle.

    >>> short_name("Minnesota"), short_name("a name that is far too long", 12)
    ('Minnesota', 'a name…long')
    """
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in str(name)).split()) or "(blank)"
    widths = [sign_width(sign) for sign in text]
    if sum(widths) <= most:
        return text
    head = tail = 0
    left = most - 1
    while True:
        at = head if head <= tail else len(text) - 1 - tail
        left -= widths[at]
        if left < 0:
            return f"{text[:head].rstrip()}…{text[len(text) - tail :].lstrip()}"
        head, tail = (head + 1, tail) if head <= tail else (head, tail + 1)


def sign_width(sign: str) -> int:
    """Columns that a sign takes where letters take one: 2 for Chinese, Japanese, Korean and the like."""
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1
