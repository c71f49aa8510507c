"""What the README tells people to type works as it stands, and what it claims is what the results say."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import check_line
from toporo.paper.results import AVERAGE, Results, Row

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(heading: str, language: str = "") -> str:
    """The first fenced block under a heading."""
    section = README.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return section.split(f"```{language}\n", 1)[1].split("```", 1)[0]


def test_it_is_short() -> None:
    assert len(README.encode()) <= 10_240


def test_the_session_from_a_table_to_a_report(
    real_data: Path, toporo: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = block("If you have a table").strip().splitlines()
    assert len(lines) == 10
    monkeypatch.setenv("TOPORO_DATA", str(real_data))
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[:3] in (["toporo", "data", "get"], [".", ".venv/bin/activate"]):
            continue  # the download has tests of its own, against a server here
        assert words[0] == "toporo"
        redirected = words.index(">") if ">" in words else len(words)
        done = toporo(*words[1:redirected])
        assert done.code == 0, f"{line}\n{done.err}"
        if ">" in words:
            (tmp_path / words[redirected + 1]).write_text(done.out)
        better = re.search(r"better in (\d+) of (\d+) groups", done.out)
        if better:
            assert f"({better[1]} of {better[2]} states are better with votes)" in claims()
    made = {path.name for path in tmp_path.iterdir()}
    assert {"doctor.html", "model", "control", "effects.svg", "predictions.csv", "report.html"} <= made
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 577


# ---------------------------------------------------------------- the other readers


def rows_of_states() -> dict[str, Any]:
    """Five states in a line and a sixth to predict for, as every stub takes them for granted."""
    import toporo as tr

    rng = np.random.default_rng(0)
    names = ["NY", "PA", "OH", "IN", "IL"]
    place = np.repeat(np.arange(5.0), 30)
    x = rng.normal(size=(150, 2))
    y = (1 + place) * x[:, 0] + x[:, 1]
    states = np.repeat(names, 30)
    borders = tr.GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN"), ("IN", "IL"), ("IL", "MO")])
    return {
        "tr": tr, "math": math, "borders": borders, "graph": borders, "west": ["MO"], "train": names, "test": ["MO"],
        "X": x, "x": x, "features": x, "y": y, "state": states, "states": states, "groups": states,
        "X_new": x[:3], "x_new": x[:3], "new_states": ["MO"] * 3, "prior": borders.prior(names, ["MO"]),
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:1 of 1 group.s. are three hops")
def test_the_lines_of_kriged_models_run() -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    names = rows_of_states() | {"HistGradientBoostingRegressor": HistGradientBoostingRegressor}
    section = README.split("## If you use scikit-learn\n", 1)[1].split("\n## ", 1)[0]
    exec(section.split("```python\n")[2].split("```")[0], names)
    assert 0.0 <= names["model"].gate_ <= 1.0


@pytest.mark.parametrize(
    "heading",
    ["If you use scikit-learn", "If you train in PyTorch", "If you have images",
     "If you have a map of your groups, or none", "If a linear model will do"],
)  # fmt: skip
def test_stubs_have_four_lines_of_code(heading: str) -> None:
    assert len(block(heading, "python").splitlines()) == 4


def test_the_stub_for_scikit_learn_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names = rows_of_states()
    exec(block("If you use scikit-learn", "python"), names)
    assert "hops" in capsys.readouterr().out
    assert set(names["model"].group_weights_) == set(names["train"])


def test_the_stub_for_pytorch_runs() -> None:
    import torch
    import torch.nn.functional as F

    names = rows_of_states()
    tr, kept = names["tr"], np.isin(names["states"], ["NY", "PA", "OH"])
    data = tr.GroupedData.from_arrays(
        names["x"][kept].astype(np.float32), (names["y"][kept] > 0).astype(np.int64), names["states"][kept]
    )
    names |= {"F": F, "net": torch.nn.Linear(2, 2), "data": data}
    exec(block("If you train in PyTorch", "python"), names)
    names["loss"].backward()
    assert names["net"].weight.grad.abs().sum() > 0
    assert names["objective"].weights.keys() == {"NY", "PA", "OH"}


def test_the_stub_for_images_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    from tests.paper.tiny_images import write_tiny
    from toporo.paper.image_folder import ImageFolder

    cameras = ("new_camera", "old_camera", "other_camera")
    write_tiny(tmp_path, ImageFolder("photos", "Photos", "photos", cameras))
    monkeypatch.chdir(tmp_path)
    names = rows_of_states()
    exec(block("If you have images", "python"), names)
    assert names["images"].shape == (27, 224, 224, 3)
    assert names["classes"].shape == (27,)
    assert set(names["train"].groups) == set(names["objective"].weights) == set(cameras[1:])


def test_the_stub_for_maps_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "borders.csv").write_text("NY,PA\nPA,OH\nOH,IN\nIN,IL\nIL,MO\n")
    monkeypatch.chdir(tmp_path)
    names = rows_of_states()
    names["features"] = names["features"] + 3 * np.repeat(np.arange(5.0), 30)[:, None]
    exec(block("If you have a map of your groups, or none", "python"), names)
    assert names["prior"].saw == ("test adjacency",)
    assert max(names["prior"].weights, key=names["prior"].weights.get) == "IL"
    assert set(names["learned"].names) == set(names["train"])


def test_the_stub_for_a_linear_model_runs() -> None:
    names = rows_of_states()
    exec(block("If a linear model will do", "python"), names)
    assert names["fit"].relative_gap <= 1e-6
    assert [fit.penalty for fit in names["fits"]] == [math.inf, 10, 1, 0]


def test_the_commands_for_research_can_be_typed() -> None:
    for line in block("If you do research").splitlines():
        check_line(shlex.split(line, comments=True)[1:])


# ---------------------------------------------------------------- the paragraph of results


def claims() -> str:
    """The paragraph, in one line."""
    return " ".join(README.split("## Does it help?\n", 1)[1].split("\n## ", 1)[0].split())


def last(benchmark: str, **where: Any) -> dict[tuple[str, str], Row]:
    """Rows of a benchmark at the last round, by variant and method."""
    rows = Results.read(ROOT / "results" / f"{benchmark}.json").rows
    where = {"selection": "last"} | where
    return {(row.variant, row.method): row for row in rows if all(getattr(row, k) == v for k, v in where.items())}


def test_the_paragraph_has_the_committed_figures_of_dg() -> None:
    text = claims()
    for benchmark, said in {
        "dg15": {"erm": "{} % with ERM", "tro-physical": "{} % with TRO on the true graph",
                 "iw-erm": "same prior and no worst case, has {} %"},
        "dg60": {"erm": "ERM has {} %", "tro-physical": "and TRO {} %", "tro-lambda0": "TRO without a prior has {} %"},
    }.items():  # fmt: skip
        rows = {method: row for (_, method), row in last(benchmark).items()}
        for method, words in said.items():
            assert words.format(f"{rows[method].mean:.1f}") in text, (benchmark, method)


def test_the_paragraph_has_the_committed_figures_of_tpt48() -> None:
    rows = last("tpt48", metric="all")
    for split, words in {"east-west": "{} to {} (east to west)", "north-south": "{} to {} (north to south)"}.items():
        before, after = (rows[f"{split}/season", method].mean for method in ("linear-erm", "linear-chosen"))
        assert words.format(f"{before:.3f}", f"{after:.3f}") in claims()
        networks = [
            row.mean
            for (variant, method), row in rows.items()
            if variant == f"{split}/season" and row.sd is not None and not method.startswith("linear")
        ]
        assert before < min(networks), "plain linear ERM beats every network"


def test_the_paragraph_has_the_measured_figures_of_the_defaults() -> None:
    table = (ROOT / "benchmarks" / "results" / "defaults.md").read_text(encoding="utf-8")
    cells = next(line for line in table.splitlines() if line.startswith("| **auto")).split("|")
    ratio, better = float(cells[9]), cells[10].split()
    assert f"On {better[2]} problems" in claims()
    assert f"squared error is {ratio:.2f} of ERM's and lower in {better[0]}" in claims()


def test_the_paragraph_says_that_nothing_is_gained_on_pacs() -> None:
    rows = last("pacs", selection="averaged", metric="test accuracy (%)")
    ours, erm = (rows[AVERAGE, method] for method in ("tro-data", "erm"))
    assert f"TRO does not gain on ERM ({ours.mean:.1f} and {erm.mean:.1f} with averaged weights)" in claims()
    assert ours.mean < erm.mean
    assert len(ours.per_seed) == len(erm.per_seed) == 3
