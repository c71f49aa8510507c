"""Join the rows of a batch that is spread over several ranks of ``torch.distributed``.

Every rank computes the same value from the same rows, so the gradient by these rows is the same everywhere. A rank
passes on the part for its own rows, times the number of ranks, because DDP and FSDP then take the mean over ranks.
Nothing is sent in the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from toporo.errors import GroupMismatchError, SettingError
from toporo.objectives.identity import differences
from toporo.types import Record


class Ranks:
    """The processes that train one network together: all of the default process group."""

    def __init__(self) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise SettingError(
                "torch.distributed is not initialised, so there are no ranks to train over: call "
                "torch.distributed.init_process_group() in every process first (torchrun starts them), or leave out "
                "over_ranks() to train with one process."
            )
        self.size, self.rank = dist.get_world_size(), dist.get_rank()
        self._agreed = False

    def join(self, objective: Any, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the rows of all ranks by name, rank after rank; differentiable.

        Before the first step, check that all ranks train the same objective on the same kind of rows, and give them
        the state of rank 0, as DDP does with a network.

        Parameters
        ----------
        objective : the objective; the identities of all ranks must be equal.
        rows : (n, …) each, with n rows of this rank; n may differ between ranks.
        """
        if self.size == 1:
            return dict(rows)
        if not self._agreed:
            shapes = {name: [str(part.dtype), *part.shape[1:]] for name, part in rows.items() if name != "codes"}
            self._agree(objective.state_dict(), objective.identity | shapes)
        return dict(zip(rows, self.join_rows(*rows.values()), strict=True))

    def join_rows(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Return the rows of all ranks in one message, as bytes, so that parts can be of any type."""
        n = len(parts[0])
        counts = self._counts(n, parts[0].device)
        as_bytes = [part.detach().reshape(n, -1).contiguous().view(torch.uint8) for part in parts]
        message = torch.cat(as_bytes, dim=1)
        message = torch.cat([message, message.new_zeros(max(counts) - n, message.shape[1])])  # of equal lengths
        messages = message.new_empty(self.size, *message.shape)
        dist.all_gather(list(messages.unbind()), message)
        rows = torch.cat([of_rank[:count] for of_rank, count in zip(messages, counts, strict=True)])
        pieces = torch.split(rows, [piece.shape[1] for piece in as_bytes], dim=1)
        start = sum(counts[: self.rank])
        joined = []
        for part, piece in zip(parts, pieces, strict=True):
            whole = piece.contiguous().view(part.dtype).reshape(len(rows), *part.shape[1:])
            if part.requires_grad:
                own = part.view_as(part)
                own.register_hook(lambda slope: slope * self.size)  # type: ignore[no-untyped-call]  # torch's
                whole = torch.cat([whole[:start], own, whole[start + n :]])
            joined.append(whole)
        return tuple(joined)

    def _counts(self, n: int, device: torch.device) -> list[int]:
        """Number of rows of each rank, exchanged between hosts if possible, which does not wait for a device."""
        if "cpu" in str(dist.get_backend_config()):
            device = torch.device("cpu")
        counts = torch.empty(self.size, dtype=torch.long, device=device)
        count = torch.full((1,), n, dtype=torch.long, device=device)
        dist.all_gather(list(torch.split(counts, 1)), count)
        return [int(count) for count in counts.tolist()]

    def _agree(self, state: Mapping[str, Tensor], settings: Record) -> None:
        """Raise unless settings and shapes are the same on all ranks; replace the state by that of rank 0."""
        shapes = {key: [str(value.dtype), list(value.shape)] for key, value in state.items()}
        by_rank: list[Record] = [{} for _ in range(self.size)]
        dist.all_gather_object(by_rank, {**settings, "state": shapes})
        for rank, other in enumerate(by_rank):
            if found := differences(by_rank[0], other, "on rank 0", f"on rank {rank}"):
                error = GroupMismatchError if by_rank[0]["groups"] != other["groups"] else SettingError
                raise error(
                    f"ranks train different things: {', '.join(found[:3])}. Build the objective with the same groups "
                    "and settings on every rank; a rank's batches may lack groups that the objective knows."
                )
        for value in state.values():
            dist.broadcast(value, src=0)
        self._agreed = True
