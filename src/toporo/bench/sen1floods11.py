"""Sen1Floods11: which pixels of a radar image are under water, in floods that training has not seen.

Sentinel-1 chips (backscatter in decibels, two polarisations: VV and VH) of eleven flood events, labelled by hand
(Bonafilia et al., 2020). Groups are the events; a chip's event is its name up to the first underscore. Bolivia is the
publishers' held-out event and is never trained on. Chips are cut into square tiles, the rows of the benchmark.

What is missing stays missing: a pixel without a measurement is NaN in both channels and has the label −1; a pixel that
nobody could label (clouds in the optical image) has the label −1 and keeps its measurement, which a network may look at
and the loss must not. Inputs are scaled with :func:`fit_scaling` from the measurements of training rows alone.

The folder is the bucket's own: ``v1.1/splits/flood_handlabeled/flood_*_data.csv``,
``v1.1/data/flood_events/HandLabeled/{S1Hand,LabelHand}/*.tif`` and ``v1.1/Sen1Floods11_Metadata.geojson``. Part of the
chips will do: what is missing is counted in ``about["chips"]``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toporo.bench.base import Benchmark, data_folder
from toporo.bench.flood_chips import CHANNELS, IMAGES, LABELS, chip_paths, read_chips
from toporo.bench.geotiff import require_geotiff
from toporo.data.grouped import GroupedData, Split
from toporo.data.stores import TileStore
from toporo.errors import (
    DataError,
    DatasetNotFoundError,
    NothingToTestError,
    SettingError,
    UnknownNameError,
    closest,
    listed,
)
from toporo.files import sha256
from toporo.progress import Report
from toporo.topology.graph import GroupGraph

SOURCES = ("auto", "published")
#: ``official``: the publishers' lists say which chips validate. ``tiles``: a fifth of every event's tiles does.
SPLITS = ("auto", "official", "tiles")
#: Of the hand-labelled chips.
EVENTS = (
    "Bolivia",
    "Ghana",
    "India",
    "Mekong",
    "Nigeria",
    "Pakistan",
    "Paraguay",
    "Somalia",
    "Spain",
    "Sri-Lanka",
    "USA",
)
#: The event that is never trained on.
HELD_OUT = "Bolivia"
#: What the publishers' lists use a chip for; each list is ``flood_<role>_data.csv``.
ROLES = ("train", "valid", "test", "bolivia")

LISTS = Path("splits/flood_handlabeled")
METADATA = Path("Sen1Floods11_Metadata.geojson")
#: Where it all is published, and where a copy goes in a data folder.
BUCKET = "gs://sen1floods11"
FOLDER = "sen1floods11/v1.1"

_CHECKSUMS = {
    "train": "57be4dc440bf8a526effa77e06d4b8cb7a8484589c0bffa201d8e0f49e994beb",
    "valid": "04999b82b93e393c32a54ac85b2bf8a18b671f7a6f43a9478b340e8a9b9647fb",
    "test": "8b598c9438042f3ed8aed4484268387fae1aa5b660882e1c5b4c1218eba63d67",
    "bolivia": "4775d100fae1f1ca66a842b8af6d2a97b8bfc5847f29d88ff0affff2c1e22768",
}
#: The lists' paths in a data folder, and their checksums. The publishers give none for the chips.
FILES = {f"{FOLDER}/{LISTS.as_posix()}/flood_{role}_data.csv": _CHECKSUMS[role] for role in ROLES}

#: Names of events in the metadata that differ from those of their chips.
_RENAMED = {"Cambodia": "Mekong"}
_EXPECTED = f"Expected the layout of the bucket {BUCKET}, folder v1.1."
_PAIR = re.compile(r"([^_/\\,]+_[^_/\\,]+)_S1Hand\.tif,\1_LabelHand\.tif")
#: Missing chips that are named one by one.
_NAMED = 20


# ---------------------------------------------------------------------- the lists and the metadata


def find_root(folder: str | os.PathLike[str] | None = None) -> Path:
    """The bucket's folder ``v1.1``, in a data folder or given itself."""
    where = data_folder(folder)
    if where is not None:
        for root in (where / "sen1floods11" / "v1.1", where / "sen1floods11", where / "v1.1", where):
            if (root / LISTS).is_dir() or (root / IMAGES).is_dir():
                return root
    looked = f"{where}, its v1.1/ or its sen1floods11/v1.1/" if where is not None else "any data folder: there is none"
    raise DatasetNotFoundError(
        f"sen1floods11: no {LISTS}/ and no {IMAGES}/ in {looked}. Copy {BUCKET}/v1.1 (its splits/, its metadata and "
        "the hand-labelled chips) there, or name the folder with --data / folder=."
    )


