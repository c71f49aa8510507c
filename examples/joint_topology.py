"""
The topology learned with the network
=====================================

Features, distances between groups, a prior and the worst case in one loss. Five stations along a river differ more the
farther apart they are; nobody says in which order they lie.

Run it with: ``python examples/joint_topology.py``
"""

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

import toporo as tr

torch.set_num_threads(1)  # tensors this small gain nothing from more
stations = ["delta", "ford", "lake", "mill", "spring"]  # by name, not by place
place = {"spring": 0.0, "mill": 1.0, "ford": 2.0, "lake": 3.0, "delta": 4.0}
generator = torch.Generator().manual_seed(0)
names = [name for name in stations for _ in range(60)]
x = torch.randn(len(names), 3, generator=generator)
y = (x[:, 1] + 0.5 * x[:, 2] > 0).long()  # what is to be told apart has nothing to do with the place ...
x[:, 0] += 2.0 * torch.tensor([place[name] for name in names])  # ... which the inputs show
data = tr.GroupedData.from_arrays(x.numpy(), y.numpy(), names)

# %%
# No phase before training: every step computes the prior from the features of its batch. Distances are averaged over
# batches here. The gradient goes through the prior, too, as the loss is written; ``coupling=0.0`` would stop it there.
objective = tr.objectives.TROJoint(stations, penalty=10.0, step=0.1, momentum=0.9)
net = tr.models.MLP(inputs=3, outputs=2, seed=0)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for rows, labels, groups in tr.group_batches(data, per_group=15, epochs=15, seed=0):
    features = net.features(rows)
    losses = F.cross_entropy(net.head(features), labels, reduction="none")
    loss = objective(losses, groups, features=features)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"loss of the last batch: {losses.mean().item():.2f}")
print("learned prior, down the river:", {name: round(objective.learned_prior[name], 2) for name in place})
print("weights of the worst case:", {name: round(objective.weights[name], 2) for name in place})

# %%
# The middle of the river has most of the learned prior.
figure, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for shift, (title, shares) in zip((-0.2, 0.2), (("learned prior", objective.learned_prior),
                                                ("worst case", objective.weights)), strict=True):  # fmt: skip
    ax.bar([i + shift for i in range(5)], [shares[name] for name in place], 0.38, label=title)
ax.set_xticks(range(5), list(place))
ax.set(ylabel="weight", xlabel="down the river")
ax.legend()
plt.show()
