"""Made-up folders in DomainBed's layout: a bright block whose place is the class, on a ground that is the domain's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from toporo.paper.image_folder import ImageFolder

CLASSES = ("bird", "car", "dog")
#: A ground, a colour and an ending a domain; the published data sets mix formats too.
GROUNDS = ((40, 40, 40), (40, 40, 120), (40, 100, 40), (90, 40, 40))
COLOURS = ((250, 220, 40), (240, 240, 240), (60, 230, 230), (230, 80, 200))
ENDINGS = ("jpg", "png", "JPEG", "webp")


def tiny_image(domain: int, label: int, classes: int, rng: np.random.Generator, side: int) -> npt.NDArray[np.uint8]:
    """A square image of its domain and class."""
    ground = np.broadcast_to(np.array(GROUNDS[domain % 4], dtype=float), (side, side, 3)).copy()
    low, high = label * side // classes, (label + 1) * side // classes
    ground[low:high, side // 4 : side - side // 4] = COLOURS[domain % 4]
    return np.clip(ground + rng.normal(0.0, 8.0, ground.shape), 0, 255).astype(np.uint8)


def write_tiny(
    root: Path,
    spec: ImageFolder,
    *,
    classes: tuple[str, ...] = CLASSES,
    per_class: int = 3,
    side: int = 16,
    seed: int = 0,
) -> Path:
    """Write such a data set into ``root`` and give its folder; the same images for the same seed."""
    folder = root / spec.folder
    for d, domain in enumerate(spec.domains):
        for c, label in enumerate(classes):
            place = folder / domain / label
            place.mkdir(parents=True)
            rng = np.random.default_rng([seed, d, c])
            for number in range(1, per_class + 1):
                pixels = tiny_image(d, c, len(classes), rng, side + number % 2)
                Image.fromarray(pixels).save(place / f"pic_{number:03d}.{ENDINGS[d % 4]}")
    return folder
