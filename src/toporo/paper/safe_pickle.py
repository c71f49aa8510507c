"""Read the published pickles of numpy arrays without running anything that is in them.

The pure-Python unpickler of the standard library is limited in three ways: to the few instructions that protocols 3 and
4 write a dict of arrays with, to three names of numpy, and in size. The names stand for classes of this module, because
numpy's own would allocate whatever shape a file asks for.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError

#: The largest file that is read, in bytes and in instructions; an array takes some forty instructions.
MAX_BYTES, MAX_INSTRUCTIONS = 2**22, 2**12
_INSTRUCTIONS = {
    "PROTO", "FRAME", "STOP", "MARK", "EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE",
    "BUILD", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "BINUNICODE", "SHORT_BINUNICODE",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip


class _Dtype:
    """A number type: its code, such as ``f8``, and then its byte order."""

    def __init__(self, code: str, *_: object) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[fiub][0-9]{1,2}", code):
            raise TypeError("an array of something other than numbers")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array: nothing at first, then a view of bytes in the file."""

    def __init__(self, *_: object) -> None:
        self.values: npt.NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        self.values = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if fortran else "C")


class _Arrays(dict[str, Any]):
    """A dict whose keys are text: hashing nested tuples could take exponential time."""

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str) or not isinstance(value, _Array) or value.values is None:
            raise TypeError("an entry that is not an array with a name")
        super().__setitem__(key, value)


#: All that a file may refer to.
_NAMES = {
    "numpy.ndarray": None,
    "numpy.dtype": _Dtype,
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
}


class _Unpickler(pickle._Unpickler):
    """Python's own, with the names that arrays need and no others."""

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.EMPTY_DICT[0]: lambda self: self.append(_Arrays()),
    }

    def find_class(self, module: str, name: str) -> Any:
        """A class of this module; None for numpy.ndarray, which array pickles mention but never call."""
        if f"{module}.{name}" not in _NAMES:
            raise pickle.UnpicklingError(f"a reference to {module}.{name}")
        return _NAMES[f"{module}.{name}"]


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read a pickled ``{name: array}``, as read-only arrays; anything else in the file is a DataError."""
    expected = "Expected a pickled dict of numpy arrays, as published; nothing in the file was executed."
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"{path} has more than the {MAX_BYTES // 2**20} MiB that are read here. {expected}")
    content = path.read_bytes()
    try:
        for count, (instruction, _, _) in enumerate(pickletools.genops(content)):
            if instruction.name not in _INSTRUCTIONS:
                raise pickle.UnpicklingError(f"the instruction {instruction.name}")
            if count >= MAX_INSTRUCTIONS:
                raise pickle.UnpicklingError(f"more than {MAX_INSTRUCTIONS} instructions")
        read = _Unpickler(io.BytesIO(content)).load()
        if not isinstance(read, _Arrays):
            raise pickle.UnpicklingError(f"{type(read).__name__}, not a dict of arrays")
    except Exception as error:  # a broken pickle may raise anything
        raise DataError(f"{path} cannot be read as arrays ({str(error)[:200]}). {expected}") from None
    return {name: array.values for name, array in read.items()}
