"""A LightningModule trains with an objective as a plain loop does, and goes on from a checkpoint exactly."""

import logging

import pytest
import torch

from tests.integrations.networks import OBJECTIVES, outcome, plain
from toporo.errors import GroupMismatchError, SettingError
from toporo.objectives import TRO

pytest.importorskip("lightning", reason="needs the extra 'lightning'")
from tests.integrations.lightning_network import Module, fit
from toporo.integrations.lightning import ObjectiveCallback

pytestmark = pytest.mark.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_trains_as_a_plain_loop_does(name, tmp_path):
    """The same network and state to the last bit, a fresh start of the optimiser after a warm-up included."""
    objective = OBJECTIVES[name]()
    module, _ = fit(objective, tmp_path, 3)
    expected = plain(OBJECTIVES[name](), 3, betas=objective.betas)
    torch.testing.assert_close(outcome(module.body, objective), expected, rtol=0, atol=0)


def test_validation_leaves_the_state_alone(tmp_path):
    objective = OBJECTIVES["tro"]()
    module, _ = fit(objective, tmp_path, 3, validate=True)
    torch.testing.assert_close(outcome(module.body, objective), plain(OBJECTIVES["tro"](), 3), rtol=0, atol=0)


def test_batches_can_be_accumulated(tmp_path):
    objective = OBJECTIVES["tro"]()
    module, _ = fit(objective, tmp_path, 2, sgd=True, accumulate_grad_batches=2)
    expected = plain(OBJECTIVES["tro"](), 2, accumulate=2, sgd=True)
    torch.testing.assert_close(outcome(module.body, objective), expected)


@pytest.mark.parametrize("name", ["tro", "vrex", "dann"])
def test_goes_on_from_a_checkpoint_exactly(name, tmp_path):
    """... the number of batches until the warm-up is over included."""
    _, trainer = fit(OBJECTIVES[name](), tmp_path, 1)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    objective = OBJECTIVES[name]()
    module, _ = fit(objective, tmp_path, 3, resume=tmp_path / "half.ckpt")
    expected = plain(OBJECTIVES[name](), 3, betas=objective.betas)
    torch.testing.assert_close(outcome(module.body, objective), expected, rtol=0, atol=0)


def test_a_checkpoint_of_other_groups_is_refused(tmp_path):
    _, trainer = fit(OBJECTIVES["tro"](), tmp_path, 1)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    with pytest.raises(GroupMismatchError, match="state is of other groups"):
        fit(TRO({"x": 0.5, "y": 0.3, "z": 0.2}), tmp_path, 2, resume=tmp_path / "half.ckpt")


def test_the_objective_is_no_submodule(tmp_path):
    """DDP would wait for gradients of a discriminator that has its own optimiser."""
    objective = OBJECTIVES["dann"]()
    module, _ = fit(objective, tmp_path, 1)
    assert module.objective is objective
    assert not [key for key in module.state_dict() if "objective" in key]


def test_what_is_no_objective_is_refused():
    with pytest.raises(SettingError, match=r"objective is a MSELoss: expected one of toporo.objectives"):
        ObjectiveCallback(torch.nn.MSELoss())


def test_a_module_with_an_objective_of_its_own_is_refused():
    module = Module()
    module.objective = OBJECTIVES["tro"]()
    with pytest.raises(SettingError, match=r"Module has an objective of its own: leave self.objective to the callback"):
        ObjectiveCallback(OBJECTIVES["tro"]()).setup(None, module, "fit")
