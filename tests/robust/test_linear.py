"""Exact robust fits: their certificate is true, their laws hold, and bad input is named in the error."""

import math
import os
import subprocess
import sys
import warnings
from dataclasses import fields

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from numpy.testing import assert_allclose, assert_array_equal

from tests.robust.by_hand import KINDS, Rows, divergence_value, group_losses, lower_bound, random_rows, upper_bound
from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning, UnknownNameError
from toporo.groups import GroupIds, Groups
from toporo.robust.linear import fit_linear, fit_logistic, path, solve
from toporo.robust.logistic import LogisticLosses
from toporo.robust.losses import SquaredLosses
from toporo.robust.saddle import capped_response
from toporo.topology.prior import Prior

DIVERGENCES = ("l2", "kl", "chi2")


def losses_of(rows: Rows):
    return (LogisticLosses if rows.logistic else SquaredLosses).from_arrays(rows.x, rows.y, rows.group)


def fit(rows: Rows, prior=None, **settings):
    """``fit_linear`` or ``fit_logistic``, whichever the rows are for."""
    settings = {"ridge": 0.01, **settings}
    return (fit_logistic if rows.logistic else fit_linear)(rows.x, rows.y, rows.group, prior, **settings)


def skewed(m):
    """A prior that is not uniform, by name."""
    weights = np.arange(1.0, m + 1)
    return dict(enumerate(weights / weights.sum()))


def vector(by_name):
    return np.array(list(by_name.values()))


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=DIVERGENCES)
def divergence(request):
    return request.param


# ---------------------------------------------------------------- the certificate


@st.composite
def tasks(draw):
    """Rows, a prior and settings of every sort."""
    kind, m = draw(st.sampled_from(KINDS)), draw(st.integers(2, 6))
    rows = random_rows(draw(st.integers(0, 10_000)), kind, n=draw(st.integers(40, 120)), d=draw(st.integers(1, 4)), m=m)
    weights = np.array(draw(st.lists(st.sampled_from([0.0, 0.2, 1.0, 5.0]), min_size=m, max_size=m)))
    prior = weights / weights.sum() if weights.sum() else np.full(m, 1 / m)
    settings = {
        "divergence": draw(st.sampled_from(DIVERGENCES)),
        "ridge": draw(st.sampled_from([1e-4, 0.01, 0.3] + [0.0] * (not rows.logistic))),
        "tol": draw(st.sampled_from([1e-3, 1e-6, 1e-9])),
        "intercept": draw(st.booleans()),
    }
    if draw(st.integers(0, 2)):
        settings["penalty"] = draw(st.sampled_from([0.0, 1e-3, 0.03, 0.3, 1.0, 30.0, math.inf]))
    else:
        settings["radius"] = draw(st.sampled_from([0.0, 1e-5, 0.01, 0.1, 1.0, 50.0]))
    return rows, dict(enumerate(prior)), settings


@settings(max_examples=120, deadline=None, derandomize=True)
@given(task=tasks(), seed=st.integers(0, 99))
def test_the_certificate_is_true(task, seed):
    """Checked from the raw rows: the model is worth the value, the weights prove the bound, and nothing beats it."""
    rows, prior, settings = task
    found = fit(rows, prior, **settings)
    slack = 1e-9 * abs(found.value)
    assert found.bound <= found.value
    assert found.relative_gap <= settings["tol"]
    assert_allclose(vector(found.losses), group_losses(rows, found.coef, found.intercept), rtol=1e-9, atol=1e-12)
    assert_allclose(found.value, upper_bound(found, rows), rtol=1e-8)
    assert found.bound <= lower_bound(found, rows, settings["intercept"]) + slack
    rng = np.random.default_rng(seed)
    for size in (1e-4, 1e-2, 0.3):
        coef = found.coef + size * rng.normal(size=found.coef.shape)
        constant = found.intercept + settings["intercept"] * size * rng.normal(size=found.intercept.shape)
        assert upper_bound(found, rows, coef, constant) >= found.bound - slack
    q, p = vector(found.weights), vector(prior)
    assert (q >= 0).all()
    assert_allclose(q.sum(), 1, rtol=1e-12)
    assert_allclose(found.distance, divergence_value(q, p, settings["divergence"]), rtol=1e-6, atol=1e-15)
    assert settings["divergence"] == "l2" or not q[p == 0].any()
    assert found.radius is None or found.distance <= found.radius * (1 + 1e-9)
    assert found.prior == pytest.approx(prior)
    assert list(found.weights) == list(found.losses) == list(found.prior) == list(range(len(prior)))


