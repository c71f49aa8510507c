"""Why TRO does not gain on PACS: the same comparison without the noise of training.

Features of the ImageNet network are frozen and the linear model on them is solved exactly, so that no seed, step or
choice of a checkpoint comes in: what is left is the objective. ``python benchmarks/pacs_linear.py DATA WEIGHTS
[FEATURES]`` takes a thousand images of every domain (features are kept in FEATURES, an .npz file, if named; ten minutes
on a core, and as long for the fits) and writes results/pacs_linear.md.
"""

from __future__ import annotations

import math
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA

import toporo as tr
from toporo.files import write_text
from toporo.vision import make_network, read_weights

RESULTS = Path(__file__).parent / "results"
PER_DOMAIN, COMPONENTS, RIDGE = 1000, 256, 0.01
PENALTIES = (0.0, 0.1, 1.0, 10.0, math.inf)


def extract(data: str, weights: str) -> dict[str, Any]:
    """Pooled features of the frozen network, with classes and domains."""
    benchmark = tr.load_dataset("pacs", data)
    rng = np.random.default_rng(0)
    chosen = [rng.permutation(benchmark.data.rows(name))[:PER_DOMAIN] for name in benchmark.data.groups]
    rows = np.sort(np.concatenate(chosen))
    network = make_network("resnet50", outputs=7, channels=3, weights=read_weights(weights), norm="frozen").eval()
    images, found = benchmark.store.images, []
    with torch.no_grad():
        for part in np.array_split(rows, -(-len(rows) // 32)):
            x = torch.from_numpy(np.array(images[part])).permute(0, 3, 1, 2).float() / 255
            found.append(network.features(x).numpy())
    domains = np.array(benchmark.data.groups.decode(benchmark.data.codes[rows]))
    return {"f": np.concatenate(found), "y": benchmark.data.y[rows], "g": domains}


def accuracies(found: dict[str, Any]) -> dict[str, dict[str, dict[float, float]]]:
    """Percent right in each domain held out, by prior and penalty."""
    table: dict[str, dict[str, dict[float, float]]] = {"uniform": {}, "learned": {}}
    x, y, domain = found["f"].astype(np.float64), found["y"], found["g"]
    for test in sorted(set(domain)):
        inside = domain != test
        mean, sd = x[inside].mean(axis=0), x[inside].std(axis=0) + 1e-9
        pca = PCA(COMPONENTS, random_state=0).fit((x[inside] - mean) / sd)
        train, held_out = (pca.transform((x[rows] - mean) / sd) for rows in (inside, ~inside))
        names = sorted(set(domain[inside]))
        graph = tr.learn_topology(train, domain[inside], resamples=0)
        for kind, prior in (("uniform", "uniform"), ("learned", graph.prior(names, measure="betweenness"))):
            for penalty in PENALTIES:
                model = tr.TROClassifier(prior=prior, penalty=penalty, ridge=RIDGE)
                model.fit(train, y[inside], groups=domain[inside])
                right = float(100 * (model.predict(held_out) == y[~inside]).mean())
                table[kind].setdefault(test, {})[penalty] = right
                print(test, kind, penalty, round(right, 1), flush=True)
    return table


def render(table: dict[str, dict[str, dict[float, float]]]) -> str:
    domains = list(table["uniform"])
    lines = [
        "# TRO on frozen features of PACS, solved exactly",
        "",
        "Made by `python benchmarks/pacs_linear.py DATA WEIGHTS`.",
        "",
        f"{PER_DOMAIN} images a domain, pooled features of the ImageNet ResNet-50, {COMPONENTS} principal components "
        f"of the training domains, logistic model with ridge {RIDGE}. Accuracy (%) in the domain held out; no "
        "randomness but the choice of the images. λ = ∞ with a uniform prior is ERM with domains weighed alike, with "
        "the learned prior IW-ERM; λ = 0 is group DRO.",
        "",
        f"| prior | λ | {' | '.join(domains)} | average |",
        "|---|---:|" + "---:|" * (len(domains) + 1),
    ]
    for kind, by_domain in table.items():
        for penalty in PENALTIES:
            values = [by_domain[domain][penalty] for domain in domains]
            cells = " | ".join(f"{value:.1f}" for value in (*values, float(np.mean(values))))
            lines.append(f"| {kind} | {'∞' if math.isinf(penalty) else f'{penalty:g}'} | {cells} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    warnings.simplefilter("ignore", tr.TopoRoWarning)
    data, weights, *kept = sys.argv[1:]
    if kept and Path(kept[0]).is_file():
        found = dict(np.load(kept[0]))
    else:
        found = extract(data, weights)
        if kept:
            np.savez(kept[0], **found)
    text = render(accuracies(found))
    write_text(RESULTS / "pacs_linear.md", text)
    print(text)


if __name__ == "__main__":
    main()
