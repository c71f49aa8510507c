"""
Water in radar tiles
====================

Segmentation: which pixels are under water in a flood that nobody has labelled, from radar tiles.

Radar sees water dark and land bright, but how dark depends on the season, the wind and the angle of the beam: every
flood has its own levels. The chips are generated in the layout of Sen1Floods11's bucket, small enough for a CPU. For
the real ones, point ``load_dataset`` at their folder, with tiles of 256 pixels and, as its authors do, ``FCN`` instead
of ``UNet``. Only the levels differ here, and ERM copes with them as well as TRO does: the example shows how, not a
gain.

Run it with: ``python examples/flood_tiles.py [FOLDER]`` (needs tifffile: ``pip install 'toporo[geo]'``)
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tifffile
import torch
from torch import nn

import toporo as tr
from toporo.paper.image_fits import standardize
from toporo.paper.sen1floods11 import validation_rows
from toporo.training import Batches, TrainingPlan, fit, outputs_at
from toporo.vision.augmentation import DRAWS_TILES, flip_rotate
from toporo.vision.label_maps import count_pixels, iou, pixel_loss

LEVELS = {"Ghana": -2.5, "India": 0.0, "Nigeria": 2.5, "Bolivia": 0.5}  # in decibels, above the mean level
TEST = "Bolivia"
torch.set_num_threads(1)  # tiles this small gain nothing from more


def write_chips(root: Path, chips: int = 6, side: int = 64) -> None:
    folder = root / "data" / "flood_events" / "HandLabeled"
    names = {role: [] for role in ("train", "valid", "test", "bolivia")}
    rng = np.random.default_rng(0)
    for event, level in LEVELS.items():
        for number in range(chips):
            row, column = np.indices((side, side)) / side
            river = np.abs(column - 0.5 - 0.3 * np.sin(6 * row + rng.uniform(0, 6))) < rng.uniform(0.05, 0.15)
            shade = 3.0 * np.sin(9 * column + rng.uniform(0, 6))  # hills, dark where the beam does not reach
            image = np.where(river, [[[-15.0]], [[-22.0]]], [[[-10.0]], [[-17.0]]]) + level + shade
            image = (image + rng.normal(0, 2.5, image.shape)).astype(np.float32)
            image[:, :2] = np.nan  # no measurement at the edge
            label = np.where(row > 0.9, -1, river).astype(np.int16)  # clouds: nobody could label this part
            chip = f"{event}_{number}"
            for kind, pixels, planes in (("S1Hand", image, "separate"), ("LabelHand", label, None)):
                path = folder / kind / f"{chip}_{kind}.tif"
                path.parent.mkdir(parents=True, exist_ok=True)
                how = {"compression": "lzw", "photometric": "minisblack", "metadata": None}
                tifffile.imwrite(path, pixels, planarconfig=planes, **how)
            names["bolivia" if event == TEST else "valid" if number == 0 else "train"].append(chip)
    lists = root / "splits" / "flood_handlabeled"
    lists.mkdir(parents=True, exist_ok=True)
    for role, listed in names.items():
        lines = [f"{chip}_S1Hand.tif,{chip}_LabelHand.tif\n" for chip in listed]
        (lists / f"flood_{role}_data.csv").write_text("".join(lines), encoding="utf-8")


# %%
# Written, and read as the published ones are.
folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="toporo-"))
write_chips(folder / "sen1floods11" / "v1.1")
benchmark = tr.load_dataset("sen1floods11", folder, test=TEST, size=32)
train, test = validation_rows(benchmark, seed=0).train, benchmark.data.select(benchmark.test)
print(f"{len(train)} tiles of {', '.join(benchmark.train)} to train on; the test event is {TEST}")

# %%
# Decibels are scaled by the training tiles alone. Missing values are 0 in the input and -1 in the labels.
store = benchmark.store
scaled = standardize(store.x, train.x)
tiles, labels = torch.tensor(scaled, dtype=torch.float32), torch.tensor(store.y)
batches = Batches(tiles, labels, train, per_group=4, prepare=flip_rotate, draws=DRAWS_TILES)
plan = TrainingPlan(rounds=60, unit="steps", learning_rate=3e-3, evaluate_every=60)


def outputs(network: nn.Module, rows: np.ndarray, **how) -> torch.Tensor:
    return torch.cat([batch for _, batch in outputs_at(network, tiles, rows, plan, **how)])


def water(network: nn.Module) -> dict[str, float]:
    guess, truth = outputs(network, test.x).argmax(dim=1), labels[torch.as_tensor(test.x)]
    counts = count_pixels(guess, truth, torch.as_tensor(test.codes), len(test.groups))
    return {"IoU": float(iou(counts)[0])}


def run(title: str, objective: tr.objectives.Objective) -> nn.Module:
    network = tr.vision.UNet(channels=2, base=8, levels=2)
    done = fit(network, objective, batches, pixel_loss, plan, evaluate=water)
    print(f"{title:<30}IoU of water {done.history[-1].metrics['IoU']:.3f} in {TEST}")
    return network


# %%
# The topology is learned from what the first network makes of the tiles. Resamples do not bear its prior out, so by
# default all groups would have the same weight, with a warning; ``cautious=False`` keeps it, to show what it does.
erm = run("ERM", tr.objectives.ERM(benchmark.train))
features = outputs(erm, train.x, features=True)
graph = tr.learn_topology(features.numpy(), train.ids, sigma="median")
prior = graph.prior(benchmark.train, cautious=False)
tro = run("TRO", tr.objectives.TRO(prior, penalty=1.0, step=0.1))
run("TRO, uniform prior (control)", tr.objectives.TRO(tr.Prior.uniform(benchmark.train), penalty=1.0, step=0.1))

print("learned edges:", ", ".join(f"{a}-{b} ({share:.0%} of resamples)" for (a, b), share in graph.stability.items()))
print("prior:", {name: round(weight, 2) for name, weight in prior.weights.items()}, "saw:", prior.saw or "nothing")

# %%
# A tile of the flood that was not trained on: radar, what people marked, and what the network says.
rows = test.x[np.argsort(-(store.y[test.x] == 1).mean((1, 2)))[:3]]
guesses = outputs(tro, rows).argmax(dim=1).numpy()
figure, axes = plt.subplots(3, 3, figsize=(6.5, 6.5), layout="constrained")
for line, row, guess in zip(axes, rows, guesses, strict=True):
    labels = np.where(store.y[row] < 0, np.nan, store.y[row])
    for ax, picture, cmap in zip(line, (scaled[row][0], labels, guess), ("gray", "Blues", "Blues"), strict=True):
        ax.imshow(picture, cmap=cmap, interpolation="nearest")
        ax.set(xticks=[], yticks=[])
for ax, title in zip(axes[0], ("radar (VV)", "marked as water", "said to be water"), strict=True):
    ax.set_title(title)
plt.show()
