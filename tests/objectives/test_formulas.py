"""Values of each method against its formula, written out."""

import math

import pytest
import torch
from torch.nn import functional as F

from toporo.errors import DataError, SettingError, TopoRoWarning, UnknownNameError
from toporo.objectives import CORAL, DANN, ERM, IRM, IWERM, MMD, SD, TRO, GroupDRO, VREx

NAMES = ("a", "b", "c")
PRIOR = {"a": 0.5, "b": 0.3, "c": 0.2}
CODES = torch.tensor([0, 1, 1, 0, 2])
LOSSES = torch.tensor([1.0, 2.0, 6.0, 3.0, 5.0], dtype=torch.float64)  # group means 2, 4, 5
PAIR = torch.tensor([0, 1])  # a batch in which c is absent


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def logits():
    return normal(5, 3).requires_grad_()


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


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 3, 4)], ids=["one output", "classes", "dense"])
def test_sd_penalises_the_mean_square_of_the_logits(shape):
    """Over classes and positions too, so the penalty does not grow with the image."""
    found = SD(NAMES, penalty=0.4)(LOSSES, CODES, logits=normal(*shape))
    torch.testing.assert_close(found, LOSSES.mean() + 0.4 * (normal(*shape) ** 2).mean(), rtol=1e-14, atol=0)


def irm_by_halves(loss, logits, penalty):
    """IRMv1 by autograd: the derivative by a scale w = 1 on the logits of each half of a group's rows."""
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    losses, products = loss(scale * logits), []
    for group in range(3):
        of_group = losses[group == CODES]
        if len(of_group) > 1:
            halves = (torch.autograd.grad(of_group[i::2].mean(), scale, create_graph=True)[0] for i in (0, 1))
            products.append(math.prod(halves))
    by_group = [losses[group == CODES].mean() for group in range(3)]
    return sum(by_group) / 3 + penalty * sum(products) / len(products)


LABELS = torch.randint(-1, 2, (5, 3, 4), generator=torch.Generator().manual_seed(0))


def pixel_mean(out):
    """Mean over a sample's labelled pixels, as in segmentation."""
    by_pixel = F.cross_entropy(out, LABELS, reduction="none", ignore_index=-1)
    return by_pixel.sum(dim=(1, 2)) / (LABELS >= 0).sum(dim=(1, 2))


