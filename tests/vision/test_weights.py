"""Published weights: read from plain files only, recognised by their tensors, and used in the style they need."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.vision.resnet import STYLES, ResNet
from toporo.vision.weights import KNOWN_STYLES, load_weights, read_weights

FILE = "weights/resnet50_imagenet_fp16.safetensors"


@pytest.fixture(scope="module")
def content():
    """The tensors of a ResNet-18 for five classes; tests change copies of the dict, never its tensors."""
    return ResNet(5, depth=18, seed=3).state_dict()


@pytest.fixture
def write(tmp_path, content):
    """Write the content with changes (None removes a tensor) and return the path."""

    def write(changes=None):
        tensors = {key: value for key, value in (content | (changes or {})).items() if value is not None}
        save_file(tensors, tmp_path / "net.safetensors")
        return tmp_path / "net.safetensors"

    return write


def same(network, tensors):
    """Names of the network's tensors that are equal to these."""
    return {
        name for name, tensor in network.state_dict().items() if torch.equal(tensor, tensors[name].to(tensor.dtype))
    }


# ---------------------------------------------------------------- reading and loading


def test_weights_are_loaded_in_the_networks_precision_and_layout(write, content):
    path = write()
    weights = read_weights(path, depth=18)
    assert weights.source == "net.safetensors"
    assert weights.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert list(weights.tensors) == sorted(weights.tensors)
    network = ResNet(5, depth=18).to(torch.float64, memory_format=torch.channels_last)
    before = dict(network.named_parameters())
    load_weights(network, weights)
    assert same(network, content) == set(content)
    assert all(parameter is before[name] for name, parameter in network.named_parameters())
    assert network.layer1[0].conv1.weight.is_contiguous(memory_format=torch.channels_last)


def test_half_precision_becomes_single_and_overflowed_variances_its_largest_number(write, content):
    halves = {name: tensor.half() for name, tensor in content.items() if tensor.is_floating_point()}
    overflowed = torch.ones(64)
    overflowed[7] = 80_000
    weights = read_weights(write(halves | {"bn1.running_var": overflowed.half()}), depth=18)
    assert {tensor.dtype for tensor in weights.tensors.values()} == {torch.float32}
    assert torch.equal(weights.tensors["conv1.weight"], halves["conv1.weight"].float())
    assert weights.tensors["bn1.running_var"].tolist() == [1.0] * 7 + [65504.0] + [1.0] * 56
    with pytest.raises(DataError, match="not finite"):
        read_weights(write({"bn1.running_mean": overflowed.half()}), depth=18)


@pytest.mark.parametrize("missing", [(), ("fc.weight", "fc.bias"), "counters"])
@pytest.mark.parametrize("outputs", [5, 7])
def test_the_last_layer_is_loaded_only_where_it_fits(write, content, outputs, missing):
    counters = [name for name in content if name.endswith("num_batches_tracked")]
    removed = counters if missing == "counters" else missing
    network = ResNet(outputs, depth=18, seed=9)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    load_weights(network, read_weights(write(dict.fromkeys(removed)), depth=18))
    head = {"fc.weight", "fc.bias"}
    kept = same(network, before)
    assert kept & head == (set() if outputs == 5 and "fc.bias" not in removed else head)
    assert not kept & {"conv1.weight", "layer4.1.conv2.weight"}


def test_the_style_is_the_argument_or_that_of_a_known_file(write, monkeypatch):
    path = write()
    assert read_weights(path, depth=18).style is STYLES["torchvision"]
    monkeypatch.setitem(KNOWN_STYLES, hashlib.sha256(path.read_bytes()).hexdigest(), "caffe")
    assert read_weights(path, depth=18).style is STYLES["caffe"]
    assert read_weights(path, depth=18, style="torchvision").style is STYLES["torchvision"]
    with pytest.raises(UnknownNameError, match=r"'cafe'.*Did you mean 'caffe'"):
        read_weights(path, depth=18, style="cafe")


# ---------------------------------------------------------------- weights of other networks


