"""Made-up outcomes of images and floods: generated pixels, records as runs write them, no training."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tests.paper.tiny_floods import make_chip
from tests.paper.tiny_images import tiny_image
from toporo.data.grouped import GroupedData
from toporo.data.images import ImageStore, TileStore
from toporo.groups import name_to_json
from toporo.paper import BENCHMARKS
from toporo.paper.loaded import BenchmarkData
from toporo.paper.methods import PENALTIES
from toporo.paper.results import Results, make_rows
from toporo.paper.runs import Run
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("disc", "square", "cross")
EVENTS = ("Ghana", "India", "Mekong", "Nigeria", "Pakistan", "Somalia", "Spain", "Sri-Lanka", "USA", "Bolivia")
STEPS = (150, 300, 450, 600)


def record(
    job: Run, benchmark: BenchmarkData, *, test: float, validation: float, metrics: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Return a record in the form of :func:`toporo.paper.runner.do_run`; its curves settle at the given values."""
    train = benchmark.train
    rng = np.random.default_rng([job.seed, len(job.method.name)])
    start = np.full(len(train), 1 / len(train))
    end = rng.dirichlet(np.full(len(train), 2.0)) if job.method.objective in ("tro", "group-dro") else start
    history = []
    for i, step in enumerate(STEPS):
        share = (i + 1) / len(STEPS)
        drop = 0.15 * (1 - share)
        weights = (1 - share) * start + share * end
        history.append(
            {
                "round": step,
                "loss": 1.0 - share / 2,
                "weights": [[name_to_json(n), float(w)] for n, w in zip(train, weights, strict=True)],
                "metrics": {"test": test - drop, "validation": validation - drop / 2, **metrics},
            }
        )
    topology = prior = None
    if job.method.prior == "data":
        order = list(train) if job.seed % 3 != 2 else [train[1], train[0], *train[2:]]
        graph = GroupGraph(train, dict.fromkeys(pairwise(order), 1.0))
        topology, prior = json.loads(graph.to_json()), graph.prior(train, measure="betweenness").to_dict()
    elif job.method.prior:
        prior = Prior({name: 1 / len(train) for name in train}).to_dict()
    return {
        "schema": "toporo.run/3",
        "key": job.key,
        "benchmark": benchmark.name,
        "variant": job.variant,
        "source": benchmark.source,
        "method": job.method.name,
        "settings": dict(job.method.settings),
        "seed": job.seed,
        "prior": prior,
        "topology": topology,
        "choice": None,
        "warnings": [],
        "history": history,
        "timing": {"seconds": 60.0, "images_per_second": 960.0, "device": "a made-up card"},
        **more,
    }


# ---------------------------------------------------------------------- images


def image_benchmark(test: str, each: int = 12) -> BenchmarkData:
    y = np.arange(len(DOMAINS) * each) % len(CLASSES)
    images = np.stack(
        [tiny_image(i // each, int(kind), len(CLASSES), np.random.default_rng(i), 64) for i, kind in enumerate(y)]
    )
    names = tuple(f"{DOMAINS[i // each]}/{CLASSES[kind]}/{i}.png" for i, kind in enumerate(y))
    data = GroupedData.from_arrays(np.arange(len(y)), y, np.repeat(DOMAINS, each))
    return BenchmarkData(
        "pacs",
        data,
        GroupGraph(DOMAINS, {}),
        tuple(name for name in DOMAINS if name != test),
        (test,),
        "published",
        {"size": 64},
        ImageStore(images, names, CLASSES, "made up"),
    )


ACCURACY = {"erm": 0.80, "group-dro": 0.79, "coral": 0.81, "sd": 0.805, "tro-data": 0.82, "tro-uniform": 0.815}


def image_outcome(
    domains: tuple[str, ...] = DOMAINS, methods: tuple[str, ...] = tuple(ACCURACY), seeds: int = 3
) -> Results:
    protocol = BENCHMARKS["pacs"].protocol
    benchmarks = {domain: image_benchmark(domain) for domain in domains}
    records = []
    for domain, benchmark in benchmarks.items():
        (variant,) = BENCHMARKS["pacs"].get_variants(domain)
        for method in protocol.get_methods(methods):
            for seed in range(seeds):
                job = Run(protocol.for_variant(variant), method, seed, "made up", domain)
                test = ACCURACY.get(method.name, 0.8) + 0.01 * (seed - 1) - 0.03 * DOMAINS.index(domain)
                metrics = {
                    "by_group": {domain: test},
                    "validation_by_group": {name: 0.94 + 0.01 * i for i, name in enumerate(benchmark.train)},
                }
                records.append(record(job, benchmark, test=test, validation=0.95, metrics=metrics))
    return Results(protocol, make_rows(protocol, records), {}, benchmarks, records)


# ---------------------------------------------------------------------- floods


def flood_benchmark(test: str, each: int = 4) -> BenchmarkData:
    chips = tuple(f"{EVENTS[i // each]}_{100 + i}" for i in range(len(EVENTS) * each))
    tiles = [make_chip(chip, side=64) for chip in chips]
    y = np.stack([label for _, label in tiles])
    y[EVENTS.index(test) * each] = np.minimum(y[EVENTS.index(test) * each], 0)  # a tile without water
    x = np.stack([radar for radar, _ in tiles])
    store = TileStore(x, y, chips, ("train",) * len(tiles), "made up")
    data = GroupedData.from_arrays(
        np.arange(len(tiles)), (y == 1).any(axis=(1, 2)).astype(int), np.repeat(EVENTS, each)
    )
    return BenchmarkData(
        "sen1floods11",
        data,
        GroupGraph(EVENTS, {}),
        tuple(event for event in EVENTS if event not in (test, "Bolivia")),
        (test,),
        "published",
        {"size": 64},
        store,
        ("Left out, without a usable pixel: 'Paraguay_34417'.",),
    )


#: TRO-data with other penalties.
SWEPT = tuple(f"tro-data-{value:g}" for value in PENALTIES)
IOU = {"erm": 0.43, "group-dro": 0.42, "coral": 0.40, "tro-data": 0.45, "tro-uniform": 0.44}


def flood_outcome(
    events: tuple[str, ...] = ("Bolivia", "Spain"), methods: tuple[str, ...] = (*IOU, *SWEPT), seeds: int = 3
) -> Results:
    protocol = BENCHMARKS["sen1floods11"].protocol
    benchmarks = {event: flood_benchmark(event) for event in events}
    records = []
    for event, benchmark in benchmarks.items():
        (variant,) = BENCHMARKS["sen1floods11"].get_variants(event)
        for method in protocol.get_methods(methods):
            for seed in range(seeds):
                job = Run(protocol.for_variant(variant), method, seed, "made up", event)
                bend = 0.02 * abs(np.log10(method.settings["penalty"]) - 0.5) if method.prior else 0.0
                test = float(IOU.get(method.name, 0.45) - bend + 0.01 * (seed - 1))
                metrics = {
                    "f1": test + 0.1,
                    "accuracy": 0.9,
                    "by_group": {event: test},
                    "validation_by_group": {n: test + 0.02 * i for i, n in enumerate(benchmark.train)}
                    | {"Ghana": None},
                }
                records.append(record(job, benchmark, test=test, validation=test + 0.05, metrics=metrics))
    return Results(protocol, make_rows(protocol, records), {}, benchmarks, records)


def only(outcome: Results, *methods: str) -> Results:
    """Return an outcome with these methods alone."""
    return replace(
        outcome,
        rows=[row for row in outcome.rows if row.method in methods],
        records=[record for record in outcome.records if record["method"] in methods],
    )
