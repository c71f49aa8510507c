"""Augmentation: torchvision's distributions and Pillow's arithmetic from given random numbers."""

import colorsys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance
from torch.nn import functional as F

from toporo.errors import DataError
from toporo.vision.augmentation import (
    ATTEMPTS,
    BRIGHTNESS,
    CONTRAST,
    DRAWS,
    DRAWS_TILES,
    FLIP,
    LEFT,
    SATURATION,
    TO_GREY,
    TOP,
    augment,
    flip_rotate,
    random_crops,
    turn_hue,
    unit_range,
)

LEVEL = 1 / 255


def photos(n=4, height=24, width=24, seed=0):
    """Smooth gradients of colour with some noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    slopes = rng.uniform(-1, 1, size=(2, n, 3, 1, 1))
    pixels = 0.5 + 0.4 * (slopes[0] * (rows - 0.5) + slopes[1] * (columns - 0.5)) + rng.uniform(-0.4, 0.4, (n, 3, 1, 1))
    noisy = (255 * pixels + rng.normal(scale=12, size=pixels.shape)).clip(0, 255).astype(np.uint8)
    return torch.as_tensor(noisy).contiguous(memory_format=torch.channels_last)


def neutral(n):
    """Uniform numbers that change nothing: the whole image, no flip, no jitter, in colour."""
    u = torch.full((n, DRAWS), 0.5)
    u[:, :ATTEMPTS] = 1 - 1e-6
    u[:, TO_GREY] = 0.9
    return u


def uniforms(n, seed=0, draws=DRAWS):
    return torch.rand(n, draws, generator=torch.Generator().manual_seed(seed))


def as_pillow(image):
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def as_tensor(image):
    return torch.as_tensor(np.array(image)).permute(2, 0, 1).float() / 255


# ---------------------------------------------------------------- each change by itself


def test_neutral_numbers_change_nothing():
    x = photos()
    torch.testing.assert_close(augment(x, neutral(4)), x.float() / 255, atol=0.01 * LEVEL, rtol=0)
    torch.testing.assert_close(unit_range(x), x.float() / 255, atol=0, rtol=0)


@pytest.mark.parametrize(
    "factors", [(1.3, 1, 1), (1, 0.7, 1), (1, 1, 1.3), (1, 1, 0.7), (1.3, 0.7, 1.3), (1.3, 1.3, 0.7), (0.7, 1.3, 1.3)]
)
def test_brightness_contrast_and_saturation_are_pillows_in_this_order(factors):
    """Some values leave the range on the way and are clamped before the next change."""
    x, u = photos(seed=3), neutral(4)
    x[:, :, :6] = 255
    x[:, 0, 6:12], x[:, 1:, 6:12] = 250, 5
    for column, factor in zip((BRIGHTNESS, CONTRAST, SATURATION), factors, strict=True):
        u[:, column] = (factor - 1) / 0.6 + 0.5
    levels = 4 if factors.count(1) == 0 else 1.6  # Pillow rounds twice per change
    for image, changed in zip(x, augment(x, u), strict=True):
        theirs = as_pillow(image)
        enhances = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
        for enhance, factor in zip(enhances, factors, strict=True):
            theirs = enhance(theirs).enhance(factor)
        torch.testing.assert_close(changed, as_tensor(theirs), atol=levels * LEVEL, rtol=0)


def test_images_are_flipped_and_grey_by_their_own_numbers():
    x, u = photos(4), neutral(4)
    u[:, FLIP] = torch.tensor([0.49, 0.51, 0.51, 0.51])
    u[:, TO_GREY] = torch.tensor([0.9, 0.9, 0.0999, 0.1001])
    expected = x.float() / 255
    expected[0] = expected[0].flip(-1)
    expected[2] = as_tensor(as_pillow(x[2]).convert("L").convert("RGB"))
    torch.testing.assert_close(augment(x, u), expected, atol=LEVEL, rtol=0)


@given(st.lists(st.tuples(*[st.integers(0, 255)] * 3), min_size=1, max_size=20), st.floats(-0.3, 0.3))
@settings(max_examples=60, deadline=None)
def test_hue_turns_as_in_colorsys(colours, by):
    pixels = torch.tensor(colours, dtype=torch.float32).T / 255
    ours = torch.stack(turn_hue(*pixels, torch.tensor(by)), dim=1)
    for colour, turned in zip(pixels.T.tolist(), ours.tolist(), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*colour)
        assert turned == pytest.approx(colorsys.hsv_to_rgb((hue + by) % 1, saturation, value), abs=1e-5)


# ---------------------------------------------------------------- crops


@pytest.mark.parametrize(("height", "width"), [(24, 24), (40, 50)])
def test_crops_are_cut_out_and_stretched(height, width):
    """Nothing from outside the box shows: the same as cutting first and resizing what is left, with torch or Pillow."""
    x = photos(6, height, width)
    u = neutral(6)
    random = uniforms(6)
    u[:, : 2 * ATTEMPTS], u[:, [TOP, LEFT]] = random[:, : 2 * ATTEMPTS], random[:, [TOP, LEFT]]
    boxes = torch.stack(random_crops(u, height, width), dim=1).int().tolist()
    assert len({tuple(box) for box in boxes}) == 6
    for image, changed, (top, left, tall, wide) in zip(x, augment(x, u), boxes, strict=True):
        cut = image[:, top : top + tall, left : left + wide]
        assert cut.shape[1:] == (tall, wide)
        expected = F.interpolate(cut[None].float() / 255, (height, width), mode="bilinear", align_corners=False)[0]
        torch.testing.assert_close(changed, expected, atol=0.05 * LEVEL, rtol=0)
        theirs = as_pillow(image).resize(
            (width, height), Image.Resampling.BILINEAR, (left, top, left + wide, top + tall)
        )
        # Pillow looks past the box's edge where there is a pixel; inside it must agree.
        torch.testing.assert_close(changed[:, 2:-2, 2:-2], as_tensor(theirs)[:, 2:-2, 2:-2], atol=1.1 * LEVEL, rtol=0)


def torchvision_crop(rng, height, width):
    """RandomResizedCrop.get_params of torchvision, in plain numbers."""
    for _ in range(10):
        area = height * width * rng.uniform(0.7, 1.0)
        ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        wide, tall = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            return rng.integers(0, height - tall + 1), rng.integers(0, width - wide + 1), tall, wide
    return 0, 0, height, width


def test_crops_follow_torchvisions_law():
    """Means and spreads of top, left, height, width and area over many draws, within four standard errors."""
    n, size = 20_000, 64
    ours = torch.stack(random_crops(uniforms(n), size, size), dim=1).double().numpy()
    rng = np.random.default_rng(0)
    theirs = np.array([torchvision_crop(rng, size, size) for _ in range(n)], dtype=float)
    for sample in (ours, theirs):
        assert sample.min() >= 0
        assert (sample[:, :2] + sample[:, 2:]).max() <= size
    for statistic in (
        lambda s: s,
        lambda s: (s - s.mean(axis=0)) ** 2,
        lambda s: s[:, 2:3] * s[:, 3:] / size**2,
        lambda s: np.log(s[:, 3:] / s[:, 2:3]) ** 2,
    ):
        a, b = statistic(ours), statistic(theirs)
        error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / n)
        assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) <= 4 * error).all()


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_crops_are_within_the_image_whatever_its_size(height, width, seed):
    u = uniforms(20, seed)
    u[0], u[1] = 0.0, 1 - 2**-24
    top, left, tall, wide = random_crops(u, height, width)
    for start, length, size in ((top, tall, height), (left, wide, width)):
        assert (start >= 0).all()
        assert (length >= 1).all()
        assert (start + length <= size).all()
        assert torch.equal(start, start.round())
        assert torch.equal(length, length.round())


@pytest.mark.parametrize(
    ("height", "width", "box"), [(30, 30, (0, 0, 30, 30)), (30, 60, (0, 10, 30, 40)), (60, 30, (10, 0, 40, 30))]
)
def test_the_largest_central_box_is_taken_if_no_attempt_fits(height, width, box):
    u = neutral(1)
    u[:, ATTEMPTS : 2 * ATTEMPTS] = 0.0 if width > height else 0.999  # nearly all of the area, too tall or too wide
    assert tuple(int(part) for part in random_crops(u, height, width)) == box


# ---------------------------------------------------------------- as a whole


@given(st.integers(0, 1000), st.sampled_from([(1, 1), (2, 3), (8, 8), (17, 5)]))
@settings(max_examples=40, deadline=None)
def test_stays_in_range_and_keeps_shape(seed, size):
    x = torch.randint(0, 256, (3, 3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    changed = augment(x, uniforms(3, seed))
    assert changed.shape == x.shape
    assert 0 <= float(changed.min()) <= float(changed.max()) <= 1


def test_images_do_not_mix_and_the_same_numbers_give_the_same_bytes():
    x, u = photos(5), uniforms(5)
    together = augment(x, u)
    assert torch.equal(together, augment(x.clone(), u.clone()))
    order = torch.tensor([3, 0, 4, 2, 1])
    torch.testing.assert_close(augment(x[order], u[order]), together[order], atol=1e-6, rtol=0)
    torch.testing.assert_close(augment(x[2:3], u[2:3]), together[2:3], atol=1e-6, rtol=0)


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_results_are_channels_last(memory_format):
    x = photos().contiguous(memory_format=memory_format)
    assert augment(x, uniforms(4)).is_contiguous(memory_format=torch.channels_last)


def test_compiles_to_one_graph():
    """Nothing falls back to Python or waits for a value, and a second batch is not compiled again."""
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(augment, backend=counting, fullgraph=True)
    x, u = photos(), uniforms(4)
    assert torch.equal(compiled(x, u), augment(x, u))
    compiled(photos(seed=5), uniforms(4, seed=5))
    assert len(graphs) == 1


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 3, 8, 8), r"float32 and shape \(2, 3, 8, 8\): expected torch.uint8"),
        (torch.zeros(2, 8, 8, 3, dtype=torch.uint8), "permute"),
    ],
)
def test_wrong_input_is_named(x, message):
    with pytest.raises(DataError, match=message):
        augment(x, torch.zeros(2, DRAWS))


# ---------------------------------------------------------------- tiles


def ways():
    """One number for each of the eight ways."""
    return (torch.arange(8.0) / 8 + 0.01)[:, None]


def test_tiles_go_through_the_eight_symmetries_of_a_square():
    tile = torch.arange(16.0).view(1, 4, 4)
    x, y = flip_rotate(tile.expand(8, 1, 4, 4), tile[0].long().expand(8, 4, 4), ways())
    square = {(mirror, quarters) for mirror in (False, True) for quarters in range(4)}
    expected = {
        tuple(torch.rot90(tile[0].flip(1) if mirror else tile[0], quarters).flatten().tolist())
        for mirror, quarters in square
    }
    assert {tuple(turned.flatten().tolist()) for turned in x} == expected
    assert len(expected) == 8
    assert torch.equal(x[:, 0].long(), y)
    assert torch.equal(x[0], tile)  # the first way is to leave it


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_labels_follow_their_pixels(seed):
    """Also where there is no measurement: NaN stays with its label, all channels move alike, tiles do not mix."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(-1, 2, (6, 5, 5), generator=generator, dtype=torch.int8)
    x = torch.where(y < 0, torch.nan, y.float())[:, None].repeat(1, 2, 1, 1) + torch.tensor([0.0, 10.0])[:, None, None]
    turned, labels = flip_rotate(x, y, torch.rand(6, DRAWS_TILES, generator=generator))
    assert labels.dtype == torch.int8
    for channel, shift in enumerate((0.0, 10.0)):
        expected = torch.where(labels < 0, torch.nan, labels.float()) + shift
        torch.testing.assert_close(turned[:, channel], expected, equal_nan=True, atol=0, rtol=0)
    assert torch.equal(labels.flatten(1).sort().values, y.flatten(1).sort().values)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [((2, 2, 4, 6), (2, 4, 6), "Cut square tiles"), ((2, 2, 4, 4), (2, 5, 5), r"labels of shape \(2, 5, 5\)")],
)
def test_wrong_tiles_are_named(x, y, message):
    with pytest.raises(DataError, match=message):
        flip_rotate(torch.zeros(x), torch.zeros(y), torch.zeros(2, 1))
