"""Runs of the training loop on a small problem."""

import pytest

from tests.training.cases import PRIOR, cross_entropy, toy
from toporo.models import MLP
from toporo.objectives import OBJECTIVES, make_objective
from toporo.training import TrainSettings, train


@pytest.fixture
def data():
    return toy()


@pytest.fixture
def run(data):
    """Trains a fresh model; returns it, its objective and the history."""

    def go(method="tro", *, data=data, prior=PRIOR, model=None, settings=None, objective_settings=None, **about):
        model = model or MLP(2, 2, (8,))
        widths = {"width": 8} if method == "dann" else {}  # of the features of the model above
        objective = make_objective(method, data.groups, prior, **widths, **(objective_settings or {}))
        settings = TrainSettings(**({"epochs": 6, "per_group": 8, "learning_rate": 0.01} | (settings or {})))
        return model, objective, train(model, objective, data, cross_entropy, settings, **about)

    return go


@pytest.fixture(params=OBJECTIVES)
def method(request):
    return request.param
