"""Samples as pictures: photographs with predicted classes, and radar tiles with the water that methods find."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from toporo.errors import DataError
from toporo.pages.charts import COLORS, SOFT, canvas, drawn, key
from toporo.pages.svg import WIDE

Pixels = npt.NDArray[Any]

#: Kinds of pixels, with their colours and names.
LAND, WATER, MISSED, INVENTED, MISSING = range(5)
PIXEL_COLORS = ("#efe9da", "#0072b2", "#d55e00", "#cc79a7", "#9ca3af")
PIXEL_NAMES = ("land", "water, and found", "water missed", "land taken for water", "no measurement or no label")
#: Percentiles of a tile's values at the ends of its grey scale.
CLIPPED = (2.0, 98.0)


class Guess(NamedTuple):
    """Class that a method predicts for a picture, and its probability."""

    name: str
    confidence: float


@dataclass(frozen=True)
class Photo:
    """Picture (uint8, height × width × 3), its class, and predictions by the methods' titles."""

    pixels: npt.NDArray[np.uint8]
    true: str
    guesses: Mapping[str, Guess]


@dataclass(frozen=True)
class Tile:
    """Radar tile: decibels (NaN where not measured) and label (1 water, 0 land, −1 unknown).

    ``water`` are probabilities of water by the methods' titles.
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

    def kinds(self, method: str) -> Pixels:
        """Return the kind of each pixel under a method's predictions."""
        wet, found = self.label == 1, np.asarray(self.water[method], dtype=np.float32) > 0.5
        kinds = np.select([wet & found, wet, found], [WATER, MISSED, INVENTED], LAND)
        return np.where((self.label >= 0) & np.isfinite(self.radar), kinds, MISSING)

    def iou(self, method: str) -> float:
        """Return the intersection over union of water; NaN where there is none and none is found."""
        kinds = self.kinds(method)
        either = np.isin(kinds, (WATER, MISSED, INVENTED)).sum()
        return float((kinds == WATER).sum() / either) if either else math.nan


@drawn
def photo_samples(photos: Sequence[Photo]) -> Figure:
    """Draw pictures with their class above and the prediction of each method below."""
    lines = max(len(photo.guesses) for photo in photos)
    figure, axes = canvas(2.07 + 0.17 * lines, len(photos))
    for ax, photo in zip(axes, photos, strict=True):
        ax.imshow(photo.pixels)
        _remove_frame(ax)
        ax.set_title(photo.true, fontsize=9, fontweight="bold")
        for i, (title, guess) in enumerate(photo.guesses.items()):
            right = guess.name == photo.true
            text = f"{'✓' if right else '✗'} {title}: {guess.name}, {100 * guess.confidence:.0f} %"
            offset: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
            looks: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 8, "color": COLORS[0 if right else 1]}
            ax.annotate(text, (0.5, 0.0), (0.0, -3.0 - 12.0 * i), **offset, **looks)
    return figure


@drawn
def tile_samples(tiles: Sequence[Tile]) -> Figure:
    """Draw a row per tile: the radar picture, the label, and the water that each method finds, misses and invents."""
    methods = list(dict.fromkeys(title for tile in tiles for title in tile.water))
    columns = 2 + len(methods)
    side = min(2.05, (WIDE - 0.4) / columns)
    figure = Figure(figsize=(side * columns + 0.4, (side + 0.24) * len(tiles) + 0.6), layout="constrained")
    axes = figure.subplots(len(tiles), columns, squeeze=False)
    kinds: dict[str, Any] = {"cmap": ListedColormap(PIXEL_COLORS), "vmin": 0, "vmax": 4, "interpolation": "none"}
    for row, tile in zip(axes, tiles, strict=True):
        measured = tile.radar[np.isfinite(tile.radar)]
        low, high = np.percentile(measured, CLIPPED) if measured.size else (0.0, 1.0)
        row[0].set_facecolor(PIXEL_COLORS[MISSING])
        row[0].imshow(tile.radar, cmap="cividis", vmin=low, vmax=high)
        row[0].set_ylabel(tile.title, fontsize=8)
        row[1].imshow(np.select([tile.label == 1, tile.label < 0], [WATER, MISSING], LAND), **kinds)
        for ax, method in zip(row[2:], methods, strict=True):
            if method in tile.water:
                ax.imshow(tile.kinds(method), **kinds)
                iou = tile.iou(method)
                ax.set_title("no water, none found" if math.isnan(iou) else f"IoU {iou:.2f}", fontsize=8)
        for ax in row:
            _remove_frame(ax)
    for ax, head in zip(axes[0], ("radar, VV", "label", *methods), strict=True):
        ax.set_title(f"{head}\n{ax.get_title()}", fontsize=9)
    legend = zip(PIXEL_COLORS, PIXEL_NAMES, strict=True)
    key(figure, [Patch(facecolor=color, edgecolor=SOFT, linewidth=0.4, label=name) for color, name in legend])
    return figure


def _remove_frame(ax: Axes) -> None:
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
