"""Graphs learned with a fit: how stable they are, and what becomes of a prior that another sample would not give."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np
import pytest

from toporo.choice.penalty import PriorMaker
from toporo.errors import TopoRoWarning
from toporo.estimators import TRORegressor
from toporo.estimators.rows import learn_graph_of
from toporo.tables import TableModel, fit_table
from toporo.tables.model import learned_prior
from toporo.topology.learn import learn_topology


def made_up(rows: int, apart: float, *, groups: int = 7, seed: int = 0) -> dict[str, Any]:
    """Groups in a row, so far apart in the first of three inputs; 0 is no structure at all."""
    rng = np.random.default_rng(seed)
    place = np.repeat(np.arange(groups), rows)
    x = rng.normal(size=(len(place), 3))
    x[:, 0] += apart * place
    columns = {f"x{i}": x[:, i] for i in range(3)}
    return columns | {"site": [f"s{i}" for i in place], "y": x @ [1.0, 2.0, 0.0] + 0.1 * rng.normal(size=len(place))}


CHAIN, NOISE = made_up(100, 1.5), made_up(12, 0.0)
pytestmark = pytest.mark.filterwarnings("ignore:the learned topology is not informative")


def fit(table: Any, **settings: Any) -> TableModel:
    given = {"target": "y", "group": "site", "graph": "learn", "model": "linear", "penalty": 1.0}
    return fit_table(table, **given | settings)


@pytest.mark.parametrize("test", [(), ("s6",)], ids=["no test groups", "a test group"])
def test_a_stable_graph_keeps_its_prior(test: tuple[str, ...]) -> None:
    model = fit(CHAIN, test_groups=test)
    prior = model.estimator.prior_
    assert prior.fallback_reason == ""
    assert prior.bootstrap_rms < 0.2
    assert prior.measure == ("harmonic" if test else "betweenness")
    stable, sure = model.explain().remarks
    assert re.search(r"edges stay in (9\d|100) % of 20 resamples of the rows, on average", stable)
    assert "Another sample would give much the same prior" in sure
    assert sure in model.explain().notes


@pytest.mark.parametrize("test", [(), ("s6",)], ids=["no test groups", "a test group"])
def test_an_unstable_one_is_warned_of_and_spread_evenly(test: tuple[str, ...]) -> None:
    with pytest.warns(TopoRoWarning) as told:
        model = fit(NOISE, test_groups=test, penalty="auto")
    assert sum("another sample would give another prior" in str(one.message) for one in told) == 1
    prior = model.estimator.prior_
    assert prior.measure == "uniform"
    assert len(set(prior.weights.values())) == 1
    assert prior.uniform_share == 0.0
    assert "not distinguishable from chance" in prior.fallback_reason
    words = model.explain().remarks[1]
    assert "it is the same for all groups" in words
    assert words.endswith(f"--set prior={'harmonic' if test else 'betweenness'} takes it anyhow.")


def test_who_names_a_prior_gets_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # that there are few rows in effect
        model = fit(NOISE, prior="betweenness")
    assert model.estimator.prior_.measure == "betweenness"
    assert model.estimator.prior_.effective_groups < 6
    assert len(model.explain().remarks) == 1


def test_folds_follow_what_is_known_of_the_whole() -> None:
    """A penalty is chosen with the prior that it is for."""
    features, names = np.column_stack([NOISE[f"x{i}"] for i in range(3)]), NOISE["site"]
    graph = learn_topology(features, names, scales=4, resamples=10)
    maker = PriorMaker("auto", graph, with_test=False)
    assert maker.fold(list(graph.names)[1:], [graph.names[0]]) is not None
    doubted = PriorMaker("auto", graph, with_test=False, doubted=True)
    assert doubted.fold(list(graph.names)[1:], [graph.names[0]]) is None
    assert doubted.prior(graph.groups, None).measure == "uniform"


def test_votes_are_warned_too() -> None:
    """What their candidates weigh groups by is the harmonic prior, with test groups alone."""
    features, names = np.column_stack([NOISE[f"x{i}"] for i in range(3)]), NOISE["site"]
    graph = learn_topology(features, names, scales=4, resamples=10)
    prior = learned_prior(graph, ["s0", "s1", "s2", "s3", "s4"], ["s5", "s6"])
    assert prior is not None
    assert prior.fallback_reason


def test_an_estimator_doubts_a_learned_graph_too() -> None:
    x = np.column_stack([NOISE[f"x{i}"] for i in range(3)])
    graph = learn_graph_of(x, NOISE["site"])
    with pytest.warns(TopoRoWarning, match="another sample would give another prior"):
        model = TRORegressor(graph=graph).fit(x, NOISE["y"], groups=NOISE["site"])
    assert model.prior_.fallback_reason
    again = fit(CHAIN, graph=model.topology_, penalty=math.inf, prior="uniform")
    assert again.estimator.prior_.fallback_reason == ""


def test_a_graph_without_resamples_says_so() -> None:
    features, names = np.column_stack([CHAIN[f"x{i}"] for i in range(3)]), CHAIN["site"]
    graph = learn_topology(features, names, scales=4, resamples=0)
    model = fit(CHAIN, graph=graph)
    assert "How stable it is was not measured" in model.explain().remarks[0]
    assert model.estimator.prior_.bootstrap_rms is None
    assert fit(CHAIN, graph=None).explain().remarks == ()


def test_advice_on_a_graph_in_pieces_names_the_command_that_has_the_setting() -> None:
    rng = np.random.default_rng(0)
    table = {"g": list("abcdef") * 100, "x": rng.normal(size=600) + np.tile([0, 0, 0, 1e6, 1e6, 1e6], 100)}
    with pytest.warns(TopoRoWarning) as caught:
        fit_table(table | {"y": rng.normal(size=600)}, target="y", group="g", graph="learn", model="linear")
    advice = next(str(warning.message) for warning in caught if "falls into" in str(warning.message))
    assert "Use a larger sigma (toporo topology --set sigma; --graph of other commands takes" in advice
