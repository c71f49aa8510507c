"""
Your own DataLoader, network and loss
=====================================

From toporo you need only the objective. Cameras along a road: the light changes from one to the next, and so does what
brightness says about traffic. Six have labels; two more will be mounted further down the road.

Run it with: ``python examples/own_dataloader.py``
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import toporo as tr

CAMERAS = [f"camera {i}" for i in range(8)]
train, test = CAMERAS[:6], CAMERAS[6:]


class Traffic(Dataset):
    """Rows as dictionaries, with the camera by name; yours may look different."""

    def __init__(self, cameras: list[str], rows: int = 200) -> None:
        self.rows = []
        for name in cameras:
            place = CAMERAS.index(name)
            draw = torch.Generator().manual_seed(place)
            light = torch.randn(rows, 3, generator=draw)
            cars = light @ torch.tensor([1.0 + 0.25 * place, 0.5, -0.5])
            cars = cars + 0.2 * torch.randn(rows, generator=draw)
            cars[::25] += 8.0  # a few readings are plainly wrong
            self.rows += [{"light": x, "cars": y, "camera": name} for x, y in zip(light, cars, strict=True)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict:
        return self.rows[i]


# %%
# The loop is PyTorch's; one line is toporo's.


def train_with(objective: tr.objectives.Objective) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    huber = nn.HuberLoss(reduction="none")  # any loss that gives one number per row
    loader = DataLoader(Traffic(train), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(0))
    for _ in range(30):
        for batch in loader:
            losses = huber(net(batch["light"])[:, 0], batch["cars"])
            loss = objective(losses, tr.Groups.of(batch["camera"]))  # groups by name; a batch need not have all
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


# %%
# The prior looks down the road.
road = tr.GroupGraph.from_edges(pairwise(CAMERAS))
prior = road.prior(train, test)


def median_error(net: nn.Module, cameras: list[str]) -> float:
    light, cars = (torch.stack([row[key] for row in Traffic(cameras).rows]) for key in ("light", "cars"))
    return float((net(light)[:, 0] - cars).abs().median())


by_camera = {}
for title, objective in {
    "ERM": tr.objectives.ERM(train),
    "TRO": tr.objectives.TRO(prior, penalty=1.0, step=0.05),
}.items():
    net = train_with(objective)
    with torch.no_grad():
        error = median_error(net, test)
        by_camera[title] = [median_error(net, [name]) for name in CAMERAS]
    print(f"{title}: median error {error:.3f} at cameras never seen")

print("weights:", {name: round(weight, 2) for name, weight in objective.weights.items()})

# %%
# TRO gives up the far end of the road for the end where the new cameras will be.
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for title, errors in by_camera.items():
    ax.plot(range(8), errors, "o-", label=title)
ax.axvspan(5.5, 7.5, color="#e5e7eb", zorder=0)
ax.text(6.5, 0.02, "never trained on", ha="center", transform=ax.get_xaxis_transform())
ax.set(xlabel="camera, along the road", ylabel="median error", ylim=(0, None))
ax.legend(loc="upper center")
plt.show()
