"""Group names <-> codes: any hashable names, one order whatever the rows' order, everything joined by name."""

from __future__ import annotations

import datetime
import itertools
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toporo.errors import DataError, GroupMismatchError, TopoRoError
from toporo.groups import Groups, name_from_json, name_to_json, plain_name

parts = st.text(max_size=3) | st.integers(-20, 20)
names = parts | st.tuples(parts, parts) | st.tuples(st.tuples(parts), parts)
columns = st.lists(names, min_size=1, max_size=12)
quick = settings(deadline=None, max_examples=60)

MISSING = [None, float("nan"), np.float32("nan"), np.datetime64("NaT"), pd.NA, pd.NaT]


# ---------------------------------------------------------------------- the order of the names


@quick
@given(columns, st.randoms(use_true_random=False))
def test_order_depends_on_the_names_and_not_on_the_order_they_were_met_in(column: list[Any], random: Any) -> None:
    shuffled = random.sample(column, len(column))
    assert Groups(shuffled).names == Groups(column).names
    assert Groups(shuffled) == Groups(column)
    assert hash(Groups(shuffled)) == hash(Groups(column))
    assert Groups([10, 2, 1, 2]).names == (1, 2, 10)  # by value, not as text


@pytest.mark.parametrize(
    "column",
    [
        pytest.param([frozenset("a"), frozenset("b"), frozenset("ab")], id="frozensets: < is not a total order"),
        pytest.param([0, 0.5, 1, 1.0, "a"], id="equal numbers of two types beside text"),
        pytest.param([1, "a", (1, "a"), (1, 2)], id="mixed kinds"),
        pytest.param([datetime.date(2020, 1, 2), datetime.date(2019, 1, 2)], id="dates"),
    ],
)
def test_order_is_canonical_for_awkward_names_too(column: list[Any]) -> None:
    assert {Groups(order).names for order in itertools.permutations(column)} == {Groups(column).names}


# ---------------------------------------------------------------------- encode and decode


@quick
@given(columns)
def test_decode_inverts_encode(column: list[Any]) -> None:
    groups = Groups(column)
    codes = groups.encode(column)
    assert codes.dtype == np.int64
    assert groups.decode(codes) == column
    assert Groups.of(column).names == column


@quick
@given(st.lists(st.integers(-9, 9), min_size=1) | st.lists(st.text("ab ", max_size=3), min_size=1))
def test_numpy_and_list_labels_give_the_same_groups_and_codes(column: list[Any]) -> None:
    from_list = Groups.of(column)
    for array in (np.array(column), np.array(column, dtype=object)):
        from_array = Groups.of(array)
        assert from_array.groups == from_list.groups
        assert all(type(name) in (int, str) for name in from_array.groups)
        np.testing.assert_array_equal(from_array.codes, from_list.codes)


@pytest.mark.parametrize(
    ("given_name", "plain"),
    [(np.int32(3), 3), (np.str_("NY"), "NY"), (np.float64(0.5), 0.5), (np.bool_(True), True), (("a", 1), ("a", 1))],
)
def test_numpy_scalars_become_plain_values(given_name: Any, plain: Any) -> None:
    assert plain_name(given_name) == plain
    assert type(plain_name(given_name)) is type(plain)
    assert given_name in Groups([plain])


def test_torch_labels_are_groups_by_value() -> None:
    """Tensors hash by identity: taken as they are, every row would silently become a group of its own."""
    ids = Groups.of(torch.tensor([4, 4, 2]))
    assert ids.groups.names == (2, 4)
    assert ids.codes.tolist() == [1, 1, 0]


def test_unknown_labels_are_listed_beside_the_known_ones() -> None:
    with pytest.raises(
        GroupMismatchError, match=r"2 unknown group\(s\): '1', 'x'\. Known groups: 1, 2\..*1 is not '1'"
    ):
        Groups([1, 2]).encode(["1", 1, "x", "1"])


@pytest.mark.parametrize("code", [-1, 2])
def test_a_code_of_no_group_is_an_error(code: int) -> None:
    """-1 is the usual mark of 'none'; it must not read as the last group."""
    with pytest.raises(TopoRoError):
        Groups("ab").decode([code])


# ---------------------------------------------------------------------- join by name


@quick
@given(st.lists(names, min_size=1, max_size=8, unique=True), st.randoms(use_true_random=False))
def test_align_joins_by_name_whatever_the_order_of_the_mapping(unique: list[Any], random: Any) -> None:
    groups = Groups(unique)
    value = {name: float(number) for number, name in enumerate(unique)}
    order = random.sample(unique, len(unique))
    aligned = groups.align({name: value[name] for name in order})
    assert aligned.tolist() == [value[name] for name in groups]
    assert groups.named(aligned) == value


def test_a_mismatch_lists_what_is_missing_and_what_is_extra() -> None:
    with pytest.raises(GroupMismatchError) as caught:
        Groups(["NY", "PA", "OH"]).align({"NY": 1.0, "XX": 2.0, "AA": 3.0}, what="the prior")
    message = str(caught.value)
    assert "In the data but not in the prior: 'OH', 'PA'." in message
    assert "In the prior but not in the data: 'AA', 'XX'." in message
    with pytest.raises(GroupMismatchError) as caught:
        Groups("ab").require_same(["b", "a", "b", "c"])
    assert "not in the data: 'c'" in str(caught.value)
    assert "not in the values" not in str(caught.value)


# ---------------------------------------------------------------------- names that are none


@pytest.mark.parametrize("missing", MISSING, ids=repr)
@pytest.mark.parametrize("make", [Groups, Groups.of, Groups("a").encode], ids=["Groups", "of", "encode"])
def test_missing_names_are_refused(make: Any, missing: Any) -> None:
    with pytest.raises(DataError, match="group name is missing"):
        make(["a", missing])


@pytest.mark.parametrize("unhashable", [["a"], {"a": 1}, np.array([1])], ids=["list", "dict", "array"])
def test_unhashable_names_are_refused_with_their_type(unhashable: Any) -> None:
    with pytest.raises(DataError, match=f"must be hashable; found .* of type {type(unhashable).__name__}"):
        Groups([unhashable])


def test_no_groups_is_an_error() -> None:
    with pytest.raises(DataError, match="no groups given"):
        Groups([])


def test_containment_never_raises() -> None:
    groups = Groups(["a", 1])
    assert "a" in groups
    assert np.int64(1) in groups
    assert all(stranger not in groups for stranger in ("1", None, float("nan"), ["a"]))


# ---------------------------------------------------------------------- names in files


@quick
@given(names | st.floats(allow_nan=False) | st.booleans())
def test_json_gives_the_same_name_back(name: Any) -> None:
    back = name_from_json(json.loads(json.dumps(name_to_json(name))))
    assert back == name
    assert type(back) is type(name)


@pytest.mark.parametrize("name", [frozenset("a"), b"NY", ("a", b"NY")])
def test_names_that_json_cannot_hold_are_refused(name: Any) -> None:
    with pytest.raises(DataError, match="cannot be written to a file"):
        name_to_json(name)


@pytest.mark.parametrize("value", [None, ["a"], {"tuple": "ab"}, {"tuple": [None]}, {"other": []}], ids=repr)
def test_json_that_is_no_name_is_refused(value: Any) -> None:
    with pytest.raises(DataError, match="not a group name"):
        name_from_json(value)
