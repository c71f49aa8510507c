r"""The effects that all groups share in a kriged model, and products with the matrices :math:`B_g` that they define.

:math:`\gamma` holds, in this order, :math:`b_0`, c, the modes of the intercepts, b, and the modes of the slopes (modes
first, then inputs). A group's intercept is a combination of all but the last, its slopes one of b and the last: the
constant counts as one more mode of the slopes, with the coefficients b.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from toporo.types import Array

#: Numbers in a temporary array of several groups.
BLOCK_ENTRIES = 2**23


@dataclass(frozen=True)
class Layout:
    r"""The shared effects :math:`\gamma` of a model, by kind.

    Methods take ``means`` and ``vectors``, the mean inputs of a group and its row of the modes' vectors, of groups or
    of the group of each row.

    Attributes
    ----------
    width : number of inputs.
    levels, slopes : number of modes, the smoothest ones, of the intercepts and of the slopes.
    centred : whether slopes are of :math:`x - \bar x_g`, and intercepts at the mean; else of x.
    """

    width: int
    levels: int
    slopes: int
    centred: bool = True

    @cached_property
    def parts(self) -> dict[str, slice]:
        """Effects by the name of their variance."""
        sizes = {"omega_c": self.width, "tau_0": self.levels, "omega_b": self.width, "tau_1": self.slopes * self.width}
        ends = 1 + np.cumsum(list(sizes.values()))
        return {name: slice(int(end) - size, int(end)) for (name, size), end in zip(sizes.items(), ends, strict=True)}

    @property
    def effects(self) -> int:
        """Number of effects."""
        return int(self.parts["tau_1"].stop)

    @property
    def _in_level(self) -> slice:
        return slice(0, self.parts["omega_b"].stop)

    @property
    def _in_slopes(self) -> slice:
        return slice(self.parts["omega_b"].start, self.effects)

    def _level(self, means: Array, vectors: Array) -> Array:
        """Return the inputs of an intercept, (groups, effects of ``_in_level``)."""
        return np.column_stack([np.ones(len(means)), means, vectors[:, : self.levels], means * self.centred])

    def _modes(self, vectors: Array) -> Array:
        """Return the inputs of a slope, (groups, 1 + slopes)."""
        return np.column_stack([np.ones(len(vectors)), vectors[:, : self.slopes]])

    def _blocks(self, modes: Array) -> list[slice]:
        """Return blocks of groups small enough to hold a matrix of slopes for each mode of each group."""
        size = max(1, BLOCK_ENTRIES // max(1, modes.shape[1] * self.width**2))
        return [slice(start, start + size) for start in range(0, len(modes), size)]

    def terms(self, x: Array, means: Array) -> Array:
        """Return what the coefficients of rows multiply, (rows, d + 1)."""
        return np.column_stack([np.ones(len(x)), x - means if self.centred else x])

    def spread(self, gamma: Array, means: Array, vectors: Array) -> Array:
        r"""Return :math:`B_g \gamma` by group, (groups, d + 1, outputs)."""
        modes, outputs = self._modes(vectors), gamma.shape[1]
        by_mode = gamma[self._in_slopes].reshape(modes.shape[1], self.width * outputs)
        slopes = (modes @ by_mode).reshape(len(means), self.width, outputs)
        level = self._level(means, vectors) @ gamma[self._in_level]
        return np.concatenate([level[:, None], slopes], axis=1)

    def rows(self, z: Array, means: Array, vectors: Array) -> Array:
        r"""Return :math:`z^\top B_g` by row, (rows, effects)."""
        out = np.zeros((len(z), self.effects))
        out[:, self._in_level] = z[:, :1] * self._level(means, vectors)
        modes = self._modes(vectors)
        out[:, self._in_slopes] += (modes[:, :, None] * z[:, None, 1:]).reshape(len(z), modes.shape[1] * self.width)
        return out

    def project(self, sums: Array, means: Array, vectors: Array) -> Array:
        r"""Return :math:`\sum_g B_g^\top s_g`, (effects, outputs)."""
        out = np.zeros((self.effects, sums.shape[2]))
        out[self._in_level] = self._level(means, vectors).T @ sums[:, 0]
        by_mode = np.tensordot(self._modes(vectors), sums[:, 1:], axes=(0, 0))
        out[self._in_slopes] += by_mode.reshape(-1, sums.shape[2])
        return out

    def gather(self, shapes: Array, means: Array, vectors: Array) -> Array:
        r"""Return :math:`\sum_g B_g^\top S_g B_g`; of centred slopes, no S may join an intercept to a slope."""
        level, modes = self._level(means, vectors), self._modes(vectors)
        first, second, size = self._in_level, self._in_slopes, modes.shape[1] * self.width
        out = np.zeros((self.effects, self.effects))
        out[first, first] = level.T @ (shapes[:, :1, 0] * level)
        for part in self._blocks(modes):
            by_mode = modes[part, :, None, None] * shapes[part, None, 1:, 1:]
            by_pair = np.tensordot(by_mode, modes[part], axes=(0, 0))
            out[second, second] += by_pair.transpose(0, 1, 3, 2).reshape(size, size)
        if not self.centred:
            joined = level.T @ (modes[:, :, None] * shapes[:, :1, 1:]).reshape(len(modes), size)
            out[first, second] += joined
            out[second, first] += joined.T
        return out

    def within(self, matrix: Array, means: Array, vectors: Array) -> Array:
        r"""Return :math:`B_g X B_g^\top` by group, (groups, d + 1, d + 1), for a symmetric X, (effects, effects).

        Of centred slopes, entries that join an intercept to a slope are left at 0.
        """
        level, modes = self._level(means, vectors), self._modes(vectors)
        first, second, d, count = self._in_level, self._in_slopes, self.width, modes.shape[1]
        out = np.zeros((len(modes), d + 1, d + 1))
        out[:, 0, 0] = np.einsum("gi,gi->g", level @ matrix[first, first], level)
        by_pair = matrix[second, second].reshape(count, d, count, d)
        for part in self._blocks(modes):
            out[part, 1:, 1:] = np.einsum("gkjl,gj->gkl", np.tensordot(modes[part], by_pair, axes=1), modes[part])
        if not self.centred:
            by_mode = (level @ matrix[first, second]).reshape(len(modes), count, d)
            out[:, 0, 1:] = out[:, 1:, 0] = np.einsum("gi,gij->gj", modes, by_mode)
        return out
