"""Search over settings: the figures that each rule for choosing settings reaches, and the best of all settings.

Rules that may not see the labels of the test groups choose by rows of the training groups that were set aside, or by
regions of training groups held out, as far from the others as the test groups are from the training groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from toporo.choice import hop_folds
from toporo.errors import DataError, DivergedError, SettingError
from toporo.paper.loaded import BenchmarkData
from toporo.paper.methods import BenchMethod
from toporo.paper.protocols import Protocol
from toporo.paper.results import Results, Row, SelectionRule, make_row
from toporo.types import Record

#: Largest number of regions held out, and evaluations of a run.
FOLDS, EVALUATIONS = 3, 20
#: Rules: the table's own settings, then those best on validation rows of the training groups, in regions held out, and
#: on the test groups. All but the first may choose the epoch too.
RULES = (
    SelectionRule("own", "own"),
    SelectionRule("validation", "validation"),
    SelectionRule("regions", "regions", saw=("test adjacency",)),
    SelectionRule("oracle", "oracle", saw=("test labels",)),
)
EPOCH_TOO = ", epoch too"
#: Names of the rules that choose without test labels.
LABEL_FREE = ("validation", "regions")


# ---------------------------------------------------------------------- runs


def prepare_search(protocol: Protocol, names: Iterable[str] | None = None) -> tuple[Protocol, list[BenchMethod]]:
    """Return the protocol with as many evaluations as a search makes, and methods with every setting of their grids.

    A method's own settings are the first. By default methods are those of the table that have a grid, except λ = 0.
    """
    if protocol.unit != "epochs" or protocol.model != "mlp":
        raise SettingError(f"--search is for networks on plain rows; {protocol.benchmark} has none.")
    methods = protocol.get_methods(protocol.methods if names is None else names)
    if names is None:
        methods = [m for m in methods if m.grid is not None and m.settings.get("penalty") != 0.0]
    without = [method.name for method in methods if method.grid is None]
    if without:
        able = [method.name for method in protocol.get_methods() if method.grid is not None]
        raise SettingError(
            f"{', '.join(without)} cannot be searched, without a grid of settings; expected some of {', '.join(able)}."
        )
    variants = []
    for variant in protocol.variants:
        every = max(1, protocol.for_variant(variant).rounds // EVALUATIONS)
        variants.append(replace(variant, training={**variant.training, "evaluate_every": every}))
    return replace(protocol, variants=tuple(variants)), [tried for method in methods for tried in _try_grid(method)]


def _try_grid(method: BenchMethod) -> list[BenchMethod]:
    """Return the method with its own settings, then with those of its grid on top of them, each once."""
    grid, tried = method.grid or {}, [method]
    for values in itertools.product(*grid.values()):
        changed = replace(method, settings={**method.settings, **dict(zip(grid, values, strict=True))})
        if changed not in tried:
            tried.append(changed)
    return tried


def hold_out_regions(loaded: BenchmarkData) -> tuple[BenchmarkData, ...]:
    """Return the data, then the training groups alone, with one region of them after another as the test groups."""
    if len(loaded.train) < 3:
        raise DataError(
            f"{loaded.name} has {len(loaded.train)} training groups: a search holds some of them out and trains on at "
            "least two, so expected three or more."
        )
    rows = loaded.data.select(loaded.train)
    regions = [fold.held_out for fold in hop_folds(loaded.graph, loaded.train, loaded.test, FOLDS)]
    kept = [tuple(name for name in loaded.train if name not in region) for region in regions]
    folds = (replace(loaded, data=rows, train=k, test=region) for k, region in zip(kept, regions, strict=True))
    return (loaded, *folds)


# ---------------------------------------------------------------------- results


def evaluate_rules(results: Results) -> Results:
    """Return the results of a search with a row for every method and rule, and the settings tried in ``about``."""
    runs: dict[tuple[str, str], list[Record]] = {}
    for record in results.records:
        runs.setdefault((record["variant"], record["method"]), []).append(record)
    rows: list[Row] = []
    search: dict[str, dict[str, Any]] = {}
    for (variant, name), of_method in runs.items():
        of_rules, tried = _evaluate_method(results.protocol, results.protocol.method(name), of_method)
        rows += of_rules
        search.setdefault(variant, {})[name] = tried
    return replace(results, rows=rows, about={**results.about, "search": search})


def _evaluate_method(
    protocol: Protocol, method: BenchMethod, runs: Sequence[Record]
) -> tuple[list[Row], dict[str, Any]]:
    """Return a method's rows, and its settings with what each reached; the first run has the method's own settings."""
    diverged = [run["settings"] for run in runs if not run["history"]]
    if runs[0]["settings"] in diverged:
        raise DivergedError(f"{method.name}: training diverged with the settings of the table.")
    runs = [run for run in runs if run["settings"] not in diverged]
    settings: list[dict[str, Any]] = []
    for run in runs:
        if run["settings"] not in settings:
            settings.append(run["settings"])
    scores = _scores(protocol, runs, settings)
    figures, rows, chosen = scores["oracle"], [], {}
    for rule in RULES:
        for start, suffix in ((-1, ""), (0, EPOCH_TOO))[: 1 + (rule.name != "own")]:
            best = [seed == seed.max() for seed in protocol.sign * scores[rule.name][..., start:]]
            values = [of_seed[equal].mean() for of_seed, equal in zip(figures[..., start:], best, strict=True)]
            named = replace(rule, name=rule.name + suffix)
            rows.append(make_row(protocol, method, runs[0], named, protocol.whole, values))
            chosen[named.name] = [settings[np.argwhere(equal)[0, 0]] for equal in best]
    last = figures[..., -1]
    ranks = {rule: _rank(scores[rule][..., -1], last) for rule in LABEL_FREE}
    return rows, {"settings": settings, "last": last.T.round(6).tolist(), "chosen": chosen, "ranks": ranks}


def _scores(protocol: Protocol, runs: Sequence[Record], settings: Sequence[Any]) -> dict[str, npt.NDArray[np.float64]]:
    """Return what each rule looks at by seed, setting and epoch."""
    metric = protocol.whole
    shape = (1 + max(run["fold"] for run in runs), 1 + max(run["seed"] for run in runs), len(settings))
    test, validation = np.empty((2, *shape, len(runs[0]["history"])))
    for run in runs:
        at = run["fold"], run["seed"], settings.index(run["settings"])
        history = [entry["metrics"] for entry in run["history"]]
        test[at] = [metric.scale * metrics[metric.key] for metrics in history]
        validation[at] = [metric.scale * metrics["validation"] for metrics in history]
    own = np.zeros_like(test[0])
    own[:, 0] = protocol.sign
    return {"own": own, "validation": validation[0], "regions": test[1:].mean(axis=0), "oracle": test[0]}


def _rank(scores: npt.NDArray[np.float64], figures: npt.NDArray[np.float64]) -> float | None:
    """Return Spearman's correlation of scores and figures over settings, mean over seeds; None where all are equal."""
    pairs = [pair for pair in zip(scores, figures, strict=True) if len(pair[0]) > 2 and np.ptp(pair, axis=1).min() > 0]
    return round(float(np.mean([spearmanr(*pair).statistic for pair in pairs])), 4) if pairs else None