def read_lists(root: Path) -> dict[str, str]:
    """What the four official lists use each chip for: chip to role, in the order of the chips' names."""
    roles: dict[str, str] = {}
    for role in ROLES:
        path = root / LISTS / f"flood_{role}_data.csv"
        for number, line in enumerate(_lines(path), 1):
            if not line.strip():
                continue
            match = _PAIR.fullmatch(line.strip())
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


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise DataError(f"no list {path}. Expected four: {', '.join(f'flood_{role}_data.csv' for role in ROLES)}.")
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not text, expected a list of file names. {_EXPECTED}") from None


@dataclass(frozen=True)
class Metadata:
    """Where and when the events were: longitude and latitude of the middle, day of the radar image, by event."""

    positions: Mapping[str, tuple[float, float]]
    dates: Mapping[str, str]


def read_metadata(root: Path) -> Metadata:
    """The events' outlines and dates; empty where the file is absent, since nothing but maps needs it."""
    path = root / METADATA
    if not path.is_file():
        return Metadata({}, {})
    positions, dates = {}, {}
    try:
        for feature in json.loads(path.read_text(encoding="utf-8"))["features"]:
            properties, geometry = feature["properties"], feature["geometry"]
            event = _RENAMED.get(properties["location"], str(properties["location"]))
            polygons = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
            positions[event] = _centroid([polygon[0] for polygon in polygons])
            dates[event] = str(properties["s1_date"]).replace("/", "-")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}: {error}), expected GeoJSON features with location, "
            "s1_date and a polygon. Fetch it again, or remove it: only maps need it."
        ) from None
    return Metadata(positions, dates)


def _centroid(rings: Sequence[Sequence[Sequence[float]]]) -> tuple[float, float]:
    """The centre of mass of polygons in the plane of longitude and latitude; corners may run either way round."""
    total, weights = np.zeros(2), 0.0
    for ring in rings:
        corners = np.array([corner[:2] for corner in ring], dtype=np.float64)
        middle = corners.mean(axis=0)
        a = corners - middle
        b = np.roll(a, -1, axis=0)
        cross = a[:, 0] * b[:, 1] - b[:, 0] * a[:, 1]
        area = cross.sum() / 2
        if area:
            total += abs(area) * (middle + ((a + b) * cross[:, None]).sum(axis=0) / (6 * area))
            weights += abs(area)
    if not weights:
        raise ValueError("an outline without an area")
    longitude, latitude = (total / weights).tolist()
    return longitude, latitude


def _event(chip: str) -> str:
    return chip.split("_")[0]


# ---------------------------------------------------------------------- the benchmark


