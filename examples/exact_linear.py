"""
A linear model, solved exactly
==============================

A linear model against the worst mixture of groups: no step size, no epochs, no seed. Ten towns along a river; the
effect of rain on the flood grows downstream. We have gauges in the six upper towns and need a model for the four lower
ones.

Run it with: ``python examples/exact_linear.py``
"""

import math
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import toporo as tr

TOWNS = [f"km{10 * i:02d}" for i in range(10)]
train, test = TOWNS[:6], TOWNS[6:]
river = tr.GroupGraph.from_edges(pairwise(TOWNS))

rng = np.random.default_rng(0)
town = np.repeat(TOWNS, 60)
place = np.repeat(np.arange(10), 60)
x = rng.normal(size=(600, 3))  # rain, snow melt, temperature
y = x @ [1.0, 0.5, -0.2] + 0.15 * place * x[:, 0] + 0.3 * rng.normal(size=600)
seen = np.isin(town, train)


def error(fit: tr.robust.RobustFit) -> float:
    return float(np.mean((fit.predict(x[~seen]) - y[~seen]) ** 2))


# %%
# The prior looks down the river: where would a random walk from the lower towns first meet the upper ones?
prior = river.prior(train, test)
even = dict.fromkeys(train, 1.0)
penalties = [math.inf, 10.0, 1.0, 0.1, 0.0]
errors = {}
for title, weights in (("no topology", even), ("river", prior)):
    print(f"{title}:")
    losses = tr.robust.SquaredLosses.from_arrays(x[seen], y[seen], town[seen])
    path = tr.robust.path(losses, weights, penalties=penalties, ridge=1e-3)
    errors[title] = [error(fit) for fit in path]
    for fit in path:
        most = max(fit.weights, key=fit.weights.get)
        print(
            f"  penalty {fit.penalty:<4g} test error {error(fit):.3f}, worst training group "
            f"{max(fit.losses.values()):.3f}, most weight on {most} ({fit.weights[most]:.2f}), "
            f"gap at most {fit.relative_gap:.0e}"
        )

# %%
# Without a penalty the prior has no say; with a large one the river's prior takes the model to the lower towns.
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for title, values in errors.items():
    ax.plot(range(len(penalties)), values, "o-", label=title)
ax.set_xticks(range(len(penalties)), ["∞" if math.isinf(penalty) else f"{penalty:g}" for penalty in penalties])
ax.set(xlabel="penalty λ", ylabel="squared error in the lower towns", ylim=(0, None))
ax.legend()
plt.show()
