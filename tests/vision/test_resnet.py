"""ResNet: torchvision's tensors, frozen statistics folded into the convolutions, dilation, styles."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.vision.resnet import NORMS, STYLES, ResNet


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def shake(network, seed=1):
    """Set statistics, scales and shifts as after training: none is 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.3, generator=generator)
                module.running_var.uniform_(0.5, 2, generator=generator)
                module.weight.uniform_(0.3, 0.8, generator=generator)
                module.bias.normal_(0, 0.3, generator=generator)
    return network


# Shapes and names


@pytest.mark.parametrize(("depth", "count", "parameters"), [(18, 122, 11_689_512), (50, 320, 25_557_032)])
def test_tensors_are_those_of_torchvision(depth, count, parameters):
    """Number of tensors and of parameters, and names from all parts of torchvision's networks."""
    network = ResNet(1000, depth=depth)
    state = network.state_dict()
    assert len(state) == count
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    names = ["conv1.weight", "bn1.running_var", "bn1.num_batches_tracked", "layer2.0.downsample.0.weight", "fc.bias"]
    names += ["layer2.0.downsample.1.running_mean", "layer4.1.conv2.weight", "layer3.1.bn2.weight"]
    assert set(names) <= set(state)
    assert ("layer1.0.downsample.0.weight" in state) == (depth == 50)
    assert ("layer4.2.conv3.weight" in state) == (depth == 50)
    assert list(ResNet(1000, depth=depth, norm="batch").state_dict()) == list(state)


@pytest.mark.parametrize("depth", [18, 50])
@pytest.mark.parametrize("style", STYLES)
def test_dilated_maps_contain_the_strided_ones(depth, style):
    """With dilation instead of stride there are positions in between, and no value changes."""
    strided = shake(ResNet(2, depth=depth, style=STYLES[style]))
    dilated = ResNet(2, depth=depth, style=STYLES[style], dilated=True)
    dilated.load_state_dict(strided.state_dict())
    x = draw(1, 3, 64, 96)
    few, many = strided.encode(x)[0], dilated.encode(x)[0]
    assert few.shape == (1, strided.width, 2, 3)
    assert many.shape == (1, strided.width, 8, 12)
    torch.testing.assert_close(many[..., ::4, ::4], few, rtol=1e-3, atol=1e-3 * few.max().item())
    assert not torch.allclose(many[..., 1::4, 1::4], few, rtol=1e-2)
    logits, features = strided.with_features(x)
    torch.testing.assert_close((features, logits), (few.mean((2, 3)), strided.fc(few.mean((2, 3)))), rtol=0, atol=0)
    assert torch.equal(strided.features(x), features)


def test_the_style_determines_the_strided_convolution_of_a_bottleneck():
    for style, strides in (("torchvision", (1, 2)), ("caffe", (2, 1))):
        network = ResNet(2, style=STYLES[style])
        for layer in (network.layer2, network.layer3, network.layer4):
            assert (layer[0].conv1.stride[0], layer[0].conv2.stride[0]) == strides
            assert layer[0].bn1.eps == layer[0].downsample[1].eps == STYLES[style].eps


# Frozen statistics


@pytest.mark.parametrize("depth", [18, 50])
def test_a_frozen_network_is_the_batch_network_in_evaluation(depth):
    """Folding the statistics into the convolutions changes neither values nor gradients."""
    frozen, batch = shake(ResNet(3, depth=depth)).train(), ResNet(3, depth=depth, norm="batch").eval()
    batch.load_state_dict(frozen.state_dict())
    x = draw(2, 3, 32, 32)
    torch.testing.assert_close(frozen(x), batch(x), rtol=1e-4, atol=1e-4)
    frozen(x).square().sum().backward()
    batch(x).square().sum().backward()
    for (name, one), (_, other) in zip(frozen.named_parameters(), batch.named_parameters(), strict=True):
        assert (one.grad - other.grad).norm() <= 1e-3 * other.grad.norm(), name
    assert not torch.allclose(batch.train()(x), frozen(x), rtol=1e-2)


