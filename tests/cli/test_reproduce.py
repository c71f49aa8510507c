"""``toporo reproduce tpt48`` as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.fake_nclimdiv import write_fake

pytestmark = pytest.mark.usefixtures("no_data")


def toporo(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toporo", "reproduce", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_a_split_and_a_window_give_one_table(tmp_path: Path) -> None:
    write_fake(tmp_path / "data/tpt48/climdiv-tmpcst-v1.0.0-20200106")
    chosen = ("--data", "data", "--split", "north-south", "--window", "season", "--methods", "persistence,linear-erm")
    done = toporo("tpt48", *chosen, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "TPT-48 N→S, season-aligned windows" in done.stdout
    assert "Linear ERM" in done.stdout
    assert "not the published one" in " ".join(done.stdout.split())
    assert max(len(line) for line in done.stdout.splitlines() if "report" not in line) <= 132
    assert (tmp_path / "runs/tpt48/report.html").is_file()
    again = toporo("tpt48", *chosen, "--json", cwd=tmp_path)
    assert json.loads(again.stdout) == json.loads((tmp_path / "runs/tpt48/results.json").read_text())
    assert {row["variant"] for row in json.loads(again.stdout)} == {"north-south/season"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tpt48",), "toporo data get tpt48"),
        (("dg15", "--window", "season"), "dg15 has no window to choose (found 'season'): leave --window out"),
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


def test_methods_are_listed_by_benchmark(tmp_path: Path) -> None:
    text = toporo("--list-methods", cwd=tmp_path).stdout
    ours, theirs = text.split("tpt48:")
    assert ours.startswith("dg15, dg60:\n")
    assert "tro-data-inputs" in ours
    assert "tro-data-inputs" not in theirs
    assert "linear-tro-shuffled  Linear TRO, shuffled (control)" in theirs
