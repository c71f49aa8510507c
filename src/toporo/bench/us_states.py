"""The 48 contiguous states of the USA: what touches what, and which half of the country a model is trained on.

Two states touch if they share a border on land; those that meet in a point (AZ–CO, NM–UT) or across water do not.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from toporo.errors import DataError, GraphError, UnknownNameError, listed
from toporo.topology.graph import GroupGraph

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


STATES: dict[str, State] = {
    state.code: state
    for state in (
        State("AL", "Alabama", 1, 32.8, -86.8),
        State("AZ", "Arizona", 2, 34.3, -111.7),
        State("AR", "Arkansas", 3, 34.8, -92.4),
        State("CA", "California", 4, 37.2, -119.5),
        State("CO", "Colorado", 5, 39.0, -105.5),
        State("CT", "Connecticut", 6, 41.6, -72.7),
        State("DE", "Delaware", 7, 39.0, -75.5),
        State("FL", "Florida", 8, 28.6, -82.4),
        State("GA", "Georgia", 9, 32.6, -83.4),
        State("ID", "Idaho", 10, 44.4, -114.6),
        State("IL", "Illinois", 11, 40.0, -89.2),
        State("IN", "Indiana", 12, 39.9, -86.3),
        State("IA", "Iowa", 13, 42.1, -93.5),
        State("KS", "Kansas", 14, 38.5, -98.4),
        State("KY", "Kentucky", 15, 37.5, -85.3),
        State("LA", "Louisiana", 16, 31.1, -92.0),
        State("ME", "Maine", 17, 45.4, -69.2),
        State("MD", "Maryland", 18, 39.0, -76.8),
        State("MA", "Massachusetts", 19, 42.3, -71.8),
        State("MI", "Michigan", 20, 44.3, -85.4),
        State("MN", "Minnesota", 21, 46.3, -94.3),
        State("MS", "Mississippi", 22, 32.7, -89.7),
        State("MO", "Missouri", 23, 38.4, -92.5),
        State("MT", "Montana", 24, 47.0, -109.6),
        State("NE", "Nebraska", 25, 41.5, -99.8),
        State("NV", "Nevada", 26, 39.3, -116.6),
        State("NH", "New Hampshire", 27, 43.7, -71.6),
        State("NJ", "New Jersey", 28, 40.2, -74.7),
        State("NM", "New Mexico", 29, 34.4, -106.1),
        State("NY", "New York", 30, 43.0, -75.5),
        State("NC", "North Carolina", 31, 35.6, -79.4),
        State("ND", "North Dakota", 32, 47.5, -100.5),
        State("OH", "Ohio", 33, 40.3, -82.8),
        State("OK", "Oklahoma", 34, 35.6, -97.5),
        State("OR", "Oregon", 35, 43.9, -120.6),
        State("PA", "Pennsylvania", 36, 40.9, -77.8),
        State("RI", "Rhode Island", 37, 41.7, -71.6),
        State("SC", "South Carolina", 38, 33.9, -80.9),
        State("SD", "South Dakota", 39, 44.4, -100.2),
        State("TN", "Tennessee", 40, 35.9, -86.4),
        State("TX", "Texas", 41, 31.5, -99.3),
        State("UT", "Utah", 42, 39.3, -111.7),
        State("VT", "Vermont", 43, 44.1, -72.7),
        State("VA", "Virginia", 44, 37.5, -78.9),
        State("WA", "Washington", 45, 47.4, -120.5),
        State("WV", "West Virginia", 46, 38.6, -80.6),
        State("WI", "Wisconsin", 47, 44.6, -90.0),
        State("WY", "Wyoming", 48, 43.0, -107.6),
    )
}

#: Every pair of states with a common border, once, in alphabetical order.
BORDERS: tuple[tuple[str, str], ...] = tuple(
    (code, other)
    for code, others in {
        "AL": "FL GA MS TN", "AR": "LA MO MS OK TN TX", "AZ": "CA NM NV UT", "CA": "NV OR", "CO": "KS NE NM OK UT WY",
        "CT": "MA NY RI", "DE": "MD NJ PA", "FL": "GA", "GA": "NC SC TN", "IA": "IL MN MO NE SD WI",
        "ID": "MT NV OR UT WA WY", "IL": "IN KY MO WI", "IN": "KY MI OH", "KS": "MO NE OK", "KY": "MO OH TN VA WV",
        "LA": "MS TX", "MA": "NH NY RI VT", "MD": "PA VA WV", "ME": "NH", "MI": "OH WI", "MN": "ND SD WI",
        "MO": "NE OK TN", "MS": "TN", "MT": "ND SD WY", "NC": "SC TN VA", "ND": "SD", "NE": "SD WY", "NH": "VT",
        "NJ": "NY PA", "NM": "OK TX", "NV": "OR UT", "NY": "PA VT", "OH": "PA WV", "OK": "TX", "OR": "WA", "PA": "WV",
        "SD": "WY", "TN": "VA", "UT": "WY", "VA": "WV",
    }.items()
    for other in others.split()
)  # fmt: skip

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
    at: dict[Hashable, tuple[float, float]] = {
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


def check_split(graph: GroupGraph, train: Iterable[Hashable], test: Iterable[Hashable]) -> dict[Hashable, int]:
    """How many edges every test group is from its nearest training group; an error if the split makes no sense.

    Both parts must be there, hold groups of the graph, each once, and have none in common; and every test group must
    hang together with some training group.
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


def _as_list(names: Iterable[Hashable]) -> list[Hashable]:
    if isinstance(names, str):
        raise DataError(f"a part of a split must be a list of names; found the text {names!r}. Write [{names!r}].")
    return list(names)
