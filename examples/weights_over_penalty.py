"""
Weights against the prior, over the penalty
===========================================

The penalty λ is the price of a mixture of groups away from the prior. At infinity the weights are the prior's. As λ
falls, weight moves to the groups with the largest loss, until at 0 only the worst ones count: group DRO. Both ends and
all between are solved exactly.

Run it with: ``python examples/weights_over_penalty.py``
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import toporo as tr

TOWNS = ["spring", "mill", "bridge", "market", "lock", "harbour"]
river = tr.GroupGraph.from_edges(pairwise([*TOWNS, "island"]))
rng = np.random.default_rng(0)
town, place = np.repeat(TOWNS, 50), np.repeat(np.arange(6), 50)
x = rng.normal(size=(300, 2))
y = (1.0 + 0.3 * place) * x[:, 0] + 0.5 * x[:, 1] + 0.4 * rng.normal(size=300)

prior = river.prior(TOWNS, ["island"], measure="closeness", normalization="sum")
penalties = np.logspace(2, -2, 25)
losses = tr.robust.SquaredLosses.from_arrays(x, y, town)
path = tr.robust.path(losses, prior, penalties=penalties, ridge=1e-3)
print("λ = 100: ", {name: round(weight, 2) for name, weight in path[0].weights.items()})
print("λ = 0.01:", {name: round(weight, 2) for name, weight in path[-1].weights.items()})

# %%
# The dots at the right are the prior. The model in the lower picture answers for the towns that have the weight.
figure, (top, low) = plt.subplots(2, 1, figsize=(7, 6), sharex=True, layout="constrained")
for name in TOWNS:
    (line,) = top.plot(penalties, [fit.weights[name] for fit in path], label=name, lw=2)
    top.plot(140, prior[name], "o", color=line.get_color(), clip_on=False)
    low.plot(penalties, [fit.losses[name] for fit in path], color=line.get_color(), lw=2)
top.set(ylabel="weight of a town", xscale="log")
top.legend(ncols=2)
low.set(xlabel="penalty λ", ylabel="loss in the town")
plt.show()
