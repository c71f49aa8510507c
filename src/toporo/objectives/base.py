"""Base classes of objectives: per-sample losses and groups in, one scalar to back-propagate out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from toporo.checks import non_negative, whole
from toporo.errors import DataError, GroupMismatchError, listed
from toporo.groups import GroupIds, Groups
from toporo.objectives.identity import identity_of, to_json
from toporo.objectives.ranks import Ranks
from toporo.registry import Registry
from toporo.robust.weights import WeightRule
from toporo.topology.prior import Prior
from toporo.types import Name, Record


class GroupMeans(NamedTuple):
    """Mean loss by group of one batch.

    Parameters
    ----------
    values : (m,), 0 for an absent group.
    present : (m,), 1 for a group in the batch, else 0.
    """

    values: Tensor
    present: Tensor

    def mean(self) -> Tensor:
        """Mean over the groups in the batch."""
        return self.values.sum() / self.present.sum().clamp(min=1.0)

    def weighted(self, weights: Tensor) -> Tensor:
        r""":math:`\frac{m}{|B|} \sum_{e \in B} q_e \ell_e` over the groups B in the batch.

        With all groups present this is the weighted sum. Otherwise the factor compensates for the absent ones: if all
        groups are equally likely to be in a batch, the expectation is proportional to the full weighted sum, and equal
        weights give the plain mean.
        """
        share = self.present.sum().clamp(min=1.0) / len(self.present)
        return (weights * self.values).sum() / share


def group_means(values: Tensor, codes: Tensor, m: int) -> GroupMeans:
    """Average per-sample values by group, without waiting for their device.

    Parameters
    ----------
    values : (n,), one per sample.
    codes : (n,), the number of each sample's group.
    m : number of groups.

    >>> means = group_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 1, 1]), 3)
    >>> means.values.tolist(), means.mean().item()  # the third is not in this batch
    ([1.0, 4.0, 0.0], 2.5)
    """
    if values.device.type == "cpu":
        zeros = values.new_zeros(m)
        sums, counts = zeros.index_add(0, codes, values), zeros.index_add(0, codes, values.new_ones(len(codes)))
    else:  # on a GPU index_add adds in the order in which threads arrive; a product with the membership does not
        members = membership(codes, m, values.dtype)
        sums, counts = values @ members, members.sum(dim=0)
    return GroupMeans(sums / counts.clamp(min=1.0), (counts > 0).to(sums.dtype))


def membership(codes: Tensor, m: int, dtype: torch.dtype) -> Tensor:
    """Indicators of the group of each sample, (n, m).

    Products with it replace the selection of a group's rows, whose number only the device knows.
    """
    return (codes[:, None] == torch.arange(m, device=codes.device)).to(dtype)


def pair_sum(products: Tensor, present: Tensor) -> Tensor:
    r""":math:`\sum_{e < f} \|a_e - a_f\|^2` from inner products (m, m), which are 0 for groups that are not present."""
    return present.sum() * products.diagonal().sum() - products.sum()


def pairs(present: Tensor) -> Tensor:
    """Number of pairs of groups present, at least 1."""
    k = present.sum()
    return (0.5 * k * (k - 1.0)).clamp(min=1.0)


def feature_rows(features: Tensor, losses: Tensor) -> Tensor:
    """Features as (n, d) in the losses' type, which is never a half precision."""
    if features.ndim != 2:
        raise DataError(
            f"features are of shape {tuple(features.shape)}: expected one row per sample, (n, d). Pool or flatten them."
        )
    return features.to(losses.dtype)


