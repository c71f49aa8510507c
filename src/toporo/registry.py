"""Names to things of one kind, from this package and from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from toporo.errors import SettingError, UnknownNameError, warn

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A mapping that modules add to with ``@register("name")``.

    Another package adds to it by an entry point of the group ``toporo.<plural of the kind>`` that names a module: the
    module is imported when the registry is first read, and its ``@register`` lines do the rest.

    Parameters
    ----------
    kind : what a message calls one entry, e.g. ``"objective"``.
    group : of the entry points; ``"toporo." + kind + "s"`` unless given.

    >>> shapes = Registry("shape")
    >>> @shapes.register("round")
    ... def circle(radius): ...
    >>> list(shapes), shapes["round"] is circle
    (['round'], True)
    """

    def __init__(self, kind: str, group: str | None = None) -> None:
        self.kind, self.group = kind, group or f"toporo.{kind}s"
        self._things: dict[str, T] = {}
        self._complete = False

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that adds what it is put on under this name.

        Parameters
        ----------
        name : new among its kind.
        """

        def add(thing: T) -> T:
            known = self._things.get(name)
            # A module that is imported again, as `python -m` and reload do, brings the same thing anew.
            if known is not None and _origin(known) != _origin(thing):
                raise SettingError(f"there is already a {self.kind} named {name!r}: choose another name.")
            self._things[name] = thing
            return thing

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._things:
            self._load()
        if name not in self._things:
            raise UnknownNameError(self.kind, name, self._things)
        return self._things[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The entry of this name, or the default."""
        return self._all().get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, T]:
        self._load()
        return self._things

    def _load(self) -> None:
        """Import what other packages bring; a package that fails costs its own entries, not everybody's."""
        if self._complete:
            return
        from importlib.metadata import entry_points  # slow to import, and `toporo --version` needs none

        self._complete = True
        for point in entry_points(group=self.group):
            try:
                point.load()
            except Exception as error:  # whatever a stranger's module raises
                warn(f"{self.group}: cannot load {point.value} ({type(error).__name__}: {error}). It is left out.")


def _origin(thing: object) -> tuple[object, object]:
    return getattr(thing, "__module__", None), getattr(thing, "__qualname__", repr(thing))
