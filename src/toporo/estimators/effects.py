"""Group effects: the residuals of a model in groups that it has not seen, kriged over the graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.choice.cross_fitting import Mask
from toporo.errors import DataError
from toporo.estimators.places import Neighbors, Places, check_placed, placed, positions
from toporo.groups import GroupIds, Groups
from toporo.robust.factors import GroupFactors
from toporo.robust.kriged import KrigedFit, fit_kriged
from toporo.robust.modes import WalkModes
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

#: Nested models of the effects, averaged by their evidence. One of the graph alone is not among them: that nothing of
#: the differences is a group's own is never true, and on four tables it made predictions worse.
EFFECTS = {
    "no effect": (),
    "independent groups": ("omega_0",),
    "graph and independent groups": ("omega_0", "tau_0", "time"),
}
#: Probabilities are kept this far from 0 and 1.
LEAST = 1e-3
#: How often log-odds are put in place of probabilities anew: effects are small, and settle at once.
ROUNDS = 4


@dataclass(frozen=True)
class GroupEffect:
    """Effect of a group, in units of the target or, of a classifier, log-odds by class.

    Attributes
    ----------
    value : its mean, by what its neighbours and, of a group that was trained on, its own rows say.
    sd : its standard deviation.
    trained : whether the model was trained on the group; then the effect is known but not added.
    """

    value: Any
    sd: Any
    trained: bool


@dataclass(frozen=True, eq=False)
class GroupEffects:
    """Effects of the groups on numbers, or on the log-odds of each class.

    Attributes
    ----------
    graph : over the groups, or None.
    fits : one or, of classes, one per class.
    """

    graph: GroupGraph | None
    fits: tuple[KrigedFit, ...]

    @classmethod
    def fit(
        cls,
        target: npt.NDArray[Any],
        predictions: Array,
        ids: GroupIds,
        weights: Array | None,
        graph: GroupGraph | None,
        classes: npt.NDArray[Any] | None,
    ) -> GroupEffects:
        """Fit effects to out-of-fold predictions.

        Parameters
        ----------
        target, ids, weights : of the rows.
        predictions : values, or probabilities of the classes, (rows, classes).
        graph : over the groups, or None.
        classes : sorted; None for numbers.
        """
        modes, places = placed(graph, ids.groups, WalkModes)
        # Two groups are too few for differences to be told from noise.
        models = EFFECTS if len(ids.groups) > 2 else dict(list(EFFECTS.items())[:1])

        def krige(values: Array, weights: Array | None) -> KrigedFit:
            factors = GroupFactors.from_rows(np.zeros((len(values), 0)), values, ids, weights)
            return fit_kriged(factors, modes, places, models, level=False)

        if classes is None:
            return cls(graph, (krige(target - predictions, weights),))
        fits = []
        for code, label in enumerate(classes):
            # Working residuals of the log-odds and their weights, as often as it takes to settle.
            base, effects = _log_odds(predictions[:, code]), np.zeros(len(target))
            for _ in range(ROUNDS):
                p = 1.0 / (1.0 + np.exp(-(base + effects)))
                slope = p * (1.0 - p)
                values = effects + ((target == label) - p) / slope
                fit = krige(values, slope if weights is None else slope * weights)
                nothing = np.zeros((len(ids.groups), 0))
                means, _ = fit.moments(nothing, nothing, fit.likelihood.vectors, np.arange(len(ids.groups)))
                effects = means[ids.codes, 0]
            fits.append(fit)
        return cls(graph, tuple(fits))

    @property
    def groups(self) -> Groups:
        """The training groups."""
        return self.fits[0].factors.groups

    @cached_property
    def evidence(self) -> dict[str, float]:
        """Weights of the nested models, mean over the classes."""
        return {name: float(np.mean([fit.evidence.get(name, 0.0) for fit in self.fits])) for name in EFFECTS}

    @property
    def gate(self) -> float:
        """Weight of the nested models that follow the graph."""
        return sum(weight for name, weight in self.evidence.items() if "graph" in name)

    def moments(
        self, names: Groups, neighbors: Neighbors, without: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Array, Array]:
        """Return means and variances of effects, (groups, classes or 1).

        Parameters
        ----------
        names : the groups.
        neighbors : of groups that are not in the graph.
        without : mask of training groups that count as not seen.
        """
        vectors, own = positions(self.fits[0], self.graph, names, neighbors)
        nothing = np.zeros((len(vectors), 0))
        fits: Sequence[KrigedFit] = self.fits
        if without is not None:
            fits, own = [fit.without(without) for fit in fits], np.full(len(vectors), -1)
        both = [fit.moments(nothing, nothing, vectors, own) for fit in fits]
        return np.concatenate([mean for mean, _ in both], axis=1), np.concatenate([var for _, var in both], axis=1)

    def by_name(self, names: Iterable[Name], neighbors: Neighbors | None = None) -> dict[Name, GroupEffect]:
        """Return effects of groups by name: numbers, or lists of one number per class."""
        groups = Groups(names)
        means, variances = self.moments(groups, neighbors or {})
        shape = (lambda row: row.tolist()) if len(self.fits) > 1 else (lambda row: float(row[0]))
        return {
            name: GroupEffect(shape(mean), shape(np.sqrt(variance)), name in self.groups)
            for name, mean, variance in zip(groups, means, variances, strict=True)
        }

    def of_rows(self, at: Places) -> tuple[Array, Array]:
        """Return effects of rows and their variances: effects are nothing in groups that the model was trained on."""
        means, variances = self.moments(at.ids.groups, at.neighbors)
        new = np.array([name not in self.groups for name in at.ids.groups])[:, None]
        codes = at.ids.codes
        return np.where(new, means, 0.0)[codes], np.where(new, variances, variances + means**2)[codes]

    def add_to(self, predictions: Array, at: Places) -> Array:
        """Add effects to the predictions of rows: (rows, 1) or probabilities, (rows, classes)."""
        return self.combine(predictions, self.of_rows(at)[0])

    def combine(self, predictions: Array, effects: Array) -> Array:
        """Add effects of rows to their predictions: values, or the log-odds of probabilities."""
        return predictions + effects if len(self.fits) == 1 else add_to_log_odds(predictions, effects)

    def out_of_fold(self, ids: GroupIds, masks: Iterable[Mask]) -> Array:
        """Return effects of training rows by fits, at the same variances, that have not seen their groups.

        Parameters
        ----------
        ids : the group of each row.
        masks : rows that are held out together.
        """
        effects = np.zeros((len(ids), len(self.fits)))
        for mask in masks:
            gone = np.zeros(len(ids.groups), dtype=bool)
            gone[ids.codes[mask]] = True
            names = Groups(ids.groups.decode(np.flatnonzero(gone)))
            effects[mask] = self.moments(names, {}, gone)[0][(np.cumsum(gone) - 1)[ids.codes[mask]]]
        return effects

    def check(self) -> None:
        """Raise unless its fits are of the same groups, and of effects alone."""
        for fit in self.fits:
            if fit.factors.groups.names != self.groups.names or fit.factors.columns or fit.factors.outputs != 1:
                raise DataError("its effects are of other groups, or of inputs.")
            check_placed(fit, self.graph)
        if not self.fits:
            raise DataError("it has no effects of groups.")


def add_to_log_odds(chances: Array, effects: Array) -> Array:
    """Add effects to the log-odds of probabilities; rows without any stay as they are, to the last digit."""
    other = 1.0 / (1.0 + np.exp(-(_log_odds(chances) + effects)))
    kept = (effects == 0.0).all(axis=1)
    return np.asarray(np.where(kept[:, None], chances, other / other.sum(axis=1, keepdims=True)))


def _log_odds(chances: Array) -> Array:
    kept = np.clip(chances, LEAST, 1.0 - LEAST)
    return np.asarray(np.log(kept / (1.0 - kept)))
