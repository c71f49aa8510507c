"""What this process may use of the machine."""

from __future__ import annotations

import os


def cores() -> int:
    """The cores this process may run on, which under a batch system are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
