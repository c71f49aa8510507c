"""Coefficients of a kriged model by group, as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from toporo.estimators.explain import RowTable
from toporo.estimators.kriged_model import KrigedModel
from toporo.groups import Groups
from toporo.robust.kriged import evidence_weights
from toporo.text import SAW, many
from toporo.types import Array, Name

#: Columns of a group beside its coefficients.
OF_GROUP = ("group", "size", "hops", "difference", "without_graph")
#: Inputs in the table for people; the others are in its CSV.
MOST_INPUTS = 5
#: The least share of the evidence for each of these conclusions.
CONCLUSIONS = {
    0.95: "neighbours are alike",
    0.7: "neighbours are probably alike",
    0.3: "the rows leave open whether neighbours are alike",
    0.05: "neighbours are hardly more alike than other groups",
    0.0: "neighbours are no more alike than other groups, so it says next to nothing of new ones",
}


@dataclass(frozen=True)
class GroupCoefficients:
    """One group, of the training rows or of the graph.

    Attributes
    ----------
    group : its name.
    size : its training rows; 0 if it was not trained on.
    hops : edges to the nearest training group (inf: no path); None without a graph.
    difference : how far its predictions are from the mean group's, root mean square over inputs that are spread as in
        training and do not go together; in units of the target.
    without_graph : how far they are, so measured, from those without the graph; None if there is none.
    levels : the prediction at the mean inputs of all training rows, were these the group's own mean: context is the
        same for all. ``"level"``, or one by target where there are several.
    slopes : by input, in the units of target and input.
    """

    group: Name
    size: int
    hops: float | None
    difference: float
    without_graph: float | None
    levels: dict[str, float]
    slopes: dict[str, float]


@dataclass(frozen=True)
class CoefficientTable(RowTable[GroupCoefficients]):
    """The groups of a kriged model, those that differ most first.

    Attributes
    ----------
    rows : training groups and groups of the graph that were not trained on.
    deviations : standard deviations of the inputs by name, those with the most variable slopes first.
    facts : the evidence, the weight of the graph, and the information that predictions use.
    """

    deviations: Mapping[str, float]
    facts: Mapping[str, Any]

    who: ClassVar[str] = "Groups"
    first: ClassVar[str] = "most different"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the slopes, those that vary most first."""
        return tuple(self.deviations)

    @property
    def columns(self) -> list[str]:
        """Those of a group, then its slopes."""
        levels = list(self.rows[0].levels) if self.rows else ["level"]
        return [*OF_GROUP, *levels, *(f"slope of {name}" for name in self.inputs)]

    def cells(self, row: GroupCoefficients) -> dict[str, Any]:
        """A row by column, as it is."""
        slopes = {f"slope of {name}": row.slopes[name] for name in self.inputs}
        return {name: getattr(row, name) for name in OF_GROUP} | row.levels | slopes

    def _shown(self) -> list[str]:
        hidden = {f"slope of {name}" for name in self.inputs[MOST_INPUTS:]}
        return [name for name in super()._shown() if name not in hidden]

    @property
    def about(self) -> dict[str, Any]:
        """The evidence and what follows from it."""
        return dict(self.facts)

    @property
    def notes(self) -> tuple[str, ...]:
        """Conclusions, and an explanation of the columns."""
        left = len(self.inputs) - MOST_INPUTS
        hops = " Hops are edges to the nearest training group." if any(r.hops is not None for r in self.rows) else ""
        return (
            *self.facts["words"],
            *self.remarks,
            "Level is the prediction at mean inputs, slopes are by unit of the input, difference is how far "
            f"predictions are from the mean group's, without_graph how far from those without the graph.{hops}"
            + (f" The CSV (--out) has {many(left, 'more input')}." if left > 0 else ""),
        )


