"""Reading published pickles of numpy arrays without running anything that is in them.

A pickle is a program; the standard reader runs it. This reader gives that program harmless stand-ins for what a numpy
array is made of, and nothing else: whatever else the file asks for is refused by name before it exists. The
arrays are then put together here, from their type, shape and bytes.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from toporo.errors import UnsafeFileError


class _RefusedError(Exception):
    """Something other than an array turned up."""


class _Dtype:
    """Stands in for ``numpy.dtype``: remembers a type code such as ``f8`` and its byte order."""

    def __init__(self, code: object, align: object = False, copy: object = True) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[fiub]\d{1,2}", code):
            raise _RefusedError(f"an array of type {code!r}, which is not a number type")
        self.code = code
        self.order = "="

    def __setstate__(self, state: Any) -> None:
        self.order = {"<": "<", ">": ">"}.get(state[1], "=")

    def build(self) -> np.dtype[Any]:
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


class _Array:
    """Stands in for an array under construction."""

    value: npt.NDArray[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes):
            raise _RefusedError("an array whose content is not plain bytes")
        flat = np.frombuffer(content, dtype=dtype.build())
        self.value = flat.reshape(shape, order="F" if fortran else "C").copy()


class _ArrayType:
    """Stands in for the class ``numpy.ndarray``, which array pickles mention but never call."""

    def __init__(self, *args: object) -> None:
        raise _RefusedError("a direct call of numpy.ndarray")


def _reconstruct(*args: object) -> _Array:
    return _Array()


def _frombuffer(content: Any, dtype: object, shape: object, order: object) -> _Array:
    """How protocol 5 spells an array."""
    if not isinstance(content, bytes | bytearray):
        raise _RefusedError("an array whose content is not plain bytes")
    array = _Array()
    array.__setstate__((1, shape, dtype, order == "F", bytes(content)))
    return array


def _encode(text: object, encoding: object) -> bytes:
    """How protocols 0 to 2 spell bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise _RefusedError("an encoded text that is not bytes")
    return text.encode("latin1")


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,
    ("numpy._core.numeric", "_frombuffer"): _frombuffer,
    ("_codecs", "encode"): _encode,
}


#: What the standard reader raises on a file that is no pickle, or a forged one.
_MALFORMED = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    OverflowError,
    MemoryError,
)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise _RefusedError(f"a reference to {module}.{name}")
        return _ADMITTED[module, name]

    def persistent_load(self, pid: object) -> NoReturn:
        raise _RefusedError("a reference to an object outside the file")


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """A pickled ``{name: array}`` as exactly that; anything else in the file is an :class:`UnsafeFileError`."""
    expected = "Expected a pickled dict of numpy arrays, as published; nothing in the file was executed."
    try:
        with path.open("rb") as stream:
            content = _Reader(stream).load()
    except _RefusedError as refused:
        raise UnsafeFileError(f"{path} holds {refused}. {expected}") from None
    except _MALFORMED as error:
        raise UnsafeFileError(
            f"{path} is not a readable pickle ({type(error).__name__}: {error}). {expected}"
        ) from None
    if not isinstance(content, dict):
        raise UnsafeFileError(f"{path} holds a {type(content).__name__}. {expected}")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, _Array) or value.value is None:
            raise UnsafeFileError(f"{path} holds {type(value).__name__} under {key!r}. {expected}")
        arrays[key] = value.value
    return arrays
