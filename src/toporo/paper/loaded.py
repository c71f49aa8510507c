"""What a benchmark's data is once loaded, errors by group, and finding files."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from toporo.data.grouped import GroupedData, Split
from toporo.data.images import ImageStore, TileStore
from toporo.errors import DataError, DatasetNotFoundError, SettingError, TopoRoWarning, UnknownNameError
from toporo.files import sha256
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array, Name

ENVIRONMENT = "TOPORO_DATA"
#: An accuracy or an error by group.
ByGroup: TypeAlias = dict[Name, float]
#: A file or folder, and what became of it: ``"intact"``, ``"differs"``, ``"damaged (why)"``, ``"absent (what to do)"``.
FileState: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class BenchmarkData:
    """A data set with groups, a graph over them, and which groups training never sees.

    Attributes
    ----------
    name : of the benchmark.
    data : the rows; where there is a ``store``, inputs are row numbers in it.
    graph : over the groups; without an edge where none is given.
    train, test : groups to train on, and groups that training never sees.
    source : where the rows came from: ``"published"`` (the authors' file, checksum verified), ``"file"`` (one in their
        format with another checksum) or ``"generated"``.
    task : ``"classification"`` (targets are classes), ``"regression"`` (targets are numbers, one or several per row),
        ``"images"`` (classes of pictures) or ``"segmentation"`` (a class per pixel).
    about : whatever else the benchmark's report and fits want to know.
    store : the pixels, of images and of tiles.
    """

    name: str
    data: GroupedData
    graph: GroupGraph
    train: tuple[Name, ...]
    test: tuple[Name, ...]
    source: str
    task: str = "classification"
    about: Mapping[str, Any] = field(default_factory=dict)
    store: ImageStore | TileStore | None = None

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of everything training and evaluation can see."""
        parts: tuple[Any, ...] = (self.data.fingerprint, self.graph.to_json(), self.train, self.test)
        if self.store is not None:
            parts += (self.store.digest,)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def physical_prior(self, **settings: Any) -> Prior:
        """The given graph's prior towards the test groups, for reports: runs have recorded its warnings.

        ``settings`` are those of :meth:`~toporo.GroupGraph.prior`.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopoRoWarning)
            return self.graph.prior(self.train, self.test, **settings)


@dataclass(frozen=True)
class RuleOfThumb:
    """A prediction from inputs that nothing is fitted for, and the numbers of it that are worth keeping."""

    predict: Callable[[Array], Array]
    kept: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Fetched:
    """A file of a data set: where it is, whether its checksum is the published one, whether it was downloaded now."""

    path: Path
    release: str
    published: bool
    fresh: bool


def mse_by_group(predictions: Any, data: GroupedData) -> ByGroup:
    """Squared error by group: summed over the outputs of a row, averaged over the group's rows.

    Parameters
    ----------
    predictions : in the order of the data's rows and in the unit of its targets.
    data : the rows with their targets and groups.
    """
    if hasattr(predictions, "detach"):
        predictions = predictions.detach().cpu()
    given = np.asarray(predictions, dtype=np.float64)
    if given.shape != data.y.shape:
        raise DataError(f"the predictions have shape {given.shape}, the targets {data.y.shape}: they must agree.")
    squared = ((given - data.y) ** 2).reshape(len(data), -1).sum(axis=1)
    return {name: float(squared[data.rows(name)].mean()) for name in data.groups}


def mean_of_groups(values: ByGroup, loaded: BenchmarkData) -> dict[str, Any]:  # noqa: ARG001  # summaries share it
    """The metrics of an evaluation from the test groups' values: their mean, and each."""
    return {"test": float(np.mean(list(values.values()))), "by_group": values}


def random_split(loaded: BenchmarkData, seed: int, fraction: float) -> Split:
    """A share of every training group's rows set aside, chosen by the seed; where that is 0, they serve for both."""
    rows = loaded.data.select(loaded.train)
    return rows.split(fraction, seed) if fraction else Split(rows, rows)


def check_source(name: str, source: str, admitted: Sequence[str], **refused: str) -> None:
    """An error unless the source is one that a benchmark admits; for those that others have, with the reason."""
    if source in refused:
        raise SettingError(f"{name} {refused[source]}")
    if source not in admitted:
        raise UnknownNameError("source", source, admitted)


def cache_folder() -> Path:
    """Where downloads go unless told otherwise: ``toporo`` in ``$XDG_CACHE_HOME``, else in ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "toporo"


def data_folder(given: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder with downloaded data: as given, else ``$TOPORO_DATA``, else :func:`cache_folder` if it is there.

    None if there is none of these. One that is named must exist.
    """
    name = given if given is not None else os.environ.get(ENVIRONMENT)
    if not name:
        return cache_folder() if cache_folder().is_dir() else None
    folder = Path(name).expanduser()
    if not folder.is_dir():
        how = "--data / folder=" if given is not None else f"the environment variable {ENVIRONMENT}"
        raise DatasetNotFoundError(
            f"no such data folder: {folder} (from {how}). Give an existing folder, or leave it out to use what toporo "
            "can generate itself."
        )
    return folder


def download_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder for downloads: the given one, else ``$TOPORO_DATA``, else the cache. It need not exist."""
    name = given if given is not None else os.environ.get(ENVIRONMENT)
    return Path(name).expanduser() if name else cache_folder()


def file_state(folder: Path | None, file: str, checksum: str, absent: str = "absent") -> FileState:
    """Compare a file with its published checksum; it may lie in the data folder itself or in its subfolder."""
    path = find_file(folder, file, Path(file).name) if folder is not None else None
    if path is None:
        return file, absent
    return str(path), "intact" if sha256(path) == checksum else "differs"


def find_file(folder: Path, *candidates: str) -> Path | None:
    """The first of these relative paths that is a file in the folder."""
    return next((folder / name for name in candidates if (folder / name).is_file()), None)
