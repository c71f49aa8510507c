"""Read the published pickles of numpy arrays without running anything that is in them.

The pure-Python unpickler of the standard library is limited to the instructions that protocols 3 and 4 write a dict of
arrays with. It makes records instead of numpy's objects, which would allocate whatever shape a file asks for.
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
_INSTRUCTIONS = (
    "PROTO", "FRAME", "STOP", "MARK", "EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
    "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES",
    "SHORT_BINBYTES", "BINBYTES8",
)  # fmt: skip
_NAMES = re.compile(r"numpy\.(ndarray|dtype|_?core\.multiarray\._reconstruct)")
_NUMBERS = re.compile(r"[<>|][fiub][0-9]{1,2}")


class _Record:
    """Arguments and state of an array or a data type."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def to_array(self) -> npt.NDArray[Any]:
        _, shape, dtype, fortran, content = self.state
        order, kind = dtype.state[1], dtype.args[0]
        texts = isinstance(order, str) and isinstance(kind, str)  # writing nested tuples could take exponential time
        if not texts or not _NUMBERS.fullmatch(code := order + kind):
            raise TypeError("an array of something other than numbers")
        return np.frombuffer(content, code).reshape(shape, order="F" if fortran else "C")


class _Arrays(dict[str, Any]):
    def __setitem__(self, key: str, value: _Record) -> None:
        if not isinstance(key, str):  # hashing nested tuples could take exponential time
            raise TypeError("a key that is not a name")
        super().__setitem__(key, value.to_array())


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Any]] = {
        code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, name)[0] for name in _INSTRUCTIONS)
    } | {pickle.EMPTY_DICT[0]: lambda self: self.append(_Arrays())}

    def find_class(self, module: str, name: str) -> Any:
        if not _NAMES.fullmatch(f"{module}.{name}"):
            raise pickle.UnpicklingError(f"a reference to {module}.{name}")
        return _Record


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read a pickled ``{name: array}``, as read-only arrays; anything else in the file is a DataError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise pickle.UnpicklingError(f"more than {MAX_BYTES} bytes")
        arrays = _Unpickler(io.BytesIO(path.read_bytes())).load()
        if not isinstance(arrays, _Arrays):
            raise pickle.UnpicklingError(f"{type(arrays).__name__}, not a dict of arrays")
    except Exception as error:  # a broken pickle may raise anything
        raise DataError(
            f"{path} cannot be read as arrays ({str(error)[:200]}). Expected a pickled dict of numpy arrays, as "
            "published; nothing in the file was executed."
        ) from None
    return dict(arrays)
