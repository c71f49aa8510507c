"""
The worst mixture of three groups
=================================

Mixtures of three groups are the points of a triangle. The contours are what TRO's inner problem maximises for fixed
losses: the mean loss of a mixture, less λ times its squared distance from the prior. Its top is the worst mixture (best
response), which has a closed form: a projection onto the triangle. The less λ, the nearer it is to the worst group.

Run it with: ``python examples/worst_mixture_simplex.py``
"""

import matplotlib.pyplot as plt
import numpy as np

import toporo as tr

GROUPS = ["NY", "PA", "OH"]
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
losses, prior = np.array([0.6, 1.0, 1.4]), np.array([0.5, 0.35, 0.15])

steps = np.linspace(0, 1, 60)
mixtures = np.array([(a, b, 1 - a - b) for a in steps for b in steps if a + b <= 1 + 1e-9])
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for ax, penalty in zip(axes, (5.0, 1.0, 0.3), strict=True):
    value = mixtures @ losses - penalty / 2 * ((mixtures - prior) ** 2).sum(axis=1)
    worst = tr.robust.best_response(losses, prior, penalty)
    print(f"λ = {penalty:g}: worst mixture", dict(zip(GROUPS, worst.round(2).tolist(), strict=True)))
    ax.tricontourf(*(mixtures @ CORNERS).T, value, levels=12, cmap="YlGnBu")
    path = np.array([prior, worst]) @ CORNERS
    ax.plot(*path.T, color="#b45309", lw=2)
    ax.plot(*path[0], "o", color="white", mec="#b45309", mew=2, ms=9, label="prior")
    ax.plot(*path[1], "*", color="#b45309", mec="white", ms=17, label="worst mixture")
    for corner, name, loss in zip(CORNERS, GROUPS, losses, strict=True):
        above = corner[1] > 0
        ax.annotate(f"{name}\nloss {loss:g}", corner, (0, 6 if above else -6), textcoords="offset points",
                    ha="center", va="bottom" if above else "top")  # fmt: skip
    ax.set(title=f"λ = {penalty:g}", aspect="equal", xlim=(-0.15, 1.15), ylim=(-0.2, 1.1))
    ax.axis("off")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plt.show()
