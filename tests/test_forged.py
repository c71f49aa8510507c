"""Model folders from a stranger: what is wrong with them is named, and what they declare takes no memory.

That any bytes give a value or an error of toporo is tested in ``test_fuzz.py``.
"""

from __future__ import annotations

import hashlib
import json
import tracemalloc
import warnings
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tests.tables.cases import RIVER, floods, river
from toporo.errors import TopoRoError
from toporo.tables import fit_table, load_model

#: Written as what Python's own json refuses to write: 5 000 digits, lists within lists.
TEXTS = {"@digits@": "9" * 5000, "@deep@": "[" * 100 + "]" * 100}


@pytest.fixture(scope="module")
def river_model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Saved models: with a chosen penalty, a network, and of classes."""
    folder, rows = tmp_path_factory.mktemp("forged"), river(0, 20)
    on_river = {"target": "y", "group": "station", "graph": [(*edge, 1.5) for edge in RIVER], "test_groups": ["mouth"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = {
            "chosen": fit_table(rows, **on_river, model="linear"),
            "network": fit_table(rows, **on_river, model="mlp", epochs=2, hidden=(4,)),
            "classes": fit_table(floods(), target="flood", group="station", penalty=1.0),
        }
    for name, model in models.items():
        model.save(folder / name)
    return {name: folder / name for name in models}


def forge(folder: Path, where: str, value: Any, out: Path) -> Path:
    """Copy a model folder with one value of its manifest changed, and a checksum that agrees."""
    content = json.loads((folder / "model.json").read_bytes())
    *way, key = (int(step) if step.isdigit() else step for step in where.split("."))
    reduce(lambda inner, step: inner[step], way, content)[key] = value
    text = json.dumps(content)
    for mark, meant in TEXTS.items():
        text = text.replace(f'"{mark}"', meant)
    try:
        content = json.loads(text)
        content.pop("checksum")
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        text = json.dumps(content | {"checksum": hashlib.sha256(canonical.encode()).hexdigest()})
    except (ValueError, RecursionError):
        pass  # not readable by Python's own json either
    out.mkdir()
    (out / "model.json").write_text(text, encoding="utf-8")
    (out / "weights.safetensors").write_bytes((folder / "weights.safetensors").read_bytes())
    return out


@pytest.mark.parametrize(
    ("model", "where", "value", "message"),
    [
        ("chosen", "graph.origin.details", [1, 2], "expected a mapping, found a list, at origin.details"),
        ("chosen", "graph.edges.0.2", 10**400, "a number is larger than 1.8e+308"),
        ("chosen", "about.rows", "@digits@", "Exceeds the limit"),
        ("chosen", "about.rows", "@deep@", "lists within lists, more than 64 levels"),
        ("chosen", "about.source", "\ud800", "is not text in UTF-8"),
        ("chosen", "columns.1.kind", "banana", "kind 'banana' of a column"),
        ("chosen", "task", "classification", "its task is classification, its estimator a TRORegressor"),
        ("chosen", "test_groups", ["moon"], "not in the graph: 'moon'"),
        ("chosen", "estimator.class", ["TRORegressor"], "its class: expected text, found a list"),
        ("chosen", "estimator.model.one_column", False, "it has several targets"),
        ("chosen", "estimator.model.settings.device", "cuda", "no such field, or it is missing: 'device'"),
        ("chosen", "estimator.model.fit.group_losses.0.1", "much", "expected a number, found text"),
        ("chosen", "estimator.model.fit.group_losses.0.1", 1.7e308, "not numbers from 0 to 1e307"),
        ("chosen", "estimator.model.groups.prior.saw_test_inputs", "inf", "expected true or false, found text"),
        ("chosen", "estimator.model.fit.choice.scores.0.score", -1.0, "the score of a penalty is -1.0"),
        ("network", "estimator.model.settings.network.hidden", 10**9, "expected a list, found a whole number"),
    ],
)
def test_a_forged_model_is_refused_with_the_reason(
    river_model: dict[str, Path], tmp_path: Path, model: str, where: str, value: Any, message: str
) -> None:
    with pytest.raises(TopoRoError) as caught:
        load_model(forge(river_model[model], where, value, tmp_path / "forged"))
    assert message in str(caught.value)


def test_a_declared_size_takes_no_memory(river_model: dict[str, Path], tmp_path: Path) -> None:
    """A thousand short classes of a type for long ones: a file of 20 KB that asked for 400 MB."""
    classes = {"type": "<U100000", "values": [f"{i}" for i in range(1000)]}
    folder = forge(river_model["classes"], "estimator.model.classes", classes, tmp_path / "forged")
    tracemalloc.start()
    with pytest.raises(TopoRoError, match="are not of type '<U100000'"):
        load_model(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
