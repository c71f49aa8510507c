r"""Shocks by time step: residuals of a panel, kriged over the graph at each step.

The residual of a model in group g at step t is taken as

.. math:: r_{gt} = a_t + e_{gt} + \varepsilon_{gt}, \qquad a_t \sim N(0, s_t^2 \omega), \quad
          e_{\cdot t} \sim N(0, s_t^2 \tau K),

a shock that all groups share and one that neighbours share, K as in :mod:`toporo.robust.kriged`. The ratios and K's
diffusion time are the same at all steps and found by their likelihood; four nested models, with and without each of the
shocks, are averaged by their evidence. A step without training rows gets the shock of the nearest step, times
:math:`\varphi` for each step between: the correlation of shocks from one step to the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from toporo.errors import DataError
from toporo.groups import GroupIds, Groups
from toporo.robust.factors import GroupFactors
from toporo.robust.kriged import KrigedFit, fit_nested
from toporo.robust.likelihood import Likelihood
from toporo.robust.modes import GraphModes
from toporo.types import Array

#: The nested models: neither shock, a common one, one that neighbours share, both.
SHOCKS: dict[str, tuple[str, ...]] = {
    "no shock": (),
    "common shock": ("omega_c",),
    "graph": ("tau_0", "time"),
    "common shock and graph": ("omega_c", "tau_0", "time"),
}


@dataclass(frozen=True, eq=False)
class PanelFit:
    r"""Shocks by time step.

    Attributes
    ----------
    times : steps of the training rows, ascending.
    unit : the usual distance from one to the next.
    carry : :math:`\varphi`.
    fits : one for all steps at which the same groups have rows, with the targets of each step as outputs of their own.
    columns : the fit of each step, and the first of its outputs.
    outputs : targets per row.
    """

    times: Array
    unit: float
    carry: float
    fits: list[KrigedFit]
    columns: list[tuple[int, int]]
    outputs: int

    def check(self) -> None:
        """Raise unless every step has a fit, and an output there."""
        steps = len(self.times)
        if self.times.ndim != 1 or not steps or (np.diff(self.times) <= 0).any() or len(self.columns) != steps:
            raise DataError("its time steps are not ascending, or of another number than its shocks.")
        if not (0.0 < self.unit < math.inf and 0.0 <= self.carry < math.inf and self.outputs > 0):
            raise DataError("its time unit, or the correlation of its shocks, is beyond what it may be.")
        for fit, first in self.columns:
            if not 0 <= fit < len(self.fits) or not 0 <= first <= self.fits[fit].factors.outputs - self.outputs:
                raise DataError("its time steps have shocks that are not there.")

    @property
    def evidence(self) -> dict[str, float]:
        """Weights of the nested models by name."""
        return self.fits[0].evidence

    @property
    def noise(self) -> Array:
        """Variance of residuals beside shocks, mean over the steps, by output."""
        by_step = np.concatenate([fit.noise.reshape(-1, self.outputs) for fit in self.fits])
        return np.asarray(by_step.mean(axis=0))

    def moments(self, times: Array, vectors: Array) -> tuple[Array, Array, Array]:
        """Return shock and variance of rows, (rows, outputs), and the share of the shock that lasts, (rows,).

        Parameters
        ----------
        times : of the rows.
        vectors : the row of the modes' vectors of each row's group.
        """
        after = np.minimum(np.searchsorted(self.times, times), len(self.times) - 1)
        before = np.maximum(after - 1, 0)
        nearer = np.abs(times - self.times[before]) <= np.abs(self.times[after] - times)
        steps = np.where(nearer, before, after)
        lasting = self.carry ** (np.abs(times - self.times[steps]) / self.unit)
        shock, variance = (np.zeros((len(times), self.outputs)) for _ in range(2))
        for step in np.unique(steps):
            rows = np.flatnonzero(steps == step)
            shock[rows], variance[rows] = self.at_step(int(step), vectors[rows])
        return shock * lasting[:, None], variance * lasting[:, None] ** 2, lasting

    def at_step(self, step: int, vectors: Array) -> tuple[Array, Array]:
        """Return shock and variance of groups at one of the training steps, (groups, outputs) each."""
        fit, first = self.columns[step]
        ones, untrained = np.ones((len(vectors), 1)), np.full(len(vectors), -1)
        centre, variance = self.fits[fit].moments(ones, ones, vectors, untrained)
        return centre[:, first : first + self.outputs], variance[:, first : first + self.outputs]


def fit_panel(
    residuals: Array, ids: GroupIds, times: Array, modes: GraphModes | None, places: Sequence[int], weights: Array
) -> PanelFit:
    """Fit shocks to residuals.

    Parameters
    ----------
    residuals : rows × outputs.
    ids : the group of each row.
    times : the time of each row, as a number.
    modes, places : of the graph, and the row of ``modes.vectors`` of each group; without a graph only a common shock is
        possible.
    weights : of rows.
    """
    steps, groups_at = np.unique(np.unique(np.column_stack([times, ids.codes]), axis=0)[:, 0], return_counts=True)
    used = np.isin(times, steps[groups_at > 1])  # the rows of one group do not tell what groups share
    if not used.any():
        raise DataError(
            f"{len(steps)} time step(s), each with rows of one group only: expected steps that several groups have "
            "rows of, since what they have in common is carried over. Leave time= out, or round the times."
        )
    residuals, weights = residuals[used], weights[used]
    steps, codes = np.unique(times[used], return_inverse=True)
    m, outputs = len(ids.groups), residuals.shape[1]
    # Sums of weights, residuals and squares by step and group; steps with the same groups and weights go together.
    terms = [weights, *(weights * column for column in (*residuals.T, *(residuals**2).T))]
    cells = codes * m + ids.codes[used]
    sums: Array = np.stack([np.bincount(cells, term, len(steps) * m) for term in terms], dtype=np.float64)
    sums = sums.reshape(-1, len(steps), m)
    patterns, pattern_of = np.unique(sums[0], axis=0, return_inverse=True)
    columns, likelihoods = [(0, 0)] * len(steps), []
    for pattern, mass in enumerate(patterns):
        groups, alike = np.flatnonzero(mass), np.flatnonzero(pattern_of.reshape(-1) == pattern)
        for number, step in enumerate(alike):
            columns[step] = (pattern, number * outputs)
        by_group = sums[1:, alike][:, :, groups].transpose(2, 1, 0)  # (groups, steps, sums)
        targets, squares = (part.reshape(len(groups), -1) for part in np.split(by_group, 2, axis=2))
        factors = _factors(Groups(ids.groups.decode(groups)), mass[groups], targets, squares)
        there = [places[int(g)] for g in groups] if modes else ()
        likelihoods.append(Likelihood(factors, modes, there, level=False))
    unit = float(np.median(np.diff(steps))) if len(steps) > 1 else 1.0
    panel = PanelFit(steps, unit, 0.0, fit_nested(likelihoods, SHOCKS, m), columns, outputs)
    vectors = np.zeros((m, 0)) if modes is None else modes.vectors[np.asarray(places)]
    return replace(panel, carry=_carry(panel, vectors))


def _factors(groups: Groups, mass: Array, sums: Array, squares: Array) -> GroupFactors:
    """Make factors of the means of cells; the one input is 1 in every group, and its coefficient the common shock."""
    root = np.sqrt(mass)
    roots, targets = np.zeros((len(groups), 2, 2)), np.zeros((len(groups), 2, sums.shape[1]))
    roots[:, 0] = root[:, None]
    targets[:, 0] = sums / root[:, None]
    residual = np.maximum(squares - targets[:, 0] ** 2, 0.0)
    return GroupFactors(groups, ("shock",), mass, mass, roots, targets, residual)


def _carry(panel: PanelFit, vectors: Array) -> float:
    """Return the correlation of shocks from one step to the next, over consecutive steps."""
    fields = np.stack([panel.at_step(step, vectors)[0] for step in range(len(panel.times))])
    follows = np.flatnonzero(np.diff(panel.times) <= 1.5 * panel.unit)
    earlier, later = fields[follows], fields[follows + 1]
    size = math.sqrt(float((earlier**2).sum() * (later**2).sum()))
    return max(0.0, float((earlier * later).sum()) / size) if size > 0 else 0.0
