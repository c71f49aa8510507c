"""Published weights for a ResNet: safetensors files, of one's own or of those that timm knows by name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from toporo.errors import DataError, SettingError, UnknownNameError, listed
from toporo.files import parse_json, write_whole
from toporo.vision.resnet import STYLES, ResNet, Style

#: Where a file says for which style its weights were trained.
STYLE_KEY = "toporo.style"

#: Files that are known but do not say it.
KNOWN_STYLES = {"0404d4618fa78033b33611d81a57b7b736763ae7b8fc272d88ef8e088ed524ce": "caffe"}

#: Blocks in the four layers, and whether they have a third convolution: how a network is told by its tensors' names.
FAMILY: dict[tuple[tuple[int, ...], bool], int] = {
    ((2, 2, 2, 2), False): 18,
    ((3, 4, 6, 3), False): 34,
    ((3, 4, 6, 3), True): 50,
    ((3, 4, 23, 3), True): 101,
    ((3, 8, 36, 3), True): 152,
}

HEAD = ("fc.weight", "fc.bias")
COUNTER = "num_batches_tracked"
VARIANCE = "running_var"
LARGEST_HALF = torch.finfo(torch.float16).max


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors of a trained ResNet and how the network around them is built and fed.

    Attributes
    ----------
    tensors : float32, by torchvision's names.
    style : of the network they were trained in.
    source : the file's name, or e.g. ``"timm:resnet50"``.
    digest : SHA-256 of the file.
    repaired : variances that had overflowed half precision, as ``name[channel]``; each now is the largest number that
        half precision holds. An infinite variance would silence its channel.
    """

    tensors: dict[str, Tensor]
    style: Style
    source: str
    digest: str
    repaired: tuple[str, ...] = ()


def read_weights(source: str | os.PathLike[str], *, depth: int = 50, style: str | None = None) -> Weights:
    """Weights of a ResNet of the given depth.

    Parameters
    ----------
    source : a ``.safetensors`` file, or ``"timm:NAME"`` for the one that timm's authors publish under this name:
        ``"timm:resnet50.tv_in1k"`` holds torchvision's first release, which DomainBed starts from. That needs timm
        and may download.
    depth : of the ResNet that they are for, 18 or 50.
    style : for which the weights were trained, a name in ``STYLES``. By default what the file itself says, then what is
        known of the file, then "torchvision".
    """
    if style is not None and style not in STYLES:
        raise UnknownNameError("style", style, STYLES)
    kind, colon, name = os.fspath(source).partition(":")
    published = bool(colon) and kind in ("timm", "torchvision")
    if published and style not in (None, "torchvision"):
        raise SettingError(f"{source} has the style 'torchvision', not {style!r}: leave the argument out.")
    path = _published_file(kind, name) if published else Path(source)
    data = _bytes(path)
    content, says = _parse(data, path)
    digest = hashlib.sha256(data).hexdigest()
    if style is None:
        style = "torchvision" if published else says or KNOWN_STYLES.get(digest, "torchvision")
    if style not in STYLES:
        raise DataError(
            f"{path} says that its style is {style!r}, which is not known here: pass style=, one of {listed(STYLES)}."
        )
    tensors, repaired = _checked(content, str(path), depth)
    return Weights(tensors, STYLES[style], str(source) if published else path.name, digest, repaired)


