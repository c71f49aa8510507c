"""``toporo reproduce``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from toporo.cli.options import Flags, choice, completing, either, in_help, option, takes_flags
from toporo.cli.running import RunProgress, interruptible, register
from toporo.cli.settings import parse_settings
from toporo.cli.terminal import say
from toporo.paper.base import BENCHMARKS, VisionChoices
from toporo.paper.report import write_report
from toporo.paper.results import Results
from toporo.paper.runner import reproduce as run
from toporo.paper.tables import methods_text, print_results

_RUNS, _DATA, _OUTPUT, _IMAGES = "Runs", "Data", "Output", "Benchmarks on images"


def _list_methods(wanted: bool) -> None:
    if wanted:
        say(methods_text())
        raise typer.Exit


@register("reproduce")
@takes_flags()
def reproduce(
    benchmark: Annotated[
        str,
        typer.Argument(
            metavar="BENCHMARK",
            help=in_help(
                "dg15, dg60 or tpt48; on images pacs, vlcs, terra, office_home or sen1floods11; see toporo data list.",
                BENCHMARKS,
            ),
            autocompletion=completing(BENCHMARKS),
        ),
    ],
    protocol: Annotated[
        str,
        choice(
            "fair, the same for all methods; for dg15 and dg60 paper too, as the authors ran them.",
            _RUNS,
            ("fair", "paper"),
            checked=False,
        ),
    ] = "fair",
    seeds: Annotated[int, option("How many seeds: 0, 1, …", _RUNS, min=1)] = 3,
    methods: Annotated[
        str | None,
        option(
            "Comma-separated names, e.g. erm,tro-physical; see --list-methods.",
            _RUNS,
            show_default="those of the table",
        ),
    ] = None,
    variant: Annotated[
        str | None,
        option(
            "Comma-separated variants, each with a table: on images test domains or events, such as photo,sketch; for "
            "tpt48 east-west or north-south, / and season, sliding (in training) or all-sliding (in training and "
            "test), such as 'east-west/season' or '*/season'.",
            _RUNS,
            show_default="all of them",
        ),
    ] = None,
    search: Annotated[
        bool,
        option(
            "Try the paper's grid of settings instead, and show what each rule for choosing would get.",
            _RUNS,
            "--search",
            metavar="",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        option(
            "Folder for results. Runs that it holds with the same settings and data are not repeated.",
            _OUTPUT,
            "--out",
            "-o",
            show_default="runs/BENCHMARK; for another protocol runs/BENCHMARK-PROTOCOL; for a search -search after it",
        ),
    ] = None,
    data: Annotated[
        Path | None, option("Folder with the published data.", _DATA, show_default="$TOPORO_DATA, else generated data")
    ] = None,
    source: Annotated[
        str, choice("auto or generated (never look for files).", _DATA, ("auto", "generated"), checked=False)
    ] = "auto",
    settings: Annotated[
        list[str] | None,
        option(
            f"A setting, as often as needed: {either(each.name for each in fields(VisionChoices))}; see "
            "docs/images.md.",
            _IMAGES,
            "--set",
            metavar="NAME=VALUE",
            show_default="as the protocol says",
        ),
    ] = None,
    jobs: Annotated[
        int, option("Runs at a time; 0 is one per core, on a GPU one.", _RUNS, min=0, show_default="0; on images 1")
    ] = 0,
    show: Annotated[
        Path | None, option("Run nothing: print the tables of this results.json.", _OUTPUT, metavar="FILE")
    ] = None,
    as_markdown: Annotated[bool, option("Print the table in Markdown.", _OUTPUT, "--markdown", metavar="")] = False,
    list_methods: Annotated[  # noqa: ARG001  # its callback does the work
        bool,
        option(
            "List the methods and exit.", _OUTPUT, "--list-methods", callback=_list_methods, is_eager=True, metavar=""
        ),
    ] = False,
    *,
    flags: Flags,
) -> None:
    """Run one of the paper's tables: every method, honest controls, the paper's figures beside.

    Writes results.json and report.html (one file, opens offline). Interrupt
    it at any time: the same command goes on from where it was and gives the
    same figures, also with another number of jobs. Commands at once on one
    folder share the work.

    Example: toporo reproduce dg15 --methods erm,tro-physical --seeds 1
    """
    if flags.json and as_markdown:
        raise typer.BadParameter("--json and --markdown exclude each other.")
    style = "json" if flags.json else "markdown" if as_markdown else "terminal"
    if show is not None:
        print_results(Results.read(show, benchmark), style)
        return
    usual = benchmark if protocol == "fair" else f"{benchmark}-{protocol}"
    folder = out or Path("runs") / (f"{usual}-search" if search else usual)
    if search and settings:
        raise typer.BadParameter("--search is for dg15, dg60 and tpt48: leave out what is for images.")
    vision = VisionChoices(**parse_settings(settings, VisionChoices)) if settings else None
    kept = "what is done is kept, and the same command goes on from here"
    with interruptible(kept), RunProgress(benchmark, quiet=flags.silent) as progress:
        results = run(
            benchmark,
            folder,
            protocol=protocol,
            seeds=seeds,
            methods=None if methods is None else methods.split(","),
            variant=variant,
            search=search,
            data=data,
            source=source,
            workers=jobs or (1 if BENCHMARKS[benchmark].networks else None),
            progress=progress.report,
            vision=vision,
        )
    written = [f"results: {folder / 'results.json'}"]
    if not search:
        written.append(f"report:  {write_report(results, folder)}")
    print_results(results, style)
    say("\n".join(written), err=flags.json or as_markdown)
