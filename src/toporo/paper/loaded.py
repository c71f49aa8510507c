"""Loaded benchmarks: their data, metrics by group, splits, and the files that they come from."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from toporo.data import GroupedData, ImageStore, Split, TileStore
from toporo.errors import DatasetNotFoundError, TopoRoWarning
from toporo.topology import GroupGraph, Prior
from toporo.types import Array, Name

ENVIRONMENT = "TOPORO_DATA"
#: From inputs to predictions.
Predict: TypeAlias = Callable[[Array], Array]
#: An accuracy or an error by group.
ByGroup: TypeAlias = dict[Name, float]


@dataclass(frozen=True)
class BenchmarkData:
    """A data set with groups, a graph over them, and which groups training never sees.

    Attributes
    ----------
    name : of the benchmark.
    data : the rows; where there is a ``store``, inputs are row numbers in it.
    graph : over the groups; without an edge where none is given.
    train, test : groups to train on, and groups that training never sees.
    source : origin of the rows: ``"published"`` (the published data, verified by checksums), ``"file"`` (other files in
        their format) or ``"generated"``.
    about : further facts for the benchmark's report and fits.
    store : the pixels, of images and of tiles.
    remarks : sentences for the terminal and the top of the report about data that is missing or cannot be used.
    """

    name: str
    data: GroupedData
    graph: GroupGraph
    train: tuple[Name, ...]
    test: tuple[Name, ...]
    source: str
    about: Mapping[str, Any] = field(default_factory=dict)
    store: ImageStore | TileStore | None = None
    remarks: tuple[str, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of everything training and evaluation can see."""
        parts: tuple[Any, ...] = (self.data.fingerprint, self.graph.to_json(), self.train, self.test)
        if self.store is not None:
            parts += (self.store.digest,)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def physical_prior(self, **settings: Any) -> Prior:
        """Return the given graph's prior towards the test groups, for reports: runs have recorded its warnings.

        ``settings`` are those of :meth:`~toporo.GroupGraph.prior`.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopoRoWarning)
            return self.graph.prior(self.train, self.test, **settings)


# ---------------------------------------------------------------------- metrics and splits


def mean_by_group(values: Any, data: GroupedData) -> ByGroup:
    """Return the mean over each group's rows of one value per row."""
    sums = np.bincount(data.codes, weights=values, minlength=len(data.groups))
    return data.groups.named((sums / np.bincount(data.codes, minlength=len(data.groups))).tolist())


def mse_by_group(predictions: Any, data: GroupedData) -> ByGroup:
    """Return the squared error by group: summed over the outputs of a row, averaged over the group's rows.

    Parameters
    ----------
    predictions : in the order of the data's rows and in the unit of its targets.
    data : the rows with their targets and groups.
    """
    errors = np.asarray(predictions, dtype=np.float64) - data.y
    return mean_by_group((errors**2).reshape(len(data), -1).sum(axis=1), data)


def mean_of_groups(values: ByGroup, loaded: BenchmarkData) -> dict[str, Any]:  # noqa: ARG001  # summaries share it
    """Return the metrics of an evaluation: the mean over the test groups, and the value of each."""
    return {"test": float(np.mean(list(values.values()))), "by_group": values}


def random_split(loaded: BenchmarkData, seed: int, fraction: float) -> Split:
    """Set aside a share of every training group's rows, chosen by the seed; where it is 0, the rows serve for both."""
    rows = loaded.data.select(loaded.train)
    return rows.split(fraction, seed) if fraction else Split(rows, rows)


# ---------------------------------------------------------------------- files


def cache_folder() -> Path:
    """Return the default folder for downloads: ``toporo`` in ``$XDG_CACHE_HOME``, else in ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "toporo"


def data_folder(given: str | os.PathLike[str] | None = None, *, new: bool = False) -> Path:
    """Return the data folder: the given one, else ``$TOPORO_DATA``, else the cache.

    One that is named must exist unless it may be ``new``.
    """
    named = given if given is not None else os.environ.get(ENVIRONMENT)
    folder = Path(named).expanduser() if named else cache_folder()
    if named and not new and not folder.is_dir():
        how = "--data / folder=" if given is not None else f"the environment variable {ENVIRONMENT}"
        raise DatasetNotFoundError(
            f"no such data folder: {folder} (from {how}). Give an existing folder, or leave it out to use what toporo "
            "can generate itself."
        )
    return folder
