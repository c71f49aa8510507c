"""DomainBed's folders: every image becomes the row it should be, or the folder is refused with its bad files named."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from tests.paper.tiny_images import CLASSES, write_tiny
from toporo.data.images import ImageFile, ImageStore, decode
from toporo.errors import DataError, DatasetNotFoundError, TopoRoWarning, UnknownNameError
from toporo.paper import BENCHMARKS, image_folder, load_dataset, load_images
from toporo.paper.domainbed import SPECS
from toporo.paper.image_folder import ImageFolder
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
    return load_dataset("pacs", folder, **{"size": 16, "progress": False, **options})


def refused(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        tiny(folder)
    return str(caught.value)


# ---------------------------------------------------------------------- what is loaded


@pytest.mark.parametrize("name", SPECS)
def test_each_data_set_in_its_published_layout(name: str, tmp_path: Path) -> None:
    spec = SPECS[name]
    write_tiny(tmp_path, spec, per_class=2)
    found = load_dataset(name, tmp_path, test=spec.domains[1], size=16, progress=False)
    assert (found.name, found.source) == (name, "file")
    assert found.test == (spec.domains[1],)
    assert found.train == (spec.domains[0], *spec.domains[2:])
    assert found.data.sizes == dict.fromkeys(spec.domains, 2 * len(CLASSES))
    assert BENCHMARKS[name].state(tmp_path)[1] == "found (24 images in 4 domains)"
    assert load_images(tmp_path / spec.folder, test=found.test, size=16).fingerprint == found.fingerprint


def test_rows_carry_their_own_names_targets_and_pixels(data: Path) -> None:
    found = tiny(data)
    store = store_of(found)
    assert list(store.names) == sorted(store.names, key=lambda name: name.split("/"))
    assert_array_equal(found.data.x, np.arange(len(store)))
    for row, name in enumerate(store.names):
        domain, label, _ = name.split("/")
        assert found.data.ids.names[row] == domain
        assert store.classes[found.data.y[row]] == label
        with Image.open(data / "PACS" / name) as image:
            assert_array_equal(store.images[row], image.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR))
    assert tiny(data, test="photo").store is store, "read once for all domains"


def test_what_is_no_image_by_name_is_passed_over(data: Path) -> None:
    before = tiny(data).fingerprint
    place = data / "PACS" / "photo"
    for name in ("dog/Thumbs.db", "dog/list.txt", "dog/._pic_001.jpg", "dog/.hidden.png", "readme.md"):
        (place / name).write_bytes(b"not an image")
    (data / "PACS" / "__MACOSX" / "dog").mkdir(parents=True)
    (place / "__MACOSX").mkdir()
    (place / ".cache").mkdir()
    assert tiny(data).fingerprint == before


def test_a_class_that_a_domain_lacks_is_warned_of(data: Path) -> None:
    """ImageFolder would give the classes after it the wrong numbers there; here they are joined by name."""
    shutil.rmtree(data / "PACS" / "photo" / "car")
    (data / "PACS/sketch/dog").rename(data / "PACS/sketch/Dog")
    with pytest.warns(TopoRoWarning, match="Dog in 'art_painting'.*car in 'photo'.*dog in 'sketch'.*spelling"):
        found = tiny(data)
    rows = found.data.rows("photo")
    assert [store_of(found).classes[target] for target in found.data.y[rows]] == ["bird"] * 3 + ["dog"] * 3


# ---------------------------------------------------------------------- one image


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_every_kind_of_image_becomes_three_channels(mode: str) -> None:
    image = Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).convert(mode)
    kind = "tiff" if mode == "CMYK" else "png"
    stream = io.BytesIO()
    image.save(stream, kind)
    assert_array_equal(decode(stream.getvalue(), 10), image.convert("RGB"))
    resized = image.convert("RGB").resize((12, 12), Image.Resampling.BILINEAR)
    assert_array_equal(decode(stream.getvalue(), 12), resized)


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
    """A file that Pillow would have Ghostscript run."""
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")


def nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("gone.jpg"))


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
def test_bad_images_are_named(damage: Callable[[Path], None], why: str, data: Path) -> None:
    bad = [next((data / "PACS" / domain / "dog").glob("pic_002.*")) for domain in PACS.domains]
    for path in bad:
        damage(path)
    message = refused(data)
    assert "4 of 36 image files" in message
    assert all(f"{path} ({why}" in message for path in bad)


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.rename(path.with_suffix(".txt"))


FOLDERS: dict[str, Callable[[Path], object]] = {
    "lacks the domain folder.* 'photo'": lambda root: (root / "photo").rename(root / "images"),
    "no images in.*PACS/photo'": lambda root: [shutil.rmtree(folder) for folder in (root / "photo").iterdir()],
    "no images in.*photo/car": lambda root: empty(root / "photo" / "car"),
    "of one class, 'dog'": lambda root: [
        shutil.rmtree(place) for c in ("bird", "car") for place in root.glob(f"*/{c}")
    ],
}


@pytest.mark.parametrize("message", FOLDERS)
def test_folders_that_cannot_be_used_are_named(message: str, data: Path) -> None:
    FOLDERS[message](data / "PACS")
    assert re.search(message, refused(data))


# ---------------------------------------------------------------------- one's own pictures


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"test": "sout"}, UnknownNameError, r"unknown test domain of signs 'sout'\. Did you mean 'south'\?"),
        ({"test": []}, DataError, r"leaves 4 of the domains"),
        ({"size": 7}, DataError, "size is 7: expected images of at least 8 × 8 pixels"),
        ({"test": ["east", "north", "west"]}, DataError, r"leaves 1 of the domains .*at least one .* and two to train"),
        ({"folder": "nowhere"}, DatasetNotFoundError, "nowhere is not there: expected a folder with <domain>/<class>"),
        ({"folder": "signs/readme.md"}, DatasetNotFoundError, r"readme\.md is a file"),
    ],
)
def test_folders_of_ones_own_that_cannot_be_used(
    options: dict[str, object], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny(tmp_path, ImageFolder("signs", "Signs", "signs", ("east", "north", "west", "south")))
    (tmp_path / "signs" / "readme.md").write_text("mine")
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(error, match=message):
        load_images(**{"folder": "signs", "test": "south", "size": 16, "progress": False, **options})
    assert set(tmp_path.rglob("*")) == before


# ---------------------------------------------------------------------- the real images


def test_the_real_pacs_is_complete(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All names, targets and counts; decoding all pixels takes too long for a test."""

    def blank(files: list[ImageFile], classes: tuple[str, ...], size: int, *options: object) -> ImageStore:
        pixels = np.broadcast_to(np.uint8(0), (len(files), size, size, 3))
        return ImageStore(pixels, tuple(file.name for file in files), classes, "")

    monkeypatch.setattr(image_folder, "_decode", blank)
    found = load_dataset("pacs", real_data, test="sketch")
    assert found.data.sizes == {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
    assert len(found.data) == 9991
    assert store_of(found).classes == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    assert found.train == ("art_painting", "cartoon", "photo")
