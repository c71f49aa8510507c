"""Methods of the paper's tables, as data: an objective or a solver with its settings and the source of its prior."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from toporo.registry import Registry

#: The paper's grid of penalties, for tables that show what λ does.
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
#: Methods of tables on images, which have no given graph, and further methods that run on request.
ON_IMAGES = ("erm", "group-dro", "coral", "tro-data", "tro-uniform")
ON_IMAGES_EXTRA = (
    "irm", "vrex", "sd", "mmd", "dann", "iw-erm-data", "tro-lambda0", *(f"tro-data-{value:g}" for value in PENALTIES),
)  # fmt: skip
#: The paper's grid of steps for q, and of the settings of TRO.
STEPS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
TRO_GRID = {"penalty": PENALTIES, "step": STEPS}
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
    grid : values to try in a search, by setting, in all combinations; None for methods that are not searched.
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
    grid: Mapping[str, Sequence[Any]] | None = None

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

# Penalties that DomainBed draws from, as a grid, and shares of a run for the warm-up: 10, 100 and 500 of 2,000 steps.
_WARM_GRID = {"penalty": (0.1, 1.0, 10.0, 100.0, 1e3, 1e4), "warm_up_share": (0.005, 0.05, 0.25)}
_SD_GRID = {"penalty": (1e-5, 1e-4, 1e-3, 1e-2, 0.1)}

_TOPOLOGY, _WORST = frozenset({TOPOLOGY}), frozenset({WORST_CASE})
_tro = partial(BenchMethod, objective="tro", grid=TRO_GRID, uses=TRO_USES)
_linear = partial(BenchMethod, settings=_EXACT, model="linear")
_chosen = partial(BenchMethod, model="linear-chosen", uses=TRO_USES)

for _method in (
    _linear("linear-erm", "Linear ERM", settings=_WEIGHTED, baseline=True),
    BenchMethod("erm", "ERM", "erm", baseline=True, grid={}),
    BenchMethod("iw-erm", "IW-ERM, physical prior", "iw-erm", prior="physical", control=True, uses=_TOPOLOGY, grid={}),
    BenchMethod("irm", "IRM", "irm", {"penalty": 100.0, "warm_up_share": WARM_UP_SHARE}, grid=_WARM_GRID),
    BenchMethod("vrex", "V-REx", "vrex", {"penalty": 10.0, "warm_up_share": WARM_UP_SHARE}, grid=_WARM_GRID),
    BenchMethod("sd", "SD", "sd", {"penalty": 0.1}, grid=_SD_GRID),
    BenchMethod("group-dro", "Group DRO", "group-dro", {"step": _DRO_STEP}, uses=_WORST, grid={"step": STEPS}),
    BenchMethod("coral", "CORAL", "coral", {"penalty": 1.0}),
    BenchMethod("mmd", "MMD", "mmd", {"penalty": 1.0}),
    BenchMethod("dann", "DANN", "dann", {"penalty": 1.0}),
    BenchMethod("iw-erm-data", "IW-ERM, learned prior", "iw-erm", prior="data", control=True, uses=_TOPOLOGY, grid={}),
    _tro("tro-physical", "TRO-physical", settings=_TRO, prior="physical"),
    _tro("tro-data", "TRO-data", settings=_TRO, prior="data"),
    _tro("tro-data-inputs", "TRO-data, with test inputs", settings=_TRO, prior="data-inputs"),
    _tro("tro-uniform", "TRO, uniform prior", settings=_TRO, prior="uniform", control=True, uses=_WORST),
    _tro("tro-shuffled", "TRO, shuffled prior", settings=_TRO, prior="shuffled", control=True, uses=_WORST),
    _tro("tro-lambda0", "TRO, λ = 0", settings=_LAMBDA0, prior="uniform", control=True, uses=_WORST),
    _linear("linear-iw-erm", "Linear IW-ERM", settings=_WEIGHTED, prior="physical", control=True, uses=_TOPOLOGY),
    _linear("linear-dro", "Linear DRO", settings=_LINEAR_DRO, prior="uniform", uses=_WORST),
    _linear("linear-tro-physical", "Linear TRO-physical", prior="physical", uses=TRO_USES),
    _linear("linear-tro-data", "Linear TRO-data", prior="inputs", uses=TRO_USES),
    _linear("linear-tro-uniform", "Linear TRO, uniform", prior="uniform", control=True, uses=_WORST),
    _linear("linear-tro-shuffled", "Linear TRO, shuffled", prior="shuffled", control=True, uses=_WORST),
    _chosen("linear-chosen", "Linear TRO, chosen without test labels", settings={"rule": "regions", "ridge": _RIDGE}),
    _chosen(
        "linear-chosen-id",
        "Linear TRO, chosen by in-distribution validation",
        settings={"rule": "in-distribution", "ridge": _RIDGE},
        control=True,
    ),
    *(
        # A step at which q converges, and not within a single batch.
        _tro(
            f"tro-data-{penalty:g}",
            f"TRO-data, λ = {penalty:g}",
            settings={"penalty": penalty, "step": min(0.1, 1.0 / penalty)},
            prior="data",
            varies="tro-data",
        )
        for penalty in PENALTIES
    ),
):
    BENCH_METHODS.register(_method.name)(replace(_method, everywhere=False))
