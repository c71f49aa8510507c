"""Pools of workers: the calling thread, threads of this process, or a Ray cluster (the only module that uses Ray).

An *engine* names a pool: ``"local"`` needs no Ray; ``"ray"`` is the cluster that ``RAY_ADDRESS`` names, or else one
that is started on this machine and ends with the work; ``host:6379`` is a running cluster, one of whose machines this
is. Ray Client (``ray://``) is refused: it can hang where a worker dies.

An error of a worker is raised here unchanged. Calls that are lost with a worker or a machine are made again by Ray.
"""

from __future__ import annotations

import logging
import os
import pickle
import platform
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from copy import deepcopy
from functools import cache
from importlib.metadata import version
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from toporo.errors import SettingError, TopoRoError
from toporo.machine import cores

LOCAL, RAY = "local", "ray"
#: Seconds that a cluster has to answer.
PATIENCE = 10.0
#: How often Ray makes a call again whose worker or machine died.
RETRIES = 3
#: Seconds that calls have to end by themselves before they are cancelled.
MOMENT = 0.5
#: Bytes that a cluster of our own shares between its processes, and the longest folder that leaves room for a socket.
STORE, _LONGEST = 200 * 2**20, 24
#: Packages that must have the same version on every machine for the same figures.
ALIKE = ("toporo", "numpy", "scipy", "pyarrow")


class Pool:
    """The calling thread, which makes one call after the other; subclasses make several at a time.

    Attributes
    ----------
    workers : calls at a time.
    """

    workers = 1

    def share(self, value: Any) -> Any:
        """Return a reference to pass as an argument of calls in place of a value, which then travels only once."""
        return value

    def map(
        self,
        work: Callable[..., Any],
        calls: Iterable[tuple[Any, ...]],
        *,
        ahead: int | None = None,  # noqa: ARG002
    ) -> Generator[Any, None, None]:
        """Call ``work`` with each tuple of arguments, and yield results in the order of the calls.

        Close the generator (``contextlib.closing``) if it may be left early: calls under way then end.

        Parameters
        ----------
        work : a function at the top of a module; what it raises ends the others.
        calls : arguments, taken as there is room for them.
        ahead : how many calls may be under way or have results not yet yielded; twice ``workers`` unless given.
        """
        for arguments in calls:
            yield work(*arguments)


