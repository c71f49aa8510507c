"""Checks of the graph against the groups, and of the prior that follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from toporo.doctor.case import Case, Check
from toporo.doctor.group_checks import spelling
from toporo.doctor.results import Finding
from toporo.doctor.words import count_of, flag, percent, some
from toporo.errors import listed
from toporo.topology.graph import GroupGraph

#: A prior is flat from this share of all training groups on, counted as the exponential of its entropy, …
FLAT = 0.98
#: … and a bet on a single group below this number of groups.
BET = 1.5


def _names(graph: GroupGraph) -> list[str]:
    return [str(name) for name in graph.names]


def no_graph(case: Case) -> Iterator[Finding]:
    """Without a graph every group is as central as any other."""
    if case.graph is not None or len(case.train) < 2:
        return
    learned = case.distances is not None and case.distances.beyond_chance
    yield Finding(
        "note",
        "no-graph",
        "No graph of the groups was given",
        "Without one, the prior is uniform: no group counts as more central than another.",
        "Give --graph FILE with lines such as NY,PA (who touches whom)"
        + (", or learn one from the features with --learn-graph." if learned else "."),
    )


def groups_not_in_graph(case: Case) -> Iterator[Finding]:
    """Groups with rows, or test groups, that the graph does not know; and how they may be spelt there."""
    if case.graph is None:
        return
    known = _names(case.graph)
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
    yield Finding(
        "serious",
        "not-in-graph",
        f"{count_of(len(lost), 'group is', 'groups are')} missing from the graph",
        detail,
        step,
        tuple(lost),
        case.share_of_groups(lost),
    )


def test_groups_unknown(case: Case) -> Iterator[Finding]:
    """Test groups that nothing is known of."""
    if case.graph is not None:
        return
    lost = [name for name in case.test if name not in case.sizes]
    if lost:
        yield Finding(
            "serious",
            "unknown-test-group",
            f"{count_of(len(lost), 'test group has', 'test groups have')} no rows, and there is no graph to find it in"
            if len(lost) == 1
            else f"{len(lost)} test groups have no rows, and there is no graph to find them in",
            f"{listed(lost)}; the table has {listed(case.names)}.",
            "Correct the names in --test-groups, or give a --graph that has them.",
            tuple(lost),
            len(lost) / max(1, len(case.test)),
        )


def groups_to_come(case: Case) -> Iterator[Finding]:
    """Groups of the graph without rows: those to come, if they are named so."""
    if case.graph is None:
        return
    empty = [name for name in _names(case.graph) if name not in case.sizes and name not in case.test]
    if empty:
        yield Finding(
            "note",
            "graph-only-group",
            f"{count_of(len(empty), 'group of the graph has', 'groups of the graph have')} no rows",
            f"{listed(empty)}. If the model is meant for {'it' if len(empty) == 1 else 'them'}, the prior should look "
            "that way.",
            f"Say so: {flag('--test-groups', empty, 12)}.",
            tuple(empty),
            len(empty) / len(case.graph),
        )


def isolated_groups(case: Case) -> Iterator[Finding]:
    """Groups that touch nobody, and a graph in pieces."""
    if case.graph is None or len(case.graph) < 2:
        return
    mine = set(case.names) | set(case.test)
    lone = [name for name in _names(case.graph) if name in mine and not case.graph.neighbors(name)]
    if lone:
        yield Finding(
            "risky",
            "isolated-group",
            f"{count_of(len(lone), 'group touches', 'groups touch')} no other in the graph",
            f"{listed(lone)}: the topology says nothing of {'it' if len(lone) == 1 else 'them'}, and a training group "
            "without neighbours has only its even share of the prior.",
            "Add its edges to the graph, e.g. to the groups most like it (see the distances).",
            tuple(lone),
            case.share_of_groups(lone),
        )
    pieces = [part for part in case.graph.components() if len(part) > 1 and mine & set(part)]
    if len(pieces) > 1:
        yield Finding(
            "risky",
            "disconnected-graph",
            f"The graph falls into {count_of(len(pieces), 'piece')}",
            some((f"{len(part)} with {listed(part, limit=3)}" for part in pieces), 4, "; ")
            + ". Nothing is said about how groups in different pieces hang together.",
            "Add edges that join the pieces, if there is any way from one to the other.",
            tuple(str(part[0]) for part in pieces),
            1.0 - len(pieces[0]) / len(case.graph),
        )


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
        yield Finding(
            "serious",
            "unreachable-test-group",
            f"No path leads from the training groups to {count_of(len(lost), 'test group')}",
            f"{listed(lost)}. The prior towards the test groups cannot count {'it' if len(lost) == 1 else 'them'}.",
            "Add edges to the graph that lead there.",
            tuple(lost),
            len(lost) / len(wanted),
        )


def prior_shape(case: Case) -> Iterator[Finding]:
    """A graph that puts all training groups alike, or one of them before all others.

    Looked at in the centralities: a default prior spreads a part of itself evenly whatever they are.
    """
    if case.prior is None or len(case.prior) < 2:
        return
    groups = len(case.prior)
    values = case.prior.centrality or case.prior.weights
    total = sum(values.values())
    shares = {name: value / total if total > 0 else 1.0 / groups for name, value in values.items()}
    effective = math.exp(-sum(share * math.log(share) for share in shares.values() if share > 0))
    how = (
        "towards the test groups (harmonic)"
        if case.prior.measure.startswith("harmonic")
        else "between them (betweenness)"
    )
    heaviest = max(shares, key=lambda name: (shares[name], str(name)))
    if effective >= FLAT * groups:
        yield Finding(
            "risky",
            "flat-prior",
            "The graph gives a flat prior",
            f"By centrality {how} the {groups} training groups count as {effective:.1f}: training with such a prior is "
            "training without a topology.",
            "Name the groups to come in --test-groups, or use a sparser graph."
            if not case.test
            else "Use a graph in which not every group is as near to the test groups as any other.",
            (),
            effective / groups,
        )
    elif effective < BET and groups > 2:
        yield Finding(
            "risky",
            "one-group-prior",
            f"The graph bets on {str(heaviest)!r}",
            f"By centrality {how} the {groups} training groups count as {effective:.1f}: {percent(shares[heaviest])} "
            f"of it is on {str(heaviest)!r}, which has {count_of(case.sizes[str(heaviest)], 'row')} and "
            f"{percent(case.prior[heaviest])} of the default prior.",
            f"See that {str(heaviest)!r} has rows enough to carry that weight, or use --prior closeness.",
            (str(heaviest),),
            shares[heaviest],
        )


CHECKS: tuple[Check, ...] = (
    no_graph,
    groups_not_in_graph,
    test_groups_unknown,
    groups_to_come,
    isolated_groups,
    unreachable_tests,
    prior_shape,
)
