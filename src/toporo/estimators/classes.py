r"""The estimators themselves.

.. math:: \min_\theta \max_{q \in \Delta} \sum_e q_e \ell_e(\theta) + \rho\|\theta\|^2 - \lambda D(q\|p)

with :math:`\ell_e` a training group's mean loss, p a prior over the training groups that comes from a graph of groups,
and q the worst mixture of groups near it. A linear model is solved exactly; a network is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import ClassifierMixin, RegressorMixin

from toporo.estimators.base import ClassifierPart, GroupEstimator, RegressorPart


class _TRO(GroupEstimator):
    """The settings of the topology-aware estimators."""

    def __init__(
        self,
        *,
        graph: Any = None,
        test_groups: Any = None,
        model: Any = "linear",
        penalty: float | str = 1.0,
        radius: float | None = None,
        divergence: str = "l2",
        prior: Any = "auto",
        normalization: str | None = None,
        temperature: float = 1.0,
        ridge: float = 1e-3,
        fit_intercept: bool = True,
        standardize: bool = True,
        tol: float = 1e-6,
        hidden: Sequence[int] = (64, 64),
        epochs: int = 100,
        per_group: int = 32,
        learning_rate: float = 1e-3,
        step: float = 0.1,
        random_state: Any = 0,
        device: Any = "cpu",
    ) -> None:
        self.graph = graph
        self.test_groups = test_groups
        self.model = model
        self.penalty = penalty
        self.radius = radius
        self.divergence = divergence
        self.prior = prior
        self.normalization = normalization
        self.temperature = temperature
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.tol = tol
        self.hidden = hidden
        self.epochs = epochs
        self.per_group = per_group
        self.learning_rate = learning_rate
        self.step = step
        self.random_state = random_state
        self.device = device


class _GroupDRO(GroupEstimator):
    """The settings of the estimators that look at the worst group alone."""

    graph = None
    test_groups = None
    penalty = 0.0
    radius = None
    divergence = "l2"
    prior = "uniform"
    normalization = None
    temperature = 1.0
    _robust = "group-dro"

    def __init__(
        self,
        *,
        model: Any = "linear",
        ridge: float = 1e-3,
        fit_intercept: bool = True,
        standardize: bool = True,
        tol: float = 1e-6,
        hidden: Sequence[int] = (64, 64),
        epochs: int = 100,
        per_group: int = 32,
        learning_rate: float = 1e-3,
        step: float = 0.01,
        random_state: Any = 0,
        device: Any = "cpu",
    ) -> None:
        self.model = model
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.tol = tol
        self.hidden = hidden
        self.epochs = epochs
        self.per_group = per_group
        self.learning_rate = learning_rate
        self.step = step
        self.random_state = random_state
        self.device = device


class TROClassifier(ClassifierMixin, ClassifierPart, _TRO):  # type: ignore[misc]  # scikit-learn has no types
    """Topology-aware robust classification: logistic regression solved exactly, or a network.

    Parameters
    ----------
    graph : which groups touch, in any form that :func:`~toporo.estimators.graphs.as_graph` takes (a GroupGraph, edges,
        a data frame, a path, …), over all training groups at least; or ``"learn"``, from the training rows.
    test_groups : names in the graph of the groups that the model is for, none of them in the data. The prior then looks
        towards them, also where a search by others (GridSearchCV) holds training groups out; ``penalty="auto"`` looks
        towards the groups held out.
    model : ``"linear"``, ``"mlp"`` or a ``torch.nn.Module``, of which a copy is trained. A module gets rows × features
        and gives a score a class (or, for two classes, one: the log-odds).
    penalty : how dearly a mixture of groups away from the prior is paid for: 0 is the worst group alone, infinity the
        prior's own mixture. ``"auto"`` chooses it by holding training groups out (linear models).
    radius : instead of a penalty, τ, how far the mixture may be from the prior: D(q‖p) ≤ τ.
    divergence : D: ``"l2"``, ``"kl"`` or ``"chi2"``.
    prior : ``"auto"``, ``"uniform"``, a measure (``"harmonic"``, ``"betweenness"``, ``"degree"``, ``"closeness"``), a
        :class:`~toporo.Prior` or ``{group: weight}``. Automatically: harmonic towards the test groups, betweenness
        where there is a graph alone, in both cases half of it spread evenly over all groups; else uniform.
    normalization, temperature : how a measure becomes a prior. ``"sum"`` unless given, other than in
        :func:`~toporo.topology.make_prior`: a softmax of raw path counts is all but one group's.
    ridge : ρ, the pull of the coefficients towards 0 (of all parameters of a network); positive for a linear model.
    fit_intercept : whether there is an intercept, free of the ridge.
    standardize : whether columns are centred and divided by their standard deviation first, so that the ridge means the
        same in any unit. Without an intercept they are divided by the root of their mean square and not centred.
    tol : the relative gap to which a linear model is solved.
    hidden, epochs, per_group, learning_rate, step : of a network: its layers; passes over the largest group; rows of
        every group in a batch; Adam's step; the step of the groups' weights.
    random_state : decides a network's start and batches, and which rows a graph is learned from.
    device : where torch computes.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : as everywhere in scikit-learn.
    coef_, intercept_ : of a linear model, in the units of X.
    group_weights_, group_losses_, group_sizes_ : by group: its weight in the worst case, log loss, rows.
    prior_, centrality_, hops_ : the prior (None for a single group), what it goes by, and the hops to the nearest test
        group (None without a graph or test groups).
    topology_, test_groups_ : the graph and the test groups, or None.
    penalty_, penalty_scores_, choice_ : the penalty in use (for a radius the multiplier found; infinity for a single
        group), and how ``"auto"`` came to it.
    history_ : one record an epoch, or of a linear model the one record of its solution.
    fit_, net_ : the exact solution in the units it was solved in, or the trained network.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, state = rng.normal(size=(300, 2)), np.repeat(["NY", "PA", "OH"], 100)
    >>> y = x[:, 0] + (state == "OH") * x[:, 1] > 0
    >>> borders = [("NY", "PA"), ("PA", "OH"), ("OH", "IN")]
    >>> model = TROClassifier(graph=borders, test_groups=["IN"]).fit(x, y, groups=state)
    >>> model.explain()[0].group, model.explain()[0].hops
    ('OH', 1)
    """


class TRORegressor(RegressorMixin, RegressorPart, _TRO):  # type: ignore[misc]  # scikit-learn has no types
    """Topology-aware robust regression: least squares solved exactly, or a network.

    Parameters and attributes are those of :class:`TROClassifier`, but for what a number is:

    - ``standardize`` also centres the target and divides it by its standard deviation, each column by its own: a loss
      of 1 is that of a model that knows nothing but the mean, so penalty, radius and ridge mean the same in any unit.
    - ``coef_``, ``intercept_`` and ``group_losses_`` (mean squared errors, over rows and columns) are in the units of
      X and y nevertheless. ``fit_`` and ``history_`` are in those that the problem was solved in.
    - y may have several columns. ``ridge`` may be 0 if the features determine a model without it.
    - A module gives one number a target.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, state = rng.normal(size=(300, 2)), np.repeat(["NY", "PA", "OH"], 100)
    >>> y = 10 * (x @ [1.0, 2.0] + (state == "OH") * x[:, 0])
    >>> model = TRORegressor(penalty=0.1).fit(x, y, groups=state)
    >>> max(model.group_weights_, key=model.group_weights_.get), model.coef_.shape
    ('OH', (2,))
    """


class GroupDROClassifier(ClassifierMixin, ClassifierPart, _GroupDRO):  # type: ignore[misc]  # scikit-learn has no types
    """The best model for the worst training group: :class:`TROClassifier` with a penalty of 0 and no topology.

    A network is trained by the exponentiated gradient of Sagawa et al. (2020) with step ``step``. Other parameters
    and all attributes are those of :class:`TROClassifier`.
    """


class GroupDRORegressor(RegressorMixin, RegressorPart, _GroupDRO):  # type: ignore[misc]  # scikit-learn has no types
    """The best model for the worst training group: :class:`TRORegressor` with a penalty of 0 and no topology.

    A network is trained by the exponentiated gradient of Sagawa et al. (2020) with step ``step``. Other parameters
    and all attributes are those of :class:`TRORegressor`.
    """
