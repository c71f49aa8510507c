r"""Several models, each with a vote, and a kriged effect on what they leave together.

Which model holds in groups that nobody has seen cannot be told from the rows that it was fitted to, and hardly from a
few regions held out: whoever picks the best on them is often misled. So nobody is picked. Candidates are fitted without
some groups at a time, and :math:`P_{ik}`, what candidate k then says of row i, gives votes

.. math:: v = \arg\min_{v \in \Delta} \sum_i w_i \bigl(y_i - (Pv)_i\bigr)^2 + w_i \bigl((Pv)_i - (Ps)_i\bigr)^2

with s the mean of the safe candidates, which are as unlike as good models can be: boosted trees as they come, these
with the means of the group's inputs as further columns, and a linear model, unless it is far off. What is said with the
votes moves half of the way from the safe mean to where the rows alone would have it. A candidate that is far off in any
part has no vote. Of classes, y and P are indicators and probabilities, and the mean of these is made as sure as it
turned out to be in groups left out.

What all of them together leave, cross-fitted already, is kriged over the graph (:class:`~toporo.Kriged`).
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from toporo.checks import number, whole
from toporo.choice.cross_fitting import CrossFit, Fold, Mask, OutOfFold, folds
from toporo.errors import DataError, SettingError, listed, warn
from toporo.estimators import candidates as of
from toporo.estimators.candidates import Maker, Near, NotHereError, Say, Told, Training
from toporo.estimators.effects import Kriged, moved
from toporo.estimators.held_out import HeldOut, checked_level, hops_of_rows, scores_of, why_none
from toporo.estimators.league import LeaguePart, Standing
from toporo.estimators.places import vectors_of
from toporo.estimators.rows import (
    EVERYONE,
    check_classes,
    check_numbers,
    draw,
    group_ids,
    one_group,
    refuse_graph_alone,
    row_count,
    sizes_of,
    some_of,
    take_rows,
    target_column,
)
from toporo.estimators.votes import Store, as_sure, errors_in, sureness_of, votes_of
from toporo.estimators.weighted import weight_name
from toporo.groups import GroupIds
from toporo.machine import Fit, FitPool, one_thread, usable_threads
from toporo.progress import tracked
from toporo.robust.rows import refuse_huge
from toporo.types import Array, Name

#: A candidate whose squared error in any part is more than so many times that of the safe mean has no vote.
FAR = 2.0
#: Of more rows than this, so many are drawn to find out how candidates do without a group; the models that predict are
#: fitted to all.
MOST_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """What the whole model says of training rows from fits that have not seen their group.

    Attributes
    ----------
    rows : which, by their place in what was given to ``fit``.
    target : of each.
    ids : their groups.
    said : values, or probabilities of the classes.
    sd : of values, the standard deviation by the effects' uncertainty and what is left of rows; None of classes.
    """

    rows: npt.NDArray[np.intp]
    target: npt.NDArray[Any]
    ids: GroupIds
    said: Array
    sd: Array | None


@dataclass(frozen=True, eq=False)
class CandidateFits:
    """The fits of one candidate.

    Attributes
    ----------
    known : predictions without a row's group, from an earlier call; else None.
    store : where to keep them, or None.
    folds : fits without the groups of each fold, which return predictions for its rows.
    final : the fit to all rows.
    """

    known: Array | None
    store: Store | None
    folds: CrossFit
    final: Fit[Say]

    def out_of_fold(self, name: str) -> Array:
        """Return what the candidate predicts for each row without the row's group: (rows, outputs)."""
        if self.known is not None:
            return self.known
        out = np.asarray(self.folds.result().by_row(), dtype=np.float64)
        if not np.isfinite(out).all():
            raise DataError("it predicts NaN or infinity")
        if self.store is not None:
            self.store.write(name, out)
        return out

    def cancel(self) -> None:
        """Do not start fits that have not started."""
        self.folds.cancel()
        self.final.cancel()


