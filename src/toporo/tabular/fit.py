"""From a table to a fitted model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.data.encode import CategoryRule, Encoder
from toporo.data.frame import Column, Frame, Numbers, Texts, read_frame
from toporo.errors import DataError, SettingError, UnknownNameError, listed
from toporo.groups import GroupIds, Groups
from toporo.tabular.model import TASKS, ColumnInfo, TableModel
from toporo.topology.graph import GroupGraph

__all__ = ["METHODS", "fit_table", "guess_task"]

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: How training groups are weighed: the worst mixture near the topology's prior, the worst group, all alike.
METHODS = {
    "tro": "looks at the worst mixture near the prior",
    "group-dro": "looks at the worst group alone",
    "erm": "weighs all groups alike",
}
#: Settings that mean nothing to the other methods.
TRO_ONLY = ("penalty", "tau", "prior", "normalization", "temperature", "divergence")
#: Of whole numbers, so many different ones are still worth a word that they could be classes.
FEW_NUMBERS = 10
#: Groups that choosing a penalty by leaving groups out needs.
FEWEST_TO_CHOOSE = 4


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
    tau: float | None = None,
    format: str | None = None,  # noqa: A002  # as read_frame calls it
    delimiter: str = ",",
    **settings: Any,
) -> TableModel:
    """Fit a model to a table whose rows come in groups.

    Parameters
    ----------
    source : a CSV, Parquet or Feather file, a stream of CSV, a pandas, polars or arrow table, or columns by name.
    target, group : columns. Group names are text, as written.
    graph : which groups touch: a GroupGraph, a file of edges (CSV, Parquet, Feather) or a graph's JSON, a list of
        edges, …
    learn_graph : learn it from the features instead; rows of test groups take part, without their targets.
    test_groups : groups to come. They are in the graph, or have rows in the table, which are never trained on.
    task : ``"classification"``, ``"regression"`` or ``"auto"``: text, and numbers of which there are only two, are
        classes.
    features : columns to use; unless given, all but those for other purposes and those that are of no use.
    exclude, categorical : columns not to use, and columns of numbers that are names of things.
    weight : a column with the weight of every row within its group.
    drop_missing : leave out rows that lack a group, a target or a weight; else they are an error. Features that are
        missing are filled in.
    method : ``"tro"``, ``"group-dro"`` (the worst group) or ``"erm"`` (all groups alike, the control).
    model : ``"linear"`` (exact) or ``"mlp"``.
    penalty, tau : see :class:`toporo.TRORegressor`. ``"auto"`` chooses among ten by leaving out regions of training
        groups; for fewer than four groups, or a network, it is 1.
    settings : others of the estimator: ``prior``, ``ridge``, ``divergence``, ``epochs``, …
    """
    _check_names(method, task, graph, learn_graph)
    roles = {"the target": target, "the group": group} | ({"the weight": weight} if weight is not None else {})
    _check_roles(roles, features or (), exclude := list(exclude))
    reading: dict[str, Any] = {"format": format, "delimiter": delimiter}
    frame = read_frame(source, text=[group, *categorical], exclude=exclude, **reading)
    frame = _with_known_target(frame, roles)
    frame = _complete(frame, [group], drop_missing)
    names = frame.text(group)
    coming = _coming(names, list(dict.fromkeys(str(name) for name in test_groups)), graph, learn_graph)
    apart = np.isin(names.codes, [names.levels.index(name) for name in coming if name in names.levels])
    if apart.all():
        raise DataError(f"every row is of a test group ({listed(coming)}): leave at least one group to train on.")
    needed = [target] if weight is None else [target, weight]
    train = _complete(frame.take(np.flatnonzero(~apart)), needed, drop_missing)
    kind = guess_task(train[target]) if task == "auto" else task
    y = _targets(train, target, kind)
    others = list(roles.values())
    encoder = Encoder.fit(train, features=features, exclude=others, categorical=list(categorical))
    x, ids = encoder.transform(train).matrix, _ids(train.text(group))
    found = _graph(graph, learn_graph, x, ids, coming, encoder, frame, apart, group)
    wanted = {"model": model, "penalty": penalty, "tau": tau} | settings
    estimator = _estimator(kind, method, len(ids.groups), found, coming, wanted)
    estimator.fit(x, y, groups=ids, sample_weight=None if weight is None else _weights(train, weight))
    return TableModel(
        estimator=estimator,
        encoder=encoder,
        task=kind,
        target=target,
        group=group,
        weight=weight,
        graph=found,
        test_groups=tuple(coming),
        columns=(
            *(_column(name, frame, train, encoder, (target, group, weight), kind) for name in frame.names),
            *(ColumnInfo(name, "left out", "", "excluded") for name in exclude),
            *(ColumnInfo(name, "left out", "", why) for name, why in frame.unusable.items()),
        ),
        about=_about(source, frame, train, method, ids),
    )


def guess_task(column: Column) -> str:
    """Text is classes, and so are numbers of which only two differ; else it is regression."""
    if isinstance(column, Texts):
        return "classification"
    known = column.values[~column.missing]
    return "classification" if len(known) and len(np.unique(known)) <= 2 else "regression"


# ---------------------------------------------------------------- what is asked


def _check_names(method: str, task: str, graph: Any, learn_graph: bool) -> None:
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    if task not in ("auto", *TASKS):
        raise UnknownNameError("task", task, ("auto", *TASKS))
    if graph is not None and learn_graph:
        raise SettingError("a graph is given and one is to be learned: decide for one.")


def _check_roles(roles: dict[str, str], features: Iterable[str], exclude: Iterable[str]) -> None:
    """No column has two purposes."""
    taken: dict[str, str] = {}
    for what, name in roles.items():
        if name in taken:
            raise SettingError(f"column {name!r} cannot be both {taken[name]} and {what}: name two columns.")
        taken[name] = what
        for names, use in ((features, "a feature"), (exclude, "excluded")):
            if name in names:
                raise SettingError(f"column {name!r} is {what}, so it cannot be {use}.")


def _with_known_target(frame: Frame, roles: dict[str, str]) -> Frame:
    """The frame, if it has the columns; words such as NA in a target of text mean that there is none."""
    for what, name in roles.items():
        if name in frame.unusable:
            raise DataError(f"{what} {name!r} cannot be used: {frame.unusable[name]}.")
        frame[name]
    column = frame[target := roles["the target"]]
    return replace(frame, columns=frame.columns | {target: column.known()}) if isinstance(column, Texts) else frame


def _complete(frame: Frame, columns: Sequence[str], drop: bool) -> Frame:
    """The rows that have all of these; others are an error unless they may be dropped."""
    absent = np.zeros(len(frame), bool)
    for name in columns:
        lacking = frame[name].missing
        if lacking.any() and not drop:
            raise DataError(
                f"{frame.where}: {int(lacking.sum())} of {len(frame)} rows lack {name!r} (first: row "
                f"{int(lacking.argmax()) + frame.first}). Fill them in, or leave those rows out with --drop-missing "
                "(drop_missing=True)."
            )
        absent |= lacking
    if absent.all():
        raise DataError(f"{frame.where}: no row has {' and '.join(map(repr, columns))}, so that none is left.")
    return frame.take(np.flatnonzero(~absent)) if absent.any() else frame


def _coming(names: Texts, asked: list[str], graph: Any, learn_graph: bool) -> list[str]:
    """The groups to come; without a graph to find them in, they must have rows."""
    strange = [name for name in asked if name not in names.levels]
    if strange and graph is None:
        hint = "to learn a graph that reaches them" if learn_graph else "unless a graph has them"
        raise DataError(
            f"test group(s) without a row: {listed(strange)}. They need rows {hint}. The table has "
            f"{listed(names.levels)}."
        )
    return asked


def _targets(frame: Frame, target: str, task: str) -> npt.NDArray[Any]:
    column = frame[target]
    if task == "classification":
        labels = frame.text(target)
        if len(labels.levels) < 2:
            raise DataError(f"target {target!r} has a single class, {labels.levels[0]!r}: there is nothing to predict.")
        if len(labels.levels) > max(20, len(frame) // 2):
            raise DataError(
                f"target {target!r} has {len(labels.levels)} different values in {len(frame)} rows: too many for "
                "classes. If they are numbers, say --task regression (task='regression')."
            )
        return np.asarray(labels.levels, dtype=object)[labels.codes]
    if isinstance(column, Texts):
        raise DataError(
            f"target {target!r} holds text such as {column.levels[0]!r}, so it is no number to predict. Correct the "
            "cells, or say --task classification (task='classification')."
        )
    if column.values.max() == column.values.min():
        raise DataError(f"target {target!r} is {column.values[0]:g} in all rows: there is nothing to predict.")
    return column.values


def _weights(frame: Frame, weight: str) -> Array:
    column = frame[weight]
    if isinstance(column, Texts) or column.kind != "number":
        raise DataError(f"weight {weight!r} does not hold numbers: expected a weight of at least 0 a row.")
    if (column.values < 0).any():
        row = int((column.values < 0).argmax())
        raise DataError(f"weight {weight!r} is negative ({column.values[row]:g}): expected at least 0 in every row.")
    return column.values


def _ids(column: Texts) -> GroupIds:
    groups = Groups(column.levels)
    return GroupIds(groups.encode(column.levels)[column.codes], groups)


# ---------------------------------------------------------------- the topology and the estimator


def _graph(
    given: Any,
    learn_graph: bool,
    x: Array,
    ids: GroupIds,
    coming: list[str],
    encoder: Encoder,
    frame: Frame,
    apart: Mask,
    group: str,
) -> GroupGraph | None:
    from toporo.estimators.graphs import as_graph, learn_graph_of, with_text_names

    if given is not None:
        return with_text_names(as_graph(given))
    if not learn_graph:
        return None
    if not coming:
        return learn_graph_of(x, ids)
    test = frame.take(np.flatnonzero(apart))
    return learn_graph_of(x, ids, test_x=encoder.transform(test).matrix, test_groups=_ids(test.text(group)))


def _estimator(
    task: str, method: str, groups: int, graph: GroupGraph | None, coming: list[str], wanted: dict[str, Any]
) -> Any:
    from toporo import estimators

    classes = task == "classification"
    known = estimators.TRORegressor().get_params()
    for name in wanted:
        if name not in known:
            raise UnknownNameError("setting", name, known)
    if wanted["tau"] is not None and wanted["penalty"] == "auto":
        del wanted["penalty"]
    if method != "tro":
        own = [name for name in TRO_ONLY if wanted.get(name) not in (None, "auto")]
        if own:
            raise SettingError(f"method {method!r} {METHODS[method]}: leave {' and '.join(own)} out.")
        wanted = {key: value for key, value in wanted.items() if key not in TRO_ONLY}
    if method == "group-dro":
        return (estimators.GroupDROClassifier if classes else estimators.GroupDRORegressor)(**wanted)
    if method == "erm":
        wanted |= {"penalty": np.inf, "prior": "uniform"}
    elif wanted.get("penalty") == "auto" and (groups < FEWEST_TO_CHOOSE or wanted["model"] != "linear"):
        wanted["penalty"] = 1.0
    if graph is not None:
        wanted |= {"graph": graph, "test_groups": coming or None}
    return (estimators.TROClassifier if classes else estimators.TRORegressor)(**wanted)


# ---------------------------------------------------------------- for the record


def _column(
    name: str,
    frame: Frame,
    train: Frame,
    encoder: Encoder,
    roles: tuple[str, str, str | None],
    task: str,
) -> ColumnInfo:
    column = frame[name]
    kind = column.kind if isinstance(column, Numbers) else "text"
    target, group, weight = roles
    if name == target:
        return ColumnInfo(name, "target", kind, _target_note(train, name, task))
    if name == group:
        return ColumnInfo(name, "group", "text", f"{len(frame.text(name).levels)} groups")
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
    filled = f", filled with {rule.fill:g}" if missing else ""
    return ColumnInfo(name, "feature", rule.kind, f"{lacking}{rule.low:g} to {rule.high:g}{filled}")


def _target_note(train: Frame, name: str, task: str) -> str:
    if task == "classification":
        labels = train.text(name)
        counts = np.bincount(labels.codes, minlength=len(labels.levels))
        shown = ", ".join(f"{level} ({count})" for level, count in list(zip(labels.levels, counts, strict=True))[:6])
        return f"{len(labels.levels)} classes: {shown}{', …' if len(labels.levels) > 6 else ''}"
    values = train[name].values if isinstance(train[name], Numbers) else np.zeros(1)  # type: ignore[union-attr]
    few = len(np.unique(values))
    hint = f"; {few} whole numbers: if they are classes, say so (task)" if _whole(values) and few <= FEW_NUMBERS else ""
    return f"{values.min():g} to {values.max():g}{hint}"


def _whole(values: Array) -> bool:
    return bool((values == np.round(values)).all())


def _about(source: Any, frame: Frame, train: Frame, method: str, ids: GroupIds) -> dict[str, Any]:
    from toporo import __version__

    name = os.path.basename(os.fspath(source)) if isinstance(source, str | os.PathLike) else frame.where  # noqa: PTH119
    return {
        "source": name,
        "rows": len(train),
        "rows_set_aside": len(frame) - len(train),
        "groups": len(ids.groups),
        "method": method,
        "toporo": __version__,
    }
