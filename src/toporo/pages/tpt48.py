"""What a report shows of TPT-48: where the shift goes, what is weighed, where the error is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toporo.bench.records import last_metrics, last_weights, lowest_seeds, of_method, trained_titles
from toporo.bench.results import Row
from toporo.bench.runner import Outcome, Part
from toporo.bench.us_states import SPLITS
from toporo.choice.penalty import Candidate
from toporo.pages import figures, maps
from toporo.pages.charts import figure_section, line_styles
from toporo.pages.maps import learned_on_map
from toporo.pages.render import Section
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior

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


def overall(outcome: Outcome) -> list[Section]:
    """The map of who lies between: one panel a split."""
    shifts: dict[str, maps.Shift] = {}
    for part in outcome.parts:
        benchmark = part.benchmark
        split = benchmark.about["split"]
        shifts.setdefault(
            split,
            maps.Shift(
                SPLITS[split].title if split in SPLITS else split,
                {str(name): value for name, value in _physical(part).centrality.items()},
                [str(name) for name in benchmark.train],
                [str(name) for name in benchmark.test],
                benchmark.about["hops"],
            ),
        )
    return [
        figure_section(
            "centrality",
            "Which states the shift passes through",
            "Training states by how many shortest paths over common borders, from training to test states, lead "
            "through them; test states in grey by their distance. The physical prior is in proportion to these counts.",
            maps.centrality_map(*shifts.values(), label="betweenness"),
        )
    ]


def sections(part: Part, out: Path) -> list[Section]:  # noqa: ARG001  # kinds of reports share one signature
    """The figures of one variant, in the order of the page."""
    found = [_by_hop(part)]
    for make in (_maps, _importance, _epochs, _learned, _selection):
        found += make(part)
    return found


def _name(part: Part, figure: str) -> str:
    return f"{figure}-{part.variant.name.replace('/', '-')}"


def _title(part: Part, method: str) -> str:
    return part.protocol.method(method).title


def _physical(part: Part) -> Prior:
    return part.benchmark.graph.prior(part.benchmark.train, part.benchmark.test, **part.protocol.priors)


def _last(part: Part) -> dict[str, dict[str, Row]]:
    """Rows of the last epoch by method and metric."""
    found: dict[str, dict[str, Row]] = {}
    for row in part.rows:
        if row.selection == "last":
            found.setdefault(row.method, {})[row.metric] = row
    return found


def _by_hop(part: Part) -> Section:
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
    figure = figures.error_by_hop(
        ours,
        paper,
        reference=_title(part, "erm") if "erm" in last else None,
        highlight=[_title(part, method) for method in HIGHLIGHT if method in last],
    )
    return figure_section(
        _name(part, "hops"),
        "Error against distance",
        "Test states by how many borders they are away from the training states, after the last epoch. The dotted "
        "line is MLP ERM.",
        figure,
    )


def _maps(part: Part) -> list[Section]:
    shown = {
        _title(part, method): {str(name): value for name, value in last_metrics(runs, "by_group").items()}
        for method in SHOWN_MAPS
        if (runs := of_method(part.records, method))
    }
    if not shown:
        return []
    figure = maps.error_map(shown, [str(name) for name in part.benchmark.train])
    text = "Mean over windows and seeds after the last epoch; one colour scale for all maps."
    return [figure_section(_name(part, "states"), "Error in every test state", text, figure)]


def _importance(part: Part) -> list[Section]:
    prior = {str(name): value for name, value in _physical(part).weights.items()}
    found = []
    for kind, (words, methods) in SHOWN_WEIGHTS.items():
        shown = {
            _title(part, method): {str(name): value for name, value in last_weights(runs).items()}
            for method in methods
            if (runs := of_method(part.records, method))
        }
        if shown:
            text = f"{words} The diamonds are the physical prior in every panel; TRO-data has a prior of its own."
            title = f"How much each training state counts: {kind}"
            figure = figures.importance_bars(shown, prior, prior_label="physical prior p")
            found.append(figure_section(_name(part, f"importance-{kind.split()[0]}"), title, text, figure))
    return found


def _epochs(part: Part) -> list[Section]:
    trained = [m for m in part.protocol.get_methods() if m.has_epochs and of_method(part.records, m.name)]
    if not trained:
        return []
    panels = {
        label: {
            method.title: np.array(
                [[e["metrics"][key] for e in r["history"]] for r in of_method(part.records, method.name)]
            )
            for method in trained
        }
        for label, key in (("validation MSE, training states", "validation"), ("test MSE", "test"))
    }
    epochs = [epoch["round"] for epoch in of_method(part.records, trained[0].name)[0]["history"]]
    return [
        figure_section(
            _name(part, "epochs"),
            "Error over the epochs",
            "Mean over seeds, shaded ± 1 sd. Where the error on the right rises while the one on the left falls, "
            "validation on training states cannot choose the epoch.",
            figures.metrics_by_epoch(panels, epochs, line_styles(trained_titles(part.protocol)), log=True),
        )
    ]


def _learned(part: Part) -> list[Section]:
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
    return [
        figure_section(
            _name(part, "learned"),
            "The learned topology and the given one",
            "Edges learned from training states alone, by TRO-data from the features of an MLP (lowest seed), by "
            "linear TRO-data from the inputs, and the prior that follows. In the given topology two states are joined "
            "if they have a common border.",
            learned_on_map(shown, part.benchmark.graph),
        )
    ]


def _selection(part: Part) -> list[Section]:
    both = [lowest_seeds(part.records).get(method) for method in ("linear-chosen", "linear-chosen-id")]
    if not (both[0] and both[1]):
        return []
    honest, other = (record["choice"] for record in both if record)
    scores = {_label(candidate): candidate["score"] for candidate in other["candidates"]}
    figure = figures.selection_scatter(
        [
            figures.Configuration(_label(c), c["score"], scores[_label(c)], c["test"])
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
    return [figure_section(_name(part, "selection"), title, text, figure)]


def _label(candidate: dict[str, Any]) -> str:
    return Candidate(candidate["prior"], float(candidate["penalty"]), candidate["score"], candidate["test"]).label


# ---------------------------------------------------------------------- sentences


def findings(part: Part) -> list[str]:
    """What the table says, computed from it: errors over all test states at the last epoch, against the controls."""
    last = {method: rows["all"] for method, rows in _last(part).items()}
    sentences = []
    for method, references in COMPARED.items():
        found = [reference for reference in references if reference in last]
        if method in last and found:
            row = last[method]
            against = ", ".join(_compared(row, last[name], _title(part, name)) for name in found)
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


def _against_paper(part: Part, last: dict[str, Row]) -> list[str]:
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
