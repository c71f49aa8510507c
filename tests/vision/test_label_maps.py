"""Label maps: pixels without a label do not count, and counting is exact."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, jaccard_score
from torch.nn import functional as F

from toporo.errors import DataError
from toporo.vision.label_maps import accuracy, count_pixels, f1, iou, pixel_loss


def maps(seed, n=7, side=6, lowest=-1, highest=1):
    return torch.randint(lowest, highest + 1, (n, side, side), generator=torch.Generator().manual_seed(seed))


def logits(seed, n=5, classes=3, side=4):
    return torch.randn(n, classes, side, side, generator=torch.Generator().manual_seed(seed))


def test_the_loss_is_the_mean_over_each_samples_labelled_pixels():
    z, y = logits(0), maps(1, n=5, side=4, highest=2)
    found = pixel_loss(z, y)
    assert found.dtype == torch.float32
    for i in range(5):
        valid = y[i] >= 0
        assert 0 < valid.sum() < valid.numel()
        torch.testing.assert_close(found[i], F.cross_entropy(z[i][:, valid].T, y[i][valid]))


def test_a_sample_without_labels_costs_nothing_and_pulls_nowhere():
    """0 / 0 would poison every group's loss, or, masked too late, the gradient alone."""
    z, y = logits(0).requires_grad_(), maps(1, n=5, side=4, highest=2)
    y[2] = -1
    found = pixel_loss(z, y)
    found.sum().backward()
    assert found[2] == 0
    assert found[[0, 1, 3, 4]].min() > 0
    assert (z.grad[2] == 0).all()
    assert torch.isfinite(z.grad).all()


def test_pixels_without_a_label_get_no_gradient():
    z, y = logits(0).requires_grad_(), maps(1, n=5, side=4, highest=2)
    pixel_loss(z, y).sum().backward()
    assert torch.equal(z.grad.abs().sum(1) > 0, y >= 0)


def test_any_negative_label_is_no_label():
    z, y = logits(0), maps(1, n=5, side=4, highest=2)
    assert torch.equal(pixel_loss(z, torch.where(y < 0, -100, y)), pixel_loss(z, y))


def test_the_loss_takes_small_labels_and_half_precision():
    """Label maps are stored as int8 and the network answers in bfloat16; the loss is single precision all the same."""
    z, y = logits(0).bfloat16(), maps(1, n=5, side=4, highest=2)
    found = pixel_loss(z, y.to(torch.int8))
    assert found.dtype == torch.float32
    assert torch.equal(found, pixel_loss(z.float(), y))


@pytest.mark.parametrize("shape", [(5, 4, 3), (4, 4, 4), (5, 16), (5,)])
def test_labels_of_another_shape_are_refused(shape):
    with pytest.raises(DataError, match=r"\(5, 3, 4, 4\) and labels of shape .*do not belong together"):
        pixel_loss(logits(0), torch.zeros(shape, dtype=torch.long))


def test_counts_and_scores_are_those_of_scikit_learn():
    predicted, y, codes = maps(0, lowest=0), maps(1), torch.tensor([2, 0, 2, 1, 0, 1, 2])
    counts = count_pixels(predicted, y, codes, 3)
    for code in range(3):
        mine = codes == code
        valid = y[mine] >= 0
        true, said = y[mine][valid], predicted[mine][valid]
        assert iou(counts)[code] == pytest.approx(jaccard_score(true, said), abs=1e-15)
        assert f1(counts)[code] == pytest.approx(f1_score(true, said), abs=1e-15)
        assert accuracy(counts)[code] == pytest.approx(accuracy_score(true, said), abs=1e-15)
        cells = [(true == t) & (said == s) for t, s in ((1, 1), (0, 1), (1, 0), (0, 0))]
        assert counts[:, code].tolist() == [int(cell.sum()) for cell in cells]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 8))
def test_counting_in_two_parts_and_adding_is_counting_once(seed, m, cut):
    predicted, y = maps(seed, n=8, lowest=0), maps(seed + 1, n=8)
    codes = torch.randint(0, m, (8,), generator=torch.Generator().manual_seed(seed))
    whole = count_pixels(predicted, y, codes, m)
    parts = [count_pixels(predicted[part], y[part], codes[part], m) for part in (slice(cut), slice(cut, None))]
    assert torch.equal(parts[0] + parts[1], whole)
    assert whole.sum() == (y >= 0).sum()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_what_is_said_of_unlabelled_pixels_changes_nothing(seed):
    predicted, y, codes = maps(seed, lowest=0), maps(seed + 1), torch.arange(7) % 2
    other = torch.where(y < 0, 1 - predicted, predicted)
    assert torch.equal(count_pixels(predicted, y, codes, 2), count_pixels(other, y, codes, 2))


@pytest.mark.filterwarnings("error")
def test_scores_that_mean_nothing_are_nan_without_a_warning():
    """No water and none predicted is neither a perfect score nor a failure; a false alarm there is a failure."""
    land, water, none = torch.zeros(1, 2, 2).long(), torch.ones(1, 2, 2).long(), torch.full((1, 2, 2), -1)
    counts = count_pixels(
        torch.cat([land, water, land, water]), torch.cat([land, land, water, none]), torch.arange(4), 5
    )
    np.testing.assert_array_equal(iou(counts), [np.nan, 0, 0, np.nan, np.nan])
    np.testing.assert_array_equal(f1(counts), [np.nan, 0, 0, np.nan, np.nan])
    np.testing.assert_array_equal(accuracy(counts), [1, 0, 0, np.nan, np.nan])


def test_counts_are_exact_integers():
    """In single precision, 2**24 + 1 pixels would already be 2**24."""
    counts = torch.tensor([[2**24], [0], [1], [0]])
    assert iou(counts)[0] == 2**24 / (2**24 + 1) < 1
    assert count_pixels(maps(0), maps(1), torch.zeros(7).long(), 1).dtype == torch.int64


@pytest.mark.parametrize(
    ("predicted", "y", "codes"),
    [((3, 4, 4), (3, 4, 5), (3,)), ((3, 4, 4), (3, 4, 4), (2,)), ((2, 3, 4, 4), (2, 4, 4), (2,))],
)
def test_shapes_that_do_not_belong_together_are_refused(predicted, y, codes):
    """Broadcasting would count some pixels twice; logits instead of classes are the likely slip."""
    with pytest.raises(DataError, match="do not belong together"):
        count_pixels(torch.zeros(predicted), torch.zeros(y), torch.zeros(codes, dtype=torch.long), 1)


def test_nothing_is_read_back_while_training():
    """A tensor on the meta device has no values: whatever looked at one would fail."""
    z, y = logits(0).to("meta").requires_grad_(), maps(1, n=5, side=4).to("meta")
    pixel_loss(z, y).sum().backward()
    counts = count_pixels(z.argmax(1), y, torch.zeros(5, dtype=torch.long, device="meta"), 3)
    assert counts.shape == (4, 3)
