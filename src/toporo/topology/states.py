"""Groups that are states of the USA: which state a name means, and where it lies.

Places are those of an Albers projection (parallels 29.5° and 45.5°, the earth has a radius of 1300, y is northwards),
in the middle of a state, where its name would be written. ``toporo.pages`` has outlines in the same units. Alaska and
Hawaii stand south of California, as on most maps, and Washington, D.C. a little beside Maryland's middle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toporo.types import Name

#: Name and place by postal code.
STATES: Mapping[str, tuple[str, float, float]] = {
    "AK": ("Alaska", 88, -566), "AL": ("Alabama", 672, -432), "AR": ("Arkansas", 563, -391),
    "AZ": ("Arizona", 208, -382), "CA": ("California", 78, -293), "CO": ("Colorado", 332, -290),
    "CT": ("Connecticut", 886, -191), "DC": ("District of Columbia", 838, -283), "DE": ("Delaware", 855, -263),
    "FL": ("Florida", 781, -512), "GA": ("Georgia", 736, -428), "HI": ("Hawaii", 221, -581),
    "IA": ("Iowa", 540, -228), "ID": ("Idaho", 195, -163), "IL": ("Illinois", 615, -270),
    "IN": ("Indiana", 666, -269), "KS": ("Kansas", 456, -310), "KY": ("Kentucky", 690, -324),
    "LA": ("Louisiana", 573, -490), "MA": ("Massachusetts", 896, -172), "MD": ("Maryland", 827, -259),
    "ME": ("Maine", 919, -94), "MI": ("Michigan", 684, -190), "MN": ("Minnesota", 523, -129),
    "MO": ("Missouri", 560, -311), "MS": ("Mississippi", 618, -437), "MT": ("Montana", 287, -100),
    "NC": ("North Carolina", 801, -351), "ND": ("North Dakota", 429, -104), "NE": ("Nebraska", 434, -239),
    "NH": ("New Hampshire", 892, -142), "NJ": ("New Jersey", 864, -237), "NM": ("New Mexico", 310, -394),
    "NV": ("Nevada", 142, -252), "NY": ("New York", 835, -173), "OH": ("Ohio", 724, -253),
    "OK": ("Oklahoma", 471, -376), "OR": ("Oregon", 103, -134), "PA": ("Pennsylvania", 806, -226),
    "RI": ("Rhode Island", 904, -184), "SC": ("South Carolina", 780, -392), "SD": ("South Dakota", 430, -172),
    "TN": ("Tennessee", 673, -362), "TX": ("Texas", 434, -469), "UT": ("Utah", 227, -268),
    "VA": ("Virginia", 804, -305), "VT": ("Vermont", 871, -127), "WA": ("Washington", 127, -62),
    "WI": ("Wisconsin", 595, -166), "WV": ("West Virginia", 766, -285), "WY": ("Wyoming", 308, -196),
}  # fmt: skip
#: Fewer names may be anything, and so may many names of which less than this share are states.
FEWEST, SHARE = 3, 0.8
_MEANT = {word.casefold(): code for code, (name, *_) in STATES.items() for word in (code, name)}
_MEANT |= dict.fromkeys(("washington dc", "washington d c", "d c"), "DC")


def state_codes(names: Iterable[Name]) -> dict[Name, str]:
    """The states that groups are named after, by group; empty where the groups are something else than states.

    Names are postal codes or names of states, in any case. They must be at least three and four in five of all groups,
    each another state.

    >>> state_codes(["NY", "Rhode Island", "vermont", "me", "abroad"])
    {'NY': 'NY', 'Rhode Island': 'RI', 'vermont': 'VT', 'me': 'ME'}
    >>> state_codes(["OR", "AND", "NOT", "IN"])
    {}
    """
    everyone = list(names)
    codes = {name: code for name in everyone if (code := _code(name)) is not None}
    enough = len(codes) >= max(FEWEST, SHARE * len(everyone))
    return codes if enough and len(set(codes.values())) == len(codes) else {}


def state_places(names: Iterable[Name]) -> dict[Name, tuple[float, float]]:
    """Where groups that are states lie; empty where the groups are something else, see :func:`state_codes`."""
    return {name: (float(STATES[code][1]), float(STATES[code][2])) for name, code in state_codes(names).items()}


def _code(name: Name) -> str | None:
    if not isinstance(name, str):
        return None
    for sign in "._-,":
        name = name.replace(sign, " ")
    return _MEANT.get(" ".join(name.casefold().split()))
