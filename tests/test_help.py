"""``help()`` of what a package offers says what every parameter is."""

import importlib
import inspect
import re

import pytest

PACKAGES = ("objectives", "paper.theory", "robust", "training")


def offered():
    for package in PACKAGES:
        module = importlib.import_module(f"toporo.{package}")
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield pytest.param(thing, id=f"{package}.{name}")


@pytest.mark.parametrize("thing", list(offered()))
def test_every_parameter_is_in_the_docstring(thing):
    said = re.findall(r"^([\w, *]+) : ", inspect.getdoc(thing) or "", re.MULTILINE)
    listed = {name.strip(" *") for names in said for name in names.split(",")}
    assert set(inspect.signature(thing).parameters) <= listed
