"""Model folders: what is written is what is read, whole or not at all; what was altered is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tables.cases import RIVER, floods, river
from toporo.errors import DataError, SettingError, TopoRoError, UnsafeFileError
from toporo.tables import TableModel, fit_table, load_model
from toporo.tables import folder as folders


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fit_table(river(), target="y", group="station", graph=RIVER, test_groups=["mouth"], penalty=0.5)


@pytest.fixture
def saved(model: TableModel, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder: Path, **changes: Any) -> None:
    """Change the manifest and make its checksum agree again, as someone who means it would."""
    content = json.loads((folder / "model.json").read_text(encoding="utf-8")) | changes
    content["checksum"] = folders._checksum(content)
    (folder / "model.json").write_text(json.dumps(content), encoding="utf-8")


def test_a_saved_model_predicts_explains_and_judges_the_same(model: TableModel, saved: Path) -> None:
    again = load_model(saved)
    table = river(seed=7)
    assert np.array_equal(again.predict(table), model.predict(table))
    assert str(again.explain()) == str(model.explain())
    assert again.evaluate(table).to_dict() == model.evaluate(table).to_dict()
    for name in ("task", "target", "group", "weight", "test_groups", "columns", "about", "graph"):
        assert getattr(again, name) == getattr(model, name), name


def test_classes_survive(tmp_path: Path) -> None:
    model = fit_table(floods(), target="flood", group="station", penalty=1.0)
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.classes == ("no", "yes")
    assert np.array_equal(again.predict_proba(floods(3)), model.predict_proba(floods(3)))
    assert set(again.predict(floods(3))) <= {"no", "yes"}


def test_a_network_survives(tmp_path: Path) -> None:
    model = fit_table(river(), target="y", group="station", model="mlp", epochs=2, hidden=(4,))
    model.save(tmp_path / "m")
    assert np.array_equal(load_model(tmp_path / "m").predict(river(3)), model.predict(river(3)))


def test_the_same_fit_writes_the_same_bytes(model: TableModel, saved: Path, tmp_path: Path) -> None:
    again = fit_table(river(), target="y", group="station", graph=RIVER, test_groups=["mouth"], penalty=0.5)
    again.save(tmp_path / "again")
    for file in ("model.json", "weights.safetensors"):
        assert (saved / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_a_folder_holds_json_and_safetensors_and_nothing_else(saved: Path) -> None:
    assert sorted(path.name for path in saved.iterdir()) == ["model.json", "weights.safetensors"]
    content = json.loads((saved / "model.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert content["schema"] == "toporo.model/1"
    assert {column["name"]: column["kind"] for column in content["columns"]} == {
        "station": "text", "x": "number", "depth": "number", "bed": "text", "y": "number",
    }  # fmt: skip
    digest = hashlib.sha256((saved / "weights.safetensors").read_bytes()).hexdigest()
    assert content["files"] == {"weights.safetensors": digest}


def test_an_editor_that_indents_anew_does_no_harm(saved: Path, model: TableModel) -> None:
    content = json.loads((saved / "model.json").read_text(encoding="utf-8"))
    (saved / "model.json").write_text(json.dumps(content, indent=4), encoding="utf-8")
    assert np.array_equal(load_model(saved).predict(river(3)), model.predict(river(3)))


# ---------------------------------------------------------------- altered, damaged, newer


@pytest.mark.parametrize("key", ["task", "target", "group", "preprocessing", "estimator", "columns", "graph", "files"])
def test_an_altered_manifest_is_refused(saved: Path, key: str) -> None:
    content = json.loads((saved / "model.json").read_text(encoding="utf-8"))
    content[key] = {"altered": True}
    (saved / "model.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UnsafeFileError, match="does not match its checksum"):
        load_model(saved)


def test_altered_weights_are_refused(saved: Path) -> None:
    content = bytearray((saved / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (saved / "weights.safetensors").write_bytes(content)
    with pytest.raises(UnsafeFileError, match=r"weights\.safetensors does not match the checksum"):
        load_model(saved)


def test_a_newer_schema_is_refused_with_its_version(saved: Path) -> None:
    rewrite(saved, schema="toporo.model/2", toporo="9.9")
    with pytest.raises(UnsafeFileError, match=r"newer toporo \(9\.9, schema 'toporo\.model/2'\).*Upgrade"):
        load_model(saved)


def test_another_schema_is_refused(saved: Path) -> None:
    rewrite(saved, schema="other.thing/1")
    with pytest.raises(UnsafeFileError, match="not a toporo model"):
        load_model(saved)


@pytest.mark.parametrize("text", ["", "{", "[1]", "nul\0", '{"schema": "toporo.model/1"}', "[" * 100_000])
def test_a_damaged_manifest_is_refused(saved: Path, text: str) -> None:
    (saved / "model.json").write_text(text, encoding="utf-8")
    with pytest.raises(TopoRoError):
        load_model(saved)


def test_a_lost_file_is_named(saved: Path, tmp_path: Path) -> None:
    (saved / "weights.safetensors").unlink()
    with pytest.raises(UnsafeFileError, match=r"lacks weights\.safetensors"):
        load_model(saved)
    (saved / "model.json").unlink()
    with pytest.raises(DataError, match=r"has no model\.json"):
        load_model(saved)
    with pytest.raises(DataError, match="no such folder"):
        load_model(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "guessing"},
        {"estimator": {}},
        {"estimator": None},
        {"preprocessing": {}},
        {"preprocessing": []},
        {"columns": [{"name": "x"}]},
        {"columns": [{"name": "x", "role": "boss", "kind": "number", "note": ""}]},
        {"columns": 3},
        {"graph": {"schema": "other"}},
        {"about": 3},
        {"files": {}},
        {"test_groups": None},
    ],
)
def test_nonsense_under_a_right_checksum_is_an_error_and_no_traceback(saved: Path, changes: dict[str, Any]) -> None:
    rewrite(saved, **changes)
    with pytest.raises(TopoRoError):
        load_model(saved)


def test_weights_that_are_a_pickle_are_never_opened(saved: Path, tmp_path: Path) -> None:
    import pickle

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "executed"),)

    content = pickle.dumps(Trap())
    (saved / "weights.safetensors").write_bytes(content)
    rewrite(saved, files={"weights.safetensors": hashlib.sha256(content).hexdigest()})
    with pytest.raises(UnsafeFileError, match="not a safetensors file"):
        load_model(saved)
    assert not (tmp_path / "executed").exists()


# ---------------------------------------------------------------- where it may be written


def test_a_model_is_replaced_only_when_asked(model: TableModel, saved: Path) -> None:
    before = (saved / "model.json").read_bytes()
    other = fit_table(river(5), target="y", group="station", penalty=2.0)
    with pytest.raises(SettingError, match="--overwrite"):
        other.save(saved)
    assert (saved / "model.json").read_bytes() == before
    other.save(saved, overwrite=True)
    assert np.array_equal(load_model(saved).predict(river(3)), other.predict(river(3)))
    assert [path.name for path in saved.parent.iterdir()] == ["model"], "nothing temporary is left"


def test_a_folder_of_other_things_is_never_replaced(model: TableModel, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(SettingError, match=r"holds other things \(thesis\.txt\)"):
        model.save(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_model_folder_with_something_added_is_never_replaced(model: TableModel, saved: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(SettingError, match=r"also holds 'notes\.txt'"):
        model.save(saved, overwrite=True)


def test_a_file_in_the_way_is_an_error(model: TableModel, tmp_path: Path) -> None:
    (tmp_path / "model").write_text("a file")
    with pytest.raises(SettingError, match="is a file"):
        model.save(tmp_path / "model")


def test_a_failure_while_writing_leaves_the_old_model(
    model: TableModel, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space left"):
        model.save(saved, overwrite=True)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_a_copied_folder_is_as_good(saved: Path, model: TableModel, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "elsewhere")
    assert np.array_equal(load_model(tmp_path / "elsewhere").predict(river(3)), model.predict(river(3)))
