"""
A prior on a map of the states
==============================

Records come from the north of the United States, predictions are for the south. Where would a random walk from the
southern states first meet the northern ones? That is the harmonic prior: states on the front count most, and a state
that no walk can reach without crossing another counts nothing. Only the borders are needed, no data.

Run it with: ``python examples/states_prior_map.py``
"""

import matplotlib.pyplot as plt

from toporo.pages.maps import draw_states
from toporo.paper.tpt48 import SPLITS, border_graph

borders, split = border_graph(), SPLITS["north-south"]
prior = borders.prior(split.train, split.test, measure="harmonic")
print(f"{prior.effective_groups:.1f} of {len(prior.weights)} states in effect; saw: {', '.join(prior.saw)}")

# %%
# The default prior is half of it: the other half is spread evenly over all training states, so no state is left out.
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
titles = {"harmonic prior": prior, "default prior": borders.prior(split.train, split.test)}
for ax, (title, each) in zip(axes, titles.items(), strict=True):
    fills = dict.fromkeys(split.test, "#d9dde3")
    drawn = draw_states(ax, each.weights, cmap="YlGnBu", fills=fills, outlined=split.train, label_size=4.5)
    ax.set_title(f"{title}: {each.effective_groups:.1f} states in effect")
    figure.colorbar(drawn, ax=ax, orientation="horizontal", shrink=0.6, label="weight of a training state")
plt.show()