def load_weights(network: ResNet, weights: Weights) -> None:
    """Put the weights into the network, in place.

    The last layer is taken where it has the network's shape and otherwise left as it is; all else must fit. Weights
    that do not fit are an error and change nothing.

    Parameters
    ----------
    network : of the depth and style that the weights were trained for, and without group normalisation.
    weights : as :func:`read_weights` gives them.
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
    state: dict[str, Tensor] = network.state_dict()
    _fit(weights.tensors, {name: tuple(tensor.shape) for name, tensor in state.items()}, weights.source, network.depth)
    same_head = all(name in weights.tensors and weights.tensors[name].shape == state[name].shape for name in HEAD)
    with torch.no_grad():
        for name, tensor in weights.tensors.items():
            if same_head or name not in HEAD:
                state[name].copy_(tensor)


def save_weights(network: ResNet, path: str | os.PathLike[str]) -> None:
    """Write a network's weights and style to a ``.safetensors`` file that :func:`read_weights` reads.

    Parameters
    ----------
    network : without group normalisation, in one of the known styles.
    path : the file, which is replaced if it is there.
    """
    if network.norm == "group":
        raise SettingError("weights with norm='group' cannot be read back into a ResNet: expected 'frozen' or 'batch'.")
    if STYLES.get(network.style.name) != network.style:
        raise SettingError(f"a file names its style, one of {listed(STYLES)}; the network has {network.style}.")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    content = save(tensors, metadata={STYLE_KEY: network.style.name})
    write_whole(path, lambda stream: stream.write(content))


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not there"
        raise DataError(f"{path} is {what}: expected a .safetensors file or timm:NAME.")
    data = path.read_bytes()
    # torch.save writes a zip archive, earlier a bare pickle; a header's length may well begin with \x80 too.
    if data.startswith((b"PK\x03\x04", b"\x80")) and data[8:9] != b"{":
        raise DataError(
            f"{path} is a pickle, as torch.save writes it, and reading one can run code: it was not opened. Where you "
            "trust it, convert it once: safetensors.torch.save_file(torch.load(path, weights_only=True), "
            "'weights.safetensors')."
        )
    return data


def _parse(data: bytes, path: Path) -> tuple[dict[str, Tensor], str | None]:
    """The tensors of a safetensors file, and the style that it names."""
    try:
        tensors = load(data)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        why = _damage(data) or str(error).partition("\n")[0]
        raise DataError(f"{path} cannot be read: {why}. Fetch or convert it again.") from None
    return tensors, (_header(data).get("__metadata__") or {}).get(STYLE_KEY)


def _header(data: bytes) -> dict[str, Any]:
    """The JSON at the start: eight bytes of length, then a table of names, types, shapes and places."""
    return msgspec.convert(parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")], "the header"), dict[str, Any])


class _Place(TypedDict):
    """Of an entry in the header, what tells the file's length."""

    data_offsets: tuple[int, Annotated[int, msgspec.Meta(ge=0, lt=2**62)]]


def _damage(data: bytes) -> str | None:
    """Why a file is not one of safetensors, where it is plain to see."""
    size = int.from_bytes(data[:8], "little")
    if data[8:9] == b"{" and len(data) < 8 + size < 100_000_000:
        return f"it is truncated: {len(data)} bytes, of which the header alone wants {8 + size}"
    try:
        entries = {name: entry for name, entry in _header(data).items() if name != "__metadata__"}
        places = msgspec.convert(entries, dict[str, _Place]).values()
    except (DataError, msgspec.ValidationError):
        return f"it is not a safetensors file (it begins with {data[:8]!r})" if data else "it is empty"
    wanted = 8 + size + max((place["data_offsets"][1] for place in places), default=0)
    return f"it is truncated: {len(data)} of {wanted} bytes" if len(data) < wanted else None


def _published_file(kind: str, name: str) -> Path:
    """The safetensors file of timm's authors, downloaded by their own package unless it was before."""
    if kind == "torchvision":
        raise SettingError(
            f"torchvision publishes its weights as pickles, and reading one can run code: they are not read here. Pass "
            f"timm:{name}.tv_in1k, the same weights as a safetensors file (pip install timm), or, where you trust "
            f"them, convert them once: safetensors.torch.save_file(torchvision.models.{name}(weights="
            f"'IMAGENET1K_V1').state_dict(), '{name}.safetensors')."
        )
    timm, hub = _package("timm"), _package("huggingface_hub")
    try:
        place = timm.get_pretrained_cfg(name, allow_unregistered=False).hf_hub_id
        repository, _, revision = (place or "").partition("@")
        file = repository and hub.hf_hub_download(repository, "model.safetensors", revision=revision or None)
    except Exception as error:  # whatever the packages raise
        raise DataError(
            f"timm gave no safetensors file of {name!r} ({type(error).__name__}: {error}). Is the name right, and can "
            "it be downloaded? Otherwise pass the path of a .safetensors file."
        ) from error
    if not file:
        raise DataError(
            f"timm knows {name!r} only as a pickle, and reading one can run code: it was not fetched. Where you trust "
            f"it, convert it once: safetensors.torch.save_file(timm.create_model({name!r}, pretrained=True)"
            f".state_dict(), '{name}.safetensors'), and pass that file."
        )
    return Path(file)


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise SettingError(
            f"weights 'timm:…' need {name}, which is not installed: pip install {name}, or pass the path of a "
            ".safetensors file."
        ) from None


