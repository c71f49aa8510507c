"""The command line as a tree that tests walk: which command a line types, and which options it has; and no pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def find_command(words: Sequence[str]) -> tuple[Any, list[str]]:
    """The command that these words (without ``toporo``) begin with, and the words that are left for it."""
    import typer.main

    from toporo.cli import app

    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "resolve_command"):
        _, command, rest = command.resolve_command(command.context_class(command), rest)
    return command, rest


def check_line(words: Sequence[str]) -> None:
    """End with a usage error where a command or an option is unknown or lacking; run nothing."""
    command, rest = find_command(words)
    assert command.make_context("toporo", rest).params


def options_of(*names: str) -> set[str]:
    """All options of a command."""
    return {option for parameter in find_command(names)[0].params for option in parameter.opts}


def all_options() -> set[str]:
    """Of every command that has no commands of its own, and of the command line itself."""
    import typer.main

    from toporo.cli import app

    group: Any = typer.main.get_command(app)
    context = group.context_class(group)
    commands = [group.resolve_command(context, [name])[1] for name in group.list_commands(context)]
    return {option for each in (group, *commands) for parameter in each.params for option in parameter.opts}


def leaves() -> list[tuple[str, ...]]:
    """The words of every command that has no commands of its own."""
    import typer.main

    from toporo.cli import app

    group: Any = typer.main.get_command(app)
    context = group.context_class(group)
    pending = [((name,), group.resolve_command(context, [name])[1]) for name in group.list_commands(context)]
    words = []
    while pending:
        names, command = pending.pop(0)
        inner = getattr(command, "commands", {})
        pending += [((*names, name), each) for name, each in inner.items()]
        words += [] if inner else [names]
    return words


def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``toporo reproduce`` draw no page, where another run has drawn it."""
    monkeypatch.setattr("toporo.cli.reproduce.write_report", lambda outcome, out: out / "report.html")
