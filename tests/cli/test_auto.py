"""``toporo fit`` as it comes, by votes, and what the other commands make of it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tables.cases import STATIONS, STREAM, as_csv, floods, river
from toporo.estimators import AutoRegressor
from toporo.tables import load_model

Run = Callable[..., Any]
FIT = ("fit", "river.csv", "--target", "y", "--group", "station", "--out", "model")
GRAPH = ("--graph", "edges.csv", "--test-groups", "lock,mouth")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "river.csv").write_text(as_csv(river(groups=STATIONS)))
    (tmp_path / "new.csv").write_text(as_csv(river(3, groups=STATIONS)))
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in STREAM))
    return tmp_path


@pytest.fixture
def fitted(toporo: Run, files: Path) -> Path:
    done = toporo(*FIT, *GRAPH)
    assert done.code == 0, done.err
    return files / "model"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


# ---------------------------------------------------------------- fit


def test_fit_shows_the_league(toporo: Run, files: Path) -> None:
    done = toporo(*FIT, *GRAPH)
    assert done.code == 0, done.err
    for words in (
        "280 rows in 7 groups",
        "80 rows of test groups set aside",
        "Candidates:",
        "trees with context",
        "It is carried by",
    ):
        assert words in done.out
    for words in ("Prior", "Penalty"):
        assert words not in done.out
    assert "In what is left, the graph counts for" in done.out
    assert len(done.out.splitlines()) < 40
    assert left(files) == []


def test_the_summary_as_json_has_the_league(toporo: Run, files: Path) -> None:
    done = toporo(*FIT, *GRAPH, "--json")
    assert done.err == "model: model\n", "no progress beside JSON"
    content = json.loads(done.out, parse_constant=pytest.fail)
    assert content["league"][0].keys() == {"candidate", "error", "worst", "vote", "note"}
    assert sum(row["vote"] for row in content["league"]) == pytest.approx(1.0)
    assert content["words"]
    assert content["penalty"] is None
    assert content["about"]["method"] == "auto"


def test_fast_is_the_linear_model(toporo: Run, files: Path) -> None:
    done = toporo(*FIT, *GRAPH, "--model", "linear")
    assert done.code == 0, done.err
    assert "The penalty is " in done.out
    assert done.err == ""
    assert type(load_model(files / "model").estimator).__name__ == "TRORegressor"
    again = toporo(*FIT, *GRAPH, "--set", "penalty=auto", "--overwrite")
    assert again.out == done.out, "a setting of weights asks for it too"
    content = json.loads(toporo(*FIT, *GRAPH, "--model", "linear", "--overwrite", "--json").out)
    assert "league" not in content
    assert content["groups"][0]["group"] in STATIONS


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (
            ["--model", "auto", "--set", "penalty=1"],
            1,
            "does not take penalty: leave penalty out, or fit the linear model",
        ),
        (["--model", "auto", "--set", "method=erm", "--set", "ridge=1"], 1, "--model linear (model='linear')"),
        (["--model", "forest"], 2, "unknown value 'forest'"),
        (["--model", "trees", "--set", "penalty=1"], 1, "model 'trees' decides for itself"),
        (["--model", "linear", "--budget", "2"], 1, "unknown setting 'budget'"),
        (["--budget", "0"], 2, "--budget"),
    ],
)
def test_what_it_does_not_take_is_said(toporo: Run, files: Path, more: list[str], code: int, words: str) -> None:
    done = toporo(*FIT, *more)
    assert done.code == code
    assert words in " ".join(done.err.replace("│", " ").split())
    assert not (files / "model").exists()


# ---------------------------------------------------------------- what is tried, and going on


class Slow:
    """What a fit was told, and how it ends."""

    told: dict[str, Any]
    end: BaseException | None = None


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Votes that keep a file of what they try, and are interrupted or fail if they are told to."""
    watched, fit = Slow(), AutoRegressor.fit

    def slowly(self: Any, *given: Any, **named: Any) -> Any:
        watched.told = self.get_params(deep=False)
        Path(self.resume).mkdir(parents=True)
        (Path(self.resume) / "trees").touch()
        if watched.end is not None:
            raise watched.end
        return fit(self.set_params(resume=None), *given, **named)

    monkeypatch.setattr(AutoRegressor, "fit", slowly)
    return watched


