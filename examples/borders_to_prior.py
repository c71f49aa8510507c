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
borders = tr.GroupGraph.from_neighbors(
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
    print(f"  {state}: weight {prior[state]:.3f}, {prior.centrality[state]:g} shortest paths, {hops[state]} hops away")

# %%
# Raw path counts give a sharp prior: it bets on Pennsylvania. A higher temperature spreads the bet.
warm = borders.prior(train, test, temperature=6.0)
print("temperature 6:", {state: round(weight, 3) for state, weight in warm.weights.items()})

# %%
# Other measures ask other questions: where would a random walk from the test states first meet the training states?
walk = borders.prior(train, test, measure="harmonic")
print("harmonic:", {state: round(weight, 3) for state, weight in walk.weights.items()})

# %%
# The graph, training groups by their centrality, and the three priors.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
borders.plot(left, train=train, test=test, sizes=prior.centrality)
priors = {"betweenness": prior, "temperature 6": warm, "harmonic": walk}
for number, (title, each) in enumerate(priors.items()):
    right.bar([i + 0.27 * (number - 1) for i in range(len(train))], [each[state] for state in train], 0.25, label=title)
right.set_xticks(range(len(train)), train)
right.set(ylabel="prior weight")
right.legend()
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=150)
    print(f"picture: {sys.argv[1]}")
plt.show()
