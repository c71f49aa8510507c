"""
Pictures of your own
====================

Your own folder of pictures, your own network: TRO on a topology learned from ERM's features, beside its controls.

Signs in front of a forest and of a harbour, in DomainBed's layout (place/sign/picture). In the forest nearly all are
bars, at the harbour posts, so the background gives the sign away. The depot has both signs on both backgrounds. In the
village, which has no training pictures, it is the other way round. The learned topology puts the depot between the
others, and TRO starts from there. The pictures are generated, small enough for a CPU, and so simple that ERM gets them
right as well: the example shows how, not a gain. Point ``load_images`` at a folder of your own.

Run it with: ``python examples/images.py [FOLDER]`` (needs Pillow: ``pip install 'toporo[vision]'``)
"""

import sys
import tempfile
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn

import toporo as tr
from toporo.training import Batches, TrainingPlan, fit, outputs_at

SIGNS = {"bar": ((0, 4), (12, 4), (12, 8), (0, 8)), "post": ((4, 0), (8, 0), (8, 12), (4, 12))}  # corners
GROUNDS = {"forest": (70, 140, 70), "harbour": (170, 190, 230)}
PLACES, TEST = ("depot", *GROUNDS, "village"), "village"
torch.set_num_threads(1)  # pictures this small gain nothing from more


def draw_pictures(root: Path, count: int = 120, side: int = 20) -> None:
    for i, place in enumerate(PLACES):
        rng = np.random.default_rng(i)
        share = {"forest": 0.97, "harbour": 0.03}.get(place, 0.5)  # of bars
        for sign, number in zip(SIGNS, rng.multinomial(count, [share, 1 - share]), strict=True):
            folder = root / place / sign
            folder.mkdir(parents=True, exist_ok=True)
            for k in range(number):
                usual = sign == "bar" if place != "depot" else rng.random() < 0.5
                seen = place if place in GROUNDS else "forest" if usual != (place == TEST) else "harbour"
                picture, paint = Image.new("RGB", (side, side), GROUNDS[seen]), tuple(rng.integers(0, 80, 3).tolist())
                corner = rng.uniform(0, side - 12, 2)
                ImageDraw.Draw(picture).polygon([tuple(corner + at) for at in SIGNS[sign]], fill=paint)
                noisy = np.asarray(picture) + rng.normal(0, 40, (side, side, 3))
                Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{k:03d}.png")


class Small(nn.Module):
    """Any network that returns its outputs and features together; `tr.vision.ResNet` is one."""

    width = 32

    def __init__(self, classes: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        sizes = (3, 8, 16, self.width)
        layers = [
            (nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b), nn.ReLU(), nn.MaxPool2d(2)) for a, b in pairwise(sizes)
        ]
        self.body, self.head = nn.Sequential(*chain(*layers)), nn.Linear(self.width, classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).mean((2, 3))

    def with_features(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.features(x)
        return self.head(features), features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


# %%
# One call reads the folder.
folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="toporo-"))
draw_pictures(folder)
benchmark = tr.load_images(folder, test=TEST, size=20)
train, test = benchmark.data.select(benchmark.train).split(0.2, seed=0).train, benchmark.data.select(benchmark.test)
print(f"{len(train)} pictures of {', '.join(benchmark.train)} to train on; the test domain is {TEST}")

# %%
# All pictures go to the device once; ``train`` and ``test`` hold their row numbers.
images, classes = tr.vision.images_on_device(benchmark.store, benchmark.data)
plan = TrainingPlan(rounds=120, unit="steps", learning_rate=3e-3, evaluate_every=120)


def pixels(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2) / 255.0


def brighter(x: torch.Tensor, y: torch.Tensor, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    brightness = 0.8 + 0.4 * uniforms[:, 0, None, None, None]  # for photographs use toporo.vision.augmentation
    return brightness * pixels(x), y


def outputs(network: nn.Module, rows: np.ndarray, **how) -> torch.Tensor:
    return torch.cat([batch for _, batch in outputs_at(network, images, rows, plan, prepare=pixels, **how)])


def accuracy(network: nn.Module) -> dict[str, float]:
    right = outputs(network, test.x).argmax(dim=1) == classes[torch.as_tensor(test.x)]
    return {"accuracy": float(right.float().mean())}


def run(title: str, objective: tr.objectives.Objective) -> nn.Module:
    network, loss = Small(len(benchmark.store.classes), seed=0), partial(F.cross_entropy, reduction="none")
    batches = Batches(images, classes, train, per_group=12, prepare=brighter, draws=1)
    done = fit(network, objective, batches, loss, plan, evaluate=accuracy)
    print(f"{title:<30}{done.history[-1].metrics['accuracy']:.1%} right in the {TEST}")
    return network


# %%
# The topology is learned from the features of the first network.
erm = run("ERM", tr.objectives.ERM(benchmark.train))
features = outputs(erm, train.x, features=True)
graph = tr.learn_topology(features.numpy(), train.ids, sigma="median")
prior = graph.prior(benchmark.train)
run("TRO", tr.objectives.TRO(prior, penalty=1.0, step=0.1))
run("TRO, uniform prior (control)", tr.objectives.TRO(tr.Prior.uniform(benchmark.train), penalty=1.0, step=0.1))

print("learned edges:", ", ".join(f"{a}-{b} ({share:.0%} of resamples)" for (a, b), share in graph.stability.items()))
print("prior:", {name: round(weight, 2) for name, weight in prior.weights.items()}, "saw:", prior.saw or "nothing")

# %%
# Four pictures of every place, and the prior. The depot has something of both others.
figure, axes = plt.subplots(len(PLACES), 4, figsize=(4.5, 4.6), layout="constrained")
for line, place in zip(axes, PLACES, strict=True):
    rows = benchmark.data.select([place]).x[:: 120 // 4][:4]
    for ax, row in zip(line, rows, strict=True):
        ax.imshow(images[int(row)].numpy())
        ax.set(xticks=[], yticks=[])
    share = f"prior {prior[place]:.2f}" if place in prior.weights else "test"
    line[0].set_ylabel(f"{place}\n{share}")
plt.show()
