"""Benchmarks: one module each, and a registry by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from toporo.datasets import dg
from toporo.datasets.base import Benchmark, data_folder, find_file, sha256
from toporo.errors import UnknownNameError

__all__ = ["DATASETS", "Benchmark", "Dataset", "data_folder", "find_file", "load_dataset", "sha256"]


@dataclass(frozen=True)
class Dataset:
    """A registry line: what it is, which files it wants (relative path to checksum), how to load it."""

    title: str
    files: dict[str, str]
    load: Callable[..., Benchmark]
    generated: bool


#: Name to data set. A new one is a module with a loader and a line here.
DATASETS: dict[str, Dataset] = {
    spec.name: Dataset(
        title=f"{spec.groups} groups on a {'half' if spec.arc < 4 else 'full'} turn of a spiral, 2 classes, "
        f"{len(spec.train)} training groups",
        files={f"dg/{spec.file}": spec.checksum},
        load=partial(dg.load, spec),
        generated=True,
    )
    for spec in (dg.DG15, dg.DG60)
}


def load_dataset(name: str, folder: str | os.PathLike[str] | None = None, *, source: str = "auto") -> Benchmark:
    """A benchmark by its name; see the module of each for what ``source`` admits."""
    if name not in DATASETS:
        raise UnknownNameError("dataset", name, DATASETS)
    return DATASETS[name].load(folder, source=source)
