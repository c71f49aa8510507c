"""Columns become numbers by rules that are found once, kept with the model, and never guess in silence."""

from __future__ import annotations

import json
import math
import string
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from toporo.data import encode
from toporo.data.encode import CategoryRule, Differences, Encoder, NumberRule
from toporo.data.frame import Frame, Numbers, Texts, read_frame
from toporo.errors import DataError, SettingError, UnknownNameError


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
    assert (encoded.differences.unseen, encoded.differences.filled, encoded.differences.outside) == (
        {},
        {"age": 1, "colour": 1},
        {},
    )


def test_a_table_read_from_columns_is_encoded_alike() -> None:
    """The reader's own columns, not only those made here."""
    frame = read_frame(
        {"age": [31, None, 45, 40], "colour": ["red", "blue", None, "red"], "unit": ["m", "m", "m", "m"]}
    )
    encoder = Encoder.fit(frame)
    assert encoder.names == ("age", "age is missing", "colour = blue", "colour = red", "colour is missing")
    assert_array_equal(encoder.transform(frame).matrix, Encoder.fit(MIXED).transform(MIXED).matrix[:, :5])


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ((3, 1, 2), 2),
        ((4, 1, 2, 3), 2.5),
        ((1, None, 5), 3),
        ((-0.0, -0.0, -0.0, 1), 0.0),
        ((1.7e308, 1.6e308, -1.0, 1.65e308, 1.75e308, 2.0), 1.625e308),  # the sum of the two in the middle overflows
    ],
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
    assert encoded.differences.outside == {"x": 1}


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


def test_text_with_many_levels_is_left_out_as_a_likely_identifier() -> None:
    encoder = Encoder.fit(MANY, most_levels=4)
    assert encoder.columns == ("x",)
    reason = "text with 5 levels, more than 4: an identifier? Name it as a feature to use it"
    assert encoder.left_out == {"word": reason}
    assert Encoder.fit(MANY, most_levels=5).columns == ("word", "x")


@pytest.mark.parametrize("ask", [{"features": ["word"]}, {"categorical": ["word"]}])
def test_if_asked_for_its_commonest_levels_are_used(ask: dict[str, list[str]]) -> None:
    """Of a and c, which are equally common, the first in the alphabet is kept."""
    encoder = Encoder.fit(MANY, most_levels=3, **ask)
    assert encoder.rules[0] == CategoryRule("word", ("a", "b", "d"), other=True, missing=False)
    encoded = encoder.transform(MANY)
    assert encoder.names[:4] == ("word = a", "word = b", "word = d", "word = other")
    assert_array_equal(encoded.matrix[:, :4].sum(axis=0), [2, 3, 3, 3])
    assert encoded.differences.unseen == {"word": {"c": 2, "e": 1}}


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
    assert encoded.differences.unseen == {"colour": {"mauve": 2, "teal": 1}}
    assert encoded.differences.filled == {"colour": 1}


def test_they_go_to_the_output_for_others_if_there_is_one() -> None:
    encoder = Encoder.fit(frame_of(colour=texts("a", "a", "b", "c")), features=["colour"], most_levels=1)
    encoded = encoder.transform(frame_of(colour=texts("z", "a", None)))
    assert_array_equal(encoded.matrix, [[0, 1], [1, 0], [0, 1]])
    assert encoded.differences.unseen == {"colour": {"z": 1}}


def test_numbers_outside_the_training_range_are_counted() -> None:
    encoder = Encoder.fit(frame_of(x=numbers(0, 10), y=numbers(0, 1)))
    encoded = encoder.transform(frame_of(x=numbers(-1, 0, 10, 11, 12, None), y=numbers(0, 1, 1, 1, 1, 0.5)))
    assert encoded.differences.outside == {"x": 3}
    assert encoded.differences.filled == {"x": 1}
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
    assert encoded.differences.filled == {"x": 2, "c": 2, "d": 2}


def test_no_rows_give_a_matrix_without_rows() -> None:
    assert Encoder.fit(MIXED).transform(MIXED.take(np.arange(0))).matrix.shape == (0, 6)


