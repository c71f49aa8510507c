"""Sen1Floods11: segmentation of water in radar images, in flood events that are absent from training.

Sentinel-1 chips (backscatter in decibels, two polarisations: VV and VH) of eleven flood events, labelled by hand
(Bonafilia et al., 2020). Groups are the events; a chip's event is its name up to the first underscore. Bolivia is the
publishers' held-out event and is never trained on. Chips are cut into square tiles, the rows of the benchmark.

A pixel without a measurement is NaN in both channels and has the label −1; a pixel without a label (clouds in the
optical image) has the label −1 and keeps its measurement, which a network may use and the loss must not. Inputs are
scaled with :func:`~toporo.paper.flood_chips.standardize` by the measurements of training rows alone.

The folder has the layout of the bucket: ``v1.1/splits/flood_handlabeled/flood_*_data.csv`` and
``v1.1/data/flood_events/HandLabeled/{S1Hand,LabelHand}/*.tif``. Some of the chips are enough: ``about["chips"]`` counts
them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo import pages
from toporo.checks import whole
from toporo.data.grouped import GroupedData, Split
from toporo.data.images import TileStore
from toporo.errors import DataError, NothingToTestError, UnknownNameError, listed
from toporo.paper.base import Benchmark, Vision, register
from toporo.paper.flood_chips import IMAGES, LABELS, chip_paths, read_chips, require_geotiff
from toporo.paper.loaded import BenchmarkData, FileState, check_published, check_source, file_state, find_data
from toporo.paper.protocols import MILD_TRO, ON_IMAGES, ON_IMAGES_EXTRA, Metric, Protocol, Variant
from toporo.paper.results import Results
from toporo.paper.sections import Sections, any_sections, lowest_seeds, section, shown_samples
from toporo.progress import Report
from toporo.topology.graph import GroupGraph
from toporo.types import Name

#: The events of the hand-labelled chips, with longitude and latitude.
EVENTS = {
    "Bolivia": (-65.0, -13.7),
    "Ghana": (-1.0, 9.1),
    "India": (93.2, 26.6),
    "Mekong": (105.3, 12.4),
    "Nigeria": (5.7, 7.3),
    "Pakistan": (70.8, 31.2),
    "Paraguay": (-56.6, -24.9),
    "Somalia": (45.4, 3.9),
    "Spain": (0.1, 38.5),
    "Sri-Lanka": (81.1, 7.5),
    "USA": (-95.0, 39.7),
}
#: The event that is never trained on.
HELD_OUT = "Bolivia"
#: The bucket, its folder in a data folder, and the folder of its lists.
BUCKET = "gs://sen1floods11"
FOLDER = "sen1floods11/v1.1"
LISTS = Path("splits/flood_handlabeled")
#: Checksums of the publishers' lists by role. Chips have no published checksums.
CHECKSUMS = {
    "train": "57be4dc440bf8a526effa77e06d4b8cb7a8484589c0bffa201d8e0f49e994beb",
    "valid": "04999b82b93e393c32a54ac85b2bf8a18b671f7a6f43a9478b340e8a9b9647fb",
    "test": "8b598c9438042f3ed8aed4484268387fae1aa5b660882e1c5b4c1218eba63d67",
    "bolivia": "4775d100fae1f1ca66a842b8af6d2a97b8bfc5847f29d88ff0affff2c1e22768",
}
HOW_TO_GET = f"Copy {BUCKET}/v1.1 with Google Cloud's tools; it goes into the data folder as {FOLDER}."
_EXPECTED = f"Expected the layout of the bucket {BUCKET}, folder v1.1."
_PAIR = re.compile(r"([^_/\\,]+_[^_/\\,]+)_S1Hand\.tif,\1_LabelHand\.tif")
#: Number of unusable chips that are named on the terminal.
_NAMED_FIRST = 5


# ---------------------------------------------------------------------- the lists


def _find(folder: Path) -> Path | None:
    candidates = (folder / FOLDER, folder / "sen1floods11", folder / "v1.1", folder)
    return next((root for root in candidates if (root / LISTS).is_dir() or (root / IMAGES).is_dir()), None)


def list_path(root: Path, role: str) -> Path:
    """Return the path of the publishers' list of chips with a role, a key of :data:`CHECKSUMS`."""
    return root / LISTS / f"flood_{role}_data.csv"


def read_lists(root: Path) -> dict[str, str]:
    """Return the role of each chip in the four official lists, in the order of the chips' names."""
    roles: dict[str, str] = {}
    for role in CHECKSUMS:
        path = list_path(root, role)
        if not path.is_file():
            raise DataError(
                f"no list {path}. Expected four: {', '.join(f'flood_{role}_data.csv' for role in CHECKSUMS)}."
            )
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise DataError(f"{path} is not text, expected a list of file names. {_EXPECTED}") from None
        for number, line in enumerate(map(str.strip, lines), 1):
            if not line:
                continue
            match = _PAIR.fullmatch(line)
            if match is None:
                raise DataError(
                    f"{path}, line {number}: found {line[:80]!r}, expected the image and the label of one chip, such "
                    "as 'Ghana_103272_S1Hand.tif,Ghana_103272_LabelHand.tif'."
                )
            if match[1] in roles:
                raise DataError(
                    f"{path}, line {number}: chip {match[1]} is already in flood_{roles[match[1]]}_data.csv. Expected "
                    "every chip once, so that none is both trained on and tested on."
                )
            roles[match[1]] = role
    if not roles:
        raise DataError(f"the lists in {root / LISTS} name no chip. {_EXPECTED}")
    return dict(sorted(roles.items()))


