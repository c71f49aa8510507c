"""DomainBed's folders: every image becomes the row it should be, or the folder is refused with its bad files named."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from PIL import EpsImagePlugin, Image

from tests.paper.tiny_images import CLASSES, write_tiny
from toporo.data import images
from toporo.data.images import Decoded, ImageStore, decode, decode_portions, find_images
from toporo.errors import DataError, DatasetNotFoundError, SettingError, TopoRoWarning, UnknownNameError
from toporo.paper import domainbed
from toporo.paper.domainbed import SPECS, ImageFolder, load, load_images
from toporo.paper.loaded import BenchmarkData

PACS = SPECS["pacs"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a tiny PACS."""
    write_tiny(tmp_path, PACS)
    return tmp_path


def store_of(benchmark: BenchmarkData) -> ImageStore:
    assert isinstance(benchmark.store, ImageStore)
    return benchmark.store


def tiny(folder: Path, **options: object) -> BenchmarkData:
    return load(PACS, folder, **{"size": 16, "progress": False, **options})  # type: ignore[arg-type]


def refused(folder: Path, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        tiny(folder, **options)
    return str(caught.value)


def content(image: Image.Image, kind: str = "png", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)  # type: ignore[arg-type]
    return stream.getvalue()


# ---------------------------------------------------------------------- what is loaded


@pytest.mark.parametrize("name", SPECS)
def test_each_data_set_in_its_published_layout(name: str, tmp_path: Path) -> None:
    spec = SPECS[name]
    write_tiny(tmp_path, spec, per_class=2)
    for number, test in enumerate(spec.domains):
        found = load(spec, tmp_path, test=test, size=16, progress=False)
        assert (found.name, found.task, found.source) == (name, "images", "file")
        assert found.test == (test,)
        assert found.train == spec.domains[:number] + spec.domains[number + 1 :]
        assert found.data.sizes == {domain: 2 * len(CLASSES) for domain in spec.domains}
        assert set(found.graph.groups) == set(spec.domains)
        assert not found.graph.edges
        assert found.about["counts"] == {domain: dict.fromkeys(CLASSES, 2) for domain in spec.domains}
        assert found.about["complete"] is (False if spec.images else None)


def test_the_published_names() -> None:
    """The paper's tables and DomainBed's folders speak of these, in this order."""
    assert {name: (spec.folders[0], spec.domains) for name, spec in SPECS.items()} == {
        "pacs": ("PACS", ("art_painting", "cartoon", "photo", "sketch")),
        "vlcs": ("VLCS", ("Caltech101", "LabelMe", "SUN09", "VOC2007")),
        "terra": ("terra_incognita", ("location_100", "location_38", "location_43", "location_46")),
        "office_home": ("office_home", ("Art", "Clipart", "Product", "Real World")),
    }


def test_rows_carry_their_own_names_targets_and_pixels(data: Path) -> None:
    found = tiny(data)
    store = store_of(found)
    assert list(store.names) == sorted(store.names, key=lambda name: name.split("/"))
    assert_array_equal(found.data.x, np.arange(len(store)))
    assert found.data.x.dtype == found.data.y.dtype == np.int64
    assert store.images.dtype == np.uint8
    for row, name in enumerate(store.names):
        domain, label, _ = name.split("/")
        assert found.data.groups.decode([int(found.data.codes[row])]) == [domain]
        assert store.classes[found.data.y[row]] == label
        with Image.open(data / "PACS" / name) as image:
            assert_array_equal(store.images[row], image.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR))


def test_the_first_domain_is_tested_unless_told(data: Path) -> None:
    assert tiny(data).test == ("art_painting",)


@pytest.mark.parametrize("place", ["", "PACS"])
def test_the_folder_may_be_the_data_folder_or_the_data_sets_own(place: str, data: Path) -> None:
    assert len(tiny(data / place).data) == 4 * len(CLASSES) * 3


