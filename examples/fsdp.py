"""
A network in two halves
=======================

A network too large for one device is cut up by ``fully_shard`` (FSDP2): every process keeps a part of each layer. The
objective stays as it is. It is saved and loaded beside the network, and a run that is taken up goes on exactly.

Run it with: ``python examples/fsdp.py``, which starts two processes, or ``torchrun --nproc-per-node 2
examples/fsdp.py``; torch 2.6 or newer
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import toporo as tr

FARMS = ["east", "middle", "west"]
draw = torch.Generator().manual_seed(0)
x, codes = torch.randn(240, 4, generator=draw), torch.arange(240) % 3
y = x[:, 0] * (1.0 + codes) + 0.1 * torch.randn(240, generator=draw)

# %%
# Steps of one process: with all rows, or with the rows of its rank. Rank 0 has those of one farm, rank 1 of the others.


def fit(
    net: nn.Module, objective: tr.objectives.Objective, steps: int, own: Tensor | slice = slice(None)
) -> list[float]:
    """The loss of every step; it is the same number on all ranks."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        loss = objective((net(x[own])[:, 0] - y[own]) ** 2, codes[own])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def network() -> tr.training.MLP:
    return tr.training.MLP(inputs=4, outputs=1, hidden=(64, 64), seed=0)


def objective() -> tr.objectives.Objective:
    return tr.objectives.GroupDRO(dict.fromkeys(FARMS, 1.0), step=0.1)


# %%
# What each process does that ``torchrun`` starts.


def sharded() -> tuple[nn.Module, tr.objectives.Objective]:
    net = network()
    for layer in [*net.body, net.head]:
        if list(layer.parameters()):
            fully_shard(layer)
    fully_shard(net)
    return net, objective().over_ranks()


if "RANK" in os.environ:
    dist.init_process_group("gloo")  # "cpu:gloo,cuda:nccl" on GPUs
    own = codes > 0 if dist.get_rank() else codes == 0
    net, robust = sharded()
    losses = fit(net, robust, 20, own)
    # Each rank saves its parts of the network (torch.distributed.checkpoint does that for large ones). The objective's
    # state is the same on all ranks.
    checkpoint = {"net": net.state_dict(), "objective": robust.state_dict()}
    net, robust = sharded()
    net.load_state_dict(checkpoint["net"])
    robust.load_state_dict(checkpoint["objective"])
    losses += fit(net, robust, 20, own)
    kept = sum(parameter.to_local().numel() for parameter in net.parameters())
    if dist.get_rank() == 0:
        print(f"rank 0 keeps {kept:,} of {sum(p.numel() for p in net.parameters()):,} parameters")
        print("weights:", {name: round(weight, 3) for name, weight in robust.weights.items()})
        if len(sys.argv) > 1:
            Path(sys.argv[1]).write_text(json.dumps(losses))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # at once: on a CPU torch may hang or abort while it ends the threads that send

# %%
# One process with the whole network and all rows, and two with a half of each.
one = fit(network(), objective(), 40)
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "losses.json"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*torchrun, sys.argv[0], file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    two = json.loads(file.read_text())
print(done.stdout.strip())
largest = max(abs(a - b) / a for a, b in zip(one, two, strict=True))
print(f"one process and two: losses differ by at most {largest:.0e} of themselves")

# %%
# The run that was saved and taken up half-way lies on the line of the one that was never cut.
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.plot(one, label="one process")
ax.plot(two, "o", ms=4, label="two, with half of the network each")
ax.axvline(19.5, color="#6b7280", lw=1, ls="--")
ax.text(20, max(one), "taken up from a checkpoint", va="top")
ax.set(xlabel="step", ylabel="loss", ylim=(0, None))
ax.legend(loc="lower left")
plt.show()
