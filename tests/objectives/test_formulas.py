"""Each method's value against its formula, written out."""

import math

import pytest
import torch
from torch.nn import functional as F

from toporo.errors import DataError, SettingError, TopoRoWarning, UnknownNameError
from toporo.objectives import CORAL, DANN, ERM, IRM, IWERM, MMD, SD, TRO, GroupDRO, VREx, group_means

NAMES = ("a", "b", "c")
PRIOR = {"a": 0.5, "b": 0.3, "c": 0.2}
CODES = torch.tensor([0, 1, 1, 0, 2])
LOSSES = torch.tensor([1.0, 2.0, 6.0, 3.0, 5.0], dtype=torch.float64)  # group means 2, 4, 5
PAIR = torch.tensor([0, 1])  # a batch in which c is absent


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def logits():
    return torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


def test_group_means_leave_absent_groups_at_zero():
    means = group_means(LOSSES[:4], CODES[:4], 3)
    assert means.values.tolist() == [2, 4, 0]
    assert means.present.tolist() == [1, 1, 0]
    assert means.mean() == 3


@pytest.mark.parametrize(
    ("objective", "expected", "expected_without_c"),
    [
        (ERM(NAMES), 17 / 5, 12 / 4),
        (IWERM(PRIOR), 0.5 * 2 + 0.3 * 4 + 0.2 * 5, 3 / 2 * (0.5 * 2 + 0.3 * 4)),
        (VREx(NAMES, penalty=2.0, warm_up=0), 11 / 3 + 2 * 14 / 9, 3 + 2 * 1),
        (VREx(NAMES), 11 / 3 + 14 / 9, 3 + 1),
        (VREx(NAMES, penalty=0.0), 11 / 3, 3),
    ],
    ids=["erm", "iw-erm", "vrex", "vrex in its warm-up", "vrex 0"],
)
def test_value_by_hand(objective, expected, expected_without_c):
    assert objective(LOSSES, CODES).item() == pytest.approx(expected, rel=1e-14)
    assert objective(LOSSES[:4], CODES[:4]).item() == pytest.approx(expected_without_c, rel=1e-14)


def test_sd_penalises_the_logits(logits):
    losses = F.cross_entropy(logits, CODES, reduction="none")
    found = SD(NAMES, penalty=0.4)(losses, CODES, logits=logits)
    torch.testing.assert_close(found, losses.mean() + 0.4 * (logits**2).sum() / (5 * 3), rtol=1e-14, atol=0)


def test_sd_averages_dense_logits_over_positions():
    """... and over classes: the penalty must not grow with the image."""
    logits = torch.randn(5, 2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    squares = [logits[i, c, r, k] ** 2 for i in range(5) for c in range(2) for r in range(3) for k in range(4)]
    found = SD(NAMES, penalty=0.4)(LOSSES, CODES, logits=logits)
    torch.testing.assert_close(found, LOSSES.mean() + 0.4 * sum(squares) / (5 * 2 * 12), rtol=1e-14, atol=0)
    finer = logits.repeat_interleave(3, dim=2).repeat_interleave(2, dim=3)
    torch.testing.assert_close(SD(NAMES, penalty=0.4)(LOSSES, CODES, logits=finer), found, rtol=1e-14, atol=0)


def test_sd_takes_one_output_a_sample():
    """Regression with logits of shape (n,) is the same as with (n, 1)."""
    values = [SD(NAMES)(LOSSES, CODES, logits=shaped).item() for shaped in (LOSSES, LOSSES[:, None])]
    assert values == [pytest.approx(17 / 5 + 0.1 * (1 + 4 + 36 + 9 + 25) / 5, rel=1e-14)] * 2


def test_irm_of_dense_logits_is_the_derivative_of_the_pixel_mean():
    """... over a sample's labelled pixels, as segmentation has it; unlabelled ones have no part in it."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 2, 3, 4, dtype=torch.float64, generator=generator).requires_grad_()
    labels = torch.randint(-1, 2, (5, 3, 4), generator=generator)

    def loss(out):
        by_pixel = F.cross_entropy(out, labels, reduction="none", ignore_index=-1)
        return by_pixel.sum(dim=(1, 2)) / (labels >= 0).sum(dim=(1, 2))

    expected = irm_by_halves(loss, logits, 0.7)
    found = IRM(NAMES, penalty=0.7)(loss(logits), CODES, logits=logits)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    fill = torch.where((labels < 0)[:, None], 100.0, logits)
    torch.testing.assert_close(IRM(NAMES, penalty=0.7)(loss(fill), CODES, logits=fill), found, rtol=1e-12, atol=0)


def irm_by_halves(loss, logits, penalty):
    """IRMv1 with a scale w = 1 on the logits: by autograd, one derivative for every half of a group's rows."""
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    losses, products = loss(scale * logits), []
    for group in range(3):
        own = losses[group == CODES]
        if len(own) > 1:
            one, other = (torch.autograd.grad(own[half::2].mean(), scale, create_graph=True)[0] for half in (0, 1))
            products.append(one * other)
    by_group = [losses[group == CODES].mean() for group in range(3)]
    return sum(by_group) / 3 + penalty * sum(products) / len(products)


@pytest.mark.parametrize("penalty", [0.0, 0.7, 10.0])
@pytest.mark.parametrize(
    "loss",
    [
        lambda out: F.cross_entropy(out, CODES, reduction="none"),
        lambda out: ((out - 1.0) ** 2).sum(dim=1),
        lambda out: (out[:, 0] - LOSSES).abs(),
    ],
    ids=["cross entropy", "squared error", "absolute error"],
)
def test_irm_is_the_product_of_derivatives_by_a_dummy_scale(logits, loss, penalty):
    expected = irm_by_halves(loss, logits, penalty)
    found = IRM(NAMES, penalty=penalty, warm_up=0)(loss(logits), CODES, logits=logits)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        *(torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (found, expected)),
        rtol=1e-10,
        atol=1e-14,
    )