def test_blocks_of_rows_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    values = np.where(random.random(1000) < 0.1, math.nan, random.normal(size=1000))
    frame = frame_of(x=Numbers(values), c=texts(*random.choice(list("abc"), 1000)), y=Numbers(random.normal(size=1000)))
    encoder = Encoder.fit(frame.take(np.arange(30)))
    whole = encoder.transform(frame)
    monkeypatch.setattr(encode, "BLOCK", 1)
    monkeypatch.setattr(encode, "FEWEST_ROWS", 7)
    parts = encoder.transform(frame)
    assert_array_equal(parts.matrix, whole.matrix)
    assert parts.differences == whole.differences
    assert sum(whole.differences.filled.values()) == np.isnan(values).sum()
    assert whole.differences.outside["x"] > 0


def test_little_memory_beside_the_matrix() -> None:
    frame = frame_of(**{f"x{i}": Numbers(np.arange(100_000.0)) for i in range(20)})
    encoder = Encoder.fit(frame)
    tracemalloc.start()
    size = encoder.transform(frame).matrix.nbytes
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 16_000_000
    assert peak < 1.1 * size


# ---------------------------------------------------------------------- names of outputs


def test_a_column_keeps_its_name_and_no_two_outputs_share_one() -> None:
    columns = {
        "age": numbers(1, None, 3),
        "age is missing": numbers(4, 5, 6),
        "age is missing (2)": numbers(1, 2, 3),
        "a": texts("b = c", "other", "x"),
        "a = b": texts("c", "d", "d"),
    }
    encoder = Encoder.fit(Frame(columns, "the table"))
    assert encoder.names == (
        "age",
        "age is missing (3)",
        "age is missing",
        "age is missing (2)",
        "a = b = c",
        "a = other",
        "a = x",
        "a = b = c (2)",
        "a = b = d",
    )


def test_a_level_called_other_beside_the_output_for_others() -> None:
    frame = frame_of(c=texts("other", "other", "b", "b", "z"))
    assert Encoder.fit(frame, features=["c"], most_levels=2).names == ("c = b", "c = other", "c = other (2)")


# ---------------------------------------------------------------------- laws on random tables


words = st.sampled_from(["a", "b", "a = b", "is missing", "other", "Größe", "数", "x y", "a is missing"])


@st.composite
def tables(draw: st.DrawFn) -> Frame:
    rows = draw(st.integers(2, 8))
    cell = st.none() | st.sampled_from([-2.5, 0.0, -0.0, 1.0, 1e300])
    columns: dict[str, Numbers | Texts] = {"sure": numbers(*range(rows))}
    for name in draw(st.lists(words, max_size=5, unique=True)):
        if draw(st.booleans()):
            columns[name] = numbers(*draw(st.lists(cell, min_size=rows, max_size=rows)))
        else:
            columns[name] = texts(*draw(st.lists(st.none() | words, min_size=rows, max_size=rows)))
    return Frame(columns, "the table")


