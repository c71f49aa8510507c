"""A fitted model together with all that turns a table into its inputs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from toporo.data.encode import Encoded, Encoder
from toporo.data.frame import Frame, Numbers, stream_frames
from toporo.errors import DataError, SettingError, listed
from toporo.groups import GroupIds, Groups
from toporo.tables.evaluate import Evaluation, evaluate
from toporo.topology.graph import GroupGraph
from toporo.types import Array

if TYPE_CHECKING:
    from toporo.estimators.explain import GroupTable


TASKS = ("classification", "regression")
ROLES = ("feature", "target", "group", "weight", "left out")
#: Inputs of a model that are computed at a time, and rows at most and at least.
CELLS, MOST_ROWS, FEWEST_ROWS = 1 << 22, 65_536, 256


@dataclass(frozen=True)
class ColumnInfo:
    """A column of the training table.

    Attributes
    ----------
    role : ``"feature"``, ``"target"``, ``"group"``, ``"weight"`` or ``"left out"``.
    kind : ``"number"``, ``"date"`` or ``"text"``.
    note : what was done with it, or why it was left out.
    """

    name: str
    role: str
    kind: str
    note: str = ""


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions for some consecutive rows of a table.

    Attributes
    ----------
    values : numbers, or classes as text.
    probabilities : rows × classes; None for numbers.
    frame : the columns that were read.
    encoded : what the model saw, with counts of what was filled in, unseen or outside the training range.
    """

    values: npt.NDArray[Any]
    probabilities: Array | None
    frame: Frame
    encoded: Encoded


