"""``toporo theory`` as a user meets it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.paper.theory.cases import tiny_study
from toporo.cli import app
from toporo.paper.theory.study import StudySettings


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[StudySettings]:
    """The settings that the command asks for; it gets a tiny study."""
    seen: list[StudySettings] = []

    def instead(settings: StudySettings) -> object:
        seen.append(settings)
        return tiny_study()

    monkeypatch.setattr("toporo.cli.theory.run_study", instead)
    return seen


def test_tables_and_files(asked: list[StudySettings], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["theory", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    words = ("Theorem 1", "Theorem 2", "Theorem 3", "TRO (λ=1)", "group DRO")
    assert all(word in done.output for word in words)
    assert (tmp_path / "out" / "report.html").is_file()
    assert asked == [StudySettings()]


def test_json_and_options(asked: list[StudySettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toporo.cli.theory.write_theory_report", lambda study, out: out / "report.html")
    for words in (["--quick", "--seeds", "2"], ["--seeds", "2"], ["--seeds", "20"]):
        done = CliRunner().invoke(app, ["theory", "--out", str(tmp_path), "--json", *words])
        assert json.loads(done.stdout) == json.loads(tiny_study().to_json())
        assert "report.html" in done.stderr
    assert asked[0] == replace(StudySettings.quick(), seeds=2)
    assert [(each.seeds, each.training_seeds) for each in asked[1:]] == [(2, 2), (20, 3)]  # few seeds, few networks


def test_a_folder_that_cannot_be_written_is_an_error_before_the_work(toporo: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for out, message in (("file", "not a folder"), ("file/below", "not a folder")):
        done = toporo("theory", "--out", out)
        assert done.code == 1
        assert message in done.err
        assert "Theorem" not in done.err
