"""The small network as Hugging Face's Trainer takes it."""

from torch import nn
from torch.nn import functional as F
from torch.utils.data import SequentialSampler
from transformers import TrainingArguments
from transformers.utils import ModelOutput

from tests.integrations.networks import CODES, NAMES, Body, X, Y
from toporo.integrations.transformers import ObjectiveTrainer, cross_entropy

ROWS = [{"x": x, "labels": int(y), "site": NAMES[code]} for x, y, code in zip(X, Y, CODES, strict=True)]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()

    def forward(self, x, labels=None, **kwargs):  # as many models: they then divide losses by themselves
        features, logits = self.body(x)
        return ModelOutput(loss=F.cross_entropy(logits, labels), logits=logits, hidden_states=features)


class InOrder(ObjectiveTrainer):
    """Without shuffling, for comparison."""

    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


def trainer(objective, folder, epochs, *, size=6, rows=ROWS, loss=cross_entropy, **settings):
    args = TrainingArguments(
        str(folder), num_train_epochs=epochs, per_device_train_batch_size=size, learning_rate=0.02, use_cpu=True,
        lr_scheduler_type="constant", max_grad_norm=0.0, logging_strategy="no", report_to="none", disable_tqdm=True,
        **{"save_strategy": "no", "optim": "adamw_torch"} | settings,
    )  # fmt: skip
    return InOrder(
        Network(), args, train_dataset=rows, objective=objective, group="site", loss=loss,
        features=lambda outputs: outputs.hidden_states,
    )  # fmt: skip
