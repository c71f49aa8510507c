"""Rows in groups, batches of them, images and tables."""

from __future__ import annotations

import importlib
from typing import Any

# Each name is imported when first used. Type checkers read the same from __init__.pyi; a test keeps the two in step.
_HOME = {
    "IMAGE_ENDINGS": "toporo.data.images",
    "GroupedData": "toporo.data.grouped",
    "ImageFile": "toporo.data.images",
    "ImageStore": "toporo.data.images",
    "Split": "toporo.data.grouped",
    "TileStore": "toporo.data.images",
    "decode_all": "toporo.data.images",
    "find_images": "toporo.data.images",
    "group_batches": "toporo.data.batches",
    "group_rng": "toporo.data.grouped",
    "tensors": "toporo.data.batches",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'toporo.data' has no attribute {name!r}")
