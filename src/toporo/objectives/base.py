"""What all objectives share: per-sample losses and groups in, one scalar to back-propagate out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from toporo.checks import non_negative, whole
from toporo.errors import DataError, GroupMismatchError, SettingError, listed
from toporo.groups import GroupIds, Groups
from toporo.objectives.identity import arguments_of, identity_of, plain, qualified
from toporo.objectives.ranks import Ranks
from toporo.registry import Registry
from toporo.robust import WeightRule
from toporo.text import many
from toporo.topology.prior import Prior
from toporo.types import Name, Record

#: Batches with ever other groups absent each bring a translation table; this many are kept.
MOST_TABLES = 256


class GroupMeans:
    """Mean loss by group of one batch.

    Parameters
    ----------
    values : (m,), 0 where a group is absent.
    present : (m,), 1 where it is there, else 0.
    """

    __slots__ = ("present", "values")

    def __init__(self, values: Tensor, present: Tensor) -> None:
        self.values = values
        self.present = present

    def mean(self) -> Tensor:
        """Mean over the groups in the batch."""
        return self.values.sum() / self.present.sum().clamp(min=1.0)

    def weighted(self, weights: Tensor) -> Tensor:
        r""":math:`\frac{m}{|B|} \sum_{e \in B} q_e \ell_e` over the groups B in the batch.

        With all groups present this is the weighted sum. Otherwise the factor makes up for the absent ones: if every
        group is as likely to be in a batch as any other, the expectation is in proportion to the full weighted sum,
        and equal weights give the plain mean.
        """
        share = self.present.sum().clamp(min=1.0) / len(self.present)
        return (weights * self.values).sum() / share


def group_means(values: Tensor, codes: Tensor, m: int) -> GroupMeans:
    """Average per-sample values by group, on the values' device, without waiting for it.

    Parameters
    ----------
    values : (n,), one per sample.
    codes : (n,), the number of each sample's group.
    m : how many groups there are.

    >>> means = group_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 1, 1]), 3)
    >>> means.values.tolist(), means.mean().item()  # the third is not in this batch
    ([1.0, 4.0, 0.0], 2.5)
    """
    return _means(*_totals(values, codes, m))


def _totals(values: Tensor, codes: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """Sums of values, and numbers of samples, by group."""
    if values.device.type == "cpu":
        nothing = values.new_zeros(m)
        return nothing.index_add(0, codes, values), nothing.index_add(0, codes, values.new_ones(len(codes)))
    # On a GPU index_add adds in whatever order threads arrive; a product with the membership matrix does not.
    members = membership(codes, m, values.dtype)
    return values @ members, members.sum(dim=0)


def _means(sums: Tensor, counts: Tensor) -> GroupMeans:
    return GroupMeans(sums / counts.clamp(min=1.0), (counts > 0).to(sums.dtype))


def membership(codes: Tensor, m: int, dtype: torch.dtype) -> Tensor:
    """Which sample is of which group: (n, m) of zeros and ones.

    Products with it take the place of selecting a group's rows, whose number only the device knows.
    """
    return (codes[:, None] == torch.arange(m, device=codes.device)).to(dtype)


def pair_sum(products: Tensor, present: Tensor) -> Tensor:
    r""":math:`\sum_{e < f} \|a_e - a_f\|^2` over the groups present, from their inner products (m, m).

    The products of groups that are not present must be 0.
    """
    return present.sum() * products.diagonal().sum() - products.sum()


def pairs(present: Tensor) -> Tensor:
    """The number of pairs of groups present, at least 1."""
    k = present.sum()
    return (0.5 * k * (k - 1.0)).clamp(min=1.0)


class Objective(nn.Module, ABC):
    """Turns per-sample losses and group ids into the scalar that one training step minimises.

    ``objective(losses, groups, logits=…, features=…)``, where ``losses`` has one entry per sample (of any task loss,
    with its graph attached), and ``groups`` is one of

    - :class:`~toporo.groups.GroupIds`, as :func:`toporo.group_batches` or ``Groups.of(names)`` give them: by name;
    - integer codes in the order of :attr:`groups`, as ``objective.groups.encode(names)`` gives them. On a GPU, codes
      out of range make the result NaN, because an error would have to wait for the device.

    Half-precision losses are averaged in float32, inside of autocast too.

    A method that needs more than losses says so in :attr:`needs`. State lives in buffers: it follows ``.to(device)``
    and is part of ``state_dict``. In training mode a call advances the state, in evaluation mode it does not.

    As in scikit-learn, a constructor keeps each argument as an attribute of the same name (``self.penalty = penalty``).
    :attr:`settings` and :attr:`identity` are read from these attributes.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    """

    #: What the call needs besides losses and groups: any of ``"logits"``, ``"features"``.
    needs: ClassVar[frozenset[str]] = frozenset()
    #: Whether the constructor takes a prior (first) instead of the groups.
    takes_prior: ClassVar[bool] = False
    #: The largest relative error of a value in float32 that the conformance suite lets pass: two roundings.
    float32_tolerance: ClassVar[float] = 2.0**-22
    #: Number of steps after which the method changes: loops then reset the optimiser's state. 0 is never. A run should
    #: have several times as many steps; one that ends within its warm-up warns.
    warm_up: int = 0
    #: Adam's, for the network trained with it.
    betas: tuple[float, float] = (0.9, 0.999)
    #: Whether ``compute`` joins ranks itself (:meth:`over_ranks`), by :meth:`means`, :meth:`mean` and :meth:`joined`.
    #: It is then given the rows of its own rank, else those of all ranks. A class says it itself.
    joins_ranks: ClassVar[bool] = False
    #: Part of the key of stored runs. A package that adds a method raises it by one with every change to what the
    #: method computes; its stored runs are then run again. toporo's own methods rely on ``CODE_VERSION``.
    code_version: ClassVar[int] = 1
    #: Settings to try the method with, the first without more than it needs. ``width`` becomes the number of features.
    examples: ClassVar[Sequence[Mapping[str, Any]]] = ({},)

    def __init__(self, groups: Groups | Iterable[Name]) -> None:
        super().__init__()
        self.groups = groups if isinstance(groups, Groups) else Groups(groups)
        self._tables: dict[Groups, Tensor | None] = {}
        self._ranks: Ranks | None = None
        self._joining: Ranks | None = None  # while a call's compute joins them

    def over_ranks(self, process_group: Any = None) -> Self:
        """Train over all ranks of ``torch.distributed``: what one process gives with the rows of all their batches.

        Group means, weights and penalties are those of the joint batch: the rows of rank 0, then those of rank 1, and
        so on. Ranks may have different numbers of rows and lack groups. Every rank gets the same value, and the mean
        over ranks of the gradients, which DDP and FSDP take, is that of the joint batch.

        At the first step the ranks compare what they train and start from rank 0's state. In evaluation mode nothing is
        sent, so one rank may evaluate alone. Returns the objective itself.

        Parameters
        ----------
        process_group : the ranks that train together, as ``torch.distributed.new_group`` gives them; all by default.
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
        given = {"logits": logits, "features": features}
        for name in sorted(self.needs):
            value = given[name]
            if value is None:
                raise DataError(f"{type(self).__name__} needs {name}: call objective(losses, groups, {name}={name}).")
            if len(value) != len(losses):
                raise DataError(f"{len(losses)} losses but {len(value)} rows of {name}: give those of the same batch.")
        codes = self._codes(groups, losses)
        if losses.dtype in (torch.float16, torch.bfloat16):
            losses = losses.float()
        if losses.device.type != "cpu":  # out-of-range codes cannot be reported without waiting; make them visible
            valid = ((codes >= 0) & (codes < len(self.groups))).all()
            losses = torch.where(valid, losses, torch.full_like(losses, torch.nan))
        with _full_precision(losses.device.type):
            if self._ranks is None or self._ranks.alone or not self.training:
                return self.compute(losses, codes, logits=logits, features=features)
            return self._compute_over(self._ranks, losses, codes, {"logits": logits, "features": features})

    def _compute_over(self, ranks: Ranks, losses: Tensor, codes: Tensor, extra: Mapping[str, Tensor | None]) -> Tensor:
        given = {name: value for name, value in extra.items() if value is not None}
        if not ranks.agreed:
            shapes = {name: [str(value.dtype), *value.shape[1:]] for name, value in {"losses": losses, **given}.items()}
            ranks.agree(self.to(losses.device), self._about | shapes)
        if vars(type(self)).get("joins_ranks"):  # said by the class itself: not inherited
            self._joining = ranks
            try:
                return self.compute(losses, codes, logits=extra["logits"], features=extra["features"])
            finally:
                self._joining = None
        losses, codes, *others = ranks.rows(losses, codes, *given.values())
        joined = dict(zip(given, others, strict=True))
        return self.compute(losses, codes, logits=joined.get("logits"), features=joined.get("features"))

    @property
    def _about(self) -> Record:
        """What ranks that train together must have in common; the class alone where arguments cannot be compared."""
        try:
            known = self.identity
        except SettingError:
            known = {"class": qualified(type(self))}
        return {"settings of": str(known.pop("class")), "groups": plain(self.groups)} | known

    @abstractmethod
    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor | None, features: Tensor | None) -> Tensor:
        """The method itself, on checked input; ``codes`` are in the order of :attr:`groups`."""

    def means(self, values: Tensor, codes: Tensor) -> GroupMeans:
        """For ``compute``: :func:`group_means`, over all ranks where it joins them; two numbers per group travel.

        Parameters
        ----------
        values : (n,), one per sample.
        codes : (n,), the number of each sample's group.
        """
        sums, counts = _totals(values, codes, len(self.groups))
        return _means(*(self._joining.total(sums, counts) if self._joining else (sums, counts)))

    def mean(self, values: Tensor) -> Tensor:
        """For ``compute``: the mean over samples, over all ranks where it joins them; two numbers travel.

        Parameters
        ----------
        values : (n,), one per sample.
        """
        if not self._joining:
            return values.mean()
        count = torch.full((), float(len(values)), dtype=values.dtype, device=values.device)
        total, count = self._joining.total(values.sum(), count)
        return total / count

    def joined(self, *rows: Tensor) -> tuple[Tensor, ...]:
        """For ``compute``: the rows of all ranks where it joins them, rank after rank; else as they are.

        Parameters
        ----------
        rows : (n, …) each.
        """
        return self._joining.rows(*rows) if self._joining else rows

    @property
    def weights(self) -> dict[Name, float]:
        """How much each group counts at present, by name."""
        return self.groups.named([1.0 / len(self.groups)] * len(self.groups))

    @property
    def settings(self) -> Record:
        """The constructor arguments, by name, without groups and prior."""
        return {name: value for name, value in arguments_of(self).items() if name not in ("groups", "prior")}

    @property
    def identity(self) -> Record:
        """The class and all constructor arguments as JSON values: equal for equal settings, and only for those."""
        return identity_of(self)

    def extra_repr(self) -> str:
        try:
            settings = self.settings
        except SettingError:  # a class that does not follow the convention has a shorter repr
            settings = {}
        given = [f"{key}={value!r}" for key, value in settings.items() if value is not None]
        ranks = [f"over {many(self._ranks.size, 'rank')}"] if self._ranks else []
        return ", ".join([f"{len(self.groups)} groups", *given, *ranks])

    def _keep_to_groups(self, *also: Any) -> None:
        """For a method whose state is in the order of the groups: keep it from being loaded into others."""
        digest = hashlib.sha256(repr((self.groups.names, *also)).encode()).digest()
        self.register_buffer("digest", torch.tensor(list(digest), dtype=torch.uint8))
        self.register_load_state_dict_pre_hook(_require_same_groups)  # type: ignore[no-untyped-call]  # torch's

    def _codes(self, groups: GroupIds | Tensor, losses: Tensor) -> Tensor:
        if isinstance(groups, GroupIds):
            codes = self._translated(groups)
        elif isinstance(groups, Tensor | np.ndarray):
            codes = torch.as_tensor(groups)
        else:
            raise DataError(
                f"groups are {type(groups).__name__}: expected GroupIds, as Groups.of(names) gives them, or a tensor "
                "of codes, as objective.groups.encode(names) gives them."
            )
        if codes.shape != losses.shape:
            raise DataError(
                f"{losses.shape[0]} losses but group codes of shape {tuple(codes.shape)}: give one per sample."
            )
        if codes.is_floating_point() or codes.dtype == torch.bool:
            raise DataError(f"group codes have type {codes.dtype}: expected integers.")
        if codes.device.type == "cpu" and len(codes):  # on a GPU the check would wait for the device
            low, high = int(codes.min()), int(codes.max())
            if low < 0 or high >= len(self.groups):
                raise GroupMismatchError(
                    f"group codes run from {low} to {high}, but there are {len(self.groups)} groups "
                    f"(codes 0 to {len(self.groups) - 1})."
                )
        return codes.to(device=losses.device, dtype=torch.long)

    def _translated(self, ids: GroupIds) -> Tensor:
        """Codes of other Groups as codes of our own, by name; a batch's groups may be some of ours, never others."""
        codes = torch.as_tensor(ids.codes)
        if ids.groups not in self._tables:
            strange = [name for name in ids.groups if name not in self.groups]
            if strange:
                raise GroupMismatchError(
                    f"group(s) in the batch that {type(self).__name__} does not know: {listed(strange)}. It was built "
                    f"for {listed(self.groups)}. Build it with all training groups, or leave those rows out."
                )
            if len(self._tables) >= MOST_TABLES:
                self._tables.clear()
            same = ids.groups == self.groups
            self._tables[ids.groups] = None if same else torch.as_tensor(self.groups.encode(ids.groups))
        table = self._tables[ids.groups]
        if table is None or codes.is_floating_point():
            return codes
        if codes.device.type == "cpu" and len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(table):
            raise GroupMismatchError(
                f"group codes run from {int(codes.min())} to {int(codes.max())}, but there are {len(table)} groups."
            )
        if table.device != codes.device:
            table = self._tables[ids.groups] = table.to(codes.device)
        return table[codes]


