"""Published weights: read from plain files only, told apart by their tensors, and fed the way they were trained."""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save, save_file

from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.files import sha256
from toporo.vision.resnet import STYLES, ResNet
from toporo.vision.weights import KNOWN_STYLES, load_weights, read_weights, save_weights

FILE = "weights/resnet50_imagenet_fp16.safetensors"


@pytest.fixture(scope="module")
def content():
    """The tensors of a ResNet-18 for five classes; tests change copies of the dict, never its tensors."""
    return ResNet(5, depth=18, seed=3).state_dict()


@pytest.fixture
def write(tmp_path, content):
    """Write the content with changes (None takes a tensor away) and return the path."""

    def write(changes=None, metadata=None, name="net.safetensors"):
        tensors = {key: value for key, value in (content | (changes or {})).items() if value is not None}
        save_file(tensors, tmp_path / name, metadata=metadata)
        return tmp_path / name

    return write


def values(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


# Files


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("norm", ["frozen", "batch"])
def test_what_is_saved_is_read_and_loaded_again(tmp_path, style, norm):
    network = ResNet(5, depth=18, style=STYLES[style], norm=norm, seed=3).to(memory_format=torch.channels_last)
    path = tmp_path / "new" / "net.safetensors"
    save_weights(network, path)
    weights = read_weights(path, depth=18)
    assert weights.style is STYLES[style]
    assert weights.source == "net.safetensors"
    assert weights.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert weights.repaired == ()
    assert list(weights.tensors) == sorted(weights.tensors)
    other = ResNet(5, depth=18, style=weights.style, seed=4)
    load_weights(other, weights)
    for name, tensor in network.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    assert [file.name for file in path.parent.iterdir()] == ["net.safetensors"]


def test_half_precision_becomes_single(write, content):
    halves = {name: tensor.half() for name, tensor in content.items() if tensor.is_floating_point()}
    weights = read_weights(write(halves), depth=18)
    assert {tensor.dtype for tensor in weights.tensors.values()} == {torch.float32}
    assert torch.equal(weights.tensors["conv1.weight"], halves["conv1.weight"].float())


def test_loading_keeps_the_networks_precision_layout_and_parameters(write):
    network = ResNet(5, depth=18).to(torch.float64, memory_format=torch.channels_last)
    before = dict(network.named_parameters())
    load_weights(network, read_weights(write(), depth=18))
    for name, parameter in network.named_parameters():
        assert parameter is before[name]
        assert parameter.requires_grad
        assert parameter.dtype == torch.float64
    assert network.layer1[0].conv1.weight.is_contiguous(memory_format=torch.channels_last)


def test_counters_of_batches_may_be_missing(write, content):
    path = write({name: None for name in content if name.endswith("num_batches_tracked")})
    load_weights(ResNet(5, depth=18), read_weights(path, depth=18))


# The last layer


@pytest.mark.parametrize("outputs", [5, 7])
def test_the_last_layer_is_taken_only_where_it_fits(write, content, outputs):
    network = ResNet(outputs, depth=18, seed=9)
    before = values(network)
    load_weights(network, read_weights(write(), depth=18))
    kept = {name for name, tensor in network.state_dict().items() if torch.equal(tensor, before[name])}
    assert torch.equal(network.conv1.weight, content["conv1.weight"])
    assert {"fc.weight", "fc.bias"} & kept == (set() if outputs == 5 else {"fc.weight", "fc.bias"})
    assert "layer4.1.conv2.weight" not in kept


def test_weights_without_a_last_layer_are_taken(write):
    network = ResNet(5, depth=18, seed=9)
    before = network.fc.weight.clone()
    load_weights(network, read_weights(write({"fc.weight": None, "fc.bias": None}), depth=18))
    assert torch.equal(network.fc.weight, before)


@pytest.mark.parametrize(
    "changes", [{"fc.bias": None}, {"fc.bias": torch.zeros(6)}, {"fc.weight": torch.zeros(5, 500)}]
)
def test_half_a_last_layer_is_refused(write, changes):
    with pytest.raises(DataError, match=r"missing 'fc.bias'|fc.* has the shape .*, expected"):
        read_weights(write(changes), depth=18)


# Styles


def test_the_style_is_the_argument_then_what_the_file_says_then_what_is_known_then_torchvision(write, monkeypatch):
    plain, says = write(name="plain.safetensors"), write(metadata={"toporo.style": "caffe"})
    assert read_weights(plain, depth=18).style is STYLES["torchvision"]
    assert read_weights(says, depth=18).style is STYLES["caffe"]
    assert read_weights(says, depth=18, style="torchvision").style is STYLES["torchvision"]
    monkeypatch.setitem(KNOWN_STYLES, read_weights(plain, depth=18).digest, "caffe")
    assert read_weights(plain, depth=18).style is STYLES["caffe"]
    monkeypatch.setitem(KNOWN_STYLES, read_weights(says, depth=18).digest, "torchvision")
    assert read_weights(says, depth=18).style is STYLES["caffe"]


def test_unknown_styles_are_refused(write):
    with pytest.raises(UnknownNameError, match=r"'cafe'.*Did you mean 'caffe'"):
        read_weights(write(), depth=18, style="cafe")
    with pytest.raises(DataError, match="names the style 'tensorflow'"):
        read_weights(write(metadata={"toporo.style": "tensorflow"}), depth=18)


def test_a_network_of_another_style_is_refused_and_left_alone(write):
    """It would run and be wrong: the strides, the variances and the colours differ."""
    network = ResNet(5, depth=18)
    before = values(network)
    with pytest.raises(SettingError, match=r"style 'caffe', the network 'torchvision'.*style=weights\.style"):
        load_weights(network, read_weights(write(), depth=18, style="caffe"))
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_a_style_of_ones_own_is_not_saved_under_a_known_name(tmp_path):
    network = ResNet(5, depth=18, style=replace(STYLES["caffe"], eps=1e-4))
    with pytest.raises(SettingError, match=r"one of 'torchvision', 'caffe'.*eps=0\.0001"):
        save_weights(network, tmp_path / "net.safetensors")
    assert not list(tmp_path.iterdir())


# Weights of something else


def test_another_depth_is_named(write):
    with pytest.raises(DataError, match=r"holds a ResNet-18, expected a ResNet-50: pass depth=18"):
        read_weights(write())
    weights = read_weights(write(), depth=18)
    with pytest.raises(DataError, match=r"holds a ResNet-18, expected a ResNet-50"):
        load_weights(ResNet(5), weights)


def test_a_transformer_is_named_by_its_tensors(tmp_path):
    save_file(
        {"blocks.0.attn.qkv.weight": torch.zeros(2, 2), "cls_token": torch.zeros(2)}, tmp_path / "vit.safetensors"
    )
    with pytest.raises(DataError, match=r"no ResNet known here \(tensors 'blocks.0.attn.qkv.weight', 'cls_token'\)"):
        read_weights(tmp_path / "vit.safetensors")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"layer2.1.bn1.running_mean": None}, r"missing 'layer2.1.bn1.running_mean'; not expected nothing"),
        ({"layer1.0.se.weight": torch.zeros(2)}, r"missing nothing; not expected 'layer1.0.se.weight'"),
        ({"bn1.bias": torch.zeros(32)}, r"bn1.bias has the shape \(32,\), expected \(64,\)\."),
        (
            {"bn1.bias": torch.zeros(32), "bn1.weight": torch.zeros(32)},
            r"bn1.bias has the shape \(32,\), expected \(64,\), and 1 more differ",
        ),
        ({"conv1.weight": torch.zeros(64, 3, 3, 3)}, r"conv1.weight .*\(64, 3, 3, 3\), expected \(64, 3, 7, 7\)"),
        ({"conv1.weight": torch.zeros(64)}, r"conv1.weight has the shape \(64,\)"),
        ({"bn1.weight": torch.ones(64, dtype=torch.int8)}, r"bn1.weight has the type torch.int8"),
        ({"bn1.weight": torch.full((64,), torch.nan)}, r"bn1.weight holds numbers that are not finite"),
        ({"bn1.running_var": torch.full((64,), torch.inf)}, r"bn1.running_var holds numbers that are not finite"),
        (
            {"bn1.running_var": torch.full((64,), -1.0)},
            r"bn1.running_var holds numbers that are not finite, or negative",
        ),
    ],
)
def test_tensors_that_do_not_belong_are_named(write, changes, match):
    with pytest.raises(DataError, match=match):
        read_weights(write(changes), depth=18)


