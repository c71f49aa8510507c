"""Checks of what was measured on groups and times never seen: why they are harder, and whether the graph helps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from toporo.data.frame import Numbers
from toporo.doctor.case import Case, check
from toporo.doctor.columns import time_column
from toporo.doctor.results import Finding, note, percent, risky

#: To be worth a word, a loss must be so many times larger, by so many standard errors, and by such a share of what
#: there is to explain: where next to nothing is left, a model's own coarseness makes the difference.
LARGER, SURELY, MATTERS = 1.1, 2.0, 0.02
#: By so many of later rows, which are of a few times only.
SURELY_LATER = 3.0
#: The share of all graphs, the one given among the shuffled ones, that do as well if it says nothing.
FAINT = 0.2
#: What can be done about another relation.
MENDS = (
    "The context of a group and kriging can: --model kriged, or tr.Kriged around any model; so can columns that say "
    "why groups differ."
)


def _larger(loss: float, usual: float, error: float, surely: float = SURELY) -> bool:
    """Return whether a loss is worth a word beside the usual one."""
    return loss >= LARGER * usual and loss - usual >= max(MATTERS, surely * error)


@check
def shifted_regions(case: Case) -> Iterator[Finding]:
    """Groups never seen are harder: their inputs are others, or the target depends on them in another way."""
    losses = case.losses
    if losses is None or not _larger(losses.unseen, losses.seen, losses.error):
        return
    relation = min(1.0, max(0.0, losses.relation / losses.gap))
    how = (
        f"In regions of training groups held out, trees have {losses.unseen / max(losses.seen, 1e-12):.2g} times the "
        f"squared error that they have on other rows of groups they know. {percent(relation)} of the difference is "
        f"there among rows with like features, {percent(1.0 - relation)} is due to other features"
    )
    sure = losses.relation >= SURELY * losses.relation_error
    if losses.relation >= losses.inputs + losses.beyond:
        yield Finding(
            "risky" if sure else "note",
            "relation-shift",
            "Groups differ in how the target depends on the features",
            f"{how}.",
            f"Weights of groups cannot mend that. {MENDS}",
            (),
            min(1.0, losses.gap),
        )
        return
    new = losses.beyond > losses.inputs
    yield risky(
        "input-shift",
        "Groups differ in their features, and models miss that",
        f"{how}{', mostly to such as other groups hardly have' if new else ''}.",
        (
            "Rows of groups in between would help most: weights cannot make up for what no group has. Prefer columns "
            "that mean the same everywhere, shares to totals."
            if new
            else "Weights can mend that: name the test groups and give a graph (--test-groups, --graph), so that "
            "groups like them count for more."
        )
        + (f" For the rest: {MENDS[0].lower()}{MENDS[1:]}" if sure and relation >= 0.25 else ""),
        (),
        min(1.0, losses.gap),
    )


@check
def shifted_times(case: Case) -> Iterator[Finding]:
    """Later rows are harder: a split by groups, with all times on both sides, does not show it."""
    ahead, losses = case.ahead, case.losses
    if ahead is None or losses is None or not _larger(ahead.ahead, ahead.seen, ahead.error, SURELY_LATER):
        return
    ratio, other = ahead.ahead / max(ahead.seen, 1e-12), losses.unseen / max(losses.seen, 1e-12)
    name = str(time_column(case))
    column = case.frame[name]
    after = replace(column, values=np.array([ahead.after])).as_text().levels[0] if isinstance(column, Numbers) else ""
    fairer = ratio > other
    yield Finding(
        "risky" if fairer else "note",
        "time-shift",
        "A split in time would be fairer than one by groups" if fairer else "Later rows are harder than earlier ones",
        f"Trees fitted to rows up to {after} in {name!r} have {ratio:.2g} times the squared error on later rows; in "
        f"held-out regions it is {other:.2g} times. A test on other groups, whose times were all seen in training, "
        "does not show that.",
        f"If the model is for times to come, set aside the rows after {after} and judge it on those (toporo evaluate).",
        (name,),
        min(1.0, ahead.ahead - ahead.seen),
    )


@check
def graph_says(case: Case) -> Iterator[Finding]:
    """Neighbours are alike in what a model leaves, or not, against the same graph with its groups shuffled."""
    found = case.evidence
    if found is None:
        return
    code, weight = "telling-graph", found.gate
    title, alike = "The graph says something about groups never seen", "alike in neighbours"
    step = "Use it: --graph, and --model kriged or tr.Kriged around any model."
    if found.gate < 0.5 or found.as_well:
        code, weight = "faint-graph", 1.0 - found.gate
        title, alike = "The graph says little about groups never seen", "hardly more alike in neighbours than in others"
        step = "Expect a small gain from this graph at most: compare with a fit without it."
    if (1 + found.as_well) / (1 + found.shuffles) > FAINT:
        code, weight = "silent-graph", 1.0 - found.gate
        title = "The graph says nothing that could be told from chance"
        alike = "no more alike in neighbours than in others"
        step = "Expect little of this graph: compare with a fit without it, or give one by what makes groups alike."
    yield note(
        code,
        title,
        f"What trees leave of groups they have not seen is {alike}: over {found.groups} groups, the evidence for it is "
        f"{percent(found.gate)}, and {found.as_well} of {found.shuffles} graphs with shuffled groups explain as much.",
        step,
        (),
        weight,
    )
