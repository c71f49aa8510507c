"""`toporo fit` on a table larger than memory, against one pass of pyarrow over it and against dask-ml.

Every command is a process of its own, as in tables.py. Run with ``make bench ONLY=outofcore``; set OUTOFCORE_GIB for
another size than 20 GiB.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from tables import TOPORO, Run, gib, machine, measure, workplace
from toporo.machine import cores

#: Bytes of Parquet, what a fit may have, and columns.
SIZE, LIMIT, COLUMNS, GROUPS = int(float(os.environ.get("OUTOFCORE_GIB", "20")) * 2**30), 2 << 30, 50, 1000
#: Rows that are made at a time, and of a row group.
MADE, ROW_GROUP = 1 << 20, 1 << 18
#: Rows of the smaller tables, and of that on which the model of memory, the peer and Ray are compared.
SMALLER, COMPARED = 20_000_000, 2_000_000
#: How often each is measured.
TIMES = 3
#: The least share of the speed of reading.
TARGET = 0.5

#: One pass over all columns in either of pyarrow's ways, which give every batch to nobody.
READ = """
import sys, time
import pyarrow.dataset as ds, pyarrow.parquet as pq
way, path = sys.argv[1:]
start, rows = time.perf_counter(), 0
if way == "iter_batches":
    batches = pq.ParquetFile(path, pre_buffer=False).iter_batches(65_536)  # its default keeps the whole file in memory
else:
    batches = ds.dataset(path).to_batches()
for batch in batches:
    rows += batch.num_rows
