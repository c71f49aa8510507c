"""Everything in toporo that reads a file, as the product reads it, and the small files that are damaged for it.

A reader gets the path of a damaged file, with the name of the seed it was made from, and a source of randomness; it
ends well, or raises :class:`toporo.TopoRoError`. ``python tools/fuzz.py --corpus`` writes the seeds anew; files below
``tests/corpus/*/once-*`` broke something once and are kept by hand.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import io
import json
import pickle
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import fuzz_mutators as mutators
import numpy as np
import pyarrow as pa
import tifffile
import torch
import typer
from PIL import Image
from pyarrow import feather, parquet
from safetensors.numpy import save

from toporo import GroupGraph, TopoRoError
from toporo.bench import BENCHMARKS, runner, sen1floods11, tpt48
from toporo.bench.base import load_dataset
from toporo.bench.dg import DG15, read_published
from toporo.bench.fits import class_probabilities
from toporo.bench.flood_chips import read_geotiff
from toporo.bench.results import Job, make_rows
from toporo.bench.safe_pickle import read_arrays
from toporo.bench.tables import print_rows, stored_table
from toporo.choice.penalty import PenaltyChoice
from toporo.cli.common import graph_figure, names_or_file, write_picture
from toporo.data import images
from toporo.data.frame import read_frame
from toporo.data.grouped import GroupedData
from toporo.doctor import examine
from toporo.files import read_json
from toporo.graphs import as_graph, with_text_names
from toporo.models import MLP
from toporo.models.weights import read_weights
from toporo.objectives import TRO
from toporo.pages import model as model_page
from toporo.tables import fit_table
from toporo.tables.evaluate import Evaluation
from toporo.tables.model import TableModel, load_model
from toporo.tables.read import read_points
from toporo.topology.prior import Prior
from toporo.training import TrainSettings, train
from toporo.training.loop import RoundRecord

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"


class RefusedError(Exception):
    """A reader said no in another way than by an error of toporo."""


@dataclass(frozen=True)
class Reader:
    """A way into toporo.

    Attributes
    ----------
    read : what the product does with the file.
    mutators : ways to damage one; each is as likely.
    folder : of its seeds in the corpus; ``made`` gives further ones that only this version of toporo can write.
    ending : how the names of its seeds end.
    spare : bytes of memory that reading may take whatever the size of the file.
    """

    read: Callable[[Path, Random], object]
    mutators: tuple[mutators.Mutator, ...]
    folder: str
    ending: str | tuple[str, ...] = ""
    made: Callable[[], Mapping[str, bytes]] | None = None
    spare: int = 256 << 20

    @functools.cached_property
    def seeds(self) -> dict[str, bytes]:
        """What is damaged, by name."""
        files = (path for path in sorted((CORPUS / self.folder).iterdir()) if path.name.endswith(self.ending))
        return {path.name: path.read_bytes() for path in files} if self.made is None else dict(self.made())


Step = Callable[[], object]


def now_and_then(rng: Random, share: float, *steps: Step) -> list[Step]:
    """Some of the steps that take long."""
    return [step for step in steps if rng.random() < share]


def each(*steps: Step) -> None:
    """Try all of it; a file that one of them refuses is refused."""
    refused: Exception | None = None
    for step in steps:
        try:
            step()
        except (TopoRoError, typer.BadParameter) as error:
            refused = error
    if refused is not None:
        raise refused


# ---------------------------------------------------------------------- tables and graphs


@functools.cache
def fitted() -> TableModel:
    """A model to predict with."""
    with tempfile.TemporaryDirectory() as folder:
        return load_model(_model_folder(CORPUS / "model" / "linear.json", Path(folder)))


def table(file: Path, rng: Random) -> None:
    """As ``predict`` reads it, always; as ``fit``, ``evaluate``, ``topology`` and ``doctor`` do, now and then."""
    further = [
        lambda: fit_table(file, target="y", group="state", penalty=1.0),
        lambda: fit_table(file, target="colour", group="state", penalty=1.0, drop_missing=True),
        lambda: fitted().evaluate(file, resamples=20),
        lambda: read_points(file, "state").standardised(),
        lambda: examine(file, group="state", target="y").to_dict(),
        lambda: list(fitted().portions(file, optional=["state"], rows=7)),
    ]
    each(lambda: read_frame(file), lambda: fitted().predict(file), *now_and_then(rng, 0.12, *further))


def graph(file: Path, rng: Random) -> None:
    """Read, weighed and written again; drawn now and then."""
    read = with_text_names(as_graph(file))
    names = list(read.names)
    again = GroupGraph.from_json(read.to_json())
    steps = [lambda: again.prior(names[:-1], names[-1:]), lambda: repr((again.hops(names[:1]), again.components()))]
    picture = file.with_name("graph.svg")
    each(*steps, *now_and_then(rng, 0.03, lambda: write_picture(picture, lambda: graph_figure(again.plot, len(names)))))


def names(file: Path, rng: Random) -> None:
    """``--test-groups @FILE``."""
    names_or_file(f"@{file}", "--test-groups")


# ---------------------------------------------------------------------- models


def _model_folder(file: Path, out: Path) -> Path:
    """A model folder with this file, and the whole one that belongs to it."""
    name = file.stem.rpartition("-")[2]
    for kind, target in ((".json", "model.json"), (".safetensors", "weights.safetensors")):
        shutil.copyfile(file if file.suffix == kind else CORPUS / "model" / (name + kind), out / target)
    return out


def _forge(folder: Path) -> None:
    """Make the checksums of a model folder agree, as whoever can write it can."""
    file = folder / "model.json"
    try:
        content = json.loads(file.read_bytes())
        arrays = (folder / "weights.safetensors").read_bytes()
        content["files"]["weights.safetensors"] = hashlib.sha256(arrays).hexdigest()
        plain = {key: value for key, value in content.items() if key != "checksum"}
        canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        content["checksum"] = hashlib.sha256(canonical.encode()).hexdigest()
        file.write_text(json.dumps(content), encoding="utf-8")
    except (ValueError, TypeError, KeyError, RecursionError):
        return  # not a manifest any more


def model(file: Path, rng: Random, *, forged: bool) -> None:
    """Loaded, then used as ``predict``, ``explain``, ``evaluate`` and ``report`` do."""
    folder = _model_folder(file, Path(tempfile.mkdtemp(dir=file.parent)))
    if forged:
        _forge(folder)
    loaded = load_model(folder)
    rows = CORPUS / "table" / "plain.csv"
    further = [
        lambda: write_picture(folder / "plot.svg", lambda: graph_figure(loaded.estimator.plot, len(loaded.groups))),
        lambda: model_page.write_model_report(loaded, folder / "report.html"),
        lambda: loaded.evaluate(rows, resamples=20),
        lambda: loaded.save(folder / "again"),
    ]
    steps = [
        lambda: list(loaded.portions(rows, optional=[loaded.group])),
        lambda: (str(loaded.explain()), loaded.explain().to_csv(), json.dumps(loaded.explain().to_dict())),
    ]
    each(*steps, *now_and_then(rng, 0.03, *further))


def checkpoint(file: Path, rng: Random) -> None:
    """Training that goes on where the file says it was."""
    train(**_training(), checkpoint=file)


def _training() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    data = GroupedData.from_arrays(rng.normal(size=(24, 3)), rng.integers(0, 2, 24), np.repeat(["a", "b", "c"], 8))
    objective = TRO(Prior.uniform(["a", "b", "c"]))
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    settings = TrainSettings(rounds=2, per_group=8)
    return {"model": MLP(3, 2, (4,), seed=0), "objective": objective, "data": data, "loss": loss, "settings": settings}


def weights(file: Path, rng: Random) -> None:
    """Weights of a network for images; whole ones are too large for a corpus, so all are refused, some late."""
    read_weights(file, depth=18)


# ---------------------------------------------------------------------- results


def results(file: Path, rng: Random) -> None:
    """``reproduce --show``."""
    protocol, rows, about = stored_table("dg15", file)
    for style in ("terminal", "markdown", "json"):
        with contextlib.redirect_stdout(io.StringIO()):
            print_rows(protocol, rows, about, style=style)


_PLACE = tempfile.TemporaryDirectory(prefix="toporo-fuzz-run-")


@functools.cache
def _run() -> tuple[Job, Any, Path]:
    """A run that was done, its data, and where it is."""
    protocol = replace(BENCHMARKS["dg15"].protocol, rounds=2)
    loaded = load_dataset("dg15", source="generated")
    job = Job(protocol, protocol.method("tro-physical"), 0, loaded.fingerprint)
    out = Path(_PLACE.name)
    (out / "runs").mkdir(exist_ok=True)
    runner.run_job(job, loaded, out)
    return job, loaded, out


@functools.cache
def run_files() -> dict[str, bytes]:
    """The record and the network of a run: named by its code, so made here and now."""
    job, _, out = _run()
    return {"record.json": job.record_path(out).read_bytes(), "network.safetensors": job.model_path(out).read_bytes()}


def run(file: Path, rng: Random, *, forged: bool) -> None:
    """What was run before, as ``reproduce`` finds it; what it cannot use it would run again."""
    job, loaded, _ = _run()
    out = file.parent / "out"
    (out / "runs").mkdir(parents=True)
    content = run_files() | {file.name: file.read_bytes()}
    record = _sealed(content) if forged else content["record.json"]
    job.record_path(out).write_bytes(record)
    job.model_path(out).write_bytes(content["network.safetensors"])
    done = job.finished(out, network=True)
    if done is None:
        raise RefusedError
    make_rows(job.protocol, [done])
    class_probabilities(job, loaded, out, np.zeros((1, 2)))


def _sealed(content: Mapping[str, bytes]) -> bytes:
    """The record of a run with the right checksums, where it has any."""
    try:
        record = json.loads(content["record.json"])
        if record.pop("checksum", None) is None:
            return content["record.json"]
        record["model"] = hashlib.sha256(content["network.safetensors"]).hexdigest()
        record["checksum"] = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
        return json.dumps(record).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return content["record.json"]  # not a record any more


def records(file: Path, rng: Random) -> None:
    """Records that are parts of other files, or that a caller kept: priors, rounds, choices, evaluations."""
    kinds: dict[str, Any] = {"prior": Prior, "round": RoundRecord, "choice": PenaltyChoice, "evaluation": Evaluation}
    read = kinds[file.stem.rpartition("-")[2]].from_dict(read_json(file))
    json.dumps(read.to_dict())


# ---------------------------------------------------------------------- data sets


def published(file: Path, rng: Random) -> None:
    """A pickle of arrays; that of DG-15 as a data set, too."""
    each(lambda: read_arrays(file), *([lambda: read_published(DG15, file)] if file.name.startswith("dg15") else []))


def picture(file: Path, rng: Random) -> None:
    """An image file to pixels."""
    images.decode_all([images.ImageFile(file.name, file, file.stat().st_size, 0)], 32, workers=1, progress=False)


def packed(file: Path, rng: Random) -> None:
    """A folder of packed images; half of the manifests have a digest that agrees."""
    manifest, pixels = file.with_name("manifest.json"), file.with_name("pixels.u8")
    if file.suffix == ".json":
        file.rename(manifest)
        shutil.copyfile(CORPUS / "packed" / "pixels.u8", pixels)
    else:
        shutil.copyfile(CORPUS / "packed" / "manifest.json", manifest)
    if rng.random() < 0.5:
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            content = json.loads(manifest.read_bytes())
            digest = images.image_digest(content["pixels"], content["size"], content["names"], content["classes"])
            manifest.write_text(json.dumps(content | {"digest": digest}), encoding="utf-8")
    images.open_packed(file.parent)
    images.verify(file.parent)


def _in_bucket(place: Path, read: Callable[[Path], object]) -> Callable[[Path, Random], object]:
    """Read a file that is at some place below a folder."""

    def placed(file: Path, rng: Random) -> object:
        root = file.parent / "root"
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        for other in (CORPUS / "chips").glob("flood_*"):
            (root / sen1floods11.LISTS).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(other, root / sen1floods11.LISTS / other.name)
        shutil.copyfile(file, root / (place.parent / file.name if place.name == "*" else place))
        return read(root)

    return placed


def climate_file() -> dict[str, bytes]:
    """NOAA's file: 55 kB, so made here."""
    line = "".join(f"{5 * month + 10.25:7.2f}" for month in range(12))
    states = sorted(state.noaa for state in tpt48.STATES.values())
    return {"tmpcst": "\n".join(f"{state:03}002{year}{line}   " for state in states for year in tpt48.YEARS).encode()}


