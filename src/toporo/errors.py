"""Errors and warnings of toporo.

Every message says what was found, what was expected and what to do next. All errors derive from
:class:`TopoRoError`, so ``except toporo.TopoRoError`` catches whatever a user's input can cause; each also derives
from the built-in class a Python programmer would expect.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class TopoRoError(Exception):
    """Base of every error that toporo raises on purpose.

    >>> import toporo as tr
    >>> try:
    ...     tr.GroupGraph.from_edges([("NY", "PA")]).hops(["OH"])
    ... except TopoRoError as error:
    ...     print(type(error).__name__)
    GroupMismatchError
    """


class DataError(TopoRoError, ValueError):
    """The numbers given cannot be used: wrong shape, not finite, too few."""


class NothingToTestError(DataError):
    """The group to test on is known, but there is nothing of it to measure with; another one may do."""


class DivergedError(DataError):
    """The training loss is no longer a finite number."""


class GroupMismatchError(TopoRoError, ValueError):
    """Two things that must speak of the same groups do not."""


class GraphError(TopoRoError, ValueError):
    """A group graph is malformed, or does not support what is asked of it."""


class SettingError(TopoRoError, ValueError):
    """A setting is outside its range, or two settings contradict each other."""


class UnknownNameError(TopoRoError, LookupError):
    """A method, cut, measure, … that does not exist; the message lists those that do."""

    def __init__(self, kind: str, given: object, valid: Iterable[str]) -> None:
        names = sorted(valid)
        close = closest(str(given), names)
        hint = f" Did you mean {close!r}?" if close else ""
        super().__init__(f"unknown {kind} {given!r}.{hint} Valid names: {', '.join(names)}.")
        self._asked = (kind, given, names)

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, object, list[str]]]:
        """To travel from one process to another."""
        return type(self), self._asked


class DatasetNotFoundError(TopoRoError, FileNotFoundError):
    """A benchmark's files are not where they were looked for."""


class UnsafeFileError(TopoRoError, ValueError):
    """A file holds something other than plain data; nothing in it was executed."""


class TopoRoWarning(UserWarning):
    """Legal, but probably not what was meant.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", TopoRoWarning)  # stop where something is legal but unwise
    """


def warn(message: str) -> None:
    """Warn with :class:`TopoRoWarning` at the line of the user's code that led here, however deep."""
    if _MUTED.get():
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "toporo":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, TopoRoWarning, stacklevel=level)


@contextmanager
def muted() -> Iterator[None]:
    """Leave out toporo's warnings inside the block, in this thread only: filters of ``warnings`` are of all threads."""
    token = _MUTED.set(True)
    try:
        yield
    finally:
        _MUTED.reset(token)


_MUTED: ContextVar[bool] = ContextVar("muted", default=False)


def listed(items: Iterable[object], limit: int = 8) -> str:
    """Items for a message: ``'a', 'b', … (12 in all)``."""
    everything = list(items)
    text = ", ".join(repr(item) for item in everything[:limit])
    return text if len(everything) <= limit else f"{text}, … ({len(everything)} in all)"


def closest(given: str, names: list[str]) -> str | None:
    """The name that was probably meant: one that begins like it, else one that differs little."""
    from difflib import get_close_matches

    wanted, plain = given.lower(), {name.lower(): name for name in names}
    begins = [name for name in plain if wanted and name.startswith(wanted)]
    meant = begins or get_close_matches(wanted, list(plain), n=1, cutoff=0.6)
    return plain[meant[0]] if meant else None
