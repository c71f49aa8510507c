"""Packed images: the same pixels as the files', decoded once, and again as soon as the files are others."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.paper.tiny_images import CLASSES, write_tiny
from toporo.data import images
from toporo.data.images import MANIFEST, PIXELS, ImageFile, ImageStore, decode_all, find_images, load_packed
from toporo.errors import DataError
from toporo.paper.domainbed import SPECS

SIZE = 16
ONE = Path("photo", "dog", "pic_001.JPEG")


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

    def note(file: ImageFile, size: int) -> np.ndarray | str:
        seen.append(file.name)
        return original(file, size)

    monkeypatch.setattr(images, "_decode_file", note)
    return seen


def load_tiny(cache: Path, source: Path, **options: object) -> ImageStore:
    return load_packed(cache, find_images(source, source), CLASSES, SIZE, **{"progress": False} | options)


def expected(source: Path) -> np.ndarray:
    return decode_all(find_images(source, source), CLASSES, SIZE, progress=False).images


def test_packed_pixels_are_those_of_the_files_and_decoded_once(
    cache: Path, source: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "AT_ONCE", 5)
    store = load_tiny(cache, source)
    assert isinstance(store.images, np.memmap)
    assert not store.images.flags.writeable
    assert store.names == tuple(file.name for file in find_images(source, source))
    assert sorted(decoded) == sorted(store.names)
    assert sorted(path.name for path in cache.iterdir()) == [MANIFEST, PIXELS]
    again = load_tiny(cache, source)
    assert len(decoded) == len(store)
    assert again.digest == store.digest
    for images_ in (store.images, again.images):
        assert_array_equal(images_, expected(source))


def test_a_benchmark_is_the_same_with_a_cache_and_without(tmp_path: Path, source: Path, decoded: list[str]) -> None:
    """Sizes and data sets share a cache."""
    write_tiny(tmp_path / "data", SPECS["vlcs"])
    plain = SPECS["pacs"].load(source.parent, size=SIZE, progress=False)
    decoded.clear()
    for _ in range(2):
        for name, size in (("pacs", SIZE), ("pacs", 20), ("vlcs", SIZE)):
            cached = SPECS[name].load(source.parent, size=size, cache=tmp_path / "c", progress=False)
            if (name, size) == ("pacs", SIZE):
                assert cached.fingerprint == plain.fingerprint
    assert len(decoded) == 3 * 36


def add(source: Path, _: Path) -> None:
    shutil.copy(source / ONE, source / ONE.with_name("pic_009.JPEG"))


def remove(source: Path, _: Path) -> None:
    (source / ONE).unlink()


def rename(source: Path, _: Path) -> None:
    (source / ONE).rename(source / ONE.with_name("pic_000.JPEG"))


def rewrite(source: Path, _: Path) -> None:
    """Another image of the same length."""
    path, other = source / "cartoon" / "dog" / "pic_001.png", source / "cartoon" / "car" / "pic_001.png"
    path.write_bytes(other.read_bytes().ljust(path.stat().st_size, b"\0"))
    os.utime(path, ns=(0, 12345))


def shorten(_: Path, cache: Path) -> None:
    with (cache / PIXELS).open("r+b") as stream:
        stream.truncate(1000)


def lose(_: Path, cache: Path) -> None:
    (cache / PIXELS).unlink()


def garble(_: Path, cache: Path) -> None:
    (cache / MANIFEST).write_text("[" * 100_000)


def another_manifest(_: Path, cache: Path) -> None:
    (cache / MANIFEST).write_text("[1]")


@pytest.mark.parametrize("happen", [add, remove, rename, rewrite, shorten, lose, garble, another_manifest])
def test_other_files_and_damaged_caches_are_packed_again(
    happen: Callable[[Path, Path], None], cache: Path, source: Path, decoded: list[str]
) -> None:
    before = load_tiny(cache, source)
    pixels = np.array(before.images)
    decoded.clear()
    happen(source, cache)
    store = load_tiny(cache, source)
    assert sorted(decoded) == sorted(store.names)
    assert_array_equal(store.images, expected(source))
    if happen is not shorten:
        assert_array_equal(before.images, pixels), "what is in use outlives its replacement"


@pytest.mark.parametrize(("classes", "size"), [(CLASSES, 20), (("a", "b", "c"), SIZE)])
def test_another_size_or_other_classes_are_packed_again(
    classes: tuple[str, ...], size: int, cache: Path, source: Path
) -> None:
    load_tiny(cache, source)
    store = load_packed(cache, find_images(source, source), classes, size, progress=False)
    assert store.images.shape[1:] == (size, size, 3)
    assert store.classes == classes


def test_bad_images_and_interruptions_leave_nothing_that_counts(cache: Path, source: Path, decoded: list[str]) -> None:
    bad = source / "sketch" / "dog" / "pic_003.webp"
    good = bad.read_bytes()
    bad.write_bytes(b"nothing")
    with pytest.raises(DataError, match=str(bad)):
        load_tiny(cache, source)
    bad.write_bytes(good)

    def stop(done: int, total: int) -> None:
        if done == total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_tiny(cache, source, progress=stop)
    assert not list(cache.iterdir())
    assert_array_equal(load_tiny(cache, source).images, expected(source))


def test_a_cache_that_cannot_be_written_to_is_refused(tmp_path: Path, source: Path) -> None:
    (tmp_path / "c").write_text("mine")
    with pytest.raises(DataError, match=r"cannot pack images into .* has room, or none"):
        SPECS["pacs"].load(source, size=SIZE, cache=tmp_path / "c", progress=False)
    assert (tmp_path / "c").read_text() == "mine"


def test_mapped_images_are_not_pickled(cache: Path, source: Path) -> None:
    """Parts of a map are: numpy's maps keep the whole file's name when sliced."""
    store = load_tiny(cache, source)
    content = pickle.dumps(store)
    assert len(content) < store.images.nbytes / 5
    copy = pickle.loads(content)
    assert isinstance(copy.images, np.memmap)
    assert (copy.names, copy.classes, copy.digest) == (store.names, store.classes, store.digest)
    assert_array_equal(copy.images, store.images)
    for rows in (store.images[3:7], store.images[::-1], np.array(store.images)):
        copy = pickle.loads(pickle.dumps(ImageStore(rows, store.names, store.classes, "d")))
        assert_array_equal(copy.images, rows)