_TEXT, _JSON, _BYTES = (mutators.cells, mutators.damage), (mutators.json_value, mutators.damage), (mutators.damage,)
_TENSORS = (mutators.tensors, mutators.damage)
#: By name, in the order of the table.
READERS: dict[str, Reader] = {
    "csv": Reader(table, _TEXT, "table", (".csv", ".tsv", ".gz")),
    "parquet": Reader(table, _BYTES, "table", ".parquet"),
    "feather": Reader(table, _BYTES, "table", ".feather"),
    "graph-json": Reader(graph, _JSON, "graph", ".json"),
    "graph-csv": Reader(graph, _TEXT, "graph", (".csv", ".tsv", ".gz")),
    "graph-table": Reader(graph, _BYTES, "graph", (".parquet", ".feather")),
    "names": Reader(names, _TEXT, "names"),
    "model-damaged": Reader(functools.partial(model, forged=False), (*_JSON, mutators.tensors), "model"),
    "model-forged": Reader(functools.partial(model, forged=True), _JSON, "model", ".json"),
    "weights-forged": Reader(functools.partial(model, forged=True), _TENSORS, "model", ".safetensors"),
    "checkpoint": Reader(checkpoint, _TENSORS, "checkpoint"),
    "weights": Reader(weights, _TENSORS, "weights"),
    "results": Reader(results, _JSON, "results"),
    "run-damaged": Reader(functools.partial(run, forged=False), _JSON, "", made=run_files),
    "run-forged": Reader(functools.partial(run, forged=True), (*_JSON, mutators.tensors), "", made=run_files),
    "records": Reader(records, _JSON, "records"),
    "pickle": Reader(published, (mutators.opcodes, mutators.damage), "pickle"),
    "tiff": Reader(lambda file, rng: read_geotiff(file), _BYTES, "tiff"),
    # Up to 67 million pixels, unpacked.
    "images": Reader(picture, (mutators.png_chunks, mutators.damage), "images", spare=3 << 29),
    "packed": Reader(packed, _JSON, "packed"),
    "chip-lists": Reader(_in_bucket(sen1floods11.LISTS / "*", sen1floods11.read_lists), _TEXT, "chips", ".csv"),
    "chip-events": Reader(_in_bucket(sen1floods11.METADATA, sen1floods11.read_metadata), _JSON, "chips", ".geojson"),
    "climate": Reader(lambda file, rng: tpt48.read_temperatures(file), _TEXT, "", made=climate_file),
}  # fmt: skip


