"""Whether a learned prior is doubted where it should be: made-up groups in a row, on a half circle, or anywhere.

``python benchmarks/learned_prior.py`` prints a line per case, over ten draws: how often the prior is doubted, how far
the learned prior and a uniform one are from that of the true graph, and how often the nearer of the two is taken.
"""

from __future__ import annotations

import warnings
from itertools import pairwise, product

import numpy as np

import toporo as tr
from toporo.estimators.rows import learn_graph_of

NAMES = [f"g{place}" for place in range(9)]
DRAWS = 10


def inputs(shape: str, rows: int, seed: int) -> np.ndarray:
    """Three inputs, normal about where a group is; neighbours are about 1.5 standard deviations apart."""
    place = np.repeat(np.arange(len(NAMES)), rows)
    x = np.random.default_rng(seed).normal(size=(len(place), 3))
    if shape == "row":
        x[:, 0] += 1.5 * place
    if shape == "half circle":
        angle = np.pi * place / len(NAMES)
        x[:, :2] += len(NAMES) / 2 * np.column_stack([np.cos(angle), np.sin(angle)])
    return x


def on_draw(shape: str, rows: int, test: list[str], seed: int) -> tuple[bool, float, float]:
    """Whether the prior is doubted, and how far it and the uniform one are from the true one."""
    x, ids = inputs(shape, rows, seed), np.repeat(NAMES, rows)
    apart = np.isin(ids, test)
    others = {"test_x": x[apart], "test_groups": ids[apart]} if test else {}
    train = [name for name in NAMES if name not in test]
    asked = {"measure": "harmonic" if test else "betweenness", "normalization": "sum"}
    learned = learn_graph_of(x[~apart], ids[~apart], **others)
    even = np.full(len(train), 1.0 / len(train))
    true = even
    if shape != "none":
        given = tr.GroupGraph.from_edges(pairwise(NAMES)).prior(train, test or None, **asked)
        true = np.array(list(given.weights.values()))
    prior = np.array(list(learned.prior(train, test or None, **asked).weights.values()))
    doubted = bool(learned.prior(train, test or None, cautious=True, **asked).fallback_reason)
    return doubted, float(np.linalg.norm(prior - true)), float(np.linalg.norm(even - true))


def main() -> None:
    print("| groups | rows each | test groups | doubted | learned, to the true one | uniform | nearer one taken |")
    print("|---|---|---|---|---|---|---|")
    warnings.simplefilter("ignore", tr.TopoRoWarning)
    for shape, rows, test in product(("row", "half circle", "none"), (5, 20, 100), ([], NAMES[-2:])):
        draws = [on_draw(shape, rows, test, seed) for seed in range(DRAWS)]
        doubted, learned, even = np.mean(draws, axis=0)
        right = sum((prior > uniform) == doubt for doubt, prior, uniform in draws)
        print(
            f"| {shape} | {rows} | {len(test)} | {doubted * DRAWS:.0f} of {DRAWS} | {learned:.2f} | {even:.2f} | "
            f"{right} of {DRAWS} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
