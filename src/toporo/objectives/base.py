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


def mean_over_pairs(products: Tensor, counted: Tensor, present: Tensor) -> Tensor:
    r"""Mean of :math:`\|a_e - a_f\|^2` over pairs of groups present, from inner products (m, m).

    A pair with a group that is not counted adds 0; the products of such a group must be 0.
    """
    k = present.sum()
    return (counted.sum() * products.diagonal().sum() - products.sum()) / (0.5 * k * (k - 1.0)).clamp(min=1.0)


class Objective(nn.Module, ABC):
    """Turns per-sample losses and group ids into the scalar that one training step minimises.

    ``objective(losses, groups, logits=…, features=…)``, where ``losses`` has one entry per sample (of any task loss,
    with its graph attached), and ``groups`` is one of

    - :class:`~toporo.groups.GroupIds`, as :func:`toporo.group_batches` or ``Groups.of(names)`` give them: by name;
    - integer codes in the order of :attr:`groups`, as ``objective.groups.encode(names)`` gives them. On a GPU, codes
      out of range make the result NaN, because an error would have to wait for the device.

    Half-precision losses are averaged in float32, inside of autocast too.

    State lives in buffers: it follows the losses to their device and is part of ``state_dict``. In training mode a call
    advances the state in place, as a captured CUDA graph needs it; in evaluation mode it does not.

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

    def over_ranks(self) -> Self:
        """Train over all ranks of ``torch.distributed`` as one process would with the rows of all their batches.

        Group means, weights and penalties are those of the joint batch: the rows of rank 0, then those of rank 1, and
        so on. Ranks may have different numbers of rows and lack groups. Every rank gets the same value, and the mean
        over ranks of the gradients, which DDP and FSDP take, is that of the joint batch.

        At the first step the ranks compare their settings and start from rank 0's state. In evaluation mode nothing is
        sent, so a single rank can evaluate. Returns the objective itself.
        """
        self._ranks = Ranks()
        return self

    def forward(
        self, losses: Tensor, groups: GroupIds | Tensor, *, logits: Tensor | None = None, features: Tensor | None = None
    ) -> Tensor:
        """The scalar to back-propagate; logits and features are ignored unless the method needs them."""
        if losses.ndim != 1 or not len(losses):
            raise DataError(
                f"losses have shape {tuple(losses.shape)}, expected one value per sample, of at least one: use "
                "reduction='none', average over several outputs per sample, and skip empty batches."
            )
        codes = self._codes(groups, losses)
        if losses.dtype in (torch.float16, torch.bfloat16):
            losses = losses.float()
        if losses.device.type != "cpu":  # out-of-range codes cannot be reported without waiting; make them visible
            valid = ((codes >= 0) & (codes < len(self.groups))).all()
            losses = torch.where(valid, losses, torch.full_like(losses, torch.nan))
        if any(buffer.device != losses.device for buffer in self.buffers()):
            self.to(losses.device)
        rows: dict[str, Any] = {"losses": losses, "codes": codes}
        with _full_precision(losses.device.type):
            if "logits" in self.needs:
                rows["logits"] = self.per_row(losses, self._rows("logits", logits, len(losses)))
            if "features" in self.needs:
                rows["features"] = self._rows("features", features, len(losses)).to(losses.dtype)
            if self._ranks is not None and self.training:
                rows = self._ranks.join(self, rows)
            return self.compute(**({"logits": None, "features": None} | rows))

    def per_row(self, losses: Tensor, logits: Tensor) -> Tensor:
        """Return the logits that ``compute`` is given; by default they are unchanged.

        The rows of several ranks are joined after this, so a method that differentiates losses by logits does so here.
        """
        return logits

    @abstractmethod
    def compute(self, losses: Tensor, codes: Tensor, *, logits: Any, features: Any) -> Tensor:
        """The method itself, on checked input.

        Parameters
        ----------
        losses : (n,), in float32 or float64.
        codes : (n,), in the order of :attr:`groups`.
        logits : of the same rows, from :meth:`per_row`; None unless the method needs them.
        features : (n, d), in the type of the losses; None unless the method needs them.
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
        names = [name for name in signature(type(self)).parameters if name not in ("groups", "prior")]
        return ", ".join([f"{len(self.groups)} groups", *(f"{name}={vars(self).get(name)!r}" for name in names)])

    def _bind_state_to_groups(self, *also: Any) -> None:
        """Refuse to load the state of other groups, for a method whose state is in their order."""
        digest = hashlib.sha256(repr((self.groups.names, *also)).encode()).digest()
        self.register_buffer("digest", torch.tensor(list(digest), dtype=torch.uint8))
        self.register_load_state_dict_pre_hook(_require_same_groups)  # type: ignore[no-untyped-call]  # torch's

    def _rows(self, name: str, rows: Tensor | None, n: int) -> Tensor:
        """Checked logits or features of n samples."""
        if rows is None:
            raise DataError(f"{type(self).__name__} needs {name}: call objective(losses, groups, {name}={name}).")
        if len(rows) != n or (name == "features" and rows.ndim != 2):
            shape = "(n, d): pool or flatten them" if name == "features" else "n rows"
            raise DataError(f"{n} losses but {name} of shape {tuple(rows.shape)}: expected {shape}, of the same batch.")
        return rows

    def _codes(self, groups: GroupIds | Tensor, losses: Tensor) -> Tensor:
        """Checked codes of this objective's groups on the losses' device; a batch may lack groups."""
        batch = groups if isinstance(groups, GroupIds) else GroupIds(groups, self.groups)
        if not isinstance(batch.codes, Tensor | np.ndarray):
            raise DataError(
                f"groups are {type(groups).__name__}: expected GroupIds, as Groups.of(names) gives them, or a tensor "
                "of codes, as objective.groups.encode(names) gives them."
            )
        codes = torch.as_tensor(batch.codes)
        if codes.shape != losses.shape or codes.is_floating_point() or codes.dtype == torch.bool:
            raise DataError(
                f"{len(losses)} losses but group codes of shape {tuple(codes.shape)} and type {codes.dtype}: expected "
                "one integer per sample."
            )
        if codes.device.type == "cpu":  # on a GPU the check would wait for the device
            batch.require_in_range()
        if batch.groups != self.groups:
            codes = torch.as_tensor(self.groups.encode(batch.groups), device=codes.device)[codes]
        return codes.to(device=losses.device, dtype=torch.long)


