"""From a table to a fitted model."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.choice.penalty import NoChoiceError
from toporo.data.encode import CategoryRule, Encoder
from toporo.data.frame import Column, Frame, Numbers, Texts, number, read_frame
from toporo.errors import DataError, SettingError, UnknownNameError, listed, warn
from toporo.estimators import (
    GroupDROClassifier,
    GroupDRORegressor,
    KrigedClassifier,
    KrigedRegressor,
    TROClassifier,
    TRORegressor,
)
from toporo.estimators.held_out import refitted
from toporo.estimators.rows import learn_graph_of
from toporo.graphs import as_graph, check_groups, with_text_names
from toporo.groups import GroupIds
from toporo.tables.model import TASKS, ColumnInfo, TableModel
from toporo.tables.read import Rows, check_roles, complete_rows, ids_of, only
from toporo.text import many, spelled
from toporo.topology.graph import GroupGraph
from toporo.types import Array
from toporo.version import __version__

Mask = npt.NDArray[np.bool_]

#: How training groups are weighed: the worst mixture near the topology's prior, the worst group, all alike.
METHODS = {
    "tro": "looks at the worst mixture near the prior",
    "group-dro": "looks at the worst group alone",
    "erm": "weighs all groups alike",
}
#: What is fitted.
MODELS = ("linear", "mlp", "kriged")
#: Kriged models by task.
KRIGED: dict[str, Any] = {"classification": KrigedClassifier, "regression": KrigedRegressor}
#: Settings that mean nothing to the other methods.
TRO_ONLY = ("penalty", "radius", "prior", "normalization", "temperature", "divergence")
#: Of whole numbers, so many different ones are still worth a word that they could be classes.
FEW_NUMBERS = 10
#: Groups that choosing a penalty by leaving groups out needs.
FEWEST_TO_CHOOSE = 4
#: Share of numbers among the values of a column of text that was meant to hold numbers.
NEARLY_ALL = 0.95
#: What numbers are written with elsewhere, less what stands for nothing; and dates.
_SIGNS = str.maketrans("\u2212", "-", "$€£¥%'\u00a0\u202f")
_NUMBER = re.compile(r"[+-]?\d+(,\d+)*([.]\d+)?", flags=re.ASCII)
_DATE = re.compile(r"\d{1,4}[/.]\d{1,2}[/.]\d{1,4}", flags=re.ASCII)
#: Why a column may have been taken for text against what was meant, and what to do about it.
_TAKEN_FOR_TEXT = {
    "a few of many values are no numbers": "Correct such cells, or leave them empty, if they are to be numbers.",
    "their numbers have commas or other signs": "Write a decimal comma as a point, and leave other signs out.",
    "their dates are written in another way": "Write dates as 2024-05-31.",
}


def fit_table(
    source: Any,
    *,
    target: str,
    group: str,
    graph: Any = None,
    learn_graph: bool = False,
    test_groups: Iterable[str] = (),
    task: str = "auto",
    features: Sequence[str] | None = None,
    exclude: Iterable[str] = (),
    categorical: Iterable[str] = (),
    weight: str | None = None,
    drop_missing: bool = False,
    method: str = "tro",
    model: str = "linear",
    penalty: float | str = "auto",
    radius: float | None = None,
    intervals: bool = False,
    format: str | None = None,  # noqa: A002  # as read_frame calls it
    delimiter: str = ",",
    **settings: Any,
) -> TableModel:
    """Fit a model to a table whose rows come in groups.

    Parameters
    ----------
    source : a CSV (also .gz), Parquet or Feather file, a stream of CSV, a pandas, polars or arrow table, or columns by
        name.
    target, group : columns. Group names are text, as written.
    graph : which groups touch: a GroupGraph, a file of edges (CSV, Parquet, Feather) or a graph's JSON, a list of
        edges, …
    learn_graph : learn it from the features instead; rows of test groups take part, without their targets.
    test_groups : groups never trained on. They are in the graph, or have rows in the table, which are set aside.
    task : ``"classification"``, ``"regression"`` or ``"auto"``: text, and numbers of which there are only two, are
        classes.
    features : columns to use; unless given, all but those for other purposes and those that are of no use.
    exclude, categorical : columns not to use, and columns of numbers that are names of things.
    weight : a column with the weight of every row within its group.
    drop_missing : leave out rows that lack a group, a target or a weight; else they are an error. Features that are
        missing are filled in.
    method : ``"tro"``, ``"group-dro"`` (the worst group) or ``"erm"`` (all groups alike, the control).
    model : ``"linear"`` (exact), ``"mlp"``, or ``"kriged"``: coefficients by group that follow the graph, as far as the
        rows say so (:class:`toporo.KrigedRegressor`, :class:`toporo.KrigedClassifier`). The last takes no method,
        radius or prior, and a penalty only of numbers and if one is given.
    penalty, radius : see :class:`toporo.TRORegressor`. ``"auto"`` chooses among ten by leaving out regions of training
        groups; for fewer than four groups, or a network, it is 1.
    intervals : of a network or of kriged classes, up to twelve more fits without some groups, each as long as the
        first, for an ``interval`` in ``predict``. Others have it anyway: linear models are fitted in no time, and
        kriged models of numbers have intervals of their own.
    format : "csv", "parquet" or "feather", where the ending of a path does not say it.
    delimiter : what stands between the cells of a CSV file.
    settings : others of the estimator: ``prior``, ``ridge``, ``divergence``, ``epochs``, …
    """
    _check_names(method, model, task, graph, learn_graph)
    named = None if features is None else _listed(features, "features")
    exclude, categorical = _listed(exclude, "exclude"), _listed(categorical, "categorical")
    asked = list(dict.fromkeys(str(name) for name in _listed(test_groups, "test_groups")))
    roles = {"the target": target, "the group": group} | ({"the weight": weight} if weight is not None else {})
    check_roles(roles, named or [], exclude, categorical)
    reading: dict[str, Any] = {"format": format, "delimiter": delimiter}
    table = _with_known_target(read_frame(source, text=[group, *categorical], exclude=exclude, **reading), roles)
    grouped = complete_rows(table, np.arange(len(table)), [group], drop_missing)
    frame = only(table, grouped)
    names = frame.text(group)
    _check_test_groups(names, asked, graph, learn_graph)
    apart = np.isin(names.codes, [names.levels.index(name) for name in asked if name in names.levels])
    if apart.all():
        raise DataError(f"every row is of a test group ({listed(asked)}): leave at least one group to train on.")
    used = complete_rows(table, grouped[~apart], [target] if weight is None else [target, weight], drop_missing)
    train = only(table, used)
    for reason, columns, remedy in taken_for_text(
        train, [target, *(named or train.names)], {group, weight, *categorical}
    ):
        shown = ", ".join(f"{name!r} ({examples})" for name, examples in columns.items())
        warn(f"column(s) read as text, because {reason}: {shown}. {remedy}")
    kind = guess_task(train[target]) if task == "auto" else task
    y = _targets(train, target, kind)
    weights = None if weight is None else _weights(train, weight, used + table.first)
    encoder = Encoder.fit(train, features=named, exclude=list(roles.values()), categorical=categorical)
    x, ids = encoder.transform(train).matrix, ids_of(train.text(group))
    topology = _graph(graph, learn_graph, x, ids, asked, encoder, frame, apart, group)
    wanted = {"model": model, "penalty": penalty, "radius": radius} | settings
    if model == "kriged":
        estimator, method = _kriged(kind, method, ids, topology, wanted), "kriged"
    else:
        estimator = _estimator(kind, method, len(ids.groups), topology, asked, wanted)
    estimator = _fitted(estimator, x, y, groups=ids, sample_weight=weights)
    wants = model == "linear" or (intervals and (model != "kriged" or kind == "classification"))
    aim = asked if topology is not None else ()
    held_out = refitted(estimator, x, y, ids, weights, graph=topology, test_groups=aim) if wants else None
    return TableModel(
        estimator=estimator,
        encoder=encoder,
        task=kind,
        target=target,
        group=group,
        weight=weight,
        graph=topology,
        test_groups=tuple(asked),
        columns=(
            *(_column(name, frame, train, encoder, (target, group, weight), kind) for name in frame.names),
            *(ColumnInfo(name, "left out", "", "excluded") for name in exclude),
            *(ColumnInfo(name, "left out", "", why) for name, why in frame.unusable.items()),
        ),
        about={
            "source": _name(source, table),
            "rows": len(train),
            "rows_set_aside": int(apart.sum()),
            "rows_dropped": len(table) - len(train) - int(apart.sum()),
            "groups": len(ids.groups),
            "method": method,
            "toporo": __version__,
        },
        held_out=held_out,
    )


def guess_task(column: Column) -> str:
    """Text is classes, and so are numbers of which only two differ; else it is regression."""
    if isinstance(column, Texts):
        return "classification"
    known = column.values[~column.missing]
    return "classification" if len(known) and len(np.unique(known)) <= 2 else "regression"


# ---------------------------------------------------------------- what is asked


def _check_names(method: str, model: Any, task: str, graph: Any, learn_graph: bool) -> None:
    if isinstance(model, str) and model not in MODELS:
        raise UnknownNameError("model", model, MODELS)
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    if task not in ("auto", *TASKS):
        raise UnknownNameError("task", task, ("auto", *TASKS))
    if graph is not None and learn_graph:
        raise SettingError("a graph is given (--graph) and one is to be learned (--learn-graph): decide for one.")


def _listed(names: Iterable[str], what: str) -> list[str]:
    """Names that were given in a list; a single one in its stead would be taken for its letters."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise SettingError(f"{what} is {names!r}: expected a list of names, such as [{names!r}].")
    return list(names)