def _existing(root: Path, roles: Mapping[str, str]) -> dict[str, str]:
    """Return the chips whose image and label exist, with their roles."""
    return {chip: role for chip, role in roles.items() if all(path.is_file() for path in chip_paths(root, chip))}


def _event(chip: str) -> str:
    return chip.split("_")[0]


# ---------------------------------------------------------------------- the benchmark


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
    check_source("sen1floods11", source, ("auto", "published"), HOW_TO_GET)
    whole(tile, "tile", 1)
    require_geotiff()
    root = find_data("sen1floods11", folder, _find, f"{LISTS}/ and no {IMAGES}/, also in its {FOLDER}/,", HOW_TO_GET)
    roles = read_lists(root)
    found = {check_published(list_path(root, role), checksum, source) for role, checksum in CHECKSUMS.items()}
    events = sorted({_event(chip) for chip in roles})
    if test not in events:
        if test in EVENTS:
            raise NothingToTestError(f"the lists in {root / LISTS} name no chip of the test event {test!r}.")
        raise UnknownNameError("test event", test, events)
    existing = _existing(root, roles)
    subset = len(existing) < len(roles)
    if not existing or (source == "published" and subset):
        missing = [chip for chip in roles if chip not in existing]
        raise DataError(
            f"{len(existing)} of the {len(roles)} chips in the lists are in {root / IMAGES} with their labels in "
            f"{root / LABELS}; missing: {listed(missing, 3)}. Copy the rest of the bucket, or use --source auto to "
            f"take those that are there. {_EXPECTED}"
        )
    note = f"sen1floods11: {len(existing)} of {len(roles)} chips are there; this is a subset" if subset else ""
    read = read_chips(root, existing, tile, progress, note)
    wanted = {event for event in events if event == test or event != HELD_OUT}
    rows = np.array([i for i, chip in enumerate(read.store.chips) if _event(chip) in wanted], dtype=np.int64)
    names = [_event(read.store.chips[i]) for i in rows]
    water = (read.store.y[rows] == 1).any(axis=(1, 2)).astype(np.int64)
    train = tuple(event for event in events if event not in (test, HELD_OUT) and event in names)
    dropped = {chip: why for chip, why in read.dropped.items() if _event(chip) in wanted}
    _check_tiles(root, test, train, names, water, dropped)
    return BenchmarkData(
        name="sen1floods11",
        data=GroupedData.from_arrays(rows, water, names),
        graph=GroupGraph([*train, test], {}),
        train=train,
        test=(test,),
        source="published" if found == {"published"} and not subset else "file",
        task="segmentation",
        about={
            "tile": tile,
            "splits": _splits(train, read.store),
            "subset": subset,
            "chips": {"listed": len(roles), "found": len(existing)},
            "dropped": dropped,
            "empty_events": sorted(wanted - set(names)),
        },
        store=read.store,
    )


def _check_tiles(
    root: Path,
    test: str,
    train: Sequence[str],
    names: Sequence[str],
    water: npt.NDArray[np.int64],
    dropped: Mapping[str, str],
) -> None:
    """Raise an error unless there are tiles to train on, and tiles with water to test on."""
    if not train or test not in names:
        lacking = f"the test event {test!r}" if train else "any training event"
        raise (NothingToTestError if train else DataError)(
            f"{root} has no usable tile of {lacking}. Chips that cannot be used: "
            f"{listed([f'{chip} ({why})' for chip, why in dropped.items()], 3) or 'none'}; events with tiles: "
            f"{listed(sorted(set(names)), 11) or 'none'}. Add chips."
        )
    if not water[[name == test for name in names]].any():
        raise NothingToTestError(
            f"{root} has no water in the {names.count(test)} tile(s) of the test event {test!r}: with nothing to "
            "find, the IoU of water says nothing. Choose another event, or add chips of this one."
        )


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
    roles = np.array(tiles_of(loaded).roles)[data.x]
    return Split(data.take(np.flatnonzero(roles == "train")), data.take(np.flatnonzero(roles == "valid")))


def tiles_of(loaded: BenchmarkData) -> TileStore:
    """Return the tiles of the loaded benchmark."""
    if not isinstance(loaded.store, TileStore):
        raise DataError(f"benchmark {loaded.name!r} has no tiles: expected one that sen1floods11.load gave.")
    return loaded.store


# ---------------------------------------------------------------------- descriptions