def load(
    folder: str | os.PathLike[str] | None = None,
    *,
    source: str = "auto",
    test: str = HELD_OUT,
    tile: int = 256,
    splits: str = "auto",
    progress: bool | Report | None = None,
) -> Benchmark:
    """Load the benchmark from a data folder (``folder``, else ``$TOPORO_DATA``, else the cache), or from ``v1.1``.

    Parameters
    ----------
    source : ``"auto"`` takes the lists and the chips that are there; ``"published"`` insists on the official lists
        (checksums verified) and on every chip in them.
    test : the event to test on. All others are trained on, except Bolivia.
    tile : side of the tiles in pixels; a divisor of the chips' side.
    splits : what :func:`validation_rows` does. ``"official"`` follows the lists; ``"tiles"`` sets aside a share of
        every event's tiles, so that neighbouring tiles of one chip may lie on both sides; ``"auto"`` is official if
        every training event has chips for training and for validation.
    progress : as :class:`toporo.progress.Progress` takes it.
    """
    _check_settings(source, tile, splits)
    require_geotiff()
    root = find_root(folder)
    roles = read_lists(root)
    official = _is_official(root, insist=source == "published")
    events = sorted({_event(chip) for chip in roles})
    _check_event(test, events, root)
    there = _there(root, roles)
    found = {chip: role for chip, role in roles.items() if all(there[chip])}
    chips = _count_chips(root, there)
    if not found:
        raise DataError(
            f"none of the {len(roles)} chips in the lists is in {root / IMAGES} with its label in {root / LABELS}. "
            f"{_EXPECTED}"
        )
    if source == "published" and len(found) < len(roles):
        raise DataError(
            f"{root} has {len(found)} of the {len(roles)} chips in the lists; missing: "
            f"{', '.join(chips['missing_names'][:3])}, … Copy the rest of the bucket, or use --source auto to take "
            "those that are there."
        )
    subset = f"sen1floods11: {len(found)} of {len(roles)} chips are there; this is a subset"
    read = read_chips(root, found, tile, progress, subset if len(found) < len(roles) else "")
    wanted = {event for event in events if event == test or event != HELD_OUT}
    rows = np.array([i for i, chip in enumerate(read.store.chips) if _event(chip) in wanted], dtype=np.int64)
    names = [_event(read.store.chips[i]) for i in rows]
    dropped = {chip: why for chip, why in read.dropped.items() if _event(chip) in wanted}
    empty = _empty_events(events, names, roles, found, read.dropped, test)
    train = tuple(event for event in events if event not in (test, HELD_OUT) and event not in empty)
    if test in empty or not train:
        kind = NothingToTestError if train else DataError
        raise kind(
            f"{root} has no usable tile of {f'the test event {test!r}' if test in empty else 'any training event'}: "
            f"{empty[test] if test in empty else listed(empty.values(), 3)}. Events with tiles: "
            f"{listed(sorted(set(names)), 11)}."
        )
    water = (read.store.y[rows] == 1).any(axis=(1, 2)).astype(np.int64)
    if not water[[name == test for name in names]].any():
        raise NothingToTestError(
            f"{root} has no water in the {names.count(test)} tile(s) of the test event {test!r}: with nothing to "
            "find, the IoU of water says nothing. Choose another event, or add chips of this one."
        )
    metadata = read_metadata(root)
    return Benchmark(
        name="sen1floods11",
        data=GroupedData.from_arrays(rows, water, names),
        graph=GroupGraph([*train, test], {}),
        train=train,
        test=(test,),
        source="published" if official and len(found) == len(roles) else "file",
        task="segmentation",
        about={
            "tile": tile,
            "splits": _settle(splits, train, read.store),
            "classes": ("land", "water"),
            "channels": CHANNELS,
            "subset": len(found) < len(roles),
            "chips": chips,
            "tiles": {
                "kept": len(rows),
                "dropped": sum(n for chip, n in read.totals.items() if _event(chip) in wanted) - len(rows),
            },
            "dropped": dropped,
            "empty_events": empty,
            "positions": {event: at for event, at in sorted(metadata.positions.items()) if event in events},
            "dates": {event: day for event, day in sorted(metadata.dates.items()) if event in events},
        },
        store=read.store,
    )


def _check_settings(source: str, tile: int, splits: str) -> None:
    if source == "generated":
        raise SettingError(
            f"sen1floods11 is made of real radar images and cannot be generated. Copy {BUCKET}/v1.1 into a data "
            "folder, then use --source auto or published."
        )
    if source not in SOURCES:
        raise UnknownNameError("source", source, SOURCES)
    if splits not in SPLITS:
        raise UnknownNameError("splits", splits, SPLITS)
    if isinstance(tile, bool) or not isinstance(tile, int) or tile < 1:
        raise SettingError(
            f"tile is {tile!r}: expected a whole number of pixels that divides a chip's 512, such as 256."
        )