def test_the_number_of_channels_is_the_networks_to_judge(write, tmp_path):
    network = ResNet(5, depth=18, channels=2, seed=3)
    save_weights(network, tmp_path / "two.safetensors")
    weights = read_weights(tmp_path / "two.safetensors", depth=18)
    other = ResNet(5, depth=18, channels=2, seed=4)
    load_weights(other, weights)
    assert torch.equal(other.conv1.weight, network.conv1.weight)
    photos = ResNet(5, depth=18)
    before = values(photos)
    with pytest.raises(DataError, match=r"conv1.weight .*\(64, 2, 7, 7\), expected \(64, 3, 7, 7\)"):
        load_weights(photos, weights)
    assert all(torch.equal(tensor, before[name]) for name, tensor in photos.state_dict().items())


def test_group_normalisation_takes_and_gives_no_weights(write, tmp_path):
    network = ResNet(5, depth=18, norm="group")
    with pytest.raises(SettingError, match="trained with batch normalisation, the network has norm='group'"):
        load_weights(network, read_weights(write(), depth=18))
    with pytest.raises(SettingError, match="norm='group'"):
        save_weights(network, tmp_path / "group.safetensors")


def test_a_depth_that_does_not_exist_is_refused(write):
    with pytest.raises(SettingError, match="depth = 34"):
        read_weights(write(), depth=34)


