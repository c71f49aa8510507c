"""Fit candidates to all rows and, for out-of-fold predictions, without some groups at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.choice.cross_fitting import CrossFit, Fold, Mask
from toporo.errors import DataError, SettingError, warn
from toporo.estimators.candidates import Candidate, NotApplicableError, Training
from toporo.estimators.places import Places
from toporo.estimators.predictors import Predictor
from toporo.estimators.resume import Store
from toporo.estimators.rows import draw, some_of
from toporo.groups import GroupIds
from toporo.machine import Fit, FitPool
from toporo.progress import tracked
from toporo.types import Array, Name

#: Of more rows than this, so many are drawn to judge candidates; the models that predict are fitted to all.
MOST_ROWS = 100_000
#: Reason of candidates for which no time was left.
LATE = "not tried: the budget was spent"


class _LateError(Exception):
    """The budget is spent."""


@dataclass(frozen=True, eq=False)
class FittedCandidates:
    """Candidates that were fitted, and reasons of those that could not be.

    Attributes
    ----------
    predictions : out-of-fold predictions by name, (rows, classes or 1).
    final : fits to all rows.
    failed : reasons by name.
    """

    predictions: dict[str, Array] = field(default_factory=dict)
    final: dict[str, Predictor] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def fit_candidates(
    usual: Mapping[str, Candidate],
    own: Mapping[str, Candidate],
    every: Training,
    some: Training,
    parts: tuple[Mask, ...],
    *,
    workers: int,
    store: Store | None,
    budget: float | None,
) -> FittedCandidates:
    """Fit candidates; those that fail or are late are left out, with a warning.

    Parameters
    ----------
    usual, own : candidates of toporo, which may run in threads, and the user's, whose code may not be made for these.
    every, some : all rows, and those that candidates are judged by.
    parts : rows of ``some`` that are held out together.
    workers : fits at the same time.
    store : where out-of-fold predictions are kept, or None.
    budget : seconds, or None.
    """
    start, out = time.monotonic(), FittedCandidates()
    apart = [taken(some, np.flatnonzero(~part), _names(some.ids, part), every) for part in parts]

    def predict(candidate: Candidate, fold: Fold) -> Array:
        if budget is not None and time.monotonic() - start > budget:
            raise _LateError
        predictor = candidate.fit(apart[fold.number])
        return predictor(some.x[fold.held_out], Places(some_of(some.ids, fold.held_out)))

    with FitPool(workers) as pool:
        fits = {}
        for name, candidate in {**usual, **own}.items():
            known = None if store is None or name in own else store.read(name)
            submit: Callable[[Any], Any] = Fit if name in own else pool.submit
            without = CrossFit(partial(predict, candidate), parts if known is None else (), submit=submit)
            fits[name] = known, without, submit(partial(candidate.fit, every))
        for name in tracked(fits, "trying {}".format):
            known, without, final = fits[name]
            try:
                values = np.asarray(without.result().by_row(), dtype=np.float64) if known is None else known
                if not np.isfinite(values).all():
                    raise DataError("it predicts NaN or infinity")
                if store is not None and known is None and name in usual:
                    store.write(name, values)
                out.final[name] = final.result()
                out.predictions[name] = values
            except NotApplicableError:
                continue
            except _LateError:
                out.failed[name] = LATE
            except Exception as error:  # whatever a candidate does, the others go on
                out.failed[name] = f"{type(error).__name__}: {error}"
            finally:
                without.cancel()
                final.cancel()
    reasons = "; ".join(f"{name} ({why.splitlines()[0]})" for name, why in out.failed.items())
    if not any(candidate.safe and name in out.predictions for name, candidate in usual.items()):
        if LATE in out.failed.values():
            raise SettingError(
                f"the budget of {budget:g} s was spent before one candidate was fitted, after "
                f"{time.monotonic() - start:.1f} s: give more, or fit a linear model (model='linear', --model linear)."
            )
        raise DataError(f"no candidate could be fitted: {reasons}")
    if out.failed:
        warn(f"{len(out.failed)} candidate(s) could not be fitted and have no weight: {reasons}.")
    return out


def judging_rows(ids: GroupIds, seed: int) -> npt.NDArray[np.intp]:
    """Return the rows that candidates are judged by: all, or of many rows some, drawn group by group."""
    if len(ids) <= MOST_ROWS:
        return np.arange(len(ids))
    sizes = np.sort(np.bincount(ids.codes))
    left = np.cumsum(sizes) + sizes * np.arange(len(sizes) - 1, -1, -1)  # all of the smaller, as many of the larger
    fits = int(np.searchsorted(left, MOST_ROWS, side="right"))
    whole = int(sizes[:fits].sum())
    return draw(ids, max(1, (MOST_ROWS - whole) // max(1, len(sizes) - fits)), seed)


def taken(
    rows: Training, some: npt.NDArray[np.intp], test_groups: tuple[Name, ...], whole: Training | None = None
) -> Training:
    """Return some rows.

    Parameters
    ----------
    rows, some : the rows, and which of them.
    test_groups : of these.
    whole : all rows, where these are the kept rows of a fold.
    """
    weights = None if rows.weights is None else rows.weights[some]
    fields = {"x": rows.x[some], "y": rows.y[some], "ids": some_of(rows.ids, some), "weights": weights}
    return rows.changed(**fields, test_groups=test_groups, whole=whole)


def _names(ids: GroupIds, part: Mask) -> tuple[Name, ...]:
    """Return the names of the groups of some rows."""
    return tuple(ids.groups.decode(np.unique(ids.codes[part]))) if len(ids.groups) > 1 else ()
