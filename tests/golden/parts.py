"""The registry of golden parts: each is a function that computes a result, with the tolerance it is compared to."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Numbers are compared to this, relative to the larger of the number and 1, unless a part has a reason for more.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Part:
    """A computation whose result is stored.

    Attributes
    ----------
    name : of its file, ``tests/golden/NAME.json``.
    run : computes the result in a folder of its own.
    tolerance : of numbers.
    reason : why the tolerance is wider than usual.
    modules : optional packages without which it is skipped.
    data : a folder in ``TOPORO_DATA`` without which it is skipped.
    """

    name: str
    run: Callable[[Path], Any]
    tolerance: float
    reason: str
    modules: tuple[str, ...]
    data: str

    def missing(self) -> str:
        """What the part lacks on this machine; empty if it can run."""
        for module in self.modules:
            if importlib.util.find_spec(module) is None:
                return f"{module} is not installed"
        if self.data and not (os.environ.get("TOPORO_DATA") and published(self.data).exists()):
            return f"needs the published data: TOPORO_DATA names no folder with {self.data}"
        return ""


PARTS: dict[str, Part] = {}


def part(
    name: str, *, tolerance: float = TOLERANCE, reason: str = "", modules: tuple[str, ...] = (), data: str = ""
) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Register a function as a golden part; see :class:`Part`."""
    if tolerance > TOLERANCE and not reason:
        raise ValueError(f"part {name}: a tolerance above {TOLERANCE} needs a reason")

    def register(run: Callable[[Path], Any]) -> Callable[[Path], Any]:
        PARTS[name] = Part(name, run, tolerance, reason, modules, data)
        return run

    return register


def published(folder: str) -> Path:
    """A folder of the published data."""
    return Path(os.environ["TOPORO_DATA"]) / folder


@contextlib.contextmanager
def patched(target: Any, **values: Any) -> Iterator[None]:
    """Set attributes of a module or object for a while."""
    before = {name: getattr(target, name) for name in values}
    for name, value in values.items():
        setattr(target, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)