def coefficient_table(
    model: KrigedModel, sizes: Mapping[Name, int], inputs: Sequence[str], labels: Sequence[str]
) -> CoefficientTable:
    """Make the table of a model.

    Parameters
    ----------
    model : the model.
    sizes : rows by training group.
    inputs : names of the inputs.
    labels : of the targets, appended to names; one empty label for a single target.
    """
    graph, units = model.graph, model.targets
    others = [] if graph is None else [name for name in graph.names if name not in model.groups]
    names = [*model.groups, *others]
    theta = _in_order(model, names)
    usual = theta[: len(model.groups)].mean(axis=0)
    differences = _distances(theta - usual, units.scale)
    hops = None if graph is None else graph.hops(model.groups)
    changes = None
    if graph is not None:
        scores = [math.inf if "time" in each.parameters else each.score for each in model.fit.models]
        changes = _distances(theta - _in_order(model, names, evidence_weights(scores)), units.scale)
    varying = np.argsort(-np.std(theta[:, 1:] * units.scale, axis=0).max(axis=1), kind="stable")
    slopes = [(f"{inputs[j]}{label}", j, k) for j in varying for k, label in enumerate(labels)]
    rows = tuple(
        GroupCoefficients(
            names[g],
            sizes.get(names[g], 0),
            None if hops is None else hops[names[g]],
            float(differences[g]),
            None if changes is None else float(changes[g]),
            {f"level{t}": float(theta[g, 0, k] * units.scale[k] + units.center[k]) for k, t in enumerate(labels)},
            {name: float(theta[g, 1 + j, k] * units.scale[k] / model.inputs.scale[j]) for name, j, k in slopes},
        )
        for g in np.argsort(-differences, kind="stable")
    )
    deviations = {name: float(model.inputs.scale[j]) for name, j, _ in slopes}
    return CoefficientTable(rows, deviations, _facts(model))


def _in_order(model: KrigedModel, names: Sequence[Name], weights: Array | None = None) -> Array:
    """Return coefficients in the order of the names, perhaps for other weights of the nested models."""
    groups = Groups(names)
    other = None if weights is None else replace(model.fit, weights=weights)
    return model.coefficients(groups, other)[groups.encode(names)]


def _distances(theta: Array, scale: Array) -> Array:
    return np.asarray(np.sqrt(((theta * scale) ** 2).sum(axis=(1, 2))))


def _facts(model: KrigedModel) -> dict[str, Any]:
    evidence = model.fit.evidence
    shares = {
        "groups": 1.0 - evidence.get("one model", 0.0),
        "graph": model.gate,
        "context": math.fsum(weight for name, weight in evidence.items() if "context" in name),
    }
    if len(evidence) == 1:
        words = ["There is one training group, so nothing is known of how groups differ."]
    elif model.graph is None:
        words = ["There is no graph: groups that were not trained on get the coefficients of all groups together."]
    else:
        words = [conclusion("The graph counts", model.gate)]
    seen = " and ".join(SAW.get(what, what) for what in model.saw)
    words.append(f"Of groups that were not trained on, predictions look at {seen or 'nothing but the row itself'}.")
    return {"evidence": evidence, "shares": shares, "saw": list(model.saw), "words": words}


def conclusion(title: str, share: float) -> str:
    """Return a sentence with the share of the evidence for the graph, and its meaning.

    >>> conclusion("The graph counts", 0.9999)
    'The graph counts for over 99 %: neighbours are alike.'
    """
    meaning = next(text for least, text in CONCLUSIONS.items() if share >= least)
    return f"{title} for {percent(share)}: {meaning}."


def percent(share: float) -> str:
    """Return a share in whole percent, which is not called certain where it is not.

    >>> percent(0.964), percent(0.9999), percent(1e-5), percent(1.0), percent(0.0)
    ('96 %', 'over 99 %', 'under 1 %', '100 %', '0 %')
    """
    if 0.995 < share < 1.0:
        return "over 99 %"
    return "under 1 %" if 0.0 < share < 0.005 else f"{100 * share:.0f} %"
