"""
Candidates side by side, with controls
======================================

``compare_models`` fits every model without one region after the other and judges it there: yours too, beside a
constant, ERM and models whose graph is shuffled. Where the interval of a difference holds 0, there is none.

Run it with: ``python examples/compare_candidates.py``
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.tree import DecisionTreeRegressor

import toporo as tr

names = [f"{row}{column}" for row in "ABCD" for column in "1234"]
roads = [(a, b) for a in names for b in names if a < b and abs(ord(a[0]) - ord(b[0])) + abs(int(a[1]) - int(b[1])) == 1]
rng = np.random.default_rng(0)
place = np.repeat([ord(name[0]) - 65.0 + int(name[1]) for name in names], 30)
sun, rain = rng.normal(size=(2, 480))
table = {
    "field": np.repeat(names, 30),
    "sun": sun,
    "rain": rain,
    "harvest": (1 + 0.4 * place) * sun + rain + 2 * place + rng.normal(size=480),
}
contest = tr.compare_models(
    table, target="harvest", group="field", graph=roads, estimators={"a tree": DecisionTreeRegressor(max_depth=5)},
    fast=True, progress=False,
)  # fmt: skip
print(contest.words()[0])
print(contest)

# %%
# Errors in regions held out, with intervals over groups.
shown = [entrant for entrant in contest.entrants if entrant.regions is not None][::-1]
colors = {"model": "#0072b2", "control": "#9ca3af", "yours": "#d55e00"}
figure, ax = plt.subplots(figsize=(7.5, 0.42 * len(shown) + 1), layout="constrained")
for place, entrant in enumerate(shown):
    error = entrant.regions.error
    ax.plot([error.low, error.high], [place, place], color=colors[entrant.kind], lw=2)
    ax.plot(error.value, place, "o", color=colors[entrant.kind])
ax.set_yticks(range(len(shown)), [entrant.name for entrant in shown])
for kind, color in colors.items():
    ax.plot([], [], "o-", color=color, label=kind)
ax.set(xlabel="RMSE in regions held out")
ax.legend()
plt.show()
