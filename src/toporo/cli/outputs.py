"""Files that commands write: checked before the work, their kind chosen by the suffix."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from os.path import realpath  # unlike Path.resolve, it bears links in a loop
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toporo.errors import SettingError, warn
from toporo.files import write_whole
from toporo.text import is_address

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Kinds of pictures, with what keeps the time of writing out of each.
PICTURES: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
PAGES = ("html", "htm")


def outputs(
    given: Sequence[Path] | None, kinds: Mapping[str, Iterable[str]], *, data: str = "-", models: Iterable[Path] = ()
) -> dict[str, Path]:
    """Return the files of ``--out`` by what they hold, or raise an error before the work if one cannot be written.

    Parameters
    ----------
    given : the files, at most one of each kind.
    kinds : what a file may hold, each with the suffixes that ask for it, without the dot.
    data : the table, which no file may overwrite.
    models : model folders, in which no file may lie.
    """
    by_suffix = {suffix: kind for kind, suffixes in kinds.items() for suffix in suffixes}
    chosen: dict[str, Path] = {}
    for path in given or ():
        kind = by_suffix.get(path.suffix.lower().removeprefix("."))
        if kind is None:
            expected = ", ".join(f".{suffix}" for suffix in by_suffix)
            raise SettingError(f"--out {path}: expected a name that ends in {expected}.")
        if kind in chosen:
            raise SettingError(f"--out {path}: the {kind} goes to {chosen[kind]} already. Give one file of that kind.")
        chosen[kind] = path
    for path in chosen.values():
        check_writable(data, {"--out": path})
        for model in models:
            if Path(realpath(path)).parent == Path(realpath(model)):
                raise SettingError(f"--out {path} is in the folder of the model: choose a place of its own.")
    return chosen


def check_writable(data: str, wanted: Mapping[str, Path | None]) -> None:
    """Raise before the work if a file cannot be written.

    Parameters
    ----------
    data : the table, which no file may overwrite.
    wanted : files by flag.
    """
    taken = {} if data == "-" or is_address(data) else {realpath(data): "the table itself"}
    for flag, path in wanted.items():
        if path is None:
            continue
        if not path.parent.is_dir():
            raise SettingError(f"{flag} {path}: there is no folder {path.parent}. Make it first, or choose another.")
        if path.exists() and not path.is_file():
            raise SettingError(f"{flag} {path}: that is not a plain file. Give the name of one.")
        if not os.access(path.parent, os.W_OK):
            raise SettingError(f"{flag} {path}: the folder {path.parent} may not be written to. Choose another.")
        if Path(data).is_dir() and Path(realpath(path)).is_relative_to(realpath(data)):
            raise SettingError(f"{flag} {path} is in the folder of the table: choose a place of its own.")
        other = taken.setdefault(realpath(path), flag)
        if other != flag:
            raise SettingError(f"{flag} {path} is {other}: give every file a name of its own.")


def write_picture(path: Path, draw: Callable[[], Figure]) -> None:
    """Draw a figure and write it in the form its name asks for; the same bytes every time."""
    import matplotlib as mpl

    kind = path.suffix.lower().removeprefix(".")
    signs = "the picture's font lacks signs that are in names: they are drawn as boxes."
    with (
        mpl.rc_context({"svg.hashsalt": "toporo", "text.parse_math": False}),  # a dollar in a name is one
        warnings.catch_warnings(record=True) as met,
    ):
        warnings.simplefilter("always")
        figure = draw()
        write_whole(path, lambda stream: figure.savefig(stream, format=kind, dpi=150, metadata=PICTURES[kind]))
    for message in dict.fromkeys(signs if "Glyph" in str(one.message) else str(one.message) for one in met):
        warn(message)


def graph_figure(draw: Callable[[Axes], object], groups: int) -> Figure:
    """A figure whose size suits so many groups, its axes filled by ``draw``."""
    from matplotlib.figure import Figure

    side = min(14.0, max(5.0, 1.5 * groups**0.5))
    figure = Figure(figsize=(1.2 * side, side), layout="constrained")
    ax = figure.subplots()
    draw(ax)
    if ax.get_aspect() != "auto" and ax.dataLim.width > 0:  # a map is as high as it is, for its width
        figure.set_figheight(min(side, max(0.5 * side, 1.3 * side * ax.dataLim.height / ax.dataLim.width)))
    return figure
