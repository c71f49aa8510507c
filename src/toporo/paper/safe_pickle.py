"""Read the published pickles of numpy arrays without running anything that is in them.

The pure-Python unpickler of the standard library is limited to the instructions that protocols 3 and 4 write a dict of
arrays with. Names of numpy stand for classes of this module: numpy's own would allocate whatever shape a file asks for.
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


class _Dtype:
    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"[fiub][0-9]{1,2}", code):
            raise TypeError("an array of something other than numbers")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        self.array = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if fortran else "C")


class _Arrays(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):  # hashing nested tuples could take exponential time
            raise TypeError("a key that is not a name")
        super().__setitem__(key, value.array)


_NAMES = {
    "numpy.ndarray": None,  # mentioned but never called
    "numpy.dtype": _Dtype,
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
}


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Any]] = {
        code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, name)[0] for name in _INSTRUCTIONS)
    } | {pickle.EMPTY_DICT[0]: lambda self: self.append(_Arrays())}

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _NAMES:
            raise pickle.UnpicklingError(f"a reference to {module}.{name}")
        return _NAMES[f"{module}.{name}"]


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
