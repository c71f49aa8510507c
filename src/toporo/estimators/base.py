"""Parts that estimators share: groups of the rows, the graph and the prior of the groups, and bars."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from toporo.choice.penalty import PriorMaker
from toporo.errors import DataError, SettingError, warn
from toporo.estimators.explain import GroupRow, GroupTable
from toporo.estimators.rows import EVERYONE, group_ids, left_in_effect, one_group
from toporo.graphs import as_graph, check_groups
from toporo.groups import GroupIds, Groups
from toporo.text import printable
from toporo.topology.draw import TRAIN_COLOR
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The longest name in a picture.
LABEL = 40
#: How groups reach an estimator that others call.
HOW = (
    "In a Pipeline: <step>__groups=. In GridSearchCV or cross_validate: groups=, after "
    "sklearn.set_config(enable_metadata_routing=True)."
)


def training_groups(estimator: Any, groups: Any, rows: int, ordinary: str) -> GroupIds:
    """Return the group of every row; without any, one for all of them, with a warning.

    Parameters
    ----------
    estimator : settings of it that speak of groups are an error where there are none.
    groups : as ``fit`` got them.
    rows : how many there are.
    ordinary : what a fit to a single group comes to.
    """
    if groups is not None:
        ids = group_ids(groups, rows)
        if len(ids.groups) == 1:
            warn(f"all {rows} rows are of one group, {ids.groups.names[0]!r}: {ordinary}.")
        return ids
    named = [name for name in ("graph", "test_groups") if getattr(estimator, name) is not None]
    named += [] if isinstance(estimator.prior, str) else ["prior"]
    if named:
        raise SettingError(
            f"{' and '.join(named)} speak of groups, but fit() got none: call fit(X, y, groups=...), with one name "
            f"per row. {HOW}"
        )
    warn(f"fit() got no groups, so all rows are one and {ordinary}. Pass groups=, one name per row. {HOW}")
    return one_group(EVERYONE, rows)


@dataclass(frozen=True)
class GroupPrior:
    """Graph, test groups and prior of an estimator.

    Attributes
    ----------
    graph, test_groups : None where there are none.
    prior : over the training groups; None for a single one.
    maker : makes priors of other groups in the same way.
    """

    graph: GroupGraph | None
    test_groups: tuple[Name, ...] | None
    prior: Prior | None
    maker: PriorMaker

    @classmethod
    def of(cls, estimator: Any, groups: Groups, in_effect: Mapping[Name, float], columns: int) -> GroupPrior:
        """Make the prior of an estimator's settings ``graph``, ``test_groups`` and ``prior``.

        Parameters
        ----------
        estimator : with these settings.
        groups : of the training rows.
        in_effect : rows in effect by group.
        columns : number of features.
        """
        graph = None if estimator.graph is None else as_graph(estimator.graph)
        if graph is None and estimator.test_groups is not None:
            raise SettingError("test_groups are places in a graph, and there is none: pass graph= too.")
        test = None if graph is None else check_groups(graph, groups, estimator.test_groups)
        maker = PriorMaker(estimator.prior, graph, test is not None, rows=in_effect, columns=columns)
        prior = None if len(groups) == 1 else maker.prior(groups, test)
        doubted = prior is not None and bool(prior.fallback_reason)
        return cls(graph, test, prior, replace(maker, doubted=doubted))

    def weighed(self, weights: Mapping[Name, float], sizes: Mapping[Name, int]) -> WeighedGroups:
        """Return the groups with their weights; warn where too few rows are in effect.

        Parameters
        ----------
        weights, sizes : weight in the worst case and number of rows, by group.
        """
        in_effect, columns = self.maker.rows or {}, self.maker.columns
        rows = left_in_effect(weights, sizes, in_effect, columns)
        return WeighedGroups(self.graph, self.test_groups, self.prior, dict(sizes), dict(weights), rows)


@dataclass(frozen=True, eq=False)
class WeighedGroups:
    """Training groups of a fitted model and their weights; every field is an attribute of the estimator.

    Attributes
    ----------
    topology, test_groups : the graph and the test groups; None where there are none.
    prior : over the training groups; None for a single one.
    group_sizes, group_weights : rows, and weight in the worst case, by group.
    rows_in_effect : by these weights.
    """

    topology: GroupGraph | None
    test_groups: tuple[Name, ...] | None
    prior: Prior | None
    group_sizes: dict[Name, int]
    group_weights: dict[Name, float]
    rows_in_effect: float

    def check(self) -> None:
        """Raise unless its parts are of the same groups, and weights sum to one."""
        groups, weights = Groups(self.group_sizes), self.group_weights.values()
        if tuple(self.group_sizes) != groups.names or tuple(self.group_weights) != groups.names:
            raise DataError("its groups are out of order, or its weights are those of other groups.")
        if min(self.group_sizes.values()) < 1 or not self.rows_in_effect > 0:
            raise DataError("one of its groups has no rows.")
        if not all(0 <= weight <= 1 for weight in weights) or abs(math.fsum(weights) - 1.0) > 1e-6:
            raise DataError("the weights of its groups do not sum to one.")
        if self.prior is not None:
            groups.require_same(self.prior.weights, what="its prior")
        elif len(groups) > 1:
            raise DataError("its prior is missing.")
        if self.topology is not None:
            self.topology.require([*groups, *(self.test_groups or ())])
        elif self.test_groups is not None:
            raise DataError("it has test groups and no graph.")

    def table(self, losses: Mapping[Name, float]) -> GroupTable:
        """Return a table of the groups, the heaviest weight first.

        Parameters
        ----------
        losses : of the model, by group.
        """
        graph, test, prior, groups = self.topology, self.test_groups, self.prior, Groups(self.group_sizes)
        centrality = PriorMaker("auto", graph, test is not None).centrality(groups, test, prior)
        hops = None if graph is None or test is None else graph.hops(test)
        rows = [
            GroupRow(
                group=name,
                size=self.group_sizes[name],
                loss=losses[name],
                centrality=None if centrality is None else centrality[name],
                prior=1.0 if prior is None else prior.weights[name],
                weight=self.group_weights[name],
                hops=None if hops is None else hops[name],
            )
            for name in groups
        ]
        return GroupTable.of(rows, self.rows_in_effect, 0.0 if prior is None else prior.capped_mass)

    def settings(self) -> dict[str, Any]:
        """Return the settings of an estimator that these groups follow from."""
        test = None if self.test_groups is None else list(self.test_groups)
        return {"graph": self.topology, "test_groups": test, "prior": "auto" if self.prior is None else self.prior}


def adopt(estimator: Any, value: Any) -> None:
    """Make every field of a value an attribute of an estimator, with an underscore at the end."""
    for field in fields(value):
        setattr(estimator, f"{field.name}_", getattr(value, field.name))


def plot_bars(ax: Axes | None, values: Mapping[Name, float], label: str) -> Axes:
    """Draw groups as bars, in the order given.

    Parameters
    ----------
    ax : the matplotlib axes to draw on; by default new ones.
    values : by group.
    label : what they are.
    """
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(6, max(2.0, 0.8 + 0.22 * len(values))), layout="constrained")
    positions = range(len(values))
    ax.barh(positions, list(values.values()), color=TRAIN_COLOR)
    names = [printable(str(name), keep="") for name in values]
    ax.set_yticks(positions, [name if len(name) <= LABEL else f"{name[:LABEL]}…" for name in names])
    ax.invert_yaxis()
    ax.set_xlabel(label)
    return ax
