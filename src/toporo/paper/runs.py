"""Stored runs: keys, records and models."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from toporo.errors import DataError, warn
from toporo.files import read_json, sha256, write_text, write_whole
from toporo.paper.methods import BenchMethod
from toporo.paper.protocols import Protocol
from toporo.types import Record

SCHEMA = "toporo.run/3"
#: Version of the code behind stored runs, part of their key. Raise it by one with every change to toporo that may alter
#: the outcome of a run (methods, models, training, splits, priors, metrics): stored runs are then repeated. Changes to
#: figures, tables, pages and messages leave it alone. Other packages have their own versions: the ``code_version`` of
#: their objectives and of their benchmarks' protocols.
CODE_VERSION = 1
#: Fields of protocols and methods that are not in a run's key because they do not change its outcome.
PROTOCOL_FIELDS_NOT_IN_KEY = (
    "title", "methods", "extra", "variants", "metric", "metrics", "better", "digits", "changes", "notes", "unit",
    "rules", "headline", "average",
)  # fmt: skip
METHOD_FIELDS_NOT_IN_KEY = ("title", "control", "everywhere", "uses", "baseline", "varies", "grid")


@dataclass(frozen=True)
class Run:
    """A method under a protocol on a benchmark's data with one seed.

    Attributes
    ----------
    protocol, method, seed : settings of the run.
    fingerprint : of the data.
    variant : its name.
    fold : 0 for the benchmark's own test groups; else the number of the training regions held out in their place.
    """

    protocol: Protocol
    method: BenchMethod
    seed: int
    fingerprint: str
    variant: str = ""
    fold: int = 0

    def __str__(self) -> str:
        fold = f", fold {self.fold}" if self.fold else ""
        return f"{self.variant} {self.method.name} seed {self.seed}{fold}".strip()

    @cached_property
    def key(self) -> str:
        """``method-seed-hash``: equal keys mean equal results."""
        content = {
            "schema": SCHEMA,
            "code": _code_versions(self.method),
            "protocol": {k: v for k, v in asdict(self.protocol).items() if k not in PROTOCOL_FIELDS_NOT_IN_KEY},
            "method": {k: v for k, v in asdict(self.method).items() if k not in METHOD_FIELDS_NOT_IN_KEY},
            "seed": self.seed,
            "variant": self.variant,
            "fold": self.fold,
            "data": self.fingerprint,
        }
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()
        return f"{self.method.name}-s{self.seed}-{digest[:12]}"


def _code_versions(method: BenchMethod) -> dict[str, Any]:
    """Return versions of the code that a method's runs depend on: those of toporo, torch and the objective."""
    from toporo.objectives import OBJECTIVES  # torch takes seconds that loading a data set need not wait for

    objective = None if method.objective is None else OBJECTIVES[method.objective].code_version
    return {"toporo": CODE_VERSION, "torch": version("torch"), "objective": objective}


class Store:
    """The runs in a folder: a record ``KEY.json``, a model ``KEY.safetensors``, and checkpoints until a run ends.

    Damaged files are named in a warning, and their runs count as not done.

    Parameters
    ----------
    out : folder for results; runs are in its subfolder ``runs``.
    """

    def __init__(self, out: Path) -> None:
        self.folder = out / "runs"

    def path(self, key: str, ending: str) -> Path:
        """Return the path of one of a run's files."""
        return self.folder / f"{key}.{ending}"

    def read(self, key: str) -> Record | None:
        """Return the record of a run if it is done."""
        path, model = self.path(key, "json"), self.path(key, "safetensors")
        try:
            record, digest = read_json(path), sha256(model)
        except FileNotFoundError:
            return None
        except DataError as error:
            warn(f"{error} Its run is repeated.")
            return None
        if (
            isinstance(record, dict)
            and record.pop("checksum", None) == _checksum(record)
            and (record["key"], record.pop("model")) == (key, digest)
        ):
            return record
        warn(f"{path} or {model.name} is damaged: they do not match their checksums. Their run is repeated.")
        return None

    def write(self, record: Record, model: bytes) -> None:
        """Store the record and the model of a run, and delete its checkpoints."""
        key = record["key"]
        write_whole(self.path(key, "safetensors"), lambda stream: stream.write(model))
        sealed = json.loads(json.dumps({**record, "model": hashlib.sha256(model).hexdigest()}))
        write_text(self.path(key, "json"), json.dumps({**sealed, "checksum": _checksum(sealed)}))
        for path in self.folder.glob(f"{key}.*.checkpoint"):
            path.unlink(missing_ok=True)

    def tensors(self, key: str) -> dict[str, npt.NDArray[Any]]:
        """Return the stored tensors of a run's model."""
        path = self.path(key, "safetensors")
        try:
            return load(path.read_bytes())
        except (FileNotFoundError, SafetensorError) as error:
            raise DataError(f"{path} has no model of {key} ({error}): run it again.") from None


def _checksum(content: Record) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
