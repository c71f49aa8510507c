"""Sentences about results: captions, the headline and what topologies show; for page and terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toporo.pages import Verdict
from toporo.paper.base import SOURCES
from toporo.paper.methods import TOPOLOGY, TRO_USES
from toporo.paper.protocols import Protocol
from toporo.paper.results import SELECTIONS, Results, Row
from toporo.text import many
from toporo.topology import Prior

#: Relative differences of weights below this count as none.
FLAT = 0.01
#: Title of a table of differences to the baseline.
PAIRED = "Each method less ERM, on the same variant with the same seed:"


# ---------------------------------------------------------------------- captions


def caption(part: Results) -> str:
    """Say what the figures of a variant are, and what data they come from."""
    protocol, seeds = part.protocol, max(len(row.per_seed) for row in part.rows)
    return (
        f"{part.title}: {protocol.metric}, {f'mean ± sd over {seeds} seeds' if seeds > 1 else 'one seed'}, "
        f"{protocol.rounds} {protocol.unit}; "
        f"from {SOURCES.get(part.rows[0].source, part.rows[0].source)}."
    )


def overview_caption(protocol: Protocol) -> str:
    """Say what the figures of all variants side by side are."""
    rule = SELECTIONS[protocol.headline].titled(protocol.unit)
    return f"{protocol.title}, all variants: {protocol.metric}, over all test groups, {rule}."


def oracle(protocol: Protocol) -> str:
    """Say what a column of figures chosen with test labels is for."""
    return f"Oracle: the {protocol.moment} was chosen with test labels, to show what a column could at best be."


def when(protocol: Protocol) -> str:
    """Say at which evaluation of a run its figures were measured."""
    words = {
        "last": "after the last {}",
        "validation": "at the {} that validation chose",
        "averaged": "with averaged weights",
    }
    return words.get(protocol.headline, f"at the {{}} of the rule “{protocol.headline}”").format(protocol.moment)


# ---------------------------------------------------------------------- the headline


@dataclass(frozen=True)
class Contest:
    """The rows of one variant that the headline compares.

    Attributes
    ----------
    protocol : of the benchmark.
    tro, baseline : the best method that uses both a topology and the worst case, and the best baseline.
    control : the best method that uses only one of the two; None if none was run.
    best : the best of all methods.
    """

    protocol: Protocol
    tro: Row
    baseline: Row
    control: Row | None
    best: Row

    @classmethod
    def of(cls, part: Results) -> Contest | None:
        """Find the rows; None if TRO or the baseline has no figure."""
        protocol = part.protocol
        rows = [row for row in part.headlines().values() if row.mean is not None and math.isfinite(row.mean)]
        best: dict[str, Row] = {}
        for row in sorted(rows, key=lambda row: -protocol.sign * row.mean):
            method = protocol.method(row.method)
            if method.baseline:
                best.setdefault("baseline", row)
            elif method.uses == TRO_USES and not method.control:
                best.setdefault("tro", row)
            elif len(method.uses) == 1:
                best.setdefault("control", row)
            best.setdefault("best", row)
        if "tro" not in best or "baseline" not in best:
            return None
        return cls(protocol, best["tro"], best["baseline"], best.get("control"), best["best"])

    def sign(self, row: Row, other: Row) -> int:
        """Return 1 if a row is better by more than the larger standard deviation over seeds, -1 if worse, else 0."""
        gain = self.protocol.sign * (row.mean - other.mean)
        return 0 if abs(gain) <= max(row.sd or 0.0, other.sd or 0.0) else 1 if gain > 0 else -1

    @property
    def signs(self) -> list[int]:
        """Signs of the comparison of TRO with the baseline, and with the control."""
        return [self.sign(self.tro, row) for row in (self.baseline, self.control) if row is not None]

    @property
    def explained(self) -> bool:
        """True if the control, with one ingredient, gains as much over the baseline as TRO does with both."""
        control = self.control
        return control is not None and self.sign(self.tro, control) < 1 == self.sign(control, self.baseline)

    @property
    def best_is_another(self) -> bool:
        """True if the best of all methods is none of the three."""
        return self.best not in (self.tro, self.baseline, self.control)

    @property
    def text(self) -> str:
        """The comparison of TRO with the baseline and with the control, and what follows."""
        gain = self._gap(self.tro, self.baseline)
        how = (f"{gain} worse than", "within the spread over seeds of", f"{gain} better than")[1 + self.signs[0]]
        sentences = [f"{self._named(self.tro)} is {how} {self._named(self.baseline)}."]
        if self.control is None:
            sentences.append("No control was run that uses only the topology or only the worst case.")
        else:
            sentences.append(self._implication(self.control))
        if self.best_is_another:
            sentences.append(f"The best of all methods is {self._named(self.best)}.")
        return " ".join(sentences)

    def _named(self, row: Row) -> str:
        return f"{self.protocol.method(row.method).title} ({row.mean:.{self.protocol.digits}f})"

    def _gap(self, row: Row, other: Row) -> str:
        unit = " points" if "%" in self.protocol.metric else ""
        return f"{abs(row.mean - other.mean):.{self.protocol.digits}f}{unit}"

    def _implication(self, control: Row) -> str:
        method, tro = self.protocol.method(control.method), self.protocol.method(self.tro.method)
        if TOPOLOGY in method.uses:
            prior = "The same prior" if method.prior == tro.prior else "Another prior"
            part, what = "prior", f"{prior} without the worst case"
        else:
            part, what = "worst case", "The worst case without a topology"
        reaches = f"{what} ({method.title}) reaches {control.mean:.{self.protocol.digits}f}"
        if self.sign(self.tro, self.baseline) < 1:
            return f"{reaches}."
        if self.explained:
            return f"{reaches}, so the {part} explains the gain."
        if self.sign(control, self.baseline) < 1:
            return f"{reaches}, so the {part} alone does not explain the gain."
        return f"{reaches}, so the {part} alone explains {self._gap(control, self.baseline)} of the gain."


def headline(results: Results) -> Verdict:
    """Compare TRO with ERM and with the best control, and say what follows; as counts if there are variants."""
    contests = {part.variant.title: contest for part in results.parts if (contest := Contest.of(part)) is not None}
    if not contests:
        return Verdict("There is nothing to compare yet: it takes TRO with a topology, and ERM.")
    signs = [contest.signs for contest in contests.values()]
    tone = "good" if min(map(min, signs)) > 0 else "bad" if max(of_erm for of_erm, *_ in signs) < 0 else ""
    if len(contests) == 1:
        return Verdict(next(iter(contests.values())).text, tone)
    against_erm, against_control = (
        {title: contest.signs[i] for title, contest in contests.items() if len(contest.signs) > i} for i in (0, 1)
    )
    sentences = [f"Against ERM, the best TRO method of each variant is {_tally(against_erm)}."]
    if against_control:
        sentences.append(
            f"Against the best method with only the topology or only the worst case, it is {_tally(against_control)}."
        )
    if ahead := [contest for contest in contests.values() if contest.signs[0] > 0]:
        explained = sum(contest.explained for contest in ahead)
        sentences.append(
            f"One of the two alone explains the gain over ERM in {explained} of {many(len(ahead), 'variant')}."
        )
    others = [title for title, contest in contests.items() if contest.best_is_another]
    if others:
        sentences.append(f"Another method is the best of all in {len(others)} ({'; '.join(others)}).")
    return Verdict(" ".join(sentences), tone)


def _tally(signs: Mapping[str, int]) -> str:
    """Say in which variants something is better or worse, and in how many it is neither."""
    parts: list[str] = []
    for sign, how in ((1, "better"), (-1, "worse"), (0, "within the spread over seeds")):
        titles = [title for title, value in signs.items() if value == sign]
        if titles:
            names = f" ({'; '.join(titles)})" if sign else ""
            parts.append(f"{how} in {len(titles)}{'' if parts else f' of {len(signs)}'}{names}")
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


# ---------------------------------------------------------------------- topologies


def topology_words(part: Results) -> list[str]:
    """Say whether seeds agree on the topology, which group the prior favours, and whether resamples confirm that."""
    learned, what = part.learned_topologies(), part.benchmark.group
    if learned is None:
        return []
    runs = len(learned.graphs)
    same = f"differs among seeds ({learned.kinds} kinds in {runs})"
    if learned.kinds == 1:
        same = f"is the same in all {runs} seeds" if runs > 1 else "comes from one seed"
    means = {name: float(np.mean(learned.weights(name))) for name in learned.priors[0].weights}
    high = max(means.values())
    tops = [str(name) for name, weight in means.items() if weight >= (1 - FLAT) * high]
    if len(tops) == len(means):
        favoured = f"its prior is flat: no {what} has more weight than another."
    else:
        shares = f"{100 * high:.0f} % of the weight"
        to = f"{shares} to {what} {tops[0]}" if len(tops) == 1 else f"{shares} each to {' and '.join(tops)}"
        favoured = f"its prior gives {to}; a uniform prior gives each {what} {100 / len(means):.0f} %."
    return [f"The learned topology {same}; {favoured}", *_trust_words(learned.priors)]


def _trust_words(priors: Sequence[Prior]) -> list[str]:
    """Say in how many runs resamples confirm the prior, if that was measured."""
    measured = [prior for prior in priors if prior.bootstrap_rms is not None]
    doubts = [prior.fallback_reason for prior in measured if prior.fallback_reason]
    trusted, seeds = len(measured) - len(doubts), many(len(measured), "seed")
    sentences = [f"Resampling the rows confirms the prior in {trusted} of {seeds}."] if trusted else []
    if doubts:
        sentences.append(f"The prior was not trusted in {len(doubts)} of {seeds}, and is uniform there: {doubts[0]}.")
    return sentences
