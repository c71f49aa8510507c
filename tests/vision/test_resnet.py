"""ResNet: torchvision's tensors, frozen statistics folded into the convolutions, dilation, styles, compilation."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.vision.resnet import NORMS, STYLES, FrozenNorm, ResNet, convolve


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def shake(network, seed=1):
    """Statistics, scales and shifts as after training: none of them 0 or 1."""
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


@pytest.mark.parametrize(("depth", "width"), [(18, 512), (50, 2048)])
@pytest.mark.parametrize(("dilated", "stride"), [(False, 32), (True, 8)])
def test_maps_and_features_have_the_promised_shapes(depth, width, dilated, stride):
    network, x = ResNet(7, depth=depth, dilated=dilated), draw(2, 3, 64, 96)
    assert network.width == width
    maps = network.encode(x)[0]
    assert maps.shape == (2, width, 64 // stride, 96 // stride)
    assert (maps >= 0).all()
    assert network.features(x).shape == (2, width)


def test_the_head_on_the_pooled_maps_is_the_model():
    network, x = ResNet(7, depth=18), draw(2, 3, 40, 40)
    logits, features = network.with_features(x)
    assert torch.equal(features, network.encode(x)[0].mean((2, 3)))
    assert torch.equal(features, network.features(x))
    assert torch.equal(logits, network.head(features))
    assert torch.equal(logits, network(x))
    assert network.head is network.fc


@pytest.mark.parametrize(("depth", "count", "parameters"), [(18, 122, 11_689_512), (50, 320, 25_557_032)])
def test_tensors_are_those_of_torchvision(depth, count, parameters):
    """The number of tensors and of parameters that torchvision's networks have, and names from its every corner."""
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


def test_what_the_style_adds_to_an_input_is_not_part_of_the_weights():
    assert not {"scale", "shift"} & set(ResNet(2, depth=18).state_dict())


