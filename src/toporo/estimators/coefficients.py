"""What a kriged model says: coefficients by group, how much the graph counts, and what would change without it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from toporo.estimators.base import plot_bars
from toporo.estimators.explain import RowTable
from toporo.estimators.rows import Scaling
from toporo.groups import Groups
from toporo.robust.kriged import KrigedFit, evidence_weights
from toporo.text import SAW, many, number
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Columns of a group beside its coefficients.
OF_GROUP = ("group", "size", "hops", "trust", "difference", "without_graph")
#: Inputs in the table for people; the others are in its CSV.
MOST_INPUTS = 5
#: From these shares of the evidence on, a thing is so, likely, open, unlikely; below the last, it is not so.
SURE, LIKELY, OPEN, UNLIKELY = 0.95, 0.7, 0.3, 0.05
WORDS = {
    "groups": (
        "groups differ",
        "groups probably differ",
        "the rows leave open whether groups differ",
        "groups hardly differ",
        "one set of coefficients will do",
    ),
    "graph": (
        "neighbours are alike",
        "neighbours are probably alike",
        "the rows leave open whether neighbours are alike",
        "neighbours are hardly more alike than other groups",
        "neighbours are no more alike than other groups, so it says next to nothing of new ones",
    ),
    "context": (
        "the mean inputs of a group matter beside a row's own",
        "the mean inputs of a group probably matter beside a row's own",
        "the rows leave open whether the mean inputs of a group matter",
        "the mean inputs of a group hardly matter",
        "the mean inputs of a group do not matter",
    ),
}


@dataclass(frozen=True)
class GroupCoefficients:
    """One group, of the training rows or of the graph.

    Attributes
    ----------
    group : its name.
    size : its training rows; 0 if it was not trained on.
    hops : edges to the nearest training group (inf: no path); None without a graph.
    trust : how much is known of its coefficients, from 0 (no more than of any group) to 1.
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
    trust: float
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
    inputs : the names of the slopes, those that vary most first.
    deviations : the standard deviation of their inputs, by name.
    story : the evidence and what follows from it, as plain values.
    """

    inputs: tuple[str, ...] = ()
    deviations: Mapping[str, float] | None = None
    story: Mapping[str, Any] | None = None

    who: ClassVar[str] = "Groups"
    first: ClassVar[str] = "most different"

    @property
    def columns(self) -> list[str]:
        """Those of a group, then its slopes."""
        return [*OF_GROUP, *self._levels, *self._slopes]

    def cells(self, row: GroupCoefficients) -> dict[str, Any]:
        """A row by column, as it is."""
        own = {name: getattr(row, name) for name in OF_GROUP} | row.levels
        return own | dict(zip(self._slopes, (row.slopes[name] for name in self.inputs), strict=True))

    @property
    def _levels(self) -> list[str]:
        return list(self.rows[0].levels) if self.rows else ["level"]

    @property
    def _slopes(self) -> list[str]:
        return [f"slope of {name}" for name in self.inputs]

    def to_dict(self) -> list[dict[str, Any]]:
        """One mapping per row, its slopes in one of their own."""
        fixed = replace(self, inputs=())
        rows = super(CoefficientTable, fixed).to_dict()
        return [cells | {"slopes": row.slopes} for cells, row in zip(rows, self.rows, strict=True)]

    def _shown(self) -> list[str]:
        rest = set(self._slopes[MOST_INPUTS:])
        return [name for name in super()._shown() if name not in rest]

    @property
    def about(self) -> dict[str, Any]:
        """The evidence and what follows from it."""
        return dict(self.story or {})

    @property
    def notes(self) -> tuple[str, ...]:
        """The evidence in words, and what the columns are."""
        left = len(self.inputs) - MOST_INPUTS
        hops = " Hops are edges to the nearest training group." if any(r.hops is not None for r in self.rows) else ""
        return (
            *self.about.get("words", ()),
            *self.remarks,
            "Level is the prediction at mean inputs, slopes are by unit of the input, difference is how far "
            f"predictions are from the mean group's.{hops}"
            + (f" The CSV (--out) has {many(left, 'more input')}." if left > 0 else ""),
        )


class KrigedPart:
    """What kriged estimators are asked about their groups; they have no prior and no worst case to speak of."""

    prior_: ClassVar[None] = None
    penalty_: ClassVar[None] = None
    penalty_scores_: ClassVar[None] = None
    choice_: ClassVar[None] = None
    history_: ClassVar[tuple[()]] = ()

    fit_: KrigedFit
    topology_: GroupGraph | None
    groups_: Groups
    group_sizes_: dict[Name, int]
    scaling_: Scaling
    target_scaling_: Scaling
    evidence_: dict[str, float]
    gate_: float
    saw_: tuple[str, ...]
    n_features_in_: int

    def explain(self, names: Sequence[str] | None = None) -> CoefficientTable:
        """A table of the groups, those that differ most first, with the evidence in words as its ``notes``.

        Parameters
        ----------
        names : of the inputs; those of the columns that it was fitted to unless given.
        """
        check_is_fitted(self)
        if names is None:
            names = getattr(self, "feature_names_in_", None)
        inputs = [f"x{place}" for place in range(self.n_features_in_)] if names is None else [str(n) for n in names]
        graph, fit = self.topology_, self.fit_
        others = [] if graph is None else [name for name in graph.names if name not in self.groups_]
        everyone: list[Name] = [*self.groups_, *others]
        theta = _theta(fit, graph, everyone, len(self.groups_))
        inside: Any = getattr(self, "model_", self)  # of a classifier, the regression that it is made of
        if graph is not None and inside.local_ is not None:
            share, place = inside._local * inside.gate_, {name: index for index, name in enumerate(graph.names)}
            opinion = inside.local_[[place[name] for name in others]]
            theta[len(self.groups_) :] = (1.0 - share) * theta[len(self.groups_) :] + share * opinion
        usual = theta[: len(self.groups_)].mean(axis=0)
        units = self.target_scaling_
        differences = _distances(theta - usual, units.scale)
        hops = None if graph is None else graph.hops(self.groups_)
        changes = None if graph is None else self._without(theta, everyone, units)
        order = np.argsort(-differences, kind="stable")
        varying = np.argsort(-np.std(theta[:, 1:] * units.scale, axis=0).max(axis=1), kind="stable")
        labels = self._labels(theta.shape[2])
        rows = tuple(
            GroupCoefficients(
                everyone[g],
                self.group_sizes_.get(everyone[g], 0),
                None if hops is None else hops[everyone[g]],
                float(inside.trust_[everyone[g]]),
                float(differences[g]),
                None if changes is None else float(changes[g]),
                {
                    f"level{label}": float(theta[g, 0, k] * units.scale[k] + units.center[k])
                    for k, label in enumerate(labels)
                },
                {
                    f"{inputs[j]}{label}": float(theta[g, 1 + j, k] * units.scale[k] / self.scaling_.scale[j])
                    for j in varying
                    for k, label in enumerate(labels)
                },
            )
            for g in order
        )
        deviations = {f"{inputs[j]}{label}": float(self.scaling_.scale[j]) for j in varying for label in labels}
        return CoefficientTable(rows, tuple(deviations), deviations, self._story(rows, units))

    def _labels(self, outputs: int) -> list[str]:
        if outputs == 1:
            return [""]
        labels = getattr(self, "classes_", range(outputs))
        return [f" ({label})" for label in labels]

    def _without(self, theta: Array, everyone: list[Name], units: Scaling) -> Array:
        """How far predictions would move were the models with a graph left out."""
        scores = [math.inf if "time" in m.solved.parameters else m.score for m in self.fit_.models]
        bare = replace(self.fit_, weights=evidence_weights(scores))
        return _distances(theta - _theta(bare, self.topology_, everyone, len(self.groups_)), units.scale)

    def _story(self, rows: Sequence[GroupCoefficients], units: Scaling) -> dict[str, Any]:
        shares = {
            "groups": 1.0 - self.evidence_.get("one model", 0.0),
            "graph": self.gate_,
            "context": math.fsum(weight for name, weight in self.evidence_.items() if "context" in name),
        }
        follows = {
            what: _follows(self.fit_, place, float(np.sqrt(np.mean(units.scale**2))))
            for place, what in enumerate(("intercepts", "slopes"))
        }
        if len(self.evidence_) == 1:
            words = ["There is one training group, so nothing is known of how groups differ."]
        else:
            words = [
                counts("Differences between groups count", shares["groups"], "groups"),
                "There is no graph: groups that were not trained on get the coefficients of all groups together."
                if self.topology_ is None
                else counts("The graph counts", shares["graph"], "graph"),
                counts("Context counts", shares["context"], "context"),
            ]
        words += [_differ(what, *share, self.topology_ is not None) for what, share in follows.items() if share[0] > 0]
        new = {row.group: row.without_graph for row in rows if not row.size and row.without_graph is not None}
        if new and len(self.evidence_) > 1:
            most = max(new, key=lambda name: new[name])
            mean = math.sqrt(math.fsum(change**2 for change in new.values()) / len(new))
            words.append(
                f"Without the graph, predictions in groups that were not trained on ({len(new)}) would change by "
                f"{number(mean)} (root mean square), most in {most!r} ({number(new[most])})."
            )
        if hasattr(self, "classes_"):
            which = repr(str(self.classes_[1])) if len(self.classes_) == 2 else "each class"
            words.append(f"Coefficients are of the share of {which}, which calibration then makes a probability.")
        seen = " and ".join(SAW.get(what, what) for what in self.saw_)
        words.append(f"Of groups that were not trained on, predictions look at {seen or 'nothing but the row itself'}.")
        return {
            "evidence": dict(self.evidence_),
            "shares": shares,
            "follows_graph": {what: {"deviation": a, "share": b} for what, (a, b) in follows.items()},
            "saw": list(self.saw_),
            "words": words,
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the graph with differences from the mean group as sizes, or without a graph these as bars.

        Parameters
        ----------
        ax : the matplotlib axes to draw on; by default new ones.
        """
        import matplotlib as mpl

        table = self.explain()
        differences = {row.group: row.difference for row in table}
        with mpl.rc_context({"text.parse_math": False}):  # a dollar in a name is one
            if self.topology_ is None:
                return plot_bars(ax, differences, "difference from the mean group")
            test = [row.group for row in table if not row.size]
            return self.topology_.plot(ax, train=list(self.groups_), test=test or None, sizes=differences)


