"""One of two ranks: trains every case of the conformance suite on its share of the batches, and makes mistakes.

``main`` writes the outcome to a folder; test_ranks.py starts one rank, is the other, and compares.
"""

import copy
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

#: Codes of the rows of both ranks, step by step: unequal numbers, groups on one rank, groups on none.
SHARES = [
    ((0, 1, 2, 3, 3, 3), (0, 0, 2)),
    ((2,), (1, 1, 1, 2)),
    ((3, 2, 1, 0, 0), (3,)),
    ((0, 0, 1), (1, 1, 0)),
    ((0, 0, 0, 1, 1, 1), (2, 2, 2, 3, 3, 3)),
]


class Stranger(Objective):
    """A method that looks at single rows and features, without regard to ranks."""

    needs = frozenset({"features"})

    def compute(self, losses, codes, *, logits, features):
        means = group_means(losses, codes, len(self.groups))
        return means.values.max() + losses.max() + features.square().mean()


EVERY = [*CASES, "stranger"]


def train(case, task, rank=None):
    """Values, gradients and state of a run: of a rank with its shares, or of one process with all rows."""
    objective, net = Stranger(NAMES).double() if case == "stranger" else build(case), Net()
    wrapped = net
    if rank is not None:
        objective.over_ranks()
        wrapped = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    values, slopes = [], []
    for step, shares in enumerate(SHARES):
        x, y, codes = batch(step, [code for share in shares for code in share])
        if rank is not None:
            rows = slice(None, len(shares[0])) if rank == 0 else slice(len(shares[0]), None)
            x, y, codes = x[rows], y[rows], codes[rows]
        optimizer.zero_grad()
        value = evaluate(objective, wrapped, x, y, codes, task)
        value.backward()
        slopes.append(nn.utils.parameters_to_vector([parameter.grad for parameter in net.parameters()]))
        optimizer.step()
        values.append(value.detach())
    state = copy.deepcopy(objective.state_dict())
    return {"values": torch.stack(values), "slopes": torch.stack(slopes), "state": state}


def messages(work):
    """Names of the functions of ``torch.distributed`` that a piece of work calls."""
    names = ("all_reduce", "all_gather", "all_gather_object", "broadcast")
    with mock.patch.multiple(dist, **{name: mock.Mock(wraps=getattr(dist, name)) for name in names}):
        work()
        return [name for name in names for _ in range(getattr(dist, name).call_count)]


def error_of(work):
    """The error that a piece of work ends with."""
    try:
        work()
    except TopoRoError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def mistakes(rank):
    """Errors of ranks that train different things, by the difference."""
    losses, codes = torch.ones(2), torch.tensor([0, 1])

    def step(objective, losses=losses, **extra):
        return lambda: objective.over_ranks()(losses, codes, **extra)

    return {
        "groups": error_of(step(ERM(["a", "b"] if rank == 0 else ["a", "c"]))),
        "method": error_of(step(ERM("ab") if rank == 0 else TRO({"a": 1, "b": 1}))),
        "penalty": error_of(step(TRO({"a": 1, "b": 1}, penalty=1.0 + rank))),
        "prior": error_of(step(TRO({"a": 0.5, "b": 0.5} if rank == 0 else {"a": 0.25, "b": 0.75}))),
        "dtype": error_of(step(ERM("ab"), losses.double() if rank else losses)),
        "features": error_of(step(Stranger("ab"), features=torch.ones(2, 3 + rank))),
    }


def alone(rank):
    """Rank 0 evaluates while rank 1 does nothing."""
    objective = build("tro").over_ranks().eval()
    if rank == 1:
        return {}
    sent = messages(lambda: evaluate(objective, Net(), *batch()))
    return {"sent": sent, "evaluated": evaluate(objective, Net(), *batch()).item()}


def started_apart(rank):
    """State after a step of ranks that began with different states, and the messages of the next step."""
    objective = DANN(NAMES, width=4, hidden=6).double()
    if rank == 0:
        with torch.no_grad():
            objective.discriminator.add_(1.0)
            objective.steps.add_(3)
    evaluate(objective.over_ranks(), Net(), *batch(rank))
    state = copy.deepcopy(objective).state_dict()
    return {"state": state, "messages": messages(lambda: evaluate(objective, Net(), *batch()).backward())}


def rows_of_any_type(rank):
    """Rows of several types and shapes, of ranks with different numbers of them, in one message."""
    n = 3 - rank
    parts = [
        torch.arange(n) + 10 * rank,
        torch.full((n, 2, 2), 1.5 + rank, dtype=torch.bfloat16),
        torch.full((n,), 0.1 + rank, dtype=torch.float64),
        torch.full((n, 1), bool(rank)),
    ]
    return Ranks().join_rows(*parts)


def main(rank, folder, cases):
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    outcome = {
        "runs": {(case, task): train(case, task, rank) for case in cases for task in LOSSES},
        "mistakes": mistakes(rank),
        "alone": alone(rank),
        "started apart": started_apart(rank),
        "rows": rows_of_any_type(rank),
    }
    torch.save(outcome, folder / f"{rank}.pt")
    dist.barrier()
    time.sleep(0.5)  # right after a message, torch may hang in the next line
    dist.destroy_process_group()
