"""Work on many machines; the only module that uses Ray.

An engine says where work runs: ``"local"`` in this process, which needs no Ray; ``"ray"`` on the cluster that
``RAY_ADDRESS`` names or else on one that is started on this machine and ends with the work; or the address of a running
cluster, ``host:6379``, from one of its machines. Ray Client (``ray://``) is refused: it can hang where a worker dies.

An error of a worker is raised here unchanged. Work that is lost with a worker or a machine is done again elsewhere.
"""

from __future__ import annotations

import errno
import logging
import os
import pickle
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

from toporo.errors import SettingError, TopoRoError
from toporo.machine import cores

T = TypeVar("T")

LOCAL, RAY = "local", "ray"
#: Seconds that a cluster has to answer, and its machines to say what they have installed.
PATIENCE, PROBING = 10.0, 60.0
#: How often a call is made again whose worker or machine died, and after how many seconds: the first time, then twice
#: as many each time. A machine that is dying may for a moment still be given calls, and lose them at once.
RETRIES, PAUSE = 3, 1.0
#: Seconds that calls have to end by themselves before they are cancelled.
MOMENT = 0.5
#: Bytes that a cluster of our own shares between its processes, and the longest folder that leaves room for a socket.
STORE, _LONGEST = 200 * 2**20, 24
#: What must be the same on every machine for the same figures, beside toporo and Python.
ALIKE = ("numpy", "scipy", "torch", "pyarrow")
#: A gRPC server answers this beginning of a conversation (HTTP/2) with a frame of type 4.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


class Cluster:
    """Pool of workers: this process, one call after the other; subclasses have others.

    Attributes
    ----------
    workers : calls at a time.
    """

    workers = 1

    def share(self, value: Any) -> Any:
        """Return a reference to pass as an argument of calls in place of a value, which then travels only once."""
        return value

    def each(
        self, work: Callable[..., Any], calls: Iterable[tuple[T, tuple[Any, ...]]], *, ahead: int | None = None
    ) -> Generator[tuple[T, Any], None, None]:
        """Call ``work`` with each job's arguments, and yield jobs with results in the order of the calls.

        Close the generator (``contextlib.closing``) if it may be left early: calls under way then end.

        Parameters
        ----------
        work : a function at the top of a module; what it raises ends the others.
        calls : jobs and arguments, taken as there is room for them.
        ahead : how many calls may be under way or have results not yet yielded; twice ``workers`` unless given.
        """
        room = 2 * self.workers if ahead is None else max(1, ahead)
        waiting = iter(calls)
        running: deque[tuple[T, Any]] = deque()
        with self._threads() as threads:
            try:
                while True:
                    for job, arguments in islice(waiting, room - len(running)):
                        running.append((job, self._start(threads, work, arguments)))
                    if not running:
                        return
                    job, call = running[0]
                    result = self._result(threads, job, call)
                    running.popleft()
                    del call  # else a worker would keep the result until the next one
                    yield job, result
            finally:
                if running:
                    self._cancel([call for _, call in running])

    def _threads(self) -> AbstractContextManager[Any]:
        """Return the threads that calls are made in, or waited for."""
        return nullcontext()

    def _start(self, threads: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:  # noqa: ARG002
        """Begin a call."""
        return partial(work, *arguments)

    def _result(self, threads: Any, job: object, call: Any) -> Any:  # noqa: ARG002  # used by subclasses
        """Wait for a call."""
        return call()

    def _cancel(self, calls: list[Any]) -> None:
        """End calls whose results nobody wants, if they are under way or were not begun."""


class Threads(Cluster):
    """Threads of this process: reading and arithmetic let others go on.

    Parameters
    ----------
    most : threads for which there is memory; as many as there are cores at most, and at least one.
    """

    def __init__(self, most: int | None = None) -> None:
        self.workers = cores() if most is None else max(1, min(cores(), most))

    def _threads(self) -> AbstractContextManager[Any]:
        return ThreadPoolExecutor(self.workers)

    def _start(self, threads: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return threads.submit(work, *arguments)

    def _result(self, threads: Any, job: object, call: Any) -> Any:  # noqa: ARG002  # used by subclasses
        return call.result()

    def _cancel(self, calls: list[Any]) -> None:
        for call in calls:
            call.cancel()


@contextmanager
def cluster(engine: str) -> Iterator[Cluster]:
    """Connect to or start the cluster that an engine names, check it, and leave or end it with the block."""
    check_engine(engine)
    if engine == LOCAL:
        yield Cluster()
        return
    ray = _ray()
    with ExitStack() as stack:
        if not ray.is_initialized():  # else a program around us has its own
            address = os.environ.get("RAY_ADDRESS") if engine == RAY else engine
            own = not address or address == LOCAL
            folder = stack.enter_context(_short_folder()) if own else ""
            stack.callback(ray.shutdown)
            _start(ray, folder) if own else _connect(ray, str(address))
        _probe(ray)
        yield RayCluster(ray)


def check_engine(engine: str) -> str:
    """Return an engine unchanged; refuse what is not one."""
    if engine in (LOCAL, RAY) or _place(engine) is not None:
        return engine
    raise SettingError(
        f"engine {engine!r}: expected local, ray, or the address of a running Ray cluster such as head-node:6379, on "
        "one of whose machines this is run; ray:// is not supported."
    )


def _place(address: str) -> tuple[str, int] | None:
    """Return host and port of an address; None for other text."""
    with suppress(ValueError):
        parts = urlsplit(f"//{address}")
        if parts.hostname and parts.port and not parts.path and " " not in address:
            return parts.hostname, parts.port
    return None


def _ray() -> Any:
    """Import Ray, set to print nothing: its messages about workers would go to standard output."""
    try:
        with _environment(RAY_DEDUP_LOGS_SKIP_REGEX=".*"):
            import ray
    except ImportError:
        raise SettingError("--engine ray needs Ray, which is not installed: pip install 'toporo[ray]'.") from None
    return ray


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


# ---------------------------------------------------------------------- coming and going


def _start(ray: Any, folder: str) -> None:
    """Start a cluster on this machine, which ends with this process, however that ends."""
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
    """Return a secret that other users of this machine do not know; Ray would write one to the home folder."""
    return secrets.token_hex(32)


@contextmanager
def _short_folder() -> Iterator[str]:
    """A folder for a cluster's files whose name leaves room for that of a socket."""
    usual = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="toporo-", dir=usual if len(usual) <= _LONGEST else "/tmp")  # noqa: S108
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _connect(ray: Any, address: str) -> None:
    """Join a running cluster."""
    place = _place(address)
    if place is None:
        raise SettingError(f"RAY_ADDRESS is {address!r}: expected one such as head-node:6379.")
    _check_reachable(address, *place)
    try:
        _init(ray, address=address)
    except TopoRoError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())
        raise TopoRoError(
            f"cannot join the Ray cluster at {address}: {why}. Expected the same Ray and Python there as here, and "
            "that this is one of its machines."
        ) from None


