"""Methods and divergences of another package, written by the recipes in CONTRIBUTING.md, are held to the same laws."""

import os
import subprocess
import sys

import pytest

from tests.recipes import ROOT, recipes


@pytest.fixture
def package(tmp_path):
    """An installed package that brings one of each by entry points."""
    about = tmp_path / "stranger-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[toporo.objectives]\nmy-method = strange_method\n[toporo.divergences]\ndouble-l2 = strange_divergence\n"
    )
    (tmp_path / "strange_method.py").write_text(recipes("Add a method")[0])
    (tmp_path / "strange_divergence.py").write_text(recipes("Add a divergence")[0])
    return tmp_path


def test_what_an_entry_point_brings_is_held_to_the_laws(package):
    suites = ["tests/objectives/test_conformance.py", "tests/robust/test_divergences.py"]
    paths = [str(package), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", *suites, "-k", "my-method or double-l2"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    passed = [line for line in done.stdout.splitlines() if "PASSED" in line]
    assert sum("my-method" in line for line in passed) >= 30
    assert sum("double-l2" in line for line in passed) >= 30
