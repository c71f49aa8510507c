"""
The error by hops from the training groups
==========================================

Sixteen wells up a slope; the eight lower ones have records. Every edge of the graph is a step up, and the farther a
well is from those trained on, the larger the error. What a model is worth is said by distance, beside a control.

Run it with: ``python examples/error_by_hops.py``
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import toporo as tr

WELLS = [f"well {number:02d}" for number in range(16)]
rng = np.random.default_rng(1)
place = np.repeat(np.arange(16), 40)
rain, depth = rng.normal(size=(2, 640))
table = {
    "well": np.repeat(WELLS, 40),
    "rain": rain,
    "depth": depth,
    "level": (1.0 + 0.12 * place) * rain - 0.5 * depth + 0.3 * rng.normal(size=640),
}

# %%
# Both models are linear; the control weighs all wells alike.
question = {"target": "level", "group": "well", "graph": list(pairwise(WELLS)), "test_groups": WELLS[8:]}
judged = {
    title: tr.fit_table(table, method=method, **question).evaluate(table)
    for title, method in {"TRO": "tro", "ERM (control)": "erm"}.items()
}
for title, each in judged.items():
    print(title, {hop: round(scores["rmse"].value, 2) for hop, scores in each.by_hop.items()})

# %%
# Bars are bootstrap intervals over rows and groups.
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
for shift, (title, each) in zip((-0.08, 0.08), judged.items(), strict=True):
    scores = [by_hop["rmse"] for by_hop in each.by_hop.values()]
    middle = np.array([score.value for score in scores])
    ends = [middle - [score.low for score in scores], np.array([score.high for score in scores]) - middle]
    ax.errorbar(np.arange(len(scores)) + shift, middle, yerr=np.abs(ends), fmt="o-", capsize=3, label=title)
ax.set_xticks(range(len(scores)), [hop.replace(" (", "\n(") for hop in judged["TRO"].by_hop])
ax.set(xlabel="hops from the training groups", ylabel="RMSE, mean over wells", ylim=(0, None))
ax.legend()
plt.show()