class AutoEstimator(LeaguePart, Kriged, ABC):
    """Candidates, votes and the fit; what differs between classes and numbers is in the two classes below."""

    votes_: dict[str, float]
    candidates_: dict[str, Say]
    sureness_: float
    held_out_: HeldOutRows | None
    intervals_: HeldOut | None

    estimator: Any = None
    _fewest = 1

    def __init__(
        self,
        *,
        graph: Any = None,
        test_groups: Iterable[Name] | None = None,
        candidates: Mapping[str, Any] | None = None,
        folds: int = 5,
        budget: float | None = None,
        resume: str | os.PathLike[str] | None = None,
        report: Callable[[int, int, str], object] | None = None,
        random_state: int = 0,
    ) -> None:
        self.graph = graph
        self.test_groups = test_groups
        self.candidates = candidates
        self.folds = folds
        self.budget = budget
        self.resume = resume
        self.report = report
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super(Kriged, self).__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fit all candidates, give them votes, and krige what they leave.

        Parameters
        ----------
        X : rows × features: an array of numbers, or a pandas frame, whose columns of text or categories may stay as
            they are. Values may be missing.
        y : targets, one per row.
        groups : every row's group, by name. Without them, or with one, nothing is known of how groups differ, and
            candidates are judged by rows left out.
        sample_weight : of rows.
        """
        if self.budget is not None:
            number(self.budget, "budget", "seconds, more than 0, or None", least=0.0)
        whole(self.folds, "folds", 2)
        refuse_graph_alone(self.graph, groups)
        self._classes = is_classifier(self)
        x, target = self._as_table(X, reset=True), target_column(y)
        check_consistent_length(x, target)
        if self._classes:
            check_classes(target, "AutoRegressor")
        else:
            target = check_numbers(target, "AutoClassifier")
            refuse_huge(target, "y")
        inputs = of.numbers_of(x)
        if inputs.size:
            extremes = [reduce(inputs, initial=0.0, where=np.isfinite(inputs)) for reduce in (np.min, np.max)]
            refuse_huge(np.array(extremes), "X")
        rows = row_count(x)
        ids = one_group(EVERYONE, rows) if groups is None else group_ids(groups, rows)
        if sample_weight is not None:
            for each in (self.candidates or {}).values():
                weight_name(each)  # an error before the work starts
        self._workers = usable_threads()
        with one_thread(openmp=True):
            return self._fit_groups(x, target, ids, sample_weight)

    def _as_table(self, x: Any, *, reset: bool) -> Any:
        """Return a pandas frame with text as categories, or an array of numbers, with the same columns as in the fit.

        Numbers and booleans that pandas stores with a mask become floats, whose missing values are NaN.
        """
        if not hasattr(x, "iloc"):
            try:
                return validate_data(
                    self, x, reset=reset, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=1 + reset
                )
            except ValueError as error:
                if "could not convert" not in str(error):
                    raise DataError(str(error)) from None
                raise DataError(f"X holds text ({error}): give a pandas frame, whose columns may be text.") from None
        if x.ndim != 2 or not x.shape[1] or len(x) < 1 + reset:
            raise DataError(f"X has shape {x.shape}: expected at least {1 + reset} sample(s), and a column.")
        x = validate_data(self, x, reset=reset, skip_check_array=True)
        texts = x.select_dtypes(exclude=["number", "bool", "category"])
        numbers = x.select_dtypes(include=["number", "bool"]).dtypes
        masked = [name for name, kind in numbers.items() if not isinstance(kind, np.dtype)]
        kinds = dict.fromkeys(texts, "category") | dict.fromkeys(masked, "float64")
        return x.astype(kinds) if kinds else x

    def _makers(self) -> dict[str, Maker]:
        if not isinstance(self.candidates or {}, Mapping):
            raise SettingError(
                f"candidates is a {type(self.candidates).__name__}: expected estimators by name, such as "
                '{"mine": RandomForestRegressor()}, which are added to the usual ones.'
            )
        own = dict(self.candidates or {})
        usual = self._usual()
        if not own.keys().isdisjoint(usual):
            raise SettingError(f"candidates has {listed(own.keys() & usual.keys())}: these are there already.")
        strange = [name for name, each in own.items() if not (hasattr(each, "fit") and hasattr(each, "predict"))]
        if strange:
            raise SettingError(f"candidates has {listed(strange)}: expected estimators as scikit-learn has them.")
        return usual | {name: of.of_estimator(each) for name, each in own.items()}

    @abstractmethod
    def _usual(self) -> dict[str, Maker]:
        """Those that are always there, the most useful first."""

    #: Names of those whose mean is safe; the last of them only if it is not far off.
    _safe: ClassVar[tuple[str, ...]]

    def _cross_fit(
        self, x: Any, y: npt.NDArray[Any], weights: Array | None, ids: GroupIds
    ) -> tuple[Array, npt.NDArray[np.intp] | None]:
        """Fit all candidates to all rows; what they, without a row's group, say of it together; and of which rows."""
        whole(self.random_state, "random_state", 0)
        self.group_sizes_ = sizes_of(ids)
        toward = tuple(name for name in self._asked() if name not in ids.groups)
        everything = self._training(x, y, ids, weights, toward)
        rows = _some(ids, self.random_state)
        some = everything if rows is None else _taken(everything, rows, toward)
        parts = folds(some.ids, parts=self.folds, seed=self.random_state)
        if not parts:
            raise DataError(f"{len(some.ids)} row(s): expected at least two.")
        apart = [_taken(some, np.flatnonzero(~part), _names(some.ids, part), everything) for part in parts]
        said, final, failed = self._tried(everything, some, apart, parts)
        together = self._vote(said, failed, some, parts)
        self.candidates_ = {name: final[name] for name in said}
        return together, rows

    def _asked(self) -> tuple[Name, ...]:
        """Groups that are to be predicted: those of the graph that were not trained on, unless they are named."""
        if self.test_groups is not None:
            return tuple(self.test_groups)
        return () if self.topology_ is None else tuple(self.topology_.names)

    def _training(
        self, x: Any, y: npt.NDArray[Any], ids: GroupIds, weights: Array | None, toward: tuple[Name, ...]
    ) -> Training:
        classes = self.classes_ if self._classes else None
        return Training(x, y, ids, weights, classes, self.topology_, toward, self.random_state)

    def _tried(
        self, everything: Training, some: Training, apart: list[Training], parts: tuple[Mask, ...]
    ) -> tuple[dict[str, Array], dict[str, Say], dict[str, str]]:
        """By candidate: what it says of rows without their group, the one fitted to all, and what went wrong."""
        start, makers, said, final = time.monotonic(), self._makers(), {}, {}
        failed: dict[str, str] = {}
        late: list[str] = []
        store = None if self.resume is None else Store(Path(self.resume), some, self.folds)
        with FitPool(self._workers) as pool:
            trials = {}
            for name, maker in makers.items():
                own = name in (self.candidates or {})
                known = None if store is None or own else store.read(name)
                submit: Callable[[Any], Any] = Fit if own else pool.submit  # others' code may not be made for threads
                without = partial(self._without, maker, some, apart, start)
                fits = CrossFit(without, parts if known is None else (), submit=submit)
                trials[name] = CandidateFits(known, None if own else store, fits, submit(partial(maker, everything)))
            for done, name in enumerate(tracked(makers, "trying {}".format)):
                trial = trials[name]
                if self.report is not None and not late:
                    self.report(done, len(makers), name)
                try:
                    known = trial.out_of_fold(name)
                    final[name] = trial.final.result()
                    said[name] = known
                except NotHereError:
                    continue
                except _LateError:
                    late.append(name)
                except Exception as error:  # whatever a candidate does, the others go on
                    failed[name] = f"{type(error).__name__}: {error}"
                finally:
                    trial.cancel()
        if store is not None and store.failure is not None:
            warn(
                f"the fit went on, but its results cannot be kept in {str(store.folder)!r} ({store.failure}), so the "
                "next one repeats it. Free some space, or choose another folder for resume."
            )
        if late and not any(name in said for name in self._safe):
            raise SettingError(
                f"the budget of {self.budget:g} s was spent before one candidate was fitted, after "
                f"{time.monotonic() - start:.1f} s: give more, or fit a linear model (model='linear', --model linear)."
            )
        wrong = {name: why.splitlines()[0] for name, why in failed.items()}
        if not any(name in said for name in self._safe):
            raise DataError(f"no candidate could be fitted: {'; '.join(wrong.values())}")
        if wrong:
            told = "; ".join(f"{name} ({why})" for name, why in wrong.items())
            warn(f"{len(wrong)} candidate(s) could not be fitted and have no vote: {told}.")
        if late:
            warn(f"the budget of {self.budget:g} s was spent before {listed(late)}: they have no vote.")
        if self.report is not None:
            self.report(len(makers), len(makers), "votes")
        return said, final, failed | dict.fromkeys(late, "not tried: the budget was spent")

    def _without(self, maker: Maker, some: Training, apart: list[Training], start: float, fold: Fold) -> Array:
        """Return the predictions for the rows of a fold by a candidate that is fitted to the other rows."""
        if self.budget is not None and time.monotonic() - start > self.budget:
            raise _LateError
        return maker(apart[fold.number])(take_rows(some.x, fold.held_out), some_of(some.ids, fold.held_out), {})

    def _vote(self, said: dict[str, Array], failed: dict[str, str], some: Training, parts: tuple[Mask, ...]) -> Array:
        """Votes and the league; and what all say together, without a row's group."""
        y, shares, names = some.y, some.shares, list(said)
        wanted = (y[:, None] == self.classes_).astype(np.float64) if self._classes else y.astype(np.float64)[:, None]
        errors = {name: errors_in(each, wanted, shares, parts) for name, each in said.items()}
        safe = [name for name in self._safe if name in said]
        if len(safe) > 1 and safe[-1] == self._safe[-1]:
            others = errors_in(np.mean([said[name] for name in safe[:-1]], axis=0), wanted, shares, parts)
            if (errors[safe[-1]] > FAR * others).any():
                safe = safe[:-1]
        mean = np.mean([said[name] for name in safe], axis=0)
        base = np.maximum(errors_in(mean, wanted, shares, parts), 1e-300)
        running = [name for name in names if name in safe or (errors[name] <= FAR * base).all()]
        v = votes_of(np.stack([said[name] for name in running], axis=-1), wanted, mean, shares)
        self.votes_ = dict.fromkeys(names, 0.0) | dict(zip(running, map(float, v), strict=True))
        mass = np.array([shares[part].sum() for part in parts])
        self.league_ = tuple(
            sorted(
                [
                    Standing(
                        name,
                        float(errors[name] @ mass / (base @ mass)),
                        float((errors[name] / base).max()),
                        self.votes_[name],
                        ""
                        if name in running
                        else f"far off in some {'groups' if len(some.ids.groups) > 1 else 'rows'}",
                    )
                    for name in names
                ]
                + [Standing(name, np.nan, np.nan, 0.0, why) for name, why in failed.items()],
                key=lambda row: (-row.vote, np.nan_to_num(row.error, nan=np.inf), row.name),
            )
        )
        together = np.sum([self.votes_[name] * said[name] for name in names], axis=0)
        if not self._classes:
            return np.asarray(together[:, 0])
        self.sureness_ = sureness_of(together, wanted, shares)
        return as_sure(together, self.sureness_)

    def _look_back(
        self, target: npt.NDArray[Any], guesses: Array, ids: GroupIds, rows: npt.NDArray[np.intp] | None
    ) -> None:
        """What effects say of groups left out, a part at a time, with variances as they are."""
        added, spread = (np.zeros((len(target), len(self.fits_))) for _ in range(2))
        for part in folds(ids, parts=self.folds, seed=self.random_state) if len(ids.groups) > 2 else ():
            gone = np.zeros(len(ids.groups), dtype=bool)
            gone[ids.codes[part]] = True
            vectors = vectors_of(self.fits_[0], self.topology_, ids.groups, {})[gone]
            nothing, nobody = np.zeros((len(vectors), 0)), np.full(len(vectors), -1)
            where = np.cumsum(gone)[ids.codes[part]] - 1
            for k, fit in enumerate(self.fits_):
                means, variances = fit.without(gone).moments(nothing, nothing, vectors, nobody)
                added[part, k], spread[part, k] = means[where, 0], variances[where, 0]
        if self._classes:
            said, sd = moved(guesses, added), None
        else:
            said, sd = guesses + added[:, 0], np.sqrt(spread[:, 0] + self.fits_[0].noise[0])
        held_out = HeldOutRows(np.arange(len(target)) if rows is None else rows, target, ids, said, sd)
        self.held_out_, self.intervals_ = held_out, None
        if len(ids.groups) >= 3:
            scores = scores_of(target, said, self.classes_ if self._classes else None)
            out = Fold.of(folds(ids, parts=self.folds, seed=self.random_state))
            found = OutOfFold(out, [scores[fold.held_out] for fold in out], [])
            self.intervals_ = HeldOut.of_folds(found, ids, self.topology_)

    def _said(self, x: Any, ids: GroupIds, near: Near, inputs: Told | None = None) -> Array:
        told = inputs or {}
        voting = [(self.votes_[name], of.knowing(say, told.get(name))) for name, say in self._voting.items()]
        together = np.sum([vote * say(x, ids, near) for vote, say in voting], axis=0)
        return as_sure(together, self.sureness_) if self._classes else np.asarray(together[:, 0])

    def predict(
        self,
        X: Any,  # noqa: N803
        groups: Any = None,
        *,
        interval: float | None = None,
        neighbors: Near | None = None,
        inputs: Told | None = None,
    ) -> Any:
        """Predicted values, or the likeliest class.

        Parameters
        ----------
        X : as in :meth:`fit`.
        groups : every row's group. Without them, if there were groups in training, rows are of an unknown group: no
            effect is added, the means of the group's inputs count as missing, and intervals are those of the farthest
            groups. A warning says so.
        interval : with a share such as 0.9, at most 0.999, ``(values, lower, upper)`` is returned, or ``(classes,
            sets)``, where sets says which of ``classes_`` may be right, rows × classes: of so many rows in groups that
            the model was not trained on, going by those left out, the target is inside
            (:mod:`toporo.estimators.held_out`). In groups that it was trained on, more are.
        neighbors : groups that are not in the graph, and which groups there they are next to.
        inputs : of all rows to predict, where these are some of them, by :meth:`gather`.
        """
        x, ids = self._rows(X, groups)
        if interval is not None:
            checked_level(interval)
            if self.intervals_ is None:
                raise SettingError(f"the model has no intervals: {why_none(len(self.groups_), costly=False)}.")
            self.intervals_.checked(interval)
        if self._classes:
            output = self._chances(x, ids, neighbors, inputs)
            values = self.classes_[output.argmax(axis=1)]
        else:
            values = output = self._said(x, ids, neighbors or {}, inputs) + self._added(ids, neighbors)[0][:, 0]
        if interval is None or self.intervals_ is None:
            return values
        away = hops_of_rows(self.topology_, self.groups_, ids.groups, neighbors)[ids.codes]
        if self._classes:
            return values, self.intervals_.sets(output, interval, away)
        half = self.intervals_.half_widths(interval, away)
        return values, values - half, values + half

    @available_if(is_classifier)  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def predict_proba(
        self,
        X: Any,  # noqa: N803
        groups: Any = None,
        *,
        neighbors: Near | None = None,
        inputs: Told | None = None,
    ) -> Array:
        """Probabilities of the classes, in the order of ``classes_``.

        Parameters
        ----------
        X, groups, neighbors, inputs : see :meth:`predict`.
        """
        return self._chances(*self._rows(X, groups), neighbors, inputs)

    def _chances(self, x: Any, ids: GroupIds, neighbors: Near | None, inputs: Told | None) -> Array:
        return moved(self._said(x, ids, neighbors or {}, inputs), self._added(ids, neighbors)[0])

    def gather(self, rows: Any, groups: Any = None, inputs: Told | None = None) -> Told:
        """Look at rows to predict, a portion at a time, before they are predicted a portion at a time.

        Parameters
        ----------
        rows, groups : as ``X`` and ``groups`` of :meth:`predict`.
        inputs : of the portions before.
        """
        (x, ids), told = self._rows(rows, groups), inputs or {}
        return {name: of.tell(say, x, ids, told.get(name)) for name, say in self._voting.items()}

    @property
    def _voting(self) -> dict[str, Say]:
        return {name: say for name, say in self.candidates_.items() if self.votes_[name] > 0.0}

    def _rows(self, x: Any, groups: Any) -> tuple[Any, GroupIds]:
        """Rows to predict, and their groups."""
        check_is_fitted(self, "candidates_")
        table = self._as_table(x, reset=False)
        return table, self._ids(groups, row_count(table))

    def predict_each(self, X: Any, groups: Any = None) -> dict[str, Array]:  # noqa: N803
        """What every candidate says by itself: values, or probabilities of the classes.

        Parameters
        ----------
        X, groups : as in :meth:`predict`.
        """
        x, ids = self._rows(X, groups)
        each = {name: say(x, ids, {}) for name, say in self.candidates_.items()}
        return {name: values if self._classes else values[:, 0] for name, values in each.items()}


