"""Every example runs as it stands and prints what its text claims.

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


# ---------------------------------------------------------------- what examples claim


def numbers(text: str, *phrases: str) -> list[float]:
    """The first number after each phrase; of a single phrase, the numbers after all of its occurrences."""
    pattern = r"[\s:]*(-?\d+(?:\.\d+)?(?:e-?\d+)?)"
    matches = [re.findall(re.escape(phrase) + pattern, text) for phrase in phrases]
    return [float(number) for number in (matches[0] if len(phrases) == 1 else [match[0] for match in matches])]


def heaviest(text: str, phrase: str = "") -> str:
    """The group with the largest weight in the first mapping after a phrase."""
    weights = ast.literal_eval(text[text.index("{", text.index(phrase)) :].split("}")[0] + "}")
    return str(max(weights, key=weights.get))


def borders_to_prior(text: str) -> None:
    assert "PA: weight" in text


def compare_methods(text: str) -> None:
    erm, tro, prior, *controls = numbers(
        text, "ERM                       mean", "TRO                       mean", "prior alone (control)     mean",
        "uniform prior (control)   mean", "shuffled prior (control)  mean",
    )  # fmt: skip
    assert tro > erm + 10
    assert tro == pytest.approx(prior, abs=3), "the gain is the prior's"
    assert tro > max(controls) + 5


def ddp(text: str) -> None:
    joined, apart = numbers(text, "largest difference of a weight at any step is")
    assert joined < 1e-4, "float32, over a hundred steps"
    assert apart > 0.1, "without over_ranks() each rank goes its own way"


def error_by_hops(text: str) -> None:
    lines = dict(line.split(" {", 1) for line in text.splitlines())
    tro, erm = (list(ast.literal_eval("{" + lines[title]).values()) for title in ("TRO", "ERM (control)"))
    assert tro[1] < tro[3] < tro[7]
    assert all(a < b for a, b in zip(tro[1:], erm[1:], strict=True))


def exact_linear(text: str) -> None:
    errors = numbers(text, "test error")
    even, river = errors[:5], errors[5:]
    assert min(river) < 0.75 * min(even)
    assert river[-1] == pytest.approx(even[-1], abs=2e-3), "without a penalty the prior plays no part"
    assert max(float(line.split()[-1]) for line in text.splitlines() if "gap at most" in line) <= 1e-6


def flood_tiles(text: str) -> None:
    ious = numbers(text, "IoU of water")
    assert min(ious) > 0.6
    assert max(ious) - min(ious) < 0.1, "as the example says, all come out alike"
    assert heaviest(text, "prior: ") == "India", "its levels lie between the others'"


def fsdp(text: str) -> None:
    assert "rank 0 keeps 2,305 of 4,545 parameters" in text
    assert max(numbers(text, "differ by at most")) < 1e-4


def hf_trainer(text: str) -> None:
    erm, tro = map(int, re.findall(r"(\d+)% right in the hospital never seen", text))
    assert tro > erm + 20


def images(text: str) -> None:
    right = [float(value) for value in re.findall(r"([\d.]+)% right in the village", text)]
    assert len(right) == 3
    assert min(right) > 95, "as the example says, all get it right"
    assert heaviest(text, "prior: ") == "depot", "the place that has something of both lies between them"
    assert text.endswith("saw: nothing\n")


def joint_topology(text: str) -> None:
    assert heaviest(text, "down the river: ") == "ford", "nobody said that it lies in the middle"
    assert max(numbers(text, "batch: ")) < 0.4


def lightning_module(text: str) -> None:
    erm, tro = numbers(text, "mean error")
    assert tro < 0.95 * erm


def losses_by_group(text: str) -> None:
    worst, new = numbers(text, "worst"), numbers(text, "in test villages")
    assert min(worst) == worst[2], "group DRO"
    assert min(new) == new[1], "TRO"


def own_dataloader(text: str) -> None:
    erm, tro = numbers(text, "ERM: median error", "TRO: median error")
    assert tro < 0.7 * erm
    assert heaviest(text, "weights: ") == "camera 5", "the camera next to the new ones counts most"


def own_training_loop(text: str) -> None:
    erm, tro = numbers(text, "ERM", "TRO")
    assert tro > erm + 8


def scikit_learn(text: str) -> None:
    control, search, auto = (
        float(re.search(rf"^{title}: ([\d.]+) passengers off", text, re.MULTILINE)[1])
        for title in ("control", "search", "auto")
    )
    assert auto < 0.9 * control
    assert search < control
    assert text.split("hops\n")[1].split()[0] == "Stadium", "the stop next to the planned ones counts most"
    assert text.endswith("read back, it predicts the same\n")


def table_to_report(text: str) -> None:
    tro, erm = re.findall(r"mean over 4 groups\s+([\d.]+) \[.*?\]\s+([\d.]+)", text)[0]
    assert float(tro) < 0.9 * float(erm)
    assert "verdict: TRO does better (in 4 groups only" in text


def topology_from_table(text: str) -> None:
    joined, learned = map(int, re.findall(r"\b\d+\b", text.splitlines()[-1]))
    assert joined >= 0.7 * learned > 0
    guide = (EXAMPLES.parent / "docs" / "guide.md").read_text(encoding="utf-8")
    assert f"{joined} of its {learned} edges join groups that really touch" in guide


CLAIMS = {
    f"{claim.__name__}.py": claim
    for claim in (
        *(borders_to_prior, compare_methods, ddp, error_by_hops, exact_linear, flood_tiles, fsdp, hf_trainer, images),
        *(joint_topology, lightning_module, losses_by_group, own_dataloader, own_training_loop, scikit_learn),
        *(table_to_report, topology_from_table),
    )
}
#: What the gallery's shorter examples print of what they show.
SHOWN = {
    "compare_candidates.py": "Kriged is best; the graph helps",
    "distance_matrix.py": "12 groups, distances to within ",
    "intervals_coverage.py": "groups left out (toporo): 9",
    "kriged_coefficients.py": "the rows speak for the graph: ",
    "leaderboard_of_auto.py": "It is carried by ",
    "penalty_choice.py": "chosen: λ = ",
    "reach_of_rows.py": "far from any training row",
    "region_folds.py": "fold 4: ",
    "states_prior_map.py": "of 24 states in effect; saw: test adjacency",
    "weights_over_penalty.py": "λ = 0.01: ",
    "worst_mixture_simplex.py": "λ = 0.3: worst mixture {'NY': 0.0, 'PA': 0.0, 'OH': 1.0}",
}
#: Packages without which an example cannot run.
NEEDS = {"flood_tiles.py": "imagecodecs", "hf_trainer.py": "transformers", "images.py": "PIL",
         "lightning_module.py": "lightning"}  # fmt: skip
#: Files that an example writes into a folder, or under names, given as arguments.
WRITES = {
    "borders_to_prior.py": ["graph.png"],
    "table_to_report.py": ["", "table.csv", "edges.csv", "new.txt", "model", "report.html"],
    "topology_from_table.py": ["topology.png", "dg15.csv"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
@pytest.mark.usefixtures("no_data")
@pytest.mark.filterwarnings("ignore:::lightning", "ignore:::transformers", "ignore::DeprecationWarning")
def test_an_example_shows_what_it_says(run: Run, name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"needs {NEEDS[name]}")
    text = run(name)
    if name in SHOWN:
        assert SHOWN[name] in text
    else:
        CLAIMS[name](text)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.usefixtures("no_data")
def test_an_example_writes_where_it_is_told_to(run: Run, name: str, tmp_path: Path) -> None:
    folder = WRITES[name][0] == ""
    run(name, *([str(tmp_path)] if folder else [str(tmp_path / file) for file in WRITES[name]]))
    assert {path.name for path in tmp_path.iterdir()} == set(WRITES[name]) - {""}


@pytest.mark.slow
def test_table_to_report_says_on_real_temperatures_that_it_makes_no_difference(
    run: Run, real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPORO_DATA", str(real_data.resolve()))
    text = run("table_to_report.py", str(tmp_path))
    assert text.startswith("real: ")
    assert "verdict: no clear difference" in text


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
