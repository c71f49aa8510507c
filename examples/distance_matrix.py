"""
Distances between groups: diffusion EMD
=======================================

Twelve groups of points along an open ring. Straight distances cut across the middle; diffusion follows the points, so
groups that lie along the same arc are near. Every entry comes with a bound on its error.

Run it with: ``python examples/distance_matrix.py``
"""

import matplotlib.pyplot as plt
import numpy as np

import toporo as tr

rng = np.random.default_rng(0)
angle = np.repeat(np.arange(12) * 0.45, 40) + rng.uniform(-0.25, 0.25, 480)  # not quite a whole turn
points = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.05 * rng.normal(size=(480, 2))
group = np.repeat([f"g{number:02d}" for number in range(12)], 40)
distances = tr.diffusion_emd(points, group)
print(f"{len(distances.groups)} groups, distances to within {distances.error:.0e}")

# %%
# In the plane, the two ends of the ring, g00 and g11, are near. Along the points they are farthest apart.
centres = np.array([points[group == name].mean(axis=0) for name in distances.groups])
straight = np.linalg.norm(centres[:, None] - centres, axis=2)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.3), layout="constrained")
for name in distances.groups:
    axes[0].scatter(*points[group == name].T, s=6)
    axes[0].annotate(name, 1.25 * points[group == name].mean(axis=0), ha="center", va="center", fontsize=8)
axes[0].set(title="the points", aspect="equal", xticks=[], yticks=[], xlim=(-1.5, 1.5), ylim=(-1.5, 1.5))
for ax, title, matrix in zip(axes[1:], ("straight", "diffusion EMD"), (straight, distances.matrix), strict=True):
    figure.colorbar(ax.imshow(matrix, cmap="magma_r"), ax=ax, shrink=0.85)
    ax.set(title=title, xticks=range(12), yticks=range(12))
    ax.set_xticklabels(distances.groups, rotation=90, fontsize=7)
    ax.set_yticklabels(distances.groups, fontsize=7)
plt.show()
