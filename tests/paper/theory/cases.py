"""Problems that several tests of the theory share."""

from __future__ import annotations

import functools

import numpy as np

from toporo.data.grouped import GroupedData
from toporo.paper import load_dataset
from toporo.paper.theory.ball import BallProblem
from toporo.paper.theory.study import StudySettings, TheoryStudy, run_study


def blobs(rows: int = 6, groups: int = 3, features: int = 2, seed: int = 0) -> GroupedData:
    """Groups of two classes whose boundary turns from group to group; inputs in the unit ball."""
    rng = np.random.default_rng(seed)
    x, y, names = [], [], []
    for e in range(groups):
        labels = (np.arange(rows) + e) % 2
        direction = np.zeros(features)
        direction[[0, -1]] += [np.cos(e), np.sin(e)]
        x.append(rng.normal(size=(rows, features)) + np.outer(2.0 * labels - 1.0, direction))
        y.append(labels)
        names += [f"g{e}"] * rows
    inputs = np.concatenate(x)
    return GroupedData.from_arrays(inputs / np.linalg.norm(inputs, axis=1).max(), np.concatenate(y), names)


def problem(loss: str = "logistic", penalty: float = 1.0, ball_radius: float = 1.0, **settings: int) -> BallProblem:
    data = blobs(**settings)
    signed = GroupedData.from_arrays(data.x, 2.0 * data.y - 1.0, data.ids)
    first = dict.fromkeys(data.groups, 0.0) | {"g0": 0.7, "g1": 0.3}
    return BallProblem.from_data(signed, loss=loss, ball_radius=ball_radius, penalty=penalty, prior=first)


@functools.cache
def spiral() -> GroupedData:
    """DG-15's training groups, inputs in the unit ball, targets -1 and 1."""
    benchmark = load_dataset("dg15", source="generated")
    data = benchmark.data.select(benchmark.train)
    return GroupedData.from_arrays(data.x / np.linalg.norm(data.x, axis=1).max(), 2.0 * data.y - 1.0, data.ids)


@functools.cache
def tiny_study() -> TheoryStudy:
    """A study with as little of everything as there can be."""
    settings = StudySettings(horizons=(64, 128, 256), seeds=2, epochs=2, training_seeds=1, signs=50, every_group=False)
    return run_study(settings, progress=False)
