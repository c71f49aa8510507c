"""The commands on large tables: `toporo fit` at a million rows, `toporo predict` on files larger than its memory.

Every command is a process of its own, started by a small one that measures it: a process is charged with what its
parent held at the start.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import sklearn
from pyarrow import csv, parquet

from toporo.machine import cores

ROWS, GROUPS, TO_COME = 1_000_000, 200, 20
#: Rows of a portion that a file is written by.
PORTION = 100_000
NUMBERS, GAPS, WHOLE = 44, 8, 4  # of the numbers so many have gaps, others are whole
LEVELS = (3, 5, 8, 12, 20)
FEATURES = NUMBERS + len(LEVELS) + 1  # the last is a date
WALL, MEMORY = 60.0, 6.0  # seconds and GiB that a fit may take
#: What a file larger than memory has, and what the commands that read it may have, in bytes.
LARGE, LIMIT = 3 << 30, 1 << 30
#: Seconds for a command that is to fail.
PATIENCE = 180
TOPORO = str(Path(sys.executable).parent / "toporo")


# ---------------------------------------------------------------- tables


def make_portion(rows: int, seed: int) -> pa.Table:
    """Numbers, some missing, some whole; categories; a date; and two targets that groups agree on but for a part."""
    world = np.random.default_rng(0)
    shared = world.normal(size=NUMBERS)
    by_group = shared + 0.3 * world.normal(size=(GROUPS, NUMBERS))
    effects = [world.normal(size=count) for count in LEVELS]
    rng = np.random.default_rng([1, seed])
    group = rng.integers(0, GROUPS, rows)
    x = rng.normal(size=(rows, NUMBERS)).round(6)
    x[:, -WHOLE:] = np.round(10 * x[:, -WHOLE:])
    codes = [rng.integers(0, count, rows) for count in LEVELS]
    signal = np.einsum("nd,nd->n", x, by_group[group] / np.r_[np.ones(NUMBERS - WHOLE), np.full(WHOLE, 10.0)])
    signal += sum(effect[code] for effect, code in zip(effects, codes, strict=True))
    y = (signal + (1.0 + group / GROUPS) * rng.normal(size=rows)).round(6)
    missing = rng.random((rows, GAPS)) < 0.03
    columns: dict[str, Any] = {"site": pa.array(site_names(GROUPS)).take(pa.array(group))}
    for j in range(NUMBERS):
        gaps = missing[:, j] if j < GAPS else None
        columns[f"x{j:02d}"] = pa.array(x[:, j].astype(int) if j >= NUMBERS - WHOLE else x[:, j], mask=gaps)
    for j, (count, code) in enumerate(zip(LEVELS, codes, strict=True)):
        columns[f"kind{j}"] = pa.array([f"level {level}" for level in range(count)]).take(pa.array(code))
    columns["day"] = pa.array(rng.integers(18_000, 20_000, rows).astype("datetime64[D]"))
    columns["label"] = pa.array(["no", "yes"]).take(pa.array((y > 0).astype(int)))
    columns["y"] = pa.array(y)
    return pa.table(columns)


def site_names(count: int) -> list[str]:
    return [f"site {code:03d}" for code in range(count)]


def write_table(path: Path, portions: Iterator[pa.Table]) -> int:
    """Write a CSV or Parquet file, one portion after the other; the number of rows."""
    first = next(portions)
    suffix = path.suffix
    writer = csv.CSVWriter(path, first.schema) if suffix == ".csv" else parquet.ParquetWriter(path, first.schema)
    rows = 0
    with writer:
        for portion in chain([first], portions):
            writer.write_table(portion)
            rows += len(portion)
    return rows


def repeated(portion: pa.Table, path: Path, size: int) -> Iterator[pa.Table]:
    """The same portion until the file that it is written to has this size."""
    while not path.exists() or path.stat().st_size < size:
        yield portion


def write_graph(folder: Path) -> None:
    """A grid of the sites, those to come in its last row."""
    names, width = site_names(GROUPS + TO_COME), TO_COME
    edges = [(code, code + 1) for code in range(len(names)) if (code + 1) % width]
    edges += [(code, code + width) for code in range(len(names) - width)]
    lines = ["source,target", *(f"{names[a]},{names[b]}" for a, b in edges)]
    (folder / "graph.csv").write_text("\n".join(lines) + "\n")
    (folder / "coming.txt").write_text("\n".join(names[GROUPS:]) + "\n")


@contextmanager
def workplace(needed: int) -> Iterator[Path]:
    """A folder for large files that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="toporo-bench-") as name:
        free = shutil.disk_usage(name).free
        if free < needed:
            raise SystemExit(
                f"benchmarks: {name} has {gib(free):.1f} GiB left, expected {gib(needed):.1f}: free some, set TMPDIR."
            )
        yield Path(name)