def test_the_folder_comes_from_the_environment(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPORO_DATA", str(data))
    assert load(PACS, size=16, progress=False).fingerprint == tiny(data).fingerprint


def test_what_is_no_image_by_name_is_passed_over(data: Path) -> None:
    before = tiny(data).fingerprint
    place = data / "PACS" / "photo"
    for name in ("dog/Thumbs.db", "dog/list.txt", "dog/._pic_001.jpg", "dog/.hidden.png", "readme.md"):
        (place / name).write_bytes(b"not an image")
    (data / "PACS" / "__MACOSX" / "dog").mkdir(parents=True)
    (place / "__MACOSX").mkdir()
    (place / ".cache").mkdir()
    assert tiny(data).fingerprint == before


def test_images_in_folders_of_a_class_folder_are_its_images(data: Path) -> None:
    place = data / "PACS" / "sketch" / "car"
    (place / "more").mkdir()
    shutil.copy(place / "pic_001.webp", place / "more" / "a.webp")
    found = tiny(data)
    assert found.about["counts"]["sketch"]["car"] == 4
    assert "sketch/car/more/a.webp" in store_of(found).names


def test_the_digest_is_of_pixels_names_and_classes(data: Path) -> None:
    first = tiny(data)
    assert store_of(tiny(data, workers=1)).digest == store_of(tiny(data, workers=3)).digest == store_of(first).digest
    assert tiny(data, test="photo").fingerprint != first.fingerprint
    assert store_of(tiny(data, size=17)).digest != store_of(first).digest
    place = data / "PACS" / "photo" / "dog"
    (place / "pic_001.JPEG").rename(place / "pic_000.JPEG")
    renamed = store_of(tiny(data))
    assert_array_equal(renamed.images, store_of(first).images)
    assert renamed.digest != store_of(first).digest


def test_progress_counts_images(data: Path) -> None:
    seen: list[tuple[int, int]] = []
    tiny(data, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(number, 36) for number in range(1, 37)]


def test_a_class_that_a_domain_lacks_is_warned_of(data: Path) -> None:
    """ImageFolder would give the classes after it the wrong numbers there; here they are joined by name."""
    shutil.rmtree(data / "PACS" / "photo" / "car")
    with pytest.warns(TopoRoWarning, match=r"'car' in 'photo'"):
        found = tiny(data)
    assert found.about["counts"]["photo"] == {"bird": 3, "car": 0, "dog": 3}
    rows = found.data.rows("photo")
    assert [store_of(found).classes[target] for target in found.data.y[rows]] == ["bird"] * 3 + ["dog"] * 3


# ---------------------------------------------------------------------- one image


@settings(max_examples=30, deadline=None)
@given(st.integers(8, 24), st.integers(0, 2**32 - 1))
def test_an_image_of_the_size_is_not_touched(size: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    assert_array_equal(decode(content(Image.fromarray(pixels)), size), pixels)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_every_kind_of_image_becomes_three_channels(mode: str) -> None:
    image = Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).convert(mode)
    kind = "tiff" if mode == "CMYK" else "png"
    found = decode(content(image, kind), 12)
    assert_array_equal(found, image.convert("RGB").resize((12, 12), Image.Resampling.BILINEAR))


def test_orientation_marks_are_ignored() -> None:
    """DomainBed reads pixels as they are stored."""
    image = Image.fromarray(np.arange(12 * 8 * 3, dtype=np.uint8).reshape(12, 8, 3))
    exif = Image.Exif()
    exif[0x0112] = 6
    assert_array_equal(decode(content(image, exif=exif), 12), decode(content(image), 12))


def test_portions_are_the_images_in_order(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = find_images(data / "PACS", data)
    whole = next(decode_portions(files, 16, progress=False))
    assert len(whole.pixels) == len(files)
    monkeypatch.setattr(images, "PORTION", 5 * 16 * 16 * 3)
    parts = list(decode_portions(files, 16, progress=False))
    assert [len(part.pixels) for part in parts] == [5] * 7 + [1]
    assert_array_equal(np.concatenate([part.pixels for part in parts]), whole.pixels)
    assert sum((part.checksums for part in parts), ()) == whole.checksums


# ---------------------------------------------------------------------- bad input


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def text(path: Path) -> None:
    path.write_text("<html>404 Not Found</html>")


def nothing(path: Path) -> None:
    path.write_bytes(b"")


def bomb(path: Path) -> None:
    """A few kilobytes that would take gigabytes."""
    Image.new("1", (9000, 9000)).save(path, "png")


def program(path: Path) -> None:
    """What Pillow would have Ghostscript run."""
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")


def nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("gone.jpg"))


@pytest.mark.parametrize(
    ("domain", "ending"), [("art_painting", "jpg"), ("cartoon", "png"), ("photo", "JPEG"), ("sketch", "webp")]
)
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (cut, ""),
        (text, "not an image"),
        (nothing, "empty"),
        (nowhere, "No such file"),
        (bomb, "9000 × 9000 pixels, more than the 67108864 that are decoded"),
        (program, "not an image"),
    ],
)
def test_a_bad_image_is_named(domain: str, ending: str, damage: Callable[[Path], None], why: str, data: Path) -> None:
    path = data / "PACS" / domain / "dog" / f"pic_002.{ending}"
    damage(path)
    message = refused(data)
    assert "1 of 36 image files" in message
    assert f"{path} ({why}" in message


