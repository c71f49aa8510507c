"""Pages of the documentation, for tests: their text, the code on them, and the commands in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCKS = re.compile(r"^```([^\n`]*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def code(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return [source for name, source in BLOCKS.findall(text) if name == language]


def recipes(title: str) -> list[str]:
    """Return the Python blocks of a section of CONTRIBUTING.md, in order."""
    section = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", text_of(ROOT / "CONTRIBUTING.md"), re.S | re.M)
    assert section, f"CONTRIBUTING.md has no section {title!r}"
    return code(section[1], "python")


def commands(source: str) -> list[list[str]]:
    """Return the words of every toporo command in a block, without comments."""
    lines = source.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("toporo ")]


def run_commands(toporo: Callable[..., Any], lines: Iterable[list[str]], folder: Path) -> str:
    """Run commands, write what one prints to the file that it names after ``>``, and return what all print."""
    printed = []
    for words in lines:
        end = words.index(">") if ">" in words else len(words)
        done = toporo(*words[1:end])
        assert done.code == 0, f"{shlex.join(words)}\n{done.err}"
        printed.append(done.out)
        if end < len(words):
            (folder / words[end + 1]).write_text(done.out, encoding="utf-8")
    return "".join(printed)
