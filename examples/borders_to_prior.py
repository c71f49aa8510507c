"""
From a map of neighbours to a prior
===================================

Which training groups lie on the way to the test groups? A graph of neighbours says so, and gives a prior over training
groups.

Run it with: ``python examples/borders_to_prior.py [graph.png]``
"""

import sys

import matplotlib.pyplot as plt

import toporo as tr

# %%
# A few north-eastern states and their neighbours. Say we have data from five and must predict for three more.
borders = tr.GroupGraph.from_edges(
    {
        "NY": ["VT", "MA", "CT", "NJ", "PA"],
        "PA": ["NJ", "DE", "MD", "WV", "OH"],
        "MA": ["VT", "CT", "RI", "NH"],
        "OH": ["WV", "KY", "IN"],
        "WV": ["MD", "KY", "VA"],
    }
)
train, test = ["MA", "NY", "NJ", "PA", "VT"], ["KY", "IN", "VA"]

prior = borders.prior(train, test)
hops = borders.hops(test)
print(
    f"{borders}; the prior rests on {prior.effective_groups:.1f} of {len(train)} groups and saw: {', '.join(prior.saw)}"
)
for state in sorted(train, key=prior.weights.__getitem__, reverse=True):
    print(f"  {state}: weight {prior[state]:.3f}, centrality {prior.centrality[state]:.3f}, {hops[state]} hops away")

# %%
# The centrality is the chance that a random walk from the test states meets this training state first: here every walk
# meets Pennsylvania. Half of the default prior is spread evenly, so the other states count too.
#
# Other measures ask other questions: how near is each training state to the test states?
near = borders.prior(train, test, measure="closeness", normalization="sum")
print("closeness:", {state: round(weight, 3) for state, weight in near.weights.items()})

# %%
# The paper takes the softmax of path counts. At its temperature of 1 nearly all weight is on Pennsylvania, which warns;
# a higher temperature spreads it.
paths = borders.prior(train, test, measure="betweenness", temperature=6.0)
print("betweenness:", {state: round(weight, 3) for state, weight in paths.weights.items()})

# %%
# The graph, training groups by their centrality, and the three priors.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
borders.plot(left, train=train, test=test, sizes=prior.centrality)
priors = {"default": prior, "closeness": near, "betweenness, temperature 6": paths}
for number, (title, each) in enumerate(priors.items()):
    right.bar([i + 0.27 * (number - 1) for i in range(len(train))], [each[state] for state in train], 0.25, label=title)
right.set_xticks(range(len(train)), train)
right.set(ylabel="prior weight")
right.legend()
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=150)
    print(f"picture: {sys.argv[1]}")
plt.show()