# ---------------------------------------------------------------------- the corpus


def write_corpus(corpus: Path) -> None:
    """Write every seed but those that are kept by hand."""
    for name, content in _corpus().items():
        path = corpus / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _columns() -> dict[str, list[Any]]:
    rng = np.random.default_rng(0)
    rows = 24
    x = rng.normal(size=rows).round(3)
    return {
        "state": [("NY", "PA", "OH", "IN")[row % 4] for row in range(rows)],
        "y": (2 * x + rng.normal(size=rows)).round(3).tolist(),
        "x": x.tolist(),
        "income, net": [None if row % 7 == 3 else 1000 * row for row in range(rows)],
        "when": [f"2024-{1 + row % 12:02}-{1 + row:02}" for row in range(rows)],
        "colour": [("red", "green", "blüe")[row % 3] for row in range(rows)],
    }


def _csv(columns: Mapping[str, Sequence[Any]], sign: str) -> bytes:
    quoted = [f'"{name}"' if sign in name else name for name in columns]
    rows = zip(*columns.values(), strict=True)
    cells = [quoted, *(["" if cell is None else str(cell) for cell in row] for row in rows)]
    return ("\n".join(sign.join(line) for line in cells) + "\n").encode()


def _written(write: Callable[[Any], object]) -> bytes:
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