def test_a_gap_that_is_not_reached_is_a_warning_and_true(monkeypatch):
    monkeypatch.setattr("toporo.robust.saddle.MAX_STEPS", 1)
    monkeypatch.setattr("toporo.robust.saddle.PATIENCE", 1)
    rows = random_rows(0, "binary")
    with pytest.warns(TopoRoWarning, match=r"the gap is .* more than tol = 1e-12.*ridge or penalty"):
        found = fit(rows, penalty=0.01, ridge=1e-3, tol=1e-12)
    assert found.gap > 1e-12
    monkeypatch.undo()
    assert found.bound <= fit(rows, penalty=0.01, ridge=1e-3).value <= found.value


@pytest.mark.parametrize("penalty", [10.0, 0.1, 0.0])
def test_an_intercept_far_off_does_not_pass_for_optimal(penalty):
    """A prior on a group of one class sends the intercept far out; the other group's worst case must bring it back."""
    rng = np.random.default_rng(0)
    group = np.repeat([1, 0], 200)
    labels = np.where(group == 1, 1, rng.integers(0, 2, 400))
    rows = Rows(1e-3 * rng.normal(size=(400, 2)), labels, group, "binary")
    found = fit(rows, {1: 1.0, 0: 0.0}, penalty=penalty, ridge=1e-3)
    assert found.bound <= upper_bound(found, rows, np.zeros((2, 1)), np.zeros(1))  # a model of one half is worth log 2


@pytest.mark.parametrize("form", [{"penalty": 0.05}, {"penalty": 0.0}, {"radius": 0.05}], ids=str)
def test_any_start_leads_to_the_same_value(kind, divergence, form):
    losses = losses_of(random_rows(5, kind))
    settings = {"divergence": divergence, "ridge": 0.05, "tol": 1e-9, **form}
    far = 5.0 * np.random.default_rng(0).normal(size=losses.shape)
    assert_allclose(solve(losses, start=far, **settings).value, solve(losses, **settings).value, rtol=1e-8)


@pytest.mark.parametrize("radius", [1e-4, 0.1])
def test_the_penalty_of_a_radius_is_its_multiplier(kind, divergence, radius):
    """Either D meets the radius or the multiplier is 0; the fit with this penalty is the fit with the radius."""
    rows = random_rows(5, kind)
    found = fit(rows, skewed(4), divergence=divergence, radius=radius, tol=1e-9)
    assert found.penalty * (radius - found.distance) <= 1e-4 * found.penalty * radius + 1e-6 * found.value
    penalised = fit(rows, skewed(4), divergence=divergence, penalty=found.penalty, tol=1e-9)
    assert_allclose(penalised.value + found.penalty * radius, found.value, rtol=1e-6)
    assert_allclose(penalised.scores(rows.x), found.scores(rows.x), atol=1e-3)


@pytest.mark.parametrize("rare", [1e-6, 1e-3])
@pytest.mark.parametrize("radius", [0.51, 0.7, 1.0, 5.0])
def test_twins_of_unlike_prior_do_not_leave_the_radius(divergence, rare, radius):
    """Two groups with the same rows: without a penalty any split between them is as good, with a radius it is not."""
    bad, calm = random_rows(0, n=40, d=2, m=1), random_rows(5, n=40, d=2, m=1)
    rows = Rows(
        np.vstack([bad.x, bad.x, calm.x]),
        np.concatenate([5 * bad.y, 5 * bad.y, calm.y + calm.x @ [1.0, -2.0]]),
        np.repeat([0, 1, 2], 40),
        "squared",
    )
    prior = {0: rare, 1: 0.5 - rare / 2, 2: 0.5 - rare / 2}
    found = fit(rows, prior, divergence=divergence, radius=radius, ridge=0.0)
    assert found.distance <= radius * (1 + 1e-9)
    assert_allclose(found.value, upper_bound(found, rows), rtol=1e-8)
    assert found.bound <= lower_bound(found, rows) + 1e-9


