"""Shocks by time step, against dense matrices; gaps, duplicates and steps that nobody has seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import expm

from toporo.errors import DataError
from toporo.groups import GroupIds, Groups
from toporo.robust.modes import GraphModes
from toporo.robust.panel import SHOCKS, fit_panel

M, T = 12, 15


def chain() -> np.ndarray:
    adjacency = np.zeros((M, M))
    for i in range(M - 1):
        adjacency[i, i + 1] = adjacency[i + 1, i] = 1.0
    return adjacency


def kernel(time: float) -> np.ndarray:
    adjacency = chain()
    degrees = adjacency.sum(axis=1)
    heat = expm(-time * (np.diag(degrees) - adjacency) / degrees.mean())
    centred = (np.eye(M) - 1 / M) @ heat @ (np.eye(M) - 1 / M)
    return np.asarray(centred / np.diag(centred).mean())


def residuals(seed: int = 0, shock: float = 2.0, carry: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, groups and times of a full panel with shocks that neighbours share."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(kernel(3.0) + 1e-9 * np.eye(M))
    fields = [root @ rng.normal(size=M) * shock]
    for _ in range(T - 1):
        fields.append(carry * fields[-1] + math.sqrt(1 - carry**2) * root @ rng.normal(size=M) * shock)
    values = np.stack(fields, axis=1) + rng.normal(size=(M, T))
    return values.reshape(-1, 1), np.repeat(np.arange(M), T), np.tile(np.arange(T, dtype=float), M)


def fitted(values, g, times, keep=None):
    keep = np.ones(len(g), bool) if keep is None else keep
    names = sorted(set(g[keep].tolist()))
    ids = GroupIds(np.searchsorted(names, g[keep]), Groups(names))
    return fit_panel(values[keep], ids, times[keep], GraphModes.of(chain()), names, np.ones(int(keep.sum())))


def test_a_shock_is_that_of_dense_matrices() -> None:
    """Of every model at its own parameters, with gaps and two rows of one group at a step."""
    values, g, times = residuals()
    keep = (g != 5) & ~((g == 2) & (times == 4)) & ~((g == 7) & (times > 10))
    values, g, times = (
        np.concatenate([part[keep], part[keep][:1] + shift]) for part, shift in ((values, 0.3), (g, 0), (times, 0))
    )
    panel = fitted(values, g, times)
    vectors = GraphModes.of(chain()).vectors[[5, 0]]
    for step in (0, 4, 12):
        rows = times == step
        expected = np.zeros(2)
        for name, weight in panel.evidence.items():
            fit = panel.fits[panel.columns[step][0]]
            parameters = next(model for model in fit.models if model.name == name).parameters
            alike = kernel(parameters["time"]) if "time" in parameters else np.zeros((M, M))
            alike = parameters.get("tau_0", 0.0) * alike + parameters.get("omega_c", 0.0)
            inside = alike[np.ix_(g[rows], g[rows])] + np.eye(rows.sum())
            expected += weight * alike[np.ix_([5, 0], g[rows])] @ np.linalg.solve(inside, values[rows, 0])
        shock, variance, holds = panel.moments(np.full(2, float(step)), vectors)
        np.testing.assert_allclose(shock[:, 0], expected, atol=1e-8)
        assert (variance > 0).all()
        assert holds.tolist() == [1.0, 1.0]


def test_noise_is_left_alone() -> None:
    values, g, times = residuals(shock=0.0)
    panel = fitted(values, g, times)
    assert panel.evidence["no shock"] > 0.5
    assert set(panel.evidence) == set(SHOCKS)
    shock, _, _ = panel.moments(times, GraphModes.of(chain()).vectors[g])
    assert np.abs(shock).max() < 0.2 * values.std()


@pytest.mark.parametrize(("carry", "least", "most"), [(0.9, 0.6, 1.0), (0.0, 0.0, 0.35)])
def test_a_step_that_nobody_has_seen_has_what_lasts_of_the_nearest(carry: float, least: float, most: float) -> None:
    values, g, times = residuals(carry=carry)
    panel = fitted(values, g, times)
    assert least <= panel.carry <= most
    vectors = GraphModes.of(chain()).vectors[[3, 3, 3]]
    shock, _, holds = panel.moments(np.array([T - 1.0, T, T + 2.0]), vectors)
    np.testing.assert_allclose(holds, panel.carry ** np.array([0.0, 1.0, 3.0]))
    np.testing.assert_allclose(shock[1:], shock[0] * holds[1:, None])


def test_without_a_graph_there_is_a_common_shock_at_most() -> None:
    values, g, times = residuals()
    ids = GroupIds(g, Groups(range(M)))
    panel = fit_panel(values + np.sin(times)[:, None] * 3, ids, times, None, (), np.ones(len(g)))
    assert set(panel.evidence) == {"no shock", "common shock"}
    assert panel.evidence["common shock"] > 0.99


def test_steps_of_one_group_each_have_nothing_in_common() -> None:
    values, g, _ = residuals()
    with pytest.raises(DataError, match=r"180 time step\(s\), each with rows of one group only"):
        fitted(values, g, np.arange(len(g), dtype=float))
