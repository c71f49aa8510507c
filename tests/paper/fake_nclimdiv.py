"""A made-up file in the layout of NOAA's nClimDiv state files: plausible seasons, nobody's weather."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from toporo.paper.nclimdiv import STATES
from toporo.topology import states

#: More than TPT-48 needs; the last year is not over yet.
YEARS = range(2006, 2021)
#: Rows that are in the real file too and that nobody here wants: Alaska, the Northeast, the nation.
OTHERS = {50: 64.0, 101: 42.0, 110: 39.0}


def fake_lines(seed: int = 0) -> list[str]:
    """The lines of such a file: colder and more seasonal to the north, warm and cold years in common."""
    rng = np.random.default_rng(seed)
    common = rng.normal(0.0, 1.5, len(YEARS))
    latitudes = {noaa(code): 49.5 + states.STATES[code][2] / 24 for code in STATES} | OTHERS
    lines = []
    for number, latitude in sorted(latitudes.items()):
        for year, anomaly in zip(YEARS, common, strict=True):
            season = np.array([math.cos(2 * math.pi * month / 12) for month in range(12)])
            values = 117.6 - 1.63 * latitude - (12.0 + 0.9 * (latitude - 28.0)) * season + anomaly
            values = values + rng.normal(0.0, 2.0, 12)
            lines.append(row(number, year, values.tolist() if year < YEARS[-1] else [*values[:8], *[-99.9] * 4]))
    return lines


def noaa(code: str) -> int:
    """A state's number in NOAA's files."""
    return STATES.index(code) + 1


def row(number: int, year: int, values: list[float], element: str = "02") -> str:
    return f"{number:03d}0{element}{year}" + "".join(f"{value:6.1f}0" for value in values) + "   "


def write_fake(path: Path, seed: int = 0) -> Path:
    """Write such a file; the same bytes for the same seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in fake_lines(seed)).encode())
    return path