def test_no_program_is_called_for_an_image(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    program(data / "PACS/photo/dog/pic_002.JPEG")
    refused(data)
    assert not (tmp_path / "called").exists()


def test_an_image_for_which_memory_does_not_suffice_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow says so of headers that are wrong, too."""

    def decode(content: bytes, size: int) -> None:
        raise MemoryError

    monkeypatch.setattr(images, "decode", decode)
    assert "pic_001.jpg (more than fits into memory)" in refused(data)


def test_bad_images_are_named_together(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across portions, and without a message of a thousand lines."""
    monkeypatch.setattr(images, "PORTION", 4 * 16 * 16 * 3)
    bad = sorted((data / "PACS").glob("*/car/*"))
    for path in bad:
        text(path)
    message = refused(data)
    assert "12 of 36 image files" in message
    assert [str(path) in message for path in bad] == [True] * 5 + [False] * 7
    assert "(12 in all)" in message


def test_an_empty_class_folder_is_named(data: Path) -> None:
    place = data / "PACS" / "photo" / "car"
    for path in place.iterdir():
        path.rename(path.with_suffix(".txt"))
    message = refused(data)
    assert str(place) in message
    assert "without a single image" in message


def test_a_class_of_one_domain_only_is_named_with_it(data: Path) -> None:
    root = data / "PACS"
    (root / "sketch" / "dog").rename(root / "sketch" / "Dog")
    shutil.copytree(root / "photo" / "car", root / "photo" / "cat")
    message = refused(data)
    assert "'Dog' (in 'sketch')" in message
    assert "'cat' (in 'photo')" in message
    assert "'dog'" not in message


def test_a_missing_domain_folder_is_named_with_those_there(data: Path) -> None:
    (data / "PACS" / "art_painting").rename(data / "PACS" / "art")
    message = refused(data)
    assert "lacks the domain folder(s) 'art_painting'." in message
    assert "It has: 'art', 'cartoon', 'photo', 'sketch'." in message


def test_a_domain_without_class_folders_is_named(data: Path) -> None:
    place = data / "PACS" / "photo"
    shutil.rmtree(place)
    place.mkdir()
    assert f"no class folders in {str(place)!r}" in refused(data)


def test_folders_without_images_are_refused(data: Path) -> None:
    for path in (data / "PACS").glob("*/*/*"):
        path.unlink()
    assert "has no images" in refused(data)


def test_an_unknown_test_domain_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    message = refused(tmp_path / "nowhere", test="Sketch")
    assert "unknown test domain 'Sketch' of pacs" in message
    assert "Did you mean 'sketch'?" in message


def test_images_too_small_are_refused(tmp_path: Path) -> None:
    assert "size is 7: expected images of at least 8 × 8 pixels" in refused(tmp_path, size=7)


def test_no_workers_are_refused(data: Path) -> None:
    with pytest.raises(SettingError, match="workers is 0"):
        tiny(data, workers=0)


@pytest.mark.usefixtures("no_data")
def test_a_data_set_that_is_not_there_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"terra_incognita/ or .*location_100") as caught:
        load(SPECS["terra"], tmp_path)
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(DatasetNotFoundError, match="there is none"):
        load(SPECS["terra"])


@pytest.mark.parametrize(
    ("source", "error", "why"),
    [
        ("generated", SettingError, "cannot be generated"),
        ("published", SettingError, "no published checksum"),
        ("web", UnknownNameError, "'web'"),
    ],
)
def test_sources_that_there_are_not(source: str, error: type[Exception], why: str, data: Path) -> None:
    with pytest.raises(error, match=why):
        tiny(data, source=source)


def test_without_pillow_it_says_how_to_get_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(SettingError, match=r"pip install 'toporo\[vision\]'"):
        tiny(data)


