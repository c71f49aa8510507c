"""A table without faults, and the case that a doctor makes of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from toporo.data.frame import Frame, read_frame
from toporo.doctor.case import Case
from toporo.doctor.diagnose import prepare
from toporo.tables.roles import Roles

GROUPS = ("ash", "birch", "cedar", "dogwood")
CHAIN = [("ash", "birch"), ("birch", "cedar"), ("cedar", "dogwood"), ("dogwood", "elm")]


def sound(size: int = 50, groups: Sequence[str] = GROUPS, seed: int = 0) -> dict[str, list[Any]]:
    """Groups of one size that overlap in two features and a colour; ``y`` a number, ``z`` a class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(groups)), size)
    x = rng.normal(size=(len(labels), 2)) + 0.3 * labels[:, None]
    y = x @ [1.0, -0.5] + rng.normal(size=len(labels))
    return {
        "g": [groups[label] for label in labels],
        "x1": x[:, 0].tolist(),
        "x2": x[:, 1].tolist(),
        "colour": [("red", "green", "blue")[k] for k in rng.integers(0, 3, len(labels))],
        "y": y.tolist(),
        "z": ["yes" if value > 0 else "no" for value in y + rng.normal(size=len(labels))],
    }


def roles(**given: Any) -> Roles:
    return Roles.of(**({"group": "g"} | given))


def case_of(columns: dict[str, Any] | Frame, *, exclude: Iterable[str] = (), **given: Any) -> Case:
    """What the checks look at, without what is measured on a sample; ``y`` and ``z`` never tell on each other."""
    frame = columns if isinstance(columns, Frame) else read_frame(columns, text=["g"])
    out = {name for name in ("y", "z") if name in frame and name != given.get("target")} | set(exclude)
    return prepare(frame, roles(**(given | {"exclude": sorted(out)})))