class Objective(nn.Module, ABC):
    """Turns per-sample losses and group ids into the scalar that one training step minimises.

    ``objective(losses, groups, logits=…, features=…)``, where ``losses`` has one entry per sample (of any task loss,
    with its graph attached), and ``groups`` is one of

    - :class:`~toporo.groups.GroupIds`, as :func:`toporo.group_batches` or ``Groups.of(names)`` give them: by name;
    - integer codes in the order of :attr:`groups`, as ``objective.groups.encode(names)`` gives them. On a GPU, codes
      out of range make the result NaN, because an error would have to wait for the device.

    Half-precision losses are averaged in float32, inside of autocast too.

    State lives in buffers: it follows the losses to their device and is part of ``state_dict``. In training mode a call
    advances the state, in evaluation mode it does not.

    As in scikit-learn, a constructor keeps each argument as an attribute of the same name (``self.penalty = penalty``),
    from which :attr:`identity` is read.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    """

    #: Inputs of the call besides losses and groups: any of ``"logits"``, ``"features"``.
    needs: ClassVar[frozenset[str]] = frozenset()
    #: True if the constructor takes a prior (first) instead of the groups.
    takes_prior: ClassVar[bool] = False
    #: Number of steps after which the method changes: training loops then reset the optimiser's state. 0 is never. A
    #: run should have several times as many steps.
    warm_up: int = 0
    #: Adam's, for the network trained with the method.
    betas: tuple[float, float] = (0.9, 0.999)
    #: Part of the key of stored runs. A package that adds a method raises it by one with every change to what the
    #: method computes; its stored runs are then run again. toporo's own methods rely on ``CODE_VERSION``.
    code_version: ClassVar[int] = 1
    #: Settings for the conformance suite; the first holds what has no default. ``width`` becomes that of the features.
    examples: ClassVar[Sequence[Mapping[str, Any]]] = ({},)

    def __init__(self, groups: Groups | Iterable[Name]) -> None:
        super().__init__()
        self.groups = groups if isinstance(groups, Groups) else Groups(groups)
        self._ranks: Ranks | None = None

    def over_ranks(self, process_group: Any = None) -> Self:
        """Train over all ranks of ``torch.distributed`` as one process would with the rows of all their batches.

        Group means, weights and penalties are those of the joint batch: the rows of rank 0, then those of rank 1, and
        so on. Ranks may have different numbers of rows and lack groups. Every rank gets the same value, and the mean
        over ranks of the gradients, which DDP and FSDP take, is that of the joint batch.

        At the first step the ranks compare their settings and start from rank 0's state. In evaluation mode nothing is
        sent, so a single rank can evaluate. Returns the objective itself.

        Parameters
        ----------
        process_group : the ranks that train together, from ``torch.distributed.new_group``; all by default.
        """
        self._ranks = Ranks(process_group)
        return self

    def forward(
        self, losses: Tensor, groups: GroupIds | Tensor, *, logits: Tensor | None = None, features: Tensor | None = None
    ) -> Tensor:
        """The scalar to back-propagate."""
        if losses.ndim != 1:
            raise DataError(
                f"losses have shape {tuple(losses.shape)}, expected one value per sample: use reduction='none' "
                "and, for several outputs per sample, average over them."
            )
        if not len(losses):
            raise DataError("the batch is empty: expected at least one loss. Skip empty batches.")
        for name, part in (("features", features), ("logits", logits)):
            if name not in self.needs:
                continue
            if part is None:
                raise DataError(f"{type(self).__name__} needs {name}: call objective(losses, groups, {name}={name}).")
            if len(part) != len(losses):
                raise DataError(f"{len(losses)} losses but {len(part)} rows of {name}: give those of the same batch.")
        codes = self._codes(groups, losses)
        if losses.dtype in (torch.float16, torch.bfloat16):
            losses = losses.float()
        if losses.device.type != "cpu":  # out-of-range codes cannot be reported without waiting; make them visible
            valid = ((codes >= 0) & (codes < len(self.groups))).all()
            losses = torch.where(valid, losses, torch.full_like(losses, torch.nan))
        if any(buffer.device != losses.device for buffer in self.buffers()):
            self.to(losses.device)
        with _full_precision(losses.device.type):
            logits, features = self.per_row(losses, logits, features)
            rows: dict[str, Any] = {"losses": losses, "codes": codes, "logits": logits, "features": features}
            if self._ranks is not None and self.training:
                rows |= self._ranks.join(self, {name: part for name, part in rows.items() if part is not None})
            return self.compute(**rows)

    def per_row(self, losses: Tensor, logits: Any, features: Any) -> tuple[Any, Any]:
        """Return the logits and features that ``compute`` is given; by default they are unchanged.

        The rows of several ranks are joined after this, so a method that differentiates losses by logits does so here.
        """
        return logits, features

    @abstractmethod
    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor, features: Tensor) -> Tensor:
        """The method itself, on checked input.

        Parameters
        ----------
        losses : (n,), in float32 or float64.
        codes : (n,), in the order of :attr:`groups`.
        logits, features : of the same rows, from :meth:`per_row`.
        """

    @property
    def weights(self) -> dict[Name, float]:
        """Current weight of each group, by name."""
        return self.groups.named([1.0 / len(self.groups)] * len(self.groups))

    @property
    def identity(self) -> Record:
        """The class, groups and constructor arguments as JSON values: equal for equal settings, and only for those."""
        return identity_of(self) | {"groups": to_json(self.groups)}

    def extra_repr(self) -> str:
        arguments = [name for name in signature(type(self)).parameters if name not in ("groups", "prior")]
        values = {name: vars(self).get(name) for name in arguments}
        given = [f"{name}={value!r}" for name, value in values.items() if value is not None]
        ranks = [f"over {self._ranks.size} ranks"] if self._ranks else []
        return ", ".join([f"{len(self.groups)} groups", *given, *ranks])

    def _bind_state_to_groups(self, *also: Any) -> None:
        """Refuse to load the state of other groups, for a method whose state is in their order."""
        digest = hashlib.sha256(repr((self.groups.names, *also)).encode()).digest()
        self.register_buffer("digest", torch.tensor(list(digest), dtype=torch.uint8))
        self.register_load_state_dict_pre_hook(_require_same_groups)  # type: ignore[no-untyped-call]  # torch's

    def _codes(self, groups: GroupIds | Tensor, losses: Tensor) -> Tensor:
        """Checked codes of this objective's groups on the losses' device; a batch may lack groups."""
        batch = groups.groups if isinstance(groups, GroupIds) else self.groups
        codes = groups.codes if isinstance(groups, GroupIds) else groups
        if not isinstance(codes, Tensor | np.ndarray):
            raise DataError(
                f"groups are {type(codes).__name__}: expected GroupIds, as Groups.of(names) gives them, or a tensor "
                "of codes, as objective.groups.encode(names) gives them."
            )
        codes = torch.as_tensor(codes)
        if codes.shape != losses.shape:
            raise DataError(
                f"{losses.shape[0]} losses but group codes of shape {tuple(codes.shape)}: give one per sample."
            )
        if codes.is_floating_point() or codes.dtype == torch.bool:
            raise DataError(f"group codes have type {codes.dtype}: expected integers.")
        if codes.device.type == "cpu":  # on a GPU the check would wait for the device
            GroupIds(codes, batch).require_in_range()
        if batch != self.groups:
            unknown = [name for name in batch if name not in self.groups]
            if unknown:
                raise GroupMismatchError(
                    f"group(s) in the batch that {type(self).__name__} does not know: {listed(unknown)}. It was built "
                    f"for {listed(self.groups)}. Build it with all training groups, or leave those rows out."
                )
            codes = torch.as_tensor(self.groups.encode(batch), device=codes.device)[codes]
        return codes.to(device=losses.device, dtype=torch.long)


