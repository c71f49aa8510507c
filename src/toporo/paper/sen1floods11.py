"""Sen1Floods11: segmentation of water in radar images, in flood events that are absent from training.

Sentinel-1 chips (backscatter in decibels, two polarisations: VV and VH) of eleven flood events, labelled by hand
(Bonafilia et al., 2020). Groups are the events; a chip's event is its name up to the first underscore. Bolivia is the
publishers' held-out event and is never trained on. Chips are cut into square tiles, the rows of the benchmark.

A pixel without a measurement is NaN in both channels and has the label −1; a pixel without a label (clouds in the
optical image) has the label −1 and keeps its measurement, which a network may use and the loss must not. Inputs are
scaled with :func:`~toporo.paper.image_fits.standardize` by the measurements of training rows alone.

The folder has the layout of the bucket: ``v1.1/splits/flood_handlabeled/flood_*_data.csv`` and
``v1.1/data/flood_events/HandLabeled/{S1Hand,LabelHand}/*.tif``. Some of the chips are enough: ``about["chips"]`` counts
them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo import pages
from toporo.checks import whole
from toporo.data import GroupedData, Split, TileStore
from toporo.errors import DataError, NothingToTestError, UnknownNameError, listed
from toporo.paper.base import Benchmark, Vision, register
from toporo.paper.flood_chips import (
    CHECKSUMS,
    EXPECTED,
    FOLDER,
    HOW_TO_GET,
    existing_chips,
    file_states,
    find_folder,
    list_paths,
    read_chips,
    read_lists,
    require_geotiff,
)
from toporo.paper.loaded import BenchmarkData, check_published, check_source, find_data
from toporo.paper.methods import MILD_TRO, ON_IMAGES, ON_IMAGES_EXTRA
from toporo.paper.protocols import Metric, Protocol, Variant
from toporo.paper.results import Results
from toporo.paper.sections import Sections, any_sections, sample_runs, section
from toporo.progress import Report
from toporo.topology import GroupGraph
from toporo.types import Record

NAME = "sen1floods11"
#: The events of the hand-labelled chips.
EVENTS = (
    "Bolivia", "Ghana", "India", "Mekong", "Nigeria", "Pakistan", "Paraguay", "Somalia", "Spain", "Sri-Lanka", "USA",
)  # fmt: skip
#: The event that is never trained on.
HELD_OUT = "Bolivia"


# ---------------------------------------------------------------------- the data


def load(
    folder: str | os.PathLike[str] | None = None,
    *,
    source: str = "auto",
    test: str = HELD_OUT,
    tile: int = 256,
    progress: bool | Report | None = None,
) -> BenchmarkData:
    """Load the benchmark from a data folder (``folder``, else ``$TOPORO_DATA``, else the cache), or from ``v1.1``.

    Parameters
    ----------
    source : ``"auto"`` takes the existing lists and chips; ``"published"`` requires the official lists (by checksum)
        and every chip in them.
    test : the event to test on. All others are trained on, except Bolivia.
    tile : side of the tiles in pixels; a divisor of the chips' side.
    progress : see :class:`toporo.progress.Progress`.
    """
    check_source(NAME, source, ("auto", "published"), HOW_TO_GET)
    whole(tile, "tile", 1)
    require_geotiff()
    root = find_data(NAME, folder, find_folder, f"{FOLDER}/", HOW_TO_GET)
    roles = read_lists(root)
    lists = {check_published(path, CHECKSUMS[role], source) for role, path in list_paths(root).items()}
    _check_event(test, roles)
    existing = existing_chips(root, roles)
    complete = len(existing) == len(roles)
    if not existing or (source == "published" and not complete):
        raise DataError(
            f"{len(existing)} of the {len(roles)} chips in the lists are in {root} with image and label; missing: "
            f"{listed(sorted(roles.keys() - existing), 3)}. Copy the rest of the bucket, or use --source auto to take "
            f"those that are there. {EXPECTED}"
        )
    store = read_chips(root, existing, tile, progress)
    dropped = sorted(chip for chip in existing.keys() - set(store.chips) if _is_used(chip, test))
    rows = np.array([row for row, chip in enumerate(store.chips) if _is_used(chip, test)], dtype=np.int64)
    water = (store.y[rows] == 1).any(axis=(1, 2)).astype(np.int64)
    names = [_event(store.chips[row]) for row in rows]
    train = tuple(event for event in sorted(set(names)) if event != test)
    if not train or test not in names:
        raise (NothingToTestError if train else DataError)(
            f"{root} has no usable tile of {f'the test event {test!r}' if train else 'any training event'}. Chips "
            f"without a pixel that has a measurement and a label: {listed(dropped, 3) or 'none'}; events with tiles: "
            f"{listed(sorted(set(names)), 11) or 'none'}. Add chips."
        )
    if not water[[name == test for name in names]].any():
        raise NothingToTestError(
            f"{root} has no water in the {names.count(test)} tile(s) of the test event {test!r}: with nothing to "
            "find, the IoU of water says nothing. Choose another event, or add chips of this one."
        )
    return BenchmarkData(
        name=NAME,
        data=GroupedData.from_arrays(rows, water, names),
        graph=GroupGraph([*train, test], {}),
        train=train,
        test=(test,),
        source="published" if lists == {"published"} and complete else "file",
        task="segmentation",
        about={
            "tile": tile,
            "splits": _splits(train, store),
            "subset": not complete,
            "chips": {"listed": len(roles), "found": len(existing)},
            "dropped": dropped,
        },
        store=store,
    )


def _check_event(test: str, chips: Iterable[str]) -> None:
    events = sorted(set(map(_event, chips)))
    if test in EVENTS and test not in events:
        raise NothingToTestError(f"the lists name no chip of the test event {test!r}, but of {', '.join(events)}.")
    if test not in events:
        raise UnknownNameError("test event", test, events)


def _event(chip: str) -> str:
    return chip.split("_")[0]


def _is_used(chip: str, test: str) -> bool:
    """Return True for chips of the test event and of training events."""
    return _event(chip) == test or _event(chip) != HELD_OUT


def _splits(train: Iterable[str], store: TileStore) -> str:
    """Return ``"official"`` if every training event has tiles to train and to validate on, else ``"tiles"``."""
    have = {(_event(chip), role) for chip, role in zip(store.chips, store.roles, strict=True)}
    return "official" if {(event, role) for event in train for role in ("train", "valid")} <= have else "tiles"


def validation_rows(loaded: BenchmarkData, seed: int, fraction: float = 0.2) -> Split:
    """Split the rows of the training events into those to train on and to validate on.

    If ``loaded.about["splits"]`` is ``"official"``, these are chips of the lists train and valid, for any seed; those
    of the list test are in neither part. Else a ``fraction`` of every event's tiles, chosen by the seed, is for
    validation, and neighbouring tiles of one chip may be in both parts.
    """
    data = loaded.data.select(loaded.train)
    if loaded.about["splits"] == "tiles":
        return data.split(fraction, seed)
    roles = np.array(_tiles(loaded).roles)[data.x]
    return Split(data.take(np.flatnonzero(roles == "train")), data.take(np.flatnonzero(roles == "valid")))


def _tiles(loaded: BenchmarkData) -> TileStore:
    if not isinstance(loaded.store, TileStore):
        raise DataError(f"benchmark {loaded.name!r} has no tiles: expected one that sen1floods11.load gave.")
    return loaded.store


# ---------------------------------------------------------------------- descriptions


def _facts(loaded: Sequence[BenchmarkData]) -> dict[str, Any]:
    """Return the facts of all variants; each names the unusable chips of its own events only."""
    return {**loaded[0].about, "dropped": sorted({chip for data in loaded for chip in data.about["dropped"]})}


def remarks(loaded: Sequence[BenchmarkData]) -> list[str]:
    """Return sentences about chips that are missing, and about those that cannot be used."""
    facts, lines = _facts(loaded), []
    if facts["subset"]:
        lines.append(
            f"A subset: {facts['chips']['found']} of the {facts['chips']['listed']} hand-labelled chips were at hand. "
            "The figures stand for these chips and are not comparable with published ones."
        )
    if facts["dropped"]:
        lines.append(f"Left out, without a usable pixel: {listed(facts['dropped'], 5)}.")
    return lines


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


# ---------------------------------------------------------------------- the report

#: The tensor in a run's model file that holds the probabilities of water in its sample tiles.
WATER = "sample.water"


def sections(part: Results) -> Sections:
    """Return the figures of one event held out, in the order of the page."""
    return [*any_sections(part), *_samples(part)]


def _samples(part: Results) -> Sections:
    """Show tiles of the event held out, in the runs with the lowest seed."""
    runs = sample_runs(part)
    if not runs:
        return []
    store, water = _tiles(part.loaded), {title: _water(part, record) for title, record in runs.items()}
    rows = next(iter(runs.values()))["samples"]["rows"]  # the same of all methods
    tiles = [
        pages.pictures.Tile(
            f"{store.chips[row]}\nrow {store.corners[row][0]}, column {store.corners[row][1]}",
            store.x[row, 0],
            store.y[row],
            {title: maps[i] for title, maps in water.items()},
        )
        for i, row in enumerate(rows)
    ]
    text = (
        f"Tiles of {part.loaded.test[0]} after the last {part.protocol.moment} of the runs with the lowest seed. "
        "Radar: the darker the less comes back, as from open water. Pixels without a measurement or a label are grey, "
        "and count nowhere."
    )
    return section(part, "tiles", "Water found in the event held out", text, pages.pictures.tile_samples(tiles))


def _water(part: Results, record: Record) -> npt.NDArray[Any]:
    """Return the probabilities of water in the sample tiles of a run."""
    tensors = part.store.tensors(record["key"])
    if WATER not in tensors:
        path = part.store.path(record["key"], "safetensors")
        raise DataError(f"{path} has no tensor {WATER!r}, though its run has samples: delete it and run again.")
    return tensors[WATER]


register(
    Benchmark(
        title="radar chips of 11 floods with hand-labelled water, Bolivia held out",
        protocol=PROTOCOL,
        load=load,
        how_to_get=HOW_TO_GET,
        files=file_states,
        split=validation_rows,
        vision=Vision(
            networks=("fcn18", "fcn50", "unet"),
            row="tile",
            side="tile",
            too_few="add chips, or cut them into smaller tiles with --set size",
        ),
        group="event",
        remarks=remarks,
        sections=sections,
    )
)