def _check_reachable(address: str, host: str, port: int) -> None:
    """Refuse an address at which no Ray server listens: Ray itself would try again for minutes."""
    why = "something else than Ray answers there"
    try:
        with socket.create_connection((host, port), PATIENCE) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            connection.settimeout(PATIENCE)
            connection.sendall(_HELLO)
            answer = connection.recv(9)
            if len(answer) > 3 and answer[3] == 4:
                return
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
    raise TopoRoError(
        f"no Ray cluster answers at {address} ({why}). Check that it runs there (`ray status` on its head node), the "
        "port (usually 6379) and that no firewall stands between. Nothing was begun."
    )


def _init(ray: Any, **how: Any) -> None:
    """Call ``ray.init`` without messages on the terminal, and keep the handler of SIGTERM."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    ended: SystemExit | None = None
    try:
        ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **how)
    except SystemExit as end:  # what Ray makes of SIGTERM
        ended = end
    finally:
        if main and before is not None:
            signal.signal(signal.SIGTERM, before)
    if ended is not None:
        if ended.code == signal.SIGTERM:
            signal.raise_signal(signal.SIGTERM)
        raise ended


# ---------------------------------------------------------------------- what machines have installed


@cache
def _here() -> dict[str, str]:
    return _about_machine()()


def _about_machine() -> Callable[[], dict[str, str]]:
    """Return a function that lists the versions on a machine; it is sent whole, so toporo need not be there."""
    names = ALIKE

    def about() -> dict[str, str]:
        import hashlib
        import importlib.util
        import platform
        from importlib.metadata import PackageNotFoundError, version
        from pathlib import Path

        versions = {"Python": ".".join(platform.python_version_tuple()[:2])}
        spec = importlib.util.find_spec("toporo")
        if spec is not None and spec.origin is not None:
            import toporo  # that of the machine which is asked

            root, digest = Path(spec.origin).parent, hashlib.sha256()
            for path in sorted(root.rglob("*.py")):
                digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
            versions |= {"toporo": toporo.__version__, "toporo's sources": digest.hexdigest()[:12]}
        for name in names:
            try:
                versions[name] = version(name).partition("+")[0]
            except PackageNotFoundError:
                continue
        return versions

    return about


def _probe(ray: Any) -> None:
    """Ask every machine for its versions before any work; another version than here is an error that names it."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    if not nodes:
        raise TopoRoError("the Ray cluster has no machine with a CPU to give. Add one, or use another engine.")
    about = ray.remote(num_cpus=0, max_retries=RETRIES)(_about_machine())
    asked = {
        about.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)).remote(): node
        for node in nodes
    }
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=PROBING)
    wrong = [f"{_name(asked[ref])}: no answer within {PROBING:g} s" for ref in silent]
    for ref in answered:
        try:
            wrong += _differences(_name(asked[ref]), ray.get(ref))
        except Exception as error:
            wrong.append(f"{_name(asked[ref])}: {' '.join(str(error).split())[:300]}")
    if wrong:
        raise TopoRoError(
            f"not every machine of the Ray cluster can do this work. {'; '.join(wrong)}. Install there what is "
            f"installed here (pip install toporo=={_here()['toporo']}), or leave it out. Nothing was begun."
        )


