"""Bootstrap intervals of metrics that are functions of sums over rows, and of differences; what they say in words."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from toporo.progress import tracked
from toporo.text import number
from toporo.types import Array

Whole = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int16]
#: Metrics by name, one value for each line of sums; see :meth:`Sample.total`.
Metrics = Callable[[Array], dict[str, Array]]

#: Groups with more rows have the means over their resampled rows drawn from a normal distribution.
EXACT_ROWS = 500
#: Numbers in memory at a time.
PORTION = 1 << 20
#: Losses there are where a target is among them (squared and absolute error, target, its square), and their degrees.
TARGETED, DEGREES = 4, (2, 1, 1, 2)
#: A share of the variance of losses that is nothing but rounding.
NOTHING = 1e-12


@dataclass(frozen=True)
class Interval:
    """A metric and its bootstrap interval.

    Attributes
    ----------
    value : the metric.
    low, high : the ends of the interval; ``nan`` where there is none.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.value, digits=4)} [{number(self.low, digits=4)}, {number(self.high, digits=4)}]"


@dataclass(frozen=True, eq=False)
class LossMoments:
    """Sums of the losses of many rows, and of products of these.

    Two of them can be added up. The result for all rows is the same up to rounding, in whichever parts they come
    (Chan, Golub and LeVeque 1983).

    Attributes
    ----------
    rows : how many.
    sums : of each loss.
    products : sums of products of two losses, each less its mean.
    centre : what was taken from a target, as in :class:`Sample`.
    unit : the power of 2 in which errors and targets are reckoned.
    """

    rows: int
    sums: Array
    products: Array
    centre: float
    unit: int = 0

    @classmethod
    def of(cls, losses: Array, centre: float, unit: int = 0) -> LossMoments:
        """Moments of rows."""
        sums = losses.sum(axis=1)
        apart = losses - (sums / losses.shape[1])[:, None]
        # einsum by itself does without BLAS: the same bits on any number of threads
        return cls(losses.shape[1], sums, np.einsum("in,jn->ij", apart, apart), centre, unit)

    def about(self, centre: float) -> LossMoments:
        """The same with another number taken from the target."""
        by = self.centre - centre
        if by == 0.0 or len(self.sums) != TARGETED:
            return self
        moved = np.eye(TARGETED)
        moved[3, 2] = 2.0 * by
        sums = _about(by, np.concatenate([[self.rows], self.sums])[None, :])[0, 1:]
        return replace(self, sums=sums, products=moved @ self.products @ moved.T, centre=centre)

    def within(self, unit: int) -> LossMoments:
        """The same in another unit."""
        power = (self.unit - unit) * np.asarray(DEGREES if len(self.sums) == TARGETED else [1] * len(self.sums))
        if not power.any():
            return self
        return replace(
            self,
            sums=np.ldexp(self.sums, power),
            products=np.ldexp(self.products, power[:, None] + power),
            centre=float(np.ldexp(self.centre, self.unit - unit)),
            unit=unit,
        )

    def and_of(self, other: LossMoments) -> LossMoments:
        """Those of both."""
        unit = max(self.unit, other.unit)
        one = self.within(unit)
        two = other.within(unit).about(one.centre)
        rows = one.rows + two.rows
        apart = two.sums / two.rows - one.sums / one.rows
        between = one.rows * (two.rows / rows) * np.multiply.outer(apart, apart)
        products = one.products + two.products + between
        return replace(one, rows=rows, sums=one.sums + two.sums, products=products)

    def resampled(self, resamples: int, random: np.random.Generator) -> Array:
        """Sums over as many rows drawn with replacement, by the normal distribution that they follow."""
        targeted = len(self.sums) == TARGETED
        own = self.about(self.centre + float(self.sums[2]) / self.rows) if targeted else self
        scale = np.sqrt(np.clip(np.diag(own.products), 0.0, None) / self.rows)
        divisor = np.where(scale > 0, scale, 1.0)
        size, axes = np.linalg.eigh(own.products / self.rows / np.multiply.outer(divisor, divisor))
        # Of all roots the one that a little rounding changes but a little; what is less than rounding is nothing.
        size = np.sqrt(np.where(size > NOTHING, size, 0.0))
        root = scale[:, None] * np.einsum("ij,j,kj->ik", axes, size, axes)
        noise = np.einsum("bj,ij->bi", random.standard_normal((resamples, len(scale))), root)
        sums = own.sums + math.sqrt(self.rows) * noise
        positive = [place for place in range(len(scale)) if not (targeted and place == 2)]
        sums[:, positive] = np.clip(sums[:, positive], 0.0, None)  # losses and squares never are negative
        if not targeted:
            return np.asarray(sums)
        rows = np.full((resamples, 1), float(self.rows))
        return _about(own.centre - self.centre, np.concatenate([rows, sums], axis=1))[:, 1:]


