"""Two objectives share an identity if and only if their classes and constructor arguments are equal."""

import dataclasses
import functools
import inspect
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from toporo.errors import SettingError
from toporo.groups import Groups
from toporo.objectives import ERM, TRO, GroupDRO, Objective, VREx
from toporo.objectives.identity import plain
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
    """Its own arguments count, not those it hands on."""

    def __init__(self, groups, level):
        super().__init__(groups, penalty=2.0, switch=True)
        self.level = level


class Inheriting(Method):
    """Without a constructor of its own."""


@dataclasses.dataclass(eq=False)
class Late(Objective):
    """With a constructor that is made after the class."""

    names: tuple
    penalty: float = 1.0

    def __post_init__(self):
        super().__init__(self.names)

    def compute(self, losses, codes, *, logits, features):
        return losses.mean()


def arguments(objective):
    return {key: value for key, value in objective.identity.items() if key not in ("class", "groups", "prior")}


def test_positional_and_named_arguments_and_defaults_are_the_same():
    given = Method(NAMES, 1.0), Method(NAMES, penalty=1.0), Method(groups=NAMES), Method(NAMES, 1)
    assert all(objective.identity == given[0].identity for objective in given)
    assert arguments(given[0]) == given[0].settings == {"penalty": 1.0, "switch": False}


@pytest.mark.parametrize(
    "other",
    [Method(NAMES, 50.0), Method(NAMES, switch=True), Inheriting(NAMES), Method("abc"), Derived(NAMES, 1.0)],
    ids=["penalty", "switch", "class", "groups", "derived"],
)
def test_any_other_argument_is_another_identity(other):
    assert other.identity != Method(NAMES).identity


def test_arguments_are_those_of_the_class_itself():
    assert arguments(Derived(NAMES, level=3)) == Derived(NAMES, 3).settings == {"level": 3}


def test_classes_of_one_name_in_two_modules_differ():
    other = type("Method", (Method,), {"__module__": "elsewhere", "__qualname__": "Method"})
    assert other(NAMES).identity["class"] == "elsewhere.Method" != Method(NAMES).identity["class"]


def test_a_generated_constructor_counts_too():
    assert arguments(Late(NAMES, 50.0)) == {"names": ["a", "b"], "penalty": 50.0}


def test_groups_and_prior_are_what_they_came_to():
    """By name: neither their order nor their type matters, and an iterator may be used up."""
    assert ERM(["b", "a"]).identity == ERM(Groups("ab")).identity == ERM(iter("ab")).identity
    assert ERM("ab").identity["groups"] == ["a", "b"]
    given = {"a": 1.0, "b": 3.0}, {"b": 0.75, "a": 0.25}, Prior({"a": 0.25, "b": 0.75}, measure="degree")
    assert len({json.dumps(TRO(prior).identity) for prior in given}) == 1
    assert TRO({"a": 0.5, "b": 0.5}).identity != TRO(given[0]).identity


def test_a_changed_attribute_is_another_identity():
    """``compute`` reads the attribute, too."""
    objective = Method(NAMES)
    objective.penalty = 50.0
    assert objective.identity == Method(NAMES, 50.0).identity


@pytest.mark.parametrize(
    ("default", "given"),
    [
        (TRO({"a": 1.0, "b": 3.0}), TRO({"a": 1.0, "b": 3.0}, update="ascent")),
        (TRO({"a": 1.0, "b": 3.0}, radius=0.1), TRO({"a": 1.0, "b": 3.0}, radius=0.1, update="constrained")),
    ],
    ids=["ascent", "constrained"],
)
def test_a_default_is_what_it_stands_for(default, given):
    assert default.identity == given.identity


def test_help_shows_the_constructor():
    assert list(inspect.signature(TRO).parameters)[:3] == ["prior", "penalty", "step"]
    assert list(inspect.signature(ERM).parameters) == ["groups"]
    assert "switch=False" in str(inspect.signature(Method))


def test_repr_stays_friendly():
    assert repr(VREx(NAMES, penalty=2.0)) == "VREx(2 groups, penalty=2.0, warm_up=500)"
    assert repr(GroupDRO(NAMES)) == "GroupDRO(2 groups, step=0.01, update='mirror')"


def test_wrong_arguments_are_pythons_own_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Derived(NAMES)


# ---------------------------------------------------------------- classes that do not follow the convention


class Forgetful(Method):
    """Does not keep its own argument."""

    def __init__(self, groups, level):
        super().__init__(groups, penalty=level)


class Shadowed(VREx):
    """Its arguments have the names of a buffer, a class attribute and a property of every V-REx."""

    def __init__(self, groups, steps=5):
        super().__init__(groups)


class ByClass(Method):
    def __init__(self, groups, betas=(0.9, 0.999)):
        super().__init__(groups)


class ByProperty(Method):
    def __init__(self, groups, weights=None):
        super().__init__(groups)


class Critic(Method):
    """Keeps a module, which training changes."""

    def __init__(self, groups, critic):
        super().__init__(groups)
        self.critic = critic


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (Forgetful(NAMES, 3), "level"),
        (Shadowed(NAMES), "steps"),
        (ByClass(NAMES), "betas"),
        (ByProperty(NAMES), "weights"),
        (Critic(NAMES, nn.Linear(1, 1)), "critic"),
    ],
    ids=["forgotten", "buffer", "class attribute", "property", "module"],
)
def test_an_argument_that_is_no_attribute_is_an_error(made, name):
    """It trains, and it has a repr; only a checkpoint needs the identity."""
    assert repr(made) == f"{type(made).__name__}(2 groups)" or isinstance(made, Critic)
    assert made(torch.ones(2), torch.tensor([0, 1])) == 1
    kind = type(made).__name__
    with pytest.raises(SettingError, match=rf"{kind} does not keep .* '{name}' .* Write self.{name} = {name} in"):
        made.identity  # noqa: B018


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (1, 1.0, 2),
        (math.inf, math.inf, -math.inf),
        (math.nan, math.nan, math.inf),
        (math.inf, math.inf, {"number": "inf"}),
        (None, None, 0),
        ("a", "a", "b"),
        ((1, 2), [1, 2], [2, 1]),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}, {"a": 1, "b": 2}),
        ({(1, "x"): 2}, {(1, "x"): 2}, {(1, "y"): 2}),
        (np.float64(0.5), 0.5, np.float64(0.25)),
        (np.arange(3.0), np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 3.0])),
        (np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((3, 2))),
        (torch.arange(3.0), torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 3.0])),
        (torch.ones((), dtype=torch.bfloat16), torch.tensor(1, dtype=torch.bfloat16), torch.tensor(1.0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_equal_values_are_equal_and_others_differ(one, same, other):
    values = [json.loads(json.dumps(plain(value))) for value in (one, same, other)]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize(
    "value",
    [math.sqrt, lambda x: x, {"a", "b"}, object(), functools.partial(math.pow, 2), np.array([{}], dtype=object)],
    ids=["function", "lambda", "set", "object", "partial", "objects"],
)
def test_what_cannot_be_compared_is_an_error_when_it_matters(value):
    """Training works; only a checkpoint asks for the identity."""
    objective = Method(NAMES, value)
    assert objective(torch.ones(2), torch.tensor([0, 1])) == 1
    with pytest.raises(SettingError, match=r"penalty of Method is a \w+ that cannot be written down, .* checkpoint"):
        objective.identity  # noqa: B018


def test_what_contains_itself_is_an_error():
    circle = []
    circle.append(circle)
    with pytest.raises(SettingError, match="cannot be written down"):
        Method(NAMES, circle).identity  # noqa: B018
