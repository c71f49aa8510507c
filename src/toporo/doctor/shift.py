r"""Measure how much harder groups never seen are, and why: other inputs, or another relation of the target to them.

A model is fitted to some rows of the groups that are kept, and its loss :math:`\ell` compared between other rows of
these groups, drawn from P, and the rows of a region held out, Q. In groups that are kept, the model may know what each
has of its own. Between P and Q stand the inputs that both have, :math:`s(x) \propto p(x) q(x) / (p(x) + q(x))`, which
are a share :math:`o` of all (1 where inputs are alike, 0 where none are):

.. math:: E_Q \ell - E_P \ell = \underbrace{o\,(E_{Q(y|x)\,s} \ell - E_{P(y|x)\,s} \ell)}_{\text{relation}}
          + \underbrace{o\,(E_{P(y|x)\,s} \ell - E_P \ell)}_{\text{inputs}}
          + \underbrace{\text{the rest}}_{\text{inputs that P hardly has}}.

With :math:`\pi(x)` the chance that a row is of Q where both are equally frequent, means over s are means over rows of P
with weights :math:`\pi`, and over rows of Q with weights :math:`1 - \pi`, and o is the mean of twice these weights.
Weights of rows or groups can take a model from P to s, at best: they change neither the relation nor what was never
seen. The idea is that of Cai, Namkoong & Yadlowsky, *Diagnosing model performance under distribution shift* (2023);
the share o is there because where inputs do not overlap nothing can be said of the relation.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from toporo.choice.cross_fitting import Fold, cross_fit, folds
from toporo.data.frame import Frame, Numbers
from toporo.data.grouped import group_rng
from toporo.doctor.case import Case, Codes, Mask, balanced_sample
from toporo.doctor.columns import time_column
from toporo.doctor.leaks import target_leaks
from toporo.doctor.measure import standardised
from toporo.doctor.results import Ahead, GraphEvidence, Losses
from toporo.errors import muted
from toporo.estimators.effects import EFFECTS
from toporo.estimators.places import placed
from toporo.groups import GroupIds, Groups
from toporo.machine import one_thread
from toporo.progress import tracked
from toporo.robust.factors import GroupFactors
from toporo.robust.kriged import fit_kriged
from toporo.robust.modes import WalkModes
from toporo.types import Array

#: Rows and groups that take part, and the fewest of both.
ROWS, MOST_GROUPS = 5000, 150
FEWEST_ROWS, FEWEST_GROUPS = 100, 4
#: Groups that say whether neighbours are alike, and graphs that are shuffled.
ENOUGH_GROUPS, SHUFFLES = 8, 19
#: Regions held out, folds of groups, and rounds of boosting.
REGIONS, FOLDS, ROUNDS = 5, 6, 80
#: Nested models of what groups have of their own, and the most inputs that have slopes.
OWN = {"one model": ("omega_b",), "levels": ("omega_b", "omega_0"), "slopes": ("omega_b", "omega_0", "omega_1")}
NARROW = 20
#: More classes than this are not tried.
MOST_CLASSES = 10
#: Chances are kept so far from 0 and 1.
LEAST = 1e-4
#: The last share of rows in time, and the fewest on either side.
LATE, FEWEST_LATE = 0.25, 40


# ---------------------------------------------------------------- rows


@dataclass(frozen=True, eq=False)
class Sampled:
    """Labelled rows of training groups, as models here see them.

    Attributes
    ----------
    x, y : inputs, and targets: numbers of spread 1, or codes of classes.
    classes : how many, or 0 for numbers.
    ids : every row's group.
    part : 0, 1 or 2 by row: a third of every group.
    when : the time of every row, or None.
    seed : of what is random.
    """

    x: Array
    y: Array
    classes: int
    ids: GroupIds
    part: Codes
    when: Array | None
    seed: int

    @cached_property
    def z(self) -> Array:
        """The inputs with spread 1, outliers nearer; without those that are constant."""
        z = standardised(self.x)
        return np.clip(z[:, z.any(axis=0)], -5.0, 5.0)

    def residuals(self, train: Mask, *rows: Mask) -> list[Array]:
        """Return residuals of rows, (rows, classes or 1), under a model that is fitted to others."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        settings: dict[str, Any] = {
            "max_iter": ROUNDS, "max_leaf_nodes": 15, "early_stopping": False, "random_state": self.seed
        }  # fmt: skip
        if not self.classes:
            model = HistGradientBoostingRegressor(**settings).fit(self.x[train], self.y[train])
            return [(self.y[each] - model.predict(self.x[each]))[:, None] for each in rows]
        right = np.eye(self.classes)[self.y.astype(np.int64)]
        met = np.unique(self.y[train]).astype(np.int64)
        left = [right[each].copy() for each in rows]
        chooser = HistGradientBoostingClassifier(**settings).fit(self.x[train], self.y[train]) if len(met) > 1 else None
        for values, each in zip(left, rows, strict=True):
            values[:, met] -= 1.0 if chooser is None else chooser.predict_proba(self.x[each])
        return left


