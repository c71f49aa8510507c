"""Priors from the centrality of training groups in a graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from toporo.checks import one_of, positive
from toporo.errors import GraphError, SettingError, muted, warn
from toporo.groups import Groups
from toporo.topology.centrality import centrality
from toporo.topology.edges import Edge
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import ROUNDING, Prior
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


def make_prior(
    graph: GroupGraph,
    train: Iterable[Name],
    test: Iterable[Name] | None = None,
    *,
    measure: str = "auto",
    normalization: str | None = None,
    temperature: float = 1.0,
    cautious: bool | None = None,
) -> Prior:
    r"""Make a prior over training groups from their centrality in the graph.

    The default is the prior of the estimators (``prior="auto"``): the harmonic measure seen from the test groups, or
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
    temperature : T of the softmax. On raw path counts T = 1 often puts nearly all weight on one group, which warns, and
        a large T gives a flat prior. The result of training depends on it, so it is recorded in the prior.
    cautious : whether to give all groups the same weight, with a warning, where the bootstrap resamples of a learned
        graph do not support the prior; by default so with ``measure="auto"`` where the graph has resamples. With the
        priors :math:`p_b` of B resamples, that is where :math:`\lVert p - u \rVert^2 < 2 \cdot \frac{1}{B} \sum_b
        \lVert p_b - p \rVert^2`, u being uniform. The mean estimates the squared error of p, and the left side that of
        u with that of p added to it: u is then likely the nearer to the truth. A given graph is always trusted.

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
    test = test if test is None else list(test)
    values = centrality(graph, train, test, measure=measure)
    names = Groups(values)
    raw = names.align(values)
    weights = _normalized(raw, normalization, temperature)
    prior = Prior(
        names.named(weights),
        measure=measure,
        normalization=normalization,
        temperature=float(temperature) if normalization == "softmax" else None,
        saw_test_adjacency=test is not None and graph.origin.kind == "given",
        # A learned graph can only reach test groups if their inputs took part.
        saw_test_inputs=graph.origin.saw_test_inputs or (test is not None and graph.origin.kind == "learned"),
        centrality=names.named(raw),
    )
    draws = graph.bootstrap_edges if cautious or (cautious is None and auto) else ()
    if draws:
        drawn = [_drawn_centrality(graph, draw, names, test, measure) for draw in draws]
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
    one_of(normalization, "normalization", NORMALIZATIONS)
    positive(temperature, "temperature")
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


def _drawn_centrality(graph: GroupGraph, edges: Mapping[Edge, float], names: Groups, test: Any, measure: str) -> Array:
    """Centralities in one bootstrap resample, all equal if no path leads to a test group there."""
    with muted():  # a warning about one resample would not help the user
        try:
            return names.align(centrality(GroupGraph(graph.names, edges), names, test, measure=measure))
        except GraphError:
            return np.ones(len(names))


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
