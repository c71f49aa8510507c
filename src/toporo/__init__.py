"""toporo: topology-aware robust optimisation, for models that must hold in groups nobody has seen.

>>> import toporo as tr
>>> graph = tr.GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN")])
>>> prior = graph.prior(train=["NY", "PA", "OH"], test=["IN"])
>>> max(prior.weights, key=prior.weights.get)
'OH'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from toporo import (
        bench,
        choice,
        data,
        doctor,
        estimators,
        models,
        objectives,
        robust,
        tables,
        theory,
        topology,
        training,
    )
    from toporo.bench import load_dataset, load_images
    from toporo.choice.splits import GraphHopSplit, LeaveRegionOut
    from toporo.data.batches import group_batches
    from toporo.data.grouped import GroupedData
    from toporo.errors import TopoRoError, TopoRoWarning
    from toporo.estimators import GroupDROClassifier, GroupDRORegressor, TROClassifier, TRORegressor
    from toporo.groups import GroupIds, Groups
    from toporo.pages.model import write_model_report
    from toporo.tables import fit_table, load_model
    from toporo.topology.differentiable import differentiable_emd
    from toporo.topology.diffusion import diffusion_emd
    from toporo.topology.graph import GroupGraph
    from toporo.topology.learn import learn_topology
    from toporo.topology.prior import Prior

__all__ = [
    "GraphHopSplit",
    "GroupDROClassifier",
    "GroupDRORegressor",
    "GroupGraph",
    "GroupIds",
    "GroupedData",
    "Groups",
    "LeaveRegionOut",
    "Prior",
    "TROClassifier",
    "TRORegressor",
    "TopoRoError",
    "TopoRoWarning",
    "bench",
    "choice",
    "data",
    "differentiable_emd",
    "diffusion_emd",
    "doctor",
    "estimators",
    "fit_table",
    "group_batches",
    "learn_topology",
    "load_dataset",
    "load_images",
    "load_model",
    "models",
    "objectives",
    "robust",
    "tables",
    "theory",
    "topology",
    "training",
    "write_model_report",
]

# Where each public name lives. Everything loads when first used, so that importing toporo costs next to nothing.
_HOME = {
    "GraphHopSplit": "toporo.choice.splits",
    "GroupDROClassifier": "toporo.estimators",
    "GroupDRORegressor": "toporo.estimators",
    "GroupGraph": "toporo.topology.graph",
    "GroupIds": "toporo.groups",
    "GroupedData": "toporo.data.grouped",
    "Groups": "toporo.groups",
    "LeaveRegionOut": "toporo.choice.splits",
    "Prior": "toporo.topology.prior",
    "TROClassifier": "toporo.estimators",
    "TRORegressor": "toporo.estimators",
    "TopoRoError": "toporo.errors",
    "TopoRoWarning": "toporo.errors",
    "differentiable_emd": "toporo.topology.differentiable",
    "diffusion_emd": "toporo.topology.diffusion",
    "fit_table": "toporo.tables",
    "group_batches": "toporo.data.batches",
    "learn_topology": "toporo.topology.learn",
    "load_dataset": "toporo.bench",
    "load_images": "toporo.bench",
    "load_model": "toporo.tables",
    "write_model_report": "toporo.pages.model",
}
_MODULES = (
    "bench",
    "choice",
    "data",
    "doctor",
    "estimators",
    "models",
    "objectives",
    "robust",
    "tables",
    "theory",
    "topology",
    "training",
)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"toporo.{name}")
    raise AttributeError(f"module 'toporo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
