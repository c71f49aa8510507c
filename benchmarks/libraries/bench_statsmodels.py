"""Mixed models of statsmodels: random intercepts and slopes of groups."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from libraries import load


def statsmodels_mixed() -> Any:
    """Return the module with MixedLM."""
    return load("statsmodels.regression.mixed_linear_model")


def with_slopes(peer: Any, y: np.ndarray, fixed: np.ndarray, slopes: np.ndarray, names: np.ndarray) -> Any:
    """Random intercepts, and random slopes of one variance: a variance component. As statsmodels fits it."""
    columns = [f"x{place}" for place in range(slopes.shape[1])]
    parts = [slopes[names == name] for name in np.unique(names)]
    component = peer.VCSpec(["slopes"], [[columns] * len(parts)], [parts])
    return peer.MixedLM(y, fixed, names, exog_re=np.ones((len(y), 1)), exog_vc=component).fit()


def standardised(x: np.ndarray, known: np.ndarray) -> np.ndarray:
    """In units of the known rows."""
    scale = x[known].std(axis=0)
    return (x - x[known].mean(axis=0)) / np.where(scale > 0, scale, 1.0)


def mixed_model(problem: Any) -> np.ndarray:
    """Random intercepts and slopes about fixed ones; unseen groups get the fixed part."""
    peer = statsmodels_mixed()
    known = problem.known
    x, y = standardised(problem.x, known), problem.y.reshape(len(known), -1)
    design, names = np.column_stack([np.ones(len(x)), x]), problem.groups[known]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of variances at 0, mostly
        fits = [with_slopes(peer, column[known], design[known], x[known], names) for column in y.T]
    fixed = np.column_stack([fit.fe_params for fit in fits])
    return (design[~known] @ fixed).reshape(-1, *problem.y.shape[1:])


def likelihood_and_variances(x: np.ndarray, y: np.ndarray, names: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the log-likelihood, and the variances of intercepts and slopes over that of the noise."""
    peer = statsmodels_mixed()
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