class _Window(Pool):
    """A pool whose calls under way form a window that moves along the sequence of calls."""

    def map(
        self, work: Callable[..., Any], calls: Iterable[tuple[Any, ...]], *, ahead: int | None = None
    ) -> Generator[Any, None, None]:
        size = 2 * self.workers if ahead is None else max(1, ahead)
        waiting = iter(calls)
        running: deque[Future[Any]] = deque()
        with self._open():
            try:
                while True:
                    running.extend(self._submit(work, each) for each in islice(waiting, size - len(running)))
                    if not running:
                        return
                    result = self._result(running[0])
                    running.popleft()
                    yield result
            finally:
                if running:
                    self._cancel(list(running))

    def _open(self) -> AbstractContextManager[Any]:
        """Keep the workers of one sequence of calls until the block ends."""
        return nullcontext()

    def _submit(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
        """Begin a call."""
        raise NotImplementedError

    def _result(self, call: Future[Any]) -> Any:
        """Wait for a call."""
        return call.result()

    def _cancel(self, calls: list[Future[Any]]) -> None:
        """End calls whose results are no longer wanted, whether they have begun or not."""
        for call in calls:
            call.cancel()


class Threads(_Window):
    """Threads of this process: reading and arithmetic let others go on.

    Parameters
    ----------
    most : threads for which there is memory; as many as there are cores at most, and at least one.
    """

    def __init__(self, most: int | None = None) -> None:
        self.workers = cores() if most is None else max(1, min(cores(), most))

    @contextmanager
    def _open(self) -> Iterator[None]:
        with ThreadPoolExecutor(self.workers) as self._executor:
            yield

    def _submit(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
        return self._executor.submit(work, *arguments)


class RayPool(_Window):
    """A Ray cluster; see :func:`open_pool`."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self.workers = int(ray.cluster_resources().get("CPU", 1))
        self._remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_call)

    def share(self, value: Any) -> Any:
        return self._ray.put(value)

    def _submit(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
        reference = self._remote.remote(_versions(), work, *arguments)
        future: Future[Any] = reference.future()  # waiting for it leaves signals to Python, unlike ray.get
        future.reference = reference  # type: ignore[attr-defined]  # to cancel it by
        return future

    def _result(self, call: Future[Any]) -> Any:
        errors = self._ray.exceptions
        try:
            return call.result()
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            why = " ".join(str(error).split())[:600]
            raise TopoRoError(
                f"Ray could not make a call: {type(error).__name__}: {why}. A call that is lost with its worker or "
                f"machine is made again {RETRIES} times; memory or disk space may be short. Run it again with more."
            ) from None

    def _cancel(self, calls: list[Future[Any]]) -> None:
        """Cancel the calls that take longer than a moment, the last first.

        Ray ends this process if it cancels a call in the instant in which that begins. Short calls end by themselves,
        and as long as earlier calls occupy the workers no later one begins.
        """
        references = [call.reference for call in calls]  # type: ignore[attr-defined]
        with suppress(Exception):
            _, late = self._ray.wait(references, num_returns=len(references), timeout=MOMENT)
            for reference in reversed(references):
                if reference in late:
                    self._ray.cancel(reference, force=True)


def check_engine(engine: str) -> str:
    """Return an engine unchanged; another text is an error."""
    if engine in (LOCAL, RAY) or _host_and_port(engine) is not None:
        return engine
    raise SettingError(
        f"engine {engine!r}: expected local, ray, or the address of a running Ray cluster such as head-node:6379, on "
        "one of whose machines this is run; ray:// is not supported."
    )


@contextmanager
def open_pool(engine: str, local: Pool | None = None) -> Iterator[Pool]:
    """Connect to or start the pool that an engine names, and leave or end it with the block.

    Parameters
    ----------
    engine : ``"local"``, ``"ray"`` or the address of a Ray cluster.
    local : the pool of the engine ``"local"``; by default the calling thread.
    """
    check_engine(engine)
    if engine == LOCAL:
        yield local or Pool()
        return
    try:
        with _environment(RAY_DEDUP_LOGS_SKIP_REGEX=".*"):  # messages about workers would go to standard output
            import ray
    except ImportError:
        raise SettingError("--engine ray needs Ray, which is not installed: pip install 'toporo[ray]'.") from None
    with ExitStack() as stack:
        if not ray.is_initialized():  # else a program around us has its own
            address = os.environ.get("RAY_ADDRESS") if engine == RAY else engine
            own = not address or address == LOCAL
            folder = stack.enter_context(_short_folder()) if own else ""
            stack.callback(ray.shutdown)
            _start_cluster(ray, folder) if own else _join_cluster(ray, str(address))
        yield RayPool(ray)


def _call(expected: dict[str, str], work: Callable[..., Any], *arguments: Any) -> Any:
    """Do work on a worker; an error says where it was raised, and one that cannot be sent becomes one that can."""
    node = socket.gethostname()
    if other := [name for name, release in _versions().items() if release != expected[name]]:
        name = other[0]
        raise TopoRoError(
            f"node {node} of the Ray cluster has {name} {_versions()[name]}, this machine {expected[name]}. Install "
            "the same there, or leave the node out."
        )
    try:
        return work(*arguments)
    except TopoRoError:
        raise
    except Exception as error:
        error.add_note(f"On node {node}:\n{traceback.format_exc()}")
        try:
            pickle.dumps(deepcopy(error))
        except Exception:  # a class of the user's own may raise anything while it is copied
            raise TopoRoError(f"{type(error).__name__}: {error} (on node {node})") from None
        raise


@cache
def _versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide figures."""
    releases = {name: version(name).partition("+")[0] for name in ALIKE}
    return {"Python": ".".join(platform.python_version_tuple()[:2]), **releases}


# ---------------------------------------------------------------------- Ray clusters


def _host_and_port(address: str) -> tuple[str, int] | None:
    """Return host and port of an address; None for other text."""
    with suppress(ValueError):
        parts = urlsplit(f"//{address}")
        if parts.hostname and parts.port and not parts.path and " " not in address:
            return parts.hostname, parts.port
    return None


@contextmanager
def _environment(**added: str) -> Iterator[None]:
    """Set variables for Ray and the processes that it starts meanwhile; those of the user have precedence."""
    before = set(os.environ)
    for name, value in added.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name in os.environ.keys() - before:
            if name.startswith("RAY_"):
                del os.environ[name]


def _start_cluster(ray: Any, folder: str) -> None:
    """Start a cluster on this machine, which ends with this process, however that ends."""
    # A secret that other users of this machine do not know; Ray would write one to the home folder.
    with _environment(**({} if "RAY_AUTH_MODE" in os.environ else {"RAY_AUTH_TOKEN": _token()})):
        _init(
            ray,
            address=LOCAL,
            num_cpus=cores(),
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=STORE,
            _temp_dir=folder,
        )


@cache
def _token() -> str:
    return secrets.token_hex(32)


@contextmanager
def _short_folder() -> Iterator[str]:
    """Make a folder for a cluster's files whose name leaves room for that of a socket."""
    usual = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="toporo-", dir=usual if len(usual) <= _LONGEST else "/tmp")  # noqa: S108
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _join_cluster(ray: Any, address: str) -> None:
    """Join a running cluster; one that does not answer is an error at once, where Ray would try for minutes."""
    place = _host_and_port(address)
    if place is None:
        raise SettingError(f"RAY_ADDRESS is {address!r}: expected one such as head-node:6379.")
    try:
        with socket.create_connection(place, PATIENCE):
            pass
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise TopoRoError(
            f"no Ray cluster answers at {address} ({why}). Check that it runs there (`ray status` on its head node), "
            "the port (usually 6379) and that no firewall stands between. Nothing was begun."
        ) from None
    try:
        _init(ray, address=address)
    except TopoRoError:
        raise
    except Exception as error:
        raise TopoRoError(
            f"cannot join the Ray cluster at {address}: {' '.join(str(error).split())}. Expected the same Ray and "
            "Python there as here, and that this is one of its machines."
        ) from None


def _init(ray: Any, **how: Any) -> None:
    """Call ``ray.init`` without messages on the terminal, and keep the handler of SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **how)
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)
