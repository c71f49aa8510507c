"""Problems that several tests of the theory share."""

from __future__ import annotations

import functools

import numpy as np

from toporo import Prior
from toporo.data import GroupedData
from toporo.paper import load_dataset
from toporo.paper.theory import BallProblem
from toporo.paper.theory.study import StudySettings, TheoryStudy, run_study

PRIOR = Prior({"g0": 0.7, "g1": 0.3, "g2": 0.0})


def blobs(rows: int = 6, features: int = 2, seed: int = 0) -> GroupedData:
    """Three groups of two classes whose boundary turns from group to group; inputs in the unit ball."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(3), rows)
    y = np.resize([-1.0, 1.0], 3 * rows)
    x = rng.normal(size=(3 * rows, features))
    x[:, 0] += y * np.cos(codes)
    x[:, -1] += y * np.sin(codes)
    return GroupedData.from_arrays(x / np.linalg.norm(x, axis=1).max(), y, [f"g{code}" for code in codes])


def problem(loss: str = "logistic", penalty: float = 1.0, ball_radius: float = 1.0, **data: int) -> BallProblem:
    """A problem with all of the prior on two of its three groups."""
    return BallProblem(with_intercept(blobs(**data)), loss, PRIOR, penalty, ball_radius)


def with_intercept(data: GroupedData) -> GroupedData:
    """Add a column of ones."""
    return GroupedData.from_arrays(np.column_stack([data.x, np.ones(len(data))]), data.y, data.ids)


@functools.cache
def spiral() -> GroupedData:
    """DG-15's training groups, inputs in the unit ball and an intercept, targets -1 and 1."""
    benchmark = load_dataset("dg15", source="generated")
    data = benchmark.data.select(benchmark.train)
    scaled = data.x / np.linalg.norm(data.x, axis=1).max()
    return with_intercept(GroupedData.from_arrays(scaled, 2.0 * data.y - 1.0, data.ids))


@functools.cache
def tiny_study() -> TheoryStudy:
    """A study with as little of everything as there can be."""
    return run_study(StudySettings(horizons=(64, 128, 256), seeds=2, epochs=2, training_seeds=1, every_group=False))