def _feather(columns: Any, packing: str) -> bytes:
    return _written(lambda out: feather.write_feather(columns, out, compression=packing))


_UNPACKED = {"compression": "none", "use_dictionary": False}


def _corpus() -> dict[str, bytes]:
    columns = _columns()
    typed = pa.table(columns)
    typed = typed.set_column(4, "when", typed["when"].cast(pa.date32()))
    typed = typed.set_column(5, "colour", typed["colour"].dictionary_encode())
    seeds = {
        "table/plain.csv": _csv(columns, ","),
        "table/tabs.tsv": _csv(columns, "\t"),
        "table/packed.csv.gz": gzip.compress(_csv(columns, ","), mtime=0),
        "table/snappy.parquet": _written(lambda out: parquet.write_table(typed, out)),
        "table/plain.parquet": _written(lambda out: parquet.write_table(typed, out, **_UNPACKED)),
        **{f"table/{kind}.feather": _feather(typed, kind) for kind in ("uncompressed", "lz4", "zstd")},
        "names/names.txt": "NY\nPA\n\n Ohio \nblüe\n".encode(),
    }
    return seeds | _graphs() | _models() | _results() | _datasets()


def _graphs() -> dict[str, bytes]:
    lines = GroupGraph.from_edges([("NY", "PA", 1.5), ("PA", "OH", 2.0), ("OH", "IN", 1.0), ("IN", "NY", 0.5)])
    placed = GroupGraph(lines.names, lines.edges, positions={name: (i, i * i) for i, name in enumerate(lines.names)})
    numbers = GroupGraph.from_edges([(1, 2), (2, 3), (3, 4)])
    edges: dict[str, list[Any]] = {"from": ["NY", "PA", "OH"], "to": ["PA", "OH", "IN"], "length": [1.0, 2.5, 3.0]}
    return {
        "graph/placed.json": placed.to_json().encode(),
        "graph/numbers.json": numbers.to_json().encode(),
        "graph/edges.csv": _csv(edges, ","),
        "graph/edges.tsv": _csv(edges, "\t"),
        "graph/edges.csv.gz": gzip.compress(_csv(edges, ","), mtime=0),
        "graph/edges.parquet": _written(lambda out: parquet.write_table(pa.table(edges), out)),
        "graph/edges.feather": _feather(pa.table(edges), "uncompressed"),
    }


