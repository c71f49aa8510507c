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


@pytest.mark.parametrize(("dtype", "labels"), [(torch.float32, torch.int64), (torch.bfloat16, torch.int8)])
def test_the_loss_is_the_mean_over_the_labelled_pixels_of_a_sample(dtype, labels):
    """Any negative number marks a pixel without a label; a sample without labels has no loss and no gradient."""
    z, y = logits(0).to(dtype).requires_grad_(), maps(1, n=5, side=4, highest=2)
    y[2] = -1
    y[0][y[0] < 0] = -100
    found = pixel_loss(z, y.to(labels))
    assert found.dtype == torch.float32
    for sample, truth, value in zip(z.float(), y, found, strict=True):
        valid = truth >= 0
        expected = F.cross_entropy(sample[:, valid].T, truth[valid]) if valid.any() else torch.tensor(0.0)
        torch.testing.assert_close(value, expected)
    found.sum().backward()
    assert torch.equal(z.grad.abs().sum(1) > 0, y >= 0)


def test_counts_and_scores_are_those_of_scikit_learn():
    predicted, y, codes = maps(0, lowest=0), maps(1), torch.tensor([2, 0, 2, 1, 0, 1, 2])
    counts = count_pixels(predicted, y, codes, 3)
    for code in range(3):
        of_group = codes == code
        valid = y[of_group] >= 0
        true, guess = y[of_group][valid], predicted[of_group][valid]
        assert iou(counts)[code] == pytest.approx(jaccard_score(true, guess), abs=1e-15)
        assert f1(counts)[code] == pytest.approx(f1_score(true, guess), abs=1e-15)
        assert accuracy(counts)[code] == pytest.approx(accuracy_score(true, guess), abs=1e-15)
        cells = [(true == t) & (guess == s) for t, s in ((1, 1), (0, 1), (1, 0), (0, 0))]
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


@pytest.mark.filterwarnings("error")
def test_undefined_scores_are_nan_without_a_warning():
    """Without water, true or predicted, there is no score; a false alarm has the score 0."""
    land, water, none = torch.zeros(1, 2, 2).long(), torch.ones(1, 2, 2).long(), torch.full((1, 2, 2), -1)
    counts = count_pixels(
        torch.cat([land, water, land, water]), torch.cat([land, land, water, none]), torch.arange(4), 5
    )
    np.testing.assert_array_equal(iou(counts), [np.nan, 0, 0, np.nan, np.nan])
    np.testing.assert_array_equal(f1(counts), [np.nan, 0, 0, np.nan, np.nan])
    np.testing.assert_array_equal(accuracy(counts), [1, 0, 0, np.nan, np.nan])


def test_shapes_that_do_not_belong_together_are_refused():
    for predicted, codes in (((3, 4, 5), 3), ((3, 4, 4), 2)):
        with pytest.raises(DataError, match="do not belong together"):
            count_pixels(torch.zeros(predicted), torch.zeros(3, 4, 4), torch.zeros(codes, dtype=torch.long), 1)
