"""NOAA's nClimDiv: monthly mean temperatures of the states of the USA, read from its file and downloaded."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import numpy as np

from toporo.errors import DataError, listed
from toporo.files import sha256, write_whole
from toporo.paper.download import DownloadError, download
from toporo.topology import STATES as ALL_STATES
from toporo.types import Array

#: The 48 contiguous states by postal code, in the order of their numbers in NOAA's files, from 1.
STATES = tuple(sorted(ALL_STATES.keys() - {"AK", "DC", "HI"}, key=lambda code: ALL_STATES[code][0]))
YEARS = range(2008, 2020)

#: Releases in a data folder, and the checksum of the one of 2020-01-06, which the documentation's figures are from.
PLACE = "tpt48/climdiv-tmpcst-v*"
CHECKSUM = "85828b3b25b44e4714c5e8f4c454e8cd9f15bd0605d28b2d71cc0a6c743ddd5c"
#: NOAA's folder, which has the newest release only, the name of a release, and the largest size that it may have.
URL = "https://www.ncei.noaa.gov/pub/data/cirs/climdiv/"
RELEASE = "climdiv-tmpcst-v1.0.0-{}"
MAX_BYTES = 1 << 24
HOW_TO_GET = f"Fetch the newest release with: toporo data get tpt48 (or by hand from {URL})."

#: A line: state (3 digits), 0 for the whole state, 02 for the mean temperature, year, and twelve months.
_LINE = re.compile(r"(\d{3})002(\d{4})((?: *-?\d+\.\d\d){12}) *")
_EXPECTED = "Expected NOAA's climdiv-tmpcst state file, whole; `toporo data get tpt48` fetches it."


def read_temperatures(path: Path, years: range = YEARS) -> dict[str, Array]:
    """Read monthly mean temperatures in °F from any release: arrays of years by 12 months, by state."""
    return parse_temperatures(path.read_bytes(), str(path), years)


def parse_temperatures(content: bytes, source: str, years: range = YEARS) -> dict[str, Array]:
    """Return the temperatures in the content of a release; an error names its ``source`` and the line.

    Rows of other regions and years, which may lack months, are passed over.
    """
    rows: dict[tuple[str, int], list[float]] = {}
    for number, line in enumerate(content.decode("ascii", errors="replace").rstrip().splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise DataError(
                f"{source}, line {number}: found {line[:24]!r}, expected three digits for the state, 002 for its mean "
                f"temperature, the year, and twelve numbers such as '  43.10'. {_EXPECTED}"
            )
        state, year = int(match[1]), int(match[2])
        if 1 <= state <= len(STATES) and year in years:
            rows[STATES[state - 1], year] = [float(value) for value in match[3].split()]
    lacking = [f"{code} in {year}" for code in STATES for year in years if (code, year) not in rows]
    if lacking:
        raise DataError(f"{source} lacks rows from {years[0]} to {years[-1]}: {listed(lacking)}. {_EXPECTED}")
    return {code: np.array([rows[code, year] for year in years]) for code in sorted(STATES)}


# ---------------------------------------------------------------------- releases


def check(path: Path) -> str:
    """Return the state of a release; one that cannot be read whole is an error."""
    if sha256(path) == CHECKSUM:
        return "intact"
    read_temperatures(path)
    return "complete"


def fetch(folder: Path, url: str | None = None) -> None:
    """Download NOAA's newest release into a data folder, unless there is an intact one; check it before it is written.

    The folder is created if necessary; ``url`` is a mirror of NOAA's.
    """
    base, target = f"{(url or URL).rstrip('/')}/", folder / "tpt48"
    with suppress(DataError):
        if (existing := max(folder.glob(PLACE), default=None)) is not None and check(existing):
            return
    try:
        date = download(f"{base}procdate.txt", 1000).strip()
        if not re.fullmatch(rb"[0-9]{8}", date):
            raise DataError(f"{base}procdate.txt: found {date[:40]!r}, expected the date of the newest release.")
        name = RELEASE.format(date.decode("ascii"))
        content = download(f"{base}{name}", MAX_BYTES)
        parse_temperatures(content, f"{base}{name}")
    except (DownloadError, DataError) as error:
        raise DownloadError(
            f"{error} Try again later, or fetch {RELEASE.format('YYYYMMDD')} by hand from {base} with a browser or on "
            f"another machine, put it into {target} and go on."
        ) from error
    write_whole(target / name, lambda stream: stream.write(content))