#: Name to class.
OBJECTIVES: Registry[type[Objective]] = Registry("objective")
register = OBJECTIVES.register


class PenalizedObjective(Objective):
    r"""Mean group loss plus a penalty, :math:`\frac1m \sum_e \ell_e + \lambda R`, that sets in after a warm-up.

    With a large penalty from the start a network would not learn. During the warm-up the weight of the penalty is
    :math:`\min(1, \lambda)`; then it is :math:`\lambda`, and training loops reset the optimiser's state, whose step
    sizes would be far too large. (In DomainBed the weight during the warm-up is always 1, and the warm-up has 500 of
    5,000 steps.)

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\lambda`.
    warm_up : number of steps in training mode for which the weight is :math:`\min(1, \lambda)`. The default of the
        methods suits runs of a few thousand steps; for shorter ones set a fraction of theirs.
    """

    steps: Tensor

    def __init__(self, groups: Groups | Iterable[Name], penalty: float, warm_up: int) -> None:
        super().__init__(groups)
        self.penalty = non_negative(penalty, "penalty")
        self.warm_up = whole(warm_up, "warm_up", 0)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor, features: Tensor) -> Tensor:
        means = group_means(losses, codes, len(self.groups))
        ready = (self.steps >= self.warm_up).to(losses.dtype)
        factor = ready * self.penalty + (1.0 - ready) * min(1.0, self.penalty)
        value = means.mean() + factor * self.penalise(means, losses, codes, logits)
        if self.training:
            self.steps = self.steps + 1
        return value

    @abstractmethod
    def penalise(self, means: GroupMeans, losses: Tensor, codes: Tensor, logits: Tensor) -> Tensor:
        r"""R, the penalty before it is multiplied by :math:`\lambda`."""


