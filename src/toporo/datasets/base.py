"""What every benchmark is once loaded, and finding its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from toporo.data.grouped import GroupedData
from toporo.errors import DatasetNotFoundError
from toporo.topology.graph import GroupGraph

__all__ = ["Benchmark", "data_folder", "find_file", "sha256"]

ENVIRONMENT = "TOPORO_DATA"


@dataclass(frozen=True)
class Benchmark:
    """A data set with groups, a graph over them, and which groups training never sees.

    ``source`` says where the rows came from: ``"published"`` (the authors' file, checksum verified), ``"file"`` (one in
    their format with another checksum) or ``"generated"``.
    """

    name: str
    data: GroupedData
    graph: GroupGraph
    train: tuple[Hashable, ...]
    test: tuple[Hashable, ...]
    source: str
    about: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of everything training and evaluation can see."""
        parts = (self.data.fingerprint, self.graph.to_json(), self.train, self.test)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def data_folder(given: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder with downloaded data: as given, else ``$TOPORO_DATA``, else None. One that is named must exist."""
    name = given if given is not None else os.environ.get(ENVIRONMENT)
    if not name:
        return None
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


def sha256(path: Path) -> str:
    """Checksum of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
