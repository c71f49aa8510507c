"""PACS, VLCS, TerraIncognita and OfficeHome: folders of images, ``<data set>/<domain>/<class>/<file>``; and one's own.

The layout, the domains and the way images are read are those of DomainBed (Gulrajani & Lopez-Paz, ICLR 2021). Groups
are domains; one of them is the test group and the others train. Classes are joined by name across domains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from toporo.bench.base import Benchmark, data_folder
from toporo.data.grouped import GroupedData
from toporo.data.images import ENDINGS, ImageFile, decode_all, find_images
from toporo.data.packed import load_packed
from toporo.data.stores import ImageStore, image_digest
from toporo.errors import DataError, DatasetNotFoundError, SettingError, UnknownNameError, closest, listed, warn
from toporo.progress import Report
from toporo.topology.graph import GroupGraph

SOURCES = ("auto", "file")
SMALLEST = 8


@dataclass(frozen=True)
class Spec:
    """The facts of one data set.

    Attributes
    ----------
    about : what the images are of, for "pictures of …".
    folders : names that its folder goes by, DomainBed's first.
    domains : in the order of the published tables, which is the order of their names.
    images : how many the published data set has, by domain; empty where releases differ.
    """

    name: str
    title: str
    about: str
    folders: tuple[str, ...]
    domains: tuple[str, ...]
    images: Mapping[str, int] = field(default_factory=dict)


_PACS = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
_VLCS = {"Caltech101": 1415, "LabelMe": 2656, "SUN09": 3282, "VOC2007": 3376}
_OFFICE_HOME = {"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357}
_TERRA = ("location_100", "location_38", "location_43", "location_46")

SPECS: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        Spec("pacs", "PACS", "7 classes", ("PACS", "pacs"), tuple(_PACS), _PACS),
        Spec("vlcs", "VLCS", "5 classes", ("VLCS", "vlcs"), tuple(_VLCS), _VLCS),
        Spec("terra", "TerraIncognita", "10 classes", ("terra_incognita", "TerraIncognita", "terra"), _TERRA),
        Spec(
            "office_home", "OfficeHome", "65 classes", ("office_home", "OfficeHome"), tuple(_OFFICE_HOME), _OFFICE_HOME
        ),
    )
}


def load(
    spec: Spec,
    folder: str | os.PathLike[str] | None = None,
    *,
    source: str = "auto",
    test: str | None = None,
    size: int = 224,
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool | Report | None = None,
) -> Benchmark:
    """Load the benchmark from its folder in a data folder (``folder``, else ``$TOPORO_DATA``, else the cache).

    Rows are sorted by domain, class and file name; inputs are row numbers in ``store``.

    Parameters
    ----------
    folder : the data folder, or the data set's own.
    test : the domain that training never sees; the first unless told.
    size : height and width that images are resized to.
    cache : a folder for decoded images. They are packed there once, as ``<name>-<size>``, and mapped from then on; see
        :mod:`toporo.data.packed`. Without it they are decoded into memory (PACS: 1.5 GB).
    workers : threads that decode; one a core unless told.
    progress : see :class:`toporo.progress.Progress`.
    """
    _check_source(spec, source)
    held_out = (_domain(spec, spec.domains[0] if test is None else test),)
    _check_size(size)
    return _read(spec, find_folder(spec, folder), held_out, size, cache, workers, progress)


def load_images(
    folder: str | os.PathLike[str],
    *,
    test: str | Iterable[str],
    size: int = 224,
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool | Report | None = None,
) -> Benchmark:
    """Pictures of your own, in a folder ``<domain>/<class>/<file>``: cameras, hospitals, styles, years, …

    Domains and classes are the folders' names; hidden folders, and files that are no images by their names, are passed
    over. At least two domains are to be trained on. The rest is as for the published data sets; see :func:`load`.

    Parameters
    ----------
    folder : the one that holds the domains.
    test : the domain that training never sees, or several.
    size, workers, progress : see :func:`load`.
    cache : a folder, not in ``folder``, for decoded images. They are packed there once, as ``<name of folder>-<size>``,
        and mapped from then on. Without it they are decoded into memory.

    Returns
    -------
    Benchmark
        ``data`` has the row numbers, classes and domains, ``store`` the pixels and the names of files and classes.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        what = "is a file" if root.exists() else "is not there"
        raise DatasetNotFoundError(f"{root} {what}: expected a folder with <domain>/<class>/<image> in it.")
    _check_size(size)
    if cache is not None and Path(cache).expanduser().resolve().is_relative_to(root.resolve()):
        raise SettingError(f"the cache {cache} is in {root}, where it would look like a domain: name another folder.")
    wanted = tuple(dict.fromkeys([test] if isinstance(test, str) else test))
    name, domains = root.resolve().name, tuple(_subfolders(root))
    if not wanted:
        raise SettingError(f"no test domain: name one that training never sees, or several. {_has(root, domains)}")
    within = [place for place in domains if not {*wanted} & {*domains} and (root / place / wanted[0]).is_dir()]
    if len(within) == 1:
        raise DataError(
            f"{wanted[0]!r} is no domain in {root} but a folder in {root / within[0]}: give that one if it holds the "
            f"domains. {_has(root, domains)}"
        )
    spec = Spec(name, name, "own pictures", (name,), domains)
    held_out = tuple(_domain(spec, one) for one in wanted)
    if len(domains) - len(held_out) < 2:
        raise DataError(
            f"{root} leaves {len(domains) - len(held_out)} domain(s) to train on beside the test domain(s) "
            f"{listed(held_out)}: expected at least two, each a folder <domain>/<class>/<image>. {_has(root, domains)}"
        )
    return _read(spec, root, held_out, size, cache, workers, progress)


