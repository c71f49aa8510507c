"""``toporo data``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from toporo.cli.common import USER_ERROR, check_writable, interruptible, register
from toporo.errors import SettingError, UnknownNameError
from toporo.progress import Bar

_Folder = Annotated[
    Path | None, typer.Option("--data", help="Folder to look in.", show_default="$TOPORO_DATA, else ~/.cache/toporo")
]


def list_data(
    data: _Folder = None, as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False
) -> None:
    """List the benchmarks and where each one's data would come from."""
    rows = _data_rows(data)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    before = None
    for row in rows:
        if row["name"] != before:
            typer.echo(f"{row['name']:<12} {row['title']}")
        before = row["name"]
        typer.echo(f"{'':<12} {row['status']}: {row['file']}")


def verify_data(
    data: _Folder = None, as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False
) -> None:
    """Check every benchmark file that is there against its checksum; exit 1 if one differs.

    The checksum is the published one, or the one recorded at the download. A file that has neither is read instead.
    Images and radar chips have none: those that are there are counted, and read when they are loaded.
    """
    rows = _data_rows(data)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    else:
        for row in rows:
            typer.echo(f"{row['status']}: {row['file']}")
    bad = {row["status"].split(" (")[0] for row in rows} & {"differs", "damaged"}
    if bad:
        typer.echo(
            "A file differs from what was published or fetched: fetch it again, or expect other figures.", err=True
        )
        raise typer.Exit(USER_ERROR)


def get_data(
    name: Annotated[str, typer.Argument(help="tpt48.")],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder to put it in; made if need be.", show_default="$TOPORO_DATA, else ~/.cache/toporo"),
    ] = None,
    release: Annotated[
        str | None, typer.Option(metavar="YYYYMMDD", help="Which release.", show_default="the newest")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Another place that serves the same files.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was fetched as JSON.")] = False,
) -> None:
    """Download a benchmark's data from its publisher and check it.

    What is there and intact is not fetched again. Interrupt it at any time: the same command goes on from there.
    """
    from toporo.bench.datasets import DATASETS
    from toporo.bench.download import download_folder, fetch

    if name not in DATASETS:
        raise UnknownNameError("dataset", name, DATASETS)
    source = DATASETS[name].fetch
    if source is None:
        can = [other for other, dataset in DATASETS.items() if dataset.fetch is not None]
        raise SettingError(f"{name} has no place to fetch it from. {_how_to_get(name)} To fetch: {', '.join(can)}.")
    folder = download_folder(data)
    kept = "what has come is kept, and the same command goes on from there"
    with interruptible(kept), Bar(name, "bytes", mark="toporo: ") as progress:
        got = fetch(source, folder, release=release, url=url, report=progress, say=progress.say)
    if as_json:
        typer.echo(
            json.dumps({"name": name, "path": str(got.path), "release": got.release, "fresh": got.fresh}, indent=1)
        )
        return
    checked = "checksum as published" if got.published else f"complete, release of {got.release}"
    typer.echo(f"{name}: {'fetched' if got.fresh else 'already there'} ({checked})\n{got.path}")
    if data is not None and download_folder() != folder:
        typer.echo(f"toporo: use it with --data {folder}, or set TOPORO_DATA to that folder.", err=True)


