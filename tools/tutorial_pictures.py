"""Run the tutorial, and put what it prints and draws into ``docs/tutorial.md`` and ``docs/images/tutorial-*.svg``.

    python tools/tutorial_pictures.py            # run every step; write the outputs and the pictures
    python tools/tutorial_pictures.py --check    # run every step; fail if the page says something else

The steps are the page's own: a block after ``<!-- run: NAME -->`` is run in a scratch folder, in the order of the page,
and the block after ``<!-- output: NAME -->`` holds what it printed. Slices choose lines: ``[:8] [-3:]`` are the first
eight and the last three, with an ellipsis between. A ``python`` block is run as Python; in an ``sh`` block a line is a
command, which may go on after a backslash and end in ``> FILE``.

The steps need NOAA's temperatures (``toporo data get tpt48``). Without them nothing is written.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import matplotlib as mpl

from toporo import cli
from toporo.errors import TopoRoError
from toporo.files import write_text
from toporo.paper.base import export

mpl.use("Agg")

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
IMAGES = PAGE.parent / "images"
BLOCK = re.compile(r"<!-- (run|output): (\w+)((?: \[-?\d*:-?\d*\])*) -->\n```(\w+)\n(.*?)```\n", flags=re.DOTALL)
#: Pictures of the report, by the section they stand in.
SECTIONS = {"graph": "groups", "prior": "weights"}


@dataclass(frozen=True)
class Step:
    """A block of the page that is run."""

    name: str
    language: str
    source: str


def steps(page: str) -> list[Step]:
    """The blocks to run, in the order of the page."""
    return [Step(m[2], m[4], m[5]) for m in BLOCK.finditer(page) if m[1] == "run"]


def commands(source: str) -> list[list[str]]:
    """The words of every command of a shell block, without comments."""
    lines = source.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_steps(page: str, folder: Path) -> dict[str, str]:
    """Run a page's steps in a folder; what each printed, standard output and error together."""
    printed = {}
    with chdir(folder):
        for step in steps(page):
            stream = io.StringIO()
            with redirect_stdout(stream), redirect_stderr(stream):
                if step.language == "python":
                    exec(step.source, {"__name__": step.name})  # the page's own code
                else:
                    for words in commands(step.source):
                        _run(words, stream)
            printed[step.name] = stream.getvalue()
    return printed


