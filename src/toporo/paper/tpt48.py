r"""TPT-48: a state's temperatures in six months, predicted from those in the six months before.

The monthly means of the 48 contiguous states of the USA, 2008 to 2019, from NOAA's nClimDiv (public domain). Groups
are states; a model trained on one half of the country is tested on the other, and its errors are shown by how many
borders away a state is. Temperatures are standardised with one mean and one standard deviation, those of all months of
the training states, so that an error means the same in every state and month.

The reported error of a state is :math:`\frac{1}{n}\sum_i \sum_{m=1}^{6} (\hat y_{im} - y_{im})^2`: squared errors are
summed over the six months and averaged over the state's windows of twelve months: one per year, from January on, or
one from every month on.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from toporo import pages
from toporo.data.grouped import GroupedData
from toporo.errors import (
    DataError,
    DatasetNotFoundError,
    GraphError,
    GroupMismatchError,
    SettingError,
    UnknownNameError,
    listed,
)
from toporo.files import sha256, write_text
from toporo.paper.base import Benchmark, TableRows, register
from toporo.paper.download import DownloadError, Received, download
from toporo.paper.loaded import BenchmarkData, ByGroup, Fetched, FileState, RuleOfThumb, check_source, data_folder
from toporo.paper.protocols import BENCH_METHODS, MILD_TRO, WARM_UP_SHARE, BenchMethod, Metric, Protocol, Variant
from toporo.paper.results import Outcome, Row, VariantOutcome
from toporo.paper.sections import Sections, curves_section, last_metrics, last_weights, lowest_seeds, of_method, section
from toporo.text import number_from_json
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array, Name, Record

#: The last hop class holds the states that are this many borders away, or more.
FARTHEST = 3


@dataclass(frozen=True)
class State:
    """A state: postal code, name, number in NOAA's climate division files, and its middle in degrees."""

    code: str
    name: str
    noaa: int
    latitude: float
    longitude: float


@dataclass(frozen=True)
class StateSplit:
    """Which states to train on and which to test on, by postal code."""

    name: str
    title: str
    train: tuple[str, ...]
    test: tuple[str, ...]


_CONTENT = json.loads(files("toporo.paper").joinpath("us_states.json").read_text(encoding="utf-8"))["states"]
STATES: dict[str, State] = {code: State(code, *facts) for code, (*facts, _) in _CONTENT.items()}
#: Every pair of states with a common border, once, in alphabetical order.
BORDERS: tuple[tuple[str, str], ...] = tuple(
    (code, other) for code in sorted(_CONTENT) for other in _CONTENT[code][-1].split()
)

_EAST = "AL CT DE FL GA IN KY MA MD ME MI MO NC NH NJ NY OH PA RI SC TN VA VT WV"
_NORTH = "CT IA ID IL IN MA ME MI MN MT ND NE NH NJ NY OH OR PA RI SD VT WA WI WY"


def _halves(name: str, title: str, train: str) -> StateSplit:
    trained = train.split()
    return StateSplit(name, title, tuple(trained), tuple(sorted(STATES.keys() - set(trained))))


#: The paper's two: train on one half of the country, test on the other.
SPLITS: dict[str, StateSplit] = {
    split.name: split for split in (_halves("east-west", "E→W", _EAST), _halves("north-south", "N→S", _NORTH))
}


def border_graph() -> GroupGraph:
    """The states and their common borders, each state where it lies on a map."""
    narrowing = math.cos(math.radians(38.0))  # of a degree of longitude in the middle of the country
    at: dict[Name, tuple[float, float]] = {
        code: (round(state.longitude * narrowing, 3), state.latitude) for code, state in STATES.items()
    }
    return GroupGraph(STATES, [(a, b, 1.0) for a, b in BORDERS], positions=at)


def get_split(split: str | StateSplit) -> StateSplit:
    """A split by its name; one of your own stays as it is."""
    if isinstance(split, StateSplit):
        return split
    if split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    return SPLITS[split]


