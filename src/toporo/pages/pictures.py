"""Samples as pictures: photographs with what methods take them for, radar tiles with the water they find."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from toporo.errors import DataError
from toporo.pages import charts
from toporo.pages.charts import COLORS, SOFT
from toporo.pages.svg import WIDE

Array = npt.NDArray[Any]

RIGHT, WRONG = COLORS[0], COLORS[1]
#: Kinds of pixels, with their colours and names.
LAND, WATER, MISSED, INVENTED, MISSING = range(5)
PIXEL_COLORS = ("#efe9da", "#0072b2", "#d55e00", "#cc79a7", "#9ca3af")
PIXEL_NAMES = ("land", "water, and found", "water missed", "land taken for water", "no measurement or no label")
#: Shares of a tile's pixels that are darker, or lighter, than the ends of its scale.
CLIPPED = (2.0, 98.0)


class Guess(NamedTuple):
    """The class that a method predicts for a picture, and its probability."""

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
    """Draw pictures with their class above and the prediction of each method below."""
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
    """Draw a row per tile: the radar picture, the label, and the water that each method finds, misses and invents."""
    methods = list(dict.fromkeys(title for tile in tiles for title in tile.water))
    columns = 2 + len(methods)
    side = min(2.05, (WIDE - 0.4) / columns)
    figure = Figure(figsize=(side * columns + 0.4, (side + 0.24) * len(tiles) + 0.6), layout="constrained")
    axes = figure.subplots(len(tiles), columns, squeeze=False)
    kinds: dict[str, Any] = {"cmap": ListedColormap(PIXEL_COLORS), "vmin": 0, "vmax": 4, "interpolation": "none"}
    for row, tile in zip(axes, tiles, strict=True):
        known = tile.radar[np.isfinite(tile.radar)]
        low, high = np.percentile(known, CLIPPED) if known.size else (0.0, 1.0)
        row[0].set_facecolor(PIXEL_COLORS[MISSING])
        row[0].imshow(tile.radar, cmap="cividis", vmin=low, vmax=high)
        row[1].imshow(_label(tile.label), **kinds)
        for ax, title in zip(row[2:], methods, strict=True):
            if title in tile.water:
                ax.imshow(_compare(tile, title), **kinds)
                value = tile_iou(tile, title)
                ax.set_title("no water, none found" if math.isnan(value) else f"IoU {value:.2f}", fontsize=8)
        row[0].set_ylabel(tile.title, fontsize=8)
        for ax in row:
            charts.bare(ax)
    for ax, head in zip(axes[0], ("radar, VV", "label", *methods), strict=True):
        ax.set_title(f"{head}\n{ax.get_title()}", fontsize=9)
    legend = zip(PIXEL_COLORS, PIXEL_NAMES, strict=True)
    charts.key(figure, [Patch(facecolor=c, edgecolor=SOFT, linewidth=0.4, label=name) for c, name in legend])
    return figure


def tile_iou(tile: Tile, method: str) -> float:
    """Return the intersection over union of water on labelled pixels; NaN where there is none and none is found."""
    kinds = _compare(tile, method)
    either = np.isin(kinds, (WATER, MISSED, INVENTED)).sum()
    return float((kinds == WATER).sum() / either) if either else math.nan


def _compare(tile: Tile, method: str) -> Array:
    """Kind of each pixel: found or missed water, land taken for water, land, or missing."""
    wet, taken = tile.label == 1, np.asarray(tile.water[method], dtype=np.float32) > 0.5
    kinds = np.select([wet & taken, wet, taken], [WATER, MISSED, INVENTED], LAND)
    return np.where((tile.label >= 0) & np.isfinite(tile.radar), kinds, MISSING)


def _label(label: Array) -> Array:
    """Kind of each pixel of a label."""
    return np.select([label == 1, label < 0], [WATER, MISSING], LAND)
