"""
Coefficients that follow a graph
================================

Every district has its own effect of the inputs, and neighbours are alike. ``KrigedRegressor`` estimates how alike from
the rows, and gives districts without a single row the effect that their neighbours suggest.

Run it with: ``python examples/kriged_coefficients.py``
"""

import matplotlib.pyplot as plt
import numpy as np

import toporo as tr

SIDE = 6
names = [f"{row},{column}" for row in range(SIDE) for column in range(SIDE)]
at = {name: tuple(map(int, name.split(","))) for name in names}
grid = [(a, b) for a in names for b in names if a < b and sum(abs(np.subtract(at[a], at[b]))) == 1]
true = {name: np.sin(row / 2) + np.cos(column / 2) for name, (row, column) in at.items()}

rng = np.random.default_rng(0)
without = set(rng.choice(names, 14, replace=False).tolist())
district = np.repeat([name for name in names if name not in without], 10)
x = rng.normal(size=(len(district), 1))
y = x[:, 0] * [true[name] for name in district] + 0.9 * rng.normal(size=len(district))
model = tr.KrigedRegressor(graph=grid).fit(x, y, groups=district)
print(f"the rows speak for the graph: {model.gate_:.2f}")

# %%
# The slope of a district is what a unit of the input adds. Crosses mark districts without rows.
ends = [model.predict(np.full((len(names), 1), end), groups=names) for end in (0.0, 1.0)]
_, low, high = model.predict(np.ones((len(names), 1)), groups=names, interval=0.9)
panels = {"true slope": [true[name] for name in names], "kriged slope": ends[1] - ends[0],
          "width of the 90 % interval": high - low}  # fmt: skip
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    limits = {"vmin": -2, "vmax": 2, "cmap": "RdBu_r"} if "slope" in title else {"cmap": "YlGnBu"}
    drawn = ax.imshow(np.reshape(values, (SIDE, SIDE)), **limits)
    for name in without:
        ax.text(at[name][1], at[name][0], "×", ha="center", va="center", fontsize=13)
    ax.set(title=title, xticks=[], yticks=[])
    figure.colorbar(drawn, ax=ax, shrink=0.8)
error = np.sqrt(np.mean((np.array(panels["kriged slope"]) - panels["true slope"]) ** 2))
print(f"slopes are off by {error:.2f} (their standard deviation is {np.std(panels['true slope']):.2f})")
plt.show()
