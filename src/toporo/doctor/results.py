"""What an examination finds: plain records that say everything by name and turn into JSON."""

from __future__ import annotations

import math
import re
import shlex
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from toporo.text import hops_text, number
from toporo.types import Array

#: Letters in three lines of names.
ROOM = 240
#: From what makes training pointless or its result misleading, to what is good to know.
SEVERITIES = ("serious", "risky", "note")


@dataclass(frozen=True)
class Finding:
    """One thing to know before training.

    Attributes
    ----------
    severity : one of :data:`SEVERITIES`.
    code : a short name that stays the same from version to version, such as ``"small-group"``.
    title : the finding in a few words.
    detail : what was found, with names and numbers.
    step : what to do next.
    subjects : the groups or columns it is about.
    weight : among findings of one severity, how much it matters: as a rule the share of rows, groups or columns.
    """

    severity: str
    code: str
    title: str
    detail: str
    step: str
    subjects: tuple[str, ...] = ()
    weight: float = 0.0


serious, risky, note = (partial(Finding, severity) for severity in SEVERITIES)


def ranked(findings: list[Finding]) -> tuple[Finding, ...]:
    """By severity, then by weight; equals stay in a fixed order."""
    return tuple(sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), -f.weight, f.code, f.subjects)))


@dataclass(frozen=True)
class GroupSummary:
    """One group at a glance.

    Attributes
    ----------
    name : of the group.
    role : ``"training"``, ``"test"`` (a test group with rows) or ``"no rows"`` (in the graph or named, without any).
    rows : how many.
    missing : the share of its feature cells that are missing.
    target : in a training group, its mean or the share of one class; ``facts["target_shown"]`` says which.
    nearest, distance : the group at the smallest diffusion distance.
    recognised : the share of its rows that a classifier of groups gets right.
    prior : the weight of a training group in the default prior.
    hops : edges to the nearest training group, for others than training groups; infinite without a path.
    """

    name: str
    role: str
    rows: int
    missing: float = 0.0
    target: float | None = None
    nearest: str | None = None
    distance: float | None = None
    recognised: float | None = None
    prior: float | None = None
    hops: float | None = None


@dataclass(frozen=True, eq=False)
class Distances:
    """How far apart groups are: diffusion EMD on a sample of the rows.

    Attributes
    ----------
    names : the groups, in the order of the matrix.
    matrix : (m, m), symmetric, zero diagonal.
    order : the same names with groups that are near each other side by side.
    typical : the mean distance over pairs.
    chance, chance_spread : mean and standard deviation of the same after dealing rows to groups at random.
    by_chance : (m, m), the mean of each distance over such deals; small groups are far from all others by chance alone.
    beyond_chance : whether no such deal came near ``typical``.
    contrast : how much distances differ among pairs, over what resampling does to one; None where not defined.
    stability : the mean share of resamples that keep an edge of the graph learned from these distances.
    points : rows used.
    """

    names: tuple[str, ...]
    matrix: Array
    order: tuple[str, ...]
    typical: float
    chance: float
    chance_spread: float
    by_chance: Array
    beyond_chance: bool
    contrast: float | None
    stability: float
    points: int

    def between(self, a: str, b: str) -> tuple[float, float]:
        """The distance between two groups, and what chance gives for groups of their sizes."""
        i, j = self.names.index(a), self.names.index(b)
        return float(self.matrix[i, j]), float(self.by_chance[i, j])

    def nearest(self, name: str, among: tuple[str, ...] | None = None) -> tuple[str, float] | None:
        """The group nearest to ``name`` (among these), and how far it is."""
        if name not in self.names:
            return None
        row = self.matrix[self.names.index(name)]
        others = [i for i, o in enumerate(self.names) if o != name and (among is None or o in among)]
        best = min(others, key=lambda i: (row[i], i), default=None)
        return None if best is None else (self.names[best], float(row[best]))


def seriated(matrix: Array, names: Sequence[str]) -> tuple[str, ...]:
    """Names with near ones side by side: the leaves of average linkage, turned so that neighbours are nearest."""
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    if len(names) < 3:
        return tuple(names)
    condensed = squareform(matrix, checks=False)
    leaves = leaves_list(optimal_leaf_ordering(linkage(condensed, "average"), condensed))
    order = [names[leaf] for leaf in leaves]
    return tuple(order if order[0] <= order[-1] else order[::-1])


