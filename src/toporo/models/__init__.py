"""Networks; each gives ``features(x)``, ``forward(x)`` and ``predict(x)``."""

from toporo.models.mlp import MLP

__all__ = ["MLP"]
