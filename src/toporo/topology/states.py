"""Groups that are states of the USA: which state a name means, and where it lies on a map."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files

from toporo.types import Name

_TABLE = json.loads(files("toporo.topology").joinpath("us_states.json").read_text("utf-8"))["states"]
#: Name and place (x, y) by postal code.
STATES: Mapping[str, tuple[str, float, float]] = {
    code: (name, float(x), float(y)) for code, (name, x, y) in _TABLE.items()
}
#: Groups are states if at least so many of them, and at least this share, have names of states.
FEWEST, SHARE = 3, 0.8
_CODES = {word.casefold(): code for code, (name, *_) in STATES.items() for word in (code, name)}
_CODES |= dict.fromkeys(("washington dc", "washington d c", "d c"), "DC")


def state_codes(names: Iterable[Name]) -> dict[Name, str]:
    """Return the states that groups are named after, by group; empty if the groups are not states.

    Names are postal codes or names of states, in any case. They must be at least three and four in five of all groups,
    each another state.

    >>> state_codes(["NY", "Rhode Island", "vermont", "me", "abroad"])
    {'NY': 'NY', 'Rhode Island': 'RI', 'vermont': 'VT', 'me': 'ME'}
    >>> state_codes(["OR", "AND", "NOT", "IN"])
    {}
    """
    names = list(names)
    codes: dict[Name, str] = {
        name: code for name in names if isinstance(name, str) and (code := _CODES.get(_plain(name)))
    }
    enough = len(codes) >= max(FEWEST, SHARE * len(names))
    return codes if enough and len(set(codes.values())) == len(codes) else {}


def _plain(name: str) -> str:
    """Remove case, punctuation and repeated spaces."""
    for sign in "._-,":
        name = name.replace(sign, " ")
    return " ".join(name.casefold().split())
