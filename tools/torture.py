"""Kill, interrupt, crowd and starve the commands that write files, and look at what is left (``make torture``).

    python tools/torture.py                            # everything: about an hour on two cores
    python tools/torture.py kills full                 # some of it: kills, full, signals, together
    python tools/torture.py signals --rounds 20        # a shorter one
    python tools/torture.py --table runs/torture.md    # the tables as Markdown, too

``kills`` and ``full`` load ``torture.c`` before the C library, so they need Linux and a C compiler: it counts every
event under a command's folder (a file made, written, flushed, renamed or removed, a folder made or removed, permissions
changed). A command is run once for every event and killed just before it, or has no space left from it on. After each a
reader must find the old result or the new one, and running the command again must give the new one and leave nothing
else. Anything else is printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]  # for the small tables and the publisher of the tests

from tests.paper.fake_nclimdiv import write_fake  # noqa: E402
from tests.paper.file_server import Publisher, serving  # noqa: E402
from tests.tables.cases import as_csv, river  # noqa: E402

from toporo import cli  # noqa: E402
from toporo.tables import load_model  # noqa: E402
from toporo.tables.folder import read_folder  # noqa: E402

COUNT_EVENTS, KILL, COUNT_SPACE, FULL = range(4)
RELEASE = "climdiv-tmpcst-v1.0.0-20240906"
FIT = ("fit", "river.csv", "--target", "y", "--group", "station", "--set", "penalty=1", "--out", "model")
SWEEP = ("reproduce", "dg15", "--source", "generated", "--methods", "erm", "--out", "out")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
#: Seconds that a command and its workers may take to end once they were told to.
PATIENCE = 20.0
#: Signals that a sweep gets before it may end.
STRIKES = 5


# ---------------------------------------------------------------------- what is tortured


@dataclass(frozen=True)
class Trial:
    """A command, what is there before it, and what a reader finds after it: None where there is nothing."""

    name: str
    arguments: tuple[str, ...]
    prepare: Callable[[Path], object]
    result: Callable[[Path], object]
    #: Whether the command refuses to replace its own result.
    once: bool = False


def _table(folder: Path, seed: int = 0, name: str = "river.csv") -> None:
    (folder / name).write_text(as_csv(river(seed)))


def _fitted(folder: Path) -> None:
    """A model that was fitted to another table."""
    _table(folder, 5)
    call(folder, FIT)
    _table(folder)


def _predicted(folder: Path, out: str) -> None:
    _fitted(folder)
    call(folder, ("predict", "model", "river.csv", "--out", out))
    _table(folder, 7)


def _reported(folder: Path) -> None:
    _fitted(folder)
    call(folder, ("report", "model", "river.csv", "--out", "page.html"))
    _table(folder, 7)


def _file(name: str, folder: Path) -> bytes | None:
    path = folder / name
    return path.read_bytes() if path.exists() else None


def _model(folder: Path) -> object:
    if not (folder / "model" / "model.json").exists():
        return None
    content, arrays = read_folder(folder / "model")
    load_model(folder / "model").predict(folder / "river.csv")
    return content["estimator"], {name: array.tobytes() for name, array in arrays().items()}


def trials(url: str, only: Sequence[str] = ()) -> list[Trial]:
    """Every command that writes, or some by name."""
    predict = ("predict", "model", "river.csv", "--out")
    every = [
        Trial("fit", FIT, _table, _model, once=True),
        Trial("fit --overwrite", (*FIT, "--overwrite"), _fitted, _model),
        Trial("predict", (*predict, "p.csv"), partial(_predicted, out="p.csv"), partial(_file, "p.csv")),
        Trial(
            "predict (Parquet)",
            (*predict, "p.parquet"),
            partial(_predicted, out="p.parquet"),
            partial(_file, "p.parquet"),
        ),
        Trial("report", ("report", "model", "river.csv", "--out", "page.html"), _reported, partial(_file, "page.html")),
        Trial("reproduce", (*SWEEP, "--seeds", "1"), lambda folder: None, partial(_file, "out/results.json")),
        Trial("data get", ("data", "get", "tpt48", "--data", ".", "--url", url), lambda folder: None,
              partial(_file, f"tpt48/{RELEASE}")),
    ]  # fmt: skip
    return [trial for trial in every if not only or trial.name in only]


# ---------------------------------------------------------------------- running a command in a fork


@dataclass
class Ended:
    """How a command ended: its exit code (below 0: the signal), what it printed, and the events it came to."""

    code: int
    text: str
    events: int

    @property
    def clean(self) -> bool:
        return self.code in (0, 1) and "Traceback" not in self.text


def start(folder: Path, arguments: Sequence[str], how: int | None = None, which: int = 0) -> Callable[[], Ended]:
    """Run a command in a fork of this process, which has imported everything; what is returned waits for its end."""
    log = Path(tempfile.mkstemp()[1])
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 70
        try:
            stream = log.open("w", buffering=1)
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
            sys.stdout = sys.stderr = stream
            os.chdir(folder)
            if how is not None:
                _shim().torture_arm(str(folder).encode(), how, which)
            sys.argv = ["toporo", *arguments]
            cli.main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            if how is not None:
                os.write(writer, str(_shim().torture_events()).encode())
            if how == COUNT_EVENTS:
                log.with_suffix(".modules").write_text(" ".join(sys.modules))
            os._exit(code)
    os.close(writer)

    def wait() -> Ended:
        _, status = os.waitpid(child, 0)
        with os.fdopen(reader) as stream:
            events = int(stream.read() or 0)
        text = log.read_text()
        log.unlink()
        if how == COUNT_EVENTS:  # what it imported need not be imported again by every fork
            for name in log.with_suffix(".modules").read_text().split():
                with suppress(Exception):
                    importlib.import_module(name)
            log.with_suffix(".modules").unlink()
        return Ended(os.waitstatus_to_exitcode(status), text, events)

    return wait


def call(folder: Path, arguments: Sequence[str], how: int | None = None, which: int = 0) -> Ended:
    """Run a command in a fork and wait for it."""
    return start(folder, arguments, how, which)()


def _shim() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ["TORTURE_SHIM"])


def preload() -> None:
    """Start this program again with ``torture.c`` before the C library."""
    if "TORTURE_SHIM" in os.environ:
        return
    shim = Path(tempfile.mkdtemp()) / "torture.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl"], check=True)
    os.environ |= {"TORTURE_SHIM": str(shim), "LD_PRELOAD": str(shim)}
    os.execv(sys.executable, [sys.executable, *sys.argv])


@contextmanager
def empty_folder() -> Iterator[Path]:
    """Somewhere to work in."""
    with tempfile.TemporaryDirectory() as place:
        yield Path(place).resolve()


def left_over(folder: Path) -> list[str]:
    """Files that no user asked for."""
    return [path.name for path in folder.rglob("*") if path.name.startswith(".") or path.name.endswith(".part")]


# ---------------------------------------------------------------------- what came of it


@dataclass
class Tally:
    """Rows of a table, and what must not be."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, name: str, *counts: int) -> None:
        self.rows.append((name, *(f"{count:,}" for count in counts)))
        print("  ", name, *counts, flush=True)

    def check(self, right: bool, what: str) -> int:
        """1 where something is as it must not be."""
        if not right:
            self.failures.append(what)
            print("FAILED", what, flush=True)
        return not right

    def markdown(self) -> str:
        lines = [f"| {' | '.join(row)} |" for row in (self.columns, ("---",) * len(self.columns), *self.rows)]
        return "\n".join([f"**{self.title}**", "", *lines, ""])


