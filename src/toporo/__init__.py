"""toporo: topology-aware robust optimisation, for models that must hold in groups nobody has seen.

>>> import toporo as tr
>>> graph = tr.GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN")])
>>> prior = graph.prior(train=["NY", "PA", "OH"], test=["IN"])
>>> max(prior.weights, key=prior.weights.get)
'OH'
"""

from __future__ import annotations

import lazy_loader

# Names are listed in __init__.pyi and imported when first used, so importing toporo costs next to nothing.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
