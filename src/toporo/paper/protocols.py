"""Methods and protocols of the paper's tables, as data.

A method is an objective or a solver with its settings and the source of its prior. A protocol holds for all methods of
a benchmark: the same split, network, optimiser, batches and number of rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toporo.errors import SettingError, UnknownNameError
from toporo.registry import Registry

#: The paper's grid of penalties, for tables that show what λ does.
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
#: Methods of tables on images, which have no given graph, and further methods that run on request.
ON_IMAGES = ("erm", "group-dro", "coral", "tro-data", "tro-uniform")
ON_IMAGES_EXTRA = (
    "irm", "vrex", "sd", "mmd", "dann", "iw-erm-data", "tro-lambda0", *(f"tro-data-{value:g}" for value in PENALTIES),
)  # fmt: skip
#: Settings of TRO on benchmarks other than the spirals: λ = 1, with a step at which q converges.
MILD_TRO = {"penalty": 1.0, "step": 0.1}
#: Share of a run that IRM and V-REx warm up for: 500 of the 2,000 steps on images. DomainBed has 500 of 5,000.
WARM_UP_SHARE = 0.25


#: The ingredients of TRO: a prior from a topology, and the worst mixture of groups instead of a fixed one.
TOPOLOGY, WORST_CASE = "topology", "worst case"
TRO_USES = frozenset({TOPOLOGY, WORST_CASE})


@dataclass(frozen=True)
class BenchMethod:
    """A row of a table: a model, its objective and settings, and the source of its prior.

    Attributes
    ----------
    name, title : for the command line and for people.
    objective : name in :data:`toporo.objectives.OBJECTIVES`, for networks; None for other models.
    settings : of the objective, or of the exact solver. ``warm_up_share`` gives the length of a warm-up as a share of
        the run.
    prior : name in :data:`toporo.paper.fits.PRIORS`, or None.
    control : whether the method exists for comparison only: no topology, a wrong one, or one without the worst case.
    model : name in :data:`toporo.paper.fits.FITS`.
    everywhere : whether every benchmark may run it, not only those whose protocols name it.
    uses : the ingredients of TRO that it is trained with, :data:`TOPOLOGY` and :data:`WORST_CASE`. A uniform or
        shuffled prior is not a topology.
    baseline : whether it is empirical risk minimisation, the reference of all comparisons. Topologies are learned from
        the features of networks trained by it.
    varies : name of the method that this one differs from in its penalty alone.
    """

    name: str
    title: str
    objective: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    prior: str | None = None
    control: bool = False
    model: str = "mlp"
    everywhere: bool = True
    uses: frozenset[str] = frozenset()
    baseline: bool = False
    varies: str = ""

    @property
    def trained(self) -> bool:
        """True if it is trained round by round from a random start, so there is a round to choose."""
        return self.objective is not None

    @property
    def seeded(self) -> bool:
        """True if the result depends on the seed; other methods run once."""
        return self.trained or self.prior == "shuffled"


#: Name to method.
BENCH_METHODS: Registry[BenchMethod] = Registry("method")


def further_methods() -> dict[str, BenchMethod]:
    """Return the methods that every benchmark may run: those registered for it, and objectives without a method.

    Such an objective has its default settings and, if it takes a prior, a uniform one.
    """
    from toporo.objectives import OBJECTIVES  # torch takes seconds that loading a data set need not wait for

    with_method = {method.objective for method in BENCH_METHODS.values()}
    bare = {
        name: BenchMethod(name, name, name, prior="uniform" if objective.takes_prior else None)
        for name, objective in OBJECTIVES.items()
        if name not in with_method
    }
    return {name: method for name, method in BENCH_METHODS.items() if method.everywhere} | bare


# The largest penalty of the paper's grid, which its code uses for DG-15. Its step for q is 1, at which q cycles
# (step * penalty = 100); 0.01 is in the paper's grid too and makes a step the exact best response.
_TRO = {"penalty": 100.0, "step": 0.01}
# Without a penalty only the step decides how far q moves: 0.01 would leave it near uniform on DG-15 and make the
# controls look weak, so these two take a larger step from the paper's grid.
_DRO_STEP = 0.1
_LAMBDA0 = {"penalty": 0.0, "step": _DRO_STEP}

# The exact solver needs no steps; the ridge is small against the inputs' unit variance.
_RIDGE = 0.01
_WEIGHTED = {"penalty": math.inf, "ridge": _RIDGE}
_EXACT = {"penalty": 1.0, "ridge": _RIDGE}
_LINEAR_DRO = {"penalty": 0.0, "ridge": _RIDGE}

_TOPOLOGY, _WORST = frozenset({TOPOLOGY}), frozenset({WORST_CASE})

for _method in (
    BenchMethod("linear-erm", "Linear ERM", None, _WEIGHTED, model="linear", baseline=True),
    BenchMethod("erm", "ERM", "erm", baseline=True),
    BenchMethod("iw-erm", "IW-ERM, physical prior", "iw-erm", prior="physical", control=True, uses=_TOPOLOGY),
    BenchMethod("irm", "IRM", "irm", {"penalty": 100.0, "warm_up_share": WARM_UP_SHARE}),
    BenchMethod("vrex", "V-REx", "vrex", {"penalty": 10.0, "warm_up_share": WARM_UP_SHARE}),
    BenchMethod("sd", "SD", "sd", {"penalty": 0.1}),
    BenchMethod("group-dro", "Group DRO", "group-dro", {"step": _DRO_STEP}, uses=_WORST),
    BenchMethod("coral", "CORAL", "coral", {"penalty": 1.0}),
    BenchMethod("mmd", "MMD", "mmd", {"penalty": 1.0}),
    BenchMethod("dann", "DANN", "dann", {"penalty": 1.0}),
    BenchMethod("iw-erm-data", "IW-ERM, learned prior", "iw-erm", prior="data", control=True, uses=_TOPOLOGY),
    BenchMethod("tro-physical", "TRO-physical", "tro", _TRO, prior="physical", uses=TRO_USES),
    BenchMethod("tro-data", "TRO-data", "tro", _TRO, prior="data", uses=TRO_USES),
    BenchMethod("tro-data-inputs", "TRO-data, with test inputs", "tro", _TRO, prior="data-inputs", uses=TRO_USES),
    BenchMethod("tro-uniform", "TRO, uniform prior", "tro", _TRO, prior="uniform", control=True, uses=_WORST),
    BenchMethod("tro-shuffled", "TRO, shuffled prior", "tro", _TRO, prior="shuffled", control=True, uses=_WORST),
    BenchMethod("tro-lambda0", "TRO, λ = 0", "tro", _LAMBDA0, prior="uniform", control=True, uses=_WORST),
    BenchMethod("linear-iw-erm", "Linear IW-ERM", None, _WEIGHTED, "physical", True, "linear", uses=_TOPOLOGY),
    BenchMethod("linear-dro", "Linear DRO", None, _LINEAR_DRO, "uniform", False, "linear", uses=_WORST),
    BenchMethod("linear-tro-physical", "Linear TRO-physical", None, _EXACT, "physical", False, "linear", uses=TRO_USES),
    BenchMethod("linear-tro-data", "Linear TRO-data", None, _EXACT, "inputs", False, "linear", uses=TRO_USES),
    BenchMethod("linear-tro-uniform", "Linear TRO, uniform", None, _EXACT, "uniform", True, "linear", uses=_WORST),
    BenchMethod("linear-tro-shuffled", "Linear TRO, shuffled", None, _EXACT, "shuffled", True, "linear", uses=_WORST),
    BenchMethod(
        "linear-chosen",
        "Linear TRO, chosen without test labels",
        None,
        {"rule": "regions"},
        model="linear-chosen",
        uses=TRO_USES,
    ),
    BenchMethod(
        "linear-chosen-id",
        "Linear TRO, chosen by in-distribution validation",
        None,
        {"rule": "in-distribution"},
        control=True,
        model="linear-chosen",
        uses=TRO_USES,
    ),
    *(
        BenchMethod(
            f"tro-data-{penalty:g}",
            f"TRO-data, λ = {penalty:g}",
            "tro",
            # A step at which q converges, and not within a single batch.
            {"penalty": penalty, "step": min(0.1, 1.0 / penalty)},
            prior="data",
            uses=TRO_USES,
            varies="tro-data",
        )
        for penalty in PENALTIES
    ),
):
    BENCH_METHODS.register(_method.name)(replace(_method, everywhere=False))


@dataclass(frozen=True)
class Metric:
    """A column: its name, its key among the metrics of an evaluation, and a factor."""

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
    options: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Protocol:
    """Training and measurement of every method of a benchmark, and the figures that the paper reports.

    Attributes
    ----------
    benchmark, title : its name in the registry, and for people.
    name : of the protocol among those of the benchmark.
    methods : names in :data:`~toporo.paper.protocols.BENCH_METHODS`, in the order of the table.
    rounds, unit : length of a run, in ``"epochs"`` or ``"steps"``.
    metric, metrics : description of the figures; and the columns, of which the last one is over all test groups.
    task : kind of target, for networks on plain rows: name in :data:`toporo.paper.fits.TARGETS`.
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
    averaging: int | str | None = None
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
    def method_names(self) -> tuple[str, ...]:
        """Names of all methods, in the order of the table; those of other packages come last."""
        return tuple(dict.fromkeys((*self.methods, *self.extra, *further_methods())))

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

    def method(self, name: str) -> BenchMethod:
        """Return a method with the settings that it has on this benchmark."""
        if name in (*self.methods, *self.extra):
            method = BENCH_METHODS[name]
        elif name in (further := further_methods()):
            method = further[name]
        else:
            raise UnknownNameError("method", name, self.method_names)
        model = self.model if method.model == "mlp" else method.model
        return replace(method, **{"model": model, **self.changes.get(name, {})})

    def get_methods(self, names: Iterable[str] | None = None) -> list[BenchMethod]:
        """Return methods by name in the order of the table; all of them for None."""
        if names is None:
            return [self.method(name) for name in self.method_names]
        methods = [self.method(name.strip()) for name in names if name.strip()]
        if not methods:
            raise SettingError(f"no method named: choose from {', '.join(self.method_names)}.")
        return [method for method in self.get_methods() if method in methods]

    def for_variant(self, variant: Variant) -> Protocol:
        """Return the protocol with the training settings of one of its variants."""
        return replace(self, variants=(variant,), **variant.training)

    def paper(self, variant: str, method: str, metric: str) -> float | None:
        """Return the published figure, if there is one."""
        figures = {v.name: v.paper for v in self.variants}.get(variant, {})
        return figures.get(method, {}).get(metric)
