"""The methods that tables choose from: an objective or a solver with its settings, and where its prior comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Models that are trained step by step, from a random start.
TRAINED = frozenset({"mlp", "images", "segmentation"})
#: The paper's grid of penalties, for tables that show what λ does.
GRID = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Method:
    """One row of a table: a model, what it is fitted by, and where its prior comes from.

    Attributes
    ----------
    objective : of a network; None for the other models.
    settings : of the objective, or of the exact solver.
    prior : a name in :data:`toporo.bench.priors.PRIORS`, or None.
    control : whether it is there to be compared with: no topology, a wrong one, or one without the worst case.
    model : a name in :data:`toporo.bench.fits.FITS`.
    """

    name: str
    title: str
    objective: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    prior: str | None = None
    control: bool = False
    model: str = "mlp"

    @property
    def has_epochs(self) -> bool:
        """Whether there is an epoch to choose."""
        return self.model in TRAINED

    @property
    def seeded(self) -> bool:
        """Whether the seed makes a difference; the others run once."""
        return self.model in TRAINED or self.prior == "shuffled"


# The largest penalty of the paper's grid, and the one its code uses. The code's step for q is 1, at which q cycles
# (step * penalty = 100); 0.01 is in the paper's grid too and makes a step the exact best response.
_TRO = {"penalty": 100.0, "step": 0.01}
# Without a penalty nothing but the step decides how far q gets: 0.01 would leave it near uniform on DG-15 and make the
# controls look weak. So these two take a larger one from the paper's grid.
_DRO_STEP = 0.1
_LAMBDA0 = {"penalty": 0.0, "step": _DRO_STEP}

# The exact solver needs no steps; the ridge is small against the inputs' unit variance.
_RIDGE = 0.01
_WEIGHTED = {"penalty": math.inf, "ridge": _RIDGE}
_EXACT = {"penalty": 1.0, "ridge": _RIDGE}

#: Name to method: what benchmarks choose from.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("persistence", "Persistence", model="persistence"),
        Method("climatology", "Climatology", model="climatology"),
        Method("linear-erm", "Linear ERM", None, _WEIGHTED, model="linear"),
        Method("erm", "ERM", "erm"),
        Method("iw-erm", "IW-ERM, physical prior", "iw-erm", prior="physical", control=True),
        Method("irm", "IRM", "irm", {"penalty": 1.0}),
        Method("vrex", "V-REx", "vrex", {"penalty": 1.0}),
        Method("sd", "SD", "sd", {"penalty": 0.1}),
        Method("group-dro", "Group DRO", "group-dro", {"step": _DRO_STEP}),
        Method("coral", "CORAL", "coral", {"penalty": 1.0}),
        Method("mmd", "MMD", "mmd", {"penalty": 1.0}),
        Method("dann", "DANN", "dann", {"penalty": 1.0}),
        Method("iw-erm-data", "IW-ERM, learned prior", "iw-erm", prior="data", control=True),
        Method("tro-physical", "TRO-physical", "tro", _TRO, prior="physical"),
        Method("tro-data", "TRO-data", "tro", _TRO, prior="data"),
        Method("tro-data-inputs", "TRO-data, with test inputs", "tro", _TRO, prior="data-inputs"),
        Method("tro-uniform", "TRO, uniform prior", "tro", _TRO, prior="uniform", control=True),
        Method("tro-shuffled", "TRO, shuffled prior", "tro", _TRO, prior="shuffled", control=True),
        Method("tro-lambda0", "TRO, λ = 0", "tro", _LAMBDA0, prior="uniform", control=True),
        Method("linear-iw-erm", "Linear IW-ERM", None, _WEIGHTED, prior="physical", control=True, model="linear"),
        Method("linear-dro", "Linear DRO", None, {"penalty": 0.0, "ridge": _RIDGE}, prior="uniform", model="linear"),
        Method("linear-tro-physical", "Linear TRO-physical", None, _EXACT, prior="physical", model="linear"),
        Method("linear-tro-data", "Linear TRO-data", None, _EXACT, prior="inputs", model="linear"),
        Method("linear-tro-uniform", "Linear TRO, uniform", None, _EXACT, "uniform", True, "linear"),
        Method("linear-tro-shuffled", "Linear TRO, shuffled", None, _EXACT, "shuffled", True, "linear"),
        Method(
            "linear-chosen", "Linear TRO, chosen without test labels", None, {"rule": "regions"}, model="linear-chosen"
        ),
        Method(
            "linear-chosen-id",
            "Linear TRO, chosen by in-distribution validation",
            None,
            {"rule": "in-distribution"},
            control=True,
            model="linear-chosen",
        ),
    )
} | {
    f"tro-data-{penalty:g}": Method(
        f"tro-data-{penalty:g}",
        f"TRO-data, λ = {penalty:g}",
        "tro",
        # A step at which q settles, and not in a single batch.
        {"penalty": penalty, "step": min(0.1, 1.0 / penalty)},
        prior="data",
    )
    for penalty in GRID
}
