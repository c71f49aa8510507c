"""Options that commands share: global flags, expert settings, short forms, and how many options there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import typer

from tests.commands import find_command, leaves
from toporo.cli.settings import setting, setting_parser

pytestmark = pytest.mark.usefixtures("no_data")
Run = Callable[..., Any]
GLOBAL = {"--quiet", "--verbose", "--json", "--memory-limit", "--help"}


def test_commands_have_at_most_110_options() -> None:
    parameters = [parameter for words in leaves() for parameter in find_command(words)[0].params]
    options = [each for each in parameters if each.opts[0].startswith("--") and GLOBAL.isdisjoint(each.opts)]
    assert len(options) <= 110


def test_global_flags_may_stand_before_or_after_the_command(toporo: Run) -> None:
    after = toporo("data", "list", "--json")
    assert after.code == 0, after.err
    assert toporo("--json", "data", "list").out == toporo("data", "list", "--json", "-q").out == after.out


def test_a_memory_limit_is_refused_where_nothing_keeps_to_it(toporo: Run) -> None:
    done = toporo("--memory-limit", "2GiB", "data", "list")
    assert done.code == 2
    assert "toporo list keeps to no memory limit" in " ".join(done.err.split())


@dataclass(frozen=True)
class Settings:
    """One setting of every kind."""

    penalty: float = setting("auto", "a number, or auto", choices=("auto",), least=0)
    share: float = setting(0.5, "a share", least=0)
    rounds: int | None = setting(None, "a count", least=1)
    kind: str = setting("a", "a name", choices=("a", "b"))
    fast: bool = setting(False, "yes or no")
    note: str = setting("", "any text")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("penalty=auto", "auto"),
        ("penalty=inf", float("inf")),
        ("penalty=1", 1.0),
        ("share=1", 1.0),
        ("rounds=3", 3),
        ("kind=b", "b"),
        ("fast=true", True),
        ("note=1=2", "1=2"),
        ("note=7", "7"),
    ],
)
def test_settings_have_the_types_of_their_fields(text: str, value: object) -> None:
    assert setting_parser(Settings)(text) == (text.partition("=")[0], value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("penalty", "expected NAME=VALUE"),
        ("speed=1", "unknown setting 'speed'"),
        ("penalty=-1", "penalty=-1: expected auto or a number of at least 0"),
        ("penalty=nan", "expected auto or a number"),
        ("share=much", "expected a number of at least 0"),
        ("rounds=0", "expected a whole number of at least 1"),
        ("rounds=1.5", "expected a whole number"),
        ("kind=c", "kind=c: expected a or b"),
        ("fast=maybe", "expected true or false"),
    ],
)
def test_a_wrong_setting_is_an_error_that_says_what_is_expected(text: str, words: str) -> None:
    with pytest.raises(typer.BadParameter, match=words):
        setting_parser(Settings)(text)
