"""What candidates say of rows whose group they have not seen, and the votes that follow from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sklearn
from scipy.optimize import minimize, minimize_scalar

from toporo.estimators.candidates import Training
from toporo.estimators.effects import LEAST
from toporo.files import replacing
from toporo.types import Array
from toporo.version import __version__

#: How much rows with votes are drawn to the safe mean, beside what the rows themselves say.
CAUTION = 1.0


class Store:
    """What candidates say of rows whose group they have not seen, in files: a fit that was cut short goes on from them.

    Parameters
    ----------
    folder : where; made if need be.
    some : the rows.
    folds : into how many parts their groups are divided.
    """

    def __init__(self, folder: Path, some: Training, folds: int) -> None:
        versions = __version__, sklearn.__version__, np.__version__
        graph = None if some.graph is None else some.graph.to_json()
        plain = some.ids.groups.names, some.toward, graph, folds, some.seed, versions
        frame = hasattr(some.x, "iloc")
        columns = [column for _, column in some.x.items()] if frame else [some.x]
        texts = [list(column.cat.categories) if hasattr(column, "cat") else column.dtype for column in columns]
        arrays = [column.cat.codes if hasattr(column, "cat") else column for column in columns]
        digest = hashlib.sha256(repr((plain, texts, list(some.x) if frame else some.x.shape)).encode())
        for values in (*arrays, _codes(some.y), some.ids.codes, some.shares):
            digest.update(np.ascontiguousarray(values).tobytes())
        self.folder, self.key = folder, digest
        self.shape = len(some.y), 1 if some.classes is None else len(some.classes)
        self.failure: OSError | None = None

    def _file(self, name: str) -> Path:
        of_name = self.key.copy()
        of_name.update(name.encode())
        return self.folder / f"{of_name.hexdigest()[:32]}.npy"

    def read(self, name: str) -> Array | None:
        """What is there; None where nothing is, or nothing whole."""
        try:
            with self._file(name).open("rb") as stream:
                said = np.lib.format.read_array(stream, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return said if said.shape == self.shape and said.dtype == np.float64 and np.isfinite(said).all() else None

    def write(self, name: str, said: Array) -> None:
        """Keep it, unless that failed before: then and now ``failure`` says why."""
        if self.failure is None:
            try:
                with replacing(self._file(name)) as stream:
                    np.save(stream, said)
            except OSError as error:
                self.failure = error


def _codes(y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Targets as bytes: of classes, which may be text, those of their names."""
    return y if y.dtype.kind in "fiub" else np.array([str(label) for label in y])


def errors_in(said: Array, wanted: Array, shares: Array, parts: Iterable[npt.NDArray[np.bool_]]) -> Array:
    """The mean squared error in each part."""
    squares = ((said - wanted) ** 2).sum(axis=1)
    return np.array([np.average(squares[part], weights=shares[part]) for part in parts])


def votes_of(said: Array, wanted: Array, safe: Array, shares: Array) -> Array:
    """Votes of candidates, from what they say, (rows, outputs, candidates)."""
    root = np.sqrt(shares)[:, None]
    apart = ((said - safe[..., None]) * root[..., None]).reshape(-1, said.shape[-1])  # votes sum to 1: from the mean
    left = ((wanted - safe) * root).ravel()
    squares, products = (1.0 + CAUTION) * apart.T @ apart, apart.T @ left
    scale = float(np.trace(squares)) or 1.0
    count = said.shape[-1]
    end = minimize(
        lambda v: ((v @ squares @ v - 2.0 * products @ v) / scale, 2.0 * (squares @ v - products) / scale),
        np.full(count, 1.0 / count),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1.0, "jac": lambda _: np.ones(count)},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    votes = np.where(end.x > 1e-4, end.x, 0.0)
    return np.asarray(votes / votes.sum())


def as_sure(chances: Array, power: float) -> Array:
    """Probabilities to a power, summing to 1 again; to the power of 1 they stay as they are."""
    if power == 1.0:
        return chances
    raised = np.maximum(chances, LEAST) ** power
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def sureness_of(chances: Array, right: Array, shares: Array) -> float:
    """The power with the least log loss, 1 unless another is better."""

    def lost(power: float) -> float:
        chance = np.maximum((as_sure(chances, power) * right).sum(axis=1), LEAST)
        return float(-np.average(np.log(chance), weights=shares))

    end = minimize_scalar(lost, bounds=(0.01, 1.0), method="bounded")
    return float(end.x) if end.fun < lost(1.0) else 1.0