def _models() -> dict[str, bytes]:
    edges = [("NY", "PA"), ("PA", "OH"), ("OH", "IN"), ("IN", "NY"), ("IN", "IL")]
    kinds: dict[str, dict[str, Any]] = {
        "linear": {"target": "y", "model": "linear", "graph": edges, "test_groups": ["IL"]},
        "classes": {"target": "colour", "penalty": 1.0, "graph": edges},
        "network": {"target": "y", "model": "mlp", "hidden": (3,), "epochs": 2, "graph": edges, "test_groups": ["IL"]},
    }
    seeds = {}
    with tempfile.TemporaryDirectory() as place:
        for name, settings in kinds.items():
            folder = Path(place, name)
            fit_table(_columns(), group="state", **settings).save(folder)
            seeds[f"model/{name}.json"] = (folder / "model.json").read_bytes()
            seeds[f"model/{name}.safetensors"] = (folder / "weights.safetensors").read_bytes()
        train(**_training(), checkpoint=Path(place, "checkpoint"))
        seeds["checkpoint/two.checkpoint"] = Path(place, "checkpoint").read_bytes()
        seeds["checkpoint/earlier.checkpoint"] = _unsealed(seeds["checkpoint/two.checkpoint"])
        evaluation = load_model(Path(place, "linear")).evaluate(_columns(), resamples=20)
        choice = load_model(Path(place, "linear")).estimator.choice_
    prior = GroupGraph.from_edges(edges).prior(["NY", "PA", "OH", "IN"], ["IL"])
    entry = RoundRecord(1, 0.5, dict(prior.weights), {"test": 0.9})
    kept = {"evaluation": evaluation, "choice": choice, "prior": prior, "round": entry}
    tensors: dict[str, Any] = {"conv1.weight": np.zeros((4, 3, 1, 1)), "layer1.0.conv1.weight": np.ones(3, np.float16)}
    seeds["weights/small.safetensors"] = save(tensors, metadata={"toporo.style": "torchvision"})
    return seeds | {f"records/{name}.json": json.dumps(record.to_dict()).encode() for name, record in kept.items()}


