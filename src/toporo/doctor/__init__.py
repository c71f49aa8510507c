"""Find what is wrong or risky about a table before training on it.

:func:`examine` runs every check of :data:`CHECKS` and gives a :class:`Diagnosis`.
"""

from __future__ import annotations

from toporo.doctor import columns, groups, leaks, target, unseen  # noqa: F401  # their checks
from toporo.doctor.case import CHECKS, check
from toporo.doctor.diagnose import examine
from toporo.doctor.results import SEVERITIES, Diagnosis, Distances, Finding, GroupSummary, Separability

__all__ = [
    "CHECKS",
    "SEVERITIES",
    "Diagnosis",
    "Distances",
    "Finding",
    "GroupSummary",
    "Separability",
    "check",
    "examine",
]
