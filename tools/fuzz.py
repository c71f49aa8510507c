"""Feed damaged files to everything in toporo that reads files.

``python tools/fuzz.py --minutes 5`` damages the seeds in ``tests/corpus`` and reads each result as the product would.
A file is *read*, or *refused* with an error of toporo. Any other exception, a signal, a case that takes longer than
``HANG`` seconds or more memory than ``SPARE`` and ``TIMES`` the size of the file is a failure. A case is named by its
reader and a number, which with ``--seed`` decides its bytes: ``--replay feather:123`` reads it again and shows why.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import gc
import importlib
import json
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from toporo.errors import TopoRoError

HERE = Path(__file__).parent
#: Seconds that a case may take, and memory that it may: so many bytes (a reader may have more), and so many times those
#: of its file.
HANG, SPARE, TIMES = 20.0, 256 << 20, 64
#: Address space that a case may take beyond what its process has: protects the machine.
ROOM = 6 << 30
#: Bytes of a damaged file; a few small seeds repeated can come to any size.
LONGEST = 2 << 20
COLUMNS = ("reader", "cases", "read", "refused", "failed", "most memory")


# ---------------------------------------------------------------------- one case, in a child


@functools.cache
def load_readers(path: Path) -> dict[str, Any]:
    """``READERS`` of a file of Python, each with what it needs to begin."""
    sys.path.insert(0, str(path.parent))
    readers: dict[str, Any] = importlib.import_module(path.stem).READERS
    return readers


class Thorough(Random):
    """For what a reader does now and then: it does all of it."""

    def random(self) -> float:
        return 0.0


def make_case(reader: Any, name: str, seed: int, number: int) -> tuple[str, bytes, Random]:
    """The name of a file, its damaged content, and what else the case draws; the first are the seeds as they are."""
    rng = Random(f"{seed} {name} {number}")
    seeds = list(reader.seeds)
    if number < len(seeds):
        return seeds[number], reader.seeds[seeds[number]], Thorough() if seeds[number].startswith("once-") else rng
    whole = [file for file in seeds if not file.startswith("once-")]  # a check stops most that is damaged twice
    file = rng.choice(seeds if rng.random() < 0.2 else whole)
    return file, rng.choice(reader.mutators)(rng, reader.seeds[file], list(reader.seeds.values()))[:LONGEST], rng


def read_case(reader: Any, file: str, content: bytes, rng: Random) -> dict[str, Any]:
    """What becomes of a file: an outcome, and of a failure its kind, place and traceback."""
    with tempfile.TemporaryDirectory(prefix="toporo-fuzz-") as folder:
        path = Path(folder, file)
        path.write_bytes(content)
        before = _memory("VmRSS")
        _forget_peak()
        try:
            reader.read(path, rng)
            outcome = {"outcome": "read"}
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # panics of Rust are no Exception
            outcome = _judged(error)
        growth = _memory("VmHWM") - before
    limit = getattr(reader, "spare", SPARE) + TIMES * len(content)
    if growth > limit and outcome["outcome"] != "failed":
        outcome = _failure("memory", f"{growth >> 20} MiB for {len(content)} bytes", outcome.get("where", ""))
    return outcome | {"growth": growth}


def _judged(error: BaseException) -> dict[str, Any]:
    places = [_place(frame.filename, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    where = next(filter(None, reversed(places)), "")
    if isinstance(error, TopoRoError) or type(error).__name__ in ("RefusedError", "BadParameter"):
        return {"outcome": "refused", "where": where}
    return _failure(type(error).__name__, "".join(traceback.format_exception(error, limit=-12))[-4000:], where)


def _place(file: str, function: str) -> str:
    _, inside, name = file.rpartition("toporo/")
    return f"toporo/{name} in {function}" if inside and "site-packages" not in name else ""


def _failure(kind: str, text: str, where: str) -> dict[str, Any]:
    return {"outcome": "failed", "kind": kind, "where": where, "text": text}


def _memory(what: str) -> int:
    """Bytes that this process has in memory, or had at most."""
    with contextlib.suppress(OSError):
        match = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if match:
            return int(match[1]) << 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def _forget_peak() -> None:
    with contextlib.suppress(OSError):  # not Linux: the peak stays that of all cases so far
        Path("/proc/self/clear_refs").write_text("5")


# ---------------------------------------------------------------------- children


def work(readers_file: Path) -> None:
    """Read cases that standard input names, and answer each on standard output.

    The process that imported everything reads none itself: it makes copies of itself that do, and another one when one
    has died.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    warnings.simplefilter("ignore")
    readers = load_readers(readers_file)
    seeds = {name: len(reader.seeds) for name, reader in readers.items()}  # some are made now, for all children
    gc.collect()
    gc.freeze()
    while True:
        child = os.fork()
        if not child:
            _serve(readers, answers)
        answers.write(json.dumps({"child": child, "seeds": seeds}) + "\n")
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            return
        answers.write(json.dumps({"died": os.waitstatus_to_exitcode(status)}) + "\n")