def _checked(content: Mapping[str, Tensor], source: str, depth: int) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The tensors of a ResNet in float32, and which variances had to be repaired."""
    # Sorted, as the reader of safetensors gives tensors in any order.
    kept = {name: content[name] for name in sorted(content) if not name.endswith(COUNTER)}
    expected = dict(_shapes(depth))
    if "conv1.weight" in kept and kept["conv1.weight"].ndim == 4:  # channels are the network's to judge
        expected["conv1.weight"] = (64, kept["conv1.weight"].shape[1], 7, 7)
    _fit(kept, expected, source, depth)
    tensors: dict[str, Tensor] = {}
    repaired: list[str] = []
    for name, tensor in kept.items():
        if not tensor.is_floating_point():
            raise DataError(f"{source}: {name} has the type {tensor.dtype}, expected floating-point numbers.")
        values = tensor.detach().to("cpu", torch.float32, copy=True).contiguous()
        if name.endswith(VARIANCE) and tensor.dtype == torch.float16:
            over = values == torch.inf
            repaired += [f"{name}[{channel}]" for channel in over.nonzero().flatten().tolist()]
            values[over] = LARGEST_HALF
        if not values.isfinite().all():
            raise DataError(f"{source}: {name} holds numbers that are not finite. Fetch or convert it again.")
        if name.endswith(VARIANCE) and (values < 0).any():
            raise DataError(f"{source}: {name} holds variances below 0. Fetch or convert it again.")
        tensors[name] = values
    return tensors, tuple(repaired)


@cache
def _shapes(depth: int) -> Mapping[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in ResNet(1, depth=depth).state_dict().items()}


def _fit(tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], source: str, depth: int) -> None:
    """Every tensor but those of the head has its place and its shape, or an error says what was found instead."""
    family = _family(tensors)
    if family != depth:
        what = f"a ResNet-{family}" if family else f"not a ResNet (tensors {listed(sorted(tensors), 4)})"
        network = f"pass depth={family} (on the command line --network resnet{family}), or other weights"
        advice = network if family in (18, 50) else "pass other weights"
        raise DataError(f"{source} holds {what}, expected a ResNet-{depth}: {advice}.")
    wanted = {name for name in shapes if not name.endswith(COUNTER)} - set(HEAD)
    present = set(tensors) - set(HEAD)
    if wanted != present:
        raise DataError(
            f"{source} is not an ordinary ResNet-{depth}: missing {listed(sorted(wanted - present), 4) or 'nothing'}; "
            f"not expected {listed(sorted(present - wanted), 4) or 'nothing'}."
        )
    wrong = [name for name in sorted(wanted) if tuple(tensors[name].shape) != shapes[name]]
    if wrong:
        name = wrong[0]
        raise DataError(
            f"{source} does not fit: {name} has the shape {tuple(tensors[name].shape)}, expected {shapes[name]}"
            + (f", and {len(wrong) - 1} more differ." if len(wrong) > 1 else ".")
        )
    heads = {name: tuple(tensors[name].shape) for name in HEAD if name in tensors}
    if heads:
        count = next(iter(heads.values()))[:1]
        if heads != {"fc.weight": (*count, shapes["fc.weight"][1]), "fc.bias": count}:
            raise DataError(
                f"{source}: the last layer has the shapes {heads}, expected fc.weight (classes, "
                f"{shapes['fc.weight'][1]}) and fc.bias (classes), or neither."
            )


def _family(names: Mapping[str, Tensor]) -> int | None:
    """The depth of the ResNet with tensors of these names, if it is one."""
    places = {tuple(name.split(".")[:2]) for name in names if name.startswith("layer") and name.count(".") > 1}
    counts = tuple(sum(layer == f"layer{number}" for layer, _ in places) for number in (1, 2, 3, 4))
    return FAMILY.get((counts, "layer1.0.conv3.weight" in names)) if "conv1.weight" in names else None
