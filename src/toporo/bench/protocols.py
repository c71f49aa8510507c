"""What a table of the paper consists of: a protocol, its variants and its columns.

One protocol holds for all methods of a benchmark: the same split, network, optimiser, batches and number of rounds. It
is data: every benchmark's own file has its protocol, all settings fixed there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toporo.bench.methods import BENCH_METHODS, BenchMethod, further_methods
from toporo.errors import SettingError, UnknownNameError


@dataclass(frozen=True)
class Metric:
    """A column: its name, where an evaluation's metrics have it, and what to multiply it by."""

    name: str
    key: str
    scale: float = 1.0


@dataclass(frozen=True)
class Variant:
    """One way to pose a benchmark, with a table of its own.

    Attributes
    ----------
    name, title : for files and for people; empty where there is one variant only.
    options : of :func:`toporo.load_dataset`.
    training : what of the protocol's training differs.
    paper : published figures, by method and metric.
    """

    name: str = ""
    title: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Protocol:
    """How every method of a benchmark is trained and measured, and what the paper reports for it.

    Attributes
    ----------
    benchmark, title : its name in the registry, and for people.
    methods : names in :data:`~toporo.bench.methods.BENCH_METHODS`, in the order of the table.
    rounds, unit : how long a run lasts, in ``"epochs"`` or ``"steps"``.
    metric, metrics : what the figures are, in words; and the columns, of which the last one is over all test groups.
    task : what targets are, for networks on plain rows: a name in :data:`toporo.bench.fits.TARGETS`.
    better : whether ``"higher"`` or ``"lower"`` figures are better.
    digits : decimals of a figure.
    per_group, learning_rate, hidden, validation : rows of every group in a batch, Adam's step, widths of the network's
        layers, share of the training rows that is set aside.
    evaluate_every : rounds from one evaluation to the next.
    priors : settings of :meth:`toporo.topology.graph.GroupGraph.prior`.
    data_topology, inputs_topology : settings for learning a topology from features and from raw inputs.
    variants : each has a table of its own.
    model : what takes the place of ``"mlp"`` in all methods: a name in :data:`toporo.bench.fits.FITS`.
    network : of the models for images: architecture, weights, precision, …
    extra : names of further methods, which run when they are asked for by name.
    changes : what of a method (a field of :class:`BenchMethod`) is particular to this benchmark, by its name.
    headline : the selection rule whose figures stand for a method where there is room for one.
    average : published averages over the variants by method, where such an average means something; None where not.
    notes : for the report; ``{rounds}`` stands for the rounds of a run.
    """

    benchmark: str
    title: str
    methods: tuple[str, ...]
    rounds: int
    metric: str
    metrics: tuple[Metric, ...]
    unit: str = "epochs"
    task: str = "classification"
    better: str = "higher"
    digits: int = 2
    per_group: int = 10
    learning_rate: float = 1e-3
    hidden: tuple[int, ...] = (64, 64)
    validation: float = 0.2
    evaluate_every: int = 1
    priors: Mapping[str, Any] = field(default_factory=dict)
    data_topology: Mapping[str, Any] = field(default_factory=dict)
    inputs_topology: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[Variant, ...] = (Variant(),)
    model: str = "mlp"
    network: Mapping[str, Any] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    headline: str = "last"
    average: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        """Names of all methods, in the order of the table; those that other packages bring come last."""
        return tuple(dict.fromkeys((*self.methods, *self.extra, *further_methods())))

    @property
    def moment(self) -> str:
        """What a model is evaluated after: an epoch or a step."""
        return self.unit.removesuffix("s")

    @property
    def whole(self) -> Metric:
        """The metric over all test groups."""
        return self.metrics[-1]

    def method(self, name: str) -> BenchMethod:
        """A method as this benchmark has it."""
        if name in (*self.methods, *self.extra):
            method = BENCH_METHODS[name]
        elif name in (further := further_methods()):
            method = further[name]
        else:
            raise UnknownNameError("method", name, self.known)
        model = self.model if method.model == "mlp" else method.model
        return replace(method, **{"model": model, **self.changes.get(name, {})})

    def get_methods(self, names: Iterable[str] | None = None) -> list[BenchMethod]:
        """Methods by name, in the order of the table; all of them for None."""
        if names is None:
            return [self.method(name) for name in self.known]
        wanted = [self.method(name.strip()) for name in names if name.strip()]
        if not wanted:
            raise SettingError(f"no method named: choose from {', '.join(self.known)}.")
        return [method for method in self.get_methods() if method in wanted]

    def for_variant(self, variant: Variant) -> Protocol:
        """The protocol as it stands for one of its variants."""
        return replace(self, variants=(variant,), **variant.training)

    def paper(self, variant: str, method: str, metric: str) -> float | None:
        """The published figure, where there is one."""
        own = next((v for v in self.variants if v.name == variant), Variant())
        return own.paper.get(method, {}).get(metric)