class AutoRegressor(RegressorMixin, AutoEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The mean of several models by their votes, with a kriged effect of the group: for tables of numbers to predict.

    Candidates are a constant; linear models by rows, by groups, by the graph's prior and against the worst mixture near
    it (TRO); a kriged model, whose groups have levels that follow the graph; boosted trees, these with the means of the
    group's inputs as further columns, and these on what a kriged model leaves. Each is fitted without some groups at a
    time, and gets a vote by what it says of these. What remains is kriged over the graph. See
    :mod:`toporo.estimators.auto` for the formulas. Candidates and how far votes are drawn were settled on four tables
    with their test errors in view (0.919 of the error of boosted trees there), and judged once on four others (0.851).

    Parameters
    ----------
    graph : over the groups, test groups among them, in any form that :func:`toporo.graphs.as_graph` takes; without one
        there are votes, but no effect of new groups.
    test_groups : those that will be predicted, for the graph's prior; unless given, all of the graph that are not
        trained on.
    candidates : more of them: names to estimators, which get ``groups`` if they take them. They are fitted in turn in
        the calling thread, after the usual ones, which are fitted in parallel: on as many threads as there are usable
        cores, or as the environment variable ``OMP_NUM_THREADS`` says. OpenMP has one thread in every fit.
    folds : into how many parts groups are divided.
    budget : seconds. Candidates that are not done by then have no vote. None: as long as it takes, which is about as
        long as 25 fits of boosted trees on one thread; of more than 100,000 rows, so many are drawn to judge by.
    resume : a folder in which to keep what is done, so that a fit that is cut short goes on from there.
    report : called with what is done, the total and the name of the candidate that comes next.
    random_state : a number; which groups are together depends on it.

    Attributes
    ----------
    league_ : every candidate's error in groups left out, its vote, and what it took; :meth:`explain` prints it.
    votes_ : votes by name, summing to 1. :meth:`predict_each` gives what each says by itself.
    evidence_, gate_, effects_, effects_sd_, saw_ : of the effect on what they leave, as in :class:`Kriged`.
    held_out_ : what all of it says of training rows without their group (:class:`HeldOutRows`); None in a model that
        was loaded, for a stored model holds no targets of training rows.

    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(range(12), 20)
    >>> x = rng.normal(size=(240, 1))
    >>> y = x[:, 0] + groups + rng.normal(size=240)
    >>> model = AutoRegressor(graph=[(place, place + 1) for place in range(11)])
    >>> model = model.fit(x[groups != 8], y[groups != 8], groups=groups[groups != 8])
    >>> round(float(model.predict([[0.0]], groups=[8])[0]))
    8
    """

    _safe: ClassVar[tuple[str, ...]] = ("trees", "trees with context", "linear")
    score = Kriged.score  # with groups

    def _usual(self) -> dict[str, Maker]:
        return {
            "constant": of.constant,
            "linear": of.linear,
            "trees": of.trees,
            "trees with context": of.trees_in_context,
            "kriged": of.kriged,
            "trees on a kriged model": of.trees_on_top,
            "linear, groups alike": of.groups_alike,
            "linear, by prior": of.by_prior,
            "linear, TRO": of.against_the_worst,
        }


class AutoClassifier(ClassifierMixin, AutoEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The same for classes: the mean of probabilities by votes, with a kriged effect on their log-odds.

    Models are surer of themselves than they should be in groups that they have not seen. So the mean is taken to the
    power, at most 1, that gives the least log loss in groups left out (``sureness_``).

    Parameters
    ----------
    graph, test_groups, candidates, folds, budget, resume, report, random_state : see :class:`AutoRegressor`; candidates
        must have ``predict_proba``. The usual ones are linear and boosted trees, none of them kriged.

    Attributes
    ----------
    classes_ : sorted.
    sureness_ : the power of the probabilities, 1 where they are as they come.
    league_, votes_, evidence_, gate_, effects_, effects_sd_, saw_ : see :class:`AutoRegressor`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, town = rng.normal(size=(90, 2)), np.repeat(["A", "B", "C"], 30)
    >>> kind = np.where(x[:, 0] > 0, "wet", "dry")
    >>> model = AutoClassifier(folds=2).fit(x, kind, groups=town)
    >>> model.predict([[2.0, 0.0]], groups=["B"]).tolist(), round(sum(model.votes_.values()), 6)
    (['wet'], 1.0)
    """

    _safe: ClassVar[tuple[str, ...]] = ("trees", "trees with context", "trees of few leaves", "linear")
    score = Kriged.score  # with groups

    def _usual(self) -> dict[str, Maker]:
        return {
            "constant": of.constant,
            "linear": of.linear,
            "trees": of.trees,
            "trees with context": of.trees_in_context,
            "trees of few leaves": of.small_trees,
            "linear, groups alike": of.groups_alike,
            "linear, by prior": of.by_prior,
            "linear, TRO": of.against_the_worst,
        }


class TreesRegressor(AutoRegressor):
    """Boosted trees alone: a control for :class:`AutoRegressor`, with the same intervals and explanation."""

    _safe: ClassVar[tuple[str, ...]] = ("trees",)

    def _usual(self) -> dict[str, Maker]:
        return {"trees": of.trees}


class TreesClassifier(AutoClassifier):
    """Boosted trees alone: a control for :class:`AutoClassifier`."""

    _safe: ClassVar[tuple[str, ...]] = ("trees",)

    def _usual(self) -> dict[str, Maker]:
        return {"trees": of.trees}


# ---------------------------------------------------------------- rows


def _some(ids: GroupIds, seed: int) -> npt.NDArray[np.intp] | None:
    """Rows that candidates are judged by, drawn group by group; None for all."""
    if len(ids) <= MOST_ROWS:
        return None
    sizes = np.sort(np.bincount(ids.codes))
    left = np.cumsum(sizes) + sizes * np.arange(len(sizes) - 1, -1, -1)  # all of the smaller, as many of the larger
    fits = int(np.searchsorted(left, MOST_ROWS, side="right"))
    taken = int(sizes[:fits].sum())
    return draw(ids, max(1, (MOST_ROWS - taken) // max(1, len(sizes) - fits)), seed)


def _taken(
    rows: Training, some: npt.NDArray[np.intp], toward: tuple[Name, ...], among: Training | None = None
) -> Training:
    weights = None if rows.weights is None else rows.weights[some]
    ids = some_of(rows.ids, some)
    return Training(
        take_rows(rows.x, some), rows.y[some], ids, weights, rows.classes, rows.graph, toward, rows.seed, among=among
    )


def _names(ids: GroupIds, part: npt.NDArray[np.bool_]) -> tuple[Name, ...]:
    return tuple(ids.groups.decode(np.unique(ids.codes[part]))) if len(ids.groups) > 1 else ()


class _LateError(Exception):
    """The budget is spent."""
