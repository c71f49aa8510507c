"""Benchmarks: one module each, and a registry by name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from toporo.bench import dg, domainbed, sen1floods11, tpt48
from toporo.bench.base import Benchmark, Fetch
from toporo.errors import UnknownNameError


@dataclass(frozen=True)
class Dataset:
    """A registry line: what it is, which files it wants (relative path to checksum), how to load it.

    ``generated`` says that it can be made without a file, ``fetch`` how its file can be downloaded.
    """

    title: str
    files: dict[str, str]
    load: Callable[..., Benchmark]
    generated: bool
    fetch: Fetch | None = None


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
} | {
    "tpt48": Dataset(
        title="monthly temperatures of 48 states of the USA, 6 months ahead, 24 training states",
        files={f"tpt48/{tpt48.FILE}": tpt48.CHECKSUM},
        load=tpt48.load,
        generated=False,
        fetch=tpt48.FETCH,
    ),
    **{
        name: Dataset(
            title=f"{spec.title}: pictures in {len(spec.domains)} domains, each in turn the test domain",
            files={},
            load=partial(domainbed.load, spec),
            generated=False,
        )
        for name, spec in domainbed.SPECS.items()
    },
    "sen1floods11": Dataset(
        title="radar chips of 11 floods with hand-labelled water, Bolivia held out",
        files=sen1floods11.FILES,
        load=sen1floods11.load,
        generated=False,
    ),
}


def load_dataset(
    name: str, folder: str | os.PathLike[str] | None = None, *, source: str = "auto", **options: Any
) -> Benchmark:
    """A benchmark by its name; see the module of each for what ``source`` admits and which other options it has.

    >>> load_dataset("dg15", source="generated", seed=3).about["generator_seed"]
    3
    """
    if name not in DATASETS:
        raise UnknownNameError("dataset", name, DATASETS)
    load = DATASETS[name].load
    known = inspect.signature(load).parameters.keys() - {"folder", "source"}
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of {name}", option, known)
    return load(folder, source=source, **options)
