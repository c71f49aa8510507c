"""Read the published pickles of numpy arrays without running anything that is in them.

The pure-Python unpickler of the standard library is limited to the instructions that protocols 3 and 4 write a dict of
arrays with, and to three names of numpy. These stand for classes of this module, because numpy's own would allocate
whatever shape a file asks for.
"""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError

#: The largest file that is read; the published ones have up to 222 kB.
MAX_BYTES = 2**19
#: Instructions by their names in :mod:`pickle`.
_INSTRUCTIONS = (
    "PROTO", "FRAME", "STOP", "MARK", "EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
    "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES",
    "SHORT_BINBYTES", "BINBYTES8",
)  # fmt: skip


class _Dtype:
    """A number type: its code, such as ``f8``, and then its byte order."""

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"[fiub][0-9]{1,2}", code):
            raise TypeError("an array of something other than numbers")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array: a view of bytes in the file."""

    def __init__(self, *_: object) -> None:
        """Ignore the arguments, an empty shape."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        self.array = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if fortran else "C")


class _Arrays(dict[str, Any]):
    """Arrays by name; hashing other keys, such as nested tuples, could take exponential time."""

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError("a key that is not a name")
        super().__setitem__(key, value.array)


class _Unpickler(pickle._Unpickler):
    """Unpickler for the names and instructions that arrays need, and no others."""

    dispatch: ClassVar[dict[int, Any]] = {
        code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, name)[0] for name in _INSTRUCTIONS)
    }
    dispatch[pickle.EMPTY_DICT[0]] = lambda self: self.append(_Arrays())

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of this module; None for numpy.ndarray, which array pickles mention but never call."""
        names = {
            "numpy.ndarray": None,
            "numpy.dtype": _Dtype,
            "numpy.core.multiarray._reconstruct": _Array,
            "numpy._core.multiarray._reconstruct": _Array,
        }
        if f"{module}.{name}" not in names:
            raise pickle.UnpicklingError(f"a reference to {module}.{name}")
        return names[f"{module}.{name}"]


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read a pickled ``{name: array}``, as read-only arrays; anything else in the file is a DataError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise pickle.UnpicklingError(f"more than {MAX_BYTES} bytes")
        read = _Unpickler(io.BytesIO(path.read_bytes())).load()
        if not isinstance(read, _Arrays):
            raise pickle.UnpicklingError(f"{type(read).__name__}, not a dict of arrays")
    except Exception as error:  # a broken pickle may raise anything
        raise DataError(
            f"{path} cannot be read as arrays ({str(error)[:200]}). Expected a pickled dict of numpy arrays, as "
            "published; nothing in the file was executed."
        ) from None
    return dict(read)