print(rows, time.perf_counter() - start)
"""
#: The fit of a table in memory, which is never read in portions.
IN_MEMORY = """
import sys
import pyarrow.parquet as pq, toporo as tr
tr.fit_table(pq.read_table(sys.argv[1]), target="y", group="site", model="linear").save(sys.argv[2])
"""
#: dask-ml's own linear regression: as many passes as it wants, without groups.
DASK = """
import sys, time
sys.path.append(sys.argv[2])
import dask.dataframe as dd
from dask_ml.linear_model import LinearRegression
start = time.perf_counter()
frame = dd.read_parquet(sys.argv[1])
names = [name for name in frame.columns if name.startswith("x")]
both = frame[[*names, "y"]].to_dask_array(lengths=True).rechunk((1 << 18, -1))
LinearRegression(solver="gradient_descent", max_iter=20, C=1e6).fit(both[:, :-1], both[:, -1])
print(time.perf_counter() - start)
"""


def write(path: Path, rows: int, *, by_group: bool, rounded: bool = False) -> None:
    """Random numbers; one site after the other, or each row of any.

    No codec makes random numbers smaller. As most tables have them, they are ``rounded`` to two digits, and written as
    pyarrow does it unless told otherwise: by a dictionary, and packed.
    """
    rng = np.random.default_rng(0)
    coef, names = rng.normal(size=COLUMNS), pa.array([f"site {place:04d}" for place in range(GROUPS)])
    writer: parquet.ParquetWriter | None = None
    for first in range(0, rows, MADE):
        count = min(MADE, rows - first)
        group = (first + np.arange(count)) * GROUPS // rows if by_group else rng.integers(0, GROUPS, count)
        x = rng.standard_normal((COLUMNS, count))
        x = x.round(2) if rounded else x
        y = coef @ x + 0.1 * (group % 7) * x[0] + rng.standard_normal(count)
        columns = {"site": pa.DictionaryArray.from_arrays(pa.array(group.astype(np.int32)), names)}
        table = pa.table(columns | {f"x{place}": x[place] for place in range(COLUMNS)} | {"y": y})
        if writer is None:
            writer = parquet.ParquetWriter(path, table.schema, use_dictionary=True if rounded else ["site"])
        writer.write_table(table, row_group_size=ROW_GROUP)
    if writer is not None:
        writer.close()


def fit(table: Path, out: Path, *more: str) -> list[str]:
    asked = ["--target=y", "--group=site", "--model=linear", f"--out={out}", "--overwrite", "--json"]
    return [TOPORO, "fit", str(table), *asked, *more]


def coefficients(folder: Path) -> np.ndarray:
    import toporo as tr

    estimator = tr.load_model(folder).estimator
    return np.append(estimator.coef_, estimator.intercept_)


def forget(table: Path) -> None:
    """Have the system drop what it holds of a file, so that it comes from the disk again."""
    with table.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def row(title: str, table: Path, rows: int, folder: Path, *, disk: bool) -> tuple[str, float]:
    """A line of the table of speeds, and the share of the speed of reading."""

    def timed(command: list[str]) -> Run:
        if disk:
            forget(table)
        return measure(command)

    reading = {way: [] for way in ("iter_batches", "dataset")}
    fits = []
    if not disk:
        measure([sys.executable, "-c", READ, "iter_batches", str(table)])
    for _ in range(TIMES if rows <= SMALLER else 1):
        for way, seconds in reading.items():
            seconds.append(float(timed([sys.executable, "-c", READ, way, str(table)]).said.split()[1]))
        fits.append(timed(fit(table, folder / "model", f"--memory-limit={LIMIT}")))
    times = [median(seconds) for seconds in reading.values()]
    best, wall, peak = min(times), median(run.wall for run in fits), max(run.peak for run in fits)
    return (
        f"| {title} | {'the disk' if disk else 'memory'} | {rows:,} | {gib(table.stat().st_size):.2f} | "
        f"{' / '.join(f'{seconds:.1f}' for seconds in times)} | {rows / best:,.0f} | **{wall:.1f}** | "
        f"{median(run.cpu for run in fits):.1f} | {rows / wall:,.0f} | **{best / wall:.2f}** | **{gib(peak):.2f}** |",
        best / wall,
    )


def bench_outofcore() -> list[str]:
    rows = max(MADE, SIZE // (8 * (COLUMNS + 1)))
    peers = Path(__file__).parents[1] / ".bench-peers"
    lines = [
        "`toporo fit --model linear --memory-limit 2GiB` (TRO, penalty chosen, intervals, model written; the whole "
        f"command, imports included) on generated Parquet of {COLUMNS} random numbers, a target and {GROUPS} sites, on "
        f"{cores()} cores ({machine()}), medians of {TIMES} but for the largest. Reading: one pass of pyarrow "
        f"{pa.__version__} over all columns that gives its batches to nobody, by ParquetFile.iter_batches "
        "(pre_buffer=False) / by a dataset; the quicker counts. Random numbers are stored as they are; those rounded "
        "to two digits are written as pyarrow does it, by a dictionary and packed. The file comes from the disk, as "
        "one larger than memory must, or is held in memory by the system, so that reading is copying.",
        "",
        "| numbers, rows of a site | file in | rows | GiB | reading, s | rows a second | fit, s | CPU, s | rows a "
        "second | share of the speed of reading | resident, peak (GiB) |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    shares: dict[bool, list[float]] = {True: [], False: []}
    with workplace(needed=int(1.2 * SIZE) + (8 << 30)) as folder:
        table = folder / "table.parquet"
        for rounded, by_group, count in ((False, True, rows), (True, True, SMALLER), (False, False, SMALLER)):
            write(table, count, by_group=by_group, rounded=rounded)
            title = f"{'rounded' if rounded else 'random'}, {'together' if by_group else 'anywhere'}"
            for disk in (True, False):
                line, share = row(title, table, count, folder, disk=disk)
                shares[disk].append(share)
                lines.append(line)
                print(line, flush=True)
        write(table, COMPARED, by_group=False)
        compare = compared(folder, table, peers)
    said = [
        f"{sum(share >= TARGET for share in own)} of {len(own)} from {'the disk' if disk else 'memory'}"
        for disk, own in shares.items()
    ]
    return [*lines, "", f"Target: half of the speed of reading: met by {', '.join(said)}.", "", *compare]


def compared(folder: Path, table: Path, peers: Path) -> list[str]:
    """The same table in memory, on Ray and by dask-ml."""
    memory = measure([sys.executable, "-c", IN_MEMORY, str(table), str(folder / "memory")])
    portions = measure(fit(table, folder / "portions", f"--memory-limit={LIMIT}"))
    ray = measure(fit(table, folder / "ray", f"--memory-limit={LIMIT}", "--engine=ray"))
    peer = measure([sys.executable, "-c", DASK, str(table), str(peers)], patience=600)
    one, other = coefficients(folder / "memory"), coefficients(folder / "portions")
    off = np.abs(one - other).max() / np.abs(one).max()
    files = [folder / name / "weights.safetensors" for name in ("portions", "ray")]
    same = files[0].read_bytes() == files[1].read_bytes()
    drawn = json.loads(portions.said)["about"]["rows"]
    said = f"{float(peer.said):.1f}" if not peer.code else f"fails ({peer.errors.strip().splitlines()[-1][:80]})"
    return [
        f"A table of {drawn:,} rows, random, anywhere; the whole command:",
        "",
        "| way | wall (s) | resident, peak (GiB) | |",
        "|---|---|---|---|",
        f"| in memory | {memory.wall:.1f} | {gib(memory.peak):.2f} | |",
        f"| in portions | {portions.wall:.1f} | {gib(portions.peak):.2f} | largest difference of a coefficient from "
        f"that in memory, relative to the largest one: {off:.1e} |",
        f"| `--engine ray`, a cluster of this machine started for it | {ray.wall:.1f} | {gib(ray.peak):.2f} (driver) | "
        f"{'the same bytes as in portions' if same else 'other bytes than in portions'} |",
        f"| dask-ml's LinearRegression, 20 steps of gradient descent, without groups; only its fit | {said} | "
        f"{gib(peer.peak):.2f} | Ray Data has no linear regression of its own |",
    ]
