"""Python Optimal Transport: the exact earth mover's distance."""

from __future__ import annotations

from typing import Any

from libraries import load


def pot() -> Any:
    """Return the module."""
    return load("ot")  # codespell:ignore ot