# Overflow


def test_a_variance_that_overflowed_half_precision_is_repaired_and_named(write, content):
    """Infinite, it would turn its channel off; the largest half is the nearest number that is known to be too small."""
    variance = torch.ones(64)
    variance[7] = 80_000
    weights = read_weights(write({"bn1.running_var": variance.half()}), depth=18)
    assert weights.repaired == ("bn1.running_var[7]",)
    assert weights.tensors["bn1.running_var"][7] == 65504
    assert weights.tensors["bn1.running_var"].sum() == 65504 + 63
    with pytest.raises(DataError, match="not finite"):
        read_weights(write({"bn1.running_mean": variance.half()}), depth=18)


# Files that are none


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.safetensors is not there.*or timm:NAME"):
        read_weights(tmp_path / "none.safetensors")
    with pytest.raises(DataError, match="is a folder"):
        read_weights(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_is_not_opened(tmp_path, zipped):
    class Trap:
        def __reduce__(self):
            return (tmp_path / "sprung").touch, ()

    torch.save({"fc.bias": Trap()}, tmp_path / "net.pth", _use_new_zipfile_serialization=zipped)
    with pytest.raises(DataError, match=r"is a pickle.*not opened.*convert it once: safetensors\.torch\.save"):
        read_weights(tmp_path / "net.pth")
    assert not (tmp_path / "sprung").exists()


def test_a_header_whose_length_begins_like_a_pickle_is_read(tmp_path, content):
    """The first byte of a safetensors file is the low byte of its header's length, and one in 32 is 0x80."""
    padding = (0x80 - save(content, metadata={"padding": ""})[0]) % 256
    data = save(content, metadata={"padding": "." * padding})
    assert data[:1] == b"\x80"
    (tmp_path / "net.safetensors").write_bytes(data)
    assert read_weights(tmp_path / "net.safetensors", depth=18).source == "net.safetensors"


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "not a readable safetensors file"),
        (b"abc", "not a readable safetensors file"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 99, "not a readable safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not a readable safetensors file"),
        ((3).to_bytes(8, "little") + b"[1]", "not a readable safetensors file"),
        ((60_000).to_bytes(8, "little") + b"{" * 60_000, "not a readable safetensors file"),
        ((90_001).to_bytes(8, "little") + b'{"a":' * 18_000 + b"1" * 1, "not a readable safetensors file"),
    ],
)
def test_other_files_are_refused(tmp_path, data, match):
    (tmp_path / "odd.safetensors").write_bytes(data)
    with pytest.raises(DataError, match=match):
        read_weights(tmp_path / "odd.safetensors")


