"""A model folder and a graph file written before settings were renamed are still read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from toporo.graphs import as_graph
from toporo.tables import load_model
from toporo.topology import GroupGraph

HERE = Path(__file__).parent / "written_before"
ROWS = HERE / "rows.csv"
EXPECTED = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))


def settings_in(folder: Path) -> dict[str, object]:
    content = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    return dict(content["estimator"]["settings"])


def test_the_folder_has_the_old_name() -> None:
    """Writing it again would defeat the purpose of these tests."""
    assert settings_in(HERE / "linear")["tau"] == EXPECTED["radius"]


def test_a_folder_loads_and_predicts_the_same(tmp_path: Path) -> None:
    model = load_model(HERE / "linear")
    predicted = model.predict(ROWS)
    assert np.array_equal(predicted, EXPECTED["linear"])
    model.save(tmp_path / "linear")
    again = load_model(tmp_path / "linear")
    assert np.array_equal(again.predict(ROWS), predicted)
    assert str(again.explain()) == str(model.explain())
    assert again.estimator.get_params()["radius"] == model.estimator.get_params()["radius"]


def test_a_radius_keeps_its_value_and_is_written_by_its_new_name(tmp_path: Path) -> None:
    model = load_model(HERE / "linear")
    assert model.estimator.radius == EXPECTED["radius"] == 0.05
    model.save(tmp_path / "model")
    stored = settings_in(tmp_path / "model")
    assert stored["radius"] == 0.05
    assert "tau" not in stored


def test_a_graph_file_loads(tmp_path: Path) -> None:
    graph = GroupGraph.from_json(HERE / "graph.json")
    assert graph == as_graph(HERE / "graph.json")
    assert graph.origin.kind == "learned"
    assert graph.origin.details["cut"] == "mst-knn"
    graph.to_json(tmp_path / "graph.json")
    again = GroupGraph.from_json(tmp_path / "graph.json")
    assert (again, again.origin) == (graph, graph.origin)
