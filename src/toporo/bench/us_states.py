"""The 48 contiguous states of the USA: what touches what, and which half of the country a model is trained on.

Two states touch if they share a border on land; those that meet in a point (AZ–CO, NM–UT) or across water do not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

from toporo.errors import DataError, GraphError, UnknownNameError, listed
from toporo.topology.graph import GroupGraph
from toporo.types import Name

#: The last hop class holds the states that are this many borders away, or more.
FARTHEST = 3


@dataclass(frozen=True)
class State:
    """A state: postal code, name, number in NOAA's climate division files, and its middle in degrees."""

    code: str
    name: str
    noaa: int
    latitude: float
    longitude: float


@dataclass(frozen=True)
class StateSplit:
    """Which states to train on and which to test on, by postal code."""

    name: str
    title: str
    train: tuple[str, ...]
    test: tuple[str, ...]


_CONTENT = json.loads(files("toporo.bench").joinpath("us_states.json").read_text(encoding="utf-8"))["states"]
STATES: dict[str, State] = {code: State(code, *facts) for code, (*facts, _) in _CONTENT.items()}
#: Every pair of states with a common border, once, in alphabetical order.
BORDERS: tuple[tuple[str, str], ...] = tuple(
    (code, other) for code in sorted(_CONTENT) for other in _CONTENT[code][-1].split()
)

_EAST = "AL CT DE FL GA IN KY MA MD ME MI MO NC NH NJ NY OH PA RI SC TN VA VT WV"
_NORTH = "CT IA ID IL IN MA ME MI MN MT ND NE NH NJ NY OH OR PA RI SD VT WA WI WY"


def _halves(name: str, title: str, train: str) -> StateSplit:
    trained = train.split()
    return StateSplit(name, title, tuple(trained), tuple(sorted(STATES.keys() - set(trained))))


#: The paper's two: train on one half of the country, test on the other.
SPLITS: dict[str, StateSplit] = {
    split.name: split for split in (_halves("east-west", "E→W", _EAST), _halves("north-south", "N→S", _NORTH))
}


def border_graph() -> GroupGraph:
    """The states and their common borders, each state where it lies on a map."""
    narrowing = math.cos(math.radians(38.0))  # of a degree of longitude in the middle of the country
    at: dict[Name, tuple[float, float]] = {
        code: (round(state.longitude * narrowing, 3), state.latitude) for code, state in STATES.items()
    }
    return GroupGraph(STATES, dict.fromkeys(BORDERS, 1.0), positions=at)


def get_split(split: str | StateSplit) -> StateSplit:
    """A split by its name; one of your own stays as it is."""
    if isinstance(split, StateSplit):
        return split
    if split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    return SPLITS[split]


def make_split(train: Iterable[str], test: Iterable[str], *, name: str = "own", title: str | None = None) -> StateSplit:
    """A split of your own, of states by code or name in any case. States in neither part are left out of the data.

    >>> make_split(["Ohio", "pa"], ["NY"]).train
    ('OH', 'PA')
    """
    parts = [tuple(sorted(_code(state) for state in _as_list(part))) for part in (train, test)]
    check_split(border_graph(), *parts)
    return StateSplit(name, title or name, *parts)


def check_split(graph: GroupGraph, train: Iterable[Name], test: Iterable[Name]) -> dict[Name, int]:
    """How many edges every test group is from its nearest training group; an error if the split makes no sense.

    Both parts must be there, hold groups of the graph, each once, and have none in common; and every test group must
    be joined by a path to some training group.
    """
    parts = {"training": _as_list(train), "test": _as_list(test)}
    for what, names in parts.items():
        if not names:
            raise DataError(f"the split has no {what} groups: name at least one.")
        for name in names:
            if name not in graph:
                raise UnknownNameError(f"{what} group", name, map(str, graph.names))
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise DataError(f"the split names {what} group(s) {listed(twice)} more than once: name each once.")
    both = [name for name in parts["training"] if name in parts["test"]]
    if both:
        raise DataError(
            f"the split has {listed(both)} among both the training and the test groups: a test group is one that "
            "training never sees, so leave each in one of the two."
        )
    hops = graph.hops(parts["training"])
    lost = [name for name in parts["test"] if hops[name] == math.inf]
    if lost:
        raise GraphError(
            f"no path in the graph leads from a training group to test group(s) {listed(lost)}: add the edges that "
            "join them, or leave them out of the split."
        )
    return {name: int(hops[name]) for name in parts["test"]}


def hop_classes(split: str | StateSplit) -> dict[str, int]:
    """Class of every test state: 1, 2 or 3 for that many borders to the nearest training state, 3 also for more."""
    chosen = get_split(split)
    hops = check_split(border_graph(), chosen.train, chosen.test)
    return {code: min(hops[code], FARTHEST) for code in chosen.test}


def _code(text: object) -> str:
    codes = {state.name.lower(): state.code for state in STATES.values()} | {code.lower(): code for code in STATES}
    wanted = str(text).strip().lower()
    if wanted not in codes:
        raise UnknownNameError("state", text, (state.name for state in STATES.values()))
    return codes[wanted]


def _as_list(names: Iterable[Name]) -> list[Name]:
    if isinstance(names, str):
        raise DataError(f"a part of a split must be a list of names; found the text {names!r}. Write [{names!r}].")
    return list(names)
