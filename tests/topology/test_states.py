"""Which groups are states, and where they lie."""

from __future__ import annotations

import math

import pytest

from toporo.pages.maps import load_outlines
from toporo.paper.tpt48 import STATES as FACTS
from toporo.topology.states import STATES, state_codes, state_places


def test_there_are_fifty_states_and_the_district() -> None:
    assert set(STATES) == {*FACTS, "AK", "HI", "DC"}
    assert all(STATES[code][0] == facts.name for code, facts in FACTS.items())


def test_places_are_those_of_the_outlines() -> None:
    for code, at in load_outlines().labels.items():
        assert STATES[code][1:] == pytest.approx(at, abs=0.6)


def test_west_is_left_and_north_is_up() -> None:
    """Of two states far apart in longitude or latitude, as the projection bends lines of latitude."""
    for a, one in FACTS.items():
        for b, other in FACTS.items():
            if one.longitude < other.longitude - 4:
                assert STATES[a][1] < STATES[b][1]
            if one.latitude < other.latitude - 5:
                assert STATES[a][2] < STATES[b][2]


def test_no_two_states_lie_at_one_place() -> None:
    places = list(state_places(STATES).values())
    assert min(math.dist(a, b) for i, a in enumerate(places) for b in places[:i]) > 12


@pytest.mark.parametrize(
    ("names", "codes"),
    [
        (["NY", "pa", "Oh"], ["NY", "PA", "OH"]),
        (["new york", "NORTH_DAKOTA", "West-Virginia"], ["NY", "ND", "WV"]),
        (["Washington", "Washington, D.C.", "DC-"], None),
        (["Washington", "Washington, D.C.", "Oregon"], ["WA", "DC", "OR"]),
        (["NY", "PA"], None),
        (["NY", "PA", "OH", "Ontario"], None),
        (["NY", "PA", "OH", "MI", "Ontario"], ["NY", "PA", "OH", "MI"]),
        (["NY", "New York", "PA", "OH"], None),
        ([1, 2, 3, ("NY", "PA")], None),
        ([], None),
    ],
)
def test_names_are_states_if_nearly_all_are(names: list[object], codes: list[str] | None) -> None:
    assert list(state_codes(names).values()) == (codes or [])  # type: ignore[arg-type]
