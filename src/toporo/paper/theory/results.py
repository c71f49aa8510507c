"""Settings of a study of the three theorems, and its results by theorem."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, NamedTuple

from toporo.checks import whole
from toporo.groups import name_to_json
from toporo.paper.theory.bound import BoundBreakdown
from toporo.paper.theory.convergence import Convergence
from toporo.paper.theory.rates import check_horizons
from toporo.paper.theory.stationarity import StationarityRates
from toporo.types import Array, Name


@dataclass(frozen=True)
class StudySettings:
    """Amount of work; :meth:`quick` is for a first look.

    Attributes
    ----------
    horizons, seeds, ball_radius : T and number of seeds of Theorem 1 and of Theorem 2's rate; R of Theorem 1.
    epochs, training_seeds : of the networks trained for Theorem 2.
    bound_ball_radius, delta, signs, classifier : R of Theorem 3, and arguments of
        :func:`~toporo.paper.theory.bound_breakdown`.
    every_group : evaluate Theorem 3 on all test groups; else on the nearest and the farthest.
    """

    horizons: tuple[int, ...] = tuple(2**k for k in range(6, 14))
    seeds: int = 10
    ball_radius: float = 1.0
    epochs: int = 60
    training_seeds: int = 3
    bound_ball_radius: float = 3.0
    delta: float = 0.05
    signs: int = 1000
    classifier: str = "boosting"
    every_group: bool = True

    def __post_init__(self) -> None:
        for name in ("seeds", "epochs", "training_seeds"):
            whole(getattr(self, name), name, 1)
        check_horizons(self.horizons)

    @classmethod
    def quick(cls, seeds: int = 5) -> StudySettings:
        """Few steps, seeds and epochs."""
        horizons = tuple(2**k for k in range(6, 12))
        return cls(horizons=horizons, seeds=seeds, epochs=20, training_seeds=1, every_group=False)


class TrainingCurves(NamedTuple):
    """Both quantities of Theorem 2 after each epoch of training with one method, (seeds, epochs)."""

    method: str
    gradient_norm: Array
    dual_suboptimality: Array


class MethodBounds(NamedTuple):
    """Theorem 3 for one method: its λ, weights and certified duality gap, and one breakdown per test group."""

    method: str
    penalty: float
    weights: Mapping[Name, float]
    gap: float
    breakdowns: tuple[BoundBreakdown, ...]


@dataclass(frozen=True, eq=False)
class TheoryStudy:
    """All three theorems on one data set.

    Attributes
    ----------
    settings, source, train : settings, origin of the data, and training groups.
    convergence : Theorem 1 by problem (loss and λ) and constants.
    stationarity, rates : Theorem 2 in networks while they train, and its bound.
    bounds : Theorem 3, test groups from the nearest to the farthest.
    """

    settings: StudySettings
    source: str
    train: tuple[Name, ...]
    convergence: tuple[Convergence, ...]
    stationarity: tuple[TrainingCurves, ...]
    rates: tuple[StationarityRates, ...]
    bounds: tuple[MethodBounds, ...]

    @property
    def problems(self) -> list[tuple[Convergence, ...]]:
        """Theorem 1's results by problem."""
        return [tuple(runs) for _, runs in groupby(self.convergence, key=lambda run: id(run.problem))]

    @property
    def agreements(self) -> int:
        """Number of test groups in which the method with the smallest bound also has the smallest true risk."""
        by_group = list(zip(*(method.breakdowns for method in self.bounds), strict=True))
        return sum(min(g, key=lambda b: b.total) is min(g, key=lambda b: b.test_risk) for g in by_group)

    def to_json(self) -> str:
        """The results as JSON."""
        content: dict[str, Any] = {
            "schema": "toporo.theory/1",
            "data": {"name": "dg15", "source": self.source, "train": [name_to_json(name) for name in self.train]},
            "settings": asdict(self.settings),
            "theorem1": [
                {key: getattr(runs[0].problem, key) for key in ("loss", "penalty", "ball_radius")}
                | {"runs": [run.to_dict() for run in runs]}
                for runs in self.problems
            ],
            "theorem2": [
                {"method": method, "gradient_norm": norms.tolist(), "dual_suboptimality": gaps.tolist()}
                for method, norms, gaps in self.stationarity
            ],
            "theorem2_bound": [rates.to_dict() for rates in self.rates],
            "theorem3": [
                method._asdict()
                | {
                    "weights": [[name_to_json(name), value] for name, value in method.weights.items()],
                    "breakdowns": [breakdown.to_dict() for breakdown in method.breakdowns],
                }
                for method in self.bounds
            ],
        }
        return json.dumps(content, indent=1, ensure_ascii=False)
