"""Checkpoints of a run: one safetensors file, tensors and JSON, nothing executable."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from toporo.errors import DataError
from toporo.files import write_whole
from toporo.types import Record

SCHEMA = "toporo.checkpoint/1"


def save_checkpoint(
    path: str | os.PathLike[str],
    *,
    model: nn.Module,
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
    about: dict[str, Any],
) -> None:
    """Write everything needed to go on exactly.

    Parameters
    ----------
    path : the file, replaced as a whole.
    model, objective, optimizer : whose state is kept.
    about : what else to know of the run, as JSON (its identity, its history).
    """
    tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
    tensors |= {f"objective.{key}": value for key, value in objective.state_dict().items()}
    plain: dict[str, dict[str, Any]] = {}
    for index, state in optimizer.state_dict()["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{key}"] = value
            else:
                plain.setdefault(str(index), {})[key] = value
    groups = [_plain_settings(group) for group in optimizer.state_dict()["param_groups"]]
    content = {
        "schema": SCHEMA,
        "about": json.dumps(about),
        "optimizer": json.dumps({"state": plain, "groups": groups}),
    }
    # Tensors that share memory are refused by the format; a checkpoint wants values, so copy.
    copies = {key: value.detach().cpu().clone().contiguous() for key, value in tensors.items()}
    write_whole(path, lambda temporary: temporary.write_bytes(save(copies, metadata=content)))


def load_checkpoint(
    path: str | os.PathLike[str],
    *,
    model: nn.Module,
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> dict[str, Any]:
    """Restore all three in place and return what :func:`save_checkpoint` was told ``about`` the run.

    A checkpoint that does not fit is an error and changes nothing.

    Parameters
    ----------
    path : the file.
    model, objective, optimizer : built as they were when it was written.
    """
    tensors, metadata = _read(Path(path))
    parts: tuple[Any, ...] = (model, objective, optimizer)
    before = [copy.deepcopy(part.state_dict()) for part in parts]
    try:
        model.load_state_dict(_part(tensors, "model."))
        objective.load_state_dict(_part(tensors, "objective."))
        stored = json.loads(metadata["optimizer"])
        state: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in stored["state"].items()}
        for key, value in _part(tensors, "optimizer.").items():
            index, name = key.split(".", 1)
            state.setdefault(int(index), {})[name] = value
        now = optimizer.state_dict()["param_groups"]
        groups = [group | _restored(earlier) for group, earlier in zip(now, stored["groups"], strict=True)]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        about: dict[str, Any] = json.loads(metadata["about"])
        return about
    except (KeyError, ValueError, RuntimeError) as error:
        for part, earlier in zip(parts, before, strict=True):
            part.load_state_dict(earlier)
        raise DataError(
            f"the checkpoint {path} belongs to another model, objective or optimiser ({error}). "
            "Delete it to start over, or go back to the settings it was made with."
        ) from None


def _plain_settings(group: dict[str, Any]) -> dict[str, Any]:
    """Learning rate and the like: what JSON can hold of a parameter group, tensors as numbers."""
    values = {key: value.item() if isinstance(value, Tensor) else value for key, value in group.items()}
    return {k: v for k, v in values.items() if k != "params" and isinstance(v, bool | int | float | str | tuple | None)}


def _restored(group: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in group.items()}


def read_about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint says about its run, without restoring anything."""
    about: dict[str, Any] = json.loads(_read(Path(path))[1]["about"])
    return about


def read_about_run(path: str | os.PathLike[str], identity: dict[str, Any]) -> dict[str, Any]:
    """The same, of a checkpoint of this very run; one of another run is an error that says what differs."""
    about = read_about(path)
    there: Record = about.get("run", {})
    none = object()
    other = [key for key in identity | there if identity.get(key, none) != there.get(key, none)]
    if other:
        told = ", ".join(f"{key}{_both(there.get(key), identity.get(key))}" for key in other)
        raise DataError(
            f"the checkpoint {path} is of another run: it differs in {told}. Delete it, or train with what it was made "
            "with."
        )
    return about


def _both(there: Any, here: Any) -> str:
    """The two values where a line has room for them: numbers and short texts."""
    short = all(isinstance(value, bool | int | float | str) and len(str(value)) <= 40 for value in (there, here))
    return f" ({there!r} there, {here!r} here)" if short else ""


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if not path.is_file():
        raise DataError(f"no such checkpoint: {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a dict
    except SafetensorError as error:
        raise DataError(f"{path} is not a readable checkpoint ({error}). Delete it to start over.") from None
    if metadata.get("schema") != SCHEMA:
        raise DataError(f"{path} has schema {metadata.get('schema')!r}, expected {SCHEMA!r}. Delete it to start over.")
    return tensors, metadata
