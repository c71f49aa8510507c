"""
A topology learned from a table
===============================

Rows with a group column in, a graph with stability out. The table is DG-15's generated data: fifteen groups along a
half circle, so the true neighbours are known. On the command line the same is::

    toporo topology dg15.csv --group domain --out topology.png

Run it with: ``python examples/topology_from_table.py [topology.png] [dg15.csv]``
"""

import csv
import sys
from pathlib import Path

import matplotlib.pyplot as plt

import toporo as tr

data = tr.load_dataset("dg15", source="generated")
features, groups = data.data.x, data.data.ids

# %%
# Distances between all pairs of groups, with a bound on the error.
distances = tr.diffusion_emd(features, groups)
print(f"distances to within {distances.error:.0e}, by {distances.settings['order']} products")

# %%
# The graph cut from them. Each edge has a length and the share of resamples of the points that keep it.
graph = tr.learn_topology(features, groups, resamples=6)
print(f"{len(graph)} groups, {len(graph.edges)} edges")
for (a, b), length in graph.edges.items():
    print(f"{a} - {b}: distance {length:.2f}, in {graph.stability[a, b]:.0%} of resamples")

# %%
# How many of them does the true graph have?
known = sum(pair in data.graph.edges for pair in graph.edges)
print(f"{known} of {len(graph.edges)} learned edges join groups that really touch")

# %%
# Thick edges are in all resamples, faint ones in few.
axes = graph.plot()
if len(sys.argv) > 1:
    axes.figure.savefig(sys.argv[1], dpi=150)
if len(sys.argv) > 2:
    with Path(sys.argv[2]).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["domain", "x", "y"])
        writer.writerows([name, *row] for name, row in zip(groups.names, features.tolist(), strict=True))
plt.show()
