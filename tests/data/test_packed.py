"""Packed images: the same pixels as the files', made once, and never trusted when they should not be."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.paper.tiny_images import CLASSES, write_tiny
from toporo.data import images
from toporo.data.images import (
    MANIFEST,
    PIXELS,
    ImageFile,
    ImageStore,
    decode_all,
    find_images,
    load_packed,
    open_packed,
    read_manifest,
)
from toporo.errors import DataError
from toporo.paper.domainbed import SPECS

SIZE = 16


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "data", SPECS["pacs"])


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "pacs-16"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were decoded, in order."""
    seen: list[str] = []
    original = images._decode_file

    def note(file: ImageFile, out: np.ndarray) -> object:
        seen.append(file.name)
        return original(file, out)

    monkeypatch.setattr(images, "_decode_file", note)
    return seen


def load_tiny(cache: Path, source: Path, **options: bool) -> ImageStore:
    return load_packed(cache, find_images(source, source), CLASSES, SIZE, progress=False, **options)


def expected(source: Path) -> np.ndarray:
    return decode_all(find_images(source, source), CLASSES, SIZE, progress=False).images


def change(path: Path, *, keep_time: bool = False) -> None:
    """Turn one byte in the middle of a file over."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + (0 if keep_time else 10**9)))


def test_packed_pixels_are_those_of_the_files(cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "PORTION", 5 * SIZE * SIZE * 3)
    store = load_tiny(cache, source)
    assert isinstance(store.images, np.memmap)
    assert not store.images.flags.writeable
    assert_array_equal(store.images, expected(source))
    assert store.names == tuple(file.name for file in find_images(source, source))
    assert sorted(path.name for path in cache.iterdir()) == [MANIFEST, PIXELS]


def test_images_are_decoded_once(cache: Path, source: Path, decoded: list[str]) -> None:
    first = load_tiny(cache, source)
    assert len(decoded) == len(first)
    again = load_tiny(cache, source)
    assert len(decoded) == len(first)
    assert again.digest == first.digest
    assert_array_equal(again.images, first.images)


# ---------------------------------------------------------------------- stale


def add(source: Path) -> None:
    shutil.copy(source / "photo" / "dog" / "pic_001.JPEG", source / "photo" / "dog" / "pic_009.JPEG")


def remove(source: Path) -> None:
    (source / "photo" / "dog" / "pic_001.JPEG").unlink()


def rename(source: Path) -> None:
    (source / "photo" / "dog" / "pic_001.JPEG").rename(source / "photo" / "dog" / "pic_000.JPEG")


def lengthen(source: Path) -> None:
    path = source / "photo" / "dog" / "pic_001.JPEG"
    times = path.stat()
    path.write_bytes(path.read_bytes() + b"more")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def swap(source: Path) -> None:
    """Another image under the name, of the same length."""
    path = source / "cartoon" / "dog" / "pic_001.png"
    other = (source / "cartoon" / "car" / "pic_001.png").read_bytes()
    length = path.stat().st_size
    path.write_bytes(other[:length].ljust(length, b"\0"))
    os.utime(path, ns=(0, 12345))


@pytest.mark.parametrize("happen", [add, remove, rename, lengthen])
def test_other_files_are_packed_again(
    happen: Callable[[Path], None], cache: Path, source: Path, decoded: list[str]
) -> None:
    load_tiny(cache, source)
    decoded.clear()
    happen(source)
    store = load_tiny(cache, source)
    assert decoded == list(store.names)
    assert_array_equal(store.images, expected(source))
    assert store.names == tuple(file.name for file in find_images(source, source))


def test_another_image_of_the_same_length_is_packed_again(cache: Path, source: Path) -> None:
    one, two = (source / "cartoon" / label / "pic_001.png" for label in ("dog", "car"))
    length = max(one.stat().st_size, two.stat().st_size)
    for path in (one, two):  # what follows the end of a PNG does not matter
        path.write_bytes(path.read_bytes().ljust(length, b"\0"))
    before = load_tiny(cache, source)
    swap(source)
    after = load_tiny(cache, source)
    row = after.names.index("cartoon/dog/pic_001.png")
    assert_array_equal(after.images[row], after.images[after.names.index("cartoon/car/pic_001.png")])
    assert after.digest != before.digest


def test_a_copied_data_set_is_not_packed_again(cache: Path, source: Path, decoded: list[str]) -> None:
    """Copies have new times; the files are compared by checksum once, then the new times are known."""
    load_tiny(cache, source)
    for number, path in enumerate(source.glob("*/*/*")):
        os.utime(path, ns=(0, 10**9 * number))
    decoded.clear()
    load_tiny(cache, source)
    assert not decoded
    assert read_manifest(cache).modified == tuple(file.modified for file in find_images(source, source))


@pytest.mark.parametrize(("classes", "size"), [(CLASSES, 20), (("a", "b", "c"), SIZE)])
def test_another_size_or_other_classes_are_packed_again(
    classes: tuple[str, ...], size: int, cache: Path, source: Path
) -> None:
    load_tiny(cache, source)
    store = load_packed(cache, find_images(source, source), classes, size, progress=False)
    assert store.images.shape[1:] == (size, size, 3)
    assert store.classes == classes


def test_pixels_in_use_outlive_their_replacement(cache: Path, source: Path) -> None:
    store = load_tiny(cache, source)
    before = np.array(store.images)
    remove(source)
    load_tiny(cache, source)
    assert_array_equal(store.images, before)


# ---------------------------------------------------------------------- corrupt


def shorten(cache: Path) -> None:
    with (cache / PIXELS).open("r+b") as stream:
        stream.truncate(1000)


def flip(cache: Path) -> None:
    change(cache / PIXELS)


def lose(cache: Path) -> None:
    (cache / PIXELS).unlink()


def garble(cache: Path) -> None:
    (cache / MANIFEST).write_text("{")


def lie(cache: Path) -> None:
    content = json.loads((cache / MANIFEST).read_text())
    content["names"][0] = "photo/dog/another.png"
    (cache / MANIFEST).write_text(json.dumps(content))


def another_schema(cache: Path) -> None:
    content = json.loads((cache / MANIFEST).read_text())
    (cache / MANIFEST).write_text(json.dumps({**content, "schema": "toporo.packed/0"}))


def a_list(cache: Path) -> None:
    (cache / MANIFEST).write_text("[]")


def forge(cache: Path, **changes: object) -> None:
    """Change entries, and the digest so that it agrees with them."""
    content = json.loads((cache / MANIFEST).read_text()) | changes
    parts = [content[key] for key in ("pixels", "size", "names", "classes")]
    (cache / MANIFEST).write_text(json.dumps(content | {"digest": images.image_digest(*parts)}))


def turn(cache: Path) -> None:
    forge(cache, size=-json.loads((cache / MANIFEST).read_text())["size"])


def count_names(cache: Path) -> None:
    forge(cache, names=list(range(len(json.loads((cache / MANIFEST).read_text())["names"]))))


def one_text(cache: Path) -> None:
    forge(cache, classes="abc")


def deep(cache: Path) -> None:
    (cache / MANIFEST).write_text("[" * 100_000)


def long_number(cache: Path) -> None:
    (cache / MANIFEST).write_text('{"size": ' + "9" * 5000 + "}")


DAMAGES = [shorten, flip, lose, garble, lie, another_schema, a_list, turn, count_names, one_text, deep, long_number]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_named_and_packed_again(damage: Callable[[Path], None], cache: Path, source: Path) -> None:
    load_tiny(cache, source)
    damage(cache)
    with pytest.raises(DataError, match=f"(?s){cache}.*Delete {cache}"):
        open_packed(cache)
    assert_array_equal(load_tiny(cache, source).images, expected(source))
    open_packed(cache, verify=True)


def test_damage_that_kept_the_time_is_found_when_asked(cache: Path, source: Path) -> None:
    load_tiny(cache, source)
    change(cache / PIXELS, keep_time=True)
    open_packed(cache)
    with pytest.raises(DataError, match="corrupt: its sha256 is"):
        open_packed(cache, verify=True)
    assert_array_equal(load_tiny(cache, source, verify=True).images, expected(source))


def test_the_length_is_compared_at_every_opening(cache: Path, source: Path) -> None:
    load_tiny(cache, source)
    times = (cache / PIXELS).stat()
    shorten(cache)
    os.utime(cache / PIXELS, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DataError, match=r"has 1000 bytes, expected 27648 for 36 images of 16 × 16"):
        open_packed(cache)


def test_the_checksum_is_computed_at_the_first_opening_only(
    cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images.pack(cache, find_images(source, source), CLASSES, SIZE, progress=False)
    assert read_manifest(cache).checked is None
    seen: list[Path] = []
    original = images.sha256
    monkeypatch.setattr(images, "sha256", lambda path: seen.append(path) or original(path))
    for _ in range(3):
        load_tiny(cache, source)
    assert seen == [cache / PIXELS]


def test_a_folder_of_something_else_is_not_packed_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder of packed images"):
        open_packed(tmp_path, verify=True)


# ---------------------------------------------------------------------- writing


def test_bad_images_leave_what_was_packed_before(cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions before the bad file are already written then."""
    monkeypatch.setattr(images, "PORTION", 4 * SIZE * SIZE * 3)
    before = load_tiny(cache, source)
    bad = source / "sketch" / "dog" / "pic_003.webp"
    good = bad.read_bytes()
    bad.write_bytes(b"nothing")
    with pytest.raises(DataError, match=str(bad)):
        load_tiny(cache, source)
    assert sorted(path.name for path in cache.iterdir()) == [MANIFEST, PIXELS]
    assert open_packed(cache, verify=True).digest == before.digest
    bad.write_bytes(good)
    assert load_tiny(cache, source).digest == before.digest


