"""Files that commands write: checked before the work, their kind chosen by the suffix."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from os.path import realpath  # unlike Path.resolve, it bears links in a loop
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toporo.errors import SettingError, warn
from toporo.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Kinds of pictures, with what keeps the time of writing out of each.
PICTURES: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
PAGES = ("html", "htm")


def outputs(given: Sequence[Path] | None, kinds: Mapping[str, Collection[str]], *taken: str | Path) -> dict[str, Path]:
    """Return the files of ``--out`` by what they hold, or raise an error before the work if one cannot be written.

    Parameters
    ----------
    given : the files, at most one of each kind.
    kinds : what a file may hold, each with the suffixes that ask for it, without the dot.
    taken : the table and model folders, which no file may replace or lie in.
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
        chosen[kind] = check_writable(path, *taken)
    return chosen


def check_writable(path: Path, *taken: str | Path) -> Path:
    """Return the path of a file to write, or raise an error if it cannot be written or is taken."""
    if not path.parent.is_dir():
        raise SettingError(f"--out {path}: there is no folder {path.parent}. Make it first, or choose another.")
    if path.exists() and not path.is_file():
        raise SettingError(f"--out {path}: that is not a plain file. Give the name of one.")
    if not os.access(path.parent, os.W_OK):
        raise SettingError(f"--out {path}: the folder {path.parent} may not be written to. Choose another.")
    for other in taken:
        if Path(realpath(path)).is_relative_to(realpath(other)):
            where = f"is in the folder {other}" if Path(other).is_dir() else "is the table itself"
            raise SettingError(f"--out {path} {where}: choose a place of its own.")
    return path


def check_folder(path: Path) -> None:
    """Raise an error before the work if a folder of results cannot be made or written to."""
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise SettingError(f"--out {path}: {above} is not a folder that may be written to. Choose another.")


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
    """Return a figure whose size suits so many groups, its axes filled by ``draw``."""
    from matplotlib.figure import Figure

    side = min(14.0, max(5.0, 1.5 * groups**0.5))
    figure = Figure(figsize=(1.2 * side, side), layout="constrained")
    ax = figure.subplots()
    draw(ax)
    if ax.get_aspect() != "auto" and ax.dataLim.width > 0:  # a map is as high as it is, for its width
        figure.set_figheight(min(side, max(0.5 * side, 1.3 * side * ax.dataLim.height / ax.dataLim.width)))
    return figure
