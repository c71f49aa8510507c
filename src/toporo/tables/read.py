"""What fit, topology and doctor settle first about a table: what columns are for, which rows lack something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.data.encode import Encoder
from toporo.data.frame import Frame, Texts, read_frame
from toporo.errors import DataError, SettingError, listed
from toporo.groups import GroupIds, Groups
from toporo.types import Array

Rows = npt.NDArray[np.intp]


def check_roles(
    roles: Mapping[str, str], features: Iterable[str], exclude: Iterable[str], categorical: Iterable[str] = ()
) -> None:
    """No column has two purposes.

    Parameters
    ----------
    roles : columns by what they are: ``{"the group": "state"}``.
    features, exclude, categorical : columns named for use, not to be used, and to be used as names of things.
    """
    named, without, things = list(features), set(exclude), list(categorical)
    both = [name for name in dict.fromkeys([*named, *things]) if name in without]
    if both:
        raise SettingError(f"column(s) both named for use and excluded: {listed(both)}. Decide for one.")
    taken: dict[str, str] = {}
    for what, name in roles.items():
        if name in taken:
            raise SettingError(f"column {name!r} cannot be both {taken[name]} and {what}: name two columns.")
        taken[name] = what
        for names, use in ((named, "a feature"), (without, "excluded"), (things, "a categorical feature")):
            if name in names:
                hint = " Classes that are numbers are a matter of the task: --task classification."
                raise SettingError(
                    f"column {name!r} is {what}, so it cannot be {use}."
                    f"{hint if names is things and what == 'the target' else ''}"
                )


def complete_rows(frame: Frame, rows: Rows, columns: Sequence[str], drop: bool) -> Rows:
    """Those of the rows that have all of these columns; others are an error unless they may be dropped."""
    absent = np.zeros(len(rows), bool)
    for name in columns:
        lacking = frame[name].missing[rows]
        if lacking.any() and not drop:
            raise DataError(
                f"{frame.where}: {int(lacking.sum())} of {len(rows)} rows lack {name!r} (first: row "
                f"{int(rows[lacking.argmax()]) + frame.first}). Fill them in, or leave those rows out with "
                "--drop-missing (drop_missing=True)."
            )
        absent |= lacking
    if absent.all():
        raise DataError(f"{frame.where}: no row has {' and '.join(map(repr, columns))}, so none is left.")
    return rows[~absent]


def only(table: Frame, rows: Rows) -> Frame:
    """These rows; all of them without a copy."""
    return table if len(rows) == len(table) else table.take(rows)


def ids_of(column: Texts) -> GroupIds:
    """The groups that a column of text names."""
    groups = Groups(column.levels)
    return GroupIds(groups.encode(column.levels)[column.codes], groups)


# ---------------------------------------------------------------- points of a topology


@dataclass(frozen=True)
class Points:
    """Rows as points of a space in which distances are measured, each with its group.

    Attributes
    ----------
    names : the features, in the order of the columns of ``features``.
    features : (rows, features), finite.
    ids : the group of every row.
    left_out : the other columns, each with the reason.
    dropped : rows dropped because they lack a group.
    remarks : what was filled in or put together, one line per column.
    """

    names: tuple[str, ...]
    features: Array
    ids: GroupIds
    left_out: dict[str, str] = field(default_factory=dict)
    dropped: int = 0
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.features)

    def standardised(self) -> Points:
        """Every feature centred and divided by its standard deviation, over all rows."""
        features = np.empty_like(self.features)
        for place, column in enumerate(self.features.T):
            features[:, place] = _standardised(column)
        return replace(self, features=features)


def read_points(
    source: Any,
    group: str,
    *,
    features: Sequence[str] | None = None,
    exclude: Iterable[str] = (),
    format: str | None = None,  # noqa: A002  # as read_frame calls it
    delimiter: str = ",",
    drop_missing: bool = False,
) -> Points:
    """Read a table as a fit does: text becomes categories, and missing features are filled in and marked.

    Parameters
    ----------
    source : as for :func:`toporo.data.frame.read_frame`.
    group : the column with every row's group. Names are text, as written.
    features : columns to use; unless given, all that are of use, but ``group`` and ``exclude``.
    exclude : columns not to use.
    format : "csv", "parquet" or "feather", where the ending of a path does not say it.
    delimiter : what stands between the cells of a CSV file.
    drop_missing : leave out rows that lack a group; else they are an error.
    """
    exclude, named = list(exclude), None if features is None else list(dict.fromkeys(features))
    check_roles({"the group": group}, named or (), exclude)
    wanted = None if named is None else [group, *named]
    table = read_frame(source, text=[group], columns=wanted, exclude=exclude, format=format, delimiter=delimiter)
    rows = complete_rows(table, np.arange(len(table)), [group], drop_missing)
    frame = only(table, rows)
    encoder = Encoder.fit(frame, features=named, exclude=[group])
    encoded = encoder.transform(frame)
    left_out = dict.fromkeys(exclude, "excluded") | encoder.left_out
    return Points(
        names=encoder.names,
        features=encoded.matrix,
        ids=ids_of(frame.text(group)),
        left_out={name: why for name, why in left_out.items() if name != group},
        dropped=len(table) - len(rows),
        remarks=encoder.remarks(encoded.differences),
    )


def _standardised(column: Array) -> Array:
    values = np.ldexp(column, -np.frexp(np.abs(column).max())[1])  # neither squares nor sums can overflow
    ordered = np.sort(values)  # the order of the rows must not decide the last bits
    return np.asarray((values - ordered.mean()) / ordered.std())