def test_irm_takes_one_output_a_sample():
    """Regression with logits of shape (n,) is the same as with (n, 1)."""
    out = LOSSES.clone().requires_grad_()
    flat = IRM(NAMES)((out - 1) ** 2, CODES, logits=out)
    column = out[:, None] * 1.0
    assert IRM(NAMES)((column[:, 0] - 1) ** 2, CODES, logits=column).item() == pytest.approx(flat.item(), rel=1e-14)


def test_irms_penalty_is_unbiased():
    """Of a calibrated classifier, whose derivative is 0 in expectation, the mean penalty over batches is 0."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20_000, 8, dtype=torch.float64, generator=generator)
    y = torch.bernoulli(torch.sigmoid(logits), generator=generator)
    slopes = (torch.sigmoid(logits) - y) * logits  # of the cross entropy by the scale
    codes, penalties = torch.zeros(8, dtype=torch.long), []
    for row, labels in zip(logits[:2000], y[:2000], strict=True):
        row = row.clone().requires_grad_()
        losses = F.binary_cross_entropy_with_logits(row, labels, reduction="none")
        value = IRM(["a"], penalty=1.0)(losses, codes, logits=row) - losses.mean()
        penalties.append(value.item())
    squares = slopes.mean(dim=1).square().mean().item()  # what the square of one estimate would give
    noise = torch.tensor(penalties).std().item() / len(penalties) ** 0.5
    assert abs(sum(penalties) / len(penalties)) < 3 * noise < squares / 5


@pytest.mark.parametrize("method", [IRM, VREx])
@pytest.mark.parametrize("penalty", [0.3, 10.0])
def test_a_penalty_sets_in_after_the_warm_up(logits, method, penalty):
    def value(objective):
        losses = F.cross_entropy(logits, CODES, reduction="none")
        return objective(losses, CODES, **({"logits": logits} if method is IRM else {})).item()

    warmed = method(NAMES, penalty=penalty, warm_up=2)
    weak, full = (method(NAMES, penalty=each, warm_up=0) for each in (min(1.0, penalty), penalty))
    assert [value(warmed) for _ in range(4)] == [value(weak)] * 2 + [value(full)] * 2
    assert (value(weak) == value(full)) == (penalty < 1.0)
    warmed = method(NAMES, penalty=penalty, warm_up=2).eval()
    assert [value(warmed) for _ in range(4)] == [value(weak)] * 4


def test_irm_without_gradients_says_so(logits):
    with torch.no_grad(), pytest.raises(DataError, match="with gradients enabled"):
        IRM(NAMES)(F.cross_entropy(logits, CODES, reduction="none"), CODES, logits=logits)


def test_irm_refuses_logits_the_losses_do_not_come_from(logits):
    """A second forward pass gives equal numbers and no path between them: say that, not 'unused in the graph'."""
    losses = F.cross_entropy(logits * 1.0, CODES, reduction="none")
    with pytest.raises(DataError, match="logits"):
        IRM(NAMES)(losses, CODES, logits=logits * 1.0)


# ---------------------------------------------------------------- weights that move


def test_group_dro_is_the_exponentiated_gradient():
    objective, q = GroupDRO(NAMES, step=0.1), torch.full((3,), 1 / 3, dtype=torch.float64)
    for _ in range(3):
        value = objective(LOSSES, CODES)
        q = q * torch.exp(0.1 * double(2, 4, 5))
        q = q / q.sum()
        assert value.item() == pytest.approx((q @ double(2, 4, 5)).item(), rel=1e-14)
        assert list(objective.weights.values()) == pytest.approx(q.tolist(), rel=1e-14)


def test_tro_is_equation_7():
    """Two steps by hand, inside the simplex, where the projection takes off the mean and no more."""
    objective, p = TRO(PRIOR, penalty=0.5, step=0.02), double(0.5, 0.3, 0.2)
    q = p
    for _ in range(2):
        value = objective(LOSSES, CODES)
        slope = double(2, 4, 5) - 0.5 * (q - p)
        q = q + 0.02 * (slope - slope.mean())
        assert value.item() == pytest.approx((q @ double(2, 4, 5)).item(), rel=1e-14)
    assert list(objective.weights.values()) == pytest.approx(q.tolist(), rel=1e-14)


def test_gradients_do_not_flow_through_the_weights():
    """Danskin: the gradient of the maximum is that of the mixture at the maximiser, held fixed."""
    losses = LOSSES.clone().requires_grad_()
    objective = TRO(PRIOR, update="exact", penalty=10.0)
    objective(losses, CODES).backward()
    q, counts = objective.weights, (2, 2, 1)
    expected = [q[NAMES[code]] / counts[code] for code in CODES]
    assert losses.grad.tolist() == pytest.approx(expected, rel=1e-14)


def test_an_absent_group_keeps_its_last_loss():
    """After (2, 4, 5) a batch without c counts as (1, 1, 5): c goes on rising at the others' cost."""
    one, other = (TRO(PRIOR, update="exact", penalty=10.0) for _ in range(2))
    one(LOSSES, CODES)
    one(double(1, 1), PAIR)
    other(double(1, 1, 5), torch.arange(3))
    assert one.weights == pytest.approx(other.weights, rel=1e-14)


