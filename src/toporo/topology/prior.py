"""Priors over training groups: the distribution p that worst-case weights are kept near."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from toporo.errors import DataError, SettingError, listed
from toporo.groups import Groups, name_to_json, named_from_json, plain_name
from toporo.schema import Finite, NonNegative, Positive, Share, as_type
from toporo.topology.effect import cap_weights, groups_in_effect
from toporo.types import Name

#: Weights that differ by less are equal.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Prior:
    """Weights over the training groups, by name, with a record of how they were made.

    Attributes
    ----------
    weights : non-negative, summing to one.
    measure : the centrality they come from, or ``"uniform"`` / ``"given"``.
    normalization, temperature : how centralities became weights (None where they did not).
    saw_test_adjacency : whether given edges of test groups took part (edges learned from inputs do not count).
    saw_test_inputs : whether inputs of test groups took part in learning the graph.
    centrality : the values before normalisation.
    uniform_share : the share of the weight that was spread evenly over all groups (:meth:`spread`).
    capped_mass : the share of the weight that was taken from groups with few rows (:meth:`within`).
    bootstrap_rms : root mean square of the Euclidean distance between the weights that follow from the centralities
        and those of the bootstrap resamples of a learned graph's points. None where it was not measured.
    fallback_reason : why the weights are uniform instead; empty where they follow from the centralities.

    >>> prior = Prior.from_weights({"NY": 1, "PA": 3})
    >>> prior["PA"], prior.spread(0.5)["PA"], prior.saw
    (0.75, 0.625, ())
    """

    weights: Mapping[Any, NonNegative]
    measure: str = "given"
    normalization: str | None = None
    temperature: Positive | None = None
    saw_test_adjacency: bool = False
    saw_test_inputs: bool = False
    centrality: Mapping[Any, Finite] = field(default_factory=dict)
    uniform_share: Share = 0.0
    capped_mass: Share = 0.0
    bootstrap_rms: NonNegative | None = None
    fallback_reason: str = ""

    def __post_init__(self) -> None:
        weights = {plain_name(name): float(value) for name, value in self.weights.items()}
        if len(weights) < 2:
            raise DataError(
                f"a prior over {len(weights)} group(s) ({listed(weights)}) leaves nothing to weigh: robust training "
                "needs at least two training groups. With a single group, use ERM."
            )
        bad = {name: value for name, value in weights.items() if not (math.isfinite(value) and value >= 0)}
        if bad:
            raise DataError(f"prior weights must be finite and non-negative; found {bad}.")
        total = math.fsum(weights.values())
        if abs(total - 1.0) > 1e-6:
            raise DataError(f"prior weights sum to {total:g}, expected 1; Prior.from_weights(...) normalises them.")
        # Up to rounding it sums to one already; dividing again would change the last bits at every copy.
        scale = total if abs(total - 1.0) > 1e-12 else 1.0
        object.__setattr__(self, "weights", {name: weights[name] / scale for name in Groups(weights)})

    def __repr__(self) -> str:
        return f"Prior({len(self.weights)} groups, {self.measure}, {self.effective_groups:.1f} in effect)"

    @classmethod
    def uniform(cls, names: Iterable[Name]) -> Prior:
        """Give each of ``names`` the same weight: the control that any claim about a prior needs."""
        groups = Groups(names)
        return cls({name: 1.0 / len(groups) for name in groups}, measure="uniform")

    @classmethod
    def from_weights(cls, weights: Mapping[Any, float], **about: Any) -> Prior:
        """Scale non-negative numbers by name, ``weights``, to sum to one; ``about`` are other attributes."""
        if not isinstance(weights, Mapping):
            raise DataError(
                f"prior weights are {type(weights).__name__}: expected {{group name: number}}, because weights are "
                "joined by name."
            )
        total = math.fsum(weights.values()) if weights else 0.0
        if not (math.isfinite(total) and total > 0):
            raise DataError(f"prior weights sum to {total:g}: give finite, non-negative numbers, not all of them zero.")
        return cls({name: value / total for name, value in weights.items()}, **about)

    @property
    def groups(self) -> Groups:
        """The training groups."""
        return Groups(self.weights)

    @property
    def effective_groups(self) -> float:
        """The exponential of the entropy: m for a uniform prior, 1 for one that bets on a single group."""
        return groups_in_effect(self.weights.values())

    @property
    def distance_to_uniform(self) -> float:
        """Euclidean distance to uniform weights."""
        return float(np.linalg.norm(np.asarray(list(self.weights.values())) - 1.0 / len(self)))

    @property
    def saw(self) -> tuple[str, ...]:
        """Sources of the test groups that this prior has seen: ``"test adjacency"``, ``"test inputs"``, or none."""
        return ("test adjacency",) * self.saw_test_adjacency + ("test inputs",) * self.saw_test_inputs

    def __iter__(self) -> Iterator[Name]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, name: Name) -> float:
        self.groups.encode([name])  # an unknown name is an error that lists the known ones
        return self.weights[plain_name(name)]

    def spread(self, share: float) -> Prior:
        """Spread a share of the weight evenly over all groups.

        >>> Prior({"a": 0.0, "b": 0.0, "c": 0.0, "d": 1.0}).spread(0.5).weights
        {'a': 0.125, 'b': 0.125, 'c': 0.125, 'd': 0.625}
        """
        if not 0 <= share <= 1:
            raise SettingError(f"share is {share!r}: expected a number from 0 to 1.")
        weights = {name: (1 - share) * weight + share / len(self) for name, weight in self.weights.items()}
        return replace(self, weights=weights, uniform_share=self.uniform_share + share * (1 - self.uniform_share))

    def within(self, most: Mapping[Name, float]) -> Prior:
        """Move the weight of groups above their limit to the others, in proportion to the others' weights.

        Parameters
        ----------
        most : limits by group, which sum to one at least.

        >>> Prior({"a": 0.25, "b": 0.25, "c": 0.5}).within({"a": 0.1, "b": 0.9, "c": 0.9}).capped_mass
        0.15
        """
        before = self.groups.align(self.weights)
        after = cap_weights(before, self.groups.align(most, what="the most weight"))
        taken = float(np.clip(before - after, 0.0, None).sum())
        if taken < ROUNDING:
            return self
        return replace(self, weights=self.groups.named(after), capped_mass=taken)

    def shuffled(self, seed: int) -> Prior:
        """Permute the weights over the groups by a ``seed``: a control for whether *which* group matters."""
        names = list(self.weights)
        order = np.random.default_rng(seed).permutation(len(names))
        source = {name: names[i] for name, i in zip(names, order, strict=True)}
        return replace(
            self,
            weights={name: self.weights[other] for name, other in source.items()},
            centrality={name: self.centrality[other] for name, other in source.items()} if self.centrality else {},
            measure=f"shuffled {self.measure}",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the prior as plain values for JSON."""
        by_name = {key: getattr(self, key) for key in ("weights", "centrality")}
        pairs = {key: [[name_to_json(name), x] for name, x in values.items()] for key, values in by_name.items()}
        return asdict(self) | pairs

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Prior:
        """Build a prior from the ``content`` that :meth:`to_dict` returns."""
        try:
            content = as_type(content, dict[str, Any], "its form is wrong")
            unknown = content.keys() - cls.__dataclass_fields__.keys()
            if unknown:
                raise DataError(f"it has the unknown field(s) {listed(sorted(unknown))}")
            by_name = {
                key: named_from_json(as_type(content.get(key, []), list[tuple[Any, Any]], f"its {key}"), f"its {key}")
                for key in ("weights", "centrality")
            }
            return as_type({**content, **by_name}, cls, "its form is wrong")
        except DataError as error:
            raise DataError(f"not a stored prior: {error}") from None
