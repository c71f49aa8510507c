"""Golden parts of the command line: what the commands print with ``--json``."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from toporo import cli

from .data import RIVER_EDGES, river
from .parts import part, patched

#: Keys of the output that say when, where and by which release it was made.
NOT_COMPARED = {"toporo", "version", "seconds", "folder", "source", "path", "out", "bytes"}


def run_command(words: list[str], folder: Path) -> str:
    """Run ``toporo`` in this process and in a folder, and return what it prints."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        with patched(sys, argv=["toporo", *words]), contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                cli.main()
            except SystemExit as end:
                if end.code not in (0, None):
                    raise RuntimeError(f"toporo {' '.join(words)} ended with {end.code}") from end
    finally:
        os.chdir(before)
    printed.flush()
    return printed.buffer.getvalue().decode("utf-8")  # type: ignore[attr-defined]  # it is a BytesIO


def write_csv(path: Path, table: dict[str, list[Any]]) -> None:
    """Write columns as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


def without(value: Any) -> Any:
    """Leave out what changes from machine to machine."""
    if isinstance(value, dict):
        return {key: without(entry) for key, entry in value.items() if key not in NOT_COMPARED}
    return [without(entry) for entry in value] if isinstance(value, list) else value


def run_commands(folder: Path, target: str, table: dict[str, list[Any]], settings: list[str]) -> dict[str, Any]:
    """Each command that prints JSON, on one table."""
    write_csv(folder / "table.csv", table)
    write_csv(folder / "new.csv", {name: column[-12:] for name, column in table.items()})
    write_csv(folder / "graph.csv", {"a": [a for a, _ in RIVER_EDGES], "b": [b for _, b in RIVER_EDGES]})
    roles = ["--target", target, "--group", "station", "--graph", "graph.csv", "--test-groups", "lock,mouth"]
    lines = {
        "doctor": ["doctor", "table.csv", *roles],
        "fit": ["fit", "table.csv", *roles, *settings, "--out", "model"],
        "explain": ["explain", "model"],
        "evaluate": ["evaluate", "model", "table.csv", "--unseen"],
        "evaluate-all": ["evaluate", "model", "table.csv"],
        "topology": ["topology", "table.csv", "--group", "station", "--target", target],
    }
    printed = {name: without(json.loads(run_command([*words, "--json"], folder))) for name, words in lines.items()}
    lines = run_command(["predict", "model", "new.csv", "--interval", "0.9", "--reach", "--json"], folder).splitlines()
    return printed | {"predict": [json.loads(line) for line in lines]}


@part("commands-linear")
def commands_linear(folder: Path) -> Any:
    """All commands on a regression with a linear model."""
    return run_commands(folder, "level", river(), ["--model", "linear"])


@part("commands-auto", tolerance=1e-6, reason="includes kriged models: L-BFGS stops where rounding decides")
def commands_auto(folder: Path) -> Any:
    """All commands on classes with the default model."""
    return run_commands(folder, "flood", river(classes=True), [])


@part("compare", tolerance=1e-6, reason="includes kriged models: L-BFGS stops where rounding decides")
def compare(folder: Path) -> Any:
    """The comparison of models, in its fast form."""
    write_csv(folder / "table.csv", river(rows=30))
    write_csv(folder / "graph.csv", {"a": [a for a, _ in RIVER_EDGES], "b": [b for _, b in RIVER_EDGES]})
    words = ["compare", "table.csv", "--target", "level", "--group", "station", "--graph", "graph.csv", "--fast"]
    return without(json.loads(run_command([*words, "--json"], folder)))
