"""A fitted model together with all that turns a table into its inputs."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier

from toporo.data.encode import Encoded, Encoder
from toporo.data.frame import Frame, NoRowsError, Numbers, stream_frames
from toporo.data.table import find_table, is_rereadable
from toporo.errors import DataError, SettingError, TopoRoError, TopoRoWarning, UnsafeFileError, listed, warn
from toporo.estimators.coefficients import CoefficientTable, KrigedPart
from toporo.estimators.explain import GroupTable
from toporo.estimators.held_out import HeldOut, checked_level, hops_of_rows, why_none
from toporo.estimators.inputs import Coefficients
from toporo.estimators.kriged import GroupInputs
from toporo.estimators.league import LeaguePart, LeagueTable
from toporo.estimators.state import dump_state, load_state
from toporo.groups import Groups
from toporo.machine import free_bytes, one_thread, room, used_bytes
from toporo.pool import LOCAL, Pool, open_pool
from toporo.progress import Progress
from toporo.schema import as_type
from toporo.tables.evaluate import Evaluation, check_settings, look_at, summed
from toporo.tables.folder import read_folder, write_folder
from toporo.tables.reach import Reach, RowReach, hops_from, required
from toporo.tables.resample import EXACT_ROWS
from toporo.tables.tally import ALL, Seen, Tallies
from toporo.text import human, many
from toporo.topology.centrality_prior import default_measure
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array

ROLES = ("feature", "target", "group", "weight", "left out")
#: What a column may hold; nothing is known of one that was left out unread.
KINDS = ("number", "date", "text", "")
#: Of predictions, how much their intervals hold when they are judged.
INTERVAL = 0.9
#: What the names of a reach's arrays begin with in a model folder.
PREFIX = "reach."
#: Inputs of a model that are computed at a time, and rows at most and at least.
CELLS, MOST_ROWS, FEWEST_ROWS = 1 << 22, 65_536, 256
#: How many times a portion is in memory: read ahead, as columns, as inputs and in what becomes of these.
COPIES = 8
#: Rows of a piece that are tallied at a time, whatever the portions.
FOLD = 1 << 18
#: What arrays of :class:`~toporo.estimators.held_out.HeldOut` are called in a model folder.
HELD_OUT = "held_out."


@dataclass(frozen=True)
class ColumnInfo:
    """A column of the training table.

    Attributes
    ----------
    name : as the table has it.
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
    lower, upper : the ends of intervals of numbers; None where none were asked for.
    sets : which classes are in the set of each row, rows × classes; None where none were asked for.
    reach : how far the rows are from what was trained on; None where that was not asked for.
    skipped : with the last rows of a table, how many rows of it were left out, by group that the model does not know.
    """

    values: npt.NDArray[Any]
    probabilities: Array | None
    frame: Frame
    encoded: Encoded
    lower: Array | None = None
    upper: Array | None = None
    sets: npt.NDArray[np.bool_] | None = None
    reach: RowReach | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TableModel:
    """What :func:`~toporo.tables.fit_table` returns and a model folder holds.

    Attributes
    ----------
    estimator : one of :mod:`toporo.estimators`, fitted.
    encoder : how columns become numbers.
    task : ``"classification"`` or ``"regression"``.
    target, group, weight : columns of the training table.
    graph, test_groups : the topology, and the groups never trained on that the prior was made for.
    columns : the training table's columns, and what became of each.
    about : where it came from: source, rows, version.
    reach : where its training rows are, some of which it holds, and how far from them validation has been; None in
        folders of earlier versions. ``dataclasses.replace(model, reach=None)`` is a model that holds no rows.
    held_out : how far off it is in groups that it has not seen; None if nobody can tell, or if the estimator says so
        itself.
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
    reach: Reach | None = None
    held_out: HeldOut | None = None

    def __repr__(self) -> str:
        kind = type(self.estimator).__name__
        return f"TableModel({kind}, {self.task} of {self.target!r}, {many(len(self.groups), 'group')})"

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes, as text; None for numbers."""
        return tuple(str(name) for name in self.estimator.classes_) if self.task == "classification" else None

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups it was trained on."""
        names = self.estimator.groups_ if self.by_group else self.estimator.group_sizes_
        return tuple(Groups(names).names)  # type: ignore[arg-type]  # names in tables are text

    @property
    def constant(self) -> float | str | None:
        """What would be said of every row without a model: the mean target in training, or the commonest class."""
        value = self.about.get("constant")
        wanted = isinstance(value, str) if self.task == "classification" else isinstance(value, float)
        return value if wanted and not (isinstance(value, float) and not math.isfinite(value)) else None

    @property
    def kriged(self) -> bool:
        """Whether it has coefficients by group."""
        return isinstance(self.estimator, KrigedPart)

    @property
    def by_group(self) -> bool:
        """Whether predictions depend on the group, so that it takes the group of every row to predict."""
        return isinstance(self.estimator, KrigedPart | LeaguePart)

    @property
    def has_intervals(self) -> bool:
        """Whether ``interval`` can be asked for: a kriged model of numbers has its own, others need groups left out."""
        return self._left_out is not None or self._own_intervals

    @property
    def _own_intervals(self) -> bool:
        return self.kriged and self.task == "regression"

    @property
    def _left_out(self) -> HeldOut | None:
        """How far off it is in groups that it has not seen: votes know it themselves."""
        own: HeldOut | None = getattr(self.estimator, "intervals_", None)
        return own if isinstance(self.estimator, LeaguePart) else self.held_out

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
        interval: float | None = None,
        neighbors: Mapping[str, Iterable[str]] | None = None,
        reach: bool = False,
        drop_rows: bool = False,
        known_to: Iterable[TableModel] = (),
        memory_limit: int | None = None,
        inputs: Any = None,
    ) -> Iterator[Prediction]:
        """Predict a table a portion at a time, in bounded memory.

        A kriged model and one by votes look at all rows of a group together, so they hold them all, unless a kriged one
        was fitted with ``context="row"``. Files that do not fit into memory they read twice.

        Parameters
        ----------
        source : a CSV (also .gz), Parquet or Feather file, a folder of these, a pattern, an address of an object store
            (:func:`toporo.data.table.find_table`), a stream of CSV, a pandas, polars or arrow table, or columns by
            name.
        require : further columns to read, typed as in training (the target, say).
        keep, optional : further columns to read, as they are written; ``optional`` ones are read if they are there.
        format : "csv", "parquet" or "feather", where the ending of a path does not say it.
        delimiter : what stands between the cells of a CSV file.
        rows : at most so many at a time; unless given, fewer the wider the table.
        interval : also the ends of intervals, or the sets of classes, that hold a row's target with this probability,
            such as 0.9, in groups that the model was not trained on. With a graph they are wider the farther the group
            is, so the table needs the column of groups.
        neighbors : of such models, groups that are not in the graph and which groups there they are next to.
        reach : also how far rows are from what was trained on, by groups too where the table has them.
        drop_rows : leave out rows of groups that the graph of such a model does not have, which are an error else; the
            last portion says how many of which (``skipped``). Models that predict any group leave out none.
        known_to : other models that must know a group as well, so that all are judged by the same rows.
        memory_limit : bytes that the process may take: portions are so small that they fit. A table whose rows all have
            to be held, and do not fit, is an error.
        inputs : of the groups of a table that this is a part of; see :meth:`parts`.
        """
        if reach:
            required(self.reach)
            optional = [*optional, *{self.group}.difference(require := list(require))]
        asked, grouped, keep = self._asked(interval, neighbors), self._takes_groups(interval), list(keep)
        kinds = dict.fromkeys([*keep, *optional], "text")
        kinds |= {name: self.kind(name) for name in require} | self.encoder.kinds
        if grouped:
            kinds, optional = {self.group: "text"} | kinds, [*optional, self.group]  # read if there: see _groups
        extra = [name for name in optional if name not in self.encoder.kinds]
        named, skipped = is_rereadable(source), Counter[str]()
        models = (self, *known_to) if drop_rows else ()
        rows = self._at_a_time(len(kinds), memory_limit, rows)

        def read() -> Iterator[_Rows]:
            skipped.clear()
            frames = stream_frames(
                source, kinds, optional=extra, written=keep, format=format, delimiter=delimiter, rows=rows
            )
            frames = _ahead(frames) if named else frames
            several = (_Rows.of(frame, self, models, neighbors or {}, skipped) for frame in frames)
            return (each for each in several if len(each.frame))

        parts: Iterable[list[_Rows]] | None = None
        if self.together and inputs is None:
            try:
                parts = [list(self._within(read(), memory_limit, len(kinds), named))]
            except _TooManyRowsError:
                if not named:
                    raise
                inputs = self._gathered(read())
                self._warn_of(inputs)
        if inputs is not None:
            asked["inputs"] = inputs
        if parts is None:
            parts = ([each] for each in read())
        last: Prediction | None = None
        for some in parts:
            for portion in self._predict(some, dict(asked)) if some else ():
                how_far = self.reach_in(portion.frame, portion.encoded, neighbors=neighbors) if reach else None
                ready = portion if how_far is None else replace(portion, reach=how_far)
                if not drop_rows:
                    yield ready
                elif last is not None:
                    yield last
                last = ready
        if last is None:
            raise UnknownGroupsError(skipped)
        if drop_rows:  # who was left out is known with the last portion
            yield replace(last, skipped=dict(skipped))

    def _at_a_time(self, columns: int, memory_limit: int | None, rows: int | None = None) -> int:
        """Rows of a portion of so many columns."""
        if rows is None:
            rows = min(max(CELLS // len(self.encoder.names), FEWEST_ROWS), MOST_ROWS)
        if memory_limit is None:
            return rows
        return max(1, min(rows, room(memory_limit) // (COPIES * self._row_bytes(columns))))

    def _row_bytes(self, columns: int) -> int:
        """About how many bytes a row takes as it is read and as inputs of the model."""
        return 8 * (len(self.encoder.names) + columns + 4)

    def _within(self, several: Iterator[_Rows], limit: int | None, columns: int, named: bool) -> Iterator[_Rows]:
        """Rows that are all held: too many are an error before they are; of files, more than half of free memory is."""
        free = free_bytes() if named else None
        left, rows = (math.inf if free is None else free // 2) if limit is None else room(limit), 0
        for each in several:
            rows += len(each.frame)
            needed = COPIES * rows * self._row_bytes(columns)
            if needed > left:
                raise _TooManyRowsError(
                    f"{each.frame.where}: this model looks at all rows of a group together, so it holds them all, and "
                    f"{many(rows, 'row')} alone take about {human(needed)} of the {human(int(left))} that the memory "
                    f"limit of {human(limit or 0)} leaves. Raise the limit, give some groups at a time (all rows of "
                    "each), or fit a model that takes rows one by one (--model linear)."
                )
            yield each

    def _gathered(self, several: Iterable[_Rows]) -> Any:
        """Of rows that cannot all be held, what the model needs to know of their groups."""
        estimator, inputs = getattr(self.estimator, "model_", self.estimator), None
        for each in several:
            if len(each.frame):
                inputs = estimator.gather(self.encoder.transform(each.frame).matrix, self._groups(each.frame), inputs)
        return inputs

    def _warn_of(self, inputs: Any) -> None:
        if self.kriged and inputs is not None:
            getattr(self.estimator, "model_", self.estimator).warn_of(inputs)

    def knows(self, name: str, neighbors: Mapping[str, Iterable[str]] | None = None) -> bool:
        """Whether rows of a group can be predicted: models by group with a graph need to know where it is.

        Parameters
        ----------
        name : of the group.
        neighbors : groups that are not in the graph, and which groups there they are next to.
        """
        return not self.by_group or self.graph is None or name in self.graph or name in (neighbors or {})

    def _asked(self, interval: float | None, neighbors: Mapping[str, Iterable[str]] | None) -> dict[str, Any]:
        """What an estimator is told beside the rows, if it is one that can be."""
        asked = {"interval": interval, "neighbors": neighbors}
        if neighbors is not None and not self.by_group:
            raise SettingError(
                f"only a kriged model and one by votes take neighbors, and this is a {type(self.estimator).__name__}: "
                "fit one with --model auto (model='auto') or kriged."
            )
        if interval is not None:
            checked_level(interval)
            if not self.has_intervals:
                costly = self.kriged or getattr(self.estimator, "net_", None) is not None
                raise SettingError(f"the model has no intervals: {why_none(len(self.groups), costly=costly)}.")
            if not self._own_intervals and self._left_out is not None:
                self._left_out.checked(interval)
        return {name: value for name, value in asked.items() if value is not None}

    def _takes_groups(self, interval: float | None) -> bool:
        """Whether the group of every row is needed."""
        return self.by_group or (interval is not None and self.graph is not None)

    def _predict(self, some: list[_Rows], asked: dict[str, Any]) -> Iterator[Prediction]:
        frames = [rows.frame for rows in some]
        encoded = [self.encoder.transform(frame) for frame in frames]
        matrix = encoded[0].matrix if len(frames) == 1 else np.concatenate([part.matrix for part in encoded])
        level = None if self._own_intervals else asked.pop("interval", None)
        names = [name for frame in frames for name in self._groups(frame)] if self._takes_groups(level) else []
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):  # the same bits on any number of threads
            work = self.estimator.predict if self.task == "regression" else self.estimator.predict_proba
            output = work(matrix, **({"groups": names} if self.by_group else {}), **asked)
        ends = output[1:] if "interval" in asked else (None, None)
        output = np.asarray(output[0] if "interval" in asked else output)
        sets = None
        if level is not None and self._left_out is not None:
            distances = np.ones(len(output))
            if names:
                distances = hops_of_rows(self.graph, self.groups, names, asked.get("neighbors"))
            if self.task == "regression":
                with np.errstate(over="ignore"):
                    half = self._left_out.half_widths(level, distances)
                    ends = (output - half, output + half)
            else:
                sets = self._left_out.sets(output, level, distances)
        finite = np.isfinite(output.reshape(len(output), -1)).all(axis=1)
        start = 0
        for (frame, number), part in zip(((each.frame, each.number) for each in some), encoded, strict=True):
            rows = slice(start, start + len(frame))
            start = rows.stop
            if not finite[rows].all():
                raise DataError(
                    f"{frame.where}, row {number(int(finite[rows].argmin()))}: the prediction is not finite, "
                    "because the row holds a number that is too large to use. Correct it, or leave the cell empty."
                )
            if self.task == "regression":
                lower, upper = (None if end is None else end[rows] for end in ends)
                yield Prediction(output[rows], None, frame, part, lower, upper)
            else:
                labels = np.asarray(self.classes, dtype=object)[output[rows].argmax(axis=1)]
                inside = None if sets is None else sets[rows]
                yield Prediction(labels, output[rows], frame, part, sets=inside)

    def _groups(self, frame: Frame) -> npt.NDArray[Any]:
        """The group of every row."""
        if self.group not in frame.columns:
            votes = "A model by votes looks at all rows of a group together, and adds an effect of the group"
            far = "Intervals are wider far from the graph's training groups"
            why = "A kriged model has coefficients by group" if self.kriged else votes if self.by_group else far
            raise DataError(
                f"{frame.where} lacks the column {self.group!r}. {why}, so it takes the group of every row it "
                "predicts: add the column."
            )
        group = frame.text(self.group)
        if group.missing.any():
            raise DataError(
                f"{frame.where}, row {int(group.missing.argmax()) + frame.first}: no group in column {self.group!r}. "
                "Fill it in, or leave such rows out."
            )
        return np.asarray(group.levels, dtype=object)[group.codes]

    def predict(self, source: Any, *, interval: float | None = None, **reading: Any) -> Any:
        """Predicted numbers or classes; with ``interval``, ``(values, lower, upper)`` or ``(classes, sets)``.

        Parameters
        ----------
        source, interval : as for :meth:`portions`. ``sets`` says which of :attr:`classes` are in the set, rows ×
            classes; the likeliest always is.
        reading : ``format``, ``delimiter``, ``drop_rows``, … of :meth:`portions`. Rows that are left out have no
            prediction, and a warning says how many.
        """
        portions = self._all_portions(source, interval=interval, **reading)
        if interval is None:
            return np.concatenate([portion.values for portion in portions])
        parts = ("values", "lower", "upper") if self.task == "regression" else ("values", "sets")
        return tuple(np.concatenate([getattr(p, name) for p in portions]) for name in parts)

    def _all_portions(self, source: Any, **reading: Any) -> list[Prediction]:
        portions = list(self.portions(source, **reading))
        if portions[-1].skipped:
            warn(skipped_in_words(portions[-1].skipped))
        return portions

    def predict_proba(self, source: Any, **reading: Any) -> Array:
        """The probability of every class, rows × classes in the order of :attr:`classes`.

        Parameters
        ----------
        source, reading : as for :meth:`predict`.
        """
        if self.task != "classification":
            raise SettingError(f"the target {self.target!r} is a number and has no probabilities: use predict.")
        portions = [portion.probabilities for portion in self._all_portions(source, **reading)]
        return np.concatenate([chances for chances in portions if chances is not None])

    def reach_of(
        self, source: Any, *, neighbors: Mapping[str, Iterable[str]] | None = None, **reading: Any
    ) -> RowReach:
        """How far rows are from what was trained on, and whether that is outside of what validation has seen.

        Parameters
        ----------
        source, neighbors : as for :meth:`portions`; without the group column hops do not count.
        reading : ``format``, ``delimiter`` and ``rows`` of :meth:`portions`.
        """
        required(self.reach)
        kinds, own = {self.group: "text"} | self.encoder.kinds, {self.group} - self.encoder.kinds.keys()
        frames = stream_frames(source, kinds, optional=own, **reading)
        encoded = ((frame, self.encoder.transform(frame)) for frame in frames)
        return RowReach.joined([self.reach_in(*each, neighbors=neighbors) for each in encoded])

    def reach_in(
        self,
        frame: Frame,
        encoded: Encoded,
        rows: npt.NDArray[np.intp] | slice = slice(None),
        *,
        neighbors: Mapping[str, Iterable[str]] | None = None,
    ) -> RowReach:
        """The same for rows that were read.

        Parameters
        ----------
        frame, encoded : what was read, and what the model takes of it.
        rows : which of its rows.
        neighbors : as for :meth:`portions`.
        """
        names, there = None, self.group in frame.columns
        if there:
            group = frame.text(self.group)
            names = np.asarray([*group.levels, None], dtype=object)[group.codes][rows]
        hops = hops_from(self.graph, self.groups, neighbors) if there else None
        return required(self.reach).of_rows(encoded.matrix[rows], names, hops)

    def explain(self) -> GroupTable | CoefficientTable | LeagueTable:
        """Which training groups count how much, and why, and a linear model's coefficients, in ``coefficients``.

        Of a kriged model the coefficients by group; of a model by votes the league of its candidates.
        """
        remarks = self.graph_in_words()
        if isinstance(self.estimator, KrigedPart):
            return replace(self.estimator.explain(self.encoder.names), remarks=remarks)
        if isinstance(self.estimator, LeaguePart):
            return replace(self.estimator.explain(), remarks=remarks)
        table: GroupTable = self.estimator.explain()
        return replace(table, coefficients=self.coefficients, remarks=remarks)

    def graph_in_words(self) -> tuple[str, ...]:
        """How stable a learned graph is and whether another sample would give another prior; nothing of a given one."""
        if self.graph is None or self.graph.origin.kind != "learned":
            return ()
        details, edges = self.graph.origin.details, many(len(self.graph.edges), "edge")
        stability = self.graph.stability
        if stability is None:
            return (
                f"The graph was learned ({edges}). How stable it is was not measured, as that would take long: toporo "
                "topology --set resamples=20 does, and --graph takes what it writes.",
            )
        kept = 100 * float(np.mean(list(stability.values()))) if stability else 100.0
        count = details.get("resamples", len(self.graph.bootstrap_edges))
        said = f"The graph was learned: its {edges} stay in {kept:.0f} % of {count} resamples of the rows, on average."
        prior: Prior | None = self.estimator.prior_ or self._votes_prior()
        if prior is None or prior.bootstrap_rms is None:
            return (said,)
        if not prior.fallback_reason:
            same = f"Another sample would give much the same prior: resampling moves it by {prior.bootstrap_rms:.2f}."
            return (said, same)
        keep = "" if self.by_group else f" --set prior={default_measure(self.test_groups or None)} takes it anyhow."
        reason = prior.fallback_reason
        return (said, f"Another sample would give another prior, so it is the same for all groups: {reason}.{keep}")

    def _votes_prior(self) -> Prior | None:
        """What candidates that weigh groups go by; None where they do not."""
        if not isinstance(self.estimator, LeaguePart) or self.graph is None or not self.test_groups:
            return None
        return learned_prior(self.graph, self.groups, self.test_groups)

    @property
    def coefficients(self) -> Coefficients:
        """What moves the predictions of a linear model most; nothing of others."""
        return Coefficients.of(self.estimator, self.encoder, self.target, self.classes)

    def evaluate(
        self,
        source: Any,
        *,
        unseen: bool = False,
        resamples: int = 1000,
        level: float = 0.95,
        seed: int = 0,
        engine: str = LOCAL,
        **reading: Any,
    ) -> Evaluation:
        """Judge predictions by group, with bootstrap intervals, a portion of the table at a time.

        Of a group of more than 500 rows moments are kept, of a smaller one two to four numbers of every row.

        Rows without a target are left out; rows without a group are an error. A model that has intervals is also judged
        by ``coverage``, the share of rows whose target lies in their 90 % interval or set, and by the mean ``width`` or
        ``set_size``.

        Parameters
        ----------
        source : as for :meth:`portions`; it must have the target and the group column.
        unseen : leave out rows of groups that the model was trained on.
        resamples, level, seed : of the intervals; see :func:`toporo.tables.evaluate.evaluate`.
        engine : ``"local"``, ``"ray"`` or a cluster's address: its workers, which must reach the files, judge pieces of
            the table. The numbers are the same to the bit.
        reading : ``format``, ``delimiter``, … of :meth:`portions`, ``drop_rows`` among them.
        """
        check_settings(self.task, resamples, level, seed)
        reading = {"reach": self.reach is not None} | ({"interval": INTERVAL} if self.has_intervals else {}) | reading
        judged = Tallied()
        with open_pool(engine) as workers:
            shared = workers.share(self)
            parts, inputs = self.parts(source, workers, shared, reading)
            calls = ((shared, each, unseen, reading, inputs) for each in parts)
            for number, part in enumerate(workers.map(judge_part, calls)):
                judged.add(part, reading.get("memory_limit"), first=number == 0)
        if judged.empty is not None:
            raise UnknownGroupsError(judged.skipped) if judged.skipped else judged.empty
        if unseen and not judged.strangers:
            raise DataError(
                f"no row of the table is in groups that it was not trained on: the model knows {listed(self.groups)}. "
                "Judge it on all groups, or give a table with others."
            )
        if judged.tallies is None:
            where = " in groups that it was not trained on" if unseen else ""
            raise DataError(
                f"column {self.target!r} is empty{where}: without known targets there is nothing to judge predictions "
                "by. Give a table with targets, or use predict."
            )
        evaluation = summed(
            self.task,
            judged.tallies,
            classes=self.classes,
            hops=self._hops(judged.tallies.rows(ALL)),
            trained=self.groups,
            resamples=resamples,
            level=level,
            seed=seed,
        )
        return replace(evaluation, skipped=dict(judged.skipped)) if judged.skipped else evaluation

    def parts(self, source: Any, workers: Pool, shared: Any, reading: Mapping[str, Any]) -> tuple[list[Any], Any]:
        """A table as tables that can be predicted each by itself, in order, and what stands for ``inputs`` of each.

        They are the chunks of the table (:class:`toporo.data.table.Chunk`). For a model that looks at all rows of a
        group together they are read once before, for the inputs of the groups.

        Parameters
        ----------
        source, reading : as for :meth:`portions`.
        workers, shared : who reads them, and what stands for this model in their calls (:meth:`Pool.share`).
        """
        table = find_table(source, format=reading.get("format"), delimiter=reading.get("delimiter", ","))
        if len(table.chunks) < 2:
            return [table], None
        parts = [table.only([chunk]) for chunk in table.chunks]
        if not self.together:
            return parts, None
        calls, inputs = ((shared, part, reading) for part in parts), None
        with Progress("looking at groups", len(parts), False) as shown:
            for told in workers.map(gather_part, calls):
                inputs = _joined(inputs, told)
                shown.step()
        self._warn_of(inputs)
        return parts, workers.share(inputs)

    @property
    def together(self) -> bool:
        """Whether all rows of a group are looked at together, so that all rows are held."""
        return self.by_group and getattr(self.estimator, "context", "rows") == "rows"

    def seen(
        self, portion: Prediction, unseen: bool, names: dict[str, int]
    ) -> tuple[Seen, npt.NDArray[np.int64], bool]:
        """What is to be known of predicted rows to judge them, the codes of their groups, and whether any are new.

        Parameters
        ----------
        portion : rows with target and group.
        unseen : leave out rows of groups that the model was trained on.
        names : codes by group, to which new groups are added.
        """
        self._groups(portion.frame)  # each row needs one
        group = portion.frame.text(self.group)
        target, known = self._targets(portion.frame)
        trained = [place for place, name in enumerate(group.levels) if name in set(self.groups)]
        if unseen:
            known &= ~np.isin(group.codes, trained)
        code_of = np.asarray([names.setdefault(name, len(names)) for name in group.levels], dtype=np.int64)
        given: dict[str, Any] = {}
        if portion.lower is not None and portion.upper is not None:
            given["inside"] = ((portion.lower <= target) & (target <= portion.upper))[known]
            given["widths"] = (portion.upper - portion.lower)[known]
        if portion.sets is not None:
            right = target[:, None] == np.asarray(self.classes, dtype=object)
            given["inside"] = (portion.sets & right).any(axis=1)[known]
            given["widths"] = portion.sets.sum(axis=1)[known]
        if portion.probabilities is not None:
            given |= {"probabilities": portion.probabilities[known], "classes": self.classes}
        if portion.reach is not None:
            given["outside"] = portion.reach.outside[known]
        rows = int(known.sum())
        seen = look_at(self.task, target[known], portion.values[known], rows, constant=self.constant, **given)
        return seen, code_of[group.codes[known]], len(trained) < len(group.levels)

    def _targets(self, frame: Frame) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """The targets of a portion, and which of them are known."""
        column = frame[self.target]
        if self.task == "regression" and isinstance(column, Numbers):
            return column.values, ~column.missing
        labels = frame.text(self.target).known()
        return np.asarray([*labels.levels, ""], dtype=object)[labels.codes], ~labels.missing

    def _hops(self, names: Iterable[str]) -> dict[str, float] | None:
        """Of every group in a table, to the nearest training group; those that the graph does not have are left out."""
        if self.graph is None:
            return None
        near = self.graph.hops(self.groups)
        return {name: near[name] for name in names if name in near}

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a model folder: JSON and safetensors, nothing executable.

        Parameters
        ----------
        folder : where; its parents are made if need be.
        overwrite : replace a model that is there.
        """
        settings, arrays = dump_state(self.estimator)
        reach, rows = (None, {}) if self.reach is None else self.reach.to_state()
        arrays |= {f"{PREFIX}{name}": array for name, array in rows.items()}
        if self.held_out is not None:
            arrays |= {f"{HELD_OUT}{name}": values for name, values in self.held_out.to_arrays().items()}
        content = {
            "task": self.task,
            "target": self.target,
            "group": self.group,
            "weight": self.weight,
            "test_groups": list(self.test_groups),
            "columns": [asdict(column) for column in self.columns],
            "preprocessing": self.encoder.to_dict(),
            "estimator": settings,
            "graph": None if self.graph is None else json.loads(self.graph.to_json()),
            "about": self.about,
            "reach": reach,
        }
        write_folder(folder, content, arrays, overwrite=overwrite)


def load_model(folder: str | os.PathLike[str]) -> TableModel:
    """Read a model folder. One that is damaged, altered or of a newer toporo is refused; nothing in it is executed.

    Parameters
    ----------
    folder : as :meth:`TableModel.save` or ``toporo fit`` wrote it.

    >>> import tempfile
    >>> import toporo as tr
    >>> table = {"town": list("ABC") * 10, "x": list(range(30)), "y": list(range(30))}
    >>> model = tr.fit_table(table, target="y", group="town", model="linear", penalty=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = model.save(f"{folder}/model")
    ...     same = load_model(f"{folder}/model").predict(table) == model.predict(table)
    >>> bool(same.all())
    True
    """
    content, arrays = read_folder(folder)
    try:
        return _model(as_type(content, StoredModel, "its form is wrong"), arrays())
    except UnsafeFileError:
        raise
    except TopoRoError as error:
        raise DataError(f"the model in {folder} cannot be read: {error}") from None


class StoredModel(msgspec.Struct):
    """What :meth:`TableModel.save` writes to ``model.json``."""

    task: Literal["classification", "regression"]
    target: str
    group: str
    weight: str | None
    test_groups: list[str]
    columns: list[ColumnInfo]
    preprocessing: dict[str, Any]
    estimator: dict[str, Any]
    graph: dict[str, Any] | None
    about: dict[str, Any]
    reach: dict[str, Any] | None = None


def _model(stored: StoredModel, arrays: dict[str, Any]) -> TableModel:
    strange = [c for c in stored.columns if c.role not in ROLES or c.kind not in KINDS]
    if strange:
        raise DataError(f"unknown role {strange[0].role!r:.50} or kind {strange[0].kind!r:.50} of a column.")
    if stored.target not in {column.name for column in stored.columns}:
        raise DataError(f"its target {stored.target!r:.50} is not among its columns.")
    encoder = Encoder.from_dict(stored.preprocessing)
    rows, own = (
        {name.removeprefix(head): arrays.pop(name) for name in list(arrays) if name.startswith(head)}
        for head in (PREFIX, HELD_OUT)
    )
    estimator = load_state(stored.estimator, arrays)
    if not hasattr(estimator, "explain"):
        raise DataError(f"a {type(estimator).__name__} is no model of a table.")
    if estimator.n_features_in_ != len(encoder.names):
        raise DataError(
            f"the preprocessing gives {len(encoder.names)} inputs, the model takes {estimator.n_features_in_}."
        )
    if is_classifier(estimator) != (stored.task == "classification"):
        raise DataError(f"its task is {stored.task}, its estimator a {type(estimator).__name__}.")
    if not getattr(estimator, "_one_column", True):
        raise DataError("it has several targets.")
    if not all(isinstance(name, str) for name in estimator.group_sizes_):
        raise DataError("the names of its groups are not text.")
    graph = None if stored.graph is None else GroupGraph.from_dict(stored.graph)
    if graph is not None:
        graph.require([*estimator.group_sizes_, *stored.test_groups])
    return TableModel(
        estimator=estimator,
        encoder=encoder,
        task=stored.task,
        target=stored.target,
        group=stored.group,
        weight=stored.weight,
        graph=graph,
        test_groups=tuple(stored.test_groups),
        columns=tuple(stored.columns),
        about=stored.about,
        reach=None if stored.reach is None else Reach.from_state(stored.reach, rows, len(encoder.names)),
        held_out=HeldOut.from_arrays(own) if own else None,
    )


def learned_prior(graph: GroupGraph, train: Iterable[str], test: Iterable[str]) -> Prior | None:
    """The prior by which candidates of votes weigh groups in a learned graph; None where it does not reach them.

    Parameters
    ----------
    graph : learned, with resamples.
    train, test : groups.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)
        try:
            return graph.prior(train, test)
        except TopoRoError:
            return None


def skipped_in_words(skipped: Mapping[str, int]) -> str:
    """How many rows were left out because the model does not know their groups, and which groups these are.

    Parameters
    ----------
    skipped : rows by group.

    >>> skipped_in_words({"HI": 12, "AK": 3})
    "left out 15 rows of 2 groups that the graph does not have: 'HI' (12), 'AK' (3)"
    """
    most = sorted(skipped.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = ", ".join(f"{name!r} ({rows})" for name, rows in most[:6])
    groups, more = many(len(skipped), "group"), ", …" if len(most) > 6 else ""
    return f"left out {many(sum(skipped.values()), 'row')} of {groups} that the graph does not have: {shown}{more}"


class _TooManyRowsError(DataError):
    """More rows than can be held."""


class UnknownGroupsError(NoRowsError):
    """All rows were left out, for the model knows none of their groups.

    Parameters
    ----------
    skipped : rows by group.
    """

    def __init__(self, skipped: Mapping[str, int]) -> None:
        self.skipped = dict(skipped)
        super().__init__(
            f"no row is of a group that the model knows: all {sum(skipped.values())} are of {listed(skipped)}. "
            "Fit with a graph that has them, or say which groups they are next to (neighbors=)."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.skipped,)


@dataclass
class Tallied:
    """What is known of a table, or of a part of it, when its predictions are judged.

    Attributes
    ----------
    tallies : of rows with a target; None without any.
    strangers : whether there were rows of groups not trained on.
    skipped : rows that were left out, by group that the model does not know.
    empty : what is to be said if no part has rows to predict.
    """

    tallies: Tallies | None = None
    strangers: bool = False
    skipped: Counter[str] = field(default_factory=Counter)
    empty: NoRowsError | None = None

    def add(self, other: Tallied, memory_limit: int | None = None, *, first: bool = False) -> None:
        """Put a further part to it."""
        self.strangers |= other.strangers
        self.skipped.update(other.skipped)
        self.empty = other.empty if first else self.empty and other.empty
        if self.tallies is None or other.tallies is None:
            self.tallies = self.tallies or other.tallies
        else:
            self.tallies.add(other.tallies)
        if memory_limit is not None and self.tallies is not None:
            held = self.tallies.held
            if 3 * held > max(0, memory_limit - used_bytes()) + held:
                raise DataError(
                    f"groups of at most {EXACT_ROWS} rows are judged by their rows, and these take {human(held)} by "
                    f"now, which with the bootstrap is too much for the memory limit of {human(memory_limit)}. Raise "
                    "the limit, or judge some groups at a time."
                )


def gather_part(model: TableModel, source: Any, reading: Mapping[str, Any]) -> Any:
    """What a model that looks at all rows of a group together needs to know of a part of a table.

    Parameters
    ----------
    model : to predict it.
    source, reading : as for :meth:`TableModel.portions`.
    """
    kinds = {model.group: "text"} | model.encoder.kinds
    asked = {name: reading[name] for name in ("format", "delimiter") if name in reading}
    asked |= {"rows": model._at_a_time(len(kinds), reading.get("memory_limit"))}
    models = (model, *reading.get("known_to", ())) if reading.get("drop_rows") else ()
    near, skipped = reading.get("neighbors") or {}, Counter[str]()
    frames = _ahead(stream_frames(source, kinds, optional={model.group}.difference(model.encoder.kinds), **asked))
    with suppress(NoRowsError):
        return model._gathered(_Rows.of(frame, model, models, near, skipped) for frame in frames)


def _joined(one: Any, other: Any) -> Any:
    """What several parts say of groups, in the order of the parts."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, GroupInputs):
        return one.plus(other)
    return {name: _joined(told, other[name]) for name, told in one.items()}


def judge_part(model: TableModel, source: Any, unseen: bool, reading: Mapping[str, Any], inputs: Any = None) -> Tallied:
    """Predict a table, or a piece of one, and tally how good that is.

    Parameters
    ----------
    model : to be judged.
    source, reading, inputs : as for :meth:`TableModel.portions`.
    unseen : leave out rows of groups that the model was trained on.
    """
    judged, waiting, names = Tallied(), [], dict[str, int]()
    asked = {**reading, "inputs": inputs, "require": [model.target, model.group]}
    for portion in _or_none(model.portions(source, **asked), judged):
        seen, codes, strangers = model.seen(portion, unseen, names)
        judged.strangers |= strangers
        judged.skipped.update(portion.skipped)
        waiting.append((seen, codes))
        while sum(len(codes) for _, codes in waiting) >= FOLD:
            seen, codes = Seen.joined([each for each, _ in waiting]), np.concatenate([each for _, each in waiting])
            judged.add(Tallied(Tallies.of(seen.take(slice(FOLD)), codes[:FOLD], list(names))))
            waiting = [(seen.take(slice(FOLD, None)), codes[FOLD:])]
    codes = np.concatenate([each for _, each in waiting]) if waiting else np.empty(0, dtype=np.int64)
    if len(codes):
        judged.add(Tallied(Tallies.of(Seen.joined([each for each, _ in waiting]), codes, list(names))))
    return judged


def _or_none(portions: Iterator[Prediction], judged: Tallied) -> Iterator[Prediction]:
    """Portions of a part that may have none: other parts may have some."""
    try:
        yield from portions
    except UnknownGroupsError as error:
        judged.skipped.update(error.skipped)
        judged.empty = error
    except NoRowsError as error:
        judged.empty = error


class _Rows(NamedTuple):
    """Rows of a table to predict: all that were read, or those of groups that are known."""

    frame: Frame
    places: npt.NDArray[np.intp] | None
    first: int

    @classmethod
    def of(
        cls,
        frame: Frame,
        model: TableModel,
        models: Iterable[TableModel],
        neighbors: Mapping[str, Iterable[str]],
        skipped: Counter[str],
    ) -> _Rows:
        """Those of groups that all ``models`` know; ``skipped`` counts the others."""
        if all(each.graph is None or not each.by_group for each in models):
            return cls(frame, None, frame.first)
        names = model._groups(frame)
        unknown = [name for name in frame.text(model.group).levels if not all(m.knows(name, neighbors) for m in models)]
        out = np.isin(names, unknown)
        skipped.update(names[out].tolist())
        places = np.flatnonzero(~out)
        return cls(frame.take(places), places, frame.first) if out.any() else cls(frame, None, frame.first)

    def number(self, place: int) -> int:
        """What a row is called in messages."""
        return self.first + (place if self.places is None else int(self.places[place]))


def _ahead(frames: Iterator[Frame]) -> Iterator[Frame]:
    """The same, each read while the one before is in use. Not for pipes: a read that waits cannot be interrupted."""
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(next, frames, None)
        while (frame := ahead.result()) is not None:
            ahead = reader.submit(next, frames, None)
            yield frame