@pytest.mark.parametrize(
    ("network", "error", "message"),
    [
        ({"depth": 18}, SettingError, r"style 'caffe', the network 'torchvision'.*style=weights\.style"),
        ({"style": STYLES["caffe"]}, DataError, r"does not fit a ResNet-50 .*missing .*network=resnet18"),
        (
            {"depth": 18, "style": STYLES["caffe"], "norm": "group"},
            DataError,
            r"with norm='group': not expected 'bn1.running_mean'",
        ),
        (
            {"depth": 18, "style": STYLES["caffe"], "channels": 2},
            DataError,
            r"for 2 channels .*: of another shape 'conv1.weight'",
        ),
    ],
)
def test_a_network_that_does_not_fit_is_refused_and_unchanged(write, network, error, message):
    network = ResNet(5, **network)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(error, match=message):
        load_weights(network, read_weights(write(), depth=18, style="caffe"))
    assert same(network, before) == set(before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer2.1.bn1.running_mean": None}, r"missing 'layer2.1.bn1.running_mean'\."),
        ({"layer1.0.se.weight": torch.zeros(2)}, r"not expected 'layer1.0.se.weight'\."),
        ({"bn1.bias": torch.zeros(32), "bn1.weight": torch.zeros(32)}, "of another shape 'bn1.bias', 'bn1.weight'"),
        ({"conv1.weight": torch.zeros(64)}, "of another shape 'conv1.weight'"),
        ({"conv1.weight": torch.zeros(0, 10**12, 7, 7)}, "of another shape 'conv1.weight'"),
        ({"bn1.weight": torch.full((64,), torch.nan)}, r"bn1.weight holds numbers that are not finite"),
        ({"bn1.running_var": torch.full((64,), torch.inf)}, r"bn1.running_var holds numbers that are not finite"),
        ({"bn1.running_var": torch.full((64,), -1.0)}, r"bn1.running_var .* or negative"),
    ],
)
def test_tensors_that_do_not_belong_are_named(write, changes, message):
    with pytest.raises(DataError, match=message):
        read_weights(write(changes), depth=18)


def test_another_architecture_is_named(write, tmp_path):
    with pytest.raises(DataError, match=r"does not fit a ResNet-50 .*missing .*--set network=resnet18"):
        read_weights(write())
    with pytest.raises(SettingError, match="depth = 34"):
        read_weights(write(), depth=34)
    save_file({"blocks.0.attn.weight": torch.zeros(2, 2), "cls_token": torch.zeros(2)}, tmp_path / "vit.safetensors")
    with pytest.raises(DataError, match=r"not expected 'blocks\.0\.attn\.weight', 'cls_token'"):
        read_weights(tmp_path / "vit.safetensors")


# ---------------------------------------------------------------- other files


@pytest.mark.parametrize("data", [None, b"", b"\x89HDF\r\n\x1a\n" + b"\0" * 99], ids=["missing", "empty", "hdf"])
def test_other_files_are_refused(tmp_path, data):
    if data is not None:
        (tmp_path / "odd.safetensors").write_bytes(data)
    with pytest.raises(DataError, match=r"odd\.safetensors: .*Expected a \.safetensors file"):
        read_weights(tmp_path / "odd.safetensors")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_is_not_opened(tmp_path, zipped):
    class Trap:
        def __reduce__(self):
            return (tmp_path / "sprung").touch, ()

    torch.save({"fc.bias": Trap()}, tmp_path / "net.pth", _use_new_zipfile_serialization=zipped)
    with pytest.raises(DataError, match=r"a pickle that you trust, convert it once: safetensors\.torch\.save"):
        read_weights(tmp_path / "net.pth")
    assert not (tmp_path / "sprung").exists()


# ---------------------------------------------------------------- the real file

#: Classes of PACS that ImageNet has too, and their numbers in ImageNet.
SHARED = {"dog": range(151, 269), "elephant": (101, 385, 386), "guitar": (402, 546)}


def photos(folder, name, count):
    """Red, green, blue in [0, 1] of pictures spread evenly over a class."""
    files = sorted((folder / "PACS" / "photo" / name).iterdir())
    chosen = files[:: len(files) // count][:count]
    arrays = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in chosen])
    return torch.from_numpy(arrays).permute(0, 3, 1, 2).float() / 255


def test_the_published_weights_classify_photographs_and_need_their_style(real_data):
    """Undoing one of the differences from torchvision's style costs confidence."""
    published = read_weights(real_data / FILE)
    assert published.style is STYLES["caffe"]
    assert torch.equal(published.tensors["fc.weight"], load_file(real_data / FILE)["fc.weight"].float())

    def confidence(style, name, count):
        """Mean logarithm of the probability of the right classes, and number of pictures classified correctly."""
        network = ResNet(1000, style=style)
        load_weights(network, replace(published, style=style))
        probability = network(photos(real_data, name, count)).detach().double().softmax(1)
        right = sum(int(best) in SHARED[name] for best in probability.argmax(1))
        return probability[:, list(SHARED[name])].sum(1).log().mean().item(), right

    style = STYLES["caffe"]
    assert confidence(style, "dog", 3)[1] >= 2
    assert confidence(style, "elephant", 3)[1] >= 2
    expected, right = confidence(style, "guitar", 6)
    assert right >= 4
    for other, loss in (
        (replace(style, strided="conv2"), 0.1),
        (replace(STYLES["torchvision"], strided="conv1", eps=1e-3), 2.0),
    ):
        assert expected - confidence(other, "guitar", 6)[0] > loss