@settings(max_examples=100, deadline=None)
@given(tables(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_columns_decides_nothing(frame: Frame, most_levels: int, random: Any) -> None:
    encoder = Encoder.fit(frame, features=frame.names, most_levels=most_levels)
    order = random.sample(range(len(frame)), len(frame))
    columns = dict(random.sample(list(frame.columns.items()), len(frame.names)))
    moved = Frame({name: column.take(np.asarray(order)) for name, column in columns.items()}, "the same")
    other = Encoder.fit(moved, features=moved.names, most_levels=most_levels)
    assert {repr(rule) for rule in other.rules} == {repr(rule) for rule in encoder.rules}  # repr tells -0.0 from 0.0
    assert other.left_out == encoder.left_out
    assert set(other.names) == set(encoder.names)
    place = [other.names.index(name) for name in encoder.names]
    assert_array_equal(other.transform(moved).matrix[:, place], encoder.transform(frame).matrix[order])


@settings(max_examples=100, deadline=None)
@given(tables(), tables(), st.integers(1, 4))
def test_any_table_is_encoded_finitely_under_unique_names_also_after_storage(
    frame: Frame, new: Frame, most_levels: int
) -> None:
    encoder = Encoder.fit(frame, features=frame.names, most_levels=most_levels)
    assert len(set(encoder.names)) == len(encoder.names)
    stored = Encoder.from_dict(json.loads(json.dumps(encoder.to_dict(), allow_nan=False)))
    assert stored == encoder
    assert stored.names == encoder.names
    alike = all(
        name in new.columns and (rule is CategoryRule or isinstance(new[name], Numbers))
        for name, rule in ((rule.name, type(rule)) for rule in encoder.rules)
    )
    for table in (frame, *((new,) if alike else ())):
        encoded = stored.transform(table)
        assert encoded.matrix.shape == (len(table), len(encoder.names))
        assert np.isfinite(encoded.matrix).all()
        missing = {name: int(table[name].missing.sum()) for name in encoder.columns}
        assert encoded.differences.filled == {name: count for name, count in missing.items() if count}


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
    with pytest.raises(DataError, match="'nest' cannot be used: a list in every cell"):
        Encoder.fit(frame, features=["nest"])


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        ({"features": ["agee"]}, UnknownNameError, "unknown column 'agee'. Did you mean 'age'?"),
        ({"exclude": ["agee"]}, UnknownNameError, "unknown column 'agee'"),
        ({"categorical": ["agee"]}, UnknownNameError, "unknown column 'agee'"),
        ({"features": ["age", "when", "age"]}, SettingError, "named as features more than once: 'age'"),
        ({"features": ["age"], "exclude": ["age"]}, SettingError, "both named for use and excluded: 'age'"),
        ({"categorical": ["age"], "exclude": ["age"]}, SettingError, "both named for use and excluded: 'age'"),
        ({"features": ["when"], "categorical": ["age"]}, SettingError, "not among the features: 'age'"),
        ({"features": "age"}, SettingError, r"features is the text 'age': expected a list .* \['age'\]"),
        ({"exclude": "age"}, SettingError, "exclude is the text"),
        ({"categorical": "age"}, SettingError, "categorical is the text"),
        ({"most_levels": 0}, SettingError, "most_levels is 0: expected a whole number of at least 1"),
        ({"most_levels": 2.5}, SettingError, "most_levels is 2.5"),
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


def test_a_table_without_rows_or_with_infinite_numbers_is_refused() -> None:
    with pytest.raises(DataError, match="has no rows"):
        Encoder.fit(MIXED.take(np.arange(0)))
    with pytest.raises(DataError, match="column 'x' holds infinite values"):
        Encoder.fit(frame_of(x=numbers(1, math.inf)))
    encoder = Encoder.fit(frame_of(x=numbers(1, 2)))
    with pytest.raises(DataError, match="the table, row 3: column 'x' holds an infinite value"):
        encoder.transform(frame_of(x=numbers(1, 2, -math.inf)))


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
        (texts(None, "old"), r"holds text \(row 12: 'old'\), but held numbers in training"),
        (numbers(None, 0, kind="date"), r"holds dates \(row 12: '1970-01-01'\), but held numbers"),
    ],
)
def test_a_column_of_another_kind_is_refused_with_the_first_cell(column: Numbers | Texts, found: str) -> None:
    encoder = Encoder.fit(frame_of(age=numbers(1, 2)))
    with pytest.raises(DataError, match=f"new.csv: column 'age' {found}"):
        encoder.transform(Frame({"age": column}, "new.csv", 11))


# ---------------------------------------------------------------------- what the user is told


def test_counts_in_words() -> None:
    encoder = Encoder.fit(
        frame_of(
            age=numbers(20, None, 30),
            when=numbers(0, 31, 59, kind="date"),
            colour=texts("red", "blue", "red"),
            shape=texts("a", None, "b"),
        )
    )
    new = frame_of(
        age=numbers(10, None, 99, 25),
        when=numbers(-1, None, 1, 2, kind="date"),
        colour=texts("teal", "mauve", "teal", None),
        shape=texts("a", None, None, "b"),
    )
    assert encoder.remarks(encoder.transform(new).differences) == (
        "'age': 1 missing value(s), filled with the median, 25",
        "'age': 2 value(s) outside the training range, 20 to 30",
        "'when': 1 missing value(s), filled with the median, 1970-02-01",
        "'when': 1 value(s) outside the training range, 1970-01-01 to 1970-03-01",
        "'colour': 1 missing value(s), though none was in training",
        "'colour': 3 row(s) with a level unknown from training: 'teal' 2, 'mauve' 1",
        "'shape': 2 missing value(s), as some were in training",
    )
    assert encoder.remarks(Differences()) == ()


def test_counts_of_portions_add_up_to_those_of_the_table() -> None:
    encoder = Encoder.fit(MIXED)
    new = frame_of(
        age=numbers(1, None, 99, 40, None),
        colour=texts("teal", "red", "teal", "mauve", None),
        when=numbers(0, 9, 9, 9, 9, kind="date"),
    )
    parts = [encoder.transform(new.take(np.arange(i, min(i + 2, 5)))).differences for i in (0, 2, 4)]
    assert sum(parts, Differences()) == encoder.transform(new).differences
    assert parts[0].unseen == {"colour": {"teal": 1}}


