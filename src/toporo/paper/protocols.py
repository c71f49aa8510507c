"""Protocols of the paper's tables, as data.

A protocol holds for all methods of a benchmark: the same split, network, optimiser, batches and number of rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toporo.errors import SettingError, UnknownNameError
from toporo.paper.methods import BENCH_METHODS, TRO_USES, BenchMethod, further_methods


@dataclass(frozen=True)
class Metric:
    """A column of a table.

    Attributes
    ----------
    name : its title.
    key : among the metrics of an evaluation.
    scale : factor from the metric to the figure.
    """

    name: str
    key: str
    scale: float = 1.0


@dataclass(frozen=True)
class Variant:
    """A task posed by a benchmark, with a table of its own.

    Attributes
    ----------
    name, title : for files and for people; empty if there is only one variant.
    options : of :func:`toporo.load_dataset`.
    training : fields of the protocol that differ.
    paper : published figures, by method and metric.
    """

    name: str = ""
    title: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Protocol:
    """Training and measurement of every method of a benchmark, and the figures that the paper reports.

    Attributes
    ----------
    benchmark, title : its name in the registry, and for people.
    name : of the protocol among those of the benchmark.
    methods : names in :data:`~toporo.paper.methods.BENCH_METHODS`, in the order of the table.
    rounds, unit : length of a run, in ``"epochs"`` or ``"steps"``.
    metric, metrics : description of the figures; and the columns, of which the last one is over all test groups.
    task : kind of target, for networks on plain rows: name in :data:`toporo.paper.fits.LOSSES`.
    better : whether ``"higher"`` or ``"lower"`` figures are better.
    digits : decimals of a figure.
    per_group, learning_rate, hidden, validation : rows of every group in a batch, Adam's step, widths of the network's
        layers, share of the training rows set aside (if 0, the training rows serve for validation too).
    half_life : see :class:`toporo.training.TrainingPlan`.
    paired : see :class:`toporo.training.Batches`.
    evaluate_every : rounds between evaluations.
    averaging : ``average`` of :class:`toporo.training.TrainingPlan`, for networks on images.
    priors : settings of :meth:`toporo.topology.graph.GroupGraph.prior`.
    data_topology, inputs_topology : settings for learning a topology from features and from raw inputs.
    variants : each has a table of its own.
    model : replaces ``"mlp"`` in all methods: name in :data:`toporo.paper.fits.FITS`.
    network : architecture, weights, precision, … of models for images; further arguments of an
        :class:`toporo.training.MLP`.
    extra : names of further methods, which run on request.
    changes : fields of a :class:`BenchMethod` that differ on this benchmark, by its name.
    rules : names in :data:`toporo.paper.results.SELECTIONS`, in the order of the table.
    headline : the rule whose figures stand for a method where only one is shown.
    average : published averages over the variants by method, if such an average is meaningful; None if not.
    notes : for the report; ``{rounds}`` stands for the rounds of a run.
    code_version : part of the key of stored runs. A package that adds a benchmark raises it by one with every change to
        its functions that changes the outcome of a run (split, summary, priors, rules); runs are then repeated.
    """

    benchmark: str
    title: str
    methods: tuple[str, ...]
    rounds: int
    metric: str
    metrics: tuple[Metric, ...]
    name: str = "fair"
    unit: str = "epochs"
    task: str = "classification"
    better: str = "higher"
    digits: int = 2
    per_group: int = 10
    learning_rate: float = 1e-3
    hidden: tuple[int, ...] = (64, 64)
    validation: float = 0.2
    evaluate_every: int = 1
    averaging: int | None = None
    half_life: float | None = None
    paired: bool = False
    priors: Mapping[str, Any] = field(default_factory=dict)
    data_topology: Mapping[str, Any] = field(default_factory=dict)
    inputs_topology: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[Variant, ...] = (Variant(),)
    model: str = "mlp"
    network: Mapping[str, Any] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rules: tuple[str, ...] = ("last", "validation", "oracle")
    headline: str = "last"
    average: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()
    code_version: int = 1

    @property
    def moment(self) -> str:
        """The unit of a single round: epoch or step."""
        return self.unit.removesuffix("s")

    @property
    def sign(self) -> int:
        """1 if higher figures are better, -1 if lower ones are."""
        return 1 if self.better == "higher" else -1

    @property
    def baseline(self) -> BenchMethod | None:
        """The network trained by empirical risk minimisation; None if the benchmark has none."""
        return next((method for method in self.get_methods() if method.baseline and method.trained), None)

    @property
    def learned(self) -> BenchMethod | None:
        """The method whose topology is learned from features and shown in reports; None if there is none."""
        methods = (m for m in self.get_methods() if m.prior == "data" and m.uses == TRO_USES and not m.varies)
        return next(methods, None)

    @property
    def main_methods(self) -> list[BenchMethod]:
        """All methods except those that only vary the penalty of another one."""
        return [method for method in self.get_methods() if not method.varies]

    @property
    def whole(self) -> Metric:
        """The metric over all test groups."""
        return self.metrics[-1]

    def get_methods(self, names: Iterable[str] | None = None) -> list[BenchMethod]:
        """Return methods with their settings on this benchmark, in the order of the table; all of them for None.

        Those of other packages come last.
        """
        own = {name: BENCH_METHODS[name] for name in (*self.methods, *self.extra)}
        methods = {**own, **further_methods(), **own}
        wanted = methods if names is None else [name.strip() for name in names if name.strip()]
        if not wanted:
            raise SettingError(f"no method named: choose from {', '.join(methods)}.")
        for name in wanted:
            if name not in methods:
                raise UnknownNameError("method", name, methods)
        return [
            replace(m, **{"model": self.model if m.model == "mlp" else m.model, **self.changes.get(name, {})})
            for name, m in methods.items()
            if name in wanted
        ]

    def method(self, name: str) -> BenchMethod:
        """Return a method with the settings that it has on this benchmark."""
        return self.get_methods([name])[0]

    def for_variant(self, variant: Variant) -> Protocol:
        """Return the protocol with the training settings of one of its variants."""
        return replace(self, variants=(variant,), **variant.training)

    def paper(self, variant: str, method: str, metric: str) -> float | None:
        """Return the published figure, if there is one."""
        figures = {v.name: v.paper for v in self.variants}.get(variant, {})
        return figures.get(method, {}).get(metric)
