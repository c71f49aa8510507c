"""The small network as a LightningModule."""

import os

import lightning as L
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.integrations.networks import CODES, Body, X, Y
from toporo.integrations.lightning import ObjectiveCallback


class Module(L.LightningModule):
    def __init__(self, sgd=False):
        super().__init__()
        self.body, self.sgd = Body(), sgd

    def _value(self, batch):
        x, y, codes = batch
        features, logits = self.body(x)
        extra = {"features": features, "logits": logits}
        losses = F.cross_entropy(logits, y, reduction="none")
        return self.objective(losses, codes, **{key: extra[key] for key in self.objective.needs})

    def training_step(self, batch, _):
        return self._value(batch)

    def validation_step(self, batch, _):
        self._value(batch)

    def configure_optimizers(self):
        if self.sgd:
            return torch.optim.SGD(self.parameters(), lr=0.02)
        betas = self.objective.betas
        return torch.optim.AdamW(self.parameters(), lr=0.02, betas=betas, weight_decay=0.0)


def loader(size=6):
    """Rows in order; Lightning would shuffle those that it deals out itself."""
    rows = TensorDataset(X, Y, CODES)
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    return DataLoader(rows, batch_size=size, sampler=DistributedSampler(rows, ranks, rank, shuffle=False))


def fit(objective, folder, epochs, *, size=6, resume=None, validate=False, sgd=False, **settings):
    module, callback = Module(sgd), ObjectiveCallback(objective)
    trainer = L.Trainer(
        default_root_dir=folder, max_epochs=epochs, accelerator="cpu", callbacks=[callback], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, **settings,
    )  # fmt: skip
    trainer.fit(module, loader(size), loader(size) if validate else None, ckpt_path=resume)
    return module, trainer
