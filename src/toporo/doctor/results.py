"""Results of an examination: records with named fields that turn into JSON, and their wording."""

from __future__ import annotations

import math
import re
import shlex
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from toporo.text import hops_text, number
from toporo.types import Array

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


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, then by weight; equals stay in a fixed order."""
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
    rows: int = 0
    missing: float = 0.0
    target: float | None = None
    nearest: str | None = None
    distance: float | None = None
    recognised: float | None = None
    prior: float | None = None
    hops: float | None = None


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances between groups: diffusion EMD on a sample of the rows.

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

    def nearest(self, name: str, among: Collection[str]) -> tuple[str, float] | None:
        """Return the group of these that is nearest to ``name``, and how far it is."""
        if name not in self.names:
            return None
        row = self.matrix[self.names.index(name)]
        others = [i for i, other in enumerate(self.names) if other != name and other in among]
        best = min(others, key=lambda i: (row[i], i), default=None)
        return None if best is None else (self.names[best], float(row[best]))


@dataclass(frozen=True, eq=False)
class Separability:
    """Accuracy of a cross-validated classifier that tells from its features which group a row is of.

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
        """The difference between the losses unseen and seen."""
        return self.unseen - self.seen


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
    """Likeness of neighbours in the residuals of trees in groups they have not seen.

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
    """Everything found by an examination.

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
        """Return how many findings of this severity there are."""
        return sum(finding.severity == severity for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; what is not a finite number is None."""
        content = asdict(self)
        if self.separability is not None:
            content["separability"]["skill"] = self.separability.skill
        return {name: _plain(part) for name, part in content.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---------------------------------------------------------------- in words


def percent(share: float) -> str:
    """Return a share as a percentage with two digits.

    >>> percent(0.953), percent(0.0208)
    ('95 %', '2.1 %')
    """
    return f"{number(100 * share, digits=2)} %"


def some(texts: Iterable[str], limit: int = 8, between: str = ", ") -> str:
    """Return the first few of some texts, and how many there are in all.

    >>> some("abc", 2)
    'a, b, … (3 in all)'
    """
    every = list(texts)
    shown = between.join(every[:limit])
    return shown if len(every) <= limit else f"{shown}{between}… ({len(every)} in all)"


def flag(option: str, names: Iterable[str], limit: int | None = None) -> str:
    """Return an option with names between commas, ready for a shell; beyond a limit, names are left to the reader.

    >>> flag("--exclude", ["a b", "c", "d"], 2)
    "--exclude 'a b,c',… (3 in all)"
    """
    every = list(names)
    plain = [name if not re.search(r'[,"]|^\s|\s$', name) else '"' + name.replace('"', '""') + '"' for name in every]
    text = f"{option} {shlex.quote(','.join(plain[:limit]))}"
    return text if limit is None or len(every) <= limit else f"{text},… ({len(every)} in all)"


def first_step(numbers: Sequence[int]) -> str:
    """Return the words before the next command: the findings to put right first, by number."""
    if not numbers:
        return "Next:"
    shown = " and ".join([*([", ".join(map(str, numbers[:-1]))] if numbers[1:] else []), str(numbers[-1])])
    return f"Next, once {f'finding {shown} is' if len(numbers) == 1 else f'findings {shown} are'} put right:"


def shifts_in_words(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return a phrase each on held-out regions, later rows and the graph, by what it is about."""
    words = {}
    for key, name, usual, other, what in (
        ("losses", "Held-out regions", "seen", "unseen", "in groups they know"),
        ("ahead", "Later rows", "seen", "ahead", "at times they know"),
    ):
        if (part := facts.get(key)) is not None:
            words[name] = f"trees have {part[other] / max(part[usual], 1e-12):.2g} times their squared error {what}"
    if (evidence := facts.get("graph_evidence")) is not None:
        words["Likeness of neighbours"] = (
            f"evidence {percent(evidence['gate'])}; {evidence['as_well']} of {evidence['shuffles']} shuffled graphs "
            "explain as much"
        )
    return words


def spelling(name: str) -> str:
    """Return a name without what people write in several ways: case, blanks, dashes, leading zeros, width of letters.

    >>> spelling("New-York "), spelling("01")
    ('newyork', '1')
    """
    plain = re.sub(r"[\s_\-–—./]+", "", unicodedata.normalize("NFKC", name).casefold())
    return plain.lstrip("0") or plain


@dataclass(frozen=True)
class GroupCells:
    """Titles, rows of cells, which columns are numbers, and how many groups are left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int]
    left_out: int = 0


def group_table(diagnosis: Diagnosis, limit: int | None = None) -> GroupCells:
    """Return one line per group; beyond a limit, those that findings name and the smallest come first.

    Columns that nothing is known for are left out.
    """
    groups = list(diagnosis.groups)
    if limit is not None and len(groups) > limit:
        named = {name for finding in diagnosis.findings for name in finding.subjects}
        first = sorted(groups, key=lambda g: (g.role == "no rows", g.name not in named, g.rows, g.name))[:limit]
        groups = [group for group in groups if group in first]
    title = str(diagnosis.facts.get("target_shown") or "target")
    show = percent if title.startswith("share of") else partial(number, digits=4)
    columns: dict[str, Callable[[GroupSummary], str | None]] = {
        "group": lambda g: g.name,
        "role": lambda g: g.role,
        "rows": lambda g: f"{g.rows:,}",
        "missing": lambda g: percent(g.missing) if g.rows and g.missing > 0 else None,
        title: lambda g: None if g.target is None else show(g.target),
        "nearest": lambda g: g.nearest,
        "distance": lambda g: None if g.distance is None else number(g.distance),
        "recognised": lambda g: None if g.recognised is None else percent(g.recognised),
        "prior": lambda g: None if g.prior is None else percent(g.prior),
        "hops": lambda g: hops_text(g.hops) or None,
    }
    cells = {title: [cell(group) for group in groups] for title, cell in columns.items()}
    kept = [title for title, values in cells.items() if any(value is not None for value in values)]
    return GroupCells(
        columns=tuple(kept),
        rows=tuple(tuple(cells[title][i] or "–" for title in kept) for i in range(len(groups))),
        numbers=frozenset(i for i, title in enumerate(kept) if title not in ("group", "role", "nearest")),
        left_out=len(diagnosis.groups) - len(groups),
    )
