"""``toporo doctor``: findings on standard output, exit code 0; what cannot be read is a message and 1."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.doctor.cases import CHAIN, sound
from toporo.doctor import measure, shift

Run = Callable[..., Any]


@pytest.fixture
def run(toporo: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command in this process and a folder of its own, with little effort for what is measured."""
    monkeypatch.setattr(measure, "EFFORT", ((1000, 2, 2),))
    monkeypatch.setattr(measure, "TREES", 5)
    monkeypatch.setattr(shift, "ROUNDS", 3)
    monkeypatch.setattr(shift, "SHUFFLES", 1)
    return lambda *arguments, **given: toporo("doctor", *arguments, **given)


def text_of(columns: dict[str, list[Any]], delimiter: str = ",") -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


@pytest.fixture
def table(tmp_path: Path) -> str:
    columns = sound(25)
    columns["the site"] = [g.upper() for g in columns["g"]]
    (tmp_path / "t.csv").write_text(text_of(columns))
    (tmp_path / "edges.csv").write_text("".join(f"{a},{b}\n" for a, b in CHAIN))
    return "t.csv"


def test_findings_come_ranked_with_the_next_command_last(run: Run, table: str) -> None:
    done = run(table, "--group", "g", "--target", "y", "--exclude", "z", "--graph", "edges.csv", "--test-groups", "elm")
    assert done.code == 0
    assert done.err == ""
    lines = done.out.rstrip("\n").split("\n")
    assert lines[0] == "t.csv: 100 rows, 4 groups, 4 features, target 'y' (regression)"
    assert "SERIOUS  1 column gives the group away  [leaks-group]" in done.out
    assert lines[-1] == (
        "Next: toporo fit t.csv --target y --group g --graph edges.csv --test-groups elm --exclude 'z,the site' "
        "--out model"
    )
    assert not any(line != line.rstrip() for line in lines)


def test_json_is_json_and_nothing_else(run: Run, table: str) -> None:
    done = run(table, "--group", "g", "--json")
    assert done.code == 0
    content = json.loads(done.out)
    assert {"findings", "groups", "distances", "separability", "facts"} == set(content)
    assert "leaks-group" in {finding["code"] for finding in content["findings"]}


def test_files_are_written_and_named_on_standard_error(run: Run, table: str, tmp_path: Path) -> None:
    done = run(table, "--group", "g", "--out", "d.html", "--out", "heat.png", "--json")
    assert done.code == 0
    json.loads(done.out)
    assert done.err.splitlines() == ["report: d.html", "picture: heat.png"]
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "d.html").read_text(encoding="utf-8")


def test_standard_input_and_another_delimiter(run: Run) -> None:
    done = run("-", "--group", "g", "--delimiter", "tab", stdin=text_of(sound(10), "\t"))
    assert done.code == 0
    assert done.out.startswith("standard input: 40 rows, 4 groups")
    assert done.out.rstrip().endswith("--delimiter tab --out model")


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_other_kinds_of_files(run: Run, tmp_path: Path, kind: str) -> None:
    import pyarrow as pa
    from pyarrow import feather, parquet

    write = {"parquet": parquet.write_table, "feather": feather.write_feather}[kind]
    write(pa.table(sound(10)), tmp_path / f"t.{kind}")
    done = run(f"t.{kind}", "--group", "g", "--target", "z", "--features", "x1,colour")
    assert done.code == 0
    assert "2 features, target 'z' (classification)" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv", "--group", "g"], "no such file"),
        (["t.csv", "--group", "h"], "unknown column 'h'"),
        (["t.csv", "--group", "g", "--graph", "none.csv"], "none.csv"),
        (["t.csv", "--group", "g", "--out", "nowhere/d.html"], "there is no folder"),
        (["t.csv", "--group", "g", "--out", "d.txt"], "ends in .html"),
        (["t.csv", "--group", "g", "--out", "a.png", "--out", "b.svg"], "the picture goes to a.png already"),
        (["t.csv", "--group", "g", "--test-groups", "ash,birch,cedar,dogwood"], "every group is a test group"),
        (["t.csv", "--group", "g", "--features", "unit", "--out", "d.png"], "no distances to draw"),
    ],
)
def test_a_mistake_is_a_message_and_writes_nothing(
    run: Run, table: str, tmp_path: Path, arguments: list[str], words: str
) -> None:
    path = tmp_path / "t.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{lines[0]},unit", *(f"{line},kg" for line in lines[1:])]) + "\n")
    before = sorted(tmp_path.iterdir())
    done = run(*arguments)
    assert done.code == 1
    assert words in done.err
    assert done.out == ""
    assert sorted(tmp_path.iterdir()) == before
