"""Rows by their content: a hash that ignores the order of rows and columns, and a sample that follows from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from toporo.data.frame import Frame, Texts

Hashes = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.int64]

_ODD, _FIRST, _SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
_ABSENT = np.uint64(0x2545F4914F6CDD1D)


def _mixed(values: Hashes) -> Hashes:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014): every bit of the input reaches every bit of the output."""
    mixed = values + _ODD
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _of_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def row_hashes(frame: Frame, names: Iterable[str]) -> Hashes:
    """One number a row: equal for rows that are equal in these columns, whatever their order."""
    total = np.zeros(len(frame), dtype=np.uint64)
    for name in names:
        column = frame[name]
        if isinstance(column, Texts):
            levels = np.asarray([*map(_of_text, column.levels), int(_ABSENT)], dtype=np.uint64)
            values = levels[column.codes]
        else:
            plain = np.ascontiguousarray(np.where(column.missing, 0.0, column.values + 0.0))  # -0.0 is 0.0
            values = np.where(column.missing, _ABSENT, plain.view(np.uint64))
        total += _mixed(values ^ np.uint64(_of_text(name)))
    return _mixed(total)


def balanced_sample(hashes: Hashes, codes: Codes, wanted: Sequence[int], each: int, seed: int = 0) -> Codes:
    """At most ``each`` rows of every wanted group: which ones follows from their content, not from their place.

    Equal rows are told apart by counting them, so that a value that half the rows share makes half the sample.
    """
    inside = np.zeros(int(codes.max(initial=-1)) + 2, dtype=bool)
    inside[list(wanted)] = True
    inside[-1] = False  # where code -1, no group, leads
    rows = np.flatnonzero(inside[codes])
    order = rows[np.lexsort((hashes[rows], codes[rows]))]
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (hashes[order][1:] == hashes[order][:-1]) & (codes[order][1:] == codes[order][:-1])
    place = np.arange(len(order))
    repeats = place - np.maximum.accumulate(np.where(same, 0, place))
    keys = _mixed(hashes[order] ^ _mixed(repeats.astype(np.uint64) + np.uint64(_of_text(f"sample {seed}"))))
    drawn = np.lexsort((keys, codes[order]))
    chosen = codes[order][drawn]
    starts = np.searchsorted(chosen, chosen, side="left")
    return np.asarray(order[drawn][np.arange(len(chosen)) - starts < each])