def make_split(train: Iterable[str], test: Iterable[str], *, name: str = "own", title: str | None = None) -> StateSplit:
    """A split of your own, of states by code or name in any case. States in neither part are left out of the data.

    >>> make_split(["Ohio", "pa"], ["NY"]).train
    ('OH', 'PA')
    """
    parts = [tuple(sorted(_code(state) for state in _as_list(part))) for part in (train, test)]
    check_split(border_graph(), *parts)
    return StateSplit(name, title or name, *parts)


def check_split(graph: GroupGraph, train: Iterable[Name], test: Iterable[Name]) -> dict[Name, int]:
    """How many edges every test group is from its nearest training group; an error if the split makes no sense.

    Both parts must be there, hold groups of the graph, each once, and have none in common; and every test group must
    be joined by a path to some training group.
    """
    parts = {"training": _as_list(train), "test": _as_list(test)}
    for what, names in parts.items():
        if not names:
            raise DataError(f"the split has no {what} groups: name at least one.")
        for name in names:
            if name not in graph:
                raise UnknownNameError(f"{what} group", name, map(str, graph.names))
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise DataError(f"the split names {what} group(s) {listed(twice)} more than once: name each once.")
    both = [name for name in parts["training"] if name in parts["test"]]
    if both:
        raise DataError(
            f"the split has {listed(both)} among both the training and the test groups: a test group is one that "
            "training never sees, so leave each in one of the two."
        )
    hops = graph.hops(parts["training"])
    lost = [name for name in parts["test"] if hops[name] == math.inf]
    if lost:
        raise GraphError(
            f"no path in the graph leads from a training group to test group(s) {listed(lost)}: add the edges that "
            "join them, or leave them out of the split."
        )
    return {name: int(hops[name]) for name in parts["test"]}


def hop_classes(split: str | StateSplit) -> dict[str, int]:
    """Class of every test state: 1, 2 or 3 for that many borders to the nearest training state, 3 also for more."""
    chosen = get_split(split)
    hops = check_split(border_graph(), chosen.train, chosen.test)
    return {code: min(hops[code], FARTHEST) for code in chosen.test}


def _code(text: object) -> str:
    codes = {state.name.lower(): state.code for state in STATES.values()} | {code.lower(): code for code in STATES}
    wanted = str(text).strip().lower()
    if wanted not in codes:
        raise UnknownNameError("state", text, (state.name for state in STATES.values()))
    return codes[wanted]


def _as_list(names: Iterable[Name]) -> list[Name]:
    if isinstance(names, str):
        raise DataError(f"a part of a split must be a list of names; found the text {names!r}. Write [{names!r}].")
    return list(names)


YEARS = range(2008, 2020)
#: Months that are given, and as many to predict.
HALF = 6
#: Months from the start of a window to that of the next, in training and in test states.
WINDOWS = {"season": (12, 12), "sliding": (1, 12), "all-sliding": (1, 1)}

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


