"""One of two ranks: trains every case of the conformance suite on its share of the batches, and tries what is wrong.

``main`` writes what came of it to a folder; test_ranks.py starts one rank, is the other, and compares.
"""

import copy
import pickle
import time
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.objectives.cases import CASES, LOSSES, NAMES, Net, batch, build, evaluate
from toporo.errors import TopoRoError
from toporo.objectives import DANN, ERM, TRO, Objective, group_means
from toporo.objectives.ranks import Ranks

#: Codes of the rows of either rank, step by step: unequal numbers, groups on one rank alone, groups nowhere.
SHARES = [
    ((0, 1, 2, 3, 3, 3), (0, 0, 2)),
    ((2,), (1, 1, 1, 2)),
    ((3, 2, 1, 0, 0), (3,)),
    ((0, 0, 1), (1, 1, 0)),
    ((0, 0, 0, 1, 1, 1), (2, 2, 2, 3, 3, 3)),
]


class Stranger(Objective):
    """Knows nothing of ranks, and looks at single rows."""

    needs = frozenset({"features"})

    def compute(self, losses, codes, *, logits, features):
        means = group_means(losses, codes, len(self.groups))
        return means.values.max() + losses.max() + features.square().mean()


EVERY = [*CASES, "stranger"]


def make(case):
    return Stranger(NAMES).double() if case == "stranger" else build(case)


def train(case, task, rank=None):
    """Values, gradients and states of a run by steps: of a rank with its shares, or of one process with all rows."""
    objective, net = make(case), Net()
    wrapped = net
    if rank is not None:
        objective.over_ranks()
        wrapped = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    values, slopes = [], []
    for step, shares in enumerate(SHARES):
        x, y, codes = batch(step, [code for share in shares for code in share])
        if rank is not None:
            own = slice(None, len(shares[0])) if rank == 0 else slice(len(shares[0]), None)
            x, y, codes = x[own], y[own], codes[own]
        optimizer.zero_grad()
        value = evaluate(objective, wrapped, x, y, codes, task)
        value.backward()
        slopes.append(nn.utils.parameters_to_vector([parameter.grad for parameter in net.parameters()]))
        optimizer.step()
        values.append(value.detach())
    return {
        "values": torch.stack(values),
        "slopes": torch.stack(slopes),
        "state": copy.deepcopy(objective.state_dict()),
    }


class Sent:
    """Counts messages by their kind."""

    def __enter__(self):
        self.counts = {}
        self.patches = [mock.patch.object(dist, name, self._counted(name)) for name in KINDS]
        for patch in self.patches:
            patch.start()
        return self.counts

    def _counted(self, name):
        function = getattr(dist, name)

        def counted(*args, **kwargs):
            self.counts[name] = self.counts.get(name, 0) + 1
            return function(*args, **kwargs)

        return counted

    def __exit__(self, *_):
        for patch in self.patches:
            patch.stop()


KINDS = ("all_reduce", "all_gather", "all_gather_object", "broadcast")


def messages(case):
    """What one step after the first sends, forward and backward together, without the network's gradients."""
    objective, net = make(case).over_ranks(), Net()
    for _ in range(2):
        with Sent() as sent:
            evaluate(objective, net, *batch()).backward()
    return sent


def complaint(work):
    """The error that a piece of work ends with, as it reads."""
    try:
        work()
    except TopoRoError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def mistakes(rank):
    """What ranks are told that train different things, by what differs."""
    losses, codes = torch.ones(2), torch.tensor([0, 1])

    def step(objective, losses=losses, **extra):
        return lambda: objective.over_ranks()(losses, codes, **extra)

    names = ["a", "b"] if rank == 0 else ["a", "c"]
    shares = {"a": 0.5, "b": 0.5} if rank == 0 else {"a": 0.25, "b": 0.75}
    width = 3 + rank
    return {
        "groups": complaint(step(ERM(names))),
        "method": complaint(step(ERM("ab") if rank == 0 else TRO({"a": 1, "b": 1}))),
        "penalty": complaint(step(TRO({"a": 1, "b": 1}, penalty=1.0 + rank))),
        "prior": complaint(step(TRO(shares))),
        "dtype": complaint(step(ERM("ab"), losses.double() if rank else losses)),
        "features": complaint(step(Stranger("ab"), features=torch.ones(2, width))),
        "pickled": complaint(lambda: pickle.dumps(ERM("ab").over_ranks())),
    }


def alone(rank):
    """Rank 0 evaluates while rank 1 does nothing, and trains in a group of its own."""
    group, other = dist.new_group([0]), dist.new_group([1])
    objective = build("tro").over_ranks()
    answer = {}
    if rank == 0:
        objective.eval()
        with Sent() as sent:
            answer["evaluated"] = evaluate(objective, Net(), *batch()).item()
        answer["sent in evaluation"] = sent
        with Sent() as sent:
            answer["trained"] = evaluate(build("dann").over_ranks(group), Net(), *batch()).item()
        answer["sent by one"] = sent
        answer["repr"] = repr(objective)
    answer["not a member"] = complaint(lambda: ERM("ab").over_ranks(other if rank == 0 else group))
    return answer


def started_apart(rank):
    """Ranks whose states differ before the first step: one of them has loaded a checkpoint."""
    objective = DANN(NAMES, width=4, hidden=6).double()
    if rank == 0:
        with torch.no_grad():
            objective.discriminator.add_(1.0)
            objective.steps.add_(3)
    evaluate(objective.over_ranks(), Net(), *batch(rank))
    return copy.deepcopy(objective).state_dict()


def rows_of_any_type(rank):
    """Rows of several types and shapes, of ranks with different numbers of them, through one message."""
    n = 3 - rank
    parts = [
        torch.arange(n) + 10 * rank,
        torch.full((n, 2, 2), 1.5 + rank, dtype=torch.bfloat16),
        torch.full((n,), 0.1 + rank, dtype=torch.float64),
        torch.full((n, 1), bool(rank)),
    ]
    return Ranks().rows(*parts)


def main(rank, folder, cases):
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    outcome = {
        "runs": {(case, task): train(case, task, rank) for case in cases for task in LOSSES},
        "messages": {case: messages(case) for case in EVERY},
        "mistakes": mistakes(rank),
        "alone": alone(rank),
        "started apart": started_apart(rank),
        "rows": rows_of_any_type(rank),
    }
    torch.save(outcome, folder / f"{rank}.pt")
    dist.barrier()
    time.sleep(0.5)  # in the instant after a message torch may hang in the next line
    dist.destroy_process_group()
