r"""DG-15 and DG-60: two classes on a spiral, one group an angle.

Group e sits at angle :math:`a_e`; its two classes are at :math:`\pm r(a_e)(\cos a_e, \sin a_e)` with
:math:`r(a) = 1 + g a / \pi`, 50 points each from a unit Gaussian truncated at radius 1. Two groups touch with
probability :math:`\cos(a_e - a_{e'})` where that exceeds a cut-off. The decision boundary turns with the angle, so a
model fitted to some angles is wrong at others.

The published pickles (Xu et al. 2022, used by Qiao & Peng 2023) are read when present, else the same procedure is run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.bench.base import Benchmark, data_folder, find_file
from toporo.bench.safe_pickle import read_arrays
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, DatasetNotFoundError, UnknownNameError, listed
from toporo.files import sha256
from toporo.topology.graph import GroupGraph

SOURCES = ("auto", "published", "generated")
GENERATOR_SEED = 15


@dataclass(frozen=True)
class DGSpec:
    """The facts of one of the two data sets.

    ``growth`` is g in the radius; both values were read off the published points, all of which lie within radius 1 of
    the centres they give. ``train`` are the paper's training groups in the published file; in generated data,
    ``one_sided`` takes the groups with the smallest angles, as those of DG-15 are, else the first ones.
    """

    name: str
    file: str
    checksum: str
    groups: int
    arc: float
    growth: float
    cutoff: float
    train: tuple[int, ...]
    one_sided: bool


DG15 = DGSpec(
    name="dg15",
    file="toy_d15_spiral_tight_boundary.pkl",
    checksum="46de00f5cbb33afb315c22ce55cc127d6fead57ea09d7a578f4152c1d6900a96",
    groups=15,
    arc=math.pi,
    growth=1.8,
    cutoff=0.5,
    train=(0, 3, 4, 8, 12, 14),
    one_sided=True,
)
DG60 = DGSpec(
    name="dg60",
    file="toy_d60_spiral.pkl",
    checksum="b3bb65f047fda93d68e641eb8ea6bd9edcc32bf38279f4409161f35b5d6a6f18",
    groups=60,
    arc=2 * math.pi,
    growth=3.0,
    cutoff=0.2,
    train=(0, 1, 2, 3, 4, 5),
    one_sided=False,
)

POINTS_PER_CLASS = 50


def load(
    spec: DGSpec, folder: str | os.PathLike[str] | None = None, *, source: str = "auto", seed: int = GENERATOR_SEED
) -> Benchmark:
    """Load the benchmark.

    ``source="published"`` insists on the authors' file, ``"generated"`` on the generator; ``"auto"`` takes the file if
    the data folder (``folder``, else ``$TOPORO_DATA``) has it. A folder given in the call must have it.
    """
    if source not in SOURCES:
        raise UnknownNameError("source", source, SOURCES)
    if source == "generated":
        return generate(spec, seed=seed)
    where = data_folder(folder)
    path = find_file(where, spec.file, f"dg/{spec.file}") if where is not None else None
    if path is not None:
        return read_published(spec, path)
    if source == "published" or folder is not None:
        raise DatasetNotFoundError(
            f"{spec.name}: no {spec.file} or dg/{spec.file} in {where or 'any data folder: none was given'}. Put the "
            "published file there and name the folder with --data or $TOPORO_DATA, or use --source generated."
        )
    return generate(spec, seed=seed)


def generate(spec: DGSpec, *, seed: int = GENERATOR_SEED) -> Benchmark:
    """Draw a data set by the published procedure; the same one for the same seed."""
    rng = np.random.default_rng([seed, spec.groups])
    angles = rng.uniform(0.0, spec.arc, spec.groups)
    while np.cos(np.diff(np.sort(angles))).min() <= spec.cutoff:  # a gap that no edge could ever bridge
        angles = rng.uniform(0.0, spec.arc, spec.groups)
    x, y, ids = [], [], []
    for e, angle in enumerate(angles):
        center = _radius(spec, angle) * np.array([math.cos(angle), math.sin(angle)])
        for label, sign in ((0, 1.0), (1, -1.0)):
            x.append(sign * center + _truncated_gaussian(rng, POINTS_PER_CLASS))
            y.append(np.full(POINTS_PER_CLASS, label))
            ids.append(np.full(POINTS_PER_CLASS, e))
    closeness = np.cos(angles[:, None] - angles[None, :])
    while True:  # a data set whose graph falls apart has no topology to speak of: draw the edges again
        drawn = np.triu((closeness > spec.cutoff) & (rng.uniform(size=closeness.shape) < closeness), 1)
        adjacency = (drawn | drawn.T).astype(np.float64)
        graph = GroupGraph.from_adjacency(adjacency, range(spec.groups))
        if len(graph.components()) == 1:
            break
    train = np.argsort(angles)[: len(spec.train)] if spec.one_sided else np.arange(len(spec.train))
    return _benchmark(
        spec,
        (np.concatenate(x), np.concatenate(y), np.concatenate(ids)),
        adjacency,
        angles,
        tuple(sorted(int(e) for e in train)),
        source="generated",
        about={"generator_seed": seed},
    )


def read_published(spec: DGSpec, path: Path) -> Benchmark:
    """Read a published pickle, or one in its format."""
    arrays = read_arrays(path)
    n, k = spec.groups * POINTS_PER_CLASS * 2, spec.groups
    shapes = {"data": (n, 2), "label": (n,), "domain": (n,), "A": (k, k), "angle": (k,)}
    for key, shape in shapes.items():
        if key not in arrays or arrays[key].shape != shape:
            found = f"shape {arrays[key].shape}" if key in arrays else "nothing"
            raise DataError(f"{path} is not {spec.name}: expected an array {key!r} of shape {shape}, found {found}.")
    strange = sorted(set(arrays["domain"].tolist()) - set(range(spec.groups)))
    if strange:
        raise DataError(f"{path} is not {spec.name}: it holds rows of {listed(strange)}, expected groups 0 to {k - 1}.")
    digest = sha256(path)
    return _benchmark(
        spec,
        (arrays["data"], arrays["label"].astype(np.int64), arrays["domain"].astype(np.int64)),
        arrays["A"],
        arrays["angle"],
        spec.train,
        source="published" if digest == spec.checksum else "file",
        about={"sha256": digest},
    )


def _benchmark(
    spec: DGSpec,
    rows: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]],
    adjacency: npt.NDArray[Any],
    angles: npt.NDArray[Any],
    train: tuple[int, ...],
    *,
    source: str,
    about: dict[str, Any],
) -> Benchmark:
    plain = GroupGraph.from_adjacency(adjacency, range(spec.groups))
    x, y, ids = rows
    return Benchmark(
        name=spec.name,
        data=GroupedData.from_arrays(x, y, ids, expect=range(spec.groups)),
        graph=GroupGraph(plain.names, plain.edges, positions=_positions(spec, angles)),
        train=train,
        test=tuple(e for e in range(spec.groups) if e not in train),
        source=source,
        about=about | {"angles": {e: float(a) for e, a in enumerate(angles)}},
    )


def _positions(spec: DGSpec, angles: npt.NDArray[Any]) -> dict[Hashable, tuple[float, float]]:
    """Where to draw the groups: along the spiral in the order of their angles, evenly spaced."""
    places = np.linspace(0.0, spec.arc * (1.0 - 1.0 / len(angles)), len(angles))
    return {
        int(e): (float(_radius(spec, a) * math.cos(a)), float(_radius(spec, a) * math.sin(a)))
        for e, a in zip(np.argsort(angles), places, strict=True)
    }


def _radius(spec: DGSpec, angle: float) -> float:
    return 1.0 + spec.growth * angle / math.pi


def _truncated_gaussian(rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
    """Draws from a planar unit Gaussian, those outside the unit disc drawn again."""
    kept = np.empty((0, 2))
    while len(kept) < count:
        fresh = rng.normal(size=(4 * count, 2))
        kept = np.concatenate([kept, fresh[np.linalg.norm(fresh, axis=1) < 1.0]])
    return kept[:count]
