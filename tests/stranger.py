"""A package of somebody else's, and one process that has it installed and runs many commands: a start takes long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Runs the command lines that it reads, in the folders that come with them, and says how each ended and what it wrote.
PROGRAM = """
import io, json, os, sys
from toporo import cli

given, answers = sys.stdin, sys.stdout
for line in given:
    folder, *words = json.loads(line)
    os.chdir(folder)
    code, sys.argv = 0, ["toporo", *words]
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    try:
        cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    written = []
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        written.append(stream.buffer.getvalue().decode())
    print(json.dumps([code, *written]), file=answers, flush=True)
"""
Run = Callable[..., str]


def install(place: Path, modules: dict[str, str], points: dict[str, dict[str, str]]) -> dict[str, str]:
    """Write modules and entry points by their groups; the environment in which Python finds the package."""
    about = place / "stranger-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    for name, source in modules.items():
        (place / f"{name}.py").write_text(source)
    lines = [line for group, names in points.items() for line in (f"[{group}]", *map(" = ".join, names.items()))]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), *(path for path in sys.path if path)])}


@contextmanager
def commands(environment: dict[str, str]) -> Iterator[Run]:
    """``run(folder, words…)``: what ``toporo words…`` prints there, or what it complains of where it should fail."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment | {"COLUMNS": "200"}, text=True, encoding="utf-8",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        given: Any = process.stdin
        answers: Any = process.stdout

        def run(folder: Path, *words: object, fails: bool = False) -> str:
            print(json.dumps([str(folder), *map(str, words)]), file=given, flush=True)
            code, out, err = json.loads(answers.readline())
            assert (code != 0) == fails, err
            return err if fails else out

        yield run
        given.close()