def _serve(readers: dict[str, Any], answers: Any) -> None:
    faulthandler.enable()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + ROOM, most))
    stream = os.fdopen(os.dup(0), "rb", buffering=0)  # what the next child is to read must not be in our buffer
    try:
        while line := stream.readline():
            name, seed, number = json.loads(line)
            file, content, rng = make_case(readers[name], name, seed, number)
            outcome = read_case(readers[name], file, content, rng)
            answers.write(json.dumps(outcome | {"file": file}) + "\n")
    except KeyboardInterrupt:
        os._exit(1)
    os._exit(0)


class Child:
    """A process that reads cases; ``seeds`` says how many of every reader's first ones are not damaged."""

    def __init__(self, readers_file: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="toporo-fuzz-")  # a child that is killed removes nothing
        self._errors = Path(self._folder.name, "stderr").open("w+b")  # noqa: SIM115  # as long as the child
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker", "--readers", str(readers_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TMPDIR": self._folder.name},
            start_new_session=True,  # Ctrl-C is the parent's
        )
        self._buffer = b""
        first = self._answer(600.0)
        self._reader: int = first["child"]
        self.seeds: dict[str, int] = first["seeds"]

    def read(self, name: str, seed: int, number: int) -> dict[str, Any]:
        """What becomes of a case."""
        assert self._process.stdin is not None  # for type checkers
        self._process.stdin.write(json.dumps([name, seed, number]).encode() + b"\n")
        self._process.stdin.flush()
        self._errors.seek(0)
        self._errors.truncate()
        answer = self._answer(HANG)
        hung = not answer
        if hung:  # the dying process says where it was
            os.kill(self._reader, signal.SIGABRT)
            answer = self._answer(HANG) or {"died": 0}
        if "died" not in answer:
            return answer
        self._reader = self._answer(600.0)["child"]
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace")
        frames = re.findall(r'File "([^"]+)", line \d+ in (\S+)', text)
        where = next((place for file, function in frames if (place := _place(file, function))), "")
        code = -answer["died"]
        name = signal.Signals(code).name if code in iter(signal.Signals) else f"exit code {answer['died']}"
        kind = f"more than {HANG:g} s" if hung else name
        return _failure(kind, text.partition("Extension modules")[0][:4000], where) | {"growth": 0, "file": ""}

    def _answer(self, patience: float) -> dict[str, Any]:
        """The next line, or nothing if none comes in time."""
        assert self._process.stdout is not None  # for type checkers
        end = time.monotonic() + patience
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return {}
                more = os.read(self._process.stdout.fileno(), 1 << 16)
                if not more:
                    self._errors.seek(0)
                    raise RuntimeError(f"a process that reads cases ended: {self._errors.read().decode()[-2000:]}")
                self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End it, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._errors.close()
        self._folder.cleanup()


# ---------------------------------------------------------------------- the whole


