"""``help()`` of a public class teaches: every parameter with its meaning."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import toporo as tr

ESTIMATORS = (tr.TROClassifier, tr.TRORegressor, tr.GroupDROClassifier, tr.GroupDRORegressor)


@pytest.mark.parametrize("kind", [*ESTIMATORS, tr.Net, tr.Radius, tr.GraphHopSplit, tr.LeaveRegionOut])
def test_every_parameter_is_listed(kind: Any) -> None:
    text = inspect.getdoc(kind)
    for name in inspect.signature(kind).parameters:
        assert re.search(rf"^([a-z_]+, )*{name}(, [a-z_]+)* : \S", text, flags=re.MULTILINE), name


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("method", ["fit", "predict", "score"])
def test_methods_list_theirs(kind: Any, method: str) -> None:
    text = inspect.getdoc(getattr(kind, method))
    for name in list(inspect.signature(getattr(kind, method)).parameters)[1:]:
        assert re.search(rf"^{name} : \S", text, flags=re.MULTILINE), name
