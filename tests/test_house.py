"""The plan of the house: what a reader may rely on without looking, held by reading the sources."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import toporo

ROOT = Path(toporo.__file__).parent
#: The most that src may come to.
FILES, LINES, LAZY = 202, 58_760, 20


@dataclass(frozen=True)
class Module:
    """A source file and what it imports of toporo."""

    name: str
    path: Path
    package: bool
    lines: list[str]
    tree: ast.Module

    def imports(self) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, list[str]]]:
        """Each statement that imports from toporo: whether it waits for a call or a type checker, and what it names."""
        pending: list[tuple[ast.AST, bool]] = [(self.tree, False)]
        while pending:
            node, lazy = pending.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                lazy = True
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                lazy = True
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [name for name in self._named(node) if name.split(".")[0] == "toporo"]
                if names:
                    yield node, lazy, names
            pending += [(child, lazy) for child in ast.iter_child_nodes(node)]

    def _named(self, node: ast.Import | ast.ImportFrom) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        base = node.module or ""
        if node.level:
            up = self.name.split(".")[: len(self.name.split(".")) - node.level + self.package]
            base = ".".join([*up, *filter(None, [base])])
        return [f"{base}.{alias.name}" for alias in node.names]

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT.parent))


@cache
def modules() -> dict[str, Module]:
    """All of src, by dotted name."""
    everything = {}
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if package else parts)
        everything[name] = Module(name, path, package, text.splitlines(), ast.parse(text))
    return everything


def imported() -> dict[str, set[str]]:
    """Which modules each module imports, at its top, in functions or for type checkers.

    A name that is a module is that module; any other belongs to the module, or the package's ``__init__``, that it is
    imported from.
    """
    edges: dict[str, set[str]] = {name: set() for name in modules()}
    for name, module in modules().items():
        for _, _, targets in module.imports():
            edges[name] |= {target if target in modules() else target.rpartition(".")[0] for target in targets}
        edges[name] &= modules().keys() - {name}
    return edges


def knots(edges: dict[str, set[str]]) -> list[list[str]]:
    """Sets of modules each of which imports all the others of the set, if by way of some of them."""
    reach = {name: _reached(edges, name) for name in edges}
    tied = {frozenset(other for other in reach[name] if name in reach[other]) for name in edges if name in reach[name]}
    return sorted(sorted(knot) for knot in tied)


def _reached(edges: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    pending = [start]
    while pending:
        new = edges[pending.pop()] - seen
        seen |= new
        pending += new
    return seen


# ---------------------------------------------------------------- imports


def test_knots_are_seen() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert knots(edges) == [["b", "c"]]
    assert knots(edges | {"d": {"e"}}) == [["a", "b", "c", "d", "e"]]


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Neither at their tops nor in functions nor for type checkers."""
    assert knots(imported()) == []


def lazy_imports() -> list[tuple[Module, int]]:
    """Imports from toporo that wait for a call or a type checker, by file and line."""
    return [(module, node.lineno) for module in modules().values() for node, lazy, _ in module.imports() if lazy]


def test_hardly_any_import_hides_in_a_function() -> None:
    places = [f"{module}:{line}" for module, line in lazy_imports()]
    assert len(places) <= LAZY, f"{len(places)} of them: {places}"


def test_an_import_that_hides_in_a_function_says_why() -> None:
    """On its line or the line above."""
    silent = [f"{m}:{line}" for m, line in lazy_imports() if "#" not in m.lines[line - 1] + m.lines[line - 2]]
    assert silent == []


# ---------------------------------------------------------------- names


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for module in modules().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{module}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_a_variable_is_named_for_what_it_holds() -> None:
    """``found`` says how a thing was come by, not what it is."""
    vague = []
    for module in modules().values():
        for node in ast.walk(module.tree):
            named = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "found"
            if named or (isinstance(node, ast.arg) and node.arg == "found"):
                vague.append(f"{module}:{node.lineno}")
    assert vague == []


# ---------------------------------------------------------------- size


def test_the_house_does_not_grow_unnoticed() -> None:
    """A new limit is a decision, not an accident."""
    assert len(modules()) <= FILES
    assert sum(len(module.lines) for module in modules().values()) <= LINES


# ---------------------------------------------------------------- help


def public_classes() -> list[type]:
    """Classes at the top and in the packages that are public."""
    packages = [toporo, *(getattr(toporo, name) for name in toporo._PACKAGES)]
    things = [getattr(package, name) for package in packages for name in getattr(package, "__all__", ())]
    classes = {thing for thing in things if inspect.isclass(thing) and thing.__module__.startswith("toporo")}
    return sorted(classes, key=lambda each: (each.__module__, each.__qualname__))


def described(text: str) -> set[str]:
    """Names that a docstring describes, as ``name : text`` or ``one, other : text``.

    >>> sorted(described("x, y : where.\\n    **settings : others."))
    ['settings', 'x', 'y']
    """
    lists = re.findall(r"^\s*((?:\*{0,2}\w+)(?:, \*{0,2}\w+)*) : ", text, flags=re.MULTILINE)
    return {name.lstrip("*") for names in lists for name in names.split(", ")}


def missing(each: type) -> set[str]:
    """Parameters of a class that its docstring does not describe."""
    try:
        parameters = inspect.signature(each).parameters.values()
    except ValueError:  # a class of Python's own, such as an exception
        return set()
    wanted = {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    return wanted - described(inspect.getdoc(each) or "")


def test_help_of_a_class_lists_its_parameters() -> None:
    assert len(public_classes()) > 40
    assert {f"{each.__module__}.{each.__name__}": missing(each) for each in public_classes() if missing(each)} == {}