def test_levels_without_end_do_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MOST_UNSEEN", 3)
    encoder = Encoder.fit(frame_of(c=texts("known", "knowns")))
    parts = [encoder.transform(frame_of(c=texts(f"new {i}", "new 0"))).differences for i in range(8)]
    total = sum(parts, Differences())
    assert total.unseen == {"c": {"new 0": 9, "new 1": 1, "new 2": 1, "…": 5}}
    (line,) = encoder.remarks(total)
    assert line == "'c': 16 row(s) with a level unknown from training: 'new 0' 9, 'new 1' 1, 'new 2' 1, '…' 5"


# ---------------------------------------------------------------------- stored


def stored(**changes: Any) -> dict[str, Any]:
    rule = {"name": "x", "kind": "number", "fill": 1.0, "flag": False, "low": 0.0, "high": 2.0} | changes
    return {"rules": [{key: value for key, value in rule.items() if value is not ...}], "left_out": {}}


def category(**changes: Any) -> dict[str, Any]:
    rule = {"name": "c", "kind": "text", "levels": ["a", "b"], "other": False, "missing": False}
    return {"rules": [rule | changes], "left_out": {}}


def test_what_is_stored_is_plain_and_read_back_exactly() -> None:
    for content in (stored(), category()):
        assert json.loads(json.dumps(Encoder.from_dict(content).to_dict())) == content
    encoder = Encoder.fit(frame_of(x=numbers(0.1, 0.2, 1 / 3, None), Größe=texts("é", "数", "é", None)))
    assert Encoder.from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder
    assert Encoder.from_dict(stored(low=0)).rules == Encoder.from_dict(stored()).rules


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "expected a mapping"),
        ([], "expected a mapping"),
        ({}, "it lacks rules"),
        (stored() | {"left_out": []}, "expected a mapping, found a list, at left_out"),
        (stored() | {"left_out": {"a": 3}}, "expected text, found a whole number, at left_out"),
        (stored() | {"rules": []}, "expected a list of length >= 1"),
        (stored() | {"rules": {}}, "expected a list, found a mapping, at rules"),
        (stored() | {"rules": ["x"]}, "expected a mapping, found text, at rules"),
        (stored(name=3), "expected text, found a whole number, at name"),
        (stored(kind="float"), "at kind"),
        (stored(kind=["number"]), "at kind"),
        (stored(flag=...), "it lacks flag"),
        (stored(flag=1), "at flag"),
        (stored(fill="1"), "expected a number, found text, at fill"),
        (stored(fill=True), "at fill"),
        (stored(fill=math.nan), "at fill"),
        (stored(high=math.inf), "at high"),
        (stored(high=10**400), "a number is larger than"),
        (stored(fill=3.0), "fills 3.0 in, outside its range from 0.0 to 2.0"),
        (stored(fill=0.0, high=0.0), "has a range of a single value, 0.0"),
        (category(levels="ab"), "expected a list, found text, at levels"),
        (category(levels=[]), "expected a list of length >= 1, at levels"),
        (category(levels=["a", 1]), "at levels"),
        (category(levels=["b", "a"]), "has no ascending list of levels"),
        (category(levels=["a", "a"]), "has no ascending list of levels"),
        (category(other="no"), "expected true or false, found text, at other"),
        (category(missing=None), "at missing"),
        ({"rules": stored()["rules"] * 2, "left_out": {}}, r"column\(s\) dealt with twice: 'x'"),
        (stored() | {"left_out": {"x": "constant"}}, r"column\(s\) dealt with twice: 'x'"),
    ],
)
def test_what_was_not_stored_by_an_encoder_is_refused(content: object, problem: str) -> None:
    with pytest.raises(DataError, match=rf"not a stored preprocessing \(fit .*{problem}"):
        Encoder.from_dict(content)


def test_a_number_that_is_only_missing_or_not_survives_storage() -> None:
    encoder = Encoder.fit(frame_of(x=numbers(1, None)))
    assert Encoder.from_dict(encoder.to_dict()) == encoder
    assert_allclose(encoder.transform(frame_of(x=numbers(None))).matrix, [[1.0]])