def _about(by: float, sums: Array) -> Array:
    """Sums, rows first, when so much less is taken from the target."""
    moved = sums.copy()
    moved[:, 4] += 2.0 * by * sums[:, 3] + by**2 * sums[:, 0]
    moved[:, 3] += by * sums[:, 0]
    return moved


class Sample:
    """Rows of a group, of which sums are all that metrics need to know.

    Parameters
    ----------
    losses : (some, rows), the rows in an order that depends on their content alone; or :class:`LossMoments` of many.
    cells : how many rows are in each of some cells, such as pairs of a class and whether it was recognised.
    centre : what was taken from a target before its sum and its sum of squares, the last two of four ``losses``.
    """

    def __init__(self, losses: Array | LossMoments, cells: Array, centre: float = 0.0) -> None:
        self.cells, self.moments = cells, losses if isinstance(losses, LossMoments) else None
        if not isinstance(losses, LossMoments):
            self.losses, self.rows, self.centre = np.ascontiguousarray(losses) + 0.0, int(losses.shape[1]), centre
            self.sums = self.losses.sum(axis=1)
            if self.rows > EXACT_ROWS:
                self.moments = LossMoments.of(self.losses, centre)
        if self.moments is not None:
            self.rows, self.centre, self.sums = self.moments.rows, self.moments.centre, self.moments.sums

    def total(self) -> Array:
        """The sums: rows, then losses, then cells."""
        return np.concatenate([[self.rows], self.sums, self.cells])[None, :]

    def resampled(self, counts: Counts | None, resamples: int, random: np.random.Generator) -> Array:
        """The sums over as many rows drawn with replacement, one line per resample.

        ``counts`` says how often each row is drawn for each resample; None for the normal distribution that the means
        of many rows follow.
        """
        among = slice(1, 1 + len(self.sums))
        sums = np.zeros((resamples, among.stop + len(self.cells)))
        sums[:, 0] = self.rows
        if len(self.sums):
            drawn = self._counted(counts) if counts is not None else self._many().resampled(resamples, random)
            sums[:, among] = drawn
        if len(self.cells):
            filled = np.flatnonzero(self.cells)
            chances = self.cells[filled] / self.rows
            sums[:, among.stop + filled] = random.multinomial(self.rows, chances, size=resamples)
        return sums

    def about(self, centre: float, sums: Array) -> Array:
        """The same sums with another number taken from the target."""
        by = self.centre - centre
        return sums if by == 0.0 else _about(by, sums)

    def _many(self) -> LossMoments:
        return LossMoments.of(self.losses, self.centre) if self.moments is None else self.moments

    def _counted(self, counts: Counts) -> Array:
        sums, at_once = np.empty((len(counts), len(self.losses))), max(1, PORTION // self.rows)
        for start in range(0, len(counts), at_once):
            often = counts[start : start + at_once].astype(np.float64)
            for place, loss in enumerate(self.losses):
                sums[start : start + at_once, place] = np.einsum("bn,n->b", often, loss)
        return sums


class Bootstrap:
    """Resamples of groups, and what they say of each group, of means over groups and of all rows together.

    Random numbers follow from the seed and the names of the groups in question: the order of rows makes no difference,
    and neither do other groups or the last bits of a loss, which are not the same on every processor.
    """

    def __init__(
        self,
        members: Mapping[str, Sample],
        pooled: Sample,
        metrics_of: Metrics,
        *,
        resamples: int,
        level: float,
        seed: int,
    ) -> None:
        self.members = dict(sorted(members.items()))
        self.metrics_of, self.resamples, self.level, self.seed = metrics_of, resamples, level, seed
        self.pooled = pooled
        self.values = {name: _single(metrics_of(sample.total())) for name, sample in self.members.items()}
        self.draws: dict[str, dict[str, Array]] = {}
        self.pooled_draws = self._draw()

    def _draw(self) -> dict[str, Array]:
        """Resample every group, and put resampled groups together to resamples of all rows."""
        random, many = self._random(self.members), len(self.members)
        times = random.multinomial(many, np.full(many, 1.0 / many), size=self.resamples)
        together = np.zeros((self.resamples, self.pooled.total().shape[1]))
        counts: Counts | None = None
        for place, (name, sample) in enumerate(tracked(self.members.items(), "resampling rows, for intervals")):
            if sample.rows > EXACT_ROWS:
                counts = None
            elif counts is None or counts.shape[1] != sample.rows:
                counts = self._counts(sample.rows)
            sums = sample.resampled(counts, self.resamples, self._random([name]))
            self.draws[name] = self.metrics_of(sums)
            sums = sample.about(self.pooled.centre, sums)
            for again in range(int(times[:, place].max(initial=0))):
                # A group that is drawn twice has its rows resampled twice, not the same resample two times.
                drawn = np.flatnonzero(times[:, place] > again)
                together[drawn] += sums[random.integers(self.resamples, size=len(drawn))]
        return self.metrics_of(together)

    def of_group(self, name: str) -> dict[str, Interval]:
        """The metrics of one group, its rows resampled."""
        return {
            metric: self._interval(value, self._rows_only(name, metric)) for metric, value in self.values[name].items()
        }

    def of_mean(self, names: Iterable[str]) -> dict[str, Interval]:
        """Means over groups for which the metric exists; groups resampled, and rows within."""
        wanted = set(names)
        ordered = [name for name in self.members if name in wanted]
        return {metric: self._mean(ordered, metric) for metric in self.values[ordered[0]]}

    def of_all(self) -> dict[str, Interval]:
        """The metrics of all rows together; groups resampled, and rows within."""
        values = _single(self.metrics_of(self.pooled.total()))
        draws = self.pooled_draws
        if len(self.members) == 1:
            (name,) = self.members
            draws = {metric: self._rows_only(name, metric) for metric in values}
        return {metric: self._interval(value, draws[metric]) for metric, value in values.items()}

    def _mean(self, names: list[str], metric: str) -> Interval:
        names = [name for name in names if not math.isnan(self.values[name][metric])]
        if not names:
            return Interval(math.nan, math.nan, math.nan)
        value = math.fsum(self.values[name][metric] for name in names) / len(names)
        if len(names) == 1:
            return self._interval(value, self._rows_only(names[0], metric))
        random = self._random(names)
        drawn = np.stack([self.draws[name][metric] for name in names])
        means, at_once = np.empty(self.resamples), max(1, PORTION // len(names))
        for start in range(0, self.resamples, at_once):
            shape = (min(at_once, self.resamples - start), len(names))
            picked = drawn[random.integers(len(names), size=shape), random.integers(self.resamples, size=shape)]
            exists = ~np.isnan(picked)
            with np.errstate(invalid="ignore"):
                means[start : start + at_once] = np.where(exists, picked, 0.0).sum(axis=1) / exists.sum(axis=1)
        means = means[~np.isnan(means)]
        if len(means):
            # Metrics such as rmse are lower in resamples of few rows, and over many groups that outweighs the spread.
            means = np.clip(means + (value - np.median(means)), np.nanmin(drawn), np.nanmax(drawn))
        return self._interval(value, means)

    def _rows_only(self, name: str, metric: str) -> Array:
        return self.draws[name][metric] if self.members[name].rows > 1 else np.empty(0)

    def _interval(self, value: float, draws: Array) -> Interval:
        draws = draws[~np.isnan(draws)]
        if math.isnan(value) or not len(draws):
            return Interval(value, math.nan, math.nan)
        tail = (1.0 - self.level) / 2.0
        with np.errstate(invalid="ignore"):
            low, high = np.quantile(draws, [tail, 1.0 - tail])
        return Interval(value, float(low), float(high))

    def _counts(self, rows: int) -> Counts:
        """How often each of some rows is drawn, for every resample; the same for all groups of that size."""
        random = np.random.default_rng([self.seed, rows])
        counts = np.empty((self.resamples, rows), dtype=np.int16)
        at_once = max(1, PORTION // rows)
        for start in range(0, self.resamples, at_once):
            chunk = counts[start : start + at_once]
            drawn = random.integers(rows, size=chunk.shape) + rows * np.arange(len(chunk))[:, None]
            chunk[:] = np.bincount(drawn.ravel(), minlength=chunk.size).reshape(chunk.shape)
        return counts

    def _random(self, names: Iterable[str]) -> np.random.Generator:
        content = hashlib.sha256(json.dumps(list(names)).encode())
        return np.random.default_rng([self.seed, int.from_bytes(content.digest()[:16], "big")])


def _single(metrics: Mapping[str, Array]) -> dict[str, float]:
    return {name: float(value[0]) for name, value in metrics.items()}


# ---------------------------------------------------------------- differences


def mean_over_groups(values: Iterable[float], resamples: int, level: float, seed: int) -> Interval:
    """A mean over groups with a percentile bootstrap over groups; with a single group there is no interval.

    Parameters
    ----------
    values : one per group, in any order.
    resamples, level, seed : of the bootstrap.
    """
    ordered = np.sort(np.asarray(list(values)))
    low = high = math.nan
    if len(ordered) > 1 and resamples:
        draws = np.random.default_rng(seed).choice(ordered, (resamples, len(ordered))).mean(axis=1)
        low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Interval(float(ordered.mean()), low, high)


def clear(gain: Interval) -> int:
    """1 for better, -1 for worse, 0 where the interval holds 0; without an interval, by the value alone.

    Parameters
    ----------
    gain : above 0 is better.

    >>> clear(Interval(0.5, 0.1, 0.9)), clear(Interval(0.5, -0.1, 0.9)), clear(Interval(-0.5, float("nan"), 0.0))
    (1, 0, -1)
    """
    if math.isnan(gain.low) or math.isnan(gain.high):
        return int(np.sign(gain.value)) if math.isfinite(gain.value) else 0
    return 1 if gain.low > 0 else -1 if gain.high < 0 else 0


def in_words(gain: Interval, other: str, metric: str) -> str:
    """What stands behind "is": better by, worse by, or no clear difference.

    Parameters
    ----------
    gain : above 0 is better.
    other : what it is compared with.
    metric : its name.

    >>> in_words(Interval(0.5, 0.1, 0.9), "old", "RMSE")
    'better by 0.5 (0.1 to 0.9) than old in RMSE'
    >>> in_words(Interval(0.5, -0.1, 0.9), "old", "RMSE")
    'not clearly different from old in RMSE (better by 0.5, from 0.1 worse to 0.9 better)'
    >>> in_words(Interval(0.5, -0.00001, 0.9), "old", "RMSE")
    'not clearly different from old in RMSE (better by 0.5, from 0.000 worse to 0.9 better)'
    """
    if gain.value == 0 and not (gain.low < 0 or gain.high > 0):
        return f"as good as {other} in {metric}"
    most = np.nanmax(np.abs([gain.value, gain.low, gain.high]))

    def shown(value: float) -> str:  # a tiny end beside large ones needs no powers of ten
        return number(value, like=float(most)) if abs(value) < 1e-4 <= most else number(value)

    direction, size = ("better" if gain.value > 0 else "worse"), shown(abs(gain.value))
    if math.isnan(gain.low) or math.isnan(gain.high):
        return f"{direction} by {size} than {other} in {metric} (without an interval)"
    if clear(gain):
        low, high = sorted((abs(gain.low), abs(gain.high)))
        return f"{direction} by {size} ({shown(low)} to {shown(high)}) than {other} in {metric}"
    ends = f"from {shown(-gain.low)} worse to {shown(gain.high)} better"
    return f"not clearly different from {other} in {metric} ({direction} by {size}, {ends})"
