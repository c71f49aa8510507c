"""A problem small enough to train in a blink, with plain rows and with rows on the device."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from toporo.data import GroupedData
from toporo.objectives import make_objective
from toporo.topology.prior import Prior
from toporo.training import MLP, Batches, TrainingPlan, fit

PRIOR = Prior({1: 0.5, 3: 0.3, 14: 0.2})
DRAWS = 2
#: Both ways of counting rounds: 15 epochs of five steps, and 24 steps with an evaluation after every eighth.
UNITS = {
    "epochs": {"rounds": 6, "learning_rate": 0.01},
    "steps": {"unit": "steps", "rounds": 24, "evaluate_every": 8, "learning_rate": 0.01},
}


def cross_entropy(outputs, y):
    return F.cross_entropy(outputs, y, reduction="none")


def toy(seed=0, names=(14, 1, 3), size=20):
    """Three groups whose class boundaries differ; their names are numbers out of order, as in DG-15."""
    rng = np.random.default_rng(seed)
    group = np.arange(len(names) * size) % len(names)
    x = rng.normal(size=(len(group), 2))
    y = (x[:, 0] * np.cos(group) + x[:, 1] * np.sin(group) > 0).astype(int)
    return GroupedData.from_arrays(x, y, [names[code] for code in group])


class Noisy(MLP):
    """A network that draws random numbers while it trains, as most large ones do."""

    def features(self, x):
        return nn.functional.dropout(super().features(x), 0.2, self.training)


def augment(x, y, u):
    return x + 0.1 * (u[:, :1] - 0.5), y


def batches_of(data, per_group=4, augmented=False, **how):
    """Of all rows but the first three, by their numbers in a store that has those, too."""
    if not augmented:
        return Batches.of(data, per_group, **how)
    rows = GroupedData(np.arange(len(data)), data.y, data.codes, data.groups).take(np.arange(3, len(data)))
    x, y = torch.as_tensor(data.x, dtype=torch.float32), torch.as_tensor(data.y)
    return Batches(x, y, rows, per_group, prepare=augment, draws=DRAWS, **how)


def objective_of(method, data, prior=PRIOR, **settings):
    # The features of the network below are eight; a warm-up must end before the run does.
    needed = {"dann": {"width": 8}, "irm": {"penalty": 1.0, "warm_up": 5}, "vrex": {"warm_up": 5}}.get(method, {})
    return make_objective(method, data.groups, prior, **(needed | settings))


class Interrupted(Exception):
    pass


def run(method="tro", unit="epochs", *, data=None, model=None, about=None, prior=PRIOR, plan=None, how=None, stop=None,
        **rest):  # fmt: skip
    """Train a fresh network; return it, its objective and the result of the run. ``stop`` is a round it dies in."""
    data, model = data or toy(), model or Noisy(2, 2, (8,))
    objective = objective_of(method, data, prior, **(about or {}))
    batches = interrupted(batches_of(data, augmented=unit == "steps", **(how or {})), stop)
    settings = TrainingPlan(**(UNITS[unit] | (plan or {})))
    return model, objective, fit(model, objective, batches, cross_entropy, settings, **rest)


def interrupted(batches, stop):
    """Batches that fail before a round begins."""
    draw = batches.draw

    def failing(plan, first, last):
        if last == stop:
            raise Interrupted
        return draw(plan, first, last)

    batches.draw = failing
    return batches


def flat(model):
    return torch.cat([value.detach().cpu().flatten().double() for value in model.state_dict().values()])


def everything(made):
    """All bytes a run leaves behind."""
    model, objective, result = made
    state = [*model.state_dict().items(), *objective.state_dict().items()]
    return [(name, value.cpu().numpy().tobytes()) for name, value in state], [r.to_dict() for r in result.history]
