"""What makes groups never seen harder, on tables of which it is known: found where it is, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.doctor.cases import case_of
from toporo.doctor import Finding
from toporo.doctor.case import Case
from toporo.doctor.results import Ahead, GraphEvidence, Losses
from toporo.doctor.shift import measure_shift
from toporo.doctor.unseen import graph_says, shifted_regions, shifted_times

SIDE, SIZE = 5, 40
NAMES = [f"g{place:02d}" for place in range(SIDE**2)]
PLACES = np.array([divmod(place, SIDE) for place in range(SIDE**2)])
#: A square of groups.
GRID = [
    (NAMES[i], NAMES[j])
    for i in range(SIDE**2)
    for j in range(i)
    if np.abs(PLACES[i] - PLACES[j]).sum() == 1
]  # fmt: skip
CHAIN = list(pairwise(NAMES[:12]))


def made(kind: str, seed: int = 0, classes: bool = False) -> dict[str, Any]:
    """Groups of one size; y depends on two inputs, and on what ``kind`` says."""
    rng = np.random.default_rng(seed)
    count = 12 if kind == "inputs" else SIDE**2
    g, year = np.repeat(np.arange(count), SIZE), np.tile(np.arange(SIZE), count)
    x = rng.normal(size=(len(g), 3))
    own, noise = np.zeros(count), 0.7
    if kind == "neighbours":
        alike = np.exp(-((PLACES[:, None] - PLACES[None]) ** 2).sum(axis=2) / 4.0)
        own = 0.9 * np.linalg.cholesky(alike + 1e-8 * np.eye(count)) @ rng.normal(size=count)
    y = np.sin(2 * x[:, 0]) + x[:, 1]
    if kind == "later":
        y = y + np.where(year > 26, 2.0 * x[:, 2], 0.0)
    if kind == "inputs":
        x[:, 0] += 3 * g
        y, noise = 0.8 * x[:, 0] + x[:, 1], 2.5
    y = y + own[g] + noise * rng.normal(size=len(g))
    return {
        "g": [NAMES[k] for k in g],
        "a": x[:, 0].tolist(), "b": x[:, 1].tolist(), "c": x[:, 2].tolist(), "year": (1980 + year).tolist(),
        "y": ["yes" if value > 0 else "no" for value in y] if classes else y.tolist(),
    }  # fmt: skip


def measured(kind: str, **given: Any) -> Case:
    graph = CHAIN if kind == "inputs" else GRID
    case, failed = measure_shift(case_of(made(kind, **given), target="y", graph=graph))
    assert failed == {}
    return case


def codes(findings: Iterable[Finding]) -> dict[str, str]:
    return {finding.code: finding.severity for finding in findings}


@pytest.fixture(scope="module")
def plain() -> Case:
    return measured("nothing")


def test_where_groups_are_alike_nothing_is_said(plain: Case) -> None:
    assert codes(shifted_regions(plain)) == {}
    assert codes(shifted_times(plain)) == {}
    assert codes(graph_says(plain)) == {"silent-graph": "note"}


def test_effects_that_follow_the_graph_are_another_relation_and_the_graph_tells() -> None:
    case = measured("neighbours")
    assert codes(shifted_regions(case)) == {"relation-shift": "risky"}
    assert codes(graph_says(case)) == {"telling-graph": "note"}
    assert case.losses is not None
    assert case.losses.relation > 0.9 * case.losses.gap
    text = next(iter(shifted_regions(case)))
    assert "Weights of groups cannot mend that" in text.step
    assert "--model kriged" in text.step


def test_inputs_that_no_other_group_has_are_not_taken_for_another_relation() -> None:
    """One line holds for all groups, which lie along it: trees do not know how it goes on."""
    case = measured("inputs")
    assert codes(shifted_regions(case)) == {"input-shift": "risky"}
    assert case.losses is not None
    assert case.losses.relation < 0.4 * case.losses.gap
    assert "weights cannot make up" in next(iter(shifted_regions(case))).step


def test_a_relation_that_changes_in_time_is_found_by_time_alone() -> None:
    case = measured("later")
    assert codes(shifted_times(case)) == {"time-shift": "risky"}
    assert codes(shifted_regions(case)) == {}
    finding = next(iter(shifted_times(case)))
    assert finding.subjects == ("year",)
    assert "after 2009" in finding.step


def test_classes_are_measured_by_their_probabilities(plain: Case) -> None:
    case = measured("neighbours", classes=True)
    assert codes(shifted_regions(case)).keys() == {"relation-shift"}
    assert codes(graph_says(case)) == {"telling-graph": "note"}
    assert codes(shifted_regions(measured("nothing", classes=True))) == {}


def test_the_parts_make_up_the_whole(plain: Case) -> None:
    losses = plain.losses
    assert losses is not None
    assert losses.inputs + losses.relation + losses.beyond == pytest.approx(losses.gap)


def test_neither_the_order_of_rows_nor_targets_of_test_groups_matter(plain: Case) -> None:
    table = made("nothing")
    order = np.random.default_rng(3).permutation(len(table["g"]))
    again, _ = measure_shift(case_of({k: [v[i] for i in order] for k, v in table.items()}, target="y", graph=GRID))
    assert (again.losses, again.ahead, again.evidence) == (plain.losses, plain.ahead, plain.evidence)
    odd = table | {"y": [1e6 if g == "g00" else y for g, y in zip(table["g"], table["y"], strict=True)]}
    first, second = (
        measure_shift(case_of(each, target="y", graph=GRID, test_groups=("g00",)))[0] for each in (table, odd)
    )
    assert (first.losses, first.evidence) == (second.losses, second.evidence)


@pytest.mark.parametrize(
    ("change", "given", "what", "why"),
    [
        ({"y": [1.0] * 1000}, {"task": "regression"}, "losses in held-out regions", "constant"),
        ({"y": [f"class {i % 12}" for i in range(1000)]}, {}, "losses in held-out regions", "12 classes"),
        ({}, {"test_groups": NAMES[3:]}, "losses in held-out regions", "fewer than 4 training groups have three rows"),
        ({}, {"exclude": ("a", "b", "c", "year")}, "losses in held-out regions", "no column"),
        ({"g": [f"pair {i // 2}" for i in range(1000)]}, {"graph": None}, "losses in held-out regions", "three rows"),
        ({}, {"graph": GRID[:-2]}, "what the graph says", "missing from the graph"),
        ({}, {"test_groups": NAMES[7:]}, "what the graph says", "fewer than 8"),
    ],
)
@pytest.mark.usefixtures("quick")
def test_what_cannot_be_measured_is_said(change: dict[str, Any], given: dict[str, Any], what: str, why: str) -> None:
    case, failed = measure_shift(case_of(made("nothing") | change, target="y", **({"graph": GRID} | given)))
    assert why in failed[what]
    assert [f for check in (shifted_regions, shifted_times) for f in check(case)] == []


@pytest.mark.usefixtures("quick")
def test_without_a_target_there_is_nothing_to_say() -> None:
    table = made("nothing")
    case, failed = measure_shift(case_of({name: table[name] for name in table if name != "y"}, graph=GRID))
    assert failed == {}
    assert case.losses is None


# ---------------------------------------------------------------- what is made of the numbers


def losses(**given: float) -> Losses:
    usual = {"seen": 0.5, "unseen": 1.0, "inputs": 0.05, "relation": 0.4, "beyond": 0.05, "error": 0.05,
             "relation_error": 0.05}  # fmt: skip
    return Losses(**(usual | given), regions=5, points=1000)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({}, {"relation-shift": "risky"}),
        ({"relation_error": 0.3}, {"relation-shift": "note"}),
        ({"relation": 0.05, "inputs": 0.4}, {"input-shift": "risky"}),
        ({"error": 0.3}, {}),
        ({"seen": 0.95}, {}),
        ({"seen": 0.001, "unseen": 0.01, "relation": 0.009}, {}),
    ],
)
def test_a_difference_is_said_if_it_is_large_and_sure(plain: Case, numbers: dict[str, float], expected: Any) -> None:
    assert codes(shifted_regions(replace(plain, losses=losses(**numbers)))) == expected


def test_weights_are_advised_only_where_they_can_mend(plain: Case) -> None:
    def step(**numbers: float) -> str:
        return next(iter(shifted_regions(replace(plain, losses=losses(**numbers))))).step

    assert "Weights can mend that" in step(relation=0.05, inputs=0.4)
    assert "weights cannot make up" in step(relation=0.05, beyond=0.4, inputs=0.05)
    assert "kriging can" in step(relation=0.2, beyond=0.3, inputs=0.0)
    assert "kriging can" not in step(relation=0.05, beyond=0.4, inputs=0.05)


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        (Ahead(0.5, 2.0, 0.1, 2000.0), {"time-shift": "risky"}),
        (Ahead(0.5, 0.8, 0.09, 2000.0), {"time-shift": "note"}),
        (Ahead(0.5, 0.8, 0.2, 2000.0), {}),
        (None, {}),
    ],
)
def test_a_split_in_time_is_fairer_where_time_does_more_than_groups(
    plain: Case, ahead: Ahead | None, expected: dict[str, str]
) -> None:
    assert codes(shifted_times(replace(plain, losses=losses(), ahead=ahead))) == expected


@pytest.mark.parametrize(
    ("gate", "as_well", "code"),
    [
        (0.9, 0, "telling-graph"),
        (0.2, 0, "faint-graph"),
        (0.9, 1, "faint-graph"),
        (0.9, 4, "silent-graph"),
        (0.1, 9, "silent-graph"),
    ],
)
def test_a_graph_tells_if_shuffled_ones_do_not(plain: Case, gate: float, as_well: int, code: str) -> None:
    told = GraphEvidence(gate=gate, gain=3.0, shuffles=19, as_well=as_well, groups=25)
    assert codes(graph_says(replace(plain, evidence=told))) == {code: "note"}
