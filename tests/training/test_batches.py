"""Rows and random numbers of a step are a function of the seed and the step alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.cases import toy
from toporo.data.batches import batch_rows
from toporo.data.grouped import GroupedData
from toporo.errors import DataError
from toporo.training import Batches, TrainingPlan
from toporo.training.batches import BLOCK, stream_rows, stream_uniforms

#: Three groups of unequal size, whose row numbers begin at 3.
ROWS = GroupedData.from_arrays(np.arange(60), np.zeros(60, int), ["a"] * 30 + ["b"] * 20 + ["c"] * 10).take(
    np.arange(3, 60)
)


@settings(max_examples=30, deadline=None)
@given(first=st.integers(0, 40), count=st.integers(1, 40), per_group=st.integers(1, 9))
def test_rows_of_a_step_do_not_depend_on_the_steps_drawn_with_it(first, count, per_group):
    together = stream_rows(ROWS, per_group, seed=3, first=0, count=first + count)
    np.testing.assert_array_equal(stream_rows(ROWS, per_group, seed=3, first=first, count=count), together[first:])


def test_every_row_of_a_group_passes_once_before_any_passes_again():
    stream = stream_rows(ROWS, 4, seed=0, first=0, count=50)
    for i, name in enumerate(ROWS.groups):
        rows = ROWS.rows(name)
        passes = stream[:, 4 * i : 4 * i + 4].reshape(-1)
        for start in range(0, len(passes) - len(rows), len(rows)):
            assert sorted(passes[start : start + len(rows)]) == sorted(rows)


@settings(max_examples=20, deadline=None)
@given(first=st.integers(0, 2 * BLOCK), count=st.integers(1, 2 * BLOCK))
def test_random_numbers_of_a_step_do_not_depend_on_the_steps_drawn_with_it(first, count):
    together = stream_uniforms(5, 3, seed=1, first=0, count=first + count)
    assert together.shape == (first + count, 5, 3)
    assert 0 <= together.min() <= together.max() < 1
    np.testing.assert_array_equal(stream_uniforms(5, 3, seed=1, first=first, count=count), together[first:])
    assert not np.array_equal(stream_uniforms(5, 3, seed=2, first=first, count=count), together[first:])


def test_batches_draw_numbers_of_rows_in_the_store():
    batches = Batches(torch.zeros(60), torch.zeros(60), ROWS, 4, prepare=lambda x, y, u: (x, y), draws=2)
    rows, uniforms = batches.draw(TrainingPlan(10, "steps", seed=3), 5, 9)
    np.testing.assert_array_equal(rows, ROWS.x[stream_rows(ROWS, 4, seed=3, first=5, count=4)])
    np.testing.assert_array_equal(uniforms, stream_uniforms(12, 2, seed=3, first=5, count=4))
    rows, uniforms = batches.draw(TrainingPlan(10, seed=3), 1, 2)
    np.testing.assert_array_equal(rows, ROWS.x[batch_rows(ROWS, 4, seed=3, epoch=1)])
    np.testing.assert_array_equal(uniforms, stream_uniforms(12, 2, seed=3, first=6, count=6))


@pytest.mark.parametrize("unit", ["epochs", "steps"])
def test_paired_batches_have_the_same_positions_of_all_groups(unit):
    data = toy()
    batches = Batches.of(data, 4, paired=True)
    plan = TrainingPlan(20, unit, seed=3)
    rows = batches.draw(plan, 1, 2)[0]
    positions = {row: position for name in data.groups for position, row in enumerate(data.rows(name))}
    for batch in rows:
        one, *others = [[positions[row] for row in part] for part in batch.reshape(len(data.groups), 4)]
        assert all(other == one for other in others)
    assert not np.array_equal(rows, batches.draw(plan, 2, 3)[0])


def test_the_length_of_a_run_in_steps():
    batches = Batches.of(toy(size=20), 4)
    assert batches.steps(TrainingPlan(6)) == 30
    assert batches.steps(TrainingPlan(6, "steps")) == 6


def test_inputs_and_targets_must_go_together():
    with pytest.raises(DataError, match="60 inputs but 59 targets"):
        Batches(torch.zeros(60), torch.zeros(59), ROWS)
