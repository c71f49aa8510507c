"""From a large table to what a fit needs: sums over all rows, and a sample of the rows.

Linear and kriged models of numbers are fitted to the sums, so to all rows; logistic models in several passes over
them. Other models are fitted to the sample: see :class:`toporo.tables.survey.Drawn`. The number of rows and columns
decides which tables are read in this way and how many rows are sampled. Memory does not: the same command always
gives the same model, or an error that says that the memory limit is too low.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from toporo.checks import parse_memory
from toporo.data.encode import MOST_LEVELS, Encoder
from toporo.data.frame import Frame, Numbers, OtherKindError, head_frame
from toporo.data.table import Table, find_table, is_rereadable
from toporo.errors import DataError, SettingError, UnknownNameError, warn
from toporo.estimators.rows import Scaling
from toporo.machine import cores, free_bytes, room
from toporo.pool import LOCAL, Pool, Threads, check_engine
from toporo.progress import Progress
from toporo.robust.factors import GroupFactors
from toporo.robust.logistic import LogisticLosses, Sums
from toporo.tables.model import skipped_in_words
from toporo.tables.passes import ChunkRows, RowEncoder, sums_of_chunk
from toporo.tables.reach import Reach
from toporo.tables.read import PreparedTable, classes_in_words, numbers_in_words
from toporo.tables.roles import Roles
from toporo.tables.survey import LEAST, ReadingPlan, Survey, survey_chunk, values_between
from toporo.text import human, many, spelled
from toporo.types import Array

#: Rows, and cells, of the largest table that is fitted as a whole, and of the sample of a larger one.
MOST_ROWS, MOST_CELLS = 1_000_000, 1 << 24
#: Rows sampled of a table whose sums decide the model.
DRAWN = 100_000
#: Bytes a cell takes at most while a model is fitted to rows in memory: as read, as numbers, encoded, scaled.
IN_MEMORY = 48
#: Bytes that a thread takes for each cell of the portion it works on, the pages being decoded among them.
IN_THREAD = 128
#: Rows of a portion, at most and at least, and cells at most. Sums in other portions differ in their last bits.
PORTION, LEAST_PORTION, PORTION_CELLS = 1 << 16, 1 << 10, 1 << 22
#: Bytes of text that stand for a cell of a CSV file, and how many times smaller it may be as gzip.
CELL, PACKED = 6, 5


def find_large(source: Any, memory_limit: Any, engine: str, *, delimiter: str) -> Table | None:
    """The table of a source, if it is to be read in portions.

    Parameters
    ----------
    source, memory_limit, engine, delimiter : as for ``fit_table``.
    """
    check_engine(engine)
    limit = parse_memory(memory_limit)
    if not is_rereadable(source):
        if engine != LOCAL:
            raise SettingError(f"engine {engine!r} reads files, and this is {type(source).__name__}: give a path.")
        return None
    dataset = find_table(source, delimiter=delimiter)
    if needs_scan(dataset):
        return dataset
    if limit is not None:
        rows, columns = _rows_about(dataset), len(dataset.names)
        check_room(IN_MEMORY * rows * columns, limit, f"fitting a model to {dataset.where}", columns)
    return None


def read_large(dataset: Table, roles: Roles, *, measured: bool, memory_limit: Any, machines: Pool) -> Large:
    """Survey a table for a fit.

    Parameters
    ----------
    dataset : the table.
    roles : its columns and groups, with the graph as :meth:`Roles.read_graph` gives it.
    measured, memory_limit, machines : as for :meth:`Large.read` and ``fit_table``.
    """
    return Large.read(
        dataset,
        roles,
        measured=measured,
        memory=memory_left(memory_limit),
        machines=machines,
        limit=parse_memory(memory_limit),
    )


def most_rows(columns: int) -> int:
    """Rows of the largest table of so many columns that is fitted as a whole, and of a sample of a larger one.

    >>> most_rows(10), most_rows(100)
    (1000000, 167772)
    """
    return max(1000, min(MOST_ROWS, MOST_CELLS // max(1, columns)))


def needs_scan(dataset: Table) -> bool:
    """Whether a table is too large to be fitted as a whole.

    Parameters
    ----------
    dataset : the table.
    """
    return _rows_about(dataset) > most_rows(len(dataset.names))


def check_room(needed: int, limit: int, work: str, columns: int) -> None:
    """Refuse work that takes more memory than a limit leaves, for the limit must not change the model.

    Parameters
    ----------
    needed, limit : bytes; the limit is of the whole process.
    work : what takes that.
    columns : of the table.
    """
    if needed > (left := room(limit)):
        raise SettingError(
            f"{work} takes up to {human(needed)}, and the memory limit of {human(limit)} leaves {human(left)}. Tables "
            f"with {many(columns, 'column')} are fitted whole up to {most_rows(columns):,} rows, and larger ones by "
            "their sums or a sample of that many rows, whatever the memory, so that a command always gives the same "
            "model. Raise the limit, or give a table with fewer columns."
        )


def memory_left(limit: Any) -> int:
    """Bytes that a fit may take: those of the limit that was given, else half of what is free."""
    given = parse_memory(limit)
    if given is not None:
        return room(given)
    free = free_bytes()
    return 1 << 62 if free is None else free // 2


@dataclass(frozen=True, eq=False)
class Large:
    """A table that was surveyed.

    Attributes
    ----------
    dataset, plan, survey : the table, how it was read, and what was found.
    machines : where chunks are read.
    unusable : columns that are neither numbers nor dates nor text, each with the reason.
    """

    dataset: Table
    plan: ReadingPlan
    survey: Survey
    machines: Pool
    unusable: dict[str, str]

    @classmethod
    def read(
        cls, dataset: Table, roles: Roles, *, measured: bool, memory: int, machines: Pool, limit: int | None = None
    ) -> Large:
        """Read a table once, or again where a column turns out to be something else than its first rows say.

        Parameters
        ----------
        dataset : the table.
        roles : its columns and groups.
        measured : whether sums are wanted, for all rows to decide the model; else rows are drawn and that is all.
        memory : bytes that there are.
        machines : where chunks are read.
        limit : of memory, if one is given.
        """
        kinds, head, unusable = _kinds(dataset, roles.text_columns, roles.exclude)
        for name in (*roles.columns.values(), *roles.named):
            if name in unusable:
                raise DataError(f"{dataset.where}: column {name!r} cannot be used: {unusable[name]}. Leave it out.")
            if name not in kinds:
                raise UnknownNameError("column", name, kinds)
        used = roles.features or [name for name in kinds if name not in roles.columns.values()]
        total = max(len(head), _rows_about(dataset))
        # What decides a bit of the model goes by the table alone, never by memory or by the cores.
        wanted = min(DRAWN if measured else MOST_ROWS, most_rows(len(dataset.names)))
        if limit is not None:
            work = f"drawing {wanted:,} rows from {dataset.where}"
            check_room(IN_MEMORY * min(wanted, total) * len(kinds), limit, work, len(dataset.names))
        rows = max(LEAST_PORTION, min(PORTION, PORTION_CELLS // len(kinds)))
        if isinstance(machines, Threads):
            sample = IN_MEMORY * min(wanted, total) * len(kinds)
            machines = Threads((memory - sample) // (IN_THREAD * rows * len(kinds)))
        workers = min(cores(), len(dataset.chunks))
        graph = roles.given_graph if roles.drop_rows else None
        known = None if graph is None else frozenset(map(str, graph.names))
        plan = ReadingPlan(
            kinds=kinds,
            features=tuple(used) if measured else (),
            required=frozenset(roles.named),
            roles=replace(roles, graph=None),
            fills={
                name: float(np.median(column.values[~column.missing]))
                for name, column in head.columns.items()
                if isinstance(column, Numbers) and not column.missing.all()
            },
            kept={},
            known=known,
            moments=measured,
            classification=roles.task == "classification",
            rows=rows,
            wanted=wanted,
            share=min(1.0, wanted / max(total, 1)),
            most_bytes=memory // (4 * workers),
        )
        while True:
            survey = _surveyed(dataset, plan, machines)
            again = survey if isinstance(survey, ReadingPlan) else _better_plan(survey, plan, roles.task)
            if again is None:
                return cls(dataset, plan, _within_sample(survey, plan), machines, unusable)  # type: ignore[arg-type]  # no plan
            plan = again

    @property
    def called(self) -> str:
        """What the table is called: without folders, and without what follows an address."""
        return spelled(PurePosixPath(self.dataset.where.partition("?")[0]).name)

    @property
    def task(self) -> str:
        """What is predicted, unless it is asked for, by all rows: a few may show fewer values."""
        classes = self.plan.by_class or len(self.survey.values) <= 2
        return "classification" if classes else "regression"

    @property
    def drawn(self) -> Frame:
        """Rows that were drawn."""
        if self.survey.drawn is None:
            raise DataError(f"{self.dataset.where}: no row has what a fit needs, so none is left.")
        return replace(self.survey.drawn.frame, where=self.dataset.where, first=1, unusable=self.unusable)

    def prepared(self, ready: PreparedTable, model: str, *, whole: bool) -> PreparedTable:
        """What was prepared of the rows drawn, with all that all rows are needed for; says so if a model has not those.

        Parameters
        ----------
        ready : of the rows drawn.
        model : what is fitted.
        whole : whether all rows decide it.
        """
        ready = replace(ready, source=self.called)
        if self.survey.skipped:
            warn(f"{skipped_in_words(self.survey.skipped)}.")
        if not whole:
            if len(ready.train) < self.survey.trained:
                warn(sample_in_words(len(ready.train), self.survey.trained, model))
            return ready
        others = [name for name in ready.frame.names if name not in self.plan.features]
        roles = self.plan.roles.columns.values()
        reasons = {name: "excluded" if name in roles else "not among the features named" for name in others}
        encoder = self.encoder(ready.train, ready.frame.unusable | reasons)
        return replace(ready, encoder=encoder, x=encoder.transform(ready.train).matrix)

    def fit(self, estimator: Any, ready: PreparedTable) -> None:
        """Fit an estimator to all rows."""
        encoder = ready.encoder
        if ready.task == "regression":
            estimator.fit_moments(*self.inputs(encoder))
            return
        moments, low, high = self.inputs(encoder, target=False)

        def passes(scaling: Scaling) -> LogisticLosses:
            labels = tuple(estimator.classes_.tolist())  # of the rows drawn, which have all classes
            shift = scaling.center / scaling.scale
            encoded = RowEncoder(encoder, scaling, labels, moments.groups, moments.mass)

            def over(*more: Any) -> Iterator[Sums]:
                return over_chunks(self.machines, sums_of_chunk, self.dataset, self.plan, *more, title="another pass")

            rows = ChunkRows(over, encoded)
            return LogisticLosses(moments.groups, shift, 0.0, True, labels, rows)

        estimator.fit_passes(moments, (ready.x, ready.y, ready.ids, ready.weights), low, high, passes)

    def reach(self, reach: Reach, encoder: Encoder) -> Reach:
        """The range of inputs is that of all rows."""
        if not self.plan.features:
            return reach
        _, low, high = self.survey.inputs(encoder, self.plan, target=False)
        return replace(reach, low=low, high=high)

    # ------------------------------------------------------------ for the record

    @property
    def counts(self) -> dict[str, int]:
        """Rows that a model is fitted to, and others; and those drawn, where the model has no others."""
        trained, apart = self.survey.trained, self.survey.apart
        counts = {"rows": trained, "rows_set_aside": apart, "rows_dropped": self.survey.rows - trained - apart}
        return counts | ({} if self.plan.features else {"rows_drawn": len(self.drawn)})

    @property
    def group_count(self) -> int:
        """Groups that have rows, test groups among them."""
        return len(self.survey.groups)

    def missing(self, name: str) -> int:
        """How many values a column lacks in the training rows, as far as they were counted."""
        if name in self.survey.levels:
            return self.survey.levels[name][""]
        return self.survey.spans[name].missing if name in self.survey.spans else 0

    def _labels(self) -> dict[str, int]:
        """Classes and their rows."""
        if self.plan.target in self.survey.levels:
            return dict(
                sorted((level, count) for level, count in self.survey.levels[self.plan.target].items() if level)
            )
        values = np.array(sorted(self.survey.values))
        texts = Numbers(values, self.plan.kinds[self.plan.target]).as_text().tolist()
        counts = [self.survey.values[value] for value in values.tolist()]
        return dict(sorted(zip(map(str, texts), counts, strict=True)))

    def target_note(self, task: str) -> str:
        """A few words on the target."""
        if task == "classification":
            return classes_in_words(self._labels())
        span, kind = self.survey.spans[self.plan.target], self.plan.kinds[self.plan.target]
        return numbers_in_words(span.low, span.high, kind, np.array(sorted(self.survey.values)))

    def constant(self, task: str) -> float | str:
        """What a model must beat: the mean of the target, or the commonest class."""
        if task == "classification":
            labels = self._labels()
            return max(labels, key=lambda label: (labels[label], label))
        moments = self.survey.moments
        if moments is None:
            raise DataError("no row is left to train on.")
        return float(moments.mean[-1])

    def encoder(self, train: Frame, left_out: Mapping[str, str]) -> Encoder:
        """How columns become numbers by all rows.

        The median of a column that lacks values is exact, for the model depends on it; that of another one, which only
        stands in for values that will be missing, is of the rows drawn.

        Parameters
        ----------
        train : rows drawn, those to train on.
        left_out : other columns, and why they are not used.
        """
        numbers = {name: train.columns[name] for name in self.plan.features if self.plan.kinds[name] != "text"}
        known = {
            name: np.sort(column.values[~column.missing])
            for name, column in numbers.items()
            if isinstance(column, Numbers)
        }
        medians = {name: self._within(name, float(np.median(values))) for name, values in known.items() if len(values)}
        lacking = {
            name: known[name]
            for name in medians
            if self.survey.spans[name].missing and self.survey.spans[name].known > len(known[name])
        }
        medians |= self._exact(lacking)
        for name in numbers:  # all of the few values may be in rows that were not drawn
            medians.setdefault(name, self._within(name, self.plan.fills.get(name, 0.0)))
        return self.survey.encoder(self.plan, medians, left_out)

    def _within(self, name: str, value: float) -> float:
        span = self.survey.spans[name]
        return min(max(value, span.low), span.high) if span.known else 0.0

    def _exact(self, samples: Mapping[str, Array]) -> dict[str, float]:
        """Medians over all training rows, from brackets that rows drawn give; wider ones where they miss it."""
        medians: dict[str, float] = {}
        width, left = 0.01, dict(samples)
        while left:
            brackets = {name: _bracket(values, width) for name, values in left.items()}
            below = dict.fromkeys(left, 0)
            inside: dict[str, list[Array]] = {name: [] for name in left}
            for part in over_chunks(self.machines, values_between, self.dataset, self.plan, brackets, title="medians"):
                for name, (count, values) in part.items():
                    below[name] += count
                    inside[name].append(values)
            for name in list(left):
                values, count = np.sort(np.concatenate(inside[name])), self.survey.spans[name].known
                lower, upper = (count - 1) // 2 - below[name], count // 2 - below[name]
                if lower >= 0 and upper < len(values):
                    medians[name] = float(np.median(values[[lower, upper]]))
                    del left[name]
            width *= 8
        return medians

    def inputs(self, encoder: Encoder, *, target: bool = True) -> tuple[GroupFactors, Array, Array]:
        """Moments of encoded inputs and the target, and the range of each; a group without weight is an error."""
        moments, low, high = self.survey.inputs(encoder, self.plan, target=target)
        empty = [name for name in self.survey.groups if name not in {*moments.groups, *self.plan.roles.test_groups}]
        if empty:
            raise DataError(f"empty group(s), without a row that counts: {', '.join(empty[:8])}. Drop them.")
        return moments, low, high


def _bracket(values: Array, width: float) -> tuple[float, float]:
    if width >= 0.5:
        return -np.inf, np.inf
    low, high = np.quantile(values, [0.5 - width, 0.5 + width])
    return float(low), float(high)


def _kinds(
    dataset: Table, as_text: Iterable[str], exclude: Iterable[str]
) -> tuple[dict[str, str], Frame, dict[str, str]]:
    """What columns hold, some rows, and what cannot be used and why."""
    out, text = set(exclude), set(as_text)
    for name in sorted(out):
        if name not in dataset.names:
            raise UnknownNameError("column", name, [name for name in dataset.names if name])
    names = [name for name in dataset.names if name and name not in out]
    head = head_frame(dataset, names)
    kinds = {name: "text" if name in text else head[name].kind for name in names if name in head}
    return kinds, head, dict(head.unusable)


def _rows_about(dataset: Table) -> int:
    """How many rows a table has; of files that do not say it about, by the bytes that numbers and texts take there."""
    if dataset.rows is not None:
        return dataset.rows
    packed = PACKED if dataset.chunks and dataset.chunks[0].path.endswith(".gz") else 1
    return int(dataset.size * packed / (CELL * max(1, len(dataset.names))))


def _surveyed(dataset: Table, plan: ReadingPlan, machines: Pool) -> Survey | ReadingPlan:
    """What all chunks come to; another plan where a column is not what it was taken for.

    Two and two are added, then these, and so on: where every chunk brings groups of its own, adding each to all before
    it would copy those again and again.
    """
    sums: list[tuple[int, Survey]] = []  # of 2^k chunks, the largest first
    for survey in over_chunks(machines, survey_chunk, dataset, plan, title="reading"):
        if isinstance(survey, OtherKindError):
            return replace(plan, kinds={**plan.kinds, survey.column: survey.kind})
        size = 1
        while sums and sums[-1][0] == size:
            survey, size = sums.pop()[1].plus(survey, plan), 2 * size
        sums.append((size, survey))
    total = None if not sums else reduce(lambda a, b: b.plus(a, plan), [part for _, part in reversed(sums)])
    if total is None or not total.rows:
        raise DataError(f"{dataset.where} has no rows: expected a line of values for every point.")
    return total


def _share(survey: Survey, plan: ReadingPlan) -> float:
    """The share of rows to draw, now that they are counted."""
    return min(1.0, plan.wanted / max(1, survey.trained + survey.apart))


def _within_sample(survey: Survey, plan: ReadingPlan) -> Survey:
    """The same with no more rows drawn than wanted, where a file had more than its bytes suggested."""
    share = _share(survey, plan)
    if survey.drawn is None or plan.share <= 1.1 * share:
        return survey
    return replace(survey, drawn=survey.drawn.thinned(replace(plan, share=share))[0])


def _better_plan(survey: Survey, plan: ReadingPlan, task: str) -> ReadingPlan | None:
    """A plan to read the table again by, or None if all that is needed is known.

    It knows which levels of named columns are common, how many rows can be drawn if far fewer were, and that two
    numbers are classes if too few rows of one may have been drawn.
    """
    again: ReadingPlan | None = None
    share = _share(survey, plan)
    if not plan.moments and share > 1.1 * plan.share:
        plan = again = replace(plan, share=share)
    if task == "auto" and not plan.by_class and len(survey.values) == 2:
        fewest = 0 if plan.roles.weight is not None else min(survey.values.values())  # of weight zero are any number
        if fewest * plan.share < LEAST:
            plan = again = replace(plan, classification=True)
    kept = {}
    for name in plan.features:
        if plan.kinds[name] == "text" and name in plan.required and name not in plan.kept:
            counts = {level: count for level, count in survey.levels[name].items() if level}
            if len(counts) > MOST_LEVELS:
                common = sorted(counts, key=lambda level: (-counts[level], level))[:MOST_LEVELS]
                kept[name] = tuple(sorted(common))
    return replace(plan, kept={**plan.kept, **kept}) if kept else again


# ---------------------------------------------------------------- chunks, one after the other or many at a time


def over_chunks(
    machines: Pool, work: Callable[..., Any], dataset: Table, plan: ReadingPlan, *more: Any, title: str
) -> Iterator[Any]:
    """Call ``work(dataset, index, plan, …)`` for every chunk, and yield what it comes to in the order of the chunks.

    Parameters
    ----------
    machines : where the work is done.
    work : a function at the top of a module.
    dataset, plan, more : its arguments.
    title : of the bar.
    """
    sizes = [chunk.rows or 1 for chunk in dataset.chunks]
    shared = machines.share(dataset), machines.share(plan)

    calls = ((shared[0], index, shared[1], *more) for index in range(len(dataset.chunks)))
    with (
        Progress(title, sum(sizes)) as shown,
        closing(machines.map(work, calls, ahead=machines.workers + 1)) as results,
    ):
        for size, result in zip(sizes, results, strict=True):
            yield result
            shown.step(steps=size)


def sample_in_words(drawn: int, rows: int, model: str) -> str:
    """That a model was fitted to some of the rows."""
    return (
        f"model {model!r} is fitted to a sample of {many(drawn, 'row')} of the {rows:,} to train on, with at least a "
        "few of every group and class, for the table is too large to be fitted whole. Linear and kriged models of "
        "numbers (--model linear, --model kriged) are fitted to all rows."
    )