def _run(words: list[str], stream: io.StringIO) -> None:
    """One command: toporo in this process, others as processes."""
    goes_to = Path(words[words.index(">") + 1]) if ">" in words else None
    words = words[: words.index(">")] if ">" in words else words
    if words[0] != "toporo":
        stream.write(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        return
    out = stream if goes_to is None else io.StringIO()
    try:
        with patch.object(sys, "argv", words), redirect_stdout(out):
            cli.main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{shlex.join(words)}\nended with {end.code}:\n{stream.getvalue()}") from None
    if goes_to is not None:
        goes_to.write_text(out.getvalue(), encoding="utf-8")


def with_outputs(page: str, printed: Mapping[str, str]) -> str:
    """The page with every output block as printed."""

    def renewed(found: re.Match[str]) -> str:
        if found[1] == "run":
            return found[0]
        lines = [line.rstrip() for line in printed[found[2]].splitlines()]
        head = found[0].split("\n", 2)[:2]
        return "\n".join([*head, *_chosen(lines, found[3]), "```", ""])

    return BLOCK.sub(renewed, page)


def same(page: str, other: str) -> bool:
    """Whether two pages say the same; digits beyond the eighth are the machine's."""
    return _rounded(page) == _rounded(other)


def _rounded(page: str) -> str:
    return re.sub(r"\d+\.\d{9,}", lambda number: f"{float(number[0]):.8g}", page)


def _chosen(lines: list[str], slices: str) -> list[str]:
    """The lines of all slices, with an ellipsis where some are left out; all lines without slices."""
    places = set(range(len(lines)))
    if slices:
        places = set()
        for first, last in re.findall(r"\[(-?\d*):(-?\d*)\]", slices):
            places |= set(range(len(lines))[int(first) if first else None : int(last) if last else None])
    shown: list[str] = []
    for place in range(len(lines)):
        if place in places:
            shown.append(lines[place])
        elif place == 0 or place - 1 in places:
            shown.append("…")
    return shown


# ---------------------------------------------------------------- pictures


def pictures(folder: Path) -> dict[str, str]:
    """File name to picture, from what the steps left in their folder."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    found = {f"tutorial-{name}.svg": _on_white(_of_section(page, section)) for name, section in SECTIONS.items()}
    found["tutorial-distances.svg"] = (folder / "distances.svg").read_text(encoding="utf-8")
    found["tutorial-control.svg"] = _on_white(_control_figure(folder))
    return found


def _of_section(page: str, name: str) -> str:
    """The first picture of a section of the report."""
    section = re.search(rf'<section id="{name}">.*?</section>', page, flags=re.DOTALL)
    picture = section and re.search(r"<svg .*?</svg>", section[0], flags=re.DOTALL)
    if not picture:
        raise RuntimeError(f"the report has no picture in its section {name!r}")
    return picture[0] + "\n"


def _on_white(svg: str) -> str:
    """The picture with a white ground, so that it can be read on a dark page too."""
    head, rest = svg.split(">", 1)
    return f'{head}>\n<rect width="100%" height="100%" fill="white"/>{rest}'


def _control_figure(folder: Path) -> str:
    """Model and control by hop, and the difference in every state."""
    from matplotlib.figure import Figure

    from toporo.pages.svg import STYLE, to_svg
    from toporo.tables import load_model
    from toporo.topology.draw import OTHER_COLOR, TEST_COLOR, TRAIN_COLOR

    model, control = (
        load_model(folder / name).evaluate(folder / "temperatures.csv", unseen=True) for name in ("model", "control")
    )
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.25])
        for found, aside, looks in (
            (model, -0.09, {"color": TRAIN_COLOR, "marker": "o", "label": "model (TRO)"}),
            (control, 0.09, {"color": OTHER_COLOR, "marker": "D", "label": "control (ERM)"}),
        ):
            scores = [found.by_hop[hop][found.metric] for hop in found.by_hop]
            values = [score.value for score in scores]
            ends = [[s.value - s.low for s in scores], [s.high - s.value for s in scores]]
            left.errorbar([i + aside for i in range(len(scores))], values, yerr=ends, ls="", ms=5, **looks)
        left.set_xticks(range(len(model.by_hop)), list(model.by_hop))
        left.set_xlabel("hops to the nearest training state")
        left.set_ylabel("RMSE in °F (lower is better)")
        left.set_ylim(bottom=0)
        left.legend(loc="lower right", frameon=False)
        theirs = {score.group: score.metrics["rmse"].value for score in control.groups}
        gains = {score.group: theirs[score.group] - score.metrics["rmse"].value for score in model.groups}
        names = sorted(gains, key=lambda name: -gains[name])
        colors = [TRAIN_COLOR if gains[name] > 0 else TEST_COLOR for name in names]
        right.bar(range(len(names)), [gains[name] for name in names], color=colors, width=0.75)
        right.axhline(0, color="#374151", lw=0.8)
        right.set_xticks(range(len(names)), names, fontsize=7, rotation=90)
        right.set_ylabel("control's RMSE minus the model's, °F")
        right.text(0.98, 0.96, "above: the model is better", transform=right.transAxes, ha="right", va="top", size=8)
        right.text(0.02, 0.04, "below: the control is better", transform=right.transAxes, size=8)
        return to_svg("control", figure)


# ---------------------------------------------------------------- the command


def main() -> int:
    """Run the steps; write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page says something else")
    check = parser.parse_args().check
    try:
        export("tpt48")
    except TopoRoError as error:
        sys.stderr.write(f"The tutorial needs its data: {error}\n")
        return 1
    if os.environ.get("TOPORO_DATA"):  # the steps run elsewhere
        os.environ["TOPORO_DATA"] = str(Path(os.environ["TOPORO_DATA"]).resolve())
    page = PAGE.read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        renewed = with_outputs(page, run_steps(page, Path(folder)))
        drawn = pictures(Path(folder))
    if check:
        sys.stdout.write(f"{PAGE.name} {'is' if same(renewed, page) else 'is NOT'} what its steps print now\n")
        return int(not same(renewed, page))
    write_text(PAGE, renewed)
    for name, svg in drawn.items():
        write_text(IMAGES / name, svg)
    sys.stdout.write(f"{PAGE.name}: {len(steps(page))} steps run, {len(drawn)} pictures drawn\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
