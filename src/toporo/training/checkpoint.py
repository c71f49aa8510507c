"""Checkpoint files: tensors and JSON in one safetensors file with a checksum, and nothing executable."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from toporo.errors import DataError
from toporo.files import parse_json, write_whole
from toporo.types import Record

SCHEMA = "toporo.checkpoint/4"


def write_checkpoint(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], about: Record) -> None:
    """Write a checkpoint, replacing an earlier one as a whole.

    Parameters
    ----------
    path : the file.
    tensors : state, by name.
    about : JSON values that describe the run.
    """
    # The format refuses tensors that share memory; a checkpoint needs values, so copy.
    copies = {key: value.detach().cpu().clone().contiguous() for key, value in tensors.items()}
    text = json.dumps(about)
    packed = save(copies, metadata={"schema": SCHEMA, "checksum": _checksum(copies, text), "about": text})
    write_whole(path, lambda stream: stream.write(packed))


def read_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], Record]:
    """Return tensors and description of a checkpoint.

    Parameters
    ----------
    path : the file. A missing file raises :class:`FileNotFoundError`, a damaged one
        :class:`~toporo.errors.DataError`.
    """
    tensors, metadata = read_tensors(path)
    if metadata.get("schema") != SCHEMA:
        raise DataError(f"{path} has schema {metadata.get('schema')!r}, expected {SCHEMA!r}.")
    text = metadata.get("about", "")
    if metadata.get("checksum") != _checksum(tensors, text):
        raise DataError(f"{path} is damaged: its checksum does not match its content.")
    about: Record = parse_json(text, f"the description in {path}")
    return tensors, about


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors and metadata of a safetensors file, read at once, as another process may replace the file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118  # no dict
    except FileNotFoundError:
        raise
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise DataError(f"{path} is not a readable safetensors file ({str(error).partition(chr(10))[0]}).") from None


def _checksum(tensors: dict[str, Tensor], about: str) -> str:
    return hashlib.sha256(save(tensors) + about.encode()).hexdigest()
