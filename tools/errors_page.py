"""Write ``docs/errors.md``: what goes wrong at the command line, and the message a user then sees.

    python tools/errors_page.py            # run every case and write the page
    python tools/errors_page.py --check    # run every case; fail if the page says something else

The cases are in ``error_cases.py``. Each runs in this process as the ``toporo`` command does, in a folder of its own
with the files it needs, and counts only if it ends as a user's mistake should: with the expected exit code, nothing on
standard output, a message that names what was found, no traceback, no path of this machine, and the folder as it was.
One that does not is printed and keeps the page from being written. Whatever the machine, it has no GPU here, and of
PyTorch's version the page says nothing: it reads the same everywhere.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
from error_cases import MISTYPED, Case, Files, all_cases

from toporo import cli
from toporo.files import write_text

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
#: Characters a line of a message is folded to on the page.
WIDTH = 100

INTRODUCTION = """\
<!-- Written by tools/errors_page.py, which runs every case. Do not edit: run `python tools/errors_page.py`. -->
# What can go wrong, and what toporo then says

{count} mistakes by command, the likely ones first, each with the message that the command really printed. If you come
with a message of your own, search this page for a few of its words (not your names).

A message says what was found, what was expected and what to do next. Messages go to standard error and results to
standard output, so a pipe never carries the one for the other. The exit code says what kind of end it was:

| exit code | meaning |
|---|---|
| 0 | All went well. A `toporo: warning: …` says what is legal but probably not what was meant. |
| 1 | Something about the files, columns, groups or settings is wrong. |
| 2 | The command was mistyped. The message stands in a frame below a line of usage; here only what is in the frame. |
| 130 | You interrupted it (Ctrl-C). Where the shell has that ignored, as for `toporo … &` in a script, it goes on. |
| 143 | It was terminated (SIGTERM, as by `kill` or a batch system), and tidied up as after Ctrl-C. |

Nothing is half-written: after an error every folder holds what it held before, and a model or file that was to be
replaced is still the old one. (Only `toporo predict` without `--out` prints a long table as it goes: rows before a bad
one may have come out already, and the exit code tells.) In Python the messages of exit code 1 come as exceptions, all
of them kinds of `toporo.TopoRoError`. What is merely risky about a table is no error: `toporo doctor` lists it.

In the examples `sales.csv` and `new.csv` hold sales in six states, `borders.csv` says which of the states touch, and
`model` was fitted to the sales (`kriged` with `--model kriged`, `mlp` with `--model mlp`); `data` holds a few tiny
pictures in the layout of PACS, or radar chips in that of Sen1Floods11. Long lines are folded.
"""


@dataclass(frozen=True)
class Seen:
    """What a command left behind."""

    code: int
    out: str
    err: str


# ---------------------------------------------------------------- running a case


def typed(command: str, folder: Path) -> Seen:
    """Run a command in a folder as a shell would; ``< FILE`` at its end is standard input."""
    words, _, source = command.partition(" < ")
    given = (folder / source).read_bytes() if source else b""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        chdir(folder),
        patch.dict(os.environ, {"COLUMNS": "1000", "TERMINAL_WIDTH": "1000"}),  # a frame as wide as its sentence
        patch.object(torch.cuda, "is_available", lambda: False),
        patch.object(torch.version, "cuda", None),
        patch.object(sys, "argv", shlex.split(words)),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given))),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Seen(code, out.getvalue(), err.getvalue())


def run(case: Case) -> str:
    """The message that a case ends with. Any end but an orderly one is a ``ValueError`` that says what was seen."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        for name, data in case.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        before = _content(folder)
        try:
            seen = typed(case.command, folder)
        except Exception as error:
            raise ValueError(f"{type(error).__name__} came through: {error}") from error
        after = _content(folder)
    message = plain(seen.err)
    touched = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    wrong = {
        f"the exit code is {seen.code}, expected {case.code}": seen.code != case.code,
        f"standard output holds {seen.out[:80]!r}": bool(seen.out),
        "there is a traceback": "Traceback" in seen.err,
        "a path of this machine is in it": place in seen.err or ".py" in seen.err,
        f"it does not name {case.names!r}": case.names not in message,
        f"files were made or changed: {touched}": bool(touched),
    }
    if any(wrong.values()):
        problems = "; ".join(problem for problem, is_so in wrong.items() if is_so)
        raise ValueError(f"{problems}. Standard error:\n{seen.err.strip()}")
    return message


def plain(text: str) -> str:
    """A message without colours and PyTorch's version; of a mistyped command only the sentence in the frame."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).replace(f"({torch.__version__})", "(2.x)")
    framed = re.findall(r"^│ (.*) │$", text, flags=re.MULTILINE)
    return f"Error: {' '.join(line.strip() for line in framed)}" if framed else text.strip()


def run_all(cases: Sequence[Case]) -> dict[Case, str]:
    """Each case and its message; those that do not end as they should are all told of at once."""
    messages, failed = {}, []
    for case in cases:
        try:
            messages[case] = run(case)
        except ValueError as error:
            failed.append(f"{case.title}\n$ {case.command}\n{error}")
    if failed:
        raise SystemExit("\n\n".join([*failed, f"{len(failed)} of {len(cases)} cases did not end as they should."]))
    return messages


def _content(folder: Path) -> Files:
    """Every file below a folder, hidden ones too; a folder is there with no bytes."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {name: path.read_bytes() if path.is_file() else b"" for name, path in paths.items()}


# ---------------------------------------------------------------- the page


def page(messages: Mapping[Case, str]) -> str:
    """The whole page."""
    commands: dict[str, list[str]] = {}
    for case, message in messages.items():
        commands.setdefault(case.command.split()[1], []).append(entry(case, message))
    jump = ", ".join(f"[{name}](#toporo-{name}) ({len(entries)})" for name, entries in commands.items())
    parts = [INTRODUCTION.format(count=len(messages)), f"Jump to {jump}.\n"]
    for name, entries in commands.items():
        parts += [f"## toporo {name}\n", *entries]
    return "\n".join(parts)


def entry(case: Case, message: str) -> str:
    """One case: its title, then a terminal with the command and the message."""
    lines = []
    if case.look:
        _, _, count, name = case.look.split()
        lines += [f"$ {case.look}", *case.files[name].decode().splitlines()[: int(count)]]
    lines += [f"$ {case.command}", *(_folded(line) for line in message.splitlines())]
    kind = "exit code 2, mistyped" if case.code == MISTYPED else f"exit code {case.code}"
    return "\n".join([f"**{case.title}** ({kind})\n", "```console", *lines, "```\n"])


def _folded(line: str) -> str:
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Read the arguments; write the page, or compare it."""
    parser = argparse.ArgumentParser(description="Write docs/errors.md by running every case.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    given = parser.parse_args()
    text = page(run_all(all_cases()))
    if not given.check:
        PAGE.parent.mkdir(exist_ok=True)
        write_text(PAGE, text)
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
        raise SystemExit(f"{PAGE.name} is not what the cases print now: run python tools/errors_page.py.")
    sys.stdout.write(f"{len(all_cases())} cases, {'as they stand in' if given.check else 'written to'} {PAGE.name}\n")


if __name__ == "__main__":
    main()
