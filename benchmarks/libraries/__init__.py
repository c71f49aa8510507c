"""The packages that toporo is measured against: one file for each, called to compute the same thing."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / ".bench-peers"


def peers_folder() -> Path:
    """Return the folder of the peers: $TOPORO_BENCH_PEERS if set, else .bench-peers beside benchmarks/."""
    return Path(os.environ.get("TOPORO_BENCH_PEERS") or FOLDER).resolve()


def load(name: str) -> Any:
    """Import a peer, or end with what to do without it."""
    if str(peers_folder()) not in sys.path:
        sys.path.append(str(peers_folder()))
    try:
        return importlib.import_module(name)
    except ImportError:
        raise SystemExit(
            f"benchmarks: {name} not found in {peers_folder()}. Run `make bench`, which installs benchmarks/peers.txt "
            "there first, or set TOPORO_BENCH_PEERS to a folder that holds them."
        ) from None
