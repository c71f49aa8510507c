"""DiffusionEMD (Tong et al. 2021, the authors' own package): its Chebyshev class, ``DiffusionCheb``.

Run ``python -m libraries.bench_diffusion_emd`` in benchmarks/ to see that, given the same kernel, it and toporo
converge to the same distances.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import sklearn.metrics
import sklearn.neighbors
from reference import indicators_of, relative_differences, squaring_densities, weighted_l1
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from libraries import load


def _package() -> Any:
    # DiffusionEMD 0.5 looks for DistanceMetric where scikit-learn had it before 1.3.
    if not hasattr(sklearn.neighbors, "DistanceMetric"):
        sklearn.neighbors.DistanceMetric = sklearn.metrics.DistanceMetric
    # pygsp warns of self-loops at every graph ("The Laplacian will not see them"): true of the combinatorial Laplacian,
    # not of the normalised one, which DiffusionEMD uses and which keeps them as toporo does.
    logging.getLogger("pygsp.graphs.graph").addFilter(lambda record: "self-loops" not in record.getMessage())
    return load("DiffusionEMD")


def fit_peer(kernel: Any, *, order: int, scales: int = 10, alpha: float = 0.5) -> Any:
    r"""``DiffusionCheb`` fitted to a symmetric kernel, with its conventions made those of toporo.

    - Scales: ``n_scales = max_scale + 1`` gives the powers 2^0 … 2^scales, all of them; its default leaves the five
      finest out. Like toporo it starts at P^1, not at the identity.
    - Anisotropy 1 (its default) divides by the row sums on both sides: :math:`M = Q^{-1} K Q^{-1}`, as toporo does.
    - The diagonal of the kernel stays as given (``DiffusionExact``, its other class, would add an identity).
    - ``use_diff_wavelets`` (its default) takes differences of neighbouring scales, as the formula says.
    - ``delta = 0`` (its default) keeps every point; no subsampling.
    - A ``csr_matrix``, not a ``csr_array``: pygsp writes products of matrices as ``*``.
    """
    model = _package().DiffusionCheb(max_scale=scales, n_scales=scales + 1, alpha=alpha, anisotropy=1, cheb_order=order)
    model.fit(sparse.csr_matrix(kernel))
    return model


def transform_peer(model: Any, indicators: np.ndarray) -> np.ndarray:
    r"""The peer's embeddings, one row per group, as its own ``transform`` gives them.

    - It applies :math:`D^{-1/2} S^t D^{1/2} = P^t` with :math:`P = D^{-1} M`, the walk's averaging direction and not
      its transpose: the same as toporo.
    - It does not normalise the distributions: the columns must be ``1_{X_e} / n_e``, and so they are given.
    """
    return np.asarray(model.transform(indicators))


def match_weights(embeddings: np.ndarray, *, scales: int = 10, alpha: float = 0.5) -> np.ndarray:
    r"""Scale the difference blocks by :math:`2^\alpha`, in place: the peer weights difference k by
    :math:`2^{-(K-k)\alpha}`, the paper and toporo by :math:`2^{-(K-k-1)\alpha}`. The block of the coarsest scale, the
    last one, has weight 1 in both. (The peer subtracts the other way round, which an l1 norm does not see.)
    """
    points = embeddings.shape[1] // (scales + 1)
    embeddings[:, : scales * points] *= 2.0**alpha
    return embeddings


def diffusion_emd_peer(
    kernel: Any, indicators: np.ndarray, *, order: int, scales: int = 10, alpha: float = 0.5
) -> np.ndarray:
    """Embeddings whose l1 distances are diffusion EMDs in toporo's weights; by DiffusionEMD, of the given order."""
    model = fit_peer(kernel, order=order, scales=scales, alpha=alpha)
    return match_weights(transform_peer(model, indicators), scales=scales, alpha=alpha)


def l1_distances(embeddings: np.ndarray) -> np.ndarray:
    """All pairs, as users of DiffusionEMD take them."""
    return squareform(pdist(embeddings, "cityblock"))


def main() -> None:
    """Check that the conventions match: at a high order the peer must give the exact distances."""
    import toporo as tr
    from toporo.topology.kernel import gaussian_kernel

    rng = np.random.default_rng(0)
    codes = np.arange(400) % 6
    points = np.c_[np.cos(codes / 2), np.sin(codes / 2)] + 0.2 * rng.normal(size=(400, 2))
    indicators = indicators_of(codes)
    print("| kernel | method | largest relative difference from dense squaring | median |\n|---|---|---|---|")
    for kind in ("knn", "dense"):
        kernel = gaussian_kernel(points, kind, "knn", 15)[0]
        exact = weighted_l1(squaring_densities(kernel, indicators))
        rows = {"toporo, tol 1e-10": tr.diffusion_emd(points, codes, kernel=kind, tol=1e-10).matrix}
        for order in (32, 128, 512):
            rows[f"DiffusionEMD, order {order}"] = l1_distances(diffusion_emd_peer(kernel, indicators, order=order))
        for name, distances in rows.items():
            off = relative_differences(distances, exact)
            print(f"| {kind} | {name} | {off.max():.1e} | {np.median(off):.1e} |")


if __name__ == "__main__":
    main()
