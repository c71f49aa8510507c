"""Classes by kriged coefficients, with probabilities calibrated on held-out regions."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from toporo.choice.cross_fitting import Fold, Mask, cross_fit, folds
from toporo.errors import DataError, TopoRoWarning, warn
from toporo.estimators.kriged import KrigedEstimator, KrigedRegressor, places_of
from toporo.estimators.kriged_model import KrigedModel
from toporo.estimators.places import Context, Neighbors, Places
from toporo.estimators.rows import EVERYONE, check_classes, counted, encode_classes, group_ids, one_group, some_of
from toporo.groups import GroupIds, Groups
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

#: Parts of the training groups that are held out in turn to calibrate probabilities.
FOLDS = 5
#: A class that inputs explain wholly is still no certainty: the least share of its variance that is left.
LEAST_LEFT = 0.04
#: Standard deviations of what calibration changes: the logarithm of a scale common to all classes, what one class has
#: beside it, and a bias. So many rows of a group count as independent. Settled on made-up data, nothing published.
COMMON, APART, BIAS, INDEPENDENT = 1.0, 0.1, 0.1, 5


@dataclass(frozen=True, eq=False)
class KrigedClassModel:
    """Regression of the classes' indicators, and the calibration of its values to probabilities.

    Attributes
    ----------
    regression : for two classes, of the second one's indicator.
    classes : sorted.
    scale, bias : a and b of :class:`KrigedClassifier`, by class.
    held_out : the groups that were held out together to find them.
    """

    regression: KrigedModel
    classes: npt.NDArray[Any]
    scale: Array
    bias: Array
    held_out: tuple[tuple[Name, ...], ...]

    def __call__(self, x: Array, at: Places) -> Array:
        """Predict probabilities of rows: (rows, classes)."""
        scores, shares = class_scores(self.regression, x, at)
        return np.asarray(softmax(shares + self.scale * scores + self.bias, axis=1))

    def check(self) -> None:
        """Raise unless its parts fit together."""
        outputs, count = len(self.regression.targets.scale), len(self.classes)
        if outputs != (1 if count == 2 else count):
            raise DataError(f"it has {outputs} target(s) for {count} classes.")
        if not self.scale.shape == self.bias.shape == (count,) or not (self.scale > 0).all():
            raise DataError(f"its calibration is not of {count} classes, or has scales that are not positive.")


class KrigedClassifier(ClassifierMixin, KrigedEstimator):  # type: ignore[misc]  # scikit-learn has no types
    r"""Classes by :class:`KrigedRegressor`, with probabilities that are calibrated on held-out regions.

    Whether a row is of class k is a target of 0 or 1, and all of them are fitted together: they share the variances,
    and so the say that the graph has. Of a row the model gives a mean :math:`s_k` and a variance :math:`v_k`, large
    where its group is far from any that was trained on. With :math:`\pi_k` the share of the class in training, and
    :math:`\sigma_k^2 = \pi_k (1 - \pi_k)`,

    .. math:: p_k \propto \pi_k \exp(a_k z_k + b_k), \qquad z_k = (1 - \pi_k) \Bigl[\frac{s_k - \pi_k}{v_k} -
              \bigl(\tfrac12 - \pi_k\bigr) \Bigl(\frac{1}{v_k} - \frac{1}{\sigma_k^2}\Bigr)_+\Bigr],

    which for two classes with normal inputs, a = 1 and b = 0 is what discriminant analysis says; where v is large, no
    more than the shares are left. a and b are moved from there, as far as the data say so, to where the log loss is
    least in regions of the graph that are held out in turn, as far from the others as the groups that the graph has
    beyond those in training. Without a graph whole groups are held out, without groups rows. It costs six fits.

    Parameters
    ----------
    graph, context : as in :class:`KrigedRegressor`.

    Attributes
    ----------
    classes_ : sorted.
    model_ : the fitted model, a value (:class:`KrigedClassModel`).
    evidence_, gate_, saw_, groups_, group_sizes_, topology_ : as in :class:`KrigedRegressor`.
    scale_, bias_ : a and b, by class.
    held_out_ : the groups that were held out together to find them, region by region; empty if none could be.

    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(range(12), 40)  # twelve in a row; what the input means turns around on the way
    >>> x = rng.normal(size=(480, 1))
    >>> y = np.where((groups - 5.5) * x[:, 0] + rng.normal(size=480) > 0, "yes", "no")
    >>> model = KrigedClassifier(graph=[(i, i + 1) for i in range(11)])
    >>> model = model.fit(x[groups != 9], y[groups != 9], groups=groups[groups != 9])
    >>> model.predict([[1.0], [-1.0]], groups=[9, 9]).tolist()
    ['yes', 'no']
    """

    model_: KrigedClassModel

    score = KrigedEstimator.score  # with groups

    @property
    def _regression(self) -> KrigedModel:
        return self.model_.regression

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fit the regression, and calibrate what follows from it.

        Parameters
        ----------
        X : rows × features.
        y : every row's class.
        groups : every row's group, by name. Without them all rows are one group.
        sample_weight : a row with weight 2 counts as two.
        """
        x, target = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classes(target, "KrigedRegressor")
        ids = one_group(EVERYONE, len(x)) if groups is None else group_ids(groups, len(x))
        mass = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64).sum()
        x, target, ids, shares = counted(x, target, ids, sample_weight)
        weights = np.ones(len(x)) if shares is None else shares * (mass / shares.sum())
        self.classes_, codes = encode_classes(target)
        regression = self._fit_regression(x, codes, ids, weights).model_
        return self._adopt(self._calibrated(regression, x, codes, ids, weights))

    def _adopt(self, model: KrigedClassModel) -> Self:
        self.classes_ = model.classes
        self.scale_, self.bias_, self.held_out_ = model.scale, model.bias, list(model.held_out)
        return super()._adopt(model)

    def predict(self, X: Any, groups: Any = None, *, neighbors: Neighbors | None = None) -> Any:  # noqa: N803
        """The likeliest class of every row.

        Parameters
        ----------
        X, groups, neighbors : see :meth:`KrigedRegressor.predict`.
        """
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X, groups, neighbors=neighbors).argmax(axis=1)]

    def predict_proba(
        self,
        X: Any,  # noqa: N803
        groups: Any = None,
        *,
        neighbors: Neighbors | None = None,
        context: Context | None = None,
    ) -> Array:
        """The probability of every class, in the order of ``classes_``.

        Parameters
        ----------
        X, groups, neighbors, context : see :meth:`KrigedRegressor.predict`.
        """
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        return self.model_(x, places_of(self.model_.regression, x, groups, neighbors, context))

    def _fit_regression(self, x: Array, codes: npt.NDArray[np.intp], ids: GroupIds, weights: Array) -> KrigedRegressor:
        indicators = np.eye(len(self.classes_))[codes][:, 1 if len(self.classes_) == 2 else 0 :]
        return KrigedRegressor(graph=self.graph, context=self.context).fit(x, indicators, ids, weights)

    def _calibrated(
        self, whole: KrigedModel, x: Array, codes: npt.NDArray[np.intp], ids: GroupIds, weights: Array
    ) -> KrigedClassModel:
        """Find scales and biases from the predictions of models for rows whose groups they have not seen."""
        classes = len(self.classes_)

        def score(fold: Fold) -> Array:
            kept, out = fold.kept, fold.held_out
            model = self._fit_regression(x[kept], codes[kept], some_of(ids, kept), weights[kept]).model_
            new = some_of(ids, out)
            at = places_of(model, x[out], new, None, model.group_context(x[out], new, weights[out]))
            return np.hstack(class_scores(model, x[out], at))

        # A model that has never met a class cannot predict it.
        masks = [mask for mask in _calibration_folds(whole.graph, ids, x) if len(np.unique(codes[~mask])) == classes]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopoRoWarning)  # the whole model gives the same warnings
            found = cross_fit(score, masks)
        if not masks:
            warn(
                "probabilities are not calibrated: whichever groups are held out, the others lack some class. Join "
                "classes or groups; until then probabilities are those of a normal model."
            )
            return KrigedClassModel(whole, self.classes_, np.ones(classes), np.zeros(classes), ())
        groups = len(ids.groups) if len(ids.groups) > 1 else math.inf
        z, shares = np.split(np.concatenate(found.values), 2, axis=1)
        scale, bias = _calibration(z, shares, codes[found.rows], weights[found.rows], groups)
        held_out = tuple(tuple(some_of(ids, fold.held_out).groups) for fold in found.folds)
        return KrigedClassModel(whole, self.classes_, scale, bias, held_out)