def test_a_type_of_numbers_that_torch_lacks_is_an_error_of_ours(tmp_path):
    header = json.dumps({"conv1.weight": {"dtype": "Q7", "shape": [1], "data_offsets": [0, 1]}}).encode()
    (tmp_path / "odd.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(DataError, match="not a readable safetensors file"):
        read_weights(tmp_path / "odd.safetensors")


#: The longest number that Python reads; one more digit and it does not write it.
LONG = 10**4300 - 1
#: Entries of a header, right and wrong.
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, 1, -1, 8, 2**62, 2**64, LONG, 1.5, "", "F32", "BF16", "F8_E8M0", "Q7", "\ud800", [], [0], [0, 8]]
    ),
)
HEADER = st.dictionaries(
    st.sampled_from(["conv1.weight", "layer1.0.conv1.weight", "__metadata__", ""]),
    st.one_of(
        ODD,
        st.fixed_dictionaries(
            {},
            optional={
                "dtype": st.one_of(ODD, st.sampled_from(["F16", "F32", "I64", "BOOL", "C64", "F4"])),
                "shape": st.one_of(ODD, st.lists(st.sampled_from([0, 1, 2, 2**40, 2**63, -1]), max_size=4)),
                "data_offsets": st.one_of(ODD, st.tuples(st.sampled_from([0, 8]), st.sampled_from([0, 8, LONG]))),
                "toporo.style": ODD,
            },
        ),
    ),
)
CHANGES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)


@example({"conv1.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, LONG]}}, [], 8, 0)
@example({"conv1.weight": {"dtype": "F32", "shape": [2**63, 0], "data_offsets": [0, 0]}}, [], 0, 0)
@given(HEADER, CHANGES, st.sampled_from([0, 8, 16]), st.integers(-9, 9))
@settings(max_examples=300, deadline=None)
def test_whatever_a_file_holds_the_error_is_ours(header, changes, length, wrong):
    text = json.dumps(header).encode()
    data = bytearray((len(text) + (wrong if abs(wrong) > 7 else 0)).to_bytes(8, "little", signed=True) + text)
    data += bytes(length)
    for place, value in changes:
        data[place % len(data)] = value
    with TemporaryDirectory() as folder:
        Path(folder, "odd.safetensors").write_bytes(data)
        with pytest.raises(DataError, match=r"^[^\n]+$"):
            read_weights(Path(folder, "odd.safetensors"), depth=18)


# Packages


@pytest.fixture
def packages(monkeypatch, write):
    """Stand-ins for timm, which knows one network as safetensors and one as a pickle, and for its downloads."""
    places = {"resnet18.a1_in1k": "timm/resnet18.a1_in1k@v2", "resnet18.old": None}
    asked = []

    def get_pretrained_cfg(name, allow_unregistered):
        if name not in places:
            raise RuntimeError(f"Invalid pretrained tag ({name}) for resnet18.")
        return SimpleNamespace(hf_hub_id=places[name])

    def hf_hub_download(repo_id, filename, *, revision):
        asked.append((repo_id, filename, revision))
        return str(write())

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(get_pretrained_cfg=get_pretrained_cfg))
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=hf_hub_download))
    return asked


