"""Samples and hashes follow from what rows hold, not from where they stand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from toporo.data.frame import read_frame
from toporo.doctor.case import balanced_sample, row_hashes

CELLS = st.one_of(st.none(), st.integers(0, 3), st.floats(-2, 2))


@given(st.lists(st.tuples(CELLS, st.sampled_from(["a", "b", None])), min_size=1, max_size=30), st.randoms())
def test_hashes_are_equal_exactly_where_rows_are(rows: list[tuple[float | None, str | None]], random: object) -> None:
    frame = read_frame({"n": [row[0] for row in rows] + [0.5], "t": [row[1] for row in rows] + ["a"]})
    hashes = row_hashes(frame, ["n", "t"])
    plain = [(None if n is None else n + 0.0, t) for n, t in [*rows, (0.5, "a")]]
    for i, first in enumerate(plain):
        for j, second in enumerate(plain):
            assert (hashes[i] == hashes[j]) == (first == second)
    assert (row_hashes(frame, ["t", "n"]) == hashes).all()


def test_a_value_is_not_the_same_in_another_column() -> None:
    frame = read_frame({"a": [1.0, 2.0], "b": [2.0, 1.0]})
    hashes = row_hashes(frame, ["a", "b"])
    assert hashes[0] != hashes[1]


@given(st.integers(0, 2**32), st.integers(1, 20))
def test_a_sample_does_not_depend_on_the_order_of_rows(seed: int, each: int) -> None:
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 12, 60).astype(np.uint64) * np.uint64(2**60 // 12)
    codes = rng.integers(-1, 4, 60)
    order = rng.permutation(60)
    first = balanced_sample(hashes, codes, [0, 2], each)
    second = order[balanced_sample(hashes[order], codes[order], [0, 2], each)]
    assert [(codes[i], hashes[i]) for i in first] == [(codes[i], hashes[i]) for i in second]
    for code in (0, 2):
        assert (codes[first] == code).sum() == min(each, (codes == code).sum())
    assert set(codes[first]) <= {0, 2}
    assert len(set(first.tolist())) == len(first)


def test_equal_rows_are_sampled_by_how_many_they_are() -> None:
    """A value that nine rows of ten share must make about nine tenths of the sample, not all or none."""
    hashes = np.where(np.arange(2000) % 10 < 9, np.uint64(5), np.uint64(77))
    chosen = balanced_sample(hashes, np.zeros(2000, dtype=np.int64), [0], 400)
    assert 0.85 < (hashes[chosen] == 5).mean() < 0.95
