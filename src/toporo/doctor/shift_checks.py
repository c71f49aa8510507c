"""Checks of how far apart groups are: too alike for a topology, or too different to expect much."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from toporo.doctor.case import Case, Check
from toporo.doctor.results import Finding
from toporo.doctor.words import count_of, percent, some
from toporo.errors import listed

#: Skill of the classifier of groups (0 guessing, 1 perfect) that makes them wholly different, and hardly different.
APART, ALIKE = 0.9, 0.1
#: A test group this many times farther from its nearest training group than those are from each other is far away.
FAR = 2.0
#: As :mod:`toporo.topology.learn` has it: below both, a learned graph is chance.
INFORMATIVE, STEADY = 1.0, 0.95


def groups_alike(case: Case) -> Iterator[Finding]:
    """Groups that chance could have dealt: there is no shift in the features, and no topology to learn."""
    told = case.separability
    by_classifier = told is not None and (told.skill < ALIKE or told.accuracy - told.chance < 2 * told.error)
    by_distance = case.distances is not None and not case.distances.beyond_chance
    if by_distance and (by_classifier or told is None) and case.distances is not None:
        seen = (
            ""
            if told is None
            else f"; a classifier recognises {percent(told.accuracy)} ({percent(told.chance)} by guessing)"
        )
        yield Finding(
            "note",
            "alike-groups",
            "By their features, the groups are no farther apart than chance",
            f"Distances between groups are {case.distances.typical:.3g} on average, and {case.distances.chance:.3g} if "
            f"rows are dealt to groups at random{seen}.",
            "A graph learned from these features is noise: give one you know (--graph), or fit without. The groups may "
            "still differ in how the target depends on the features.",
        )


def unsteady_topology(case: Case) -> Iterator[Finding]:
    """Distances that differ, but by no more than a new sample would make them."""
    found = case.distances
    if found is None or case.graph is not None or not found.beyond_chance or len(found.names) < 3:
        return
    if found.contrast is not None and found.contrast < INFORMATIVE and found.stability < STEADY:
        yield Finding(
            "note",
            "unsteady-distances",
            "Which groups are near each other depends on the sample",
            f"Distances differ among pairs by {found.contrast:.1f} times what resampling does to one, and edges of a "
            f"learned graph stay in {percent(found.stability)} of the resamples.",
            "Do not rely on --learn-graph: give a graph you know, or more rows.",
        )


def covariate_shift(case: Case) -> Iterator[Finding]:
    """Groups that a classifier hardly ever confuses: a model has to extrapolate in every new one."""
    told = case.separability
    if told is None or told.skill < APART or told.accuracy - told.chance < 4 * told.error:
        return
    top = ", ".join(f"{name!r} ({percent(share)})" for name, share in told.features[:3])
    yield Finding(
        "risky",
        "covariate-shift",
        f"Groups can be told apart by their features ({percent(told.accuracy)} recognised)",
        f"A cross-validated classifier recognises the group of {percent(told.accuracy)} of the rows; guessing gives "
        f"{percent(told.chance)}. It goes mostly by {top}. In a new group a model meets features it was never trained "
        "on.",
        "Look at these columns: leave out those that only say where a row comes from (--exclude), and judge the model "
        "on held-out groups.",
        tuple(name for name, _ in told.features[:3]),
        told.skill,
    )


def far_tests(case: Case) -> Iterator[Finding]:
    """Test groups whose features are far from those of every training group."""
    found = case.distances
    if found is None or not found.beyond_chance:
        return
    train = tuple(name for name in found.names if name not in set(case.test))
    test = [name for name in found.names if name in set(case.test)]
    if len(train) < 3 or not test:
        return
    usual = float(np.median([near[1] for name in train if (near := found.nearest(name, train)) is not None]))
    nearest = {name: near for name in test if (near := found.nearest(name, train)) is not None}
    # A group of few rows is far from all others by chance.
    chance = {name: found.between(name, near[0])[1] for name, near in nearest.items()}
    far = {name: near for name, near in nearest.items() if near[1] > FAR * max(usual, chance[name])}
    if far and usual > 0:
        shown = some((f"{name!r} ({near[1]:.2f}, to {near[0]!r})" for name, near in far.items()), 5)
        yield Finding(
            "risky",
            "far-test-group",
            f"{count_of(len(far), 'test group is', 'test groups are')} far from every training group",
            f"Distance to the nearest training group: {shown}; among training groups it is {usual:.2f} as a rule.",
            "Expect errors there to be larger than anything held-out training groups show; rows of a group in between "
            "would help most.",
            tuple(far),
            len(far) / len(test),
        )


def not_recognised(case: Case) -> Iterator[Finding]:
    """Pairs of groups that look like one."""
    told = case.separability
    if told is None or told.skill < 0.5 or len(told.names) < 3:
        return
    recognised = told.recognised
    mixed = []
    for place, a in enumerate(told.names):
        for b in told.names[place + 1 :]:
            i, j = told.names.index(a), told.names.index(b)
            each_other = told.confusion[i, j] + told.confusion[j, i]
            if each_other >= 0.8 and recognised[a] + recognised[b] >= 0.6:
                mixed.append((a, b))
    if mixed:
        shown = some((f"{a!r} and {b!r}" for a, b in mixed), 5)
        yield Finding(
            "note",
            "twin-groups",
            f"{count_of(len(mixed), 'pair of groups looks', 'pairs of groups look')} like one",
            f"{shown}: a classifier that tells the other groups apart takes one for the other.",
            f"See whether they are one group under two names; {listed(mixed[0])} could be merged.",
            tuple(dict.fromkeys(name for pair in mixed for name in pair)),
            len(mixed) / len(told.names),
        )


CHECKS: tuple[Check, ...] = (groups_alike, unsteady_topology, covariate_shift, far_tests, not_recognised)
