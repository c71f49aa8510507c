"""Published weights of a ResNet, from safetensors files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from toporo.checks import one_of
from toporo.errors import DataError, SettingError, listed
from toporo.files import sha256
from toporo.training.checkpoint import read_tensors
from toporo.vision.resnet import STYLES, ResNet, Style

#: Styles of known files, by checksum.
KNOWN_STYLES = {"0404d4618fa78033b33611d81a57b7b736763ae7b8fc272d88ef8e088ed524ce": "caffe"}

HEAD = ("fc.weight", "fc.bias")
COUNTER = "num_batches_tracked"
VARIANCE = "running_var"
LARGEST_HALF = torch.finfo(torch.float16).max


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors of a trained ResNet and the style of network they need.

    Attributes
    ----------
    tensors : float32, by torchvision's names.
    style : of the network they were trained in.
    source : name of the file.
    digest : SHA-256 of the file.
    """

    tensors: dict[str, Tensor]
    style: Style
    source: str
    digest: str


def read_weights(source: str | os.PathLike[str], *, depth: int = 50, style: str | None = None) -> Weights:
    """Read the weights of a ResNet for images in colour.

    Parameters
    ----------
    source : a ``.safetensors`` file with torchvision's names of tensors, which are timm's too.
    depth : 18 or 50, that of the ResNet.
    style : style of the weights, a name in ``STYLES``. By default that of a known file, else "torchvision".
    """
    if style is not None:
        one_of(style, "style", STYLES)
    path = Path(source)
    try:
        content, _ = read_tensors(path)
    except (FileNotFoundError, DataError) as error:
        raise DataError(
            f"weights from {path}: {error} Expected a .safetensors file. If it is a pickle that you trust, convert it "
            "once: safetensors.torch.save_file(torch.load(path, weights_only=True), 'weights.safetensors')."
        ) from None
    tensors = {name: _exact(content[name], name, path) for name in sorted(content) if not name.endswith(COUNTER)}
    digest = sha256(path)
    weights = Weights(tensors, STYLES[style or KNOWN_STYLES.get(digest, "torchvision")], path.name, digest)
    load_weights(ResNet(1, depth=depth, style=weights.style), weights)  # those that do not fit are an error now
    return weights


def load_weights(network: ResNet, weights: Weights) -> None:
    """Copy weights into a network; those that do not fit are an error and change nothing.

    A last layer with another number of classes is not copied.

    Parameters
    ----------
    network : has the depth and style that the weights were trained for, and no group normalisation.
    weights : result of :func:`read_weights`.
    """
    if network.style != weights.style:
        raise SettingError(
            f"{weights.source} has the style {weights.style.name!r}, the network {network.style.name!r}: make the "
            "network with style=weights.style."
        )
    found = weights.tensors
    state: dict[str, Tensor] = network.state_dict()
    body = {name for name in state if not name.endswith(COUNTER) and name not in HEAD}
    problems = {
        "missing": body - found.keys(),
        "not expected": found.keys() - body - set(HEAD),
        "of another shape": {name for name in body & found.keys() if found[name].shape != state[name].shape},
    }
    if any(problems.values()):
        what = "; ".join(f"{problem} {listed(sorted(names), 4)}" for problem, names in problems.items() if names)
        raise DataError(
            f"{weights.source} does not fit a ResNet-{network.depth} for {network.channels} channels with "
            f"norm={network.norm!r}: {what}. Give the network that it was trained in (on the command line --set "
            "network=resnet18), or other weights."
        )
    same_head = all(name in found and found[name].shape == state[name].shape for name in HEAD)
    with torch.no_grad():
        for name in (*body, *(HEAD if same_head else ())):
            state[name].copy_(found[name])


def _exact(tensor: Tensor, name: str, path: Path) -> Tensor:
    """Return a tensor in single precision, without numbers that no network can use.

    Variances that overflowed half precision become its largest number: infinite, they would silence their channels.
    """
    values = tensor.to(torch.float32, copy=True).contiguous()
    if name.endswith(VARIANCE) and tensor.dtype == torch.float16:
        values[values == torch.inf] = LARGEST_HALF
    if not values.isfinite().all() or (name.endswith(VARIANCE) and (values < 0).any()):
        raise DataError(
            f"{path}: {name} holds numbers that are not finite, or negative variances. Fetch or convert it again."
        )
    return values
