"""Distances and separability: they see what is there, and no more."""

from __future__ import annotations

import numpy as np
import pytest

from toporo.doctor.measure import group_distances, group_separability, sample_size, standardised
from toporo.doctor.results import Distances, Separability

NAMES = ("a", "b", "c", "d", "e", "f")


def points(step: float, size: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    codes = np.repeat(np.arange(len(NAMES)), size)
    x = np.random.default_rng(seed).normal(size=(len(codes), 3))
    x[:, 1] += step * codes
    return x, codes


def distances(step: float) -> Distances:
    found = group_distances(*points(step), NAMES)
    assert isinstance(found, Distances)
    return found


def separability(step: float) -> Separability:
    found = group_separability(*points(step), NAMES, ["u", "v", "w"])
    assert isinstance(found, Separability)
    return found


def test_groups_along_a_line_are_put_in_its_order() -> None:
    found = distances(1.5)
    assert found.beyond_chance
    assert found.order in (NAMES, NAMES[::-1])
    assert found.nearest("a", NAMES) == ("b", found.matrix[0, 1])
    assert found.nearest("a", ("e", "f")) == ("e", found.matrix[0, 4])
    assert found.nearest("nobody", NAMES) is None


def test_groups_dealt_at_random_are_as_far_apart_as_chance_makes_them() -> None:
    found = distances(0.0)
    assert not found.beyond_chance
    assert found.typical == pytest.approx(found.chance, abs=5 * found.chance_spread)
    assert found.by_chance.shape == found.matrix.shape


def test_a_small_group_is_far_from_all_others_by_chance() -> None:
    """What makes a far-off test group worth a word must not be its few rows."""
    x, codes = points(0.0)
    keep = np.flatnonzero((codes > 0) | (np.arange(len(codes)) < 4))
    found = group_distances(x[keep], codes[keep], NAMES)
    assert isinstance(found, Distances)
    assert found.by_chance[0, 1:].min() > found.by_chance[1:, 1:].max()


def test_a_classifier_sees_groups_that_are_apart_and_by_what() -> None:
    apart, alike = separability(6.0), separability(0.0)
    assert apart.accuracy > 0.95
    assert apart.features[0][0] == "v"
    assert sum(share for _, share in apart.features) == pytest.approx(1.0)
    assert abs(alike.accuracy - alike.chance) < 4 * alike.error
    assert alike.skill == pytest.approx(0.0, abs=0.15)
    np.testing.assert_allclose(alike.confusion.sum(axis=1), 1.0)


def test_groups_with_too_few_rows_stay_out_of_the_classifier() -> None:
    x, codes = points(6.0)
    keep = np.flatnonzero((codes > 0) | (np.arange(len(codes)) < 3))
    found = group_separability(x[keep], codes[keep], NAMES, ["u", "v", "w"])
    assert isinstance(found, Separability)
    assert found.left_out == ("a",)
    assert found.names == NAMES[1:]


@pytest.mark.parametrize(
    ("x", "names"),
    [
        (np.zeros((6, 2)), ("a", "b")),
        (np.repeat([[0.0], [1.0]], 3, axis=0), ("a", "b")),
        (np.arange(6.0)[:, None], ("a",)),
    ],
)
def test_what_cannot_be_measured_says_why(x: np.ndarray, names: tuple[str, ...]) -> None:
    codes = np.arange(6) % len(names)
    assert isinstance(group_distances(x, codes, names), str)
    assert isinstance(group_separability(x, codes, names, ["u"] * x.shape[1]), str)


def test_standardised_columns_have_spread_one_unless_they_are_constant() -> None:
    scaled = standardised(np.asarray([[1.0, 5.0, 1e90], [2.0, 5.0, -1e90], [3.0, 5.0, 0.0]]))
    np.testing.assert_allclose(scaled.std(axis=0), [1.0, 0.0, 1.0])


def test_a_sample_stays_within_its_bounds() -> None:
    assert sample_size(2, 10) == 200
    assert sample_size(10_000, 10) >= 2
    assert sample_size(100, 10) * 100 <= 4000
    assert sample_size(20, 4000) * 20 <= 500
