"""toporo's estimators on real tables with regions held out, beside what people use today.

``python benchmarks/tables_suite.py TABLES`` takes the four tables that things are settled on and writes
results/tables_suite.md; ``--judge`` takes the others and writes results/tables_suite-judged.md: not to be looked at
before all is settled. TABLES holds NAME.csv, NAME.graph.csv and NAME.json (see real_tables.py).
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from kriged import DEVELOPMENT_TABLES, JUDGED_TABLES
from real_tables import Task, markdown, read_tasks, shuffled
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import toporo as tr
import toporo.estimators.auto as votes_of_auto
from toporo.files import write_text

RESULTS = Path(__file__).parent / "results"
TREES, AUTO = "boosted trees", "auto"
#: What is shown of every split.
ROWS = (
    *("constant", "linear", "TRO, linear", TREES, "LightGBM", "CatBoost", "safe mean", "picked", "votes, no effect"),
    *(AUTO, "auto, no graph", "auto, shuffled graph", "best candidate"),
)


def on_split(task: Task, test: tuple[str, ...]) -> dict[str, float]:
    """Errors in the test groups by method (root of the mean square, or log loss), and seconds."""
    known = ~np.isin(task.groups, test)
    x, new, y, target = task.x[known], task.x[~known], task.y[known], task.y[~known]
    groups, asked = task.groups[known].tolist(), task.groups[~known].tolist()
    labels = np.unique(y)

    def error(said: Any) -> float:
        if task.classes:
            return float(log_loss(target, np.clip(said, 1e-6, 1.0), labels=labels))
        return float(np.sqrt(np.mean((said - target) ** 2)))

    def said_by(model: Any, *given: Any) -> Any:
        return (model.predict_proba if task.classes else model.predict)(*given)

    start = time.process_time()
    kind = HistGradientBoostingClassifier if task.classes else HistGradientBoostingRegressor
    errors = {TREES: error(said_by(kind(random_state=0).fit(x, y), new))}
    single = time.process_time() - start
    for name, peer in peers(task.classes).items():
        errors[name] = error(said_by(peer.fit(plain(x), y), plain(new)))
    numbers = task.numbers(known)
    errors["linear"] = error(said_by(*linear(task.classes, numbers[known], y, numbers[~known])))
    tro = (tr.TROClassifier if task.classes else tr.TRORegressor)(graph=task.graph, test_groups=test, penalty="auto")
    errors["TRO, linear"] = error(said_by(tro.fit(numbers[known], y, groups=groups), numbers[~known]))
    auto = tr.AutoClassifier if task.classes else tr.AutoRegressor
    start = time.process_time()
    model = auto(graph=task.graph, test_groups=test).fit(x, y, groups=groups)
    errors["fits of trees"] = (time.process_time() - start) / single
    each = model.predict_each(new, groups=asked)
    safe = np.mean([each[name] for name in model._safe if name in each], axis=0)
    best = min(model.league_, key=lambda row: np.nan_to_num(row.error, nan=np.inf)).name
    errors |= {
        "constant": error(each["constant"]),
        "safe mean": error(safe),
        "picked": error(each[best]),
        "votes, no effect": error(sum(vote * each[name] for name, vote in model.votes_.items())),
        AUTO: error(said_by(model, new, asked)),
        "best candidate": min(error(values) for values in each.values()),
    }
    for name, graph in (("auto, no graph", None), ("auto, shuffled graph", shuffled(task.graph))):
        errors[name] = error(said_by(auto(graph=graph).fit(x, y, groups=groups), new, asked))
    return errors


def peers(classes: bool) -> dict[str, Any]:
    """Other boosted trees as they come, where they are installed."""
    made: dict[str, Any] = {}
    with contextlib.suppress(ImportError):
        import lightgbm

        made["LightGBM"] = (lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor)(verbose=-1)
    with contextlib.suppress(ImportError):
        import catboost

        kind = catboost.CatBoostClassifier if classes else catboost.CatBoostRegressor
        made["CatBoost"] = kind(verbose=False, allow_writing_files=False, random_seed=0)
    return made


def plain(x: pd.DataFrame) -> np.ndarray:
    """Categories by their codes, so that every library takes them."""
    return np.column_stack([column.cat.codes if column.dtype == "category" else column for _, column in x.items()])


def linear(classes: bool, x: np.ndarray, y: np.ndarray, new: np.ndarray) -> tuple[Any, np.ndarray]:
    """scikit-learn's linear model as it comes, on standardised inputs, and rows to predict."""
    kind = LogisticRegression(max_iter=1000) if classes else Ridge()
    return make_pipeline(StandardScaler(), kind).fit(x, y), new


