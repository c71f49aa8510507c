"""toporo: topology-aware robust optimisation, for models that must hold in groups nobody has seen.

>>> import toporo as tr
>>> graph = tr.GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN")])
>>> prior = graph.prior(train=["NY", "PA", "OH"], test=["IN"])
>>> max(prior.weights, key=prior.weights.get)
'OH'
"""

from __future__ import annotations

import importlib
from typing import Any

from toporo.version import __version__ as __version__

# Where each public name is defined. It is imported when first used, so importing toporo costs next to nothing.
# Type checkers read the same from __init__.pyi; a test keeps the two in step.
_HOME = {
    "AutoClassifier": "toporo.estimators",
    "AutoRegressor": "toporo.estimators",
    "GraphHopSplit": "toporo.choice.splits",
    "GroupDROClassifier": "toporo.estimators",
    "GroupDRORegressor": "toporo.estimators",
    "GroupGraph": "toporo.topology.graph",
    "GroupIds": "toporo.groups",
    "GroupedData": "toporo.data.grouped",
    "Groups": "toporo.groups",
    "Kriged": "toporo.estimators",
    "KrigedClassifier": "toporo.estimators",
    "KrigedRegressor": "toporo.estimators",
    "LeaveRegionOut": "toporo.choice.splits",
    "Prior": "toporo.topology.prior",
    "RobustClassifier": "toporo.estimators",
    "RobustRegressor": "toporo.estimators",
    "TROClassifier": "toporo.estimators",
    "TRORegressor": "toporo.estimators",
    "TopoRoError": "toporo.errors",
    "TopoRoWarning": "toporo.errors",
    "as_graph": "toporo.graphs",
    "compare_models": "toporo.tables",
    "diffusion_emd": "toporo.topology.diffusion",
    "fit_table": "toporo.tables",
    "group_batches": "toporo.data.batches",
    "learn_topology": "toporo.topology.learn",
    "load_dataset": "toporo.paper",
    "load_images": "toporo.paper",
    "load_model": "toporo.tables",
    "write_model_report": "toporo.pages.model",
}
_PACKAGES = (
    "choice",
    "data",
    "doctor",
    "estimators",
    "objectives",
    "paper",
    "robust",
    "tables",
    "topology",
    "training",
    "vision",
)

__all__ = sorted([*_HOME, *_PACKAGES])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"toporo.{name}")
    raise AttributeError(f"module 'toporo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