@dataclass
class Tally:
    """What became of the cases so far."""

    readers: tuple[str, ...]
    seed: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    memory: Counter[str] = field(default_factory=Counter)
    given: Counter[str] = field(default_factory=Counter)
    groups: dict[tuple[str, str, str], list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    lock: Any = field(default_factory=threading.Lock)

    @property
    def failed(self) -> int:
        """How many cases failed."""
        return sum(count["failed"] for count in self.counts.values())

    def next_case(self, cases: int | None) -> tuple[str, int] | None:
        """Of the reader that had the least time, among those that lack cases."""
        with self.lock:
            open_ones = [name for name in self.readers if cases is None or self.given[name] < cases]
            if not open_ones:
                return None
            name = min(open_ones, key=lambda name: self.seconds[name])
            self.given[name] += 1
            self.seconds[name] += 1e-3  # others look before this one is done
            return name, self.given[name] - 1

    def add(self, name: str, number: int, outcome: dict[str, Any], seconds: float) -> None:
        """Count a case."""
        with self.lock:
            self.counts[name][outcome["outcome"]] += 1
            self.seconds[name] += seconds
            self.memory[name] = max(self.memory[name], outcome["growth"])
            if outcome["outcome"] == "failed":
                self.groups[name, outcome["kind"], outcome["where"]].append((number, outcome["text"]))

    def rows(self) -> list[tuple[str, ...]]:
        """The table: a line a reader, and all together."""
        total: Counter[str] = sum(self.counts.values(), Counter())
        counts = [*((name, self.counts[name]) for name in self.readers), ("all", total)]
        memory = self.memory + Counter({"all": max(self.memory.values(), default=0)})
        return [
            (name, *(str(n) for n in (c.total(), c["read"], c["refused"], c["failed"])), f"{memory[name] >> 20} MiB")
            for name, c in counts
        ]

    def __str__(self) -> str:
        rows = [COLUMNS, *self.rows()]
        first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
        return "\n".join(
            "  ".join([row[0].ljust(first), *(cell.rjust(n) for cell, n in zip(row[1:], others, strict=True))])
            for row in rows
        )

    def markdown(self) -> str:
        """The table for a page."""
        lines = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 1)), *self.rows()]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"

    def failures(self) -> str:
        """Each kind of failure with an example."""
        parts = []
        for (name, kind, where), cases in sorted(self.groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
            number, text = min(cases, key=lambda case: case[0])
            replay = f"python tools/fuzz.py --seed {self.seed} --replay {name}:{number}"
            lines = [line for line in text.splitlines() if line[:1].strip()] or [""]
            said = lines[0 if lines[0].startswith("Fatal") else -1][:300]
            parts.append(f"{name}: {kind}, {len(cases)} cases, {where or 'outside of toporo'}\n  {replay}\n  {said}")
        return "\n".join(parts)


def fuzz(
    readers_file: Path,
    names: tuple[str, ...],
    *,
    seed: int = 0,
    minutes: float | None = None,
    cases: int | None = None,
    workers: int = 1,
    failures: Path | None = None,
) -> Tally:
    """Feed cases to readers for so many minutes, or so many cases each; Ctrl-C ends it early."""
    tally, stop = Tally(names, seed), threading.Event()
    end = None if minutes is None else time.monotonic() + 60 * minutes
    problems: list[BaseException] = []

    def feed() -> None:
        try:
            child = Child(readers_file)
            try:
                while not stop.is_set() and (case := tally.next_case(cases)):
                    start = time.monotonic()
                    outcome = child.read(case[0], seed, case[1])
                    tally.add(*case, outcome, time.monotonic() - start)
                    if end is not None and time.monotonic() > end:
                        break
            finally:
                child.close()
        except BaseException as problem:
            problems.append(problem)
            stop.set()

    threads = [threading.Thread(target=feed) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            threads[0].join(0.5) if threads[0].is_alive() else time.sleep(0.5)
            if sys.stderr.isatty():
                done = sum(count.total() for count in tally.counts.values())
                sys.stderr.write(f"\r{done} cases, {tally.failed} failed ")
    except KeyboardInterrupt:
        stop.set()
        sys.stderr.write("\nstopped; so far:\n")
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    if failures is not None and tally.groups:
        _save(load_readers(readers_file), tally, failures)
    return tally


def _save(readers: dict[str, Any], tally: Tally, folder: Path) -> None:
    """The first file of every kind of failure, and its traceback."""
    for (name, _, _), cases in tally.groups.items():
        number, text = min(cases, key=lambda case: case[0])
        file, content, _ = make_case(readers[name], name, tally.seed, number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}-{number}-{file}").write_bytes(content)
        (folder / f"{name}-{number}.traceback").write_text(text, encoding="utf-8")


def replay(readers: dict[str, Any], name: str, what: str, seed: int) -> int:
    """Read one case, by its number or as a file, in this process, and show what happens."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    reader = readers[name]
    file, content, rng = make_case(reader, name, seed, int(what) if what.isdigit() else 0)
    if not what.isdigit():  # a file, as _save named it or as it is
        file, content = re.sub(rf"^{name}-\d+-", "", Path(what).name), Path(what).read_bytes()
    print(f"{file}, {len(content)} bytes: {content[:60]!r}…", flush=True)
    outcome = read_case(reader, file, content, rng)
    print("\n".join(f"{key}: {value}" for key, value in outcome.items()))
    return int(outcome["outcome"] == "failed")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="READER", help="only these")
    parser.add_argument("--minutes", type=float, help="how long, over all readers")
    parser.add_argument("--cases", type=int, help="how many for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--table", type=Path, help="write the counts to this file as Markdown")
    parser.add_argument("--failures", type=Path, default=Path("runs/fuzz/failures"), help="where files that fail go")
    parser.add_argument("--replay", metavar="READER:N", help="read this case (or READER:FILE) and show what happens")
    parser.add_argument("--corpus", action="store_true", help="write the seeds anew and end")
    parser.add_argument("--readers", type=Path, default=HERE / "fuzz_readers.py", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.readers)
        return 0
    readers = load_readers(given.readers)
    if given.corpus:
        sys.modules[given.readers.stem].write_corpus(HERE.parent / "tests" / "corpus")
        return 0
    if given.replay:
        name, _, what = given.replay.partition(":")
        return replay(readers, name, what, given.seed)
    unknown = set(given.names) - set(readers)
    if unknown:
        parser.error(f"no reader {', '.join(sorted(unknown))}; there are {', '.join(readers)}")
    minutes = given.minutes if given.minutes or given.cases else 5.0
    names = tuple(given.names) or tuple(readers)
    how = {"seed": given.seed, "minutes": minutes, "cases": given.cases, "workers": given.workers}
    tally = fuzz(given.readers, names, failures=given.failures, **how)
    print(tally)
    if given.table:
        given.table.write_text(tally.markdown(), encoding="utf-8")
    if tally.failed:
        print(f"\n{tally.failed} cases failed; files in {given.failures}:\n{tally.failures()}")
    return int(tally.failed > 0 or not tally.given)


if __name__ == "__main__":
    sys.exit(main())
