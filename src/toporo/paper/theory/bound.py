r"""Theorem 3, executable: what the risk on an unseen group is bounded by, term by term.

For a linear model with score :math:`s(x) = \theta^\top x`, :math:`\|\theta\| \le R`, and a loss between 0 and B that is
L-Lipschitz in the score, with probability :math:`1 - \delta` over the training rows, for all such θ,

.. math:: \mathrm{risk}_{\mathrm{test}}(\theta) \le
          \underbrace{\sum_e q_e\,\hat\ell_e(\theta)}_{\text{empirical}}
          + \underbrace{2 L\,\hat{\mathfrak R}_q}_{\text{complexity}}
          + \underbrace{B\,\mathrm{TV}(P_{\mathrm{test}}, P_q)}_{\text{distance}}
          + \underbrace{3 B \sqrt{\tfrac12 \log(2/\delta) \textstyle\sum_e q_e^2 / n_e}}_{\text{confidence}} ,
          \qquad P_q = \sum_e q_e P_e .

*Complexity.* With weights :math:`w_i = q_e / n_e` and random signs σ,
:math:`\hat{\mathfrak R}_q = E_\sigma \sup_{\|\theta\| \le R} \sum_i w_i \sigma_i \theta^\top x_i
= R\, E_\sigma \|\sum_i w_i \sigma_i x_i\|`, by Monte Carlo; contraction (Ledoux & Talagrand 1991) brings the factor L.
By Jensen it is at most :math:`R (\sum_i w_i^2 \|x_i\|^2)^{1/2}`.

*Confidence.* Another row in group e's place i changes the q-weighted empirical risk of any θ by at most
:math:`c_i = B q_e / n_e`, so McDiarmid's inequality holds with
:math:`\sum_i c_i^2 = B^2 \sum_e n_e (q_e/n_e)^2 = B^2 \sum_e q_e^2 / n_e`. It is used twice, each time with δ/2: for
the largest deviation of risk from empirical risk, whose mean is at most twice the mean complexity, and for the
empirical complexity, doubled, about its mean. That makes :math:`(1 + 2)\,B\sqrt{\cdot}`.

*Weights chosen from the rows.* The above is for a q fixed beforehand. DRO and TRO find theirs from the same rows. The
inequality of each single group, with :math:`\delta/m`, holds for all groups at once, and any mixture of valid bounds
is one: complexity :math:`2 L \sum_e q_e \hat{\mathfrak R}_e` and confidence
:math:`3 B \sum_e q_e \sqrt{\log(2m/\delta) / (2 n_e)}` hold for every q (``total_if_chosen``).

*Distance.* Only inputs of the test group are known. See :func:`classifier_distance` for why what is estimated here
is too small rather than too large, and :func:`mixture_emd` for the distance on the data graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from toporo.checks import number, one_of, positive, whole
from toporo.data.grouped import GroupedData, group_rng
from toporo.errors import DataError, listed
from toporo.groups import GroupIds, Groups, name_to_json
from toporo.paper.theory.ball import LARGEST_NORM, design, targets
from toporo.topology.diffusion import GroupDiffusion
from toporo.types import Array, Name

#: Sign vectors drawn at a time, so that memory stays small beside large data.
BLOCK_NUMBERS = 4_000_000
MIXTURE, TEST = "training mixture", "test group"


class BoundedLoss(NamedTuple):
    """A loss of the margin y·s(x), its Lipschitz constant, and its largest value where margins are at least -r."""

    name: str
    value: Callable[[Array], Array]
    lipschitz: float
    largest: Callable[[float], float]


#: The ramp counts an error fully and a margin below 1 partly, so it is never below the error rate.
BOUNDED_LOSSES: dict[str, BoundedLoss] = {
    "ramp": BoundedLoss("ramp", lambda margin: np.clip(1.0 - margin, 0.0, 1.0), 1.0, lambda reach: 1.0),
    "logistic": BoundedLoss(
        "logistic", lambda margin: np.logaddexp(0.0, -margin), 1.0, lambda reach: float(np.logaddexp(0.0, reach))
    ),
}


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error.

    Attributes
    ----------
    value, error : both.
    """

    value: float
    error: float