def read_temperatures(path: str | os.PathLike[str], years: range = YEARS) -> dict[str, Array]:
    """Monthly mean temperatures in °F by state: arrays of years (2008 to 2019 unless told) by 12 months.

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
        if code is None or year not in years:
            continue
        if (code, year) in rows:
            raise DataError(f"{file}, line {number}: a second row of {_named(code)} in {year}. {_EXPECTED}")
        rows[code, year] = _numbers(file, number, match[5])
    _check_complete(file, rows, years)
    return {code: np.array([rows[code, year] for year in years]) for code in sorted(STATES)}


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


def _check_complete(file: Path, rows: Mapping[tuple[str, int], list[float]], wanted: range) -> None:
    span = f"{wanted[0]} to {wanted[-1]}"
    lacking = {code: [year for year in wanted if (code, year) not in rows] for code in STATES}
    absent = [_named(code) for code, years in lacking.items() if len(years) == len(wanted)]
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
    releases = [
        (tuple(map(int, (match[4], match[1], match[2], match[3]))), path)
        for place in (folder / "tpt48", folder)
        for path in sorted(place.glob("climdiv-tmpcst-*"))
        if (match := _FILES.fullmatch(path.name)) and path.is_file()
    ]
    return [path for _, path in sorted(releases, key=lambda release: release[0], reverse=True)]


#: NOAA's folder of releases, which keeps only the newest, and the most bytes that one may have.
URL = "https://www.ncei.noaa.gov/pub/data/cirs/climdiv/"
MOST_BYTES = 1 << 24
_RELEASE = "climdiv-tmpcst-v1.0.0-{}"


def fetch(
    folder: Path,
    *,
    release: str | None = None,
    url: str | None = None,
    report: Received | None = None,
    say: Callable[[str], object],
) -> Fetched:
    """Download NOAA's file, unless the data folder has an intact one.

    A release whose checksum is not known is checked by reading it. The checksum that it then has is kept in
    ``NAME.sha256``, in the format of ``sha256sum``, to notice later damage.

    Parameters
    ----------
    folder : the data folder; made if need be.
    release : its date as YYYYMMDD; by default the newest in the folder, else the newest that NOAA publishes.
    url : another place that serves the same files.
    report, say : called with the bytes received, and with one line per event.
    """
    base = f"{(url or URL).rstrip('/')}/"
    if release is not None and not re.fullmatch(r"[0-9]{8}", release):
        raise SettingError(f"release is {release!r}: expected a date as YYYYMMDD, such as 20200106.")
    existing = [path for path in find_releases(folder) if release is None or path.name == _RELEASE.format(release)]
    if existing:
        state = _state_of(existing[0])
        if state in ("intact", "complete"):
            return _fetched(existing[0], fresh=False)
        say(f"{existing[0]} {'differs from what it was' if state == 'differs' else 'is damaged'}: fetching again")
    target = folder / "tpt48"
    try:
        name = _RELEASE.format(release or _newest(base))
        say(f"fetching {base}{name}")
        checksum, check = (CHECKSUM, None) if name == FILE else (None, partial(_check, target / name))
        download(f"{base}{name}", target / name, checksum=checksum, check=check, most=MOST_BYTES, report=report)
    except DownloadError as error:
        newest = "NOAA keeps only the newest release: leave --release out to get it. " if release is not None else ""
        raise DownloadError(
            f"{error} {newest}Try again later, or fetch {_RELEASE.format(release or 'YYYYMMDD')} by hand from {base} "
            f"with a browser or on another machine, put it into {target} and go on."
        ) from error
    return _fetched(target / name, fresh=True)


def _check(target: Path, part: Path) -> None:
    """Check that a download is complete, and record its checksum before the file gets its name."""
    read_temperatures(part)
    write_text(_record(target), f"{sha256(part)}  {target.name}\n")


def _newest(base: str) -> str:
    """Read the date of NOAA's newest release from the file that holds it."""
    with TemporaryDirectory() as folder:
        download(f"{base}procdate.txt", Path(folder, "date"), most=1000)
        content = Path(folder, "date").read_bytes().strip()
    if not re.fullmatch(rb"[0-9]{8}", content):
        raise DownloadError(f"{base}procdate.txt: found {content[:40]!r}, expected the date of the newest release.")
    return content.decode("ascii")


def _fetched(path: Path, *, fresh: bool) -> Fetched:
    return Fetched(path, release=path.name[-8:], published=sha256(path) == CHECKSUM, fresh=fresh)


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _state_of(path: Path) -> str:
    """Compare a file with its checksum (``intact``, ``differs``), else read it (``complete``, ``damaged``)."""
    known = CHECKSUM if path.name == FILE else None
    if known is None and _record(path).is_file():
        known = _record(path).read_text(encoding="utf-8", errors="replace")[:64]
    if known is not None:
        return "intact" if sha256(path) == known else "differs"
    try:
        read_temperatures(path)
    except DataError:
        return "damaged"
    return "complete"


