"""Every example runs as it stands, in a process of its own."""

from __future__ import annotations

import ast
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
    tested = Path(__file__).read_text(encoding="utf-8")
    names = [path.name for path in EXAMPLES.glob("*.py")]
    assert len(names) >= 10
    assert [name for name in names if f'run("{name}"' not in tested] == []


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


@pytest.mark.usefixtures("no_data")
def test_table_to_report_gains_where_the_shift_has_a_direction(tmp_path: Path) -> None:
    lines = run("table_to_report.py", str(tmp_path)).splitlines()
    assert lines[0].startswith("generated: ")
    tro, erm = mean_errors(lines)
    assert tro < 0.9 * erm
    assert any(line.startswith("verdict: TRO does better (in 4 groups only") for line in lines)
    assert {path.name for path in tmp_path.iterdir()} == {
        "table.csv", "edges.csv", "new.txt", "model", "report.html"
    }  # fmt: skip
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "orchard at 950 m" in page
    assert "4 not trained on" in page, "the page shows the evaluation"


def test_table_to_report_says_on_real_temperatures_that_it_makes_no_difference(real_data: Path, tmp_path: Path) -> None:
    lines = run("table_to_report.py", str(tmp_path)).splitlines()
    assert lines[0].startswith("real: ")
    tro, erm = mean_errors(lines)
    assert tro == pytest.approx(erm, rel=0.05)
    assert "verdict: no clear difference" in lines
    assert sum(line.startswith("  hops ") for line in lines) == 4


def mean_errors(lines: list[str]) -> tuple[float, float]:
    """Of TRO and ERM, over all groups never seen."""
    line = next(line for line in lines if line.startswith("  mean over"))
    return tuple(float(part.split()[-1]) for part in line.split("[")[:2])


def test_scikit_learn_beats_its_control_at_planned_stops() -> None:
    pytest.importorskip("pandas")
    text = run("scikit_learn.py")
    errors = {title: float(text.split(f"\n{title}: ")[1].split()[0]) for title in ("control", "search")}
    errors["auto"] = float(text.split(" passengers off")[2].rsplit(" ", 1)[1])
    assert errors["auto"] < 0.9 * errors["control"]
    assert errors["search"] < errors["control"]
    assert text.count("held out ") == 4
    assert text.split("hops\n")[1].split()[0] == "Stadium", "the stop next to the planned ones counts most"
    assert text.endswith("read back, it predicts the same\n")


def test_own_dataloader_gains_with_any_loss_and_batch() -> None:
    text = run("own_dataloader.py")
    erm, tro = (float(text.split(f"{title}: median error ")[1].split()[0]) for title in ("ERM", "TRO"))
    assert tro < 0.7 * erm
    weights = ast.literal_eval(text.split("weights: ")[1])
    assert max(weights, key=weights.get) == "camera 5", "the camera next to the new ones counts most"
    assert sum(weights.values()) == pytest.approx(1.0, abs=0.05)


@pytest.mark.usefixtures("no_data")
def test_compare_methods_shows_where_the_gain_comes_from() -> None:
    rows = [line.split(" mean ") for line in run("compare_methods.py").splitlines()]
    means = {title.strip(): float(rest.split("%")[0]) for title, rest in rows}
    saw = {title.strip(): rest.rsplit("saw ", 1)[1] for title, rest in rows}
    assert len(means) == 7
    assert means["TRO"] > means["ERM"] + 10
    assert means["TRO"] == pytest.approx(means["prior alone (control)"], abs=3), "the gain is the prior's"
    assert means["TRO"] > max(means["uniform prior (control)"], means["shuffled prior (control)"]) + 5
    assert {title for title, what in saw.items() if what != "nothing"} == {
        "TRO", "prior alone (control)", "shuffled prior (control)"
    }  # fmt: skip


@pytest.mark.usefixtures("no_data")
def test_images_learns_the_topology_and_is_right_in_a_domain_not_trained_on(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    text = run("images.py", str(tmp_path))
    right = [percent(text, title) for title in ("ERM", "TRO", "TRO, uniform prior (control)")]
    assert min(right) > 95, "as the example says, all get it right"
    assert text.count("(100% of resamples)") == 2
    weights = ast.literal_eval(text.split("prior: ")[1].split(" saw")[0])
    assert max(weights, key=weights.get) == "depot", "the place that has something of both lies between them"
    assert text.endswith("saw: nothing\n")
    assert {path.name for path in tmp_path.iterdir()} == {"depot", "forest", "harbour", "village"}


@pytest.mark.usefixtures("no_data")
def test_flood_tiles_finds_water_in_a_flood_not_trained_on(tmp_path: Path) -> None:
    pytest.importorskip("imagecodecs")
    text = run("flood_tiles.py", str(tmp_path))
    found = [float(line.split("IoU of water ")[1].split()[0]) for line in text.splitlines() if "IoU" in line]
    assert len(found) == 3
    assert min(found) > 0.6
    assert max(found) - min(found) < 0.1, "as the example says, all come out alike"
    weights = ast.literal_eval(text.split("prior: ")[1].split(" saw")[0])
    assert max(weights, key=weights.get) == "India", "its levels lie between the others'"
    assert "Bolivia" not in weights


def percent(text: str, title: str) -> float:
    """Of the line that begins with a title and spaces."""
    line = next(line for line in text.splitlines() if line.startswith(f"{title}  "))
    return float(line.removeprefix(title).split("%")[0])