def table_data(
    name: Annotated[str, typer.Argument(help="dg15, dg60 or tpt48.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Write the rows to this CSV file.")],
    graph: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the edges to this CSV file.")] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the test groups to this file, a name a line.")
    ] = None,
    data: _Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a benchmark as files like those of one's own data, to try the other commands on.

    Example: toporo data table tpt48 --out temperatures.csv --graph borders.csv --test west.txt
    """
    from toporo.bench.export import export
    from toporo.files import write_text

    files = {"--out": out, "--graph": graph, "--test": test}
    check_writable("-", files)
    found = export(name, data)
    for path, text in zip(files.values(), (found.table, found.edges, found.test), strict=True):
        if path is not None:
            write_text(path, text)
    written = {flag.removeprefix("--"): str(path) for flag, path in files.items() if path is not None}
    if as_json:
        typer.echo(json.dumps(written | {"group": found.group, "target": found.target}, indent=1))
        return
    rows = found.table.count("\n") - 1
    typer.echo(f"{rows} rows: {out} (--group {found.group} --target {found.target})")
    if graph is not None:
        edges = found.edges.count("\n") - 1
        typer.echo(f"{edges} edges: {graph}")
    if test is not None:
        groups = found.test.count("\n")
        typer.echo(f"{groups} test groups: {test}")


def _data_rows(data: Path | None) -> list[dict[str, Any]]:
    from toporo.bench.base import data_folder
    from toporo.bench.datasets import DATASETS

    folder = data_folder(data)
    return [
        {"name": name, "title": dataset.title, "status": status, "file": file}
        for name, dataset in DATASETS.items()
        for file, status in _files(name, folder)
    ]


_ABSENT = "absent (toporo data get {} says how to get it)"


def _how_to_get(name: str) -> str:
    """What to do for a data set that no publisher serves as a file."""
    from toporo.bench.datasets import DATASETS
    from toporo.bench.domainbed import SPECS
    from toporo.bench.sen1floods11 import BUCKET, FOLDER

    if DATASETS[name].generated:
        files = ", ".join(DATASETS[name].files)
        return f"toporo generates it when needed; published files go into the data folder as {files}."
    if name in SPECS:
        layout = f"{SPECS[name].folders[0]}/<domain>/<class>/<image>"
        return f"DomainBed's download script gets it; its images go into the data folder as {layout}."
    return f"Copy {BUCKET}/v1.1 with Google Cloud's tools; it goes into the data folder as {FOLDER}."


def _image_folder(name: str, folder: Path | None) -> tuple[str, str]:
    """The folder of a data set of images, with what is in it."""
    from toporo.bench.domainbed import SPECS, count_images, find_folder
    from toporo.errors import DataError, DatasetNotFoundError

    spec = SPECS[name]
    absent = f"{spec.folders[0]}/<domain>/<class>/<image>", _ABSENT.format(name)
    if folder is None:
        return absent
    try:
        root = find_folder(spec, folder)
        counts = count_images(spec, root)
    except DatasetNotFoundError:
        return absent
    except DataError as error:
        return str(root), f"damaged ({error})"
    found, published = sum(counts.values()), sum(spec.images.values())
    more = ""
    if spec.images:
        more = ", as many a domain as published" if counts == spec.images else f"; {published:,} were published"
    return str(root), f"found ({found:,} images in {len(counts)} domains{more})"


def _chip_folder(folder: Path | None) -> list[tuple[str, str]]:
    """The folder of radar chips, with how many of them there are; and the official lists."""
    from toporo.bench.sen1floods11 import FILES, FOLDER, LISTS, count_chips, find_root
    from toporo.errors import DataError, DatasetNotFoundError
    from toporo.files import sha256

    absent = [(FOLDER, _ABSENT.format("sen1floods11"))]
    if folder is None:
        return absent
    try:
        root = find_root(folder)
    except DatasetNotFoundError:
        return absent
    try:
        counts = count_chips(root)
        rows = [(str(root), f"found ({counts['found']} of {counts['listed']} chips)")]
    except DataError as error:
        rows = [(str(root), f"damaged ({error})")]
    for file, checksum in FILES.items():
        path = root / LISTS / Path(file).name
        if path.is_file():
            rows.append((str(path), "intact" if sha256(path) == checksum else "differs"))
    return rows


def _files(name: str, folder: Path | None) -> list[tuple[str, str]]:
    """A data set's files, each with its state."""
    from toporo.bench.base import find_file
    from toporo.bench.datasets import DATASETS
    from toporo.bench.domainbed import SPECS
    from toporo.bench.download import state_of
    from toporo.files import sha256

    dataset = DATASETS[name]
    if name in SPECS:
        return [_image_folder(name, folder)]
    if name == "sen1floods11":
        return _chip_folder(folder)
    if dataset.fetch is not None:
        found = dataset.fetch.found(folder) if folder is not None else []
        absent = f"{dataset.fetch.folder}/{dataset.fetch.file.format(release='YYYYMMDD')}"
        return [(str(path), state_of(dataset.fetch, path)) for path in found] or [
            (absent, f"absent (toporo data get {name})")
        ]
    rows = []
    for file, checksum in dataset.files.items():
        path = find_file(folder, file, Path(file).name) if folder is not None else None
        absent = "absent (generated when needed)" if dataset.generated else "absent"
        status = absent if path is None else "intact" if sha256(path) == checksum else "differs"
        rows.append((str(path or file), status))
    return rows


commands = register("data")(
    typer.Typer(help="The benchmarks' data: what there is, getting it, checking it.", no_args_is_help=True)
)
for _name, _function in {"list": list_data, "get": get_data, "verify": verify_data, "table": table_data}.items():
    commands.command(_name)(_function)
