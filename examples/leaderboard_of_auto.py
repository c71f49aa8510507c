"""
The leaderboard of an ensemble
==============================

``AutoRegressor`` fits several models without some groups at a time and weighs them by their predictions for these. The
leaderboard shows every candidate's error in held-out groups, and its weight.

Run it with: ``python examples/leaderboard_of_auto.py``
"""

import matplotlib.pyplot as plt
import numpy as np

import toporo as tr

# Nine districts of a town, three by three; the level of prices follows the map.
names = [f"{row}{column}" for row in "ABC" for column in "123"]
town = [(a, b) for a in names for b in names if a < b and abs(ord(a[0]) - ord(b[0])) + abs(int(a[1]) - int(b[1])) == 1]
rng = np.random.default_rng(0)
district = np.repeat(names, 40)
level = np.repeat([ord(name[0]) - 65.0 + int(name[1]) for name in names], 40)
x = np.column_stack([rng.gamma(4, 20, 360), rng.integers(1, 6, 360)])  # square metres, rooms
price = 2.0 * x[:, 0] + 15 * np.sqrt(x[:, 1]) + 30 * level + 12 * rng.normal(size=360)

seen = district != "B2"
model = tr.AutoRegressor(graph=town, folds=3).fit(x[seen], price[seen], groups=district[seen])
print(model.explain())
predicted = model.predict(x[~seen], groups=district[~seen])
print(f"in B2, not trained on: off by {np.sqrt(np.mean((predicted - price[~seen]) ** 2)):.1f}")

# %%
# The weight does not simply follow the error: candidates that are wrong in different places complement each other.
rows = model.explain()[::-1]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
heights = range(len(rows))
left.barh(heights, [100 * row.weight for row in rows])
left.set_yticks(heights, [row.name for row in rows])
left.set(xlabel="ensemble weight (%)")
for height, row in zip(heights, rows, strict=True):
    right.plot([row.error, row.worst], [height, height], color="#9ca3af", lw=2)
right.plot([row.error for row in rows], heights, "o", label="all held-out groups")
right.plot([row.worst for row in rows], heights, "x", label="where it does worst")
right.axvline(1, color="#374151", lw=0.8, ls=":")
right.set(xlabel="error, over that of the safe mean", xlim=(0, None))
right.legend()
plt.show()
