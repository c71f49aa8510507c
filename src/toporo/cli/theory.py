"""``toporo theory``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from toporo.cli.common import Quiet, option, register, say, say_data, working
from toporo.errors import SettingError
from toporo.paper.theory.page import tables, write_theory_report
from toporo.paper.theory.study import StudySettings, run_study
from toporo.progress import make_console


@register("theory")
def theory(
    out: Annotated[Path, typer.Option(help="Folder for results; those of an earlier run are replaced.")] = Path(
        "runs/theory"
    ),
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Seeds of Theorem 1 and of Theorem 2's bound; networks are trained with at most 3.",
            show_default="10, or 5 with --quick",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer steps, seeds, epochs and groups.", metavar="")] = False,
    as_json: Annotated[
        bool, option("Print the results as JSON instead of tables.", "Output", "--json", metavar="")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Watch the paper's three theorems at work on DG-15.

    Theorem 1: the duality gap of projected SGD against its bound. Theorem 2: how
    near a network in training is to a stationary point, and both sides of our own
    bound where its constants are known. Theorem 3: what bounds the risk in unseen
    groups, term by term. Writes theory.json, figures/*.svg and report.html (one
    file, opens offline).

    Example: toporo theory --quick --out runs/theory
    """
    _check_folder(out)
    with working("studying", "no file was left half-written", quiet=as_json or quiet):
        study = run_study(_settings(seeds, quick))
        report = write_theory_report(study, out)
    if as_json:
        say_data(study.to_json())
    else:
        console = make_console(width=None if sys.stdout.isatty() else 150)
        for table in tables(study):
            console.print(table.to_rich())
        for sentence in study.bounds[0].breakdowns[0].assumptions:
            console.print(f"- {sentence}", style="dim")
    say(f"results: {out / 'theory.json'}\nreport:  {report}", err=as_json)


def _settings(seeds: int | None, quick: bool) -> StudySettings:
    if quick:
        return StudySettings.quick() if seeds is None else StudySettings.quick(seeds)
    return StudySettings() if seeds is None else StudySettings(seeds=seeds, training_seeds=min(seeds, 3))


def _check_folder(out: Path) -> None:
    """Raise before the work where the results cannot be written."""
    if out.exists() and not out.is_dir():
        raise SettingError(f"--out {out}: that is not a folder. Give the name of one; it is made if need be.")
    parent = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise SettingError(f"--out {out}: {parent} cannot be written to. Choose another folder.")
