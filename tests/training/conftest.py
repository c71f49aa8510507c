"""Fixtures of the tests of training."""

import importlib
import sys

import pytest

from tests.recipes import recipes
from toporo.objectives import OBJECTIVES


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """The module that CONTRIBUTING.md shows under "Add a method"."""
    (tmp_path / "by_the_recipe.py").write_text(recipes("Add a method")[0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(OBJECTIVES, "_things", dict(OBJECTIVES))  # what it registers is forgotten afterwards
    yield importlib.import_module("by_the_recipe")
    del sys.modules["by_the_recipe"]
