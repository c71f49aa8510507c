"""Every example runs as it stands: one from the command line, the others in this process, which has torch loaded.

Those that the site has just run for its gallery are not run again: what they printed is on its pages.
"""

from __future__ import annotations

import ast
import html
import importlib
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
GALLERY = EXAMPLES.parent / "docs" / "_build" / "html" / "gallery"
Run = Callable[..., str]


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Run an example as ``python examples/NAME ARGUMENTS`` does, in a folder of its own; what it printed.

    It gets names of its own, its arguments and nobody's random numbers, and leaves no setting behind.
    """
    import sklearn
    import torch
    from matplotlib import pyplot

    def in_this_process(name: str, *arguments: str) -> str:
        if not arguments and (text := at_the_last_build(name)):
            return text
        path = str(EXAMPLES / name)
        monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        threads = torch.get_num_threads()
        capsys.readouterr()
        try:
            with sklearn.config_context(), torch.random.fork_rng(devices=[]):
                torch.seed()  # an example that trusts the state of the generator does not repeat itself
                runpy.run_path(path, run_name="__main__")
        finally:
            pyplot.close("all")
            torch.set_num_threads(threads)
        assert list(Path.cwd().iterdir()) == [], "an example writes where it was told to"
        return capsys.readouterr().out

    return in_this_process


def at_the_last_build(name: str) -> str:
    """What an example printed when the site was built, if nothing has changed since."""
    page = GALLERY / Path(name).with_suffix(".html")
    sources = [EXAMPLES / name, *(EXAMPLES.parent / "src").rglob("*.py")]
    if not page.exists() or max(path.stat().st_mtime for path in sources) > page.stat().st_mtime:
        return ""
    printed = re.findall(r"sphx-glr-script-out.*?<pre[^>]*>(.*?)</pre>", page.read_text(encoding="utf-8"), re.DOTALL)
    return "".join(html.unescape(re.sub("<[^>]+>", "", text)) for text in printed)


@pytest.mark.slow
def test_an_example_starts_from_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "borders_to_prior.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PA: weight" in done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_use_what_their_imports_bring(path: Path) -> None:
    """Every ``tr.a.b`` is public in toporo.a, not a module that another test happened to import."""
    public = importlib.import_module("toporo").__all__
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Attribute):
            continue
        if isinstance(node.value, ast.Name) and node.value.id == "tr":
            assert node.attr in public
        if isinstance(node.value, ast.Attribute) and ast.unparse(node.value.value) == "tr":
            module = importlib.import_module("toporo." + node.value.attr) if node.value.attr.islower() else None
            assert module is None or node.attr in module.__all__


def test_no_example_is_left_out() -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    names = [path.name for path in EXAMPLES.glob("*.py")]
    assert len(names) >= 10
    assert [name for name in names if f'run("{name}"' not in tested and name not in SHOWN] == []


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
def test_own_training_loop_shows_a_gain(run: Run) -> None:
    lines = dict(line.split(": ", 1) for line in run("own_training_loop.py").splitlines())
    erm, tro = (float(lines[title].split()[0]) for title in ("ERM", "TRO"))
    assert tro > erm + 8


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
def test_borders_to_prior_prints_weights_and_draws(run: Run, tmp_path: Path) -> None:
    text = run("borders_to_prior.py", str(tmp_path / "graph.png"))
    assert "PA: weight" in text
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
def test_topology_from_table_finds_the_true_neighbours(run: Run, tmp_path: Path) -> None:
    text = run("topology_from_table.py", str(tmp_path / "topology.png"), str(tmp_path / "dg15.csv"))
    known, learned = (int(word) for word in text.splitlines()[-1].split() if word.isdigit())
    assert known >= 0.7 * learned > 0
    guide = (EXAMPLES.parent / "docs" / "guide.md").read_text(encoding="utf-8")
    assert f"{known} of its {learned} edges join groups that really touch" in guide
    assert "% of resamples" in text
    assert (tmp_path / "topology.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "dg15.csv").read_text().startswith("domain,x,y\n")


@pytest.mark.slow
def test_exact_linear_gains_by_looking_down_the_river(run: Run) -> None:
    lines = run("exact_linear.py").splitlines()
    errors = [float(line.split("test error ")[1].split(",")[0]) for line in lines if "test error" in line]
    even, river = errors[:5], errors[5:]
    assert min(river) < 0.75 * min(even)
    assert river[-1] == pytest.approx(even[-1], abs=2e-3), "without a penalty the prior has no say"
    assert all(float(line.rsplit(" ", 1)[1]) <= 1e-6 for line in lines if "gap at most" in line)


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
def test_table_to_report_gains_where_the_shift_has_a_direction(run: Run, tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_table_to_report_says_on_real_temperatures_that_it_makes_no_difference(
    run: Run, real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPORO_DATA", str(real_data.resolve()))
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


@pytest.mark.slow
def test_scikit_learn_beats_its_control_at_planned_stops(run: Run) -> None:
    pytest.importorskip("pandas")
    text = run("scikit_learn.py")
    errors = {title: float(text.split(f"\n{title}: ")[1].split()[0]) for title in ("control", "search")}
    errors["auto"] = float(text.split(" passengers off")[2].rsplit(" ", 1)[1])
    assert errors["auto"] < 0.9 * errors["control"]
    assert errors["search"] < errors["control"]
    assert text.count("held out ") == 4
    assert text.split("hops\n")[1].split()[0] == "Stadium", "the stop next to the planned ones counts most"
    assert text.endswith("read back, it predicts the same\n")


@pytest.mark.slow
def test_own_dataloader_gains_with_any_loss_and_batch(run: Run) -> None:
    text = run("own_dataloader.py")
    erm, tro = (float(text.split(f"{title}: median error ")[1].split()[0]) for title in ("ERM", "TRO"))
    assert tro < 0.7 * erm
    weights = ast.literal_eval(text.split("weights: ")[1])
    assert max(weights, key=weights.get) == "camera 5", "the camera next to the new ones counts most"
    assert sum(weights.values()) == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
def test_joint_topology_finds_the_middle_of_the_river(run: Run) -> None:
    text = run("joint_topology.py")
    prior = ast.literal_eval(text.split("down the river: ")[1].splitlines()[0])
    assert list(prior) == ["spring", "mill", "ford", "lake", "delta"]
    assert max(prior, key=prior.get) == "ford", "nobody said that it lies in the middle"
    assert max(prior["spring"], prior["delta"]) < min(prior["mill"], prior["lake"])
    assert float(text.split("batch: ")[1].split()[0]) < 0.4


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
def test_compare_methods_shows_where_the_gain_comes_from(run: Run) -> None:
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


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
def test_images_learns_the_topology_and_is_right_in_a_domain_not_trained_on(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    text = run("images.py", str(tmp_path))
    right = [percent(text, title) for title in ("ERM", "TRO", "TRO, uniform prior (control)")]
    assert min(right) > 95, "as the example says, all get it right"
    assert text.count("(100% of resamples)") == 2
    weights = ast.literal_eval(text.split("prior: ")[1].split(" saw")[0])
    assert max(weights, key=weights.get) == "depot", "the place that has something of both lies between them"
    assert text.endswith("saw: nothing\n")
    assert {path.name for path in tmp_path.iterdir()} == {"depot", "forest", "harbour", "village"}


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
def test_flood_tiles_finds_water_in_a_flood_not_trained_on(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("imagecodecs")
    text = run("flood_tiles.py", str(tmp_path))
    ious = [float(line.split("IoU of water ")[1].split()[0]) for line in text.splitlines() if "IoU" in line]
    assert len(ious) == 3
    assert min(ious) > 0.6
    assert max(ious) - min(ious) < 0.1, "as the example says, all come out alike"
    weights = ast.literal_eval(text.split("prior: ")[1].split(" saw")[0])
    assert max(weights, key=weights.get) == "India", "its levels lie between the others'"
    assert "Bolivia" not in weights


#: What the gallery's shorter examples print of what they show.
SHOWN = {
    "compare_candidates.py": "Kriged is best; the graph helps",
    "distance_matrix.py": "12 groups, distances to within ",
    "intervals_coverage.py": "groups left out (toporo): 9",
    "kriged_coefficients.py": "the rows speak for the graph: ",
    "league_of_auto.py": "It is carried by ",
    "penalty_choice.py": "chosen: λ = ",
    "reach_of_rows.py": "far from any training row",
    "region_folds.py": "fold 4: ",
    "states_prior_map.py": "of 24 states in effect; saw: test adjacency",
    "weights_over_penalty.py": "λ = 0.01: ",
    "worst_mixture_simplex.py": "λ = 0.3: worst mixture {'NY': 0.0, 'PA': 0.0, 'OH': 1.0}",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.usefixtures("no_data")
def test_an_example_of_the_gallery_shows_what_it_says(run: Run, name: str) -> None:
    assert SHOWN[name] in run(name)


@pytest.mark.slow
def test_tro_is_between_erm_and_group_dro(run: Run) -> None:
    text = run("losses_by_group.py")
    worst, new = (
        {line.split(":")[0]: float(line.split(of)[1].split(",")[0]) for line in text.splitlines()}
        for of in (" worst ", "villages ")
    )
    assert worst["group DRO"] == min(worst.values())
    assert new["TRO, λ = 1"] == min(new.values()), "it looks down the road"


@pytest.mark.slow
def test_the_error_grows_with_the_hops(run: Run) -> None:
    lines = dict(line.split(" {", 1) for line in run("error_by_hops.py").splitlines())
    tro, erm = (list(ast.literal_eval("{" + lines[title]).values()) for title in ("TRO", "ERM (control)"))
    assert tro[1] < tro[3] < tro[7]
    assert all(a < b for a, b in zip(tro[1:], erm[1:], strict=True))


@pytest.mark.slow
def test_two_processes_train_what_one_trains(run: Run) -> None:
    lines = dict(line.split(": ", 1) for line in run("ddp.py").splitlines() if "largest difference" in line)
    joined, apart = (float(lines[title].rsplit(" ", 1)[1]) for title in ("joined", "apart"))
    assert joined < 1e-4, "float32, over a hundred steps"
    assert apart > 0.1, "without over_ranks() each rank goes its own way"


@pytest.mark.slow
def test_a_network_in_two_halves_trains_as_a_whole_one(run: Run) -> None:
    text = run("fsdp.py")
    assert "rank 0 keeps 2,305 of 4,545 parameters" in text
    assert float(text.split("differ by at most ")[1].split()[0]) < 1e-4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_lightning_module_gains_where_the_road_leads(run: Run) -> None:
    pytest.importorskip("lightning", reason="needs the extra 'lightning'")
    errors = re.findall(r"mean error (\S+) in villages", run("lightning_module.py"))
    erm, tro = map(float, errors)
    assert tro < 0.95 * erm


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_language_model_gains_where_a_habit_ends(run: Run) -> None:
    pytest.importorskip("transformers", reason="needs the extra 'transformers'")
    erm, tro = map(int, re.findall(r"(\d+)% right in the hospital never seen", run("hf_trainer.py")))
    assert tro > erm + 20


def percent(text: str, title: str) -> float:
    """Of the line that begins with a title and spaces."""
    line = next(line for line in text.splitlines() if line.startswith(f"{title}  "))
    return float(line.removeprefix(title).split("%")[0])