def test_training_moves_scales_and_shifts_but_no_statistics():
    network = ResNet(3, depth=18).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    optimizer = torch.optim.SGD(network.parameters(), 1e-3)
    network(draw(4, 3, 32, 32)).square().mean().backward()
    optimizer.step()
    same = {name for name, tensor in network.state_dict().items() if torch.equal(tensor, before[name])}
    assert same == {name for name in before if "running" in name or "num_batches" in name}


def test_a_sample_does_not_depend_on_its_batch_unless_the_norm_says_so():
    x = draw(3, 3, 64, 64)
    for norm in NORMS:
        network = ResNet(3, depth=18, norm=norm).train()
        together, alone = network(x)[:2], network(x[:2])
        assert torch.allclose(together, alone, rtol=1e-3, atol=1e-4) == (norm != "batch")


# Styles and inputs


@pytest.mark.parametrize("name", STYLES)
def test_a_style_brings_colours_into_its_order_and_scale(name):
    """Compare with an input prepared by hand in a network whose style does nothing."""
    style = STYLES[name]
    plain = replace(style, order="rgb", scale=1.0, mean=(0.0, 0.0, 0.0), sd=(1.0, 1.0, 1.0))
    ours, by_hand = ResNet(2, depth=18, style=style), ResNet(2, depth=18, style=plain)
    x = draw(2, 3, 32, 32)
    prepared = x[:, [2, 1, 0]] if style.order == "bgr" else x
    prepared = torch.stack(
        [
            (style.scale * prepared[:, i] - mean) / sd
            for i, (mean, sd) in enumerate(zip(style.mean, style.sd, strict=True))
        ],
        dim=1,
    )
    torch.testing.assert_close(ours.encode(x)[0], by_hand.encode(prepared)[0], rtol=1e-4, atol=1e-3)


def test_mixed_precision_computes_in_half_and_folds_in_single():
    network, x = shake(ResNet(2, depth=18)), draw(2, 3, 32, 32)
    exact = network.features(x)
    with torch.autocast("cpu", torch.bfloat16):
        maps, features = network.encode(x)[0], network.features(x)
        kernel, bias = network.bn1.fold(network.conv1.weight)
    assert maps.dtype == torch.bfloat16
    assert kernel.dtype == bias.dtype == torch.float32
    assert (features - exact).norm() < 0.05 * exact.norm()
    features.sum().backward()
    assert all(
        parameter.grad.dtype == torch.float32 for name, parameter in network.named_parameters() if "fc" not in name
    )


@pytest.mark.parametrize("style", STYLES)
def test_keeps_channels_last(style):
    """A layout lost on the way would be converted in every layer of every step."""
    network, x = ResNet(2, depth=18, style=STYLES[style]), draw(2, 3, 64, 64)
    plain = network.encode(x)[0]
    network, x = network.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    maps = network.encode(x)[0]
    assert maps.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(maps, plain, rtol=1e-3, atol=1e-3 * plain.max().item())


# Initial weights


def test_initial_weights_follow_torchvision():
    network = ResNet(10, depth=18)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            sd = (2 / (module.out_channels * module.kernel_size[0] ** 2)) ** 0.5
            assert module.weight.std().item() == pytest.approx(sd, rel=0.05)
            assert abs(module.weight.mean().item()) < 0.05 * sd
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()
            assert (module.running_var == 1).all()
    assert 0.9 * 512**-0.5 < network.fc.weight.abs().max() <= 512**-0.5


# Errors


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"depth": 34}, SettingError, r"depth = 34.*18 and 50"),
        ({"norm": "layer"}, UnknownNameError, r"unknown norm 'layer'.*batch, frozen, group"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_errors(settings, error, message):
    with pytest.raises(error, match=message):
        ResNet(**{"outputs": 2} | settings)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 4, 32, 32), r"\(samples, 3, height, width\).*found \(2, 4, 32, 32\)"),
        (torch.zeros(3, 32, 32), r"found \(3, 32, 32\)"),
        (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), r"torch\.uint8.*255"),
    ],
    ids=["channels", "dimensions", "bytes"],
)
def test_wrong_inputs_are_errors(x, message):
    with pytest.raises(DataError, match=message):
        ResNet(2, depth=18)(x)
