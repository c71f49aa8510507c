"""Laws of the estimators on random rows, groups of any hashable names, and random graphs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from toporo import GroupDROClassifier, GroupDRORegressor, GroupGraph, Radius, TROClassifier, TRORegressor
from toporo.errors import DataError, TopoRoError, TopoRoWarning
from toporo.estimators.state import dump_state, load_state
from toporo.groups import Groups
from toporo.robust.divergences import get_divergence

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

#: Names of all kinds that are values; True is left out, for it equals 1.
some_name = st.one_of(
    st.integers(-3, 10**12),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: not value.is_integer()),
    st.text(max_size=4),
    st.tuples(st.integers(0, 9), st.text(max_size=2)),
    st.sampled_from(["", " ", "1", "nan", "None", "a,b", "名"]),
)


@dataclass(frozen=True)
class Problem:
    """Rows, targets and groups, and the estimator for them."""

    x: np.ndarray
    y: np.ndarray
    groups: list[Hashable]
    classes: int | None
    settings: dict[str, Any]

    @property
    def names(self) -> list[Hashable]:
        return list(Groups(self.groups))

    def fit(self, **more: Any) -> Any:
        kind = TRORegressor if self.classes is None else TROClassifier
        weight = more.pop("sample_weight", None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopoRoWarning)
            return kind(**self.settings | more).fit(self.x, self.y, groups=self.groups, sample_weight=weight)

    def take(self, rows: Any) -> Problem:
        return replace(self, x=self.x[rows], y=self.y[rows], groups=[self.groups[i] for i in rows])


@st.composite
def problems(draw: Callable[..., Any], *, groups: int = 1, penalties: tuple[Any, ...] = (1.0, 0.1, np.inf)) -> Problem:
    names = draw(st.lists(some_name, min_size=groups, max_size=6, unique_by=lambda name: (type(name), name)))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    rows = draw(st.integers(len(names) + 8, 40))
    place = np.concatenate([np.arange(len(names)), rng.integers(0, len(names), rows - len(names))])
    x = rng.normal(size=(rows, draw(st.integers(1, 4))))
    score = x.sum(axis=1) * (1 + 0.3 * place) + rng.normal(size=rows)
    x = x * 10.0 ** rng.integers(-2, 3)
    if draw(st.booleans()):
        x[:, -1] = 3.0
    classes = draw(st.sampled_from([None, None, 2, 3]))
    y = score if classes is None else np.searchsorted(np.quantile(score, [0.4, 0.7])[: classes - 1], score)
    asked = {"penalty": draw(st.sampled_from(penalties)), "divergence": draw(st.sampled_from(["l2", "kl", "chi2"]))}
    return Problem(x, y, [names[i] for i in place], classes, asked)


def outputs(model: Any, x: Any) -> np.ndarray:
    return np.asarray(model.predict_proba(x) if hasattr(model, "predict_proba") else model.predict(x))


def close(a: Any, b: Any) -> bool:
    """To what the solver leaves open, in units of the numbers compared."""
    return bool(np.allclose(a, b, rtol=1e-3, atol=2e-3 * max(1.0, float(np.abs(a).max()))))


def divergence(model: Any, name: str) -> float:
    """Of the worst mixture from the prior."""
    names = list(model.group_weights_)
    q = np.array([model.group_weights_[name] for name in names])
    p = np.array([model.prior_.weights[name] for name in names])
    return float(get_divergence(name).value(q, p))


# ---------------------------------------------------------------- by name


@quick
@given(problems(penalties=(1.0, 0.1, 0.0, np.inf, "auto")))
def test_weights_and_priors_are_shares_of_exactly_the_groups(problem: Problem) -> None:
    try:
        model = problem.fit()
    except DataError as error:
        assert problem.settings["penalty"] == "auto" and "cannot be chosen" in str(error)  # noqa: PT017, PT018
        return
    table = model.explain()
    assert {row.group for row in table} == set(model.group_weights_) == set(problem.names)
    assert {type(row.group) for row in table} == {type(name) for name in problem.names}
    assert sum(row.size for row in table) == len(problem.x)
    for shares in ([row.weight for row in table], [row.prior for row in table]):
        assert min(shares) >= 0
        assert sum(shares) == pytest.approx(1)
    assert np.isfinite(outputs(model, problem.x)).all()
    assert all(np.isfinite(loss) and loss >= 0 for loss in model.group_losses_.values())


@quick
@given(problems(groups=2), st.randoms(use_true_random=False), st.data())
def test_neither_order_nor_names_matter(problem: Problem, random: Any, data: Any) -> None:
    rows = random.sample(range(len(problem.x)), len(problem.x))
    many = len(problem.names)
    fresh = data.draw(st.lists(some_name, min_size=many, max_size=many, unique_by=lambda name: (type(name), name)))
    new = dict(zip(problem.names, fresh, strict=True))
    moved = replace(problem.take(rows), groups=[new[problem.groups[i]] for i in rows])
    one, other = problem.fit(), moved.fit()
    assert close(outputs(one, problem.x), outputs(other, problem.x))
    for name, weight in one.group_weights_.items():
        assert close(weight, other.group_weights_[new[name]])
        assert close(one.group_losses_[name], other.group_losses_[new[name]])


# ---------------------------------------------------------------- rows


@quick
@given(problems(groups=2), st.randoms(use_true_random=False))
def test_a_weight_is_a_number_of_rows(problem: Problem, random: Any) -> None:
    counts = [random.choice([1, 1, 2, 3]) for _ in problem.groups]
    repeated = problem.take([row for row, count in enumerate(counts) for _ in range(count)])
    given = {"prior": "uniform", "ridge": 1e-3}  # automatic ones go by rows in effect
    one = repeated.fit(**given)
    for unit in (1.0, 0.3, 1e-200, 1e90):
        other = problem.fit(**given, sample_weight=[unit * count for count in counts])
        assert close(outputs(one, problem.x), outputs(other, problem.x))
        for name, weight in one.group_weights_.items():
            assert close(weight, other.group_weights_[name])


@quick
@given(
    problems(groups=2), st.sampled_from(["list", "fortran", "every second", "float32", "frozen", "pandas", "polars"])
)
def test_the_form_of_the_rows_does_not_matter(problem: Problem, form: str) -> None:
    x: Any = problem.x
    if form == "float32":
        problem = replace(problem, x=x.astype(np.float32).astype(np.float64))
        x = problem.x.astype(np.float32)
    elif form == "list":
        x = x.tolist()
    elif form == "fortran":
        x = np.asfortranarray(x)
    elif form == "every second":
        x = np.repeat(x, 2, axis=0)[::2]
    elif form == "frozen":
        x = x.copy()
        x.flags.writeable = False
    else:
        x = pytest.importorskip(form).DataFrame({f"f{j}": x[:, j] for j in range(x.shape[1])})
    one, other = problem.fit(), replace(problem, x=x).fit()
    assert close(outputs(one, problem.x), outputs(other, x))


@quick
@given(problems(), st.integers(1, 50))
def test_what_is_said_of_a_row_does_not_depend_on_the_others(problem: Problem, rows: int) -> None:
    model = problem.fit()
    parts = [outputs(model, problem.x[at : at + rows]) for at in range(0, len(problem.x), rows)]
    assert np.array_equal(np.concatenate(parts), outputs(model, problem.x))


@quick
@given(problems())
def test_a_stored_model_is_the_same(problem: Problem) -> None:
    model = problem.fit()
    again = load_state(*dump_state(model))
    assert np.array_equal(outputs(again, problem.x), outputs(model, problem.x))
    assert again.explain() == model.explain()
    assert again.get_params() == model.get_params()


# ---------------------------------------------------------------- the penalty


@quick
@given(problems(groups=2))
def test_a_larger_penalty_keeps_the_worst_case_nearer_to_the_prior(problem: Problem) -> None:
    name = problem.settings["divergence"]
    named = {"prior": problem.settings.get("prior", "uniform"), "ridge": 1e-3}  # automatic ones go by the weights
    fits = [problem.fit(penalty=penalty, **named) for penalty in (0.0, 0.05, 0.5, 5.0, np.inf)]
    apart = [divergence(model, name) for model in fits]
    assert all(far >= near - 1e-3 for far, near in pairwise(apart[1:])), "0 may be met by many"
    assert apart[-1] == pytest.approx(0, abs=1e-9)
    values = [model.history_[0].value for model in fits]
    assert all(a >= b - 1e-6 * abs(a) for a, b in pairwise(values)), "the worst case gets better"


@quick
@given(problems(groups=2))
def test_without_a_penalty_the_worst_group_does_as_well_as_it_can(problem: Problem) -> None:
    """Its loss together with the ridge: the price that a linear model pays is part of the problem."""
    robust = GroupDRORegressor if problem.classes is None else GroupDROClassifier
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)
        alone = robust(ridge=1e-3).fit(problem.x, problem.y, groups=problem.groups).history_[0].value
    for penalty in (0.05, 1.0, np.inf):
        q = problem.fit(penalty=penalty, ridge=1e-3, prior="uniform").history_[0].value
        assert alone >= q - 1e-5 * abs(alone), "the value of the worst mixture bounds that of any other"


def test_classes_that_hinder_a_choice_are_called_by_their_names() -> None:
    x, groups = np.arange(12.0)[:, None], np.repeat(list("abcd"), 3)
    with pytest.warns(TopoRoWarning) as told:
        model = TROClassifier().fit(x, [f"only in {name}" for name in groups], groups=groups)
    text = " ".join(str(one.message) for one in told)
    assert re.search("no row of the groups kept is of class 'only in d'.* The penalty is 1", text)
    assert (model.penalty_, model.choice_) == (1.0, None)


@quick
@given(problems(groups=2, penalties=("auto",)), st.sampled_from([0.0, 1e-3, 0.05, 0.5]))
def test_the_radius_is_a_bound(problem: Problem, radius: float) -> None:
    model = problem.fit(penalty=Radius(radius))
    assert divergence(model, problem.settings["divergence"]) <= radius + 1e-6


# ---------------------------------------------------------------- graphs


@st.composite
def graphs(draw: Callable[..., Any], least: int = 3) -> tuple[GroupGraph, list[Hashable], list[Hashable]]:
    """A graph, perhaps in pieces, some of whose groups have rows; and others for the test."""
    names = draw(st.lists(some_name, min_size=least, max_size=9, unique_by=lambda name: (type(name), name)))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    pairs = [(a, b) for i, a in enumerate(names) for b in names[:i] if rng.random() < 0.35]
    graph = GroupGraph.from_edges(pairs, nodes=names)
    known = draw(st.integers(least, len(names)))
    return graph, names[:known], names[known:]


@quick
@given(graphs(), st.sampled_from(["auto", "uniform", "degree", "betweenness", "closeness", "harmonic"]), st.booleans())
def test_a_fit_on_any_graph_succeeds_or_says_what_is_wrong(world: Any, prior: str, with_test: bool) -> None:
    graph, known, test_groups = world
    rng = np.random.default_rng(0)
    groups = known * 4
    x = rng.normal(size=(len(groups), 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)
        model = TRORegressor(
            graph=graph, test_groups=test_groups if with_test and test_groups else None, prior=prior, penalty="auto"
        )
        try:
            model.fit(x, x[:, 0] + rng.normal(size=len(x)), groups=groups)
        except TopoRoError:
            assume(False)
    assert set(model.group_weights_) == set(known)
    assert sum(model.group_weights_.values()) == pytest.approx(1)
    assert sum(model.prior_.weights.values()) == pytest.approx(1)
    if with_test and test_groups:
        hops = graph.hops(test_groups)
        assert {row.group: row.hops for row in model.explain()} == {name: hops[name] for name in Groups(known)}
