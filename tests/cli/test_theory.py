"""``toporo theory`` as a user meets it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.paper.theory.cases import tiny_study
from toporo.cli import app
from toporo.paper.theory.results import StudySettings

COMMAND = [sys.executable, "-m", "toporo", "theory"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[StudySettings]:
    """The settings that the command asks for; a tiny study is what it gets."""
    seen: list[StudySettings] = []

    def instead(settings: StudySettings) -> object:
        seen.append(settings)
        return tiny_study()

    monkeypatch.setattr("toporo.cli.theory.run_study", instead)
    return seen


def test_tables_and_files(asked: list[StudySettings], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["theory", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    for words in (
        "Theorem 1",
        "Theorem 2",
        "Theorem 3",
        "certified",
        "estimated",
        "TRO (λ=1)",
        "group DRO",
        "no certificate",
    ):
        assert words in done.output
    assert (tmp_path / "out" / "report.html").is_file()
    assert asked == [StudySettings()]


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toporo.cli.theory.write_theory_report", lambda study, out: out / "report.html")


@pytest.mark.usefixtures("unwritten")
def test_json_is_all_that_is_printed(asked: list[StudySettings], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["theory", "--out", str(tmp_path), "--json", "--quick", "--seeds", "2"])
    assert json.loads(done.stdout) == json.loads(tiny_study().to_json())
    assert "report.html" in done.stderr
    assert asked == [StudySettings.quick(2)]


@pytest.mark.usefixtures("unwritten")
def test_few_seeds_are_few_trainings_too(asked: list[StudySettings], tmp_path: Path) -> None:
    for seeds, trainings in ((2, 2), (20, 3)):
        CliRunner().invoke(app, ["theory", "--out", str(tmp_path), "--seeds", str(seeds)])
        assert (asked[-1].seeds, asked[-1].training_seeds) == (seeds, trainings)


def test_wrong_usage_is_exit_code_2() -> None:
    for wrong in (["--seeds", "0"], ["--seeds", "many"], ["--fast"], ["extra"]):
        done = CliRunner().invoke(app, ["theory", *wrong])
        assert done.exit_code == 2


def test_a_place_that_cannot_be_written_is_an_error_before_the_work(toporo: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for out, message in (("file", "that is not a folder"), ("file/below", "cannot be written to")):
        done = toporo("theory", "--out", out)
        assert done.code == 1
        assert message in done.err
        assert "Theorem" not in done.err


@pytest.mark.usefixtures("interrupts")
def test_interrupted_it_leaves_nothing(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, "--out", "out"], cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        assert "Theorem 1" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; no file was left half-written" in rest
    assert "Traceback" not in rest
    assert list(tmp_path.iterdir()) == []