def file_states(folder: Path | None) -> list[FileState]:
    """List every release in a data folder with its state."""
    existing = find_releases(folder) if folder is not None else []
    absent = ("tpt48/climdiv-tmpcst-v1.0.0-YYYYMMDD", "absent (toporo data get tpt48)")
    return [(str(path), _state_of(path)) for path in existing] or [absent]


# ---------------------------------------------------------------------- the benchmark


def load(
    folder: str | os.PathLike[str] | None = None,
    *,
    source: str = "auto",
    split: str | StateSplit = "east-west",
    window: str = "season",
) -> BenchmarkData:
    """Load the benchmark from NOAA's file in a data folder (``folder``, else ``$TOPORO_DATA``, else the cache).

    Parameters
    ----------
    source : ``"auto"`` takes the newest release that is there; ``"published"`` insists on the one that the figures in
        the documentation are from.
    split : ``"east-west"``, ``"north-south"``, or one of your own (see
        :func:`toporo.paper.tpt48.make_split`).
    window : ``"season"`` has twelve windows per state, January to June and July to December of a year;
        ``"sliding"`` trains on all 133 windows of twelve months and tests on those twelve; ``"all-sliding"`` trains and
        tests on all 133.
    """
    check_source(
        "tpt48",
        source,
        ("auto", "published"),
        generated="is made of real temperatures and cannot be generated. Fetch them with: toporo data get tpt48 (or by "
        f"hand from {URL}), then use --source auto or published.",
    )
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
    steps = {code: WINDOWS[window][code in chosen.test] for code in scaled}
    return BenchmarkData(
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
        f"hand from {URL})."
    )


def _windows(months: Array, step: int) -> Array:
    """Every stretch of twelve months that starts a multiple of ``step`` months after the first."""
    return np.lib.stride_tricks.sliding_window_view(months, 2 * HALF)[::step]


def _rows(windows: Mapping[str, Array]) -> GroupedData:
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


def _mean_by_hop(values: ByGroup, loaded: BenchmarkData) -> dict[str, Any]:
    errors = by_hop(values, loaded.about["hops"])
    return {"test": errors.all, **{f"hop {hop}": value for hop, value in errors.hops.items()}, "by_group": values}


# ---------------------------------------------------------------------- rules of thumb


def _persistence(train: GroupedData, loaded: BenchmarkData) -> RuleOfThumb:  # noqa: ARG001  # rules share a signature
    """The last month that is given, for every month to predict."""
    ahead = train.y.shape[1]
    return RuleOfThumb(lambda x: np.repeat(x[:, -1:], ahead, axis=1))


