"""Values for figures from the records of runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toporo.bench.definitions import Protocol
from toporo.groups import name_from_json
from toporo.training import RoundRecord
from toporo.types import Name, Record


def trained_titles(protocol: Protocol) -> list[str]:
    """Titles of the networks, in the order of the protocol."""
    return [method.title for method in protocol.get_methods() if method.has_epochs]


def of_method(records: Sequence[Record], method: str) -> list[Record]:
    """The runs of a method."""
    return [record for record in records if record["method"] == method]


def lowest_seeds(records: Sequence[Record]) -> dict[str, Record]:
    """The run with the lowest seed of each method."""
    return {record["method"]: record for record in reversed(records)}


def last_metrics(runs: Sequence[Record], key: str) -> dict[Name, float]:
    """A metric by group after the last epoch, mean over runs."""
    last = [RoundRecord.from_dict(run["history"][-1]).metrics[key] for run in runs]
    return {name: float(np.mean([values[name] for values in last])) for name in last[0]}


def last_weights(runs: Sequence[Record]) -> dict[Name, float]:
    """The weight of every training group after the last epoch, mean over runs."""
    last = [{name_from_json(n): w for n, w in run["history"][-1]["weights"]} for run in runs]
    return {name: float(np.mean([weights[name] for weights in last])) for name in last[0]}
