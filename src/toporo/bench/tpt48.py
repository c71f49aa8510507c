r"""TPT-48: a state's temperatures from July to December, predicted from those from January to June.

The monthly means of the 48 contiguous states of the USA, 2008 to 2019, from NOAA's nClimDiv (public domain). Groups
are states; a model trained on one half of the country is tested on the other, and its errors are shown by how many
borders away a state is. Temperatures are standardised with one mean and one standard deviation, those of all months of
the training states, so that an error means the same in every state and month.

The reported error of a state is :math:`\frac{1}{n}\sum_i \sum_{m=1}^{6} (\hat y_{im} - y_{im})^2`: squared errors are
summed over the six months and averaged over the twelve years.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.bench.base import Benchmark, Fetch, data_folder
from toporo.bench.us_states import STATES, StateSplit, border_graph, get_split, hop_classes
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, DatasetNotFoundError, GroupMismatchError, SettingError, UnknownNameError, listed
from toporo.files import sha256

SOURCES = ("auto", "published")
YEARS = range(2008, 2020)
#: Months that are given, and as many to predict.
HALF = 6
#: ``season``: from January on, one a year. ``sliding``: from every month on, for training states.
WINDOWS = ("season", "sliding")

FILE = "climdiv-tmpcst-v1.0.0-20200106"
CHECKSUM = "85828b3b25b44e4714c5e8f4c454e8cd9f15bd0605d28b2d71cc0a6c743ddd5c"
_FILES = re.compile(r"climdiv-tmpcst-v(\d+)\.(\d+)\.(\d+)-(\d{8})")

#: A line: state (3 digits), division (0), element (2), year (4), twelve numbers of 7 characters, blanks.
_LINE = re.compile(r"(\d{3})(\d)(\d{2})(\d{4})([ \d.-]{84}) *")
_NUMBER = re.compile(r" *-?\d{1,3}\.\d{2}")
_LINE_LENGTH = 94
_MEAN_TEMPERATURE = "02"
_ELEMENTS = {"01": "precipitation", "27": "maximum temperature", "28": "minimum temperature"}
_MISSING = -99.0
#: °F that no state's month has been near.
_PLAUSIBLE = (-40.0, 120.0)
_EXPECTED = "Expected NOAA's climdiv-tmpcst state file, whole; `toporo data get tpt48` fetches it."
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


# ---------------------------------------------------------------------- the file


def read_temperatures(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[np.float64]]:
    """Monthly mean temperatures in °F by state: arrays of 12 years (2008 to 2019) by 12 months.

    Any release of NOAA's ``climdiv-tmpcst`` file will do. One that is cut short, incomplete or something else is an
    error that says where.
    """
    file = Path(path)
    codes = {state.noaa: code for code, state in STATES.items()}
    rows: dict[tuple[str, int], list[float]] = {}
    lines = _lines(file)
    for number, line in enumerate(lines, 1):
        match = _checked(file, number, line, last=number == len(lines))
        code, year = codes.get(int(match[1])), int(match[4])
        if code is None or year not in YEARS:
            continue
        if (code, year) in rows:
            raise DataError(f"{file}, line {number}: a second row of {_named(code)} in {year}. {_EXPECTED}")
        rows[code, year] = _numbers(file, number, match[5])
    _check_complete(file, rows)
    return {code: np.array([rows[code, year] for year in YEARS]) for code in sorted(STATES)}


def _lines(file: Path) -> list[str]:
    if not file.is_file():
        raise DatasetNotFoundError(f"no such file: {file}. {_EXPECTED}")
    content = file.read_bytes()
    start = content[:512].lstrip().lower()
    if not content.strip():
        raise DataError(f"{file} is empty. {_EXPECTED}")
    if start.startswith(b"<"):
        raise DataError(f"{file} is a web page, perhaps a server's error message saved under this name. {_EXPECTED}")
    if start.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        raise DataError(f"{file} was saved in another encoding (Unicode with a byte order mark). {_EXPECTED}")
    try:
        return content.decode("ascii").rstrip().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{file}, line {number}: found byte 0x{content[error.start]:02x}, expected plain ASCII text: the file is "
            f"compressed, in another encoding or damaged. {_EXPECTED}"
        ) from None


def _checked(file: Path, number: int, line: str, *, last: bool) -> re.Match[str]:
    """A line as its parts, if it is one of a state's mean temperatures."""
    match = _LINE.fullmatch(line)
    if match is None:
        start = line if len(line) <= 24 else line[:24] + "…"
        if last and number > 1 and len(line) < _LINE_LENGTH:
            raise DataError(
                f"{file}, line {number}, the last one, is cut short after {len(line)} of {_LINE_LENGTH} characters "
                f"({start!r}): the file is truncated. {_EXPECTED}"
            )
        raise DataError(
            f"{file}, line {number}: found {start!r}, expected NOAA's fixed width layout: ten digits, then twelve "
            f"temperatures of seven characters. {_EXPECTED}"
        )
    if match[3] != _MEAN_TEMPERATURE:
        what = _ELEMENTS.get(match[3], "something else")
        raise DataError(
            f"{file}, line {number}: element {match[3]} is {what}, expected {_MEAN_TEMPERATURE}, mean temperature. "
            f"{_EXPECTED}"
        )
    if match[2] != "0":
        raise DataError(f"{file}, line {number}: a row of a climate division, expected whole states. {_EXPECTED}")
    return match


