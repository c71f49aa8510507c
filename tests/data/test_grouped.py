"""Grouped data takes in what it can use, refuses the rest in words, and splits each group by itself."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from numpy.testing import assert_array_equal

from tests.data.cases import rows_of
from toporo.data import GroupedData
from toporo.errors import DataError, GroupMismatchError, SettingError
from toporo.groups import GroupIds, Groups


@pytest.fixture
def data():
    return rows_of({"b": 10, "a": 5, "c": 20})


# ---------------------------------------------------------------- intake


def test_keeps_rows_and_names_together():
    data = GroupedData.from_arrays([[1.0], [2.0], [3.0]], [0, 1, 1], ["PA", "NY", "PA"])
    assert len(data) == 3
    assert data.groups.names == ("NY", "PA")
    assert data.sizes == {"NY": 1, "PA": 2}
    assert data.ids.names == ["PA", "NY", "PA"]
    assert_array_equal(data.rows("PA"), [0, 2])


def test_takes_torch_tensors_and_group_ids():
    ids = GroupIds(torch.tensor([1, 0]), Groups(["NY", "PA"]))
    data = GroupedData.from_arrays(torch.ones(2, 3, requires_grad=True), torch.tensor([0, 1]), ids)
    assert data.ids.names == ["PA", "NY"]
    assert {type(data.x), type(data.y), type(data.codes)} == {np.ndarray}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["x", "y"])
def test_nan_and_infinity_are_refused_with_their_place(where, bad):
    arrays = {"x": np.ones((4, 2)), "y": np.ones(4)}
    arrays[where][2:, ...] = bad
    with pytest.raises(
        DataError, match=f"{where} holds NaN or infinite values in 2 of 4 rows \\(first: row 2\\).*Impute or drop"
    ):
        GroupedData.from_arrays(**arrays, groups=[0, 0, 1, 1])


@pytest.mark.parametrize(
    ("x", "y", "groups", "message"),
    [
        (np.ones((3, 2)), np.ones(2), ["a", "b"], "x has 3 rows, y 2 and groups 2: they must agree"),
        (np.ones((2, 2)), np.ones(2), ["a", "b", "b"], "x has 2 rows, y 2 and groups 3: they must agree"),
        (np.array([["old"], ["new"]]), np.ones(2), ["a", "b"], "x must hold numbers; found <U3. Encode text"),
        (np.ones((2, 1)), ["no", "yes"], ["a", "b"], "y must hold numbers; found <U3. Encode text"),
        (1.0, np.ones(2), ["a", "b"], "x is a single number"),
        (np.ones((2, 1)), np.ones(2), ["a", None], "a group name is missing"),
        (np.ones((2, 1)), np.ones(2), GroupIds(np.array([0, 0]), Groups("ab")), r"empty group\(s\).*'b'"),
        (np.ones((0, 2)), np.ones(0), [], "no groups given|no rows"),
        (np.ones((2, 1)), np.ones(2), GroupIds(np.array([0, 2]), Groups("ab")), "codes"),
        (np.ones((2, 1)), np.ones(2), GroupIds(np.array([0, -1]), Groups("ab")), "codes"),
    ],
    ids=[
        "short y",
        "long groups",
        "text x",
        "text y",
        "a number",
        "missing name",
        "empty group",
        "no rows",
        "large code",
        "negative code",
    ],
)
def test_unusable_rows_are_refused(x, y, groups, message):
    with pytest.raises((DataError, GroupMismatchError), match=message):
        GroupedData.from_arrays(x, y, groups)


# ---------------------------------------------------------------- parts


def test_select_keeps_the_rows_of_these_groups_only(data):
    chosen = data.select(["c", "a"])
    assert chosen.groups.names == ("a", "c")
    assert_array_equal(chosen.y, np.sort(np.concatenate([data.rows("a"), data.rows("c")])))
    assert chosen.ids.names == [data.ids.names[row] for row in chosen.y]


@pytest.mark.parametrize(
    ("names", "message"), [(["a", "x"], r"1 unknown group\(s\): 'x'"), ([], "no groups given|no rows")]
)
def test_select_of_what_is_not_there_is_refused(data, names, message):
    with pytest.raises((GroupMismatchError, DataError), match=message):
        data.select(names)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    sizes=st.dictionaries(st.sampled_from("abcdef"), st.integers(2, 30), min_size=1),
    fraction=st.floats(0.25, 0.74),
    seed=st.integers(0, 2**31),
)
def test_split_is_disjoint_complete_and_in_proportion(sizes, fraction, seed):
    data = rows_of(sizes)
    if any(round(fraction * size) in (0, size) for size in sizes.values()):  # refused, as tested below
        return
    parts = data.split(fraction, seed)
    assert_array_equal(np.sort(np.concatenate([parts.train.y, parts.validation.y])), data.y)
    assert parts.validation.sizes == {name: round(fraction * size) for name, size in data.sizes.items()}
    for part in (parts.train, parts.validation):
        assert part.groups == data.groups
        assert part.ids.names == [data.ids.names[row] for row in part.y]
        assert_array_equal(part.x, data.x[part.y])


def test_split_is_decided_by_the_seed(data):
    def held(seed):
        return data.split(0.4, seed).validation.y.tolist()

    assert held(3) == held(3)
    assert len({tuple(held(seed)) for seed in range(5)}) == 5


def test_a_group_is_split_the_same_whatever_the_other_groups_do(data):
    """Dropping the other groups, or putting them in another order, leaves a group's held-out rows where they were."""

    def held(part):
        rows = part.split(0.2, seed=7).validation
        return rows.y[rows.rows("c")].tolist()

    others_reversed = np.arange(len(data))
    others = np.flatnonzero(data.codes != data.groups.encode(["c"])[0])
    others_reversed[others] = others[::-1]
    others_first = np.concatenate([others, data.rows("c")])
    expected = held(data)
    for part in (data.select(["c"]), data.select(["b", "c"]), data.take(others_reversed), data.take(others_first)):
        assert held(part) == expected


def test_groups_of_the_same_size_are_not_split_alike():
    """Each has a random stream of its own; with a common one, row 3 of every group would go the same way."""
    data = rows_of(dict.fromkeys("abcd", 20))
    held = data.split(0.5, seed=0).validation.y
    places = {tuple(np.flatnonzero(np.isin(data.rows(name), held))) for name in data.groups}
    assert len(places) == 4


@pytest.mark.parametrize(("size", "fraction"), [(1, 0.5), (2, 0.2), (3, 0.9)])
def test_a_group_too_small_to_split_is_named(size, fraction):
    with pytest.raises(DataError, match=f"group 'tiny' has {size} row\\(s\\): too few to set {fraction:.0%} aside"):
        rows_of({"big": 20, "tiny": size}).split(fraction, seed=0)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_a_fraction_outside_zero_and_one_is_refused(data, fraction):
    with pytest.raises(SettingError, match="expected a number between 0 and 1"):
        data.split(fraction, seed=0)


def test_a_negative_seed_is_refused_in_words(data):
    with pytest.raises(SettingError, match="seed is -1"):
        data.split(0.2, seed=-1)