def test_weights_by_name_are_the_file_that_timm_knows(packages, content, write):
    timm = read_weights("timm:resnet18.a1_in1k", depth=18)
    assert packages == [("timm/resnet18.a1_in1k", "model.safetensors", "v2")]
    assert (timm.source, timm.style) == ("timm:resnet18.a1_in1k", STYLES["torchvision"])
    assert timm.digest == sha256(write())
    assert torch.equal(timm.tensors["layer4.1.conv2.weight"], content["layer4.1.conv2.weight"])


def test_what_a_package_refuses_is_an_error_of_ours(packages):
    with pytest.raises(DataError, match=r"timm gave no safetensors file of 'resnet19' \(RuntimeError: Invalid"):
        read_weights("timm:resnet19", depth=18)
    with pytest.raises(SettingError, match=r"has the style 'torchvision', not 'caffe'"):
        read_weights("timm:resnet18.a1_in1k", depth=18, style="caffe")
    assert packages == []


def test_pickles_are_not_fetched(packages):
    """The error says how to convert one."""
    with pytest.raises(
        DataError, match=r"only as a pickle.*not fetched.*convert it once: safetensors\.torch\.save_file"
    ):
        read_weights("timm:resnet18.old", depth=18)
    assert packages == []


@pytest.mark.parametrize("package", ["timm", "huggingface_hub"])
def test_a_missing_package_says_how_to_go_on(monkeypatch, packages, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingError, match=rf"not installed: pip install {package}, or pass the path"):
        read_weights("timm:resnet50")


# The real file

#: Classes of PACS that ImageNet has too, and which of ImageNet's they are. (Of horses it knows one breed.)
SHARED = {"dog": range(151, 269), "elephant": (101, 385, 386), "guitar": (402, 546)}


def photos(folder, name, count):
    """Red, green, blue in [0, 1], of pictures spread evenly over a class."""
    from PIL import Image

    files = sorted((folder / "PACS" / "photo" / name).iterdir())
    chosen = files[:: len(files) // count][:count]
    arrays = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in chosen])
    return torch.from_numpy(arrays).permute(0, 3, 1, 2).float() / 255


@pytest.fixture
def published(real_data):
    return read_weights(real_data / FILE)


def test_the_published_file_is_known(published, real_data):
    assert published.style is STYLES["caffe"]
    assert published.source == "resnet50_imagenet_fp16.safetensors"
    assert published.repaired == ("bn1.running_var[45]",)
    raw = load_file(real_data / FILE)
    assert torch.equal(published.tensors["fc.weight"], raw["fc.weight"].float())


def test_the_published_weights_know_photographs_and_need_their_style(published, real_data):
    """Each way in which they differ from torchvision's changes what they say, and two cost them confidence."""
    pictures = {name: photos(real_data, name, 6 if name == "guitar" else 3) for name in SHARED}

    def confidence(network, name):
        """The logarithm of the probability given to the right classes, and how many pictures are right."""
        probability = network(pictures[name]).detach().double().softmax(1)
        right = torch.tensor([int(best) in SHARED[name] for best in probability.argmax(1)])
        return probability[:, list(SHARED[name])].sum(1).log().mean().item(), int(right.sum())

    def made(style):
        network = ResNet(1000, style=style)
        load_weights(network, replace(published, style=style))
        return network

    network = made(STYLES["caffe"])
    own = {name: confidence(network, name) for name in SHARED}
    assert own["dog"][1] >= 2
    assert own["elephant"][1] >= 2
    assert own["guitar"][1] >= 4

    style = STYLES["caffe"]
    undone = {
        "strided": replace(style, strided="conv2"),
        "eps": replace(style, eps=1e-5),
        "colours": replace(STYLES["torchvision"], strided="conv1", eps=1e-3),
    }
    loss = {name: own["guitar"][0] - confidence(made(other), "guitar")[0] for name, other in undone.items()}
    assert loss["strided"] > 0.1
    assert loss["colours"] > 2
    assert abs(loss["eps"]) > 1e-4
