"""Random tables: odd names, odd columns, gaps, groups of one row, a graph over the groups and more."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any

import numpy as np
from hypothesis import strategies as st

from toporo.errors import TopoRoWarning
from toporo.tables import TableModel, fit_table

Columns = dict[str, list[Any]]

#: Names that have broken some program or other.
ODD = (
    "a,b", 'say "so"', "it's", "<b>&amp;</b>", "Größe (m²)", "名前", "🎉🎉", "١٢٣", "x" * 300, "a b", "a;b", "#",
    "tab\there", "new\nline", "=1+1", "$x^2$", "[bold]", "%s {}", "back\\slash", "0", "-1.5", "1e5", "NaN", "null",
    "true", "None", "prediction", "group", "target", "weight", "is missing", "other", "a is missing", "a = other",
)  # fmt: skip
_letters = st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"])
names = st.one_of(st.sampled_from(ODD), st.sampled_from("abcdefgh"), st.text(_letters, min_size=1, max_size=6))
# White space around a name does not count, so that it must not make a name either.
names = names.filter(lambda name: name.strip() == name)
#: Words that say there is no value are no classes.
class_names = names.filter(lambda name: name.lower() not in ("nan", "na", "n/a", "#n/a", "null", "none"))


@dataclass(frozen=True)
class Case:
    """A table with its roles, a graph perhaps, and settings of the fit."""

    columns: Columns
    target: str
    group: str
    task: str
    edges: list[tuple[str, str]] | None
    test_groups: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns[self.target])

    @property
    def features(self) -> list[str]:
        return [name for name in self.columns if name not in (self.target, self.group)]

    @property
    def trained(self) -> set[str]:
        """The groups with rows that can be trained on."""
        rows = zip(self.columns[self.group], self.columns[self.target], strict=True)
        return {name for name, value in rows if name is not None and value is not None} - set(self.test_groups)

    def fit(self, source: Any = None, **settings: Any) -> TableModel:
        """The model; what is legal but unwise is not the matter here."""
        roles = {"target": self.target, "group": self.group, "task": self.task}
        graph = {} if self.edges is None else {"graph": self.edges}
        asked = roles | graph | {"test_groups": self.test_groups, "tol": 1e-9} | self.settings | settings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopoRoWarning)
            return fit_table(self.columns if source is None else source, **asked)

    def take(self, rows: Sequence[int]) -> Case:
        return replace(self, columns={name: [values[i] for i in rows] for name, values in self.columns.items()})

    def change(self, name: str, change: Callable[[Any], Any]) -> Case:
        """The case with one column's cells changed, but for those that are missing."""
        cells = [None if cell is None else change(cell) for cell in self.columns[name]]
        return replace(self, columns=self.columns | {name: cells})

    def renamed(self, new: dict[str, str]) -> Case:
        """The case with other names for its groups."""
        return replace(
            self.change(self.group, new.__getitem__),
            edges=None if self.edges is None else [(new[a], new[b]) for a, b in self.edges],
            test_groups=tuple(new[name] for name in self.test_groups),
        )


def _feature(kind: str, rng: np.random.Generator, signal: np.ndarray, words: list[str]) -> list[Any]:
    rows = len(signal)
    if kind == "number":
        return (signal + rng.normal(size=rows)).round(3).tolist()
    if kind == "count":
        return rng.integers(0, 4, rows).tolist()
    if kind == "date":
        return [date(2020, 1, 1) + timedelta(days=int(days)) for days in rng.integers(0, 400, rows)]
    if kind == "boolean":
        return (rng.random(rows) < 0.5).tolist()
    if kind == "category":
        return rng.choice(np.array(words, dtype=object), rows).tolist()
    if kind == "identifier":
        return [f"row {i}" for i in rng.permutation(rows)]
    return [{"constant": 7.5, "word": words[0], "empty": None}[kind]] * rows


#: The first two are of use as a rule; the others may be left out of a model.
KINDS = ("number", "category", "count", "date", "boolean", "constant", "word", "empty", "identifier")


@st.composite
def cases(draw: Callable[..., Any], *, most_rows: int = 40, simple: bool = False) -> Case:
    """Tables that can be fitted as a rule. ``simple`` ones always can: a number without gaps is among the features."""
    titles = draw(st.lists(names, min_size=4, max_size=8, unique=True))
    group_names = draw(st.lists(names, min_size=2 if simple else 1, max_size=8, unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    least = 2 * len(group_names) if simple else len(group_names)
    rows = draw(st.integers(max(least, 12 if simple else 1), max(most_rows, least)))
    place = np.concatenate([np.arange(len(group_names)), rng.integers(0, len(group_names), rows - len(group_names))])
    signal = rng.normal(size=rows)
    target, group, *rest = titles
    columns: Columns = {group: [group_names[i] for i in place]}
    kinds = [draw(st.sampled_from(KINDS)) for _ in rest]
    for title, kind in zip(rest, ["number", *kinds[1:]] if simple else kinds, strict=True):
        cells = _feature(kind, rng, signal, draw(st.lists(names, min_size=2, max_size=4, unique=True)))
        gaps = 0.0 if simple and title == rest[0] else draw(st.sampled_from([0.0, 0.0, 0.1, 0.9]))
        columns[title] = [None if gap < gaps else cell for gap, cell in zip(rng.random(rows), cells, strict=True)]
    task = draw(st.sampled_from(["regression", "classification"]))
    score = signal * (1 + 0.3 * place) + 0.3 * rng.normal(size=rows)
    if task == "regression":
        columns[target] = score.round(4).tolist()
    else:
        labels = draw(st.lists(class_names, min_size=2, max_size=3, unique=True))
        cuts = np.quantile(score, [0.4, 0.7]) if simple else np.array([0.0, 1.0])
        columns[target] = [labels[min(int((value > cuts).sum()), len(labels) - 1)] for value in score]
    for title in () if simple else (target, group):
        gaps = draw(st.sampled_from([0.0, 0.0, 0.0, 0.2]))
        cells = columns[title]
        columns[title] = [None if gap < gaps else cell for gap, cell in zip(rng.random(rows), cells, strict=True)]
    edges, test_groups = _topology(draw, rng, group_names, simple)
    order = draw(st.permutations(list(columns)))
    penalty = draw(st.sampled_from([1.0, 0.2, np.inf] if simple else [1.0, 0.2, 0.0, np.inf, "auto"]))
    return Case({name: columns[name] for name in order}, target, group, task, edges, test_groups, {"penalty": penalty})


def _topology(
    draw: Callable[..., Any], rng: np.random.Generator, groups: list[str], connected: bool
) -> tuple[list[tuple[str, str]] | None, tuple[str, ...]]:
    """Perhaps a graph over the groups and some more, and perhaps test groups in it."""
    if not draw(st.booleans()):
        return None, ()
    more = draw(st.lists(names.filter(lambda name: name not in groups), max_size=3, unique=True))
    world = [*groups, *more]
    tree = [(world[i], world[int(rng.integers(i))]) for i in range(1, len(world))]
    kept = tree if connected else [edge for edge in tree if rng.random() < 0.9]
    extra = [(a, b) for a in world for b in world if a != b and rng.random() < 0.1]
    both = {frozenset(edge): edge for edge in [*kept, *extra]}
    edges = list(both.values())
    if not edges:
        return None, ()
    candidates = more if connected else world
    most = min(2, len(candidates))
    test = tuple(draw(st.lists(st.sampled_from(candidates), max_size=most, unique=True))) if candidates else ()
    return edges, test
