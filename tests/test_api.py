"""What ``help()`` and the site's API show: every parameter of every public name in words, and examples that run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import GenericAlias, ModuleType
from typing import Any

import pytest

import toporo.paper.theory


def public() -> Iterator[tuple[str, Any]]:
    """Every public class and function by its dotted name: of toporo itself, then of its packages."""
    seen = set()
    packages = [thing for name in toporo.__all__ if isinstance(thing := getattr(toporo, name), ModuleType)]
    for where in (toporo, *packages, toporo.paper.theory):
        for name in getattr(where, "__all__", ()):
            thing = getattr(where, name)
            if isinstance(thing, ModuleType | GenericAlias) or not callable(thing) or id(thing) in seen:
                continue
            seen.add(id(thing))
            yield f"{where.__name__}.{name}", thing


def parameters(thing: Any) -> list[str]:
    try:
        return [name for name in inspect.signature(thing).parameters if name not in ("self", "cls", "args", "kwargs")]
    except ValueError:  # exceptions take whatever they are given
        return []


def listed(doc: str) -> set[str]:
    """The names at the heads of the entries of a docstring's lists of parameters and attributes."""
    heads = re.findall(r"^((?:\*{0,2}\w+,\s+)*\*{0,2}\w+) : ", doc, flags=re.MULTILINE)
    return {name.strip().lstrip("*") for head in heads for name in head.split(",")}


PUBLIC = dict(public())
OWN = [name for name in PUBLIC if name.count(".") == 1]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_is_documented(name: str) -> None:
    thing = PUBLIC[name]
    doc = inspect.getdoc(thing) or ""
    assert doc
    assert set(parameters(thing)) <= listed(doc)


#: Beside toporo's own names: every method, and all of the inner problem.
METHODS = [f"toporo.objectives.{method.__name__}" for method in toporo.objectives.OBJECTIVES.values()]
INNER = [name for name, thing in PUBLIC.items() if "toporo.robust." in name and inspect.isfunction(thing)]


@pytest.mark.parametrize("name", [*OWN, *METHODS, *INNER])
def test_every_public_name_has_an_example(name: str) -> None:
    """pytest runs them with all doctests of src."""
    assert ">>> " in (inspect.getdoc(PUBLIC[name]) or "")


@pytest.mark.parametrize("name", [name for name in OWN if inspect.isclass(PUBLIC[name])])
def test_every_method_speaks_of_its_parameters(name: str) -> None:
    """In a list, in ``code`` or as a plain word; what scikit-learn and torch bring is theirs to describe."""
    silent = []
    for method, function in inspect.getmembers(PUBLIC[name], callable):
        home = getattr(function, "__module__", None) or ""
        if method.startswith("_") or not home.startswith("toporo."):
            continue
        doc = inspect.getdoc(function) or ""
        words = listed(doc) | set(re.findall(r"[A-Za-z_]\w*", doc))
        silent += [f"{method}({each})" for each in parameters(function) if each not in words]
    assert silent == []