def _numbers(file: Path, number: int, text: str) -> list[float]:
    fields = [text[start : start + 7] for start in range(0, len(text), 7)]
    for month, field in zip(_MONTHS, fields, strict=True):
        if not _NUMBER.fullmatch(field):
            raise DataError(
                f"{file}, line {number}: {field!r} for {month}, expected a temperature such as '  43.10'. {_EXPECTED}"
            )
    return [float(field) for field in fields]


def _check_complete(file: Path, rows: Mapping[tuple[str, int], list[float]]) -> None:
    span = f"{YEARS[0]} to {YEARS[-1]}"
    lacking = {code: [year for year in YEARS if (code, year) not in rows] for code in STATES}
    absent = [_named(code) for code, years in lacking.items() if len(years) == len(YEARS)]
    if absent:
        raise DataError(
            f"{file} has no rows of {len(absent)} state(s) from {span}: {', '.join(absent[:8])}"
            f"{', …' if len(absent) > 8 else ''}. {_EXPECTED}"
        )
    gaps = [f"{_named(code)} {', '.join(map(str, years))}" for code, years in lacking.items() if years]
    if gaps:
        raise DataError(
            f"{file} lacks years from {span}: {'; '.join(gaps[:8])}{'; …' if len(gaps) > 8 else ''}. {_EXPECTED}"
        )
    for (code, year), values in rows.items():
        missing = [month for month, value in zip(_MONTHS, values, strict=True) if value <= _MISSING]
        if missing:
            raise DataError(
                f"{file} has no temperature of {_named(code)} for {', '.join(missing)} {year} (-99.90 means missing). "
                f"TPT-48 needs every month from {span}. {_EXPECTED}"
            )
        low, high = _PLAUSIBLE
        strange = [month for month, value in zip(_MONTHS, values, strict=True) if not low < value < high]
        if strange:
            value = values[_MONTHS.index(strange[0])]
            raise DataError(
                f"{file} has {value:g} °F for {_named(code)} in {strange[0]} {year}, expected {low:g} to {high:g}: the "
                f"file is damaged or of another kind. {_EXPECTED}"
            )


def _named(code: str) -> str:
    return f"{STATES[code].name} ({code})"


def find_releases(folder: Path) -> list[Path]:
    """The files ``climdiv-tmpcst-v*-YYYYMMDD`` in a data folder or its ``tpt48``, newest release first."""
    found = [
        (tuple(map(int, (match[4], match[1], match[2], match[3]))), path)
        for place in (folder / "tpt48", folder)
        for path in sorted(place.glob("climdiv-tmpcst-*"))
        if (match := _FILES.fullmatch(path.name)) and path.is_file()
    ]
    return [path for _, path in sorted(found, key=lambda release: release[0], reverse=True)]


FETCH = Fetch(
    url="https://www.ncei.noaa.gov/pub/data/cirs/climdiv/",
    current="procdate.txt",
    file="climdiv-tmpcst-v1.0.0-{release}",
    folder="tpt48",
    checksums={FILE: CHECKSUM},
    found=find_releases,
    check=read_temperatures,
)


# ---------------------------------------------------------------------- the benchmark


