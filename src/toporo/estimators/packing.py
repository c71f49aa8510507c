"""Write fitted models as plain values and arrays, and read them back; nothing in a file is executed.

:func:`pack` walks the fields of frozen dataclasses, which may hold numbers, text, names of groups, arrays, graphs,
tuples, mappings and other such classes. :func:`unpack` makes the same of what was read: every value must be of the type
that its field is annotated with, every array must belong to a field, and a class that has a method ``check`` raises
there if values of the right types make no model.

>>> @dataclass(frozen=True)
... class Line:
...     slope: float
...     points: npt.NDArray[np.float64]
>>> content, arrays = pack(Line(math.inf, np.arange(2.0)))
>>> content, arrays
({'slope': 'inf', 'points': 'points'}, {'points': array([0., 1.])})
>>> unpack(Line, content, arrays)
Line(slope=inf, points=array([0., 1.]))
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError, listed
from toporo.groups import Groups, name_from_json, name_to_json
from toporo.schema import as_type
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Name

T = TypeVar("T")
Arrays = Mapping[str, npt.NDArray[Any]]

#: Floating-point numbers as JSON holds them where they are not finite.
NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
#: Metadata of fields that are not stored, and have a default. ``{"stored": SomeClass}`` is that of fields which are
#: stored in another form.
UNSTORED: Mapping[str, Any] = {"stored": False}
#: Metadata of fields whose arrays may hold infinite numbers.
UNBOUNDED: Mapping[str, Any] = {"finite": False}
#: The most bytes that the labels of classes may take.
MOST_BYTES = 1 << 26


def pack(value: Any) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
    """Return values that JSON can hold, and arrays by name.

    Parameters
    ----------
    value : a frozen dataclass. A class that is stored in another form has a method ``packed`` that returns it.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    return _pack(value, type(value), "", arrays), arrays


def unpack(kind: type[T], content: Any, arrays: Arrays) -> T:
    """Make the value again; anything but the output of :func:`pack` is a :class:`~toporo.errors.DataError`.

    Parameters
    ----------
    kind : the class that was packed.
    content, arrays : what was read.
    """
    reader = _Reader(arrays, {})
    as_type(content, Any, "its form is wrong")  # no number or nesting beyond measure
    value: T = reader.read(kind, content, "")
    unused = sorted(set(arrays) - set(reader.made))
    if unused:
        raise DataError(f"its arrays {listed(unused)} belong to nothing.")
    return value


# ---------------------------------------------------------------- writing


