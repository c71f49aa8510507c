"""What people use today where groups differ: a mixed model, a Gaussian process, geographically weighted ridge.

Also the speed of toporo's mixed model beside statsmodels' (``make bench ONLY=mixed``), and of large kriged models
(``make bench ONLY=scale``).
"""

from __future__ import annotations

import importlib
import math
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from peers import peers_folder
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from threadpoolctl import threadpool_limits

import toporo as tr
from toporo.estimators.places import placed
from toporo.robust.kriged import GroupFactors, KrigedFit, fit_kriged

#: Rows that a Gaussian process is fitted to at most, drawn anew for every problem, and modes of the graph it sees.
GP_ROWS, GP_MODES = 300, 4
#: Hops that a kernel of geographically weighted ridge is wide; infinitely wide is one ridge for all.
WIDTHS = (0.5, 1.0, 2.0, 4.0, math.inf)
RIDGE = 1e-3
#: What varies in the model that speed is measured on.
MIXED = ("omega_0", "omega_1")


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


def with_slopes(peer: Any, y: np.ndarray, fixed: np.ndarray, slopes: np.ndarray, names: np.ndarray) -> Any:
    """Random intercepts, and random slopes of one variance: a variance component. As statsmodels fits it."""
    columns = [f"x{place}" for place in range(slopes.shape[1])]
    parts = [slopes[names == name] for name in np.unique(names)]
    component = peer.VCSpec(["slopes"], [[columns] * len(parts)], [parts])
    return peer.MixedLM(y, fixed, names, exog_re=np.ones((len(y), 1)), exog_vc=component).fit()


def mixed_model(problem: Any) -> np.ndarray | None:
    """Random intercepts and slopes about fixed ones; unseen groups get the fixed part."""
    peer = statsmodels_mixed()
    if peer is None:
        return None
    known = problem.known
    x, y = standardised(problem.x, known), problem.y.reshape(len(known), -1)
    design, names = np.column_stack([np.ones(len(x)), x]), problem.groups[known]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of variances at 0, mostly
        fits = [with_slopes(peer, column[known], design[known], x[known], names) for column in y.T]
    fixed = np.column_stack([fit.fe_params for fit in fits])
    return (design[~known] @ fixed).reshape(-1, *problem.y.shape[1:])


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


def median_seconds(*works: Callable[[], Any], rounds: int = 9) -> list[float]:
    """Median CPU times of calls that take turns, after one each to warm up."""
    times = []
    for number in range(rounds + 1):
        stamps = [time.process_time()]
        for work in works:
            work()
            stamps.append(time.process_time())
        if number:
            times.append(np.diff(stamps))
    return [statistics.median(column) for column in zip(*times, strict=True)]


