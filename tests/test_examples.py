"""Every example runs as it stands, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, EXAMPLES / name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_example_is_left_out() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "borders_to_prior.py",
        "exact_linear.py",
        "own_training_loop.py",
        "topology_from_table.py",
    }


def test_own_training_loop_shows_a_gain(no_data: None) -> None:
    lines = dict(line.split(": ", 1) for line in run("own_training_loop.py").splitlines())
    erm, tro = (float(lines[title].split()[0]) for title in ("ERM", "TRO"))
    assert tro > erm + 8


@pytest.mark.usefixtures("no_data")
def test_borders_to_prior_prints_weights_and_draws(tmp_path: Path) -> None:
    text = run("borders_to_prior.py", str(tmp_path / "graph.png"))
    assert "PA: weight" in text
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("no_data")
def test_topology_from_table_finds_the_true_neighbours(tmp_path: Path) -> None:
    text = run("topology_from_table.py", str(tmp_path / "topology.png"), str(tmp_path / "dg15.csv"))
    known, learned = (int(word) for word in text.splitlines()[-1].split() if word.isdigit())
    assert known >= 0.7 * learned > 0
    assert "% of resamples" in text
    assert (tmp_path / "topology.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "dg15.csv").read_text().startswith("domain,x,y\n")


def test_exact_linear_gains_by_looking_down_the_river() -> None:
    lines = run("exact_linear.py").splitlines()
    errors = [float(line.split("test error ")[1].split(",")[0]) for line in lines if "test error" in line]
    even, river = errors[:5], errors[5:]
    assert min(river) < 0.6 * min(even)
    assert river[-1] == pytest.approx(even[-1], abs=2e-3), "without a penalty the prior has no say"
    assert all(float(line.rsplit(" ", 1)[1]) <= 1e-6 for line in lines if "gap at most" in line)