def load(
    folder: str | os.PathLike[str] | None = None,
    *,
    source: str = "auto",
    split: str | StateSplit = "east-west",
    window: str = "season",
) -> Benchmark:
    """Load the benchmark from NOAA's file in a data folder (``folder``, else ``$TOPORO_DATA``, else the cache).

    Parameters
    ----------
    source : ``"auto"`` takes the newest release that is there; ``"published"`` insists on the one that the figures in
        the documentation are from.
    split : ``"east-west"``, ``"north-south"``, or one of your own (see
        :func:`toporo.bench.us_states.make_split`).
    window : ``"season"`` trains on twelve windows a state, January to June and July to December of a year;
        ``"sliding"`` on all 133 windows of twelve months. Test states have the twelve either way.
    """
    if source == "generated":
        raise SettingError(
            "tpt48 is made of real temperatures and cannot be generated. Fetch them with: toporo data get tpt48 (or by "
            f"hand from {FETCH.url}), then use --source auto or published."
        )
    if source not in SOURCES:
        raise UnknownNameError("source", source, SOURCES)
    if window not in WINDOWS:
        raise UnknownNameError("window", window, WINDOWS)
    chosen = get_split(split)
    hops = hop_classes(chosen)
    path = _find(folder, source)
    digest = sha256(path)
    if source == "published" and digest != CHECKSUM:
        raise DataError(
            f"{path} differs from NOAA's release of 2020-01-06: its sha256 is {digest}, expected {CHECKSUM}. Put that "
            "release there, or use --source auto to take the file as it is."
        )
    temperatures = read_temperatures(path)
    months = np.stack([temperatures[code].ravel() for code in chosen.train])
    mean, deviation = float(months.mean()), float(months.std())
    scaled = {code: (temperatures[code].ravel() - mean) / deviation for code in (*chosen.train, *chosen.test)}
    steps = {code: 1 if window == "sliding" and code in chosen.train else 12 for code in scaled}
    return Benchmark(
        name="tpt48",
        data=_rows({code: _windows(scaled[code], steps[code]) for code in sorted(scaled)}),
        graph=border_graph(),
        train=chosen.train,
        test=chosen.test,
        source="published" if digest == CHECKSUM else "file",
        task="regression",
        about={
            "split": chosen.name,
            "window": window,
            "hops": hops,
            "mean": mean,
            "sd": deviation,
            "unit": "°F",
            "release": path.name[-8:],
            "sha256": digest,
            "years": (YEARS[0], YEARS[-1]),
        },
    )


def _find(folder: str | os.PathLike[str] | None, source: str) -> Path:
    where = data_folder(folder)
    releases = find_releases(where) if where is not None else []
    wanted = [path for path in releases if path.name == FILE] if source == "published" else releases
    if wanted:
        return wanted[0]
    name = FILE if source == "published" else "climdiv-tmpcst-v*-YYYYMMDD"
    other = f" It has {listed([path.name for path in releases])}: --source auto takes that." if releases else ""
    raise DatasetNotFoundError(
        f"tpt48: no {name} in {f'{where} or its tpt48/' if where is not None else 'any data folder: there is none'}."
        f"{other} Fetch the newest release with: toporo data get tpt48{f' --data {where}' if folder else ''} (or by "
        f"hand from {FETCH.url})."
    )


def _windows(months: npt.NDArray[np.float64], step: int) -> npt.NDArray[np.float64]:
    """Every stretch of twelve months that starts a multiple of ``step`` months after the first."""
    return np.lib.stride_tricks.sliding_window_view(months, 2 * HALF)[::step]


def _rows(windows: Mapping[str, npt.NDArray[np.float64]]) -> GroupedData:
    stretches = np.concatenate(list(windows.values()))
    names = [code for code, stretch in windows.items() for _ in stretch]
    return GroupedData.from_arrays(stretches[:, :HALF].copy(), stretches[:, HALF:].copy(), names)


# ---------------------------------------------------------------------- the metric


@dataclass(frozen=True)
class HopErrors:
    """Errors over test states: the mean of all, and the mean of each hop class that has a state.

    >>> by_hop({"OH": 1.0, "IN": 3.0, "IL": 8.0}, {"OH": 1, "IN": 1, "IL": 2})
    HopErrors(hops={1: 2.0, 2: 8.0}, all=4.0)
    """

    hops: Mapping[int, float]
    all: float


def mse_by_group(predictions: Any, data: GroupedData) -> dict[Hashable, float]:
    """Squared error by group: summed over the outputs of a row, averaged over the group's rows.

    ``predictions`` are in the order of the data's rows and in the unit of its targets.
    """
    if hasattr(predictions, "detach"):
        predictions = predictions.detach().cpu()
    given = np.asarray(predictions, dtype=np.float64)
    if given.shape != data.y.shape:
        raise DataError(f"the predictions have shape {given.shape}, the targets {data.y.shape}: they must agree.")
    squared = ((given - data.y) ** 2).reshape(len(data), -1).sum(axis=1)
    return {name: float(squared[data.rows(name)].mean()) for name in data.groups}


def by_hop(values: Mapping[Any, float], hops: Mapping[Any, int]) -> HopErrors:
    """Means of test groups' values, over all groups in ``hops`` (group to hop class) and over each class.

    Values of other groups, such as training groups, are left aside.
    """
    if not hops:
        raise DataError("no hop classes given: expected {group: class} of the test groups.")
    absent = [name for name in hops if name not in values]
    if absent:
        raise GroupMismatchError(f"no value for test group(s) {listed(absent)}: give one for every group in hops.")
    classes = {
        hop: float(np.mean([values[name] for name in hops if hops[name] == hop])) for hop in sorted(set(hops.values()))
    }
    return HopErrors(hops=classes, all=float(np.mean([values[name] for name in hops])))