@pytest.mark.parametrize("before", ["", "cache", "cache/pacs-16"])
def test_bad_images_leave_no_folder_that_was_not_there(before: str, tmp_path: Path, cache: Path, source: Path) -> None:
    (tmp_path / before).mkdir(parents=True, exist_ok=True)
    (source / "sketch" / "dog" / "pic_003.webp").write_bytes(b"nothing")
    there = set(tmp_path.rglob("*"))
    with pytest.raises(DataError, match="pic_003"):
        load_tiny(cache, source)
    assert set(tmp_path.rglob("*")) == there


def test_bad_images_leave_what_others_have_put_there_meanwhile(cache: Path, source: Path) -> None:
    (source / "sketch" / "dog" / "pic_003.webp").write_bytes(b"nothing")

    def other(done: int, total: int) -> None:
        (cache.parent / "vlcs-16").mkdir(exist_ok=True)

    with pytest.raises(DataError, match="pic_003"):
        load_packed(cache, find_images(source, source), CLASSES, SIZE, progress=other)
    assert [path.name for path in cache.parent.iterdir()] == ["vlcs-16"]


def test_an_interruption_leaves_nothing_half_written(cache: Path, source: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == total // 2:
            raise KeyboardInterrupt

    files = find_images(source, source)
    with pytest.raises(KeyboardInterrupt):
        load_packed(cache, files, CLASSES, SIZE, progress=stop)
    assert not cache.parent.exists(), "nor the folders made for it"


def test_new_pixels_are_not_taken_for_those_of_an_old_manifest(
    cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends between the two files leaves a folder that counts as empty."""
    load_tiny(cache, source)
    remove(source)

    def die(folder: Path, manifest: images.Manifest) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(images, "_write_manifest", die)
        with pytest.raises(KeyboardInterrupt):
            load_tiny(cache, source)
    assert [path.name for path in cache.iterdir()] == [PIXELS]
    assert_array_equal(load_tiny(cache, source).images, expected(source))


def test_the_log_says_why_images_are_packed_again(cache: Path, source: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_tiny(cache, source)
    add(source)
    with caplog.at_level(logging.INFO, "toporo"):
        load_tiny(cache, source)
    assert "1 are new or changed, 0 are gone)" in caplog.text
    assert "Delete" not in caplog.text


def test_half_written_files_of_the_dead_are_removed(cache: Path, source: Path) -> None:
    cache.mkdir(parents=True)
    old = cache / f".{PIXELS}.1234.part"
    old.write_bytes(b"half")
    load_tiny(cache, source)
    assert not old.exists()


def test_too_little_room_is_said_before_decoding(
    cache: Path, source: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")(10**9, 10**9 - 1000, 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataError, match=r"only 0\.00 GB are free"):
        load_tiny(cache, source)
    assert not decoded
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_to_is_still_read(
    cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_tiny(cache, source)
    os.utime(cache / PIXELS, ns=(0, 0))

    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(images, "write_text", refuse)
    assert load_tiny(cache, source).digest == before.digest


# ---------------------------------------------------------------------- copies for other processes


def test_mapped_images_are_not_pickled(cache: Path, source: Path) -> None:
    store = load_tiny(cache, source)
    content = pickle.dumps(store)
    assert len(content) < store.images.nbytes / 5
    copy = pickle.loads(content)
    assert isinstance(copy.images, np.memmap)
    assert (copy.names, copy.classes, copy.digest) == (store.names, store.classes, store.digest)
    assert_array_equal(copy.images, store.images)


def test_a_part_of_mapped_images_and_images_in_memory_are_pickled_as_they_are(cache: Path, source: Path) -> None:
    """numpy's maps keep the whole file's name and offset when sliced: reopening would give other images."""
    store = load_tiny(cache, source)
    for rows in (store.images[3:7], store.images[::-1], np.array(store.images)):
        copy = pickle.loads(pickle.dumps(ImageStore(rows, store.names, store.classes, "d")))
        assert_array_equal(copy.images, rows)


def test_a_copy_does_not_map_other_pixels_than_it_was_made_of(cache: Path, source: Path) -> None:
    content = pickle.dumps(load_tiny(cache, source))
    change(cache / PIXELS)
    with pytest.raises(DataError, match="load the data set again"):
        pickle.loads(content)