def test_a_path_is_its_fits_in_the_order_given(kind, divergence):
    rows, penalties = random_rows(6, kind), [0.3, math.inf, 1e-3, 0.0, 5.0, 0.3, 0.02, 0.0]
    along = path(losses_of(rows), skewed(4), penalties=penalties, divergence=divergence, ridge=0.01)
    assert [found.penalty for found in along] == penalties
    for penalty, found in zip(penalties, along, strict=True):
        alone = fit(rows, skewed(4), divergence=divergence, penalty=penalty)
        assert found.relative_gap <= 1e-6
        assert max(found.bound, alone.bound) <= min(found.value, alone.value) + 1e-12
    assert along[0].value == along[5].value
    assert along[3].weights == along[7].weights


# ---------------------------------------------------------------- laws


FORMS = [{"penalty": 0.1, "divergence": "l2"}, {"penalty": 0.0}, {"radius": 0.05, "divergence": "kl"}]


@pytest.fixture(params=FORMS, ids=["l2", "no penalty", "kl radius"])
def form(request):
    """Tight enough for predictions to be compared."""
    return {"tol": 1e-10, **request.param}


def same_answers(one, other, x, other_x=None):
    assert_allclose(other.value, one.value, rtol=1e-8)
    assert_allclose(other.scores(x if other_x is None else other_x), one.scores(x), atol=1e-3)


def test_the_origin_of_features_does_not_matter(kind, form):
    rows = random_rows(8, kind)
    moved = rows._replace(x=rows.x + np.array([1e6, -30.0, 0.5]))
    same_answers(fit(rows, skewed(4), **form), fit(moved, skewed(4), **form), rows.x, moved.x)


@pytest.mark.parametrize("scale", [[1e3, 1e-3, 1.0], [1e8, 1e-8, 1.0], [1e-12] * 3, [1e12] * 3])
def test_the_units_of_features_do_not_matter_without_a_ridge(form, scale):
    rows = random_rows(8)
    plain, other = (fit(r, ridge=0.0, **form) for r in (rows, rows._replace(x=rows.x * scale)))
    same_answers(plain, other, rows.x, rows.x * scale)


def test_weights_count_rows_and_only_their_proportions_matter(kind, form):
    """Whole weights repeat rows, and a row of weight zero is not there, whatever it holds."""
    rows = random_rows(8, kind)
    times = np.random.default_rng(0).integers(0, 4, 120)
    outliers = rows._replace(x=np.where(times[:, None] > 0, rows.x, np.nan))
    repeated = Rows(*(np.repeat(part, times, axis=0) for part in rows[:3]), kind)
    same_answers(fit(outliers, sample_weight=0.7 * times, **form), fit(repeated, **form), rows.x)


@pytest.mark.parametrize("names", [["d", "b", "a", "c"], [(0, "x"), (1, "x"), (0, "y"), 3], [True, 7, 2.5, -1]])
def test_groups_go_by_name(names, form):
    """Names of any kind, sorted in any way: weights, losses and the prior follow them."""
    rows = random_rows(8)
    plain = fit(rows, skewed(4), **form)
    labels = [names[e] for e in rows.group]
    named = fit_linear(rows.x, rows.y, labels, {names[e]: w for e, w in skewed(4).items()}, ridge=0.01, **form)
    same_answers(plain, named, rows.x)
    assert set(named.weights) == set(names)
    for e in range(4):
        assert named.weights[names[e]] == pytest.approx(plain.weights[e], abs=1e-4)
        assert named.losses[names[e]] == pytest.approx(plain.losses[e], rel=1e-4)
        assert named.prior[names[e]] == pytest.approx(plain.prior[e])


def test_tensors_lists_and_columns_are_arrays(kind):
    rows = random_rows(8, kind)
    plain = fit(rows, penalty=0.1)
    tensors = Rows(*(torch.as_tensor(part) for part in rows[:3]), kind)
    lists = Rows(*(part.tolist() for part in rows[:3]), kind)
    columns = [rows._replace(y=rows.y[:, None])] * (kind == "squared")
    for other in (tensors, lists, *columns):
        found = fit(other, penalty=0.1)
        assert_array_equal(found.coef, plain.coef)
        assert_array_equal(found.predict(other.x), plain.predict(rows.x))
        assert found.weights == plain.weights
    outputs = {"outputs": 2, "softmax": 3}.get(kind, 1)
    assert plain.coef.shape == (3, outputs)
    assert plain.intercept.shape == (outputs,)
    assert plain.predict(rows.x).shape == ((120, 2) if kind == "outputs" else (120,))


