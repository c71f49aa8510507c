"""What people use today where groups differ: a mixed model, a Gaussian process, geographically weighted ridge.

Also the speed of toporo's mixed model beside statsmodels' (``make bench ONLY=mixed``).
"""

from __future__ import annotations

import importlib
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from peers import peers_folder
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

import toporo as tr
from toporo.estimators.kriged import placed
from toporo.robust.kriged import GroupFactors, fit_kriged

#: Rows that a Gaussian process is fitted to at most, drawn anew for every problem, and modes of the graph it sees.
GP_ROWS, GP_MODES = 300, 4
#: Hops that a kernel of geographically weighted ridge is wide; infinitely wide is one ridge for all.
WIDTHS = (0.5, 1.0, 2.0, 4.0, math.inf)
RIDGE = 1e-3


def standardised(x: np.ndarray, known: np.ndarray) -> np.ndarray:
    """In units of the known rows."""
    scale = x[known].std(axis=0)
    return (x - x[known].mean(axis=0)) / np.where(scale > 0, scale, 1.0)


# ---------------------------------------------------------------------- statsmodels


def statsmodels_mixed() -> Any:
    """The module with MixedLM, or None where statsmodels is not installed (benchmarks/peers.txt)."""
    if str(peers_folder()) not in sys.path:
        sys.path.append(str(peers_folder()))
    try:
        return importlib.import_module("statsmodels.regression.mixed_linear_model")
    except ImportError:
        return None


def mixed_model(problem: Any) -> np.ndarray | None:
    """Random intercepts and slopes, independent of each other; unseen groups get the fixed part.

    By L-BFGS: on temperatures the default, BFGS, ends at a lower likelihood, and farther from the truth.
    """
    peer = statsmodels_mixed()
    if peer is None:
        return None
    known = problem.known
    design = np.column_stack([np.ones(len(known)), standardised(problem.x, known)])
    width, y = design.shape[1], problem.y.reshape(len(known), -1)
    free = peer.MixedLMParams.from_components(np.ones(width), np.eye(width))
    fixed = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of variances at 0, mostly
        for column in y.T:
            model = peer.MixedLM(column[known], design[known], problem.groups[known], exog_re=design[known])
            fixed.append(model.fit(free=free, method=["lbfgs"]).fe_params)
    return (design[~known] @ np.column_stack(fixed)).reshape(-1, *problem.y.shape[1:])


# ---------------------------------------------------------------------- a Gaussian process


def graph_places(graph: tr.GroupGraph, groups: np.ndarray, count: int) -> np.ndarray:
    """Coordinates of every row's group: the smoothest modes of the Laplacian, mean square 1."""
    ids = tr.Groups.of(groups)
    modes, places = placed(graph, ids.groups)
    return modes.first(count).vectors[places][ids.codes] * math.sqrt(len(graph.names))


def gaussian_process(problem: Any) -> np.ndarray:
    """Linear plus squared exponential with a length for every input and coordinate, by marginal likelihood."""
    known = problem.known
    x = np.column_stack([standardised(problem.x, known), graph_places(problem.graph, problem.groups, GP_MODES)])
    rows = np.flatnonzero(known)
    if len(rows) > GP_ROWS:
        rows = np.random.default_rng(0).choice(rows, GP_ROWS, replace=False)
    kernel = ConstantKernel(1.0) * RBF(np.ones(x.shape[1])) + DotProduct() + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(x[rows], problem.y[rows])
    return np.asarray(model.predict(x[~known]))


# ---------------------------------------------------------------------- geographically weighted ridge


def weighted_ridge(problem: Any) -> np.ndarray:
    """A ridge for every test group, training groups weighted by hops; the width by leaving one group out."""
    known, names = problem.known, list(problem.graph.names)
    x = np.column_stack([np.ones(len(known)), standardised(problem.x, known)])
    y = problem.y.reshape(len(known), -1)
    rows = {name: problem.groups == name for name in names}
    trained = [name for name in names if name not in problem.test]
    squares = np.array([x[rows[name]].T @ x[rows[name]] for name in trained])
    products = np.array([x[rows[name]].T @ y[rows[name]] for name in trained])
    hops = {name: np.array([problem.graph.hops([name])[other] for other in trained], float) for name in names}

    def fit(weights: np.ndarray) -> np.ndarray:
        inner = np.tensordot(weights, squares, axes=1)
        some = np.arange(1, len(inner))
        inner[some, some] += RIDGE * inner[0, 0]
        return np.linalg.solve(inner, np.tensordot(weights, products, axes=1))

    def weights(name: Any, width: float) -> np.ndarray:
        logs = -0.5 * (hops[name] / width) ** 2
        return np.exp(logs - logs[hops[name] > 0].max())

    def left_out(width: float) -> float:
        total = 0.0
        for place, name in enumerate(trained):
            others = weights(name, width)
            others[place] = 0.0
            total += float(np.sum((x[rows[name]] @ fit(others) - y[rows[name]]) ** 2))
        return total

    width = min(WIDTHS, key=left_out)
    out = np.zeros_like(y)
    for name in problem.test:
        out[rows[name]] = x[rows[name]] @ fit(weights(name, width))
    return out[~known].reshape(-1, *problem.y.shape[1:])


