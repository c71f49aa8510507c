r"""How much harder groups never seen are, and why: other inputs, or another relation of the target to them.

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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from toporo.choice.cross_fitting import Fold, cross_fit, folds
from toporo.data.frame import Frame, Numbers
from toporo.data.grouped import group_rng
from toporo.doctor.columns import time_column
from toporo.doctor.leaks import identifying, target_leaks
from toporo.doctor.measure import Case, Codes, Mask, balanced_sample, check, standardised
from toporo.doctor.results import Ahead, Finding, GraphEvidence, Losses, note, percent, risky
from toporo.errors import TopoRoWarning
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
#: Groups that say whether neighbours are alike, graphs that are shuffled, and the share of all, the one given among
#: them, that do as well if it says nothing.
ENOUGH_GROUPS, SHUFFLES, FAINT = 8, 19, 0.2
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
#: To be worth a word, a loss must be so many times larger, by so many standard errors, and by such a share of what
#: there is to explain: where next to nothing is left, a model's own coarseness makes the difference.
LARGER, SURELY, MATTERS = 1.1, 2.0, 0.02
#: By so many of later rows, which are of a few times only.
SURELY_LATER = 3.0

#: What can be done about another relation.
MENDS = (
    "The context of a group and kriging can: --model kriged, or tr.Kriged around any model; so can columns that say "
    "why groups differ."
)


def _larger(loss: float, usual: float, error: float, surely: float = SURELY) -> bool:
    """Whether a loss is worth a word beside the usual one."""
    return loss >= LARGER * usual and loss - usual >= max(MATTERS, surely * error)


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
        return np.clip(standardised(self.x), -5.0, 5.0)

    def losses(self, train: Mask, *rows: Mask) -> list[Array]:
        """The losses of some rows by a model of others: squared errors, of probabilities where there are classes."""
        return [(each**2).sum(axis=1) for each in self.left(train, *rows)]

    def left(self, train: Mask, *rows: Mask) -> list[Array]:
        """What a model of some rows leaves of others, (rows, classes or 1)."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        settings: dict[str, Any] = {
            "max_iter": ROUNDS, "max_leaf_nodes": 15, "early_stopping": False, "random_state": self.seed
        }  # fmt: skip
        if not self.classes:
            model = HistGradientBoostingRegressor(**settings).fit(self.x[train], self.y[train])
            return [(self.y[each] - model.predict(self.x[each]))[:, None] for each in rows]
        right = np.eye(self.classes)[self.y.astype(np.int64)]
        met = np.unique(self.y[train]).astype(np.int64)
        if len(met) == 1:
            return [right[each] - right[train][0] for each in rows]
        chooser = HistGradientBoostingClassifier(**settings).fit(self.x[train], self.y[train])
        left = [right[each].copy() for each in rows]
        for values, each in zip(left, rows, strict=True):
            values[:, met] -= chooser.predict_proba(self.x[each])
        return left


def sample(case: Case, seed: int = 0) -> Sampled | str:
    """Rows to measure losses on, without the columns that leak; or why there are none."""
    if case.encoder is None:
        return "no column can be used as a feature"
    if case.target is None or (case.labels is None and case.target_values is None):
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
    target = _target(case, rows)
    if isinstance(target, str):
        return target
    leaking = identifying(case) | set(target_leaks(case)[0])
    inputs = [(rule.name, label) for rule in case.encoder.rules for label in rule.labels]
    kept = [place for place, (name, _) in sorted(enumerate(inputs), key=lambda each: each[1]) if name not in leaking]
    if not kept:
        return "every column gives the group or the target away"
    frame = Frame({name: case.frame[name] for name in case.encoder.columns}, case.frame.where).take(rows)
    groups = case.codes[rows]
    name = time_column(case)
    column = None if name is None else case.frame[name]
    x = case.encoder.transform(frame).matrix[:, kept]
    if not standardised(x).shape[1]:
        return "the features are constant"
    return Sampled(
        x=np.clip(x, -1e30, 1e30),
        y=target[0],
        classes=target[1],
        ids=Groups.of([case.names[code] for code in groups]),
        part=(np.arange(len(rows)) - np.searchsorted(groups, groups)) % 3,
        when=column.values[rows] if isinstance(column, Numbers) else None,
        seed=seed,
    )


