"""A small smooth problem that every objective can be tried on, in double precision."""

import inspect

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from toporo.groups import Groups
from toporo.objectives import OBJECTIVES, make_objective
from toporo.topology.prior import Prior

NAMES = ("a", "b", "c", "d")
SHARES = (0.4, 0.1, 0.2, 0.3)

#: Number of features of the network below.
WIDTH = 4

#: Every registered method with its examples, and settings under which a method takes another path.
CASES = {
    f"{name} {number}" if number else name: (name, dict(settings))
    for name, method in OBJECTIVES.items()
    for number, settings in enumerate(method.examples)
} | {
    "irm warmed up": ("irm", {"penalty": 10.0, "warm_up": 2}),
    "vrex warmed up": ("vrex", {"penalty": 10.0, "warm_up": 2}),
    "dann strong": ("dann", {"width": WIDTH, "hidden": 6, "penalty": 20.0}),
    "tro exact": ("tro", {"update": "exact"}),
    "tro exact kl": ("tro", {"update": "exact", "divergence": "kl"}),
    "tro mirror": ("tro", {"update": "mirror", "divergence": "kl", "penalty": 0.5}),
    "tro constrained": ("tro", {"update": "constrained", "divergence": "chi2", "radius": 0.05}),
    "tro infinite": ("tro", {"penalty": float("inf")}),
}

LOSSES = {
    "classes": lambda out, y: F.cross_entropy(out, (y > 0).long(), reduction="none"),
    "numbers": lambda out, y: (out.sum(dim=1) - y) ** 2,
}


def build(case, names=NAMES, width=WIDTH):
    """The objective of a case; a prior is uneven and joined to the names in the order given."""
    method, settings = CASES[case]
    if "width" in settings:
        settings = settings | {"width": width}
    prior = Prior(dict(zip(names, SHARES, strict=True)))
    return make_objective(method, Groups(names), prior, **settings).double()


def varied(method):
    """Settings of a method that differ from its first example in one argument each: a number or a switch."""
    example = dict(method.examples[0])
    for name, parameter in inspect.signature(method).parameters.items():
        value = example.get(name, parameter.default)
        if isinstance(value, bool):
            yield example | {name: not value}
        elif isinstance(value, int | float):
            yield example | {name: 2 * value or 1}


class Net(nn.Module):
    """Two layers without kinks, as the training loop expects a model: ``features`` and ``head``."""

    def __init__(self, seed=0):
        super().__init__()
        self.body, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)
        self.double()
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)

    def forward(self, x):
        features = torch.tanh(self.body(x))
        return features, self.head(features)


def batch(seed=0, codes=(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3), device="cpu"):
    """``x, y, codes``; the scale of y differs by group, so the group losses do."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.tensor(codes)
    x = torch.randn(len(codes), 3, dtype=torch.float64, generator=generator)
    y = (0.5 + 0.5 * codes) * torch.randn(len(codes), dtype=torch.float64, generator=generator)
    return x.to(device), y.to(device), codes.to(device)


def evaluate(objective, net, x, y, groups, task="classes"):
    """The objective's value on a batch, given what it declares to need and nothing else."""
    features, logits = net(x)
    extra = {"features": features, "logits": logits}
    return objective(LOSSES[task](logits, y), groups, **{key: extra[key] for key in objective.needs})


def fit(objective, batches, task="classes", net=None):
    """Plain gradient descent over batches; returns the values, the weights after each step, and the network."""
    net = net or Net().to(batches[0][0].device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    values, weights = [], []
    for x, y, groups in batches:
        value = evaluate(objective, net, x, y, groups, task)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
        weights.append(objective.weights)
    return values, weights, net


def flat(net):
    """All parameters as one vector."""
    return nn.utils.parameters_to_vector(net.parameters()).detach()


class OnDeviceOnly(TorchDispatchMode):
    """Raises where a step on another device makes or takes a tensor on the host.

    On torch's ``meta`` device, reading a value or making a shape depend on one raises by itself. A CUDA graph can
    capture neither.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" for leaf in tree_leaves((args, result))):
            raise RuntimeError(f"{func} works on a host tensor")
        return result
