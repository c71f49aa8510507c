"""``toporo theory``."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from toporo.cli.options import Flags, takes_flags
from toporo.cli.running import register, working
from toporo.cli.terminal import say, say_data
from toporo.errors import SettingError
from toporo.paper.theory.page import tables, write_theory_report
from toporo.paper.theory.study import StudySettings, run_study
from toporo.progress import make_console


@register("theory")
@takes_flags()
def theory(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for results; those of an earlier run are replaced.")
    ] = Path("runs/theory"),
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Seeds of Theorem 1 and of Theorem 2's bound; networks are trained with at most 3.",
            show_default="10, or 5 with --quick",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer steps, seeds, epochs and groups.", metavar="")] = False,
    *,
    flags: Flags,
) -> None:
    """Check the paper's three theorems on DG-15.

    Theorem 1: the duality gap of projected SGD and its bound. Theorem 2: the
    distance of a network in training from a stationary point, and both sides of
    our bound on a problem whose constants are known. Theorem 3: a bound on the
    risk in unseen groups, term by term. Writes theory.json, figures/*.svg and
    report.html (one file, opens offline).

    Example: toporo theory --quick --out runs/theory
    """
    _check_folder(out)
    with working("studying", "no file was left half-written", quiet=flags.silent):
        study = run_study(_settings(seeds, quick))
        report = write_theory_report(study, out)
    if flags.json:
        say_data(study.to_json())
    else:
        console = make_console(width=None if sys.stdout.isatty() else 150)
        for table in tables(study):
            console.print(table.to_rich())
    say(f"results: {out / 'theory.json'}\nreport:  {report}", err=flags.json)


def _settings(seeds: int | None, quick: bool) -> StudySettings:
    """Return the settings of the study, with as many seeds as were asked for."""
    settings = StudySettings.quick() if quick else StudySettings()
    if seeds is None:
        return settings
    return replace(settings, seeds=seeds, training_seeds=min(seeds, settings.training_seeds))


def _check_folder(out: Path) -> None:
    """Raise an error before the work if the results cannot be written."""
    if out.exists() and not out.is_dir():
        raise SettingError(f"--out {out}: that is not a folder. Give the name of one; it need not exist.")
    parent = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise SettingError(f"--out {out}: {parent} cannot be written to. Choose another folder.")