def _target(case: Case, rows: Codes) -> tuple[Array, int] | str:
    """The target of these rows and its number of classes, 0 for numbers; or why it cannot be used."""
    if case.labels is not None:
        met, codes = np.unique(case.labels.codes[rows], return_inverse=True)
        if not 2 <= len(met) <= MOST_CLASSES:
            return f"the target has {len(met)} classes"
        return codes.reshape(-1).astype(np.float64), len(met)
    values = np.asarray(case.target_values)[rows]
    y = values / max(float(np.abs(values).max()), 1e-300)  # squares cannot overflow
    return ((y - y.mean()) / y.std(), 0) if y.std() > 1e-12 else "the target is constant"


# ---------------------------------------------------------------- inputs and relation


def region_losses(case: Case, rows: Sampled) -> Losses:
    """The loss in groups seen and in regions held out, and what makes the difference."""
    means, errors, sizes, overlaps = [], [], [], []
    for held_out in _regions(case, rows.ids.groups):
        out = held_out[rows.ids.codes]
        inside, train = ~out & (rows.part == 2), ~out & (rows.part < 2)
        near, away = ((left**2).sum(axis=1) for left in _left(rows, train, inside, out))
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
        means.append([mean for mean, _ in moments])
        errors.append([error for _, error in moments])
        sizes.append(len(away))
        overlaps.append(float(chance[inside].mean() + 1.0 - chance[out].mean()))
    share = np.asarray(sizes) / np.sum(sizes)
    seen, common, other, unseen = np.asarray(means).T
    overlap, spread = np.asarray(overlaps), np.asarray(errors).T
    relation, inputs = share @ (overlap * (other - common)), share @ (overlap * (common - seen))
    return Losses(
        seen=float(share @ seen),
        unseen=float(share @ unseen),
        inputs=float(inputs),
        relation=float(relation),
        beyond=float(share @ (unseen - seen) - relation - inputs),
        error=float(np.sqrt(share**2 @ (spread[0] ** 2 + spread[3] ** 2))),
        relation_error=float(np.sqrt((share * overlap) ** 2 @ (spread[1] ** 2 + spread[2] ** 2))),
        regions=len(sizes),
        points=len(rows.y),
    )


def _regions(case: Case, groups: Groups) -> tuple[Mask, ...]:
    """Return groups to hold out together: as far from the others as the test groups are, or drawn at random."""
    ids = GroupIds(np.arange(len(groups)), groups)
    found: tuple[Mask, ...] = ()
    if case.graph is not None and all(name in case.graph for name in groups):
        test = [name for name in case.test if name in case.graph]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopoRoWarning)  # a check says it
            found = folds(ids, case.graph, test, kind="hops", parts=REGIONS)
    return found or folds(ids, parts=REGIONS)


