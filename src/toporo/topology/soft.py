r"""From distances between groups to a prior without a cut: every step smooth, in torch, batched over leading axes.

A cut of the distances into edges and a count of shortest paths have no derivative. Their soft kin do: conductances
that fall with distance, and a current in place of the paths, which takes all ways at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: The smallest mean distance that distances are compared with: groups nearer than this coincide.
TINY = 1e-9
#: What every pair of groups conducts, however far apart.
FLOOR = 1e-9
#: Currents below this hardly count: :math:`|i|` is :math:`\sqrt{i^2 + \epsilon^2} - \epsilon`.
SMOOTHING = 1e-3


def soft_adjacency(distances: Tensor, reach: float = 0.2) -> Tensor:
    r"""Conductances between groups from their distances, without an edge that is there or not:

    .. math:: A_{ef} = \exp\Bigl(-\frac{W_{ef}}{r \bar W}\Bigr) + \delta \text{ for } e \ne f , \qquad A_{ee} = 0 ,

    with :math:`\bar W` the mean over all pairs, so it does not matter what distances are measured in. Near 0, r leaves
    the nearest pairs and no others; large r makes all pairs alike. :math:`\delta` is 1e-9: no group is cut off.

    Parameters
    ----------
    distances : (…, m, m), symmetric, W.
    reach : r, the distance over which a conductance falls by e, as a share of the mean distance.
    """
    m = distances.shape[-1]
    apart = 1.0 - torch.eye(m, dtype=distances.dtype, device=distances.device)
    mean = (distances * apart).sum(dim=(-2, -1), keepdim=True) / max(1, m * (m - 1))
    return apart * (torch.exp(-distances / (reach * mean.clamp(min=TINY))) + FLOOR)


def current_flow_betweenness(adjacency: Tensor, smoothing: float = SMOOTHING) -> Tensor:
    r"""How much current passes through a group (Newman 2005; Brandes & Fleischer 2005): (…, m).

    For every pair of other groups s and t a unit of current enters at s and leaves at t. With the Laplacian
    :math:`L = \operatorname{diag}(A 1) - A` of the conductances A, the potentials are
    :math:`v = L^+ (1_s - 1_t)`, and half of what flows in and out of e passes through it:

    .. math:: c_e = \sum_{s < t;\; s, t \ne e} \frac12 \sum_f | A_{ef} (v_e - v_f) |_\epsilon , \qquad
              |i|_\epsilon = \sqrt{i^2 + \epsilon^2} - \epsilon .

    It is the net share of random walks from s to t that pass through e: steps that are taken back do not count. On a
    tree it is the number of shortest paths through e. With :math:`\epsilon = 0` it is networkx's
    ``current_flow_betweenness_centrality(normalized=False)``; above 0 it has a derivative everywhere. The graph must be
    connected. Nothing looks at a value: one inverse of an m x m matrix, and m^4 numbers (48 groups: 42 MB).

    Parameters
    ----------
    adjacency : A, (…, m, m), symmetric, not negative; the diagonal is 0.
    smoothing : :math:`\epsilon`, to be compared with the unit of current.
    """
    m = adjacency.shape[-1]
    # The constant vector, which L sends to 0, is sent to itself instead; differences of potentials do not see it. In
    # units of the mean conductance, whatever the conductances are measured in.
    degree = adjacency.sum(dim=-1)
    unit = (degree.sum(dim=-1, keepdim=True) / m)[..., None].clamp(min=torch.finfo(adjacency.dtype).tiny)
    laplacian = (torch.diag_embed(degree) - adjacency) / unit + 1.0 / m
    green: Tensor = torch.linalg.inv_ex(laplacian).inverse  # no look at whether it worked: that would wait
    across = (green[..., :, None, :] - green[..., None, :, :]) * (adjacency / unit)[..., None]  # (…, e, f, s)
    currents = across[..., :, None] - across[..., None, :]  # (…, e, f, s, t)
    through = ((currents.square() + smoothing**2).sqrt() - smoothing).sum(dim=-3)  # every current twice: half of it
    other = 1.0 - torch.eye(m, dtype=through.dtype, device=through.device)
    return 0.25 * (through * other[:, :, None] * other[:, None, :]).sum(dim=(-2, -1))  # and every pair twice