def events(chosen: Sequence[Trial], how: int) -> Tally:
    """Every trial, once for every event: killed before it, or without space from it on."""
    full = how == FULL
    title = "No space left from an event on" if full else "Killed before an event"
    tally = Tally(title, ("command", "events", "old result after", "new result after", "failures"))
    for trial in chosen:
        kept = replaced = wrong = 0
        with empty_folder() as before:
            trial.prepare(before)
            _undisturbed(trial, before, COUNT_EVENTS)  # imports what the forks will need
            old, new, count = _undisturbed(trial, before, COUNT_SPACE if full else COUNT_EVENTS)
            for which, folder in enumerate(copies(before, count), 1):
                ended = call(folder, trial.arguments, how, which)
                where = f"{trial.name}, event {which} of {count}"
                if full:
                    said = ended.code == 0 or "o space left" in ended.text
                    wrong += tally.check(ended.clean and said, f"{where}: exit {ended.code}: {ended.text[-800:]}")
                    wrong += tally.check(not left_over(folder), f"{where}: {left_over(folder)} left")
                else:
                    wrong += tally.check(ended.code == -signal.SIGKILL, f"{where}: exit {ended.code}, not killed")
                there = trial.result(folder)
                wrong += tally.check(there in (old, new), f"{where}: neither the old result nor the new one")
                wrong += tally.check(ended.code != 0 or there == new, f"{where}: exit 0 without the new result")
                kept, replaced = kept + (there == old), replaced + (there == new)
                if not (trial.once and there == new):
                    again = call(folder, trial.arguments)
                    wrong += tally.check(again.code == 0, f"{where}, again: {again.text[-800:]}")
                    wrong += tally.check(trial.result(folder) == new, f"{where}, again: another result")
                    wrong += tally.check(not left_over(folder), f"{where}, again: {left_over(folder)} left")
        tally.add(trial.name, count, kept, replaced, wrong)
    return tally


