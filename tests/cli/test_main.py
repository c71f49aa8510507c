"""The command line as a user meets it: real processes, exit codes, messages instead of tracebacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from toporo import __version__

pytestmark = pytest.mark.usefixtures("no_data")


def toporo(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toporo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_version_and_help() -> None:
    assert toporo("--version").stdout.strip() == f"toporo {__version__}"
    page = toporo("reproduce", "--help").stdout
    for option in ("--seeds", "--methods", "--out", "--data", "--jobs", "--json"):
        assert option in page


def test_reproduce_prints_a_table_and_writes_the_files(tmp_path: Path) -> None:
    done = toporo("reproduce", "dg15", "--seeds", 1, "--methods", "erm,tro-physical", "--jobs", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "TRO-physical" in done.stdout
    assert "67.56" in done.stdout
    assert "not the published file" in " ".join(done.stdout.split())
    assert "dg15: 2/2 runs" in done.stderr
    assert (tmp_path / "runs/dg15/results.json").is_file()
    assert (tmp_path / "runs/dg15/report.html").is_file()
    again = toporo("reproduce", "dg15", "--seeds", 1, "--methods", "erm,tro-physical", "--json", cwd=tmp_path)
    assert json.loads(again.stdout) == json.loads((tmp_path / "runs/dg15/results.json").read_text())
    assert "2 found from before" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reproduce", "dg-15"), "unknown benchmark 'dg-15'. Did you mean 'dg15'? Valid names: dg15, dg60, "),
        (("reproduce", "dg15", "--methods", "erm,foo"), "unknown method 'foo'"),
        (("reproduce", "dg15", "--data", "absent"), "no such data folder: absent (from --data"),
        (("reproduce", "dg15", "--source", "published"), "Put the published file there"),
    ],
)
def test_a_users_mistake_is_one_message_and_exit_code_1(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = toporo(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("reproduce",), ("nope",), ("reproduce", "dg15", "--seeds", "0")])
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = toporo(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_data_folder_named_in_the_environment_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPORO_DATA", str(tmp_path / "gone"))
    done = toporo("reproduce", "dg15", cwd=tmp_path)
    assert done.returncode == 1
    assert "the environment variable TOPORO_DATA" in done.stderr
