"""Images in folders ``<domain>/<class>/<file>``, of a published data set or of one's own.

The layout and the way images are read are those of DomainBed (Gulrajani & Lopez-Paz, ICLR 2021). Groups are domains;
one or several of them are test groups and the others train. Classes are joined by name across domains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from toporo.data import IMAGE_ENDINGS, GroupedData, ImageFile, ImageStore, decode_all, find_images
from toporo.errors import DataError, DatasetNotFoundError, UnknownNameError, listed, warn
from toporo.paper.loaded import BenchmarkData
from toporo.progress import Report
from toporo.topology import GroupGraph

SMALLEST = 8


@dataclass(frozen=True)
class ImageFolder:
    """A data set of images.

    Attributes
    ----------
    name, title : for the command line and for people.
    folder : name of its folder in a data folder.
    domains : names of its domains, in the order of the published tables.
    """

    name: str
    title: str
    folder: str
    domains: tuple[str, ...]

    def check(self, root: Path) -> str:
        """Return the number of images in the folder."""
        counts = [len(files) for classes in self.find_files(root).values() for files in classes.values()]
        return f"found ({sum(counts):,} images in {len(self.domains)} domains)"

    def find_files(self, root: Path) -> dict[str, dict[str, list[ImageFile]]]:
        """Return image files by domain and class, both in the order of their names."""
        missing = [domain for domain in self.domains if not (root / domain).is_dir()]
        if missing:
            raise DataError(
                f"{root} lacks the domain folder(s) {listed(missing)}. {self.title} has the domains "
                f"{listed(self.domains)}."
            )
        files = {
            domain: {label: find_images(root / domain / label, root) for label in subfolders(root / domain)}
            for domain in sorted(self.domains)
        }
        empty = [str(root / domain) for domain, classes in files.items() if not classes]
        empty += [str(root / domain / label) for domain in files for label, found in files[domain].items() if not found]
        if empty:
            raise DataError(
                f"no images in {listed(empty)}: expected <domain>/<class>/<image>, names ending in "
                f"{', '.join(sorted(IMAGE_ENDINGS))}. Fetch the images again, or delete the class in every domain."
            )
        return files

    def load(
        self, root: Path, *, test: str | Iterable[str], size: int = 224, progress: bool | Report | None = None
    ) -> BenchmarkData:
        """Load the images in a folder; parameters as for :func:`toporo.load_images`.

        Rows are sorted by domain, class and file name; inputs are row numbers in ``store``.
        """
        held_out = (test,) if isinstance(test, str) else tuple(dict.fromkeys(test))
        for domain in held_out:
            if domain not in self.domains:
                raise UnknownNameError(f"test domain of {self.name}", domain, self.domains)
        if size < SMALLEST:
            raise DataError(f"size is {size!r}: expected images of at least {SMALLEST} × {SMALLEST} pixels.")
        found = self.find_files(root)
        classes = _classes(found)
        rows = [
            (domain, classes.index(label), file)
            for domain in found
            for label in sorted(found[domain])
            for file in found[domain][label]
        ]
        domains, targets, files = zip(*rows, strict=True)
        return BenchmarkData(
            name=self.name,
            data=GroupedData.from_arrays(np.arange(len(rows)), np.array(targets, dtype=np.int64), domains),
            graph=GroupGraph(self.domains, {}),
            train=tuple(domain for domain in self.domains if domain not in held_out),
            test=held_out,
            source="file",
            about={"size": size},
            store=_decode(files, classes, size, progress, f"decoding {self.title}"),
        )


def load_images(
    folder: str | os.PathLike[str], *, test: str | Iterable[str], size: int = 224, progress: bool | Report | None = None
) -> BenchmarkData:
    """Load images of your own from a folder ``<domain>/<class>/<file>``: cameras, hospitals, styles, years, …

    Domains and classes are the names of folders; hidden folders and files without an image's ending are ignored. At
    least two domains are needed for training. The checks are those of the published data sets.

    Parameters
    ----------
    folder : contains the domains.
    test : the domain that training never sees, or several.
    size : height and width that images are resized to. All are decoded into memory: the 9,991 images of PACS take
        1.5 GB.
    progress : see :class:`toporo.progress.Progress`.

    Returns
    -------
    BenchmarkData
        ``data`` has the row numbers, classes and domains, ``store`` the pixels and the names of files and classes.

    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as photos:
    ...     for name in ("old", "other", "new"):
    ...         for kind in ("cat", "dog"):
    ...             label = Path(photos, name, kind)
    ...             label.mkdir(parents=True)
    ...             Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(label / "1.png")
    ...     benchmark = load_images(photos, test="new", size=8, progress=False)
    >>> benchmark.train, benchmark.store.classes
    (('old', 'other'), ('cat', 'dog'))
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        what = "is a file" if root.exists() else "is not there"
        raise DatasetNotFoundError(f"{root} {what}: expected a folder with <domain>/<class>/<image> in it.")
    held_out = (test,) if isinstance(test, str) else tuple(test)
    domains = tuple(subfolders(root))
    trained = set(domains).difference(held_out)
    if not held_out or len(trained) < 2:
        raise DataError(
            f"test={held_out!r} leaves {len(trained)} of the domains in {root}, {listed(domains) or 'none'}, to train "
            "on: expected at least one to test on and two to train on, each a folder <domain>/<class>/<image>."
        )
    name = root.resolve().name
    return ImageFolder(name, name, name, domains).load(root, test=held_out, size=size, progress=progress)


def subfolders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder, except hidden ones and those of macOS archives."""
    names = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    return sorted(name for name in names if not name.startswith(".") and name != "__MACOSX")


@lru_cache(maxsize=1)  # the variants of a table, one per test domain, share the images
def _decode(
    files: tuple[ImageFile, ...], classes: tuple[str, ...], size: int, progress: bool | Report | None, title: str
) -> ImageStore:
    return decode_all(files, classes, size, progress=progress, title=title)


def _classes(files: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """Return all classes, sorted; warn if some domains lack one that others have."""
    classes = sorted({label for found in files.values() for label in found})
    if len(classes) == 1:
        raise DataError(f"all images are of one class, {classes[0]!r}: expected at least two.")
    lacking = {label: [domain for domain, found in files.items() if label not in found] for label in classes}
    incomplete = [f"{label} in {listed(domains)}" for label, domains in lacking.items() if domains]
    if incomplete:
        warn(
            f"some domains lack classes that others have: {listed(incomplete)}. Results are of the classes that are "
            "there; check the spelling of the folders, and that the data set is complete."
        )
    return tuple(classes)
