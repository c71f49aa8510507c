"""NOAA's nClimDiv: monthly mean temperatures of the states of the USA, read from its file and downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from toporo.errors import DataError, DatasetNotFoundError
from toporo.files import sha256
from toporo.paper.download import DownloadError, Received, download
from toporo.paper.loaded import Fetched, FileState, file_state
from toporo.topology import states
from toporo.types import Array

#: The 48 contiguous states by postal code, in the order of their numbers in NOAA's files, from 1.
STATES = tuple(sorted(states.STATES.keys() - {"AK", "DC", "HI"}, key=lambda code: states.STATES[code][0]))
YEARS = range(2008, 2020)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

#: The release used for the figures in the documentation, and its checksum.
FILE = "climdiv-tmpcst-v1.0.0-20200106"
CHECKSUM = "85828b3b25b44e4714c5e8f4c454e8cd9f15bd0605d28b2d71cc0a6c743ddd5c"
_NAME = re.compile(r"climdiv-tmpcst-v(\d+)\.(\d+)\.(\d+)-(\d{8})")
_RELEASE = "climdiv-tmpcst-v1.0.0-{}"
#: NOAA's folder, which has the newest release only, and the largest size that a release may have.
URL = "https://www.ncei.noaa.gov/pub/data/cirs/climdiv/"
MOST_BYTES = 1 << 24
HOW_TO_GET = f"Fetch the newest release with: toporo data get tpt48 (or by hand from {URL})."

#: A line: state (3 digits), division, element (2), year (4), twelve numbers of 7 characters, blanks.
_LINE = re.compile(r"(\d{3})(\d)(\d{2})(\d{4})([ \d.-]{84}) *")
_LINE_LENGTH = 94
#: Range of plausible monthly means in °F; missing months are -99.90.
_PLAUSIBLE = (-40.0, 120.0)
_EXPECTED = "Expected NOAA's climdiv-tmpcst state file, whole; `toporo data get tpt48` fetches it."


def read_temperatures(path: str | os.PathLike[str], years: range = YEARS) -> dict[str, Array]:
    """Read monthly mean temperatures in °F from any release: arrays of years by 12 months, by state.

    A truncated, incomplete or foreign file raises an error that names the line.
    """
    file = Path(path)
    rows: dict[tuple[str, int], Array] = {}
    lines = _read_lines(file)
    for number, line in enumerate(lines, 1):
        where = f"{file}, line {number}"
        match = _LINE.fullmatch(line)
        if match is None:
            cut = number == len(lines) > 1 and len(line) < _LINE_LENGTH
            raise DataError(
                f"{where}: found {line[:24]!r}, expected NOAA's fixed width layout: ten digits, then twelve "
                f"temperatures of seven characters. {'The file is cut short. ' if cut else ''}{_EXPECTED}"
            )
        state, division, element, year, months = match.groups()
        if (division, element) != ("0", "02"):
            raise DataError(
                f"{where}: found division {division} and element {element}, expected 0 and 02, the mean temperature of "
                f"a whole state. {_EXPECTED}"
            )
        if not 1 <= int(state) <= len(STATES) or int(year) not in years:
            continue
        code = STATES[int(state) - 1]
        if (code, int(year)) in rows:
            raise DataError(f"{where}: a second row of {_title(code)} in {year}. {_EXPECTED}")
        try:
            rows[code, int(year)] = np.array([float(months[start : start + 7]) for start in range(0, 84, 7)])
        except ValueError as error:
            raise DataError(f"{where}: {error}, expected temperatures such as '  43.10'. {_EXPECTED}") from None
    _check_complete(file, rows, years)
    return {code: np.array([rows[code, year] for year in years]) for code in sorted(STATES)}


def _read_lines(file: Path) -> list[str]:
    if not file.is_file():
        raise DatasetNotFoundError(f"no such file: {file}. {_EXPECTED}")
    content = file.read_bytes()
    if not content.strip():
        raise DataError(f"{file} is empty. {_EXPECTED}")
    try:
        return content.decode("ascii").rstrip().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{file}, line {number}: found byte 0x{content[error.start]:02x}, expected plain ASCII text: the file is "
            f"compressed, in another encoding or damaged. {_EXPECTED}"
        ) from None


def _check_complete(file: Path, rows: dict[tuple[str, int], Array], years: range) -> None:
    lacking = []
    for code in STATES:
        absent = [str(year) for year in years if (code, year) not in rows]
        if absent:
            lacking.append(_title(code) + (f" {', '.join(absent)}" if len(absent) < len(years) else ""))
    if lacking:
        more = f"; … ({len(lacking)} states)" if len(lacking) > 8 else ""
        raise DataError(
            f"{file} lacks rows from {years[0]} to {years[-1]}: {'; '.join(lacking[:8])}{more}. {_EXPECTED}"
        )
    low, high = _PLAUSIBLE
    for (code, year), values in rows.items():
        strange = [f"{values[i]:g} in {MONTHS[i]}" for i in np.flatnonzero((values <= low) | (values >= high))]
        if strange:
            raise DataError(
                f"{file} has {', '.join(strange)} {year} for {_title(code)}, expected {low:g} to {high:g} °F: -99.9 "
                f"means missing, other numbers that the file is damaged. {_EXPECTED}"
            )


def _title(code: str) -> str:
    return f"{states.STATES[code][0]} ({code})"


# ---------------------------------------------------------------------- releases


def find_releases(folder: Path) -> list[Path]:
    """Return the files ``climdiv-tmpcst-v*-YYYYMMDD`` in a data folder or its ``tpt48``, newest release first."""
    releases = [
        ((match[4], *map(int, match.groups()[:3])), path)
        for parent in (folder / "tpt48", folder)
        for path in sorted(parent.glob("climdiv-tmpcst-*"))
        if (match := _NAME.fullmatch(path.name)) and path.is_file()
    ]
    return [path for _, path in sorted(releases, key=lambda release: release[0], reverse=True)]


def release_state(path: Path) -> FileState:
    """Compare the known release with its checksum; read another one."""
    if path.name == FILE:
        return file_state(path, CHECKSUM)
    try:
        read_temperatures(path)
    except DataError as error:
        return str(path), f"damaged ({error})"
    return str(path), "complete"


def file_states(folder: Path | None) -> list[FileState]:
    """Return the states of all releases in a data folder."""
    existing = find_releases(folder) if folder is not None else []
    absent = (f"tpt48/{_RELEASE.format('YYYYMMDD')}", "absent (toporo data get tpt48)")
    return [release_state(path) for path in existing] or [absent]


def fetch(
    folder: Path, *, url: str | None = None, report: Received | None = None, say: Callable[[str], object]
) -> Fetched:
    """Download NOAA's newest release into a data folder, unless there is an intact one.

    A release without a known checksum is checked by reading it.

    Parameters
    ----------
    folder : data folder, created if necessary.
    url : a mirror of NOAA's folder.
    report, say : called with the number of bytes received, and with one line per event.
    """
    base, target = f"{(url or URL).rstrip('/')}/", folder / "tpt48"
    for existing in find_releases(folder)[:1]:
        state = release_state(existing)[1]
        if state in ("intact", "complete"):
            return _fetched(existing, fresh=False)
        say(f"{existing} is {state}: fetching again")
    try:
        name = _RELEASE.format(_newest(base))
        say(f"fetching {base}{name}")
        checksum = CHECKSUM if name == FILE else None
        check = None if checksum else read_temperatures
        download(f"{base}{name}", target / name, checksum=checksum, check=check, most=MOST_BYTES, report=report)
    except DownloadError as error:
        raise DownloadError(
            f"{error} Try again later, or fetch {_RELEASE.format('YYYYMMDD')} by hand from {base} with a browser or on "
            f"another machine, put it into {target} and go on."
        ) from error
    return _fetched(target / name, fresh=True)


def _newest(base: str) -> str:
    """Return the date of NOAA's newest release, from the file that holds it."""
    with TemporaryDirectory() as folder:
        download(f"{base}procdate.txt", Path(folder, "date"), most=1000)
        content = Path(folder, "date").read_bytes().strip()
    if not re.fullmatch(rb"[0-9]{8}", content):
        raise DownloadError(f"{base}procdate.txt: found {content[:40]!r}, expected the date of the newest release.")
    return content.decode("ascii")


def _fetched(path: Path, *, fresh: bool) -> Fetched:
    return Fetched(path, release=path.name[-8:], published=sha256(path) == CHECKSUM, fresh=fresh)
