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

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from toporo import pages
from toporo.data.grouped import GroupedData, Split
from toporo.data.images import TileStore
from toporo.errors import (
    DataError,
    DatasetNotFoundError,
    NothingToTestError,
    SettingError,
    UnknownNameError,
    closest,
    listed,
)
from toporo.files import parse_json, sha256
from toporo.paper.base import Benchmark, Vision, register
from toporo.paper.flood_chips import CHANNELS, IMAGES, LABELS, chip_paths, read_chips, require_geotiff
from toporo.paper.loaded import BenchmarkData, FileState, check_source, data_folder
from toporo.paper.protocols import MILD_TRO, ON_IMAGES, ON_IMAGES_EXTRA, Metric, Protocol, Variant
from toporo.paper.results import AVERAGE, Outcome, VariantOutcome
from toporo.paper.sections import (
    COMPARED,
    LEARNED,
    SAMPLED,
    SHOWN_WEIGHTS,
    Sections,
    comparisons,
    curves_section,
    groups_section,
    learned_of,
    learned_section,
    lowest_seeds,
    main_methods,
    penalty_section,
    scores,
    scores_section,
    section,
    topology_words,
    weights_section,
    when,
)
from toporo.progress import Report
from toporo.topology.graph import GroupGraph

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
#: Missing chips that are named one by one in results; and unusable ones on the terminal.
_NAMED, _NAMED_FIRST = 20, 5


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


