"""Your own folder of pictures, your own network: TRO on a topology learned from ERM's features, beside its controls.

Signs photographed in five places, in DomainBed's layout (place/sign/picture). In three places signs of a kind mostly
share a colour; in the depot they come as they come, and so they will in the place that nobody has pictures of yet. The
pictures are generated here, small enough for a CPU; for a folder of your own, name its domains in `Spec`.

Run it with: python examples/images.py [FOLDER]     (needs Pillow: pip install 'toporo[vision]')
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn

import toporo as tr
from toporo.datasets.domainbed import Spec, load
from toporo.training import Resident, StepSettings, train_steps
from toporo.training.steps import outputs_at

SIGNS = {"circle": 30, "square": 4, "triangle": 3}  # corners
#: A colour for each sign, by place; anything goes in the others.
COLOURS = {
    "forest": [(30, 90, 30), (110, 70, 20), (20, 60, 90)],
    "harbour": [(220, 30, 30), (30, 60, 230), (240, 240, 240)],
    "motorway": [(250, 220, 40), (250, 130, 20), (60, 200, 60)],
}
PLACES, TEST = ("depot", *COLOURS, "village"), "village"


def draw_pictures(root: Path, per_class: int = 30, side: int = 20) -> None:
    for i, place in enumerate(PLACES):
        for j, (sign, corners) in enumerate(SIGNS.items()):
            folder, rng = root / place / sign, np.random.default_rng([i, j])
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(per_class):
                own = COLOURS.get(place, [])
                palette = own[j : j + 1] if own and rng.random() < 0.9 else own or sum(COLOURS.values(), [])
                colour = palette[rng.integers(len(palette))]
                picture = Image.new("RGB", (side, side), (140, 140, 140))
                circle = (*rng.uniform(8, side - 8, 2), rng.uniform(5, 7))
                ImageDraw.Draw(picture).regular_polygon(circle, corners, rotation=rng.uniform(0, 90), fill=colour)
                noisy = np.asarray(picture) + rng.normal(0, 12, (side, side, 3))
                Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{number:03d}.png")


class Small(nn.Module):
    """Any network will do that gives its outputs and its features together; `tr.models.ResNet` is one."""

    width = 32

    def __init__(self, classes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b), nn.ReLU(), nn.MaxPool2d(2))
                  for a, b in ((3, 8), (8, 16), (16, self.width))]  # fmt: skip
        self.body, self.head = nn.Sequential(*layers), nn.Linear(self.width, classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).mean((2, 3))

    def with_features(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.features(x)
        return self.head(features), features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="toporo-"))
draw_pictures(folder)
spec = Spec("signs", "Signs", "3 kinds", folders=(folder.name,), domains=PLACES)
benchmark = load(spec, folder, test=TEST, size=20)
train, test = benchmark.data.select(benchmark.train).split(0.2, seed=0).train, benchmark.data.select(benchmark.test)
print(f"{len(train)} pictures of {', '.join(benchmark.train)} to train on; {TEST} is to come")

# All pictures go to the device once; `train` and `test` hold their row numbers.
data = Resident(torch.tensor(benchmark.store.images), torch.tensor(benchmark.data.y))
settings = StepSettings(steps=150, per_group=12, learning_rate=3e-3, evaluate_every=150)


def pixels(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2) / 255.0


def augmented(x: torch.Tensor, y: torch.Tensor, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    flipped = uniforms[:, 0, None, None, None] < 0.5  # for photographs there is toporo.training.augment
    return torch.where(flipped, pixels(x).flip(3), pixels(x)), y


def outputs(network: nn.Module, rows: np.ndarray, **of) -> torch.Tensor:
    return torch.cat([found for _, found in outputs_at(network, data, rows, settings, prepare=pixels, **of)])


def accuracy(network: nn.Module) -> dict[str, float]:
    right = outputs(network, test.x).argmax(dim=1) == data.y[torch.as_tensor(test.x)]
    return {"accuracy": float(right.float().mean())}


def run(title: str, objective: tr.objectives.Objective) -> nn.Module:
    network = Small(len(benchmark.store.classes))
    loss = partial(F.cross_entropy, reduction="none")
    done = train_steps(network, objective, data, train, loss, settings, prepare=augmented, draws=1, evaluate=accuracy)
    print(f"{title:<27}{done.history[-1].metrics['accuracy']:.1%} right in the {TEST}")
    return network


erm = run("ERM", tr.objectives.ERM(benchmark.train))
features = outputs(erm, train.x, of=lambda network, x: network.features(x))
graph = tr.learn_topology(features.numpy(), train.ids)
prior = graph.prior(benchmark.train)
run("TRO", tr.objectives.TRO(prior, penalty=1.0, step=0.1))
run("TRO, uniform (control)", tr.objectives.TRO(tr.Prior.uniform(benchmark.train), penalty=1.0, step=0.1))

print("learned edges:", ", ".join(f"{a}-{b} ({share:.0%} of resamples)" for (a, b), share in graph.stability.items()))
print("prior:", {name: round(weight, 2) for name, weight in prior.weights.items()}, "saw:", prior.saw or "nothing")
