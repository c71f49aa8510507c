"""Columns become numbers by rules that are found once, kept with the model, and never guess in silence."""

from __future__ import annotations

import math
import string
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from toporo.data import encode
from toporo.data.encode import CategoryRule, Encoder, NumberRule
from toporo.data.frame import Frame, Numbers, Texts, read_frame
from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.estimators.packing import pack, unpack


def numbers(*values: float | None, kind: str = "number") -> Numbers:
    return Numbers(np.asarray([math.nan if value is None else value for value in values], dtype=np.float64), kind)


def texts(*values: str | None) -> Texts:
    levels = tuple(sorted({value for value in values if value is not None}))
    codes = [-1 if value is None else levels.index(value) for value in values]
    return Texts(np.asarray(codes, dtype=np.int32), levels)


def frame_of(**columns: Numbers | Texts) -> Frame:
    return Frame(dict(columns), "the table")


MIXED = frame_of(
    age=numbers(31, None, 45, 40),
    colour=texts("red", "blue", None, "red"),
    when=numbers(0, 1, 2, 3, kind="date"),
    unit=texts("m", "m", "m", "m"),
    nothing=numbers(None, None, None, None),
    blank=texts(None, None, None, None),
)


# ---------------------------------------------------------------------- what is found in training


def test_rules_names_and_reasons() -> None:
    encoder = Encoder.fit(MIXED)
    assert encoder.rules == (
        NumberRule("age", "number", fill=40.0, flag=True, low=31.0, high=45.0),
        CategoryRule("colour", ("blue", "red"), other=False, missing=True),
        NumberRule("when", "date", fill=1.5, flag=False, low=0.0, high=3.0),
    )
    assert encoder.names == ("age", "age is missing", "colour = blue", "colour = red", "colour is missing", "when")
    assert encoder.columns == ("age", "colour", "when")
    assert encoder.kinds == {"age": "number", "colour": "text", "when": "date"}
    assert encoder.left_out == {"unit": "constant", "nothing": "empty", "blank": "empty"}


def test_the_matrix_of_the_training_table() -> None:
    encoded = Encoder.fit(MIXED).transform(MIXED)
    assert_array_equal(
        encoded.matrix, [[31, 0, 0, 1, 0, 0], [40, 1, 1, 0, 0, 1], [45, 0, 0, 0, 1, 2], [40, 0, 0, 1, 0, 3]]
    )
    assert encoded.matrix.flags.c_contiguous
    assert (encoded.unseen, encoded.filled, encoded.outside) == ({}, {"age": 1, "colour": 1}, {})


def test_a_table_read_from_columns_is_encoded_alike() -> None:
    """The reader's own columns, not only those made here."""
    frame = read_frame(
        {"age": [31, None, 45, 40], "colour": ["red", "blue", None, "red"], "unit": ["m", "m", "m", "m"]}
    )
    encoder = Encoder.fit(frame)
    assert encoder.names == ("age", "age is missing", "colour = blue", "colour = red", "colour is missing")
    assert_array_equal(encoder.transform(frame).matrix, Encoder.fit(MIXED).transform(MIXED).matrix[:, :5])


@pytest.mark.parametrize(
    ("values", "median"), [((3, 1, 2), 2), ((4, 1, 2, 3), 2.5), ((1, None, 5), 3), ((-0.0, -0.0, -0.0, 1), 0.0)]
)
def test_missing_numbers_are_filled_with_the_median(values: tuple[float | None, ...], median: float) -> None:
    (rule,) = Encoder.fit(frame_of(x=numbers(*values))).rules
    assert isinstance(rule, NumberRule)
    assert rule.fill == median
    assert str(rule.fill)[0] != "-"  # no negative zero, which may come and go with the order of rows
    assert str(rule.low) != "-0.0"
    assert rule.flag is (None in values)


def test_a_number_that_is_there_or_not_is_used_for_that() -> None:
    """A column that holds 1 or nothing varies in whether it is missing; a constant output beside would be idle."""
    frame = frame_of(x=numbers(1, None, 1))
    encoder = Encoder.fit(frame)
    assert encoder.names == ("x is missing",)
    assert_array_equal(encoder.transform(frame).matrix, [[0], [1], [0]])
    encoded = encoder.transform(frame_of(x=numbers(7, None)))
    assert_array_equal(encoded.matrix, [[0], [1]])
    assert encoded.outside == {"x": 1}


