"""Hugging Face's Trainer trains with an objective like a plain loop, and resumes exactly."""

import pytest
import torch

from tests.integrations.networks import OBJECTIVES, outcome, plain
from toporo.errors import DataError, SettingError

pytest.importorskip("transformers", reason="needs the extra 'transformers'")
pytest.importorskip("accelerate", reason="needs the extra 'transformers'")
from transformers import PretrainedConfig

from tests.integrations.transformers_network import ROWS, Network, trainer

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", OBJECTIVES)
def test_trains_like_a_plain_loop(name, tmp_path):
    """With a column of group names that the model does not see, and the reset after the warm-up."""
    objective = OBJECTIVES[name]()
    made = trainer(objective, tmp_path, 3)
    made.train()
    expected = plain(OBJECTIVES[name](), 3, betas=objective.betas)
    torch.testing.assert_close(outcome(made.model.body, objective), expected)


def test_accumulated_batches_count_by_their_share(tmp_path):
    """By default, the Trainer does not divide the loss of a model with ``**kwargs``."""
    objective = OBJECTIVES["tro"]()
    made = trainer(objective, tmp_path, 2, gradient_accumulation_steps=2, optim="sgd")
    made.train()
    expected = plain(OBJECTIVES["tro"](), 2, accumulate=2, sgd=True)
    torch.testing.assert_close(outcome(made.model.body, objective), expected)


@pytest.mark.parametrize("name", ["tro", "vrex"])
def test_resumes_from_a_checkpoint_exactly(name, tmp_path):
    trainer(OBJECTIVES[name](), tmp_path, 1, save_strategy="epoch").train()
    objective = OBJECTIVES[name]()
    made = trainer(objective, tmp_path, 3)
    made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    expected = plain(OBJECTIVES[name](), 3, betas=objective.betas)
    torch.testing.assert_close(outcome(made.model.body, objective), expected)


def test_a_damaged_checkpoint_of_the_objective_is_an_error(tmp_path):
    trainer(OBJECTIVES["tro"](), tmp_path, 1, save_strategy="epoch").train()
    file = tmp_path / "checkpoint-4" / "objective.safetensors"
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(DataError, match=r"objective.safetensors is not a readable"):
        trainer(OBJECTIVES["tro"](), tmp_path, 2).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def test_evaluation_is_the_mean_loss_and_does_not_change_the_state(tmp_path):
    """Rows of other groups, or without a group, can be evaluated."""
    objective = OBJECTIVES["tro"]()
    made = trainer(objective, tmp_path, 1)
    before = {key: value.clone() for key, value in objective.state_dict().items()}
    new = [{**row, "site": "z"} for row in ROWS]
    bare = [{key: value for key, value in row.items() if key != "site"} for row in ROWS]
    losses = [made.evaluate(rows)["eval_loss"] for rows in (new, bare)]
    with torch.no_grad():
        x, y = torch.stack([row["x"] for row in ROWS]), torch.tensor([row["labels"] for row in ROWS])
        expected = made.model(x, y).loss.item()
    assert losses == pytest.approx([expected, expected], rel=1e-6)
    torch.testing.assert_close(dict(objective.state_dict()), before, rtol=0, atol=0)


def test_a_given_loss_is_used_per_sample(tmp_path):
    objective = OBJECTIVES["tro"]()
    trainer(objective, tmp_path, 1, loss=lambda outputs, labels: 7.0 + 0 * outputs.logits.sum(dim=1)).train()
    assert objective.last_losses.tolist() == [7.0] * 3


@pytest.mark.parametrize("changed", [{"site": "z"}, {"site": None}], ids=["other group", "none"])
def test_training_rows_need_a_known_group(tmp_path, changed):
    rows = [*ROWS[:-1], {**ROWS[-1], **changed}]
    with pytest.raises(DataError, match=r"the column 'site', or one .*: expected 'a', 'b', 'c'. .* group=NAME"):
        trainer(OBJECTIVES["tro"](), tmp_path, 1, rows=rows).train()


def test_settings_that_would_not_count_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Network, "config", PretrainedConfig(), raising=False)  # smoothing asks for one
    with pytest.raises(SettingError, match=r"label_smoothing_factor and compute_loss_func.*give loss="):
        trainer(OBJECTIVES["tro"](), tmp_path, 1, label_smoothing_factor=0.1)
