"""Grouped data that show where each row came from."""

import csv
import io

import numpy as np

from toporo.data import GroupedData


def rows_of(sizes, seed=0):
    """Grouped data whose ``y`` numbers the rows, groups interleaved at random; ``sizes`` by name."""
    names = np.random.default_rng(seed).permutation(np.repeat(list(sizes), list(sizes.values())))
    number = np.arange(len(names))
    return GroupedData.from_arrays(np.stack([number, -number], axis=1) / 2, number, names.tolist())


def rows_as_csv(columns):
    """CSV from cells by column, every cell quoted as it needs to be."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