def test_a_prior_is_a_mapping_or_a_prior(form):
    """Weights need not sum to one, and numpy names are names."""
    rows = random_rows(8)
    plain = fit(rows, skewed(4), **form)
    for prior in (Prior(skewed(4)), {np.int64(e): np.float32(e + 1) for e in reversed(range(4))}):
        other = fit(rows, prior, **form)
        assert_allclose(other.coef, plain.coef, atol=1e-6)
        assert vector(other.prior).sum() == pytest.approx(1)
    assert_allclose(vector(fit(rows, None, **form).prior), 0.25)


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 1], ["c", "a", "b"], [10, 30, 20]])
def test_classes_come_back_as_they_were(labels):
    rows = random_rows(0, "binary" if len(labels) == 2 else "softmax")
    y = np.array(labels)[rows.y]
    found = fit(rows._replace(y=y), penalty=0.1)
    assert found.classes == tuple(sorted(labels))
    assert [type(label) for label in found.classes] == [type(label) for label in sorted(labels)]
    assert found.predict(rows.x).dtype == y.dtype
    assert (found.predict(rows.x) == y).mean() > 0.6
    scores = found.scores(rows.x)
    chosen = scores.argmax(axis=1) if len(labels) == 3 else (scores > 0).astype(int)
    assert_array_equal(np.array(found.classes)[chosen], found.predict(rows.x))


# ---------------------------------------------------------------- determinism


#: More rows than are worked on at once, and enough columns for a library of linear algebra to use its threads.
LARGE_FITS = """
import hashlib
import numpy as np
from toporo.robust import rows
from toporo.robust.linear import fit_linear, fit_logistic

n, d = rows.CHUNK + 4001, 32
x = np.sin(1.3 * np.arange(n * d, dtype=float) ** 1.1).reshape(n, d)
group, noise = np.arange(n) % 17 % 3, np.sin(12.9898 * np.arange(n))
y = x @ np.linspace(-1, 1, d) * (1 + group / 10) + noise
for cores in (1, 2, 2):
    rows.cores = lambda: cores
    for found in (
        fit_linear(x, y, group, penalty=0.05, tol=1e-8),
        fit_logistic(x, y > 0, group, penalty=0.01, divergence="kl"),
    ):
        parts = found.coef, found.intercept, found.value, found.bound, list(found.weights.values())
        print(hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in parts)).hexdigest(), end=" ")
    print()
"""


def test_the_same_bytes_again_and_on_any_number_of_threads():
    """Threads of the process's own, and of its library of linear algebra."""
    lines = []
    for threads in ("1", "2"):
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        done = subprocess.run(
            [sys.executable, "-c", LARGE_FITS], capture_output=True, text=True, env=os.environ | limits, check=False
        )
        assert done.returncode == 0, done.stderr
        lines += done.stdout.splitlines()
    assert len(lines) == 6
    assert len(set(lines)) == 1


# ---------------------------------------------------------------- degenerate but legal


FORMS_OF_ALL_SORTS = [
    {"penalty": 0.0},
    {"penalty": 0.1, "divergence": "kl"},
    {"penalty": 1.0},
    {"radius": 0.1, "divergence": "chi2"},
    {"radius": 3.0, "divergence": "kl"},
    {"penalty": math.inf},
]


@pytest.fixture(params=FORMS_OF_ALL_SORTS, ids=lambda form: " ".join(map(str, form.values())))
def any_form(request):
    return request.param


def certified(rows, prior=None, **settings):
    """A fit without a warning that is finite and proved to its tolerance, and whose value is true."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fit(rows, prior, **settings)
    for field in fields(found):
        value = getattr(found, field.name)
        numbers = vector(value) if isinstance(value, dict) else value
        if isinstance(numbers, np.ndarray | float) and field.name not in ("penalty", "radius"):
            assert np.isfinite(numbers).all(), field.name
    # Where hardly anything of the loss is left, what counts is a share of the loss of a model of constants.
    constants = np.zeros(found.coef.shape[1]) if rows.logistic else np.mean(rows.y, axis=0)
    scale = group_losses(rows, np.zeros_like(found.coef), constants).max()
    assert found.gap <= max(settings.get("tol", 1e-6) * found.value, 1e-12 * scale)
    assert_allclose(found.value, upper_bound(found, rows), rtol=1e-6, atol=1e-12 * scale)
    return found


def group_of_one_row():
    rows = random_rows(0)
    return rows._replace(group=np.where(np.arange(120) == 60, 9, rows.group))


def small_groups():
    """Groups smaller than the model, one with nearly all the weight: the pooled rows decide the model."""
    rows = random_rows(0, n=24, d=8, m=6)._replace(group=np.repeat(np.arange(6), 4))
    rows.y[:4] *= 50.0
    return rows


def unlike_groups(unit):
    """Losses from 1e-6 to 1e6 and from 3 rows to thousands, in a unit that is far from the penalty's."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(5), [3, 3000, 20, 200, 7])
    x = rng.normal(size=(len(group), 2))
    noise = 10.0 ** np.array([-3.0, -1.0, 0.0, 1.0, 3.0])[group]
    return Rows(x, unit * (x @ [1.0, 2.0] + noise * rng.normal(size=len(group))), group, "squared")


