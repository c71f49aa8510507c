"""What every benchmark is once loaded, and finding its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from toporo.data.grouped import GroupedData
from toporo.data.stores import ImageStore, TileStore
from toporo.errors import DatasetNotFoundError
from toporo.topology.graph import GroupGraph

ENVIRONMENT = "TOPORO_DATA"


@dataclass(frozen=True)
class Benchmark:
    """A data set with groups, a graph over them, and which groups training never sees.

    ``source`` says where the rows came from: ``"published"`` (the authors' file, checksum verified), ``"file"`` (one in
    their format with another checksum) or ``"generated"``. ``task`` is ``"classification"`` (targets are classes),
    ``"regression"`` (targets are numbers, one or several a row), ``"images"`` (classes of pictures) or
    ``"segmentation"`` (a class a pixel). Of the last two, inputs are row numbers in ``store``, which has the pixels.
    """

    name: str
    data: GroupedData
    graph: GroupGraph
    train: tuple[Hashable, ...]
    test: tuple[Hashable, ...]
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


@dataclass(frozen=True)
class Fetch:
    """How to get a data set's file from a publisher who keeps only the newest release.

    Attributes
    ----------
    url : the publisher's folder, ending in a slash.
    current : the file there whose content is the date of the newest release, as YYYYMMDD.
    file : a release's file name, with ``{release}`` for its date.
    folder : where files go in the data folder.
    checksums : file name to sha256, of those releases that are known.
    found : the releases that a data folder already has, newest first.
    check : raises :class:`~toporo.errors.DataError` unless a file is complete.
    """

    url: str
    current: str
    file: str
    folder: str
    checksums: Mapping[str, str]
    found: Callable[[Path], list[Path]]
    check: Callable[[Path], object]


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


def find_file(folder: Path, *candidates: str) -> Path | None:
    """The first of these relative paths that is a file in the folder."""
    return next((folder / name for name in candidates if (folder / name).is_file()), None)