def test_settings_arrive_and_what_is_quick_shows_nothing(toporo: Run, files: Path, slow: Slow) -> None:
    done = toporo(*FIT, *GRAPH, "--budget", "2", "--set", "seed=7")
    assert done.code == 0, done.err
    assert done.err == ""
    assert (slow.told["budget"], slow.told["random_state"]) == (120.0, 7)
    assert slow.told["test_groups"] == ["lock", "mouth"]
    assert slow.told["resume"] == Path(os.path.realpath(files / ".model.resume"))
    assert left(files) == []


def test_an_interrupted_fit_says_that_it_goes_on(toporo: Run, files: Path, slow: Slow) -> None:
    slow.end = KeyboardInterrupt()
    done = toporo(*FIT, *GRAPH, "--json")
    assert done.code == 130
    assert done.out == ""
    assert "is in .model.resume: the same command goes on from there." in done.err
    assert "toporo: interrupted; no file was left half-written." in done.err
    assert left(files) == [".model.resume"]
    assert not (files / "model").exists()


# ---------------------------------------------------------------- what the other commands make of it


def test_predict_writes_intervals_and_takes_groups(toporo: Run, fitted: Path) -> None:
    done = toporo("predict", "model", "new.csv", "--interval", "0.8")
    assert done.code == 0, done.err
    table = rows(done.out)
    assert list(table[0]) == ["station", "prediction", "lower", "upper"]
    columns = np.array([[float(row[name]) for name in ("prediction", "lower", "upper")] for row in table]).T
    assert np.array_equal(columns, load_model(fitted).predict("new.csv", interval=0.8))
    lines = Path("new.csv").read_text().splitlines()
    Path("bare.csv").write_text("\n".join(line.partition(",")[2] for line in lines))
    done = toporo("predict", "model", "bare.csv")
    assert (done.code, done.out) == (1, "")
    assert "lacks the column 'station'. A model by votes looks at all rows of a group" in done.err
    Path("sea.csv").write_text("\n".join([lines[0], *("sea," + line.partition(",")[2] for line in lines[-40:])]))
    done = toporo("predict", "model", "sea.csv")
    assert done.code == 1
    assert "not in the graph: 'sea'" in done.err


def test_explain_prints_draws_and_writes_the_league(toporo: Run, fitted: Path) -> None:
    done = toporo("explain", "model", "--out", "league.csv", "--out", "effects.png")
    assert done.code == 0, done.err
    league = load_model(fitted).estimator.league_
    assert done.out.count("It is carried by") == 1
    assert "Errors are squared, in groups left out" in done.out
    table = rows(Path("league.csv").read_text())
    assert [row["candidate"] for row in table] == [row.name for row in league]
    assert float(table[0]["vote"]) == league[0].vote
    assert Path("effects.png").stat().st_size > 5000
    content = json.loads(toporo("explain", "model", "--json").out, parse_constant=pytest.fail)
    assert [row["candidate"] for row in content["league"]] == [row.name for row in league]
    assert {row["group"] for row in content["effects"]} == set(STATIONS)


def test_classes_go_all_the_way_without_a_graph(toporo: Run, tmp_path: Path) -> None:
    (tmp_path / "floods.csv").write_text(as_csv(floods()))
    done = toporo("fit", "floods.csv", "--target", "flood", *FIT[4:])
    assert done.code == 0, done.err
    assert "There is no graph" in done.out
    table = rows(toporo("predict", "model", "floods.csv").out)
    assert list(table[0]) == ["station", "prediction", "probability of no", "probability of yes"]
    assert toporo("explain", "model", "--out", "votes.svg").code == 0
    assert Path("votes.svg").stat().st_size > 5000
    done = toporo("report", "model", "floods.csv", "--set", "resamples=20", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["league"]
