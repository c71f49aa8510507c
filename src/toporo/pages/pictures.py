"""Samples as pictures: photographs with what methods take them for, radar tiles with the water they find."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from toporo.errors import DataError, SettingError
from toporo.pages import charts
from toporo.pages.charts import COLORS, SOFT, WIDE

Array = npt.NDArray[Any]

RIGHT, WRONG = COLORS[0], COLORS[1]
#: What a pixel of a label or a prediction is.
LAND, WATER, MISSED, INVENTED, MISSING = "#efe9da", "#0072b2", "#d55e00", "#cc79a7", "#9ca3af"
#: Shares of a tile's pixels that are darker, or lighter, than the ends of its scale.
CLIPPED = (2.0, 98.0)
#: From no echo, which is what open water sends back, to a strong one. No greys: those are missing.
RADAR_COLORS = "cividis"


class Guess(NamedTuple):
    """What a method takes a picture for, and the probability it gives to that."""

    name: str
    confidence: float


@dataclass(frozen=True)
class Photo:
    """A picture (uint8, height × width × 3), its class, and guesses by the methods' titles."""

    pixels: npt.NDArray[np.uint8]
    true: str
    guesses: Mapping[str, Guess]


@dataclass(frozen=True)
class Tile:
    """A radar tile: decibels (NaN where not measured), label (1 water, 0 land, −1 unknown), water found by methods.

    ``water`` are probabilities by the methods' titles.
    """

    title: str
    radar: npt.NDArray[np.floating[Any]]
    label: npt.NDArray[np.integer[Any]]
    water: Mapping[str, npt.NDArray[np.floating[Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, picture in {"the label": self.label, **self.water}.items():
            if picture.shape != self.radar.shape:
                raise DataError(
                    f"{self.title}: the radar tile has shape {self.radar.shape}, {what} {picture.shape}: expected the "
                    "same. Was the benchmark loaded with another tile size than the runs?"
                )


@charts.drawn
def photo_samples(photos: Sequence[Photo]) -> Figure:
    """Pictures with their class above and, below, what each method takes them for."""
    if not photos:
        raise SettingError("a figure of samples needs at least one picture; found none.")
    lines = max(len(photo.guesses) for photo in photos)
    figure, axes = charts.canvas(2.07 + 0.17 * lines, len(photos))
    for ax, photo in zip(axes, photos, strict=True):
        ax.imshow(photo.pixels)
        charts.bare(ax)
        ax.set_title(photo.true, fontsize=9, fontweight="bold")
        for i, (title, guess) in enumerate(photo.guesses.items()):
            right = guess.name == photo.true
            text = f"{'✓' if right else '✗'} {title}: {guess.name}, {100 * guess.confidence:.0f} %"
            ax.annotate(text, (0.5, 0.0), (0.0, -3.0 - 12.0 * i), xycoords="axes fraction",
                        textcoords="offset points", ha="center", va="top", fontsize=8,
                        color=RIGHT if right else WRONG)  # fmt: skip
    return figure


@charts.drawn
def tile_samples(tiles: Sequence[Tile]) -> Figure:
    """A row per tile: the radar's picture, the label, and the water that each method finds, misses and invents."""
    if not tiles:
        raise SettingError("a figure of tiles needs at least one; found none.")
    methods = list(dict.fromkeys(title for tile in tiles for title in tile.water))
    columns = 2 + len(methods)
    side = min(2.05, (WIDE - 0.4) / columns)
    figure = Figure(figsize=(side * columns + 0.4, (side + 0.24) * len(tiles) + 0.6), layout="constrained")
    axes = figure.subplots(len(tiles), columns, squeeze=False)
    for row, tile in zip(axes, tiles, strict=True):
        row[0].imshow(_radar(tile.radar))
        row[1].imshow(_label(tile.label), interpolation="none")
        for ax, title in zip(row[2:], methods, strict=True):
            if title in tile.water:
                ax.imshow(_compared(tile, title), interpolation="none")
                value = tile_iou(tile, title)
                ax.set_title("no water, none found" if math.isnan(value) else f"IoU {value:.2f}", fontsize=8)
        row[0].set_ylabel(tile.title, fontsize=8)
        for ax in row:
            charts.bare(ax)
    for ax, head in zip(axes[0], ("radar, VV", "label", *methods), strict=True):
        ax.set_title(f"{head}\n{ax.get_title()}", fontsize=9)
    names = {WATER: "water, and found", MISSED: "water missed", INVENTED: "land taken for water", LAND: "land",
             MISSING: "no measurement or no label"}  # fmt: skip
    handles = [Patch(facecolor=color, edgecolor=SOFT, linewidth=0.4, label=name) for color, name in names.items()]
    charts.key(figure, handles)
    return figure


def tile_iou(tile: Tile, method: str) -> float:
    """Water found in common over water in either, on labelled pixels; NaN where there is none and none is found."""
    known, wet, taken = _wet(tile, method)
    either = int((known & (wet | taken)).sum())
    return int((known & wet & taken).sum()) / either if either else math.nan


def _wet(tile: Tile, method: str) -> tuple[Array, Array, Array]:
    """Which pixels count, which are water, and which the method takes for water."""
    known = (tile.label >= 0) & np.isfinite(tile.radar)
    return known, tile.label == 1, np.asarray(tile.water[method], dtype=np.float32) > 0.5


def _compared(tile: Tile, method: str) -> Array:
    known, wet, taken = _wet(tile, method)
    picture = _filled(tile.label.shape, LAND)
    picture[wet & taken] = _byte(WATER)
    picture[wet & ~taken] = _byte(MISSED)
    picture[~wet & taken] = _byte(INVENTED)
    picture[~known] = _byte(MISSING)
    return picture


def _label(label: Array) -> Array:
    picture = _filled(label.shape, LAND)
    picture[label == 1] = _byte(WATER)
    picture[label < 0] = _byte(MISSING)
    return picture


def _radar(decibels: Array) -> Array:
    """Decibels as colours, spread over all but the extreme ones; what was not measured is grey."""
    picture = _filled(decibels.shape, MISSING)
    known = np.isfinite(decibels)
    if known.any():
        low, high = np.percentile(decibels[known], CLIPPED)
        share = np.clip((decibels[known] - low) / max(float(high - low), 1e-6), 0.0, 1.0)
        picture[known] = np.rint(mpl.colormaps[RADAR_COLORS](share)[:, :3] * 255).astype(np.uint8)
    return picture


def _filled(shape: tuple[int, ...], color: str) -> Array:
    return np.full((*shape, 3), _byte(color), dtype=np.uint8)


def _byte(color: str) -> npt.NDArray[np.uint8]:
    channels: npt.NDArray[np.uint8] = np.rint(np.array(to_rgb(color)) * 255).astype(np.uint8)
    return channels
