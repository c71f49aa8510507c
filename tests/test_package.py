"""The package from the outside: its names, and what importing it costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import toporo
import toporo.choice
import toporo.data
import toporo.pages
import toporo.robust
import toporo.topology

HEAVY = ("torch", "matplotlib", "scipy", "sklearn", "networkx", "pandas", "polars", "pyarrow", "numpy")


def modules_after(statement: str) -> set[str]:
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_toporo_loads_nothing_heavy() -> None:
    assert modules_after("import toporo").isdisjoint(HEAVY)


@pytest.mark.parametrize("asked", ["--version", "--help"])
def test_the_command_line_starts_without_what_its_commands_need(asked: str) -> None:
    """Neither libraries nor any command's own file."""
    loaded = modules_after(
        f"import sys, toporo.cli\nsys.argv = ['toporo', '{asked}']\ntry: toporo.cli.main()\nexcept SystemExit: pass"
    )
    assert loaded.isdisjoint(HEAVY)
    assert {name for name in loaded if name.startswith("toporo.")} == {
        *("toporo.checks", "toporo.cli", "toporo.cli.options", "toporo.cli.running", "toporo.cli.terminal"),
        *("toporo.errors", "toporo.progress"),
        *("toporo.registry", "toporo.text", "toporo.version"),
    }


def test_a_linear_fit_needs_no_torch_and_no_plotting() -> None:
    loaded = modules_after("import toporo.cli; toporo.cli.load_command('fit')")
    assert loaded.isdisjoint({"matplotlib", "torch"})


def test_benchmarks_and_their_reports_need_no_tables() -> None:
    loaded = modules_after("import toporo.pages.figures, toporo.paper.report, toporo.paper.runner")
    assert loaded.isdisjoint({"toporo.tables", "toporo.estimators"})


def test_a_graph_and_its_prior_need_no_torch() -> None:
    loaded = modules_after("import toporo as tr; tr.GroupGraph.from_edges([('a','b'),('b','c')]).prior('abc')")
    assert "torch" not in loaded
    assert "networkx" in loaded


@pytest.mark.parametrize("package", [toporo, toporo.choice, toporo.data, toporo.pages, toporo.robust, toporo.topology])
def test_names_of_stubs_can_be_imported(package: Any) -> None:
    """Each ``__init__.pyi`` is what both type checkers and Python read."""
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert (Path(toporo.__file__).parent / "py.typed").is_file()


def test_objectives_load_few_modules() -> None:
    """PyTorch users need neither graphs nor solvers."""
    loaded = [name for name in modules_after("import toporo.objectives") if name.startswith("toporo")]
    assert len(loaded) <= 30, loaded


@pytest.mark.parametrize("name", toporo.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(toporo, name) is not None
    assert name in dir(toporo)


def test_public_face_is_pinned() -> None:
    """Adding or removing a public name is a decision, not an accident."""
    assert set(toporo.__all__) == {
        "AutoClassifier", "AutoRegressor",
        "GraphHopSplit", "GroupDROClassifier", "GroupDRORegressor", "GroupGraph", "GroupIds", "GroupedData", "Groups",
        "Kriged", "KrigedClassifier", "KrigedRegressor", "LeaveRegionOut", "Net", "Prior", "Radius",
        "RobustClassifier", "RobustRegressor", "TROClassifier", "TRORegressor", "TopoRoError",
        "TopoRoWarning", "__version__", "as_graph", "choice", "compare_models", "data", "diffusion_emd", "doctor",
        "estimators", "fit_table", "group_batches", "learn_topology",
        "load_dataset", "load_images", "load_model", "objectives", "paper", "robust", "tables",
        "topology", "training", "vision", "write_model_report",
    }  # fmt: skip


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = toporo.no_such_thing
