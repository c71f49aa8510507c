"""Model folders: what is written is what is read, whole or not at all; what was altered is refused."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from tests.tables.cases import RIVER, floods, river
from toporo import files
from toporo.errors import DataError, SettingError, TopoRoError, TopoRoWarning, UnsafeFileError
from toporo.estimators import RobustRegressor
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


@pytest.mark.parametrize("layout", [np.transpose, np.asfortranarray, lambda a: a[:, ::2], lambda a: a[::-1], np.sum])
def test_arrays_survive_in_any_layout(layout: Callable[[Any], Any], tmp_path: Path) -> None:
    """Alone, safetensors writes the bytes of an array in the order of memory."""
    array = np.asarray(layout(np.arange(12.0).reshape(3, 4)))
    folders.write_folder(tmp_path / "model", {}, {"weights": array}, overwrite=False)
    again = folders.read_folder(tmp_path / "model")[1]()["weights"]
    assert again.shape == array.shape
    assert np.array_equal(again, array)


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


def test_an_estimator_that_fits_no_table_is_refused(model: TableModel, tmp_path: Path) -> None:
    inputs = model.estimator.n_features_in_
    trees = RobustRegressor(HistGradientBoostingRegressor(max_iter=2)).fit(
        np.random.default_rng(0).normal(size=(60, inputs)), np.arange(60.0), groups=["a", "b"] * 30
    )
    replace(model, estimator=trees).save(tmp_path / "m")
    with pytest.raises(DataError, match="a RobustRegressor is no model of a table"):
        load_model(tmp_path / "m")


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


def test_what_a_user_put_beside_a_model_stays(model: TableModel, saved: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    model.save(saved, overwrite=True)
    assert (saved / "notes.txt").read_text() == "mine"
    load_model(saved)


def test_a_file_in_the_way_is_an_error(model: TableModel, tmp_path: Path) -> None:
    (tmp_path / "model").write_text("a file")
    with pytest.raises(SettingError, match="is a file"):
        model.save(tmp_path / "model")


#: What a save does with the file system, in the order of its first time: where each is called.
EVENTS = {"open": (os, "open"), "write": (files, "open"), "fsync": (os, "fsync"), "replace": (Path, "replace")}


@pytest.mark.parametrize("old", [True, False], ids=["a model", "nothing"])
@pytest.mark.parametrize("event", EVENTS)
def test_a_full_disk_leaves_what_was_there(
    model: TableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool, event: str
) -> None:
    """At every event of its kind, one after the other; what only flushes a name may fail."""
    target = tmp_path / "model"
    if old:
        fit_table(river(5), target="y", group="station", penalty=2.0).save(target)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    place, name = EVENTS[event]
    usual = getattr(place, name, open)
    for which in range(1, 100):
        calls = -which

        def full(*arguments: Any, **settings: Any) -> Any:
            nonlocal calls
            folder = event == "open" and not arguments[1] & os.O_CREAT
            calls += not (folder or (event == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)))
            if calls == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return usual(*arguments, **settings)

        with monkeypatch.context() as patch, suppress(OSError):
            patch.setattr(place, name, full, raising=False)
            model.save(target, overwrite=True)
            break
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before, which
        assert target.exists() == old
    assert which == 3, "two files, hence two events"
    assert np.array_equal(load_model(target).predict(river(3)), model.predict(river(3)))


def test_an_overwrite_that_was_killed_is_no_obstacle(model: TableModel, saved: Path) -> None:
    """Before the new manifest is in its place, the old model is; what is left is gone after the next save."""
    (saved / "weights-2.safetensors").write_bytes(b"new")
    (saved / ".model.json.01ab.part").write_bytes(b"{")
    load_model(saved)
    model.save(saved, overwrite=True)
    assert sorted(path.name for path in saved.iterdir()) == ["model.json", "weights-2.safetensors"]


def test_a_first_save_that_was_killed_is_no_obstacle(model: TableModel, tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "weights.safetensors").write_bytes(b"new")
    with pytest.raises(SettingError, match="holds other things"):
        model.save(target)  # these weights may be anyone's
    (target / ".model.json.01ab.part").write_bytes(b"{")
    model.save(target)
    load_model(target)


def test_what_an_earlier_version_left_is_found_again(model: TableModel, saved: Path) -> None:
    """It renamed the old model, then the new one: killed in between, there was none; its number may come again."""
    saved.rename(saved.with_name(f".model.{os.getpid()}.old"))
    shutil.copytree(saved.with_name(f".model.{os.getpid()}.old"), saved.with_name(".model.77.part"))
    with pytest.warns(TopoRoWarning, match="the model before is in its place again"):
        again = load_model(saved)
    assert np.array_equal(again.predict(river(3)), model.predict(river(3)))
    model.save(saved, overwrite=True)
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_readers_and_writers_of_one_folder_do_not_disturb_each_other(model: TableModel, saved: Path) -> None:
    models = [model, *(fit_table(river(seed), target="y", group="station", penalty=2.0) for seed in range(3))]
    right = {model.predict(river(3)).tobytes() for model in models}
    errors: list[BaseException] = []

    def repeat(work: Callable[[], object]) -> None:
        try:
            for _ in range(40):
                work()
        except BaseException as error:
            errors.append(error)

    def read() -> None:
        assert load_model(saved).predict(river(3)).tobytes() in right

    work = [partial(each.save, saved, overwrite=True) for each in models] + [read] * 4
    threads = [threading.Thread(target=repeat, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(list(saved.iterdir())) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="needs permissions of POSIX")
def test_a_private_model_stays_private(model: TableModel, saved: Path) -> None:
    (saved / "model.json").chmod(0o600)
    saved.chmod(0o711)
    model.save(saved, overwrite=True)
    assert {path.name: path.stat().st_mode & 0o777 for path in (saved, *saved.iterdir())} == {
        "model": 0o711, "model.json": 0o600, "weights-2.safetensors": 0o600,
    }  # fmt: skip


def test_a_copied_folder_is_as_good(saved: Path, model: TableModel, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "elsewhere")
    assert np.array_equal(load_model(tmp_path / "elsewhere").predict(river(3)), model.predict(river(3)))
