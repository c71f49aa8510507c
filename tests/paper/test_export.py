"""Benchmarks as the files that anyone's own data comes in."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toporo.graphs import as_graph
from toporo.paper import load_dataset
from toporo.paper.base import export


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.usefixtures("no_data")
def test_dg_is_points_with_a_colour() -> None:
    found, benchmark = export("dg15"), load_dataset("dg15")
    table = rows(found.table)
    assert [(float(row["x1"]), float(row["x2"])) for row in table] == [
        tuple(point) for point in benchmark.data.x.tolist()
    ]
    assert [row["domain"] for row in table] == [str(name) for name in benchmark.data.ids.names]
    assert [row["label"] == "red" for row in table] == (benchmark.data.y == 1).tolist()
    assert found.test.split() == [str(name) for name in benchmark.test]


def test_tpt48_is_years_in_degrees(real_data: Path, tmp_path: Path) -> None:
    found = export("tpt48", real_data)
    table = rows(found.table)
    assert len(table) == 48 * 12
    assert [row["year"] for row in table[:12]] == [str(year) for year in range(2008, 2020)]
    first = table[0]
    assert (first["state"], first["jan"], first["jun"]) == ("AL", "43.0", "78.7"), "as in NOAA's file"
    benchmark = load_dataset("tpt48", real_data)
    mean, deviation = benchmark.about["mean"], benchmark.about["sd"]
    later = benchmark.data.y.mean(axis=1) * deviation + mean
    assert np.allclose([float(row["rest_of_year"]) for row in table], later, atol=0.0051)
    (tmp_path / "borders.csv").write_text(found.edges)
    assert as_graph(tmp_path / "borders.csv") == benchmark.graph
    assert found.test.split() == list(benchmark.test)


@pytest.mark.usefixtures("no_data")
def test_the_command_writes_the_files(toporo: Callable[..., Any], tmp_path: Path) -> None:
    done = toporo("data", "table", "dg15", "--out", "dg.csv", "--graph", "edges.csv", "--test", "test.txt")
    assert done.code == 0, done.err
    assert "1500 rows: dg.csv (--group domain --target label)" in done.out
    assert len(rows((tmp_path / "dg.csv").read_text())) == 1500
    done = toporo("data", "table", "dg15", "--out", "again.csv", "--json")
    assert json.loads(done.out) == {"out": "again.csv", "group": "domain", "target": "label"}
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "dg.csv").read_bytes()
    done = toporo("data", "table", "dg15", "--out", "no/dg.csv")
    assert done.code == 1
    assert "there is no folder no" in done.err