def _name(node: dict[str, Any]) -> str:
    return f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']}, {node['NodeID'][:8]})"


def _differences(name: str, there: dict[str, str]) -> list[str]:
    if "toporo" not in there:
        return [f"{name} has no toporo"]
    here = _here()
    other = [key for key, value in here.items() if there.get(key) != value]
    if "toporo" in other:  # of course
        other = [key for key in other if key != "toporo's sources"]
    return [f"{name} has {key} {there.get(key, 'not installed')}, this machine {here[key]}" for key in other]


# ---------------------------------------------------------------------- work


@dataclass(eq=False)
class _Call:
    """A call on a Ray cluster, which is made again if its worker or machine is lost."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    ref: Any


class RayCluster(Cluster):
    """A Ray cluster; see :func:`cluster`."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self.workers = int(ray.cluster_resources().get("CPU", 1))
        # Lost calls are made again here, after pauses that grow.
        self._remote = ray.remote(num_cpus=1, max_retries=0)(_call)

    def share(self, value: Any) -> Any:
        return self._ray.put(value)

    def _threads(self) -> AbstractContextManager[Any]:
        # Another thread waits for Ray: in this one Ray would make a KeyboardInterrupt of whatever a signal raises.
        return ThreadPoolExecutor(1, "ray")

    def _start(self, threads: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:  # noqa: ARG002
        return _Call(work, arguments, self._remote.remote(work, *arguments))

    def _result(self, threads: Any, job: object, call: _Call) -> Any:
        lost = 0
        while True:
            try:
                return threads.submit(self._ray.get, call.ref).result()
            except self._ray.exceptions.RayError as error:
                if lost == RETRIES or not self._lost(error):
                    raise self._explained(job, error) from None
            threads.submit(time.sleep, PAUSE * 2**lost).result()
            call.ref = self._remote.remote(call.work, *call.arguments)
            lost += 1

    def _cancel(self, calls: list[_Call]) -> None:
        """Cancel the calls that take longer than a moment, the last first.

        Ray ends this process if it cancels a call in the instant in which that begins. Short calls end by themselves,
        and as long as earlier calls occupy the workers no later one begins.
        """
        refs = [call.ref for call in calls]
        with suppress(Exception):
            _, late = self._ray.wait(refs, num_returns=len(refs), timeout=MOMENT)
            for ref in reversed(refs):
                if ref in late:
                    self._ray.cancel(ref, force=True)

    def _lost(self, error: Exception) -> bool:
        """Return whether a worker or a machine has died, for which the call is not to blame."""
        errors = self._ray.exceptions
        lost = errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError
        return isinstance(error, (*lost, errors.LocalRayletDiedError))

    def _explained(self, job: object, error: Any) -> Any:
        """Return the error that a call raised, or the one for a call that Ray could not do."""
        errors = self._ray.exceptions
        if isinstance(error, errors.RayTaskError):
            return error.cause
        why = " ".join(str(error).split())
        if isinstance(error, errors.OutOfDiskError | errors.ObjectStoreFullError):
            return TopoRoError(
                f"a machine of the Ray cluster has no room left: {why[:400]}. Make some, and run it again."
            )
        if self._lost(error):
            return TopoRoError(
                f"{job} was lost {RETRIES + 1} times, each time with its worker or machine, perhaps for want of "
                f"memory: {why[:400]}. What is done is kept: run it again to go on, with fewer jobs at a time if "
                "memory was short."
            )
        return TopoRoError(f"Ray could not do {job}: {type(error).__name__}: {why[:600]}")


def _call(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do work on a worker; an error says where it was raised, and one that cannot be sent becomes one that can."""
    try:
        return work(*arguments)
    except TopoRoError:
        raise
    except Exception as error:
        node = socket.gethostname()
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TopoRoError(
                f"the disk of node {node} is full ({error}). What is done is kept: make room there and run it again to "
                "go on."
            ) from None
        error.add_note(f"On node {node}:\n{traceback.format_exc()}")
        try:
            pickle.dumps(deepcopy(error))
        except Exception:  # a class of the user's own may raise anything while it is copied
            raise TopoRoError(f"{type(error).__name__}: {error}") from None
        raise
