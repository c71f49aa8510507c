"""Any bytes give a value or a TopoRoError: whatever reads files is given damaged ones, made from those in tests/corpus.

``make fuzz MINUTES=5`` does this for longer and prints how many cases ran. A crash ends the process; pytest then names
the test, and its folder keeps the file. Files named ``once-*`` broke something once; each is read as it is.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import io
import json
import math
import os
import re
import resource
import shutil
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toporo import GroupedData, GroupGraph, Prior, TopoRoError, fit_table, load_model, write_model_report
from toporo.choice.penalty import PenaltyChoice
from toporo.cli.options import split_names
from toporo.cli.outputs import graph_figure, write_picture
from toporo.coordinates import read_coordinates
from toporo.data import images
from toporo.data.frame import read_frame
from toporo.doctor import examine
from toporo.files import read_json
from toporo.graphs import as_graph, with_text_names
from toporo.objectives import TRO
from toporo.paper import flood_chips, nclimdiv
from toporo.paper.results import Results
from toporo.paper.safe_pickle import read_arrays
from toporo.paper.tables import print_results
from toporo.tables import Evaluation, TableModel
from toporo.tables.read import read_points
from toporo.tables.roles import Roles
from toporo.training import MLP, Batches, RoundRecord, TrainingPlan, fit
from toporo.vision.weights import read_weights

CORPUS = Path(__file__).parent / "corpus"
#: Minutes of `make fuzz` over all readers, and the processes that share them; without minutes a test is short.
MINUTES = float(os.environ.get("FUZZ_MINUTES", 0))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
#: Bytes of a file, and of the memory that reading one may take (pictures may have 67 million pixels).
LONGEST, SPARE = 2 << 20, {"images": 3 << 29}
settings.register_profile(
    "quick", max_examples=50, derandomize=True, database=None, deadline=20_000, suppress_health_check=list(HealthCheck)
)
settings.register_profile("fuzz", settings.get_profile("quick"), max_examples=100, derandomize=False, print_blob=True)

# ---------------------------------------------------------------- damage

TEXTS = ["", "x", "nan", "inf", "1e400", "=1+1", "\x1b[31m", "../../x", "\ud800", "a\0b", "2024-02-30", "x" * 140_000]
NUMERALS = [0, -1, 1.5, math.nan, -math.inf, 1e308, 10**400]
ODD = [[None, True], NUMERALS, TEXTS, [[], [[]], [None], ["a", "a"]], [{}, {"a": 1}]]
#: Values by their type, as they stand in a file; the last ones no library would write.
JSON = [[json.dumps(value) for value in kind] for kind in ODD] + [["1e400", "9" * 5000, "[" * 800 + "]" * 800]]
CELLS = [*TEXTS, "0", "-1", "1e308", "9" * 5000, '"', '"a\nb"', "\r", ",", "\t", "NULL", "ä", "\ufeff", "10000-01-01"]

#: Where counters, lengths and offsets break.
NUMBERS = [(2**bits - less).to_bytes(9, "little")[:n] for bits in (0, 15, 31, 63) for less in (0, 1) for n in (4, 8)]


def in_bytes(draw: Any, data: bytes) -> bytes:
    """Some bytes replaced by others, by a number, by nothing or by themselves many times."""
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    block = data[at : at + draw(st.sampled_from([1, 8, 64, 1024]))]
    patch = draw(st.binary(max_size=8) | st.sampled_from([*NUMBERS, b"", block * 10, block * 1000]))
    return data[:at] + patch + data[at + draw(st.sampled_from([len(patch), len(patch), 0, len(block), len(data)])) :]


def places(value: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every value of a JSON document: its path, in which all entries of a list are alike, and its holder and key."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        here = f"{path}.{key if isinstance(value, dict) else '*'}"
        yield here, value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key], here)


def in_json(draw: Any, data: bytes) -> bytes:
    """A value replaced by an odd one, or lost."""
    whole = [json.loads(data)]
    found: dict[str, list[tuple[Any, Any]]] = {}
    for path, holder, key in places(whole):
        found.setdefault(path, []).append((holder, key))
    holder, key = draw(st.sampled_from(found[draw(st.sampled_from(sorted(found)))]))
    if holder is not whole and draw(st.integers(0, 7)) == 5:
        del holder[key]
    else:
        holder[key] = "@odd@"
    return json.dumps(whole[0]).replace('"@odd@"', draw(st.sampled_from(draw(st.sampled_from(JSON))))).encode()


def in_cells(draw: Any, data: bytes) -> bytes:
    """A cell of a text file, or a whole column, is another one."""
    cells = re.split(rb"([,;\t\n])", data)  # and the signs between them
    width = 2 * len(re.split(rb"[,;\t]", data.partition(b"\n")[0]))
    odd = draw(st.sampled_from(CELLS) | st.text(max_size=8)).encode("utf-8", "surrogatepass")
    for place in range(draw(st.integers(0, len(cells) - 1)), len(cells), draw(st.sampled_from([width, len(cells)]))):
        cells[place] = odd
    return b"".join(cells)


def in_file(draw: Any, data: bytes) -> bytes:
    """As its format suggests, or any bytes."""
    with contextlib.suppress(OSError, EOFError, zlib.error, ValueError, RecursionError):  # not that format any more
        if draw(st.integers(0, 7)) == 1:
            return in_bytes(draw, data)
        if data[:2] == b"\x1f\x8b":
            return gzip.compress(in_cells(draw, gzip.decompress(data)), mtime=0)
        if data[:1] in (b"{", b"["):
            return in_json(draw, data)
        if data[8:9] == b"{":  # safetensors: the length of its table of contents, which is JSON, and the arrays
            end = 8 + int.from_bytes(data[:8], "little")
            header = in_json(draw, data[8:end])
            return len(header).to_bytes(8, "little") + header + data[end:]
    return in_bytes(draw, data) if b"\0" in data else in_cells(draw, data)


@st.composite
def damaged(draw: Any, seeds: Mapping[str, bytes]) -> tuple[str, bytes, bool]:
    """The name of a file, its content, and whether to do with it what takes long, too."""
    name, other = (draw(st.sampled_from(sorted(seeds))) for _ in range(2))
    data = seeds[name]
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        data = in_file(draw, data)
    if draw(st.integers(0, 9)) == 5:  # the end of another file
        data = data[: draw(st.integers(0, len(data)))] + seeds[other][draw(st.integers(0, len(seeds[other]))) :]
    return name, data[:LONGEST], draw(st.integers(0, 29)) == 15


# ---------------------------------------------------------------- readers


def use(*steps: Callable[[], object]) -> None:
    """Each of what is done with a file that could be read; it may be refused."""
    for step in steps:
        with contextlib.suppress(TopoRoError):
            step()


@functools.cache
def fitted() -> TableModel:
    return fit_table(CORPUS / "table" / "plain.csv", target="y", group="state", penalty=1.0)


def table(file: Path, thorough: bool) -> None:
    steps = [
        lambda: fitted().predict(file),
        lambda: fit_table(file, target="colour", group="state", penalty=1.0, drop_rows=True),
        lambda: fitted().evaluate(file, resamples=20),
        lambda: read_points(file, Roles.of(group="state")).standardised(),
        lambda: examine(file, group="state", target="y").to_dict(),
        lambda: list(fitted().portions(file, optional=["state"], rows=7)),
    ]
    use(*steps[: None if thorough else 1])  # first: they do not read a file as the next line does
    read_frame(file)


def graph(file: Path, thorough: bool) -> None:
    read = with_text_names(as_graph(file))
    names, again = list(read.names), GroupGraph.from_json(read.to_json())
    steps = [
        lambda: again.prior(names[:-1], names[-1:]),
        lambda: repr((again.hops(names[:1]), again.components())),
        lambda: write_picture(file.with_name("graph.svg"), lambda: graph_figure(again.plot, len(names))),
    ]
    use(*steps[: None if thorough else 2])


def model(file: Path, thorough: bool) -> None:
    """A folder whose checksums agree where they can be made to, as whoever can write it can."""
    folder, name = file.parent, file.stem.rpartition("-")[2]
    for kind, target in ((".json", "model.json"), (".safetensors", "weights.safetensors")):
        shutil.copyfile(file if file.suffix == kind else CORPUS / "model" / (name + kind), folder / target)
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        content = json.loads((folder / "model.json").read_bytes())
        weights = (folder / "weights.safetensors").read_bytes()
        content["files"] = {"weights.safetensors": hashlib.sha256(weights).hexdigest()}
        content.pop("checksum")
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        content["checksum"] = hashlib.sha256(canonical.encode()).hexdigest()
        (folder / "model.json").write_text(json.dumps(content), encoding="utf-8")
    loaded, rows = load_model(folder), CORPUS / "table" / "plain.csv"
    steps = [
        lambda: list(loaded.portions(rows, optional=[loaded.group])),
        lambda: (str(loaded.explain()), loaded.explain().to_csv(), json.dumps(loaded.explain().to_dict())),
        lambda: write_model_report(loaded, folder / "report.html"),
        lambda: loaded.evaluate(rows, resamples=20),
        lambda: loaded.save(folder / "again"),
    ]
    use(*steps[: None if thorough else 2])


def checkpoint(file: Path, thorough: bool) -> None:
    rng = np.random.default_rng(0)
    data = GroupedData.from_arrays(rng.normal(size=(24, 3)), rng.integers(0, 2, 24), np.repeat(["a", "b", "c"], 8))
    method, loss = TRO(Prior.uniform(["a", "b", "c"])), torch.nn.CrossEntropyLoss(reduction="none")
    fit(MLP(3, 2, (4,), seed=0), method, Batches.of(data, per_group=8), loss, TrainingPlan(rounds=2), checkpoint=file)


def results(file: Path, thorough: bool) -> None:
    stored = Results.read(file, "dg15")
    for style in ("terminal", "markdown", "json"):
        with contextlib.redirect_stdout(io.StringIO()):
            print_results(stored, style)


def record(file: Path, thorough: bool) -> None:
    kinds: dict[str, Any] = {"prior": Prior, "round": RoundRecord, "choice": PenaltyChoice, "evaluation": Evaluation}
    json.dumps(kinds[file.stem.rpartition("-")[2]].from_dict(read_json(file)).to_dict())


def chips(file: Path, thorough: bool) -> None:
    root = file.parent / "root"
    shutil.copytree(CORPUS / "chips", root / flood_chips.LISTS)
    shutil.copyfile(file, root / flood_chips.LISTS / file.name)
    flood_chips.read_lists(root)


def climate() -> bytes:
    """NOAA's file; 55 kB, so it is made here."""
    line = "".join(f"{5 * month + 10.25:7.2f}" for month in range(12))
    numbers = range(1, len(nclimdiv.STATES) + 1)
    return "\n".join(f"{number:03}002{year}{line}   " for number in numbers for year in nclimdiv.YEARS).encode()


