"""
Hugging Face's Trainer with any objective
=========================================

Three lines: an objective, an ``ObjectiveTrainer``, and the column that has the groups. Notes of four hospitals are read
by a tiny language model with random weights. A symptom tells the diagnosis; so does a habit of writing, strongly in the
first hospital and not at all in the last. In the next hospital the habit says the opposite.

Run it with: ``python examples/hf_trainer.py``; it needs ``pip install 'toporo[transformers]'``
"""

import sys
import tempfile
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import torch

import toporo as tr

try:
    from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, set_seed
except ImportError:
    print("transformers is not installed: pip install 'toporo[transformers]'")
    sys.exit()

from toporo.integrations.transformers import ObjectiveTrainer

# %%
# A note is four words: one of two symptoms, one of two habits, and words that say nothing.
HOSPITALS = [f"hospital {i}" for i in range(5)]
HABIT = [0.95, 0.9, 0.8, 0.5, 0.2]  # how often the habit agrees with the diagnosis


def notes(hospital: int, count: int) -> list[dict]:
    draw = np.random.default_rng(hospital)
    label = draw.integers(2, size=count)
    words = draw.integers(10, 40, size=(count, 4))
    words[:, 0] = 1 + (label ^ (draw.random(count) > 0.75))
    words[:, 2] = 3 + (label ^ (draw.random(count) > HABIT[hospital]))
    return [
        {"input_ids": row, "labels": int(answer), "group": HOSPITALS[hospital]}
        for row, answer in zip(words, label, strict=True)
    ]


train = [note for hospital in range(4) for note in notes(hospital, 160)]


def fit(objective: tr.objectives.Objective) -> list[float]:
    """How often the trained model is right, by hospital."""
    set_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=40, max_position_embeddings=4, **sizes))
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder, num_train_epochs=4, per_device_train_batch_size=32, learning_rate=1e-2, use_cpu=True,
            save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        ObjectiveTrainer(model, args, train_dataset=train, objective=objective, group="group").train()
    model.eval()
    right = []
    for hospital in range(5):
        rows = notes(hospital, 400)[-200:]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor(np.stack([row["input_ids"] for row in rows]))).logits
        right.append(float((logits.argmax(dim=1) == torch.tensor([row["labels"] for row in rows])).float().mean()))
    return right


# %%
# The hospitals lie along a line, and the prior looks to its end.
prior = tr.GroupGraph.from_edges(pairwise(HOSPITALS)).prior(HOSPITALS[:4], HOSPITALS[4:])
objectives = {"ERM": tr.objectives.ERM(HOSPITALS[:4]), "TRO": tr.objectives.TRO(prior, penalty=10.0, step=0.01)}
accuracy = {title: fit(objective) for title, objective in objectives.items()}
for title, right in accuracy.items():
    print(f"{title}: {right[4]:.0%} right in the hospital never seen")

# %%
# What TRO does without in the first hospital, it gains in the one to come.
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for title, right in accuracy.items():
    ax.plot(HOSPITALS, right, "o-", label=title)
ax.axvspan(3.5, 4.5, color="#e5e7eb", zorder=0)
ax.text(4, 0.02, "never seen", ha="center", transform=ax.get_xaxis_transform())
ax.set(ylabel="right", ylim=(0.4, 1))
ax.legend()
plt.show()
