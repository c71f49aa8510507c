"""Images in folders ``<domain>/<class>/<file>``, of a published data set or of one's own.

The layout and the way images are read are those of DomainBed (Gulrajani & Lopez-Paz, ICLR 2021). Groups are domains;
one or several of them are test groups and the others train. Classes are joined by name across domains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from toporo.data import IMAGE_ENDINGS, GroupedData, ImageFile, decode_all, find_images, load_packed
from toporo.errors import DataError, DatasetNotFoundError, SettingError, UnknownNameError, listed, warn
from toporo.paper.loaded import BenchmarkData, FileState, check_source, find_data
from toporo.progress import Report
from toporo.topology import GroupGraph

SMALLEST = 8


@dataclass(frozen=True)
class ImageFolder:
    """A data set of images, and where it is in a data folder.

    Attributes
    ----------
    name, title : for the command line and for people.
    folder : name of its folder in a data folder.
    domains : names of its domains, in the order of the published tables.
    images : number of published images by domain; empty where releases differ.
    """

    name: str
    title: str
    folder: str
    domains: tuple[str, ...]
    images: Mapping[str, int] = field(default_factory=dict)

    @property
    def how_to_get(self) -> str:
        """Advice for getting the images."""
        return (
            "DomainBed's download script gets it; its images go into the data folder as "
            f"{self.folder}/<domain>/<class>/<image>, with the domains {listed(self.domains)}."
        )

    def find(self, folder: Path) -> Path | None:
        """Return the folder with the domains: the one in a data folder, or the given one itself."""
        if (folder / self.folder).is_dir():
            return folder / self.folder
        return folder if any((folder / domain).is_dir() for domain in self.domains) else None

    def file_states(self, folder: Path | None) -> list[FileState]:
        """Return the state of the folder, with the number of its images."""
        root = self.find(folder) if folder is not None else None
        if root is None:
            state = f"absent (toporo data get {self.name} says how to get it)"
            return [(f"{self.folder}/<domain>/<class>/<image>", state)]
        try:
            counts = {domain: sum(map(len, by.values())) for domain, by in self.find_files(root).items()}
        except DataError as error:
            return [(str(root), f"damaged ({error})")]
        published = ", as many per domain as published" if counts == self.images else ""
        if self.images and not published:
            published = f"; {sum(self.images.values()):,} were published"
        return [(str(root), f"found ({sum(counts.values()):,} images in {len(counts)} domains{published})")]

    def find_files(self, root: Path) -> dict[str, dict[str, list[ImageFile]]]:
        """Return image files by domain and class, both in the order of their names."""
        missing = [domain for domain in self.domains if not (root / domain).is_dir()]
        if missing:
            raise DataError(
                f"{root} lacks the domain folder(s) {listed(missing)}. It has: "
                f"{listed(_subfolders(root)) or 'no folders'}. {self.title} has the domains {listed(self.domains)}."
            )
        files = {
            domain: {label: find_images(root / domain / label, root) for label in _subfolders(root / domain)}
            for domain in sorted(self.domains)
        }
        bare = [str(root / domain) for domain, by in files.items() if not by]
        empty = [str(root / domain / label) for domain, by in files.items() for label in by if not by[label]]
        if bare or empty:
            lacks = (
                f"no class folders in {listed(bare)}" if bare else f"no image in the class folder(s) {listed(empty)}"
            )
            raise DataError(
                f"{lacks}: expected <domain>/<class>/<image>, names ending in {', '.join(sorted(IMAGE_ENDINGS))}. "
                "Fetch the images again, or delete the class in every domain."
            )
        return files

    def load(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        source: str = "auto",
        test: str | None = None,
        size: int = 224,
        cache: str | os.PathLike[str] | None = None,
        workers: int | None = None,
        progress: bool | Report | None = None,
    ) -> BenchmarkData:
        """Load the benchmark from its folder in a data folder (``folder``, else ``$TOPORO_DATA``, else the cache).

        Rows are sorted by domain, class and file name; inputs are row numbers in ``store``.

        Parameters
        ----------
        folder : the data folder, or the data set's own.
        test : the domain that training never sees; by default the first.
        size, cache, workers, progress : see :func:`toporo.load_images`.
        """
        check_source(self.name, source, ("auto", "file"), self.how_to_get)
        root = find_data(self.name, folder, self.find, f"{self.folder}/", self.how_to_get)
        return self.read(root, (test or self.domains[0],), size, cache, workers, progress)

    def read(
        self,
        root: Path,
        test: tuple[str, ...],
        size: int,
        cache: str | os.PathLike[str] | None,
        workers: int | None,
        progress: bool | Report | None,
    ) -> BenchmarkData:
        """Read the images in a folder; parameters as for :func:`toporo.load_images`."""
        for domain in test:
            if domain not in self.domains:
                raise UnknownNameError(f"test domain of {self.name}", domain, self.domains)
        if size < SMALLEST:
            raise DataError(f"size is {size!r}: expected images of at least {SMALLEST} × {SMALLEST} pixels.")
        found = self.find_files(root)
        classes = _classes(found)
        rows = [
            (domain, label, file)
            for domain in found
            for label in sorted(found[domain])
            for file in found[domain][label]
        ]
        files, title = [file for _, _, file in rows], f"decoding {self.title}"
        if cache is not None:
            packed = Path(cache).expanduser() / f"{self.name}-{size}"
            store = load_packed(packed, files, classes, size, workers=workers, progress=progress, title=title)
        else:
            store = decode_all(files, classes, size, workers=workers, progress=progress, title=title)
        targets = np.array([classes.index(label) for _, label, _ in rows], dtype=np.int64)
        data = GroupedData.from_arrays(np.arange(len(rows)), targets, [domain for domain, _, _ in rows])
        return BenchmarkData(
            name=self.name,
            data=data,
            graph=GroupGraph(self.domains, {}),
            train=tuple(domain for domain in self.domains if domain not in test),
            test=test,
            source="file",
            task="images",
            about={"size": size, "complete": data.sizes == dict(self.images) if self.images else None},
            store=store,
        )


def load_images(
    folder: str | os.PathLike[str],
    *,
    test: str | Iterable[str],
    size: int = 224,
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool | Report | None = None,
) -> BenchmarkData:
    """Load images of your own from a folder ``<domain>/<class>/<file>``: cameras, hospitals, styles, years, …

    Domains and classes are the names of folders; hidden folders and files without an image's ending are ignored. At
    least two domains are needed for training. The checks are those of the published data sets.

    Parameters
    ----------
    folder : contains the domains.
    test : the domain that training never sees, or several.
    size : height and width that images are resized to.
    cache : a folder, not in ``folder``, for decoded images. They are packed there once, as ``<name of folder>-<size>``,
        and mapped from then on; see :mod:`toporo.data.images`. Without it they are decoded into memory (the 9,991
        images of PACS take 1.5 GB).
    workers : number of threads that decode; one per core by default.
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
    if cache is not None and Path(cache).expanduser().resolve().is_relative_to(root.resolve()):
        raise SettingError(f"the cache {cache} is in {root}, where it would look like a domain: name another folder.")
    held_out = tuple(dict.fromkeys([test] if isinstance(test, str) else test))
    name, domains = root.resolve().name, tuple(_subfolders(root))
    trained = set(domains) - set(held_out)
    if not held_out or len(trained) < 2:
        raise DataError(
            f"test={held_out!r} leaves {len(trained)} of the domains in {root}, "
            f"{listed(domains) or 'none'}, to train on: expected at least one to test on and two to train on, each a "
            "folder <domain>/<class>/<image>."
        )
    return ImageFolder(name, name, name, domains).read(root, held_out, size, cache, workers, progress)


def _subfolders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder, except hidden ones and those of macOS archives."""
    names = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    return sorted(name for name in names if not name.startswith(".") and name != "__MACOSX")


def _classes(files: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """Return all classes, sorted; raise an error if only one domain has a class, and warn if some domains lack one."""
    classes = sorted({label for by in files.values() for label in by})
    if len(classes) == 1:
        raise DataError(f"all images are of one class, {classes[0]!r}: expected at least two.")
    having = {label: [domain for domain, by in files.items() if label in by] for label in classes}
    single = [f"{label} (in {domains[0]})" for label, domains in having.items() if len(domains) == 1]
    if single:
        raise DataError(
            f"class(es) that only one of the domains {listed(files)} has: {listed(single)}. No other domain can train "
            "or test them: check the spelling of the folders, add them to the other domains, or delete them."
        )
    lacking = {label: [domain for domain in files if domain not in domains] for label, domains in having.items()}
    incomplete = [f"{label} in {listed(domains)}" for label, domains in lacking.items() if domains]
    if incomplete:
        warn(
            f"some domains lack classes that others have: {listed(incomplete)}. Results are of the classes that are "
            "there; check that the data set is complete."
        )
    return tuple(classes)
