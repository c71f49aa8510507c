"""The paper's search: what is tried, what each rule gets, going on where it stopped, and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toporo.errors import DataError, DivergedError, SettingError
from toporo.paper import BENCHMARKS, load_dataset, runner
from toporo.paper.methods import PENALTIES, STEPS
from toporo.paper.protocols import Protocol
from toporo.paper.results import Results
from toporo.paper.runner import reproduce
from toporo.paper.runs import Run
from toporo.paper.search import evaluate_rules, hold_out_regions, prepare_search
from toporo.paper.tables import print_results

METHODS = ["erm", "vrex", "tro-physical"]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, small: Protocol) -> Protocol:
    """Four epochs, and grids of a few settings."""
    tro = {"grid": {"penalty": (1.0,), "step": (0.1,)}}
    grids = {"vrex": {"grid": {"penalty": (1.0,), "warm_up": (3,)}}, "sd": {"grid": None}}
    protocol = replace(small, changes={**grids, "tro-physical": tro, "tro-data": tro})
    monkeypatch.setattr(BENCHMARKS["dg15"], "protocol", protocol)
    return protocol


def search_settings(out: Path, seeds: int = 1, **given: Any) -> Results:
    return reproduce("dg15", out, search=True, seeds=seeds, methods=METHODS, **given)


def values(results: Results) -> dict[tuple[str, str], list[float]]:
    """Figures by method and rule."""
    return {(row.method, row.selection): row.per_seed for row in results.rows}


def runs_of(protocol: Protocol, method: str) -> list[Run]:
    protocol, methods = prepare_search(protocol, [method])
    folds = {"": hold_out_regions(load_dataset(protocol.benchmark, source="generated"))}
    return runner.make_runs(protocol, folds, methods, seeds=1)


def test_the_grid_is_the_papers(no_data: None) -> None:
    runs = runs_of(BENCHMARKS["dg15"].protocol, "tro-physical")
    tried = {(run.method.settings["penalty"], run.method.settings["step"]) for run in runs}
    assert tried == {(penalty, step) for penalty in PENALTIES for step in STEPS}
    assert len(runs) == 30 * (1 + 3)


@pytest.mark.filterwarnings("ignore:the prior is flat")
@pytest.mark.parametrize("name", ["dg15", "dg60"])
def test_published_priors_are_there_for_every_fold(name: str, no_data: None) -> None:
    """Betweenness of the groups around a region held out may be 0 for all: then they count alike."""
    folds = hold_out_regions(load_dataset(name, source="generated"))
    weights = [BENCHMARKS[name].priors["published-physical"](data).weights for data in folds]
    assert [set(each) for each in weights] == [set(data.train) for data in folds]
    assert any(len(set(each.values())) == 1 for each in weights[1:])
    assert len(set(weights[0].values())) > 1


def test_with_its_own_settings_a_method_has_the_figures_of_the_table(few: Protocol, tmp_path: Path) -> None:
    """No rule beats the oracle, and what is stored can be read again."""
    found = search_settings(tmp_path / "search", seeds=2)
    by_rule = values(found)
    table = values(reproduce("dg15", tmp_path / "table", seeds=2, methods=METHODS))
    for name in METHODS:
        assert by_rule[name, "own"] == pytest.approx(table[name, "last"], abs=1e-6)
        assert found.about["search"][""][name]["last"][0] == pytest.approx(by_rule[name, "own"], abs=1e-6)
        for rule in ("own", "validation", "regions"):
            assert np.all(np.array(by_rule[name, rule]) <= by_rule[name, "oracle"])
    saw = {row.selection: row.saw for row in found.rows if row.method == "erm"}
    assert (saw["validation"], saw["regions"], saw["oracle"]) == ([], ["test adjacency"], ["test labels"])
    again = Results.read(tmp_path / "search" / "results.json", "dg15")
    assert (again.rows, again.about["search"]) == (found.rows, found.about["search"])
    with pytest.raises(DataError, match=r"incomplete, without .*'erm', 'own'"):
        print_results(replace(again, rows=again.rows[1:]))


@pytest.mark.filterwarnings("ignore:the prior is flat")
def test_a_prior_is_learned_on_every_fold(few: Protocol, tmp_path: Path) -> None:
    found = reproduce("dg15", tmp_path, search=True, seeds=1, methods=["tro-data"])
    assert {row.method for row in found.rows} == {"tro-data"}


def evaluate(runs: list[Run], figure: Callable[[Run], list[list[float]]]) -> Results:
    """Evaluate a search of one method from (round, validation, test) by run."""
    protocol = runs[0].protocol
    records = [
        {
            "variant": "", "method": run.method.name, "settings": dict(run.method.settings), "fold": run.fold,
            "seed": run.seed, "prior": None, "source": "generated",
            "history": [{"round": at, "metrics": {"validation": v, "test": t}} for at, v, t in figure(run)],
        }
        for run in runs
    ]  # fmt: skip
    return evaluate_rules(Results(protocol, [], records=records))


def test_what_looks_equally_good_counts_as_its_mean(few: Protocol) -> None:
    runs = runs_of(few, "tro-physical")
    own = dict(few.method("tro-physical").settings)

    def figure(run: Run) -> list[list[float]]:
        mine = run.method.settings == own
        if run.fold:
            return [[2, 1.0, 0.2], [4, 1.0, 0.7 + mine]]
        return [[2, 1.0, 0.1], [4, 1.0, 0.9 if mine else 0.5]]

    found = evaluate(runs, figure)
    by_rule = {rule: of for (_, rule), of in values(found).items()}
    assert by_rule["validation"] == pytest.approx([100 * np.mean([0.9, 0.5])])
    assert by_rule["validation, epoch too"] == pytest.approx([100 * np.mean([0.1, 0.1, 0.9, 0.5])])
    assert by_rule["regions"] == by_rule["own"] == [90.0]
    assert found.about["search"][""]["tro-physical"]["chosen"]["regions"] == [own]


def test_a_setting_that_diverged_is_not_chosen(few: Protocol) -> None:
    runs = runs_of(few, "tro-physical")

    def figure(run: Run) -> list[list[float]]:
        if run.method.settings == few.method("tro-physical").settings:
            return [[2, 0.5, 0.6], [4, 0.5, 0.6]]
        return [] if run.fold == 1 else [[2, 1.0, 1.0], [4, 1.0, 1.0]]

    assert set(map(tuple, values(evaluate(runs, figure)).values())) == {(60.0,)}
    with pytest.raises(DivergedError, match="tro-physical: training diverged with the settings of the table"):
        evaluate(runs, lambda run: [] if run.fold == 1 else [[2, 0.5, 0.6]])


def test_it_goes_on_where_it_stopped(few: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do_run, calls = runner.do_run, []

    def interrupted(*given: Any) -> Any:
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(given)
        return do_run(*given)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "do_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            search_settings(tmp_path / "a")
    seen: list[int] = []
    search_settings(tmp_path / "a", progress=lambda done, *_: seen.append(done))
    assert seen[0] == 3
    search_settings(tmp_path / "b")
    assert (tmp_path / "a" / "results.json").read_bytes() == (tmp_path / "b" / "results.json").read_bytes()


def test_the_command_shows_a_search_again(few: Protocol, toporo: Callable[..., Any], tmp_path: Path) -> None:
    asked = ("reproduce", "dg15", "--search", "--seeds", "1", "--methods", "erm,tro-physical", "--jobs", "1")
    done = toporo(*asked, "--out", str(tmp_path))
    assert done.code == 0, done.out + done.err
    assert "0/12 runs" in done.err
    assert "with settings as each rule chooses them" in done.out
    shown = toporo("reproduce", "dg15", "--search", "--show", str(tmp_path / "results.json"), "--markdown")
    assert shown.out.startswith("DG-15: test accuracy (%) with settings as each rule chooses them")
    assert "| TRO-physical | 2 | " in shown.out
    again = toporo(*asked, "--out", str(tmp_path), "--json")
    assert json.loads(again.out) == json.loads((tmp_path / "results.json").read_text())["rows"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            ("dg15", "--search", "--methods", "sd"),
            "sd cannot be searched, without a grid of settings; expected some of erm, iw-erm",
        ),
        (("dg15", "--search", "--set", "steps=5"), "--search is for dg15, dg60 and tpt48"),
    ],
)
def test_bad_input_is_a_clear_error(
    few: Protocol, toporo: Callable[..., Any], tmp_path: Path, asked: tuple[str, ...], message: str
) -> None:
    done = toporo("reproduce", *asked, "--out", str(tmp_path / "out"))
    assert done.code == (2 if "--search is" in message else 1)
    assert message in " ".join((done.out + done.err).split())
    assert not (tmp_path / "out").exists()


def test_a_search_needs_networks_on_plain_rows_and_three_training_groups(no_data: None) -> None:
    with pytest.raises(SettingError, match="pacs has none"):
        prepare_search(BENCHMARKS["pacs"].protocol)
    loaded = load_dataset("dg15", source="generated")
    with pytest.raises(DataError, match="dg15 has 2 training groups"):
        hold_out_regions(replace(loaded, train=loaded.train[:2]))