class WeightedObjective(Objective):
    """A weighted sum of group losses whose weights follow a rule: IW-ERM, group DRO, TRO.

    If a batch lacks a group, the rule uses the group's last loss; before its first batch, the mean over the groups in
    this batch, which neither raises nor lowers its weight.

    Parameters
    ----------
    prior : a :class:`~toporo.Prior`, or weights by group name.
    rule : update rule of the weights, from :mod:`toporo.robust.weights`.
    """

    q: Tensor
    prior_weights: Tensor
    last_losses: Tensor
    seen: Tensor

    def __init__(self, prior: Prior | Mapping[Any, float], rule: WeightRule) -> None:
        prior = prior if isinstance(prior, Prior) else Prior.from_weights(prior)
        super().__init__(prior.groups)
        self.prior, self.rule = prior, rule
        weights = torch.as_tensor(self.groups.align(prior.weights))
        self.register_buffer("prior_weights", weights)
        self.register_buffer("q", weights.clone())
        self.register_buffer("last_losses", torch.zeros_like(weights))
        self.register_buffer("seen", torch.zeros_like(weights))
        self._bind_state_to_groups(weights.tolist())

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor, features: Tensor) -> Tensor:
        means = group_means(losses, codes, len(self.groups))
        if self.training:
            self._advance(means)
        return means.weighted(self.q.to(means.values.dtype))

    @torch.no_grad()
    def _advance(self, means: GroupMeans) -> None:
        values = means.values.detach().to(self.q.dtype)
        # An overflowed batch must not spoil q. Every operation is a kernel on a GPU, so there are few.
        usable = torch.logical_and(values.abs() < torch.inf, means.present)
        self.last_losses = torch.where(usable, values, self.last_losses)
        self.seen = torch.maximum(self.seen, usable)
        seen_now = usable.sum().clamp(min=1)
        typical = values.nan_to_num(0.0, 0.0, 0.0).sum() / seen_now  # 0 where a group is absent
        self.q = self.rule(self.q, torch.where(self.seen > 0, self.last_losses, typical), self.prior_weights)

    @property
    def weights(self) -> dict[Name, float]:
        return self.groups.named(self.q.tolist())


def _full_precision(device: str) -> AbstractContextManager[Any]:
    """Turn autocast off: it would round group means, which are products on a GPU, to half precision."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def _require_same_groups(module: Any, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    digest = state.get(f"{prefix}digest")
    if digest is not None and not torch.equal(digest.cpu(), module.get_buffer("digest").cpu()):
        here = getattr(module, "prior", None) or module.groups
        raise GroupMismatchError(
            f"this state is of other groups or another prior than those of the {type(module).__name__} it is loaded "
            f"into ({listed(here.weights.items() if isinstance(here, Prior) else here, 4)}). Build the objective with "
            "the same groups and prior."
        )
