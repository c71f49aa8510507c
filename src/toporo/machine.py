"""Resources of this process: cores, memory, threads, and worker processes, which end with it."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from toporo.errors import SettingError
from toporo.text import human

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")

#: Bytes without which no portion of a table can be worked on.
LEAST_ROOM = 1 << 26


def cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return how many cores this process may use: fewer than the machine has under a batch system or in a container.

    Parameters
    ----------
    quota : the file with the microseconds of CPU time that the process gets, and in how many.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no such file, or no limit: "max 100000"
        time_given, period = map(int, quota.read_text(encoding="ascii").split())
        allowed = max(1, min(allowed, -(-time_given // period)))
    return allowed


# ---------------------------------------------------------------------- threads of linear algebra


class _Shared:
    """Of libraries with one setting for the whole process: who is at work on one thread, and what was set before.

    The first to come sets it and the last to go puts back what was there, whichever thread that is.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside: set[object] = set()
        self.before: dict[str, tuple[Any, int]] = {}

    def enter(self, who: object, libraries: Iterable[Any]) -> None:
        with self.lock:
            self.inside.add(who)
            for library in libraries:  # also for the second: an import may have brought a library meanwhile
                self.before.setdefault(library.filepath, (library, library.get_num_threads()))
                _set_library(library, 1)

    def leave(self, who: object) -> None:
        with self.lock:
            self.inside.discard(who)
            if not self.inside:
                for library, count in self.before.values():
                    _set_library(library, count)
                self.before.clear()


_SHARED = _Shared()


def free_bytes() -> int | None:
    """Nine tenths of the memory that is free, or None where the system does not tell."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
    return int(0.9 * 1024 * kilobytes)


def used_bytes() -> int:
    """The memory that this process takes; where the system does not tell, the most that it has taken so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most


def room(limit: int) -> int:
    """Bytes that this process may still take under a limit of its memory.

    Parameters
    ----------
    limit : bytes of the whole process, program and libraries included.
    """
    used = used_bytes()
    if limit < used + LEAST_ROOM:
        raise SettingError(
            f"the memory limit is {human(limit)}, but the program itself takes {human(used)}: expected at least "
            f"{human(used + LEAST_ROOM)}. Raise the limit."
        )
    return limit - used


@contextmanager
def one_thread(*, torch: bool = False, openmp: bool = False) -> Iterator[None]:
    """Linear algebra on a single thread: the same bytes everywhere, and faster for small matrices.

    Several threads would change the order of sums, and so the last bits. Blocks may lie within each other, and overlap
    in different threads: when the last has ended all is as it was.

    Parameters
    ----------
    torch : torch too, in the calling thread.
    openmp : and whatever else is parallel by OpenMP, in the calling thread.
    """
    shared, own = [], []
    for library in _libraries(len(sys.modules)):
        if library.user_api == "openmp" or getattr(library, "threading_layer", None) == "openmp":
            own += [library] if openmp or library.user_api == "blas" else []
        elif library.user_api == "blas":
            shared.append(library)
    with ExitStack() as stack:
        stack.callback(_SHARED.leave, stack)
        _SHARED.enter(stack, shared)
        if torch:
            stack.callback(_set_torch, _set_torch(1))
        for library in own:
            stack.callback(_set_library, library, library.get_num_threads())
            _set_library(library, 1)
        yield


@lru_cache(maxsize=1)
def _libraries(modules: int) -> list[Any]:  # noqa: ARG001  # what is there may change with an import
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().lib_controllers)


def _set_library(library: Any, count: int) -> None:
    """Set how many threads a library has; threadpoolctl's newer way leaves that to the first thread that asked."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


def _set_torch(count: int) -> int:
    """Set torch's threads for this thread alone, and return how many there were.

    Torch hands what was set last, in whichever thread, to every thread that comes to it later. So a thread that ends
    at once sets that back.
    """
    import torch

    with _SHARED.lock:
        before, usual = torch.get_num_threads(), _elsewhere(torch.get_num_threads)
        torch.set_num_threads(count)
        _elsewhere(lambda: torch.set_num_threads(usual))
    return before


def _elsewhere(work: Callable[[], Any]) -> Any:
    """Return the result of a function in a thread of its own."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    thread.join()
    return result[0]


# ---------------------------------------------------------------------- fits in threads


def usable_threads() -> int:
    """Return how many threads a fit may use: all cores, or fewer by OMP_NUM_THREADS, threadpoolctl or `one_thread`."""
    openmp = [library for library in _libraries(len(sys.modules)) if library.user_api == "openmp"]
    return min([cores(), *(max(1, int(library.get_num_threads())) for library in openmp)])


