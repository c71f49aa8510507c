"""Intervals hold in groups that nobody has seen, widen with distance, and come back from plain arrays."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from toporo.errors import DataError, SettingError, TopoRoWarning
from toporo.estimators import AutoClassifier, AutoRegressor, TROClassifier, TRORegressor
from toporo.estimators.intervals import GROWTH, LEVELS, Intervals, refitted, scores_of
from toporo.estimators.packing import pack, unpack
from toporo.estimators.places import hops_to
from toporo.groups import Groups
from toporo.topology import GroupGraph

CHAIN = GroupGraph.from_edges(list(pairwise("abcdefghij")))


def exchangeable(rng: np.random.Generator, groups: int, apart: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores of rows whose group was left out, groups being alike but for what each adds."""
    return drawn(rng, groups, apart)[:2]


def drawn(rng: np.random.Generator, groups: int, apart: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The same, and what is said of a new group: the mean over all of them."""
    codes = np.repeat(np.arange(groups), rng.integers(5, 60, groups))
    y = (apart * rng.normal(size=groups))[codes] + rng.normal(size=len(codes))
    means = np.bincount(codes, y) / np.bincount(codes)
    others = (means.sum() - means) / (groups - 1)
    return np.abs(y - others[codes]), codes, float(means.mean())


@pytest.mark.parametrize("apart", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("groups", [6, 20])
def test_coverage_of_a_new_group_is_nearly_what_was_asked_for(groups: int, apart: float) -> None:
    """With the plain quantile it is 0.86 of six groups that are far apart."""
    rng, covered, plainly = np.random.default_rng(0), [], []
    for _ in range(120):
        scores, codes, said = drawn(rng, groups, apart)
        new = np.abs(apart * rng.normal(size=(300, 1)) + rng.normal(size=(300, 20)) - said)
        half = Intervals.of(scores, codes).threshold(0.9, [1.0])[0]
        covered.append(float((new <= half).mean()))
        plainly.append(float((new <= np.quantile(scores, 0.9)).mean()))
    assert 0.86 < np.mean(covered) < 0.935
    assert np.mean(covered) > np.mean(plainly)
    if (groups, apart) == (6, 3.0):
        assert np.mean(plainly) < 0.87 < np.mean(covered)


def test_alike_groups_do_not_pay_for_being_few() -> None:
    rng = np.random.default_rng(0)
    halves = [Intervals.of(*exchangeable(rng, 8, 0.0)).threshold(0.9, [1.0])[0] for _ in range(60)]
    assert np.mean(halves) == pytest.approx(1.645, rel=0.06)


def test_a_higher_level_is_never_narrower_and_may_be_beyond_all_scores() -> None:
    scores, codes = exchangeable(np.random.default_rng(1), 5, 3.0)
    held_out = Intervals.of(scores, codes)
    halves = [held_out.threshold(level, [1.0])[0] for level in (0.001, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999)]
    assert halves == sorted(halves)
    assert scores.max() < halves[-1] < 100.0


def grown(power: float, groups: int = 60) -> Intervals:
    """From groups that were left out at one hop and at four."""
    rng = np.random.default_rng(0)
    codes, far = np.tile(np.repeat(np.arange(groups), 20), 2), np.repeat([1.0, 4.0], 20 * groups)
    size = rng.gamma(4.0, size=groups)[codes] * far**power
    return Intervals.of(np.abs(size * rng.normal(size=len(codes))), codes, far, (far > 1).astype(int))


def test_intervals_grow_with_distance_as_much_as_groups_say() -> None:
    """Half of the way from what was seen on other tables."""
    assert grown(0.5).growth == pytest.approx(0.35, abs=0.04)
    assert grown(0.0).growth == pytest.approx(0.1, abs=0.04)
    assert grown(-2.0).growth == 0.0
    halves = grown(0.5).threshold(0.9, [0.0, 1.0, 2.0, 4.0, 40.0])
    assert halves[0] == halves[1]
    assert (np.diff(halves[1:]) > 0).all()


def test_a_group_is_compared_with_itself() -> None:
    """Easy groups that happen to be far away say nothing of distance."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(20), 30)
    far, size = np.where(codes < 10, 1.0, 4.0), np.where(codes < 10, 3.0, 1.0)
    assert Intervals.of(np.abs(size * rng.normal(size=600)), codes, far).growth == GROWTH


def test_hops_to_groups() -> None:
    graph = GroupGraph.from_edges([("a", "b"), ("b", "c"), ("x", "y")])
    assert hops_to(None, ["a"], ["a", "q"]).tolist() == [1.0, 1.0]
    near = hops_to(graph, ["a"], ["a", "c", "x", "q", "sea"], {"sea": ["b", "x"]})
    assert near.tolist() == [0.0, 2.0, 3.0, 3.0, 2.0]


# ---------------------------------------------------------------- sets


def test_sets_hold_the_right_class_as_often_as_asked() -> None:
    rng = np.random.default_rng(0)

    def rows(groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes = np.repeat(np.arange(groups), 40)
        logits = rng.normal(size=(len(codes), 3))
        moved = logits + rng.normal(size=(groups, 3))[codes]
        right = (moved + rng.gumbel(size=moved.shape)).argmax(axis=1)
        chances = np.exp(logits)
        return right, chances / chances.sum(axis=1, keepdims=True), codes

    right, chances, codes = rows(40)
    held_out = Intervals.of(scores_of(right, chances, np.arange(3)), codes)
    right, chances, codes = rows(200)
    sizes = []
    for level in (0.7, 0.8, 0.9):
        sets = held_out.sets(chances, level, np.ones(len(right)))
        assert sets[np.arange(len(right)), right].mean() == pytest.approx(level, abs=0.03)
        assert sets[np.arange(len(right)), chances.argmax(axis=1)].all()
        sizes.append(sets.sum(axis=1).mean())
    assert sizes == sorted(sizes)
    farther = held_out.sets(chances, 0.7, np.full(len(right), 9.0))
    assert farther.sum() > held_out.sets(chances, 0.7, np.ones(len(right))).sum()


# ---------------------------------------------------------------- fits without some groups


def shifted(seed: int = 0, groups: int = 10) -> tuple[np.ndarray, np.ndarray, Any]:
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(groups), 30)
    x = rng.normal(size=(len(codes), 2))
    y = x[:, 0] + np.cumsum(rng.normal(size=groups))[codes] + rng.normal(size=len(codes))
    return x, y, Groups.of([CHAIN.names[code] for code in codes])


@pytest.mark.parametrize("settings", [{}, {"prior": dict.fromkeys(CHAIN.names, 1.0)}, {"penalty": "auto"}])
def test_linear_models_are_fitted_without_groups(settings: dict[str, Any]) -> None:
    x, y, ids = shifted()
    model = TRORegressor(graph=CHAIN, **settings).fit(x, y, groups=ids)
    held_out = refitted(model, x, y, ids, np.ones(len(y)), graph=CHAIN)
    assert held_out is not None
    assert held_out.groups == 10
    left = np.abs(y - model.predict(x))
    assert held_out.threshold(0.9, [1.0])[0] > np.quantile(left, 0.9)


def test_test_groups_say_how_far_to_leave_groups_out() -> None:
    x, y, ids = shifted()
    known = np.flatnonzero(ids.codes < 6)
    few = Groups.of([ids.groups.names[code] for code in ids.codes[known]])
    model = TRORegressor(graph=CHAIN, test_groups=list("ghij")).fit(x[known], y[known], groups=few)
    near, far = (refitted(model, x[known], y[known], few, graph=CHAIN, test_groups=names) for names in ((), "ghij"))
    assert near is not None
    assert far is not None
    assert not np.array_equal(near.thresholds, far.thresholds)


def test_two_groups_have_no_intervals_and_a_class_of_one_group_is_no_obstacle() -> None:
    x, y, ids = shifted(groups=2)
    assert refitted(TRORegressor().fit(x, y, groups=ids), x, y, ids) is None
    x, y, ids = shifted()
    rng = np.random.default_rng(0)
    kinds = np.where(
        (ids.codes == 3) & (rng.random(len(y)) < 0.5), "rare", np.where(rng.random(len(y)) < 0.5, "a", "b")
    )
    held_out = refitted(TROClassifier().fit(x, kinds, groups=ids), x, kinds, ids)
    assert held_out is not None
    assert held_out.groups == 10
    only = np.where(ids.codes == 3, "yes", "no")  # without this group there is one class, and no fit
    with pytest.warns(UserWarning, match="one class only"):
        model = TROClassifier(penalty=1.0).fit(x, only, groups=ids)
    held_out = refitted(model, x, only, ids)
    assert held_out is not None
    assert held_out.groups < 10


class CannotBeRefitted(TRORegressor):
    """Fails."""

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Any:
        raise DataError("not these rows")


def test_fits_that_all_fail_are_not_kept_secret() -> None:
    x, y, ids = shifted()
    with pytest.warns(TopoRoWarning, match=r"has no intervals: 6 of 6 fits .* failed. not these rows"):
        assert refitted(CannotBeRefitted(penalty=1.0), x, y, ids) is None


# ---------------------------------------------------------------- votes


def test_auto_has_intervals_that_hold() -> None:
    x, y, ids = shifted()
    names = np.array([ids.groups.names[code] for code in ids.codes])
    known = ids.codes < 8
    model = AutoRegressor(graph=CHAIN).fit(x[known], y[known], groups=names[known])
    values, lower, upper = model.predict(x, groups=names, interval=0.9)
    assert np.array_equal(values, model.predict(x, groups=names))
    width = upper - lower
    assert (width[ids.codes == 9] > width[ids.codes == 8]).all()
    assert ((lower <= y) & (y <= upper))[known].mean() > 0.9
    _, low, high = model.predict(x[:1], groups=["sea"], interval=0.9, neighbors={"sea": ["i"]})
    assert high - low == pytest.approx(width[ids.codes == 9][0])
    with pytest.raises(SettingError, match=r"interval is 1\.5: expected a share between 0 and 1"):
        model.predict(x, groups=names, interval=1.5)


def test_auto_has_sets_of_classes() -> None:
    x, y, ids = shifted()
    names = np.array([ids.groups.names[code] for code in ids.codes])
    kinds = np.digitize(y, [-1.0, 1.0])
    model = AutoClassifier(graph=CHAIN).fit(x, kinds, groups=names)
    classes, sets = model.predict(x, groups=names, interval=0.9)
    assert np.array_equal(classes, model.predict(x, groups=names))
    assert sets[np.arange(len(kinds)), np.searchsorted(model.classes_, classes)].all()
    assert sets[np.arange(len(kinds)), kinds].mean() > 0.85


# ---------------------------------------------------------------- plain arrays


DAMAGE: dict[str, dict[str, Any]] = {
    "fewer thresholds": {"thresholds": np.ones(3)},
    "levels that fall": {"levels": LEVELS[::-1]},
    "a level of 1": {"levels": np.append(LEVELS[:-1], 1.0)},
    "thresholds that fall": {"thresholds": np.linspace(1.0, 0.0, len(LEVELS))},
    "a negative threshold": {"thresholds": np.linspace(-1.0, 0.0, len(LEVELS))},
    "a number in place of levels": {"levels": np.array(0.5)},
    "shrinking": {"growth": -0.1},
    "two groups": {"groups": 2},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_intervals_are_refused(damage: str) -> None:
    intervals = Intervals.of(*exchangeable(np.random.default_rng(0), 12, 1.0))
    content, arrays = pack(intervals)
    assert unpack(Intervals, content, arrays).threshold(0.9, [2.0]) == intervals.threshold(0.9, [2.0])
    with pytest.raises(DataError, match="its intervals"):
        replace(intervals, **DAMAGE[damage]).check()


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 90, math.nan, "wide", True])
def test_a_level_is_a_share(level: Any) -> None:
    held_out = Intervals.of(*exchangeable(np.random.default_rng(0), 12, 1.0))
    with pytest.raises(SettingError, match=r"interval is .* expected a share between 0 and 1, such as 0\.9"):
        held_out.threshold(level, [1.0])


def test_a_level_beyond_what_rows_left_out_tell_is_an_error() -> None:
    """Intervals of 99.99 % used to be those of 99.9 %."""
    held_out = Intervals.of(*exchangeable(np.random.default_rng(0), 12, 1.0))
    with pytest.raises(SettingError, match=r"interval is 0\.9999: .* up to 0\.999"):
        held_out.threshold(0.9999, [1.0])


def test_bad_scores_are_refused() -> None:
    with pytest.raises(DataError, match=r"2 group\(s\) held out: expected at least 3"):
        Intervals.of(np.ones(4), [0, 0, 1, 1])
    for wrong in (-1.0, math.inf, math.nan):
        with pytest.raises(DataError, match="negative or not finite"):
            Intervals.of([1.0, 1.0, wrong], [0, 1, 2])