def sample(case: Case, seed: int = 0) -> Sampled | str:
    """Return rows to measure losses on, without the columns that leak; or why there are none."""
    if case.encoder is None:
        return "no column can be used as a feature"
    if case.labels is None and case.target_values is None:
        return "there is no target to predict"
    codes = np.where(case.labelled, case.codes, -1)
    counts = np.bincount(codes[codes >= 0], minlength=len(case.names))
    largest = np.argsort(-counts, kind="stable")[:MOST_GROUPS]
    wanted = sorted(int(code) for code in largest if counts[code] >= 3)
    if len(wanted) < FEWEST_GROUPS:
        return f"fewer than {FEWEST_GROUPS} training groups have three rows with a target"
    rows = balanced_sample(case.hashes, codes, wanted, max(3, ROWS // len(wanted)), seed)
    if len(rows) < FEWEST_ROWS:
        return f"there are fewer than {FEWEST_ROWS} training rows with a target"
    y: Array
    if case.labels is not None:
        met, codes = np.unique(case.labels.codes[rows], return_inverse=True)
        y, classes = codes.reshape(-1).astype(np.float64), len(met)
        if not 2 <= classes <= MOST_CLASSES:
            return f"the target has {classes} classes"
    else:
        y, classes = standardised(np.asarray(case.target_values)[rows][:, None])[:, 0], 0
        if not y.any():
            return "the target is constant"
    leaking = case.identifying | set(target_leaks(case)[0])
    inputs = [(rule.name, label) for rule in case.encoder.rules for label in rule.labels]
    kept = [index for index, (name, _) in sorted(enumerate(inputs), key=lambda pair: pair[1]) if name not in leaking]
    if not kept:
        return "every column gives the group or the target away"
    frame = Frame({name: case.frame[name] for name in case.encoder.columns}, case.frame.where).take(rows)
    x = case.encoder.transform(frame).matrix[:, kept]
    if (x == x[0]).all():
        return "the features are constant"
    groups = case.codes[rows]
    name = time_column(case)
    column = None if name is None else case.frame[name]
    return Sampled(
        x=x,
        y=y,
        classes=classes,
        ids=Groups.of([case.names[code] for code in groups]),
        part=(np.arange(len(rows)) - np.searchsorted(groups, groups)) % 3,
        when=column.values[rows] if isinstance(column, Numbers) else None,
        seed=seed,
    )


# ---------------------------------------------------------------- inputs and relation


def region_losses(case: Case, rows: Sampled) -> Losses:
    """Return the loss in groups seen and in regions held out, and what makes the difference."""
    found = cross_fit(partial(_region, rows), _regions(case, rows.ids)).values
    means, errors, others = np.array(found).reshape(-1, 3, 4).transpose(1, 2, 0)
    seen, common, other, unseen = means
    overlap, share = others[0], others[1] / others[1].sum()
    relation, inputs = share @ (overlap * (other - common)), share @ (overlap * (common - seen))
    return Losses(
        seen=float(share @ seen),
        unseen=float(share @ unseen),
        inputs=float(inputs),
        relation=float(relation),
        beyond=float(share @ (unseen - seen) - relation - inputs),
        error=float(np.sqrt(share**2 @ (errors[0] ** 2 + errors[3] ** 2))),
        relation_error=float(np.sqrt((share * overlap) ** 2 @ (errors[1] ** 2 + errors[2] ** 2))),
        regions=len(found),
        points=len(rows.y),
    )


def _regions(case: Case, ids: GroupIds) -> tuple[Mask, ...]:
    """Return groups to hold out together: as far from the others as the test groups are, or drawn at random."""
    found: tuple[Mask, ...] = ()
    graph = case.graph
    if graph is not None and all(name in graph for name in ids.groups):
        with muted():  # a check says it
            found = folds(ids, graph, [name for name in case.test if name in graph], kind="hops", parts=REGIONS)
    return found or folds(ids, parts=REGIONS)


def _region(rows: Sampled, fold: Fold) -> Array:
    """Return mean losses, their errors, and the overlap and size of a region held out.

    Losses are of other rows of groups in training, of these where inputs are like the region's, of the region where
    inputs are like theirs, and of the region.
    """
    out = np.zeros(len(rows.y), dtype=bool)
    out[fold.held_out] = True
    inside, train = ~out & (rows.part == 2), ~out & (rows.part < 2)
    near, away = ((left**2).sum(axis=1) for left in _known_and_new(rows, train, inside, out))
    chance = _chances(rows, inside, out)
    moments = [
        _mean(losses, weights, rows.ids.codes[mask])
        for mask, losses, weights in (
            (inside, near, np.ones(len(near))),
            (inside, near, chance[inside]),
            (out, away, 1.0 - chance[out]),
            (out, away, np.ones(len(away))),
        )
    ]
    means, errors = zip(*moments, strict=True)
    overlap = chance[inside].mean() + 1.0 - chance[out].mean()
    return np.array([means, errors, (overlap, len(away), 0.0, 0.0)])


def _chances(rows: Sampled, inside: Mask, out: Mask) -> Array:
    """Return the chance of every row to be of the region held out, were both as many.

    By a logistic regression on inputs and their squares, which sees where inputs lie and how far they spread. Trees
    would tell one group from another by traits that say nothing of that, and leave no rows to compare.
    """
    from sklearn.linear_model import LogisticRegression

    both = inside | out
    terms = np.column_stack([rows.z, rows.z**2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one that has not quite converged is near enough
        model = LogisticRegression(max_iter=300).fit(terms[both], out[both])
    odds = model.decision_function(terms) - np.log(out[both].mean() / (1.0 - out[both].mean()))
    return np.asarray(np.clip(1.0 / (1.0 + np.exp(-np.clip(odds, -30.0, 30.0))), LEAST, 1.0 - LEAST))


def _known_and_new(rows: Sampled, train: Mask, inside: Mask, out: Mask) -> list[Array]:
    """Return residuals of other rows of groups in training, and of groups that the model has not seen.

    Trees know of a group what its inputs give away. The rest, levels and slopes of its own, is read off what trees of
    one half of the rows leave of the other: as large as its likelihood says, and nothing where groups do not differ.
    """
    halves = np.zeros((len(rows.y), max(1, rows.classes)))
    for known, asked in ((0, 1), (1, 0)):
        some = train & (rows.part == asked)
        halves[some] = rows.residuals(train & (rows.part == known), some)[0]
    z = rows.z if rows.z.shape[1] <= NARROW else np.zeros((len(rows.y), 1))
    names = np.asarray(rows.ids.groups.names, dtype=object)[rows.ids.codes]
    factors = GroupFactors.from_rows(z[train], halves[train], Groups.of(names[train]))
    with muted():  # a search that did not settle was near enough
        fit = fit_kriged(factors, None, (), OWN, level=False)
    places = (factors.groups.encode(names[inside]), np.full(int(out.sum()), -1))
    return [
        left - fit.values(z[mask], factors.means[own], np.zeros((len(own), 0)), own)
        for left, mask, own in zip(rows.residuals(train, inside, out), (inside, out), places, strict=True)
    ]


def _mean(values: Array, weights: Array, clusters: Codes) -> tuple[float, float]:
    """Return a weighted mean and its standard error, where clusters and not rows are independent."""
    total = float(weights.sum())
    mean = float(weights @ values) / total
    pulls = np.bincount(clusters, weights * (values - mean)) / total
    count = len(np.unique(clusters))
    return mean, float(np.sqrt((pulls**2).sum() * count / max(1, count - 1)))


# ---------------------------------------------------------------- time


def time_losses(rows: Sampled) -> Ahead | str | None:
    """Return the loss in the last rows by a model of those before; None without a column of time."""
    if rows.when is None:
        return None
    known = np.isfinite(rows.when)
    cut = float(np.quantile(rows.when[known], 1.0 - LATE)) if known.any() else 0.0
    if cut >= np.max(rows.when, where=known, initial=-np.inf):
        cut = float(np.max(rows.when, where=known & (rows.when < cut), initial=-np.inf))
    late = known & (rows.when > cut)
    inside, train = known & ~late & (rows.part == 2), known & ~late & (rows.part < 2)
    if min(late.sum(), inside.sum()) < FEWEST_LATE:
        return "too few rows are known by their time"
    near, ahead = ((left**2).sum(axis=1) for left in rows.residuals(train, inside, late))
    seen, error = _mean(near, np.ones(len(near)), rows.ids.codes[inside])
    later, spread = _mean(ahead, np.ones(len(ahead)), rows.ids.codes[late])
    times = np.unique(rows.when[late], return_inverse=True)[1].reshape(-1)
    if times.max() >= 4:  # what a time does to all groups
        spread = max(spread, _mean(ahead, np.ones(len(ahead)), times)[1])
    return Ahead(seen=seen, ahead=later, error=float(np.hypot(error, spread)), after=cut)


# ---------------------------------------------------------------- the graph


def graph_evidence(case: Case, rows: Sampled) -> GraphEvidence | str | None:
    """Measure whether residuals in groups that a model has not seen are alike in neighbours; None without a graph.

    Groups are left out in random parts: those of a region left out together would be alike by that alone.
    """
    groups = rows.ids.groups
    if case.graph is None:
        return None
    if not all(name in case.graph for name in groups):
        return "groups are missing from the graph"
    if len(groups) < ENOUGH_GROUPS:
        return f"fewer than {ENOUGH_GROUPS} training groups"

    def residuals(fold: Fold) -> Array:
        out = np.zeros(len(rows.y), dtype=bool)
        out[fold.held_out] = True
        return rows.residuals(~out, out)[0]

    left = cross_fit(residuals, folds(rows.ids, parts=FOLDS)).by_row()
    # Of classes, the commonest.
    column = int(np.bincount(rows.y.astype(np.int64)).argmax()) if rows.classes else 0
    factors = GroupFactors.from_rows(np.zeros((len(left), 0)), left[:, column], rows.ids)
    modes, places = placed(case.graph, groups, WalkModes)
    rng = group_rng("shuffled", rows.seed)
    deals = [places, *(rng.permutation(places).tolist() for _ in range(SHUFFLES))]
    both = "graph and independent groups"
    with muted():  # a search that did not settle was near enough
        fit = fit_kriged(factors, modes, places, EFFECTS, level=False)
        fits = [fit_kriged(factors, modes, deal, {both: EFFECTS[both]}, level=False) for deal in deals]
    scores = [shuffled.models[0].solved.nll for shuffled in fits]
    alone = next(model.solved.nll for model in fit.models if model.name == "independent groups")
    return GraphEvidence(
        gate=fit.evidence[both],
        gain=max(0.0, alone - scores[0]),
        shuffles=SHUFFLES,
        as_well=sum(score <= scores[0] + 1e-6 for score in scores[1:]),
        groups=len(groups),
    )


# ---------------------------------------------------------------- all of it


def measure_shift(case: Case, seed: int = 0) -> tuple[Case, dict[str, str]]:
    """Return the case with losses, what time does to them, and what the graph says; and why others are missing."""
    with one_thread(openmp=True):
        rows = sample(case, seed)
        if isinstance(rows, str):
            return case, {"losses in held-out regions": rows} if case.target is not None else {}
        ways: dict[str, Any] = {
            "losses": partial(region_losses, case),
            "ahead": time_losses,
            "evidence": partial(graph_evidence, case),
        }
        measured = {name: measure(rows) for name, measure in tracked(ways.items(), "examining groups held out")}
    names = {"losses": "losses in held-out regions", "ahead": "losses ahead in time", "evidence": "what the graph says"}
    failed = {names[key]: value for key, value in measured.items() if isinstance(value, str)}
    return replace(case, **{key: value for key, value in measured.items() if not isinstance(value, str)}), failed