def _chances(rows: Sampled, inside: Mask, out: Mask) -> Array:
    """Of every row, the chance to be of the region held out, were both as many.

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


def _left(rows: Sampled, train: Mask, inside: Mask, out: Mask) -> list[Array]:
    """What a model leaves of other rows of groups in training, and of groups it has not seen.

    Trees know of a group what its inputs give away. The rest, levels and slopes of its own, is read off what trees of
    one half of the rows leave of the other: as large as its likelihood says, and nothing where groups do not differ.
    """
    halves = np.zeros((len(rows.y), max(1, rows.classes)))
    for known, asked in ((0, 1), (1, 0)):
        some = train & (rows.part == asked)
        halves[some] = rows.left(train & (rows.part == known), some)[0]
    z = rows.z if rows.z.shape[1] <= NARROW else np.zeros((len(rows.y), 1))
    names = np.asarray(rows.ids.groups.names, dtype=object)[rows.ids.codes]
    factors = GroupFactors.from_rows(z[train], halves[train], Groups.of(names[train]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # a search that did not settle was near enough
        fit = fit_kriged(factors, None, (), OWN, level=False)
    places = (factors.groups.encode(names[inside]), np.full(int(out.sum()), -1))
    return [
        left - fit.values(z[mask], factors.means[own], np.zeros((len(own), 0)), own)
        for left, mask, own in zip(rows.left(train, inside, out), (inside, out), places, strict=True)
    ]


def _mean(values: Array, weights: Array, clusters: Codes) -> tuple[float, float]:
    """A weighted mean and its standard error, where clusters and not rows are independent."""
    total = float(weights.sum())
    mean = float(weights @ values) / total
    pulls = np.bincount(clusters, weights * (values - mean)) / total
    count = len(np.unique(clusters))
    return mean, float(np.sqrt((pulls**2).sum() * count / max(1, count - 1)))


# ---------------------------------------------------------------- time


def time_losses(rows: Sampled) -> Ahead | str | None:
    """The loss in the last rows by a model of those before; None without a column of time."""
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
    near, ahead = rows.losses(train, inside, late)
    seen, error = _mean(near, np.ones(len(near)), rows.ids.codes[inside])
    later, spread = _mean(ahead, np.ones(len(ahead)), rows.ids.codes[late])
    times = np.unique(rows.when[late], return_inverse=True)[1].reshape(-1)
    if times.max() >= 4:  # what a time does to all groups
        spread = max(spread, _mean(ahead, np.ones(len(ahead)), times)[1])
    return Ahead(seen=seen, ahead=later, error=float(np.hypot(error, spread)), after=cut)


# ---------------------------------------------------------------- the graph


def graph_evidence(case: Case, rows: Sampled) -> GraphEvidence | str | None:
    """Whether what a model leaves of groups it has not seen is alike in neighbours; None without a graph.

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
        return rows.left(~out, out)[0]

    left = cross_fit(residuals, folds(rows.ids, parts=FOLDS)).by_row()
    # Of classes, the commonest.
    column = int(np.bincount(rows.y.astype(np.int64)).argmax()) if rows.classes else 0
    factors = GroupFactors.from_rows(np.zeros((len(left), 0)), left[:, column], rows.ids)
    modes, places = placed(case.graph, groups, WalkModes)
    rng = group_rng("shuffled", rows.seed)
    deals = [places, *(rng.permutation(places).tolist() for _ in range(SHUFFLES))]
    both = "graph and independent groups"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # a search that did not settle was near enough
        fit = fit_kriged(factors, modes, places, EFFECTS, level=False)
        fits = [fit_kriged(factors, modes, deal, {both: EFFECTS[both]}, level=False) for deal in deals]
    scores = [shuffled.models[0].nll for shuffled in fits]
    alone = next(model.nll for model in fit.models if model.name == "independent groups")
    return GraphEvidence(
        gate=fit.evidence[both],
        gain=max(0.0, alone - scores[0]),
        shuffles=SHUFFLES,
        as_well=sum(score <= scores[0] + 1e-6 for score in scores[1:]),
        groups=len(groups),
    )


# ---------------------------------------------------------------- all of it


def measure_shift(case: Case, seed: int = 0) -> tuple[Case, dict[str, str]]:
    """The case with losses, what time does to them, and what the graph says; and why something was not measured."""
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


# ---------------------------------------------------------------- checks


