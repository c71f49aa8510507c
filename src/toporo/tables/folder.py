"""Model folders: ``model.json`` and the weights it names, whole or not at all, and nothing in them is executed.

``model.json`` says what was fitted to what: the schema's version, the training table's columns, the preprocessing, the
settings, the groups with their weights, the topology, and the name and checksum of the weights; its own checksum is
that of its content without the checksum itself. Checksums find damage and hasty edits. They are no signature: whoever
can write the folder can make them agree.

A model is replaced in one step, the renaming of ``model.json``: the weights of the new one lie beside those of the old
one by then, under the other of two names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from toporo.errors import DataError, SettingError, UnsafeFileError, warn
from toporo.files import locked, parse_json, replacing
from toporo.version import __version__

Array = npt.NDArray[np.generic]

SCHEMA = "toporo.model/1"
_KIND, _, _VERSION = SCHEMA.partition("/")
MANIFEST, WEIGHTS = "model.json", ("weights.safetensors", "weights-2.safetensors")
#: What a killed process leaves.
_PARTS = re.compile(rf"\.({'|'.join(map(re.escape, (MANIFEST, *WEIGHTS)))})\.[0-9a-f]+\.part")


def write_folder(
    folder: str | os.PathLike[str], content: Mapping[str, Any], arrays: Mapping[str, Array], *, overwrite: bool
) -> None:
    """Write ``content`` and ``arrays`` as a model folder; one that is there is replaced only if ``overwrite`` says so.

    The schema, the version and the checksums are added.
    """
    target = Path(folder)
    # Row by row, as it is read: the format takes an array's bytes as they lie in memory.
    weights = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    manifest = {"schema": SCHEMA, "toporo": __version__, **content}
    _as_json(manifest)  # what cannot be written is an error before anything is made
    check_target(target, overwrite=overwrite)
    new = not target.exists()
    with locked(target):
        check_target(target, overwrite=overwrite)  # another process may have been quicker
        name = next(name for name in WEIGHTS if name not in _names(target))
        manifest["files"] = {name: hashlib.sha256(weights).hexdigest()}
        manifest["checksum"] = _checksum(manifest)
        try:
            with replacing(target / MANIFEST) as stream:  # begun first: weights without a manifest are known by it
                stream.write(f"{_as_json(manifest)}\n".encode())
                stream.flush()
                with replacing(target / name, like=target / MANIFEST) as other:
                    other.write(weights)
        finally:
            _tidy(target, new=new)


def read_folder(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], Callable[[], dict[str, Array]]]:
    """The content of a model folder, and a function that gives its arrays; both are checked against their checksums."""
    place = Path(folder)
    _recover(place)
    content = _manifest(place)
    while True:
        file, digest = _named(content, place)
        try:
            weights = _read(file)
            if hashlib.sha256(weights).hexdigest() == digest:
                return content, partial(_arrays, weights, file)
            wrong = (
                f"{file} does not match the checksum in {MANIFEST}: it was changed after it was written, or damaged. "
                "Nothing was loaded. Fit the model again, or copy it anew."
            )
        except FileNotFoundError:
            wrong = f"{place} lacks {file.name}: the model is incomplete. Fit it again, or copy it anew."
        now = _manifest(place)
        if now["checksum"] == content["checksum"]:
            raise UnsafeFileError(wrong)
        content = now  # the model was replaced since we began


def _names(target: Path) -> list[str]:
    """The files that the manifest names, if it is one."""
    try:
        return list(json.loads((target / MANIFEST).read_bytes())["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _tidy(target: Path, *, new: bool) -> None:
    """Remove weights that the manifest does not name, and what killed processes left; a new folder that is empty."""
    with suppress(OSError):
        named = _names(target)
        if not named and (target / MANIFEST).exists():  # a damaged model, perhaps to be mended
            return
        for path in target.iterdir():
            if _PARTS.fullmatch(path.name) or (path.name in WEIGHTS and path.name not in named):
                path.unlink()
        for left in _older(target):
            shutil.rmtree(left)
        if new and not named:
            target.rmdir()


def _older(target: Path) -> list[Path]:
    """Folders that earlier versions left beside a model, if they were killed while they replaced it."""
    place = Path(os.path.realpath(target))
    name = re.compile(rf"\.{re.escape(place.name)}\.\d+\.(old|part)")
    beside = [path for path in place.parent.iterdir() if name.fullmatch(path.name)] if place.parent.is_dir() else []
    return [path for path in beside if path.is_dir() and {file.name for file in path.iterdir()} <= {MANIFEST, *WEIGHTS}]


def _recover(target: Path) -> None:
    """Where one of these is the only model there is, give it its name again."""
    place = Path(os.path.realpath(target))
    if place.exists():
        return
    whole = [path for path in _older(place) if path.suffix == ".old" and (path / MANIFEST).is_file()]
    if whole:
        with suppress(OSError):
            max(whole, key=lambda path: path.stat().st_mtime).rename(place)
            warn(f"{target} was missing, for its replacement was cut short: the model before is in its place again.")


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
    _recover(target)
    if target.is_symlink() and not target.exists():
        raise SettingError(f"{target} is a link to nowhere: remove it, or choose another name.")
    place = target.absolute()
    above = next(folder for folder in (place, *place.parents) if folder.exists())
    if not above.is_dir():
        if above == place:
            raise SettingError(f"{target} is a file: expected the name of a folder to make.")
        raise SettingError(f"{target} cannot be made: {above} is a file. Choose another name.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise SettingError(f"{target} cannot be made: the folder {above} may not be written to. Choose another.")
    if above != place:
        return
    everything = sorted(path.name for path in target.iterdir())
    names = [name for name in everything if not _PARTS.fullmatch(name)]
    cut_short = set(names) <= set(WEIGHTS) and any(name.startswith(f".{MANIFEST}.") for name in everything)
    if names and MANIFEST not in names and not cut_short:
        raise SettingError(
            f"the folder {target} holds other things ({', '.join(names[:4])}{', …' if len(names) > 4 else ''}): choose "
            "a name that is free."
        )
    if MANIFEST in names and not overwrite:
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
        content = parse_json(_read(file), file)
        checksum = _checksum(content) if isinstance(content, dict) else ""
    except (DataError, RecursionError) as error:
        why = str(error) if isinstance(error, DataError) else f"{file} is nested too deeply."
        raise UnsafeFileError(f"{why} The model is damaged: fit it again, or copy it anew.") from None
    _check_schema(content, file)
    if content.get("checksum") != checksum:
        raise UnsafeFileError(
            f"{file} does not match its checksum: it was changed after it was written, or damaged. Nothing was loaded. "
            "Fit the model again, or copy it anew."
        )
    return dict(content)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}.") from None


def _named(content: Mapping[str, Any], place: Path) -> tuple[Path, Any]:
    """The file of the weights and its checksum."""
    files = content.get("files")
    name, digest = next(iter(files.items())) if isinstance(files, dict) and len(files) == 1 else ("", None)
    if name not in WEIGHTS:
        raise UnsafeFileError(
            f"{place / MANIFEST} names no weights: expected one file such as weights.safetensors with its "
            "checksum. Fit the model again, or copy it anew."
        )
    return place / name, digest


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


def _arrays(weights: bytes, file: Path) -> dict[str, Array]:
    try:
        return dict(load(weights))
    except SafetensorError as error:
        raise UnsafeFileError(f"{file} is not a safetensors file ({error}).") from None


def _checksum(manifest: Mapping[str, Any]) -> str:
    """Of the content in canonical form: an editor's line ends and indentation do not matter."""
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