def _calibration_folds(graph: GroupGraph | None, ids: GroupIds, x: Array) -> tuple[Mask, ...]:
    """Return folds of regions as far away as the graph's other groups, of whole groups, or of rows."""
    names = ids.groups.names
    if len(names) > 2 and graph is not None:
        reached = graph.hops(names)
        others = [name for name in graph.names if name not in ids.groups and math.isfinite(reached[name])]
        return folds(ids, graph, others, kind="hops", parts=FOLDS)
    if len(names) == 1:  # equal rows stay together, in any order: a row twice is a row of weight 2
        rows = np.unique(x, axis=0, return_inverse=True)[1].ravel()
        if not rows.any():  # all rows are equal
            return ()
        ids = GroupIds(rows, Groups(range(int(rows.max()) + 1)))
    return folds(ids, parts=FOLDS)


def class_scores(model: KrigedModel, x: Array, at: Places) -> tuple[Array, Array]:
    """Return z and the logarithms of the classes' shares in training, (rows, classes) both."""
    centre, spread = model.moments(x, at, spread=True)
    shares, scale = model.targets.center, model.targets.scale
    values, left = centre * scale + shares, (spread + model.fit.noise) * scale**2
    if values.shape[1] == 1:
        values, left, shares = np.column_stack([1.0 - values, values]), left[:, [0, 0]], np.append(1.0 - shares, shares)
    whole = shares * (1.0 - shares)
    left = np.maximum(left, LEAST_LEFT * whole)
    scores = (values - shares) / left - (0.5 - shares) * np.maximum(1.0 / left - 1.0 / whole, 0.0)
    return (1.0 - shares) * scores, np.broadcast_to(np.log(shares), values.shape)


