r"""What rows of one time step have in common: residuals of a panel, kriged over the graph step by step.

What a model leaves of group g at step t is taken as

.. math:: r_{gt} = a_t + e_{gt} + \varepsilon_{gt}, \qquad a_t \sim N(0, s_t^2 \omega), \quad
          e_{\cdot t} \sim N(0, s_t^2 \tau K),

a shock that all groups share and one that neighbours share, K as in :mod:`toporo.robust.kriged`. The ratios and K's
diffusion time are one for all steps, found by their likelihood; without either shock nothing is added, and four nested
models are averaged by their evidence. A step that no training row is of has what the nearest one has, less by
:math:`\varphi` for every step between: their correlation from one step to the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError
from toporo.groups import GroupIds, Groups
from toporo.robust.factors import GroupFactors
from toporo.robust.kriged import FittedModel, KrigedFit, Likelihood, search
from toporo.robust.modes import GraphModes
from toporo.types import Array

#: The nested models: neither shock, a common one, one that neighbours share, both.
SHOCKS: dict[str, tuple[str, ...]] = {
    "no shock": (),
    "common shock": ("omega_c",),
    "graph": ("tau_0", "time"),
    "common shock and graph": ("omega_c", "tau_0", "time"),
}


@dataclass(frozen=True)
class Panel:
    r"""Shocks by time step.

    Attributes
    ----------
    times : of the training rows, ascending.
    unit : the usual distance from one to the next.
    carry : :math:`\varphi`.
    fits : one for all steps with the same groups in them.
    places : by step, which of the fits, and which of its columns comes first.
    outputs : targets per row.
    """

    times: Array
    unit: float
    carry: float
    fits: tuple[KrigedFit, ...]
    places: tuple[tuple[int, int], ...]
    outputs: int

    @property
    def evidence(self) -> dict[str, float]:
        """Weights of the nested models by name."""
        return self.fits[0].evidence

    @property
    def noise(self) -> Array:
        """What is left of the variance of residuals beside shocks, mean over the steps, by output."""
        each = np.concatenate([fit.noise.reshape(-1, self.outputs) for fit in self.fits])
        return np.asarray(each.mean(axis=0))

    def moments(self, times: Array, vectors: Array) -> tuple[Array, Array, Array]:
        """Of rows: the shock, its variance, and how much of it holds at their time, (rows, outputs) and (rows,).

        Parameters
        ----------
        times : of the rows.
        vectors : every row's group: its place in the modes.
        """
        after = np.minimum(np.searchsorted(self.times, times), len(self.times) - 1)
        before = np.maximum(after - 1, 0)
        nearer = np.abs(times - self.times[before]) <= np.abs(self.times[after] - times)
        steps = np.where(nearer, before, after)
        holds = self.carry ** (np.abs(times - self.times[steps]) / self.unit)
        shock, variance = (np.zeros((len(times), self.outputs)) for _ in range(2))
        for step in np.unique(steps):
            rows = np.flatnonzero(steps == step)
            shock[rows], variance[rows] = self._step(int(step), vectors[rows])
        return shock * holds[:, None], variance * holds[:, None] ** 2, holds

    def _step(self, step: int, vectors: Array) -> tuple[Array, Array]:
        which, first = self.places[step]
        ones = np.ones((len(vectors), 1))
        nobody = np.full(len(vectors), -1)
        centre, variance = self.fits[which].moments(ones, ones, vectors, nobody)
        return centre[:, first : first + self.outputs], variance[:, first : first + self.outputs]


def fit_panel(
    residuals: Array, ids: GroupIds, times: Array, modes: GraphModes | None, places: Sequence[int], weights: Array
) -> Panel:
    """Fit shocks to residuals.

    Parameters
    ----------
    residuals : rows × outputs.
    ids : every row's group.
    times : every row's time, as a number.
    modes, places : of the graph, and where the groups are in them; without a graph only a common shock is possible.
    weights : of rows.
    """
    pairs = np.unique(np.column_stack([times, ids.codes]), axis=0)[:, 0]
    every, groups_in = np.unique(pairs, return_counts=True)
    used = np.isin(times, every[groups_in > 1])  # a group alone cannot tell what it shares
    if not used.any():
        raise DataError(
            f"{len(every)} time step(s), each with rows of one group only: expected steps that several groups have "
            "rows of, since what they have in common is carried over. Leave time= out, or round the times."
        )
    residuals, times, weights, group_codes = residuals[used], times[used], weights[used], ids.codes[used]
    known, codes = np.unique(times, return_inverse=True)
    m, k = len(ids.groups), residuals.shape[1]
    cells = codes * m + group_codes
    mass = np.bincount(cells, weights, len(known) * m).reshape(len(known), m)
    sums, squares = (
        np.stack([np.bincount(cells, weights * column, len(known) * m) for column in values.T], axis=1).reshape(
            len(known), m, k
        )
        for values in (residuals, residuals**2)
    )
    patterns: dict[bytes, list[int]] = {}
    for step, row in enumerate(mass):
        patterns.setdefault(row.tobytes(), []).append(step)
    at: list[tuple[int, int]] = [(0, 0)] * len(known)
    likelihoods = []
    for number, steps in enumerate(patterns.values()):
        present = np.flatnonzero(mass[steps[0]])
        for column, step in enumerate(steps):
            at[step] = (number, column * k)
        factors = _factors(
            ids,
            present,
            *(
                np.concatenate(list(part[steps][:, present]), axis=1) if part.ndim == 3 else part[steps[0], present]
                for part in (mass, sums, squares)
            ),
        )
        likelihoods.append(Likelihood(factors, modes, [places[int(g)] for g in present] if modes else (), level=False))
    fits = _fit(likelihoods, m)
    panel = Panel(known, float(np.median(np.diff(known))) if len(known) > 1 else 1.0, 0.0, fits, tuple(at), k)
    return Panel(known, panel.unit, _carry(panel, places, modes, m), fits, tuple(at), k)


def _factors(ids: GroupIds, present: npt.NDArray[np.intp], mass: Array, sums: Array, squares: Array) -> GroupFactors:
    """Make factors of the means of cells; the one input is 1 in every group, and its coefficient the common shock."""
    root = np.sqrt(mass)
    roots, targets = np.zeros((len(present), 2, 2)), np.zeros((len(present), 2, sums.shape[1]))
    roots[:, 0] = root[:, None]
    targets[:, 0] = sums / root[:, None]
    left = np.maximum(squares - targets[:, 0] ** 2, 0.0)
    groups = Groups(ids.groups.names[g] for g in present)
    return GroupFactors(groups, ("shock",), mass, mass, roots, targets, left)


def _fit(likelihoods: Sequence[Likelihood], groups: int) -> tuple[KrigedFit, ...]:
    def value(names: Sequence[str], logs: Array) -> tuple[float, Array]:
        each = [likelihood.value(names, logs) for likelihood in likelihoods]
        return sum(one for one, _ in each), np.sum([gradient for _, gradient in each], axis=0)

    known: dict[str, float] = {}
    fitted: list[list[FittedModel]] = [[] for _ in likelihoods]
    scores = []
    for name, parameters in SHOCKS.items():
        if "time" in parameters and likelihoods[0].modes is None:
            continue
        logs, nll, converged = search(value, parameters, known)
        known |= dict(zip(parameters, logs.tolist(), strict=True))
        scores.append(nll + 0.5 * math.log(groups) * len(parameters))
        there = {key: math.exp(log) for key, log in zip(parameters, logs, strict=True)}
        for own, likelihood in zip(fitted, likelihoods, strict=True):
            own.append(FittedModel(name, likelihood.solve(there), nll, scores[-1], converged))
    weights = np.exp(min(scores) - np.array(scores))
    weights /= weights.sum()
    return tuple(KrigedFit(one, tuple(own), weights) for one, own in zip(likelihoods, fitted, strict=True))


def _carry(panel: Panel, places: Sequence[int], modes: GraphModes | None, m: int) -> float:
    """The correlation of shocks from one step to the next, over steps that follow each other."""
    vectors = np.zeros((m, 0)) if modes is None else modes.vectors[np.asarray(places)]
    fields = np.stack([panel._step(step, vectors)[0] for step in range(len(panel.times))])
    follows = np.flatnonzero(np.diff(panel.times) <= 1.5 * panel.unit)
    earlier, later = fields[follows], fields[follows + 1]
    size = math.sqrt(float((earlier**2).sum() * (later**2).sum()))
    return max(0.0, float((earlier * later).sum()) / size) if size > 0 else 0.0
