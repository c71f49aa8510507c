"""``help()`` of a public class teaches: every parameter with its meaning and default."""

from __future__ import annotations

import inspect
import pydoc
import re
from typing import Any

import pytest

import toporo as tr

ESTIMATORS = (tr.TROClassifier, tr.TRORegressor, tr.GroupDROClassifier, tr.GroupDRORegressor)


@pytest.mark.parametrize("kind", [*ESTIMATORS, tr.GraphHopSplit, tr.LeaveRegionOut])
def test_every_parameter_is_listed(kind: Any) -> None:
    text = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    for name in inspect.signature(kind).parameters:
        assert re.search(rf"^ \|  {name} : \S", text, flags=re.MULTILINE), name


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_defaults_are_those_of_the_constructor(kind: Any) -> None:
    text = " ".join(inspect.getdoc(kind).split())
    for name, parameter in inspect.signature(kind).parameters.items():
        entry = text.partition(f" {name} : ")[2]
        assert entry.partition("Default: ")[2].startswith(f"{parameter.default!r}."), name
    assert "{" not in text.replace("{group: weight}", "")


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("method", ["fit", "predict", "score"])
def test_methods_list_theirs(kind: Any, method: str) -> None:
    text = inspect.getdoc(getattr(kind, method))
    for name in list(inspect.signature(getattr(kind, method)).parameters)[1:]:
        assert re.search(rf"^{name} : \S", text, flags=re.MULTILINE), name
