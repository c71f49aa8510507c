"""A table becomes points as a fit reads it, or is refused with the row and the column that are to blame."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import feather, parquet

from toporo.data.encode import Encoder
from toporo.data.frame import read_frame
from toporo.errors import DataError, SettingError, TopoRoError, UnknownNameError
from toporo.tables.read import Points, read_points
from toporo.tables.roles import Roles

PLAIN = "height,weight,state,note\n1.5,10,PA,tall\n2,20,NY,short\n-3e2,30,PA,\n"


def read(text: str | bytes, group: str = "state", **settings: Any) -> Points:
    return points(io.BytesIO(text if isinstance(text, bytes) else text.encode()), group, **settings)


def points(source: Any, group: str = "state", **settings: Any) -> Points:
    reading = {name: settings.pop(name) for name in ("format", "delimiter") if name in settings}
    return read_points(source, Roles.of(group=group, **settings), **reading)


# ---------------------------------------------------------------------- what is read


def test_numbers_groups_and_what_is_left_out() -> None:
    table = read(PLAIN, exclude=["note"])
    assert table.names == ("height", "weight")
    assert_array_equal(table.features, [[1.5, 10], [2, 20], [-300, 30]])
    assert table.ids.names == ["PA", "NY", "PA"]
    assert table.ids.groups.names == ("NY", "PA")
    assert table.left_out == {"note": "excluded"}
    assert (len(table), table.dropped, table.remarks) == (3, 0, ())


def test_text_dates_and_gaps_are_read_as_a_fit_reads_them() -> None:
    """By the encoder's rules: one output per level, days, the median and a mark where a number is missing."""
    text = "x,colour,when,same,id,g\n1,red,2024-01-02,7,k1,a\n,blue,2024-01-03,7,k2,b\n5,,2024-01-02,7,k3,a\n"
    table = read(text, "g", exclude=["id"])
    encoder = Encoder.fit(read_frame(io.BytesIO(text.encode())), exclude=["id", "g"])
    names = ("x", "x is missing", "colour = blue", "colour = red", "colour is missing", "when")
    assert table.names == encoder.names == names
    assert_array_equal(table.features[:, :5], [[1, 0, 0, 1, 0], [3, 1, 1, 0, 0], [5, 0, 0, 0, 1]])
    assert_array_equal(table.features[:, 5] - table.features[0, 5], [0, 1, 0])
    assert table.left_out == {"id": "excluded", "same": "constant"}
    assert table.remarks == ("missing values filled in: 'colour' 1, 'x' 1",)


@pytest.mark.parametrize(
    ("settings", "names", "left_out"),
    [
        ({"features": ["weight", "height"]}, ("weight", "height"), {}),
        ({"features": ["weight", "weight"]}, ("weight",), {}),
        ({"exclude": ["weight", "note"]}, ("height",), {"weight": "excluded", "note": "excluded"}),
    ],
)
def test_columns_can_be_named_or_excluded(
    settings: dict[str, Any], names: tuple[str, ...], left_out: dict[str, str]
) -> None:
    table = read(PLAIN, **settings)
    assert table.names == names
    assert table.left_out == left_out
    column = {"height": [1.5, 2, -300], "weight": [10, 20, 30]}
    assert_array_equal(table.features, np.column_stack([column[name] for name in names]))


def test_group_names_are_text_and_kept_as_they_are() -> None:
    """01 is not 1, NA is Namibia, and case and inner spaces matter."""
    groups = ["01", "1", "NA", "nan", "New  York", "new york", "Åland", "1.0"]
    table = read("x,g\n" + "".join(f"{i}, {name} \n" for i, name in enumerate(groups)), "g")
    assert table.ids.names == groups


# ---------------------------------------------------------------------- missing values

GAPS = "x,y,state\n1,2,a\n,3,a\n4,NaN,b\n5,n/a,\n6,7,c\n8,9,c\n"


def test_rows_without_a_group_are_an_error_that_says_how_many_and_where() -> None:
    with pytest.raises(DataError, match=r"standard input: 1 of 6 rows lack 'state' \(first: row 4\)") as caught:
        read(GAPS)
    assert "--drop-rows" in str(caught.value)
    with pytest.raises(DataError, match=r"1 of 2 rows lack 'state' \(first: row 1\)"):
        read("x,state\n1,\n2,a\n")