# ---------------------------------------------------------------------- one's own pictures


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Pictures of birds, cars and dogs by three cameras and one to come, with what else lies about in folders."""
    spec = ImageFolder("signs", "Signs", "", ("signs",), ("east", "north", "west", "south"))
    folder = write_tiny(tmp_path, spec)
    (folder / ".cache" / "dog").mkdir(parents=True)
    (folder / "readme.md").write_text("mine")
    return folder


def mine(folder: Path, **options: object) -> BenchmarkData:
    return load_images(folder, **{"test": "south", "size": 16, "progress": False, **options})  # type: ignore[arg-type]


def test_ones_own_pictures_have_the_domains_and_classes_of_their_folders(own: Path) -> None:
    found = mine(own)
    assert (found.name, found.task, found.source) == ("signs", "images", "file")
    assert (found.train, found.test) == (("east", "north", "west"), ("south",))
    assert store_of(found).classes == CLASSES
    assert found.about["counts"] == {d: dict.fromkeys(CLASSES, 3) for d in ("east", "north", "south", "west")}
    for row, name in enumerate(store_of(found).names):
        domain, label, _ = name.split("/")
        assert found.data.groups.decode([int(found.data.codes[row])]) == [domain]
        assert store_of(found).classes[found.data.y[row]] == label


def test_a_published_data_set_is_read_the_same_as_ones_own(data: Path) -> None:
    assert mine(data / "PACS", test="photo").fingerprint == tiny(data, test="photo").fingerprint


def test_several_domains_can_be_held_out(own: Path) -> None:
    found = mine(own, test=["west", "south", "west"])
    assert (found.train, found.test) == (("east", "north"), ("west", "south"))


def test_a_domain_may_be_called_like_its_folder(own: Path) -> None:
    (own / "east").rename(own / "signs")
    assert mine(own).train == ("north", "signs", "west")


def test_ones_own_pictures_are_packed_beside_others(own: Path, tmp_path: Path) -> None:
    cached = mine(own, cache=tmp_path / "cache")
    assert cached.fingerprint == mine(own).fingerprint
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["signs-16"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"test": "sout"},
            DataError,
            r"unknown test domain 'sout' of signs\. Did you mean 'south'\? .*'east', 'north'",
        ),
        ({"test": ["south", "nord"]}, DataError, "unknown test domain 'nord'"),
        ({"test": []}, SettingError, r"no test domain: .*'east', 'north', 'south', 'west'"),
        ({"test": ["east", "north", "west"]}, DataError, r"leaves 1 domain\(s\) to train on .*at least two"),
        ({"size": 4}, DataError, "size is 4"),
        ({"cache": "signs/cache"}, SettingError, "would look like a domain"),
        ({"cache": "signs"}, SettingError, "would look like a domain"),
    ],
)
def test_what_cannot_be_made_of_ones_own_pictures(
    options: dict[str, object], error: type[Exception], message: str, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own.parent)
    there = set(own.rglob("*"))
    with pytest.raises(error, match=message):
        mine(own, **options)
    assert set(own.rglob("*")) == there


def test_a_folder_above_or_below_the_domains_is_recognised(own: Path) -> None:
    with pytest.raises(DataError, match=r"'south' is no domain in .* but a folder in .*signs: give that one"):
        mine(own.parent)
    with pytest.raises(DataError, match=r"no images: expected <domain>/<class>/<image>"):
        mine(own / "east", test="dog")
    with pytest.raises(DataError, match="Valid domains: none: it has no folders"):
        mine(own / "east" / "dog", test="dog")


def test_a_folder_that_is_none_is_refused(own: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"nowhere is not there: expected a folder with <domain>/<class>"):
        mine(own / "nowhere")
    with pytest.raises(DatasetNotFoundError, match=r"readme\.md is a file"):
        mine(own / "readme.md")


def test_one_class_alone_is_nothing_to_tell_apart(own: Path) -> None:
    for path in [*own.glob("*/bird"), *own.glob("*/car")]:
        shutil.rmtree(path)
    with pytest.raises(DataError, match="all images are of one class, 'dog'"):
        mine(own)


# ---------------------------------------------------------------------- the real images


def test_the_real_pacs_is_complete(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All names, targets and counts; decoding all pixels takes too long for a test."""

    def blank(files: list[images.ImageFile], size: int, **options: object) -> Decoded:
        return Decoded(np.broadcast_to(np.uint8(0), (len(files), size, size, 3)), "")

    monkeypatch.setattr(domainbed, "decode_all", blank)
    found = load(PACS, real_data, test="sketch")
    assert found.data.sizes == {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
    assert len(found.data) == 9991
    assert found.about["complete"] is True
    assert found.about["classes"] == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    assert found.about["counts"]["sketch"]["house"] == 80
    assert found.train == ("art_painting", "cartoon", "photo")


def test_a_part_of_the_real_pacs(real_data: Path, tmp_path: Path) -> None:
    """Pixels are the files', and look like what they are of: sketches are grey on white, photos are neither."""
    for place in sorted((real_data / "PACS").glob("*/*")):
        target = tmp_path / "PACS" / place.relative_to(real_data / "PACS")
        target.mkdir(parents=True)
        for file in sorted(place.iterdir())[:2]:
            (target / file.name).symlink_to(file.resolve())
    found = load(PACS, tmp_path, progress=False)
    store = store_of(found)
    assert store.images.shape == (4 * 7 * 2, 224, 224, 3)
    for row in range(0, len(store), 9):
        with Image.open(real_data / "PACS" / store.names[row]) as image:
            assert image.size == (224, 224)
            assert_array_equal(store.images[row], np.asarray(image.convert("RGB")))
    colour = {
        domain: np.ptp(store.images[found.data.rows(domain)].astype(int), axis=3).mean() for domain in PACS.domains
    }
    assert colour["sketch"] < 2 < 10 < colour["photo"]
    assert np.median(store.images[found.data.rows("sketch")]) > 250
