"""Fit many models to one table without some of its groups at a time, and judge them by what they say of these."""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from toporo.checks import positive, whole
from toporo.choice import cross_fitting
from toporo.data.frame import Numbers
from toporo.errors import DataError, SettingError, TopoRoError, listed
from toporo.estimators import (
    AutoClassifier,
    AutoRegressor,
    GroupDROClassifier,
    GroupDRORegressor,
    KrigedClassifier,
    KrigedRegressor,
    TROClassifier,
    TRORegressor,
)
from toporo.estimators.weighted import fit_weighted, weight_name
from toporo.groups import GroupIds
from toporo.progress import Progress, Report
from toporo.robust.rows import weighted_rows
from toporo.tables.contest import (
    AUTO,
    CONSTANT,
    CONTROL,
    ERM,
    KRIGED,
    LEVEL,
    MODEL,
    NOTHING,
    RESAMPLES,
    SHUFFLED,
    TRO,
    YOURS,
    Contest,
    Entrant,
    Judgement,
    error_difference,
)
from toporo.tables.evaluate import evaluate
from toporo.tables.read import PreparedTable, ids_of, prepare_table
from toporo.tables.resample import mean_over_groups
from toporo.tables.roles import RoleKeywords, Roles
from toporo.text import many
from toporo.topology.graph import GroupGraph
from toporo.types import Array
from toporo.version import __version__

#: By what models are judged; and the fewest groups of which some can be held out.
METRIC = {"regression": "rmse", "classification": "log_loss"}
FEWEST_GROUPS = 3
#: Two more controls.
DRO, UNIFORM = "linear, group DRO", "linear, TRO, uniform prior"
#: What is to be known of classifiers that only name a class.
NO_CHANCES = "no probabilities: judged by accuracy alone"
#: Letters of a reason that are kept.
REASON = 200

#: What a model says of rows: numbers, probabilities of the classes or, where it has none, classes.
Said = npt.NDArray[Any]
#: What came of a model: that, or why it says nothing.
Outcome = Said | str


def compare_models(
    source: Any,
    *,
    target: str,
    group: str,
    estimators: Mapping[str, Any] | None = None,
    fast: bool = False,
    budget: float | None = None,
    folds: int = 4,
    seed: int = 0,
    progress: bool | Report | None = False,
    delimiter: str = ",",
    **roles: Unpack[RoleKeywords],
) -> Contest:
    """Fit many models without some groups at a time, and judge each by what it says of these.

    Training groups are divided into regions that are about as far from the others as test groups are from training
    groups (:class:`toporo.GraphHopSplit`), or without a graph into whole groups drawn at random. Every model is fitted
    without each region in turn: :class:`toporo.AutoRegressor` or ``AutoClassifier`` and every candidate of it by
    itself, the kriged linear model, the linear model by TRO, and as controls a constant, the linear model with all
    groups alike (ERM), with the worst group alone (group DRO), with a uniform prior and, where there is a graph, all
    models that use it with the groups at other places in it. Where the table has targets of test groups, all models
    are fitted to all training groups too, and judged there.

    One that raises or predicts NaN is left out and named; the others go on.

    Parameters
    ----------
    source, target, group : as for :func:`toporo.fit_table`.
    estimators : yours, by name: any scikit-learn estimators. They get the same inputs, all numbers with gaps filled in,
        ``groups`` if they take them, and ``sample_weight`` if there are weights, which all must take. Classifiers
        without ``predict_proba`` are judged by accuracy alone.
    fast : without auto and its candidates, which take most of the time.
    budget : seconds; once they are spent no further region is held out. The first always is.
    folds : regions, at most so many as there are groups.
    seed : of what is drawn at random.
    progress : True for a bar on standard error, a function to call with (done, total), None for a bar on a terminal.
    delimiter : as for :func:`toporo.fit_table`.
    roles : ``graph``, ``test_groups``, ``task``, ``features``, ``exclude``, ``categorical``, ``weight`` and
        ``drop_rows``, as for :func:`toporo.fit_table`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> table = {"town": np.repeat(list("ABCDEF"), 20), "x": rng.normal(size=120)}
    >>> table["y"] = table["x"] + 0.1 * rng.normal(size=120)
    >>> contest = compare_models(table, target="y", group="town", fast=True, folds=2, progress=False)
    >>> contest.entrants[-1].name  # the largest error
    'constant'
    """
    parts, seed = whole(folds, "folds", 2), whole(seed, "seed", 0)
    end = math.inf if budget is None else time.monotonic() + positive(budget, "budget", "seconds above 0")
    own = _checked(estimators or {})
    ready = prepare_table(source, Roles.of(target=target, group=group, **roles), delimiter=delimiter)
    x, y, ids, weights = weighted_rows(ready.x, ready.y, ready.ids, ready.weights)  # those that count
    ready = replace(ready, x=x, y=y, ids=ids, weights=weights)
    for each in own.values() if weights is not None else ():
        weight_name(each)  # an error before the work starts
    names = [str(name) for name in ids.groups]
    if len(names) < FEWEST_GROUPS:
        raise DataError(
            f"the table has {many(len(names), 'training group')} ({listed(names)}): to hold some out and train on the "
            f"others it takes at least {FEWEST_GROUPS}. Name a finer column of groups, or add groups."
        )
    ring = _Ring(ready, own, fast, seed)
    masks = cross_fitting.folds(ids, ready.graph, ready.roles.test_groups or (), kind="matched", parts=parts, seed=seed)
    regions = [tuple(map(str, ids.groups.decode(np.unique(ids.codes[mask])))) for mask in masks]
    test = _test_rows(ready)
    with Progress("comparing", (len(regions) + (test is not None)) * len(ring.trials), progress) as shown:
        in_test = {} if test is None else ring.fit_all(test, shown, {})
        in_regions, region_of = ring.on_regions(regions, end, shown)
    return ring.contest(regions, region_of, in_regions, test, in_test)


