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
from toporo.paper import BENCHMARKS, load_dataset, runner, search
from toporo.paper.methods import PENALTIES, STEPS
from toporo.paper.protocols import Protocol
from toporo.paper.results import Row
from toporo.paper.runner import reproduce
from toporo.paper.runs import Run
from toporo.paper.search import SearchPlan, make_plan, read_search, search_settings

METHODS = ["erm", "vrex", "tro-physical"]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, small: Protocol) -> Protocol:
    """Four epochs, and grids of a few settings."""
    tro = {"grid": {"penalty": (1.0,), "step": (0.1,)}}
    grids = {"vrex": {"grid": {"penalty": (1.0,), "warm_up": (3,)}}, "sd": {"grid": None}}
    protocol = replace(small, changes={**grids, "tro-physical": tro, "tro-data": tro})
    monkeypatch.setattr(BENCHMARKS["dg15"], "protocol", protocol)
    return protocol


def plan_of(name: str = "dg15", protocol: str = "fair", **options: Any) -> SearchPlan:
    benchmark = BENCHMARKS[name].under(protocol)
    (variant,) = benchmark.get_variants()
    return make_plan(benchmark, variant, load_dataset(name, source="generated"), **options)


def test_the_grid_is_the_papers(no_data: None) -> None:
    plan = plan_of(methods=["tro-physical"])
    tried = {(run.method.settings["penalty"], run.method.settings["step"]) for run in plan.runs}
    assert tried == {(penalty, step) for penalty in PENALTIES for step in STEPS}
    assert len(plan.runs) == 30 * 3 * (1 + len(plan.likeness))


@pytest.mark.filterwarnings("ignore:the prior is flat")
@pytest.mark.parametrize("name", ["dg15", "dg60"])
def test_published_priors_are_there_for_every_fold(name: str, no_data: None) -> None:
    """Betweenness of the groups around a region held out may be 0 for all: then they count alike."""
    benchmark, plan = BENCHMARKS[name].under("paper"), plan_of(name, "paper", seeds=1)
    weights = [benchmark.priors["published-physical"](data).weights for data in plan.data]
    assert [set(each) for each in weights] == [set(data.train) for data in plan.data]
    assert any(len(set(each.values())) == 1 for each in weights[1:])
    assert len(set(weights[0].values())) > 1


def test_with_its_own_settings_a_method_has_the_figures_of_the_table(few: Protocol, tmp_path: Path) -> None:
    found = search_settings("dg15", tmp_path / "search", seeds=2, methods=METHODS)
    rows = reproduce("dg15", tmp_path / "table", seeds=2, methods=METHODS).rows
    table: dict[str, Row] = {row.method: row for row in rows if row.selection == "last"}
    for name, one in found.variants[0].methods.items():
        assert one.rules["own"].values == pytest.approx(table[name].per_seed, abs=1e-6)
        assert one.last[0] == pytest.approx(one.rules["own"].values)


def test_no_rule_beats_the_oracle_and_regrets_are_what_is_missing(few: Protocol, tmp_path: Path) -> None:
    found = search_settings("dg15", tmp_path, seeds=2, methods=METHODS)
    assert list(found.variants[0].methods) == METHODS
    for one in found.variants[0].methods.values():
        best = one.rules["oracle"].values
        for choice in one.rules.values():
            assert choice.regrets == pytest.approx(np.subtract(best, choice.values), abs=1e-5)
            assert min(choice.regrets) >= 0
        assert one.rules["oracle"].regrets == [0.0, 0.0]
        assert all(map(np.greater_equal, one.epochs["oracle"].values, best))
    assert read_search(tmp_path / "search.json", "dg15") == found


def test_a_lower_error_is_the_better_one(few: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BENCHMARKS["dg15"], "protocol", replace(few, better="lower"))
    one = search_settings("dg15", tmp_path, seeds=1, methods=["tro-physical"]).variants[0].methods["tro-physical"]
    assert one.rules["oracle"].values[0] == min(value for (value,) in one.last)
    assert one.rules["own"].regrets[0] > 0


