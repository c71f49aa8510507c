"""The prior that settings ask for, over all training groups and where some of them are held out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toporo.errors import SettingError, TopoRoError, TopoRoWarning, UnknownNameError
from toporo.groups import Groups, plain_name
from toporo.topology.centrality import MEASURES, centrality
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import NORMALIZATIONS, Prior, make_prior
from toporo.types import Name

#: The share of an automatic prior that is spread evenly. A centrality can put nearly all weight on two or three groups,
#: whose few rows then decide the model. On 36 problems with real temperatures spreading half of it is as good on
#: average and better at worst, though not for every kind of problem (benchmarks/results/defaults.md).
EVEN = 0.5


@dataclass(frozen=True)
class PriorMaker:
    """The settings of a prior, and the graph it comes from.

    Parameters
    ----------
    kind : ``"auto"``, ``"uniform"``, a measure, a :class:`~toporo.Prior` or ``{group: weight}``.
    graph : of the groups; None where there is none.
    with_test : whether the prior looks from the test groups, or in a fold from the groups held out.
    normalization, temperature : how a measure becomes a prior; ``"sum"`` unless given.
    """

    kind: Any
    graph: GroupGraph | None
    with_test: bool
    normalization: str | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        kind = self.kind
        if isinstance(kind, str):
            known = ("auto", "uniform", *MEASURES)
            if kind not in known:
                raise UnknownNameError("prior", kind, known)
            if kind in MEASURES and self.graph is None:
                raise SettingError(
                    f"prior={kind!r} is a centrality in a graph, and there is none: give a graph (graph=, "
                    "--graph), or use the prior 'uniform'."
                )
            if kind == "harmonic" and not self.with_test:
                raise SettingError(
                    "prior='harmonic' walks from the test groups: name them (test_groups=, --test-groups), or use "
                    "another prior."
                )
        elif not isinstance(kind, Prior | Mapping):
            raise SettingError(
                f"prior is of type {type(kind).__name__}: expected 'auto', 'uniform', a measure "
                f"({', '.join(MEASURES)}), a Prior or {{group: weight}}."
            )
        if self.normalization is not None and self.normalization not in NORMALIZATIONS:
            raise UnknownNameError("normalization", self.normalization, NORMALIZATIONS)

    @property
    def measure(self) -> str | None:
        """The centrality that the prior comes from; None for a uniform or a given one."""
        if isinstance(self.kind, str) and self.kind in MEASURES:
            return self.kind
        if self.kind == "auto" and self.graph is not None:
            return "harmonic" if self.with_test else "betweenness"
        return None

    def prior(self, groups: Groups, test: Sequence[Name] | None) -> Prior:
        """Over the training groups, of which there are at least two."""
        if isinstance(self.kind, Prior | Mapping):
            given = self.kind if isinstance(self.kind, Prior) else Prior.from_weights(self.kind)
            groups.require_same(given.weights, what="the prior")
            return given
        if self.graph is None or self.measure is None:
            return Prior.uniform(groups)
        return self._made(self.graph, self.measure, list(groups), test)

    def fold(self, kept: Sequence[Name], held_out: Sequence[Name]) -> Prior | None:
        """The prior over ``kept`` where other training groups stand for test groups.

        None, which is uniform, where no graph decides it or nothing of a given prior is left.
        """
        if isinstance(self.kind, Prior | Mapping):
            weights = self.kind.weights if isinstance(self.kind, Prior) else self.kind
            left = {plain_name(name): float(weight) for name, weight in weights.items() if plain_name(name) in kept}
            return Prior.from_weights(left) if any(left.values()) else None
        if self.graph is None or self.measure is None:
            return None
        world = self.graph.subgraph([*kept, *held_out])
        return self._made(world, self.measure, list(kept), list(held_out) if self.with_test else None)

    def centrality(self, groups: Groups, test: Sequence[Name] | None, prior: Prior | None) -> dict[Name, float] | None:
        """Of every training group: that of the prior, or where it has none, that of an automatic prior."""
        if self.graph is None or len(groups) < 2:
            return None
        if prior is not None and prior.centrality:
            return dict(prior.centrality)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopoRoWarning)
            try:
                return centrality(self.graph, groups, test, measure="harmonic" if self.with_test else "betweenness")
            except TopoRoError:
                return None

    def _made(self, graph: GroupGraph, measure: str, train: list[Name], test: Sequence[Name] | None) -> Prior:
        made = make_prior(
            graph,
            train,
            test,
            measure=measure,
            # A softmax of raw path counts puts nearly all weight on one group, so it must be asked for.
            normalization=self.normalization or "sum",
            temperature=self.temperature,
        )
        return made.spread(EVEN) if self.kind == "auto" else made
