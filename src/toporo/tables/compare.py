"""Two models on the same rows: what one gains over the other, group by group."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from toporo.errors import DataError, SettingError, listed
from toporo.tables.evaluate import Evaluation
from toporo.tables.resample import Interval

#: Metrics of which more is better; of the others less is.
MORE_IS_BETTER = ("accuracy", "balanced_accuracy", "r2")


@dataclass(frozen=True)
class Comparison:
    """What a model gains over a control, by the leading metric.

    Attributes
    ----------
    metric : which.
    gains : by group; above 0 the model is better, whether more or less of the metric is good.
    gain : the mean over groups. Its interval is of the differences, so that what makes a group hard for both models is
        no part of it; two intervals that overlap say nothing about it.
    better : in how many groups the model is better.
    """

    metric: str
    gains: dict[str, float]
    gain: Interval
    better: int

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON; an interval that does not exist is null."""
        low, high = (None if math.isnan(end) else end for end in (self.gain.low, self.gain.high))
        return {
            "metric": self.metric,
            "gain": {"value": self.gain.value, "low": low, "high": high},
            "better": self.better,
            "gains": self.gains,
        }


def compare(model: Evaluation, control: Evaluation, *, seed: int = 0) -> Comparison:
    """What ``model`` gains over ``control`` on the same groups.

    The interval is a percentile bootstrap over groups, with as many resamples and of the level of the evaluations;
    with a single group there is none.
    """
    if (model.task, model.metric) != (control.task, control.metric):
        raise SettingError(f"a {model.task} cannot be compared with a {control.task}.")
    mine, theirs = (
        {score.group: (score.rows, score.metrics[model.metric].value) for score in found.groups}
        for found in (model, control)
    )
    other = [name for name in {**mine, **theirs} if mine.get(name, (0,))[0] != theirs.get(name, (0,))[0]]
    if other:
        raise DataError(f"the two were not judged by the same rows: they differ in group(s) {listed(other)}.")
    sign = 1.0 if model.metric in MORE_IS_BETTER else -1.0
    gains = {name: sign * (mine[name][1] - theirs[name][1]) for name in mine}
    values = np.sort(np.asarray(list(gains.values())))
    low = high = math.nan
    if len(values) > 1 and model.resamples:
        draws = np.random.default_rng(seed).choice(values, (model.resamples, len(values))).mean(axis=1)
        low, high = np.quantile(draws, [(1 - model.level) / 2, (1 + model.level) / 2]).tolist()
    return Comparison(
        metric=model.metric,
        gains=gains,
        gain=Interval(float(values.mean()), low, high),
        better=int((values > 0).sum()),
    )