def bench_mixed(groups: int = 200, per_group: int = 50) -> list[str]:
    r"""The same mixed model in toporo and in statsmodels, from rows in memory to its restricted likelihood.

    The model is one that both can express exactly:
    :math:`y = b_0 + u_g + (x - \bar x_g)^\top v_g + \varepsilon`, independent normal intercepts u and slopes v, all
    slopes of one variance. statsmodels has it with a covariance held diagonal (``free=``) for one input, and with
    slopes as a variance component for several. Slopes have mean 0, since toporo's mean slopes have a normal prior, and
    statsmodels' a flat one: with a term for them the two would be different models. What toporo leaves out of its
    value, :math:`\frac{n - 1}{2}(1 + \log 2\pi - \log(n - 1))`, is added here. Two things are held to 1e-6: that
    both have the same likelihood at the same variances, those that statsmodels ends with; and that toporo's own
    optimum is not below. It may be above: statsmodels stops earlier.
    """
    lines = [
        f"{groups} groups × {per_group} rows; random intercepts and slopes about a common intercept, one variance for "
        "all slopes, restricted likelihood. statsmodels: MixedLM, for one input with `free=` a diagonal covariance, "
        "for several with slopes as a variance component. Both from arrays in memory; CPU time on one thread, medians "
        "of nine calls in turn. “Reading”: names to codes, and factors of the rows.",
        "",
        "| inputs | statsmodels (s) | toporo (s) | of it reading (s) | ratio | log-likelihood of statsmodels | "
        "toporo's there, less it | at toporo's optimum, less it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    peer = statsmodels_mixed()
    if peer is None:
        raise SystemExit("benchmarks: statsmodels not found: run `make bench`, which installs benchmarks/peers.txt.")
    met = True
    for width in (1, 4):
        data = _differing(groups, per_group, width)
        works = (
            partial(_statsmodels_fit, peer, *data),
            partial(_own_fit, *data),
            partial(GroupFactors.from_rows, *data),
        )
        with threadpool_limits(1):
            taken, own, reading = median_seconds(*works)
        (theirs, variances), fit = works[0](), works[1]()
        free = len(data[0]) - 1
        left_out = 0.5 * free * (1 + math.log(2 * math.pi) - math.log(free))
        there = -fit.likelihood.value(MIXED, np.log(variances))[0] - left_out - theirs
        best = -fit.models[0].nll - left_out - theirs
        met = met and abs(there) < 1e-6 and best > -1e-6 and taken / own >= 20
        lines.append(
            f"| {width} | {taken:.3f} | {own:.4f} | {reading:.4f} | **{taken / own:.1f}×** | {theirs:.6f} | "
            f"{there:.1e} | {best:.1e} |"
        )
    return [*lines, "", f"Target: 20 times as fast, the same likelihood to 1e-6: {'met' if met else 'not met'}."]


def _differing(groups: int, per_group: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    names = np.repeat(np.arange(groups), per_group)
    x = rng.normal(size=(len(names), width)) + rng.normal(size=(groups, width))[names]
    slopes = 0.5 * rng.normal(size=(groups, width))
    y = 1 + 0.7 * rng.normal(size=groups)[names] + np.einsum("nj,nj->n", x, slopes[names]) + rng.normal(size=len(x))
    return x, y, names


def _own_fit(x: np.ndarray, y: np.ndarray, names: np.ndarray) -> KrigedFit:
    return fit_kriged(GroupFactors.from_rows(x, y, names), models={"mixed": MIXED})


def _statsmodels_fit(peer: Any, x: np.ndarray, y: np.ndarray, names: np.ndarray) -> tuple[float, np.ndarray]:
    """Log-likelihood, and the variances of intercepts and slopes over that of the noise."""
    ones, count = np.ones((len(x), 1)), np.bincount(names)[:, None]
    totals = np.zeros((len(count), x.shape[1]))
    np.add.at(totals, names, x)
    centred = x - (totals / count)[names]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if x.shape[1] == 1:
            free = peer.MixedLMParams.from_components(np.ones(1), np.eye(2))
            model = peer.MixedLM(y, ones, names, exog_re=np.column_stack([ones, centred]))
            fit = model.fit(free=free)
            return float(fit.llf), np.diag(fit.cov_re) / fit.scale
        fit = with_slopes(peer, y, ones, centred, names)
        return float(fit.llf), np.array([fit.cov_re[0, 0], fit.vcomp[0]]) / fit.scale


# ---------------------------------------------------------------------- large ones

#: What a process of its own runs for one size, so that its peak memory is its own.
LARGE = """
import resource, sys, time, warnings
import numpy as np
import toporo as tr
from kriged_peers import on_a_grid

warnings.simplefilter("ignore")
kind, *sizes = sys.argv[1:]
x, y, names, edges, test = on_a_grid(*map(int, sizes))
known = ~np.isin(names, test)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
model = getattr(tr, kind)(graph=edges).fit(x[known], y[known], groups=names[known])
fitted = time.perf_counter()
off = model.predict(x[~known], groups=names[~known]) - y[~known]
done = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
mean_only = np.mean((y[~known] - y[known].mean()) ** 2)
print(fitted - start, done - fitted, peak / 2**20, before / 2**20, np.mean(off**2) / mean_only)
"""


def on_a_grid(groups: int, width: int, per_group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[Any], Any]:
    """Groups on a grid, ten in a row; coefficients change smoothly, and a little by themselves; a corner is new."""
    rng = np.random.default_rng(0)
    across, down = np.arange(groups) % 10, np.arange(groups) // 10
    edges = [(i, j) for i in range(groups) for j in (i + 1, i + 10) if j < groups and (j == i + 10 or j % 10)]
    names = np.repeat(np.arange(groups), per_group)
    x = rng.normal(size=(len(names), width)) + rng.normal(size=(groups, width))[names]
    first, second = rng.normal(size=(2, width + 1))
    smooth = np.sin(across[:, None] / 4 + first) * np.cos(8 * down[:, None] / groups * 10 / 4 + second)
    theta = smooth + 0.3 * rng.normal(size=smooth.shape)
    y = theta[names, 0] + np.einsum("nj,nj->n", x, theta[names, 1:]) + rng.normal(size=len(names))
    return x, y, names, edges, np.flatnonzero((across > 6) & (down < 4))


def in_a_process(kind: str, *sizes: int) -> list[float]:
    """Seconds of the fit and of predictions, memory at its most and before the fit (GiB), error in new groups."""
    here = str(Path(__file__).parent)
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", LARGE, kind, *map(str, sizes)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True, check=True
    )
    return [float(number) for number in done.stdout.split()]


def bench_votes() -> list[str]:
    """A large table of the default, wall time and memory."""
    lines = [
        "Groups on a grid, a corner of twelve not trained on; all that `AutoRegressor` does, wall time on this "
        "machine's cores. Memory: the most that the process held, and of it before the fit, data and libraries. Error: "
        "squared, in the corner, over that of the training mean.",
        "",
        "| rows | groups | inputs | fit (s) | predict (s) | memory (GiB) | of it before (GiB) | error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    met = True
    for groups, width, per_group in ((200, 50, 500), (200, 50, 5000)):
        fit, predict, peak, before, error = in_a_process("AutoRegressor", groups, width, per_group)
        met = met and fit < 300 and peak < 6
        lines.append(
            f"| {groups * per_group} | {groups} | {width} | {fit:.1f} | {predict:.2f} | {peak:.2f} | {before:.2f} | "
            f"{error:.3f} |"
        )
    return [*lines, "", f"Target: a million rows in at most 5 min and 6 GiB: {'met' if met else 'not met'}."]


def bench_scale() -> list[str]:
    """Large fits, wall time and memory."""
    lines = [
        "Groups on a grid, a corner of twelve not trained on; all that `KrigedRegressor` does, wall time on this "
        "machine's cores. Memory: the most that the process held, and of it before the fit, data and libraries. Error: "
        "squared, in the corner, over that of the training mean.",
        "",
        "| rows | groups | inputs | m(d + 1) | fit (s) | predict (s) | memory (GiB) | of it before (GiB) | error |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    met = True
    for groups, width, per_group in ((150, 9, 100), (1000, 9, 30), (200, 50, 5000)):
        fit, predict, peak, before, error = in_a_process("KrigedRegressor", groups, width, per_group)
        met = met and fit < 60 and peak < 4
        lines.append(
            f"| {groups * per_group} | {groups} | {width} | {groups * (width + 1)} | {fit:.1f} | {predict:.2f} | "
            f"{peak:.2f} | {before:.2f} | {error:.3f} |"
        )
    return [*lines, "", f"Target: each under 60 s and 4 GiB: {'met' if met else 'not met'}."]
