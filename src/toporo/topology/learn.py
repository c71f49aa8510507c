"""The data-driven topology: features and groups to distances to a graph (Qiao & Peng 2023, Sec. 3.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from toporo.checks import whole
from toporo.errors import SettingError, listed, warn
from toporo.groups import GroupIds, Groups
from toporo.progress import tracked
from toporo.topology.cuts import CUTS, Mask
from toporo.topology.diffusion import GroupDiffusion, GroupDistances
from toporo.topology.edges import Edge
from toporo.topology.graph import GroupGraph, Origin
from toporo.types import Array, Name

#: Resamples by default, and the number of points up to which they are taken unasked.
DEFAULT_RESAMPLES, FEW_POINTS = 20, 10_000
#: Accuracy of a resampled distance; the resampling itself moves it by far more.
RESAMPLE_TOL = 1e-3
#: Distances of an informative topology differ by at least this many times what resampling does to them.
INFORMATIVE = 1.0
#: Nor is a topology uninformative whose edges stay in this share of the resamples, however alike its distances.
STEADY = 0.95


def learn_topology(
    features: Any,
    groups: Any,
    *,
    test_groups: Iterable[Name] = (),
    cut: str = "mst-knn",
    percentile: float = 80.0,
    resamples: int | None = None,
    seed: int = 0,
    **emd: Any,
) -> GroupGraph:
    """Learn which groups are related: diffusion EMD between them, then a cut.

    Parameters
    ----------
    features, groups : of the rows; penultimate activations of an ERM model (as in the paper) or raw inputs.
    test_groups : names of the groups that are never trained on, if there are unlabelled rows of them. The graph and
        every prior made from it record that test inputs were seen.
    cut, percentile : see :func:`cut_graph`.
    resamples : how often to draw the points of every group anew, with replacement, to see which edges stay; the data
        graph is built once. Each costs about as much as the distances themselves: 20 up to 10 000 points and none
        beyond, unless given.
    seed : of the resamples.
    emd : settings of :func:`~toporo.topology.diffusion.diffusion_emd` (``sigma``, ``scales``, ``kernel``, …).

    Returns
    -------
    GroupGraph
        Edges carry the distances as lengths and, if resampled, :attr:`~toporo.GroupGraph.stability`, the fraction of
        resamples that keep them; ``graph.bootstrap_edges`` has the edges of each resample, by which
        ``graph.prior(..., cautious=True)`` judges the prior, and ``graph.origin.details`` says how it was learned.

    Warns
    -----
    TopoRoWarning
        If the distances differ by no more than resampling makes them, and the edges do not stay: such a topology says
        nothing.

    >>> points = np.random.default_rng(0).normal(size=(60, 2)) + 2 * np.repeat(range(3), 20)[:, None]
    >>> graph = learn_topology(points, np.repeat(["low", "middle", "high"], 20), resamples=3)
    >>> sorted(graph.edges)
    [('high', 'middle'), ('low', 'middle')]
    >>> graph.prior(["high", "low", "middle"]).saw  # test groups took no part
    ()
    """
    ids = groups if isinstance(groups, GroupIds) else Groups.of(groups)
    test = ids.groups.encode(test_groups)
    keep = partial(_kept, cut=cut, percentile=percentile)
    keep(np.zeros((len(ids.groups),) * 2))  # a wrong setting is an error before the work
    if resamples is None:
        resamples = DEFAULT_RESAMPLES if len(ids) <= FEW_POINTS else 0
    if whole(resamples, "resamples", 0) == 1:
        raise SettingError("resamples is 1, which says nothing about spread: expected 0 for none, or at least 2.")
    prepared = GroupDiffusion.prepare(features, ids, **emd)
    distances = prepared.distances()
    graph = cut_graph(distances, cut, percentile=percentile)
    details = dict(graph.origin.details)
    bootstrap_edges: list[dict[Edge, float]] = []
    if resamples:
        draws = resample(prepared, int(resamples), seed=seed, tol=max(prepared.settings.tol, RESAMPLE_TOL))
        masks = [keep(draw.matrix) for draw in draws]
        # Digits beyond the accuracy of these lengths would only fill the graph's file.
        bootstrap_edges = [_lengths(draw, mask, digits=4) for draw, mask in zip(draws, masks, strict=True)]
        ratio = contrast(distances, draws)
        stays = float(np.mean(masks, axis=0)[np.triu(keep(distances.matrix), 1)].mean())
        details |= {"resamples": int(resamples), "contrast": ratio, "mean_stability": stays}
        if ratio is not None and ratio < INFORMATIVE and stays < STEADY:
            warn(
                f"the learned topology is not informative: distances between groups differ by {ratio:.1f} times "
                f"what resampling the points does to them, and its edges stay in only {stays:.0%} of the resamples. "
                "The groups may be alike in these features, or have too few points."
            )
    return graph.replace(origin=Origin("learned", len(test) > 0, details), bootstrap_edges=bootstrap_edges)


def resample(prepared: GroupDiffusion, count: int, *, seed: int = 0, tol: float = 1e-3) -> list[GroupDistances]:
    """Draw every group's points anew, ``count`` times, and compute the distances between the groups on the same graph.

    Only the groups' weights on the data graph change.
    """
    rng = np.random.default_rng(seed)
    codes = np.asarray(prepared.graph.ids.codes)
    in_order = np.argsort(prepared.graph.point_of_row, kind="stable")  # independent of the order of the rows
    members = [in_order[codes[in_order] == code] for code in range(len(prepared.graph.ids.groups))]
    draws = []
    for _ in tracked(range(count), "resampling, to see which edges stay"):
        weights = np.zeros(len(codes))
        for rows in members:
            weights[rows] = rng.multinomial(len(rows), np.full(len(rows), 1.0 / len(rows)))
        draws.append(prepared.distances(tol, weights))
    return draws


def contrast(distances: GroupDistances, draws: Sequence[GroupDistances]) -> float | None:
    """Compare how much distances differ among pairs of groups with how much one differs among resamples.

    The ratio of two standard deviations: about 1 or less where nothing but chance tells pairs apart. None where there
    is one pair only, or no difference among resamples.
    """
    pairs = np.triu_indices(len(distances.groups), 1)
    deviations = np.std([draw.matrix for draw in draws], axis=0, ddof=1)
    noise = float(np.sqrt(np.mean(deviations[pairs] ** 2)))
    return float(np.std(distances.matrix[pairs], ddof=1)) / noise if len(pairs[0]) > 1 and noise > 0 else None


def cut_graph(distances: GroupDistances, cut: str = "mst-knn", *, percentile: float = 80.0) -> GroupGraph:
    """Make a graph whose edges are the short distances.

    - ``"percentile"``: pairs closer than this percentile of the whole distance matrix, its zero diagonal included (the
      published code's rule; it uses 80 for DG-15 and 40 for DG-60). Closer means strictly: the pair at it is left out.
    - ``"knn"``: pairs of which one is among the other's nearest; these are the natural logarithm of the number of
      groups, rounded.
    - ``"mst-knn"``: the same, united with the minimum spanning tree, so that the graph is connected.
    - ``"mst-knn-ties"``: the same, united with every pair that is as short up to a tenth
      (:func:`~toporo.topology.cuts.mst_knn_ties_cut`). For few groups: three are a chain only if one distance is
      clearly the longest, and else complete.

    Parameters
    ----------
    distances : between all pairs of groups.
    cut : one of the names above.
    percentile : of ``"percentile"``.
    """
    keep = _kept(distances.matrix, cut, percentile)
    used = {"percentile": float(percentile)}
    if cut != "percentile":
        used = {"nearest_groups": _nearest_groups(len(distances.groups))}
    origin = Origin("learned", details={**distances.settings, "error": distances.error, "cut": cut, **used})
    graph = GroupGraph(distances.names, _lengths(distances, keep), origin=origin)
    if len(parts := graph.components()) > 1:
        warn(
            f"cut={cut!r} leaves the learned graph in {len(parts)} pieces (largest: {listed(parts[0])}). "
            "Use cut='mst-knn' for a connected graph."
        )
    return graph


def _kept(matrix: Array, cut: str, percentile: float) -> Mask:
    """Return which pairs a cut keeps."""
    choose = CUTS[cut]
    if not 0 < percentile <= 100:
        raise SettingError(f"percentile is {percentile!r}: expected a number above 0 and at most 100.")
    return choose(matrix, percentile, _nearest_groups(len(matrix)))


def _nearest_groups(groups: int) -> int:
    return max(1, round(math.log(groups)))


def _lengths(distances: GroupDistances, keep: Mask, digits: int = 17) -> dict[Edge, float]:
    """Return the distances of the pairs that are kept."""
    names = distances.names
    # Two groups with the same points are at distance 0; an edge needs a positive length.
    shortest = np.finfo(np.float64).tiny
    return {
        (names[i], names[j]): max(float(f"{distances.matrix[i, j]:.{digits}g}"), shortest)
        for i, j in np.argwhere(np.triu(keep, 1))
    }