@check
def shifted_regions(case: Case) -> Iterator[Finding]:
    """Groups never seen are harder: their inputs are others, or the target depends on them in another way."""
    losses = case.losses
    if losses is None or not _larger(losses.unseen, losses.seen, losses.error):
        return
    times = losses.unseen / max(losses.seen, 1e-12)
    how = (
        f"In regions of training groups held out, trees have {times:.2g} times the squared error that they have on "
        "other rows of groups they know. "
    )
    inputs, relation = losses.shares
    sure = losses.relation >= SURELY * losses.relation_error
    if losses.relation >= losses.inputs + losses.beyond:
        yield Finding(
            "risky" if sure else "note",
            "relation-shift",
            "Groups differ in how the target depends on the features",
            f"{how}{percent(relation)} of the difference is there among rows with like features, {percent(inputs)} is "
            "due to other features.",
            f"Weights of groups cannot mend that. {MENDS}",
            (),
            min(1.0, losses.gap),
        )
        return
    new = losses.beyond > losses.inputs
    yield risky(
        "input-shift",
        "Groups differ in their features, and models miss that",
        f"{how}{percent(inputs)} of the difference is due to other features"
        + (", mostly to such as other groups hardly have" if new else "")
        + f"; {percent(relation)} is there among rows with like features.",
        (
            "Rows of groups in between would help most: weights cannot make up for what no group has. Prefer columns "
            "that mean the same everywhere, shares to totals."
            if new
            else "Weights can mend that: name the test groups and give a graph (--test-groups, --graph), so that "
            "groups like them count for more."
        )
        + (f" For the rest: {MENDS[0].lower()}{MENDS[1:]}" if sure and relation >= 0.25 else ""),
        (),
        min(1.0, losses.gap),
    )


@check
def shifted_times(case: Case) -> Iterator[Finding]:
    """Later rows are harder: a split by groups, with all times on both sides, does not show it."""
    ahead, losses = case.ahead, case.losses
    if ahead is None or losses is None:
        return
    if not _larger(ahead.ahead, ahead.seen, ahead.error, SURELY_LATER):
        return
    ratio, other = ahead.ahead / max(ahead.seen, 1e-12), losses.unseen / max(losses.seen, 1e-12)
    name = str(time_column(case))
    column = case.frame[name]
    after = replace(column, values=np.array([ahead.after])).as_text().levels[0] if isinstance(column, Numbers) else ""
    fairer = ratio > other
    yield Finding(
        "risky" if fairer else "note",
        "time-shift",
        "A split in time would be fairer than one by groups" if fairer else "Later rows are harder than earlier ones",
        f"Trees fitted to rows up to {after} in {name!r} have {ratio:.2g} times the "
        f"squared error on later rows; in held-out regions it is {other:.2g} times. A test on other groups, whose "
        "times were all seen in training, does not show that.",
        f"If the model is for times to come, set aside the rows after {after} and judge it on those (toporo evaluate).",
        (name,),
        min(1.0, ahead.ahead - ahead.seen),
    )


@check
def graph_says(case: Case) -> Iterator[Finding]:
    """Whether neighbours are alike in what a model leaves, against the same graph with its groups shuffled."""
    told = case.evidence
    if told is None:
        return
    beside = f"{told.as_well} of {told.shuffles} graphs with shuffled groups explain as much"
    chance = (1 + told.as_well) / (1 + told.shuffles)
    how = f"over {told.groups} groups, the evidence for it is {percent(told.gate)}, and {beside}"
    if chance > FAINT:
        yield note(
            "silent-graph",
            "The graph says nothing that could be told from chance",
            f"What trees leave of groups they have not seen is no more alike in neighbours than in others: {how}.",
            "Expect little of this graph: compare with a fit without it, or give one by what makes groups alike.",
            (),
            1.0 - told.gate,
        )
    elif told.gate < 0.5 or told.as_well:
        yield note(
            "faint-graph",
            "The graph says little about groups never seen",
            f"What trees leave of groups they have not seen is hardly more alike in neighbours than in others: {how}.",
            "Expect a small gain from this graph at most: compare with a fit without it.",
            (),
            1.0 - told.gate,
        )
    else:
        yield note(
            "telling-graph",
            "The graph says something about groups never seen",
            f"What trees leave of groups they have not seen is alike in neighbours: {how}.",
            "Use it: --graph, and --model kriged or tr.Kriged around any model.",
            (),
            told.gate,
        )
