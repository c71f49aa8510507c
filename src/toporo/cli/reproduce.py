"""``toporo reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from toporo.cli import options as opt
from toporo.cli.running import register, working
from toporo.cli.settings import settings_option
from toporo.cli.terminal import say, say_files
from toporo.paper.base import BENCHMARKS, VisionChoices
from toporo.paper.report import write_report
from toporo.paper.results import Results
from toporo.paper.runner import reproduce as run
from toporo.paper.search import print_search, read_search, search_settings
from toporo.paper.tables import print_results
from toporo.progress import Progress

_PROTOCOL = "fair, the same for all methods; for dg15 and dg60 paper too, as the authors ran them."
_VARIANT = (
    "Comma-separated variants, each with a table, all unless given: on images test domains or events, such as "
    "photo,sketch; for tpt48 east-west or north-south, / and season, sliding (in training) or all-sliding (in training "
    "and test), such as 'east-west/season' or '*/season'."
)
_SEARCH = "Try the paper's grid of settings instead, and show what each rule for choosing would get; not on images."
_OUT = (
    "Folder for results, runs/BENCHMARK unless given. The table keeps other methods run there with the same settings."
)


@register("reproduce")
@opt.takes_options
def reproduce(
    benchmark: Annotated[str, typer.Argument(**opt.choice("", BENCHMARKS))],
    protocol: Annotated[str, opt.option(**opt.choice(_PROTOCOL, ("fair", "paper")))] = "fair",
    seeds: Annotated[int, opt.option("How many seeds: 0, 1, …", min=1)] = 3,
    methods: Annotated[str | None, opt.option("Names, e.g. erm,tro-physical; those of the table unless given.")] = None,
    variant: Annotated[str | None, opt.option(_VARIANT)] = None,
    search: Annotated[bool, opt.option(_SEARCH)] = False,
    out: Annotated[Path | None, opt.option(_OUT, "-o")] = None,
    data: Annotated[Path | None, opt.option("Folder with the published data, $TOPORO_DATA unless given.")] = None,
    source: Annotated[str, opt.option(**opt.choice("Data.", ("auto", "generated")))] = "auto",
    settings: Annotated[list[Any] | None, settings_option(VisionChoices)] = None,
    jobs: Annotated[int, opt.option("Runs at a time; 0 is one per core, on images one.", min=0)] = 0,
    show: Annotated[Path | None, opt.option("Run nothing: print this results.json, or search.json.")] = None,
    markdown: Annotated[bool, opt.option("Print the table in Markdown.")] = False,
    *,
    flags: opt.Flags,
) -> None:
    """Run one of the paper's tables: methods, controls, and the paper's figures beside them.

    Writes results.json and report.html (one file, opens offline). Interrupt
    it at any time: the same command goes on from where it was and gives the
    same figures, also with another number of jobs. Commands at once on one
    folder share the work. Settings are for images; see docs/images.md.

    Example: toporo reproduce dg15 --methods erm,tro-physical --seeds 1
    """
    if (flags.json and markdown) or (search and settings):
        raise typer.BadParameter("--json excludes --markdown, and --search excludes --set: leave one out.")
    style = "json" if flags.json else "markdown" if markdown else "terminal"
    if show is not None:
        print_search(read_search(show, benchmark), style) if search else print_results(
            Results.read(show, benchmark), style
        )
        return
    folder = out or Path("runs") / f"{benchmark}{'' if protocol == 'fair' else f'-{protocol}'}{'-search' * search}"
    asked: dict[str, Any] = {"protocol": protocol, "seeds": seeds, "data": data, "source": source, "variant": variant}
    asked |= {"methods": methods.split(",") if methods is not None else None, "say": _remark}
    kept = "what is done is kept, and the same command goes on from here"
    with working(benchmark, quiet=flags.silent, outcome=kept), Progress(benchmark, 0, False) as shown:

        def report(done: int, total: int, last: Any) -> None:
            shown.total, shown.done = total, max(0, done - 1)
            shown.step(f"{benchmark}: {done:,}/{total:,} runs", steps=min(done, 1))
            if not flags.silent:
                say(f"{shown.title} ({last or (f'{done} found from before' if done else 'starting')})", err=True)

        if search:
            searched = search_settings(benchmark, folder, workers=jobs or None, progress=report, **asked)
            written = [folder / "search.json"]
        else:
            vision = VisionChoices(**dict(settings)) if settings else None
            workers = jobs or (1 if BENCHMARKS[benchmark].networks else None)
            results = run(benchmark, folder, workers=workers, vision=vision, progress=report, **asked)
            written = [folder / "results.json", write_report(results, folder)]
    if search:
        print_search(searched, style)
    else:
        for name, why in results.about.get("skipped", {}).items():
            _remark(f"not run: {name}. {why}")
        print_results(results, style)
    say_files({path.stem: path for path in written}, err=style != "terminal")


def _remark(text: str) -> None:
    say(f"toporo: {text}", err=True)
