"""Published weights of a ResNet, from safetensors files or by timm's names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from toporo.errors import DataError, SettingError, UnknownNameError, listed
from toporo.files import sha256
from toporo.vision.resnet import DEPTHS, STYLES, ResNet, Style

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
    source : name of the file, or e.g. ``"timm:resnet50"``.
    digest : SHA-256 of the file.
    """

    tensors: dict[str, Tensor]
    style: Style
    source: str
    digest: str


def read_weights(source: str | os.PathLike[str], *, depth: int = 50, style: str | None = None) -> Weights:
    """Read the weights of a ResNet.

    Parameters
    ----------
    source : a ``.safetensors`` file, or ``"timm:NAME"`` for the file that timm's authors publish under this name, which
        needs timm and may download: ``"timm:resnet50.tv_in1k"`` is torchvision's first release, as in DomainBed.
    depth : 18 or 50, that of the ResNet.
    style : style of the weights, a name in ``STYLES``. By default that of a known file, else "torchvision".
    """
    if style is not None and style not in STYLES:
        raise UnknownNameError("style", style, STYLES)
    name = os.fspath(source).partition("timm:")[2]
    if name and style not in (None, "torchvision"):
        raise SettingError(f"{source} has the style 'torchvision', not {style!r}: leave the argument out.")
    path = _timm_file(name) if name else Path(source)
    tensors, digest = _checked(_read(path), str(path), depth), sha256(path)
    style = style or ("torchvision" if name else KNOWN_STYLES.get(digest, "torchvision"))
    return Weights(tensors, STYLES[style], str(source) if name else path.name, digest)


def load_weights(network: ResNet, weights: Weights) -> None:
    """Copy weights into a network; those that do not fit are an error and change nothing.

    A last layer with another number of classes is not copied.

    Parameters
    ----------
    network : has the depth and style that the weights were trained for, and no group normalisation.
    weights : result of :func:`read_weights`.
    """
    if network.norm == "group":
        raise SettingError(
            f"{weights.source} was trained with batch normalisation, the network has norm='group': make it with "
            "norm='frozen' or 'batch', or train it from its initial weights."
        )
    if network.style != weights.style:
        raise SettingError(
            f"{weights.source} has the style {weights.style.name!r}, the network {network.style.name!r}: make the "
            "network with style=weights.style."
        )
    _require_fit(weights.tensors, network, weights.source)
    state: dict[str, Tensor] = network.state_dict()
    same_head = all(name in weights.tensors and weights.tensors[name].shape == state[name].shape for name in HEAD)
    with torch.no_grad():
        for name, tensor in weights.tensors.items():
            if same_head or name not in HEAD:
                state[name].copy_(tensor)