def _has(root: Path, domains: Iterable[str]) -> str:
    return f"The folders in {root}: {listed(domains) or 'none'}."


def _read(
    spec: Spec,
    root: Path,
    held_out: tuple[str, ...],
    size: int,
    cache: str | os.PathLike[str] | None,
    workers: int | None,
    progress: bool | Report | None,
) -> Benchmark:
    """The benchmark in a folder that has the domains."""
    found = _find_files(spec, root)
    classes = _classes(found)
    rows = [(domain, label, file) for domain, by in found.items() for label in sorted(by) for file in by[label]]
    files = [file for _, _, file in rows]
    title = f"decoding {spec.title}"
    if cache is not None:
        place = Path(cache).expanduser() / f"{spec.name}-{size}"
        store = load_packed(place, files, classes, size, workers=workers, progress=progress, title=title)
    else:
        decoded = decode_all(files, size, workers=workers, progress=progress, title=title)
        names = tuple(file.name for file in files)
        store = ImageStore(decoded.pixels, names, classes, image_digest(decoded.checksum, size, names, classes))
    targets = np.array([classes.index(label) for _, label, _ in rows], dtype=np.int64)
    counts = {domain: {label: len(by.get(label, ())) for label in classes} for domain, by in found.items()}
    totals = {domain: sum(by.values()) for domain, by in counts.items()}
    return Benchmark(
        name=spec.name,
        data=GroupedData.from_arrays(np.arange(len(rows)), targets, [domain for domain, _, _ in rows]),
        graph=GroupGraph(spec.domains, {}),
        train=tuple(domain for domain in spec.domains if domain not in held_out),
        test=held_out,
        source="file",
        task="images",
        about={
            "classes": classes,
            "counts": counts,
            "size": size,
            "complete": totals == dict(spec.images) if spec.images else None,
        },
        store=store,
    )


def _check_source(spec: Spec, source: str) -> None:
    if source == "generated":
        raise SettingError(
            f"{spec.name} is made of real images and cannot be generated. Put {spec.folders[0]}/ in a data folder, "
            "then use --source auto."
        )
    if source == "published":
        raise SettingError(
            f"{spec.name} has no published checksum that its images could be held against. Use --source auto to take "
            "them as they are."
        )
    if source not in SOURCES:
        raise UnknownNameError("source", source, SOURCES)


def _check_size(size: int) -> None:
    if size < SMALLEST:
        raise DataError(f"size is {size!r}: expected images of at least {SMALLEST} × {SMALLEST} pixels.")


