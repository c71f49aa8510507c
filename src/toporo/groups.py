"""Group names and the integer codes arrays need.

Weights, priors, losses and graphs are joined on group *names*. Codes are a private convenience of one
:class:`Groups` object and mean nothing beside another one: whoever holds codes also holds the ``Groups`` they belong
to (:class:`GroupIds` keeps the two together). The published implementation of the method joins by position, which
gives its headline experiment a prior that belongs to other groups; this module exists so that ours cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, GroupMismatchError, listed
from toporo.types import Name

Value = TypeVar("Value")

#: Types whose values mean 'missing' in pandas, recognised without importing it.
_MISSING = ("NAType", "NaTType")


class Groups:
    """A fixed set of group names in a canonical order.

    The order depends on the names alone, never on the order in which they were met, so shuffling rows changes
    nothing downstream. Names may be any hashable values: strings, integers, tuples, …

    Parameters
    ----------
    names : of the groups; each counts once.

    >>> groups = Groups(["PA", "NY"])
    >>> groups.names
    ('NY', 'PA')
    >>> groups.encode(["PA", "PA", "NY"])
    array([1, 1, 0])
    >>> groups.align({"PA": 0.7, "NY": 0.3})
    array([0.3, 0.7])
    """

    __slots__ = ("_code_of", "names")

    def __init__(self, names: Iterable[Name]) -> None:
        unique = {plain_name(name): None for name in names}
        if not unique:
            raise DataError("no groups given: expected at least one group name.")
        self.names: tuple[Name, ...] = tuple(_canonical(unique))
        self._code_of = {name: code for code, name in enumerate(self.names)}

    @classmethod
    def of(cls, labels: Iterable[Name]) -> GroupIds:
        """Find the groups of a column of labels (a list, a numpy array, a tensor, …), and each row's code."""
        if hasattr(labels, "detach"):  # a torch tensor: its elements would hash by identity
            labels = labels.detach().cpu().numpy()
        if isinstance(labels, np.ndarray) and labels.dtype != object and labels.ndim == 1 and labels.size:
            unique, inverse = np.unique(labels, return_inverse=True)
            groups = cls(unique.tolist())
            return GroupIds(groups.encode(unique.tolist())[inverse], groups)
        column = [plain_name(label) for label in labels]
        groups = cls(column)
        return GroupIds(groups.encode(column), groups)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Name]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        try:
            return plain_name(name) in self._code_of
        except DataError:
            return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Groups) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"Groups({listed(self.names)})"

    def encode(self, labels: Iterable[Name]) -> npt.NDArray[np.int64]:
        """Codes of a column of names, ``labels``; a name that is not a group is an error that lists it."""
        column = [plain_name(label) for label in labels]
        codes = [self._code_of.get(label, -1) for label in column]
        if -1 in codes:
            unknown = [label for label, code in zip(column, codes, strict=True) if code < 0]
            raise GroupMismatchError(
                f"{len(set(unknown))} unknown group(s): {listed(dict.fromkeys(unknown))}. "
                f"Known groups: {listed(self.names)}. Check the spelling and the type of the names (1 is not '1')."
            )
        return np.asarray(codes, dtype=np.int64)

    def decode(self, codes: Iterable[int]) -> list[Name]:
        """Names of a column of codes."""
        column = [int(code) for code in codes]
        wrong = [code for code in column if not 0 <= code < len(self.names)]
        if wrong:
            raise GroupMismatchError(
                f"code(s) of no group: {listed(dict.fromkeys(wrong))}. Codes run from 0 to {len(self.names) - 1}."
            )
        return [self.names[code] for code in column]

    def align(self, values: Mapping[Any, float], *, what: str = "the values") -> npt.NDArray[np.float64]:
        """One number per group, in this object's order, from ``values``, a mapping by name of exactly these groups.

        ``what`` they are is said in errors.
        """
        plain = {plain_name(name): value for name, value in values.items()}
        self.require_same(plain, what=what)
        return np.asarray([plain[name] for name in self.names], dtype=np.float64)

    def require_same(self, names: Iterable[Name], *, what: str = "the values") -> None:
        """Raise :class:`GroupMismatchError` unless ``names`` are exactly these groups; it says ``what`` has them."""
        given = {plain_name(name) for name in names}
        missing = [name for name in self.names if name not in given]
        extra = _canonical(name for name in given if name not in self._code_of)
        if missing or extra:
            parts = [f"{what} and the data do not speak of the same groups."]
            if missing:
                parts.append(f"In the data but not in {what}: {listed(missing)}.")
            if extra:
                parts.append(f"In {what} but not in the data: {listed(extra)}.")
            parts.append("Give both exactly the same group names.")
            raise GroupMismatchError(" ".join(parts))

    def named(self, values: Iterable[float]) -> dict[Name, float]:
        """The inverse of :meth:`align`: ``values`` in this object's order, keyed by name."""
        return {name: float(value) for name, value in zip(self.names, values, strict=True)}


