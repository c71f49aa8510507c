"""Topology-aware robust optimisation."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, ClassVar

from toporo.checks import one_of
from toporo.errors import SettingError
from toporo.objectives.base import WeightedObjective, register
from toporo.robust import RULES
from toporo.topology.prior import Prior

#: The rule that suits a divergence: its own geometry's gradient step where there is a stable one.
DEFAULT_UPDATE = {"l2": "ascent", "kl": "mirror", "chi2": "exact"}


@register("tro")
class TRO(WeightedObjective):
    r"""The worst mixture of groups near the topology's prior (Qiao & Peng 2023):

    .. math:: \min_\theta \max_{q \in \Delta} \sum_e q_e \ell_e(\theta) - \lambda D(q \| p),
              \qquad\text{or}\qquad D(q\|p) \le \tau .

    Parameters
    ----------
    prior : a :class:`~toporo.Prior`, or weights by group name.
    penalty : :math:`\lambda`. Infinity is IW-ERM with the prior as weights; with a uniform prior, ERM. 0 is group DRO
        by projected gradients.
    step : :math:`\eta_q` of ``ascent`` and ``mirror``.
    update : ``"ascent"`` (the paper's alternation), ``"exact"`` (best response to each batch), ``"mirror"`` or
        ``"constrained"`` (takes ``radius`` instead of ``penalty``). Unless given: the one that suits the divergence
        (ascent for l2, mirror for KL, exact for chi-square), or constrained if there is a radius.
    divergence : D: ``"l2"`` (the paper's), ``"kl"`` or ``"chi2"``.
    radius : :math:`\tau` of ``update="constrained"``.
    start : where q begins: at the ``"prior"``, or ``"uniform"`` as in the authors' code.

    >>> import torch
    >>> objective = TRO({"NY": 0.5, "PA": 0.5}, penalty=1.0, step=0.5)
    >>> _ = objective(torch.tensor([1.0, 3.0]), torch.tensor([0, 1]))  # PA, the second name, has the larger loss
    >>> objective.weights
    {'NY': 0.0, 'PA': 1.0}
    """

    takes_prior: ClassVar[bool] = True

    def __init__(
        self,
        prior: Prior | Mapping[Any, float],
        penalty: float = 1.0,
        step: float = 0.1,
        *,
        update: str | None = None,
        divergence: str = "l2",
        radius: float | None = None,
        start: str = "prior",
    ) -> None:
        one_of(start, "start", ("prior", "uniform"))
        prior = prior if isinstance(prior, Prior) else Prior.from_weights(prior)
        if update is None:
            update = "constrained" if radius is not None else DEFAULT_UPDATE.get(divergence, "exact")
        rule = RULES[one_of(update, "weight update", RULES)]
        if (update == "constrained") != (radius is not None):
            raise SettingError(
                f"update={update!r} and radius={radius!r}: expected radius=, the largest D(q‖p) allowed, with "
                "update='constrained' and only with that; the other updates take penalty=."
            )
        settings = {"step": step, "penalty": penalty, "radius": radius, "divergence": divergence}
        super().__init__(prior, rule(**{name: settings[name] for name in signature(rule).parameters}))
        if start == "uniform":
            self.q.fill_(1.0 / len(self.groups))
        self.penalty, self.step, self.radius = penalty, step, radius
        self.update, self.divergence, self.start = update, divergence, start
