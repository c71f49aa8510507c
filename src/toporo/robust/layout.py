r"""The effects that groups share in a kriged model, and the products with :math:`B_g` that follow from their order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from toporo.types import Array


@dataclass(frozen=True)
class Layout:
    r"""Which effects :math:`\gamma` has: :math:`b_0`, b and c of ``width``, modes of intercepts, modes of slopes.

    Attributes
    ----------
    width : features.
    common, context : whether there are b and c.
    levels, slopes : how many of the smoothest modes intercepts and slopes have.
    centred : whether slopes are of :math:`x - \bar x_g`, and intercepts at the mean; else of x.
    """

    width: int
    common: bool
    context: bool
    levels: int
    slopes: int
    centred: bool = True

    @cached_property
    def parts(self) -> dict[str, slice]:
        """By the name of their variance; slopes are in order of modes, then of features."""
        sizes = {
            "omega_b": self.width * self.common,
            "omega_c": self.width * self.context,
            "tau_0": self.levels,
            "tau_1": self.slopes * self.width,
        }
        ends = 1 + np.cumsum(list(sizes.values()))
        return {name: slice(int(end) - size, int(end)) for (name, size), end in zip(sizes.items(), ends, strict=True)}

    @property
    def effects(self) -> int:
        """How many there are."""
        return int(self.parts["tau_1"].stop)

    def level(self, means: Array, vectors: Array) -> Array:
        """What an intercept is made of, (groups, effects before those of slopes)."""
        of_means = [means * self.centred] * self.common + [means] * self.context
        return np.column_stack([np.ones(len(means)), *of_means, vectors[:, : self.levels]])

    def terms(self, x: Array, means: Array) -> Array:
        """What coefficients of rows are of, (rows, d + 1)."""
        return np.column_stack([np.ones(len(x)), x - means if self.centred else x])

    def spread(self, gamma: Array, means: Array, vectors: Array) -> Array:
        r""":math:`B_g \gamma` of groups with these means and places in the modes, (groups, d + 1, outputs)."""
        outputs = gamma.shape[1]
        own = gamma[self.parts["tau_1"]].reshape(self.slopes, self.width * outputs)
        slopes = (vectors[:, : self.slopes] @ own).reshape(len(means), self.width, outputs)
        if self.common:
            slopes += gamma[self.parts["omega_b"]]
        level = self.level(means, vectors) @ gamma[: self.parts["tau_0"].stop]
        return np.concatenate([level[:, None], slopes], axis=1)

    def rows(self, z: Array, means: Array, vectors: Array) -> Array:
        r""":math:`z^\top B_g` of rows, (rows, effects): what of :math:`\gamma` a row is made of."""
        slopes = z[:, 1:]
        level = z[:, :1] * self.level(means, vectors)
        if self.common:
            level[:, self.parts["omega_b"]] += slopes
        of_modes = vectors[:, : self.slopes, None] * slopes[:, None, :]
        return np.concatenate([level, of_modes.reshape(len(z), -1)], axis=1)

    def project(self, sums: Array, means: Array, vectors: Array) -> Array:
        r""":math:`\sum_g B_g^\top s_g`, (effects, outputs)."""
        out = self.level(means, vectors).T @ sums[:, 0]
        if self.common:
            out[self.parts["omega_b"]] += sums[:, 1:].sum(axis=0)
        of_modes = np.einsum("gi,gjk->ijk", vectors[:, : self.slopes], sums[:, 1:])
        return np.concatenate([out, of_modes.reshape(-1, sums.shape[2])])

    def gather(self, shapes: Array, means: Array, vectors: Array) -> Array:
        r""":math:`\sum_g B_g^\top S_g B_g`; where slopes are centred, blocks join no intercept to a slope."""
        of_level, of_slopes = shapes[:, 0, 0], shapes[:, 1:, 1:]
        level, u, d = self.level(means, vectors), vectors[:, : self.slopes], self.width
        count, k = level.shape[1], self.slopes
        out = np.zeros((self.effects, self.effects))
        out[:count, :count] = level.T @ (of_level[:, None] * level)
        b, v = self.parts["omega_b"], self.parts["tau_1"]
        if self.common:
            out[b, b] += of_slopes.sum(axis=0)
            across = np.einsum("gi,gjl->jil", u, of_slopes, optimize=True).reshape(d, k * d)
            out[b, v] = across
            out[v, b] = across.T
        (first, second, place), (row, column, cell) = _pairs(k), _pairs(d)
        inner = (u[:, first] * u[:, second]).T @ of_slopes[:, row, column]  # of each pair once
        out[v, v] = inner[place[:, None, :, None], cell[None, :, None, :]].reshape(k * d, k * d)
        if not self.centred:
            joined = shapes[:, 0, 1:]
            of_modes = level.T @ (u[:, :, None] * joined[:, None, :]).reshape(len(u), k * d)
            out[:count, v] += of_modes
            out[v, :count] += of_modes.T
            if self.common:
                out[:count, b] += level.T @ joined
                out[b, :count] += joined.T @ level
        return out

    def within(self, matrix: Array, means: Array, vectors: Array) -> Array:
        r""":math:`B_g X B_g^\top` of groups, (groups, d + 1, d + 1), with X symmetric, (effects, effects).

        Where slopes are centred, nothing joins an intercept to a slope that matters, and what is there stays 0.
        """
        level, u, d = self.level(means, vectors), vectors[:, : self.slopes], self.width
        count, k = level.shape[1], self.slopes
        b, v = self.parts["omega_b"], self.parts["tau_1"]
        out = np.zeros((len(u), d + 1, d + 1))
        out[:, 0, 0] = np.einsum("gi,gi->g", level @ matrix[:count, :count], level)
        (first, second, _), (row, column, cell) = _pairs(k), _pairs(d)
        of_modes = matrix[v, v].reshape(k, d, k, d)
        both = of_modes[first[:, None], row, second[:, None], column]
        both += of_modes[first[:, None], column, second[:, None], row]
        both[first == second] /= 2.0
        out[:, 1:, 1:] = ((u[:, first] * u[:, second]) @ both)[:, cell]
        if self.common:
            across = np.tensordot(u, matrix[v, b].reshape(k, d, d), axes=1)
            out[:, 1:, 1:] += matrix[b, b] + across + across.transpose(0, 2, 1)
        if not self.centred:
            joined = np.einsum("gi,gij->gj", u, (level @ matrix[:count, v]).reshape(len(u), k, d))
            joined += level @ matrix[:count, b] if self.common else 0.0
            out[:, 0, 1:] = out[:, 1:, 0] = joined
        return out


@lru_cache(maxsize=8)
def _pairs(count: int) -> tuple[Any, Any, Any]:
    """Two of so many things, each pair once: the first, the second, and where a pair is, (count, count)."""
    first, second = np.triu_indices(count)
    places = np.zeros((count, count), dtype=np.intp)
    places[first, second] = places[second, first] = np.arange(len(first))
    return first, second, places
