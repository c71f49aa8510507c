"""Augmentation: torchvision's distributions, Pillow's arithmetic, no hidden random numbers."""

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
    HUE,
    LEFT,
    SATURATION,
    TO_GREY,
    TOP,
    augment,
    flip_rotate,
    luminance,
    random_crops,
    turn_hue,
    unit_range,
)
from toporo.vision.augmentation import _jitter as jitter

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


def with_factor(n, place, factor):
    """Only one of brightness, contrast and saturation, by this factor."""
    u = neutral(n)
    u[:, place] = (factor - 1) / 0.6 + 0.5
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


@pytest.mark.parametrize("place", range(DRAWS))
def test_every_number_decides_something(place):
    """No draw is dead. Later attempts at a crop count where the earlier ones do not fit (here: too wide)."""
    x = photos(1, 64, 64)
    attempt = place % ATTEMPTS if place < 2 * ATTEMPTS else 0
    u = uniforms(1, seed=1)
    u[:, :attempt], u[:, ATTEMPTS : ATTEMPTS + attempt] = 1 - 1e-6, 0.99
    u[:, attempt], u[:, ATTEMPTS + attempt] = 0.01, 0.5
    u[:, FLIP:] = 0.6
    other = u.clone()
    other[:, place] = 0.05 if place in (FLIP, TO_GREY) else (u[:, place] + 0.2) % 1
    assert not torch.allclose(augment(x, u), augment(x, other), atol=LEVEL)


@pytest.mark.parametrize("place", [BRIGHTNESS, CONTRAST, SATURATION])
@pytest.mark.parametrize("factor", [0.7, 0.85, 1.2, 1.3])
def test_brightness_contrast_and_saturation_are_pillows(place, factor):
    enhance = {BRIGHTNESS: ImageEnhance.Brightness, CONTRAST: ImageEnhance.Contrast, SATURATION: ImageEnhance.Color}[
        place
    ]
    x = photos()
    ours = augment(x, with_factor(4, place, factor))
    for image, changed in zip(x, ours, strict=True):
        theirs = as_tensor(enhance(as_pillow(image)).enhance(factor))
        torch.testing.assert_close(changed, theirs, atol=1.6 * LEVEL, rtol=0)  # Pillow rounds twice, we never


@pytest.mark.parametrize("factors", [(1.3, 0.7, 1.3), (1.3, 1.3, 0.7), (0.7, 1.3, 1.3)])
def test_jitter_in_a_row_is_pillows_in_the_documented_order(factors):
    """Pictures that leave the range on the way, up and down: each change has to come back to it before the next."""
    x = photos(seed=3)
    x[:, :, :6] = 255
    x[:, 0, 6:12], x[:, 1:, 6:12] = 250, 5
    u = neutral(4)
    for place, factor in zip((BRIGHTNESS, CONTRAST, SATURATION), factors, strict=True):
        u[:, place] = with_factor(1, place, factor)[0, place]
    for image, changed in zip(x, augment(x, u), strict=True):
        theirs = as_pillow(image)
        enhances = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
        for enhance, factor in zip(enhances, factors, strict=True):
            theirs = enhance(theirs).enhance(factor)
        torch.testing.assert_close(changed, as_tensor(theirs), atol=4 * LEVEL, rtol=0)


@given(st.lists(st.tuples(*[st.integers(0, 255)] * 3), min_size=1, max_size=20), st.floats(-0.3, 0.3))
@settings(max_examples=60, deadline=None)
def test_hue_turns_as_in_colorsys(colours, by):
    pixels = torch.tensor(colours, dtype=torch.float32).T / 255
    ours = torch.stack(turn_hue(*pixels, torch.tensor(by)), dim=1)
    for colour, turned in zip(pixels.T.tolist(), ours.tolist(), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*colour)
        assert turned == pytest.approx(colorsys.hsv_to_rgb((hue + by) % 1, saturation, value), abs=1e-5)


def test_hue_of_an_image_turns_by_its_own_number():
    x = photos(3)
    u = neutral(3)
    u[:, HUE] = torch.tensor([0.0, 0.5, 0.75])
    turns = [-0.3, 0.0, 0.15]
    for image, changed, by in zip(x.float() / 255, augment(x, u), turns, strict=True):
        expected = torch.stack(turn_hue(*image, torch.tensor(by)))
        torch.testing.assert_close(changed, expected, atol=1e-4, rtol=0)


def test_grey_is_pillows_and_only_where_drawn():
    x = photos(3)
    u = neutral(3)
    u[1, TO_GREY] = 0.0999
    u[2, TO_GREY] = 0.1001
    ours = augment(x, u)
    theirs = as_tensor(as_pillow(x[1]).convert("L").convert("RGB"))
    torch.testing.assert_close(ours[1], theirs, atol=1 * LEVEL, rtol=0)
    torch.testing.assert_close(ours[[0, 2]], x[[0, 2]].float() / 255, atol=0.01 * LEVEL, rtol=0)


def test_flip_mirrors_left_and_right_and_only_where_drawn():
    x = photos(2)
    u = neutral(2)
    u[:, FLIP] = torch.tensor([0.49, 0.51])
    ours = augment(x, u)
    torch.testing.assert_close(ours[0], x[0].flip(-1).float() / 255, atol=0.01 * LEVEL, rtol=0)
    torch.testing.assert_close(ours[1], x[1].float() / 255, atol=0.01 * LEVEL, rtol=0)


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
    ("height", "width", "box"),
    [(30, 30, (0, 0, 30, 30)), (30, 60, (0, 10, 30, 40)), (60, 30, (10, 0, 40, 30)), (30, 33, (0, 0, 30, 33))],
)
def test_where_no_attempt_fits_the_middle_is_taken(height, width, box):
    u = neutral(1)
    u[:, ATTEMPTS : 2 * ATTEMPTS] = 0.0 if width > height else 0.999  # nearly all of the area, and too tall or too wide
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