@dataclass(frozen=True, eq=False)
class Separability:
    """How well a cross-validated classifier tells from its features which group a row is of.

    Attributes
    ----------
    accuracy : balanced, i.e. the mean over groups of the share recognised.
    chance : what guessing gives, 1 over the number of groups.
    error : standard error of the accuracy.
    names : the groups, in the order of the matrix.
    confusion : (m, m); row: true group, column: the group it was taken for; rows sum to 1.
    features : columns that tell groups apart, with their share in the classifier's decisions, largest first.
    classifier, folds, points : how it was measured.
    left_out : groups with too few rows to take part.
    """

    accuracy: float
    chance: float
    error: float
    names: tuple[str, ...]
    confusion: Array
    features: tuple[tuple[str, float], ...]
    classifier: str
    folds: int
    points: int
    left_out: tuple[str, ...] = ()

    @property
    def skill(self) -> float:
        """The accuracy on a scale from 0 (guessing) to 1 (every row recognised)."""
        return (self.accuracy - self.chance) / (1.0 - self.chance)

    @property
    def recognised(self) -> dict[str, float]:
        """By group, the share of its rows that are recognised."""
        return {name: float(self.confusion[i, i]) for i, name in enumerate(self.names)}

    def confused(self, limit: int = 5) -> tuple[tuple[str, str, float], ...]:
        """Pairs (group, taken for, share of the group's rows), most confused first."""
        off = self.confusion - np.diag(np.diag(self.confusion))
        order = np.argsort(-off, axis=None, kind="stable")[:limit]
        pairs = [np.unravel_index(place, off.shape) for place in order]
        return tuple((self.names[i], self.names[j], float(off[i, j])) for i, j in pairs if off[i, j] > 0)


@dataclass(frozen=True)
class Losses:
    """Mean squared errors of trees in groups they know and in regions held out, and what the difference is due to.

    Attributes
    ----------
    seen, unseen : the loss on other rows of groups in training, and in regions held out; of a target of variance 1, or
        of probabilities.
    inputs : due to inputs of which both have some.
    relation : due to the target given the inputs.
    beyond : due to inputs that the groups in training hardly have.
    error, relation_error : standard errors of the whole difference and of the relation's part.
    regions, points : how many were held out, and rows used.
    """

    seen: float
    unseen: float
    inputs: float
    relation: float
    beyond: float
    error: float
    relation_error: float
    regions: int
    points: int

    @property
    def gap(self) -> float:
        """How much larger the loss is where nothing was seen."""
        return self.unseen - self.seen

    @property
    def shares(self) -> tuple[float, float]:
        """Of the difference, what is due to inputs and to the relation: between 0 and 1, and 1 in all."""
        relation = min(1.0, max(0.0, self.relation / self.gap)) if self.gap > 0 else 0.0
        return 1.0 - relation, relation


@dataclass(frozen=True)
class Ahead:
    """Losses of trees in time.

    Attributes
    ----------
    seen, ahead : on other rows of the times in training, and on later ones.
    error : standard error of the difference.
    after : the last time in training.
    """

    seen: float
    ahead: float
    error: float
    after: float


@dataclass(frozen=True)
class GraphEvidence:
    """Whether what trees leave of groups they have not seen is alike in neighbours.

    Attributes
    ----------
    gate : the weight of models that have the graph in them.
    gain : in log likelihood, over groups that have nothing to do with each other.
    shuffles, as_well : graphs with shuffled groups, and how many of them gain as much.
    groups : that took part.
    """

    gate: float
    gain: float
    shuffles: int
    as_well: int
    groups: int


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What is wrong or risky about a table before training.

    Attributes
    ----------
    findings : ranked, the worst first.
    groups : one record per group: training groups, test groups, groups without rows.
    distances : between groups, or None where they could not be measured (``facts["not_measured"]`` says why).
    separability : of groups by their features, or None.
    facts : what was looked at, and the next command.
    """

    findings: tuple[Finding, ...]
    groups: tuple[GroupSummary, ...]
    distances: Distances | None
    separability: Separability | None
    facts: Mapping[str, Any]

    def count(self, severity: str) -> int:
        """How many findings of this severity there are."""
        return sum(finding.severity == severity for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON; what is not a finite number is None."""
        separability: dict[str, Any] | None = None
        if self.separability is not None:
            separability = asdict(self.separability) | {"skill": self.separability.skill}
            separability["confused"] = self.separability.confused()
        content = {
            "findings": [asdict(finding) for finding in self.findings],
            "groups": [asdict(group) for group in self.groups],
            "distances": None if self.distances is None else asdict(self.distances),
            "separability": separability,
            "facts": dict(self.facts),
        }
        plain = _plain(content)
        return plain if isinstance(plain, dict) else {}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# ---------------------------------------------------------------- in words


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
    """The first few of some texts, three lines of a terminal at most, and how many there are in all."""
    every = list(texts)
    shown = between.join(every[: _fitting(every, limit, between)])
    shown = shown if len(shown) <= ROOM else shown[: ROOM - 1] + "…"
    return shown if len(every) <= _fitting(every, limit, between) else f"{shown}{between}… ({len(every)} in all)"


