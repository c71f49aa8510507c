"""
How far a model reaches
=======================

A model answers for any row. ``reach_of`` says which rows are farther from the training rows than validation has ever
been: at most 1 is inside. Inputs that hardly matter to the model hardly count.

Run it with: ``python examples/reach_of_rows.py``
"""

import matplotlib.pyplot as plt
import numpy as np

import toporo as tr

rng = np.random.default_rng(0)
centres = {"north": (0, 2), "east": (2, 0), "south": (0, -2), "west": (-2, 0), "middle": (0, 0), "ridge": (1, 1)}
site = np.repeat(list(centres), 60)
x = np.concatenate([rng.normal(centre, 0.6, (60, 2)) for centre in centres.values()])
y = np.sin(x[:, 0]) + x[:, 1] + 0.2 * rng.normal(size=360)
table = {"site": site, "east": x[:, 0], "north": x[:, 1], "yield": y}
model = tr.fit_table(table, target="yield", group="site", model="linear")

# %%
# Ask for every point of a grid. The grid has no rows of its own, so there are no groups to count hops to.
side = np.linspace(-7, 7, 61)
east, north = (each.ravel() for each in np.meshgrid(side, side))
reach = model.reach_of({"site": np.full(len(east), "north"), "east": east, "north": north})
print(f"{np.mean(reach.outside):.0%} of the square is out of reach, for example:")
print(f"  at (6, 6): {reach.reasons[np.argmin((east - 6) ** 2 + (north - 6) ** 2)]}")

# %%
figure, ax = plt.subplots(figsize=(6, 4.8), layout="constrained")
shades = ax.contourf(side, side, np.minimum(reach.values.reshape(61, 61), 4), levels=np.linspace(0, 4, 17), cmap="BuPu")
ax.contour(side, side, reach.values.reshape(61, 61), levels=[1.0], colors="#b45309", linewidths=2)
for name in centres:
    ax.scatter(*x[site == name].T, s=5, label=name)
ax.set(xlabel="east", ylabel="north", aspect="equal", title="inside of the line, validation has been")
figure.colorbar(shades, label="reach (above 1: outside)")
ax.legend(fontsize=8, ncols=2, loc="lower right")
plt.show()
