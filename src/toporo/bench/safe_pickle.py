"""Reading published pickles of numpy arrays without running anything that is in them.

A pickle is a program; the standard reader runs it. Here the few instructions that a dict of arrays is written with are
followed one by one, and whatever else a file asks for is refused by name before it exists. Arrays are put together
from their type, shape and bytes.

A file may have 64 MiB and 131 072 instructions. To read it takes at most ten times its size, and 64 MiB.
"""

from __future__ import annotations

import io
import math
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import UnsafeFileError

#: Bytes of a file, and instructions in it: an array takes some forty.
MOST_BYTES, MOST_STEPS = 2**26, 2**17
#: Entries of a tuple, as many as an array may have dimensions; signs of a text and of a reason that a message repeats.
_MOST_ENTRIES, _SHOWN, _MOST_SAID = 64, 80, 200
_INSTRUCTIONS = {instruction.code: instruction for instruction in pickletools.opcodes}
#: Those that put a value on the stack.
_VALUES = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1")
_TEXTS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8")
#: All that are followed, and how many values each takes off the stack; None for those since the last mark.
_TAKEN: dict[str, int | None] = {
    **dict.fromkeys((*_VALUES, *_NUMBERS, *_TEXTS, *_BYTES, "PROTO", "FRAME", "MARK", "EMPTY_DICT", "GLOBAL"), 0),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"), 0),
    **dict.fromkeys(("STOP", "TUPLE1"), 1),
    **dict.fromkeys(("TUPLE2", "SETITEM", "STACK_GLOBAL", "REDUCE", "BUILD"), 2),
    "TUPLE3": 3,
    **dict.fromkeys(("TUPLE", "DICT", "SETITEMS")),
}


class _RefusedError(Exception):
    """Something other than an array turned up."""


class _Dtype:
    """Stands in for a ``numpy.dtype``: a type code such as ``f8`` and, told once, its byte order."""

    order: Any = None

    def __init__(self, code: object, *_: object) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[fiub][0-9]{1,2}", code):
            raise _RefusedError(f"an array of type {_short(code)}, which is not a number type")
        self.code = code

    def build(self, state: object) -> None:
        match state:
            case (int(), "<" | ">" | "=" | "|" as order, None, None, None, *_) if self.order is None:
                self.order = order
            case _:
                raise _RefusedError("a number type other than numpy's own")


class _Array:
    """Stands in for an array: nothing at first, then, told once, its values."""

    value: npt.NDArray[Any] | None = None

    def build(self, state: object) -> None:
        match state:
            case (int(), tuple() as shape, _Dtype() as dtype, int() as fortran, bytes() | bytearray() as content):
                kind = np.dtype(dtype.code).newbyteorder(dtype.order or "=")
            case _:
                raise _RefusedError("an array whose content is not plain bytes")
        right = self.value is None and all(type(size) is int and size >= 0 for size in shape)
        if not right or math.prod(shape) * kind.itemsize != len(content):
            raise _RefusedError(f"an array whose shape does not fit its {len(content)} bytes")
        self.value = np.frombuffer(content, kind).reshape(shape, order="F" if fortran else "C").copy()


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _frombuffer(content: object, dtype: object, shape: object, order: object) -> _Array:
    """How protocol 5 spells an array."""
    array = _Array()
    array.build((1, shape, dtype, order == "F", content))
    return array