def file_states(folder: Path | None) -> list[FileState]:
    """Return the states of the folder, with the number of its chips, and of the official lists."""
    root = _find(folder) if folder is not None else None
    if root is None:
        return [(FOLDER, "absent (toporo data get sen1floods11 says how to get it)")]
    try:
        roles = read_lists(root)
        state = f"found ({len(_existing(root, roles))} of {len(roles)} chips)"
    except DataError as error:
        state = f"damaged ({error})"
    lists = [(list_path(root, role), checksum) for role, checksum in CHECKSUMS.items()]
    return [(str(root), state), *(file_state(path, checksum) for path, checksum in lists if path.is_file())]


def dropped_chips(loaded: Iterable[BenchmarkData]) -> dict[str, str]:
    """Return the chips that cannot be used, and why; the data of a variant name only those of its own events."""
    return dict(sorted({chip: why for each in loaded for chip, why in each.about.get("dropped", {}).items()}.items()))


def remarks(loaded: Sequence[BenchmarkData]) -> list[str]:
    """Return sentences about chips that are missing, and about those that cannot be used; of many some are named."""
    about, lines = loaded[0].about, []
    if about.get("subset"):
        lines.append(
            f"A subset: {about['chips']['found']} of the {about['chips']['listed']} hand-labelled chips were at hand. "
            "The figures stand for these chips and are not comparable with published ones."
        )
    dropped = [f"{chip} ({why})" for chip, why in dropped_chips(loaded).items()]
    if dropped:
        more = f", … ({len(dropped)} in all; results.json names them)" if len(dropped) > _NAMED_FIRST else ""
        lines.append(f"Left out, without a usable pixel: {', '.join(dropped[:_NAMED_FIRST])}{more}.")
    return lines


def _facts(loaded: Sequence[BenchmarkData]) -> dict[str, Any]:
    about = loaded[0].about
    return {key: about[key] for key in ("tile", "splits", "subset", "chips")} | {"dropped": dropped_chips(loaded)}


def _origin(source: str, about: Mapping[str, Any]) -> str:
    """Return how many chips there were beside the published data set, for a caption."""
    chips = about.get("chips")
    if not chips:
        return "the radar chips at hand"
    if chips["found"] < chips["listed"]:
        return f"a subset of the data, {chips['found']} of {chips['listed']} chips"
    lists = "the official lists" if source == "published" else "lists that are not the official ones"
    return f"all {chips['listed']} chips of {lists}"


# ---------------------------------------------------------------------- the table

PROTOCOL = Protocol(
    benchmark="sen1floods11",
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

SHOWN_TILES = 4
#: The tensor in a run's model file that holds the probabilities of water in its sample tiles.
WATER = "sample.water"


def sections(part: Results) -> Sections:
    """Return the figures of one event held out, in the order of the page."""
    return [*any_sections(part), *_map(part), *_tiles(part)]


def _map(part: Results) -> Sections:
    places: dict[Name, tuple[float, float]] = {name: at for name, at in EVENTS.items() if name in part.loaded.graph}
    if not places:
        return []
    learned = part.learned_topologies()
    text = "Floods trained on (circles) and the one held out (square)."
    if learned:
        text += " Lines join events that the learned topology joins; their places took no part in that."
    figure = pages.figures.event_map(learned, places, part.loaded.train, part.loaded.test)
    return section(part, "map", "Where the floods were", text, figure)


def _tiles(part: Results) -> Sections:
    """Show tiles of the event held out, in the runs with the lowest seed."""
    first = lowest_seeds(part.records)
    water = {
        part.protocol.method(name).title: dict(zip(first[name]["samples"]["rows"], _water(part, name), strict=True))
        for name in shown_samples(part)
        if first.get(name, {}).get("samples")
    }
    if not water:
        return []
    store = tiles_of(part.loaded)
    rows = [row for row in next(iter(water.values())) if all(row in maps for maps in water.values())]
    rows = sorted(rows, key=lambda row: (not (store.y[row] == 1).any(), rows.index(row)))[:SHOWN_TILES]
    tiles = [
        pages.pictures.Tile(
            f"{store.chips[row]}\nrow {store.corners[row][0]}, column {store.corners[row][1]}",
            store.x[row, 0],
            store.y[row],
            {title: maps[row] for title, maps in water.items()},
        )
        for row in rows
    ]
    text = (
        f"Tiles of {part.loaded.test[0]} after the last {part.protocol.moment} of the runs with the lowest seed, "
        "those with water first. Radar: the darker the less comes back, as from open water. Pixels without a "
        "measurement or a label are grey, and count nowhere."
    )
    return section(part, "tiles", "Water found in the event held out", text, pages.pictures.tile_samples(tiles))


def _water(part: Results, method: str) -> npt.NDArray[Any]:
    """Return probabilities of water in the sample tiles of the run with the lowest seed."""
    run = min((run for run in part.runs if run.method.name == method), key=lambda run: run.seed)
    tensors = part.store.tensors(run)
    if WATER not in tensors:
        path = part.store.path(run, "safetensors")
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
            too_few="add chips, or cut them into smaller tiles with --size",
        ),
        origin=_origin,
        group="event",
        remarks=remarks,
        facts=_facts,
        options={"test": "test domain or event"},
        sections=sections,
    )
)
