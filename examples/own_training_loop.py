"""
Decision boundaries of ERM and TRO
==================================

TRO in your own PyTorch loop: one object turns per-sample losses and groups into the loss to back-propagate. Fifteen
groups on a half circle; the six at one end are for training, the other nine are the test groups.

Run it with: ``python examples/own_training_loop.py``
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F

import toporo as tr

benchmark = tr.load_dataset("dg15", source="generated")
train, test = benchmark.data.select(benchmark.train), benchmark.data.select(benchmark.test)

# %%
# Phase 1: the graph of the groups gives a prior. Training groups on the way to the test groups weigh more. Without
# ``measure`` half of it is spread evenly, which is safer for most graphs and gains less on this one.
prior = benchmark.graph.prior(train=benchmark.train, test=benchmark.test, measure="harmonic")

# %%
# Phase 2: train against the worst mixture of groups near that prior.
nets = {}
objectives = {"ERM": tr.objectives.ERM(benchmark.train), "TRO": tr.objectives.TRO(prior, penalty=100.0, step=0.01)}
for title, objective in objectives.items():
    net = nets[title] = tr.training.MLP(inputs=2, outputs=2, seed=0)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for x, y, groups in tr.group_batches(train, per_group=10, epochs=20, seed=0):
        loss = objective(F.cross_entropy(net(x), y, reduction="none"), groups)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = tr.training.outputs_of(net, test).argmax(axis=1) == test.y
    print(f"{title}: {100 * right.mean():.1f} % in groups never seen")

print("group weights:", {name: round(weight, 3) for name, weight in objective.weights.items()})

# %%
# Strong dots were trained on, faint ones were not. ERM's line fits the end it knows; TRO's turns along the circle.
low, high = benchmark.data.x.min(axis=0) - 0.3, benchmark.data.x.max(axis=0) + 0.3
across, up = np.meshgrid(np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120))
grid = torch.tensor(np.column_stack([across.ravel(), up.ravel()]), dtype=torch.float32)
figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, (title, net) in zip(axes, nets.items(), strict=True):
    with torch.no_grad():
        surer = net(grid).softmax(dim=1)[:, 1].numpy().reshape(across.shape)
    ax.contourf(across, up, surer, levels=[0, 0.5, 1], colors=["#dbeafe", "#fde3cf"])
    for rows, faint in ((test, 0.25), (train, 0.9)):
        for label, color in enumerate(("#1d4ed8", "#c2410c")):
            ax.scatter(*rows.x[rows.y == label].T, s=6, color=color, alpha=faint, lw=0)
    right = tr.training.outputs_of(net, test).argmax(axis=1) == test.y
    ax.set(title=f"{title}: {right.mean():.0%} right in test groups", aspect="equal", xticks=[], yticks=[])
plt.show()
