"""
One network on two processes
============================

With ``DistributedDataParallel`` every process has a share of each batch, and not all groups are in it.
``objective.over_ranks()`` makes group losses and weights those of all shares together: two processes then train the
network that one trains with whole batches. Without it, each process follows weights of its own.

Run it with: ``python examples/ddp.py``, which starts two processes, or ``torchrun --nproc-per-node 2 examples/ddp.py``
"""

import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import toporo as tr

# %%
# Five villages along a road, each with more of a slope than the one before; the sixth is still to come.
VILLAGES = [f"village {i}" for i in range(6)]
draw = torch.Generator().manual_seed(0)
x, codes = torch.randn(400, 1, generator=draw), torch.randint(5, (400,), generator=draw)
rows = TensorDataset(x, (1.0 + 0.5 * codes) * x[:, 0] + 0.3 * torch.randn(400, generator=draw), codes)


def objective() -> tr.objectives.Objective:
    prior = tr.GroupGraph.from_edges(pairwise(VILLAGES)).prior(VILLAGES[:5], VILLAGES[5:])
    return tr.objectives.TRO(prior, penalty=2.0, step=0.01)


# %%
# The loop of one process. The sampler deals the rows out, so that each of two takes half of every batch.


def fit(objective: tr.objectives.Objective, rank: int, ranks: int) -> list[list[float]]:
    """The weights after every step."""
    net: nn.Module = tr.training.MLP(inputs=1, outputs=1, hidden=(8,), seed=0)
    net = DistributedDataParallel(net) if ranks > 1 else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    sampler = DistributedSampler(rows, num_replicas=ranks, rank=rank, seed=0)
    weights = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y, codes in DataLoader(rows, batch_size=16 // ranks, sampler=sampler):
            loss = objective((net(x)[:, 0] - y) ** 2, codes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            weights.append(list(objective.weights.values()))
    return weights


# %%
# What each process does that ``torchrun`` starts. All that toporo asks for is the call of ``over_ranks()``.
if "RANK" in os.environ:
    dist.init_process_group("gloo")  # "cpu:gloo,cuda:nccl" on GPUs
    rank, ranks = dist.get_rank(), dist.get_world_size()
    weights = {"joined": fit(objective().over_ranks(), rank, ranks), "apart": fit(objective(), rank, ranks)}
    if rank == 0:
        print(f"weights after {ranks} processes:", [round(weight, 3) for weight in weights["joined"][-1]])
        if len(sys.argv) > 1:
            Path(sys.argv[1]).write_text(json.dumps(weights))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # at once: on a CPU torch may hang while it ends the threads that send

# %%
# One process with whole batches, and two with halves.
one = fit(objective(), rank=0, ranks=1)
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "weights.json"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*torchrun, sys.argv[0], file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    two = json.loads(file.read_text())
print(done.stdout.strip())
print("weights after 1 process:  ", [round(weight, 3) for weight in one[-1]])
for title, weights in two.items():
    largest = (torch.tensor(weights) - torch.tensor(one)).abs().max()
    print(f"{title}: the largest difference of a weight at any step is {largest:.1g}")

# %%
# Lines are one process; dots, two with ``over_ranks()``; dotted lines, the first of two that go their own ways.
figure, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
for group, name in enumerate(objective().weights):
    (line,) = ax.plot([w[group] for w in one], label=name)
    ax.plot(range(0, len(one), 5), [w[group] for w in two["joined"][::5]], "o", ms=4, color=line.get_color())
    ax.plot([w[group] for w in two["apart"]], ":", lw=1, color=line.get_color())
ax.set(xlabel="step", ylabel="weight of a group", ylim=(0, None))
figure.legend(loc="outside right upper")
plt.show()
