"""``toporo predict``: it writes what Python's csv module would write, and reads ahead without harm."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tables.cases import as_csv, river
from toporo.cli.predict import csv_lines
from toporo.errors import DataError
from toporo.tables import fit_table

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


def test_a_file_need_not_be_read_to_its_end(tmp_path: Path) -> None:
    """Reading ahead must neither hold on to the file nor to whoever stops early."""
    path = tmp_path / "river.csv"
    path.write_text(as_csv(river()))
    model = fit_table(path, target="y", group="station", penalty=1.0)
    portions = model.portions(path, rows=5)
    first = next(portions)
    portions.close()
    assert np.array_equal(first.values, model.predict(path)[:5])


def test_an_error_further_on_comes_after_the_rows_before_it(tmp_path: Path) -> None:
    path, bad = tmp_path / "river.csv", tmp_path / "bad.csv"
    path.write_text(as_csv(river()))
    model = fit_table(path, target="y", group="station", features=["x"], penalty=1.0)
    bad.write_text("x\n1\n2\n3\n4\nfive\n")
    seen = []
    with pytest.raises(DataError, match="row 5"):
        seen.extend(len(portion.values) for portion in model.portions(bad, rows=2))
    assert seen == [2, 2]