@dataclass(frozen=True, eq=False)
class Fit(Generic[T]):
    """A fit whose result is asked for later.

    Attributes
    ----------
    work : the function that fits.
    future : its result from another thread; None for a fit that runs in the calling thread when it is asked for.
    caught : its warnings from there.
    """

    work: Callable[[], T]
    future: Future[T] | None = None
    caught: list[tuple[Any, ...]] = field(default_factory=list)

    def result(self) -> T:
        """Return what the fit returns or raise what it raises, after its warnings have been shown."""
        if self.future is None:
            return self.work()
        try:
            return self.future.result()
        finally:
            for warning in self.caught:
                warnings.showwarning(*warning)

    def cancel(self) -> None:
        """Do not start the fit, if it has not started."""
        if self.future is not None:
            self.future.cancel()


class FitPool:
    """Run fits that do not depend on one another at the same time, each on one thread.

    Threads of OpenMP wait for each other without letting go of their cores, so where other processes need these too,
    one fit on several threads may take ten times as long. Several fits on one thread each wait for nobody.

    Results, errors and warnings are those of one fit after the other. An error that leaves the block, such as
    ``KeyboardInterrupt``, starts no further fit and does not wait for those that run.

    Parameters
    ----------
    workers : how many fits run at once. One: each in the calling thread, when its result is asked for.
    """

    def __init__(self, workers: int) -> None:
        self.threads = ThreadPoolExecutor(workers, "fit") if workers > 1 else None
        self._show: Callable[..., None] = warnings.showwarning
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> Self:
        if self.threads is not None:
            self._filters.__enter__()  # what fits do to the filters at the same time may not last
            warnings.showwarning = self._keep
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.threads is not None:
            self.threads.shutdown(wait=kind is None, cancel_futures=True)
            self._filters.__exit__(None, None, None)

    def submit(self, work: Callable[[], T]) -> Fit[T]:
        """Run a fit as soon as a thread is free.

        Parameters
        ----------
        work : the function that fits.
        """
        if self.threads is None:
            return Fit(work)
        import numpy as np
        from sklearn import config_context, get_config

        settings, errors, caught = get_config(), np.geterr(), list[tuple[Any, ...]]()

        def run() -> T:
            _CAUGHT.set(caught)
            # settings of scikit-learn and numpy are of one thread
            with config_context(**settings), np.errstate(**errors), one_thread(openmp=True):
                return work()

        return Fit(work, self.threads.submit(run), caught)

    def _keep(self, *warning: Any, **named: Any) -> None:
        """Keep the warning of a fit until its result is asked for; show all others."""
        caught = _CAUGHT.get()
        if caught is None:
            self._show(*warning, **named)
        else:
            caught.append(warning)


#: Warnings of the fit that this thread runs, as ``warnings.showwarning`` takes them.
_CAUGHT: ContextVar[list[tuple[Any, ...]] | None] = ContextVar("caught", default=None)


# ---------------------------------------------------------------------- worker processes

#: Signals that workers leave to their parent.
SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds that a worker has to tidy up once its parent has gone.
GRACE = 5.0
_AT_WORK = threading.Event()


@contextmanager
def signals_held() -> Iterator[None]:
    """Let signals wait, here and in processes that are started meanwhile: in these until :func:`follow` is called.

    A mask alone would do for the others, and not here: what one thread does not take another may, and Python handles
    it in this one.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    waiting: list[int] = []
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: waiting.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in waiting:
            signal.raise_signal(number)


def follow(parent: Connection) -> None:
    """Make this process, a worker, end when its parent closes the other end of a pipe, or ends in whichever way.

    This module takes no time to import, so that a worker knows what to do before it loads what its work needs.
    """
    gone = threading.Event()

    def heed(*_: object) -> None:
        if gone.is_set():
            raise SystemExit

    def watch() -> None:
        with suppress(EOFError, OSError):
            parent.recv_bytes()  # nothing is ever sent
        gone.set()
        if _AT_WORK.is_set():
            _thread.interrupt_main(signal.SIGTERM)
            time.sleep(GRACE)
        os._exit(1)

    for number in SIGNALS:
        signal.signal(number, heed)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=watch, daemon=True).start()


def tidily(work: Callable[..., T], *arguments: Any) -> T:
    """Do work in a process that follows another: if that ends, what ``work`` has begun to write is removed first."""
    _AT_WORK.set()
    try:
        return work(*arguments)
    except SystemExit:  # a pool would take it for a result, and wait for more work
        os._exit(1)
    finally:
        _AT_WORK.clear()
