"""Sen1Floods11: segmentation of water in radar images, in flood events that are absent from training.

Sentinel-1 chips (backscatter in decibels, two polarisations: VV and VH) of eleven flood events, labelled by hand
(Bonafilia et al., 2020). Groups are the events; a chip's event is its name up to the first underscore. Bolivia is the
publishers' held-out event and is never trained on. Chips are cut into square tiles, the rows of the benchmark.

A pixel without a measurement is NaN in both channels and has the label −1; a pixel without a label (clouds in the
optical image) has the label −1 and keeps its measurement, which a network may use and the loss must not. Inputs are
scaled with :func:`~toporo.paper.image_fits.standardize` by the measurements of training rows alone.

The folder has the layout of the bucket: ``v1.1/splits/flood_handlabeled/flood_*_data.csv`` and
``v1.1/data/flood_events/HandLabeled/{S1Hand,LabelHand}/*.tif``. Some of the chips are enough.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from toporo.data import GroupedData, Split
from toporo.errors import DataError, NothingToTestError, UnknownNameError, listed
from toporo.paper import flood_chips
from toporo.paper.base import Benchmark, register
from toporo.paper.flood_chips import existing_chips, has_official_lists, read_chips, read_lists, require_geotiff
from toporo.paper.loaded import BenchmarkData
from toporo.paper.methods import MILD_TRO, ON_IMAGES, ON_IMAGES_EXTRA
from toporo.paper.protocols import Metric, Protocol, Variant
from toporo.progress import Report
from toporo.topology import GroupGraph

NAME = "sen1floods11"
#: The events of the hand-labelled chips.
EVENTS = (
    "Bolivia", "Ghana", "India", "Mekong", "Nigeria", "Pakistan", "Paraguay", "Somalia", "Spain", "Sri-Lanka", "USA",
)  # fmt: skip
#: The event that is never trained on.
HELD_OUT = "Bolivia"


# ---------------------------------------------------------------------- the data


def load(path: Path, *, test: str = HELD_OUT, size: int = 256, progress: bool | Report | None = None) -> BenchmarkData:
    """Load the benchmark from a copy of the bucket's folder ``v1.1``, which may lack chips.

    Parameters
    ----------
    path : of the folder.
    test : the event to test on. All others are trained on, except Bolivia.
    size : side of the tiles in pixels; a divisor of the chips' side.
    progress : see :class:`toporo.progress.Progress`.
    """
    require_geotiff()
    if test not in EVENTS:
        raise UnknownNameError("test event", test, EVENTS)
    roles = read_lists(path)
    existing = existing_chips(path, roles)
    if not existing:
        missing = listed(sorted(roles), 3) or "none"
        raise DataError(f"{path} has image and label of no chip in the lists: {missing}. {flood_chips.EXPECTED}")
    complete = len(existing) == len(roles)
    store = read_chips(path, existing, size, progress)
    events = [chip.split("_")[0] for chip in store.chips]
    rows = np.array([row for row, event in enumerate(events) if event == test or event != HELD_OUT], dtype=np.int64)
    names, water = [events[row] for row in rows], (store.y[rows] == 1).any(axis=(1, 2))
    wet = {name for name, found in zip(names, water, strict=True) if found}
    train = tuple(sorted(set(names) - {test}))
    if test not in wet or not train:
        raise NothingToTestError(
            f"{path} has {names.count(test)} usable tile(s) of the test event {test!r}, "
            f"{'some' if test in wet else 'none'} with water, and tiles of {len(train)} training event(s): expected "
            "water, without which IoU says nothing, and an event to train on. Choose another event, or add chips."
        )
    return BenchmarkData(
        name=NAME,
        data=GroupedData.from_arrays(rows, water.astype(np.int64), names),
        graph=GroupGraph([*train, test], {}),
        train=train,
        test=(test,),
        source="published" if complete and has_official_lists(path) else "file",
        about={"size": size, "chips": {"listed": len(roles), "found": len(existing)}},
        store=store,
        remarks=_remarks(len(roles), len(existing), sorted(existing.keys() - set(store.chips))),
    )


def _remarks(count: int, found: int, unusable: list[str]) -> tuple[str, ...]:
    """Return sentences about chips that are missing, and about those that cannot be used."""
    subset = (
        f"A subset: {found} of the {count} hand-labelled chips were at hand. The figures stand for these chips and are "
        "not comparable with published ones."
    )
    return (subset,) * (found < count) + (f"Left out, without a usable pixel: {listed(unusable, 5)}.",) * bool(unusable)


def validation_rows(loaded: BenchmarkData, seed: int, fraction: float = 0.2) -> Split:
    """Split the rows of the training events into those to train on and to validate on.

    These are the chips of the official lists train and valid, for any seed, if every event has some in both. Else a
    ``fraction`` of every event's tiles, chosen by the seed, is for validation, and neighbouring tiles of one chip may
    be in both parts.
    """
    tiles: Any = loaded.store
    data = loaded.data.select(loaded.train)
    roles = np.array(tiles.roles)[data.x]
    official = [np.flatnonzero(roles == role) for role in ("train", "valid")]
    if all(len(set(data.codes[rows])) == len(data.groups) for rows in official):
        return Split(*map(data.take, official))
    return data.split(fraction, seed)


# ---------------------------------------------------------------------- the table

PROTOCOL = Protocol(
    benchmark=NAME,
    title="Sen1Floods11",
    methods=ON_IMAGES,
    extra=ON_IMAGES_EXTRA,
    rounds=150,
    evaluate_every=37,
    unit="steps",
    per_group=4,
    learning_rate=5e-4,
    hidden=(),
    validation=0.2,
    metric="IoU of water",
    metrics=(
        Metric("validation IoU", "validation"),
        Metric("F1", "f1"),
        Metric("pixel accuracy", "accuracy"),
        Metric("IoU", "test"),
    ),
    data_topology={"scales": 10, "sigma": "knn", "cut": "mst-knn"},
    inputs_topology={},
    variants=tuple(
        Variant(
            name=event,
            title=f"{event} held out",
            options={"test": event},
            paper={
                method: {"validation IoU": validation, "IoU": test}
                for method, validation, test in (
                    ("erm", 0.489, 0.430),
                    ("irm", 0.387, 0.338),
                    ("vrex", 0.484, 0.357),
                    ("sd", 0.449, 0.400),
                    ("group-dro", 0.480, 0.433),
                    ("tro-data", 0.485, 0.450),
                )
            }
            if event == HELD_OUT
            else {},
        )
        for event in (HELD_OUT, *(event for event in EVENTS if event != HELD_OUT))
    ),
    task="segmentation",
    model="segmentation",
    digits=3,
    priors={"measure": "betweenness", "normalization": "sum"},
    changes={
        "group-dro": {"settings": {"step": 0.01}},
        "tro-data": {"settings": MILD_TRO},
        "tro-uniform": {"settings": MILD_TRO},
    },
    network={"name": "fcn50"},
    headline="validation",
    average={},
    notes=(
        f"{HELD_OUT} is never trained on, as in the official lists; of the other events, each in turn is the test "
        "event and the rest are trained on. The paper's figures are for all chips, with "
        f"{HELD_OUT} held out.",
        "IoU is over all valid pixels of an event together. Pixels without a label or a measurement count neither in "
        "the loss nor in a figure; those without a measurement are no input either. Inputs are scaled by the training "
        "events' pixels alone.",
    ),
)


register(
    Benchmark(
        title="radar chips of 11 floods with hand-labelled water, Bolivia held out",
        protocol=PROTOCOL,
        place=flood_chips.FOLDER,
        load=load,
        check=flood_chips.check,
        how_to_get=flood_chips.HOW_TO_GET,
        split=validation_rows,
        networks=("fcn18", "fcn50", "unet"),
        group="event",
    )
)
