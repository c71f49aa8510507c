"""The MLP shows its features and takes its weights from its seed alone."""

import pytest
import torch

from toporo.errors import SettingError
from toporo.training import MLP


def parameters(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_the_head_on_the_features_is_the_model(hidden):
    model, x = MLP(3, 2, hidden), torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    features = model.features(x)
    assert features.shape == (7, hidden[-1] if hidden else 3)
    assert model(x).shape == (7, 2)
    assert torch.equal(model.head(features), model(x))
    assert not hidden or (features >= 0).all()


def test_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = parameters(MLP(3, 2, seed=4))
    torch.manual_seed(2)
    assert torch.equal(parameters(MLP(3, 2, seed=4)), first)
    assert not torch.equal(parameters(MLP(3, 2, seed=5)), first)


def test_building_a_model_leaves_the_global_random_state_alone():
    """Otherwise one more model in a script changes every draw after it."""
    before = torch.get_rng_state()
    MLP(3, 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_initial_weights_fill_the_range_of_torch_defaults():
    model = MLP(100, 50, (200,))
    for layer in (model.body[0], model.head):
        bound = layer.in_features**-0.5
        for values in (layer.weight, layer.bias):
            assert 0.9 * bound < values.abs().max() <= bound
            assert abs(values.mean()) < 0.2 * bound


def test_takes_integer_inputs():
    """Grouped data hands integer columns on as int64; a table of counts is no reason for an error from the depths."""
    model = MLP(3, 2)
    assert torch.equal(model(torch.ones(2, 3, dtype=torch.int64)), model(torch.ones(2, 3)))


@pytest.mark.parametrize("sizes", [(0, 2, ()), (3, 0, (4,)), (3, 2, (4, 0)), (3, 2, (-1,))])
def test_a_layer_without_units_is_refused(sizes):
    with pytest.raises(SettingError, match="every layer needs at least one unit"):
        MLP(*sizes)
