"""Coordinates of groups: any table that has them, and a word on every one that has not."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.tables.cases import RIVER, as_csv, river
from toporo import GroupGraph
from toporo.coordinates import read_coordinates
from toporo.errors import DataError, GroupMismatchError, TopoRoWarning
from toporo.tables import fit_table, load_model
from toporo.topology.draw import layout

Run = Callable[..., Any]
CITIES = GroupGraph.from_edges([("Wien", "Graz"), ("Graz", "Linz"), ("Linz", "Wien")])
TABLE = {"group": ["Wien", "Graz", "Linz"], "lat": [48.2, 47.1, 48.3], "lon": [16.4, 15.4, 14.3]}
#: The stations of the river, and where they lie.
NAMES = sorted({name for edge in RIVER for name in edge})
STATIONS = "station,x,y\n" + "\n".join(f"{name},{i},{-i}" for i, name in enumerate(NAMES)) + "\n"


@pytest.mark.parametrize(
    "columns",
    [("group", "lat", "lon"), ("city", "Latitude", "LNG"), ("name", "latitude", "long"), ("City", "lat", "longitude")],
)
def test_degrees_are_drawn_north_up_and_as_broad_as_they_are_there(columns: tuple[str, ...]) -> None:
    table = dict(zip(columns, TABLE.values(), strict=True)) | {"people": [2.0, 0.3, 0.2]}
    at = layout(read_coordinates(table).place(CITIES))
    shrink = math.cos(math.radians((48.2 + 47.1 + 48.3) / 3))
    assert at["Graz"] == pytest.approx((15.4 * shrink, 47.1))
    assert at["Linz"] == pytest.approx((14.3 * shrink, 48.3))
    assert at["Wien"] == pytest.approx((16.4 * shrink, 48.2))


def test_other_coordinates_are_drawn_as_they_are() -> None:
    table = {"x": [1.0, 2.0, 3.0], "y": [100.0, 200.0, 300.0], "id": ["w", "g", "l"], "group": TABLE["group"]}
    at = layout(read_coordinates(table).place(CITIES))
    assert at == {"Wien": (1.0, 100.0), "Graz": (2.0, 200.0), "Linz": (3.0, 300.0)}


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_a_file_says_what_stands_between_its_cells_and_names_are_text(tmp_path: Path, sign: str) -> None:
    file = tmp_path / "places.csv"
    file.write_text("plz,lat,lon\n01,48.2,16.4\n1,47.1,15.4\n".replace(",", sign))
    assert read_coordinates(file).at == {"01": (16.4, 48.2), "1": (15.4, 47.1)}
    assert read_coordinates(pd.DataFrame({"plz": [1, 2], "x": [0, 1], "y": [2, 3]})).at == {"1": (0, 2), "2": (1, 3)}


def test_groups_without_coordinates_are_named_and_drawn_among_their_neighbours() -> None:
    table = {"group": ["Wien", "Graz", "Linz", "Rom"], "lat": [48.2, 47.1, None, 41.9], "lon": [16.4, 15.4, 14.3, 12.5]}
    with pytest.warns(TopoRoWarning, match=r"no coordinates of 1 group of the graph: 'Linz'\. They are drawn among"):
        placed = read_coordinates(table).place(CITIES)
    assert set(placed.positions or ()) == {"Wien", "Graz"}
    assert 47 < layout(placed)["Linz"][1] < 48.3


def test_a_table_of_other_groups_is_refused() -> None:
    with pytest.raises(GroupMismatchError, match=r"none of the graph's groups.*'WIEN'.*Is 'GRAZ' meant to be 'Graz'\?"):
        read_coordinates(TABLE | {"group": ["WIEN", "GRAZ", "LINZ"]}).place(CITIES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"group": ["Wien", "Graz", "Wien"]},
            r"row 3: 'Wien' is there twice, at \(16\.4, 48\.2\) and \(14\.3, 48\.3\)",
        ),
        ({"group": ["Wien", None, "Linz"]}, r"row 2: 'group' is empty"),
        ({"lat": ["48.2", "47.1 N", "48.3"]}, r"row 2, column 'lat': '47\.1 N' is not a number"),
        ({"lat": [48.2, 471.0, 48.3]}, r"row 2, 'Graz': lat is 471 and lon 15\.4: expected a latitude from -90 to 90"),
        ({"lat": [116.4, 115.4, 114.3], "lon": [39.9, 38.0, 37.0]}, r"If the columns are swapped, rename them"),
        ({"lon": [16.4, 15.4, 400.0]}, r"row 3, 'Linz': lat is 48\.3 and lon 400: .* longitude from -180 to 180"),
        ({"lon": [16.4, math.inf, 14.3]}, r"1 infinite value\(s\) \(first: row 2, column 'lon'\)"),
        (
            {"lat": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"])},
            r"column 'lat': it holds values of type timestamp.* each must be a number",
        ),
    ],
)
def test_what_is_no_place_is_refused_with_its_row(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_coordinates(pd.DataFrame(TABLE | change))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"group": ["a"], "lat": [1.0]},
            r"has no column of coordinates: expected a column of groups.*; found 'group', 'lat'",
        ),
        ({"lat": [1.0], "lon": [1.0]}, r"has no column of group: .*; found 'lat', 'lon'"),
    ],
)
def test_columns_that_lack_are_said(table: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_coordinates(table)


def test_a_model_keeps_them_and_is_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "places.csv").write_text(STATIONS)
    how: dict[str, Any] = {"target": "y", "group": "station", "graph": RIVER, "penalty": 1.0}
    placed = fit_table(river(), **how, coordinates=tmp_path / "places.csv")
    plain = fit_table(river(), **how)
    placed.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    expected = {name: (float(i), float(-i)) for i, name in enumerate(NAMES)}
    for model in (placed, again):
        assert model.graph is not None
        assert layout(model.graph) == expected
        assert layout(model.estimator.topology_) == expected
        assert list(model.predict(river(1))) == pytest.approx(list(plain.predict(river(1))))


def test_commands_take_them(toporo: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toporo.cli import report

    shown: list[Any] = []
    monkeypatch.setattr(report, "write_model_report", lambda model, out, **_: shown.append(model.graph.positions))
    (tmp_path / "t.csv").write_text(as_csv(river()))
    (tmp_path / "places.csv").write_text(STATIONS)
    (tmp_path / "swapped.csv").write_text("station,y,x\n" + STATIONS.partition("\n")[2])
    table = ("t.csv", "--group", "station", "--target", "y")
    done = toporo("topology", *table, "--coordinates", "places.csv", "--set", "resamples=0", "--out", "graph.json")
    assert done.code == 0, done.err
    at = {name: (float(i), float(-i)) for i, name in enumerate(NAMES) if name in set(river()["station"])}
    assert GroupGraph.from_json(tmp_path / "graph.json").positions == at
    done = toporo("fit", *table, "--graph", "graph.json", "--model", "linear", "--out", "model")
    assert done.code == 0, done.err
    for more in ((), ("--coordinates", "swapped.csv")):
        done = toporo("report", "model", *more)
        assert done.code == 0, done.err
    assert shown == [at, {name: (y, x) for name, (x, y) in at.items()}]
    toporo("fit", *table, "--model", "linear", "--out", "bare")
    done = toporo("report", "bare", "--coordinates", "places.csv")
    assert (done.code, "bare has no graph to draw" in done.err) == (1, True)