def listed(items: Iterable[object], limit: int = 8) -> str:
    """Items as messages have them, ``'a', 'b', … (12 in all)``, in three lines at most."""
    return some(map(repr, items), limit)


def _fitting(texts: Sequence[str], limit: int, between: str) -> int:
    """How many of the first texts have room; one always has."""
    ends = accumulate(len(text) + len(between) for text in texts[:limit])
    return max(1, sum(end <= ROOM for end in ends))


def it(names: Collection[str]) -> str:
    """The pronoun for these."""
    return "it" if len(names) == 1 else "them"


def first_step(numbers: Sequence[int]) -> str:
    """What stands before the next command: the findings to put right first, by number."""
    if not numbers:
        return "Next:"
    shown = " and ".join([*([", ".join(map(str, numbers[:-1]))] if numbers[1:] else []), str(numbers[-1])])
    return f"Next, once {f'finding {shown} is' if len(numbers) == 1 else f'findings {shown} are'} put right:"


def shifts_in_words(facts: Mapping[str, Any]) -> dict[str, str]:
    """What was measured of held-out regions, of later rows and of the graph: a phrase each, by what it is about."""
    words = {}
    for key, name, usual, other, what in (
        ("losses", "Held-out regions", "seen", "unseen", "in groups they know"),
        ("ahead", "Later rows", "seen", "ahead", "at times they know"),
    ):
        if (part := facts.get(key)) is not None:
            words[name] = f"trees have {part[other] / max(part[usual], 1e-12):.2g} times their squared error {what}"
    if (told := facts.get("graph_evidence")) is not None:
        words["Likeness of neighbours"] = (
            f"evidence {percent(told['gate'])}; {told['as_well']} of {told['shuffles']} shuffled graphs explain as much"
        )
    return words


def comma_names(names: Iterable[str]) -> str:
    """Names as options take them: between commas, those with a comma or a quote in double quotes."""

    def quoted(name: str) -> str:
        plain = "," not in name and '"' not in name and name == name.strip()
        return name if plain else '"' + name.replace('"', '""') + '"'

    return ",".join(quoted(name) for name in names)


def flag(option: str, names: Iterable[str], limit: int | None = None) -> str:
    """An option with names, ready for a shell; beyond a limit or three lines, names are left to the reader."""
    every = list(names)
    room = len(every) if limit is None else _fitting(every, limit, ",")
    if len(every) > room:
        return f"{option} {shlex.quote(comma_names(every[:room]))},… ({len(every)} in all)"
    return f"{option} {shlex.quote(comma_names(every))}"


def spelling(name: str) -> str:
    """A name without what people write in several ways: case, blanks, dashes, leading zeros, width of letters."""
    plain = re.sub(r"[\s_\-–—./]+", "", unicodedata.normalize("NFKC", name).casefold())
    if re.fullmatch(r"\d+0", plain) and re.search(r"\.0$", name.strip()):
        plain = plain[:-1]  # 3.0 is 3
    return plain.lstrip("0") or plain


def look_alikes(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Sets of names that differ only in spelling."""
    sets: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        sets.setdefault(spelling(name), []).append(name)
    return [tuple(alike) for alike in sets.values() if len(alike) > 1]


@dataclass(frozen=True)
class GroupCells:
    """Titles, rows of cells, and which columns are numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int]
    left_out: int = 0


def group_table(diagnosis: Diagnosis, limit: int | None = None) -> GroupCells:
    """One line per group; beyond a limit, those that findings name and the smallest come first.

    Columns that nothing is known for are left out.
    """
    groups = list(diagnosis.groups)
    if limit is not None and len(groups) > limit:
        named = {name for finding in diagnosis.findings for name in finding.subjects}
        first = sorted(groups, key=lambda g: (g.role == "no rows", g.name not in named, g.rows, g.name))[:limit]
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
        "distance": lambda g: None if g.distance is None else number(g.distance),
        "recognised": lambda g: None if g.recognised is None else percent(g.recognised),
        "prior": lambda g: None if g.prior is None else percent(g.prior),
        "hops": lambda g: hops_text(g.hops) or None,
    }
    cells = {title: [cell(group) for group in groups] for title, cell in columns.items()}
    kept = [title for title, values in cells.items() if any(value is not None for value in values)]
    words = {"group", "role", "nearest"}
    return GroupCells(
        columns=tuple(kept),
        rows=tuple(tuple(cells[title][i] or "–" for title in kept) for i in range(len(groups))),
        numbers=frozenset(place for place, title in enumerate(kept) if title not in words),
        left_out=len(diagnosis.groups) - len(groups),
    )


def _target(value: float | None, shown: str) -> str | None:
    if value is None:
        return None
    return percent(value) if shown.startswith("share of") else number(value, digits=4)
