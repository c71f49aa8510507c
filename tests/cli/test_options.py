"""Options that commands share: global flags, expert settings, short forms, and how many options there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.commands import check_line, find_command, leaves
from toporo.cli.settings import parse_settings, setting
from toporo.errors import SettingError, UnknownNameError

pytestmark = pytest.mark.usefixtures("no_data")
Run = Callable[..., Any]
GLOBAL = {"--quiet", "--verbose", "--json", "--memory-limit", "--help"}


def test_commands_have_at_most_110_options() -> None:
    parameters = [parameter for words in leaves() for parameter in find_command(words)[0].params]
    options = [each for each in parameters if each.opts[0].startswith("--") and GLOBAL.isdisjoint(each.opts)]
    assert len(options) <= 110


@pytest.mark.parametrize("words", leaves(), ids=" ".join)
def test_every_command_has_the_global_flags(words: tuple[str, ...]) -> None:
    options = {option for parameter in find_command(words)[0].params for option in parameter.opts}
    assert {"--quiet", "-q", "--verbose", "-v", "--json"} <= options


def test_global_flags_may_stand_before_or_after_the_command(toporo: Run) -> None:
    after = toporo("data", "list", "--json")
    assert after.code == 0, after.err
    assert toporo("--json", "data", "list").out == toporo("data", "list", "--json", "-q").out == after.out


def test_a_memory_limit_is_refused_where_nothing_keeps_to_it(toporo: Run) -> None:
    done = toporo("--memory-limit", "2GiB", "data", "list")
    assert done.code == 2
    assert "toporo list keeps to no memory limit" in " ".join(done.err.split())


def test_short_forms() -> None:
    check_line(["fit", "t.csv", "-t", "y", "-g", "state", "-o", "model", "-q", "-v"])
    check_line(["topology", "t.csv", "-g", "state", "-o", "graph.json", "-o", "graph.png"])


@dataclass(frozen=True)
class Settings:
    """One setting of every kind."""

    penalty: float = setting("auto", "a number, or auto", choices=("auto",), least=0)
    share: float = setting(0.5, "a share", above=0, most=1)
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
    assert parse_settings([text], Settings) == {text.partition("=")[0]: value}


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("penalty", SettingError, "expected NAME=VALUE"),
        ("speed=1", UnknownNameError, "unknown setting 'speed'"),
        ("penalty=-1", SettingError, "--set penalty=-1: expected auto or a number of at least 0"),
        ("penalty=nan", SettingError, "expected auto or a number"),
        ("share=0", SettingError, "expected a number above 0 and at most 1"),
        ("rounds=0", SettingError, "expected a whole number of at least 1"),
        ("rounds=1.5", SettingError, "expected a whole number"),
        ("kind=c", SettingError, "--set kind=c: expected a or b"),
        ("fast=maybe", SettingError, "expected true or false"),
    ],
)
def test_a_wrong_setting_is_an_error_that_says_what_is_expected(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        parse_settings([text], Settings)


def test_a_seed_for_a_model_that_draws_nothing_is_refused(toporo: Run) -> None:
    done = toporo("fit", "t.csv", "-t", "y", "-g", "state", "-o", "model", "--model", "linear", "--set", "seed=1")
    assert done.code == 2
    assert "--set seed is of model auto, trees or mlp" in " ".join(done.err.split())
