"""Counts, shares and names for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence


def count_of(count: int, thing: str, things: str | None = None) -> str:
    """A count and its noun: ``1 row``, ``12,000 rows``."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def percent(share: float) -> str:
    """A share as a percentage; neither what is above nothing reads 0, nor what is below all 100."""
    if 0 < share < 0.001:
        return "less than 0.1 %"
    if 0.999 < share < 1:
        return "more than 99.9 %"
    whole, fine = f"{100 * share:.0f}", f"{100 * share:.1f}"
    exact = share in (0, 1) or (0.1 <= share < 0.995) or fine.endswith(".0")
    return f"{whole if exact else fine} %"


def some(texts: Iterable[str], limit: int = 8, between: str = ", ") -> str:
    """The first few of some texts, and how many there are in all."""
    every = list(texts)
    shown = between.join(every[:limit])
    return shown if len(every) <= limit else f"{shown}{between}… ({len(every)} in all)"


def first_step(numbers: Sequence[int]) -> str:
    """What stands before the next command: the findings to put right first, by number."""
    if not numbers:
        return "Next:"
    shown = " and ".join([*([", ".join(map(str, numbers[:-1]))] if numbers[1:] else []), str(numbers[-1])])
    return f"Next, once {f'finding {shown} is' if len(numbers) == 1 else f'findings {shown} are'} put right:"


def comma_names(names: Iterable[str]) -> str:
    """Names as options take them: between commas, those with a comma or a quote in double quotes."""

    def quoted(name: str) -> str:
        plain = "," not in name and '"' not in name and name == name.strip()
        return name if plain else '"' + name.replace('"', '""') + '"'

    return ",".join(quoted(name) for name in names)


def flag(option: str, names: Iterable[str], limit: int | None = None) -> str:
    """An option with names, ready for a shell; beyond a limit, names are left to the reader."""
    every = list(names)
    if limit is not None and len(every) > limit:
        return f"{option} {shlex.quote(comma_names(every[:limit]))},… ({len(every)} in all)"
    return f"{option} {shlex.quote(comma_names(every))}"
