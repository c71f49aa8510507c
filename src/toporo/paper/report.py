"""What a benchmark's page shows of an outcome: its tables, its own figures and sentences, notes and settings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from toporo.pages.render import Verdict
from toporo.paper.base import BENCHMARKS
from toporo.paper.page import Chapter, write_benchmark_page
from toporo.paper.protocols import TOPOLOGY, TRO_USES, Protocol
from toporo.paper.results import Outcome, Row, VariantOutcome
from toporo.paper.sections import number, when
from toporo.paper.tables import caption, make_overview, make_table
from toporo.text import many
from toporo.types import Record

#: What of a benchmark's description is in figures, or too long for a line.
UNLISTED = ("angles", "hops", "positions", "counts")
#: What of a protocol is no setting.
UNSET = ("title", "methods", "extra", "metrics", "variants", "changes", "digits", "notes", "average")


def write_report(outcome: Outcome, out: Path) -> Path:
    """Write ``out/report.html``, each figure as ``out/figures/*.svg`` beside it, and return the report's path."""
    benchmark, protocol, parts = BENCHMARKS[outcome.protocol.benchmark], outcome.protocol, outcome.parts
    chapters = [
        Chapter(
            title=part.title,
            caption=caption(part.protocol, part.rows, outcome.about),
            table=make_table(part.rows, protocol),
            findings=benchmark.findings(part),
            sections=benchmark.sections(part, out),
        )
        for part in parts
    ]
    return write_benchmark_page(
        out,
        title=f"{protocol.title}: topology-aware robust optimisation",
        verdict=headline(protocol, outcome.rows),
        metric=protocol.metric,
        moment=protocol.moment,
        when=when(protocol),
        notices=benchmark.notices(outcome),
        several=bool(protocol.variants[0].name),
        overview=make_overview(protocol, outcome.rows) if len(chapters) > 1 else None,
        shared=benchmark.overall(outcome),
        chapters=chapters,
        notes=[*protocol.notes, *_skipped(outcome), *_timings(outcome.records), *_warnings(outcome.records)],
        settings=_settings(outcome),
    )


@dataclass(frozen=True)
class _Comparison:
    """The rows of one variant that the headline compares, under the protocol's rule.

    Attributes
    ----------
    protocol : of the benchmark.
    tro, erm : the best method that uses both a topology and the worst case, and the best ERM.
    control : the best method that uses only one of the two; None if none was run.
    best : the best of all methods.
    """

    protocol: Protocol
    tro: Row
    erm: Row
    control: Row | None
    best: Row

    def gain(self, row: Row, other: Row) -> float:
        """How much better a row is than another."""
        return (row.mean - other.mean) * (1 if self.protocol.better == "higher" else -1)

    def sign(self, row: Row, other: Row) -> int:
        """1 where a row is better by more than the larger standard deviation over seeds, -1 where worse, else 0."""
        gain = self.gain(row, other)
        return 0 if abs(gain) <= max(row.sd or 0.0, other.sd or 0.0) else 1 if gain > 0 else -1

    @property
    def signs(self) -> list[int]:
        """Of TRO against ERM, and against the control."""
        return [self.sign(self.tro, row) for row in (self.erm, self.control) if row is not None]

    @property
    def explained(self) -> bool:
        """Whether the control, with one ingredient, gains as much over ERM as TRO does with both."""
        return self.control is not None and self.sign(self.tro, self.control) < 1 == self.sign(self.control, self.erm)

    @property
    def others_best(self) -> bool:
        """Whether a method that is none of the three is better than all of them."""
        return all(self.gain(self.best, row) > 0 for row in (self.tro, self.erm, self.control) if row is not None)

    def text(self) -> str:
        """TRO against ERM, then what the control reaches and what that implies."""
        sign, gain = self.sign(self.tro, self.erm), self._difference(abs(self.gain(self.tro, self.erm)))
        how = {1: f"{gain} better than", 0: "within the spread over seeds of", -1: f"{gain} worse than"}[sign]
        sentences = [f"{self._named(self.tro)} is {how} {self._named(self.erm)}."]
        if self.control is None:
            sentences.append("No control was run that uses only the topology or only the worst case.")
        else:
            sentences.append(self._implication(self.control))
        if self.others_best:
            sentences.append(f"The best of all methods is {self._named(self.best)}.")
        return " ".join(sentences)

    def _implication(self, control: Row) -> str:
        method, tro = self.protocol.method(control.method), self.protocol.method(self.tro.method)
        if TOPOLOGY in method.uses:
            prior = "The same prior" if method.prior == tro.prior else "Another prior"
            part, what = "prior", f"{prior} without the worst case"
        else:
            part, what = "worst case", "The worst case without a topology"
        reaches = f"{what} ({method.title}) reaches {self._number(control.mean)}"
        if self.sign(self.tro, self.erm) < 1:
            return f"{reaches}."
        if self.explained:
            return f"{reaches}, so the {part} explains the gain."
        if self.sign(control, self.erm) < 1:
            return f"{reaches}, so the {part} alone does not explain the gain."
        return f"{reaches}, so the {part} alone explains {self._difference(self.gain(control, self.erm))} of the gain."

    def _difference(self, value: float) -> str:
        return f"{self._number(value)}{' points' * ('%' in self.protocol.metric)}"

    def _number(self, value: float) -> str:
        return f"{value:.{self.protocol.digits}f}"

    def _named(self, row: Row) -> str:
        return f"{self.protocol.method(row.method).title} ({self._number(row.mean)})"


def _compare(protocol: Protocol, rows: Iterable[Row]) -> _Comparison | None:
    """The comparison for the rows of one variant; None where TRO or ERM has no score."""
    rows = [row for row in rows if row.metric == protocol.whole.name and row.selection == protocol.headline]
    rows = sorted((row for row in rows if math.isfinite(number(row.mean))), key=lambda row: row.mean)
    if protocol.better == "higher":
        rows.reverse()
    kinds: dict[str, Row] = {}
    for row in rows:  # the best comes first
        method = protocol.method(row.method)
        if row.method in ("erm", "linear-erm"):
            kinds.setdefault("erm", row)
        elif method.uses == TRO_USES and not method.control:
            kinds.setdefault("tro", row)
        elif len(method.uses) == 1:
            kinds.setdefault("control", row)
    if "tro" not in kinds or "erm" not in kinds:
        return None
    return _Comparison(protocol, kinds["tro"], kinds["erm"], kinds.get("control"), rows[0])


def headline(protocol: Protocol, rows: Sequence[Row]) -> Verdict:
    """TRO against ERM, then against the best control, and what that implies; as counts where there are variants."""
    compared = {
        variant.title: comparison
        for variant in protocol.variants
        if (comparison := _compare(protocol, [row for row in rows if row.variant == variant.name])) is not None
    }
    if not compared:
        return Verdict("There is nothing to compare yet: it takes TRO with a topology, and ERM.")
    each_signs = [each.signs for each in compared.values()]
    tone = "good" if min(map(min, each_signs)) > 0 else "bad" if max(signs[0] for signs in each_signs) < 0 else ""
    if len(compared) == 1:
        return Verdict(next(iter(compared.values())).text(), tone)
    ahead = [each for each in compared.values() if each.signs[0] > 0]
    against_erm, against_control = (
        {title: each.signs[i] for title, each in compared.items() if len(each.signs) > i} for i in (0, 1)
    )
    sentences = [f"Against ERM, the best TRO method of each variant is {_tally(against_erm)}."]
    if against_control:
        sentences.append(
            f"Against the best method with only the topology or only the worst case, it is {_tally(against_control)}."
        )
    if ahead:
        explained = sum(each.explained for each in ahead)
        sentences.append(
            f"One of the two alone explains the gain over ERM in {explained} of {many(len(ahead), 'variant')}."
        )
    others = [title for title, each in compared.items() if each.others_best]
    if others:
        sentences.append(f"Another method is the best of all in {len(others)} ({'; '.join(others)}).")
    return Verdict(" ".join(sentences), tone)


def _tally(signs: Mapping[str, int]) -> str:
    """In which variants something is better or worse, and in how many it is neither."""
    parts: list[str] = []
    for sign, how in ((1, "better"), (-1, "worse"), (0, "within the spread over seeds")):
        titles = [title for title, own in signs.items() if own == sign]
        if titles:
            names = f" ({'; '.join(titles)})" if sign else ""
            parts.append(f"{how} in {len(titles)}{'' if parts else f' of {len(signs)}'}{names}")
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _warnings(records: Sequence[Record]) -> list[str]:
    by_text: dict[str, list[str]] = {}
    for record in records:
        where = ", ".join(part for part in (record["variant"], f"seed {record['seed']}") if part)
        for text in record["warnings"]:
            by_text.setdefault(text, []).append(f"{record['method']} ({where})")
    return [f"Warned in {', '.join(who)}: {text}" for text, who in by_text.items()]


def _skipped(outcome: Outcome) -> list[str]:
    """Which variants have no figures, and why."""
    return [f"Not run: {name}. {why}" for name, why in (outcome.about or {}).get("skipped", {}).items()]


def _timings(records: Sequence[Record]) -> list[str]:
    """How long runs took, and on what, where they say so."""
    by_machine: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for timing in (record["timing"] for record in records if record.get("timing")):
        by_machine.setdefault((timing["device"], timing["precision"]), []).append(timing)
    return [
        f"{many(len(timings), 'run')} on {device} in {precision}: "
        f"{sum(timing['seconds'] for timing in timings) / 60:.1f} minutes in all, median "
        f"{median(timing['steps_per_second'] for timing in timings):.3g} steps and "
        f"{median(timing['images_per_second'] for timing in timings):,.0f} samples per second."
        for (device, precision), timings in by_machine.items()
    ]


def _settings(outcome: Outcome) -> list[tuple[str, str]]:
    used = {record["method"] for record in outcome.records}
    varied = {key for part in outcome.parts for key in part.variant.training}
    protocol = {k: v for k, v in asdict(outcome.protocol).items() if k not in UNSET and k not in varied}
    settings = [(key.replace("_", " "), _text(value)) for key, value in protocol.items()]
    for method in (method for method in outcome.protocol.get_methods() if method.name in used):
        about = {"model": method.model, "objective": method.objective, **method.settings, "prior": method.prior}
        settings.append((method.title, _text({key: value for key, value in about.items() if value is not None})))
    return [*settings, *(line for part in outcome.parts for line in _data_settings(part))]


def _data_settings(part: VariantOutcome) -> list[tuple[str, str]]:
    lead = f"{part.variant.title}: " if part.variant.title else ""
    about = {k: v for k, v in part.loaded.about.items() if k not in UNLISTED}
    return [
        *([(f"{lead}training", _text(part.variant.training))] if part.variant.training else []),
        (f"{lead}data", _text({"source": part.loaded.source, **about})),
        (f"{lead}training groups", ", ".join(str(name) for name in part.loaded.train)),
    ]


def _text(value: Any) -> str:
    return json.dumps(value, default=list, ensure_ascii=False).replace("Infinity", "∞")
