"""Every batch holds the same number of rows of every group, and depends on the seed and the epoch alone."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from numpy.testing import assert_array_equal

from tests.data.cases import rows_of
from toporo.data import GroupedData
from toporo.data.batches import batch_rows, group_batches, steps_per_epoch
from toporo.errors import SettingError

SIZES = {"b": 10, "a": 3, "c": 25}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    sizes=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 30), min_size=1),
    per_group=st.integers(1, 40),
    epoch=st.integers(0, 5),
)
def test_an_epoch_is_balanced_and_recycles_small_groups(sizes, per_group, epoch):
    """It passes once over the largest group; every row of a smaller one comes up before any comes up again."""
    data = rows_of(sizes)
    rows = batch_rows(data, per_group, seed=0, epoch=epoch)
    assert rows.shape == (max(1, max(sizes.values()) // per_group), per_group * len(sizes))
    for batch in rows:
        assert_array_equal(np.bincount(data.codes[batch]), per_group)
    for code, name in enumerate(data.groups):
        drawn = rows[data.codes[rows] == code]  # in order of drawing: steps, then columns
        for start in range(0, len(drawn), sizes[name]):
            once = drawn[start : start + sizes[name]]
            assert len(set(once)) == len(once)
            assert set(once) <= set(data.rows(name))


def test_batches_are_a_function_of_seed_and_epoch():
    data = rows_of(SIZES)
    keys = [(seed, epoch) for seed in range(3) for epoch in range(3)]
    drawn = {key: batch_rows(data, 4, seed=key[0], epoch=key[1]) for key in keys}
    for (seed, epoch), rows in drawn.items():
        assert_array_equal(batch_rows(data, 4, seed=seed, epoch=epoch), rows)
    assert len({rows.tobytes() for rows in drawn.values()}) == len(keys)


def test_a_small_group_starts_over_in_a_new_order():
    rows = batch_rows(rows_of({"a": 8, "z": 80}), 8, seed=0, epoch=0)[:, :8]
    assert len({tuple(batch) for batch in rows}) > 1
    assert len({frozenset(batch) for batch in rows}) == 1


def test_groups_of_the_same_size_are_not_drawn_alike():
    data = rows_of(dict.fromkeys("abcd", 20))
    drawn = batch_rows(data, 20, seed=0, epoch=0).reshape(4, 20)
    order = {tuple(np.searchsorted(data.rows(name), rows)) for name, rows in zip(data.groups, drawn, strict=True)}
    assert len(order) == 4


def test_a_group_is_drawn_the_same_whatever_the_other_groups_do():
    data = rows_of(SIZES)
    alone = data.select(["c"])
    together = batch_rows(data, 5, seed=1, epoch=2)[:, -5:]
    assert_array_equal(data.y[together], alone.y[batch_rows(alone, 5, seed=1, epoch=2)])


def test_group_batches_are_ready_for_an_objective():
    """Floats as float32, integers as int64, codes with their names; the rows are those of ``batch_rows``."""
    data = rows_of(SIZES)
    batches = list(group_batches(data, 5, epochs=2, seed=3))
    expected = np.concatenate([batch_rows(data, 5, seed=3, epoch=epoch) for epoch in range(2)])
    assert len(batches) == len(expected) == 10
    for (x, y, groups), rows in zip(batches, expected, strict=True):
        assert (x.dtype, y.dtype, groups.codes.dtype) == (torch.float32, torch.int64, torch.int64)
        assert_array_equal(y, data.y[rows])
        assert_array_equal(x, data.x[rows])
        assert groups.groups == data.groups
        assert groups.names == [data.ids.names[row] for row in rows]


def test_booleans_and_small_types_become_torch_defaults():
    data = GroupedData.from_arrays(np.ones((2, 1), dtype=np.float16), np.array([True, False]), ["a", "b"])
    ((x, y, _),) = group_batches(data, 1)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize("per_group", [0, -1, 2.5])
def test_a_batch_size_that_is_none_is_refused(per_group):
    data = rows_of(SIZES)
    with pytest.raises(SettingError, match="expected a whole number of at least 1"):
        steps_per_epoch(data, per_group)
    with pytest.raises(SettingError, match=f"per_group is {per_group}"):
        next(group_batches(data, per_group))
