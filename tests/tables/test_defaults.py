"""What is not asked for is the same on the command line, in ``fit_table`` and in the estimators."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import toporo as tr
from tests.tables.cases import as_csv, river
from toporo.cli import fit as command
from toporo.errors import SettingError
from toporo.groups import Groups
from toporo.tables.fit import MODELS, _estimator, fit_table

ESTIMATORS = [
    tr.TRORegressor, tr.TROClassifier, tr.GroupDRORegressor, tr.GroupDROClassifier, tr.AutoRegressor,
    tr.AutoClassifier, tr.KrigedRegressor, tr.KrigedClassifier,
]  # fmt: skip
#: What the command line calls by another name.
RENAMED = {"seed": "random_state"}


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    given = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in given if each.default is not inspect.Parameter.empty}


def test_estimators_have_the_same() -> None:
    usual = defaults(tr.TRORegressor.__init__) | defaults(tr.AutoRegressor.__init__)
    for kind in ESTIMATORS:
        for name, value in defaults(kind.__init__).items():
            assert usual.get(name, value) == value, f"{kind.__name__}: {name}"


def test_the_command_has_those_of_fit_table() -> None:
    """A list that is empty is None in typer."""
    here, there = defaults(command.fit), defaults(fit_table)
    for name in here.keys() & there.keys():
        assert (here[name] or None) == (there[name] or None), name


def test_what_the_page_of_help_says_is_what_the_estimators_do() -> None:
    usual, told = defaults(tr.TRORegressor.__init__), {each.name: each.default for each in fields(command.FitSettings)}
    names = ("prior", "penalty", "divergence", "ridge")
    assert {name: told[name] for name in names} == {name: usual[name] for name in names}


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("model", MODELS)
def test_fit_table_changes_no_setting_of_the_estimator(model: str, task: str) -> None:
    estimator = _estimator(task, model, Groups.of(["a", "b", "c", "d"]), None, [], {})
    expected = type(estimator)().get_params()
    assert estimator.get_params() == expected | ({"model": tr.Net()} if model == "mlp" else {})


@pytest.mark.parametrize("model", MODELS)
def test_nor_does_the_command(
    toporo: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str
) -> None:
    asked: dict[str, Any] = {}

    def stop(source: Any, **settings: Any) -> None:  # as fit_table has it
        asked.update(settings)
        raise SettingError("enough")

    monkeypatch.setattr(command, "fit_table", stop)
    Path(tmp_path, "river.csv").write_text(as_csv(river()))
    done = toporo("fit", "river.csv", "--target", "y", "--group", "station", "--out", "m", "--model", model)
    assert "enough" in done.err
    kind = {"auto": tr.AutoRegressor, "kriged": tr.KrigedRegressor}.get(model, tr.TRORegressor)
    usual = defaults(kind.__init__) | defaults(fit_table)
    told = {
        name: value for name, value in asked.items() if name not in ("target", "group", "model", "report", "resume")
    }
    assert told.keys() <= usual.keys()
    assert {name: value or None for name, value in told.items()} == {name: usual[name] or None for name in told}
