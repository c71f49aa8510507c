"""The groups of a diagnosis as a table of text, for the terminal and the page alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from toporo.doctor.results import Diagnosis, GroupSummary
from toporo.doctor.words import percent


@dataclass(frozen=True)
class GroupTable:
    """Titles, rows of cells, and which columns are numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int]
    left_out: int = 0


def group_table(diagnosis: Diagnosis, limit: int | None = None) -> GroupTable:
    """One line a group; beyond a limit, those that findings name and the smallest come first.

    Columns that nothing is known for are left out.
    """
    groups = list(diagnosis.groups)
    if limit is not None and len(groups) > limit:
        named = {name for finding in diagnosis.findings for name in finding.subjects}
        first = sorted(groups, key=lambda g: (g.role == "to come", g.name not in named, g.rows, g.name))[:limit]
        chosen = {group.name for group in first}
        groups = [group for group in groups if group.name in chosen]
    shown = diagnosis.facts.get("target_shown") or "target"
    columns: dict[str, Callable[[GroupSummary], str | None]] = {
        "group": lambda g: g.name,
        "role": lambda g: g.role,
        "rows": lambda g: f"{g.rows:,}",
        "missing": lambda g: percent(g.missing) if g.rows and g.missing > 0 else None,
        str(shown): lambda g: _target(g.target, str(shown)),
        "nearest": lambda g: g.nearest,
        "distance": lambda g: None if g.distance is None else f"{g.distance:.3g}",
        "recognised": lambda g: None if g.recognised is None else percent(g.recognised),
        "prior": lambda g: None if g.prior is None else percent(g.prior),
        "hops": lambda g: None if g.hops is None else "no path" if math.isinf(g.hops) else f"{g.hops:g}",
    }
    cells = {title: [cell(group) for group in groups] for title, cell in columns.items()}
    kept = [title for title, values in cells.items() if any(value is not None for value in values)]
    words = {"group", "role", "nearest"}
    return GroupTable(
        columns=tuple(kept),
        rows=tuple(tuple(cells[title][i] or "–" for title in kept) for i in range(len(groups))),
        numbers=frozenset(place for place, title in enumerate(kept) if title not in words),
        left_out=len(diagnosis.groups) - len(groups),
    )


def _target(value: float | None, shown: str) -> str | None:
    if value is None:
        return None
    return percent(value) if shown.startswith("share of") else f"{value:.4g}"
