"""Rows in effect: Kish's count, limits that keep enough of them, and weights held to limits."""

from __future__ import annotations

import numpy as np
import pytest

from toporo.groups import Groups
from toporo.topology.effect import (
    cap_weights,
    effective_rows,
    groups_in_effect,
    heaviest,
    most_weight,
    rows_in_effect,
    too_few,
)
from toporo.topology.prior import Prior


def random_groups(seed: int) -> tuple[dict[str, float], dict[str, float]]:
    rng = np.random.default_rng(seed)
    names = [f"g{i}" for i in range(rng.integers(2, 30))]
    weights = rng.dirichlet(np.full(len(names), 0.3)) + 1e-9
    sizes = rng.integers(1, 400, len(names)).astype(float)
    return dict(zip(names, weights / weights.sum(), strict=True)), dict(zip(names, sizes, strict=True))


def test_it_is_kishs_count_of_the_rows_weights() -> None:
    rng = np.random.default_rng(0)
    ids, shares = Groups.of(rng.choice(list("abc"), 50).tolist()), rng.uniform(0.1, 3.0, 50)
    weights = {"a": 0.2, "b": 0.7, "c": 0.1}
    mass = np.bincount(ids.codes, shares)
    w = shares * ids.groups.align(weights)[ids.codes] / mass[ids.codes]
    kish = w.sum() ** 2 / (w**2).sum()
    assert rows_in_effect(weights, effective_rows(ids.codes, ids.groups, shares)) == pytest.approx(kish)


@pytest.mark.parametrize("seed", range(20))
def test_weights_within_the_limits_leave_ten_rows_a_column_or_half_of_them(seed: int) -> None:
    weights, sizes = random_groups(seed)
    for columns in (1, 5, 50, 500):
        most = most_weight(sizes, columns)
        if most is None:
            continue
        held = Prior.from_weights(weights).within(most)
        wanted = min(10 * (columns + 1), sum(sizes.values()) / 2)
        assert rows_in_effect(held.weights, sizes) >= wanted * (1 - 1e-9)
        assert all(held[name] <= most[name] * (1 + 1e-9) for name in sizes)
        assert held.within(most) is held


def test_what_is_taken_goes_to_the_others_in_proportion() -> None:
    prior = Prior({"a": 0.4, "b": 0.2, "c": 0.4})
    held = prior.within({"a": 0.1, "b": 1.0, "c": 1.0})
    assert held.weights == pytest.approx({"a": 0.1, "b": 0.3, "c": 0.6})
    assert held.capped_mass == pytest.approx(0.3)
    assert Prior.from_dict(held.to_dict()) == held
    assert prior.to_dict()["capped_mass"] == 0.0


def test_limits_that_bite_one_after_the_other() -> None:
    assert cap_weights(np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.4, 0.9])) == pytest.approx([0.2, 0.4, 0.4])
    assert cap_weights(np.array([1.0, 0.0, 0.0]), np.array([0.2, 0.4, 0.8])) == pytest.approx([0.2, 0.8 / 3, 1.6 / 3])
    assert cap_weights(np.array([0.5, 0.5]), np.array([0.3, 0.7])) == pytest.approx([0.3, 0.7])


def test_only_small_groups_are_limited_and_three_rows_never_have_a_quarter() -> None:
    assert most_weight({"a": 1000, "b": 100}, 3) is None
    for columns in (1, 2, 10):
        most = most_weight({"a": 1000, "b": 1000, "c": 1000, "d": 3}, columns)
        assert most is not None
        assert most["d"] < 0.25
        assert Prior.uniform(Groups("abcd")).within(most)["d"] < 0.25


def test_rows_and_groups_in_effect() -> None:
    weights, sizes = {"a": 0.5, "b": 0.495, "c": 0.005, "d": 0.0}, {"a": 3, "b": 900, "c": 1, "d": 1}
    assert heaviest(weights, sizes) == ["a", "b", "c"]
    assert too_few(29, 3)
    assert not too_few(30, 3)
    assert not too_few(rows_in_effect({"a": 1 / 2, "b": 1 / 6, "c": 1 / 6, "d": 1 / 6}, dict.fromkeys("abcd", 20)), 6)
    assert groups_in_effect([0.5, 0.5, 0.0]) == pytest.approx(2)