def twin_features(kind):
    rows, rng = random_rows(0, kind), np.random.default_rng(0)
    return rows._replace(x=np.column_stack([rows.x, rows.x + 1e-7 * rng.normal(size=rows.x.shape)]))


def separated(kind):
    rows = random_rows(0, kind)
    score = rows.x[:, 0]
    return rows._replace(y=(score > 0).astype(int) if kind == "binary" else np.digitize(score, [-0.4, 0.4]))


def of_one_class():
    rows = random_rows(0, "binary")
    return rows._replace(y=np.where(rows.group == 1, 1, rows.y))


HARD = {
    "one group": (random_rows(0, m=1), {}),
    "a group of one row": (group_of_one_row(), {}),
    "groups smaller than the model": (small_groups(), {"ridge": 0.0}),
    "a group of one class": (of_one_class(), {}),
    **{f"groups unlike each other, unit {unit:g}": (unlike_groups(unit), {"ridge": 0.0}) for unit in (1e-6, 1.0, 1e6)},
    **{f"twin features, {kind}": (twin_features(kind), {"ridge": 1e-8}) for kind in KINDS},
    **{
        f"separated classes, {kind}, {ridge:g}": (separated(kind), {"ridge": ridge})
        for kind in ("binary", "softmax")
        for ridge in (1e-3, 1e-9)
    },
}


@pytest.mark.parametrize(("rows", "settings"), HARD.values(), ids=HARD)
def test_hard_rows_have_certified_fits(rows, settings, any_form):
    found = certified(rows, **settings, **any_form)
    assert list(found.weights) == np.unique(rows.group).tolist()


def test_targets_without_noise_are_met(any_form):
    rows = random_rows(0)
    found = certified(rows._replace(y=rows.x @ [1.0, -2.0, 3.0] + 4.0), ridge=0.0, **any_form)
    assert found.value <= 1e-9
    assert_allclose(found.coef[:, 0], [1.0, -2.0, 3.0], atol=1e-4)


@pytest.mark.parametrize("kind", ["squared", "binary"])
@pytest.mark.parametrize(
    ("form", "limit"),
    [({"penalty": penalty}, {"penalty": 0.0 if penalty < 1 else math.inf}) for penalty in (1e-9, 1e9)]
    + [({"radius": radius}, {"penalty": math.inf if radius < 1 else 0.0}) for radius in (1e-9, 1e9)],
    ids=str,
)
def test_extreme_penalties_and_radii_are_next_to_none_or_infinity(kind, divergence, form, limit):
    rows = random_rows(1, kind)
    found = certified(rows, skewed(4), divergence=divergence, **form)
    expected = fit(rows, skewed(4), divergence=divergence, **limit)
    assert_allclose(found.value, expected.value, rtol=1e-3 if form.get("radius", 1.0) < 1 else 3e-6)
    if "radius" in form:
        assert found.distance <= form["radius"] * (1 + 1e-9) + 1e-15  # D's own rounding
    elif form["penalty"] > 1:
        assert_allclose(vector(found.weights), vector(found.prior), atol=1e-6)


# ---------------------------------------------------------------- bad input


X, Y, G = random_rows(0)[:3]
LABELS = random_rows(0, "binary").y
LABEL_GROUPS = random_rows(0, "binary").group


def spoiled(value, at=(5, 1)):
    x = X.copy()
    x[at] = value
    return x


def targets_with(value):
    y = Y.copy()
    y[[7, 9]] = value
    return y


