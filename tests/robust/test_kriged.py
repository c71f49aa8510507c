"""Kriged coefficients: the likelihood, its derivatives and what is predicted, against dense matrices of all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from toporo.errors import DataError
from toporo.robust import layout, likelihood
from toporo.robust.factors import GroupFactors
from toporo.robust.kriged import MODELS, OF_X, PARAMETERS, FittedModel, KrigedFit, fit_kriged
from toporo.robust.layout import Layout
from toporo.robust.likelihood import Likelihood
from toporo.robust.modes import GraphModes, WalkModes

D = 3
TRAIN, SIZES = [0, 1, 2, 4, 5], [6, 2, 9, 1, 12]
LOGS = np.array([0.3, -0.5, -1.0, -2.0, -0.7, -1.5, 0.2])


def path(m: int = 7) -> np.ndarray:
    adjacency = np.zeros((m, m))
    for i in range(m - 1):
        adjacency[i, i + 1] = adjacency[i + 1, i] = 1.0
    adjacency[0, 3] = adjacency[3, 0] = 0.5
    return adjacency


def pieces() -> np.ndarray:
    adjacency = path()
    adjacency[3, 4] = adjacency[4, 3] = 0.0
    return adjacency


def heat_kernel(laplacian: np.ndarray, time: float) -> np.ndarray:
    centre = np.eye(len(laplacian)) - 1 / len(laplacian)
    return np.asarray(centre @ expm(-time * laplacian) @ centre)


def walk_kernel(laplacian: np.ndarray, time: float) -> np.ndarray:
    return np.linalg.inv(np.eye(len(laplacian)) + time * laplacian)


#: Effects of groups alone, of rows without inputs, whose mean may be taken to be 0.
EFFECTS: dict[str, tuple[str, ...]] = {
    "no effect": (),
    "independent effects": ("omega_0",),
    "effects": ("omega_0", "tau_0", "time"),
}
CASES = [(name, D, True) for name in MODELS] + [(name, 0, level) for name in EFFECTS for level in (True, False)]


class Rows:
    """A few rows, one group with a single one, and dense matrices of them."""

    def __init__(self, adjacency: np.ndarray, outputs: int = 2, *, width: int = D, level: bool = True) -> None:
        rng = np.random.default_rng(0)
        self.adjacency, self.level, self.centred = adjacency, level, True
        self.g = np.repeat(TRAIN, SIZES)
        self.x = rng.normal(size=(len(self.g), width)) + rng.normal(size=(7, width))[self.g]
        self.y = rng.normal(size=(len(self.g), outputs))
        self.w = rng.uniform(0.5, 2.0, len(self.g))
        given = self.y, self.g.tolist(), self.w
        self.factors = GroupFactors.from_rows(self.x, *given)
        self.modes = GraphModes.of(adjacency)
        self.likelihood = Likelihood(self.factors, self.modes, TRAIN, level=level)

    def kernel(self, time: float) -> np.ndarray:
        degrees = self.adjacency.sum(axis=1)
        kernel = heat_kernel((np.diag(degrees) - self.adjacency) / degrees.mean(), time)
        return np.asarray(kernel / np.diag(kernel).mean())

    def means(self, g: np.ndarray, given: Mapping[int, np.ndarray] | None = None) -> np.ndarray:
        own = {t: np.average(self.x[self.g == t], axis=0, weights=self.w[self.g == t]) for t in TRAIN}
        return np.stack([(own | dict(given or {}))[t] for t in g])

    def covariance(self, p: Mapping[str, float], one: tuple[Any, ...], other: tuple[Any, ...]) -> np.ndarray:
        """Of means of rows ``(x, their groups' means, groups)``, over s², without that of b0."""
        (x, xm, xg), (z, zm, zg) = one, other
        same = (xg[:, None] == zg).astype(float)
        alike = self.kernel(p["time"])[np.ix_(xg, zg)] if "time" in p else np.zeros((len(xg), len(zg)))
        level = p.get("tau_0", 0.0) * alike + p.get("omega_0", 0.0) * same
        slopes = p.get("tau_1", 0.0) * alike + p.get("omega_1", 0.0) * same
        return np.asarray(
            p.get("omega_b", 0.0) * x @ z.T
            + p.get("omega_c", 0.0) * xm @ zm.T
            + level
            + ((x - xm * self.centred) @ (z - zm * self.centred).T) * slopes
        )

    def training(self) -> tuple[Any, ...]:
        return self.x, self.means(self.g), self.g

    def projection(self, p: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray, float]:
        v = np.diag(1 / self.w) + self.covariance(p, self.training(), self.training())
        inverse, ones = np.linalg.inv(v), np.ones(len(v))
        share = float(ones @ inverse @ ones)
        projected = inverse - self.level * np.outer(inverse @ ones, ones @ inverse) / share
        return inverse, projected, float(np.linalg.slogdet(v)[1]) + self.level * math.log(share)

    def nll(self, p: Mapping[str, float]) -> float:
        _, projected, determinant = self.projection(p)
        q = np.einsum("nk,nm,mk->k", self.y, projected, self.y)
        n, k = self.w.sum(), self.y.shape[1]
        return 0.5 * float((n - self.level) * np.log(q).sum() + k * (determinant + np.log(self.w).sum()))


def rows_of(
    name: str, width: int, level: bool, adjacency: np.ndarray, outputs: int = 2
) -> tuple[Rows, tuple[str, ...], np.ndarray]:
    """Rows for a model, its parameters and where to evaluate them."""
    rows, names = Rows(adjacency, outputs, width=width, level=level), (MODELS | EFFECTS)[name]
    rows.centred = not name.endswith(OF_X)
    return rows, names, LOGS[[PARAMETERS.index(one) for one in names]]


@pytest.mark.parametrize("adjacency", [path(), pieces()], ids=["path", "pieces"])
@pytest.mark.parametrize(("name", "width", "level"), CASES)
def test_the_likelihood_is_that_of_dense_matrices(name: str, width: int, level: bool, adjacency: np.ndarray) -> None:
    rows, names, logs = rows_of(name, width, level, adjacency)
    found = rows.likelihood.value(names, logs, centred=rows.centred)[0]
    assert found == pytest.approx(rows.nll(dict(zip(names, np.exp(logs), strict=True))), abs=1e-10)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize(("name", "width", "level"), CASES)
def test_its_derivatives_are_those_of_differences(name: str, width: int, level: bool, outputs: int) -> None:
    rows, names, logs = rows_of(name, width, level, path(), outputs)
    value = partial(rows.likelihood.value, names, centred=rows.centred)
    gradient = value(logs)[1]
    h = 1e-5
    for i, step in enumerate(h * np.eye(len(names))):
        up, down = (value(logs + sign * step)[0] for sign in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / (2 * h), abs=1e-6)


@pytest.mark.parametrize("centred", [True, False])
def test_blocks_of_groups_give_the_sums_and_matrices_of_all(centred: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    effects = Layout(D, levels=2, slopes=2, centred=centred)
    means, vectors = rng.normal(size=(8, D)), rng.normal(size=(8, 4))
    shapes, matrix = rng.normal(size=(8, D + 1, D + 1)), rng.normal(size=(effects.effects, effects.effects))
    shapes, matrix = shapes + shapes.transpose(0, 2, 1), matrix + matrix.T
    whole = [effects.gather(shapes, means, vectors), effects.within(matrix, means, vectors)]
    monkeypatch.setattr(layout, "BLOCK_ENTRIES", 60)  # two groups
    np.testing.assert_allclose(effects.gather(shapes, means, vectors), whole[0], atol=1e-12)
    np.testing.assert_allclose(effects.within(matrix, means, vectors), whole[1], atol=1e-12)


@pytest.mark.parametrize(("name", "width", "level"), CASES)
def test_predictions_and_their_variances_are_those_of_dense_matrices(name: str, width: int, level: bool) -> None:
    """For rows of a group that was trained on and of one that was not, with a mean of its own."""
    rows, names, logs = rows_of(name, width, level, path())
    p = dict(zip(names, np.exp(logs), strict=True))
    solved = rows.likelihood.solve(p, centred=rows.centred)
    fit = KrigedFit(rows.likelihood, (FittedModel(name, solved, 0.0, True),), np.ones(1))
    inverse, projected, _ = rows.projection(p)
    new_g = np.array([2, 2, 3, 6])
    given = {3: np.array([0.5, 0.0, -1.0])[:width], 6: np.array([-2.0, 0.3, 1.0])[:width]}
    x, means = np.random.default_rng(1).normal(size=(4, width)), rows.means(new_g, given)
    cross = rows.covariance(p, (x, means, new_g), rows.training())
    ones = np.ones(len(rows.y))
    share = ones @ inverse @ ones
    expected = level * (ones @ inverse @ rows.y / share) + cross @ projected @ rows.y
    s2 = np.einsum("nk,nm,mk->k", rows.y, projected, rows.y) / (rows.w.sum() - level)
    lacking = 1.0 - cross @ inverse @ ones
    spread = rows.covariance(p, (x, means, new_g), (x, means, new_g)) - cross @ inverse @ cross.T
    spread += level * np.outer(lacking, lacking) / share
    own = np.array([TRAIN.index(t) if t in TRAIN else -1 for t in new_g])
    vectors = rows.modes.vectors[new_g]
    centre, variance = fit.moments(x, means, vectors, own)
    np.testing.assert_allclose(centre, expected, atol=1e-9)
    np.testing.assert_array_equal(fit.values(x, means, vectors, own), centre)
    np.testing.assert_allclose(variance, np.diag(spread)[:, None] * s2, atol=1e-9)
    np.testing.assert_allclose(fit.noise, s2)


def test_the_evidence_is_for_what_is_there() -> None:
    rng, g = np.random.default_rng(0), np.repeat(np.arange(12), 15)
    x, noise = rng.normal(size=(len(g), 2)), 0.3 * rng.normal(size=len(g))
    modes = GraphModes.of(np.diag(np.ones(11), 1) + np.diag(np.ones(11), -1))
    smooth = (1 + np.linspace(-1, 1, 12)[g]) * x[:, 0] + np.cos(g / 4)
    evidence = fit_kriged(GroupFactors.from_rows(x, smooth + noise, g), modes, range(12)).evidence
    assert sum(weight for name, weight in evidence.items() if "graph" in name) > 0.95
    factors = GroupFactors.from_rows(x, x[:, 0] + noise, g)
    assert fit_kriged(factors, modes, range(12)).evidence["one model"] > 0.5
    without = ["one model", "independent groups", "context", f"independent groups{OF_X}"]
    assert list(fit_kriged(factors).evidence) == without


def test_without_some_groups_it_is_the_fit_to_the_others() -> None:
    """At the same variances; squares that no coefficients explain are shared, so the noise is another."""
    rows, gone = Rows(path()), np.array([False, True, False, False, True])
    name = "context and graph"
    fit = fit_kriged(rows.factors, rows.modes, TRAIN, {name: MODELS[name]})
    kept = ~np.isin(rows.g, np.array(TRAIN)[gone])
    factors = GroupFactors.from_rows(rows.x[kept], rows.y[kept], rows.g[kept].tolist(), rows.w[kept])
    alone = Likelihood(factors, rows.modes, [0, 2, 4]).solve(fit.models[0].solved.parameters)
    at = rows.means(np.array([0, 1, 5])), rows.modes.vectors[[0, 1, 5]], np.array([0, -1, -1])
    found = fit.without(gone)
    np.testing.assert_allclose(found.coefficients(*at), alone.coefficients(*at), atol=1e-9)
    share = rows.w[kept].sum() / rows.w.sum()
    residuals = [part.likelihood.factors.residual.sum(axis=0) for part in (found, fit)]
    np.testing.assert_allclose(residuals[0], share * residuals[1])


def test_a_single_row_is_an_error() -> None:
    with pytest.raises(DataError, match="expected at least two"):
        Likelihood(GroupFactors.from_rows([[1.0]], [1.0], ["a"]), None)


# ---------------------------------------------------------------- modes


@pytest.mark.parametrize("time", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("adjacency", [path(), pieces()], ids=["path", "pieces"])
@pytest.mark.parametrize(("kind", "kernel"), [(GraphModes, heat_kernel), (WalkModes, walk_kernel)])
def test_modes_and_their_shares_are_those_of_the_kernel(
    kind: type[GraphModes], kernel: Any, adjacency: np.ndarray, time: float
) -> None:
    modes, degrees, h = kind.of(adjacency), adjacency.sum(axis=1), 1e-6 * time
    expected = kernel((np.diag(degrees) - adjacency) / degrees.mean(), time)
    shares, slopes = modes.shares(time)
    np.testing.assert_allclose(
        (modes.vectors * shares) @ modes.vectors.T, expected / np.diag(expected).mean(), atol=1e-8
    )
    differences = np.log(modes.shares(time + h)[0] / modes.shares(time - h)[0]) / (2 * h)
    np.testing.assert_allclose(slopes, differences, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(modes.vectors.T @ modes.vectors, np.eye(len(modes.values)), atol=1e-9)


def test_walks_never_carry_a_trend_on() -> None:
    """Twice as high every time; what comes after the last is no higher."""
    m = 12
    modes, known = WalkModes.of(np.diag(np.ones(m - 1), 1) + np.diag(np.ones(m - 1), -1)), np.arange(m - 4)
    values = np.repeat(2.0**known, 50) + 0.01 * np.random.default_rng(0).normal(size=50 * len(known))
    factors = GroupFactors.from_rows(np.zeros((len(values), 0)), values, np.repeat(known, 50))
    fit = fit_kriged(factors, modes, known, {"it": ("omega_0", "tau_0", "time")}, level=False)
    none = np.zeros((m, 0))
    effects = fit.moments(none, none, modes.vectors, np.full(m, -1))[0][:, 0]
    assert effects[m - 4] > 2.0 ** (m - 7)
    assert np.all(np.diff(effects[m - 5 :]) < 0)


@pytest.mark.parametrize(("time", "close"), [(10.0, 1e-3), (3.0, 0.05)])
def test_beyond_the_exact_size_smooth_modes_say_nearly_the_same(
    time: float, close: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On forty groups in a row: the smoother the coefficients, the fewer modes they need."""
    rng = np.random.default_rng(0)
    m, d = 40, 4
    adjacency = np.diag(np.ones(m - 1), 1) + np.diag(np.ones(m - 1), -1)
    modes = GraphModes.of(adjacency)
    theta = modes.vectors @ (np.sqrt(modes.shares(time)[0])[:, None] * rng.normal(size=(m - 1, d + 1)))
    g = np.repeat(np.arange(m), 15)
    x = rng.normal(size=(len(g), d))
    y = theta[g, 0] + np.einsum("nj,nj->n", x, theta[g, 1:]) + rng.normal(size=len(g))
    known = np.isin(g, range(0, m, 4), invert=True)
    names = sorted(set(g[known].tolist()))
    factors = GroupFactors.from_rows(x[known], y[known], g[known].tolist())
    wanted = {name: MODELS[name] for name in ("one model", "graph")}
    means = np.zeros((int((~known).sum()), d))
    predicted = []
    for most, smooth in ((1600, 0), (100, 180)):
        monkeypatch.setattr(likelihood, "MOST_EFFECTS", most)
        monkeypatch.setattr(likelihood, "SMOOTH_EFFECTS", smooth)
        fit = fit_kriged(factors, modes, names, wanted)
        predicted.append(fit.moments(x[~known], means, modes.vectors[g[~known]], np.full(len(means), -1))[0])
    assert fit.models[-1].solved.layout.effects <= 180
    assert 0 < np.sqrt(np.mean((predicted[0] - predicted[1]) ** 2)) < close * y.std()
