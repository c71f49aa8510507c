"""Two objectives share an identity if and only if their classes and constructor arguments are equal."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from toporo.errors import DataError, SettingError
from toporo.groups import Groups
from toporo.objectives import ERM, TRO, Objective, VREx
from toporo.objectives.identity import to_json
from toporo.topology.prior import Prior

NAMES = ("a", "b")


class Method(Objective):
    """A third-party method that follows the convention."""

    def __init__(self, groups, penalty=1.0, *, switch=False):
        super().__init__(groups)
        self.penalty = penalty
        self.switch = switch

    def compute(self, losses, codes, *, logits, features):
        return losses.mean()


class Derived(Method):
    """Has arguments other than its parent's."""

    def __init__(self, groups, level):
        super().__init__(groups, penalty=2.0, switch=True)
        self.level = level


class Inheriting(Method):
    """Without a constructor of its own."""


def test_equal_arguments_in_any_form_share_an_identity():
    given = Method(NAMES, 1.0), Method(NAMES, penalty=1.0), Method(groups=NAMES), Method(NAMES, 1)
    assert all(objective.identity == given[0].identity for objective in given)
    assert ERM(["b", "a"]).identity == ERM(Groups("ab")).identity == ERM(iter("ab")).identity
    priors = {"a": 1.0, "b": 3.0}, {"b": 0.75, "a": 0.25}, Prior({"a": 0.25, "b": 0.75}, measure="degree")
    assert len({json.dumps(TRO(prior).identity) for prior in priors}) == 1
    assert TRO(priors[0]).identity == TRO(priors[0], update="ascent").identity


def changed(objective, penalty):
    objective.penalty = penalty
    return objective


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Method(NAMES), Method(NAMES, 50.0)),
        (Method(NAMES), Method(NAMES, switch=True)),
        (Method(NAMES), Method("abc")),
        (Method(NAMES), Inheriting(NAMES)),
        (Method(NAMES), changed(Method(NAMES), 50.0)),
        (Derived(NAMES, 3), Derived(NAMES, 4)),
        (TRO({"a": 1.0, "b": 3.0}), TRO({"a": 1.0, "b": 1.0})),
    ],
    ids=["penalty", "switch", "groups", "class", "attribute", "derived", "prior"],
)
def test_any_difference_is_another_identity(one, other):
    assert one.identity != other.identity


def test_repr_shows_the_settings():
    assert repr(VREx(NAMES, penalty=2.0)) == "VREx(2 groups, penalty=2.0, warm_up=500)"


class Forgetful(Method):
    """Does not keep its argument."""

    def __init__(self, groups, level):
        super().__init__(groups, penalty=level)


class Shadowed(VREx):
    """Its arguments have the names of a buffer, a class attribute and a property."""

    def __init__(self, groups, steps=5, betas=(0.9, 0.999), weights=None):
        super().__init__(groups)


class Critic(Method):
    """Keeps a module, which training changes."""

    def __init__(self, groups, critic):
        super().__init__(groups)
        self.critic = critic


@pytest.mark.parametrize(
    ("objective", "name"),
    [(Forgetful(NAMES, 3), "level"), (Shadowed(NAMES), "steps"), (Critic(NAMES, nn.Linear(1, 1)), "critic")],
    ids=["forgotten", "buffer", "module"],
)
def test_an_argument_that_is_no_attribute_is_an_error(objective, name):
    """It can train; only a checkpoint needs the identity."""
    assert objective(torch.ones(2), torch.tensor([0, 1])) == 1
    kind = type(objective).__name__
    with pytest.raises(SettingError, match=rf"self.{name} of {kind} is not set, .* to set self.{name} = {name}"):
        objective.identity  # noqa: B018


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (1, 1.0, 2),
        (math.inf, math.inf, -math.inf),
        (math.nan, math.nan, math.inf),
        (None, None, 0),
        ("a", "a", "b"),
        ((1, 2), [1, 2], [2, 1]),
        (np.float64(0.5), 0.5, np.float64(0.25)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_equal_values_are_equal_and_others_differ(one, same, other):
    values = [json.loads(json.dumps(to_json(value))) for value in (one, same, other)]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("value", [math.sqrt, {"a": 1}, np.zeros(2)], ids=type)
def test_values_that_cannot_be_compared_are_an_error(value):
    with pytest.raises(SettingError, match=r"self.penalty of Method holds a \w+, .*numbers, text"):
        Method(NAMES, value).identity  # noqa: B018


@pytest.mark.parametrize("objective", [ERM([1j, 2j]), TRO({1j: 1.0, 2j: 1.0})], ids=["groups", "prior"])
def test_group_names_that_no_file_can_hold_are_an_error(objective):
    with pytest.raises(DataError, match=r"a group named 1j \(complex\) cannot be written to a file"):
        objective.identity  # noqa: B018