def _with_known_target(frame: Frame, roles: dict[str, str]) -> Frame:
    """The frame, if it has the columns; words such as NA in a target of text mean that there is none."""
    for what, name in roles.items():
        if name in frame.unusable:
            raise DataError(f"{what} {name!r} cannot be used: {frame.unusable[name]}.")
        frame[name]
    column = frame[target := roles["the target"]]
    return replace(frame, columns=frame.columns | {target: column.known()}) if isinstance(column, Texts) else frame


def taken_for_text(
    frame: Frame, names: Iterable[str], meant: Collection[str | None] = ()
) -> Iterator[tuple[str, dict[str, str], str]]:
    """Columns that were probably meant to hold numbers or dates: why they do not, examples by name, and what to do.

    Parameters
    ----------
    frame, names : the rows, and the columns to look at.
    meant : columns that are to be text.
    """
    suspects: dict[str, dict[str, str]] = {reason: {} for reason in _TAKEN_FOR_TEXT}
    for name in dict.fromkeys(names):
        column = frame.columns.get(name)
        if name in meant or not isinstance(column, Texts):
            continue
        levels = column.known().levels
        strange = [level for level in levels if number(level) is None]
        if 0 < len(strange) <= len(levels) * (1 - NEARLY_ALL):
            suspects["a few of many values are no numbers"][name] = listed(strange, 4)
        elif strange and len(levels) > 1:
            if all(_NUMBER.fullmatch(level.translate(_SIGNS)) for level in levels):
                suspects["their numbers have commas or other signs"][name] = repr(strange[0])
            elif all(_DATE.fullmatch(level) for level in levels):
                suspects["their dates are written in another way"][name] = repr(strange[0])
    yield from ((reason, columns, _TAKEN_FOR_TEXT[reason]) for reason, columns in suspects.items() if columns)


