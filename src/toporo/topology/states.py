"""Names of the states of the USA, and their places on a map."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

_TABLE = json.loads(files("toporo.topology").joinpath("us_states.json").read_text("utf-8"))["states"]
#: Name and place (x, y) by postal code.
STATES: Mapping[str, tuple[str, float, float]] = {
    code: (name, float(x), float(y)) for code, (name, x, y) in _TABLE.items()
}