BAD_INPUT = {
    "nan x": ({"x": spoiled(np.nan)}, DataError, r"x holds NaN.* 1 of 120 rows \(first: row 5\).*drop"),
    "infinite x": ({"x": spoiled(np.inf)}, DataError, r"x holds NaN or infinite.*row 5"),
    "huge x": ({"x": spoiled(1e200)}, DataError, r"too large.*scale"),
    "text in x": ({"x": X.astype(str)}, DataError, r"x must hold numbers; found <U.*Encode text"),
    "one column as 1-d": ({"x": X[:, 0]}, DataError, r"x has shape \(120,\): expected rows × features"),
    "no rows": ({"x": X[:0], "y": Y[:0], "groups": G[:0]}, DataError, r"x has shape \(0, 3\)"),
    "nan y": ({"y": targets_with(np.nan)}, DataError, r"y holds NaN.* 2 of 120 rows \(first: row 7\)"),
    "short y": ({"y": Y[:-1]}, DataError, r"y has shape \(119.*expected 120 rows"),
    "short groups": ({"groups": G[:-1]}, DataError, r"x has 120 rows and groups 119"),
    "missing group": ({"groups": [None, *G[1:].tolist()]}, DataError, r"group name is missing"),
    "empty groups": ({"groups": GroupIds(G, Groups(range(6)))}, DataError, r"empty group.*4, 5.*Drop"),
    "codes": ({"groups": GroupIds(G, Groups(range(3)))}, GroupMismatchError, r"0 to 3, but there are 3"),
    "negative weights": ({"sample_weight": -np.ones(120)}, DataError, r"sample_weight.*at least 0"),
    "huge weights": ({"sample_weight": np.full(120, 1e300)}, DataError, r"sample_weight holds numbers up to 1e\+300"),
    "no weight": ({"sample_weight": G != 2}, DataError, r"empty group.*without a row that counts: 2"),
    "constant": ({"x": np.column_stack([X, np.full(120, 0.1)])}, DataError, r"column\(s\) 3 .*do not vary"),
    "copy": ({"x": np.column_stack([X, X[:, 1]])}, DataError, r"column\(s\) 1, 3 .*linear comb.*ridge"),
    "sum": ({"x": np.column_stack([X, X @ [1, 2, 3]])}, DataError, r"0, 1, 2, 3 .*linear"),
    "zeros": ({"x": np.column_stack([X, 0 * Y]), "intercept": False}, DataError, r"3 .*do not vary"),
    "negative penalty": ({"penalty": -0.5}, SettingError, r"penalty is -0.5: expected .*at least 0"),
    "penalty of text": ({"penalty": "large"}, SettingError, r"'large'.*number"),
    "negative radius": ({"radius": -0.1}, SettingError, r"radius is -0.1: expected .*at least 0"),
    "infinite radius": ({"radius": math.inf}, SettingError, r"radius is inf: expected a finite"),
    "divergence": ({"divergence": "kl2"}, UnknownNameError, r"unknown divergence 'kl2'.*chi2, kl, l2"),
    "negative ridge": ({"ridge": -1.0}, SettingError, r"ridge is -1.0: expected .*at least 0"),
    "no tolerance": ({"tol": 0.0}, SettingError, r"tol is 0.0: expected .*between 0 and 1"),
    "prior of some groups": ({"prior": {0: 1, 1: 1}}, GroupMismatchError, r"not in the prior: 2, 3"),
    "prior by text": ({"prior": dict.fromkeys("0123", 1)}, GroupMismatchError, r"not in the data: '0'"),
    "negative prior": ({"prior": {0: -1, 1: 1, 2: 1, 3: 1}}, DataError, r"non-negative.*\(0, -1\)"),
    "no prior at all": ({"prior": dict.fromkeys(range(4), 0.0)}, DataError, r"not all zero"),
    "prior of text": ({"prior": {0: "much", 1: 1, 2: 1, 3: 1}}, DataError, r"prior weights"),
    "prior by position": ({"prior": [0.25] * 4}, DataError, r"of type list: expected .*joined by name"),
}


