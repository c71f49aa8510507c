"""Sentences about results: captions and the headline, for page and terminal."""

from __future__ import annotations

import math

from toporo.pages import Verdict
from toporo.paper.base import SOURCES
from toporo.paper.methods import TRO_USES
from toporo.paper.protocols import Protocol
from toporo.paper.results import SELECTIONS, Results, Row

#: Title of a table of differences to the baseline.
PAIRED = "Each method less ERM, on the same variant with the same seed:"


# ---------------------------------------------------------------------- captions


def caption(part: Results) -> str:
    """Say what the figures of a variant are, and what data they come from."""
    protocol, source = part.protocol, part.rows[0].source
    return (
        f"{part.title}: {protocol.metric}, {_over_seeds(part)}, {protocol.rounds} {protocol.unit}; "
        f"from {SOURCES.get(source, source)}."
    )


def search_caption(part: Results) -> str:
    """Say what the figures of a variant's search are."""
    return (
        f"{part.title}: {part.protocol.metric} with settings as each rule chooses them, {_over_seeds(part)}, and in "
        "brackets how much better the best of all tried would be."
    )


def _over_seeds(part: Results) -> str:
    seeds = max(len(row.per_seed) for row in part.rows)
    return f"mean ± sd over {seeds} seeds" if seeds > 1 else "one seed"


def overview_caption(protocol: Protocol) -> str:
    """Say what the figures of all variants side by side are."""
    return f"{protocol.title}, all variants: {protocol.metric}, over all test groups, {when(protocol)}."


def oracle(protocol: Protocol) -> str:
    """Say what a column of figures chosen with test labels is for."""
    return f"Oracle: the {protocol.moment} was chosen with test labels, to show what a column could at best be."


def when(protocol: Protocol) -> str:
    """Say at which evaluation of a run its figures were measured."""
    return SELECTIONS[protocol.headline].titled(protocol.unit)


# ---------------------------------------------------------------------- the headline

#: A control in words.
CONTROL = "the best method with only the topology or only the worst case"


def best_rows(part: Results) -> dict[str, Row]:
    """Return the best rows of a variant: of TRO with a topology, of ERM, of methods with one of the two, and of all."""
    protocol, best = part.protocol, dict[str, Row]()
    rows = [row for row in part.headlines().values() if math.isfinite(row.mean)]
    for row in sorted(rows, key=lambda row: -protocol.sign * row.mean):
        method = protocol.method(row.method)
        if method.baseline:
            best.setdefault("erm", row)
        elif method.uses == TRO_USES and not method.control:
            best.setdefault("tro", row)
        elif len(method.uses) == 1:
            best.setdefault("control", row)
        best.setdefault("all", row)
    return best


def finding(part: Results) -> str:
    """Compare the best TRO of a variant with ERM and with the best control; empty without TRO or ERM."""
    protocol, best = part.protocol, best_rows(part)
    if not {"tro", "erm"} <= set(best):
        return ""

    def named(row: Row) -> str:
        return f"{protocol.method(row.method).title} ({row.mean:.{protocol.digits}f})"

    def compared(other: Row) -> str:
        gap = f"{abs(best['tro'].mean - other.mean):.{protocol.digits}f}{' points' if '%' in protocol.metric else ''}"
        words = ("within the spread over seeds of", f"{gap} better than", f"{gap} worse than")
        return f"{words[_sign(protocol, best['tro'], other)]} {named(other)}"

    text = f"{named(best['tro'])} is {compared(best['erm'])}"
    text += f" and {compared(best['control'])}, {CONTROL}." if "control" in best else f"; {CONTROL} was not run."
    last = best.pop("all")
    return text if last in best.values() else f"{text} The best of all methods is {named(last)}."


def _sign(protocol: Protocol, row: Row, other: Row) -> int:
    """Return 1 if a row is better by more than the larger standard deviation over seeds, -1 if worse, else 0."""
    gain = protocol.sign * (row.mean - other.mean)
    return 0 if abs(gain) <= max(row.sd or 0.0, other.sd or 0.0) else 1 if gain > 0 else -1


def headline(results: Results) -> Verdict:
    """Compare TRO with ERM and with the best control; as counts if there are variants."""
    findings = [text for part in results.parts if (text := finding(part))]
    if not findings:
        return Verdict("There is nothing to compare yet: it takes TRO with a topology, and ERM.")
    bests = [best for part in results.parts if {"tro", "erm"} <= set(best := best_rows(part))]
    signs = {
        title: [_sign(results.protocol, best["tro"], best[kind]) for best in bests if kind in best]
        for kind, title in (("erm", "ERM"), ("control", CONTROL))
    }
    tone = "good" if min(map(min, filter(None, signs.values()))) > 0 else "bad" if max(signs["ERM"]) < 0 else ""
    if len(findings) == 1:
        return Verdict(findings[0], tone)
    counts = [f"better than {t} in {of.count(1)} of {len(of)} and worse in {of.count(-1)}" for t, of in signs.items()]
    return Verdict(f"The best TRO of each variant is {', '.join(counts)}.", tone)
