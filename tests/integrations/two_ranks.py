"""One of two ranks that torchrun starts: trains with Lightning and Hugging Face's Trainer, and writes the results.

``torchrun --nproc-per-node 2 -m tests.integrations.two_ranks FOLDER``
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from tests.integrations import lightning_network, transformers_network
from tests.integrations.networks import OBJECTIVES, outcome


def main(folder):
    torch.set_num_threads(1)
    found = {}
    for name in OBJECTIVES:
        objective = OBJECTIVES[name]()
        module, _ = lightning_network.fit(objective, folder, 2, size=3, strategy="ddp", devices=2)
        found["lightning", name] = outcome(module.body, objective)
        objective = OBJECTIVES[name]()
        trainer = transformers_network.trainer(objective, folder, 2, size=3)
        trainer.train()
        found["transformers", name] = outcome(trainer.model.body, objective)
    torch.save(found, folder / f"{os.environ['RANK']}.pt")
    dist.barrier()
    time.sleep(0.5)  # right after a message, torch may hang in the next line
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
