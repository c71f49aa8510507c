"""Files as a stranger may write them: JSON with values swapped, lost, doubled, nested; checksums made to agree."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from toporo.tables import folder as folders

#: Written as what Python's own json refuses to write: 5 000 digits, lists within lists.
TEXTS = {"@digits@": "9" * 5000, "@deep@": "[" * 100 + "]" * 100, "@deeper@": "[" * 900 + "]" * 900}
TEXTS["@deepest@"] = "[" * 100_000


ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 0.5, -0.5, -0.0, 1e-320, 1e-9, 1e9, 1e100, 1e308, -1e308, math.nan),
    *(math.inf, -math.inf, 2**31, 10**9, 2**53, 2**63, 10**19, 10**400, -(10**400), *TEXTS),
    *("", " ", "a", "inf", "nan", "0", "1e400", "lower", "learn", "given", "auto", "number", "date", "text", "mlp"),
    *("linear", "x" * 5000, "[/b]", "$x^{", "\ud800", "a\0b\x1b[31m\n", "<b>é数</b>", "../../x", "=1+1"),
    *([], {}, [[]], [None], [0, 0], ["a", "a"], {"tuple": []}, {"tuple": ["a", 1]}, {"": 0}),
    *(["lower", "upper"], [1, 2, 3], [1e308, -1e308], list(range(300)), {"weights": [["a", 1.0]]}, {"prior": {}}),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value within another."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def forged(content: Any, random: Random) -> tuple[Any, str]:
    """A copy with a few changes, and where the last of them is, for whoever counts."""
    content = copy.deepcopy(content)
    where = ""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        ways = list(places(content))
        if not ways:
            break
        *way, key = random.choice(ways)
        holder = reduce(lambda inner, step: inner[step], way, content)
        where = (
            f"{'.'.join('*' if isinstance(step, int) else step for step in (*way, key))} {_change(holder, key, random)}"
        )
    return content, where


def _change(holder: Any, key: Any, random: Random) -> str:
    kind = random.choice(("odd", "odd", "odd", "odd", "scaled", "lost", "doubled", "other", "more", "shuffled"))
    value = holder[key]
    if kind == "scaled" and isinstance(value, int | float):
        factor = random.choice((-1, 0, 1e-300, 1e300, 1 + 1e-9, 2, 1000))
        holder[key] = value * factor
        return f"times {factor}"
    if kind == "lost":
        del holder[key]
    elif kind == "doubled" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(value))
    elif kind == "other":
        holder[key] = copy.deepcopy(random.choice(list(holder.values() if isinstance(holder, dict) else holder)))
    elif kind == "more" and isinstance(holder, dict):
        holder[random.choice(("more", "schema", "", "x", "kind"))] = copy.deepcopy(value)
    elif kind == "shuffled" and isinstance(value, list):
        random.shuffle(value)
    else:
        holder[key] = odd = copy.deepcopy(random.choice(ODD))
        return f"is {repr(odd)[:20]}" if not isinstance(odd, int) or abs(odd) < 10**20 else "is huge"
    return kind


def text_of(content: Any) -> str:
    """As JSON."""
    text = json.dumps(content)
    for mark, meant in TEXTS.items():
        text = text.replace(f'"{mark}"', meant)
    return text


def forged_arrays(arrays: dict[str, Any], random: Random) -> dict[str, Any]:
    """Tensors with another shape, another type, or numbers that are none."""
    name = random.choice(sorted(arrays))
    array = arrays[name]
    changes: list[Callable[[], Any]] = [
        lambda: array.astype(random.choice(("float32", "int64", "bool", "float16"))),
        lambda: array.reshape(-1)[:0],
        lambda: array.reshape(1, *array.shape),
        lambda: np.zeros((2, 0, 3)),
        lambda: np.float64(3.0).reshape(()),
        lambda: array * random.choice((-1, 0, 1e-320, 1e-200, 1e200, 1e308, math.nan, math.inf)),
        lambda: np.concatenate([array, array]),
    ]
    with np.errstate(all="ignore"):
        return arrays | {random.choice((name, name, name, "more")): np.ascontiguousarray(random.choice(changes)())}


def forge_folder(folder: Path, content: dict[str, Any], arrays: dict[str, Any] | None = None) -> None:
    """Write a manifest over that of a model folder, and weights beside it, with checksums that agree."""
    if arrays is not None:
        weights = save(arrays)
        name = folders.WEIGHTS[0]
        (folder / name).write_bytes(weights)
        content = content | {"files": {name: hashlib.sha256(weights).hexdigest()}}
    with suppress(ValueError, RecursionError):
        content = content | {"checksum": folders._checksum(json.loads(text_of(content)))}
    (folder / "model.json").write_text(text_of(content), encoding="utf-8")


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Manifest and weights, as they are."""
    content = json.loads((folder / "model.json").read_bytes())
    return content, load((folder / folders.WEIGHTS[0]).read_bytes())