def test_categories_of_numbers() -> None:
    frame = frame_of(store=numbers(10, 2, 10, None), x=numbers(1, 2, 3, 4))
    encoder = Encoder.fit(frame, categorical=["store"])
    assert encoder.names == ("store = 10", "store = 2", "store is missing", "x")
    assert encoder.kinds["store"] == "text"
    as_text = frame_of(store=texts("2", "3", None), x=numbers(1, 1, 1))
    assert_array_equal(encoder.transform(as_text).matrix[:, :3], [[0, 1, 0], [0, 0, 0], [0, 0, 1]])
    as_numbers = frame_of(store=numbers(2, 3, None), x=numbers(1, 1, 1))
    assert_array_equal(encoder.transform(as_numbers).matrix, encoder.transform(as_text).matrix)


# ---------------------------------------------------------------------- many levels


MANY = frame_of(word=texts(*"aabbbccddde"), x=numbers(*range(11)))


def test_text_with_many_levels_is_left_out_as_a_likely_identifier(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Encoder.fit(MANY).columns == ("word", "x")
    monkeypatch.setattr(encode, "MOST_LEVELS", 4)
    encoder = Encoder.fit(MANY)
    assert encoder.columns == ("x",)
    reason = "text with 5 levels, more than 4: an identifier? Name it as a feature to use it"
    assert encoder.left_out == {"word": reason}


@pytest.mark.parametrize("ask", [{"features": ["word"]}, {"categorical": ["word"]}])
def test_if_asked_for_its_commonest_levels_are_used(ask: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a and c, which are equally common, the first in the alphabet is kept."""
    monkeypatch.setattr(encode, "MOST_LEVELS", 3)
    encoder = Encoder.fit(MANY, **ask)
    assert encoder.rules[0] == CategoryRule("word", ("a", "b", "d"), other=True, missing=False)
    encoded = encoder.transform(MANY)
    assert encoder.names[:4] == ("word = a", "word = b", "word = d", "word = other")
    assert_array_equal(encoded.matrix[:, :4].sum(axis=0), [2, 3, 3, 3])
    assert encoded.unseen == {"word": {"c": 2, "e": 1}}


def test_text_that_differs_in_every_row_is_an_identifier_however_few_rows() -> None:
    names = frame_of(name=texts(*string.ascii_lowercase[:11]), x=numbers(*range(11)))
    assert Encoder.fit(names).left_out == {
        "name": "text that differs in every row: an identifier? Name it as a feature to use it"
    }
    assert Encoder.fit(names, features=["name"]).columns == ("name",)
    few = frame_of(name=texts(*string.ascii_lowercase[:10]), x=numbers(*range(10)))
    assert Encoder.fit(few).columns == ("name", "x")


# ---------------------------------------------------------------------- what prediction meets


def test_levels_that_training_had_not() -> None:
    encoder = Encoder.fit(frame_of(colour=texts("red", "blue")))
    encoded = encoder.transform(frame_of(colour=texts("mauve", "red", None, "mauve", "teal")))
    assert_array_equal(encoded.matrix, [[0, 0], [0, 1], [0, 0], [0, 0], [0, 0]])
    assert encoded.unseen == {"colour": {"mauve": 2, "teal": 1}}
    assert encoded.filled == {"colour": 1}


def test_they_go_to_the_output_for_others_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MOST_LEVELS", 1)
    encoder = Encoder.fit(frame_of(colour=texts("a", "a", "b", "c")), features=["colour"])
    encoded = encoder.transform(frame_of(colour=texts("z", "a", None)))
    assert_array_equal(encoded.matrix, [[0, 1], [1, 0], [0, 1]])
    assert encoded.unseen == {"colour": {"z": 1}}


def test_numbers_outside_the_training_range_are_counted() -> None:
    encoder = Encoder.fit(frame_of(x=numbers(0, 10), y=numbers(0, 1)))
    encoded = encoder.transform(frame_of(x=numbers(-1, 0, 10, 11, 12, None), y=numbers(0, 1, 1, 1, 1, 0.5)))
    assert encoded.outside == {"x": 3}
    assert encoded.filled == {"x": 1}
    assert_array_equal(encoded.matrix[:, 0], [-1, 0, 10, 11, 12, 5])


def test_further_columns_and_another_order_do_not_matter() -> None:
    encoder = Encoder.fit(MIXED)
    shuffled = Frame({"new": texts(*"abcd")} | dict(reversed(MIXED.columns.items())), "another table")
    assert_array_equal(encoder.transform(shuffled).matrix, encoder.transform(MIXED).matrix)


@pytest.mark.parametrize("empty", [numbers(None, None), numbers(None, None, kind="date"), texts(None, None)])
def test_an_empty_column_is_of_any_kind(empty: Numbers | Texts) -> None:
    """A file of two rows whose cells are all missing says nothing about what they would have been."""
    encoder = Encoder.fit(frame_of(x=numbers(1, 3), c=texts("a", "b"), d=numbers(5, 7, kind="date")))
    encoded = encoder.transform(frame_of(x=empty, c=empty, d=empty))
    assert_array_equal(encoded.matrix, [[2, 0, 0, 6]] * 2)
    assert encoded.filled == {"x": 2, "c": 2, "d": 2}


def test_no_rows_give_a_matrix_without_rows() -> None:
    assert Encoder.fit(MIXED).transform(MIXED.take(np.arange(0))).matrix.shape == (0, 6)


# ---------------------------------------------------------------------- names of outputs


def test_no_two_outputs_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {
        "age": numbers(1, None, 3),
        "age is missing": numbers(4, 5, 6),
        "a": texts("b = c", "other", "x"),
        "a = b": texts("c", "d", "d"),
    }
    encoder = Encoder.fit(Frame(columns, "the table"))
    assert encoder.names == (
        "age", "age is missing", "age is missing (2)", "a = b = c", "a = other", "a = x", "a = b = c (2)", "a = b = d",
    )  # fmt: skip
    monkeypatch.setattr(encode, "MOST_LEVELS", 2)
    other = frame_of(c=texts("other", "other", "b", "b", "z"))
    assert Encoder.fit(other, features=["c"]).names == ("c = b", "c = other", "c = other (2)")


# ---------------------------------------------------------------------- laws on random tables


words = st.sampled_from(["a", "b", "a = b", "is missing", "other", "Größe", "数", "x y", "a is missing"])


@st.composite
def tables(draw: st.DrawFn) -> Frame:
    rows = draw(st.integers(2, 8))
    cell = st.none() | st.sampled_from([-2.5, 0.0, -0.0, 1.0, 1e100])
    columns: dict[str, Numbers | Texts] = {"sure": numbers(*range(rows))}
    for name in draw(st.lists(words, max_size=5, unique=True)):
        if draw(st.booleans()):
            columns[name] = numbers(*draw(st.lists(cell, min_size=rows, max_size=rows)))
        else:
            columns[name] = texts(*draw(st.lists(st.none() | words, min_size=rows, max_size=rows)))
    return Frame(columns, "the table")


@settings(max_examples=100, deadline=None)
@given(tables(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_columns_decides_nothing(frame: Frame, most: int, random: Any) -> None:
    order = random.sample(range(len(frame)), len(frame))
    columns = dict(random.sample(list(frame.columns.items()), len(frame.names)))
    moved = Frame({name: column.take(np.asarray(order)) for name, column in columns.items()}, "the same")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "MOST_LEVELS", most)
        encoder, other = Encoder.fit(frame, features=frame.names), Encoder.fit(moved, features=moved.names)
    assert {repr(rule) for rule in other.rules} == {repr(rule) for rule in encoder.rules}  # repr tells -0.0 from 0.0
    assert other.left_out == encoder.left_out
    tables = encoder.transform(frame.take(order)).matrix, other.transform(moved).matrix
    assert sorted(column.tolist() for column in tables[0].T) == sorted(column.tolist() for column in tables[1].T)


@settings(max_examples=100, deadline=None)
@given(tables(), tables())
def test_any_table_is_encoded_finitely_under_unique_names_also_after_storage(frame: Frame, new: Frame) -> None:
    encoder = Encoder.fit(frame, features=frame.names)
    assert len(set(encoder.names)) == len(encoder.names)
    content, arrays = pack(encoder)
    stored = unpack(Encoder, content, arrays)
    assert stored == encoder
    alike = all(
        name in new.columns and (rule is CategoryRule or isinstance(new[name], Numbers))
        for name, rule in ((rule.name, type(rule)) for rule in encoder.rules)
    )
    for table in (frame, *((new,) if alike else ())):
        encoded = stored.transform(table)
        assert encoded.matrix.shape == (len(table), len(encoder.names))
        assert np.isfinite(encoded.matrix).all()
        missing = {name: int(table[name].missing.sum()) for name in encoder.columns}
        assert encoded.filled == {name: count for name, count in missing.items() if count}


# ---------------------------------------------------------------------- what is asked for


def test_features_are_used_in_the_order_named_and_the_rest_is_said_to_be_left_out() -> None:
    encoder = Encoder.fit(MIXED, features=["when", "age", "unit"], exclude=["colour"])
    assert encoder.columns == ("when", "age")
    assert encoder.left_out == {
        "colour": "excluded",
        "unit": "constant",
        "nothing": "not among the features named",
        "blank": "not among the features named",
    }


def test_a_column_that_cannot_be_read_is_left_out_with_its_reason() -> None:
    frame = Frame({"x": numbers(1, 2)}, "the table", unusable={"nest": "a list in every cell"})
    assert Encoder.fit(frame).left_out == {"nest": "a list in every cell"}
    assert Encoder.fit(frame, exclude=["nest"]).columns == ("x",)
    with pytest.raises(DataError, match="'nest' of the table cannot be used: a list in every cell"):
        Encoder.fit(frame, features=["nest"])


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        ({"features": ["agee"]}, UnknownNameError, "unknown column 'agee'. Did you mean 'age'?"),
        ({"categorical": ["agee"]}, UnknownNameError, "unknown column 'agee'"),
        ({"features": ["when"], "categorical": ["age"]}, SettingError, "not among the features: 'age'"),
        ({"features": []}, DataError, r"no column to use as a feature: 'age' \(not among the features named\)"),
        ({"features": ["unit"]}, DataError, r"'unit' \(constant\), 'nothing' \(not among the features named\)"),
        (
            {"exclude": ["age", "colour", "when"]},
            DataError,
            r"feature: 'unit' \(constant\), 'nothing' \(empty\), 'blank' \(empty\)",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(ask: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Encoder.fit(MIXED, **ask)


def test_columns_that_prediction_lacks_are_listed() -> None:
    encoder = Encoder.fit(MIXED)
    with pytest.raises(DataError, match=r"lacks 2 column\(s\) .*: 'age', 'when'\. Found: 'colour', 'Age'"):
        encoder.transform(frame_of(colour=texts("red"), Age=numbers(3)))
    nested = Frame({"colour": texts("red"), "when": numbers(1, kind="date")}, "t", unusable={"age": "a list"})
    with pytest.raises(DataError, match=r"'age' \('age': a list\)"):
        encoder.transform(nested)


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (texts(None, "old"), r"row 12, column 'age': 'old' is not a number"),
        (numbers(None, 0, kind="date"), r"column 'age' holds dates, but held numbers in training"),
    ],
)
def test_a_column_of_another_kind_is_refused_with_the_first_cell(column: Numbers | Texts, found: str) -> None:
    encoder = Encoder.fit(frame_of(age=numbers(1, 2)))
    with pytest.raises(DataError, match=rf"new\.csv.* {found}"):
        encoder.transform(Frame({"age": column}, "new.csv", 11))


# ---------------------------------------------------------------------- what the user is told


def test_counts_in_words() -> None:
    encoder = Encoder.fit(
        frame_of(age=numbers(20, None, 30), when=numbers(0, 31, 59, kind="date"), colour=texts("red", "blue", "red"))
    )
    new = frame_of(
        age=numbers(10, None, 99, 25),
        when=numbers(-1, None, None, 2, kind="date"),
        colour=texts("teal", "mauve", "teal", None),
    )
    assert list(encoder.transform(new).remarks()) == [
        "missing values filled in: 'when' 2, 'age' 1, 'colour' 1",
        "outside the range seen in training: 'age' 2, 'when' 1",
        "levels of 'colour' without an input of their own: 'teal' 2, 'mauve' 1",
    ]


# ---------------------------------------------------------------------- stored


def stored(**changes: Any) -> dict[str, Any]:
    rule = {"class": "NumberRule", "name": "x", "kind": "number", "fill": 1.0, "flag": False, "low": 0.0, "high": 2.0}
    return {"rules": [rule | changes], "left_out": [["z", "constant"]]}


def category(**changes: Any) -> dict[str, Any]:
    rule = {"class": "CategoryRule", "name": "c", "levels": ["a", "b"], "other": False, "missing": False}
    return {"rules": [rule | changes], "left_out": []}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (stored() | {"rules": []}, "no rules"),
        (stored() | {"rules": stored()["rules"] * 2}, "deals with a column twice"),
        (stored() | {"left_out": [["x", "constant"]]}, "deals with a column twice"),
        (stored(**{"class": "Encoder"}), "is of class 'Encoder'"),
        (stored(flag=1), "expected true or false"),
        (stored(kind="colour"), "fills 1.0 in"),
        (stored(fill=math.nan), "fills nan in"),
        (stored(high="inf"), "fills 1.0 in, outside its range from 0.0 to inf"),
        (stored(fill=3.0), "fills 3.0 in, outside its range from 0.0 to 2.0"),
        (stored(fill=0.0, high=0.0), "has no output"),
        (category(levels="ab"), "expected a list"),
        (category(levels=[]), "has no ascending list of levels"),
        (category(levels=["a", 1]), "expected text"),
        (category(levels=["b", "a"]), "has no ascending list of levels"),
        (category(levels=["a", "a"]), "has no ascending list of levels"),
    ],
)
def test_what_was_not_stored_by_an_encoder_is_refused(content: object, problem: str) -> None:
    assert pack(unpack(Encoder, stored(), {}))[0] == stored()
    assert pack(unpack(Encoder, category(), {}))[0] == category()
    with pytest.raises(DataError, match=problem):
        unpack(Encoder, content, {})
