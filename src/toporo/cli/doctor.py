"""``toporo doctor``."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

import typer
from rich.text import Text

from toporo.cli.options import DataFile, Delimiter, Flags, data_source, out_option, takes_flags
from toporo.cli.outputs import PAGES, PICTURES, outputs, write_picture
from toporo.cli.roles import takes_roles
from toporo.cli.running import register, working
from toporo.cli.settings import setting, takes_settings
from toporo.cli.terminal import WHOLE_WORDS, print_table, say, say_data, say_more
from toporo.doctor import SEVERITIES, Diagnosis, examine
from toporo.doctor.diagnose import TEST_GROUPS
from toporo.doctor.results import first_step, flag, group_table, percent, shifts_in_words
from toporo.errors import DataError
from toporo.progress import make_console
from toporo.tables.roles import Roles
from toporo.text import many, number

#: Groups shown on the terminal; --verbose, --out and --json have all.
SHOWN = 8
#: Width of text where no terminal says another.
WIDTH = 100
#: How each severity looks on a terminal.
LOOKS = {"serious": "bold red", "risky": "bold yellow", "note": "bold blue"}
#: What ``--out`` writes, by suffix.
KINDS = {"report": PAGES, "picture": tuple(PICTURES)}


@dataclass(frozen=True)
class DoctorSettings:
    """Expert settings of ``toporo doctor``."""

    seed: int = setting(0, "of the sample that distances are measured on, folds and resamples", least=0)


@register("doctor")
@takes_flags()
@takes_roles(optional=["target"], without=["drop_rows"])
@takes_settings(DoctorSettings)
def doctor(
    data: DataFile,
    roles: Roles,
    settings: dict[str, Any],
    ctx: typer.Context,
    delimiter: Delimiter = ",",
    out: Annotated[
        list[Path] | None,
        out_option("Write everything to an .html file, or draw the distances between groups: .png, .svg or .pdf."),
    ] = None,
    *,
    flags: Flags,
) -> None:
    """Say what is wrong or risky about a table before training on it.

    Groups that are too small, columns that give the group or the target
    away, missing values, whatever a fit would refuse, a graph in pieces,
    how far apart groups are, why groups held out are harder, and whether
    the graph says anything of them. The worst comes first, each with the
    next step. Findings are no error: the exit code is 0.

    Example: toporo doctor sales.csv --group state --target y --out doctor.html
    """
    files = outputs(out, KINDS, data=data)
    with working("examining", "nothing was written", quiet=flags.silent):
        diagnosis = examine(data_source(data), **vars(roles), delimiter=delimiter, **settings)
    if (typed := ctx.params["test_groups"]) is not None:
        diagnosis = _as_typed(diagnosis, f"--test-groups {shlex.quote(typed)}")
    if files:
        with working("drawing", "not everything was written", quiet=flags.silent):
            _draw(diagnosis, files.get("picture"), files.get("report"))
    if flags.json:
        say_data(json.dumps(diagnosis.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show(diagnosis, flags.verbose)
    for what, path in files.items():
        say(f"{what}: {path}", err=True)


def _as_typed(diagnosis: Diagnosis, typed: str) -> Diagnosis:
    """Return the diagnosis with the test groups of the next command as they were typed."""
    command = diagnosis.facts["next"]
    for written in (flag("--test-groups", diagnosis.facts["test_groups"]), f"--test-groups @{TEST_GROUPS}"):
        command = command.replace(written, typed)
    return replace(diagnosis, facts={**diagnosis.facts, "next": command})


def _draw(diagnosis: Diagnosis, plot: Path | None, out: Path | None) -> None:
    """Write the picture and the page that were asked for."""
    from toporo.pages.doctor import distance_map, write_doctor_report  # matplotlib, which most calls do without

    if plot is not None:
        if diagnosis.distances is None:
            why = diagnosis.facts["not_measured"].get("distances", "they were not measured")
            raise DataError(f"--out {plot}: there are no distances to draw: {why}. Leave the option out.")
        distances = diagnosis.distances
        write_picture(plot, lambda: distance_map(distances, diagnosis.facts["test_groups"]))
    if out is not None:
        write_doctor_report(diagnosis, out)


def _show(diagnosis: Diagnosis, verbose: bool) -> None:
    """Findings, groups and the next command, on standard output."""
    facts = diagnosis.facts
    console = make_console(width=None if sys.stdout.isatty() else WIDTH)
    target = f"target {facts['target']!r} ({facts['task']})" if facts["target"] is not None else "no target named"
    say(
        f"{facts['source']}: {many(facts['rows'], 'row')}, {many(facts['groups'], 'group')}, "
        f"{many(len(facts['features']), 'feature')}, {target}"
    )
    counts = [
        many(count, severity, "notes" if severity == "note" else severity)
        for severity in SEVERITIES
        if (count := diagnosis.count(severity))
    ]
    say(f"Findings: {', '.join(counts) or 'none'}")
    for place, finding in enumerate(diagnosis.findings, 1):
        console.print()
        console.print(
            Text.assemble(
                f"{place}. ",
                (finding.severity.upper(), LOOKS[finding.severity]),
                "  ",
                (finding.title, "bold"),
                (f"  [{finding.code}]", "dim"),
            )
        )
        for text, mark in ((finding.detail, "   "), (finding.step, "   → ")):
            say(fill(text, console.width, initial_indent=mark, subsequent_indent=" " * len(mark), **WHOLE_WORDS))
    table = group_table(diagnosis, None if verbose else SHOWN)
    say("")
    print_table(table.columns, table.rows, numbers=table.numbers)
    say_more(table.left_out, "group")
    for sentence in _measured(diagnosis):
        say(fill(sentence, console.width, **WHOLE_WORDS))
    say("")
    say(f"{first_step(facts['first'])} {facts['next']}")


def _measured(diagnosis: Diagnosis) -> list[str]:
    """How far apart groups are and how well they can be told apart, in a sentence each."""
    sentences = []
    if diagnosis.distances is not None:
        verdict = "more than" if diagnosis.distances.beyond_chance else "no more than"
        sentences.append(
            f"Distances between groups: {number(diagnosis.distances.typical)} on average, {verdict} chance "
            f"({number(diagnosis.distances.chance)})."
        )
    if diagnosis.separability is not None:
        told = diagnosis.separability
        sentences.append(
            f"A classifier recognises the group of {percent(told.accuracy)} of the rows (guessing: "
            f"{percent(told.chance)})"
            + (f", mostly by {', '.join(repr(name) for name, _ in told.features[:3])}." if told.features else ".")
        )
    sentences += [f"{what}: {text}." for what, text in shifts_in_words(diagnosis.facts).items()]
    sentences += [f"Not measured: {what} ({why})." for what, why in diagnosis.facts["not_measured"].items()]
    return sentences
