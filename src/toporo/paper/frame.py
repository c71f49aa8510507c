"""Stored runs as a data frame."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toporo.errors import DataError, SettingError
from toporo.paper.results import RUN_SCHEMA, StoredRun, check_seal
from toporo.schema import as_type
from toporo.types import Record

#: What every row has before its metrics.
COLUMNS = ("benchmark", "variant", "method", "seed", "source", "key", "round", "last", "loss")


def load(folder: str | os.PathLike[str]) -> Any:
    """The records of a folder of results as a pandas data frame: one row per run and evaluation.

    Columns are ``benchmark``, ``variant`` (empty where there is one), ``method``, ``seed``, ``source`` (of the data),
    ``key`` (another one where code, data or settings were others), ``round`` (epoch or step), ``last`` (whether it is
    the run's last evaluation) and ``loss``; then the metrics as they were measured (``test``, ``validation``, …; of
    every group as ``by_group/NAME``); then the method's settings as ``settings/NAME``. What a run lacks is missing.
    Rows are in the order of variant, method, seed, key and round.

    Parameters
    ----------
    folder : what ``toporo reproduce`` was given as ``--out``.

    >>> import tempfile
    >>> from toporo.paper.runner import reproduce
    >>> with tempfile.TemporaryDirectory() as out:
    ...     _ = reproduce("dg15", out, methods=["erm"], seeds=1, source="generated")
    ...     runs = load(out)
    >>> runs[runs["last"]][["method", "seed", "round"]].values.tolist()
    [['erm', 0, 20]]
    """
    try:
        import pandas as pd
    except ImportError:
        raise SettingError("load() needs pandas, which is not installed: pip install 'toporo[frames]'.") from None
    place = Path(folder) / "runs"
    paths = [path for path in place.glob("*.json") if not path.name.endswith(".topology.json")]
    if not paths:
        raise DataError(f"no runs in {place}: give the folder that `toporo reproduce` was given as --out.")
    records = sorted((_read(path) for path in paths), key=lambda r: (r["variant"], r["method"], r["seed"], r["key"]))
    rows = [row for record in records for row in _rows(record)]
    names = dict.fromkeys(name for row in rows for name in row)
    ordered = sorted(names, key=lambda name: (name not in COLUMNS, name.startswith("settings/")))
    return pd.DataFrame(rows, columns=ordered)


def _figures(entry: Record) -> Iterator[tuple[str, float]]:
    """Name and value of every number that an evaluation measured; of every group as ``name/group``."""
    from toporo.training import RoundRecord  # torch takes seconds that loading a data set need not wait for

    for name, value in RoundRecord.from_dict(entry).metrics.items():
        for part, number in value.items() if isinstance(value, dict) else [(None, value)]:
            if isinstance(number, int | float) and not isinstance(number, bool):
                yield name if part is None else f"{name}/{part}", float(number)


def _read(path: Path) -> Record:
    """A record as it was stored; nothing is set aside, since reading changes nothing."""
    try:
        record = check_seal(path)
        as_type(record, StoredRun, "the record of a run")
        if record.get("schema") != RUN_SCHEMA or "benchmark" not in record:
            raise DataError(f"{path} is of another format ({record.get('schema')}): expected {RUN_SCHEMA}.")
    except DataError as error:
        raise DataError(
            f"{error} Run `toporo reproduce` again: it sets damaged records aside and redoes them."
        ) from None
    return record


def _rows(record: Record) -> Iterator[dict[str, Any]]:
    about = {name: record[name] for name in ("benchmark", "variant", "method", "seed", "source", "key")}
    settings = {f"settings/{name}": value for name, value in record["settings"].items() if value is not None}
    for place, entry in enumerate(record["history"], 1):
        when = {"round": entry["round"], "last": place == len(record["history"]), "loss": entry["loss"]}
        yield about | when | dict(_figures(entry)) | settings
