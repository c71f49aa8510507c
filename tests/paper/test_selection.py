"""Which epoch counts."""

from __future__ import annotations

import pytest

from toporo.paper.results import SELECTIONS, select

HISTORY = [
    {"validation": 0.7, "test": 0.5},
    {"validation": 0.9, "test": 0.4},
    {"validation": 0.9, "test": 0.8},
    {"validation": 0.8, "test": 0.6},
]


@pytest.mark.parametrize(("rule", "epoch"), [("last", 3), ("validation", 1), ("oracle", 2)])
def test_each_rule_picks_its_epoch_and_the_earliest_of_equals(rule: str, epoch: int) -> None:
    assert select(HISTORY, rule) == HISTORY[epoch]


@pytest.mark.parametrize(("rule", "epoch"), [("last", 3), ("validation", 0), ("oracle", 1)])
def test_errors_are_better_the_lower_they_are(rule: str, epoch: int) -> None:
    assert select(HISTORY, rule, "lower") == HISTORY[epoch]


def test_validation_never_looks_at_test_values() -> None:
    blinded = [{"validation": record["validation"]} for record in HISTORY]
    assert select(blinded, "validation") == blinded[HISTORY.index(select(HISTORY, "validation"))]


def test_averaged_weights_are_told_under_the_names_of_the_others() -> None:
    """At the last epoch; where there are none, the others stand in."""
    averaged = [*HISTORY[:3], {**HISTORY[3], "averaged_test": 0.9, "averaged_validation": 0.85}]
    found = select(averaged, "averaged")
    assert (found["test"], found["validation"]) == (0.9, 0.85)
    assert select(averaged, "last")["test"] == 0.6
    assert select(HISTORY, "averaged") == HISTORY[3]


def test_only_the_oracle_says_it_saw_test_labels() -> None:
    assert {name: rule.saw for name, rule in SELECTIONS.items() if rule.saw} == {"oracle": ("test labels",)}
