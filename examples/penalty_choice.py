"""
Choosing the penalty without a test label
=========================================

``penalty="auto"`` holds out training groups that lie as far from the rest as the test groups do, fits every penalty
without them, and takes the one with the least error there. The scores are kept, with how much they scatter.

Run it with: ``python examples/penalty_choice.py``
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import toporo as tr

STOPS = [f"stop {number:02d}" for number in range(14)]
rng = np.random.default_rng(0)
stop, place = np.repeat(STOPS, 40), np.repeat(np.arange(14), 40)
x = rng.normal(size=(560, 3))
y = x @ [1.0, 0.6, -0.4] + 0.15 * place * x[:, 0] + 0.5 * rng.normal(size=560)
seen = place < 10

model = tr.TRORegressor(graph=list(pairwise(STOPS)), test_groups=STOPS[10:], penalty="auto", prior="uniform")
choice = model.fit(x[seen], y[seen], groups=stop[seen]).choice_
print(f"chosen: λ = {choice.penalty:g}, from {len(choice.held_out)} folds; held-out groups are "
      f"{choice.held_out_hops:.1f} hops away, test groups {choice.test_hops:.1f}")  # fmt: skip

# %%
# What the choice cannot see: the error at the stops that it is for.
truth = []
for score in choice.scores:
    fit = tr.TRORegressor(graph=list(pairwise(STOPS)), test_groups=STOPS[10:], penalty=score.penalty, prior="uniform")
    fit.fit(x[seen], y[seen], groups=stop[seen])
    truth.append(np.mean((fit.predict(x[~seen]) - y[~seen]) ** 2) / y[seen].var())
shown = [min(score.penalty, 1e3) for score in choice.scores]
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.errorbar(shown, [score.score for score in choice.scores], yerr=[score.spread for score in choice.scores],
            fmt="o-", capsize=3, label="training groups held out")  # fmt: skip
ax.plot(shown, truth, "s--", label="test groups (not looked at)")
ax.axvline(choice.penalty, color="#b45309", lw=1, label="chosen")
ax.set_xscale("symlog", linthresh=0.01)
ax.set(xlim=(0, 1500), xlabel="penalty λ (1000 stands for infinity)", ylabel="error, over the target's variance")
ax.legend()
plt.show()
