"""``toporo doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from toporo.cli import options as opt
from toporo.cli.outputs import PAGES, PICTURES, outputs, write_picture
from toporo.cli.roles import TableRoles
from toporo.cli.running import register, working
from toporo.cli.settings import setting, settings_option
from toporo.cli.terminal import print_table, say, say_data, say_files, say_more, tell
from toporo.doctor import SEVERITIES, Diagnosis, examine
from toporo.doctor.results import first_step, group_table, percent, shifts_in_words
from toporo.errors import DataError
from toporo.text import many, number

#: Groups shown on the terminal; --verbose, --out and --json have all.
SHOWN = 8


@dataclass(frozen=True)
class DoctorSettings:
    """Expert settings of ``toporo doctor``."""

    seed: int = setting(0, "of the sample that distances are measured on, folds and resamples", least=0)


@register("doctor")
@opt.takes_options
def doctor(
    data: opt.DataFile,
    roles: TableRoles,
    settings: Annotated[list[Any] | None, settings_option(DoctorSettings)] = None,
    delimiter: opt.Delimiter = ",",
    out: Annotated[
        list[Path] | None, opt.option("Page: .html. Distances between groups as a picture: .png, .svg or .pdf.", "-o")
    ] = None,
    *,
    flags: opt.Flags,
) -> None:
    """Examine a table for what is wrong or risky before training on it.

    Groups that are too small, columns that give the group or the target
    away, missing and constant columns, classes that groups lack, groups the
    graph does not know, how far apart groups are, why groups held out are
    harder, and whether the graph says anything of them. The worst comes
    first, each with the next step. Findings are no error: the exit code is 0.

    Example: toporo doctor sales.csv --group state --target y --out doctor.html
    """
    files = outputs(out, {"report": PAGES, "picture": PICTURES}, data)
    with working("examining", quiet=flags.silent):
        source = opt.data_source(data)
        diagnosis = examine(source, **roles.given, delimiter=delimiter, **dict(settings or ()))
        if files:
            _draw(diagnosis, files)
    if flags.json:
        say_data(diagnosis.to_dict())
    else:
        _show(diagnosis, flags.verbose)
    say_files(files, err=True)


def _draw(diagnosis: Diagnosis, files: dict[str, Path]) -> None:
    from toporo.pages.doctor import distance_map, write_doctor_report  # matplotlib, which most calls do without

    if "picture" in files:
        if (distances := diagnosis.distances) is None:
            why = diagnosis.facts["not_measured"].get("distances", "they were not measured")
            raise DataError(f"--out {files['picture']}: there are no distances to draw: {why}. Leave the option out.")
        write_picture(files["picture"], lambda: distance_map(distances, diagnosis.facts["test_groups"]))
    if "report" in files:
        write_doctor_report(diagnosis, files["report"])


def _show(diagnosis: Diagnosis, verbose: bool) -> None:
    facts = diagnosis.facts
    target = f"target {facts['target']!r} ({facts['task']})" if facts["target"] is not None else "no target named"
    sizes = [many(facts["rows"], "row"), many(facts["groups"], "group"), many(len(facts["features"]), "feature")]
    counts = [f"{count} {severity}" for severity in SEVERITIES if (count := diagnosis.count(severity))]
    tell(f"{facts['source']}: {', '.join([*sizes, target])}", f"Findings: {', '.join(counts) or 'none'}")
    for place, finding in enumerate(diagnosis.findings, 1):
        tell(f"{place}. {finding.severity.upper()}  {finding.title}  [{finding.code}]")
        tell(finding.detail, f"→ {finding.step}", indent="   ")
    table = group_table(diagnosis, None if verbose else SHOWN)
    print_table(table.columns, table.rows, numbers=table.numbers)
    say_more(table.left_out, "group")
    tell(*_measured(diagnosis))
    say(f"\n{first_step(facts['first'])} {facts['next']}")


def _measured(diagnosis: Diagnosis) -> list[str]:
    """Return sentences on how far apart groups are and how well they can be told apart."""
    sentences = []
    if (distances := diagnosis.distances) is not None:
        verdict = "more than" if distances.beyond_chance else "no more than"
        typical, chance = number(distances.typical), number(distances.chance)
        sentences.append(f"Distances between groups: {typical} on average, {verdict} chance ({chance}).")
    if (told := diagnosis.separability) is not None:
        share, chance = percent(told.accuracy), percent(told.chance)
        mostly = ", ".join(repr(name) for name, _ in told.features[:3]) or "no single column"
        sentences.append(f"A classifier recognises the group of {share} of the rows (guessing: {chance}), by {mostly}.")
    sentences += [f"{what}: {text}." for what, text in shifts_in_words(diagnosis.facts).items()]
    return sentences + [f"Not measured: {what} ({why})." for what, why in diagnosis.facts["not_measured"].items()]
