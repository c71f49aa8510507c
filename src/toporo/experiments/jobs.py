"""One training run: what it is, what identifies it, how it is done."""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import nn

import toporo
from toporo.data.grouped import GroupedData, Split
from toporo.datasets import Benchmark
from toporo.errors import TopoRoWarning
from toporo.experiments.protocols import Method, Protocol
from toporo.files import write_text, write_whole
from toporo.models import MLP
from toporo.objectives import make_objective
from toporo.topology.graph import GroupGraph
from toporo.topology.learn import learn_topology
from toporo.topology.prior import Prior
from toporo.training import EpochRecord, TrainSettings, accuracy_by_group, features_of, train

__all__ = ["Job", "build_model", "run_job"]

SCHEMA = "toporo.run/1"
_cross_entropy = functools.partial(F.cross_entropy, reduction="none")


@dataclass(frozen=True)
class Job:
    """A method on a benchmark with a seed; its files are named by a hash of all that decides its outcome.

    That includes toporo's own sources: a change to a method makes its stored runs another run's.
    """

    protocol: Protocol
    method: Method
    seed: int
    fingerprint: str

    @property
    def key(self) -> str:
        """``method-seed-hash``: equal keys mean equal results."""
        content = {
            "schema": SCHEMA,
            "code": _code(),
            "protocol": {k: v for k, v in asdict(self.protocol).items() if k not in ("title", "paper", "notes")},
            "method": {k: v for k, v in asdict(self.method).items() if k not in ("title", "control")},
            "seed": self.seed,
            "data": self.fingerprint,
        }
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()
        return f"{self.method.name}-s{self.seed}-{digest[:12]}"

    def record_path(self, out: Path) -> Path:
        """Where its record goes once it is done."""
        return out / "runs" / f"{self.key}.json"

    def model_path(self, out: Path) -> Path:
        """Where its trained network goes."""
        return out / "runs" / f"{self.key}.safetensors"

    def checkpoint_path(self, out: Path, phase: str) -> Path:
        """Where a phase of it leaves its checkpoints."""
        return out / "runs" / f"{self.key}.{phase}.checkpoint"

    def finished(self, out: Path) -> dict[str, Any] | None:
        """Its stored record, if it is done."""
        try:
            record: dict[str, Any] = json.loads(self.record_path(out).read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return record if record.get("key") == self.key and self.model_path(out).is_file() else None


@functools.cache
def _code() -> str:
    """A checksum of what runs consist of: toporo's sources but for those that only show results, and torch."""
    root = Path(toporo.__file__).parent
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in ("report", "cli.py", "__main__.py"):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def build_model(protocol: Protocol, benchmark: Benchmark, seed: int) -> MLP:
    """The protocol's network for a benchmark, freshly initialised."""
    classes = int(benchmark.data.y.max()) + 1
    return MLP(benchmark.data.x.shape[1], classes, protocol.hidden, seed=seed)


def run_job(job: Job, benchmark: Benchmark, out: Path) -> dict[str, Any]:
    """Do one run and store it; picks up from its checkpoint, or returns the record if it was done before."""
    done = job.finished(out)
    if done is not None:
        return done
    torch.set_num_threads(1)  # the same bytes whatever the machine; runs, not operations, are done in parallel
    split = benchmark.data.select(benchmark.train).split(job.protocol.validation, job.seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TopoRoWarning)
        prior, graph = _prior(job, benchmark, split, out)
        model = build_model(job.protocol, benchmark, job.seed)
        history = _train(job, benchmark, split, model, job.method, prior, job.checkpoint_path(out, "main"))
    record = {
        "schema": SCHEMA,
        "key": job.key,
        "benchmark": benchmark.name,
        "source": benchmark.source,
        "method": job.method.name,
        "seed": job.seed,
        "prior": prior.to_dict() if prior else None,
        "topology": json.loads(graph.to_json()) if graph else None,
        "warnings": sorted({str(w.message) for w in caught if issubclass(w.category, TopoRoWarning)}),
        "history": [epoch.to_dict() for epoch in history],
    }
    tensors = {key: value.contiguous() for key, value in model.state_dict().items()}
    write_whole(job.model_path(out), lambda temporary: temporary.write_bytes(save(tensors)))
    write_text(job.record_path(out), json.dumps(record))
    for phase in ("features", "main"):
        job.checkpoint_path(out, phase).unlink(missing_ok=True)
    return record


def _train(
    job: Job,
    benchmark: Benchmark,
    split: Split,
    model: nn.Module,
    method: Method,
    prior: Prior | None,
    checkpoint: Path,
) -> list[EpochRecord]:
    protocol = job.protocol
    test = benchmark.data.select(benchmark.test)
    objective = make_objective(method.objective, split.train.groups, prior, **method.settings)
    settings = TrainSettings(
        epochs=protocol.epochs, per_group=protocol.per_group, learning_rate=protocol.learning_rate, seed=job.seed
    )
    evaluate = functools.partial(_evaluate, validation=split.validation, test=test)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    return train(model, objective, split.train, _cross_entropy, settings, evaluate=evaluate, checkpoint=checkpoint)


def _evaluate(model: nn.Module, *, validation: GroupedData, test: GroupedData) -> dict[str, Any]:
    by_group = accuracy_by_group(model, test)
    held_out = accuracy_by_group(model, validation)
    return {
        "validation": float(np.mean(list(held_out.values()))),
        "test": float(np.mean(list(by_group.values()))),
        "by_group": by_group,
    }


def _prior(job: Job, benchmark: Benchmark, split: Split, out: Path) -> tuple[Prior | None, GroupGraph | None]:
    """The method's prior and, where it was learned, the graph behind it."""
    kind, train_names = job.method.prior, benchmark.train
    if kind is None:
        return None, None
    if kind == "uniform":
        return Prior.uniform(train_names), None
    if kind == "physical":
        return benchmark.graph.prior(train_names, benchmark.test), None
    if kind == "data":
        model = build_model(job.protocol, benchmark, job.seed)
        erm = Method("erm", "ERM", "erm")
        _train(job, benchmark, split, model, erm, None, job.checkpoint_path(out, "features"))
        graph = learn_topology(
            features_of(model, split.train), split.train.ids, resamples=0, **job.protocol.data_topology
        )
        return graph.prior(train_names), graph
    settings = dict(job.protocol.inputs_topology)
    measure = settings.pop("measure")
    test = benchmark.data.select(benchmark.test)
    graph = learn_topology(
        split.train.x, split.train.ids, test_features=test.x, test_groups=test.ids, resamples=0, **settings
    )
    return graph.prior(train_names, benchmark.test, measure=measure), graph
