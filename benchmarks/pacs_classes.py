"""Where a topology could mean something on PACS: groups are a domain and a class, 21 to train on instead of three.

``python benchmarks/pacs_classes.py DATA WEIGHTS CACHE OUT`` trains the table's network, once for every domain held out,
in batches balanced over those 21: ERM, TRO with the topology learned over them, TRO with a uniform prior. OUT, a JSON
file, is written after every run, and runs in it are not done again; half an hour on a GPU, days on a CPU.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import toporo as tr
from toporo.data import GroupedData
from toporo.files import write_text
from toporo.paper.base import BENCHMARKS
from toporo.paper.fits import FITS, Assignment
from toporo.paper.loaded import BenchmarkData
from toporo.paper.vision import VisionChoices, settle

METHODS = ("erm", "tro-data", "tro-uniform")
#: Images of every group in a step: 105 in all, where the table has 96.
PER_GROUP = 5


def by_class(loaded: BenchmarkData) -> BenchmarkData:
    """The same images in groups ``domain/class``, which no graph is given of."""
    data = loaded.data
    names = [f"{domain}/{loaded.about['classes'][y]}" for domain, y in zip(data.ids.names, data.y, strict=True)]
    parts = {kind: tuple(sorted({n for n in names if n.split("/")[0] in getattr(loaded, kind)})) for kind in _KINDS}
    groups = (*parts["train"], *parts["test"])
    return replace(
        loaded, data=GroupedData.from_arrays(data.x, data.y, names), graph=tr.GroupGraph(groups, {}), **parts
    )


_KINDS = ("train", "test")


def accuracy(metrics: dict[str, Any], sizes: dict[Any, int], prefix: str = "") -> float:
    """Percent of all images of the held-out domain, whose classes are groups here."""
    by_group = metrics[f"{prefix}by_group"]
    return 100.0 * float(np.average([by_group[name] for name in sizes], weights=list(sizes.values())))


def main(data: str, weights: str, cache: str, out: str) -> None:
    file = Path(out)
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    choices = VisionChoices(weights=weights, cache=Path(cache), per_group=PER_GROUP)
    benchmark = BENCHMARKS["pacs"]
    settled, runtime, loading = settle(benchmark, choices, file.parent)
    for variant in benchmark.get_variants():
        loaded = by_class(tr.load_dataset("pacs", data, **variant.options, **loading))
        sizes = loaded.data.select(loaded.test).sizes
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            for name in METHODS:
                key = f"{variant.name} {name}"
                if key in done:
                    continue
                # A softmax of 21 counts of paths would give one group all the weight.
                protocol = replace(settled.for_variant(variant), priors={"normalization": "sum", "cautious": True})
                fitted = FITS["images"](
                    Assignment(
                        protocol,
                        protocol.method(name),
                        0,
                        loaded,
                        lambda phase, place=place: place / phase,
                        lambda shared, place=place: place / shared,
                        runtime,
                    )
                )
                (place / "main").unlink(missing_ok=True)
                last = fitted.history[-1].metrics
                done[key] = {
                    "last": accuracy(last, sizes),
                    "averaged": accuracy(last, sizes, "averaged_"),
                    "prior": fitted.prior.weights if fitted.prior else None,
                    "weights": fitted.history[-1].weights,
                    "graph": json.loads(fitted.graph.to_json()) if fitted.graph else None,
                }
                write_text(file, json.dumps(done, indent=1))
                print(f"{key}: averaged {done[key]['averaged']:.2f}, last {done[key]['last']:.2f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
