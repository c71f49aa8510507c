"""Checks of the groups: how many, how large, how they are spelt; their graph and its prior; how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from toporo.doctor.measure import Case, check
from toporo.doctor.results import Finding, flag, it, listed, look_alikes, note, percent, risky, serious, some, spelling
from toporo.text import many, number
from toporo.topology.effect import PER_COLUMN, heaviest, rows_in_effect, too_few

#: Fewer rows make a group's loss mostly noise; below the second number, nothing but noise.
SMALL, TINY = 20, 5
#: How many times the smallest group the largest may be, and the share of rows that makes one group nearly everything.
UNEVEN, DOMINANT = 50, 0.9
#: Hops from training that are far, as kriged models warn of.
HOPS = 3
#: A prior is flat from this share of all training groups on, counted as the exponential of its entropy, …
FLAT = 0.98
#: … and a bet on a single group below this number of groups.
BET = 1.5
#: Skill of the classifier of groups (0 guessing, 1 perfect) that makes them wholly different, and hardly different.
APART, ALIKE = 0.9, 0.1
#: A test group this many times farther from its nearest training group than those are from each other is far away.
FAR = 2.0
#: As :mod:`toporo.topology.learn` has it: below both, a learned graph is chance.
INFORMATIVE, STEADY = 1.0, 0.95


@check
def single_group(case: Case) -> Iterator[Finding]:
    """One group, or one to train on: there is nothing to be robust over."""
    if len(case.names) == 1:
        yield serious(
            "one-group",
            "There is a single group",
            f"Every row of column {case.group!r} says {case.names[0]!r}. Robustness is over groups: it needs several.",
            "Give --group another column, or fit an ordinary model.",
            case.names,
            1.0,
        )
    elif len(case.train) == 1:
        yield serious(
            "one-training-group",
            "There is a single group to train on",
            f"All groups but {case.train[0]!r} are test groups.",
            "Name fewer groups in --test-groups.",
            case.train,
            1.0,
        )


@check
def group_per_row(case: Case) -> Iterator[Finding]:
    """Groups of one row throughout: the column names rows, not groups."""
    rows = sum(case.sizes.values())
    if rows > 2 and 2 * len(case.names) > rows:
        yield serious(
            "group-per-row",
            "Nearly every row is a group of its own",
            f"Column {case.group!r} has {many(len(case.names), 'group')} in {many(rows, 'row')}: it looks like "
            "an identifier of rows.",
            "Give --group a column whose values many rows share, or merge groups into larger ones.",
            (case.group,),
            1.0,
        )


@check
def small_groups(case: Case) -> Iterator[Finding]:
    """Groups whose loss is mostly noise, as such and for the number of features."""
    sizes = {name: case.sizes[name] for name in case.train}
    small = sorted((name for name in sizes if sizes[name] < SMALL), key=lambda name: (sizes[name], name))
    if small:
        tiny = [name for name in small if sizes[name] < TINY]
        shown = some(f"{name!r} ({sizes[name]})" for name in small)
        yield Finding(
            "serious" if tiny else "risky",
            "small-group",
            f"{many(len(small), 'training group has', 'training groups have')} fewer than {SMALL} rows",
            f"Rows: {shown}. The loss of a small group is mostly noise, and the worst case over groups follows the "
            "noise.",
            "Merge them with groups that are like them, collect more rows, or leave them out.",
            *case.of_groups(small),
        )
    scarce = [name for name in sizes if SMALL <= sizes[name] < 2 * case.width]
    if scarce:
        least = min(scarce, key=lambda name: (sizes[name], name))
        yield risky(
            "small-for-features",
            f"{many(len(scarce), 'training group has', 'training groups have')} few rows for "
            f"{many(case.width, 'column')} of features",
            f"{listed(scarce)}; the smallest is {least!r} with {many(sizes[least], 'row')}. With fewer than two "
            "rows per column a linear model can fit a group's noise.",
            "Use fewer features (--features), or a stronger ridge.",
            *case.of_groups(scarce),
        )


@check
def uneven_groups(case: Case) -> Iterator[Finding]:
    """One group that is nearly everything, or sizes far apart."""
    sizes = {name: case.sizes[name] for name in case.train}
    if len(sizes) < 2:
        return
    largest = max(sizes, key=lambda name: (sizes[name], name))
    smallest = min(sizes, key=lambda name: (sizes[name], name))
    share = sizes[largest] / sum(sizes.values())
    if share >= DOMINANT or sizes[largest] >= UNEVEN * sizes[smallest]:
        yield Finding(
            "risky" if share >= DOMINANT else "note",
            "uneven-groups",
            f"One group holds {percent(share)} of the training rows"
            if share >= DOMINANT
            else "Groups are of very uneven sizes",
            f"{largest!r} has {many(sizes[largest], 'row')}, {smallest!r} has {sizes[smallest]:,}. Methods here "
            "weigh groups, not rows: a row of a small group counts for many of a large one.",
            "Fine if every group matters alike; else compare with --set method=erm, and see the small groups' losses.",
            (largest, smallest),
            share,
        )


@check
def group_missing(case: Case) -> Iterator[Finding]:
    """Rows that belong to no group."""
    absent = int((case.codes < 0).sum())
    if absent:
        row = int(np.argmax(case.codes < 0)) + case.frame.first
        yield serious(
            "group-missing",
            f"{many(absent, 'row has', 'rows have')} no group",
            f"Column {case.group!r} is empty in {percent(absent / len(case.codes))} of the rows (first: row {row}).",
            "Fill the column in, or leave those rows out with --drop-rows.",
            (case.group,),
            absent / len(case.codes),
        )


@check
def spelt_alike(case: Case) -> Iterator[Finding]:
    """Groups whose names differ only in case or blanks: probably one group."""
    sets = look_alikes([*case.names, *case.test])
    if sets:
        shown = some((" and ".join(repr(name) for name in alike) for alike in sets), 5, "; ")
        yield serious(
            "spelt-alike",
            f"{many(len(sets), 'group is', 'groups are')} written in several ways",
            f"{shown}. Names are compared as they are: these are different groups to every method.",
            f"Write each in one way in column {case.group!r} (and in --test-groups).",
            *case.of_groups([name for alike in sets for name in alike]),
        )


# ---------------------------------------------------------------- the graph


@check
def no_graph(case: Case) -> Iterator[Finding]:
    """Without a graph every group is as central as any other."""
    if case.graph is not None or len(case.train) < 2:
        return
    learned = case.distances is not None and case.distances.beyond_chance
    yield note(
        "no-graph",
        "No graph of the groups was given",
        "Without one, the prior is uniform: no group counts as more central than another.",
        "Give --graph FILE with lines such as NY,PA (who touches whom)"
        + (", or learn one from the features with --graph learn." if learned else "."),
    )


@check
def groups_not_in_graph(case: Case) -> Iterator[Finding]:
    """Groups with rows, or test groups, that the graph does not know; and how they may be spelt there."""
    if case.graph is None:
        return
    known = case.graph_names
    written = {spelling(name): name for name in sorted(known)}
    lost = [name for name in dict.fromkeys((*case.names, *case.test)) if name not in known]
    if not lost:
        return
    alike = {name: written[spelling(name)] for name in lost if spelling(name) in written}
    detail = f"Not in the graph: {listed(lost)}."
    step = "Add them and their edges to the graph, or leave their rows out."
    if alike:
        shown = some((f"{mine!r} for {theirs!r}" for mine, theirs in alike.items()), 5)
        detail += f" Some are written in another way: {shown}."
        step = "Write the names alike in the table and in the graph" + (
            "." if len(alike) == len(lost) else "; add the others and their edges to the graph."
        )
    if len(lost) == len(set(case.names) | set(case.test)):
        detail += f" The graph has {listed(sorted(known), limit=4)}: it may be that of other groups."
    yield serious(
        "not-in-graph",
        f"{many(len(lost), 'group is', 'groups are')} missing from the graph",
        detail,
        step,
        *case.of_groups(lost),
    )


@check
def test_groups_unknown(case: Case) -> Iterator[Finding]:
    """Test groups that nothing is known of."""
    if case.graph is not None:
        return
    lost = [name for name in case.test if name not in case.sizes]
    if lost:
        yield serious(
            "unknown-test-group",
            f"{many(len(lost), 'test group has', 'test groups have')} no rows, and no graph to find {it(lost)} in",
            f"{listed(lost)}; the table has {listed(case.names)}.",
            "Correct the names in --test-groups, or give a --graph that has them.",
            tuple(lost),
            len(lost) / max(1, len(case.test)),
        )


@check
def groups_without_rows(case: Case) -> Iterator[Finding]:
    """Groups of the graph without rows: test groups, if they are named so."""
    empty = [name for name in case.graph_names if name not in case.sizes and name not in case.test]
    if empty:
        yield note(
            "graph-only-group",
            f"{many(len(empty), 'group of the graph has', 'groups of the graph have')} no rows",
            f"{listed(empty)}. If the model is meant for {it(empty)}, the prior should look that way.",
            f"Say so: {flag('--test-groups', empty, 12)}.",
            tuple(empty),
            len(empty) / len(case.graph_names),
        )


@check
def isolated_groups(case: Case) -> Iterator[Finding]:
    """Groups that touch nobody, and a graph in pieces."""
    if case.graph is None or len(case.graph) < 2:
        return
    mine = set(case.names) | set(case.test)
    others = set(case.graph_names) if case.test else mine  # a prior without test groups looks at training groups alone
    lone = [name for name in case.graph_names if name in mine and others.isdisjoint(case.graph.neighbors(name))]
    if lone:
        yield risky(
            "isolated-group",
            f"{many(len(lone), 'group touches', 'groups touch')} no other {'' if case.test else 'training '}group",
            f"{listed(lone)}: the topology says nothing of {it(lone)}, and a training group "
            "without neighbours has only its even share of the prior.",
            "Add its edges to the graph, e.g. to the groups most like it (see the distances).",
            *case.of_groups(lone),
        )
    pieces = [part for part in case.graph.components() if len(part) > 1 and mine & set(part)]
    if len(pieces) > 1:
        yield risky(
            "disconnected-graph",
            f"The graph falls into {many(len(pieces), 'piece')}",
            some((f"{len(part)} with {listed(part, limit=3)}" for part in pieces), 4, "; ")
            + ". Nothing is said about how groups in different pieces are related.",
            "Add edges that join the pieces, if there is any way from one to the other.",
            tuple(str(part[0]) for part in pieces),
            1.0 - len(pieces[0]) / len(case.graph),
        )


@check
def unreachable_tests(case: Case) -> Iterator[Finding]:
    """Test groups without a path to a training group."""
    if case.graph is None:
        return
    train = [name for name in case.train if name in case.graph]
    wanted = [name for name in case.test if name in case.graph]
    if not train or not wanted:
        return
    reach = case.graph.hops(train)
    lost = [name for name in wanted if reach[name] == math.inf]
    if lost:
        yield serious(
            "unreachable-test-group",
            f"No path leads from the training groups to {many(len(lost), 'test group')}",
            f"{listed(lost)}. The prior for the test groups cannot count {it(lost)}.",
            "Add edges to the graph that lead there.",
            tuple(lost),
            len(lost) / len(wanted),
        )


@check
def distant_tests(case: Case) -> Iterator[Finding]:
    """Test groups that are several hops from training: what a graph says there holds as far as trends go on."""
    inside = [name for name in case.train if name in case.graph_names]
    if case.graph is None or not inside:
        return
    hops = case.graph.hops(inside)
    far = [name for name in case.test if name in case.graph and HOPS <= hops[name] < math.inf]
    if far:
        yield note(
            "distant-test-group",
            f"{many(len(far), 'test group is', 'test groups are')} {HOPS} hops or more from any training group",
            f"{listed(far)}. What the graph says there holds as far as trends go on, and misleads where they turn.",
            "Train on groups nearer to them if there are any, and judge models on regions as far away.",
            tuple(far),
            len(far) / len(case.test),
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
    every = sum(sizes.values())
    if too_few(rows, case.width):
        first = [str(name) for name in heaviest(worst, sizes)]
        by = "All groups weighed alike" if worst is weighings[0] else "By the default prior"
        yield risky(
            "few-rows-in-effect",
            f"{by}, {every:,} rows count as {rows:.0f}",
            f"That is {rows / case.width:.1f} for each of {many(case.width, 'column')} of features, not {PER_COLUMN}. "
            f"The heaviest rows are those of {listed(first)}.",
            "Merge small groups, use fewer features or a stronger ridge, or weigh rows alike. An automatic prior takes "
            "from groups of few rows what they cannot bear; a prior that is named, erm and group-dro do not.",
            tuple(first),
            1.0 - rows / (PER_COLUMN * case.width),
        )


@check
def prior_shape(case: Case) -> Iterator[Finding]:
    """A graph that puts all training groups alike, or one of them before all others.

    Looked at in the centralities: a default prior spreads a part of itself evenly in any case.
    """
    if case.prior is None or len(case.prior) < 2:
        return
    groups = len(case.prior)
    values = case.prior.centrality or case.prior.weights
    total = sum(values.values())
    shares = {name: value / total if total > 0 else 1.0 / groups for name, value in values.items()}
    effective = math.exp(-sum(share * math.log(share) for share in shares.values() if share > 0))
    how = "to the test groups (harmonic)" if case.prior.measure.startswith("harmonic") else "between them (betweenness)"
    heaviest = max(shares, key=lambda name: (shares[name], str(name)))
    if effective >= FLAT * groups:
        yield risky(
            "flat-prior",
            "The graph gives a flat prior",
            f"By centrality {how} the {groups} training groups count as {effective:.1f}: training with such a prior is "
            "training without a topology.",
            "Name the test groups in --test-groups, or use a sparser graph."
            if not case.test
            else "Use a graph in which not every group is as near to the test groups as any other.",
            (),
            effective / groups,
        )
    elif effective < BET and groups > 2:
        yield risky(
            "one-group-prior",
            f"The graph bets on {str(heaviest)!r}",
            f"By centrality {how} the {groups} training groups count as {effective:.1f}: {percent(shares[heaviest])} "
            f"of it is on {str(heaviest)!r}, which has {many(case.sizes[str(heaviest)], 'row')} and "
            f"{percent(case.prior[heaviest])} of the default prior.",
            f"See that {str(heaviest)!r} has rows enough to carry that weight, or use --set prior=closeness.",
            (str(heaviest),),
            shares[heaviest],
        )


# ---------------------------------------------------------------- distances


@check
def groups_alike(case: Case) -> Iterator[Finding]:
    """Groups that chance could have dealt: there is no shift in the features, and no topology to learn."""
    told = case.separability
    by_classifier = told is not None and (told.skill < ALIKE or told.accuracy - told.chance < 2 * told.error)
    if case.distances is not None and not case.distances.beyond_chance and (by_classifier or told is None):
        seen = (
            ""
            if told is None
            else f"; a classifier recognises {percent(told.accuracy)} ({percent(told.chance)} by guessing)"
        )
        yield note(
            "alike-groups",
            "By their features, the groups are no farther apart than chance",
            f"Distances between groups are {number(case.distances.typical)} on average, and "
            f"{number(case.distances.chance)} if rows are dealt to groups at random{seen}.",
            "A graph learned from these features is noise: give one you know (--graph), or fit without. The groups may "
            "still differ in how the target depends on the features.",
        )


@check
def unsteady_topology(case: Case) -> Iterator[Finding]:
    """Distances that differ, but by no more than a new sample would make them."""
    apart = case.distances
    if apart is None or case.graph is not None or not apart.beyond_chance or len(apart.names) < 3:
        return
    if apart.contrast is not None and apart.contrast < INFORMATIVE and apart.stability < STEADY:
        yield note(
            "unsteady-distances",
            "Which groups are near each other depends on the sample",
            f"Distances differ among pairs by {apart.contrast:.1f} times what resampling does to one, and edges of a "
            f"learned graph stay in {percent(apart.stability)} of the resamples.",
            "Do not rely on --graph learn: give a graph you know, or more rows.",
        )


@check
def covariate_shift(case: Case) -> Iterator[Finding]:
    """Groups that a classifier hardly ever confuses: a model has to extrapolate in every new one."""
    told = case.separability
    if told is None or told.skill < APART or told.accuracy - told.chance < 4 * told.error:
        return
    top = ", ".join(f"{name!r} ({percent(share)})" for name, share in told.features[:3])
    yield risky(
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


@check
def far_tests(case: Case) -> Iterator[Finding]:
    """Test groups whose features are far from those of every training group."""
    apart = case.distances
    if apart is None or not apart.beyond_chance:
        return
    train = tuple(name for name in apart.names if name not in set(case.test))
    test = [name for name in apart.names if name in set(case.test)]
    if len(train) < 3 or not test:
        return
    usual = float(np.median([near[1] for name in train if (near := apart.nearest(name, train)) is not None]))
    nearest = {name: near for name in test if (near := apart.nearest(name, train)) is not None}
    # A group of few rows is far from all others by chance.
    chance = {name: apart.between(name, near[0])[1] for name, near in nearest.items()}
    far = {name: near for name, near in nearest.items() if near[1] > FAR * max(usual, chance[name])}
    if far and usual > 0:
        shown = some((f"{name!r} ({near[1]:.2f}, to {near[0]!r})" for name, near in far.items()), 5)
        yield risky(
            "far-test-group",
            f"{many(len(far), 'test group is', 'test groups are')} far from every training group",
            f"Distance to the nearest training group: {shown}; among training groups it is {usual:.2f} as a rule.",
            "Expect errors there to be larger than anything held-out training groups show; rows of a group in between "
            "would help most.",
            tuple(far),
            len(far) / len(test),
        )


@check
def not_recognised(case: Case) -> Iterator[Finding]:
    """Pairs of groups that look like one."""
    told = case.separability
    if told is None or told.skill < 0.5 or len(told.names) < 3:
        return
    taken, recognised = told.confusion + told.confusion.T, told.recognised
    mixed = [
        (a, b)
        for (i, a), (j, b) in combinations(enumerate(told.names), 2)
        if taken[i, j] >= 0.8 and recognised[a] + recognised[b] >= 0.6
    ]
    if mixed:
        shown = some((f"{a!r} and {b!r}" for a, b in mixed), 5)
        yield note(
            "twin-groups",
            f"{many(len(mixed), 'pair of groups looks', 'pairs of groups look')} like one",
            f"{shown}: a classifier that tells the other groups apart takes one for the other.",
            f"See whether they are one group under two names; {listed(mixed[0])} could be merged.",
            tuple(dict.fromkeys(name for pair in mixed for name in pair)),
            len(mixed) / len(told.names),
        )