def picture(file: Path, thorough: bool) -> None:
    images.decode_all([images.ImageFile(file.name, file, file.stat().st_size, 0)], (), 32, progress=False)


#: What reads the files of each folder of the corpus; further ones are made here.
READERS: dict[str, Callable[[Path, bool], object]] = {
    "table": table,
    "graph": graph,
    "coordinates": lambda file, thorough: read_coordinates(file),
    "names": lambda file, thorough: split_names(f"@{file}"),
    "model": model,
    "checkpoint": checkpoint,
    "weights": lambda file, thorough: read_weights(file, depth=18),
    "results": results,
    "records": record,
    "pickle": lambda file, thorough: read_arrays(file),
    "tiff": lambda file, thorough: flood_chips.read_geotiff(file),
    "images": picture,
    "chips": chips,
    "climate": lambda file, thorough: nclimdiv.read_temperatures(file),
}
SEEDS = {name: {path.name: path.read_bytes() for path in sorted((CORPUS / name).glob("*"))} for name in READERS}
SEEDS["climate"] = {"tmpcst": climate()}


def peak() -> int:
    """Bytes of memory that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def read(name: str, file: str, data: bytes, thorough: bool, folder: Path) -> str:
    """Whether a file is read or refused; anything else fails, and leaves the file in the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / file).write_bytes(data)
    before, outcome = peak(), "read"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            READERS[name](folder / file, thorough)
    except (TopoRoError, typer.BadParameter):
        outcome = "refused"
    assert peak() - before <= SPARE.get(name, 256 << 20) + 64 * len(data), "too much memory"
    return outcome