def _encode(text: object, encoding: object) -> bytes:
    """How protocols 0 to 2 spell bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise _RefusedError("an encoded text that is not bytes")
    return text.encode("latin1")


def _ndarray(*_: object) -> _Array:
    """Array pickles mention the class, but never call it."""
    raise _RefusedError("a direct call of numpy.ndarray")


#: All that can be called.
_NAMES: dict[str, Callable[..., Any]] = {
    "numpy.ndarray": _ndarray,
    "numpy.dtype": _Dtype,
    "_codecs.encode": _encode,
    "__builtin__.bytes": lambda: b"",  # how they spell the lack of any
    **{f"numpy.{core}.multiarray._reconstruct": _reconstruct for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _frombuffer for core in ("core", "_core")},
}


def _follow(content: bytes) -> Any:
    """What the instructions come to: numbers, texts, bytes, stand-ins, flat dicts, and tuples of tuples at most."""
    stream, memo, left = io.BytesIO(content), dict[int, Any](), 2 * len(content)
    stack: list[Any] = []
    below: list[list[Any]] = []  # the stack as it was at each mark
    for _ in range(MOST_STEPS):
        name, given = _instruction(stream)
        count = _TAKEN[name]
        if count is None:
            items, stack = stack, below.pop()
        else:
            items = [stack.pop() for _ in range(count)][::-1]
        match name:
            case "STOP":
                return items[0]
            case "PROTO" | "FRAME":
                pass
            case "MARK":
                below.append(stack)
                stack = []
            case "PUT" | "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                memo[len(memo) if given is None else given] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(memo[given])
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(_tuple(items))
            case "EMPTY_DICT" | "DICT":
                stack.append(_entered({}, items))
            case "SETITEM" | "SETITEMS":
                _entered(stack[-1], items)
            case "GLOBAL" | "STACK_GLOBAL":
                stack.append(_named(*(items or given)))
            case "REDUCE" | "BUILD":
                stack.append(_called(*items) if name == "REDUCE" else _built(*items))
                left -= _length(stack[-1])  # what is in a file once becomes bytes once, and an array once
                if left < 0:
                    raise _RefusedError("arrays of more bytes than the file has")
            case _:
                stack.append(_VALUES.get(name, given))
    raise _RefusedError(f"more than {MOST_STEPS} instructions")


def _instruction(stream: io.BytesIO) -> tuple[str, Any]:
    """The next instruction's name and what comes with it, which is never longer than the rest of the file."""
    code = stream.read(1)
    instruction = _INSTRUCTIONS.get(code.decode("latin1"))
    if instruction is None:
        raise ValueError(f"unknown instruction {code!r}" if code else "cut short")
    if instruction.name not in _TAKEN:
        raise _RefusedError(f"the instruction {instruction.name}, which arrays do without")
    if instruction.name == "GLOBAL":  # the reader of pickletools warns of backslashes
        return "GLOBAL", [stream.readline().decode().rstrip("\n") for _ in range(2)]
    return instruction.name, instruction.arg.reader(stream) if instruction.arg else None


def _tuple(items: list[Any]) -> tuple[Any, ...]:
    deep = any(isinstance(inner, tuple) for item in items if isinstance(item, tuple) for inner in item)
    if deep or len(items) > _MOST_ENTRIES:
        raise _RefusedError("a tuple that is deeper or longer than those of arrays")
    return tuple(items)


def _entered(content: object, items: list[Any]) -> dict[str, _Array]:
    if not isinstance(content, dict):
        raise TypeError(f"entries of a {_kind(content)}")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str) or not isinstance(value, _Array) or value.value is None:
            raise _RefusedError(f"{_kind(value)} under {_short(key)}")
        content[key] = value
    return content


def _named(module: object, name: object) -> Callable[..., Any]:
    if not isinstance(module, str) or not isinstance(name, str):
        raise TypeError("a reference without a name")
    full = f"{module[:_SHOWN]}.{name[:_SHOWN]}"
    if full not in _NAMES:
        raise _RefusedError(f"a reference to {full}")
    return _NAMES[full]


def _called(function: object, arguments: object) -> object:
    if not callable(function) or not isinstance(arguments, tuple):
        raise TypeError(f"a call of a {_kind(function)}")
    return function(*arguments)


def _built(target: object, state: object) -> object:
    if not isinstance(target, _Array | _Dtype):
        raise _RefusedError(f"changes to a {_kind(target)}")
    target.build(state)
    return target


def _length(made: object) -> int:
    if isinstance(made, _Array):
        return 0 if made.value is None else made.value.nbytes
    return len(made) if isinstance(made, bytes) else 0


def _kind(value: object) -> str:
    return type(value).__name__.lstrip("_").lower()


def _short(value: object) -> str:
    """A text or a number for a message; of anything else, which may be endless, the kind."""
    return repr(value[:_SHOWN] if isinstance(value, str) else value) if isinstance(value, str | int) else _kind(value)


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """A pickled ``{name: array}`` as exactly that; anything else in the file is an :class:`UnsafeFileError`."""
    expected = "Expected a pickled dict of numpy arrays, as published; nothing in the file was executed."
    if path.stat().st_size > MOST_BYTES:
        raise UnsafeFileError(f"{path} has more than the {MOST_BYTES // 2**20} MiB that are read here. {expected}")
    try:
        made = _follow(path.read_bytes())
    except _RefusedError as refused:
        raise UnsafeFileError(f"{path} holds {refused}. {expected}") from None
    except (ValueError, TypeError, LookupError) as error:
        reason = f"{type(error).__name__}: {error}"[:_MOST_SAID]
        raise UnsafeFileError(f"{path} is not a readable pickle ({reason}). {expected}") from None
    if not isinstance(made, dict):
        raise UnsafeFileError(f"{path} holds a {_kind(made)}. {expected}")
    return {key: array.value for key, array in made.items()}