# ---------------------------------------------------------------------- speed


def wall_seconds(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median time of a call after one to warm up, and what it returns."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return statistics.median(times), result


def bench_mixed(groups: int = 200, per_group: int = 50) -> list[str]:
    r"""The same mixed model in toporo and in statsmodels, from rows in memory to its restricted likelihood.

    The model is one that both can express exactly:
    :math:`y = b_0 + u_g + (x - \bar x_g)^\top v_g + \varepsilon`, independent normal intercepts u and slopes v, all
    slopes of one variance. statsmodels has it with a covariance held diagonal (``free=``) for one input, and with
    slopes as a variance component for several. Slopes have mean 0, since toporo's mean slopes have a normal prior, and
    statsmodels' a flat one: with a term for them the two would be different models. What toporo leaves out of its
    value, :math:`\frac{n - 1}{2}(1 + \log 2\pi - \log(n - 1))`, is added here.
    """
    lines = [
        f"{groups} groups × {per_group} rows; random intercepts and slopes about a common intercept, one variance for "
        "all slopes, restricted likelihood. statsmodels: MixedLM, for one input with `free=` a diagonal covariance, "
        "for several with slopes as a variance component. Both from arrays in memory; wall time on one thread, medians "
        "of 5 and 15 in turn in the same run. “Of it, reading”: names to codes and factors of the rows.",
        "",
        "| inputs | statsmodels (s) | toporo (s) | of it, reading (s) | ratio | log-likelihood | difference |",
        "|---|---|---|---|---|---|---|",
    ]
    peer = statsmodels_mixed()
    if peer is None:
        raise SystemExit("benchmarks: statsmodels not found: run `make bench`, which installs benchmarks/peers.txt.")
    met = True
    for width in (1, 4):
        x, y, names = _differing(groups, per_group, width)
        taken, other = wall_seconds(lambda: _statsmodels_fit(peer, x, y, names), 5)  # noqa: B023
        reading, _ = wall_seconds(lambda: GroupFactors.from_rows(x, y, names), 15)  # noqa: B023
        own, ours = wall_seconds(lambda: _own_fit(x, y, names), 15)  # noqa: B023
        free = len(y) - 1
        value = -ours - 0.5 * free * (1 + math.log(2 * math.pi) - math.log(free))
        met = met and abs(value - other) < 1e-6 and taken / own >= 20
        lines.append(
            f"| {width} | {taken:.3f} | {own:.4f} | {reading:.4f} | **{taken / own:.1f}×** | {other:.6f} | "
            f"{value - other:.1e} |"
        )
    return [*lines, "", f"Target: 20 times as fast, the same likelihood to 1e-6: {'met' if met else 'not met'}."]


def _differing(groups: int, per_group: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    names = np.repeat(np.arange(groups), per_group)
    x = rng.normal(size=(len(names), width)) + rng.normal(size=(groups, width))[names]
    slopes = 0.5 * rng.normal(size=(groups, width))
    y = 1 + 0.7 * rng.normal(size=groups)[names] + np.einsum("nj,nj->n", x, slopes[names]) + rng.normal(size=len(x))
    return x, y, names


def _own_fit(x: np.ndarray, y: np.ndarray, names: np.ndarray) -> float:
    model = {"random intercepts and slopes": ("omega_0", "omega_1")}
    return fit_kriged(GroupFactors.from_rows(x, y, names), models=model).models[0].nll


def _statsmodels_fit(peer: Any, x: np.ndarray, y: np.ndarray, names: np.ndarray) -> float:
    ones, count = np.ones((len(x), 1)), np.bincount(names)[:, None]
    totals = np.zeros((len(count), x.shape[1]))
    np.add.at(totals, names, x)
    centred = x - (totals / count)[names]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if x.shape[1] == 1:
            free = peer.MixedLMParams.from_components(np.ones(1), np.eye(2))
            model = peer.MixedLM(y, ones, names, exog_re=np.column_stack([ones, centred]))
            return float(model.fit(free=free).llf)
        columns = [f"x{place}" for place in range(x.shape[1])]
        parts = np.split(centred, np.flatnonzero(np.diff(names)) + 1)
        slopes = peer.VCSpec(["slopes"], [[columns] * len(parts)], [parts])
        return float(peer.MixedLM(y, ones, names, exog_re=ones, exog_vc=slopes).fit().llf)
