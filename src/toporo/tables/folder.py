"""Model folders: ``model.json`` and ``weights.safetensors``, whole or not at all, and nothing in them is executed.

``model.json`` says what was fitted to what: the schema's version, the training table's columns, the preprocessing, the
settings, the groups with their weights, the topology, and the checksum of the weights; its own checksum is that of its
content without the checksum itself. Checksums find damage and hasty edits. They are no signature: whoever can write the
folder can make them agree.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toporo.data.encode import Encoder
from toporo.errors import DataError, SettingError, TopoRoError, UnsafeFileError
from toporo.tables.model import ROLES, TASKS, ColumnInfo, TableModel
from toporo.topology.graph import GroupGraph

SCHEMA = "toporo.model/1"
_KIND, _, _VERSION = SCHEMA.partition("/")
MANIFEST, WEIGHTS = "model.json", "weights.safetensors"


def save_model(model: TableModel, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a model folder; one that is there is replaced only if ``overwrite`` says so."""
    from safetensors.numpy import save

    from toporo import __version__
    from toporo.estimators.state import dump_state

    target = _place(folder)
    check_target(target, overwrite=overwrite)
    content, arrays = dump_state(model.estimator)
    weights = save(arrays)
    manifest = {
        "schema": SCHEMA,
        "toporo": __version__,
        "task": model.task,
        "target": model.target,
        "group": model.group,
        "weight": model.weight,
        "test_groups": list(model.test_groups),
        "columns": [asdict(column) for column in model.columns],
        "preprocessing": model.encoder.to_dict(),
        "estimator": content,
        "graph": None if model.graph is None else json.loads(model.graph.to_json()),
        "about": model.about,
        "files": {WEIGHTS: hashlib.sha256(weights).hexdigest()},
    }
    manifest["checksum"] = _checksum(manifest)
    text = _as_json(manifest)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.mkdir()
        (part / WEIGHTS).write_bytes(weights)
        (part / MANIFEST).write_text(text + "\n", encoding="utf-8", newline="\n")
        _swap(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _place(folder: str | os.PathLike[str]) -> Path:
    """Where a folder really is: a link to one stays, and what it points to is replaced."""
    return Path(os.path.realpath(folder)) if Path(folder).is_dir() else Path(folder)


def _as_json(manifest: dict[str, Any]) -> str:
    try:
        text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"a name holds {error.object[error.start]!r}, which is no text: correct it.") from None
    except ValueError:
        raise DataError(
            "the model holds numbers that are not finite, so that it would predict nothing: are there values in the "
            "table that are beyond all measure? It was not written."
        ) from None
    return text


