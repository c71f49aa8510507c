"""What the README tells people to type works as it stands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def block(heading: str, language: str = "") -> str:
    """The first fenced block under a heading."""
    section = README.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return section.split(f"```{language}\n", 1)[1].split("```", 1)[0]


def test_the_session_from_a_table_to_a_report(
    real_data: Path, toporo: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = block("If you have a table and a deadline").strip().splitlines()
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
            assert f"({better[1]} of {better[2]} states are better with TRO)" in README
    made = {path.name for path in tmp_path.iterdir()}
    assert {"doctor.html", "model", "control", "weights.svg", "predictions.csv", "report.html"} <= made
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 577


def test_the_session_in_scikit_learn(capsys: pytest.CaptureFixture[str]) -> None:
    import sklearn
    from sklearn.model_selection import GridSearchCV

    import toporo as tr

    rng = np.random.default_rng(0)
    state = np.repeat(["NY", "PA", "OH", "IN", "IL"], 30)
    place = np.repeat(np.arange(5.0), 30)
    x = rng.normal(size=(150, 2))
    names = {
        "borders": tr.GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN"), ("IN", "IL"), ("IL", "MO")]),
        "west": ["MO"],
        "X": x,
        "y": (1 + place) * x[:, 0] + x[:, 1],
        "state": state,
        "X_new": x[:3],
    }
    exec(
        block("If you use scikit-learn", "python"), {"tr": tr, "sklearn": sklearn, "GridSearchCV": GridSearchCV} | names
    )
    assert "hops" in capsys.readouterr().out


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_links_lead_somewhere(target: str) -> None:
    assert (Path(__file__).parents[1] / target).exists()
