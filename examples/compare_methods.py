"""
Methods beside their controls
=============================

Every method under one protocol, with the controls that a claim needs, on generated DG-15. ``toporo reproduce dg15``
makes the full tables, with more seeds, selection rules and a report. This is the same in a page of Python, to start an
experiment of your own from.

Run it with: ``python examples/compare_methods.py``
"""

import matplotlib.pyplot as plt
import torch.nn.functional as F

import toporo as tr
from toporo.objectives import make_objective
from toporo.training import Batches, TrainingPlan, fit, outputs_of

SEEDS = (0, 1)

benchmark = tr.load_dataset("dg15", source="generated")
data, test = benchmark.data.select(benchmark.train), benchmark.data.select(benchmark.test)
physical = benchmark.graph.prior(benchmark.train, benchmark.test, measure="harmonic")
uniform = tr.Prior.uniform(benchmark.train)

# %%
# Title to objective, prior, settings. A claim for TRO has to hold against the controls.
METHODS = {
    "ERM": ("erm", None, {}),
    "Group DRO": ("group-dro", None, {}),
    "V-REx": ("vrex", None, {"warm_up": 50}),  # a quarter of the steps below
    "TRO": ("tro", physical, {"penalty": 100.0, "step": 0.01}),
    "prior alone (control)": ("iw-erm", physical, {}),
    "uniform prior (control)": ("tro", uniform, {"penalty": 100.0, "step": 0.01}),
    "shuffled prior (control)": ("tro", physical.shuffled(0), {"penalty": 100.0, "step": 0.01}),
}


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


# %%
scores = {}
for title, (name, prior, settings) in METHODS.items():
    means, worst = [], []
    for seed in SEEDS:
        net = tr.training.MLP(inputs=2, outputs=2, seed=seed)
        objective = make_objective(name, data.groups, prior, **settings)
        fit(net, objective, Batches.of(data, per_group=10), loss, TrainingPlan(rounds=20, seed=seed))
        right = outputs_of(net, test).argmax(axis=1) == test.y
        accuracy = [right[test.rows(name)].mean() for name in test.groups]
        means.append(100 * sum(accuracy) / len(accuracy))
        worst.append(100 * min(accuracy))
    saw = ", ".join(prior.saw) if prior is not None and prior.saw else "nothing"
    mean, low = sum(means) / len(SEEDS), sum(worst) / len(SEEDS)
    scores[title] = mean, low
    print(f"{title:<25} mean {mean:5.1f} %   worst group {low:5.1f} %   saw {saw}")

# %%
# The prior alone does as well as TRO here, and a shuffled one does not: the gain is the topology's.
figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
for place, (mean, low) in enumerate(reversed(scores.values())):
    ax.plot([low, mean], [place, place], color="#9ca3af", lw=2, zorder=0)
    ax.plot(mean, place, "o", color="#0072b2", label="mean" if not place else None)
    ax.plot(low, place, "x", color="#d55e00", label="worst group" if not place else None)
ax.set_yticks(range(len(scores)), list(reversed(scores)))
ax.set(xlabel="accuracy in groups never trained on (%)", xlim=(0, 100))
ax.legend(loc="lower right")
plt.show()
