"""The table of groups."""

import csv
import io
import math
import sys
from pathlib import Path

import pytest

from toporo.errors import SettingError
from toporo.estimators.explain import COLUMNS, GroupRow, GroupTable

ROWS = (
    GroupRow("light", 10, 0.5, 1.0, 0.5, 0.1, 2),
    GroupRow(("heavy", 1), 20, 1.5, 0.25, 0.3, 0.7, math.inf),
    GroupRow("middle <&>", 30, 1.0, 0.0, 0.2, 0.2, 1),
)
TABLE = GroupTable.of(ROWS)


def test_heaviest_first_and_equal_weights_stay_in_order() -> None:
    assert [row.group for row in TABLE] == [("heavy", 1), "middle <&>", "light"]
    tied = GroupTable.of(GroupRow(name, 1, 0.0, None, 0.5, 0.5, None) for name in "ab")
    assert [row.group for row in tied] == ["a", "b"]


def test_it_is_a_sequence() -> None:
    assert len(TABLE) == 3
    assert TABLE[-1] == ROWS[0]
    assert isinstance(TABLE[:2], GroupTable)
    assert TABLE[:2].rows == TABLE.rows[:2]
    assert ROWS[2] in TABLE
    assert GroupTable.of(reversed(ROWS)) == TABLE


def test_text_is_aligned_and_says_where_there_is_no_path() -> None:
    lines = str(TABLE).splitlines()
    assert lines[0].split() == list(COLUMNS)
    assert len({len(line) for line in lines}) == 1
    assert lines[1].endswith("no path")


def test_columns_that_nobody_has_are_not_shown_but_stay_in_the_file() -> None:
    bare = GroupTable.of([GroupRow("a", 3, 0.1, None, 1.0, 1.0, None)])
    assert str(bare).splitlines()[0].split() == ["group", "size", "loss", "prior", "weight"]
    assert bare.to_csv() == "group,size,loss,centrality,prior,weight,hops\na,3,0.1,,1.0,1.0,\n"


def test_csv_keeps_every_digit(tmp_path: Path) -> None:
    row = GroupRow('quoted, "name"', 3, 1 / 3, 0.1 + 0.2, 2 / 3, 1.0, 0)
    file = tmp_path / "deep" / "table.csv"
    text = GroupTable.of([row]).to_csv(file)
    assert file.read_text(encoding="utf-8") == text
    (read,) = csv.DictReader(io.StringIO(text))
    assert read["group"] == row.group
    assert (float(read["loss"]), float(read["centrality"]), float(read["prior"])) == (
        row.loss,
        row.centrality,
        row.prior,
    )


def test_to_dict_and_pandas() -> None:
    assert TABLE.to_dict()[2] == {
        "group": "light", "size": 10, "loss": 0.5, "centrality": 1.0, "prior": 0.5, "weight": 0.1, "hops": 2,
    }  # fmt: skip
    frame = TABLE.to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["weight"].tolist() == [0.7, 0.2, 0.1]
    assert frame["group"].tolist()[0] == ("heavy", 1)


def test_without_pandas_there_is_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SettingError, match=r"pip install.*to_dict"):
        TABLE.to_pandas()


def test_html_escapes_names() -> None:
    assert "middle &lt;&amp;&gt;" in TABLE._repr_html_()
    assert TABLE._repr_html_().count("<tr>") == 4
