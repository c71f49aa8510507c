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

*Weights chosen from the rows.* The above is for a q fixed beforehand. DRO and TRO find theirs from the same rows, for
which it is no guarantee: a union over the groups, which covers every q, makes both terms larger.

*Distance.* Only inputs of the test group are known. :func:`classifier_distance` explains why its estimate is too small
rather than too large.

*Loss.* The loss bounded here is the ramp :math:`\min(1, \max(0, 1 - y s(x)))`, with B = L = 1, which is never below
the error rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import PredefinedSplit, cross_val_predict

from toporo.data import GroupedData, group_rng
from toporo.paper.theory.ball import BallProblem
from toporo.robust import Saddle
from toporo.types import Array, Name

#: Distinguishes rows of the test group from those of the training mixture.
CLASSIFIER = GradientBoostingClassifier(random_state=0)
#: Parts of the rows, each held out once from the classifier.
FOLDS = 5
#: δ, the probability of failure.
DELTA = 0.05


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
    empirical : the q-weighted training risk.
    complexity, complexity_error : :math:`2 \hat{\mathfrak R}_q` by Monte Carlo, and its standard error.
    distance, distance_error : total variation between test inputs and mixture, estimated with a classifier (a lower
        bound), and its standard error.
    confidence : the last term, for δ = 0.05.
    test_risk : the true risk on the test group, which uses its labels (oracle).
    """

    test_group: Name
    empirical: float
    complexity: float
    complexity_error: float
    distance: float
    distance_error: float
    confidence: float
    test_risk: float

    @property
    def total(self) -> float:
        """The sum of the four terms; from B = 1 on it says nothing."""
        return self.empirical + self.complexity + self.distance + self.confidence


def bound_breakdown(problem: BallProblem, saddle: Saddle, test: GroupedData) -> BoundBreakdown:
    """Compute Theorem 3's terms for a linear classifier, its group weights and one test group.

    Parameters
    ----------
    problem : the training rows, with targets -1 and 1, and R, which was fixed before the data were seen.
    saddle : from :meth:`~toporo.paper.theory.BallProblem.solve`: θ, the sign of whose score is the class, and q.
    test : the rows of the test group. Their targets are compared with (``test_risk``) and enter no term.
    """
    theta, q = saddle.point.theta[:, 0], saddle.q
    complexity = rademacher(problem.row_weights(q)[:, None] * problem.data.x, problem.ball_radius)
    distance = classifier_distance(problem, q, test.x)
    confidence = 3.0 * math.sqrt(0.5 * math.log(2.0 / DELTA) * float((q**2 / problem.counts).sum()))
    return BoundBreakdown(
        test_group=test.groups.names[0],
        empirical=float(q @ problem.group_means(_ramp(theta, problem.data))),
        complexity=2.0 * complexity.value,
        complexity_error=2.0 * complexity.error,
        distance=distance.value,
        distance_error=distance.error,
        confidence=confidence,
        test_risk=float(_ramp(theta, test).mean()),
    )


def _ramp(theta: Array, data: GroupedData) -> Array:
    """Return the loss of every row."""
    return np.asarray(np.clip(1.0 - data.x @ theta * data.y, 0.0, 1.0))


def rademacher(points: Array, ball_radius: float, signs: int = 1000) -> Estimate:
    r"""Weighted empirical Rademacher complexity :math:`R\,E_\sigma\|\sum_i \sigma_i w_i x_i\|`, by Monte Carlo.

    ``points`` are :math:`w_i x_i`, one row each; rows of zeros change nothing. The ``signs`` random sign vectors are
    the same for the same number of rows.
    """
    points = points[points.any(axis=1)]
    sigma = 2.0 * np.random.default_rng(0).integers(0, 2, size=(signs, len(points))) - 1.0
    norms = ball_radius * np.linalg.norm(sigma @ points, axis=1)
    return Estimate(float(norms.mean()), float(norms.std(ddof=1) / math.sqrt(signs)))


def classifier_distance(problem: BallProblem, q: Array, test_inputs: Array) -> Estimate:
    r"""Estimate the total variation between the test inputs and the q-weighted training inputs with a classifier.

    For any rule that distinguishes the two, the sum of its hit rates on both sides less one, that is
    :math:`2 \times` balanced accuracy :math:`- 1`, is at most the total variation. Rules are fitted with the weights
    :math:`q_e/n_e` and scored on held-out rows, every group spread over the folds. Their average is a **lower** bound
    on the total variation, up to sampling noise (the standard error), and by how much it is too low is unknown.
    """
    share, counts = np.append(q, 1.0), np.append(problem.counts, len(test_inputs))  # the test group comes last
    parts = min(FOLDS, int(counts[share > 0].min()))
    streams = [group_rng(name, 0) for name in (*problem.data.groups, "test group")]
    fold = np.concatenate([rng.permutation(n) % parts for rng, n in zip(streams, counts, strict=True)])
    codes = np.repeat(np.arange(len(counts)), counts)
    x, used = np.concatenate([problem.data.x, test_inputs]), share[codes] > 0
    x, codes, fold = x[used][:, np.ptp(x, axis=0) > 0], codes[used], fold[used]  # without the column of ones
    is_test = codes == len(q)
    mass = (share / counts)[codes] * len(x) / 2.0
    guesses = cross_val_predict(CLASSIFIER, x, is_test, cv=PredefinedSplit(fold), params={"sample_weight": mass})
    rate = np.bincount(codes, guesses == is_test, minlength=len(share)) / counts
    error = math.sqrt(float((share**2 * rate * (1.0 - rate) / counts).sum()))
    return Estimate(min(max(float(share @ rate) - 1.0, 0.0), 1.0), error)
