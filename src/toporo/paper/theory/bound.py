r"""Theorem 3: a bound on the risk in an unseen group, term by term.

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

*Confidence.* Replacing one row of group e changes the q-weighted empirical risk of any θ by at most
:math:`c_i = B q_e / n_e`, so McDiarmid's inequality holds with
:math:`\sum_i c_i^2 = B^2 \sum_e n_e (q_e/n_e)^2 = B^2 \sum_e q_e^2 / n_e`. It is used twice, each time with δ/2: for
the largest deviation of risk from empirical risk, whose mean is at most twice the mean complexity, and for the doubled
empirical complexity around its mean. Together :math:`(1 + 2)\,B\sqrt{\cdot}`.

*Weights chosen from the rows.* The above is for a q fixed beforehand. DRO and TRO find theirs from the same rows. The
inequalities of the single groups, each with :math:`\delta/m`, hold together, and any mixture of valid bounds is a
valid bound: complexity :math:`2 L \sum_e q_e \hat{\mathfrak R}_e` and confidence
:math:`3 B \sum_e q_e \sqrt{\log(2m/\delta) / (2 n_e)}` hold for every q (``total_if_chosen``).

*Distance.* Only inputs of the test group are known. :func:`classifier_distance` explains why its estimate is too small
rather than too large; :func:`mixture_emd` is the distance on the data graph.

*Loss.* The loss bounded here is the ramp :math:`\min(1, \max(0, 1 - y s(x)))`, with B = L = 1, which is never below
the error rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import PredefinedSplit, cross_val_predict

from toporo.checks import number, whole
from toporo.data import GroupedData, group_rng
from toporo.errors import DataError
from toporo.groups import Groups
from toporo.paper.theory.ball import BallProblem, require_signs
from toporo.topology import GroupDiffusion, Prior
from toporo.types import Array, Name

#: Distinguishes rows of the test group from those of the training mixture.
CLASSIFIER = GradientBoostingClassifier(random_state=0)
#: Parts of the rows, each held out once from the classifier.
FOLDS = 5


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class BoundBreakdown:
    r"""Theorem 3 for one test group, term by term; the formulas are at the head of the module.

    Attributes
    ----------
    test_group : its name.
    weights : q, by training group.
    empirical : the q-weighted training risk.
    complexity, complexity_error : :math:`2 \hat{\mathfrak R}_q` by Monte Carlo, and its standard error.
    distance, distance_error : total variation between test inputs and mixture, estimated with a classifier (a lower
        bound), and its standard error.
    emd : their diffusion EMD, on another scale and no part of the sum.
    confidence, delta : the last term, and its probability of failure.
    chosen_complexity, chosen_confidence : the terms that hold for weights found from the same rows.
    test_risk : the true risk on the test group, which uses its labels (oracle).
    assumptions : the conditions under which the sum is a bound.
    """

    test_group: Name
    weights: Mapping[Name, float]
    empirical: float
    complexity: float
    complexity_error: float
    distance: float
    distance_error: float
    emd: float
    confidence: float
    delta: float
    chosen_complexity: float
    chosen_confidence: float
    test_risk: float
    assumptions: tuple[str, ...]

    @property
    def terms(self) -> dict[str, float]:
        """The four terms of the sum, by name."""
        return {name: getattr(self, name) for name in ("empirical", "complexity", "distance", "confidence")}

    @property
    def total(self) -> float:
        """The sum of the terms, for weights fixed beforehand."""
        return math.fsum(self.terms.values())

    @property
    def total_if_chosen(self) -> float:
        """The sum that also holds for weights found from the same rows."""
        return self.empirical + self.chosen_complexity + self.distance + self.chosen_confidence

    @property
    def vacuous(self) -> bool:
        """True if the sum says no more than that a loss is at most B = 1."""
        return self.total >= 1.0

    @property
    def rows_factor(self) -> float | None:
        """Factor by which the rows must grow for the sum to fall below B, all else equal; None if no factor is enough.

        Complexity and confidence shrink like one over the root of the rows, the other two terms stay.
        """
        room = 1.0 - self.empirical - self.distance
        return ((self.complexity + self.confidence) / room) ** 2 if room > 0 else None


def bound_breakdown(
    problem: BallProblem,
    theta: Array,
    weights: Mapping[Name, float],
    test: GroupedData,
    *,
    delta: float = 0.05,
    signs: int = 1000,
) -> BoundBreakdown:
    """Compute Theorem 3's terms for a linear classifier and one test group.

    Parameters
    ----------
    problem : the training rows, with targets -1 and 1, and R, which was fixed before the data were seen.
    theta : coefficients, ‖θ‖ ≤ R; the sign of the score is the class.
    weights : q by training group: DRO's, TRO's, a prior's, ….
    test : the rows of the test group. Their targets are compared with (``test_risk``) and enter no term.
    delta : the probability of failure.
    signs : number of random sign vectors that the complexity is averaged over.
    """
    number(delta, "delta", "a probability of failure between 0 and 1", above=0.0, below=1.0)
    _check(problem, theta, test)
    train = problem.data
    q = train.groups.align(Prior(weights).weights, what="the weights")
    complexity, *group_complexities = (
        rademacher(problem.row_weights(mixture)[:, None] * train.x, problem.ball_radius, signs)
        for mixture in (q, *np.eye(len(q)))
    )
    group_confidences = [confidence_term(np.ones(1), count, delta / len(q)) for count in problem.counts[:, None]]
    distance = classifier_distance(problem, q, test.x)
    return BoundBreakdown(
        test_group=test.groups.names[0],
        weights=train.groups.named(q),
        empirical=float(q @ problem.group_means(_ramp(theta, train))),
        complexity=2.0 * complexity.value,
        complexity_error=2.0 * complexity.error,
        distance=distance.value,
        distance_error=distance.error,
        emd=mixture_emd(problem, q, test.x),
        confidence=confidence_term(q, problem.counts, delta),
        delta=delta,
        chosen_complexity=2.0 * float(q @ [estimate.value for estimate in group_complexities]),
        chosen_confidence=float(q @ group_confidences),
        test_risk=float(_ramp(theta, test).mean()),
        assumptions=_assumptions(problem.ball_radius, delta),
    )


def _check(problem: BallProblem, theta: Array, test: GroupedData) -> None:
    """Check the model and the test rows."""
    features = problem.data.x.shape[1]
    if theta.shape != (features,) or test.x.shape[1:] != (features,):
        raise DataError(
            f"θ has shape {theta.shape} and a test input {test.x.shape[1:]}: training inputs have {features} columns, "
            "and there is one coefficient for each."
        )
    norm = float(np.linalg.norm(theta))
    if not norm <= problem.ball_radius * (1.0 + 1e-9):
        raise DataError(
            f"θ has norm {norm:g}, outside the class ‖θ‖ ≤ {problem.ball_radius:g} that the bound is about: train "
            "within that ball, or state the larger radius."
        )
    if len(test.groups) != 1:
        raise DataError(f"the test rows are of {len(test.groups)} groups: the bound is for one at a time.")
    require_signs(test)


def _ramp(theta: Array, data: GroupedData) -> Array:
    """Return the loss of every row."""
    return np.asarray(np.clip(1.0 - data.x @ theta * data.y, 0.0, 1.0))


def confidence_term(q: Array, counts: npt.NDArray[Any], delta: float) -> float:
    r""":math:`3 B \sqrt{\tfrac12 \log(2/\delta) \sum_e q_e^2 / n_e}`; derived at the head of this module.

    >>> round(confidence_term(np.array([0.5, 0.5]), np.array([50.0, 50.0]), delta=0.05), 4)
    0.4074
    """
    return 3.0 * math.sqrt(0.5 * math.log(2.0 / delta) * float((q**2 / counts).sum()))


def rademacher(points: Array, ball_radius: float, signs: int = 1000) -> Estimate:
    r"""Weighted empirical Rademacher complexity :math:`R\,E_\sigma\|\sum_i \sigma_i w_i x_i\|`, by Monte Carlo.

    ``points`` are :math:`w_i x_i`, one row each; rows of zeros change nothing. The ``signs`` random sign vectors are
    the same for the same number of rows.
    """
    count = whole(signs, "signs", 2)
    points = points[points.any(axis=1)]
    sigma = 2.0 * np.random.default_rng(0).integers(0, 2, size=(count, len(points))) - 1.0
    norms = ball_radius * np.linalg.norm(sigma @ points, axis=1)
    return Estimate(float(norms.mean()), float(norms.std(ddof=1) / math.sqrt(count)))


# ---------------------------------------------------------------- distances


def classifier_distance(problem: BallProblem, q: Array, test_inputs: Array) -> Estimate:
    r"""Estimate the total variation between the test inputs and the q-weighted training inputs with a classifier.

    For any rule that distinguishes the two, the sum of its hit rates on both sides less one, that is
    :math:`2 \times` balanced accuracy :math:`- 1`, is at most the total variation. Rules are fitted with the weights
    :math:`q_e/n_e` and scored on held-out rows, every group spread over the folds. Their average is a **lower** bound
    on the total variation, up to sampling noise (the standard error), and by how much it is too low is unknown.
    """
    share, counts = np.append(q, 1.0), np.append(problem.counts, len(test_inputs))  # the test group comes last
    fewest = int(counts[share > 0].min())
    if fewest < 2:
        raise DataError(
            "a training group with weight or the test group has a single row: a classifier needs one to learn from and "
            "another to be scored on."
        )
    streams = [group_rng(name, 0) for name in (*problem.data.groups, "test group")]
    fold = np.concatenate([rng.permutation(n) % min(FOLDS, fewest) for rng, n in zip(streams, counts, strict=True)])
    codes = np.repeat(np.arange(len(counts)), counts)
    x, used = np.concatenate([problem.data.x, test_inputs]), share[codes] > 0
    x, codes, fold = x[used][:, np.ptp(x, axis=0) > 0], codes[used], fold[used]  # without the column of ones
    is_test = codes == len(q)
    mass = (share / counts)[codes] * len(x) / 2.0
    guesses = cross_val_predict(CLASSIFIER, x, is_test, cv=PredefinedSplit(fold), params={"sample_weight": mass})
    rate = np.bincount(codes, guesses == is_test, minlength=len(share)) / counts
    error = math.sqrt(float((share**2 * rate * (1.0 - rate) / counts).sum()))
    return Estimate(min(max(float(share @ rate) - 1.0, 0.0), 1.0), error)


def mixture_emd(problem: BallProblem, q: Array, test_inputs: Array) -> float:
    r"""Compute the diffusion EMD between the test group and the mixture :math:`\sum_e q_e \mu_e` on one data graph.

    Densities are linear in the measure they start from, so the mixture is treated as one group whose rows weigh
    :math:`q_e / n_e`.
    """
    ids = Groups.of(["training mixture"] * len(problem.data) + ["test group"] * len(test_inputs))
    rows = np.concatenate([problem.row_weights(q), np.full(len(test_inputs), 1.0 / len(test_inputs))])
    diffusion = GroupDiffusion.prepare(np.concatenate([problem.data.x, test_inputs]), ids, scales=5)
    return diffusion.distances(row_weights=rows).between("training mixture", "test group")


def _assumptions(ball_radius: float, delta: float) -> tuple[str, ...]:
    return (
        "Training rows are independent, those of a group drawn from that group's distribution.",
        "The loss (ramp) lies between 0 and B = 1 on every input that can occur, and changes by at most as much as the "
        "score.",
        f"The radius R = {ball_radius:g} of the class was fixed before the data were seen; the statement fails with "
        f"probability at most δ = {delta:g}.",
        "q was fixed beforehand. DRO and TRO choose q from the same rows; for such weights 'total, q chosen on the "
        "rows' holds, by a union over the groups.",
        "Labels depend on inputs in the test group as they do in the mixture (covariate shift): the distance compares "
        "inputs only.",
        "The total variation is estimated by a classifier (boosting), which gives a lower bound. The sum is therefore "
        "an estimate and no certificate.",
        "The complexity is a Monte Carlo mean, given with its standard error.",
        "The diffusion EMD ranks groups by their distance; it is on another scale and no part of the sum.",
    )