# ---------------------------------------------------------------- rows


@dataclass(frozen=True, eq=False)
class _Holdout:
    """Rows to fit to, rows to predict, and the groups that these are of."""

    x: Array
    y: npt.NDArray[Any]
    ids: GroupIds
    weights: Array | None
    new_x: Array
    new_ids: GroupIds
    new_y: npt.NDArray[Any]
    groups: tuple[str, ...]


def _test_rows(ready: PreparedTable) -> _Holdout | None:
    """All training rows, and the rows of test groups that have a target."""
    rows = np.flatnonzero(ready.apart & ~ready.frame[ready.target].missing)
    if not len(rows):
        return None
    frame = ready.frame.take(rows)
    labels = frame[ready.target]
    if isinstance(labels, Numbers) and ready.task == "regression":
        y: npt.NDArray[Any] = labels.values
    else:
        texts = frame.text(ready.target)
        y = np.asarray(texts.levels, dtype=object)[texts.codes]
    new_x, ids = ready.encoder.transform(frame).matrix, ids_of(frame.text(ready.roles.group))
    return _Holdout(ready.x, ready.y, ready.ids, ready.weights, new_x, ids, y, ready.roles.test_groups)


def _shuffled(graph: GroupGraph, seed: int) -> GroupGraph:
    """The same graph with the groups at other places."""
    names = list(graph.names)
    order = np.random.default_rng([seed, 1]).permutation(len(names))
    at = {name: names[place] for name, place in zip(names, order, strict=True)}
    return GroupGraph(names, {(at[a], at[b]): length for (a, b), length in graph.edges.items()})


def _checked(estimators: Mapping[str, Any]) -> dict[str, Any]:
    """The user's estimators by name, each of which can be fitted and predicts."""
    if not isinstance(estimators, Mapping):
        raise SettingError(f"estimators is {estimators!r:.80}: expected estimators by name: {{'mine': Ridge()}}.")
    for name, each in estimators.items():
        lacking = [f"{what}()" for what in ("fit", "predict") if not callable(getattr(each, what, None))]
        if inspect.isclass(each):
            raise SettingError(f"estimator {name!r} is a class: make an estimator of it, {each.__name__}(…).")
        if lacking:
            raise SettingError(
                f"estimator {name!r} is of type {type(each).__name__}, which has no {' and no '.join(lacking)}: "
                "expected an estimator as scikit-learn has them, such as Ridge()."
            )
    return {str(name): each for name, each in estimators.items()}


# ---------------------------------------------------------------- models

#: Fit and predict: one model or several, by name.
Run = Callable[[_Holdout], dict[str, Outcome]]