#: Name to class.
OBJECTIVES: Registry[type[Objective]] = Registry("objective")
register = OBJECTIVES.register


class PenalizedObjective(Objective):
    r"""Mean group loss plus a penalty, :math:`\frac1m \sum_e \ell_e + \lambda R`, that may set in after a warm-up.

    With a large penalty from the start a network would not learn. During the warm-up the weight of the penalty is
    :math:`\min(1, \lambda)`; then it is :math:`\lambda`, and training loops reset the optimiser's state, whose step
    sizes would be far too large. (In DomainBed the weight during the warm-up is always 1, and the warm-up has 500 of
    5,000 steps.)

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\lambda`.
    warm_up : number of steps in training mode for which the weight is :math:`\min(1, \lambda)`. The default of IRM and
        V-REx suits runs of a few thousand steps; for shorter ones set a fraction of theirs.
    """

    steps: Tensor

    def __init__(self, groups: Groups | Iterable[Name], penalty: float = 1.0, warm_up: int = 0) -> None:
        super().__init__(groups)
        self.penalty = non_negative(penalty, "penalty")
        self.warm_up = whole(warm_up, "warm_up", 0)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Any, features: Any) -> Tensor:
        means = group_means(losses, codes, len(self.groups))
        ready = (self.steps >= self.warm_up).to(losses.dtype)
        factor = ready * self.penalty + (1.0 - ready) * min(1.0, self.penalty)
        if self.training:
            self.steps.add_(1)
        return means.mean() + factor * self.penalise(means, codes, logits=logits, features=features)

    @abstractmethod
    def penalise(self, means: GroupMeans, codes: Tensor, *, logits: Any, features: Any) -> Tensor:
        r"""R, the penalty before it is multiplied by :math:`\lambda`, from mean losses and what compute gets."""


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

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Any, features: Any) -> Tensor:
        means = group_means(losses, codes, len(self.groups))
        if self.training:
            self._advance(means)
        return means.weighted(self.q.to(losses.dtype, copy=True))  # the next step changes q in place

    @torch.no_grad()
    def _advance(self, means: GroupMeans) -> None:
        values = means.values.detach().to(self.q.dtype)
        # An overflowed batch must not spoil q. Every operation is a kernel on a GPU, so there are few.
        usable = torch.logical_and(values.abs() < torch.inf, means.present)
        self.last_losses.copy_(torch.where(usable, values, self.last_losses))
        self.seen.copy_(torch.maximum(self.seen, usable))
        seen_now = usable.sum().clamp(min=1)
        typical = values.nan_to_num(0.0, 0.0, 0.0).sum() / seen_now  # 0 where a group is absent
        self.q.copy_(self.rule(self.q, torch.where(self.seen > 0, self.last_losses, typical), self.prior_weights))

    @property
    def weights(self) -> dict[Name, float]:
        return self.groups.named(self.q.tolist())


def _full_precision(device: str) -> AbstractContextManager[Any]:
    """Turn autocast off: it would round group means, which are products on a GPU, to half precision."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def _require_same_groups(module: Any, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    digest = state.get(f"{prefix}digest")
    if digest is not None and not torch.equal(digest.cpu(), module.get_buffer("digest").cpu()):
        raise GroupMismatchError(
            f"this state is of other groups or another prior than those of the {type(module).__name__} it is loaded "
            f"into, which has {listed(module.weights.items(), 4)}. Build the objective with the same groups and prior."
        )