@pytest.mark.parametrize(("change", "error", "message"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_named(change, error, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an error is enough: no stray warnings of numpy's beside it
        with pytest.raises(error, match=message):
            fit_linear(**{"x": X, "y": Y, "groups": G} | change)


BAD_LABELS = {
    "nan x": ({"x": spoiled(np.nan)}, DataError, r"x holds NaN.*row 5"),
    "huge x": ({"x": spoiled(1e200)}, DataError, r"too large.*scale"),
    "nan labels": ({"y": np.where(LABELS, 1.0, np.nan)}, DataError, r"y holds NaN"),
    "labels of two types": ({"y": np.where(LABELS, "a", np.array(1, object))}, DataError, r"y .*int, str"),
    "one class": ({"y": np.ones(120, int)}, DataError, r"single class, 1: "),
    "short labels": ({"y": LABELS[:-1]}, DataError, r"y has shape \(119,\): expected 120 labels"),
    "one-hot labels": ({"y": np.eye(2)[LABELS]}, DataError, r"y has shape \(120, 2\).*one per row"),
    "one class with weight": ({"sample_weight": LABELS == 1}, DataError, r"single class, 1"),
    "no ridge": ({"ridge": 0.0}, SettingError, r"ridge is 0.*positive.*1e-6"),
}


@pytest.mark.parametrize(("change", "error", "message"), BAD_LABELS.values(), ids=BAD_LABELS)
def test_bad_labels_are_named(change, error, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error, match=message):
            fit_logistic(**{"x": X, "y": LABELS, "groups": LABEL_GROUPS} | change)


def test_rows_unlike_those_of_the_fit_are_refused():
    """A NaN in particular must not come out as the first class."""
    found = fit_logistic(X, LABELS, LABEL_GROUPS)
    with pytest.raises(DataError, match=r"x has shape \(120, 2\): expected rows × 3 features"):
        found.predict(X[:, :2])
    with pytest.raises(DataError, match=r"x holds NaN"):
        found.predict(spoiled(np.nan))


# ---------------------------------------------------------------- the most weight of groups


@pytest.mark.parametrize("penalty", [0.0, 0.05, 1.0, math.inf])
def test_no_group_gets_more_than_its_most_and_the_certificate_is_true(kind, penalty):
    """The upper bound is the worst mixture within the caps, found by a linear programme's greedy rule or projection."""
    rows = random_rows(3, kind, m=5)
    most, prior = dict.fromkeys(range(5), 0.3), dict.fromkeys(range(5), 0.2)
    losses = SquaredLosses if kind in ("squared", "outputs") else LogisticLosses
    prepared = losses.from_arrays(*rows[:3], intercept=True)
    limited = solve(prepared, prior, penalty=penalty, ridge=0.01, most=most)
    free = solve(prepared, prior, penalty=penalty, ridge=0.01)
    q, lost = vector(limited.weights), vector(limited.losses)
    assert q.max() <= 0.3 + 1e-12
    assert q.sum() == pytest.approx(1)
    assert limited.relative_gap <= 1e-6
    assert limited.value <= free.value + 1e-9, "fewer mixtures are not worse"
    if penalty == 0:
        greedy = np.sort(lost)[::-1] @ [0.3, 0.3, 0.3, 0.1, 0.0]
        assert greedy + 0.01 * (limited.coef**2).sum() == pytest.approx(limited.value, rel=1e-6)


@pytest.mark.parametrize("penalty", [1e-6, 0.1, 1.0])
def test_the_best_response_within_caps_is_the_nearest_point(penalty):
    """By bisection of the threshold; caps sum to one or more."""
    rng = np.random.default_rng(0)
    for room in (0.0, 0.1, 3.0):
        losses, prior, most = rng.normal(size=7), rng.dirichlet(np.ones(7)), rng.uniform(0.01, 1.0, 7)
        most *= (1 + room) / most.sum()
        values = prior + losses / penalty
        low, high = values.min() - 2, values.max()
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if np.clip(values - middle, 0, most).sum() > 1 else (low, middle)
        assert_allclose(capped_response(losses, prior, penalty, most), np.clip(values - low, 0, most), atol=1e-8)


def test_limits_that_cannot_be_are_refused():
    names = range(3)
    prepared = SquaredLosses.from_arrays(*random_rows(0, m=3)[:3], intercept=True)
    for most, more in (
        (dict.fromkeys(names, 0.3), {}),
        (dict.fromkeys(names, 0.5), {"divergence": "kl"}),
        (dict(zip(names, (0.1, 1.0, 1.0), strict=True)), {}),
    ):
        with pytest.raises(SettingError, match="the most weight of groups goes with l2"):
            solve(prepared, None, ridge=0.01, most=most, **more)
    with pytest.raises(SettingError, match="do not go together"):
        solve(prepared, None, ridge=0.01, most=dict.fromkeys(names, 0.5), radius=0.1)