def _calibration(
    scores: Array, shares: Array, codes: npt.NDArray[np.intp], weights: Array, groups: float
) -> tuple[Array, Array]:
    """Return a and b with the least log loss, held to 1 and 0 as far as few groups say little."""
    rows, classes = scores.shape
    worth = min(float(weights.sum()), INDEPENDENT * groups) * weights / weights.sum()
    right = np.eye(classes)[codes]
    spreads = np.array([COMMON, *[APART] * classes, *[BIAS] * classes])

    def loss(settings: Array) -> tuple[float, Array]:
        scale, bias = np.exp(settings[0] + settings[1 : classes + 1]), settings[classes + 1 :]
        logs = log_softmax(shares + scale * scores + bias, axis=1)
        wrong = worth[:, None] * (np.exp(logs) - right)
        by_scale = (wrong * scores).sum(axis=0) * scale
        gradient = np.concatenate([[by_scale.sum()], by_scale, wrong.sum(axis=0)])
        value = -float(worth @ logs[np.arange(rows), codes])
        return value + 0.5 * float(((settings / spreads) ** 2).sum()), gradient + settings / spreads**2

    exactly = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 1000}  # a row twice must be a row of weight 2
    best = minimize(loss, np.zeros(2 * classes + 1), jac=True, method="L-BFGS-B", options=exactly).x
    return np.exp(best[0] + best[1 : classes + 1]), best[classes + 1 :]
