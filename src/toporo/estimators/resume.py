"""Out-of-fold predictions of candidates in files, from which an interrupted fit goes on."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import sklearn

from toporo.errors import warn
from toporo.estimators.candidates import Training
from toporo.files import replacing
from toporo.types import Array
from toporo.version import __version__


class Store:
    """Folder of predictions, under keys that depend on the rows, the folds and the releases of the libraries.

    Parameters
    ----------
    folder : made if need be.
    rows : the rows.
    folds : number of parts that their groups are divided into.
    """

    def __init__(self, folder: Path, rows: Training, folds: int) -> None:
        versions = __version__, sklearn.__version__, np.__version__
        graph = None if rows.graph is None else rows.graph.to_json()
        y = rows.y if rows.y.dtype.kind in "fiub" else np.array([str(label) for label in rows.y])
        plain = rows.ids.groups.names, rows.test_groups, graph, folds, rows.seed, versions, rows.x.shape, y.dtype
        self.key = hashlib.sha256(repr(plain).encode())
        for values in (rows.x, y, rows.ids.codes, rows.mass):
            self.key.update(np.ascontiguousarray(values).tobytes())
        self.folder = folder
        self.shape = len(y), 1 if rows.classes is None else len(rows.classes)
        self.full = False

    def _file(self, name: str) -> Path:
        key = self.key.copy()
        key.update(name.encode())
        return self.folder / f"{key.hexdigest()[:32]}.npy"

    def read(self, name: str) -> Array | None:
        """Return the predictions of a candidate; None where there are none, or not all."""
        try:
            with self._file(name).open("rb") as stream:
                found = np.lib.format.read_array(stream, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return found if found.shape == self.shape and found.dtype == np.float64 and np.isfinite(found).all() else None

    def write(self, name: str, predictions: Array) -> None:
        """Keep the predictions of a candidate; where that fails, warn and keep nothing more."""
        try:
            if not self.full:
                with replacing(self._file(name)) as stream:
                    np.save(stream, predictions)
        except OSError as error:
            self.full = True
            warn(
                f"the fit goes on, but its results cannot be kept in {str(self.folder)!r} ({error}), so the next one "
                "repeats it. Free some space, or choose another folder for resume."
            )