def _read(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not there"
        raise DataError(f"{path} is {what}: expected a .safetensors file or timm:NAME.")
    with path.open("rb") as stream:
        start = stream.read(9)
    # torch.save writes a zip archive, earlier a bare pickle; a header's length may begin with \x80 too.
    if start.startswith((b"PK\x03\x04", b"\x80")) and start[8:] != b"{":
        raise DataError(
            f"{path} is a pickle, as torch.save writes it, and reading one can run code: it was not opened. If you "
            "trust it, convert it once: safetensors.torch.save_file(torch.load(path, weights_only=True), "
            "'weights.safetensors')."
        )
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a dict
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        why = str(error).partition("\n")[0]
        raise DataError(f"{path} is not a readable safetensors file ({why}). Fetch or convert it again.") from None


def _timm_file(name: str) -> Path:
    """Return the safetensors file of timm's authors, downloaded by their own package unless it is cached."""
    try:
        timm, hub = import_module("timm"), import_module("huggingface_hub")
    except ImportError as error:
        raise SettingError(
            f"weights 'timm:…' need {error.name}, which is not installed: pip install {error.name}, or pass the path "
            "of a .safetensors file."
        ) from None
    try:
        location = timm.get_pretrained_cfg(name, allow_unregistered=False).hf_hub_id
        repository, _, revision = (location or "").partition("@")
        file = repository and hub.hf_hub_download(repository, "model.safetensors", revision=revision or None)
    except Exception as error:  # whatever the packages raise
        raise DataError(
            f"timm gave no safetensors file of {name!r} ({type(error).__name__}: {error}). Check the name and the "
            "connection, or pass the path of a .safetensors file."
        ) from error
    if not file:
        raise DataError(
            f"timm knows {name!r} only as a pickle, and reading one can run code: it was not fetched. If you trust "
            f"it, convert it once: safetensors.torch.save_file(timm.create_model({name!r}, pretrained=True)"
            f".state_dict(), '{name}.safetensors'), and pass that file."
        )
    return Path(file)


def _checked(content: Mapping[str, Tensor], source: str, depth: int) -> dict[str, Tensor]:
    """Return the tensors of a ResNet in single precision.

    Variances that overflowed half precision become its largest number: infinite, they would silence their channels.
    """
    # Sorted, as safetensors returns tensors in any order.
    kept = {name: content[name] for name in sorted(content) if not name.endswith(COUNTER)}
    first = kept.get("conv1.weight")
    channels = 3
    if first is not None and first.ndim == 4 and first.numel():  # load_weights checks them
        channels = first.shape[1]
    _require_fit(kept, ResNet(1, depth=depth, channels=channels), source)
    tensors: dict[str, Tensor] = {}
    for name, tensor in kept.items():
        if not tensor.is_floating_point():
            raise DataError(f"{source}: {name} has the type {tensor.dtype}, expected floating-point numbers.")
        values = tensor.detach().to("cpu", torch.float32, copy=True).contiguous()
        if name.endswith(VARIANCE) and tensor.dtype == torch.float16:
            values[values == torch.inf] = LARGEST_HALF
        if not values.isfinite().all() or (name.endswith(VARIANCE) and (values < 0).any()):
            raise DataError(
                f"{source}: {name} holds numbers that are not finite, or negative variances. Fetch or convert it again."
            )
        tensors[name] = values
    return tensors


def _require_fit(tensors: Mapping[str, Tensor], network: ResNet, source: str) -> None:
    """Raise unless the tensors have the names and shapes of the network's, except for the number of classes."""
    found, depth = _depth_of(tensors), network.depth
    if found != depth:
        what = f"a ResNet-{found}" if found else f"no ResNet known here (tensors {listed(sorted(tensors), 4)})"
        fit = f"pass depth={found} (on the command line --set network=resnet{found}), or other weights"
        raise DataError(f"{source} holds {what}, expected a ResNet-{depth}: {fit if found else 'pass other weights'}.")
    classes = len(tensors["fc.weight"]) if "fc.weight" in tensors and tensors["fc.weight"].ndim else 0
    state = network.state_dict().items()
    expected = {name: tuple(t.shape) for name, t in state if not name.endswith(COUNTER) and name not in HEAD}
    if set(tensors) & set(HEAD):
        expected |= {"fc.weight": (classes, network.width), "fc.bias": (classes,)}
    if expected.keys() != tensors.keys():
        raise DataError(
            f"{source} is not an ordinary ResNet-{depth}: missing "
            f"{listed(sorted(expected.keys() - tensors.keys()), 4) or 'nothing'}; not expected "
            f"{listed(sorted(tensors.keys() - expected.keys()), 4) or 'nothing'}."
        )
    wrong = [name for name in sorted(expected) if tuple(tensors[name].shape) != expected[name]]
    if wrong:
        more = f", and {len(wrong) - 1} more differ" if len(wrong) > 1 else ""
        raise DataError(
            f"{source} does not fit: {wrong[0]} has the shape {tuple(tensors[wrong[0]].shape)}, expected "
            f"{expected[wrong[0]]}{more}."
        )


def _depth_of(names: Mapping[str, Tensor]) -> int | None:
    """Return the depth of the ResNet with tensors of these names, by the number of blocks of each layer."""
    blocks = {tuple(name.split(".")[:2]) for name in names if name.startswith("layer") and name.count(".") > 1}
    counts = tuple(sum(layer == f"layer{number}" for layer, _ in blocks) for number in (1, 2, 3, 4))
    kind = counts, "layer1.0.conv3.weight" in names
    return next((depth for depth, layers in DEPTHS.items() if layers == kind and "conv1.weight" in names), None)
