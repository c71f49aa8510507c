"""Differentiable diffusion EMD: its values against the numpy route, its gradients against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from toporo.errors import DataError, GroupMismatchError, SettingError, UnknownNameError
from toporo.groups import GroupIds, Groups
from toporo.topology import differentiable
from toporo.topology.differentiable import differentiable_emd
from toporo.topology.diffusion import diffusion_emd
from toporo.topology.operator import bandwidth

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine has none")


def single(scales: int) -> float:
    """What float32 leaves of densities whose l1 norm is about 1: the power 2^scales multiplies the walk's rounding.

    The sums over some dozens of points round too; ten scales come to 1.3e-4.
    """
    return (2**scales + 50) * torch.finfo(torch.float32).eps


def clusters(
    groups: int = 4, size: int = 15, dimensions: int = 3, spread: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Groups of points along a diagonal, ``spread`` apart: 0 makes them one cloud, 1 lets neighbours overlap."""
    labels = torch.arange(groups).repeat_interleave(size)
    noise = torch.randn(groups * size, dimensions, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (noise + spread * labels[:, None]).requires_grad_(), labels


def slopes(points: Tensor, labels: Any, **settings: Any) -> Tensor:
    """The gradient of distances weighted unequally, so that no two of them can stand in for each other."""
    matrix = differentiable_emd(points, labels, **settings)
    weights = torch.arange(1.0, 1.0 + matrix.numel(), dtype=matrix.dtype, device=matrix.device).reshape(matrix.shape)
    return grad((weights * matrix).sum(), points)[0]


def apart(found: Tensor, expected: Tensor) -> float:
    """Relative difference in norm."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize(("scales", "alpha"), [(1, 0.5), (4, 0.25), (10, 0.5), (10, 1.0)])
@pytest.mark.parametrize(("dimensions", "sigma", "spread"), [(1, 0.3, 1.0), (3, 1.5, 1.0), (12, 3.0, 0.0)])
def test_agrees_with_the_numpy_route(dimensions: int, sigma: float, spread: float, scales: int, alpha: float) -> None:
    points, labels = clusters(dimensions=dimensions, spread=spread)
    expected = diffusion_emd(points, labels, kernel="dense", sigma=sigma, scales=scales, alpha=alpha, tol=1e-9).matrix
    found = differentiable_emd(points, labels, sigma=sigma, scales=scales, alpha=alpha)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-6, atol=0)
    rounded = differentiable_emd(points.float(), labels, sigma=sigma, scales=scales, alpha=alpha)
    assert rounded.dtype == torch.float32
    np.testing.assert_allclose(rounded.detach(), expected, rtol=0, atol=single(scales))


@pytest.mark.parametrize("sigma", ["median", "knn"])
def test_named_widths_are_those_of_the_numpy_route(sigma: Any) -> None:
    points, labels = clusters()
    expected = diffusion_emd(points, labels, kernel="dense", sigma=sigma, neighbors=4, tol=1e-9).matrix
    found = differentiable_emd(points, labels, sigma=sigma, neighbors=4)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("dtype", "shift", "relative"), [(torch.float64, 2.0**26, 1e-9), (torch.float32, 2.0**13, 1e-6)]
)
def test_far_from_the_origin(dtype: torch.dtype, shift: float, relative: float) -> None:
    """Points on a grid that the dtype holds exactly even when moved: nothing may be lost but by ourselves."""
    points, labels = clusters()
    near = (torch.round(points.detach() * 2**8) / 2**8).to(dtype).requires_grad_()
    far = (near.detach() + shift).requires_grad_()
    assert torch.equal(far.detach() - shift, near.detach())
    moved, still = (differentiable_emd(x, labels, sigma=1.5).detach() for x in (far, near))
    assert apart(moved, still) < relative
    assert apart(slopes(far, labels, sigma=1.5), slopes(near, labels, sigma=1.5)) < 100 * relative


def test_rows_and_columns_are_in_the_order_of_the_names() -> None:
    points, codes = (column[:-9] for column in clusters(groups=3))  # groups of unequal size
    names = np.array(["c", "a", "b"])[codes]
    found = differentiable_emd(points, names, sigma=1.5).detach()
    expected = diffusion_emd(points, names, kernel="dense", sigma=1.5)
    assert expected.names == Groups.of(names).groups.names == ("a", "b", "c")
    np.testing.assert_allclose(found, expected.matrix, rtol=1e-6, atol=0)
    for same in (Groups.of(names), names.tolist(), GroupIds(torch.tensor(Groups.of(names).codes), Groups("abc"))):
        assert torch.equal(differentiable_emd(points, same, sigma=1.5), found)


def test_is_symmetric_to_the_bit_with_a_zero_diagonal() -> None:
    points, labels = clusters(groups=7, size=5)
    for dtype in (torch.float32, torch.float64):
        matrix = differentiable_emd(points.to(dtype), labels)
        assert torch.equal(matrix, matrix.mT)
        assert not matrix.diagonal().any()
        assert (matrix + torch.eye(7, dtype=dtype) > 0).all()


def test_a_column_may_come_as_a_vector() -> None:
    points, labels = clusters(dimensions=1)
    assert torch.equal(differentiable_emd(points[:, 0], labels), differentiable_emd(points, labels))


def test_a_group_moved_away_is_farther() -> None:
    points, labels = clusters(groups=3, spread=0.0)
    moving = (labels == 2).double()[:, None]
    steps = [points + step * moving for step in (0.0, 1.5, 3.0)]
    found = torch.stack([differentiable_emd(x, labels, sigma=1.5, scales=4) for x in steps])
    assert (found[:, 2, :2].diff(dim=0) > 0.2).all()


# ---------------------------------------------------------------------- truncation


def test_a_coarse_tolerance_truncates_within_its_bound() -> None:
    points, labels = clusters()
    fine = differentiable_emd(points, labels, sigma=0.5, tol=1e-9)
    for tol in (1e-1, 1e-3):
        error = float((differentiable_emd(points, labels, sigma=0.5, tol=tol) - fine).detach().abs().max())
        assert 1e-13 < error <= 0.05 * tol


def test_the_tail_is_not_cut_finer_than_the_dtype_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    tails = []

    def spy(scales: int, tail: float) -> np.ndarray:
        tails.append(tail)
        return real(scales, tail)

    real = differentiable.dyadic_coefficients
    monkeypatch.setattr(differentiable, "dyadic_coefficients", spy)
    points, labels = clusters()
    for x in (points, points.float()):
        differentiable_emd(x, labels, tol=1e-12)
    assert tails[0] < 1e-14
    assert tails[1] == torch.finfo(torch.float32).eps


# ---------------------------------------------------------------------- gradients


@pytest.mark.parametrize(
    ("groups", "size", "dimensions", "spread", "sigma", "scales"),
    [
        pytest.param(2, 5, 2, 1.0, 1.0, 1, id="one scale"),
        pytest.param(2, 6, 1, 0.0, 0.5, 4, id="one cloud on a line"),
        pytest.param(3, 4, 3, 1.0, 1.5, 6, id="three groups"),
        pytest.param(5, 2, 2, 0.5, 1.0, 3, id="five groups of two"),
        pytest.param(3, 2, 12, 0.5, 3.0, 10, id="twelve dimensions, ten scales"),
        pytest.param(2, 5, 2, 3.0, 0.8, 10, id="groups that hardly touch"),
    ],
)
def test_gradient_by_the_features(
    groups: int, size: int, dimensions: int, spread: float, sigma: float, scales: int
) -> None:
    points, labels = clusters(groups, size, dimensions, spread)
    assert gradcheck(lambda x: differentiable_emd(x, labels, sigma=sigma, scales=scales, tol=1e-9), (points,))


def test_gradient_for_groups_of_unequal_size() -> None:
    points, _ = clusters(groups=1, size=9)
    labels = list("aaaaabbbc")
    assert gradcheck(lambda x: differentiable_emd(x, labels, sigma=1.5, scales=5, alpha=0.3, tol=1e-9), (points,))


def test_gradient_by_the_width() -> None:
    points, labels = clusters(groups=3, size=4)
    width = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, s: differentiable_emd(x, labels, sigma=s, scales=6, tol=1e-9), (points, width))
    assert gradcheck(lambda s: differentiable_emd(points.detach(), labels, sigma=s, tol=1e-9), (width.reshape(1),))


def test_a_width_of_another_dtype_gets_a_gradient_of_its_own() -> None:
    points, labels = clusters()
    width = torch.tensor([1.5], requires_grad=True)
    found = differentiable_emd(points, labels, sigma=width)
    assert torch.equal(found, differentiable_emd(points, labels, sigma=1.5))
    (slope,) = grad(found.sum(), width)
    assert (slope.dtype, slope.shape) == (torch.float32, (1,))
    ends = [float(differentiable_emd(points, labels, sigma=1.5 + h).detach().sum()) for h in (1e-4, -1e-4)]
    assert float(slope) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5)


@pytest.mark.parametrize("sigma", ["median", "knn"])
def test_named_widths_are_held_constant(sigma: Any) -> None:
    points, labels = clusters()
    width = bandwidth(points.detach().numpy(), sigma, neighbors=5)
    found = slopes(points, labels, sigma=sigma, neighbors=5)
    assert apart(found, slopes(points, labels, sigma=width)) < 1e-9


def test_second_derivatives() -> None:
    points, labels = clusters(groups=3, size=3, dimensions=2)
    width = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    assert gradgradcheck(lambda x, s: differentiable_emd(x, labels, sigma=s, scales=4, tol=1e-9), (points, width))


@pytest.mark.parametrize(("spread", "sigma"), [(0.0, 1.5), (1.0, 1.5), (1.0, 0.7)])
def test_gradient_in_float32_is_that_in_float64(spread: float, sigma: float) -> None:
    points, labels = clusters(spread=spread)
    rounded = slopes(points.detach().float().requires_grad_(), labels, sigma=sigma)
    assert rounded.dtype == torch.float32
    assert apart(rounded, slopes(points, labels, sigma=sigma)) < 5 * single(10)


def test_the_order_of_the_rows_does_not_matter() -> None:
    points, labels = clusters()
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(1))
    shuffled = points.detach()[order].requires_grad_()
    settings = {"neighbors": 5, "scales": 6}
    moved = differentiable_emd(shuffled, labels[order], **settings)
    torch.testing.assert_close(moved, differentiable_emd(points, labels, **settings), rtol=1e-9, atol=0)
    expected = slopes(points, labels, **settings)
    assert apart(slopes(shuffled, labels[order], **settings), expected[order]) < 1e-9
    assert apart(expected, expected[order]) > 0.1


def test_moving_all_points_together_changes_nothing() -> None:
    points, labels = clusters()
    found = slopes(points, labels, sigma=1.5)
    assert float(found.sum(dim=0).norm()) < 1e-10 * float(found.norm())


def test_points_that_coincide_pull_each_other_nowhere() -> None:
    """Twins within a group and across groups: a distance instead of its square would give NaN here."""
    points, labels = clusters(groups=2, size=6)
    twins = points.detach().clone()
    twins[1], twins[7] = twins[0], twins[2]
    found = slopes(twins.requires_grad_(), labels, sigma=1.5)
    assert found.isfinite().all()
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-12)
    assert float(found[0].norm()) > 1e-3

    place = torch.ones(12, 3, dtype=torch.float64, requires_grad=True)
    matrix = differentiable_emd(place, labels, sigma=1.0)
    assert float(matrix.detach().max()) < 0.05 * 1e-6  # the tolerance
    assert torch.equal(grad(matrix.sum(), place)[0], torch.zeros(12, 3, dtype=torch.float64))


def test_a_point_does_not_pull_itself() -> None:
    """The diagonal of the kernel is 1 to the bit, and however much weight it gets, nothing of it reaches the points."""
    for spread in (1.0, 1e3):
        points, _ = clusters(spread=spread)
        kernel = differentiable._apply(differentiable._Gaussian, points, torch.float64)
        assert torch.equal(kernel.diagonal(), torch.ones(len(points), dtype=torch.float64))
        others = grad(kernel.sum(), points, retain_graph=True)[0]
        assert torch.equal(grad(kernel.sum() + 1e9 * kernel.diagonal().sum(), points)[0], others)


def test_equal_densities_have_no_slope() -> None:
    """|.| at 0, where the derivative is taken to be 0."""
    rows = torch.tensor([[1.0, 2.0], [1.0, 5.0], [0.0, 2.0]], requires_grad=True)
    matrix = differentiable._apply(differentiable._Cityblock, rows)
    assert matrix.tolist() == [[0, 3, 1], [3, 0, 4], [1, 4, 0]]
    assert grad(matrix[0, 1], rows)[0].tolist() == [[0, -1], [0, 1], [0, 0]]


@pytest.mark.parametrize(("dtype", "relative"), [(torch.float64, 1e-9), (torch.float32, single(6))])
def test_islands_far_beyond_the_width_do_not_feel_each_other(dtype: torch.dtype, relative: float) -> None:
    """Kernel entries that underflow: the two groups of an island are as far apart as without the other island."""
    points, labels = clusters(groups=4)
    x = (points.detach() + 1e3 * (labels > 1)[:, None]).to(dtype).requires_grad_()
    alone = x.detach()[:30].requires_grad_()
    settings = {"sigma": 1.5, "scales": 6}
    both, one = differentiable_emd(x, labels, **settings), differentiable_emd(alone, labels[:30], **settings)
    assert apart(both[:2, :2].detach(), one.detach()) < relative
    slope = grad(both[0, 1], x, retain_graph=True)[0]
    assert not slope[30:].any()
    assert apart(slope[:30], grad(one[0, 1], alone)[0]) < 100 * relative
    assert grad(both.sum(), x)[0].isfinite().all()


def test_descent_brings_two_groups_together() -> None:
    points, labels = clusters(groups=2, spread=0.0)
    moving = (labels == 1).double()[:, None]
    shift = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([shift], lr=0.3)
    values = []
    for _ in range(25):
        value = differentiable_emd(points.detach() + shift * moving, labels, sigma=2.0, scales=4)[0, 1]
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert (np.diff(values[:5]) < 0).all()
    assert values[-1] < 0.4 * values[0]
    assert float(shift.detach().norm()) < 1.0


# ---------------------------------------------------------------------- what it costs, and where it runs


def test_what_is_kept_for_the_gradient_is_not_all_pairs_of_all_scales() -> None:
    points, labels = clusters(groups=40, size=2)
    (n, m), kept = (80, 40), {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 8
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        differentiable_emd(points, labels, sigma=1.5)
    assert 100 * n * m < sum(kept.values()) < 300 * n * m + 6 * n * n < 11 * n * m * m


def test_autocast_does_not_reach_the_recurrence() -> None:
    points, labels = clusters()
    x = points.detach().float().requires_grad_()
    expected = differentiable_emd(x, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = differentiable_emd(x, labels)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


@needs_cuda
@pytest.mark.parametrize(("dtype", "relative"), [(torch.float64, 1e-9), (torch.float32, 5 * single(10))])
def test_on_a_gpu(dtype: torch.dtype, relative: float) -> None:
    points, labels = clusters()
    x = points.detach().to("cuda", dtype).requires_grad_()
    ids = GroupIds(labels.cuda(), Groups(range(4)))
    width = torch.tensor(1.5, requires_grad=True)  # on the CPU
    found = differentiable_emd(x, ids, sigma=width)
    assert (found.device.type, found.dtype) == ("cuda", dtype)
    assert apart(found.detach().cpu(), differentiable_emd(points, labels, sigma=1.5).detach()) < relative
    assert grad(found.sum(), width)[0].isfinite()
    assert apart(slopes(x, ids, sigma=1.5).cpu(), slopes(points, labels, sigma=1.5)) < relative
    assert differentiable_emd(x, labels.tolist(), sigma="knn").device.type == "cuda"


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"features": np.arange(8.0)}, DataError, r"features are ndarray: .*torch\.as_tensor"),
        ({"features": [[0.0]] * 8}, DataError, r"features are list: .*torch\.as_tensor"),
        ({"features": torch.arange(8)}, DataError, r"features are a torch.int64 tensor: expected a float32 or float64"),
        ({"features": torch.zeros(8, dtype=torch.bfloat16)}, DataError, "features are a torch.bfloat16 tensor"),
        ({"features": torch.zeros(8, 2, 2)}, DataError, r"shape \(points, dimensions\); found shape \(8, 2, 2\)"),
        ({"features": torch.zeros(8, 0)}, DataError, r"found shape \(8, 0\)"),
        ({"features": torch.tensor(1.0)}, DataError, r"found shape \(\)"),
        ({"features": torch.zeros(0, 2), "groups": []}, DataError, r"found shape \(0, 2\)"),
        (
            {"features": torch.tensor([[0.0, 1.0], [1.0, torch.nan]] * 4)},
            DataError,
            r"NaN or infinite values in 4 of 8 rows \(first: row 1\)",
        ),
        ({"features": torch.full((8, 1), torch.inf)}, DataError, r"in 8 of 8 rows \(first: row 0\)"),
        ({"features": torch.zeros(20_001, 1)}, DataError, "20001 points: .* at most 20000.*diffusion_emd"),
        ({"groups": ["a"] * 8}, DataError, "only one group, 'a': .* at least two"),
        ({"groups": list("aabb")}, DataError, "8 points but 4 group labels"),
        ({"groups": []}, DataError, "no groups given"),
        ({"groups": GroupIds(np.array([0, 1] * 4), Groups("abc"))}, DataError, "without a single point: 'c'"),
        (
            {"groups": GroupIds(np.array([0, 2] * 4), Groups("ab"))},
            GroupMismatchError,
            "from 0 to 2: expected .* 0 to 1",
        ),
        ({"groups": GroupIds(np.array([0, -1] * 4), Groups("ab"))}, GroupMismatchError, "from -1 to 0"),
        (
            {"groups": GroupIds(torch.tensor([0.0, 1.0] * 4), Groups("ab"))},
            GroupMismatchError,
            "group codes are float32",
        ),
        ({"groups": GroupIds(np.zeros((8, 2), int), Groups("ab"))}, GroupMismatchError, r"of shape \(8, 2\)"),
        ({"sigma": "mean"}, UnknownNameError, "unknown sigma 'mean'"),
        ({"sigma": 0.0}, SettingError, "sigma is 0.0: expected a positive number"),
        ({"sigma": None}, SettingError, "sigma is None"),
        ({"sigma": torch.tensor(-1.0)}, SettingError, "sigma is -1.0"),
        ({"sigma": torch.tensor(torch.nan)}, SettingError, "sigma is nan"),
        ({"sigma": torch.ones(2)}, SettingError, r"sigma is a tensor of shape \(2,\): expected one positive number"),
        ({"features": torch.zeros(8), "sigma": "knn"}, DataError, "all 8 points coincide"),
        ({"neighbors": 8}, DataError, "8 points cannot have 8 neighbours"),
        ({"neighbors": 0}, SettingError, "neighbors is 0"),
        ({"scales": 0}, SettingError, "scales is 0"),
        ({"scales": 21}, SettingError, "scales is 21: expected a whole number from 1 to 20"),
        ({"scales": 2.5}, SettingError, "scales is 2.5"),
        ({"scales": np.nan}, SettingError, "scales is nan"),
        ({"alpha": 0}, SettingError, "alpha is 0"),
        ({"alpha": np.nan}, SettingError, "alpha is nan"),
        ({"alpha": np.inf}, SettingError, "alpha is inf"),
        ({"tol": 0}, SettingError, "tol is 0"),
        ({"tol": 1}, SettingError, "tol is 1"),
        ({"tol": np.nan}, SettingError, "tol is nan"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_bad_input(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"features": torch.arange(8.0), "groups": list("aaaabbbb"), "neighbors": 3} | changes
    with pytest.raises(error, match=message):
        differentiable_emd(arguments.pop("features"), arguments.pop("groups"), **arguments)


def test_coincident_points_count_once_for_the_width_as_in_the_engine() -> None:
    points = np.repeat(np.random.default_rng(0).normal(size=(30, 2)), 4, axis=0)
    labels = np.arange(120) % 3
    expected = diffusion_emd(points, labels, kernel="dense", scales=4).matrix
    found = differentiable_emd(torch.tensor(points), labels, scales=4)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
