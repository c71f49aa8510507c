"""
The topology learned with the network
=====================================

toporo learns the topology first and trains then. Both can be learned at once: every step computes distances between
the groups from the features of its batch, from these a prior, and the gradient of the worst case goes through all of
it. Five stations along a river differ more the farther apart they are; nobody says in which order they lie.

This does not beat learning the topology first: 69.2 % against 69.0 % in the test groups of DG-15, and 63.2 % against
85.1 % in those of DG-60 (``docs/results.md``). The network may choose which groups count, and chooses those it is good
at.

Run it with: ``python examples/joint_topology.py``
"""

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

import toporo as tr
from toporo.robust import project_simplex

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
# Three steps lead from features to a prior, each with a derivative. First, the diffusion Earth Mover's Distance
# between the groups of a batch, as ``tr.diffusion_emd`` computes it, with powers of the walk by repeated squaring.
def distances_between(features, members, width=0.3, scales=5, alpha=0.5):
    """Diffusion EMD: (m, m). ``members`` has a row of zeros and ones for each group."""
    points = features.double() - features.double().mean(dim=0)
    squared = (points[:, None] - points).square().sum(dim=-1)
    kernel = torch.exp(-squared / (width**2 * squared.mean()))  # in units of the spread of the batch
    kernel = kernel / kernel.sum(dim=0) / kernel.sum(dim=1, keepdim=True)
    walk = kernel / kernel.sum(dim=1, keepdim=True)
    start = members.T / members.sum(dim=1)
    densities = [walk @ start]
    for _ in range(scales):
        walk = walk @ walk
        densities.append(walk @ start)
    finer = [2.0 ** (-(scales - 1 - k) * alpha) * (densities[k + 1] - densities[k]) for k in range(scales)]
    profile = torch.cat([*finer, densities[-1]]).T
    return (profile[:, None] - profile).abs().sum(dim=-1)


# %%
# Second, conductances that fall with the distance take the place of edges, which are there or not.
def conductances(distances, reach=0.1):
    """A soft adjacency; ``reach`` is a share of the mean distance."""
    apart = 1.0 - torch.eye(len(distances), dtype=distances.dtype)
    mean = (apart * distances).sum() / apart.sum()
    return apart * (torch.exp(-distances / (reach * mean)) + 1e-9)


# %%
# Third, current-flow betweenness takes the place of a count of shortest paths: how much of a current from one group to
# another passes through a third.
def betweenness(adjacency, smoothing=1e-3):
    """Current-flow betweenness of each group, over all pairs of others."""
    m = len(adjacency)
    laplacian = torch.diag(adjacency.sum(dim=1)) - adjacency
    potentials = torch.linalg.inv(laplacian + adjacency.mean())  # the constant vector is moved away from zero
    through = torch.zeros(m, dtype=adjacency.dtype)
    for s in range(m):
        for t in range(s + 1, m):
            v = potentials[:, s] - potentials[:, t]
            currents = adjacency * (v[:, None] - v)
            size = (currents.square() + smoothing**2).sqrt() - smoothing  # of a smooth absolute value
            other = torch.tensor([float(e not in (s, t)) for e in range(m)], dtype=adjacency.dtype)
            through = through + other * size.sum(dim=1) / 2
    return through


# %%
# The loss of a step is that of ``tr.objectives.TRO`` with a prior that depends on the network. q moves by the paper's
# projected ascent. Distances are averaged over batches.
penalty, step, momentum = 10.0, 0.1, 0.9
net = tr.training.MLP(inputs=3, outputs=2, seed=0)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
q = torch.full((5,), 0.2, dtype=torch.float64)
average = None
for rows, labels, groups in tr.group_batches(data, per_group=15, epochs=15, seed=0):
    features = net.features(rows)
    losses = F.cross_entropy(net.head(features), labels, reduction="none")
    members = F.one_hot(torch.as_tensor(groups.codes).long(), 5).T.double()
    batch = distances_between(features, members)
    average = batch if average is None else momentum * average.detach() + (1 - momentum) * batch
    prior = torch.softmax(betweenness(conductances(average)) / 0.5, dim=0)
    means = members @ losses.double() / members.sum(dim=1)
    q = project_simplex(q + step * (means - penalty * (q - prior)).detach())
    loss = q @ means - 0.5 * penalty * (q - prior).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

learned, worst = ({name: float(p[stations.index(name)]) for name in place} for p in (prior.detach(), q))
print(f"loss of the last batch: {losses.mean().item():.2f}")
print("learned prior, down the river:", {name: round(weight, 2) for name, weight in learned.items()})
print("weights of the worst case:", {name: round(weight, 2) for name, weight in worst.items()})

# %%
# For comparison, what toporo does: a topology of the features of the network, then a prior that stays as it is.
graph = tr.learn_topology(net.features(torch.as_tensor(data.x)).detach().numpy(), data.ids, resamples=0)
first = graph.prior(stations, measure="betweenness")
print("prior of the topology learned first:", {name: round(first[name], 2) for name in place})

# %%
# The middle of the river has most of the learned prior.
figure, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for shift, (title, shares) in zip((-0.2, 0.2), (("learned prior", learned), ("worst case", worst)), strict=True):
    ax.bar([i + shift for i in range(5)], [shares[name] for name in place], 0.38, label=title)
ax.set_xticks(range(5), list(place))
ax.set(ylabel="weight", xlabel="down the river")
ax.legend()
plt.show()
