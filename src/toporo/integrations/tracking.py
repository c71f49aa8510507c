"""Runs of a sweep shown by an experiment tracker: TensorBoard, MLflow.

A tracker is called with every job and its record, as the runner calls any of its ``callbacks``, and knows by the run's
key what it was told before: so it may be told again, after an interruption or by another process.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from toporo.bench.frame import figures
from toporo.bench.results import Job
from toporo.errors import SettingError, UnknownNameError
from toporo.registry import Registry
from toporo.types import Record

#: Name of a tracker to a class that takes its place: a folder, or an address.
TRACKERS: Registry[Callable[[str], Callable[[Job, Record], object]]] = Registry("tracker")
#: What marks a run in MLflow.
KEY = "toporo.key"


def make_tracker(text: str) -> Callable[[Job, Record], object]:
    """The tracker that ``"tensorboard:FOLDER"`` or ``"mlflow:ADDRESS"`` names."""
    name, colon, place = text.partition(":")
    if not colon or not place:
        raise SettingError(f"--track {text}: expected a tracker and its place, tensorboard:FOLDER or mlflow:ADDRESS.")
    if name not in TRACKERS:
        raise UnknownNameError("tracker", name, TRACKERS)
    return TRACKERS[name](place)


def settings_of(job: Job, record: Record) -> dict[str, Any]:
    """What a run was: names, seed, and the settings of its method."""
    return {
        "benchmark": record["benchmark"],
        "variant": job.variant,
        "method": job.method.name,
        "seed": job.seed,
        **record["settings"],
    }


@TRACKERS.register("tensorboard")
class TensorBoard:
    """One folder of events per run, ``FOLDER/BENCHMARK/KEY``, for ``tensorboard --logdir FOLDER``.

    Parameters
    ----------
    folder : made if need be.
    """

    def __init__(self, folder: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise SettingError(
                "--track tensorboard needs TensorBoard, which is not installed: pip install 'toporo[tracking]'."
            ) from None
        self._writer, self._folder = SummaryWriter, Path(folder)

    def __str__(self) -> str:
        return f"TensorBoard in {self._folder}"

    def __call__(self, job: Job, record: Record) -> None:
        """Write a run's events, unless they are there: whole or not at all, as everything that is written."""
        target = self._folder / record["benchmark"] / job.key
        if target.exists():
            return
        place = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        place.mkdir(parents=True)
        try:
            writer = self._writer(str(place))
            lines = (f"    {name}: {value}" for name, value in settings_of(job, record).items())
            writer.add_text("settings", "\n".join(lines))
            for entry in record["history"]:
                for name, value in (("loss", entry["loss"]), *figures(entry)):
                    writer.add_scalar(name, value, entry["round"])
            writer.close()
            with suppress(OSError) if target.exists() else nullcontext():  # another process was quicker
                place.rename(target)
        finally:
            shutil.rmtree(place, ignore_errors=True)


@TRACKERS.register("mlflow")
class MLflow:
    """One run of MLflow per run, in an experiment named for the benchmark: settings, and metrics by round.

    Parameters
    ----------
    address : of a tracking server, ``http://host:5000``, or what else MLflow takes for its tracking URI.
    """

    def __init__(self, address: str) -> None:
        try:
            from mlflow import MlflowClient
            from mlflow.entities import Metric, Param
        except ImportError:
            raise SettingError(
                "--track mlflow needs MLflow, which is not installed: pip install 'toporo[tracking]'."
            ) from None
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a server that is down: seconds, not minutes
        self._address, self._metric, self._param = address, Metric, Param
        try:
            self._client = MlflowClient(tracking_uri=address)
        except Exception as error:
            raise SettingError(f"--track mlflow:{address}: {error}") from None

    def __str__(self) -> str:
        host = urlsplit(self._address).hostname
        return f"MLflow at {host}" if host else "MLflow"  # an address may hold a password

    def __call__(self, job: Job, record: Record) -> None:
        """Log a run, unless it was logged to its end before; what was begun and never ended is deleted."""
        experiment = self._experiment(record["benchmark"])
        for run in self._client.search_runs([experiment], f"tags.`{KEY}` = '{job.key}'"):
            if run.info.status == "FINISHED":
                return
            self._client.delete_run(run.info.run_id)
        run = self._client.create_run(experiment, tags={KEY: job.key}, run_name=f"{job}")
        params = [self._param(name, str(value)) for name, value in settings_of(job, record).items()]
        metrics = [
            self._metric(_plain(name), value, 0, entry["round"])
            for entry in record["history"]
            for name, value in (("loss", entry["loss"]), *figures(entry))
        ]
        self._client.log_batch(run.info.run_id, params=params)
        for first in range(0, len(metrics), 1000):  # as many as a server takes at once
            self._client.log_batch(run.info.run_id, metrics[first : first + 1000])
        self._client.set_terminated(run.info.run_id)

    def _experiment(self, name: str) -> str:
        experiment = self._client.get_experiment_by_name(name)
        return str(experiment.experiment_id if experiment is not None else self._client.create_experiment(name))


def _plain(name: str) -> str:
    """A name as MLflow takes it."""
    return "".join(sign if sign.isalnum() or sign in "_-./ " else "_" for sign in name)
