"""What an objective was made with, as JSON values: checkpoints and ranks tell one from another by it."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from abc import ABCMeta
from collections.abc import Mapping
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toporo.errors import SettingError
from toporo.groups import Groups, name_to_json
from toporo.topology.prior import Prior
from toporo.types import Record


class Recorded(ABCMeta):
    """Classes whose instances know what they were made with: ``settings``, and ``_arguments`` for their identity.

    The call of the class counts, not the calls of ``super().__init__`` that follow from it.
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        """The constructor's, for ``help`` and whoever inspects a class; else it would be that of the call below."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]  # this very class's is meant
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        bound = cls.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        # However groups and prior were given, these are what they came to.
        known = {name: getattr(made, name, value) for name, value in bound.arguments.items() if name in _BY_NAME}
        made.settings = {name: value for name, value in bound.arguments.items() if name not in known}
        made._arguments = _plain_arguments(cls, bound.arguments | known)
        return made


_BY_NAME = ("groups", "prior")


def qualified(thing: Any) -> str:
    """A class or a function by module and name."""
    return f"{thing.__module__}.{thing.__qualname__}"


def _plain_arguments(cls: type, arguments: Mapping[str, Any]) -> Record | str:
    """Arguments as JSON values, now, before anybody changes them; a text says what is wrong with one that cannot be."""
    values: Record = {}
    for name, value in arguments.items():
        try:
            values[name] = plain(value)
        except (SettingError, RecursionError) as error:
            why = error if isinstance(error, SettingError) else "it contains itself"
            return (
                f"{name} of {cls.__name__} is a {type(value).__name__} that cannot be written down ({why}), so a "
                "checkpoint could not tell one run from another. Give numbers, text, arrays or functions, or train "
                "without a checkpoint."
            )
    return values


def plain(value: Any) -> Any:
    """A value as JSON that is equal for equal values, in every process, and never an address.

    Arrays and tensors become digests, functions and classes their names (a lambda its code too), other objects their
    class and what pickle would keep of them.

    >>> plain({"b": (1, 2.5), "a": math.inf})
    {'a': {'number': 'inf'}, 'b': [1, 2.5]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": repr(value)}
    if isinstance(value, Groups):
        return [name_to_json(name) for name in value]
    if isinstance(value, Prior):
        return [[name_to_json(name), weight] for name, weight in value.weights.items()]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return {"set": _ordered(value)}
    if isinstance(value, Mapping):
        pairs = _ordered(value.items())
        return dict(pairs) if all(isinstance(key, str) for key, _ in pairs) else {"pairs": pairs}
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return {"array": [str(value.dtype), list(value.shape), _digest(content)]}
    if isinstance(value, np.ndarray) and value.dtype != object:
        return {"array": [str(value.dtype), list(value.shape), _digest(np.ascontiguousarray(value).tobytes())]}
    if isinstance(value, bytes):
        return {"bytes": _digest(value)}
    if isinstance(value, type | FunctionType | BuiltinFunctionType | CodeType):
        return _named(value)
    return _reduced(value)


def _ordered(values: Any) -> list[Any]:
    return sorted((plain(value) for value in values), key=json.dumps)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _named(value: Any) -> Record:
    """A class or function by its name; what has none of its own, a lambda or an inner function, by what it does."""
    if isinstance(value, CodeType):
        return {"code": [value.co_code.hex(), plain(value.co_consts), plain(value.co_names)]}
    if not isinstance(value, FunctionType) or "<" not in value.__qualname__:
        bound_to = getattr(value, "__self__", None)
        own = bound_to is not None and not inspect.ismodule(bound_to) and not isinstance(value, type)
        return {"name": qualified(value)} | ({"of": plain(bound_to)} if own else {})
    inner = [cell.cell_contents for cell in value.__closure__ or ()]
    return {"name": qualified(value)} | {
        "does": plain([value.__code__, value.__defaults__, value.__kwdefaults__, inner])
    }


def _reduced(value: Any) -> Record:
    """Any other object: its class, and the parts that pickle would make it from."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception as error:  # whatever a stranger's object raises
        raise SettingError(f"{type(value).__name__}: {error}") from None
    if isinstance(reduced, str):
        return {"name": f"{value.__module__}.{reduced}"}
    make, made_from, state, items, pairs = (*reduced, None, None, None)[:5]
    parts = [make, made_from, state, list(items or ()), list(pairs or ())]
    return {"object": qualified(type(value)), "from": plain(parts)}