@dataclass(frozen=True, eq=False)
class TableModel:
    """What :func:`~toporo.tables.fit_table` returns and a model folder holds.

    Attributes
    ----------
    estimator : one of :mod:`toporo.estimators`, fitted.
    encoder : how columns become numbers.
    task : ``"classification"`` or ``"regression"``.
    target, group, weight : columns of the training table.
    graph, test_groups : the topology, and the groups to come that the prior looks towards.
    columns : the training table's columns, and what became of each.
    about : where it came from: source, rows, version.
    """

    estimator: Any
    encoder: Encoder
    task: str
    target: str
    group: str
    weight: str | None
    graph: GroupGraph | None
    test_groups: tuple[str, ...]
    columns: tuple[ColumnInfo, ...]
    about: dict[str, Any]

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes, as text; None for numbers."""
        return tuple(str(name) for name in self.estimator.classes_) if self.task == "classification" else None

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups it was trained on."""
        return tuple(Groups(self.estimator.group_sizes_).names)  # type: ignore[arg-type]  # names in tables are text

    def kind(self, name: str) -> str:
        """How a column of the training table was read."""
        return next((column.kind for column in self.columns if column.name == name), "text")

    # ------------------------------------------------------------------ use

    def portions(
        self,
        source: Any,
        *,
        require: Iterable[str] = (),
        keep: Iterable[str] = (),
        optional: Iterable[str] = (),
        format: str | None = None,  # noqa: A002  # as read_frame calls it
        delimiter: str = ",",
        rows: int | None = None,
    ) -> Iterator[Prediction]:
        """Predict a table a portion at a time, in bounded memory.

        Parameters
        ----------
        source : a CSV, Parquet or Feather file, a stream of CSV, a pandas, polars or arrow table, or columns by name.
        require : further columns to read, typed as in training (the target, say).
        keep : further columns to read, as text; ``optional`` ones are read if they are there.
        rows : at most so many at a time; unless given, fewer the wider the table.
        """
        kinds = dict.fromkeys([*keep, *optional], "text")
        kinds |= {name: self.kind(name) for name in require} | self.encoder.kinds
        extra = [name for name in optional if name not in self.encoder.kinds]
        if rows is None:
            rows = min(max(CELLS // len(self.encoder.names), FEWEST_ROWS), MOST_ROWS)
        frames = stream_frames(source, kinds, optional=extra, format=format, delimiter=delimiter, rows=rows)
        for frame in _ahead(frames) if isinstance(source, str | os.PathLike) else frames:
            yield self._predict(frame, self.encoder.transform(frame))

    def _predict(self, frame: Frame, encoded: Encoded) -> Prediction:
        with np.errstate(over="ignore", invalid="ignore"):
            work = self.estimator.predict if self.task == "regression" else self.estimator.predict_proba
            found = np.asarray(work(encoded.matrix))
        finite = np.isfinite(found.reshape(len(found), -1)).all(axis=1)
        if not finite.all():
            raise DataError(
                f"{frame.where}, row {frame.first + int(finite.argmin())}: the prediction is not finite, because the "
                "row holds a number beyond all measure. Correct it, or leave the cell empty."
            )
        if self.task == "regression":
            return Prediction(found, None, frame, encoded)
        names = np.asarray(self.classes, dtype=object)
        return Prediction(names[found.argmax(axis=1)], found, frame, encoded)

    def predict(self, source: Any, **reading: Any) -> npt.NDArray[Any]:
        """Predicted numbers or classes, one a row; ``reading`` as for :meth:`portions`."""
        return np.concatenate([portion.values for portion in self.portions(source, **reading)])

    def predict_proba(self, source: Any, **reading: Any) -> Array:
        """The probability of every class, in the order of :attr:`classes`."""
        if self.task != "classification":
            raise SettingError(f"the target {self.target!r} is a number and has no probabilities: use predict.")
        found = [portion.probabilities for portion in self.portions(source, **reading)]
        return np.concatenate([chances for chances in found if chances is not None])

    def explain(self) -> GroupTable:
        """Which training groups count how much, and why: one row a group."""
        table: GroupTable = self.estimator.explain()
        return table

    def evaluate(
        self,
        source: Any,
        *,
        unseen: bool = False,
        resamples: int = 1000,
        level: float = 0.95,
        seed: int = 0,
        **reading: Any,
    ) -> Evaluation:
        """Judge predictions by group, with bootstrap intervals; the table must have the target and the group column.

        Rows without a target are left out, with ``unseen`` those of groups that it was trained on too; rows without a
        group are an error.
        """
        targets, values, chances, names, strangers = [], [], [], [], 0
        for portion in self.portions(source, require=[self.target, self.group], **reading):
            group = portion.frame.text(self.group)
            if group.missing.any():
                row = int(group.missing.argmax()) + portion.frame.first
                raise DataError(
                    f"{portion.frame.where}, row {row}: no group in column {self.group!r}. Fill it in, or leave such "
                    "rows out."
                )
            target, known = self._targets(portion.frame)
            if unseen:
                trained = [group.levels.index(name) for name in self.groups if name in group.levels]
                strangers += len(group.levels) - len(trained)
                known &= ~np.isin(group.codes, trained)
            targets.append(target[known])
            values.append(portion.values[known])
            names.append(np.asarray(group.levels, dtype=object)[group.codes[known]])
            if portion.probabilities is not None:
                chances.append(portion.probabilities[known])
        if unseen and not strangers:
            raise DataError(
                f"no row of the table is in groups that it was not trained on: the model knows {listed(self.groups)}. "
                "Judge it on all groups, or give a table with others."
            )
        if not sum(map(len, targets)):
            where = " in groups that it was not trained on" if unseen else ""
            raise DataError(
                f"column {self.target!r} is empty{where}: without known targets there is nothing to judge predictions "
                "by. Give a table with targets, or use predict."
            )
        ids = Groups.of(np.concatenate(names).tolist())
        return evaluate(
            self.task,
            np.concatenate(targets),
            np.concatenate(values),
            ids,
            probabilities=np.concatenate(chances) if chances else None,
            classes=self.classes,
            hops=self._hops(ids),
            trained=self.groups,
            resamples=resamples,
            level=level,
            seed=seed,
        )

    def _targets(self, frame: Frame) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """The targets of a portion, and which of them are known."""
        column = frame[self.target]
        if self.task == "regression" and isinstance(column, Numbers):
            return column.values, ~column.missing
        labels = frame.text(self.target).known()
        return np.asarray([*labels.levels, ""], dtype=object)[labels.codes], ~labels.missing

    def _hops(self, ids: GroupIds) -> dict[str, float] | None:
        """Of every group in a table, to the nearest training group; those that the graph does not have are left out."""
        if self.graph is None:
            return None
        near = self.graph.hops(self.groups)
        return {str(name): near[name] for name in ids.groups if name in near}

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a model folder: JSON and safetensors, nothing executable; see :func:`toporo.tables.save_model`."""
        from toporo.tables.folder import save_model

        save_model(self, folder, overwrite=overwrite)


def _ahead(frames: Iterator[Frame]) -> Iterator[Frame]:
    """The same, each read while the one before is in use. Not for pipes: a read that waits cannot be interrupted."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, frames, None)
        while (frame := coming.result()) is not None:
            coming = reader.submit(next, frames, None)
            yield frame
