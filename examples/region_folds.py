"""
Folds that resemble the test groups
===================================

Rows drawn at random as a validation set say how a model does in groups it knows. ``GraphHopSplit`` holds out whole
groups, as many hops from the rest as the test groups are from the training groups.

Run it with: ``python examples/region_folds.py``
"""

import matplotlib.pyplot as plt

import toporo as tr
from toporo.pages.maps import draw_states
from toporo.paper.tpt48 import SPLITS, border_graph

borders, split = border_graph(), SPLITS["north-south"]
folds = tr.GraphHopSplit(borders, split.test, n_splits=4)
for number, fold in enumerate(folds.folds(split.train), start=1):
    print(f"fold {number}: {len(fold.held_out)} states held out, up to {max(fold.hops.values())} hops from the others")

# %%
# Trained on the north, for the south (grey). Each panel holds out the dark states and trains on the pale ones.
figure, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
for ax, fold in zip(axes.flat, folds.folds(split.train), strict=True):
    fills = dict.fromkeys(split.test, "#e5e7eb") | dict.fromkeys(split.train, "#a8d5e5")
    fills |= dict.fromkeys(fold.held_out, "#b45309")
    draw_states(ax, {}, fills=fills, outlined=split.train, label_size=4.5)
    hops = sum(fold.hops.values()) / len(fold.hops)
    ax.set_title(f"{len(fold.held_out)} states held out, {hops:.1f} hops away on average", fontsize=9)
plt.show()
