r"""The estimators themselves.

.. math:: \min_\theta \max_{q \in \Delta} \sum_e q_e \ell_e(\theta) + \rho\|\theta\|^2 - \lambda D(q\|p)

with :math:`\ell_e` a training group's mean loss, p a prior over the training groups that comes from a graph of groups,
and q the worst mixture of groups near it. A linear model is solved exactly; a network is trained.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, TypeVar

from sklearn.base import ClassifierMixin, RegressorMixin

from toporo.estimators.base import ClassifierPart, GroupEstimator, RegressorPart

#: What each setting means. A class's docstring lists those of its constructor, with their defaults.
PARAMETERS = {
    "graph": "which groups touch, in any form that :func:`toporo.graphs.as_graph` takes (a GroupGraph, edges, a data "
    'frame, a path, …), over all training groups at least; or "learn", from the training rows.',
    "test_groups": "names in the graph of the groups that the model is for, none of them in the data. The prior then "
    "looks from them, also where a search by others (GridSearchCV) holds training groups out; "
    'penalty="auto" looks from the groups held out instead.',
    "model": '"linear", "mlp" or a torch.nn.Module, of which a copy is trained. A module gets rows × features and '
    "gives {outputs}.",
    "penalty": "λ, the price of a mixture of groups away from the prior: 0 is the worst group alone, infinity the "
    'prior\'s own mixture. "auto" chooses among ten by holding regions of training groups out; for fewer than four '
    "groups, or a network, it is 1.",
    "radius": "τ, instead of a penalty: how far the mixture may be from the prior, D(q‖p) ≤ τ.",
    "divergence": 'D: "l2", "kl" or "chi2".',
    "prior": 'p: "auto", "uniform", a measure ("harmonic", "betweenness", "degree", "closeness"), a toporo.Prior or '
    "{{group: weight}}. Automatic is harmonic from the test groups, betweenness where there is only a graph, in both "
    "cases half of it spread evenly over all groups; else uniform. With it no row has more than 1 / (10 (d + 1)) of "
    "all weight, for d columns (or twice its share, if that is more), in the prior and, with l2 and a penalty above 0, "
    "in the worst case: so 10 rows per column are in effect. A prior that is named is left as it is.",
    "normalization": 'how a measure becomes a prior: "sum" or "softmax". None is "sum", unlike in '
    ":func:`toporo.topology.make_prior`: a softmax of raw path counts puts nearly all weight on one group.",
    "temperature": "of the softmax: the higher, the flatter the prior.",
    "ridge": 'ρ, which shrinks the coefficients (of a network, all parameters). {ridge} "auto" is 0.1 d / n for d '
    "columns and n rows in effect, and at least 0.001: that of a network, and of a single group.",
    "fit_intercept": "whether there is an intercept, free of the ridge.",
    "standardize": "whether columns are centred and divided by their standard deviation first, so the ridge means the "
    "same in any unit. Without an intercept they are divided by the root of their mean square and not centred.{scaled}",
    "tol": "the relative gap to which a linear model is solved.",
    "hidden": "the sizes of a network's hidden layers.",
    "epochs": "a network's passes over the largest group.",
    "per_group": "rows of every group in a network's batch.",
    "learning_rate": "of a network's optimiser, Adam.",
    "step": "of the groups' weights while a network is trained.",
    "random_state": "decides a network's start and batches, and which rows a graph is learned from.",
    "device": "where torch computes.",
}
ATTRIBUTES = {
    "n_features_in_, feature_names_in_": "as everywhere in scikit-learn.",
    "coef_, intercept_": "of a linear model, in the units of {units}.",
    "group_weights_, group_losses_, group_sizes_": "by group: its weight in the worst case, {loss}, rows.",
    "rows_in_effect_, ridge_": "Kish's count by the weights in the worst case: how many rows, weighed alike, would say "
    "as much; and the ridge in use. A warning says where there are fewer than ten rows in effect per column.",
    "prior_, centrality_, hops_": "the prior (None for a single group), the centrality behind it, and the hops to the "
    "nearest test group (None without a graph or test groups).",
    "topology_, test_groups_": "the graph and the test groups, or None.",
    "penalty_, penalty_scores_, choice_": "the penalty in use (for a radius the multiplier; infinity for a single "
    'group), and how "auto" came to it.',
    "history_": "one record per epoch, or of a linear model the one record of its solution.",
    "fit_, net_": "the exact solution in the units it was solved in, or the trained network.",
}
#: What differs between the two kinds of target.
CLASSES = {
    "outputs": "one score per class (or, for two classes, one: the log-odds)",
    "ridge": "Positive for a linear model.",
    "scaled": "",
    "units": "X",
    "loss": "log loss",
}
NUMBERS = {
    "outputs": "one number per target",
    "ridge": "May be 0 if the features determine a linear model without it.",
    "scaled": " The target is scaled too, each column by its own spread: a loss of 1 is that of a model that knows "
    "only the mean, so penalty, radius and ridge mean the same in any unit.",
    "units": "X and y",
    "loss": "mean squared error over rows and columns in the units of y",
}

Kind = TypeVar("Kind", bound=type)


def _documented(kind: Kind) -> Kind:
    """Put the constructor's parameters and the attributes before the example in a class's docstring."""
    words = CLASSES if issubclass(kind, ClassifierPart) else NUMBERS
    given = inspect.signature(kind).parameters
    parameters = {name: f"{PARAMETERS[name]} Default: {given[name].default!r}." for name in given}
    attributes = {"classes_": "the classes, sorted."} if words is CLASSES else {}
    listing = _listing("Parameters", parameters, words) + _listing("Attributes", attributes | ATTRIBUTES, words)
    text, mark, example = (kind.__doc__ or "").partition("    >>> ")
    kind.__doc__ = f"{text.rstrip()}\n\n{listing}{mark}{example}" if example else f"{text.rstrip()}\n\n{listing}    "
    return kind


def _listing(title: str, entries: Mapping[str, str], words: Mapping[str, str]) -> str:
    lines = [
        fill(f"{name} : {text.format(**words)}", 120, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for name, text in entries.items()
    ]
    return "\n".join([f"    {title}", f"    {'-' * len(title)}", *lines]) + "\n\n"


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
        ridge: float | str = "auto",
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


@_documented
class TROClassifier(ClassifierMixin, ClassifierPart):  # type: ignore[misc]  # scikit-learn has no types
    """Topology-aware robust classification: logistic regression solved exactly, or a network.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, state = rng.normal(size=(300, 2)), np.repeat(["NY", "PA", "OH"], 100)
    >>> y = x[:, 0] + (state == "OH") * x[:, 1] > 0
    >>> borders = [("NY", "PA"), ("PA", "OH"), ("OH", "IN")]
    >>> model = TROClassifier(graph=borders, test_groups=["IN"]).fit(x, y, groups=state)
    >>> model.explain()[0].group, model.explain()[0].hops
    ('OH', 1)
    """


@_documented
class TRORegressor(RegressorMixin, RegressorPart):  # type: ignore[misc]  # scikit-learn has no types
    """Topology-aware robust regression: least squares solved exactly, or a network. y may have several columns.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, state = rng.normal(size=(300, 2)), np.repeat(["NY", "PA", "OH"], 100)
    >>> y = 10 * (x @ [1.0, 2.0] + (state == "OH") * x[:, 0])
    >>> model = TRORegressor(penalty=0.1).fit(x, y, groups=state)
    >>> max(model.group_weights_, key=model.group_weights_.get), model.coef_.shape
    ('OH', (2,))
    """


@_documented
class GroupDROClassifier(ClassifierMixin, _GroupDRO, ClassifierPart):  # type: ignore[misc]  # scikit-learn has no types
    """The best model for the worst training group: :class:`TROClassifier` with a penalty of 0 and no topology.

    A network is trained by the exponentiated gradient of Sagawa et al. (2020) with step ``step``.

    >>> import numpy as np
    >>> x, state = np.array([[-2.0], [-1.0], [1.0], [2.0]] * 3), np.repeat(["NY", "PA", "OH"], 4)
    >>> model = GroupDROClassifier().fit(x, np.where(x[:, 0] > 0, "wet", "dry"), groups=state)
    >>> model.predict([[1.5]]).tolist(), model.penalty_
    (['wet'], 0.0)
    """


@_documented
class GroupDRORegressor(RegressorMixin, _GroupDRO, RegressorPart):  # type: ignore[misc]  # scikit-learn has no types
    """The best model for the worst training group: :class:`TRORegressor` with a penalty of 0 and no topology.

    A network is trained by the exponentiated gradient of Sagawa et al. (2020) with step ``step``.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, state = rng.normal(size=(90, 1)), np.repeat(["NY", "PA", "OH"], 30)
    >>> model = GroupDRORegressor().fit(x, x[:, 0] + (state == "OH") * rng.normal(size=90), groups=state)
    >>> max(model.group_weights_, key=model.group_weights_.get)  # the noisy one
    'OH'
    """
