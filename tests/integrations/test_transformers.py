"""Hugging Face's Trainer trains with an objective like a plain loop, and resumes exactly."""

import pytest
import torch

from tests.integrations.networks import NAMES, OBJECTIVES, outcome, plain
from toporo.errors import DataError, GroupMismatchError, SettingError
from toporo.objectives import DANN

pytest.importorskip("transformers", reason="needs the extra 'transformers'")
pytest.importorskip("accelerate", reason="needs the extra 'transformers'")
from transformers import PretrainedConfig

from tests.integrations.transformers_network import ROWS, Network, trainer
from toporo.integrations.transformers import ObjectiveTrainer

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


def test_a_checkpoint_without_the_objective_is_an_error(tmp_path):
    trainer(OBJECTIVES["tro"](), tmp_path, 1, save_strategy="epoch").train()
    file = tmp_path / "checkpoint-4" / "objective.safetensors"
    file.write_bytes(file.read_bytes()[:20])
    for _ in range(2):  # damaged, then missing
        with pytest.raises(
            DataError, match=r"objective.safetensors cannot be read .*resume from a complete checkpoint"
        ):
            trainer(OBJECTIVES["tro"](), tmp_path, 2).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
        file.unlink(missing_ok=True)


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


def test_rows_without_the_column_or_of_other_groups_are_refused(tmp_path):
    bare = [{key: value for key, value in row.items() if key != "site"} for row in ROWS]
    with pytest.raises(DataError, match=r"no column 'site', but x, labels: give the column with the groups"):
        trainer(OBJECTIVES["tro"](), tmp_path, 1, rows=bare).train()
    with pytest.raises(GroupMismatchError, match="'z'"):
        trainer(OBJECTIVES["tro"](), tmp_path, 1, rows=[{**row, "site": "z"} for row in ROWS]).train()


def test_settings_that_would_not_count_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Network, "config", PretrainedConfig(), raising=False)  # smoothing asks for one
    with pytest.raises(SettingError, match=r"label_smoothing_factor and compute_loss_func.*give loss="):
        trainer(OBJECTIVES["tro"](), tmp_path, 1, label_smoothing_factor=0.1)
    with pytest.raises(SettingError, match=r"DANN compares features: give features=, e.g. lambda outputs"):
        ObjectiveTrainer(Network(), train_dataset=ROWS, objective=DANN(NAMES, width=4))
