"""Stored runs as a data frame."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toporo.errors import DataError, SettingError
from toporo.paper.runs import SCHEMA, TOPOLOGY, check_seal
from toporo.types import Record

#: Columns of every row before its metrics.
COLUMNS = ("benchmark", "variant", "method", "seed", "fold", "source", "key", "round", "last", "loss")


def load(folder: str | os.PathLike[str]) -> Any:
    """Return the records of a folder of results as a pandas data frame with one row per run and evaluation.

    Columns are ``benchmark``, ``variant`` (empty if there is only one), ``method``, ``seed``, ``fold`` (0 outside of
    searches), ``source`` (of the data), ``key`` (different for other code, data or settings), ``round`` (epoch or
    step), ``last`` (whether it is the last evaluation of the run) and ``loss``; then the metrics (``test``,
    ``validation``, …; of every group as ``by_group/NAME``); then the method's settings as ``settings/NAME``. Values
    that a run lacks are missing. Rows are in the order of variant, method, seed, key and round.

    Parameters
    ----------
    folder : the folder given to ``toporo reproduce`` as ``--out``.

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
    paths = [path for path in place.glob("*.json") if not path.name.endswith(TOPOLOGY)]
    if not paths:
        raise DataError(f"no runs in {place}: give the folder that `toporo reproduce` was given as --out.")
    records = sorted((_read(path) for path in paths), key=lambda r: (r["variant"], r["method"], r["seed"], r["key"]))
    rows = [row for record in records for row in _rows(record)]
    names = dict.fromkeys(name for row in rows for name in row)
    ordered = sorted(names, key=lambda name: (name not in COLUMNS, name.startswith("settings/")))
    return pd.DataFrame(rows, columns=ordered)


def _read(path: Path) -> Record:
    """Read a record as it was stored; unlike a store, set nothing aside."""
    try:
        record = check_seal(path)
        if record.get("schema") != SCHEMA:
            raise DataError(f"{path} is of another format ({record.get('schema')}): expected {SCHEMA}.")
    except DataError as error:
        raise DataError(
            f"{error} Run `toporo reproduce` again: it sets damaged records aside and redoes them."
        ) from None
    return record


def _rows(record: Record) -> Iterator[dict[str, Any]]:
    from toporo.training import RoundRecord  # torch takes seconds that loading a data set need not wait for

    about = {name: record[name] for name in COLUMNS if name in record}
    settings = {f"settings/{name}": value for name, value in record["settings"].items() if value is not None}
    for number, entry in enumerate(record["history"], 1):
        when = {"round": entry["round"], "last": number == len(record["history"]), "loss": entry["loss"]}
        yield about | when | dict(_numbers(RoundRecord.from_dict(entry).metrics)) | settings


def _numbers(metrics: Record) -> Iterator[tuple[str, float]]:
    """Yield name and value of every number that an evaluation measured; of a group as ``name/group``."""
    for name, value in metrics.items():
        for part, number in value.items() if isinstance(value, dict) else [(None, value)]:
            if isinstance(number, int | float) and not isinstance(number, bool):
                yield name if part is None else f"{name}/{part}", float(number)
