"""The figures of a regression over the 48 states: where the shift goes, what is weighed, where the error is."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter
from scipy.stats import rankdata

from toporo.errors import DataError, GroupMismatchError, SettingError, listed
from toporo.pages.figures import STYLE
from toporo.pages.us_map import FRAME, LOG_FROM, MISSING, color_scale, draw_states, load_outlines, part_of
from toporo.topology.draw import TEST_COLOR, TRAIN_COLOR

SOFT, GRID_COLOR = "#6b7280", "#e5e7eb"
TRAIN_FILL = "#d9dde3"
#: Test states by distance from the training states: the farther, the paler; beyond the last, as the last.
HOP_FILLS = ("#b4bbc5", "#d0d5dc", "#e8ebee")
#: Perceptually ordered, light to dark, without the palest end that would pass for grey.
CENTRALITY_COLORS, ERROR_COLORS = part_of("YlGnBu", 0.12, 1.0), part_of("YlOrRd", 0.05, 1.0)
WIDTH = 9.2
#: An axis of errors further apart than this is logarithmic.
LOG_AXIS_FROM = 8.0
TICK_STEPS = (1, 2, 2.5, 5, 10)

Spread = tuple[float, float | None]


@dataclass(frozen=True)
class Shift:
    """One split of the states, for :func:`centrality_map`.

    Attributes
    ----------
    title : over the map.
    centrality : a number (centrality or prior weight) for every training state.
    train, test : state codes.
    hops : how many borders a test state is away from the training states; may be empty.
    """

    title: str
    centrality: Mapping[str, float]
    train: Sequence[str]
    test: Sequence[str]
    hops: Mapping[str, int] = field(default_factory=dict)


class Candidate(NamedTuple):
    """A configuration that could have been chosen: two validation scores and the test error it would have had."""

    label: str
    honest: float
    in_distribution: float
    test: float


def centrality_map(*shifts: Shift, label: str = "centrality") -> Figure:
    """Training states by their centrality, test states in grey by distance: where the shift is crossed, and to where.

    One panel a split, all on one colour scale.
    """
    if not shifts:
        raise SettingError("a centrality map needs at least one split; found none. Pass Shift(...) for each.")
    for shift in shifts:
        _same_names(shift.centrality, shift.train, f"centralities of {shift.title!r}", "training states")
        both = sorted(set(shift.train) & set(shift.test))
        if both:
            raise GroupMismatchError(f"states of {shift.title!r} in both train and test: {listed(both)}.")
    norm = color_scale(value for shift in shifts for value in shift.centrality.values())
    with mpl.rc_context(STYLE):
        figure, axes, key = _map_panels([shift.title for shift in shifts])
        for ax, shift in zip(axes, shifts, strict=True):
            drawn = draw_states(
                ax,
                shift.centrality,
                cmap=CENTRALITY_COLORS,
                norm=norm,
                fills={code: _hop_fill(shift.hops.get(code)) for code in shift.test},
                outlined=shift.train,
                label_size=_label_size(len(shifts)),
            )
        _color_bar(figure, drawn, f"{label} of training states", [v for s in shifts for v in s.centrality.values()])
        classes = sorted({shift.hops[code] for shift in shifts for code in shift.test if code in shift.hops})
        patches = [(_hop_fill(hop), _hop_title(str(hop)) if i else f"test states: {_hop_title(str(hop))}")
                   for i, hop in enumerate(classes)]  # fmt: skip
        if any(code not in shift.hops for shift in shifts for code in shift.test):
            patches.append((_hop_fill(None), "test states" if not classes else "distance unknown"))
        _patches(key, patches)
        return figure


def importance_bars(
    weights: Mapping[str, Mapping[str, float]], prior: Mapping[str, float], *, prior_label: str = "prior p"
) -> Figure:
    """The weight q of every training group (title to weights by group), a panel a method, most central groups first."""
    if not weights:
        raise SettingError("importance bars need at least one method; found none. Pass {title: {group: weight}}.")
    for title, by_group in weights.items():
        _same_names(by_group, prior, f"weights of {title!r}", "groups of the prior")
    bad = {
        f"{title}: {name}": value
        for title, by_group in [*weights.items(), (prior_label, prior)]
        for name, value in by_group.items()
        if not (math.isfinite(value) and value >= 0)
    }
    if bad:
        raise DataError(f"weights must be finite and non-negative; found {bad}.")
    order = sorted(prior, key=lambda name: (-prior[name], str(name)))
    top = max(value for by_group in [*weights.values(), prior] for value in by_group.values())
    x = np.arange(len(order))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.75 + 1.55 * len(weights)), layout="constrained")
        axes = figure.subplots(len(weights), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for ax, (title, by_group) in zip(axes, weights.items(), strict=True):
            bars = ax.bar(x, [by_group[name] for name in order], color=TRAIN_COLOR, width=0.68, label="weight q")
            even = ax.axhline(1 / len(order), color=SOFT, lw=0.8, ls=":", label="uniform", zorder=0)
            (marks,) = ax.plot(x, [prior[name] for name in order], ls="", marker="D", ms=4, mfc="white", mec=TEST_COLOR,
                               mew=1.2, label=prior_label, clip_on=False)  # fmt: skip
            ax.set_title(title, loc="left")
            ax.set_ylabel("weight")
            ax.yaxis.set_major_locator(MaxNLocator(4, steps=TICK_STEPS))
            ax.tick_params(axis="x", length=0)
        axes[0].set_ylim(0, top * 1.08 if top > 0 else 1.0)
        axes[0].set_xlim(-0.6, len(order) - 0.4)
        axes[-1].set_xticks(x, [str(name) for name in order], fontsize=8 if len(order) <= 30 else 6)
        axes[-1].set_xlabel("training group, by falling prior")
        handles = [bars, marks, even]
        axes[0].legend(
            handles=handles, loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=3, fontsize=8, borderpad=0.2
        )
        return figure


def error_by_hop(
    table: Mapping[str, Mapping[str, Spread]],
    paper: Mapping[str, Mapping[str, Spread]] | None = None,
    *,
    reference: str | None = None,
    label: str = "test MSE",
    highlight: Collection[str] = (),
) -> Figure:
    """Error (mean, sd or None) by method title and hop class, "all" last: a row a method, a panel a class, one axis.

    Parameters
    ----------
    paper : published values by the same titles; titles of its own get rows of their own.
    reference : the method whose mean is a line through every row.
    highlight : titles written in bold.
    """
    published = paper or {}
    rows = list(dict.fromkeys([*table, *published]))
    classes = sorted({hop for by_hop in [*table.values(), *published.values()] for hop in by_hop}, key=_hop_order)
    if not classes:
        raise SettingError("errors by hop need at least one value; found none. Pass {title: {hop: (mean, sd)}}.")
    unknown = [title for title in [*highlight, *([reference] if reference else [])] if title not in rows]
    if unknown:
        raise GroupMismatchError(
            f"methods to point out that are not in the table: {listed(unknown)}. It has {listed(rows)}."
        )
    means = [mean for by_hop in [*table.values(), *published.values()] for mean, _ in by_hop.values()]
    shown = [mean for mean in means if math.isfinite(mean)]
    log = bool(shown) and min(shown) > 0 and max(shown) / min(shown) > LOG_AXIS_FROM
    y = {title: i for i, title in enumerate(rows)}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.15 + 0.25 * len(rows)), layout="constrained")
        axes = figure.subplots(1, len(classes), sharex=True, sharey=True, squeeze=False)[0]
        for ax, hop in zip(axes, classes, strict=True):
            _stripes(ax, len(rows))
            if reference is not None and math.isfinite(table.get(reference, {}).get(hop, (math.nan, None))[0]):
                ax.axvline(table[reference][hop][0], color=SOFT, lw=0.8, ls=":", zorder=1)
            _dots(ax, table, hop, y, {"marker": "o", "ms": 5, "color": TRAIN_COLOR, "mfc": TRAIN_COLOR}, log)
            _dots(ax, published, hop, y, {"marker": "D", "ms": 6, "color": TEST_COLOR, "mfc": "none"}, log)
            for title in rows:
                if title in table and hop not in table[title] and hop not in published.get(title, {}):
                    _in_row(ax, y[title], "no value")
                elif hop in table.get(title, {}) and not math.isfinite(table[title][hop][0]):
                    _in_row(ax, y[title], "not finite")
            ax.set_title(_hop_title(hop), loc="left")
            ax.set_xlabel(label + (", log scale" if log else ""))
            ax.spines["left"].set_visible(False)
            ax.tick_params(axis="y", length=0)
        axes[0].set_yticks(range(len(rows)), rows)
        axes[0].set_ylim(len(rows) - 0.5, -0.5)
        for text in axes[0].get_yticklabels():
            text.set_fontweight("bold" if text.get_text() in highlight else "normal")
        _error_axis(axes[0], shown, log)
        _dot_legend(figure, table, bool(published), reference)
        return figure


def error_map(errors: Mapping[str, Mapping[str, float]], train: Sequence[str], *, label: str = "test MSE") -> Figure:
    """Error in every test state (title to error by state): a map a method on one colour scale, training states grey."""
    if not errors:
        raise SettingError("an error map needs at least one method; found none. Pass {title: {state: error}}.")
    for title, by_state in errors.items():
        both = sorted(set(by_state) & set(train))
        if both:
            raise GroupMismatchError(f"test errors of {title!r} for training states: {listed(both)}. Leave them out.")
        if not by_state:
            raise DataError(f"no test errors for {title!r}: expected {{state: error}}. Leave the method out.")
    everything = [value for by_state in errors.values() for value in by_state.values()]
    norm = color_scale(everything)
    titles = [f"{title}  ·  mean {_short(math.fsum(by.values()) / len(by))}" for title, by in errors.items()]
    with mpl.rc_context(STYLE):
        figure, axes, key = _map_panels(titles)
        for ax, by_state in zip(axes, errors.values(), strict=True):
            drawn = draw_states(
                ax,
                by_state,
                cmap=ERROR_COLORS,
                norm=norm,
                fills=dict.fromkeys(train, TRAIN_FILL),
                outlined=list(by_state),
                label_size=_label_size(len(errors)),
            )
        _color_bar(figure, drawn, label, everything)
        gaps = any(len({*train, *by_state}) < len(load_outlines().rings) for by_state in errors.values())
        patches = [(TRAIN_FILL, "training states")] if train else []
        _patches(key, patches + ([(MISSING, "no value")] if gaps else []))
        return figure


def selection_scatter(
    candidates: Sequence[Candidate | tuple[str, float, float, float]],
    *,
    rules: tuple[str, str] = ("honest validation", "in-distribution validation"),
    chosen: tuple[str | None, str | None] = (None, None),
    label: str = "MSE",
) -> Figure:
    """Test error against the validation score under either rule, a dot a configuration, the chosen one ringed.

    Parameters
    ----------
    chosen : labels of the configurations that the two rules chose; None for the one with the lowest score.
    """
    rows = [Candidate(*candidate) for candidate in candidates]
    if not rows:
        raise SettingError("a selection needs at least one candidate; found none.")
    unknown = [name for name in chosen if name is not None and name not in {row.label for row in rows}]
    if unknown:
        raise GroupMismatchError(f"chosen but not among the candidates: {listed(unknown)}.")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for ax, rule, name, scores in zip(
            axes, rules, chosen, ([row.honest for row in rows], [row.in_distribution for row in rows]), strict=True
        ):
            _one_rule(ax, rule, rows, scores, name, label)
        axes[0].set_ylabel(f"test {label}")
        if _spans([row.test for row in rows], LOG_FROM):
            axes[0].set_yscale("log")
            _log_ticks(axes[0].yaxis)
        handles = [
            Line2D([], [], ls="", marker="o", ms=5, mfc=TRAIN_COLOR, mec="white", alpha=0.75, label="configuration"),
            Line2D([], [], ls="", marker="o", ms=10, mfc="none", mec=TEST_COLOR, mew=1.8, label="chosen"),
            Line2D([], [], color=SOFT, lw=0.9, ls="--", label="lowest test error of all"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
        return figure


def _one_rule(
    ax: Axes, rule: str, rows: Sequence[Candidate], scores: Sequence[float], name: str | None, label: str
) -> None:
    shown = [i for i, row in enumerate(rows) if math.isfinite(scores[i]) and math.isfinite(row.test)]
    x, y = [scores[i] for i in shown], [rows[i].test for i in shown]
    ax.plot(x, y, ls="", marker="o", ms=5, mfc=TRAIN_COLOR, mec="white", mew=0.5, alpha=0.75)
    lines = [rule]
    if shown:
        best = min(row.test for row in rows if math.isfinite(row.test))
        ax.axhline(best, color=SOFT, lw=0.9, ls="--", zorder=0)
        taken = min(shown, key=lambda i: scores[i]) if name is None else [row.label for row in rows].index(name)
        lines.append(textwrap.fill(f"chosen: {rows[taken].label}", 64, max_lines=2, placeholder=" …"))
        numbers = f"test {label} {_short(rows[taken].test)}, lowest of all {_short(best)}"
        if len(set(x)) > 1 and len(set(y)) > 1:
            numbers += f", rank correlation {np.corrcoef(rankdata(x), rankdata(y))[0, 1]:.2f}"
        lines.append(numbers)
        if taken in shown:
            ax.plot(scores[taken], rows[taken].test, marker="o", ms=12, mfc="none", mec=TEST_COLOR, mew=1.8, zorder=4)
    if _spans(x, LOG_FROM):
        ax.set_xscale("log")
        _log_ticks(ax.xaxis)
    hidden = len(rows) - len(shown)
    ax.set_xlabel(f"validation {label}" + (f" ({hidden} of {len(rows)} not finite, not shown)" if hidden else ""))
    ax.set_title("\n".join(lines), loc="left", fontsize=8.5, linespacing=1.4)
    ax.grid(color=GRID_COLOR, lw=0.6)
    ax.set_axisbelow(True)


def _map_panels(titles: Sequence[str]) -> tuple[Figure, list[Axes], Axes]:
    """Maps in one or two columns, an incomplete last row in the middle; below them room for the key."""
    columns = 1 if len(titles) == 1 else 2
    rows = -(-len(titles) // columns)
    wide = 7.0 if columns == 1 else WIDTH / 2 - 0.08
    high = wide * (FRAME[3] - FRAME[2]) / (FRAME[1] - FRAME[0])
    head, foot = 0.28, 0.56
    total = rows * (high + head) + foot
    figure = Figure(figsize=(WIDTH, total))
    axes = []
    for i, title in enumerate(titles):
        row, column = divmod(i, columns)
        in_row = min(columns, len(titles) - row * columns)
        left = (WIDTH - in_row * wide) / (in_row + 1) * (column + 1) + column * wide
        bottom = total - (row + 1) * (high + head)
        ax = figure.add_axes((left / WIDTH, bottom / total, wide / WIDTH, high / total))
        ax.set_title(title, pad=4, fontsize=10 if len(title) <= 48 else 8)
        axes.append(ax)
    key = figure.add_axes((0.0, 0.0, 1.0, foot / total))
    key.set_axis_off()
    return figure, axes, key


def _color_bar(figure: Figure, drawn: Any, label: str, values: Sequence[float]) -> None:
    """A flat bar at the lower left, as broad as three eighths of the figure, with few ticks."""
    high = figure.get_figheight()
    bar = figure.add_axes((0.35 / WIDTH, 0.25 / high, 3.5 / WIDTH, 0.11 / high))
    norm: Normalize = drawn.norm
    clipped = isinstance(norm, LogNorm) and norm.vmin is not None and min(values) < norm.vmin * (1 - 1e-9)
    key = figure.colorbar(drawn, cax=bar, orientation="horizontal", extend="min" if clipped else "neither")
    if isinstance(norm, LogNorm):
        _log_ticks(key.ax.xaxis)
        label += ", log scale" + ("; less, or zero, at the arrow" if clipped else "")
    else:
        key.ax.xaxis.set_major_locator(MaxNLocator(5, steps=TICK_STEPS))
    key.outline.set_visible(False)
    key.ax.tick_params(labelsize=8, length=2, pad=1.5)
    figure.text(0.35 / WIDTH, 0.4 / high, label, size=8.5, va="bottom")


def _patches(key: Axes, patches: Sequence[tuple[str, str]]) -> None:
    handles = [Patch(facecolor=color, edgecolor="#9ca3af", lw=0.5, label=text) for color, text in patches]
    if handles:
        key.legend(handles=handles, loc="center right", ncols=len(handles), fontsize=8, handlelength=1.5,
                   handleheight=1.1, columnspacing=1.2, bbox_to_anchor=(1 - 0.2 / WIDTH, 0.62))  # fmt: skip


def _dots(
    ax: Axes,
    table: Mapping[str, Mapping[str, Spread]],
    hop: str,
    y: Mapping[str, int],
    style: dict[str, Any],
    log: bool,
) -> None:
    for title, by_hop in table.items():
        mean, sd = by_hop.get(hop, (math.nan, None))
        if not math.isfinite(mean):
            continue
        low = high = sd if sd is not None and math.isfinite(sd) else 0.0
        if log:
            low = min(low, mean * (1 - 1e-3))
        spread = [[low], [high]] if high else None
        ax.errorbar(mean, y[title], xerr=spread, capsize=0, elinewidth=1.4, mew=1.2, zorder=3, **style)


def _error_axis(ax: Axes, shown: Sequence[float], log: bool) -> None:
    """From zero, or logarithmic around the means: a spread as large as its mean must not decide the axis."""
    if log:
        ax.set_xscale("log")
        _log_ticks(ax.xaxis)
        ax.set_xlim(min(shown) / 1.35, max(shown) * 1.35)
    else:
        if shown and min(shown) >= 0:
            ax.set_xlim(left=0)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=TICK_STEPS))


def _dot_legend(
    figure: Figure, table: Mapping[str, Mapping[str, Spread]], published: bool, reference: str | None
) -> None:
    spread = any(sd is not None for by_hop in table.values() for _, sd in by_hop.values())
    ours = "ours, mean ± sd" if spread else "ours"
    entries: list[tuple[bool, dict[str, Any]]] = [
        (bool(table), {"ls": "", "marker": "o", "ms": 5, "color": TRAIN_COLOR, "label": ours}),
        (published, {"ls": "", "marker": "D", "ms": 6, "mfc": "none", "mec": TEST_COLOR, "label": "paper"}),
        (reference in table, {"ls": ":", "lw": 1.0, "color": SOFT, "label": f"{reference}, ours"}),
    ]
    handles = [Line2D([], [], **style) for wanted, style in entries if wanted]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles), fontsize=8)


def _stripes(ax: Axes, rows: int) -> None:
    for i in range(0, rows, 2):
        ax.axhspan(i - 0.5, i + 0.5, color="#f6f7f9", lw=0, zorder=0)


def _in_row(ax: Axes, row: int, text: str) -> None:
    ax.text(0.5, row, text, transform=ax.get_yaxis_transform(), size=7, color=SOFT, ha="center", va="center")


def _log_ticks(axis: Any) -> None:
    """Plain numbers at 1, 2 and 5 of a decade."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _spans(values: Sequence[float], factor: float) -> bool:
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) / min(finite) > factor


def _same_names(found: Collection[str], expected: Collection[str], what: str, of: str) -> None:
    lacking = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected]
    if lacking or extra:
        parts = [f"missing {listed(lacking)}"] * bool(lacking) + [f"not expected {listed(extra)}"] * bool(extra)
        raise GroupMismatchError(f"{what} and the {of} differ: {'; '.join(parts)}. Give one number for each.")


def _hop_fill(hop: int | None) -> str:
    return HOP_FILLS[1] if hop is None else HOP_FILLS[min(max(hop, 1), len(HOP_FILLS)) - 1]


def _hop_title(hop: str) -> str:
    if hop == "all":
        return "all test states"
    return f"{hop} hop" + ("" if hop == "1" else "s") if hop.isdigit() else hop


def _hop_order(hop: str) -> tuple[int, int, str]:
    return (0, int(hop), "") if hop.isdigit() else (2 if hop == "all" else 1, 0, hop)


def _label_size(panels: int) -> float:
    return 7.0 if panels == 1 else 5.6


def _short(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.3g}"
