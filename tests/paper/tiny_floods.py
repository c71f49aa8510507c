"""Small chips in the layout of the Sen1Floods11 bucket: dark water beside bright land, nobody's flood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile

ROOT = Path("sen1floods11/v1.1")
EVENTS = ("Bolivia", "Ghana", "India", "Mekong", "Spain")
#: Chips of an event by the official list that names them.
COUNTS = {"train": 2, "valid": 1, "test": 1}


def chip_names(events: Sequence[str] = EVENTS, counts: Mapping[str, int] = COUNTS) -> dict[str, str]:
    """Chip to role; Bolivia has a list of its own."""
    return {
        f"{event}_{100 * number + 7 * place}": "bolivia" if event == "Bolivia" else role
        for number, event in enumerate(events, 1)
        for place, role in enumerate([role for role, count in counts.items() for _ in range(count)])
    }


def make_chip(chip: str, side: int = 32, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int16]]:
    """Decibels and labels: a lake, an unlabelled strip at the bottom, three pixels without a measurement."""
    rng = np.random.default_rng([seed, *chip.encode()])
    row, column = np.indices((side, side)) / side
    lake = (row - rng.uniform(0.3, 0.7)) ** 2 + (column - rng.uniform(0.3, 0.7)) ** 2 < rng.uniform(0.03, 0.1)
    level = rng.normal(0.0, 1.0, (2, 1, 1))  # an event's soil, the angle of the beam
    image = np.where(lake, [[[-18.0]], [[-26.0]]], [[[-9.0]], [[-16.0]]]) + level + rng.normal(0, 1.5, (2, side, side))
    label = np.where(row >= 0.9, -1, lake).astype(np.int16)
    image[0, 0, :3] = np.nan
    return image.astype(np.float32), label


def write_chip(root: Path, chip: str, image: npt.NDArray[Any], label: npt.NDArray[Any]) -> None:
    """A chip's two files: channels one after the other, compressed, as the bucket's."""
    separate = {"planarconfig": "separate"} if image.ndim == 3 and len(image) > 1 else {}
    for kind, pixels, extra in (("S1Hand", image, separate), ("LabelHand", label, {})):
        path = root / "data" / "flood_events" / "HandLabeled" / kind / f"{chip}_{kind}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(path, pixels, compression="lzw", photometric="minisblack", metadata=None, **extra)


def write_lists(root: Path, roles: Mapping[str, str]) -> None:
    """The four official lists."""
    folder = root / "splits" / "flood_handlabeled"
    folder.mkdir(parents=True, exist_ok=True)
    for role in ("train", "valid", "test", "bolivia"):
        lines = [f"{chip}_S1Hand.tif,{chip}_LabelHand.tif\n" for chip, used in roles.items() if used == role]
        (folder / f"flood_{role}_data.csv").write_text("".join(lines))


def write_floods(
    folder: Path, events: Sequence[str] = EVENTS, *, counts: Mapping[str, int] = COUNTS, side: int = 32, seed: int = 0
) -> Path:
    """Write a data folder with such a bucket in it; the same pixels for the same seed. Returns the bucket's folder."""
    root, roles = folder / ROOT, chip_names(events, counts)
    write_lists(root, roles)
    for chip in roles:
        write_chip(root, chip, *make_chip(chip, side, seed))
    return root
