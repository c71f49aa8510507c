"""A LightningModule trains with an objective like a plain loop, and resumes exactly."""

import logging

import pytest
import torch

from tests.integrations.networks import OBJECTIVES, outcome, plain

pytest.importorskip("lightning", reason="needs the extra 'lightning'")
from tests.integrations.lightning_network import fit

pytestmark = pytest.mark.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_trains_like_a_plain_loop(name, validate, tmp_path):
    """The same network and state to the last bit, with the reset after the warm-up; validation changes neither.

    The objective is no submodule, or DDP would wait for gradients of a discriminator with its own optimiser.
    """
    objective = OBJECTIVES[name]()
    module, _ = fit(objective, tmp_path, 3, validate=validate and name != "irm")  # IRM needs gradients
    expected = plain(OBJECTIVES[name](), 3, betas=objective.betas)
    torch.testing.assert_close(outcome(module.body, objective), expected, rtol=0, atol=0)
    assert not [key for key in module.state_dict() if "objective" in key]


@pytest.mark.parametrize("name", ["tro", "vrex"])
def test_resumes_from_a_checkpoint_exactly(name, tmp_path):
    """With the number of batches until the warm-up is over."""
    _, trainer = fit(OBJECTIVES[name](), tmp_path, 1)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    objective = OBJECTIVES[name]()
    module, _ = fit(objective, tmp_path, 3, resume=tmp_path / "half.ckpt")
    expected = plain(OBJECTIVES[name](), 3, betas=objective.betas)
    torch.testing.assert_close(outcome(module.body, objective), expected, rtol=0, atol=0)
