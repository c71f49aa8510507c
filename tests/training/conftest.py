"""Runs of the training loop on a small problem."""

import importlib
import sys

import pytest

from tests.recipes import recipes
from tests.training.cases import PRIOR, cross_entropy, toy
from toporo.objectives import OBJECTIVES, make_objective
from toporo.training import MLP, TrainSettings, train


@pytest.fixture
def data():
    return toy()


@pytest.fixture
def run(data):
    """Trains a fresh model; returns it, its objective and the history."""

    def go(method="tro", *, data=data, prior=PRIOR, model=None, settings=None, objective_settings=None, **about):
        model = model or MLP(2, 2, (8,))
        # The features of the model above are eight; a warm-up must end before the run does.
        needed = {"dann": {"width": 8}, "irm": {"penalty": 1.0, "warm_up": 5}, "vrex": {"warm_up": 5}}.get(method, {})
        objective = make_objective(method, data.groups, prior, **(needed | (objective_settings or {})))
        settings = TrainSettings(**({"rounds": 6, "per_group": 8, "learning_rate": 0.01} | (settings or {})))
        return model, objective, train(model, objective, data, cross_entropy, settings, **about)

    return go


@pytest.fixture(params=OBJECTIVES)
def method(request):
    return request.param


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """The module that CONTRIBUTING.md shows under "Add a method"."""
    (tmp_path / "by_the_recipe.py").write_text(recipes("Add a method")[0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(OBJECTIVES, "_things", dict(OBJECTIVES))  # what it registers is forgotten afterwards
    yield importlib.import_module("by_the_recipe")
    del sys.modules["by_the_recipe"]