#: Name to class.
OBJECTIVES: Registry[type[Objective]] = Registry("objective")
register = OBJECTIVES.register


class PenalizedObjective(Objective):
    r"""Mean group loss plus a penalty, :math:`\frac1m \sum_e \ell_e + \lambda R`, that sets in after a warm-up.

    A penalty in force from the start keeps a network from learning anything. During the warm-up its weight is
    :math:`\min(1, \lambda)`; then it is :math:`\lambda`, and loops reset the optimiser's state: step sizes that suited
    the gradients before would be far too large. (DomainBed's weight during the warm-up is 1, also for a smaller
    :math:`\lambda`; its warm-up has 500 of 5,000 steps.)

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\lambda`.
    warm_up : number of steps in training mode for which the weight is :math:`\min(1, \lambda)`. It suits runs of a few
        thousand steps; for shorter ones set a fraction of theirs.
    """

    steps: Tensor

    def __init__(self, groups: Groups | Iterable[Name], penalty: float, warm_up: int) -> None:
        super().__init__(groups)
        self.penalty = non_negative(penalty, "penalty")
        self._early = min(1.0, self.penalty)
        self.warm_up = whole(warm_up, "warm_up", 0)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor | None, features: Tensor | None) -> Tensor:
        if self.steps.device != losses.device:
            self.to(losses.device)
        means = self.means(losses, codes)
        ready = (self.steps >= self.warm_up).to(losses.dtype)
        factor = ready * self.penalty + (1.0 - ready) * self._early
        value = means.mean() + factor * self.penalise(means, losses, codes, logits)
        if self.training:
            self.steps = self.steps + 1
        return value

    @abstractmethod
    def penalise(self, means: GroupMeans, losses: Tensor, codes: Tensor, logits: Tensor | None) -> Tensor:
        r"""R, the penalty before it is multiplied by :math:`\lambda`."""