@pytest.mark.parametrize("penalty", [0.0, 0.7, 10.0])
@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        (lambda out: F.cross_entropy(out, CODES, reduction="none"), (5, 3)),
        (lambda out: ((out - 1.0) ** 2).sum(dim=1), (5, 3)),
        (lambda out: (out - LOSSES).abs(), (5,)),
        (pixel_mean, (5, 2, 3, 4)),
    ],
    ids=["cross entropy", "squared error", "one output", "dense"],
)
def test_irm_is_the_product_of_derivatives_by_a_dummy_scale(loss, shape, penalty):
    logits = normal(*shape).requires_grad_()
    expected = irm_by_halves(loss, logits, penalty)
    found = IRM(NAMES, penalty=penalty, warm_up=0)(loss(logits), CODES, logits=logits)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    slopes = [torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (found, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-14)


def test_the_penalty_of_irm_is_unbiased():
    """For a calibrated classifier, whose derivative is 0 in expectation, the mean penalty over batches is 0."""
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
    squares = slopes.mean(dim=1).square().mean().item()  # the penalty from a single estimate
    noise = torch.tensor(penalties).std().item() / len(penalties) ** 0.5
    assert abs(sum(penalties) / len(penalties)) < 3 * noise < squares / 5


@pytest.mark.parametrize("method", [IRM, VREx])
@pytest.mark.parametrize("penalty", [0.3, 10.0])
def test_a_penalty_sets_in_after_the_warm_up(logits, method, penalty):
    def value(objective):
        losses = F.cross_entropy(logits, CODES, reduction="none")
        return objective(losses, CODES, **({"logits": logits} if method is IRM else {})).item()

    warmed = method(NAMES, penalty=penalty, warm_up=2)
    weak, full = (method(NAMES, penalty=factor, warm_up=0) for factor in (min(1.0, penalty), penalty))
    assert [value(warmed) for _ in range(4)] == [value(weak)] * 2 + [value(full)] * 2
    assert (value(weak) == value(full)) == (penalty < 1.0)
    warmed = method(NAMES, penalty=penalty, warm_up=2).eval()
    assert [value(warmed) for _ in range(4)] == [value(weak)] * 4


def test_irm_is_a_mean_over_the_groups_with_two_rows(logits):
    """Here the first group; the other has no penalty."""
    logits = logits[:3]
    losses = F.cross_entropy(logits, CODES[:3], reduction="none")
    (slopes,) = torch.autograd.grad(losses.sum(), logits, create_graph=True)
    by_scale = (slopes * logits).sum(dim=1)
    found = IRM(["a", "b"], penalty=0.5, warm_up=0)(losses, torch.tensor([0, 1, 0]), logits=logits)
    expected = (losses[[0, 2]].mean() + losses[1]) / 2 + 0.5 * by_scale[0] * by_scale[2]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_irm_needs_gradients_and_the_logits_of_the_losses(logits):
    with torch.no_grad(), pytest.raises(DataError, match="with gradients enabled"):
        IRM(NAMES)(F.cross_entropy(logits, CODES, reduction="none"), CODES, logits=logits)
    losses = F.cross_entropy(logits * 1.0, CODES, reduction="none")
    with pytest.raises(DataError, match="give those they come from"):
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


@pytest.mark.parametrize(("start", "first"), [("prior", (0.5, 0.3, 0.2)), ("uniform", (1 / 3, 1 / 3, 1 / 3))])
def test_tro_is_equation_7(start, first):
    """Two steps by hand, inside the simplex, where the projection subtracts the mean."""
    objective, p, q = TRO(PRIOR, penalty=0.5, step=0.02, start=start), double(0.5, 0.3, 0.2), double(*first)
    for _ in range(2):
        value = objective(LOSSES, CODES)
        slope = double(2, 4, 5) - 0.5 * (q - p)
        q = q + 0.02 * (slope - slope.mean())
        assert value.item() == pytest.approx((q @ double(2, 4, 5)).item(), rel=1e-14)
    assert list(objective.weights.values()) == pytest.approx(q.tolist(), rel=1e-14)


def test_gradients_do_not_flow_through_the_weights():
    """Danskin: the gradient of the maximum is that of the mixture at the maximiser."""
    losses = LOSSES.clone().requires_grad_()
    objective = TRO(PRIOR, update="exact", penalty=10.0)
    objective(losses, CODES).backward()
    q, counts = objective.weights, (2, 2, 1)
    expected = [q[NAMES[code]] / counts[code] for code in CODES]
    assert losses.grad.tolist() == pytest.approx(expected, rel=1e-14)


def test_an_absent_group_keeps_its_last_loss():
    """After (2, 4, 5) a batch without c counts as (1, 1, 5)."""
    one, other = (TRO(PRIOR, update="exact", penalty=10.0) for _ in range(2))
    one(LOSSES, CODES)
    one(double(1, 1), PAIR)
    other(double(1, 1, 5), torch.arange(3))
    assert one.weights == pytest.approx(other.weights, rel=1e-14)


def test_a_group_not_seen_yet_has_the_mean_loss():
    objective = TRO(PRIOR, penalty=0.0, step=0.01)
    objective(double(1, 3), PAIR)
    assert objective.weights == pytest.approx({"a": 0.49, "b": 0.31, "c": 0.2}, rel=1e-14)


def test_weights_of_a_method_without_any_are_equal():
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
        (lambda: DANN(NAMES, 8, penalty=math.nan), "penalty is nan"),
        (lambda: DANN(NAMES, 0), "width is 0: expected a whole number of at least 1"),
        (lambda: DANN(NAMES, 8, hidden=0), "hidden is 0"),
        (lambda: VREx(NAMES, warm_up=0.5), "warm_up is 0.5: expected a whole number"),
        (lambda: DANN(NAMES, 8, learning_rate=0.0), "learning_rate is 0.0"),
        (lambda: TRO(PRIOR, penalty=-1.0), "penalty is -1.0"),
        (lambda: TRO(PRIOR, step=0.0), "step is 0.0"),
        (lambda: TRO(PRIOR, update="constrained"), "radius=None: expected radius="),
        (lambda: TRO(PRIOR, update="ascent", radius=0.1), "radius=0.1: expected .* with update='constrained' and only"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(SettingError, match=message):
        make()


def test_unknown_names_list_the_valid_ones():
    with pytest.raises(UnknownNameError, match=r"Did you mean 'exact'\? Valid names: ascent, constrained, exact"):
        TRO(PRIOR, update="exakt")
    with pytest.raises(UnknownNameError, match=r"'tv'. Valid names: chi2, kl, l2"):
        TRO(PRIOR, divergence="tv")
    with pytest.raises(UnknownNameError, match=r"'zero'. Valid names: prior, uniform"):
        TRO(PRIOR, start="zero")


def test_a_step_too_large_for_the_penalty_warns():
    with pytest.warns(TopoRoWarning, match=r"step \* penalty = 1 \* 100 = 100 ≥ 2.*below 0.02"):
        TRO(PRIOR, penalty=100.0, step=1.0)


@pytest.mark.parametrize("make", [lambda: GroupDRO(["only"]), lambda: TRO({"only": 1.0}), lambda: IWERM({"only": 1.0})])
def test_a_single_group_has_nothing_to_weigh(make):
    with pytest.raises(DataError, match=r"1 group\(s\) \('only'\) .*use ERM"):
        make()
