"""The speed of toporo's mixed model beside statsmodels', and of models of many rows and of many groups."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from libraries.bench_statsmodels import likelihood_and_variances
from report import in_process, markdown, median_seconds
from threadpoolctl import threadpool_limits

from toporo.robust.factors import GroupFactors
from toporo.robust.kriged import KrigedFit, fit_kriged

#: What varies in the model that speed is measured on.
MIXED = ("omega_0", "omega_1")


def bench_mixed(groups: int = 200, per_group: int = 50) -> list[str]:
    r"""Compare the same mixed model in toporo and in statsmodels, from rows in memory to its restricted likelihood.

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
    met = True
    for width in (1, 4):
        data = _differing(groups, per_group, width)
        works = (
            partial(likelihood_and_variances, *data),
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


# ---------------------------------------------------------------------- large ones

#: Decimals of the figures of a large fit: seconds of the fit and of predictions, memory at its most and before the fit
#: (GiB), error in new groups.
DIGITS = {"fit": 1, "predict": 2, "peak": 2, "before": 2, "error": 3}
LARGE = """
import json, resource, sys, time, warnings
import numpy as np
import toporo as tr
from kriged_speed import on_a_grid

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
print(json.dumps({"fit": fitted - start, "predict": done - fitted, "peak": peak / 2**20, "before": before / 2**20,
                  "error": np.mean(off**2) / mean_only}))
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


def bench_votes() -> list[str]:
    """Measure a large table under the default, wall time and memory."""
    return _large("AutoRegressor", ((200, 50, 500), (200, 50, 5000)), seconds=300, memory=6)


def bench_scale() -> list[str]:
    """Measure large fits, wall time and memory."""
    return _large("KrigedRegressor", ((150, 9, 100), (1000, 9, 30), (200, 50, 5000)), seconds=60, memory=4)


def _large(kind: str, sizes: tuple[tuple[int, int, int], ...], *, seconds: float, memory: float) -> list[str]:
    rows, met = [], True
    for groups, width, per_group in sizes:
        run = in_process(LARGE, kind, groups, width, per_group)
        met = met and run["fit"] < seconds and run["peak"] < memory
        cells = [f"{run[name]:.{digits}f}" for name, digits in DIGITS.items()]
        rows.append([groups * per_group, groups, width, *cells])
    titles = ["rows", "groups", "inputs", "fit (s)", "predict (s)", "memory (GiB)", "of it before (GiB)", "error"]
    return [
        f"Groups on a grid, a corner of twelve not trained on; all that `{kind}` does, wall time on this machine's "
        "cores. Memory: the most that the process held, and of it before the fit, data and libraries. Error: squared, "
        "in the corner, over that of the training mean.",
        "",
        *markdown(titles, rows),
        f"Target: each under {seconds} s and {memory} GiB: {'met' if met else 'not met'}.",
    ]
