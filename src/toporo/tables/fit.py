"""From a table to a fitted model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.coordinates import read_coordinates
from toporo.data.encode import CategoryRule
from toporo.data.frame import Numbers
from toporo.errors import SettingError, UnknownNameError, warn
from toporo.estimators import (
    AutoClassifier,
    AutoRegressor,
    GroupDROClassifier,
    GroupDRORegressor,
    KrigedClassifier,
    KrigedRegressor,
    Net,
    Radius,
    TROClassifier,
    TRORegressor,
)
from toporo.estimators.auto import TreesClassifier, TreesRegressor
from toporo.estimators.held_out import FEWEST, refitted
from toporo.estimators.rows import counted
from toporo.groups import GroupIds
from toporo.pool import LOCAL, Threads, open_pool
from toporo.tables.large import Large, find_large, read_large
from toporo.tables.model import ColumnInfo, TableModel, learned_prior
from toporo.tables.reach import Reach
from toporo.tables.read import PreparedTable, prepare_table, written
from toporo.tables.roles import Roles
from toporo.text import many
from toporo.topology.graph import GroupGraph
from toporo.types import Array
from toporo.version import __version__

#: How training groups are weighed: the worst mixture near the topology's prior, the worst group, all alike.
METHODS = {
    "tro": "looks at the worst mixture near the prior",
    "group-dro": "looks at the worst group alone",
    "erm": "weighs all groups alike",
}
#: What is fitted.
MODELS = ("auto", "trees", "linear", "kriged", "mlp")
#: Models by votes, boosted trees and kriged models, by task.
AUTO: dict[str, Any] = {"classification": AutoClassifier, "regression": AutoRegressor}
TREES: dict[str, Any] = {"classification": TreesClassifier, "regression": TreesRegressor}
KRIGED: dict[str, Any] = {"classification": KrigedClassifier, "regression": KrigedRegressor}
#: Settings that mean nothing to the other methods.
TRO_ONLY = ("penalty", "radius", "prior", "divergence")
#: Settings of linear models and networks, and of networks alone.
TRO_SETTINGS = ("method", "radius", *TRORegressor().get_params())
NET_SETTINGS = tuple(each.name for each in fields(Net) if each.name != "module")
#: Settings of a fit alone, which a fitted model does not keep: whom it tells what it tries, and where it goes on.
OF_FIT = ("report", "resume")


def fit_table(
    source: Any,
    *,
    target: str,
    group: str,
    weight: str | None = None,
    features: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    categorical: Iterable[str] = (),
    test_groups: Iterable[Any] = (),
    graph: Any = None,
    task: str = "auto",
    drop_rows: bool = False,
    coordinates: Any = None,
    model: Any = None,
    intervals: bool = False,
    delimiter: str = ",",
    memory_limit: int | str | None = None,
    engine: str = LOCAL,
    **settings: Any,
) -> TableModel:
    """Fit a model to a table whose rows come in groups.

    Parameters
    ----------
    source : a CSV (also .gz), Parquet or Feather file, a stream of CSV, a pandas, polars or arrow table, or columns by
        name; or a table of many files: a folder (``state=NY/…`` in it gives a column), a pattern such as
        ``"sales/*.parquet"``, an address such as ``"s3://bucket/sales"``.
    target, group : columns. Group names are text, as written.
    weight : a column with the weight of every row within its group.
    features : columns to use; unless given, all but those for other purposes and those that are of no use.
    exclude, categorical : columns not to use, and columns of numbers that are categories.
    test_groups : groups never trained on. They are in the graph, or have rows in the table, which are set aside.
    graph : which groups touch: a GroupGraph, a file of edges (CSV, Parquet, Feather; a group without an edge stands
        alone on its line) or a graph's JSON, a list of edges, … See :func:`toporo.graphs.as_graph`. ``"learn"`` learns
        it from the features instead; rows of test groups take part, without their targets. Where resamples of the rows
        would give another prior, a warning says so and all groups have the same, unless ``prior`` names one;
        :meth:`TableModel.explain` says how stable the graph is.
    task : ``"classification"``, ``"regression"`` or ``"auto"``: text, and numbers of which there are only two, are
        classes.
    drop_rows : leave out rows that lack a group, a target or a weight, or whose group the graph does not have; else
        they are an error. Features that are missing are filled in.
    coordinates : where groups lie, for drawing the graph as a map: a table, or its path, with the columns group, lat
        and lon, or group, x and y. They are stored with the model and change nothing else.
    model : ``"auto"``: several models, each with a vote by how it does in groups left out, and an effect of the group
        that follows the graph (:class:`toporo.AutoRegressor`, :class:`toporo.AutoClassifier`); ``"trees"``: boosted
        trees alone, which need no graph, as a control; ``"linear"`` (exact, and fast), ``"mlp"``, or ``"kriged"``:
        coefficients by group that follow the graph, as far as the rows say so (:class:`toporo.KrigedRegressor`,
        :class:`toporo.KrigedClassifier`). The last takes no method, radius or prior,
        and a penalty only of numbers and if one is given. Unless given it is ``"auto"``, or ``"linear"`` if a setting
        is that only TRO has, such as ``method``, ``penalty``, ``prior`` or ``ridge``.
    intervals : of a network or of kriged classes, up to twelve more fits without some groups, each as long as the
        first, for an ``interval`` in ``predict``. Others have it anyway: linear models are fitted in no time, and
        kriged models of numbers have intervals of their own.
    delimiter : what stands between the cells of a CSV file.
    memory_limit : bytes that the process may take, as a number or a text such as ``"2GiB"``. It never changes the
        model: a fit that would take more is an error. Files of more than a million rows, or about 17 million cells, are
        read in portions: linear and kriged models of numbers are fitted to sums over all rows, logistic ones in several
        passes over them, others to a sample of that many rows.
    engine : ``"local"``, or ``"ray"`` or a Ray cluster's address, to read the portions of such files there. The same
        portions are added up in the same order, so the model is the same.
    settings : of the estimator: ``penalty`` and ``radius`` (see :class:`toporo.TRORegressor`; ``"auto"``, unless given,
        chooses the penalty among ten by leaving out regions of training groups; for fewer than four groups, or a
        network, it is 1), ``prior``, ``ridge`` and ``divergence`` of TRO, ``hidden``, ``epochs``, … of a network
        (:class:`toporo.Net`), ``candidates``, ``folds``,
        ``budget``, … of votes, ``random_state`` of both; and of a linear model or a network ``method``: ``"tro"``
        (unless given), ``"group-dro"`` (the worst group) or ``"erm"`` (all groups alike, the control). These three
        may be None, as if not given.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> table = {"town": np.repeat(["A", "B", "C", "D"], 25), "rain": rng.normal(size=100)}
    >>> table["flood"] = 2 * table["rain"] + 0.1 * rng.normal(size=100)
    >>> roads = [("A", "B"), ("B", "C"), ("C", "D")]
    >>> model = fit_table(table, target="flood", group="town", graph=roads, test_groups=["D"], model="linear")
    >>> list(model.groups), model.estimator.prior_.saw
    (['A', 'B', 'C'], ('test adjacency',))
    >>> model.predict({"town": ["D"], "rain": [1.0]}).round()
    array([2.])
    """
    optional = ("method", "penalty", "radius")
    wanted = {name: value for name, value in settings.items() if value is not None or name not in optional}
    if model is None:
        model = default_model(wanted)
    _check_names(wanted.get("method", "tro"), model)
    places = None if coordinates is None else read_coordinates(coordinates)
    if places is not None and graph is None:
        raise SettingError(
            "coordinates say where a graph's groups are drawn, and there is no graph: give one (graph=, --graph), have "
            'one learned (graph="learn", --graph learn), or leave the coordinates out.'
        )
    roles = Roles.of(
        target=target,
        group=group,
        weight=weight,
        features=features,
        exclude=exclude,
        categorical=categorical,
        test_groups=test_groups,
        graph=graph,
        task=task,
        drop_rows=drop_rows,
    ).read_graph()
    exclude = roles.exclude
    reading: dict[str, Any] = {"delimiter": delimiter}
    with ExitStack() as stack:
        dataset = find_large(source, memory_limit, engine, **reading)
        large = None
        if dataset is not None:
            how: dict[str, Any] = {"measured": model in ("linear", "kriged"), "memory_limit": memory_limit}
            large = read_large(dataset, roles, machines=stack.enter_context(open_pool(engine, Threads())), **how)
            source = large.drawn
            roles = replace(roles, exclude=(), task=large.task if task == "auto" else task)  # columns are left out
        ready = prepare_table(source, roles, **reading)
        # Of a large table all rows decide these models; others have those that were drawn.
        whole = model == "linear" or (model == "kriged" and ready.task == "regression")
        if large is not None:
            ready = large.prepared(ready, str(model), whole=whole)
        x, y, ids, weights, topology = ready.x, ready.y, ready.ids, ready.weights, ready.graph
        if places is not None and topology is not None:
            topology = places.place(topology)
        aim = list(roles.test_groups)
        if model == "auto" and topology is not None and topology.bootstrap_edges and aim:
            prior = learned_prior(topology, ids.groups.names, aim)  # type: ignore[arg-type]  # names in tables are text
            if prior is not None and prior.fallback_reason:
                doubt = f"another sample would give another prior: {prior.fallback_reason}"
                warn(f"{doubt}. Candidates weigh all groups alike instead.")
        refits = _refits(model, ready.task, intervals, len(ids.groups))
        estimator = _estimator(ready.task, model, ids, topology, aim, wanted)
        if large is not None and whole:
            large.fit(estimator, ready)
        else:
            if model in ("auto", "trees"):  # candidates get rows that count
                x, y, ids, weights = counted(x, y, ids, weights)
            estimator = _fitted(estimator, x, y, groups=ids, sample_weight=weights)
    reach = Reach.of(estimator, x, ids, graph=topology, test_groups=aim, sample_weight=weights)
    to = aim if topology is not None else ()
    held_out = refitted(estimator, x, y, ids, weights, graph=topology, test_groups=to) if refits else None
    notes = ready if large is None else large
    return TableModel(
        estimator=estimator,
        encoder=ready.encoder,
        task=ready.task,
        target=target,
        group=group,
        weight=weight,
        graph=topology,
        test_groups=roles.test_groups,
        columns=(
            *(_column(name, ready, notes) for name in ready.frame.names),
            *(ColumnInfo(name, "left out", "", "excluded") for name in exclude),
            *(ColumnInfo(name, "left out", "", why) for name, why in ready.frame.unusable.items()),
        ),
        about={
            "source": ready.source,
            **notes.counts,
            "groups": len(ids.groups),
            "constant": notes.constant(ready.task),
            "method": wanted.get("method", "tro")
            if model in ("linear", "mlp") or not isinstance(model, str)
            else model,
            "toporo": __version__,
        },
        reach=reach if reach is None or large is None else large.reach(reach, ready.encoder),
        held_out=held_out,
    )


# ---------------------------------------------------------------- what is asked


def _check_names(method: str, model: Any) -> None:
    if isinstance(model, str) and model not in MODELS:
        raise UnknownNameError("model", model, MODELS)
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)


def _refits(model: Any, task: str, intervals: bool, groups: int) -> bool:
    """Whether intervals take fits without some groups: votes, and kriged models of numbers, have them anyway."""
    own = model == "kriged" and task == "regression"
    if intervals and not own and groups < FEWEST:
        raise SettingError(
            f"intervals need at least {FEWEST} groups, and the table has {many(groups, 'training group')}: leave "
            "intervals out (--set intervals=true, intervals=True), or name a finer column of groups."
        )
    return model == "linear" or (intervals and not own and model not in ("auto", "trees"))


# ---------------------------------------------------------------- the topology and the estimator


def default_model(given: Iterable[str]) -> str:
    """What is fitted unless a model is named: candidates with votes, or what takes the settings that are given.

    >>> default_model([]), default_model(["random_state"]), default_model(["penalty"])
    ('auto', 'auto', 'linear')
    """
    return "linear" if _of_tro(given) else "auto"


def _of_tro(names: Iterable[str]) -> list[str]:
    """Settings of TRO alone."""
    own = {*TRO_SETTINGS, *NET_SETTINGS} - AutoRegressor().get_params().keys()
    return [name for name in names if name in own]


def _estimator(
    task: str, model: Any, ids: GroupIds, graph: GroupGraph | None, test_groups: list[str], wanted: dict[str, Any]
) -> Any:
    """The estimator to fit: a model and its settings."""
    if model in ("auto", "trees"):
        return _auto(model, task, graph, test_groups, wanted)
    wanted = dict(wanted)
    method = wanted.pop("method", "tro")
    if model == "kriged":
        return _kriged(task, method, ids, graph, wanted)
    return _tro(task, method, graph, test_groups, wanted | {"model": model})


def _auto(model: str, task: str, graph: GroupGraph | None, test_groups: list[str], wanted: Mapping[str, Any]) -> Any:
    """Return an estimator of several candidates, or of boosted trees alone, which need no graph."""
    strange = _of_tro(wanted)
    if strange:
        raise SettingError(
            f"model {model!r} decides for itself how groups count, and does not take {' and '.join(strange)}: leave "
            f"{' and '.join(strange)} out, or fit the linear model alone, --model linear (model='linear')."
        )
    known = AUTO[task]().get_params()
    for name in wanted:
        if name not in known:
            raise UnknownNameError("setting", name, {*known, *TRO_SETTINGS, *NET_SETTINGS})
    if model == "trees":
        return TREES[task](**wanted)
    return AUTO[task](graph=graph, test_groups=test_groups or None, **wanted)


def _tro(task: str, method: str, graph: GroupGraph | None, test_groups: list[str], wanted: dict[str, Any]) -> Any:
    classes = task == "classification"
    for name in wanted:
        if name not in {*TRO_SETTINGS, *NET_SETTINGS}:
            raise UnknownNameError("setting", name, {*TRO_SETTINGS, *NET_SETTINGS})
    penalty, radius = wanted.get("penalty", "auto"), wanted.get("radius")
    if radius is not None and penalty != "auto":
        raise SettingError(f"penalty={penalty!r} and radius={radius!r} are two ways to say the same: give one.")
    if method != "tro":
        own = [name for name in TRO_ONLY if wanted.get(name) not in (None, "auto")]
        if own:
            raise SettingError(f"method {method!r} {METHODS[method]}: leave {' and '.join(own)} out.")
        wanted = {key: value for key, value in wanted.items() if key not in TRO_ONLY}
    net = {name: wanted.pop(name) for name in NET_SETTINGS if name in wanted}
    if wanted["model"] == "mlp":
        wanted["model"] = Net(**net)
    elif net:
        raise SettingError(f"{' and '.join(net)} are of a network: leave them out, or fit one (model='mlp').")
    if radius is not None:
        wanted["penalty"] = Radius(wanted.pop("radius"))
    if method == "group-dro":
        return (GroupDROClassifier if classes else GroupDRORegressor)(**wanted)
    if method == "erm":
        wanted |= {"penalty": np.inf, "prior": "uniform"}
    if graph is not None:
        wanted |= {"graph": graph, "test_groups": test_groups or None}
    return (TROClassifier if classes else TRORegressor)(**wanted)


def _kriged(task: str, method: str, ids: GroupIds, graph: GroupGraph | None, wanted: dict[str, Any]) -> Any:
    """A kriged estimator, which has settings of its own."""
    known = [name for name in KRIGED[task]().get_params() if name != "graph"]
    given = {k: v for k, v in wanted.items() if v is not None and (k, v) != ("penalty", "auto")}
    for name in given:
        if name not in known and name not in {*TRO_SETTINGS, *NET_SETTINGS}:
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
    """Fit, and forget what only a fit needs."""
    estimator.fit(x, y, **rows)
    return estimator.set_params(**{name: None for name in OF_FIT if name in estimator.get_params(deep=False)})


# ---------------------------------------------------------------- for the record


def _column(name: str, ready: PreparedTable, notes: PreparedTable | Large) -> ColumnInfo:
    """What a column is, with what is known of the rows that the model was fitted to."""
    column, encoder = ready.frame[name], ready.encoder
    kind = column.kind if isinstance(column, Numbers) else "text"
    roles = ready.roles
    if name == roles.target:
        return ColumnInfo(name, "target", kind, notes.target_note(ready.task))
    if name == roles.group:
        return ColumnInfo(name, "group", "text", many(notes.group_count, "group"))
    if name == roles.weight:
        return ColumnInfo(name, "weight", kind)
    rule = next((rule for rule in encoder.rules if rule.name == name), None)
    if rule is None:
        return ColumnInfo(name, "left out", kind, encoder.left_out.get(name, "not asked for"))
    missing = notes.missing(name)
    lacking = f"{missing} missing, " if missing else ""
    if isinstance(rule, CategoryRule):
        rest = " and 'other'" if rule.other else ""
        return ColumnInfo(name, "feature", "text", f"{lacking}{len(rule.levels)} levels{rest}")
    low, high, fill = (written(value, rule.kind) for value in (rule.low, rule.high, rule.fill))
    filled = f", filled with {fill}" if missing else ""
    return ColumnInfo(name, "feature", rule.kind, f"{lacking}{low} to {high}{filled}")
