"""The MLP exposes its features and takes its initial weights from its seed alone."""

import pytest
import torch

from toporo.training import MLP


def parameters(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_the_head_on_the_features_is_the_model(hidden):
    model, x = MLP(3, 2, hidden), torch.arange(21).reshape(7, 3)  # integers, as in a table of counts
    features = model.features(x)
    assert features.shape == (7, hidden[-1] if hidden else 3)
    assert model(x).shape == (7, 2)
    assert torch.equal(model.head(features), model(x))
    assert not hidden or (features >= 0).all()


def test_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first, before = parameters(MLP(3, 2, seed=4)), torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(parameters(MLP(3, 2, seed=4)), first)
    assert not torch.equal(parameters(MLP(3, 2, seed=5)), first)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("std", [None, 0.02])
def test_initial_weights_are_torchs_or_normal(std):
    model = MLP(100, 50, (200,), std=std)
    for layer in (model.body[0], model.head):
        expected = std if std else (3 * layer.in_features) ** -0.5  # of a uniform distribution up to 1 / sqrt(inputs)
        assert layer.weight.std().item() == pytest.approx(expected, rel=0.05)
        assert layer.bias.any() == (std is None)
