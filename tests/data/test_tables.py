"""A table is read as it stands, or refused with the line and the column that are to blame."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import feather, parquet

from toporo.data import tables
from toporo.data.tables import Table, read_table
from toporo.errors import DataError, SettingError, TopoRoError, UnknownNameError

PLAIN = "height,weight,state,note\n1.5,10,PA,tall\n2,20,NY,short\n-3e2,30,PA,\n"


def read(text: str | bytes, group: str = "state", **settings: Any) -> Table:
    return read_table(io.BytesIO(text if isinstance(text, bytes) else text.encode()), group, **settings)


# ---------------------------------------------------------------------- what is read


def test_numbers_groups_and_what_is_left_out() -> None:
    table = read(PLAIN)
    assert table.names == ("height", "weight")
    assert_array_equal(table.features, [[1.5, 10], [2, 20], [-300, 30]])
    assert table.ids.names == ["PA", "NY", "PA"]
    assert table.ids.groups.names == ("NY", "PA")
    assert table.left_out == {"note": "not numbers: 'tall' in line 2"}
    assert (len(table), table.dropped, table.lost) == (3, 0, ())


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


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\n\n"),
        PLAIN + "  \n\n",
        PLAIN.rstrip("\n"),
        PLAIN.replace(",", ", "),
        '"height","weight","state","note"\n"1.5","10","PA","tall, very"\n 2 ,20, NY ,"two\nlines"\n-3e2,30,PA,\n',
    ],
    ids=["BOM", "CRLF", "blank lines", "blank end", "no last newline", "spaces", "quotes"],
)
def test_the_usual_ways_to_write_a_table_are_the_same_table(text: str) -> None:
    table, plain = read(text, exclude=["note"]), read(PLAIN, exclude=["note"])
    assert_array_equal(table.features, plain.features)
    assert table.ids.names == plain.ids.names
    assert table.names == plain.names


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " "])
def test_another_delimiter(delimiter: str) -> None:
    table = read(PLAIN.replace(",", delimiter), delimiter=delimiter)
    assert_array_equal(table.features, read(PLAIN).features)


def test_group_names_are_text_and_kept_as_they_are() -> None:
    """01 is not 1, NA is Namibia, and case and inner spaces matter."""
    groups = ["01", "1", "NA", "nan", "New  York", "new york", "Åland", "1.0"]
    table = read("x,g\n" + "".join(f"{i}, {name} \n" for i, name in enumerate(groups)), "g")
    assert table.ids.names == groups


def test_a_column_without_a_name_is_not_a_feature() -> None:
    """It is the row numbers that a data frame writes, which would tell groups apart by themselves."""
    table = read(",x,state\n0,5,a\n1,6,b\n")
    assert table.names == ("x",)
    assert table.left_out == {"(no name)": "it has no name"}


@pytest.mark.parametrize("cell", ["1_000", "1,5", "0x10", "True", "5 kg", "2020-01-02"])
def test_what_only_looks_like_a_number_is_none(cell: str) -> None:
    table = read(f'x,y,state\n1,2,a\n3,"{cell}",b\n')
    assert table.names == ("x",)
    assert table.left_out == {"y": f"not numbers: {cell!r} in line 3"}
    with pytest.raises(DataError, match=rf"line 3, column 'y': {cell!r} is not a number"):
        read(f'x,y,state\n1,2,a\n3,"{cell}",b\n', features=["y"])


def test_portions_leave_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{i},{'' if i == 8 else -i},{'q' if i == 9 else i},{'ab'[i % 2]}" for i in range(10)]
    text = "x,gap,late,state\n" + "\n".join(rows)
    whole = read(text, drop_missing=True)
    assert whole.left_out == {"late": "not numbers: 'q' in line 11"}
    for size in (1, 3, 5, 10):
        monkeypatch.setattr(tables, "PORTION", size)
        table = read(text, drop_missing=True)
        assert_array_equal(table.features, whole.features)
        assert table.ids.names == whole.ids.names == list("abababab" + "b")
        assert table.left_out == whole.left_out


# ---------------------------------------------------------------------- missing values

GAPS = "x,y,state\n1,2,a\n,3,a\n4,NaN,b\n5,n/a,\n6,7,c\n8,9,c\n"


def test_missing_values_are_an_error_that_says_how_many_and_where() -> None:
    with pytest.raises(DataError, match=r"3 of 6 rows lack a value \(first: line 3, column 'x'; by column: ") as caught:
        read(GAPS)
    assert "'state' 1, 'x' 1, 'y' 2" in str(caught.value)
    assert "--drop-missing" in str(caught.value)
    with pytest.raises(DataError, match=r"1 of 2 rows lack a value \(first: line 2, column 'state'"):
        read("x,state\n1,\n2,a\n")


def test_rows_with_missing_values_can_be_dropped() -> None:
    table = read(GAPS, drop_missing=True)
    assert_array_equal(table.features, [[1, 2], [6, 7], [8, 9]])
    assert table.ids.names == ["a", "c", "c"]
    assert table.ids.groups.names == ("a", "c")
    assert (table.dropped, table.lost) == (3, ("b",))


def test_gaps_in_unused_columns_do_not_matter() -> None:
    assert len(read(GAPS, features=["x"], drop_missing=True)) == 4
    assert read("x,y,state\n1,,a\n2,,b\n").left_out == {"y": "empty"}
    with pytest.raises(DataError, match="every row lacks a value"):
        read("x,y,state\n1,,a\n2,,b\n", features=["x", "y"], drop_missing=True)


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999"])
def test_infinite_values_are_refused_also_where_rows_are_dropped(cell: str) -> None:
    text = f"x,y,state\n,2,a\n1,2,a\n3,{cell},b\n5,{cell},b\n"
    with pytest.raises(DataError, match=r"2 infinite value\(s\) \(first: line 4, column 'y'\)"):
        read(text, drop_missing=True)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("text", "settings", "error", "message"),
    [
        ("", {}, DataError, "standard input is empty: expected a first line"),
        ("\n \n", {}, DataError, "standard input is empty"),
        ("x,state\n", {}, DataError, "has a header but no rows"),
        (b"x,state\n1,\xe9\n", {}, DataError, r"not text in UTF-8 \(byte 0xe9"),
        ("x,state\n1,a\n".encode("utf-16"), {}, DataError, "not text in UTF-8"),
        ("x,state\n1,a\n\n2,b,3\n", {}, DataError, "line 4: found 3 cells, expected 2"),
        ('x,state\n1,"a\nb"\n2\n', {}, DataError, "line 4: found 1 cells, expected 2"),
        ('x,state\n1,a\n2,"b\n', {}, DataError, "line 3: not valid CSV"),
        (PLAIN, {"group": "State"}, UnknownNameError, r"unknown column 'State'. Did you mean 'state'\? Valid"),
        (PLAIN, {"features": ["heights"]}, UnknownNameError, "unknown column 'heights'. Did you mean 'height'"),
        (PLAIN, {"exclude": ["zzz"]}, UnknownNameError, "unknown column 'zzz'. Valid names: height, note, state"),
        (PLAIN, {"features": ["state"]}, SettingError, "'state' holds the groups, so it cannot be a feature"),
        (PLAIN, {"exclude": ["state"]}, SettingError, "'state' holds the groups, so it cannot be excluded"),
        (PLAIN, {"features": ["height"], "exclude": ["height"]}, SettingError, "both named as features and excluded"),
        (PLAIN, {"features": ["height", "note"]}, DataError, "line 2, column 'note': 'tall' is not a number"),
        (PLAIN, {"exclude": ["height", "weight"]}, DataError, r"no column of numbers to use: 'height' \(excluded\)"),
        (PLAIN, {"features": []}, DataError, "no column of numbers to use"),
        ("state\na\n", {}, DataError, "no column of numbers to use"),
        ("x,y,x,state\n1,2,3,a\n", {}, DataError, "several columns named 'x'"),
        (PLAIN.replace(",", ";"), {}, DataError, "separated by ';'. Say so: --delimiter ';'"),
        (PLAIN.replace(",", "\t"), {}, DataError, "--delimiter tab"),
        (PLAIN, {"delimiter": ", "}, SettingError, "expected a single character"),
    ],
)  # fmt: skip
def test_unusable_tables_are_refused_in_words(
    text: str | bytes, settings: dict[str, Any], error: type[TopoRoError], message: str
) -> None:
    with pytest.raises(error, match=message):
        read(text, **settings)


def test_a_file_by_its_path_and_the_lack_of_one(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(PLAIN)
    assert read_table(path, "state").names == read_table(str(path), "state").names == ("height", "weight")
    with pytest.raises(DataError, match=r"no such file: .*absent.csv"):
        read_table(tmp_path / "absent.csv", "state")
    with pytest.raises(DataError, match=r"cannot read .*: Is a directory"):
        read_table(tmp_path, "state")


def test_the_stream_is_left_open() -> None:
    stream = io.BytesIO(PLAIN.encode())
    read_table(stream, "state")
    assert not stream.closed


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
    table = read_table(typed, "state", exclude=["digits"])
    assert table.names == ("height", "weight")
    assert_array_equal(table.features, [[1.5, 10], [2, 20], [-300, 30]])
    assert table.ids.names == ["PA", "NY", "PA"]
    nested = table.left_out.pop("nested")
    assert nested.startswith("it holds values of type list<")
    assert table.left_out == {
        "digits": "excluded",
        "note": "not numbers: 'tall' in row 2",
        "when": "dates, not numbers",
        "void": "empty",
        "fair": "not numbers: 'true' in row 1",
    }
    chosen = read_table(typed, "state", features=["weight", "height", "weight"])
    assert (chosen.names, chosen.left_out) == (("weight", "height"), {})
    assert_array_equal(chosen.features, table.features[:, ::-1])


def test_groups_are_text_whatever_their_type(typed: Path) -> None:
    x = [1.0, 2.0, 3.0]
    for groups, names in (
        (pa.array([2**53 + 1, 2**53, 3]), ["9007199254740993", "9007199254740992", "3"]),
        (pa.array(["01", "NA", "1"]).dictionary_encode(), ["01", "NA", "1"]),
        (pa.array([1.0, 2.5, 1.0]), ["1", "2.5", "1"]),
        (pa.array([0, 1, 2], pa.date32()), ["1970-01-01", "1970-01-02", "1970-01-03"]),
    ):
        assert read_table(stored(typed, x=x, g=groups), "g").ids.names == names


def test_missing_values_in_files_with_types(typed: Path) -> None:
    stored(typed, x=[1, None, 4, 5, 6], y=[2.0, 3.0, float("nan"), 1.0, 7.0], state=["a", "a", "b", None, "c"])
    with pytest.raises(DataError, match=r"3 of 5 rows lack a value \(first: row 2, column 'x'; by column: 'state' 1, "):
        read_table(typed, "state")
    table = read_table(typed, "state", drop_missing=True)
    assert_array_equal(table.features, [[1, 2], [6, 7]])
    assert table.ids.names == ["a", "c"]
    assert (table.dropped, table.lost) == (3, ("b",))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"group": "stat"}, UnknownNameError, r"unknown column 'stat'. Did you mean 'state'\?"),
        ({"features": ["z"]}, UnknownNameError, "unknown column 'z'"),
        ({"exclude": ["z"]}, UnknownNameError, "unknown column 'z'"),
        ({"exclude": ["state"]}, SettingError, "cannot be excluded"),
        (
            {"features": ["note"]},
            DataError,
            "'note': not numbers: 'tall' in row 1, but the column is named as a feature",
        ),
        ({"features": ["when"]}, DataError, "column 'when': dates, not numbers, but"),
        ({"features": ["nested"]}, DataError, "column 'nested' of .* cannot be used: it holds values of type list"),
        ({"group": "nested"}, DataError, "column 'nested' of .* cannot be used"),
        ({"exclude": ["x"]}, DataError, r"no column of numbers to use: 'x' \(excluded\), "),
    ],
)
def test_unusable_files_with_types_are_refused_in_words(
    typed: Path, settings: dict[str, Any], error: type[TopoRoError], message: str
) -> None:
    columns = {"x": [1.0], "state": ["a"], "note": ["tall"], "when": pa.array([0], pa.date32()), "nested": [[1]]}
    with pytest.raises(error, match=message):
        read_table(stored(typed, **columns), **({"group": "state"} | settings))


def test_the_ending_of_a_name_tells_the_kind_of_a_file(tmp_path: Path) -> None:
    for name in ("t.txt", "t", "t.DATA"):
        (tmp_path / name).write_text(PLAIN)
        assert read_table(tmp_path / name, "state").names == ("height", "weight")
    with pytest.raises(DataError, match=r"what kind of table is a \.xlsx file\? Expected"):
        read_table("t.xlsx", "state")
    with pytest.raises(DataError, match=r"no such file: t\.parquet"):
        read_table("t.parquet", "state")


# ---------------------------------------------------------------------- standardised


def test_standardised_features_have_mean_0_and_deviation_1() -> None:
    table = read("x,one,y,state\n1,7,1e200,a\n2,7,-1e200,b\n6,7,3e200,a\n").standardised()
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


def test_constant_features_alone_are_refused() -> None:
    with pytest.raises(DataError, match=r"every feature is constant \('x', 'y'\): there is nothing"):
        read("x,y,state\n1,2,a\n1,2,b\n").standardised()
