"""Times and pages, the same for all benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toporo.files import write_text

RESULTS = Path(__file__).parent / "results"


def median_seconds(
    *works: Callable[[], object], rounds: int = 9, warm_up: int = 1, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Return median times of calls that take turns, so that what else the machine does hits them alike."""
    times = []
    for number in range(warm_up + rounds):
        stamps = [clock()]
        for work in works:
            work()
            stamps.append(clock())
        if number >= warm_up:
            times.append(np.diff(stamps))
    return [statistics.median(column) for column in zip(*times, strict=True)]


def timed(work: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Return the median CPU seconds of a call and its result; a first call, if repeated, does not count."""
    times, result = [], None
    for _ in range(repeats + (repeats > 1)):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
    return statistics.median(times[1:] or times), result


def in_turn(rounds: int, step_ms: Callable[[int], float]) -> tuple[tuple[list[float], list[float]], dict[str, float]]:
    """Return times of two, in turn and in the other order every second round; median and quartiles of their ratios."""
    times: tuple[list[float], list[float]] = [], []
    for number in range(rounds):
        for place in (0, 1) if number % 2 else (1, 0):
            times[place].append(step_ms(place))
    ratios = [b / a for a, b in zip(*times, strict=True)]
    return times, dict(zip(("low", "over", "high"), statistics.quantiles(ratios, n=4, method="inclusive"), strict=True))


def in_process(code: str, *arguments: object) -> dict[str, Any]:
    """Run Python code in a process of its own, so that the peak of its memory is its own, and return what it prints."""
    paths = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env=environment | {"PYTHONPATH": paths}, check=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def markdown(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines] + [""]


def write_page(path: Path, title: str, made: str, lines: Sequence[str]) -> None:
    """Print a page and write it to a file."""
    text = "\n".join([f"# {title}", "", made, "", *lines, ""]).rstrip("\n") + "\n"
    print(text, flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


#: Tables that settings were chosen with, and those kept for judging.
DEVELOPMENT_TABLES = ("gapminder", "covid_italy", "homicide", "state_income")
JUDGED_TABLES = ("california", "king_county", "airbnb_nyc", "elections")


def run_suite(name: str, title: str, suite: Callable[[Path, tuple[str, ...]], list[str]], about: str) -> None:
    """Run a suite on the tables of a folder, those to develop on or those to judge by, and write its page."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("folder", type=Path, help="holds NAME.csv, NAME.graph.csv and NAME.json (see real_tables.py)")
    parser.add_argument("--judge", action="store_true", help="the half to look at last")
    given = parser.parse_args()
    end, flag = ("-judged", " --judge") if given.judge else ("", "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = suite(given.folder, JUDGED_TABLES if given.judge else DEVELOPMENT_TABLES)
    made = f"Made by `python benchmarks/{name}.py TABLES{flag}`."
    write_page(RESULTS / f"{name}{end}.md", title, made, lines)