def by_folds(task: Task, test: tuple[str, ...]) -> dict[str, float]:
    """Errors of auto in the test groups by what is left out together: groups at random, regions, rows at random."""
    known = ~np.isin(task.groups, test)
    groups, asked = task.groups[known].tolist(), task.groups[~known].tolist()
    labels, usual = np.unique(task.y[known]), votes_of_auto._parts

    def regions(ids: tr.GroupIds, folds: int, seed: int) -> list[np.ndarray]:
        held = tr.GraphHopSplit(task.graph, test, n_splits=folds, repeats=1, seed=seed).split(
            ids.codes, groups=ids.names
        )
        return [np.isin(np.arange(len(ids)), out) for _, out in held]

    def rows_first(ids: tr.GroupIds, folds: int, seed: int) -> list[np.ndarray]:
        votes_of_auto._parts = usual  # the effects are looked back at by groups
        part = np.random.default_rng(seed).permutation(len(ids)) % folds
        return [part == place for place in range(folds)]

    errors = {}
    for name, parts in (("groups at random", usual), ("regions", regions), ("rows at random", rows_first)):
        votes_of_auto._parts = parts
        try:
            model = (tr.AutoClassifier if task.classes else tr.AutoRegressor)(graph=task.graph, test_groups=test)
            model.fit(task.x[known], task.y[known], groups=groups)
        finally:
            votes_of_auto._parts = usual
        if task.classes:
            said = np.clip(model.predict_proba(task.x[~known], asked), 1e-6, 1.0)
            errors[name] = float(log_loss(task.y[~known], said, labels=labels))
        else:
            errors[name] = float(np.sqrt(np.mean((model.predict(task.x[~known], asked) - task.y[~known]) ** 2)))
    return errors


def fold_table(folder: Path, names: tuple[str, ...]) -> list[str]:
    errors = {task.name: [by_folds(task, test) for test in task.splits.values()] for task in read_tasks(folder, names)}
    errors["all"] = [split for splits in errors.values() for split in splits]
    titles = ["left out together", *(f"{name} ({len(splits)})" for name, splits in errors.items())]
    first = "groups at random"
    cells = [
        [name, *(geometric([split[name] / split[first] for split in splits]) for splits in errors.values())]
        for name in ("regions", "rows at random")
    ]
    return [
        "Error of auto in groups never trained on, over that with candidates judged on groups left out at random, as "
        "they are by default: geometric mean over splits, share of splits with a lower one, worst.",
        "",
        *markdown(titles, cells),
    ]


def geometric(ratios: list[float]) -> str:
    r = np.array(ratios)
    return f"{np.exp(np.log(r).mean()):.3f}, {np.mean(r < 1):.0%}, {r.max():.2f}"


def suite(folder: Path, names: tuple[str, ...]) -> list[str]:
    errors: dict[str, list[dict[str, float]]] = {}
    for task in read_tasks(folder, names):
        errors[task.name] = [on_split(task, test) for test in task.splits.values()]
        print(f"{task.name}: done", flush=True)
    everything = {**errors, "all": [split for splits in errors.values() for split in splits]}
    cells = [
        [name, *(geometric([split[name] / split[TREES] for split in splits]) for splits in everything.values())]
        for name in ROWS
        if all(name in split for split in everything["all"])
    ]
    titles = ["method", *(f"{name} ({len(splits)})" for name, splits in everything.items())]
    every = everything["all"]

    def over(base: str) -> np.ndarray:
        return np.array([split[AUTO] / split[base] for split in every])

    wanted = [
        ("boosted trees, geometric mean", np.exp(np.log(over(TREES)).mean()), 0.93),
        ("boosted trees, worst", over(TREES).max(), 1.10),
        ("linear, geometric mean", np.exp(np.log(over("linear")).mean()), 0.90),
        ("linear, worst", over("linear").max(), 1.05),
        ("best candidate by oracle, geometric mean", np.exp(np.log(over("best candidate")).mean()), 1.03),
        ("time, in single fits of trees, median", np.median([split["fits of trees"] for split in every]), 25.0),
    ]
    met = [[a, f"{value:.3f}", f"≤ {most:g}", "met" if value <= most else "**not met**"] for a, value, most in wanted]
    return [
        "Error over that of scikit-learn's histogram gradient boosting as it comes, in groups never trained on: "
        "geometric mean over splits, share of splits with a lower one, worst. Root of the mean squared error, log loss "
        "of classes.",
        "",
        *markdown(titles, cells),
        "“Picked” is the candidate with the least error in groups left out, “best candidate” the one with the least in "
        "the test groups, which nobody can know.",
        "",
        *markdown(["auto over", "measured", "wanted", ""], met),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure toporo's default on tables with regions held out.")
    parser.add_argument("folder", type=Path, help="holds NAME.csv, NAME.graph.csv and NAME.json")
    parser.add_argument("--judge", action="store_true", help="the half to look at last")
    parser.add_argument("--folds", action="store_true", help="how groups are left out to judge candidates, instead")
    given = parser.parse_args()
    name, flag = ("tables_suite-judged", " --judge") if given.judge else ("tables_suite", "")
    work = suite
    if given.folds:
        name, flag, work = f"{name}-folds", f"{flag} --folds", fold_table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = work(given.folder, JUDGED_TABLES if given.judge else DEVELOPMENT_TABLES)
    made = f"Made by `python benchmarks/tables_suite.py TABLES{flag}`."
    text = "\n".join(["# toporo's estimators on tables with regions held out", "", made, "", *lines])
    print(text)
    write_text(RESULTS / f"{name}.md", text)


if __name__ == "__main__":
    main()
