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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from toporo.errors import DataError, SettingError, UnsafeFileError
from toporo.version import __version__

Array = npt.NDArray[np.generic]

SCHEMA = "toporo.model/1"
_KIND, _, _VERSION = SCHEMA.partition("/")
MANIFEST, WEIGHTS = "model.json", "weights.safetensors"


def write_folder(
    folder: str | os.PathLike[str], content: Mapping[str, Any], arrays: Mapping[str, Array], *, overwrite: bool
) -> None:
    """Write ``content`` and ``arrays`` as a model folder; one that is there is replaced only if ``overwrite`` says so.

    The schema, the version and the checksums are added.
    """
    target = _place(folder)
    check_target(target, overwrite=overwrite)
    weights = save(dict(arrays))
    manifest = {"schema": SCHEMA, "toporo": __version__, **content}
    manifest["files"] = {WEIGHTS: hashlib.sha256(weights).hexdigest()}
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


def read_folder(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], Callable[[], dict[str, Array]]]:
    """The content of a model folder, and a function that reads its arrays; both are checked against their checksums."""
    place = Path(folder)
    content = _manifest(place)
    return content, lambda: _weights(place, content)


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
            "the model holds numbers that are not finite, so it would predict nothing: are there values in the table "
            "that are too large to use? It was not written."
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
    names = sorted(path.name for path in target.iterdir())
    if names and MANIFEST not in names:
        raise SettingError(
            f"the folder {target} holds other things ({', '.join(names[:4])}{', …' if len(names) > 4 else ''}): choose "
            "a name that is free."
        )
    strange = [name for name in names if name not in (MANIFEST, WEIGHTS)]
    if strange:
        raise SettingError(
            f"the model folder {target} also holds {', '.join(map(repr, strange[:4]))}, which would be lost: move it, "
            "or choose another name."
        )
    if names and not overwrite:
        raise SettingError(
            f"there is a model in {target} already: choose another name, or replace it with --overwrite "
            "(overwrite=True)."
        )


def _manifest(place: Path) -> dict[str, Any]:
    file = place / MANIFEST
    if not place.is_dir() or not file.is_file():
        why = "there is no such folder" if not place.exists() else f"it has no {MANIFEST}"
        if place.is_file():
            why = "it is a file. The model comes first, then the table"
        raise DataError(
            f"{place} is not a model folder: {why}. Expected a folder written by `toporo fit … --out FOLDER`."
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


def _weights(place: Path, manifest: Mapping[str, Any]) -> dict[str, Array]:
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


def _checksum(manifest: Mapping[str, Any]) -> str:
    """Of the content in canonical form: an editor's line ends and indentation do not matter."""
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
