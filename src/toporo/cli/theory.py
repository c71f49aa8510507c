"""``toporo theory``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from toporo.cli import options as opt
from toporo.cli.outputs import check_folder
from toporo.cli.running import register, working
from toporo.cli.terminal import say_data, say_files
from toporo.paper.theory.page import tables, write_theory_report
from toporo.paper.theory.study import StudySettings, run_study
from toporo.progress import make_console


@register("theory")
@opt.takes_options
def theory(
    out: Annotated[Path, opt.option("Folder for results; those of an earlier run are replaced.", "-o")] = Path(
        "runs/theory"
    ),
    seeds: Annotated[
        int | None, opt.option("10, or 5 with --quick; networks are trained with at most 3.", min=1)
    ] = None,
    quick: Annotated[bool, opt.option("Fewer steps, seeds, epochs and groups.")] = False,
    *,
    flags: opt.Flags,
) -> None:
    """Check the paper's three theorems on DG-15.

    Theorem 1: the duality gap of projected SGD and its bound. Theorem 2: the
    distance of a network in training from a stationary point, and both sides of
    our bound on a problem whose constants are known. Theorem 3: a bound on the
    risk in unseen groups, term by term. Writes theory.json, figures/*.svg and
    report.html (one file, opens offline).

    Example: toporo theory --quick --out runs/theory
    """
    check_folder(out)
    settings = StudySettings.quick() if quick else StudySettings()
    if seeds is not None:
        settings = replace(settings, seeds=seeds, training_seeds=min(seeds, settings.training_seeds))
    with working("studying", quiet=flags.silent):
        study = run_study(settings)
        report = write_theory_report(study, out)
    if flags.json:
        say_data(study.to_json())
    else:
        console = make_console(width=None if sys.stdout.isatty() else 150)
        for table in tables(study):
            console.print(table.to_rich())
    say_files({"results": out / "theory.json", "report": report}, err=flags.json)
