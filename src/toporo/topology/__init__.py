"""Phase 1: how the groups hang together, and what prior follows from it."""

from toporo.topology.centrality import MEASURES, centrality
from toporo.topology.diffusion import GroupDistances, diffusion_emd
from toporo.topology.graph import GroupGraph, Origin
from toporo.topology.learn import CUTS, cut_graph, learn_topology
from toporo.topology.prior import Prior, make_prior

__all__ = [
    "CUTS",
    "MEASURES",
    "GroupDistances",
    "GroupGraph",
    "Origin",
    "Prior",
    "centrality",
    "cut_graph",
    "diffusion_emd",
    "learn_topology",
    "make_prior",
]
