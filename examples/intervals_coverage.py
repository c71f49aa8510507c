"""
Intervals in groups never trained on
====================================

Of the rows of a new group, nine of ten are to lie in a 90 % interval. Intervals whose width comes from rows set aside
at random are too narrow there: those rows are of groups that the model knows. toporo takes the width from whole groups
left out.

Run it with: ``python examples/intervals_coverage.py``
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestRegressor

import toporo as tr

# Twenty-four clinics along a valley. Answers drift from one to the next, and the altitude gives the clinic away.
CLINICS = [f"clinic {number:02d}" for number in range(24)]
rng = np.random.default_rng(3)
level = np.cumsum(rng.normal(0, 1.0, 24))
place = np.repeat(np.arange(24), 40)
clinic = np.repeat(CLINICS, 40)
x = np.column_stack([rng.normal(size=(960, 2)), 400 + 20 * place])  # age, dose, altitude
y = level[place] + x[:, 1] + 0.4 * x[:, 0] + 0.4 * rng.normal(size=960)
test = CLINICS[2::3]
seen = ~np.isin(clinic, test)
forest = RandomForestRegressor(30, min_samples_leaf=5, random_state=0)

# %%
# The control takes its width from a fifth of the training rows, drawn at random. ``Kriged`` leaves whole groups out,
# and tells the same forest what it leaves in the clinics around.
aside = seen & (rng.random(960) < 0.2)
off = abs(forest.fit(x[seen & ~aside], y[seen & ~aside]).predict(x) - y)
model = tr.Kriged(forest, graph=list(pairwise(CLINICS))).fit(x[seen], y[seen], groups=clinic[seen])
values, low, high = model.predict(x, groups=clinic, interval=0.9)
inside = {
    "rows set aside at random": off <= np.quantile(off[aside], 0.9),
    "groups left out (toporo)": (low <= y) & (y <= high),
}
for title, each in inside.items():
    print(f"{title}: {each[~seen].mean():.0%} inside in clinics never trained on")

# %%
# Coverage by clinic. The line is what was promised, on average over groups.
figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
for shift, (title, each) in zip((-0.18, 0.18), inside.items(), strict=True):
    shares = [100 * each[clinic == name].mean() for name in test]
    ax.bar(np.arange(len(test)) + shift, shares, 0.34, label=f"{title}: mean {np.mean(shares):.0f} %")
ax.axhline(90, color="#374151", lw=1, ls="--")
ax.set_xticks(range(len(test)), [name.replace(" ", "\n") for name in test])
ax.set(ylabel="rows in the 90 % interval (%)", ylim=(0, 119))
ax.legend(loc="upper center", ncols=2)
plt.show()
