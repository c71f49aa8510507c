"""docs/errors.md, run from top to bottom: every command ends as the page says, and leaves nothing behind."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.documents import DOCS, code, text_of

PAGE = text_of(DOCS / "errors.md")
MISTAKE = re.compile(r"^\*\*([^*\n]+)\*\* \(exit code (\d)\)\n\n```console\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def said(text: str) -> str:
    """Words in a row, without colours; of a mistyped command only the sentence in the frame."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    framed = re.findall(r"^│ (.*) │$", text, flags=re.MULTILINE)
    return " ".join(" ".join(["Error:", *framed] if framed else [text]).split())


def content(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_every_mistake_on_the_page_ends_as_it_says(
    toporo: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "1000")  # a frame as wide as its sentence
    monkeypatch.setenv("COLUMNS", "1000")
    (setup,) = code(PAGE, "python")
    exec(setup, {})
    mistakes = MISTAKE.findall(PAGE)
    assert len(mistakes) == PAGE.count("```console") >= 20
    for title, ends_with, block in mistakes:
        _, *steps = re.split(r"^\$ ", block, flags=re.MULTILINE)
        for step in steps:
            command, expected = step.split("\n", 1)
            if not command.startswith("toporo "):
                shown = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
                assert shown.stdout == expected, title
                continue
            before = content(tmp_path)
            done = toporo(*shlex.split(command)[1:])
            assert said(done.err) == said(expected), title
            assert (done.code, done.out) == (int(ends_with), ""), title
            assert content(tmp_path) == before, title