def _pack(value: Any, hint: Any, path: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    if hasattr(value, "packed"):
        value = value.packed()
    if isinstance(value, np.generic):
        value = value.item()
    if hint is Name:
        return name_to_json(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.ndarray):
        return _pack_array(value, path, arrays)
    if isinstance(value, Groups):
        return [name_to_json(name) for name in value]
    if isinstance(value, GroupGraph):
        return json.loads(value.to_json())
    if isinstance(value, Prior):
        return value.to_dict()
    inner = f"{path}." if path else ""
    if isinstance(value, Mapping):
        of_key, of_value = _arguments(hint, dict)
        packed = [_pack(v, of_value, f"{inner}{place}", arrays) for place, v in enumerate(value.values())]
        return [[_pack(key, of_key, "", arrays), one] for key, one in zip(value, packed, strict=True)]
    if isinstance(value, tuple | list):
        hints = _items(hint, len(value))
        return [_pack(v, h, f"{inner}{place}", arrays) for place, (v, h) in enumerate(zip(value, hints, strict=True))]
    if not is_dataclass(value):
        raise SettingError(f"a {type(value).__name__} cannot be stored.")
    content = {"class": type(value).__name__} if len(_kinds(_class(hint))) > 1 else {}
    for name, of_field in _fields(type(value)).items():
        content[name] = _pack(getattr(value, name), of_field, f"{inner}{name}", arrays)
    return content


def _pack_array(value: npt.NDArray[Any], path: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Put an array among the others and return its name; return labels as they are, with the type of their array."""
    if value.dtype.kind in "fib" and value.dtype.itemsize <= 8:
        same = next((name for name, other in arrays.items() if other is value), None)
        arrays.setdefault(same or path, value if value.flags.c_contiguous else np.array(value, order="C"))
        return same or path
    return labels_to_json(value)


def labels_to_json(labels: npt.NDArray[Any]) -> dict[str, Any]:
    """Return the labels of classes as JSON can hold them.

    Parameters
    ----------
    labels : text, numbers or booleans.
    """
    values = labels.tolist()
    if not all(isinstance(value, bool | int | float | str) for value in values):
        raise DataError(
            f"classes such as {values[0]!r} ({type(values[0]).__name__}) cannot be stored: use text, numbers or "
            "booleans as classes."
        )
    return {"type": labels.dtype.str, "values": values}


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Reader:
    """Makes values of content and arrays; an array that several fields share is made once."""

    arrays: Arrays
    made: dict[str, npt.NDArray[Any]]

    def read(self, hint: Any, content: Any, where: str) -> Any:
        if get_origin(hint) in (Union, UnionType):
            inner = _class(hint)
            if content is None:
                return None
            return self._instance(inner, content, where) if inner is hint else self.read(inner, content, where)
        if hint is Any:
            return as_type(content, NoneType, where)
        if hint is Name:
            return name_from_json(content)
        if hint is float and isinstance(content, str) and content in NOT_FINITE:
            return NOT_FINITE[content]
        if hint in (bool, int, float, str) or get_origin(hint) is Literal:
            return as_type(content, hint, f"its form is wrong: {where}")
        if get_origin(hint) is np.ndarray:
            return self._array(get_args(get_args(hint)[1])[0], content, where)
        if hint is Groups:
            return self._groups(content, where)
        if hint is GroupGraph:
            return GroupGraph.from_dict(content, "its graph")
        if hint is Prior:
            return Prior.from_dict(content)
        if get_origin(hint) is dict:
            of_key, of_value = get_args(hint)
            pairs = as_type(content, list[tuple[Any, Any]], f"its form is wrong: {where}")
            keys = [self.read(of_key, key, where) for key, _ in pairs]
            if len(set(keys)) < len(keys):
                raise DataError(f"its {where} has {listed(keys)}: a name is there twice.")
            values = [self.read(of_value, value, f"{where}[{place}]") for place, (_, value) in enumerate(pairs)]
            return dict(zip(keys, values, strict=True))
        if get_origin(hint) in (tuple, list):
            items = as_type(content, list[Any], f"its form is wrong: {where}")
            hints = zip(items, _items(hint, len(items)), strict=True)
            read = [self.read(of_item, item, f"{where}[{place}]") for place, (item, of_item) in enumerate(hints)]
            return get_origin(hint)(read)
        return self._instance(hint, content, where)

    def _instance(self, hint: type, content: Any, where: str) -> Any:
        """Make an instance of a class, or of one of its subclasses, which the content names."""
        given = as_type(content, dict[str, Any], f"its form is wrong: {where or 'all'}")
        kinds = _kinds(hint)
        kind = next(iter(kinds.values()))
        if len(kinds) > 1:
            name = given.get("class")
            if not isinstance(name, str) or name not in kinds:
                raise DataError(f"its {where} is of class {name!r:.50}, expected one of {listed(kinds)}.")
            kind, given = kinds[name], {key: value for key, value in given.items() if key != "class"}
        hints = _fields(kind)
        if set(given) != set(hints):
            differ = listed(sorted(set(given) ^ set(hints)))
            raise DataError(f"its form is wrong: a {kind.__name__} has no such field, or it is missing: {differ}.")
        inner = f"{where}." if where else ""
        values = {name: self.read(of_field, given[name], f"{inner}{name}") for name, of_field in hints.items()}
        for field in fields(kind):
            value = values.get(field.name)
            if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or not field.metadata.get("finite", True):
                continue
            if not np.isfinite(value).all():
                raise DataError(f"its array '{inner}{field.name}' holds infinite values: expected finite numbers.")
        made = kind(**values)
        if hasattr(made, "check"):
            made.check()
        return made.unpacked() if hasattr(made, "unpacked") else made

    def _array(self, kind: Any, content: Any, where: str) -> npt.NDArray[Any]:
        """Return an array of a type, without NaN; one of any type holds the labels of classes."""
        if kind is Any and not isinstance(content, str):
            return labels_from_json(content)
        name = as_type(content, str, f"its form is wrong: {where}")
        array = self.arrays.get(name)
        if array is None:
            raise DataError(f"its array {name!r:.80} is missing.")
        sound = array.dtype.kind in "fib" if kind is Any else array.dtype == np.dtype(kind)
        if not sound or not array.ndim or (array.dtype.kind == "f" and np.isnan(array).any()):
            expected = "numbers" if kind is Any else np.dtype(kind)
            raise DataError(
                f"its array {name!r:.80} is of type {array.dtype}, holds NaN or has no dimension: expected numbers "
                f"({expected})."
            )
        if kind is Any and (array.ndim > 1 or len(array) < 2 or not (array[1:] > array[:-1]).all()):
            raise DataError(f"its classes {listed(array.ravel()[:20].tolist())} are not at least two, in order.")
        if name not in self.made:
            self.made[name] = np.array(array, order="C")
        return self.made[name]

    def _groups(self, content: Any, where: str) -> Groups:
        names = [name_from_json(name) for name in as_type(content, list[Any], f"its form is wrong: {where}")]
        groups = Groups(names)
        if list(groups) != names:
            raise DataError("its groups are out of order, or one is there twice.")
        return groups


def labels_from_json(content: Any) -> npt.NDArray[Any]:
    """Return the labels of at least two classes, all of the type that is given with them.

    Parameters
    ----------
    content : from :func:`labels_to_json`.
    """
    if content is None:
        raise DataError("it has no classes.")
    given = as_type(content, dict[str, Any], "its classes")
    values = as_type(given.get("values"), list[bool | int | float | str], "its classes")
    name = as_type(given.get("type"), str, "its classes")
    try:
        kind = np.dtype(name)
        if kind.kind not in "biufUO" or kind.itemsize * len(values) > MOST_BYTES:
            raise OverflowError
        labels = np.empty(len(values), dtype=kind)
        labels[:] = values
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"its classes {listed(values)} are not of type {name!r:.20}.") from None
    kept = labels.tolist()
    if len(set(values)) < max(2, len(values)) or [*map(type, kept)] != [*map(type, values)] or kept != values:
        raise DataError(f"its classes {listed(values)} are not at least two distinct values of type {kind}.")
    return labels


def check_arrays(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise unless these are the arrays: finite numbers in double precision, and scales above 0.

    Parameters
    ----------
    arrays, shapes : by name.
    """
    if set(arrays) != set(shapes):
        raise DataError(f"its arrays are {listed(sorted(arrays))}, expected {listed(sorted(shapes))}.")
    for key, shape in shapes.items():
        array = arrays[key]
        if array.dtype != np.float64 or array.shape != shape or not np.isfinite(array).all():
            raise DataError(
                f"its array {key!r} has shape {array.shape} and type {array.dtype}: expected finite numbers (float64) "
                f"of shape {shape}."
            )
        if key.endswith(".scale") and not (array > 0).all():
            raise DataError(f"its array {key!r} holds numbers that are not positive.")


# ---------------------------------------------------------------- types


def _fields(kind: type) -> dict[str, Any]:
    """Return the types of the fields that a class is made of."""
    hints, out = get_type_hints(kind), {}
    for field in fields(kind):
        stored = field.metadata.get("stored", True)
        if field.init and stored:
            out[field.name] = hints[field.name] if stored is True else stored
    return out


def _kinds(hint: type) -> dict[str, type]:
    """Return a class and its subclasses, or those of several, by name, as far as they can be made of fields."""
    family: list[type] = [kind for option in get_args(hint) or [hint] for kind in _family(option)]
    return {kind.__name__: kind for kind in family if hasattr(kind, "__dataclass_fields__")}


def _family(kind: Any) -> Iterator[type]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _family(subclass)


def _class(hint: Any) -> Any:
    """Return the type of a value that may also be None; several types are returned as they are."""
    options = [option for option in get_args(hint) if option is not NoneType]
    return options[0] if get_origin(hint) in (Union, UnionType) and len(options) == 1 else hint


def _arguments(hint: Any, origin: type) -> tuple[Any, ...]:
    hint = _class(hint)
    return get_args(hint) if get_origin(hint) is origin else (Any, Any)


def _items(hint: Any, count: int) -> list[Any]:
    """Return the types of the items of a list or a tuple."""
    given = get_args(_class(hint))
    if (len(given) == 2 and given[1] is Ellipsis) or get_origin(_class(hint)) is list:
        return [given[0]] * count
    if len(given) != count:
        raise DataError(f"its form is wrong: {count} values where {len(given)} are expected.")
    return list(given)
