"""What a report shows of a classification of points in groups: DG-15 and DG-60."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file

from toporo.bench.base import Benchmark
from toporo.bench.fits import build_model
from toporo.bench.jobs import Job
from toporo.bench.records import last_metrics, lowest_seeds, of_method, trained_titles
from toporo.bench.runner import Outcome, Part
from toporo.groups import name_from_json
from toporo.pages import figures
from toporo.pages.charts import figure_section, line_styles
from toporo.pages.render import Section
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Record

SHOWN_BOUNDARIES = ("erm", "group-dro", "iw-erm", "tro-physical", "tro-data", "tro-data-inputs")
SHOWN_GROUPS = ("erm", "group-dro", "iw-erm", "tro-physical", "tro-data")
SHOWN_WEIGHTS = ("group-dro", "tro-lambda0", "tro-physical", "tro-data")
GRID = 160


def overall(outcome: Outcome) -> list[Section]:  # noqa: ARG001  # kinds of reports share one signature
    """Figures over all variants: there is one variant only."""
    return []


def sections(part: Part, out: Path) -> list[Section]:
    """The figures, in the order of the page."""
    benchmark = part.benchmark
    first = lowest_seeds(part.records)
    physical = benchmark.graph.prior(benchmark.train, benchmark.test, **part.protocol.priors)
    found = [
        figure_section(
            "topology",
            "The groups' topology",
            "Training groups (circles) are sized by how many shortest paths from training to test groups pass through "
            "them. The prior that TRO-physical starts from follows from these counts.",
            figures.topology(benchmark.graph, physical, benchmark.train, benchmark.test),
        )
    ]
    found += _training_sections(part, first)
    found += _boundary_section(part, out)
    for method, text in (
        ("tro-data", "Learned from the ERM features of the training groups alone, as in the paper; lowest seed."),
        ("tro-data-inputs", "Learned from raw inputs of all groups, those of the test groups unlabelled; lowest seed."),
    ):
        if method in first:
            record = first[method]
            figure = figures.two_topologies(
                benchmark.graph,
                GroupGraph.from_json(json.dumps(record["topology"])),
                Prior.from_dict(record["prior"]),
                benchmark.test,
            )
            title = f"The learned topology beside the given one: {part.protocol.method(method).title}"
            found.append(figure_section(f"learned-{method}", title, text, figure))
    return found


def _training_sections(part: Part, first: dict[str, Record]) -> list[Section]:
    protocol, found = part.protocol, []
    moving = {
        protocol.method(m).title: [{name_from_json(n): w for n, w in epoch["weights"]} for epoch in first[m]["history"]]
        for m in SHOWN_WEIGHTS
        if m in first
    }
    if moving:
        found.append(
            figure_section(
                "weights",
                "Group weights over training",
                "How much each training group counts, after each epoch, in the run with the lowest seed. Without a "
                "prior the weights follow the losses; with it they stay near the topology's choice.",
                figures.weights_over_training(moving),
            )
        )
    order, label = _group_order(part.benchmark)
    found.append(
        figure_section(
            "groups",
            "Accuracy in every test group",
            "After the last epoch, mean over seeds. The dotted line is guessing.",
            figures.accuracy_by_group(_by_group(part), order, label, line_styles(trained_titles(protocol))),
        )
    )
    curves = {
        method.title: np.array(
            [[100 * e["metrics"]["test"] for e in r["history"]] for r in of_method(part.records, method.name)]
        )
        for method in protocol.get_methods()
        if method.name in first
    }
    epochs = [epoch["round"] for epoch in part.records[0]["history"]]
    found.append(
        figure_section(
            "epochs",
            "Test accuracy over the epochs",
            "Mean over seeds, shaded ± 1 sd. Where the curves still move at the end, the number of epochs is part of "
            "the result; validation on training groups cannot choose it: it is near 100 % almost from the start.",
            figures.metrics_by_epoch({"test accuracy (%)": curves}, epochs, line_styles(trained_titles(protocol))),
        )
    )
    return found


def _boundary_section(part: Part, out: Path) -> list[Section]:
    benchmark = part.benchmark
    if benchmark.data.x.ndim != 2 or benchmark.data.x.shape[1] != 2:
        return []
    reach = float(np.abs(benchmark.data.x).max()) * 1.05
    side = np.linspace(-reach, reach, GRID, dtype=np.float32)
    points = torch.as_tensor(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
    grids, accuracy, first = {}, {}, lowest_seeds(part.records)
    for name in SHOWN_BOUNDARIES:
        job = next((job for job in part.jobs if job.method.name == name), None)
        if job is not None:
            grids[job.method.title] = _class_one(job, benchmark, out, points)
            accuracy[job.method.title] = 100 * first[name]["history"][-1]["metrics"]["test"]
    if not grids:
        return []
    return [
        figure_section(
            "boundaries",
            "Decision boundaries",
            "The plane as each model divides it after the last epoch (lowest seed), and its accuracy in test groups. "
            "Strong dots: training groups; faint dots: test groups.",
            figures.decision_boundaries(
                grids, (-reach, reach, -reach, reach), benchmark.data, benchmark.train, accuracy=accuracy
            ),
        )
    ]


def _class_one(job: Job, benchmark: Benchmark, out: Path, points: torch.Tensor) -> npt.NDArray[Any]:
    model = build_model(job.protocol, benchmark, job.seed)
    model.load_state_dict(load_file(job.model_path(out)))
    probability: npt.NDArray[Any] = model.predict(points).softmax(dim=1)[:, 1].reshape(GRID, GRID).numpy()
    return probability


def _by_group(part: Part) -> dict[str, dict[Any, float]]:
    found: dict[str, dict[Any, float]] = {}
    for method in SHOWN_GROUPS:
        runs = of_method(part.records, method)
        if runs:
            values = last_metrics(runs, "by_group")
            found[part.protocol.method(method).title] = {name: 100 * value for name, value in values.items()}
    return found


def _group_order(benchmark: Benchmark) -> tuple[list[Any], str]:
    """Test groups by angle where the benchmark has angles, else by hops from the training groups."""
    angles = benchmark.about.get("angles")
    if angles:
        return sorted(benchmark.test, key=lambda name: angles[name]), "test group, by angle"
    hops = benchmark.graph.hops(benchmark.train)
    return sorted(benchmark.test, key=lambda name: hops[name]), "test group, by hops from training"


COMPARED: Sequence[tuple[str, str]] = (
    ("tro-physical", "erm"),
    ("tro-physical", "iw-erm"),
    ("tro-data", "erm"),
    ("tro-data", "tro-uniform"),
)


def findings(part: Part) -> list[str]:
    """What the table says, computed from it: comparisons of last-epoch means with the controls."""
    last = {row.method: row for row in part.rows if row.selection == "last"}
    sentences = []
    for method, reference in COMPARED:
        if method in last and reference in last:
            gap = last[method].mean - last[reference].mean
            spread = max(last[method].sd or 0.0, last[reference].sd or 0.0)
            verdict = "within the spread over seeds: no difference shown" if abs(gap) <= spread else "beyond the spread"
            titles = [part.protocol.method(name).title for name in (method, reference)]
            sentences.append(
                f"{titles[0]} is {abs(gap):.1f} points {'above' if gap >= 0 else 'below'} "
                f"{titles[1]} at the last epoch ({verdict})."
            )
    return sentences