def _check_event(test: str, events: Sequence[str], root: Path) -> None:
    if test not in events:
        close = closest(str(test), list(events))
        hint = f" Did you mean {close!r}?" if close else ""
        if test in EVENTS:
            raise NothingToTestError(
                f"the lists in {root / LISTS} name no chip of the test event {test!r}. They have: "
                f"{listed(events, len(events))}."
            )
        raise DataError(
            f"unknown test event {test!r}.{hint} The lists in {root / LISTS} have: {listed(events, len(events))}."
        )


def _is_official(root: Path, *, insist: bool) -> bool:
    digests = {role: sha256(root / LISTS / f"flood_{role}_data.csv") for role in ROLES}
    changed = [f"flood_{role}_data.csv" for role in ROLES if digests[role] != _CHECKSUMS[role]]
    if changed and insist:
        raise DataError(
            f"{', '.join(changed)} in {root / LISTS} differ(s) from the publishers' by checksum. Put theirs there, or "
            "use --source auto to take the lists as they are."
        )
    return not changed


def count_chips(root: Path) -> dict[str, Any]:
    """How many chips the lists in the bucket's folder name, and how many of them are there."""
    return _count_chips(root, _there(root, read_lists(root)))


def _there(root: Path, roles: Iterable[str]) -> dict[str, list[bool]]:
    """Whether a chip's image and its label are there."""
    return {chip: [path.is_file() for path in chip_paths(root, chip)] for chip in roles}


def _count_chips(root: Path, there: Mapping[str, Sequence[bool]]) -> dict[str, Any]:
    """Chips of the lists that are there or not; of one without its image or its label, the file that is missing."""
    missing = [chip for chip, files in there.items() if not all(files)]
    half = [chip_paths(root, chip)[files.index(False)].name for chip, files in there.items() if len(set(files)) > 1]
    return {
        "listed": len(there),
        "found": len(there) - len(missing),
        "missing": len(missing),
        "missing_names": missing[:_NAMED],
        "missing_halves": half[:_NAMED],
    }


def _empty_events(
    events: Iterable[str],
    names: Iterable[str],
    roles: Mapping[str, str],
    found: Mapping[str, str],
    dropped: Mapping[str, str],
    test: str,
) -> dict[str, str]:
    """Events that would be groups but have no tile, and why."""
    have, reasons = set(names), {}
    for event in events:
        if event in have or (event == HELD_OUT != test):
            continue
        at_hand = [chip for chip in found if _event(chip) == event]
        reasons[event] = (
            f"all of its {len(at_hand)} chip(s) at hand were dropped ({at_hand[0]}: {dropped[at_hand[0]]})"
            if at_hand
            else f"none of its {sum(_event(chip) == event for chip in roles)} chip(s) is there"
        )
    return reasons


def _settle(splits: str, train: Iterable[str], store: TileStore) -> str:
    """Official or tiles."""
    if splits == "tiles":
        return splits
    have = {(_event(chip), role) for chip, role in zip(store.chips, store.roles, strict=True)}
    lacking = [f"{event} ({role})" for event in train for role in ("train", "valid") if (event, role) not in have]
    if lacking and splits == "official":
        raise DataError(
            "splits='official' needs tiles for training and for validation of every training event, but there are none "
            f"of {', '.join(lacking)}. Get those chips, or use splits='tiles'."
        )
    return "tiles" if lacking else "official"


def validation_rows(benchmark: Benchmark, seed: int, fraction: float = 0.2) -> Split:
    """Rows of the training events to train on and to validate on, as ``benchmark.about["splits"]`` says.

    Official: chips of the lists train and valid, whatever the seed; those of the list test are in neither part.
    Tiles: ``fraction`` of every event's tiles validates, chosen by the seed.
    """
    data = benchmark.data.select(benchmark.train)
    if benchmark.about["splits"] == "tiles":
        return data.split(fraction, seed)
    store = _tiles_of(benchmark)
    roles = np.array(store.roles)[data.x]
    return Split(data.take(np.flatnonzero(roles == "train")), data.take(np.flatnonzero(roles == "valid")))


def _tiles_of(benchmark: Benchmark) -> TileStore:
    if not isinstance(benchmark.store, TileStore):
        raise DataError(f"benchmark {benchmark.name!r} has no tiles: expected one that sen1floods11.load gave.")
    return benchmark.store
