"""Golden parts of the exact solver and of the scikit-learn estimators."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

import toporo as tr
from toporo.robust import RobustFit, SquaredLosses, fit_linear, fit_logistic, path

from .data import NEW_STATIONS, RIVER_EDGES, STATIONS
from .parts import part

#: Newton's method and L-BFGS end when they are near enough, and rounding decides how near that is.
NEWTON = "the solver stops at a relative gap of 1e-6; where it stops depends on rounding"
LBFGS = "the marginal likelihood is maximised by L-BFGS, which stops where rounding decides"


def rows(classes: int = 0) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Six groups of 30 rows with slopes of their own."""
    rng = np.random.default_rng(7)
    code = np.repeat(np.arange(6), 30)
    x = rng.normal(size=(len(code), 3))
    y = x @ [1.0, -0.5, 0.2] + 0.4 * code * x[:, 0] + 0.2 * code + 0.3 * rng.normal(size=len(code))
    names = [STATIONS[i] for i in code]
    if classes:
        return x, np.digitize(y, np.quantile(y, np.linspace(0, 1, classes + 1)[1:-1])), names
    return x, y, names


PRIOR = dict(zip(STATIONS[:6], (0.3, 0.25, 0.2, 0.1, 0.1, 0.05), strict=True))


def facts(fit: RobustFit) -> dict[str, Any]:
    """What a fit is compared by."""
    return {
        "coef": fit.coef,
        "intercept": fit.intercept,
        "weights": fit.weights,
        "losses": fit.losses,
        "penalty": fit.penalty,
        "distance": fit.distance,
        "value": fit.value,
        "certified": bool(0 <= fit.gap <= 1e-6 * abs(fit.value) + 1e-12),
    }


@part("linear", tolerance=1e-7, reason=NEWTON)
def linear(folder: Path) -> Any:
    """Exact linear fits by divergence, penalty and radius."""
    x, y, names = rows()
    result = {
        f"{divergence}-{penalty:g}": facts(
            fit_linear(x, y, names, PRIOR, penalty=penalty, divergence=divergence, ridge=0.01)
        )
        for divergence in ("l2", "kl", "chi2")
        for penalty in (math.inf, 1.0, 0.1)
    }
    result["worst group"] = facts(fit_linear(x, y, names, penalty=0.0, ridge=0.01))
    result["radius"] = facts(fit_linear(x, y, names, PRIOR, radius=0.01, ridge=0.01))
    weights = 0.5 + np.random.default_rng(0).random(len(y))
    result["row weights"] = facts(fit_linear(x, y, names, PRIOR, penalty=1.0, ridge=0.01, sample_weight=weights))
    many = np.stack([y, x[:, 0] - y], axis=1)
    losses = SquaredLosses.from_arrays(x, many, names)
    result["path"] = [facts(fit) for fit in path(losses, PRIOR, penalties=[10.0, 1.0, 0.0], ridge=0.1)]
    return result


@part("logistic", tolerance=1e-6, reason=NEWTON)
def logistic(folder: Path) -> Any:
    """Exact logistic fits of two and three classes."""
    return {
        f"{classes}-{divergence}-{penalty:g}": facts(
            fit_logistic(*rows(classes), PRIOR, penalty=penalty, divergence=divergence, ridge=0.01)
        )
        for classes in (2, 3)
        for divergence in ("l2", "kl")
        for penalty in (math.inf, 1.0, 0.1)
    }


@part("estimators", tolerance=1e-6, reason=NEWTON)
def estimators(folder: Path) -> Any:
    """The linear estimators with their automatic settings."""
    result = {}
    for name, classes in (("Regressor", 0), ("Classifier", 2)):
        x, y, names = rows(classes)
        for kind in ("TRO", "GroupDRO"):
            settings = {"graph": RIVER_EDGES, "test_groups": list(NEW_STATIONS)} if kind == "TRO" else {}
            model = getattr(tr, kind + name)(**settings).fit(x, y, groups=names)
            result[kind + name] = {
                "coef": model.coef_,
                "intercept": model.intercept_,
                "weights": model.group_weights_,
                "prior": model.prior_.weights,
                "penalty": model.penalty_,
                "ridge": model.ridge_,
                "rows in effect": model.rows_in_effect_,
                "predictions": model.predict(x[::20]),
            }
    return result


@part("kriged", tolerance=1e-5, reason=LBFGS)
def kriged(folder: Path) -> Any:
    """Models whose coefficients or effects follow the graph."""
    result: dict[str, Any] = {}
    new = np.repeat(["middle", "weir", "lock", "mouth"], 3).tolist()
    at = np.random.default_rng(1).normal(size=(len(new), 3))
    for classes in (0, 2):
        x, y, names = rows(classes)
        base = LogisticRegression() if classes else Ridge()
        own = tr.KrigedClassifier if classes else tr.KrigedRegressor
        for key, model in (("coefficients", own(graph=RIVER_EDGES)), ("effects", tr.Kriged(base, graph=RIVER_EDGES))):
            model.fit(x, y, groups=names)
            found = {"gate": model.gate_, "evidence": model.evidence_}
            if classes:
                found["probabilities"] = model.predict_proba(at, groups=new)
            else:
                found["interval"] = model.predict(at, groups=new, interval=0.9)
            result[f"{key}-{classes}"] = found
    return result
