"""The package from the outside: its names, and what importing it costs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import toporo

HEAVY = ("torch", "matplotlib", "scipy", "sklearn", "networkx", "pandas", "polars", "pyarrow", "numpy")


def modules_after(statement: str) -> set[str]:
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_toporo_loads_nothing_heavy() -> None:
    assert modules_after("import toporo").isdisjoint(HEAVY)


def test_the_command_line_starts_without_torch_or_plotting() -> None:
    assert modules_after("import toporo.cli").isdisjoint(HEAVY)


def test_a_graph_and_its_prior_need_no_torch() -> None:
    loaded = modules_after(
        "import toporo as tr; tr.GroupGraph.from_edges([('a','b'),('b','c')]).prior(['a','b'], ['c'])"
    )
    assert "torch" not in loaded
    assert "networkx" in loaded


@pytest.mark.parametrize("name", toporo.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(toporo, name) is not None
    assert name in dir(toporo)


def test_public_face_is_pinned() -> None:
    """Adding or removing a public name is a decision, not an accident."""
    assert set(toporo.__all__) == {
        "GraphHopSplit", "GroupDROClassifier", "GroupDRORegressor", "GroupGraph", "GroupIds", "GroupedData", "Groups",
        "LeaveRegionOut", "Prior", "TROClassifier", "TRORegressor", "TopoRoError", "TopoRoWarning", "bench",
        "choice", "data", "differentiable_emd", "diffusion_emd", "doctor", "estimators", "fit_table", "group_batches",
        "learn_topology",
        "load_dataset", "load_images", "load_model", "models", "objectives", "robust", "tables", "theory",
        "topology", "training", "write_model_report",
    }  # fmt: skip


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = toporo.no_such_thing