class _Ring:
    """All models, and how they fare on rows held out.

    Parameters
    ----------
    ready : the table.
    own : the user's estimators, by name.
    fast : without auto.
    seed : of auto, the shuffled graph and the intervals.
    """

    def __init__(self, ready: PreparedTable, own: Mapping[str, Any], fast: bool, seed: int) -> None:
        self.ready, self.seed = ready, seed
        self.classes = np.unique(ready.y) if ready.task == "classification" else None
        graph, other = ready.graph, None if ready.graph is None else _shuffled(ready.graph, seed)
        dro = GroupDRORegressor() if self.classes is None else GroupDROClassifier()
        kriged = KrigedRegressor if self.classes is None else KrigedClassifier
        trials: list[tuple[str, str, Any]] = [] if fast else [(AUTO, MODEL, partial(self._auto, AUTO, graph))]
        if other is not None and not fast:
            trials.append((SHUFFLED[AUTO], CONTROL, partial(self._auto, SHUFFLED[AUTO], other)))
        trials += [
            (KRIGED, MODEL, partial(self._one, KRIGED, kriged(graph=graph))),
            (TRO, MODEL, partial(self._tro, TRO, graph, {})),
            (CONSTANT, CONTROL, self._constant),
            (ERM, CONTROL, partial(self._tro, ERM, None, {"penalty": np.inf})),
            (DRO, CONTROL, partial(self._one, DRO, dro)),
        ]
        if other is not None:
            trials.append((UNIFORM, CONTROL, partial(self._tro, UNIFORM, graph, {"prior": "uniform"})))
            trials.append((SHUFFLED[KRIGED], CONTROL, partial(self._one, SHUFFLED[KRIGED], kriged(graph=other))))
            trials.append((SHUFFLED[TRO], CONTROL, partial(self._tro, SHUFFLED[TRO], other, {})))
        taken = [name for name, _, _ in trials if name in own]
        if taken:
            raise SettingError(f"estimators has {listed(taken)}: toporo's own have that name. Choose another.")
        trials += [(name, YOURS, partial(self._one, name, each)) for name, each in own.items()]
        self.trials: dict[str, Run] = {name: run for name, _, run in trials}
        self.kinds = {name: kind for name, kind, _ in trials}

    # ------------------------------------------------------------ what is fitted

    def _auto(self, name: str, graph: GroupGraph | None, rows: _Holdout) -> dict[str, Outcome]:
        """All of it and, with the graph as it is, every candidate by itself."""
        kind = AutoRegressor if self.classes is None else AutoClassifier
        asked = None if graph is None else list(rows.groups)
        model = kind(graph=graph, test_groups=asked, random_state=self.seed)
        model.fit(rows.x, rows.y, groups=rows.ids, sample_weight=rows.weights)
        outcomes: dict[str, Outcome] = {name: self._said(model, rows)}
        if name == AUTO:
            each = model.predict_each(rows.new_x, groups=rows.new_ids)
            outcomes |= {row.name: row.note for row in model.league_ if row.name not in {**each, **self.trials}}
            for candidate, values in each.items():
                if candidate not in self.trials:
                    outcomes[candidate] = values if self.classes is None else self._of_all(values, model.classes_)
        return outcomes

    def _tro(self, name: str, graph: GroupGraph | None, settings: dict[str, Any], rows: _Holdout) -> dict[str, Outcome]:
        """The linear model, with the groups held out as test groups."""
        kind = TRORegressor if self.classes is None else TROClassifier
        if graph is not None:
            settings = settings | {"graph": graph, "test_groups": list(rows.groups)}
        return self._one(name, kind(**settings), rows)

    def _constant(self, rows: _Holdout) -> dict[str, Outcome]:
        wanted = rows.y if self.classes is None else rows.y[:, None] == self.classes
        shares = None if rows.weights is None else rows.weights / rows.weights.max()
        mean = np.average(wanted.astype(np.float64), axis=0, weights=shares)
        return {CONSTANT: np.full((len(rows.new_x), *np.shape(mean)), mean)}

    def _one(self, name: str, estimator: Any, rows: _Holdout) -> dict[str, Outcome]:
        """Any estimator; it gets weights if there are any, and groups if it takes them."""
        named: dict[str, Any] = {"groups": rows.ids.names} if has_fit_parameter(estimator, "groups") else {}
        model = fit_weighted(clone(estimator, safe=False), rows.x, rows.y, rows.weights, **named)
        return {name: self._said(model, rows)}

    def _said(self, model: Any, rows: _Holdout) -> Said:
        """What a fitted model says of new rows."""
        likely = self.classes is not None and hasattr(model, "predict_proba")
        work = model.predict_proba if likely else model.predict
        named = {"groups": rows.new_ids.names} if "groups" in inspect.signature(work).parameters else {}
        output = work(rows.new_x, **named)
        if likely:
            return self._of_all(output, model.classes_)
        if self.classes is None:
            return np.asarray(output, dtype=np.float64).reshape(len(rows.new_x))
        return np.asarray([str(label) for label in np.asarray(output).ravel()], dtype=object)

    def _of_all(self, chances: Any, known: Any) -> Said:
        """Probabilities of all classes: one that was not there to be learned has none."""
        place = {label: column for column, label in enumerate(self.classes if self.classes is not None else ())}
        out = np.zeros((len(chances), len(place)))
        out[:, [place[label] for label in known]] = chances
        return out

    def fit_all(self, rows: _Holdout, shown: Progress, failed: Mapping[str, str]) -> dict[str, Outcome]:
        """What every model says that has not failed before; one that fails now says why."""
        outcomes: dict[str, Outcome] = {}
        for name, run in self.trials.items():
            shown.title = f"comparing: {name}"
            if name not in failed:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # they come when the model is fitted by itself
                        outcomes |= run(rows)
                except Exception as error:  # whatever a model does, the others go on
                    why = str(error) if isinstance(error, TopoRoError) else f"{type(error).__name__}: {error}"
                    outcomes[name] = " ".join(why.split())[:REASON]
            shown.step()
        for name, said in outcomes.items():
            if not isinstance(said, str) and said.dtype.kind == "f" and not np.isfinite(said).all():
                outcomes[name] = "it predicts NaN or infinity"
        return outcomes

    def on_regions(
        self, regions: Sequence[tuple[str, ...]], end: float, shown: Progress
    ) -> tuple[dict[str, Outcome], npt.NDArray[np.intp]]:
        """What all models say of rows held out; and which region each row is of, -1 if it is not judged."""
        table, codes, groups = self.ready, self.ready.ids.codes, self.ready.ids.groups
        region_of, took = np.full(len(codes), -1), 0.0
        parts: list[tuple[npt.NDArray[np.intp], dict[str, Outcome]]] = []
        failed: dict[str, str] = {}
        for place, region in enumerate(regions):
            start = time.monotonic()
            if parts and start + took > end:
                break
            out = np.isin(codes, groups.encode(region))
            kept, held = np.flatnonzero(~out), np.flatnonzero(out)
            if self.classes is not None:  # what nobody could learn is nobody's mistake
                held = held[np.isin(table.y[held], np.unique(table.y[kept]))]
                if len(np.unique(table.y[kept])) < 2 or not len(held):
                    continue
            known, new = (GroupIds(codes[rows], groups) for rows in (kept, held))
            weights = None if table.weights is None else table.weights[kept]
            rows = _Holdout(table.x[kept], table.y[kept], known, weights, table.x[held], new, table.y[held], region)
            outcomes = self.fit_all(rows, shown, failed)
            failed |= {name: said for name, said in outcomes.items() if isinstance(said, str)}
            parts.append((held, outcomes))
            region_of[held] = place
            took = time.monotonic() - start
        if not parts:
            raise DataError(
                "without any of the regions the other groups have a single class, so nothing can be learned: name "
                "another target, or groups in which several classes occur."
            )
        merged: dict[str, Outcome] = {}
        for name in dict.fromkeys(name for _, outcomes in parts for name in outcomes):
            if name in failed or not all(name in outcomes for _, outcomes in parts):
                merged[name] = failed.get(name, "it could not be fitted without some of the regions")
                continue
            said = [(held, np.asarray(outcomes[name])) for held, outcomes in parts]
            everything = np.zeros((len(codes), *said[0][1].shape[1:]), said[0][1].dtype)
            for held, values in said:
                everything[held] = values
            merged[name] = everything
        return merged, region_of

    # ------------------------------------------------------------ how it is judged

    def contest(
        self,
        regions: Sequence[tuple[str, ...]],
        region_of: npt.NDArray[np.intp],
        in_regions: Mapping[str, Outcome],
        test: _Holdout | None,
        in_test: Mapping[str, Outcome],
    ) -> Contest:
        """Errors, ratios and differences of what everybody said."""
        table = self.ready
        rows = np.flatnonzero(region_of >= 0)
        ids = GroupIds(table.ids.codes[rows], table.ids.groups)
        said = {name: each if isinstance(each, str) else each[rows] for name, each in in_regions.items()}
        here, failed = self._judge(said, table.y[rows], ids)
        there = {} if test is None else self._judge(in_test, test.new_y, test.new_ids)[0]
        ranked = sorted(here, key=lambda name: (np.nan_to_num(here[name].error.value, nan=np.inf), name))
        models = [name for name in ranked if self.kinds.get(name, MODEL) == MODEL]
        reference = next(name for name in (AUTO, TRO, *models, *ranked) if name in here)
        here, there = (self._beside(judged, reference) for judged in (here, there))
        notes = {name: NO_CHANCES if math.isnan(each.error.value) else "" for name, each in here.items()}
        kinds = dict.fromkeys([*here, *failed], MODEL) | self.kinds
        entrants = [Entrant(name, kinds[name], here[name], there.get(name), notes[name]) for name in ranked]
        entrants += [Entrant(name, kinds[name], None, None, why) for name, why in failed.items()]
        done = [region for place, region in enumerate(regions) if (region_of == place).any()]
        return Contest(
            task=table.task,
            metric=METRIC[table.task],
            entrants=tuple(entrants),
            reference=reference,
            regions=tuple(done),
            test_groups=() if test is None else tuple(str(name) for name in test.new_ids.groups),
            has_graph=table.graph is not None,
            notes=tuple(self._notes(regions, done, region_of, test)),
            about={
                "source": table.source,
                "target": table.target,
                "rows": len(table.y),
                "groups": len(table.ids.groups),
                "inputs": len(table.encoder.names),
                "toporo": __version__,
            },
            seed=self.seed,
        )

    def _judge(
        self, outcomes: Mapping[str, Outcome], y: npt.NDArray[Any], ids: GroupIds
    ) -> tuple[dict[str, Judgement], dict[str, str]]:
        """Errors by group and over groups; and why some cannot be judged."""
        judged, failed, metric = {}, {}, METRIC[self.ready.task]
        for name, said in outcomes.items():
            if isinstance(said, str):
                failed[name] = said
                continue
            given: dict[str, Any] = {}
            if self.classes is not None and said.ndim == 2:
                given, said = (
                    {"probabilities": said, "classes": self.classes.tolist()},
                    self.classes[said.argmax(axis=1)],
                )
            try:
                scores = evaluate(self.ready.task, y, said, ids, resamples=0, **given).groups
            except DataError as error:
                failed[name] = " ".join(str(error).split())[:REASON]
                continue
            errors = {s.group: s.metrics[metric].value if metric in s.metrics else math.nan for s in scores}
            hits = [score.metrics["accuracy"].value for score in scores if "accuracy" in score.metrics]
            mean = mean_over_groups(errors.values(), RESAMPLES, LEVEL, self.seed)
            judged[name] = Judgement(mean, float(np.mean(hits)) if hits else math.nan, math.nan, NOTHING, errors)
        return judged, failed

    def _beside(self, judged: Mapping[str, Judgement], reference: str) -> dict[str, Judgement]:
        """The same with ratios and differences."""
        base = judged[ERM].error.value if ERM in judged else math.nan
        other = judged[reference].by_group if reference in judged else {}
        return {
            name: replace(
                each,
                ratio=each.error.value / base if base else math.nan,
                difference=error_difference(each.by_group, other, RESAMPLES, LEVEL, self.seed) if other else NOTHING,
            )
            for name, each in judged.items()
        }

    def _notes(
        self, regions: Sequence[Any], done: Sequence[Any], region_of: npt.NDArray[np.intp], test: _Holdout | None
    ) -> Iterator[str]:
        if len(done) < len(regions):
            why = "the budget was spent" if self.classes is None else "the budget was spent, or classes are missing"
            yield f"Only {len(done)} of {len(regions)} regions could be held out: {why}."
        codes, groups = self.ready.ids.codes, self.ready.ids.groups
        held = np.isin(codes, groups.encode([name for region in done for name in region]))
        skipped = int(held.sum() - (region_of >= 0).sum())
        if skipped:
            yield f"{many(skipped, 'row')} in regions held out are not judged: no other group has their class."
        if self.ready.roles.test_groups and test is None:
            yield "No row of the test groups has a target: models are judged on regions of training groups alone."
