"""Roles of columns and groups: what contradicts itself is an error, a graph becomes one over names that are text."""

from __future__ import annotations

from typing import Any

import pytest

from toporo import GroupGraph
from toporo.errors import SettingError, UnknownNameError
from toporo.tables.roles import Roles


def test_lists_become_tuples_of_different_names() -> None:
    roles = Roles.of(target="y", group="g", features=["a", "b", "a"], test_groups=[1, "1", 2.0])
    assert roles.features == ("a", "b")
    assert roles.test_groups == ("1", "2.0")
    assert (roles.exclude, roles.categorical, roles.named) == ((), (), ("a", "b"))
    assert roles.columns == {"the target": "y", "the group": "g"}


def test_a_graph_is_read_once_and_one_to_learn_stays_a_word() -> None:
    read = Roles.of(group="g", graph=[(1, 2)]).read_graph()
    assert isinstance(read.given_graph, GroupGraph)
    assert read.given_graph.names == ("1", "2")
    assert read.read_graph().given_graph == read.given_graph
    learned = Roles.of(group="g", graph="learn").read_graph()
    assert (learned.graph, learned.learns_graph, learned.given_graph) == ("learn", True, None)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"target": "g"}, SettingError, "both the target and the group"),
        ({"target": "y", "weight": "y"}, SettingError, "both the target and the weight"),
        ({"target": "y", "features": ["y"]}, SettingError, "'y' is the target, so it cannot be a feature"),
        ({"exclude": ["g"]}, SettingError, "'g' is the group, so it cannot be excluded"),
        ({"target": "y", "categorical": ["y"]}, SettingError, "cannot be a categorical feature.*--task classification"),
        ({"features": ["a"], "exclude": ["a"]}, SettingError, "both named for use and excluded: 'a'"),
        ({"exclude": "ab"}, SettingError, "exclude is 'ab': expected a list of names"),
        ({"exclude": None}, SettingError, "exclude is None: expected a list of names"),
        ({"task": "ranking"}, UnknownNameError, "unknown task 'ranking'"),
        ({"learn_graph": True}, TypeError, "learn_graph"),
    ],
)
def test_contradictions_are_errors(given: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Roles.of(**{"group": "g", **given})
    with pytest.raises(SettingError, match="no target is named"):
        Roles.of(group="g").require_target()