@dataclass(frozen=True)
class GroupIds:
    """Group codes together with the groups they are codes of.

    Whatever needs one code per row takes either this or plain codes whose groups it was told.

    Parameters
    ----------
    codes : an integer array of any library (numpy, torch), one code per row.
    groups : what they are codes of.

    >>> ids = Groups.of(["PA", "NY", "PA"])
    >>> len(ids), ids.groups.names, ids.names
    (3, ('NY', 'PA'), ['PA', 'NY', 'PA'])
    """

    codes: Any
    groups: Groups

    def __len__(self) -> int:
        return len(self.codes)

    def to(self, *args: Any, **kwargs: Any) -> GroupIds:
        """Move torch codes to a device, as ``Tensor.to`` does."""
        return GroupIds(self.codes.to(*args, **kwargs), self.groups)

    def require_in_range(self) -> None:
        """Raise an error if a code is of no group. Codes on a GPU would have to be waited for."""
        low, high = int(self.codes.min()), int(self.codes.max())
        if low < 0 or high >= len(self.groups):
            raise GroupMismatchError(
                f"group codes run from {low} to {high}, but there are {len(self.groups)} groups (codes 0 to "
                f"{len(self.groups) - 1})."
            )

    @property
    def names(self) -> list[Name]:
        """The name of every row's group."""
        return self.groups.decode(self.codes)


def is_missing(name: object) -> bool:
    """Return whether a cell that may hold a name is missing: None, nan, or what frames have for it."""
    return name is None or type(name).__name__ in _MISSING or (isinstance(name, float) and name != name)


def plain_name(name: object) -> Name:
    """A group name as a plain Python value: numpy and torch scalars unwrapped; missing and unhashable names refused."""
    if type(name) is str and name.isascii():  # as most are
        return name
    if isinstance(name, np.generic) or (hasattr(name, "detach") and getattr(name, "ndim", None) == 0):
        name = name.item()  # type: ignore[attr-defined]
    if isinstance(name, tuple):
        return tuple(plain_name(part) for part in name)
    if is_missing(name):
        raise DataError(
            f"a group name is missing (found {name!r}): drop those rows, or give them a group such as 'unknown'."
        )
    if isinstance(name, str) and any("\ud800" <= sign <= "\udfff" for sign in name if not name.isascii()):
        raise DataError(f"a group is called {name!r}, which is no text: correct the name.")
    if type(name).__repr__ is object.__repr__:
        raise DataError(
            f"group names must be values such as text, numbers or tuples; found an object of type "
            f"{type(name).__name__} without a repr of its own, which has no order and no meaning in a file."
        )
    try:
        hash(name)
    except TypeError:
        raise DataError(f"group names must be hashable; found {name!r} of type {type(name).__name__}.") from None
    return name


def name_to_json(name: Name) -> object:
    """A name as JSON can hold it; tuples become ``{"tuple": [...]}``."""
    if isinstance(name, str | int | float | bool):
        return name
    if isinstance(name, tuple):
        return {"tuple": [name_to_json(part) for part in name]}
    raise DataError(
        f"a group named {name!r} ({type(name).__name__}) cannot be written to a file: "
        "use text, numbers or tuples of them as group names."
    )


def name_from_json(value: object) -> Name:
    """The inverse of :func:`name_to_json`."""
    if isinstance(value, dict) and set(value) == {"tuple"} and isinstance(value["tuple"], list):
        return tuple(name_from_json(part) for part in value["tuple"])
    if isinstance(value, str | int | float | bool):
        return value
    raise DataError(f'not a group name: {value!r}. Expected text, a number or {{"tuple": [...]}}.')


def named_from_json(rows: Iterable[tuple[object, Value]], what: str) -> dict[Name, Value]:
    """Values by name from pairs of a stored name and a value; each name once."""
    pairs = [(name_from_json(name), value) for name, value in rows]
    values = dict(pairs)
    if len(values) < len(pairs):
        raise DataError(f"{what}: a group is there twice.")
    return values


def _canonical(names: Iterable[Name]) -> Sequence[Name]:
    return sorted(names, key=_rank)


def _rank(name: Name) -> tuple[str, Any]:
    """A sort key that puts names of any kinds into one order: numbers, then each other kind by itself."""
    if isinstance(name, int | float):
        return ("", name)
    if isinstance(name, str):
        return ("str", name)
    if isinstance(name, tuple):
        return ("tuple", tuple(_rank(part) for part in name))
    if isinstance(name, frozenset):
        return ("frozenset", tuple(sorted(_rank(part) for part in name)))
    return (f"~{type(name).__name__}", repr(name))