#: Longitude and latitude; perhaps a height.
_Corner: TypeAlias = Annotated[list[Annotated[float, msgspec.Meta(ge=-360, le=360)]], msgspec.Meta(min_length=2)]
#: The outline, then holes.
_Rings: TypeAlias = Annotated[list[Annotated[list[_Corner], msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]


class _Polygon(msgspec.Struct, tag_field="type", tag="Polygon"):
    coordinates: _Rings


class _MultiPolygon(msgspec.Struct, tag_field="type", tag="MultiPolygon"):
    coordinates: list[_Rings]


class _Properties(msgspec.Struct):
    location: str
    s1_date: str


class _Feature(msgspec.Struct):
    properties: _Properties
    geometry: _Polygon | _MultiPolygon


class _Features(msgspec.Struct):
    """What is read of the GeoJSON file."""

    features: list[_Feature]


def read_metadata(root: Path) -> Metadata:
    """The events' outlines and dates; empty where the file is absent, since nothing but maps needs it."""
    path = root / METADATA
    if not path.is_file():
        return Metadata({}, {})
    positions, dates = {}, {}
    try:
        for feature in msgspec.convert(parse_json(path.read_bytes(), "it"), _Features).features:
            event = _RENAMED.get(feature.properties.location, feature.properties.location)
            shape = feature.geometry
            polygons = shape.coordinates if isinstance(shape, _MultiPolygon) else [shape.coordinates]
            positions[event] = _centroid([polygon[0] for polygon in polygons])
            dates[event] = feature.properties.s1_date.replace("/", "-")
    except (DataError, msgspec.ValidationError) as error:
        raise DataError(
            f"{path} cannot be read ({error}), expected GeoJSON features with location, s1_date and a polygon. Fetch "
            "it again, or remove it: only maps need it."
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
        raise DataError("an outline without an area")
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
) -> BenchmarkData:
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
    at_hand = {chip: role for chip, role in roles.items() if all(there[chip])}
    chips = _count_chips(root, there)
    if not at_hand:
        raise DataError(
            f"none of the {len(roles)} chips in the lists is in {root / IMAGES} with its label in {root / LABELS}. "
            f"{_EXPECTED}"
        )
    if source == "published" and len(at_hand) < len(roles):
        raise DataError(
            f"{root} has {len(at_hand)} of the {len(roles)} chips in the lists; missing: "
            f"{', '.join(chips['missing_names'][:3])}, … Copy the rest of the bucket, or use --source auto to take "
            "those that are there."
        )
    subset = f"sen1floods11: {len(at_hand)} of {len(roles)} chips are there; this is a subset"
    read = read_chips(root, at_hand, tile, progress, subset if len(at_hand) < len(roles) else "")
    wanted = {event for event in events if event == test or event != HELD_OUT}
    rows = np.array([i for i, chip in enumerate(read.store.chips) if _event(chip) in wanted], dtype=np.int64)
    names = [_event(read.store.chips[i]) for i in rows]
    dropped = {chip: why for chip, why in read.dropped.items() if _event(chip) in wanted}
    empty = _empty_events(events, names, roles, at_hand, read.dropped, test)
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
    return BenchmarkData(
        name="sen1floods11",
        data=GroupedData.from_arrays(rows, water, names),
        graph=GroupGraph([*train, test], {}),
        train=train,
        test=(test,),
        source="published" if official and len(at_hand) == len(roles) else "file",
        task="segmentation",
        about={
            "tile": tile,
            "splits": _settle(splits, train, read.store),
            "classes": ("land", "water"),
            "channels": CHANNELS,
            "subset": len(at_hand) < len(roles),
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
    check_source(
        "sen1floods11",
        source,
        ("auto", "published"),
        generated=f"is made of real radar images and cannot be generated. Copy {BUCKET}/v1.1 into a data folder, then "
        "use --source auto or published.",
    )
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
    there: Mapping[str, str],
    dropped: Mapping[str, str],
    test: str,
) -> dict[str, str]:
    """Events that would be groups but have no tile, and why."""
    have, reasons = set(names), {}
    for event in events:
        if event in have or (event == HELD_OUT != test):
            continue
        chips = [chip for chip in there if _event(chip) == event]
        reasons[event] = (
            f"all of its {len(chips)} chip(s) at hand were dropped ({chips[0]}: {dropped[chips[0]]})"
            if chips
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


def validation_rows(loaded: BenchmarkData, seed: int, fraction: float = 0.2) -> Split:
    """Rows of the training events to train on and to validate on, as ``loaded.about["splits"]`` says.

    Official: chips of the lists train and valid, in any seed; those of the list test are in neither part.
    Tiles: ``fraction`` of every event's tiles validates, chosen by the seed.
    """
    data = loaded.data.select(loaded.train)
    if loaded.about["splits"] == "tiles":
        return data.split(fraction, seed)
    store = _tiles_of(loaded)
    roles = np.array(store.roles)[data.x]
    return Split(data.take(np.flatnonzero(roles == "train")), data.take(np.flatnonzero(roles == "valid")))


def _tiles_of(loaded: BenchmarkData) -> TileStore:
    if not isinstance(loaded.store, TileStore):
        raise DataError(f"benchmark {loaded.name!r} has no tiles: expected one that sen1floods11.load gave.")
    return loaded.store


# ---------------------------------------------------------------------- what is there, in words


def file_states(folder: Path | None) -> list[FileState]:
    """The folder of radar chips, with how many of them there are; and the official lists."""
    absent = [(FOLDER, "absent (toporo data get sen1floods11 says how to get it)")]
    if folder is None:
        return absent
    try:
        root = find_root(folder)
    except DatasetNotFoundError:
        return absent
    try:
        counts = count_chips(root)
        states = [(str(root), f"found ({counts['found']} of {counts['listed']} chips)")]
    except DataError as error:
        states = [(str(root), f"damaged ({error})")]
    lists = {root / LISTS / Path(file).name: checksum for file, checksum in FILES.items()}
    return states + [
        (str(path), "intact" if sha256(path) == checksum else "differs")
        for path, checksum in lists.items()
        if path.is_file()
    ]


def dropped_chips(loaded: Iterable[BenchmarkData]) -> dict[str, str]:
    """Chips that nobody could use, and why; the data of a variant name only those of its own events."""
    return dict(sorted({chip: why for each in loaded for chip, why in each.about.get("dropped", {}).items()}.items()))


def left_out(loaded: Iterable[BenchmarkData]) -> str:
    """The same in a line; of many chips some."""
    dropped = dropped_chips(loaded)
    named = ", ".join(f"{chip} ({why})" for chip, why in islice(dropped.items(), _NAMED_FIRST))
    more = f", … ({len(dropped)} in all; results.json names them)" if len(dropped) > _NAMED_FIRST else ""
    return f"left out, without a usable pixel: {named}{more}" if dropped else ""


def _told(loaded: Sequence[BenchmarkData]) -> dict[str, Any]:
    about = loaded[0].about
    return {key: about[key] for key in ("tile", "splits", "subset", "chips")} | {"dropped": dropped_chips(loaded)}


def _origin(source: str, about: Mapping[str, Any]) -> str:
    """How many chips there were beside the published data set, for a caption."""
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
#: Where a run's model file has the water it finds in its sample tiles.
WATER = "sample.water"


def notices(outcome: Outcome) -> list[str]:
    """What a reader has to know before anything else: whether this is the whole of the data, and what was left out."""
    dropped = dropped_chips(part.loaded for part in outcome.parts)
    left_out = [f"Left out, without a usable pixel: {'; '.join(f'{chip}, {why}' for chip, why in dropped.items())}."]
    subsets = dict.fromkeys(_subset(part) for part in outcome.parts if part.loaded.about.get("subset"))
    return [" ".join([*subsets, *(left_out if dropped else [])])] if subsets or dropped else []


def _subset(part: VariantOutcome) -> str:
    chips = part.loaded.about.get("chips", {})
    return (
        f"A subset: {chips.get('found', '?')} of the {chips.get('listed', '?')} hand-labelled chips were at hand. The "
        "figures stand for these chips and are not comparable with published ones; on the whole data set the same "
        "command gives the table proper."
    )


def overall(outcome: Outcome) -> Sections:
    """IoU by event held out and method, where several were."""
    parts = [part for part in outcome.parts if part.rows]
    if len(parts) < 2:
        return []
    protocol = outcome.protocol
    metric = protocol.whole
    rows = {str(part.loaded.test[0]): part.rows for part in parts}
    rows[AVERAGE] = [row for row in outcome.rows if row.variant == AVERAGE]
    values: dict[str, dict[Any, float]] = {}
    for event, each in rows.items():
        for score in scores(protocol, each, metric, main_methods(protocol)):
            values.setdefault(score.title, {})[event] = score.mean
    columns = [event for event in rows if any(event in by_event for by_event in values.values())]
    text = (
        f"A column for each event held out, {when(protocol)}, mean over seeds; the best of each column is bold. A "
        "dash: not defined, as there is no water and none was found, or not run."
    )
    figure = pages.figures.group_table(values, columns, label=metric.name, digits=protocol.digits)
    return [pages.charts.figure_section("events", "IoU of water in the event held out", text, figure)]


def sections(part: VariantOutcome, out: Path) -> Sections:
    """The figures of one event held out, in the order of the page."""
    step = part.protocol.moment
    paper = part.loaded.about.get("subset") and part.variant.paper
    return [
        *scores_section(part, " The paper's figures are of all chips, ours of those at hand." if paper else ""),
        *_map(part),
        *learned_section(part, "event"),
        *weights_section(part, "event", SHOWN_WEIGHTS),
        *groups_section(part, "event", "IoU of water"),
        *_tiles(part, out),
        *penalty_section(part, "IoU of water", "event"),
        *curves_section(
            part,
            {"validation IoU, training events": "validation", "test IoU": "test"},
            f"IoU over the {step}s",
            "Mean over seeds, shaded ± 1 sd. Left: tiles that training left aside; right: the event held out.",
        ),
    ]


def _title(part: VariantOutcome, method: str) -> str:
    return part.protocol.method(method).title


def _map(part: VariantOutcome) -> Sections:
    positions = part.loaded.about.get("positions", {})
    train, test = part.loaded.train, part.loaded.test
    if not any(name in positions for name in (*train, *test)):
        return []
    learned = learned_of(part)
    unknown = [str(name) for name in (*train, *test) if name not in positions]
    lines = (
        f" Lines join events that {_title(part, LEARNED)} joins; their places took no part in that." if learned else ""
    )
    text = f"Floods trained on (circles) and the one held out (square).{lines}"
    if unknown:
        text += f" Without a known place: {', '.join(unknown)}."
    figure = pages.maps.event_map(learned, positions, train, test)
    return section(part, "map", "Where the floods were", text, figure)


def _tiles(part: VariantOutcome, out: Path) -> Sections:
    """Tiles of the event held out, in the runs with the lowest seed."""
    first = lowest_seeds(part.records)
    sampled = {
        name: (first[name]["samples"]["rows"], _water(part, name, out))
        for name in SAMPLED
        if first.get(name, {}).get("samples")
    }
    if not sampled:
        return []
    store = part.loaded.store
    if not isinstance(store, TileStore):
        raise DataError(f"{part.loaded.name} has no store of tiles, though its runs have samples of them.")
    water = {name: dict(zip(rows, maps, strict=True)) for name, (rows, maps) in sampled.items()}
    rows = [row for row in next(iter(water.values())) if all(row in maps for maps in water.values())]
    rows = sorted(rows, key=lambda row: (not (store.y[row] == 1).any(), rows.index(row)))[:SHOWN_TILES]
    if not rows:
        return []
    tiles = [
        pages.pictures.Tile(
            f"{store.chips[row]}\nrow {store.corners[row][0]}, column {store.corners[row][1]}",
            store.x[row, 0],
            store.y[row],
            {_title(part, name): maps[row] for name, maps in water.items()},
        )
        for row in rows
    ]
    text = (
        f"Tiles of {part.loaded.test[0]} after the last {part.protocol.moment} of the runs with the lowest seed, "
        "those with water first. Radar: the darker the less comes back, as from open water. Pixels without a "
        "measurement or a label are grey, and count nowhere."
    )
    return section(part, "tiles", "Water found in the event held out", text, pages.pictures.tile_samples(tiles))


def _water(part: VariantOutcome, method: str, out: Path) -> npt.NDArray[Any]:
    """Probabilities of water in the sample tiles of the run with the lowest seed."""
    job = min((job for job in part.jobs if job.method.name == method), key=lambda job: job.seed)
    tensors = job.read_tensors(out)
    if WATER not in tensors:
        path = job.model_path(out)
        raise DataError(f"{path} has no tensor {WATER!r}, though its run has samples: delete it and run again.")
    return tensors[WATER]


# ---------------------------------------------------------------------- sentences


def findings(part: VariantOutcome) -> list[str]:
    """What the table says of one event: how much data it stands on, the comparisons, the topology."""
    chips, subset = part.loaded.about.get("chips", {}), []
    if part.loaded.about.get("subset"):
        subset.append(
            f"{chips.get('found', '?')} of {chips.get('listed', '?')} chips: a subset, not the published data set."
        )
    return [*subset, *comparisons(part, COMPARED, digits=3), *topology_words(part, "event")]


register(
    Benchmark(
        title="radar chips of 11 floods with hand-labelled water, Bolivia held out",
        protocol=PROTOCOL,
        load=load,
        how_to_get=f"Copy {BUCKET}/v1.1 with Google Cloud's tools; it goes into the data folder as {FOLDER}.",
        files=file_states,
        split=validation_rows,
        vision=Vision(
            networks=("fcn18", "fcn50", "unet"),
            row="tile",
            group="event",
            side="tile",
            too_few="add chips, or cut them into smaller tiles with --size",
        ),
        origin=_origin,
        left_out=left_out,
        told=_told,
        options={"test": "test domain or event"},
        sections=sections,
        findings=findings,
        overall=overall,
        notices=notices,
    )
)
