"""Rows with a group each."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError, listed
from toporo.groups import GroupIds, Groups, plain_name
from toporo.types import Name


@dataclass(frozen=True)
class Split:
    """Two disjoint parts of grouped data.

    Attributes
    ----------
    train, validation : the parts, each with every group in it.
    """

    train: GroupedData
    validation: GroupedData


@dataclass(frozen=True, eq=False)
class GroupedData:
    """Inputs, targets and the group of every row.

    Build it with :meth:`from_arrays`, which checks what it is given.

    Attributes
    ----------
    x, y : inputs and targets, numpy arrays with one row per sample.
    codes : the place of every row's group in ``groups``.
    groups : exactly those that occur.

    >>> data = GroupedData.from_arrays([[1.0], [2.0], [3.0]], [0, 1, 1], ["NY", "PA", "PA"])
    >>> len(data), len(data.select(["PA"]))
    (3, 2)
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    codes: npt.NDArray[np.int64]
    groups: Groups

    @classmethod
    def from_arrays(cls, x: Any, y: Any, groups: Iterable[Name] | GroupIds) -> GroupedData:
        """From arrays with one row per sample.

        Parameters
        ----------
        x, y : inputs and targets: numbers, in arrays or tensors.
        groups : the group of every row.
        """
        inputs, targets = _numbers(x, "x"), _numbers(y, "y")
        ids = groups if isinstance(groups, GroupIds) else Groups.of(groups)
        if not len(inputs) == len(targets) == len(ids):
            raise DataError(
                f"x has {len(inputs)} rows, y {len(targets)} and groups {len(ids)}: they must agree, in the same order."
            )
        codes = np.asarray(ids.codes)
        ids.require_in_range()
        counts = np.bincount(codes, minlength=len(ids.groups))
        empty = [name for name, count in zip(ids.groups, counts, strict=True) if not count]
        if empty:
            raise DataError(f"empty group(s), without a single row: {listed(empty)}. Drop them or give them rows.")
        return cls(inputs, targets, codes.astype(np.int64), ids.groups)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def ids(self) -> GroupIds:
        """The group of every row."""
        return GroupIds(self.codes, self.groups)

    @property
    def sizes(self) -> dict[Name, int]:
        """Rows by group."""
        counts = np.bincount(self.codes, minlength=len(self.groups))
        return {name: int(count) for name, count in zip(self.groups, counts, strict=True)}

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of all rows and group names."""
        digest = hashlib.sha256(repr(self.groups.names).encode())
        for array in (self.x, self.y, self.codes):
            digest.update(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def rows(self, name: Name) -> npt.NDArray[np.intp]:
        """Return the positions of the rows of the group ``name``."""
        return np.flatnonzero(self.codes == self.groups.encode([name])[0])

    def take(self, rows: npt.NDArray[Any]) -> GroupedData:
        """Return these rows, with the groups that occur among them."""
        return GroupedData.from_arrays(self.x[rows], self.y[rows], self.groups.decode(self.codes[rows]))

    def select(self, names: Iterable[Name]) -> GroupedData:
        """Return the rows of the groups ``names``."""
        wanted = [plain_name(name) for name in names]
        return self.take(np.flatnonzero(np.isin(self.codes, self.groups.encode(wanted))))

    def split(self, fraction: float, seed: int) -> Split:
        """Set aside ``fraction`` of every group's rows for validation, the same rows for the same seed.

        Which rows of a group go depends on the seed and on that group alone, not on the other groups.

        Parameters
        ----------
        fraction : the share of every group's rows to set aside, between 0 and 1.
        seed : of the choice, at least 0.
        """
        if seed < 0:
            raise SettingError(f"seed is {seed!r}: expected a whole number of at least 0.")
        if not 0 < fraction < 1:
            raise SettingError(f"fraction is {fraction!r}: expected a number between 0 and 1.")
        held: list[npt.NDArray[np.intp]] = []
        for name in self.groups:
            rows = self.rows(name)
            count = round(fraction * len(rows))
            if not 0 < count < len(rows):
                raise DataError(
                    f"group {name!r} has {len(rows)} row(s): too few to set {fraction:.0%} aside and keep some. "
                    "Drop it, merge it with another, or use another fraction."
                )
            held.append(group_rng(name, seed).permutation(rows)[:count])
        mask = np.zeros(len(self), dtype=bool)
        mask[np.concatenate(held)] = True
        return Split(self.take(np.flatnonzero(~mask)), self.take(np.flatnonzero(mask)))


def group_rng(name: Name, *seeds: int) -> np.random.Generator:
    """Return a random stream of a group, which does not depend on other groups.

    Parameters
    ----------
    name : of the group.
    seeds : whole numbers.
    """
    return np.random.default_rng([*seeds, zlib.crc32(repr(name).encode())])


def _numbers(values: Any, what: str) -> npt.NDArray[Any]:
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = (values.float() if values.is_floating_point() and values.element_size() < 4 else values).numpy()
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{what} is ragged: expected rows of equal length.") from None
    if array.dtype.kind not in "fiub":
        raise DataError(f"{what} must hold numbers; found {array.dtype}. Encode text and categories first.")
    if array.ndim == 0:
        raise DataError(f"{what} is a single number: expected one row per sample.")
    if not len(array):
        raise DataError(f"{what} has no rows: expected at least one per group.")
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
        if bad.any():
            raise DataError(
                f"{what} holds NaN or infinite values in {int(bad.sum())} of {len(array)} rows (first: row "
                f"{int(np.argmax(bad))}). Impute or drop those rows first."
            )
    return array