def gib(size: float) -> float:
    return size / 2**30


# ---------------------------------------------------------------- processes

LAUNCHER = """
import json, os, resource, signal, sys, time
task = json.loads(sys.argv[1])
start = time.perf_counter()
child = os.fork()
if not child:
    for number, path in enumerate((task["out"], task["err"]), 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    if task["limit"]:
        resource.setrlimit(resource.RLIMIT_DATA, (task["limit"], task["limit"]))
    signal.alarm(task["patience"])
    os.execv(task["command"][0], task["command"])
_, status, used = os.wait4(child, 0)
print(json.dumps({
    "code": os.waitstatus_to_exitcode(status), "wall": time.perf_counter() - start,
    "cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * 1024,
}))
"""


@dataclass(frozen=True)
class Run:
    """What a process took: seconds, seconds of all its threads, resident bytes at most; and what it said."""

    code: int
    wall: float
    cpu: float
    peak: float
    said: str
    errors: str


def measure(command: list[str], *, out: Path | None = None, limit: int = 0, patience: int = 0) -> Run:
    """Run a command on all cores there are.

    ``limit`` is the most memory of its own that it gets. One that may fail gets so many seconds of ``patience``: out of
    memory, some threads wait for others that are no more.
    """
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    with tempfile.NamedTemporaryFile("r", suffix=".err") as errors, tempfile.NamedTemporaryFile("r") as output:
        written = str(out) if out is not None else output.name
        task = {"command": command, "limit": limit, "patience": patience, "out": written, "err": errors.name}
        launch = [sys.executable, "-S", "-c", LAUNCHER, json.dumps(task)]
        done = subprocess.run(launch, capture_output=True, text=True, env=environment, check=True)
        run = Run(**json.loads(done.stdout), said=output.read(), errors=errors.read())
    if run.code and not patience:
        raise SystemExit(f"benchmarks: {' '.join(command)} ended with {run.code}:\n{run.errors}")
    return run


# ---------------------------------------------------------------- fit

#: What one would write with pandas and scikit-learn. No groups, no choice of a penalty, nothing is saved.
PEER = """
import sys
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

def pipeline(frame, target):
    frame = frame.assign(day=(pd.to_datetime(frame["day"]) - pd.Timestamp(0)).dt.days)
    kinds = [name for name in frame if name.startswith("kind")]
    numbers = [name for name in frame if name not in (*kinds, "site", "label", "y")]
    columns = ColumnTransformer([
        ("numbers", make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler()), numbers),
        ("kinds", OneHotEncoder(handle_unknown="ignore"), kinds),
    ])
    model = make_pipeline(columns, Ridge() if target == "y" else LogisticRegression())
    return model.fit(frame, frame[target])
"""
FIT_PEER = f"""{PEER}
path, target = sys.argv[1:]
pipeline(pd.read_csv(path) if path.endswith(".csv") else pd.read_parquet(path), target)
"""


def fit_command(folder: Path, table: Path, target: str, model: str) -> list[str]:
    other = "label" if target == "y" else "y"
    asked = {
        "target": target,
        "group": "site",
        "graph": folder / "graph.csv",
        "test-groups": f"@{folder / 'coming.txt'}",
    }
    asked |= {"exclude": other, "set": "penalty=auto", "out": folder / model}
    return [TOPORO, "fit", str(table), *(f"--{name}={value}" for name, value in asked.items()), "--overwrite", "--json"]