def test_rows_without_a_group_can_be_dropped_and_features_are_filled_in() -> None:
    table = read(GAPS, drop_rows=True)
    assert table.names == ("x", "x is missing", "y", "y is missing")
    assert_array_equal(table.features, [[1, 0, 2, 0], [5, 1, 3, 0], [4, 0, 5, 1], [6, 0, 7, 0], [8, 0, 9, 0]])
    assert table.ids.names == ["a", "a", "b", "c", "c"]
    assert table.ids.groups.names == ("a", "b", "c")
    assert table.dropped == 1
    assert table.remarks == ("missing values filled in: 'x' 1, 'y' 1",)
    with pytest.raises(DataError, match="no row has 'state', so none is left"):
        read("x,state\n1,\n2,\n", drop_rows=True)


def test_an_empty_column_is_left_out() -> None:
    for settings in ({}, {"features": ["x", "y"]}):
        table = read("x,y,state\n1,,a\n2,,b\n", **settings)
        assert (table.names, table.left_out) == (("x",), {"y": "empty"})


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999"])
def test_infinite_values_are_refused_also_where_rows_are_dropped(cell: str) -> None:
    text = f"x,y,state\n,2,a\n1,2,a\n3,{cell},b\n5,{cell},b\n"
    with pytest.raises(DataError, match=r"2 infinite value\(s\) \(first: row 3, column 'y'\)"):
        read(text, drop_rows=True)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("text", "settings", "error", "message"),
    [
        (PLAIN, {"group": "State"}, UnknownNameError, r"unknown column 'State'. Did you mean 'state'\? Valid"),
        (PLAIN, {"features": ["heights"]}, UnknownNameError, "unknown column 'heights'. Did you mean 'height'"),
        (PLAIN, {"exclude": ["zzz"]}, UnknownNameError, "unknown column 'zzz'. Valid names: height, note, state"),
        (PLAIN, {"features": ["state"]}, SettingError, "'state' is the group, so it cannot be a feature"),
        (PLAIN, {"exclude": ["state"]}, SettingError, "'state' is the group, so it cannot be excluded"),
        (PLAIN, {"features": ["height"], "exclude": ["height"]}, SettingError, "both named for use and excluded"),
        (PLAIN, {"exclude": ["height", "weight", "note"]}, DataError, "no column to use as a feature"),
        (PLAIN, {"features": []}, DataError, "no column to use as a feature"),
        ("state\na\n", {}, DataError, "no column to use as a feature"),
        ("x,y,state\n1,2,a\n1,2,b\n", {}, DataError, r"to use as a feature: .*'x' \(constant\), 'y' \(constant\)"),
    ],
)  # fmt: skip
def test_unusable_tables_are_refused_in_words(
    text: str | bytes, settings: dict[str, Any], error: type[TopoRoError], message: str
) -> None:
    with pytest.raises(error, match=message):
        read(text, **settings)


# ---------------------------------------------------------------------- files whose columns have types


def stored(path: Path, **columns: Any) -> Path:
    """The columns in a file of the kind that the path says."""
    (parquet.write_table if path.suffix == ".parquet" else feather.write_feather)(pa.table(columns), path)
    return path