def copies(before: Path, count: int) -> Iterator[Path]:
    """Copies of a folder, one at a time."""
    for _ in range(count):
        with empty_folder() as folder:
            yield shutil.copytree(before, folder, dirs_exist_ok=True)


def _undisturbed(trial: Trial, before: Path, how: int) -> tuple[object, object, int]:
    """The old result, the new one, and how many events lie between."""
    for folder in copies(before, 1):
        old = trial.result(folder)
        ended = call(folder, trial.arguments, how)
        if ended.code or old == trial.result(folder):
            raise SystemExit(f"{trial.name} does not work undisturbed: {ended.text}")
        new = trial.result(folder)
    return old, new, ended.events


# ---------------------------------------------------------------------- signals


def signals(rounds: int, seed: int, only: Sequence[str] = ()) -> Tally:
    """A sweep of two workers, told to end at random moments, again and again, and in the end left alone."""
    columns = (
        "signal",
        "sent",
        "after the end",
        "exit code and sentence",
        "sweeps finished",
        "results equal",
        "failures",
    )
    tally = Tally("A sweep with two workers, ended at random moments", columns)
    whole, seconds = _sweep_alone()
    rng = random.Random(seed)
    for number in [number for number in SIGNALS if not only or number.name in only]:
        counts: Counter[str] = Counter()
        while counts["sent"] - counts["late"] < rounds:
            with empty_folder() as folder:
                for _ in range(STRIKES):
                    if (folder / "out" / "report.html").exists():
                        break
                    counts["sent"] += 1
                    _strike(folder, number, rng.uniform(0, seconds), tally, counts)
                counts["wrong"] += tally.check(_sweep(folder).wait() == 0, f"{number.name}: cannot be resumed")
                counts["finished"] += 1
                same = _file("out/results.json", folder) == whole
                counts["same"] += same
                counts["wrong"] += tally.check(same, f"{number.name}: other results")
                counts["wrong"] += tally.check(not left_over(folder), f"{number.name}: {left_over(folder)} left")
        tally.add(number.name, *(counts[key] for key in ("sent", "late", "said", "finished", "same", "wrong")))
    return tally


def _sweep(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "toporo", *SWEEP, "--seeds", "2", "--jobs", "2"]
    with (folder / "log").open("w") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, text=True, start_new_session=True)


def _sweep_alone() -> tuple[bytes | None, float]:
    with empty_folder() as folder:
        began = time.monotonic()
        if _sweep(folder).wait():
            raise SystemExit(f"the sweep does not work undisturbed: {(folder / 'log').read_text()}")
        return _file("out/results.json", folder), time.monotonic() - began


def _strike(folder: Path, number: signal.Signals, after: float, tally: Tally, counts: Counter[str]) -> None:
    """Send a signal to the command (Ctrl-C goes to its workers, too) and see that all of it ends, and how."""
    running = _sweep(folder)
    try:
        running.wait(after)
    except subprocess.TimeoutExpired:
        if number == signal.SIGINT:
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
    where = f"{number.name} after {after:.2f} s"
    try:
        code = running.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        counts["wrong"] += tally.check(False, f"{where}: still there after {PATIENCE:g} s")
        os.killpg(running.pid, signal.SIGKILL)
        return
    text = (folder / "log").read_text()
    late = code == 0 or ("report:" in text and "Traceback" not in text)  # all was done, and Python about to leave
    counts["late"] += late
    if number != signal.SIGKILL and not late:
        begun = "runs (" in text  # before that the command may not yet have been listening
        expected = {signal.SIGTERM: (143, "terminated"), signal.SIGINT: (130, "interrupted")}[number]
        said = code == expected[0] and f"toporo: {expected[1]}" in text
        counts["said"] += said
        if begun:
            counts["wrong"] += tally.check(said and "Traceback" not in text, f"{where}: exit {code}: {text[-800:]}")
    alone = _group_ended(running.pid)
    counts["wrong"] += tally.check(alone, f"{where}: workers live on")
    if not alone:
        os.killpg(running.pid, signal.SIGKILL)
    if number != signal.SIGKILL:
        counts["wrong"] += tally.check(not left_over(folder), f"{where}: {left_over(folder)} left")