def _domain(spec: Spec, test: str) -> str:
    if test not in spec.domains:
        close = closest(str(test), list(spec.domains))
        hint = f" Did you mean {close!r}?" if close else ""
        known = listed(spec.domains) or "none: it has no folders"
        raise DataError(f"unknown test domain {test!r} of {spec.name}.{hint} Valid domains: {known}.")
    return test


# ---------------------------------------------------------------------- the folders


def find_folder(spec: Spec, folder: str | os.PathLike[str] | None = None) -> Path:
    """The data set's folder: one of its names in the data folder, or the data folder itself if domains are in it."""
    where = data_folder(folder)
    if where is not None:
        places = [where / name for name in spec.folders if (where / name).is_dir()]
        if any((where / domain).is_dir() for domain in spec.domains):
            places.append(where)
        if places:
            return places[0]
    looked = " or ".join(f"{name}/" for name in spec.folders)
    raise DatasetNotFoundError(
        f"{spec.name}: no {looked} in {where if where is not None else 'any data folder: there is none'}. Expected "
        f"DomainBed's layout, {spec.folders[0]}/<domain>/<class>/<image>, with the domains {listed(spec.domains)}; its "
        "download script makes it. Name the folder that holds it with --data or $TOPORO_DATA."
    )


def count_images(spec: Spec, root: Path) -> dict[str, int]:
    """Image files by domain in a data set's folder; a folder that cannot be loaded is an error here too."""
    return {domain: sum(map(len, by.values())) for domain, by in _find_files(spec, root).items()}


def _find_files(spec: Spec, root: Path) -> dict[str, dict[str, list[ImageFile]]]:
    """Image files by domain and class; both in the order of their names."""
    missing = [domain for domain in spec.domains if not (root / domain).is_dir()]
    if missing:
        raise DataError(
            f"{root} lacks the domain folder(s) {listed(missing)}. It has: {listed(_subfolders(root)) or 'no folders'}."
            f" {spec.title} has the domains {listed(spec.domains)}."
        )
    found = {
        domain: {label: find_images(root / domain / label, root) for label in _subfolders(root / domain)}
        for domain in sorted(spec.domains)
    }
    if not any(files for by in found.values() for files in by.values()):
        raise DataError(
            f"{root} has no images: expected <domain>/<class>/<image> with names that end in "
            f"{', '.join(sorted(ENDINGS))}."
        )
    bare = [str(root / domain) for domain, by in found.items() if not by]
    if bare:
        raise DataError(f"no class folders in {listed(bare)}: expected one folder a class with its images in it.")
    empty = [str(root / domain / label) for domain, by in found.items() for label, files in by.items() if not files]
    if empty:
        raise DataError(
            f"class folder(s) without a single image: {listed(empty)}. Fetch their images again, or delete the class "
            "in every domain."
        )
    return found


def _subfolders(folder: Path) -> list[str]:
    """Names of the folders in a folder, but for hidden ones and what archives of macOS leave behind."""
    names = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    return sorted(name for name in names if not name.startswith(".") and name != "__MACOSX")


def _classes(found: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """All classes, sorted. One that a single domain has is an error, one that some lack is a warning."""
    classes = sorted({label for by in found.values() for label in by})
    if len(classes) == 1:
        raise DataError(f"all images are of one class, {classes[0]!r}: expected at least two to tell apart.")
    having = {label: [domain for domain, by in found.items() if label in by] for label in classes}
    single = [f"{label!r} (in {domains[0]!r})" for label, domains in having.items() if len(domains) == 1]
    if single:
        raise DataError(
            f"class(es) that only one of the domains {listed(found)} has: {', '.join(single[:8])}"
            f"{f', … ({len(single)} in all)' if len(single) > 8 else ''}. No other domain can train or test them: "
            "check the spelling of the folders, add them to the other domains, or delete them."
        )
    partial = {label: [d for d in found if d not in domains] for label, domains in having.items()}
    lacking = [f"{label!r} in {listed(domains)}" for label, domains in partial.items() if domains]
    if lacking:
        warn(
            f"some domains lack classes that others have: {'; '.join(lacking[:8])}{'; …' if len(lacking) > 8 else ''}. "
            "Results are of the classes that are there; check that the data set is complete."
        )
    return tuple(classes)