@dataclass(frozen=True)
class BoundBreakdown:
    r"""Theorem 3 for one test group, term by term; the formulas are at the head of the module.

    Attributes
    ----------
    test_group : its name, where one was given.
    weights : q, by training group.
    empirical : the q-weighted training risk.
    complexity, complexity_error : :math:`2 L \hat R_q` by Monte Carlo, and its standard error.
    complexity_ceiling : what Jensen's inequality bounds it by.
    distance, distance_error : total variation between test inputs and mixture as far as a classifier saw it, a lower
        bound, and its standard error.
    emd : their diffusion EMD, on a scale of its own and no part of the sum.
    confidence, delta : the last term, and its probability of failure.
    largest_loss : B.
    chosen_complexity, chosen_confidence : the terms that hold for weights found from the same rows.
    test_risk : the true risk on the test group if its labels were given, an oracle's knowledge; else None.
    assumptions : what must be true for the sum to be what it claims.
    """

    test_group: Name | None
    weights: Mapping[Name, float]
    empirical: float
    complexity: float
    complexity_error: float
    complexity_ceiling: float
    distance: float
    distance_error: float
    emd: float
    confidence: float
    largest_loss: float
    delta: float
    chosen_complexity: float
    chosen_confidence: float
    test_risk: float | None
    assumptions: tuple[str, ...]

    @property
    def terms(self) -> dict[str, float]:
        """The four terms that are summed, by name."""
        return {
            "empirical": self.empirical,
            "complexity": self.complexity,
            "distance": self.largest_loss * self.distance,
            "confidence": self.confidence,
        }

    @property
    def total(self) -> float:
        """The sum of the terms, for weights fixed beforehand."""
        return math.fsum(self.terms.values())

    @property
    def total_if_chosen(self) -> float:
        """The sum that holds for weights found from the same rows too."""
        return self.empirical + self.chosen_complexity + self.largest_loss * self.distance + self.chosen_confidence

    @property
    def vacuous(self) -> bool:
        """Whether the sum says no more than that a loss is at most B."""
        return self.total >= self.largest_loss

    @property
    def rows_factor(self) -> float | None:
        """How many times the rows it would take for the sum to fall below B, all else equal; None if no number would.

        Complexity and confidence shrink like one over the root of the rows, the other two terms stay.
        """
        room = self.largest_loss - self.empirical - self.largest_loss * self.distance
        return ((self.complexity + self.confidence) / room) ** 2 if room > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        plain = asdict(self) | {
            "test_group": None if self.test_group is None else name_to_json(self.test_group),
            "weights": [[name_to_json(name), value] for name, value in self.weights.items()],
            "assumptions": list(self.assumptions),
        }
        return plain | {
            "distance_term": self.largest_loss * self.distance,
            "total": self.total,
            "total_if_chosen": self.total_if_chosen,
            "vacuous": self.vacuous,
            "rows_factor": self.rows_factor,
        }