class WeightedObjective(Objective):
    """A weighted sum of group losses whose weights follow a rule: IW-ERM, group DRO, TRO.

    A batch may lack groups. The rule then works with the last loss seen of each; before the first sight of a group,
    with the mean over the groups in the batch, which neither raises nor lowers its weight.

    Parameters
    ----------
    prior : a :class:`~toporo.Prior`, or weights by group name.
    rule : how the weights move, from :mod:`toporo.robust.weights`.
    groups : the groups that integer codes refer to, if not those of the prior in canonical order.
    """

    q: Tensor
    prior_weights: Tensor
    last_losses: Tensor
    seen: Tensor

    def __init__(self, prior: Prior | Mapping[Any, float], rule: WeightRule, groups: Groups | None = None) -> None:
        self.prior = prior if isinstance(prior, Prior) else Prior.from_weights(prior)
        super().__init__(groups or self.prior.groups)
        weights = self.groups.align(self.prior.weights, what="the prior")
        self.rule = rule
        self.register_buffer("prior_weights", torch.as_tensor(weights))
        self.register_buffer("q", self.rule.init(torch.as_tensor(weights)))
        self.register_buffer("last_losses", torch.zeros(len(self.groups), dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(len(self.groups), dtype=torch.float64))
        self._keep_to_groups(weights.tolist())

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor | None, features: Tensor | None) -> Tensor:
        means = self.means(losses, codes)
        if self.q.device != losses.device:
            self.to(losses.device)
        if self.training:
            self._advance(means)
        return means.weighted(self.q.to(means.values.dtype))

    @torch.no_grad()
    def _advance(self, means: GroupMeans) -> None:
        values = means.values.detach().to(self.q.dtype)
        # One overflowed batch must not spoil q for ever. Every operation is a kernel: few of them.
        usable = torch.logical_and(values.abs() < torch.inf, means.present)
        self.last_losses = torch.where(usable, values, self.last_losses)
        self.seen = torch.maximum(self.seen, usable)
        seen_now = usable.sum().clamp(min=1)
        typical = values.nan_to_num(0.0, 0.0, 0.0).sum() / seen_now  # 0 where a group is absent
        self.q = self.rule.update(self.q, torch.where(self.seen > 0, self.last_losses, typical), self.prior_weights)

    @property
    def weights(self) -> dict[Name, float]:
        return self.groups.named(self.q.tolist())


def _full_precision(device: str) -> AbstractContextManager[Any]:
    """Autocast off: it would round group means, which are products on a GPU, to the half precision of the network."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def _require_same_groups(module: nn.Module, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    digest = state.get(f"{prefix}digest")
    if digest is None or not isinstance(module, Objective):
        return
    if not torch.equal(digest.cpu(), module.get_buffer("digest").cpu()):
        prior = module.prior if isinstance(module, WeightedObjective) else None
        raise GroupMismatchError(
            f"this state is of other groups {'or another prior ' if prior else ''}than those of the "
            f"{type(module).__name__} it is loaded into ({listed(prior.weights.items() if prior else module.groups, 4)}"
            f"). Build the objective with the same groups{' and prior' if prior else ''}."
        )


def feature_rows(features: Tensor | None, losses: Tensor) -> Tensor:
    """Features as (n, d) in the losses' type, which is never a half precision."""
    if features is None or features.ndim != 2:
        given = "none" if features is None else f"of shape {tuple(features.shape)}"
        raise DataError(f"features are {given}: expected one row per sample, (n, d). Pool or flatten them.")
    return features.to(losses.dtype)
