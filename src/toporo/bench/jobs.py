"""One run: what it is, what identifies it, how it is stored."""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

import toporo
from toporo.bench.assignment import Assignment, Runtime
from toporo.bench.base import Benchmark
from toporo.bench.definitions import Protocol
from toporo.bench.fits import FITS
from toporo.bench.methods import Method
from toporo.errors import TopoRoWarning
from toporo.files import write_text, write_whole

SCHEMA = "toporo.run/2"
#: Sources that no run depends on: folders and modules of toporo.
SHOWING = ("pages", "theory", "cli", "__main__.py", "bench/tables.py", "bench/results.py", "bench/study.py")
#: What of a protocol does not decide how a run comes out.
UNDECIDING = (
    "title", "methods", "extra", "variants", "metric", "metrics", "better", "digits", "changes", "notes", "unit",
    "headline", "average",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A method on a benchmark with a seed; its files are named by a hash of all that decides its outcome.

    That includes toporo's own sources: a change to a method makes its stored runs another run's.
    """

    protocol: Protocol
    method: Method
    seed: int
    fingerprint: str
    variant: str = ""

    @property
    def key(self) -> str:
        """``method-seed-hash``: equal keys mean equal results."""
        content = {
            "schema": SCHEMA,
            "code": _code(),
            "protocol": {k: v for k, v in asdict(self.protocol).items() if k not in UNDECIDING},
            "method": {k: v for k, v in asdict(self.method).items() if k not in ("title", "control")},
            "seed": self.seed,
            "variant": self.variant,
            "data": self.fingerprint,
        }
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()
        return f"{self.method.name}-s{self.seed}-{digest[:12]}"

    def record_path(self, out: Path) -> Path:
        """Where its record goes once it is done."""
        return out / "runs" / f"{self.key}.json"

    def model_path(self, out: Path) -> Path:
        """Where its trained model goes."""
        return out / "runs" / f"{self.key}.safetensors"

    def checkpoint_path(self, out: Path, phase: str) -> Path:
        """Where a phase of it leaves its checkpoints."""
        return out / "runs" / f"{self.key}.{phase}.checkpoint"

    def finished(self, out: Path, *, network: bool = False) -> dict[str, Any] | None:
        """Its stored record, if it is done; where its network is wanted, if that was stored too."""
        try:
            record: dict[str, Any] = json.loads(self.record_path(out).read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        lacking = network and not record.get("network_kept", True)
        return record if record.get("key") == self.key and self.model_path(out).is_file() and not lacking else None


@functools.cache
def _code() -> str:
    """A checksum of what runs consist of: toporo's sources but for those that only show results, and torch."""
    root = Path(toporo.__file__).parent
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name not in SHOWING and name.split("/")[0] not in SHOWING:
            digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()


def run_job(job: Job, benchmark: Benchmark, out: Path, runtime: Runtime | None = None) -> dict[str, Any]:
    """Do one run and store it; picks up from its checkpoint, or returns the record if it was done before."""
    runtime = runtime or Runtime()
    done = job.finished(out, network=runtime.keep_models)
    if done is not None:
        return done
    torch.set_num_threads(1)  # the same bytes whatever the machine; runs, not operations, are done in parallel
    checkpoint = functools.partial(job.checkpoint_path, out)
    plain = replace(job, method=job.protocol.method("erm")) if "erm" in job.protocol.known else job
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TopoRoWarning)
        fitted = FITS[job.method.model](
            Assignment(
                job.protocol,
                job.method,
                job.seed,
                benchmark,
                checkpoint,
                lambda name: out / "runs" / f"{plain.key}.{name}",
                runtime,
            )
        )
    record = {
        "schema": SCHEMA,
        "key": job.key,
        "benchmark": benchmark.name,
        "variant": job.variant,
        "source": benchmark.source,
        "method": job.method.name,
        "settings": {"objective": job.method.objective, **job.method.settings, "prior": job.method.prior},
        "seed": job.seed,
        "prior": fitted.prior.to_dict() if fitted.prior else None,
        "topology": json.loads(fitted.graph.to_json()) if fitted.graph else None,
        "choice": fitted.choice,
        "warnings": sorted({str(w.message) for w in caught if issubclass(w.category, TopoRoWarning)}),
        "history": [epoch.to_dict() for epoch in fitted.history],
    }
    for name, value in (("samples", fitted.samples), ("timing", fitted.timing)):
        if value is not None:
            record[name] = dict(value)
    if fitted.timing is not None:
        record["network_kept"] = runtime.keep_models
    tensors = {key: value.contiguous() for key, value in fitted.tensors.items()}
    write_whole(job.model_path(out), lambda temporary: temporary.write_bytes(save(tensors)))
    write_text(job.record_path(out), json.dumps(record))
    for phase in ("features", "main"):
        checkpoint(phase).unlink(missing_ok=True)
    return record