# Frozen statistics


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    size=st.sampled_from([1, 3]),
    stride=st.sampled_from([1, 2]),
    dilation=st.sampled_from([1, 2]),
    eps=st.sampled_from([1e-5, 1e-3]),
)
def test_folding_is_a_convolution_and_then_normalisation_with_the_same_gradients(seed, size, stride, dilation, eps):
    generator = torch.Generator().manual_seed(seed)
    conv = nn.Conv2d(3, 5, size, stride, dilation * (size // 2), dilation, bias=False, dtype=torch.float64)
    frozen, plain = FrozenNorm(5, eps, dtype=torch.float64), nn.BatchNorm2d(5, eps, dtype=torch.float64)
    with torch.no_grad():
        conv.weight.normal_(generator=generator)
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(frozen, name).uniform_(0.01, 3, generator=generator)
    plain.load_state_dict(frozen.state_dict())
    x = torch.randn(2, 3, 9, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    ours = convolve(conv, frozen, x)
    theirs = plain.eval()(conv(x))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(frozen.train()(conv(x)), theirs)
    cotangent = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad(ours, [x, conv.weight, frozen.weight, frozen.bias], cotangent),
        torch.autograd.grad(theirs, [x, conv.weight, plain.weight, plain.bias], cotangent),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("depth", [18, 50])
def test_a_frozen_network_is_the_batch_network_in_evaluation(depth):
    frozen, batch = shake(ResNet(3, depth=depth)).train(), ResNet(3, depth=depth, norm="batch").eval()
    batch.load_state_dict(frozen.state_dict())
    x = draw(2, 3, 32, 32)
    torch.testing.assert_close(frozen(x), batch(x), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(batch.train()(x), frozen(x), rtol=1e-2)


def test_training_moves_scales_and_shifts_but_no_statistics():
    network = ResNet(3, depth=18).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    optimizer = torch.optim.SGD(network.parameters(), 1e-3)
    network(draw(4, 3, 32, 32)).square().mean().backward()
    optimizer.step()
    same = {name for name, tensor in network.state_dict().items() if torch.equal(tensor, before[name])}
    assert same == {name for name in before if "running" in name or "num_batches" in name}


def test_a_frozen_network_runs_no_normalisation_kernels():
    """Folding is there for speed: a batch-norm kernel in the trace would mean that it is not done."""
    with torch.profiler.profile() as frozen:
        ResNet(3, depth=18)(draw(1, 3, 32, 32)).sum().backward()
    with torch.profiler.profile() as batch:
        ResNet(3, depth=18, norm="batch")(draw(2, 3, 64, 64)).sum().backward()
    assert any("batch_norm" in event.name for event in batch.events())
    assert not any("batch_norm" in event.name for event in frozen.events())


def test_a_sample_does_not_depend_on_its_batch_unless_the_norm_says_so():
    x = draw(3, 3, 64, 64)
    for norm in NORMS:
        network = ResNet(3, depth=18, norm=norm).train()
        together, alone = network(x)[:2], network(x[:2])
        assert torch.allclose(together, alone, rtol=1e-3, atol=1e-4) == (norm != "batch")


def test_group_norm_takes_sixteen_channels_together():
    network = ResNet(3, depth=18, norm="group")
    assert (network.bn1.num_groups, network.bn1.num_channels) == (4, 64)
    assert (network.layer4[0].bn2.num_groups, network.layer4[0].bn2.num_channels) == (32, 512)
    assert not any("running" in name for name in network.state_dict())


# Dilation


@pytest.mark.parametrize("depth", [18, 50])
@pytest.mark.parametrize("style", STYLES)
def test_every_fourth_value_of_dilated_maps_is_the_strided_network(depth, style):
    """Trading stride for dilation adds positions between; it changes no value where there was one."""
    strided = shake(ResNet(2, depth=depth, style=STYLES[style]))
    dilated = ResNet(2, depth=depth, style=STYLES[style], dilated=True)
    dilated.load_state_dict(strided.state_dict())
    x = draw(1, 3, 64, 96)
    few, many = strided.encode(x)[0], dilated.encode(x)[0]
    torch.testing.assert_close(many[..., ::4, ::4], few, rtol=1e-3, atol=1e-3 * few.max().item())
    assert not torch.allclose(many[..., 1::4, 1::4], few, rtol=1e-2)


# Styles and inputs


@pytest.mark.parametrize("name", STYLES)
def test_a_style_brings_colours_into_its_order_and_scale(name):
    """The same as preparing the input by hand and giving it to a network whose style does nothing."""
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


def test_the_published_styles():
    """What torchvision's documentation and the notes of the Caffe weights say; a wrong digit costs accuracy only."""
    torchvision, caffe = STYLES["torchvision"], STYLES["caffe"]
    assert (torchvision.strided, torchvision.eps, torchvision.order) == ("conv2", 1e-5, "rgb")
    assert (torchvision.scale, torchvision.mean, torchvision.sd) == (1, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (caffe.strided, caffe.eps, caffe.order, caffe.scale) == ("conv1", 1e-3, "bgr", 255)
    assert (caffe.mean, caffe.sd) == ((103.939, 116.779, 123.68), (1, 1, 1))


@pytest.mark.parametrize(("style", "strides"), [("torchvision", (1, 2)), ("caffe", (2, 1))])
def test_the_style_says_which_convolution_of_a_bottleneck_is_strided(style, strides):
    network = ResNet(2, style=STYLES[style])
    for layer in (network.layer2, network.layer3, network.layer4):
        assert (layer[0].conv1.stride[0], layer[0].conv2.stride[0]) == strides
        assert layer[1].conv1.stride == layer[1].conv2.stride == (1, 1)
        assert layer[0].bn1.eps == layer[0].downsample[1].eps == STYLES[style].eps
    assert network.layer1[0].conv1.stride == network.layer1[0].conv2.stride == (1, 1)


def test_inputs_of_other_channel_counts_are_taken_as_they_are():
    networks = [
        ResNet(2, depth=18, channels=2, style=replace(STYLES["caffe"], eps=1e-5)),
        ResNet(2, depth=18, channels=2),
    ]
    x = draw(2, 2, 32, 32) - 0.5
    assert torch.equal(networks[0](x), networks[1](x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_takes_inputs_of_any_floating_type(dtype):
    network, x = ResNet(2, depth=18), draw(1, 3, 32, 32).to(dtype)
    assert torch.equal(network(x), network(x.float()))


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


def test_a_network_in_half_precision_still_folds_in_single():
    """A product of rounded factors, rounded again, would lose what the published weights were trained to."""
    network = shake(ResNet(2, depth=18)).bfloat16()
    kernel, bias = network.bn1.fold(network.conv1.weight)
    assert kernel.dtype == bias.dtype == torch.float32
    assert network(draw(1, 3, 32, 32)).dtype == torch.bfloat16


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


def test_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = ResNet(3, depth=18, seed=4).state_dict()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again, other = ResNet(3, depth=18, seed=4).state_dict(), ResNet(3, depth=18, seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(again[name], first[name]) for name in first)
    assert not any(torch.equal(other[name], first[name]) for name in first if "conv" in name or "fc" in name)


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


# Compilation


def test_a_second_network_of_the_same_kind_is_not_compiled_again():
    """A study trains dozens of networks of one architecture; compiling each would cost more than training it."""
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(lambda model, x: model.features(x), backend=counting, fullgraph=True)
    for seed in range(3):
        network, x = ResNet(2, depth=18, seed=seed), draw(2, 3, 32, 32, seed=seed)
        torch.testing.assert_close(compiled(network, x), network.features(x))
    assert len(graphs) == 1
    torch._dynamo.reset()


# What is refused


def test_depths_and_norms_that_do_not_exist_are_refused():
    with pytest.raises(SettingError, match=r"depth = 34.*18 and 50"):
        ResNet(2, depth=34)
    with pytest.raises(UnknownNameError, match=r"unknown norm 'layer'.*batch, frozen, group"):
        ResNet(2, norm="layer")
    with pytest.raises(SettingError, match="found 0 and 3"):
        ResNet(0)
    with pytest.raises(SettingError, match="found 2 and 0"):
        ResNet(2, channels=0)


@pytest.mark.parametrize("shape", [(2, 4, 32, 32), (3, 32, 32), (2, 32, 32, 3)])
def test_an_input_of_the_wrong_shape_names_both(shape):
    with pytest.raises(DataError) as error:
        ResNet(2, depth=18)(torch.zeros(shape))
    assert "(samples, 3, height, width)" in str(error.value)
    assert str(shape) in str(error.value)


def test_bytes_are_refused():
    """They would be taken for colours 255 times too bright, without a word."""
    with pytest.raises(DataError, match=r"torch\.uint8.*255"):
        ResNet(2, depth=18)(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
