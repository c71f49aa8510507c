"""Names of states, and their places."""

from __future__ import annotations

import math

import pytest

from toporo.topology.states import STATES, state_codes


def test_no_two_states_lie_at_one_place() -> None:
    places = [place for _, *place in STATES.values()]
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
