"""What a report shows of flooded water in radar tiles: Sen1Floods11, one part an event held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors import safe_open

from toporo.bench.deep import dropped_chips
from toporo.bench.records import lowest_seeds
from toporo.bench.results import AVERAGE
from toporo.bench.runner import Outcome, Part
from toporo.data.stores import TileStore
from toporo.errors import DataError
from toporo.pages.charts import figure_section
from toporo.pages.figures import group_table, method_scores
from toporo.pages.maps import event_map
from toporo.pages.networks import (
    LEARNED,
    comparisons,
    curves_section,
    file_name,
    groups_section,
    learned_of,
    learned_section,
    main_methods,
    moment,
    penalty_section,
    scores,
    topology_words,
    weights_section,
    when,
    whole_metric,
)
from toporo.pages.pictures import Tile, tile_samples
from toporo.pages.render import Section

SAMPLED = ("erm", LEARNED)
SHOWN_TILES = 4
#: Where a run's model file has the water it finds in its sample tiles.
WATER = "sample.water"
COMPARED = {LEARNED: ("erm", "group-dro", "coral", "iw-erm-data", "tro-uniform"), "tro-uniform": ("erm",)}


def notices(outcome: Outcome) -> list[str]:
    """What a reader has to know before anything else: whether this is the whole of the data, and what was left out."""
    dropped = dropped_chips(part.benchmark for part in outcome.parts)
    left_out = [f"Left out, without a usable pixel: {'; '.join(f'{chip}, {why}' for chip, why in dropped.items())}."]
    subsets = dict.fromkeys(_subset(part) for part in outcome.parts if part.benchmark.about.get("subset"))
    return [" ".join([*subsets, *(left_out if dropped else [])])] if subsets or dropped else []


def _subset(part: Part) -> str:
    chips = part.benchmark.about.get("chips", {})
    return (
        f"A subset: {chips.get('found', '?')} of the {chips.get('listed', '?')} hand-labelled chips were at hand. The "
        "figures stand for these chips and are not comparable with published ones; on the whole data set the same "
        "command gives the table proper."
    )


def overall(outcome: Outcome) -> list[Section]:
    """IoU by event held out and method, where several were."""
    parts = [part for part in outcome.parts if part.rows]
    if len(parts) < 2:
        return []
    protocol = outcome.protocol
    metric = whole_metric(protocol)
    rows = {str(part.benchmark.test[0]): part.rows for part in parts}
    rows[AVERAGE] = [row for row in outcome.rows if row.variant == AVERAGE]
    values: dict[str, dict[Any, float]] = {}
    for event, found in rows.items():
        for score in scores(protocol, found, metric, main_methods(protocol)):
            values.setdefault(score.title, {})[event] = score.mean
    columns = [event for event in rows if any(event in by_event for by_event in values.values())]
    text = (
        f"A column for each event held out, {when(protocol)}, mean over seeds; the best of each column is bold. A "
        "dash: not defined, as there is no water and none was found, or not run."
    )
    figure = group_table(values, columns, label=metric.name, digits=protocol.digits)
    return [figure_section("events", "IoU of water in the event held out", text, figure)]


def sections(part: Part, out: Path) -> list[Section]:
    """The figures of one event held out, in the order of the page."""
    step = moment(part.protocol)
    return [
        *_scores(part),
        *_map(part),
        *learned_section(part, "event"),
        *weights_section(part, "event"),
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


def _title(part: Part, method: str) -> str:
    return part.protocol.method(method).title


def _scores(part: Part) -> list[Section]:
    methods = main_methods(part.protocol)
    panels = {metric.name: scores(part.protocol, part.rows, metric, methods) for metric in part.protocol.metrics}
    panels = {title: found for title, found in panels.items() if any(s.values or s.paper is not None for s in found)}
    if not panels:
        return []
    titles = {method.name: method.title for method in methods}
    figure = method_scores(
        panels,
        reference=titles.get("erm"),
        highlight=[titles[LEARNED]],
    )
    text = f"{when(part.protocol).capitalize()}; each panel has an axis of its own. Controls are pale."
    if part.benchmark.about.get("subset") and part.variant.paper:
        text += " The paper's figures are of all chips, ours of those at hand."
    return [figure_section(file_name("scores", part.variant.name), "Scores by method", text, figure)]


def _map(part: Part) -> list[Section]:
    positions = part.benchmark.about.get("positions", {})
    train, test = part.benchmark.train, part.benchmark.test
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
    figure = event_map(learned, positions, train, test)
    return [figure_section(file_name("map", part.variant.name), "Where the floods were", text, figure)]


def _tiles(part: Part, out: Path) -> list[Section]:
    """Tiles of the event held out, in the runs with the lowest seed."""
    first = lowest_seeds(part.records)
    found = {
        name: (first[name]["samples"]["rows"], _water(part, name, out))
        for name in SAMPLED
        if first.get(name, {}).get("samples")
    }
    if not found:
        return []
    store = part.benchmark.store
    if not isinstance(store, TileStore):
        raise DataError(f"{part.benchmark.name} has no store of tiles, though its runs have samples of them.")
    water = {name: dict(zip(rows, maps, strict=True)) for name, (rows, maps) in found.items()}
    rows = [row for row in next(iter(water.values())) if all(row in maps for maps in water.values())]
    rows = sorted(rows, key=lambda row: (not (store.y[row] == 1).any(), rows.index(row)))[:SHOWN_TILES]
    if not rows:
        return []
    tiles = [
        Tile(
            f"{store.chips[row]}\nrow {store.corners[row][0]}, column {store.corners[row][1]}",
            store.x[row, 0],
            store.y[row],
            {_title(part, name): maps[row] for name, maps in water.items()},
        )
        for row in rows
    ]
    text = (
        f"Tiles of {part.benchmark.test[0]} after the last {moment(part.protocol)} of the runs with the lowest seed, "
        "those with water first. Radar: the darker the less comes back, as from open water. Pixels without a "
        "measurement or a label are grey, and count nowhere."
    )
    name = file_name("tiles", part.variant.name)
    return [figure_section(name, "Water found in the event held out", text, tile_samples(tiles))]


def _water(part: Part, method: str, out: Path) -> npt.NDArray[Any]:
    """Probabilities of water in the sample tiles of the run with the lowest seed."""
    job = min((job for job in part.jobs if job.method.name == method), key=lambda job: job.seed)
    path = job.model_path(out)
    if not path.is_file():
        raise DataError(f"{path} is missing, which has the sample tiles of {job.key}: run it again.")
    with safe_open(path, framework="np") as tensors:
        if WATER not in tensors.keys():  # noqa: SIM118  # not a mapping
            raise DataError(f"{path} has no tensor {WATER!r}, though its run has samples: delete it and run again.")
        found: npt.NDArray[Any] = tensors.get_tensor(WATER)
    return found


# ---------------------------------------------------------------------- sentences


def findings(part: Part) -> list[str]:
    """What the table says of one event: how much data it stands on, the comparisons, the topology."""
    found = []
    chips = part.benchmark.about.get("chips", {})
    if part.benchmark.about.get("subset"):
        found.append(
            f"{chips.get('found', '?')} of {chips.get('listed', '?')} chips: a subset, not the published data set."
        )
    return [*found, *comparisons(part, COMPARED, digits=3), *topology_words(part, "event")]