def _unsealed(checkpoint: bytes) -> bytes:
    """A checkpoint as earlier versions wrote it, without a checksum that would stop all that is damaged."""
    size = int.from_bytes(checkpoint[:8], "little")
    header = json.loads(checkpoint[8 : 8 + size])
    header["__metadata__"].pop("checksum", None)
    header["__metadata__"]["schema"] = "toporo.checkpoint/1"
    table = json.dumps(header).encode()
    table += b" " * (-len(table) % 8)
    return len(table).to_bytes(8, "little") + table + checkpoint[8 + size :]


def _results() -> dict[str, bytes]:
    job, _, out = _run()
    rows = make_rows(job.protocol, [json.loads(job.record_path(out).read_bytes())])
    about = {"benchmark": "dg15", "settings": {"rounds": 2}, "seconds": 1.5, "machine": "x"}
    plain = [asdict(row) for row in rows]
    whole = {"schema": "toporo.results/2", "about": about, "rows": plain}
    return {"results/rows.json": json.dumps(plain).encode(), "results/about.json": json.dumps(whole).encode()}


_PICTURES = ("jpeg", "png", "bmp", "webp", "ppm", "tiff")


def _datasets() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    loaded = load_dataset("dg15", source="generated")
    # The whole data set is large for a corpus: its shapes, but half precision.
    arrays = {
        "data": loaded.data.x.astype(np.float16),
        "label": loaded.data.y.astype(np.int8),
        "domain": np.repeat(np.arange(15, dtype=np.int8), len(loaded.data.x) // 15),
        "A": np.ones((15, 15), np.int8),
        "angle": rng.random(15),
    }
    small = {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(3, dtype=">i4")}
    pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    chip = rng.normal(size=(2, 16, 16)).astype(np.float32)
    tiffs: dict[str, dict[str, Any]] = {
        "plain": {"data": chip},
        "packed": {"data": chip, "compression": "deflate", "tile": (16, 16), "planarconfig": "separate"},
        "lzw": {"data": (chip[0] > 0).astype(np.int16), "compression": "lzw", "predictor": True},
    }
    names, classes = ["cat/1.png", "dog/2.png"], ["cat", "dog"]
    store = rng.integers(0, 256, (2, 4, 4, 3), dtype=np.uint8).tobytes()
    digest = hashlib.sha256(store).hexdigest()
    whole = images.image_digest(digest, 4, names, classes)
    manifest = images.Manifest(4, tuple(names), tuple(classes), (10, 20), (1, 2), ("0" * 64,) * 2, digest, whole)
    ring = [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    places = (("Polygon", [ring]), ("MultiPolygon", [[ring]]))
    features = [
        {"properties": {"location": f"Place{i}", "s1_date": "2020/1/2"}, "geometry": {"type": kind, "coordinates": at}}
        for i, (kind, at) in enumerate(places)
    ]
    return {
        **{f"pickle/small-{protocol}.pkl": pickle.dumps(small, protocol=protocol) for protocol in (3, 4)},
        "pickle/dg15.pkl": pickle.dumps(arrays, protocol=4),
        **{f"images/{kind}.{kind}": _written(functools.partial(picture.save, format=kind)) for kind in _PICTURES},
        **{f"tiff/{name}.tif": _written(functools.partial(tifffile.imwrite, **how)) for name, how in tiffs.items()},
        "packed/manifest.json": json.dumps({"schema": images.SCHEMA, **asdict(manifest)}).encode(),
        "packed/pixels.u8": store,
        **{
            f"chips/flood_{role}_data.csv": f"{place}_1_S1Hand.tif,{place}_1_LabelHand.tif\n".encode()
            for role, place in zip(sen1floods11.ROLES, ("Ghana", "India", "Spain", "Bolivia"), strict=True)
        },
        "chips/events.geojson": json.dumps({"type": "FeatureCollection", "features": features}).encode(),
    }  # fmt: skip