def _climatology(train: GroupedData, loaded: BenchmarkData) -> RuleOfThumb:
    """What the training states' months to predict were on average, by the month in which a test window starts.

    That is not among the inputs: rows are taken as those of whole states, each state's in the order of time.
    """
    trained, tested = (12 // step for step in WINDOWS[loaded.about["window"]])  # windows that start in one year
    starts = [np.concatenate([train.rows(name)[i::trained] for name in train.groups]) for i in range(tested)]
    usual = np.stack([train.y[rows].mean(axis=0) for rows in starts])
    each = len(loaded.data.rows(loaded.test[0]))
    return RuleOfThumb(lambda x: usual[np.arange(len(x)) % each % tested], {"mean": usual})


_RULES = {"persistence": _persistence, "climatology": _climatology}
for _name in _RULES:
    BENCH_METHODS.register(_name)(BenchMethod(_name, _name.capitalize(), model="rule", everywhere=False))


def to_table(loaded: BenchmarkData) -> TableRows:
    """One year of a state per row, in °F, with the mean temperature from July to December as ``rest_of_year``."""
    data, mean, deviation = loaded.data, loaded.about["mean"], loaded.about["sd"]
    years = {state: iter(YEARS) for state in data.groups}

    def degrees(values: Any) -> list[float]:
        return [round(float(value), 2) for value in values * deviation + mean]

    rows = (
        [state, next(years[state]), *degrees(given), *degrees(later.mean(keepdims=True))]
        for state, given, later in zip(data.ids.names, data.x, data.y, strict=True)
    )
    months = [month.lower() for month in _MONTHS[:HALF]]
    return TableRows(["state", "year", *months, "rest_of_year"], rows, group="state", target="rest_of_year")


# ---------------------------------------------------------------------- the table

_HOPS = ("hop 1", "hop 2", "hop 3", "all")


def _errors(*values: float) -> dict[str, float]:
    """Published figures by hop class, or the one over all states where the paper has no other."""
    return dict(zip(_HOPS[-len(values) :], values, strict=True))


_PAPER = {
    "east-west": {
        "erm": _errors(1.693, 1.800, 1.672, 1.716),
        "irm": _errors(1.724),
        "vrex": _errors(1.616),
        "sd": _errors(1.722),
        "group-dro": _errors(1.684),
        "tro-physical": _errors(1.445, 1.576, 1.400, 1.466),
        "tro-data": _errors(1.435, 1.569, 1.392, 1.458),
    },
    "north-south": {
        "erm": _errors(1.084, 1.265, 1.975, 1.426),
        "iw-erm": _errors(1.829),
        "irm": _errors(1.474),
        "vrex": _errors(0.487, 0.944, 2.266, 1.194),
        "sd": _errors(1.523),
        "group-dro": _errors(1.356),
        "tro-physical": _errors(0.889, 0.991, 1.678, 1.177),
        "tro-data": _errors(0.855, 0.950, 1.604, 1.129),
    },
}
_ARROWS = {"east-west": "E→W", "north-south": "N→S"}
# The same settings hold for all variants. Learning rate, batches and number of steps of the networks were settled
# by the loss of ERM on validation windows of the training states, before any test error of a network was looked at. λ
# and the step of the weights lie in the paper's grids; the ridge of the linear models is that of earlier explorations,
# which had seen test errors. 2 000 steps either way: an epoch is two batches of 5 of a state's 10 windows, or ten
# batches of 10 of its 106.
_SLIDING = {"rounds": 200, "per_group": 10, "evaluate_every": 4}
_TRAINING: dict[str, tuple[str, dict[str, Any]]] = {
    "season": ("season-aligned windows", {"rounds": 1000, "per_group": 5, "evaluate_every": 20}),
    "sliding": ("sliding windows in training", _SLIDING),
    "all-sliding": ("sliding windows in training and test", _SLIDING),
}

PROTOCOL = Protocol(
    benchmark="tpt48",
    title="TPT-48",
    methods=(
        "persistence", "climatology", "linear-erm", "erm", "iw-erm", "irm", "vrex", "sd", "group-dro",
        "tro-physical", "tro-data", "tro-uniform", "tro-shuffled", "tro-lambda0", "linear-iw-erm", "linear-dro",
        "linear-tro-physical", "linear-tro-data", "linear-tro-uniform", "linear-tro-shuffled",
        "linear-chosen", "linear-chosen-id",
    ),
    rounds=200,
    per_group=10,
    learning_rate=3e-3,
    hidden=(64, 64),
    validation=0.2,
    metric="test MSE (standardised; summed over six months, mean over windows, then states)",
    metrics=tuple(Metric(name, "test" if name == "all" else name) for name in _HOPS),
    data_topology={"scales": 10, "sigma": "knn", "cut": "mst-knn"},
    inputs_topology={"scales": 10, "sigma": "knn", "cut": "mst-knn"},
    variants=tuple(
        Variant(
            name=f"{split}/{window}",
            title=f"{arrow}, {title}",
            options={"split": split, "window": window},
            training=training,
            paper=_PAPER[split] if window == "all-sliding" else {},
        )
        for split, arrow in _ARROWS.items()
        for window, (title, training) in _TRAINING.items()
    ),
    task="regression",
    better="lower",
    digits=3,
    priors={"measure": "betweenness", "normalization": "sum"},
    changes={
        "erm": {"title": "MLP ERM"},
        # By validation on rows of training states (--search paper). A product of two derivatives can be negative
        # without bound where outputs have none: with the usual λ = 100 the network is ruined.
        "irm": {"settings": {"penalty": 0.1, "warm_up_share": WARM_UP_SHARE}},
        "tro-physical": {"settings": MILD_TRO},
        "tro-data": {"settings": MILD_TRO},
        "tro-uniform": {"settings": MILD_TRO},
        "tro-shuffled": {"settings": MILD_TRO},
    },
    notes=(
        "The paper says neither which windows it used nor which network. Its figures stand beside sliding windows in "
        "training and test, whose errors are nearest to its own, and nowhere else. A model for season-aligned windows "
        "predicts the same six months every time: that is an easier task than the paper's, and a linear model solves "
        "it. A lower error there is not an improvement on the paper.",
        "Priors are betweenness divided by its sum. The softmax of the raw path counts, as the paper prints "
        "it, would put all weight on one of the 24 states.",
        "A network trains on 80 % of the training states' windows and has the others for validation; sliding "
        "windows overlap, so that validation windows share months with training windows. Persistence, "
        "climatology and the linear models have no epoch to choose: they use all training windows, the linear "
        "ones are solved exactly. What no seed changes has a figure without ±. Climatology knows in which month a "
        "window starts, which no model is told.",
        "TRO-data learns its topology from the features of an MLP trained by ERM, linear TRO-data from the "
        "inputs; both from training states alone. Shuffled priors are the physical one, handed to other states "
        "at random, anew for each seed.",
    ),
)  # fmt: skip


# ---------------------------------------------------------------------- the report

SHOWN_WEIGHTS = {
    "networks": (
        "The weights of DRO and TRO after the last epoch, mean over seeds.",
        ("group-dro", "tro-physical", "tro-data"),
    ),
    "linear models": (
        "The weights of DRO and TRO at the optimum.",
        ("linear-dro", "linear-tro-physical", "linear-tro-data", "linear-chosen"),
    ),
}
SHOWN_MAPS = ("erm", "tro-physical", "linear-erm", "linear-chosen")
HIGHLIGHT = ("tro-physical", "tro-data", "linear-tro-physical", "linear-tro-data", "linear-chosen")
#: A method and what it has to be compared with.
COMPARED: dict[str, tuple[str, ...]] = {
    "tro-physical": ("erm", "iw-erm", "tro-uniform", "tro-shuffled"),
    "tro-data": ("erm", "tro-uniform", "tro-shuffled"),
    "linear-erm": ("erm",),
    "linear-tro-physical": ("linear-erm", "linear-tro-uniform", "linear-tro-shuffled"),
    "linear-tro-data": ("linear-erm", "linear-tro-uniform", "linear-tro-shuffled"),
    "linear-chosen": ("linear-erm", "linear-chosen-id"),
}


def overall(outcome: Outcome) -> Sections:
    """The map of who lies between: one panel per split."""
    shifts: dict[str, pages.maps.Shift] = {}
    for part in outcome.parts:
        loaded = part.loaded
        split = loaded.about["split"]
        shifts.setdefault(
            split,
            pages.maps.Shift(
                SPLITS[split].title if split in SPLITS else split,
                {str(name): value for name, value in _physical(part).centrality.items()},
                [str(name) for name in loaded.train],
                [str(name) for name in loaded.test],
                loaded.about["hops"],
            ),
        )
    return [
        pages.charts.figure_section(
            "centrality",
            "Which states the shift passes through",
            "Training states by how many shortest paths over common borders, from training to test states, lead "
            "through them; test states in grey by their distance. The physical prior is in proportion to these counts.",
            pages.maps.centrality_map(*shifts.values(), label="betweenness"),
        )
    ]


def sections(part: VariantOutcome, out: Path) -> Sections:  # noqa: ARG001  # benchmarks share one signature
    """The figures of one variant, in the order of the page."""
    return [
        *_by_hop(part),
        *_maps(part),
        *_importance(part),
        *curves_section(
            part,
            {"validation MSE, training states": "validation", "test MSE": "test"},
            "Error over the epochs",
            "Mean over seeds, shaded ± 1 sd. Where the error on the right rises while the one on the left falls, "
            "validation on training states cannot choose the epoch.",
            log=True,
        ),
        *_learned(part),
        *_selection(part),
    ]


def _title(part: VariantOutcome, method: str) -> str:
    return part.protocol.method(method).title


def _physical(part: VariantOutcome) -> Prior:
    return part.loaded.physical_prior(**part.protocol.priors)


def _last(part: VariantOutcome) -> dict[str, dict[str, Row]]:
    """Rows of the last epoch by method and metric."""
    by_method: dict[str, dict[str, Row]] = {}
    for row in part.rows:
        if row.selection == "last":
            by_method.setdefault(row.method, {})[row.metric] = row
    return by_method


def _by_hop(part: VariantOutcome) -> Sections:
    last = _last(part)
    ours = {
        _title(part, method): {metric.removeprefix("hop "): (row.mean, row.sd) for metric, row in rows.items()}
        for method, rows in last.items()
    }
    paper = {
        _title(part, method): {
            metric.removeprefix("hop "): (row.paper, None) for metric, row in rows.items() if row.paper is not None
        }
        for method, rows in last.items()
        if any(row.paper is not None for row in rows.values())
    }
    figure = pages.figures.error_by_hop(
        ours,
        paper,
        reference=_title(part, "erm") if "erm" in last else None,
        highlight=[_title(part, method) for method in HIGHLIGHT if method in last],
    )
    return section(
        part,
        "hops",
        "Error against distance",
        "Test states by how many borders they are away from the training states, after the last epoch. The dotted "
        "line is MLP ERM.",
        figure,
    )


def _maps(part: VariantOutcome) -> Sections:
    shown = {
        _title(part, method): {str(name): value for name, value in last_metrics(runs, "by_group").items()}
        for method in SHOWN_MAPS
        if (runs := of_method(part.records, method))
    }
    if not shown:
        return []
    figure = pages.maps.error_map(shown, [str(name) for name in part.loaded.train])
    text = "Mean over windows and seeds after the last epoch; one colour scale for all maps."
    return section(part, "states", "Error in every test state", text, figure)


def _importance(part: VariantOutcome) -> Sections:
    prior = {str(name): value for name, value in _physical(part).weights.items()}
    shown_all: Sections = []
    for kind, (words, methods) in SHOWN_WEIGHTS.items():
        shown = {
            _title(part, method): {str(name): value for name, value in last_weights(runs).items()}
            for method in methods
            if (runs := of_method(part.records, method))
        }
        if shown:
            text = f"{words} The diamonds are the physical prior in every panel; TRO-data has a prior of its own."
            title = f"How much each training state counts: {kind}"
            figure = pages.figures.importance_bars(shown, prior, prior_label="physical prior p")
            shown_all += section(part, f"importance-{kind.split()[0]}", title, text, figure)
    return shown_all


def _learned(part: VariantOutcome) -> Sections:
    first = lowest_seeds(part.records)
    shown = {
        _title(part, method): (
            GroupGraph.from_json(json.dumps(first[method]["topology"])),
            Prior.from_dict(first[method]["prior"]).weights,
        )
        for method in ("tro-data", "linear-tro-data")
        if method in first
    }
    if not shown:
        return []
    return section(
        part,
        "learned",
        "The learned topology and the given one",
        "Edges learned from training states alone, by TRO-data from the features of an MLP (lowest seed), by linear "
        "TRO-data from the inputs, and the prior that follows. In the given topology two states are joined if they "
        "have a common border.",
        pages.maps.learned_on_map(shown, part.loaded.graph),
    )


def _selection(part: VariantOutcome) -> Sections:
    both = [lowest_seeds(part.records).get(method) for method in ("linear-chosen", "linear-chosen-id")]
    if not (both[0] and both[1]):
        return []
    honest, other = (record["choice"] for record in both if record)
    scores = {_label(candidate): candidate["score"] for candidate in other["candidates"]}
    figure = pages.figures.selection_scatter(
        [
            pages.figures.Configuration(_label(c), c["score"], scores[_label(c)], c["test"])
            for c in honest["candidates"]
            if _label(c) in scores
        ],
        rules=("regions of training states left out", "rows of all training states set aside"),
        chosen=(_label(honest["chosen"]), _label(other["chosen"])),
    )
    text = (
        "Each dot is a prior and a penalty of the exact linear model: its validation error, and the test error it has. "
        f"On the left connected regions of training states are left out in turn ({honest['folds']} of them, on "
        f"average {honest['held_out_hops']:.1f} hops from the nearest state kept; test states are "
        f"{honest['test_hops']:.1f} away); on the right rows of all training states are. Test errors are shown here "
        "and took no part in the choice."
    )
    title = "Choosing a prior and a penalty without test labels"
    return section(part, "selection", title, text, figure)


def _label(candidate: Record) -> str:
    penalty = number_from_json(candidate["penalty"])
    return f"{candidate['prior']}, λ = {'∞' if math.isinf(penalty) else f'{penalty:g}'}"


# ---------------------------------------------------------------------- sentences


def findings(part: VariantOutcome) -> list[str]:
    """What the table says, computed from it: errors over all test states at the last epoch, against the controls."""
    last = {method: rows["all"] for method, rows in _last(part).items()}
    sentences = []
    for method, references in COMPARED.items():
        known = [reference for reference in references if reference in last]
        if method in last and known:
            row = last[method]
            against = ", ".join(_compared(row, last[name], _title(part, name)) for name in known)
            sentences.append(f"{_title(part, method)} ({row.mean:.3f}) is {against}.")
    return sentences + _against_paper(part, last)


def _compared(row: Row, reference: Row, title: str) -> str:
    gap = row.mean - reference.mean
    percent = round(100 * abs(gap) / reference.mean)
    share = f"{percent} % {'above' if gap >= 0 else 'below'} {title}" if percent else f"level with {title}"
    spread = max(row.sd or 0.0, reference.sd or 0.0)
    if not spread:
        return share
    return f"{share} ({'within' if abs(gap) <= spread else 'beyond'} the spread over seeds)"


def _against_paper(part: VariantOutcome, last: dict[str, Row]) -> list[str]:
    published = {method: values["all"] for method, values in part.variant.paper.items() if "all" in values}
    if not published or not last:
        return []
    best = min(published, key=lambda method: published[method])
    below = [method for method in last if last[method].mean < published[best]]
    sentences = [
        f"The paper's lowest figure is {published[best]:.3f} ({_title(part, best)}); {len(below)} of the {len(last)} "
        f"methods here are below it{_listed([_title(part, m) for m in last if m not in below])}."
    ]
    if "climatology" in last and "erm" in published:
        mean, theirs = last["climatology"].mean, published["erm"]
        sentences.append(
            f"Climatology, which looks at no input, has {mean:.3f}, {'less' if mean < theirs else 'more'} than the "
            f"paper's {theirs:.3f} for ERM."
        )
    return sentences


def _listed(others: Sequence[str]) -> str:
    return f", the others being {', '.join(others)}" if 0 < len(others) <= 4 else ""


register(
    Benchmark(
        title="monthly temperatures of 48 states of the USA, 6 months ahead, 24 training states",
        protocol=PROTOCOL,
        load=load,
        how_to_get="toporo data get tpt48 fetches it.",
        files=file_states,
        fetch=fetch,
        table=to_table,
        summary=_mean_by_hop,
        rules=_RULES,
        sections=sections,
        findings=findings,
        overall=overall,
    )
)
