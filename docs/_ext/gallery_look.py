"""How the gallery looks: its order, and matplotlib's settings, the same for every example."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from cycler import cycler

#: What to look at first; whatever is not named comes after these, by name.
ORDER = (
    "states_prior_map", "own_training_loop", "topology_from_table", "worst_mixture_simplex", "weights_over_penalty",
    "league_of_auto", "compare_candidates", "error_by_hops", "intervals_coverage", "reach_of_rows",
    "kriged_coefficients", "region_folds", "penalty_choice", "losses_by_group", "distance_matrix", "borders_to_prior",
    "exact_linear", "table_to_report", "scikit_learn", "compare_methods", "own_dataloader", "joint_topology", "images",
    "flood_tiles", "ddp", "fsdp", "lightning_module", "hf_trainer",
)  # fmt: skip
#: Okabe and Ito's colours, told apart by the colour-blind too.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b7280")


class Order:
    """Key by which sphinx-gallery sorts files."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, file: str) -> tuple[int, str]:
        name = file.removesuffix(".py")
        return (ORDER.index(name) if name in ORDER else len(ORDER), name)

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