def _group_ended(group: int) -> bool:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


# ---------------------------------------------------------------------- together


def together(chosen: Sequence[Trial], rounds: int) -> Tally:
    """Two and three writers at once on one place, each with its own table, and a reader that never stops."""
    columns = ("command", "writers", "rounds", "reads", "refused", "failures")
    tally = Tally("Writers and a reader on one place at once", columns)
    for trial in chosen:
        tables = [() for _ in range(3)] if trial.name in ("reproduce", "data get") else [1, 2, 3]
        for writers in (2, 3):
            reads = refused = wrong = 0
            for _ in range(rounds if tables[0] else max(1, rounds // 5)):
                counts = _crowd(trial, tables[:writers], tally)
                reads, refused, wrong = reads + counts[0], refused + counts[1], wrong + counts[2]
            tally.add(trial.name, writers, rounds if tables[0] else max(1, rounds // 5), reads, refused, wrong)
    return tally


def _crowd(trial: Trial, tables: Sequence[object], tally: Tally) -> tuple[int, int, int]:
    with empty_folder() as folder:
        trial.prepare(folder)
        allowed = [trial.result(folder)]
        commands = []
        for seed in tables:
            arguments = list(trial.arguments)
            if isinstance(seed, int):  # a table of its own, and the result it has alone
                _table(folder, seed, f"{seed}.csv")
                arguments[arguments.index("river.csv")] = f"{seed}.csv"
            commands.append(arguments)
            with empty_folder() as alone:
                shutil.copytree(folder, alone, dirs_exist_ok=True)
                call(alone, arguments)
                allowed.append(trial.result(alone))
        waiting = [start(folder, arguments) for arguments in commands]
        reads = wrong = 0
        ended: list[Ended] = []
        for wait in waiting:
            until = time.monotonic() + 0.4
            while time.monotonic() < until:
                wrong += tally.check(trial.result(folder) in allowed, f"{trial.name}: a reader sees a mixture")
                reads += 1
            ended.append(wait())
        refused = sum(each.code == 1 for each in ended)
        for each in ended:
            wrong += tally.check(each.clean, f"{trial.name}, together: exit {each.code}: {each.text[-800:]}")
        wrong += tally.check(any(each.code == 0 for each in ended), f"{trial.name}, together: nobody got through")
        wrong += tally.check(trial.result(folder) in allowed[1:], f"{trial.name}, together: another result")
        wrong += tally.check(not left_over(folder), f"{trial.name}, together: {left_over(folder)} left")
        return reads, refused, wrong


# ---------------------------------------------------------------------- all of it


def main() -> int:
    """Do what was asked for; 1 where something was as it must not be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    kinds = ("kills", "full", "together", "signals")
    parser.add_argument("kinds", nargs="*", choices=[*kinds, []], help="what to do; everything unless given")
    parser.add_argument("--only", nargs="*", default=(), help="commands or signals by name, e.g. fit 'fit --overwrite'")
    parser.add_argument("--rounds", type=int, default=100, help="signals of each kind; a fifth as many crowds")
    parser.add_argument("--seed", type=int, default=0, help="of the moments when signals are sent")
    parser.add_argument("--table", type=Path, help="write the tables to this file")
    arguments = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background has it ignored, and so its children
    preload()
    del os.environ["LD_PRELOAD"]  # what is started from here needs it no more
    with empty_folder() as published:
        content = write_fake(published / "file").read_bytes()
        with serving(Publisher({RELEASE: content, "procdate.txt": b"20240906\n"})) as publisher:
            chosen = trials(publisher.url, arguments.only)
            work = {
                "kills": partial(events, chosen, KILL),
                "full": partial(events, chosen, FULL),
                "together": partial(together, chosen, max(1, arguments.rounds // 5)),
                "signals": partial(signals, arguments.rounds, arguments.seed, arguments.only),
            }
            tallies = []
            for kind in arguments.kinds or kinds:
                print(f"{kind}:", flush=True)
                tallies.append(work[kind]())
    text = "\n".join(tally.markdown() for tally in tallies)
    print(text)
    if arguments.table is not None:
        arguments.table.parent.mkdir(parents=True, exist_ok=True)
        arguments.table.write_text(text)
    failures = [failure for tally in tallies for failure in tally.failures]
    print(f"{len(failures)} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
