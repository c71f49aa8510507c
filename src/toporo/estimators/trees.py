r"""Boosted trees of scikit-learn as plain arrays that predict: nothing in them is executed.

A node sends a row to the left if its feature is at most the threshold, or missing and missing values go left, and else
to the right; a leaf leads to itself. The values of a row's leaves are added to the baseline in the order of the trees,
so predictions are those of scikit-learn to the last bit, but for the last bits of logistic functions on other machines.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.utils.extmath import softmax
from sklearn.utils.validation import check_array, check_is_fitted

from toporo.checks import one_of
from toporo.data.grouped import group_rng
from toporo.errors import DataError, SettingError, listed
from toporo.estimators.packing import UNBOUNDED
from toporo.machine import one_thread
from toporo.types import Array

#: How sums become predictions. Losses of regressions by the one that they have; classes are known by their number.
LINKS = ("identity", "log", "classes")
LOG_LOSSES = ("poisson", "gamma")
#: What trees come from, by whether they tell classes apart.
BOOSTED: dict[bool, type] = {False: HistGradientBoostingRegressor, True: HistGradientBoostingClassifier}
#: Rows that are sent through all trees at a time.
ROWS = 1 << 10
#: Nodes that they pass before those at a leaf are set aside.
STEPS = 3
#: Rows on which stored trees are compared with those that they come from.
CHECKED = 64

NUMBERS = ("value", "threshold")
WHOLE = ("feature", "left", "right")


@dataclass(frozen=True, eq=False)
class StoredTrees:
    """Trees that predict.

    Attributes
    ----------
    names : of the features; None where they have none.
    inputs : how many features rows have.
    link : one of :data:`LINKS`.
    classes_ : the classes, sorted; None for a regression.
    baseline : what predictions start from, one per output.
    roots : the node at which each tree begins, iterations × outputs.
    value, threshold, feature, left, right, missing_left : of every node of all trees.
    """

    names: tuple[str, ...] | None
    inputs: int
    link: str
    classes_: npt.NDArray[Any] | None
    baseline: Array
    roots: npt.NDArray[np.int64]
    value: Array
    threshold: Array = field(metadata=UNBOUNDED)
    feature: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    missing_left: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, model: Any) -> StoredTrees:
        """From a fitted HistGradientBoosting regressor or classifier of scikit-learn, without categories."""
        if type(model) not in BOOSTED.values():
            raise SettingError(
                f"found a {type(model).__name__}: expected a HistGradientBoostingRegressor or -Classifier, whose trees "
                "can be written as arrays. Keep other models with joblib, and load only what you trust."
            )
        check_is_fitted(model)
        if model.is_categorical_ is not None:
            raise SettingError("trees that split by categories cannot be stored: encode categories as numbers first.")
        trees = [[tree.nodes for tree in iteration] for iteration in model._predictors]
        nodes = np.concatenate([each for iteration in trees for each in iteration])
        sizes = np.array([[len(each) for each in iteration] for iteration in trees], np.int64)
        roots = (np.cumsum(sizes) - sizes.ravel()).reshape(sizes.shape)
        first, own = np.repeat(roots.ravel(), sizes.ravel()), np.arange(len(nodes))
        leaf = nodes["is_leaf"].astype(bool)
        classes, columns = (getattr(model, name, None) for name in ("classes_", "feature_names_in_"))
        stored = cls(
            names=None if columns is None else tuple(columns.tolist()),
            inputs=int(model.n_features_in_),
            link="classes" if classes is not None else "log" if model.loss in LOG_LOSSES else "identity",
            classes_=classes,
            baseline=np.array(model._baseline_prediction, np.float64).ravel(),
            roots=roots,
            value=np.array(nodes["value"], np.float64),
            threshold=np.where(leaf, 0.0, nodes["num_threshold"]),
            feature=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64),
            left=np.where(leaf, own, first + nodes["left"]).astype(np.int64),
            right=np.where(leaf, own, first + nodes["right"]).astype(np.int64),
            missing_left=nodes["missing_go_to_left"].astype(bool) & ~leaf,
        )
        stored._compare(model)
        return stored

    def check(self) -> None:
        """Raise unless every node leads to a later one, or to itself, so that rows always arrive.

        Arrays must be of the same length, and the trees for as many outputs as there are classes.
        """
        one_of(self.link, "link", LINKS)
        classes = self.classes_
        if (classes is not None) != (self.link == "classes"):
            raise DataError(f"its link is {self.link!r}, and it has {'no ' if classes is None else ''}classes.")
        outputs = 1 if classes is None or len(classes) == 2 else len(classes)
        nodes, own = len(self.value), np.arange(len(self.value))
        if any(getattr(self, name).shape != (nodes,) for name in (*NUMBERS, *WHOLE, "missing_left")) or not nodes:
            raise DataError("its trees have arrays of unlike lengths.")
        if self.roots.ndim != 2 or self.roots.shape[1] != outputs or self.baseline.shape != (outputs,):
            raise DataError(f"its trees are for {self.roots.shape[-1:]} output(s), expected {outputs}.")
        if not np.isfinite(self.baseline).all():
            raise DataError("its trees start from output(s) that are not finite.")
        if self.names is not None and len(self.names) != self.inputs:
            raise DataError(f"it has {len(self.names)} names of features, expected {self.inputs}.")
        leaf = (self.left == own) & (self.right == own)
        onward = (self.left > own) & (self.right > own) & (self.left < nodes) & (self.right < nodes)
        features = (self.feature >= 0) & (self.feature < self.inputs)
        inside = (self.roots >= 0) & (self.roots < nodes)
        if not ((leaf | onward).all() and features.all() and inside.all()):
            raise DataError(
                "its trees are damaged: a node leads nowhere, back, or asks for a feature that is not there."
            )
        if not np.isfinite(self.value).all() or np.isnan(self.threshold).any():
            raise DataError("its trees hold values that are not finite.")

    def _compare(self, model: Any) -> None:
        """Raise if these trees do not predict what the model does, as of a scikit-learn that has other nodes."""
        rng = group_rng("trees", 0)
        rows = rng.choice(np.append(self.threshold[np.isfinite(self.threshold)], 0.0), (CHECKED, self.inputs))
        rows[rng.random(rows.shape) < 0.1] = np.nan
        with one_thread(openmp=True), warnings.catch_warnings(), np.errstate(over="ignore"):
            warnings.simplefilter("ignore", UserWarning)  # these rows have no names of features
            asked = "predict" if self.classes_ is None else "predict_proba"
            ours, theirs = (getattr(each, asked)(rows) for each in (self, model))
        if not np.array_equal(ours, theirs):
            raise SettingError(
                "the trees of this version of scikit-learn are not as expected, so they cannot be stored: keep the "
                "model with joblib, and report the version."
            )

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return self.inputs

    @property
    def feature_names_in_(self) -> npt.NDArray[Any]:
        """Names of the features."""
        if self.names is None:
            raise AttributeError("the features have no names.")
        return np.asarray(self.names, dtype=object)

    def sums(self, X: Any) -> Array:  # noqa: N803
        """Return the sums of the leaves of every row, rows × outputs.

        Parameters
        ----------
        X : rows × features; NaN is a missing value.
        """
        columns = getattr(X, "columns", None)
        if columns is not None and self.names is not None and tuple(columns) != self.names:
            raise DataError(f"the columns are {listed(columns)}: expected {listed(self.names)}, in this order.")
        x = check_array(X, dtype=np.float64, ensure_all_finite=False)
        if x.shape[1] != self.inputs:
            raise DataError(f"X has {x.shape[1]} features, but the trees are for {self.inputs}.")
        parts = [self._part(x[start : start + ROWS]) for start in range(0, len(x), ROWS)]
        return np.concatenate(parts)

    @cached_property
    def _onward(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Next nodes, left and right in turn, and a mask of the leaves."""
        return np.stack([self.left, self.right], axis=1).ravel(), self.left == np.arange(len(self.left))

    def _part(self, x: Array) -> Array:
        (children, leaf), flat, gaps = self._onward, np.ascontiguousarray(x).ravel(), bool(np.isnan(x).any())
        nodes = np.tile(self.roots.ravel(), len(x))  # of every row in every tree, as long as it is under way
        first = np.repeat(np.arange(len(x)) * self.inputs, self.roots.size)
        ends, under_way = np.empty_like(nodes), np.arange(len(nodes))
        while len(nodes):
            for _ in range(STEPS):
                values = flat.take(self.feature.take(nodes) + first)
                right = values > self.threshold.take(nodes)
                if gaps:
                    right |= np.isnan(values) & ~self.missing_left.take(nodes)
                nodes = children.take(2 * nodes + right)
            done = leaf.take(nodes)
            ends[under_way[done]] = nodes[done]
            going = np.flatnonzero(~done)
            nodes, first, under_way = nodes[going], first[going], under_way[going]
        leaves = self.value[ends].reshape(len(x), *self.roots.shape)
        total = np.tile(self.baseline, (len(x), 1))
        for place in range(leaves.shape[1]):  # in order, as the trees were grown: another order rounds otherwise
            total += leaves[:, place]
        return total

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        """Predicted values, or the likeliest class of every row.

        Parameters
        ----------
        X : rows × features; NaN is a missing value.
        """
        total = self.sums(X)
        if self.classes_ is not None:
            chosen = (total[:, 0] > 0).astype(np.int64) if total.shape[1] == 1 else total.argmax(axis=1)
            return np.asarray(self.classes_[chosen])
        return np.exp(total[:, 0]) if self.link == "log" else total[:, 0]

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """The probability of every class, in the order of ``classes_``.

        Parameters
        ----------
        X : rows × features; NaN is a missing value.
        """
        if self.classes_ is None:
            raise AttributeError("these trees predict numbers: they have no probabilities.")
        total = self.sums(X)
        if total.shape[1] > 1:
            return np.asarray(softmax(total))
        second = expit(total[:, 0])
        return np.column_stack([1.0 - second, second])