def test_a_group_not_seen_yet_neither_rises_nor_falls():
    """Its loss is taken to be the mean over the groups in the batch."""
    objective = TRO(PRIOR, penalty=0.0, step=0.01)
    objective(double(1, 3), PAIR)
    assert objective.weights == pytest.approx({"a": 0.49, "b": 0.31, "c": 0.2}, rel=1e-14)


def test_the_weights_of_a_method_without_any_are_equal():
    assert ERM(NAMES).weights == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IRM(NAMES, penalty=-1.0), "penalty is -1.0: expected a finite number of at least 0"),
        (lambda: VREx(NAMES, penalty=math.inf), "penalty is inf"),
        (lambda: SD(NAMES, penalty=math.nan), "penalty is nan"),
        (lambda: CORAL(NAMES, penalty=-0.5), "penalty is -0.5"),
        (lambda: MMD(NAMES, penalty=math.inf), "penalty is inf"),
        (lambda: MMD(NAMES, gammas=()), r"gammas are \(\): expected one or more positive numbers"),
        (lambda: MMD(NAMES, gammas=(1.0, 0.0)), r"gammas are \(1.0, 0.0\)"),
        (lambda: MMD(NAMES, gammas=(math.nan,)), "gammas are"),
        (lambda: DANN(NAMES, 8, penalty=math.nan), "penalty is nan"),
        (lambda: DANN(NAMES, 0), "width is 0: expected a number of units of at least 1"),
        (lambda: DANN(NAMES, 8, hidden=0), "hidden is 0"),
        (lambda: IRM(NAMES, warm_up=-1), "warm_up is -1: expected a whole number"),
        (lambda: VREx(NAMES, warm_up=0.5), "warm_up is 0.5: expected a whole number"),
        (lambda: DANN(NAMES, 8, learning_rate=0.0), "learning_rate is 0.0"),
        (lambda: DANN(NAMES, 8, gradient_penalty=-1.0), "gradient_penalty is -1.0"),
        (lambda: TRO(PRIOR, penalty=-1.0), "penalty is -1.0"),
        (lambda: TRO(PRIOR, step=0.0), "step is 0.0"),
        (lambda: TRO(PRIOR, update="constrained"), "needs radius="),
        (lambda: TRO(PRIOR, update="ascent", radius=0.1), "radius=0.1 only goes with update='constrained'"),
    ],
)
def test_bad_settings_say_what_was_expected(make, message):
    with pytest.raises(SettingError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TRO(PRIOR, update="exakt"),
            r"'exakt'. Did you mean 'exact'\? Valid names: ascent, constrained, exact",
        ),
        (lambda: TRO(PRIOR, divergence="tv"), "'tv'. Valid names: chi2, kl, l2"),
        (lambda: GroupDRO(NAMES, update="exact"), "'exact'. Valid names: mirror, projected"),
    ],
)
def test_unknown_names_list_the_valid_ones(make, message):
    with pytest.raises(UnknownNameError, match=message):
        make()


def test_a_step_too_large_for_the_penalty_warns():
    with pytest.warns(TopoRoWarning, match=r"step \* penalty = 1 \* 100 = 100 ≥ 2.*below 0.02"):
        TRO(PRIOR, penalty=100.0, step=1.0)


@pytest.mark.parametrize("make", [lambda: GroupDRO(["only"]), lambda: TRO({"only": 1.0}), lambda: IWERM({"only": 1.0})])
def test_a_single_group_leaves_nothing_to_weigh(make):
    with pytest.raises(DataError, match=r"1 group\(s\) \('only'\) leaves nothing to weigh.*use ERM"):
        make()
