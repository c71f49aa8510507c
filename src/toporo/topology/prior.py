"""Priors over training groups: the distribution p that worst-case weights are kept near."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from toporo.errors import DataError, GraphError, SettingError, TopoRoWarning, UnknownNameError, listed, warn
from toporo.groups import Groups, name_to_json, named_from_json, plain_name
from toporo.schema import Finite, NonNegative, Positive, Share, as_type
from toporo.topology.centrality import centrality
from toporo.topology.effect import cap_weights, groups_in_effect
from toporo.topology.graph import Edge, GroupGraph
from toporo.types import Array, Name

NORMALIZATIONS = ("softmax", "sum")

#: The share of the default prior that is spread evenly. A centrality can put nearly all weight on two or three groups,
#: whose few rows then decide the model. On 36 problems with real temperatures spreading half of it is as good on
#: average and better at worst, though not for every kind of problem (benchmarks/results/defaults.md).
DEFAULT_SPREAD = 0.5
#: A prior over more than two groups warns if fewer are in effect.
FEWEST_GROUPS = 2.0
#: A prior warns that it is flat if its largest weight is within this factor of its smallest.
FLAT_RATIO = 1.05
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
    weighted : whether edge lengths counted.
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
    weighted: bool = False
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
        """What this prior knows of the test groups: ``"test adjacency"``, ``"test inputs"``, or nothing."""
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


def make_prior(
    graph: GroupGraph,
    train: Iterable[Name],
    test: Iterable[Name] | None = None,
    *,
    measure: str = "auto",
    normalization: str | None = None,
    temperature: float = 1.0,
    weighted: bool = False,
    cautious: bool | None = None,
) -> Prior:
    r"""Make a prior over training groups from their centrality in the graph.

    The default is the prior of the estimators (``prior="auto"``): harmonic centrality towards the test groups, or
    betweenness among the training groups if there are no test groups, divided by its sum, with half of the weight
    spread evenly over all groups. Only the estimators also limit the weight of groups with few rows.
    ``measure="betweenness"`` gives the prior of the paper.

    Parameters
    ----------
    graph : a given or learned :class:`~toporo.GroupGraph`.
    train, test : names; with ``test``, centrality is measured from the training groups to the test groups.
    measure : ``"auto"``, ``"betweenness"`` (the paper's), ``"degree"``, ``"closeness"``, ``"harmonic"``, or another
        name of :data:`~toporo.topology.centrality.MEASURES`. Nothing of a measure given by name is spread.
    normalization : ``"softmax"``: :math:`p_e \propto \exp(c_e / T)` on raw values, as the paper prints it;
        ``"sum"``: :math:`p_e \propto c_e`. Sum for ``"auto"`` and ``"harmonic"``, softmax for any other measure.
    weighted : whether edge lengths count. They do not in the paper: one hop is one hop.
    temperature : T of the softmax. On raw path counts T = 1 often puts nearly all weight on one group, which warns, and
        a large T gives a flat prior. The result of training depends on it, so it is recorded in the prior.
    cautious : whether to give all groups the same weight, with a warning, where the bootstrap resamples of a learned
        graph do not support the prior; by default so with ``measure="auto"`` where the graph has resamples. With the
        priors :math:`p_b` of B resamples, that is where :math:`\lVert p - u \rVert^2 < 2 \cdot \frac{1}{B} \sum_b
        \lVert p_b - p \rVert^2`, u being uniform. The mean estimates the squared error of p, and the left side that of
        u with that of p added to it: u is then likely the nearer to the truth. A given graph is taken at its word.

    >>> graph = GroupGraph("abcx", {("a", "b"): 1, ("b", "c"): 1, ("c", "x"): 1})
    >>> make_prior(graph, ["a", "b", "c"], ["x"]).weights  # half of it is on c, the other half is spread evenly
    {'a': 0.16666666666666666, 'b': 0.16666666666666666, 'c': 0.6666666666666666}
    >>> make_prior(graph, ["a", "b", "c"], ["x"], measure="betweenness", temperature=2).weights  # c is passed twice
    {'a': 0.1863237232258476, 'b': 0.3071958857184984, 'c': 0.506480391055654}
    """
    auto = measure == "auto"
    if auto:
        measure = default_measure(test)
    if normalization is None:
        normalization = "sum" if auto or measure == "harmonic" else "softmax"
    _check_normalization(normalization, temperature)
    if cautious and graph.origin.kind == "learned" and not graph.bootstrap_edges:
        raise SettingError(
            "a cautious prior needs bootstrap resamples of the learned graph: learn it with resamples=20, or leave out "
            "cautious."
        )
    test = test if test is None or isinstance(test, str) else list(test)
    values = centrality(graph, train, test, measure=measure, weighted=weighted)
    names = Groups(values)
    raw = names.align(values)
    weights = _normalized(raw, normalization, temperature)
    prior = Prior(
        names.named(weights),
        measure=measure,
        normalization=normalization,
        temperature=float(temperature) if normalization == "softmax" else None,
        weighted=weighted,
        saw_test_adjacency=test is not None and graph.origin.kind == "given",
        # A learned graph can only reach test groups if their inputs took part, whatever its maker says.
        saw_test_inputs=graph.origin.saw_test_inputs or (test is not None and graph.origin.kind == "learned"),
        centrality=names.named(raw),
    )
    draws = graph.bootstrap_edges if cautious or (cautious is None and auto) else ()
    if draws:
        drawn = [_drawn_centrality(graph, draw, names, test, measure, weighted) for draw in draws]
        changes = np.stack([_normalized(raw, normalization, temperature) for raw in drawn]) - weights
        prior = replace(prior, bootstrap_rms=float(np.sqrt((changes**2).sum(axis=1).mean())))
    if weights.max() <= FLAT_RATIO * weights.min():
        warn(
            f"the prior is flat ({weights.min():.3f} to {weights.max():.3f} over {len(weights)} groups): training with "
            "it is training without a topology. Use another measure, a sparser graph or, in Python, a smaller "
            "temperature."
        )
    elif prior.bootstrap_rms and prior.distance_to_uniform < math.sqrt(2.0) * prior.bootstrap_rms:
        return _fallback(prior)
    if auto:
        prior = prior.spread(DEFAULT_SPREAD)
    if len(prior) > FEWEST_GROUPS > prior.effective_groups + ROUNDING:
        top = max(prior, key=prior.weights.__getitem__)
        warn(
            f"the prior has {prior.effective_groups:.2f} groups in effect, of {len(prior)}: {100 * prior[top]:.3g} % "
            f"of the weight is on {top!r}, so training with it is close to training on that group alone. Use the "
            "default (measure='auto'), normalization='sum' or a larger temperature, or spread it with .spread(0.5)."
        )
    return prior


def default_measure(test: object) -> str:
    """Name the centrality of the default prior, given the test groups or None."""
    return "betweenness" if test is None else "harmonic"


def _check_normalization(normalization: str, temperature: float) -> None:
    if normalization not in NORMALIZATIONS:
        raise UnknownNameError("normalization", normalization, NORMALIZATIONS)
    if not (temperature > 0 and math.isfinite(temperature)):
        raise SettingError(f"temperature is {temperature!r}: expected a positive number.")
    if temperature != 1.0 and normalization == "sum":
        raise SettingError(
            f"temperature is {temperature!r}, but normalization is 'sum', which has no temperature: pass "
            "normalization='softmax', or measure='betweenness' for the prior of the paper."
        )


def _normalized(raw: Array, normalization: str, temperature: float) -> Array:
    """Turn centralities into weights."""
    if normalization == "softmax":
        scaled = (raw - raw.max()) / temperature
        return np.asarray(np.exp(scaled) / np.exp(scaled).sum())
    return raw / raw.sum() if raw.sum() > 0 else np.full(len(raw), 1.0 / len(raw))


def _drawn_centrality(
    graph: GroupGraph, edges: Mapping[Edge, float], names: Groups, test: Any, measure: str, weighted: bool
) -> Array:
    """Centralities in one bootstrap resample, all equal if no path leads to a test group there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # a warning about one resample would not help the user
        try:
            values = centrality(GroupGraph(graph.names, edges), names, test, measure=measure, weighted=weighted)
        except GraphError:
            return np.ones(len(names))
    return names.align(values)


def _fallback(prior: Prior) -> Prior:
    """Replace a prior that bootstrap resamples do not support by the uniform one, with a warning."""
    reason = (
        f"resampling the points moves the learned prior by {prior.bootstrap_rms:.2f}, and it is "
        f"{prior.distance_to_uniform:.2f} from uniform: it is not distinguishable from chance"
    )
    warn(
        f"another sample would give another prior: {reason}. All groups have the same weight instead. More points per "
        "group make a graph surer."
    )
    weights = Prior.uniform(prior).weights
    return replace(
        prior, weights=weights, measure="uniform", normalization=None, temperature=None, fallback_reason=reason
    )
