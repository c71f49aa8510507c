"""Segmentation networks: one interface, weights from the seed alone, compilation and mixed precision."""

import pytest
import torch

from toporo.errors import DataError
from toporo.vision.label_maps import pixel_loss
from toporo.vision.segmentation import FCN, UNet

MAKE = {
    "unet": lambda **settings: UNet(**({"base": 4, "levels": 2} | settings)),
    "fcn": lambda **settings: FCN(depth=18, **settings),
}
every_network = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


def inputs(n=2, channels=2, height=32, width=32, seed=0):
    return torch.randn(n, channels, height, width, generator=torch.Generator().manual_seed(seed))


@every_network
def test_logits_for_every_pixel_and_features_for_every_sample(make):
    model, x = make(outputs=3).eval(), inputs(height=32, width=48)
    logits, features = model.with_features(x)
    assert logits.shape == (2, 3, 32, 48)
    assert features.shape == (2, model.width)
    assert torch.equal(model(x), logits)
    assert torch.equal(model.features(x), features)
    torch.testing.assert_close(model(x[:1]), logits[:1], rtol=1e-4, atol=1e-5)  # tiles do not depend on each other


@every_network
def test_initial_weights_depend_on_the_seed_alone(make):
    torch.manual_seed(1)
    before, first = torch.get_rng_state(), make(seed=4).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = make(seed=4).state_dict(), make(seed=5).state_dict()
    for name, tensor in first.items():
        assert torch.equal(again[name], tensor)
        assert tensor.ndim < 4 or not torch.equal(other[name], tensor)


def test_an_fcn_keeps_an_eighth_of_the_resolution_and_takes_any_size():
    model = FCN(depth=18).eval()
    assert model.body.encode(inputs())[0].shape == (2, model.width, 4, 4)
    assert model(inputs(height=37, width=21)).shape == (2, 2, 37, 21)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_layers_of_an_fcn_are_drawn_independently(seed):
    """Drawn from the same seed, the head would start with the numbers of the ResNet's first layer."""
    model = FCN(depth=18, seed=seed)
    first, top = (layer.weight.flatten()[:3000] for layer in (model.body.conv1, model.reduce))
    assert abs(torch.corrcoef(torch.stack([first, top]))[0, 1]) < 0.1


def test_initial_weights_have_the_scale_of_their_fan_in():
    model = UNet(base=32, levels=1)
    for layer, fan_in in ((model.down[1][0], 32 * 9), (model.join[0][0], 64 * 9), (model.up[0], 64)):
        assert layer.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.05)
        assert layer.bias is None or not layer.bias.any()
    assert 0.8 * 32**-0.5 < model.head.weight.abs().max() <= 32**-0.5


@every_network
def test_every_parameter_learns(make):
    model = make()
    pixel_loss(model(inputs()), torch.ones(2, 32, 32).long()).sum().backward()
    idle = [name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    assert not idle


@every_network
def test_mixed_precision_comes_close_and_trains(make):
    model, x = make().eval().to(memory_format=torch.channels_last), inputs()
    exact = model(x).detach()
    with torch.autocast("cpu", torch.bfloat16):
        logits, features = model.with_features(x.to(memory_format=torch.channels_last))
    assert features.dtype == torch.bfloat16
    assert (logits - exact).abs().mean() < 0.05 * exact.std()
    (pixel_loss(logits, torch.ones(2, 32, 32).long()).sum() + features.float().mean()).backward()
    assert all(torch.isfinite(value.grad).all() for value in model.parameters())


@every_network
def test_compiles_whole_and_once_for_all_networks_of_an_architecture(make):
    """Compiling the network of every run anew would cost minutes."""
    compiled = []

    def count(graph, _):
        compiled.append(graph)
        return graph

    torch._dynamo.reset()
    run = torch.compile(lambda model, x: model.with_features(x), backend=count, fullgraph=True, dynamic=False)
    x = inputs()
    for seed in (0, 1):
        torch.manual_seed(0)
        found = run(make(seed=seed), x)
        torch.manual_seed(0)
        torch.testing.assert_close(found, make(seed=seed).with_features(x))
    assert len(compiled) == 1


@every_network
@pytest.mark.parametrize("shape", [(2, 3, 32, 32), (2, 32, 32), (2, 1, 32, 32)])
def test_another_number_of_channels_is_refused(make, shape):
    with pytest.raises(DataError, match=r"made for\s+2 channels; found \(2, "):
        make()(torch.zeros(shape))


@pytest.mark.parametrize("size", [(30, 32), (32, 36), (0, 32), (4, 4)])
def test_a_size_that_does_not_halve_often_enough_is_refused(size):
    with pytest.raises(DataError, match=rf"multiples of 8.*found\s+{size[0]} and {size[1]}"):
        UNet(base=2, levels=3)(torch.zeros(1, 2, *size))