def test_draws_nothing_itself():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    augment(photos(), uniforms(4))
    flip_rotate(torch.zeros(2, 2, 4, 4), torch.zeros(2, 4, 4), uniforms(2, draws=DRAWS_TILES))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_result_is_channels_last(memory_format):
    x, u = photos().contiguous(memory_format=memory_format), uniforms(4)
    changed = augment(x, u)
    assert changed.is_contiguous(memory_format=torch.channels_last)
    assert changed.dtype == torch.float32
    assert torch.equal(changed, augment(photos(), u))


def test_brightness_contrast_and_saturation_commute_inside_the_range():
    """What the module says of its fixed order."""
    pixels = tuple(photos(2).float().div(255).mul(0.3).add(0.35).unbind(1))  # far from black and white
    factors = [torch.full((2, 1, 1), value) for value in (1.2, 0.8, 1.3)]
    one = torch.ones(2, 1, 1)
    at_once = jitter(pixels, *factors)
    reverse = pixels
    for place in (2, 1, 0):
        reverse = jitter(reverse, *(factors[place] if place == k else one for k in range(3)))
    torch.testing.assert_close(torch.stack(reverse), torch.stack(at_once), atol=1e-5, rtol=0)


def test_how_often_things_happen():
    """Half of the images are mirrored and a tenth are grey, within four standard errors."""
    n = 4000
    ramp = torch.arange(0, 250, 25, dtype=torch.uint8).expand(n, 1, 10, 10)
    x = torch.cat([ramp, ramp // 2, ramp // 4], dim=1)
    changed = augment(x, uniforms(n))
    mirrored = (changed[:, 0, 5, 0] > changed[:, 0, 5, -1]).double().mean()
    grey = (changed.amax(dim=1) - changed.amin(dim=1)).amax(dim=(1, 2)).lt(1e-6).double().mean()
    assert abs(mirrored - 0.5) < 4 * np.sqrt(0.25 / n)
    assert abs(grey - 0.1) < 4 * np.sqrt(0.09 / n)


def test_luminance_is_pillows():
    x = photos(1)
    theirs = torch.as_tensor(np.array(as_pillow(x[0]).convert("L"))).float()
    torch.testing.assert_close(luminance(*x[0].float()), theirs, atol=0.6, rtol=0)


class Watched(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes every operation that torch runs."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_never_waits_for_the_device():
    """What a CUDA graph cannot record, or what makes the host wait: reading a value, shapes that depend on data."""
    images, tiles, labels = photos(), torch.zeros(4, 2, 4, 4), torch.zeros(4, 4, 4, dtype=torch.int8)
    u, way = uniforms(4), uniforms(4, draws=DRAWS_TILES)
    with Watched() as watched:
        augment(images, u)
        flip_rotate(tiles, labels, way)
    assert watched.names
    waits = {"_local_scalar_dense", "nonzero", "index", "masked_select", "equal", "is_nonzero", "unique", "lift_fresh"}
    assert not watched.names & waits


def test_compiles_to_one_graph():
    """Under torch.compile nothing falls back to Python, and a second batch does not compile again."""
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
    ("x", "u", "message"),
    [
        (torch.zeros(2, 3, 8, 8), torch.zeros(2, DRAWS), r"float32 and shape \(2, 3, 8, 8\): expected torch.uint8"),
        (torch.zeros(2, 8, 8, 3, dtype=torch.uint8), torch.zeros(2, DRAWS), "permute"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), torch.zeros(3, DRAWS), r"shape \(3, 8, 8\)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, 5), rf"shape \(2, 5\): .* \(2, {DRAWS}\)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(1, DRAWS), rf"shape \(1, {DRAWS}\)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, DRAWS, dtype=torch.long), "int64.*floats"),
    ],
)
def test_wrong_input_is_named(x, u, message):
    with pytest.raises(DataError, match=message):
        augment(x, u)


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


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_tiles_keep_their_memory_format(memory_format):
    x = torch.rand(8, 2, 6, 6).contiguous(memory_format=memory_format)
    turned, labels = flip_rotate(x, torch.zeros(8, 6, 6), ways())
    assert turned.stride() == x.stride()
    assert labels.is_contiguous()


def test_ways_are_equally_likely():
    n = 8000
    tile = torch.arange(4.0).view(1, 1, 2, 2).expand(n, 1, 2, 2)
    turned, _ = flip_rotate(tile, tile[:, 0], uniforms(n, draws=DRAWS_TILES))
    _, counts = turned.flatten(1).unique(dim=0, return_counts=True)
    assert len(counts) == 8
    assert ((counts - n / 8).abs() < 4 * np.sqrt(n * 7 / 64)).all()


@pytest.mark.parametrize(
    ("x", "y", "u", "message"),
    [
        ((2, 2, 4, 6), (2, 4, 6), (2, 1), "Cut square tiles"),
        ((2, 2, 4, 4), (2, 5, 5), (2, 1), r"labels of shape \(2, 5, 5\)"),
        ((2, 2, 4, 4), (2,), (2, 1), r"labels of shape \(2,\)"),
        ((2, 2, 4, 4), (2, 4, 4), (2, 3), r"expected floats and \(2, 1\)"),
    ],
)
def test_wrong_tiles_are_named(x, y, u, message):
    with pytest.raises(DataError, match=message):
        flip_rotate(torch.zeros(x), torch.zeros(y), torch.zeros(u))
