"""
A LightningModule with any objective
====================================

Three lines: an objective, a callback that looks after it, and ``self.objective(losses, groups)`` in ``training_step``.
The callback keeps the weights of the groups in checkpoints, joins the ranks where there are several, and holds still
during validation.

Run it with: ``python examples/lightning_module.py``; it needs ``pip install 'toporo[lightning]'``
"""

import logging
import sys
import warnings
from itertools import pairwise

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import toporo as tr

try:
    import lightning as L
except ImportError:
    print("Lightning is not installed: pip install 'toporo[lightning]'")
    sys.exit()

from toporo.integrations.lightning import ObjectiveCallback

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")

# %%
# Villages along a road, each with more of a slope than the one before. Five have been measured, two have not.
VILLAGES = [f"village {i}" for i in range(7)]
draw = torch.Generator().manual_seed(0)
codes = torch.randint(5, (600,), generator=draw)
x = torch.randn(600, 1, generator=draw)
rows = TensorDataset(x, (1.0 + 0.5 * codes) * x[:, 0] + 0.3 * torch.randn(600, generator=draw), codes)


class Network(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = tr.training.MLP(inputs=1, outputs=1, hidden=(16,), seed=0)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)[:, 0]

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        x, y, codes = batch
        losses = nn.functional.huber_loss(self(x), y, reduction="none")
        return self.objective(losses, codes)  # the callback's

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.02)


# %%
# The same module with two objectives.
prior = tr.GroupGraph.from_edges(pairwise(VILLAGES)).prior(VILLAGES[:5], VILLAGES[5:])
objectives = {"ERM": tr.objectives.ERM(VILLAGES[:5]), "TRO": tr.objectives.TRO(prior, penalty=1.0, step=0.02)}
errors = {}
for title, objective in objectives.items():
    network = Network()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = L.Trainer(
        max_epochs=5, accelerator="cpu", callbacks=[ObjectiveCallback(objective)], enable_model_summary=False, **quiet
    )
    loader = DataLoader(rows, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(0))
    trainer.fit(network, loader)
    at = torch.linspace(-2, 2, 101)[:, None]
    with torch.no_grad():
        errors[title] = [float((network(at) - (1.0 + 0.5 * i) * at[:, 0]).abs().mean()) for i in range(7)]
    print(f"{title}: mean error {sum(errors[title][5:]) / 2:.2f} in villages never measured")
print("weights:", {name: round(weight, 2) for name, weight in objective.weights.items()})

# %%
# TRO gives up the near end of the road for the end where the new villages are.
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for title, line in errors.items():
    ax.plot(line, "o-", label=title)
ax.axvspan(4.5, 6.5, color="#e5e7eb", zorder=0)
ax.text(5.5, 0.02, "never measured", ha="center", transform=ax.get_xaxis_transform())
ax.set(xlabel="village, along the road", ylabel="mean error", ylim=(0, None))
ax.legend(loc="upper center")
plt.show()