@pytest.fixture(params=["t.parquet", "t.feather"])
def typed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A path of either kind."""
    return tmp_path / str(request.param)


def test_types_decide_in_parquet_and_feather(typed: Path) -> None:
    stored(
        typed,
        height=[1.5, 2, -300],
        weight=pa.array([10, 20, 30], pa.uint8()),
        state=["PA", " NY ", "PA"],
        digits=["1", "2", "3"],
        note=[None, "tall", ""],
        when=pa.array([0, 1, 2], pa.date32()),
        void=pa.nulls(3, pa.float64()),
        nested=[[1], [2], [3]],
        fair=[True, False, True],
    )
    table = points(typed, "state", exclude=["digits"])
    assert table.names == ("height", "weight", "note = tall", "note is missing", "when", "fair = false", "fair = true")
    assert_array_equal(table.features[:, :2], [[1.5, 10], [2, 20], [-300, 30]])
    assert_array_equal(table.features[:, 2:4], [[0, 1], [1, 0], [0, 1]])
    assert_array_equal(table.features[:, 4:], [[0, 0, 1], [1, 1, 0], [2, 0, 1]])
    assert table.ids.names == ["PA", "NY", "PA"]
    nested = table.left_out.pop("nested")
    assert nested.startswith("it holds values of type list<")
    assert table.left_out == {"digits": "excluded", "void": "empty"}
    chosen = points(typed, "state", features=["weight", "height", "weight"])
    assert (chosen.names, chosen.left_out) == (("weight", "height"), {})
    assert_array_equal(chosen.features, table.features[:, 1::-1])


def test_groups_are_text_whatever_their_type(typed: Path) -> None:
    x = [1.0, 2.0, 3.0]
    for groups, names in (
        (pa.array([2**53 + 1, 2**53, 3]), ["9007199254740993", "9007199254740992", "3"]),
        (pa.array(["01", "NA", "1"]).dictionary_encode(), ["01", "NA", "1"]),
        (pa.array([1.0, 2.5, 1.0]), ["1", "2.5", "1"]),
        (pa.array([0, 1, 2], pa.date32()), ["1970-01-01", "1970-01-02", "1970-01-03"]),
    ):
        assert points(stored(typed, x=x, g=groups), "g").ids.names == names


def test_missing_values_in_files_with_types(typed: Path) -> None:
    stored(typed, x=[1, None, 4, 5, 6], y=[2.0, 3.0, float("nan"), 1.0, 7.0], state=["a", "a", "b", None, "c"])
    with pytest.raises(DataError, match=r"1 of 5 rows lack 'state' \(first: row 4\)"):
        points(typed, "state")
    table = points(typed, "state", drop_rows=True)
    assert_array_equal(table.features, [[1, 0, 2, 0], [4, 1, 3, 0], [4, 0, 3, 1], [6, 0, 7, 0]])
    assert (table.ids.names, table.dropped) == (["a", "a", "b", "c"], 1)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"features": ["note"]}, DataError, r"no column to use as a feature: .*'note' \(constant\)"),
        ({"features": ["nested"]}, DataError, r"column 'nested' of \S+ cannot be used: it holds values of type list"),
        ({"group": "nested"}, DataError, "column 'nested' of .* cannot be used"),
        ({"exclude": ["x"]}, DataError, r"no column to use as a feature: .*'note' \(constant\), 'when' \(constant\)"),
    ],
)
def test_unusable_files_with_types_are_refused_in_words(
    typed: Path, settings: dict[str, Any], error: type[TopoRoError], message: str
) -> None:
    columns = {"x": [1.0], "state": ["a"], "note": ["tall"], "when": pa.array([0], pa.date32()), "nested": [[1]]}
    with pytest.raises(error, match=message):
        points(stored(typed, **columns), **({"group": "state"} | settings))


# ---------------------------------------------------------------------- standardised


def test_standardised_features_have_mean_0_and_deviation_1() -> None:
    table = read("x,one,y,state\n1,7,1e99,a\n2,7,-1e99,b\n6,7,3e99,a\n").standardised()
    assert table.names == ("x", "y")
    assert table.left_out == {"one": "constant"}
    x = np.array([1, 2, 6])
    assert_allclose(table.features[:, 0], (x - x.mean()) / x.std(), rtol=1e-14)
    assert_allclose(table.features.mean(axis=0), 0, atol=1e-15)
    assert_allclose(table.features.std(axis=0), 1, rtol=1e-14)


def test_the_order_of_the_rows_does_not_change_a_bit_of_them() -> None:
    values = (np.random.default_rng(0).normal(size=500) ** 5).tolist()

    def standardised(numbers: list[float]) -> list[float]:
        table = read("x,state\n" + "".join(f"{x!r},a\n" for x in numbers)).standardised()
        return sorted(table.features[:, 0].tolist())

    assert standardised(values) == standardised(values[::-1]) == standardised(sorted(values))
