"""What ``toporo predict`` writes is the text that Python's csv module would write."""

from __future__ import annotations

import csv
import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toporo.cli.predict import csv_lines

numbers = st.one_of(st.floats(), st.floats(-10, 10), st.integers(-(10**17), 10**17).map(float))
texts = st.one_of(st.none(), st.text(), st.text(" \",;\n\r\t'#é", max_size=4))


def written(*columns: list[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
    return text.getvalue()


def as_written(floats: list[float], names: list[str | None]) -> str:
    return csv_lines([pa.array(names, pa.string()), pa.array(floats, pa.float64())])


@given(st.lists(st.tuples(texts, numbers), min_size=1))
@example([("a,b", -0.0), ('"', 1e-5), ("\r\n", 1e16), ("", 123456.0), (None, 12345678901.5), ("é", float("nan"))])
def test_lines_are_those_of_the_csv_module(rows: list[tuple[str | None, float]]) -> None:
    names, floats = [name for name, _ in rows], [number for _, number in rows]
    assert as_written(floats, names) == written(names, floats)


@pytest.mark.parametrize("size", [1e-6, 1e-4, 1.0, 1e3, 1e9, 1e12])
def test_numbers_have_the_digits_that_python_gives_them(size: float) -> None:
    """Both write the fewest digits that tell a number from its neighbours; of two such, the nearer."""
    floats = (size * np.random.default_rng(0).normal(size=20_000)).tolist()
    assert csv_lines([pa.array(floats)]) == "".join(f"{number!r}\n" for number in floats)


def test_a_column_without_a_text_is_empty() -> None:
    assert as_written([0.5, 1.0], [None, None]) == ",0.5\n,1.0\n"