def _theta(fit: KrigedFit, graph: GroupGraph | None, names: Sequence[Name], trained: int) -> Array:
    """Levels and slopes by group, (groups, d + 1, outputs), in units of standard deviations."""
    modes = fit.likelihood.modes
    vectors = np.zeros((len(names), 0))
    if modes is not None and graph is not None:
        place = {name: index for index, name in enumerate(graph.names)}
        vectors = modes.vectors[[place[name] for name in names]]
    own = np.array([place if place < trained else -1 for place in range(len(names))])
    return fit.coefficients(np.zeros((len(names), fit.likelihood.factors.width)), vectors, own)


def _distances(theta: Array, scale: Array) -> Array:
    return np.asarray(np.sqrt(((theta * scale) ** 2).sum(axis=(1, 2))))


def _follows(fit: KrigedFit, place: int, unit: float) -> tuple[float, float]:
    """Standard deviation of intercepts (0) or slopes (1) between groups, and the share of variance by the graph."""
    alone = graph = 0.0
    for solved, weight in fit.counting:
        noise = weight * float(np.mean(solved.noise))
        alone += noise * solved.parameters.get(f"omega_{place}", 0.0)
        graph += noise * solved.parameters.get(f"tau_{place}", 0.0)
    return unit * math.sqrt(alone + graph), graph / (alone + graph) if alone + graph > 0 else 0.0


def _differ(what: str, deviation: float, share: float, graph: bool) -> str:
    unit = " per standard deviation of the input" if what == "slopes" else ""
    follows = f"; {percent(share)} of that variance follows the graph" if graph else ""
    return f"{what.capitalize()} have a standard deviation of {number(deviation)} between groups{unit}{follows}."


def counts(title: str, share: float, what: str) -> str:
    """A share of the evidence, and what it means, in words."""
    strength = sum(share < bound for bound in (SURE, LIKELY, OPEN, UNLIKELY))
    return f"{title} for {percent(share)}: {WORDS[what][strength]}."


def percent(share: float) -> str:
    """A share of the evidence: whole percent, and no certainty that is none.

    >>> percent(0.964), percent(0.9999), percent(1e-5)
    ('96 %', 'over 99 %', 'under 1 %')
    """
    return "over 99 %" if share > 0.995 else "under 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"
