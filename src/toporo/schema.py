"""Check of content that was read against the type that it should have.

A reader describes what it expects as a :class:`msgspec.Struct` or a dataclass and gives :func:`as_type` what
:func:`toporo.files.parse_json` made of a file. What comes back has the shape described; what only the content can tell
(do the names agree, do the sizes?) is left to the reader.
"""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from toporo.errors import DataError, TopoRoError

T = TypeVar("T")

#: The largest number in double precision, and the most levels of lists within lists.
LARGEST, DEEPEST = sys.float_info.max, 64
#: Numbers that a figure can still show with room around them, which the largest ones cannot.
SHOWN = 1e307
#: Numbers: finite, of at least 0, above 0, from 0 to 1; and whole ones of at least 0 and 1, exact in double precision.
Finite = Annotated[float, Meta(ge=-SHOWN, le=SHOWN)]
NonNegative = Annotated[float, Meta(ge=0, le=SHOWN)]
Positive = Annotated[float, Meta(gt=0, le=SHOWN)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
AtLeastOne = Annotated[int, Meta(ge=1, le=2**53)]
#: A number of at least 0, which JSON writes as text where it is infinite.
OrInfinite: TypeAlias = NonNegative | Literal["inf"]

_WORDS = {
    "object": "a mapping", "array": "a list", "str": "text", "int": "a whole number", "float": "a number",
    "bool": "true or false", "null": "nothing",
}  # fmt: skip
#: The most characters of what is wrong that a message repeats.
_REPEATED = 200


def as_type(content: Any, kind: type[T], where: str, error: type[TopoRoError] = DataError) -> T:
    """Convert what JSON held to a type.

    Parameters
    ----------
    content : lists, mappings by text, text, numbers, booleans and None.
    kind : what is expected; mappings may hold more than it names.
    where : what the message begins with.
    error : raised if anything is not as expected, nested beyond measure, too large for double precision or no text.

    >>> as_type([[1, 2.5]], list[tuple[int, float]], "the pairs")
    [(1, 2.5)]
    >>> as_type({"size": [3]}, dict[str, int], "the sizes")
    Traceback (most recent call last):
    toporo.errors.DataError: the sizes: expected a whole number, found a list, at [...].
    """
    problem = _beyond_measure(content)
    if problem:
        raise error(f"{where}: {problem}.")
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as reason:
        raise error(f"{where}: {_in_words(str(reason))}.") from None


def _beyond_measure(content: Any) -> str | None:
    """Describe content that no schema can allow; without recursion, which nesting could exhaust."""
    pending, depth = [content], 0
    while pending:
        inner: list[Any] = []
        for value in pending:
            if isinstance(value, dict):
                inner += value
                inner += value.values()
            elif isinstance(value, list | tuple):
                inner += value
            elif isinstance(value, str) and not value.isascii() and _is_no_text(value):
                return f"{value[:_REPEATED]!r} is no text"
            elif isinstance(value, int) and abs(value) > LARGEST:
                return f"a number is larger than {LARGEST:.2g}"
        pending, depth = inner, depth + 1
        if depth > DEEPEST:
            return f"lists within lists, more than {DEEPEST} levels of them"
    return None


def _is_no_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _in_words(message: str) -> str:
    """``Expected `int`, got `str` - at `$.size``` as people say it."""
    what, _, place = message.partition(" - at ")
    what = re.sub(r"`([^`]*)`", lambda m: " or ".join(_WORDS.get(part, part) for part in m[1].split(" | ")), what)
    what = what.replace(", got ", ", found ").replace("Object missing required field ", "it lacks ")
    what = what.replace("Invalid enum value", "did not expect")
    what = re.sub(r"a number [<>]= -?1e\+307", "a number within 1e307 of 0", what)
    where = place.strip("`").removeprefix("$").removeprefix(".")
    text = f"{what[:1].lower()}{what[1:]}" + (f", at {where}" if where else "")
    return "".join(sign if sign.isprintable() else "?" for sign in text[:_REPEATED])