def bound_breakdown(
    theta: Any,
    data: GroupedData,
    weights: Mapping[Any, float],
    test_inputs: Any,
    *,
    ball_radius: float,
    test_group: Name | None = None,
    test_labels: Any = None,
    loss: str = "ramp",
    delta: float = 0.05,
    intercept: bool = True,
    signs: int = 1000,
    classifier: str = "boosting",
    emd: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> BoundBreakdown:
    """Theorem 3's terms for a linear classifier on a test group of which the inputs are known.

    Parameters
    ----------
    theta : coefficients, the intercept's last if there is one. A score's sign is the class, in the order of the labels.
    data : the training rows, with two classes.
    weights : q by training group: DRO's, TRO's, a prior's, ….
    test_inputs : (n, features), unlabelled.
    ball_radius : R, fixed before the data were seen; ‖θ‖ with the intercept may not exceed it.
    test_group : its name, for the result.
    test_labels : only to compare with (``test_risk``); no term uses them.
    loss : ``"ramp"`` (B = 1, never below the error rate) or ``"logistic"`` (B from R and the largest input).
    delta : the probability of failure.
    intercept : whether θ has one.
    signs : how many random sign vectors the complexity is averaged over.
    classifier : a key of :data:`CLASSIFIERS`.
    emd : settings of :func:`~toporo.topology.diffusion_emd`.
    seed : of the sign vectors, the folds and the classifier.
    """
    one_of(loss, "bounded loss", BOUNDED_LOSSES)
    q = check_weights(data.groups, weights)
    train, test = design(data.x, intercept), check_test_inputs(data, test_inputs, intercept)
    theta = _check_theta(theta, train.shape[1], ball_radius)
    classes = np.unique(targets(data.y))
    chosen = BOUNDED_LOSSES[loss]
    rows, counts = _row_weights(data, q), np.array(list(data.sizes.values()), dtype=np.float64)
    empirical = float(rows @ chosen.value(train @ theta * _signs(data.y, classes, "y")))
    test_risk = None if test_labels is None else _true_risk(test, theta, test_labels, classes, chosen)
    longest = float(max(np.linalg.norm(train, axis=1).max(), np.linalg.norm(test, axis=1).max()))
    largest = chosen.largest(ball_radius * longest)
    confidence = confidence_term(q, counts, largest, delta)
    each_confidence = [confidence_term(np.ones(1), n, largest, delta / len(q)) for n in counts[:, None]]
    factor = 2.0 * chosen.lipschitz
    complexity, *each_complexity = (
        rademacher(data, mixture, ball_radius=ball_radius, intercept=intercept, signs=signs, seed=seed)
        for mixture in (q, *np.eye(len(q)))
    )
    apart = classifier_distance(data, weights, test_inputs, classifier=classifier, seed=seed)
    return BoundBreakdown(
        test_group=test_group,
        weights=data.groups.named(q),
        empirical=empirical,
        complexity=factor * complexity.value,
        complexity_error=factor * complexity.error,
        complexity_ceiling=factor * ball_radius * float(np.sqrt(((rows[:, None] * train) ** 2).sum())),
        distance=apart.value,
        distance_error=apart.error,
        emd=mixture_emd(data, weights, test_inputs, **(emd or {})),
        confidence=confidence,
        largest_loss=largest,
        delta=float(delta),
        chosen_complexity=factor * float(q @ [estimate.value for estimate in each_complexity]),
        chosen_confidence=float(q @ each_confidence),
        test_risk=test_risk,
        assumptions=_assumptions(chosen, largest, ball_radius, delta, classifier),
    )


def confidence_term(q: Array, counts: Array, largest: float, delta: float) -> float:
    r""":math:`3 B \sqrt{\tfrac12 \log(2/\delta) \sum_e q_e^2 / n_e}`; derived at the head of this module.

    >>> round(confidence_term(np.array([0.5, 0.5]), np.array([50.0, 50.0]), largest=1.0, delta=0.05), 4)
    0.4074
    """
    number(delta, "delta", "a probability of failure between 0 and 1", above=0.0, below=1.0)
    return 3.0 * largest * math.sqrt(0.5 * math.log(2.0 / delta) * float((q**2 / counts).sum()))


def rademacher(
    data: GroupedData, q: Array, *, ball_radius: float, intercept: bool = True, signs: int = 1000, seed: int = 0
) -> Estimate:
    r"""Weighted empirical Rademacher complexity :math:`R\,E_\sigma\|\sum_i w_i\sigma_i x_i\|`, :math:`w_i = q_e/n_e`.

    Parameters
    ----------
    data : the rows.
    q : weights by group, in the order of ``data.groups``.
    ball_radius : R.
    intercept : whether a column of ones is added to the inputs.
    signs : how many sign vectors to average over, the same ones for all q that give weight to the same groups.
    seed : of the sign vectors.
    """
    positive(ball_radius, "ball_radius", LARGEST_NORM)
    count = whole(signs, "signs", 2)
    weights = _row_weights(data, q)
    points = (weights[:, None] * design(data.x, intercept))[weights > 0]
    rng = np.random.default_rng(seed)
    block = max(1, BLOCK_NUMBERS // len(points))
    parts = []
    for start in range(0, count, block):
        sigma = 2.0 * rng.integers(0, 2, size=(min(block, count - start), len(points))) - 1.0
        parts.append(np.linalg.norm(sigma @ points, axis=1))
    norms = ball_radius * np.concatenate(parts)
    return Estimate(float(norms.mean()), float(norms.std(ddof=1) / math.sqrt(count)))


# ---------------------------------------------------------------- distances


def _boosting(seed: int) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(random_state=seed)


def _logistic(seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000, random_state=seed)


#: Name to maker of a scikit-learn classifier that takes ``sample_weight``.
CLASSIFIERS: dict[str, Callable[[int], Any]] = {"boosting": _boosting, "logistic": _logistic}


def classifier_distance(
    data: GroupedData,
    weights: Mapping[Any, float],
    test_inputs: Any,
    *,
    classifier: str = "boosting",
    folds: int = 5,
    seed: int = 0,
) -> Estimate:
    r"""Total variation between the test inputs and the q-weighted training inputs, as far as a classifier sees it.

    For any rule that tells the two apart, hits on one side plus hits on the other less one, that is
    :math:`2 \times` balanced accuracy :math:`- 1`, is at most the total variation. Rules are fitted with the weights
    :math:`q_e/n_e` and scored on rows held out, every group spread over the folds; their average is a **lower** bound
    on the total variation, up to sampling noise (the standard error) and nothing tells by how much it is too low.

    Parameters
    ----------
    data : the training rows.
    weights : q by training group.
    test_inputs : (n, features).
    classifier : a key of :data:`CLASSIFIERS`.
    folds : parts of the rows, each held out once.
    seed : of the folds and the classifier.
    """
    one_of(classifier, "classifier", CLASSIFIERS)
    q = check_weights(data.groups, weights)
    test = check_test_inputs(data, test_inputs, intercept=False)
    used = np.flatnonzero(q[data.codes] > 0)
    train = design(data.x, intercept=False)[used]
    sizes = np.array([*(n for n, weight in zip(data.sizes.values(), q, strict=True) if weight > 0), len(test)])
    count = min(whole(folds, "folds", 2), int(sizes.min()))
    if count < 2:
        raise DataError(
            f"a group has {sizes.min()} row(s) (training groups with weight and the test group have {listed(sizes)}): "
            "a classifier to be scored on other rows than its own needs two of each."
        )
    x = np.concatenate([train, test])
    is_test = np.concatenate([np.zeros(len(train), dtype=bool), np.ones(len(test), dtype=bool)])
    mass = np.concatenate([_row_weights(data, q)[used], np.full(len(test), 1.0 / len(test))])
    parts = np.concatenate([data.codes[used], np.full(len(test), len(q))])
    fold = np.empty(len(x), dtype=np.int64)
    for part in np.unique(parts):
        rows = np.flatnonzero(parts == part)
        name = TEST if part == len(q) else data.groups.names[part]
        fold[rows] = group_rng(name, seed).permutation(len(rows)) % count
    hits = np.empty(len(x))
    for held in range(count):
        inside, outside = fold != held, fold == held
        rule = CLASSIFIERS[classifier](seed)
        rule.fit(x[inside], is_test[inside], sample_weight=mass[inside] * len(x) / 2.0)
        hits[outside] = rule.predict(x[outside]) == is_test[outside]
    rate = np.bincount(parts, hits, minlength=len(q) + 1) / np.maximum(np.bincount(parts, minlength=len(q) + 1), 1)
    share = np.append(q, 1.0)
    every = np.append(list(data.sizes.values()), len(test))
    error = math.sqrt(float((share**2 * rate * (1.0 - rate) / every).sum()))
    return Estimate(min(max(float(share @ rate) - 1.0, 0.0), 1.0), error)


def mixture_emd(data: GroupedData, weights: Mapping[Any, float], test_inputs: Any, **settings: Any) -> float:
    r"""Diffusion EMD between the test group and the mixture :math:`\sum_e q_e \mu_e` on the data graph of all rows.

    Densities are linear in the measure they start from, so the mixture is a group of its own whose rows weigh
    :math:`q_e / n_e`.

    Parameters
    ----------
    data : the training rows.
    weights : q by training group.
    test_inputs : (n, features).
    settings : those of :func:`~toporo.topology.diffusion_emd`.
    """
    q = check_weights(data.groups, weights)
    test = check_test_inputs(data, test_inputs, intercept=False)
    x = np.concatenate([design(data.x, intercept=False), test])
    both = Groups([MIXTURE, TEST])
    codes = np.repeat(both.encode([MIXTURE, TEST]), [len(data), len(test)])
    rows = np.concatenate([_row_weights(data, q), np.full(len(test), 1.0 / len(test))])
    diffusion = GroupDiffusion.prepare(x, GroupIds(codes, both), **settings)
    return diffusion.distances(row_weights=rows).between(MIXTURE, TEST)


# ---------------------------------------------------------------- checks


def check_weights(groups: Groups, weights: Mapping[Any, float]) -> Array:
    """Weights by name as a distribution over exactly these groups."""
    if not isinstance(weights, Mapping):
        raise DataError(f"weights are {type(weights).__name__}: expected {{group name: number}}, joined by name.")
    q = groups.align(weights, what="the weights")
    if not (np.isfinite(q).all() and (q >= 0).all() and abs(q.sum() - 1.0) <= 1e-6):
        raise DataError(
            f"the weights are no distribution: they sum to {q.sum():g}, the smallest is {q.min():g}. Give finite, "
            "non-negative numbers that sum to 1."
        )
    return np.asarray(q / q.sum())


def check_test_inputs(data: GroupedData, test_inputs: Any, intercept: bool) -> Array:
    """Test inputs with the features of the training rows."""
    inputs = design(test_inputs, intercept)
    expected = data.x.shape[1] if data.x.ndim == 2 else None
    given = inputs.shape[1] - intercept
    if given != expected:
        raise DataError(
            f"the test inputs have {given} feature(s), the training rows {expected}: give the same columns of both."
        )
    if not len(inputs):
        raise DataError("the test group has no rows: give some of its inputs.")
    if not np.isfinite(inputs).all():
        raise DataError("the test inputs hold NaN or infinite values: impute or drop those rows first.")
    return inputs


def _check_theta(theta: Any, size: int, ball_radius: float) -> Array:
    model = np.asarray(theta, dtype=np.float64).reshape(-1)
    if len(model) != size:
        raise DataError(
            f"θ has {len(model)} coefficient(s), expected {size}: one per feature and, with intercept=True, "
            "the intercept's."
        )
    if not np.isfinite(model).all():
        raise DataError("θ holds NaN or infinite values.")
    norm = float(np.linalg.norm(model))
    if norm > ball_radius * (1.0 + 1e-9):
        raise DataError(
            f"θ has norm {norm:g}, outside the class ‖θ‖ ≤ {ball_radius:g} that the bound is about: train within that "
            "ball, or state the larger radius."
        )
    return model


def _row_weights(data: GroupedData, q: Array) -> Array:
    """q_e / n_e of every row."""
    counts = np.array(list(data.sizes.values()), dtype=np.float64)
    return np.asarray((q / counts)[data.codes])


def _signs(y: Any, classes: Array, what: str) -> Array:
    values = targets(y)
    if len(classes) != 2:
        raise DataError(f"the training labels hold {len(classes)} different value(s): the bound is for two classes.")
    strange = np.setdiff1d(values, classes)
    if len(strange):
        raise DataError(f"{what} holds label(s) that training never saw: {listed(strange.tolist())}.")
    return np.asarray(np.where(values == classes[1], 1.0, -1.0))


def _true_risk(test: Array, theta: Array, labels: Any, classes: Array, loss: BoundedLoss) -> float:
    signs = _signs(labels, classes, "test_labels")
    if len(signs) != len(test):
        raise DataError(f"{len(test)} test inputs but {len(signs)} test labels: give one per row, in the same order.")
    return float(loss.value(test @ theta * signs).mean())


def _assumptions(
    loss: BoundedLoss, largest: float, ball_radius: float, delta: float, classifier: str
) -> tuple[str, ...]:
    return (
        "Training rows are independent, those of a group drawn from that group's distribution.",
        f"The loss ({loss.name}) lies between 0 and B = {largest:.3g} on every input that can occur, and changes by at "
        f"most {loss.lipschitz:g} times what the score changes by.",
        f"The radius R = {ball_radius:g} of the class was fixed before the data were seen; the statement fails with "
        f"probability at most δ = {delta:g}.",
        "q was fixed beforehand. DRO and TRO find theirs from the same rows: 'total, q chosen on the rows' is the sum "
        "that holds for such weights, by a union over the groups.",
        "Labels depend on inputs in the test group as they do in the mixture (covariate shift): the distance compares "
        "inputs only.",
        f"The total variation is a classifier's ({classifier}), which is a lower bound of the true one. The sum is "
        "therefore an estimate and no certificate.",
        "The complexity is a Monte Carlo mean; its standard error is given, and its ceiling needs no sampling.",
        "The diffusion EMD ranks groups by how far they are; it is on a scale of its own and no part of the sum.",
    )