def check_target(target: Path, *, overwrite: bool) -> None:
    """Whether a model may be written there; best asked before the work of fitting one."""
    if target.is_symlink() and not target.exists():
        raise SettingError(f"{target} is a link to nowhere: remove it, or choose another name.")
    place = _place(target).absolute()
    if Path.cwd().is_relative_to(place):
        raise SettingError(f"{target} is the folder you are in, which cannot be replaced: give the name of another.")
    above = next(folder for folder in place.parents if folder.exists())
    if not above.is_dir():
        raise SettingError(f"{target} cannot be made: {above} is a file. Choose another name.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise SettingError(f"{target} cannot be made: the folder {above} may not be written to. Choose another.")
    if not target.exists():
        return
    if not target.is_dir():
        raise SettingError(f"{target} is a file: expected the name of a folder to make.")
    found = sorted(path.name for path in target.iterdir())
    if found and MANIFEST not in found:
        raise SettingError(
            f"the folder {target} holds other things ({', '.join(found[:4])}{', …' if len(found) > 4 else ''}): choose "
            "a name that is free."
        )
    strange = [name for name in found if name not in (MANIFEST, WEIGHTS)]
    if strange:
        raise SettingError(
            f"the model folder {target} also holds {', '.join(map(repr, strange[:4]))}, which would be lost: move it, "
            "or choose another name."
        )
    if found and not overwrite:
        raise SettingError(
            f"there is a model in {target} already: choose another name, or replace it with --overwrite "
            "(overwrite=True)."
        )


def load_model(folder: str | os.PathLike[str]) -> TableModel:
    """Read a model folder. One that is damaged, altered or of a newer toporo is refused; nothing in it is executed."""
    place = Path(folder)
    manifest = _manifest(place)
    try:
        return _model(manifest, _weights(place, manifest))
    except UnsafeFileError:
        raise
    except (TopoRoError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = str(error) if isinstance(error, TopoRoError) else f"{type(error).__name__}: {error}"
        raise DataError(f"the model in {place} cannot be read: {reason}") from None


def _manifest(place: Path) -> dict[str, Any]:
    file = place / MANIFEST
    if not place.is_dir() or not file.is_file():
        found = "there is no such folder" if not place.exists() else f"it has no {MANIFEST}"
        if place.is_file():
            found = "it is a file. The model comes first, then the table"
        raise DataError(
            f"{place} is not a model folder: {found}. Expected a folder written by `toporo fit … --out FOLDER`."
        )
    try:
        content = json.loads(_read(file).decode())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UnsafeFileError(
            f"{file} is not valid JSON ({type(error).__name__}): the model is damaged. Fit it again, or copy it anew."
        ) from None
    _check_schema(content, file)
    if content.get("checksum") != _checksum(content):
        raise UnsafeFileError(
            f"{file} does not match its checksum: it was changed after it was written, or damaged. Nothing was loaded. "
            "Fit the model again, or copy it anew."
        )
    return dict(content)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}.") from None


def _check_schema(content: Any, file: Path) -> None:
    schema = content.get("schema") if isinstance(content, dict) else None
    kind, _, version = str(schema).partition("/")
    if kind != _KIND or not (version.isascii() and version.isdigit() and len(version) < 10):
        raise UnsafeFileError(f"{file} is not a toporo model: expected schema {SCHEMA!r}, found {schema!r}.")
    if int(version) > int(_VERSION):
        raise UnsafeFileError(
            f"{file} was written by a newer toporo ({content.get('toporo')}, schema {schema!r}); this one reads up to "
            f"{SCHEMA!r}. Upgrade toporo, or fit the model again."
        )


def _weights(place: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    file, known = place / WEIGHTS, manifest["files"][WEIGHTS]
    if not file.is_file():
        raise UnsafeFileError(f"{place} lacks {WEIGHTS}: the model is incomplete. Fit it again, or copy it anew.")
    content = _read(file)
    if hashlib.sha256(content).hexdigest() != known:
        raise UnsafeFileError(
            f"{file} does not match the checksum in {MANIFEST}: it was changed after it was written, or damaged. "
            "Nothing was loaded. Fit the model again, or copy it anew."
        )
    try:
        return dict(load(content))
    except SafetensorError as error:
        raise UnsafeFileError(f"{file} is not a safetensors file ({error}).") from None


def _model(manifest: Mapping[str, Any], arrays: dict[str, Any]) -> TableModel:
    from toporo.estimators.state import load_state

    if manifest["task"] not in TASKS:
        raise DataError(f"unknown task {manifest['task']!r}.")
    columns = tuple(ColumnInfo(**{key: str(value) for key, value in column.items()}) for column in manifest["columns"])
    strange = [column.role for column in columns if column.role not in ROLES]
    if strange:
        raise DataError(f"unknown role {strange[0]!r} of a column.")
    graph, encoder = manifest["graph"], Encoder.from_dict(manifest["preprocessing"])
    estimator = load_state(manifest["estimator"], arrays)
    if estimator.n_features_in_ != len(encoder.names):
        raise DataError(
            f"the preprocessing gives {len(encoder.names)} inputs, the model takes {estimator.n_features_in_}."
        )
    return TableModel(
        estimator=estimator,
        encoder=encoder,
        task=manifest["task"],
        target=str(manifest["target"]),
        group=str(manifest["group"]),
        weight=None if manifest["weight"] is None else str(manifest["weight"]),
        graph=None if graph is None else GroupGraph.from_json(json.dumps(graph)),
        test_groups=tuple(map(str, manifest["test_groups"])),
        columns=columns,
        about=dict(manifest["about"]),
    )


def _checksum(manifest: Mapping[str, Any]) -> str:
    """Of the content in canonical form, so that an editor's line ends and indentation do not matter."""
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _swap(part: Path, target: Path) -> None:
    """Put a finished folder in its place; the old one is there until the new one is."""
    if not target.exists():
        part.rename(target)
        return
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    target.rename(old)
    try:
        part.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
