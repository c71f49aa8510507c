"""A small problem for other libraries' trainers, and a plain loop to compare them with."""

import torch
from torch import nn
from torch.nn import functional as F

from toporo.objectives import DANN, IRM, TRO, VREx
from toporo.training import reset_state

NAMES = ("a", "b", "c")
draw = torch.Generator().manual_seed(0)
CODES = torch.tensor([0, 1, 2, 2, 1, 0, 0, 0, 1, 2, 2, 2] * 2)
X = torch.randn(len(CODES), 3, generator=draw)
Y = (X[:, 0] * (CODES - 1.0) + X[:, 1] > 0).long()

#: Methods that need nothing, logits or features, some with a warm-up.
OBJECTIVES = {
    "tro": lambda: TRO({"a": 0.5, "b": 0.3, "c": 0.2}, penalty=0.5, step=0.2),
    "irm": lambda: IRM(NAMES, penalty=2.0, warm_up=5),
    "vrex": lambda: VREx(NAMES, penalty=50.0, warm_up=5),
    "dann": lambda: DANN(NAMES, width=4, hidden=6, learning_rate=0.01),
}


class Body(nn.Module):
    """Features and logits."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        generator = torch.Generator().manual_seed(1)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)

    def forward(self, x):
        features = torch.tanh(self.first(x))
        return features, self.last(features)


def value(objective, net, x, y, codes):
    features, logits = net(x)
    extra = {"features": features, "logits": logits}
    losses = F.cross_entropy(logits, y, reduction="none")
    return objective(losses, codes, **{key: extra[key] for key in objective.needs})


def plain(objective, epochs, *, accumulate=1, betas=(0.9, 0.999), sgd=False):
    """Parameters and the objective's state after a plain loop; with SGD, the scale of the loss matters."""
    net = Body()
    adam = torch.optim.AdamW(net.parameters(), lr=0.02, betas=betas, weight_decay=0.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02) if sgd else adam
    batches = [slice(start, start + 6) for _ in range(epochs) for start in range(0, len(X), 6)]
    for step, rows in enumerate(batches):
        if step and step == objective.warm_up:
            reset_state(optimizer)
        (value(objective, net, X[rows], Y[rows], CODES[rows]) / accumulate).backward()
        if (step + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return outcome(net, objective)


def outcome(net, objective):
    return {"net": dict(net.state_dict()), "objective": dict(objective.state_dict())}