def bench_tables(rows: int = ROWS) -> list[str]:
    lines = [
        f"`toporo fit` through the command line, in a process of its own, on {cores()} cores ({machine()}): {rows} "
        f"rows, {FEATURES} features ({NUMBERS} numbers, {GAPS} of them with 3 % of the cells missing, {len(LEVELS)} "
        f"categories of {LEVELS[0]} to {LEVELS[-1]} levels, a date), {GROUPS} groups in a graph with {TO_COME} groups "
        "to come, `--set penalty=auto`; the model is written too. Peer: pandas.read_csv or read_parquet, a "
        "ColumnTransformer (imputer with indicators, scaler, one-hot encoder) and Ridge or LogisticRegression, which "
        "has no groups, chooses nothing and writes nothing; "
        f"pandas {pd.__version__}, scikit-learn {sklearn.__version__}, pyarrow {pa.__version__}.",
        "",
        "| model | file | size (GiB) | wall (s) | CPU (s) | resident, peak (GiB) | peer: wall (s) | CPU (s) | "
        "peak (GiB) | wall, peer / toporo | peak, peer / toporo | λ chosen |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    met = True
    with workplace(needed=rows * 1200) as folder:
        write_graph(folder)
        for suffix in (".csv", ".parquet"):
            table = folder / f"table{suffix}"
            size = min(PORTION, rows)
            write_table(table, (make_portion(size, seed) for seed in range(rows // size)))
            for title, target in (("least squares", "y"), ("logistic", "label")):
                own = measure(fit_command(folder, table, target, "model"))
                peer = measure([sys.executable, "-c", FIT_PEER, str(table), target])
                chosen = json.loads(own.said)["penalty"]
                met = met and own.wall < WALL and gib(own.peak) < MEMORY
                lines.append(
                    f"| {title} | {suffix[1:]} | {gib(table.stat().st_size):.2f} | **{own.wall:.1f}** | "
                    f"{own.cpu:.1f} | **{gib(own.peak):.2f}** | {peer.wall:.1f} | {peer.cpu:.1f} | "
                    f"{gib(peer.peak):.2f} | {peer.wall / own.wall:.2f}× | {peer.peak / own.peak:.2f}× | {chosen} |"
                )
                print(lines[-1], flush=True)
            table.unlink()
    lines += ["", f"Target: less than {WALL:g} s and {MEMORY:g} GiB on two cores: {'met' if met else 'not met'}."]
    return lines


def machine() -> str:
    """The processor's name, where the system tells it."""
    try:
        found = Path("/proc/cpuinfo").read_text().split("model name", 1)[1]
        return found.split(":", 1)[1].partition("\n")[0].strip()
    except (OSError, IndexError):
        return platform.machine()


# ---------------------------------------------------------------- predict

WHOLE_PEER = """
import sys
import pandas as pd
path = sys.argv[1]
print(len(pd.read_csv(path) if path.endswith(".csv") else pd.read_parquet(path)))
"""
#: The same by hand: portions in, predictions out. It is fitted to a part of the rows first, which is not timed.
CHUNK_PEER = f"""{PEER}
import time
import pyarrow.parquet as pq
small, path, out, target = sys.argv[1:]
model = pipeline(pd.read_csv(small), target)
start, used = time.perf_counter(), time.process_time()
if path.endswith(".csv"):
    chunks = pd.read_csv(path, chunksize=65_536)
else:
    chunks = (batch.to_pandas() for batch in pq.ParquetFile(path).iter_batches(65_536))
for number, chunk in enumerate(chunks):
    chunk["day"] = (pd.to_datetime(chunk["day"]) - pd.Timestamp(0)).dt.days
    found = {{"site": chunk["site"], "prediction": model.predict(chunk)}}
    if target == "label":
        for name, column in zip(model.classes_, model.predict_proba(chunk).T):
            found[f"probability of {{name}}"] = column
    pd.DataFrame(found).to_csv(out, mode="a", header=not number, index=False)
print(time.perf_counter() - start, time.process_time() - used)
"""
COPY = """
import shutil, sys
shutil.copyfile(*sys.argv[1:])
"""


def bench_stream(size: int = LARGE, limit: int = LIMIT) -> list[str]:
    lines = [
        f"`toporo predict` on files of {gib(size):.1f} GiB and more by a process that may have {gib(limit):.1f} GiB of "
        "memory of its own, resident or not (RLIMIT_DATA: a hard limit on all that is private and writable), on "
        f"{cores()} cores ({machine()}); {FEATURES} features as in tables.md. Files repeat a portion of {PORTION} "
        "rows, and its predictions must repeat as well; a CSV file "
        "comes out, with the group and, of classes, their probabilities. “Whole file”: pandas.read_csv or read_parquet "
        "under the same limit, to show that it bites. By hand: read_csv with chunksize, or batches of Parquet, "
        "through a fitted scikit-learn pipeline and to_csv, without a limit; only its loop is timed.",
        "",
        "| model | file | size (GiB) | rows | wall (s) | CPU (s) | rows a second | resident, peak (MiB) | lines out | "
        "whole file | by hand: wall (s) | CPU (s) | by hand / toporo | toporo / copying the file |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    with workplace(needed=3 * size) as folder:
        write_graph(folder)
        portion = make_portion(PORTION, 0)
        small = folder / "small.csv"
        write_table(small, iter([portion]))
        for target in ("y", "label"):
            measure(fit_command(folder, small, target, f"model-{target}"))
        for suffix in (".csv", ".parquet"):
            table = folder / f"large{suffix}"
            rows = write_table(table, repeated(portion, table, size))
            whole = measure([sys.executable, "-c", WHOLE_PEER, str(table)], limit=limit, patience=PATIENCE)
            copied = measure([sys.executable, "-c", COPY, str(table), str(folder / "copy")])
            (folder / "copy").unlink()
            for title, target in (("least squares", "y"), ("logistic", "label")):
                out = folder / "predictions.csv"
                own = measure([TOPORO, "predict", str(folder / f"model-{target}"), str(table)], out=out, limit=limit)
                count = count_predictions(out, len(portion))
                if count != rows:
                    raise SystemExit(f"benchmarks: {rows} rows in, {count} predictions out.")
                out.unlink()
                peer = measure([sys.executable, "-c", CHUNK_PEER, str(small), str(table), str(out), target])
                out.unlink()
                by_hand, by_hand_cpu = map(float, peer.said.split())
                lines.append(
                    f"| {title} | {suffix[1:]} | {gib(table.stat().st_size):.2f} | {rows} | {own.wall:.1f} | "
                    f"{own.cpu:.1f} | **{rows / own.wall:.0f}** | **{own.peak / 2**20:.0f}** | {count} | "
                    f"{ending(whole)} | {by_hand:.1f} | {by_hand_cpu:.1f} | "
                    f"{by_hand / own.wall:.2f}× | {own.wall / copied.wall:.1f}× |"
                )
                print(lines[-1], flush=True)
            table.unlink()
    return lines


def count_predictions(path: Path, portion: int) -> int:
    """Lines after the header, if those for every copy of the portion are the same."""
    count, digests = 0, set()
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        next(stream)
        for line in stream:
            digest.update(line)
            count += 1
            if not count % portion:
                digests.add(digest.hexdigest())
                digest = hashlib.sha256()
    if len(digests) != 1:
        raise SystemExit(f"benchmarks: copies of the same rows have {len(digests)} different predictions.")
    return count


def ending(run: Run) -> str:
    """How a process ended that was not to succeed."""
    if not run.code:
        return f"read, {run.peak / 2**20:.0f} MiB"
    if run.code == -signal.SIGALRM:
        return f"stands still, stopped after {PATIENCE} s"
    named = re.findall(r"\w*Error", run.errors)
    return f"fails: {named[-1].lstrip('_') if named else f'ends with {run.code}'}"
