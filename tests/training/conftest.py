"""A problem small enough to train in a blink."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from toporo.data import GroupedData
from toporo.models import MLP
from toporo.objectives import OBJECTIVES, make_objective
from toporo.topology.prior import Prior
from toporo.training import TrainSettings, train

PRIOR = Prior({1: 0.5, 3: 0.3, 14: 0.2})


def cross_entropy(outputs, y):
    return F.cross_entropy(outputs, y, reduction="none")


def toy(seed=0, names=(14, 1, 3), size=20):
    """Three groups, two classes; the boundary turns from group to group. Names are numbers out of order, as in DG-15."""
    rng = np.random.default_rng(seed)
    group = np.arange(len(names) * size) % len(names)
    x = rng.normal(size=(len(group), 2))
    y = (x[:, 0] * np.cos(group) + x[:, 1] * np.sin(group) > 0).astype(int)
    return GroupedData.from_arrays(x, y, [names[code] for code in group])


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors gain nothing from threads and, on a busy machine, wait for them thirty times longer."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def data():
    return toy()


@pytest.fixture
def run(data):
    """Trains a fresh model; returns it, its objective and the history."""

    def go(method="tro", *, data=data, prior=PRIOR, model=None, settings=None, objective_settings=None, **about):
        model = model or MLP(2, 2, (8,))
        objective = make_objective(method, data.groups, prior, **(objective_settings or {}))
        settings = TrainSettings(**({"epochs": 6, "per_group": 8, "learning_rate": 0.01} | (settings or {})))
        return model, objective, train(model, objective, data, cross_entropy, settings, **about)

    return go


@pytest.fixture(params=OBJECTIVES)
def method(request):
    return request.param
