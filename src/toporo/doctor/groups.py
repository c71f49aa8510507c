"""Checks of the groups: how many, how large, how they are spelt; their graph and its prior; how far apart they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from toporo.doctor.case import Case, check
from toporo.doctor.results import Finding, note, percent, risky, serious, some, spelling
from toporo.errors import listed
from toporo.text import many, number
from toporo.topology.effect import PER_COLUMN, groups_in_effect, heaviest, rows_in_effect, too_few

#: Fewer rows make a group's loss mostly noise; below the second number, nothing but noise.
SMALL, TINY = 20, 5
#: A prior is a bet on a single group below this number of groups, counted as the exponential of its entropy.
BET = 1.5
#: Skill of the classifier of groups (0 guessing, 1 perfect) that makes them wholly different, and hardly different.
APART, ALIKE = 0.9, 0.1
#: A test group this many times farther from its nearest training group than those are from each other is far away.
FAR = 2.0
#: As :mod:`toporo.topology.learn` has it: below both, a learned graph is chance.
INFORMATIVE, STEADY = 1.0, 0.95


@check
def too_few_groups(case: Case) -> Iterator[Finding]:
    """One group to train on: there is nothing to be robust over; or nearly as many as rows: no groups."""
    rows = sum(case.sizes.values())
    if len(case.train) == 1:
        yield serious(
            "one-group",
            "There is a single group to train on",
            f"All rows of column {case.roles.group!r} that are not of test groups say {case.train[0]!r}. Robustness is "
            "over groups: it needs several.",
            "Give --group another column, name fewer groups in --test-groups, or fit an ordinary model.",
            case.train,
            1.0,
        )
    elif rows > 2 and 2 * len(case.names) > rows:
        yield serious(
            "group-per-row",
            "Nearly every row is a group of its own",
            f"Column {case.roles.group!r} has {many(len(case.names), 'group')} in {many(rows, 'row')}: it looks like "
            "an identifier of rows.",
            "Give --group a column whose values many rows share, or merge groups into larger ones.",
            (case.roles.group,),
            1.0,
        )


@check
def small_groups(case: Case) -> Iterator[Finding]:
    """Groups whose loss is mostly noise."""
    small = [name for name in sorted(case.train, key=lambda name: (case.sizes[name], name)) if case.sizes[name] < SMALL]
    if small:
        shown = some(f"{name!r} ({case.sizes[name]})" for name in small)
        yield Finding(
            "serious" if case.sizes[small[0]] < TINY else "risky",
            "small-group",
            f"{many(len(small), 'training group has', 'training groups have')} fewer than {SMALL} rows",
            f"Rows: {shown}. The loss of a small group is mostly noise, and the worst case over groups follows the "
            "noise.",
            "Merge them with groups that are like them, collect more rows, or leave them out.",
            *case.of_groups(small),
        )


@check
def few_in_effect(case: Case) -> Iterator[Finding]:
    """Groups of few rows with much weight: a fit rests on fewer rows than there are.

    Looked at for the default prior, and for all groups alike, as without a topology and as the control has it.
    """
    sizes = {name: case.sizes[name] for name in case.train}
    if len(sizes) < 2 or not case.width:
        return
    weighings = [dict.fromkeys(sizes, 1.0 / len(sizes))]
    if case.prior is not None and set(case.prior.weights) == set(sizes):
        weighings.append({name: case.prior[name] for name in sizes})
    rows, worst = min(((rows_in_effect(each, sizes), each) for each in weighings), key=lambda pair: pair[0])
    if too_few(rows, case.width):
        first = [str(name) for name in heaviest(worst, sizes)]
        by = "All groups weighed alike" if worst is weighings[0] else "By the default prior"
        yield risky(
            "few-rows-in-effect",
            f"{by}, {sum(sizes.values()):,} rows count as {rows:.0f}",
            f"That is {rows / case.width:.1f} for each of {many(case.width, 'column')} of features, not {PER_COLUMN}. "
            f"The heaviest rows are those of {listed(first)}.",
            "Merge small groups, use fewer features or a stronger ridge, or weigh rows alike. An automatic prior takes "
            "from groups of few rows what they cannot bear; a prior that is named, erm and group-dro do not.",
            tuple(first),
            1.0 - rows / (PER_COLUMN * case.width),
        )


@check
def spelt_alike(case: Case) -> Iterator[Finding]:
    """Groups whose names differ only in case or blanks: probably one group."""
    written: dict[str, list[str]] = {}
    for name in sorted({*case.names, *case.test}):
        written.setdefault(spelling(name), []).append(name)
    sets = [alike for alike in written.values() if len(alike) > 1]
    if sets:
        shown = some((" and ".join(map(repr, alike)) for alike in sets), 5, "; ")
        yield serious(
            "spelt-alike",
            f"{many(len(sets), 'group is', 'groups are')} written in several ways",
            f"{shown}. Names are compared as they are: these are different groups to every method.",
            f"Write each in one way in column {case.roles.group!r} (and in --test-groups).",
            *case.of_groups([name for alike in sets for name in alike]),
        )


# ---------------------------------------------------------------- the graph


@check
def no_graph(case: Case) -> Iterator[Finding]:
    """Without a graph every group is as central as any other; one may be learned where distances are steady."""
    if case.graph is not None or len(case.train) < 2:
        return
    learn, apart = "", case.distances
    if apart is not None and apart.beyond_chance:
        steady = apart.contrast is None or apart.contrast >= INFORMATIVE or apart.stability >= STEADY
        learn = " Or learn one from the features: --graph learn" + (
            "." if steady else f", though only {percent(apart.stability)} of its edges stay in resamples of the rows."
        )
    yield note(
        "no-graph",
        "No graph of the groups was given",
        "Without one, the prior is uniform: no group counts as more central than another.",
        f"Give --graph FILE with lines such as NY,PA (who touches whom).{learn}",
    )


@check
def graph_in_pieces(case: Case) -> Iterator[Finding]:
    """Pieces of the graph with groups of the table: nothing is said about how groups in them are related.

    It is serious if test groups are in a piece without a training group, from which no path leads to them.
    """
    if case.graph is None:
        return
    mine, train = {*case.names, *case.test}, set(case.train)
    pieces = [[str(name) for name in part] for part in case.graph.components() if not mine.isdisjoint(map(str, part))]
    if len(pieces) > 1:
        lost = [name for part in pieces if train.isdisjoint(part) for name in part if name in case.test]
        yield Finding(
            "serious" if lost else "risky",
            "disconnected-graph",
            f"The graph falls into {many(len(pieces), 'piece')}",
            f"{some((listed(part, limit=3) for part in pieces), 4, '; ')}. Nothing is said about how groups in "
            "different pieces are related, and a training group without neighbours has only its even share of the "
            "prior." + (f" No path leads from the training groups to {listed(lost)}." if lost else ""),
            "Add edges that join the pieces, e.g. to the groups most like them (see the distances).",
            tuple(part[0] for part in pieces),
            1.0 - len(pieces[0]) / len(case.graph),
        )


@check
def one_group_prior(case: Case) -> Iterator[Finding]:
    """A graph that puts one training group before all others.

    Looked at in the centralities: a default prior spreads a part of itself evenly in any case.
    """
    values = {} if case.prior is None else case.prior.centrality or case.prior.weights
    total = sum(values.values())
    if case.prior is None or len(values) < 3 or total <= 0:
        return
    shares = {str(name): value / total for name, value in values.items()}
    effective = groups_in_effect(shares.values())
    top = max(shares, key=lambda name: (shares[name], name))
    if effective < BET:
        how = "to the test groups (harmonic)" if case.prior.measure.startswith("harmonic") else "between them"
        yield risky(
            "one-group-prior",
            f"The graph bets on {top!r}",
            f"By centrality {how} the {len(shares)} training groups count as {effective:.1f}: {percent(shares[top])} "
            f"of it is on {top!r}, which has {many(case.sizes[top], 'row')} and {percent(case.prior[top])} of the "
            "default prior.",
            f"See that {top!r} has rows enough to carry that weight, or use --set prior=closeness.",
            (top,),
            shares[top],
        )


# ---------------------------------------------------------------- distances


@check
def groups_alike(case: Case) -> Iterator[Finding]:
    """Groups that chance could have dealt: there is no shift in the features, and no topology to learn."""
    found, apart = case.separability, case.distances
    if apart is None or apart.beyond_chance:
        return
    if found is None or found.skill < ALIKE or found.accuracy - found.chance < 2 * found.error:
        seen = "" if found is None else (
            f"; a classifier recognises {percent(found.accuracy)} ({percent(found.chance)} by guessing)"
        )  # fmt: skip
        yield note(
            "alike-groups",
            "By their features, the groups are no farther apart than chance",
            f"Distances between groups are {number(apart.typical)} on average, and {number(apart.chance)} if rows are "
            f"dealt to groups at random{seen}.",
            "A graph learned from these features is noise: give one you know (--graph), or fit without. The groups may "
            "still differ in how the target depends on the features.",
        )


@check
def covariate_shift(case: Case) -> Iterator[Finding]:
    """Groups that a classifier hardly ever confuses: a model has to extrapolate in every new one."""
    found = case.separability
    if found is None or found.skill < APART or found.accuracy - found.chance < 4 * found.error:
        return
    top = ", ".join(f"{name!r} ({percent(share)})" for name, share in found.features[:3])
    yield risky(
        "covariate-shift",
        f"Groups can be told apart by their features ({percent(found.accuracy)} recognised)",
        f"A cross-validated classifier recognises the group of {percent(found.accuracy)} of the rows; guessing gives "
        f"{percent(found.chance)}. It goes mostly by {top}. In a new group a model meets features it was never trained "
        "on.",
        "Look at these columns: leave out those that only say where a row comes from (--exclude), and judge the model "
        "on held-out groups.",
        tuple(name for name, _ in found.features[:3]),
        found.skill,
    )


@check
def far_tests(case: Case) -> Iterator[Finding]:
    """Test groups whose features are far from those of every training group."""
    apart = case.distances
    if apart is None or not apart.beyond_chance:
        return
    train = [name for name in apart.names if name not in case.test]
    test = [name for name in apart.names if name in case.test]
    if len(train) < 3 or not test:
        return
    nearest = {name: near for name in apart.names if (near := apart.nearest(name, train)) is not None}
    usual = float(np.median([nearest[name][1] for name in train]))

    def by_chance(name: str) -> float:  # a group of few rows is far from all others
        return float(apart.by_chance[apart.names.index(name), apart.names.index(nearest[name][0])])

    far = [name for name in test if nearest[name][1] > FAR * max(usual, by_chance(name))]
    if far and usual > 0:
        shown = some((f"{name!r} ({nearest[name][1]:.2f}, to {nearest[name][0]!r})" for name in far), 5)
        yield risky(
            "far-test-group",
            f"{many(len(far), 'test group is', 'test groups are')} far from every training group",
            f"Distance to the nearest training group: {shown}; among training groups it is {usual:.2f} as a rule.",
            "Expect errors there to be larger than anything held-out training groups show; rows of a group in between "
            "would help most.",
            tuple(far),
            len(far) / len(test),
        )
