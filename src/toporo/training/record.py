"""Records of training rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import Struct
from torch import Tensor

from toporo.errors import DataError
from toporo.groups import name_to_json, named_from_json
from toporo.schema import Count, NonNegative, as_type
from toporo.types import Name, Record


class StoredRound(Struct):
    """A record in a file."""

    round: Count
    loss: float
    weights: list[tuple[Any, NonNegative]]
    metrics: dict[str, Any]


@dataclass(frozen=True)
class RoundRecord:
    """Loss, group weights and metrics after a round of training.

    Parameters
    ----------
    round : number of rounds done (epochs or steps).
    loss : mean training loss since the previous record.
    weights : of the objective, by group.
    metrics : result of ``evaluate``; empty if it was not called.
    """

    round: int
    loss: float
    weights: dict[Name, float]
    metrics: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> Record:
        """Convert to JSON values."""
        weights = [[name_to_json(name), value] for name, value in self.weights.items()]
        return {"round": self.round, "loss": self.loss, "weights": weights, "metrics": _to_json(self.metrics)}

    @classmethod
    def from_dict(cls, content: Record) -> RoundRecord:
        """Read what :meth:`to_dict` returned."""
        stored = as_type(content, StoredRound, "the record of a round")
        try:
            weights = named_from_json(stored.weights, "the record of a round")
            return cls(stored.round, stored.loss, weights, _from_json(stored.metrics))
        except (TypeError, ValueError) as error:
            raise DataError(f"the record of a round cannot be read ({error}).") from None


def _to_json(value: Any) -> Any:
    """Convert metrics; mappings by group name become ``{"pairs": [[name, value], …]}``."""
    if isinstance(value, np.generic | np.ndarray | Tensor):
        return value.tolist()
    if not isinstance(value, dict):
        return value
    if all(isinstance(key, str) for key in value):
        return {key: _to_json(item) for key, item in value.items()}
    return {"pairs": [[name_to_json(key), _to_json(item)] for key, item in value.items()]}


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if set(value) == {"pairs"}:
        return named_from_json(((name, _from_json(item)) for name, item in value["pairs"]), "the metrics of a round")
    return {key: _from_json(item) for key, item in value.items()}
