"""How the gallery looks: its order, and matplotlib's settings, the same for every example."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler

INDEX = Path(__file__).parents[1] / "README.md"
#: Files of examples in the order in which the index of the documentation links to them; a test wants all of them there.
ORDER = re.findall(r"\]\(\.\./examples/(\w+\.py)\)", INDEX.read_text(encoding="utf-8"))
#: Okabe and Ito's colours, told apart by the colour-blind too.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b7280")


class Order:
    """Key by which sphinx-gallery sorts files."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, file: str) -> int:
        return ORDER.index(file)

    def __repr__(self) -> str:
        return f"<Order {self.folder}>"


def reset(gallery_conf: dict[str, Any], file: str | None) -> None:  # noqa: ARG001  # sphinx-gallery's signature
    """Before every example."""
    mpl.rcdefaults()
    mpl.use("agg")
    mpl.rcParams.update(
        {
            "axes.prop_cycle": cycler(color=COLORS),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "font.size": 10,
            "legend.frameon": False,
        }
    )
