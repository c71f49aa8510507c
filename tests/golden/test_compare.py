"""What ``make golden`` notices, and what it does not look at."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .compare import PROSE, differences, to_json
from .parts import PARTS, Part, part
from .run import check, store

RESULT = {
    "a": [1.0, 2.0],
    "b": {"name": "lock", "note": "a sentence of words"},
    "c": math.inf,
    "d": math.nan,
    "e": True,
}


def changed(**values: Any) -> list[str]:
    return list(differences(to_json(RESULT | values), to_json(RESULT), 1e-9))


def test_the_same_result_has_no_differences() -> None:
    assert changed() == []
    assert changed(a=[1.0 + 1e-10, 2.0]) == []


def test_prose_is_not_compared_but_must_be_there() -> None:
    assert changed(b={"name": "lock", "note": "other words"}) == []
    assert changed(b={"name": "lock", "note": 3.0}) == [f"b.note: found 3.0, expected {PROSE!r}"]


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"a": [1.0 + 1e-8, 2.0]}, "a[0]"),
        ({"a": [1.0]}, "a: found 1 entries"),
        ({"b": {"name": "mouth", "note": "a sentence of words"}}, "b.name"),
        ({"b": {"name": "lock"}}, "b.note: missing"),
        ({"c": 1e300}, "c: found 1e+300"),
        ({"d": 0.0}, "d: found 0.0"),
        ({"e": 1}, "e: found 1, expected True"),
        ({"f": 1}, "f: not expected"),
    ],
)
def test_a_change_is_reported_where_it_is(values: dict[str, Any], where: str) -> None:
    (line,) = changed(**values)
    assert line.startswith(where)


def test_arrays_and_pairs_of_names_become_json() -> None:
    assert to_json({("a", "b"): np.arange(2), "n": np.float64(1 / 3)}) == {"a|b": [0, 1], "n": 0.333333333333}


def test_a_result_is_stored_as_json(tmp_path: Path) -> None:
    store(tmp_path / "part.json", to_json(RESULT))
    assert not list(differences(json.loads((tmp_path / "part.json").read_text()), to_json(RESULT), 0.0))


def test_a_part_that_fails_or_is_not_stored_is_reported() -> None:
    never_stored = Part("no-such-part", lambda folder: None, 1e-9, "", (), "")
    assert check(never_stored, "", "Traceback\nValueError: oh") == ["Traceback", "ValueError: oh"]
    assert check(never_stored, "{}", "") == ["nothing is stored: make golden-update NAME=no-such-part"]


def test_a_wide_tolerance_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        part("wide", tolerance=1e-3)
    assert "wide" not in PARTS


def test_every_stored_result_belongs_to_a_part_and_all_are_small() -> None:
    from .run import HERE, load_parts

    stored = {path.stem: path.stat().st_size for path in HERE.glob("*.json")}
    assert stored.keys() == load_parts().keys()
    assert sum(stored.values()) <= 300_000
