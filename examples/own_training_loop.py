"""TRO in your own PyTorch loop: one object turns per-sample losses and groups into the loss to back-propagate.

Run it with: python examples/own_training_loop.py
"""

import torch
import torch.nn.functional as F

import toporo as tr

# Fifteen groups on a half circle; the six at one end are for training, the other nine are the test groups.
benchmark = tr.load_dataset("dg15", source="generated")
train, test = benchmark.data.select(benchmark.train), benchmark.data.select(benchmark.test)

# Phase 1: the graph of the groups gives a prior. Training groups on the way to the test groups weigh more.
prior = benchmark.graph.prior(train=benchmark.train, test=benchmark.test)

# Phase 2: train against the worst mixture of groups near that prior.
objectives = {"ERM": tr.objectives.ERM(benchmark.train), "TRO": tr.objectives.TRO(prior, penalty=100.0, step=0.01)}
for title, objective in objectives.items():
    net = tr.models.MLP(inputs=2, outputs=2, seed=0)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for x, y, groups in tr.group_batches(train, per_group=10, epochs=20, seed=0):
        loss = objective(F.cross_entropy(net(x), y, reduction="none"), groups)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    accuracy = tr.training.accuracy_by_group(net, test)
    print(f"{title}: {100 * sum(accuracy.values()) / len(accuracy):.1f} % in groups never seen")

print("group weights:", {name: round(weight, 3) for name, weight in objective.weights.items()})