def _check_test_groups(names: Texts, asked: list[str], graph: Any, learn_graph: bool) -> None:
    """Without a graph to find them in, test groups must have rows."""
    strange = [name for name in asked if name not in names.levels]
    if strange and graph is None:
        hint = "to learn a graph that reaches them" if learn_graph else "unless a graph has them"
        raise DataError(
            f"test group(s) without a row: {listed(strange)}. They need rows {hint}. The table has "
            f"{listed(names.levels)}."
        )


def _targets(frame: Frame, target: str, task: str) -> npt.NDArray[Any]:
    column = frame[target]
    if task == "classification":
        labels = frame.text(target)
        if len(labels.levels) < 2:
            raise DataError(f"target {target!r} has a single class, {labels.levels[0]!r}: there is nothing to predict.")
        if len(labels.levels) > max(20, len(frame) // 2):
            remedy = (
                "Is it an identifier? Name another target."
                if isinstance(column, Texts)
                else "If they are numbers to predict, say --task regression (task='regression')."
            )
            raise DataError(
                f"target {target!r} has {len(labels.levels)} different values in {len(frame)} rows: too many for "
                f"classes. {remedy}"
            )
        return np.asarray(labels.levels, dtype=object)[labels.codes]
    if isinstance(column, Texts):
        words = [code for code, level in enumerate(column.levels) if number(level) is None]
        row = int(np.isin(column.codes, words).argmax())
        raise DataError(
            f"target {target!r} holds text: {column.levels[column.codes[row]]!r}, say, is no number to predict. "
            "Correct such cells, or say --task classification (task='classification')."
        )
    if column.values.max() == column.values.min():
        value = _written(column.values[0], column.kind)
        raise DataError(f"target {target!r} is {value} in all rows: there is nothing to predict.")
    if column.kind == "date":
        warn(f"target {target!r} holds dates, and is predicted as a number: days since 1970-01-01.")
    return column.values


def _weights(frame: Frame, weight: str, numbers: Rows) -> Array:
    column = frame[weight]
    if isinstance(column, Texts) or column.kind != "number":
        raise DataError(f"weight {weight!r} does not hold numbers: expected a weight of at least 0 per row.")
    if (column.values < 0).any():
        row = int((column.values < 0).argmax())
        raise DataError(
            f"{frame.where}, row {numbers[row]}: weight {weight!r} is negative ({column.values[row]:g}): expected at "
            "least 0 in every row."
        )
    return column.values


# ---------------------------------------------------------------- the topology and the estimator


def _graph(
    given: Any,
    learn_graph: bool,
    x: Array,
    ids: GroupIds,
    test_groups: list[str],
    encoder: Encoder,
    frame: Frame,
    apart: Mask,
    group: str,
) -> GroupGraph | None:
    if given is not None:
        graph = with_text_names(as_graph(given))
        check_groups(graph, ids.groups, test_groups or None)
        return graph
    if not learn_graph:
        return None
    if not test_groups:
        return learn_graph_of(x, ids)
    test = frame.take(np.flatnonzero(apart))
    return learn_graph_of(x, ids, test_x=encoder.transform(test).matrix, test_groups=ids_of(test.text(group)))


def _estimator(
    task: str, method: str, groups: int, graph: GroupGraph | None, test_groups: list[str], wanted: dict[str, Any]
) -> Any:
    classes = task == "classification"
    known = TRORegressor().get_params()
    for name in wanted:
        if name not in known:
            raise UnknownNameError("setting", name, known)
    if wanted["radius"] is not None:
        if wanted["penalty"] != "auto":
            raise SettingError(
                f"penalty={wanted['penalty']!r} and radius={wanted['radius']!r} are two ways to say the same: give one."
            )
        del wanted["penalty"]
    if method != "tro":
        own = [name for name in TRO_ONLY if wanted.get(name) not in (None, "auto")]
        if own:
            raise SettingError(f"method {method!r} {METHODS[method]}: leave {' and '.join(own)} out.")
        wanted = {key: value for key, value in wanted.items() if key not in TRO_ONLY}
    if method == "group-dro":
        return (GroupDROClassifier if classes else GroupDRORegressor)(**wanted)
    if method == "erm":
        wanted |= {"penalty": np.inf, "prior": "uniform"}
    elif wanted.get("penalty") == "auto" and (groups < FEWEST_TO_CHOOSE or wanted["model"] != "linear"):
        wanted["penalty"] = 1.0
    if graph is not None:
        wanted |= {"graph": graph, "test_groups": test_groups or None}
    return (TROClassifier if classes else TRORegressor)(**wanted)


def _kriged(task: str, method: str, ids: GroupIds, graph: GroupGraph | None, wanted: dict[str, Any]) -> Any:
    """A kriged estimator, which has settings of its own."""
    known = [name for name in KRIGED[task]().get_params() if name != "graph"]
    given = {k: v for k, v in wanted.items() if k != "model" and v is not None and (k, v) != ("penalty", "auto")}
    for name in given:
        if name not in known and name not in TRORegressor().get_params():
            raise UnknownNameError("setting", name, known)
    strange = [*(["method"] if method != "tro" else []), *(name for name in given if name not in known)]
    if strange:
        raise SettingError(
            f"model 'kriged' decides by likelihood how far groups differ, and does not take {' and '.join(strange)} "
            f"for {task}: leave {' and '.join(strange)} out."
        )
    if len(ids.groups) == 1:
        warn(f"all {len(ids)} rows are of one group, {ids.groups.names[0]!r}: nothing is known of how groups differ.")
    return KRIGED[task](graph=graph, **given)


def _fitted(estimator: Any, x: Array, y: npt.NDArray[Any], **rows: Any) -> Any:
    """Fit; where no penalty can be chosen, and nobody named one, the plain one will do."""
    try:
        return estimator.fit(x, y, **rows)
    except NoChoiceError as error:
        warn(f"{str(error).partition(' Give a number')[0]} The penalty is 1.")
        return estimator.set_params(penalty=1.0).fit(x, y, **rows)


# ---------------------------------------------------------------- for the record


def _column(
    name: str, frame: Frame, train: Frame, encoder: Encoder, roles: tuple[str, str, str | None], task: str
) -> ColumnInfo:
    column = frame[name]
    kind = column.kind if isinstance(column, Numbers) else "text"
    target, group, weight = roles
    if name == target:
        return ColumnInfo(name, "target", kind, _target_note(train, name, task))
    if name == group:
        return ColumnInfo(name, "group", "text", many(len(frame.text(name).levels), "group"))
    if name == weight:
        return ColumnInfo(name, "weight", kind)
    rule = next((rule for rule in encoder.rules if rule.name == name), None)
    if rule is None:
        return ColumnInfo(name, "left out", kind, encoder.left_out.get(name, "not asked for"))
    missing = int(train[name].missing.sum())
    lacking = f"{missing} missing, " if missing else ""
    if isinstance(rule, CategoryRule):
        rest = " and 'other'" if rule.other else ""
        return ColumnInfo(name, "feature", "text", f"{lacking}{len(rule.levels)} levels{rest}")
    low, high, fill = (_written(value, rule.kind) for value in (rule.low, rule.high, rule.fill))
    filled = f", filled with {fill}" if missing else ""
    return ColumnInfo(name, "feature", rule.kind, f"{lacking}{low} to {high}{filled}")


def _target_note(train: Frame, name: str, task: str) -> str:
    if task == "classification":
        labels = train.text(name)
        counts = np.bincount(labels.codes, minlength=len(labels.levels))
        shown = ", ".join(f"{level} ({count})" for level, count in list(zip(labels.levels, counts, strict=True))[:6])
        return f"{len(labels.levels)} classes: {shown}{', …' if len(labels.levels) > 6 else ''}"
    column = train[name]
    values, kind = (column.values, column.kind) if isinstance(column, Numbers) else (np.zeros(1), "number")
    few = len(np.unique(values))
    classes = kind == "number" and _whole(values) and few <= FEW_NUMBERS
    hint = f"; {few} whole numbers: if they are classes, say so (task)" if classes else ""
    return f"{_written(values.min(), kind)} to {_written(values.max(), kind)}{hint}"


def _written(value: float, kind: str) -> str:
    """A number to be shown, or a date."""
    return f"{value:g}" if kind == "number" else Numbers(np.array([value]), kind).as_text().levels[0]


def _whole(values: Array) -> bool:
    return bool((values == np.round(values)).all())


def _name(source: Any, frame: Frame) -> str:
    return spelled(Path(source).name) if isinstance(source, str | os.PathLike) else frame.where