@pytest.mark.parametrize("name", READERS)
def test_whole_files_are_read(name: str, tmp_path: Path) -> None:
    for file, data in SEEDS[name].items():
        once = file.startswith("once-")
        outcome = read(name, file, data, once, tmp_path / "case")
        # Whole weights are too large for a corpus.
        assert once or outcome == ("refused" if file.startswith("small") and name == "weights" else "read"), file


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_give_a_value_or_an_error_of_toporo(name: str, tmp_path: Path) -> None:
    count = Counter[str]()
    whole = {file: data for file, data in SEEDS[name].items() if not file.startswith("once-")}
    share = len(whole) / sum(not file.startswith("once-") for seeds in SEEDS.values() for file in seeds)
    end = time.monotonic() + 60 * MINUTES * WORKERS * share

    @settings(settings.get_profile("fuzz" if MINUTES else "quick"))
    @given(damaged(whole))
    def check(case: tuple[str, bytes, bool]) -> None:
        count[read(name, *case, tmp_path / "case")] += 1

    check()
    while time.monotonic() < end:
        check()
    print(f"{name}: {count.total()} cases, {count['read']} read, {count['refused']} refused")


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_any_value_of_a_json_file_may_be_of_another_type(name: str, tmp_path: Path) -> None:
    for file, data in SEEDS[name].items():
        whole = [json.loads(data)] if data[:1] in (b"{", b"[") and not file.startswith("once-") else []
        for holder, key in {path: (holder, key) for path, holder, key in places(whole)}.values():
            kept = holder[key]
            for odd in (None, -1, "x", [], {}):
                holder[key] = odd
                read(name, file, json.dumps(whole[0]).encode(), False, tmp_path / "case")
            holder[key] = kept
