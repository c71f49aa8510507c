"""The exact convex solver against the same problem in cvxpy and in the dro package, and at a million rows."""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import numpy as np
from libraries import bench_cvxpy, bench_dro
from report import in_process, median_seconds

from toporo.groups import Groups
from toporo.robust.linear import fit_linear, fit_logistic, path
from toporo.robust.losses import SquaredLosses

PENALTY, RIDGE = 1.0, 1e-3
PATH = tuple(float(value) for value in np.geomspace(100.0, 0.01, 20))


def make_data(n: int, d: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups that agree on most of a linear model but not on all of it, with noise of their own."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.arange(n) % m)
    x = rng.normal(size=(n, d))
    coefficients = rng.normal(size=d) + 0.3 * rng.normal(size=(m, d))
    noise = (1.0 + rng.random(m))[codes] * rng.normal(size=n)
    return x, np.einsum("nd,nd->n", x, coefficients[codes]) + noise, codes


def bench_convex() -> list[str]:
    lines = [
        f"Wall times; ridge {RIDGE:g}, l2 divergence, uniform prior; cvxpy {bench_cvxpy.VERSION} with CLARABEL at its "
        "own tolerances. “Agree” is the relative difference of the optimal values.",
        "",
        "| problem | peer | rows | features | groups | peer (s) | toporo (s) | ratio | agree | certified gap |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    d, m = 50, 50
    cases = [
        ("least squares, λ = 1", "cvxpy, row by row", 20_000, PENALTY, "rows"),
        ("least squares, λ = 1", "cvxpy, our normal equations", 20_000, PENALTY, "moments"),
        ("least squares, λ = 0", "cvxpy, row by row", 20_000, 0.0, "rows"),
        ("least squares, λ = 0, no ridge", "dro 0.4.3 GroupDRO", 20_000, 0.0, "dro"),
        ("logistic, λ = 1", "cvxpy", 20_000, PENALTY, "logistic"),
    ]
    for title, peer, n, penalty, kind in cases:
        x, y, codes = make_data(n, d, m)
        ids = Groups.of(codes)
        if kind == "logistic":
            labels = (y > 0).astype(int)

            def own(x: Any = x, labels: Any = labels, ids: Any = ids) -> Any:
                return fit_logistic(x, labels, ids, penalty=PENALTY, ridge=RIDGE)

        elif kind == "dro":

            def own(x: Any = x, y: Any = y, codes: Any = codes, ids: Any = ids) -> Any:
                return fit_linear(np.column_stack([x, codes]), y, ids, penalty=0.0)

        else:

            def own(x: Any = x, y: Any = y, ids: Any = ids, penalty: float = penalty) -> Any:
                return fit_linear(x, y, ids, penalty=penalty, ridge=RIDGE)

        fit = own()
        (took,) = median_seconds(own, rounds=7, warm_up=0, clock=time.perf_counter)
        start = time.perf_counter()
        if kind == "dro":
            value = bench_dro.solve_dro(x, y, codes)
        else:
            value = bench_cvxpy.solve_cvxpy(x, y, codes, penalty, RIDGE, kind=kind)
        peer_took = time.perf_counter() - start
        lines.append(
            f"| {title} | {peer} | {n} | {d} | {m} | {peer_took:.2f} | {took:.4f} | {peer_took / took:.0f}× | "
            f"{abs(fit.value - value) / abs(value):.0e} | {fit.relative_gap:.0e} |"
        )
        print(lines[-1], flush=True)
    return lines


def bench_path() -> list[str]:
    """A path over twenty penalties against single fits at the same ones, both from raw rows."""
    lines = [
        f"λ from {PATH[0]:g} to {PATH[-1]:g} in {len(PATH)} steps, ridge {RIDGE:g}; every fit certified to 1e-6. “One "
        "fit” is the mean over fits at each λ alone. Rounds alternate; the median is shown.",
        "",
        "| rows | features | groups | one fit (ms) | path of 20 (ms) | ratio | the same at the largest λ alone |",
        "|---|---|---|---|---|---|---|",
    ]
    for n, d, m in ((20_000, 50, 50), (200_000, 50, 50), (288, 6, 24)):
        x, y, codes = make_data(n, d, m)
        ids = Groups.of(codes)
        path(SquaredLosses.from_arrays(x, y, ids), penalties=PATH, ridge=RIDGE)
        ratios, singles, paths, easiest = [], [], [], []
        for _ in range(5):
            each = []
            for value in PATH:
                start = time.perf_counter()
                fit_linear(x, y, ids, penalty=value, ridge=RIDGE)
                each.append(time.perf_counter() - start)
            start = time.perf_counter()
            path(SquaredLosses.from_arrays(x, y, ids), penalties=PATH, ridge=RIDGE)
            took = time.perf_counter() - start
            singles.append(statistics.mean(each))
            easiest.append(took / each[0])
            paths.append(took)
            ratios.append(took / singles[-1])
        lines.append(
            f"| {n} | {d} | {m} | {1e3 * statistics.median(singles):.1f} | {1e3 * statistics.median(paths):.1f} | "
            f"{statistics.median(ratios):.2f}× | {statistics.median(easiest):.2f}× |"
        )
        print(lines[-1], flush=True)
    return lines


MILLION = """
import json, resource, sys, time
import numpy as np
from toporo.groups import Groups
from toporo.machine import cores
from toporo.robust.linear import fit_linear, fit_logistic
n, d, m = 1_000_000, 50, 200
rng = np.random.default_rng(0)
codes = rng.integers(0, m, n)
x = rng.normal(size=(n, d))
y = rng.normal(size=n)
b = rng.normal(size=d) + 0.3 * rng.normal(size=(m, d))
for e in range(m):
    rows = codes == e
    y[rows] = x[rows] @ b[e] + (1.0 + rng.random()) * y[rows]
ids = Groups.of(codes)
kind, penalty = sys.argv[1], float(sys.argv[2])
start = time.perf_counter()
if kind == "linear":
    fit = fit_linear(x, y, ids, penalty=penalty, ridge=1e-3)
else:
    fit = fit_logistic(x, (y > 0).astype(int), ids, penalty=penalty, ridge=1e-3)
took = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"wall": took, "peak": peak, "gap": fit.relative_gap, "steps": fit.steps, "threads": cores()}))
"""


def bench_million() -> list[str]:
    lines = [
        "A million rows, 50 features, 200 groups, in a process of its own; the data alone take 0.39 GiB.",
        "",
        "| model | λ | threads | wall (s) | resident, peak (GiB) | Newton steps | certified gap |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, penalty in (("linear", 1.0), ("linear", 0.0), ("linear", math.inf), ("logistic", 1.0)):
        found = in_process(MILLION, kind, penalty)
        lines.append(
            f"| {kind} | {penalty:g} | {found['threads']} | {found['wall']:.2f} | {found['peak'] / 2**30:.2f} | "
            f"{found['steps']} | {found['gap']:.0e} |"
        )
        print(lines[-1], flush=True)
    return lines
