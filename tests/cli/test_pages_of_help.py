"""Every page of help has an example that can be typed, and names what an option may be; shells complete the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import check_line, find_command, leaves
from tests.tables.cases import as_csv, river

Run = Callable[..., Any]


def parameters() -> list[Any]:
    """Every parameter of every command."""
    return [
        pytest.param(words, parameter, id=" ".join([*words, parameter.name]))
        for words in leaves()
        for parameter in find_command(words)[0].params
    ]


def completions(parameter: Any, words: tuple[str, ...], incomplete: str = "") -> list[str]:
    """What a shell is told of a parameter when nothing else was typed."""
    command = find_command(words)[0]
    context = command.context_class(command, info_name="toporo")
    return [item.value for item in parameter.shell_complete(context, incomplete)]


@pytest.mark.parametrize("words", leaves(), ids=" ".join)
def test_every_command_has_an_example_that_parses(words: tuple[str, ...]) -> None:
    page = " ".join((find_command(words)[0].help or "").split())
    examples = re.findall(r"Example: toporo (.*)$", page)
    assert len(examples) == 1, page
    typed = shlex.split(examples[0].split(" > ")[0])
    assert tuple(typed[: len(words)]) == words
    check_line(typed)


def test_allowed_values_are_in_the_help_and_complete() -> None:
    chosen = {}
    for case in parameters():
        words, parameter = case.values
        names = completions(parameter, words)
        if names:
            chosen[f"{words[0]} {parameter.name}"] = names
            assert set(names) <= set(re.findall(r"[\w-]+", parameter.help)), (words, parameter.name, parameter.help)
            assert completions(parameter, words, names[0][:2])[0].startswith(names[0][:2])
    assert chosen["fit model"] == ["auto", "trees", "linear", "kriged", "mlp"]
    assert {"fit task", "topology cut"} < chosen.keys()
    assert {"reproduce benchmark", "reproduce source", "doctor task", "data name"} < chosen.keys()


# ---------------------------------------------------------------- what a shell asks


@pytest.fixture
def ask(toporo: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], list[str]]:
    """The words with which a shell would complete a line."""

    def ask(shell: str, line: str) -> list[str]:
        for name, value in {
            "_TOPORO_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }.items():
            monkeypatch.setenv(name, value)
        done = toporo()
        assert done.code == 0, done.err
        assert done.err == ""
        return re.findall(r"[^\s\"'()]+", done.out)

    return ask


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_values(ask: Callable[..., list[str]], tmp_path: Path, shell: str) -> None:
    (tmp_path / "t.csv").write_text(as_csv(river(rows=2)))
    assert "topology" in ask(shell, "toporo to")
    assert "fit" not in ask(shell, "toporo to")
    assert "verify" in ask(shell, "toporo data ver")
    assert "--test-groups" in ask(shell, "toporo fit --test")
    assert ask(shell, "toporo fit t.csv --model kr")[-1] == "kriged"
    assert "tpt48" in ask(shell, "toporo reproduce tp")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown(toporo: Run, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    done = toporo("--show-completion", shell)
    assert done.code == 0, done.err
    assert f"_TOPORO_COMPLETE=complete_{shell}" in done.out
