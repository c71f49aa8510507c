"""Sums over rows, moved and resampled, are those of the rows that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from toporo.tables import resample
from toporo.tables.resample import Bootstrap, Sample


def sample(rows: int, centre: float, seed: int = 0) -> Sample:
    """Rows with a target near 5, of which ``centre`` is taken."""
    random = np.random.default_rng(seed)
    error, target = random.normal(size=rows), random.normal(5.0, size=rows) - centre
    return Sample(np.stack([error**2, np.abs(error), target, target**2]), np.empty(0), centre)


def bootstrap(members: dict[str, Sample], resamples: int = 40) -> Bootstrap:
    def metrics(sums: np.ndarray) -> dict[str, np.ndarray]:
        return {"mse": sums[:, 1] / sums[:, 0]}

    return Bootstrap(members, next(iter(members.values())), metrics, resamples=resamples, level=0.9, seed=0)


def test_sums_about_another_centre() -> None:
    near, far = sample(20, 4.0), sample(20, 6.5)
    assert_allclose(near.about(6.5, near.total()), far.total())
    assert_array_equal(near.about(4.0, near.total()), near.total())


def test_every_resample_has_as_many_rows_and_all_rows_come_up_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resample, "PORTION", 33)
    counts = bootstrap({"a": sample(8, 0.0)}, resamples=2000)._counts(8)
    assert_array_equal(counts.sum(axis=1), 8)
    assert_allclose(counts.mean(axis=0), 1.0, atol=0.1)
    assert_allclose(counts.var(axis=0), 7 / 8, atol=0.12)


def test_resampled_sums_are_those_of_the_rows_counted() -> None:
    given = sample(3, 0.0)
    counts = np.asarray([[3, 0, 0], [1, 1, 1], [0, 2, 1]], dtype=np.int16)
    sums = given.resampled(counts, 3, np.random.default_rng(0))
    rows = [[0, 0, 0], [0, 1, 2], [1, 1, 2]]
    assert_allclose(sums[:, 1:], [given.losses[:, drawn].sum(axis=1) for drawn in rows])
    assert_array_equal(sums[:, 0], 3)


def test_cells_are_drawn_with_their_portions_and_empty_ones_stay_empty() -> None:
    given = Sample(np.empty((0, 100)), np.asarray([20.0, 0.0, 80.0]))
    sums = given.resampled(None, 2000, np.random.default_rng(0))
    assert_array_equal(sums[:, 1:].sum(axis=1), 100)
    assert_array_equal(sums[:, 2], 0)
    assert_allclose(sums[:, 1].mean(), 20, atol=0.5)
    assert_allclose(sums[:, 1].std(), 4, rtol=0.1)


def test_sums_of_what_is_never_negative_are_not_either() -> None:
    """One row that outweighs all others makes the normal distribution reach below zero."""
    error = np.zeros(1000)
    error[0] = 1e6
    given = Sample(np.stack([error**2, error, error, error**2]), np.empty(0))
    sums = given.resampled(None, 500, np.random.default_rng(0))
    assert (sums[:, 1:3] >= 0).all()
    assert (sums[:, 1:3] == 0).any()
    assert (given.about(error.mean(), sums)[:, 4] >= -1e-3).all()  # of numbers up to 1e12


def test_resamples_of_the_mean_do_not_use_a_resample_of_rows_twice() -> None:
    """Two alike groups of many rows: the mean varies by their rows, as often as not with one group drawn twice.

    Drawn twice, a group has two resamples, so the variance is that of one group by two, and a half of it more were
    one resample taken two times.
    """
    alike = sample(400, 5.0)
    both = Bootstrap(
        {"a": alike, "b": alike},
        alike,
        lambda sums: {"mse": sums[:, 1] / sums[:, 0]},
        resamples=4000,
        level=0.6827,
        seed=0,
    )
    error = alike.losses[0].std() / np.sqrt(400)
    for found in (both.of_mean(["a", "b"])["mse"], both.of_all()["mse"]):
        assert_allclose((found.high - found.low) / 2, error / np.sqrt(2), rtol=0.08)
