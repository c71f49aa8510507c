"""The small network as a LightningModule."""

import os

import lightning as L
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.integrations.networks import CODES, Body, X, Y, value
from toporo.integrations.lightning import ObjectiveCallback


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = Body()

    def training_step(self, batch, _):
        x, y, codes = batch
        return value(self.objective, self.body, x, y, codes)

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.02, betas=self.objective.betas, weight_decay=0.0)


def loader(size=6):
    """Rows in order; Lightning's own sampler would shuffle them."""
    rows = TensorDataset(X, Y, CODES)
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    return DataLoader(rows, batch_size=size, sampler=DistributedSampler(rows, ranks, rank, shuffle=False))


def fit(objective, folder, epochs, *, size=6, resume=None, validate=False, **settings):
    module, callback = Module(), ObjectiveCallback(objective)
    trainer = L.Trainer(
        default_root_dir=folder, max_epochs=epochs, accelerator="cpu", callbacks=[callback], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, **settings,
    )  # fmt: skip
    trainer.fit(module, loader(size), loader(size) if validate else None, ckpt_path=resume)
    return module, trainer