def test_a_prior_is_learned_on_a_fold_without_the_benchmarks_test_groups(
    few: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A summary may know the test groups alone, as that of TPT-48 does."""
    plain = BENCHMARKS["dg15"].summary

    def strict(values: dict[Any, float], loaded: Any) -> dict[str, Any]:
        assert set(values) == set(load_dataset("dg15", source="generated").test)
        return plain(values, loaded)

    monkeypatch.setattr(BENCHMARKS["dg15"], "summary", strict)
    found = search_settings("dg15", tmp_path, seeds=1, methods=["tro-data"])
    assert list(found.variants[0].methods) == ["tro-data"]


def histories(plan: SearchPlan, figure: Callable[[Run, int], list[list[float]]]) -> dict[str, Any]:
    """Records by key from (round, validation, test) by run and fold."""
    return {
        run.key: {
            "history": [
                {"round": at, "metrics": {"validation": validation, "test": test}}
                for at, validation, test in figure(run, run.fold)
            ]
        }
        for run in plan.runs
    }


def test_what_looks_equally_good_counts_as_its_mean(few: Protocol) -> None:
    plan = plan_of(seeds=1, methods=["tro-physical"])
    own = dict(plan.protocol.method("tro-physical").settings)

    def figure(run: Run, fold: int) -> list[list[float]]:
        mine = run.method.settings == own
        return [[2, 1.0, 0.1], [4, 1.0, 0.9 if mine else 0.5]] if not fold else [[2, 1.0, 0.2], [4, 1.0, 0.7 + mine]]

    one = search.evaluate_rules(plan, histories(plan, figure)).methods["tro-physical"]
    assert one.rules["validation"].values == pytest.approx([100 * np.mean([0.9, 0.5])])
    assert one.rules["validation"].taken[0]["equal"] == 2
    assert one.epochs["validation"].values == pytest.approx([100 * np.mean([0.1, 0.1, 0.9, 0.5])])
    assert one.epochs["validation"].taken[0]["equal"] == 4
    assert one.rules["regions"].values == [90.0]
    assert one.rules["regions"].taken == [{"settings": own, "epoch": 4, "equal": 1}]
    assert one.rules["own"].values == [90.0]


def test_a_setting_that_diverged_is_not_chosen(few: Protocol) -> None:
    plan = plan_of(seeds=1, methods=["tro-physical"])
    own = dict(plan.protocol.method("tro-physical").settings)

    def figure(run: Run, fold: int) -> list[list[float]]:
        good = [[2, 0.5, 0.6], [4, 0.5, 0.6]]
        if run.method.settings == own:
            return good
        return [] if fold == 1 else [[2, 1.0, 1.0], [4, 1.0, 1.0]]

    one = search.evaluate_rules(plan, histories(plan, figure)).methods["tro-physical"]
    assert {rule: choice.values for rule, choice in one.rules.items()} == {rule: [60.0] for rule in one.rules}


def test_a_method_that_diverges_with_its_own_settings_is_an_error(few: Protocol) -> None:
    plan = plan_of(seeds=1, methods=["erm"])
    with pytest.raises(DivergedError, match="erm: training diverged with the settings of the table"):
        search.evaluate_rules(plan, histories(plan, lambda run, fold: [] if fold == 1 else [[2, 0.5, 0.6]]))


def test_it_goes_on_where_it_stopped(few: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do_run, calls = runner.do_run, []

    def interrupted(*given: Any) -> Any:
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(given)
        return do_run(*given)

    monkeypatch.setattr(runner, "do_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search_settings("dg15", tmp_path / "a", seeds=1, methods=METHODS)
    monkeypatch.setattr(runner, "do_run", do_run)
    seen: list[int] = []
    search_settings("dg15", tmp_path / "a", seeds=1, methods=METHODS, progress=lambda done, *_: seen.append(done))
    assert seen[0] == 3
    search_settings("dg15", tmp_path / "b", seeds=1, methods=METHODS)
    assert (tmp_path / "a" / "search.json").read_bytes() == (tmp_path / "b" / "search.json").read_bytes()


def test_the_command_says_how_much_there_is_to_do_and_shows_it_again(
    few: Protocol, toporo: Callable[..., Any], tmp_path: Path
) -> None:
    asked = ("reproduce", "dg15", "--search", "--seeds", "1", "--methods", "erm,tro-physical", "--jobs", "1")
    done = toporo(*asked, "--out", str(tmp_path))
    assert done.code == 0, done.out + done.err
    assert "12 runs: 3 folds and all training groups, 1 seed(s)." in done.out + done.err
    assert "TRO-physical" in done.out
    shown = toporo("reproduce", "dg15", "--search", "--show", str(tmp_path / "search.json"), "--markdown")
    assert shown.out.startswith("DG-15: test accuracy (%) with settings as each rule chooses them")
    assert "| TRO-physical | 2 | " in shown.out
    again = toporo(*asked, "--out", str(tmp_path), "--json")
    assert json.loads(again.out)["benchmark"] == "dg15"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            ("dg15", "--search", "--methods", "sd"),
            "sd cannot be searched, without a grid of settings; expected some of erm, iw-erm",
        ),
        (("dg15", "--search", "--set", "steps=5"), "--search is for dg15, dg60 and tpt48"),
        (("dg15", "--search", "--show", "nowhere.json"), "no results in ."),
        (("dg60", "--search", "--show", "search.json"), "has a search of dg15"),
        (("dg15", "--search", "--show", "other.json"), "is not a search of toporo"),
    ],
)
def test_bad_input_is_a_clear_error(
    few: Protocol, toporo: Callable[..., Any], tmp_path: Path, asked: tuple[str, ...], message: str
) -> None:
    (tmp_path / "other.json").write_text("[1]")
    stored = {"schema": "toporo.search/1", "benchmark": "dg15", "protocol": "fair", "seeds": 1, "variants": []}
    (tmp_path / "search.json").write_text(json.dumps(stored))
    done = toporo("reproduce", *asked, "--out", str(tmp_path / "out"))
    assert done.code == (2 if "--search is" in message else 1)
    assert message in " ".join((done.out + done.err).split())
    assert not (tmp_path / "out").exists()


def test_a_search_needs_networks_on_plain_rows_and_three_training_groups(no_data: None) -> None:
    loaded = load_dataset("dg15", source="generated")
    for name, groups, message in (("pacs", 6, "pacs has none"), ("dg15", 2, "dg15 has 2 training groups")):
        benchmark = BENCHMARKS[name]
        with pytest.raises((SettingError, DataError), match=message):
            make_plan(benchmark, benchmark.get_variants()[0], replace(loaded, train=loaded.train[:groups]))
