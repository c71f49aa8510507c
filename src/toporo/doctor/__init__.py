"""What is wrong or risky about a table before training on it.

:func:`examine` runs every check of :data:`~toporo.doctor.diagnose.CHECKS` and gives a :class:`Diagnosis`.
"""

from __future__ import annotations

from toporo.doctor.diagnose import CHECKS, examine
from toporo.doctor.results import SEVERITIES, Diagnosis, Distances, Finding, GroupSummary, Separability

__all__ = [
    "CHECKS",
    "SEVERITIES",
    "Diagnosis",
    "Distances",
    "Finding",
    "GroupSummary",
    "Separability",
    "examine",
]
