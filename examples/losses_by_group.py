"""
ERM, TRO and group DRO, group by group
======================================

ERM is best on average, group DRO has the least loss in the worst group, and pays for it everywhere. TRO stays near a
prior: it gives up a little where nobody will be, for the groups on the way to the test groups.

Run it with: ``python examples/losses_by_group.py``
"""

import math
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import toporo as tr

VILLAGES = [f"village {letter}" for letter in "ABCDEFGHIJ"]
train, test = VILLAGES[:7], VILLAGES[7:]
road = tr.GroupGraph.from_edges(pairwise(VILLAGES))
rng = np.random.default_rng(2)
village, place = np.repeat(VILLAGES, 60), np.repeat(np.arange(10), 60)
x = rng.normal(size=(600, 2))
y = (0.5 + 0.25 * place) * x[:, 0] - x[:, 1] + (0.3 + 0.5 * (place == 0)) * rng.normal(size=600)
seen = np.isin(village, train)

prior = road.prior(train, test)
uniform = tr.Prior.uniform(train)
methods = {"ERM": (uniform, math.inf), "TRO, λ = 1": (prior, 1.0), "group DRO": (uniform, 0.0)}
losses = {}
for title, (weights, penalty) in methods.items():
    fit = tr.robust.fit_linear(x[seen], y[seen], village[seen], weights, penalty=penalty, ridge=1e-3)
    squares = (fit.predict(x) - y) ** 2
    losses[title] = [squares[village == name].mean() for name in VILLAGES]
    print(f"{title}: mean in training {np.mean(losses[title][:7]):.2f}, worst {max(losses[title][:7]):.2f}, "
          f"in test villages {np.mean(losses[title][7:]):.2f}")  # fmt: skip

# %%
# Village A is noisy: no model does well there, and group DRO gives up the others for it.
figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
for number, (title, values) in enumerate(losses.items()):
    ax.bar(np.arange(10) + 0.27 * (number - 1), values, 0.25, label=title)
ax.axvspan(6.5, 9.5, color="#e5e7eb", zorder=0)
ax.text(8, ax.get_ylim()[1] * 0.93, "never trained on", ha="center")
ax.set_xticks(range(10), [name[-1] for name in VILLAGES])
ax.set(xlabel="village, along the road", ylabel="squared error")
ax.legend(loc="upper center")
plt.show()
