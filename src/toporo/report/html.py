"""A reproduction as one HTML file that opens offline: no scripts, no links, every figure inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jinja2 import Environment, StrictUndefined
from safetensors.torch import load_file

import toporo
from toporo.datasets import Benchmark
from toporo.experiments.jobs import Job, build_model
from toporo.experiments.protocols import METHODS
from toporo.experiments.runner import Outcome
from toporo.experiments.tables import caption, make_lines
from toporo.files import write_text
from toporo.groups import name_from_json
from toporo.report import figures
from toporo.selection import SELECTIONS
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.training import EpochRecord

__all__ = ["write_report"]

Record = dict[str, Any]
SHOWN_BOUNDARIES = ("erm", "group-dro", "iw-erm", "tro-physical", "tro-data", "tro-data-inputs")
SHOWN_GROUPS = ("erm", "group-dro", "iw-erm", "tro-physical", "tro-data")
SHOWN_WEIGHTS = ("group-dro", "tro-lambda0", "tro-physical", "tro-data")
GRID = 160
STYLES = {method.title: figures.line_style(i) for i, method in enumerate(METHODS.values())}


@dataclass(frozen=True)
class Section:
    """A titled figure with a sentence on how to read it; ``name`` is its file's."""

    name: str
    title: str
    text: str
    svg: str


def write_report(outcome: Outcome, out: Path) -> Path:
    """Write ``out/report.html``, each figure as ``out/figures/*.svg`` beside it, and return the report's path."""
    sections = _sections(outcome, out)
    for section in sections:
        write_text(out / "figures" / f"{section.name}.svg", section.svg)
    template = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(files("toporo.report").joinpath("template.html").read_text(encoding="utf-8"))
    page = template.render(
        title=f"{outcome.protocol.title}: topology-aware robust optimisation",
        version=toporo.__version__,
        caption=caption(outcome.protocol, outcome.rows),
        rules=list(SELECTIONS.values()),
        lines=make_lines(outcome.rows),
        findings=_findings(outcome),
        sections=sections,
        notes=[*outcome.protocol.notes, *_warnings(outcome.records)],
        settings=_settings(outcome),
    )
    path = out / "report.html"
    write_text(path, page)
    return path


def _sections(outcome: Outcome, out: Path) -> list[Section]:
    benchmark = outcome.benchmark
    first = {record["method"]: record for record in reversed(outcome.records)}  # the lowest seed of each method
    physical = benchmark.graph.prior(benchmark.train, benchmark.test)
    sections = [
        Section(
            "topology",
            "The groups' topology",
            "Training groups (circles) are sized by how many shortest paths from training to test groups pass through "
            "them. The prior that TRO-physical starts from follows from these counts.",
            figures.to_svg("topology", figures.topology(benchmark.graph, physical, benchmark.train, benchmark.test)),
        )
    ]
    sections += _training_sections(outcome, first)
    sections += _boundary_section(outcome, out)
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
            sections.append(
                Section(
                    f"learned-{method}",
                    f"The learned topology beside the given one: {METHODS[method].title}",
                    text,
                    figures.to_svg(f"learned-{method}", figure),
                )
            )
    return sections


def _training_sections(outcome: Outcome, first: dict[str, Record]) -> list[Section]:
    sections = []
    moving = {
        METHODS[m].title: [{name_from_json(n): w for n, w in epoch["weights"]} for epoch in first[m]["history"]]
        for m in SHOWN_WEIGHTS
        if m in first
    }
    if moving:
        sections.append(
            Section(
                "weights",
                "Group weights over training",
                "How much each training group counts, after each epoch, in the run with the lowest seed. Without a "
                "prior the weights follow the losses; with it they stay near the topology's choice.",
                figures.to_svg("weights", figures.weights_over_training(moving)),
            )
        )
    order, label = _group_order(outcome.benchmark)
    sections.append(
        Section(
            "groups",
            "Accuracy in every test group",
            "After the last epoch, mean over seeds. The dotted line is guessing.",
            figures.to_svg("groups", figures.accuracy_by_group(_by_group(outcome.records), order, label, STYLES)),
        )
    )
    curves = {
        METHODS[m].title: np.array(
            [[100 * e["metrics"]["test"] for e in r["history"]] for r in outcome.records if r["method"] == m]
        )
        for m in first
    }
    ordered = {METHODS[m].title: curves[METHODS[m].title] for m in METHODS if m in first}
    sections.append(
        Section(
            "epochs",
            "Test accuracy over the epochs",
            "Mean over seeds, shaded ± 1 sd. Where the curves still move at the end, the number of epochs is part of "
            "the result; validation on training groups cannot choose it: it is near 100 % almost from the start.",
            figures.to_svg("epochs", figures.accuracy_by_epoch(ordered, outcome.protocol.epochs, STYLES)),
        )
    )
    return sections


def _boundary_section(outcome: Outcome, out: Path) -> list[Section]:
    benchmark = outcome.benchmark
    if benchmark.data.x.ndim != 2 or benchmark.data.x.shape[1] != 2:
        return []
    reach = float(np.abs(benchmark.data.x).max()) * 1.05
    side = np.linspace(-reach, reach, GRID, dtype=np.float32)
    points = torch.as_tensor(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
    grids = {}
    for name in SHOWN_BOUNDARIES:
        job = next((job for job in outcome.jobs if job.method.name == name), None)
        if job is not None:
            grids[METHODS[name].title] = _class_one(job, benchmark, out, points)
    if not grids:
        return []
    figure = figures.decision_boundaries(grids, (-reach, reach, -reach, reach), benchmark.data, benchmark.train)
    return [
        Section(
            "boundaries",
            "Decision boundaries",
            "The plane as each model divides it after the last epoch (lowest seed). Strong dots: training groups; "
            "faint dots: test groups.",
            figures.to_svg("boundaries", figure),
        )
    ]


def _class_one(job: Job, benchmark: Benchmark, out: Path, points: torch.Tensor) -> npt.NDArray[Any]:
    model = build_model(job.protocol, benchmark, job.seed)
    model.load_state_dict(load_file(job.model_path(out)))
    probability: npt.NDArray[Any] = model.predict(points).softmax(dim=1)[:, 1].reshape(GRID, GRID).numpy()
    return probability


def _by_group(records: Sequence[Record]) -> dict[str, dict[Any, float]]:
    values: dict[str, dict[Any, float]] = {}
    for method in SHOWN_GROUPS:
        runs = [record for record in records if record["method"] == method]
        if runs:
            last = [EpochRecord.from_dict(run["history"][-1]).metrics["by_group"] for run in runs]
            values[METHODS[method].title] = {
                name: 100 * float(np.mean([by_group[name] for by_group in last])) for name in last[0]
            }
    return values


def _group_order(benchmark: Benchmark) -> tuple[list[Any], str]:
    """Test groups by angle where the benchmark has angles, else by hops from the training groups."""
    angles = benchmark.about.get("angles")
    if angles:
        return sorted(benchmark.test, key=lambda name: angles[name]), "test group, by angle"
    hops = benchmark.graph.hops(benchmark.train)
    return sorted(benchmark.test, key=lambda name: hops[name]), "test group, by hops from training"


def _findings(outcome: Outcome) -> list[str]:
    """What the table says, computed from it: comparisons of last-epoch means with the controls."""
    last = {row.method: row for row in outcome.rows if row.selection == "last"}
    sentences = []
    for method, reference in (
        ("tro-physical", "erm"),
        ("tro-physical", "iw-erm"),
        ("tro-data", "erm"),
        ("tro-data", "tro-uniform"),
    ):
        if method in last and reference in last:
            gap = last[method].mean - last[reference].mean
            spread = max(last[method].sd or 0.0, last[reference].sd or 0.0)
            verdict = "within the spread over seeds: no difference shown" if abs(gap) <= spread else "beyond the spread"
            sentences.append(
                f"{METHODS[method].title} is {abs(gap):.1f} points {'above' if gap >= 0 else 'below'} "
                f"{METHODS[reference].title} at the last epoch ({verdict})."
            )
    return sentences


def _warnings(records: Sequence[Record]) -> list[str]:
    found: dict[str, list[str]] = {}
    for record in records:
        for text in record["warnings"]:
            found.setdefault(text, []).append(f"{record['method']} (seed {record['seed']})")
    return [f"Warned in {', '.join(who)}: {text}" for text, who in found.items()]


def _settings(outcome: Outcome) -> list[tuple[str, str]]:
    protocol = {k: v for k, v in asdict(outcome.protocol).items() if k not in ("paper", "notes", "title")}
    used = {record["method"] for record in outcome.records}
    settings = [
        (key.replace("_", " "), json.dumps(value, default=list, ensure_ascii=False)) for key, value in protocol.items()
    ]
    settings += [
        (m.title, json.dumps({"objective": m.objective, **m.settings, "prior": m.prior}, ensure_ascii=False))
        for m in METHODS.values()
        if m.name in used
    ]
    about = {k: v for k, v in outcome.benchmark.about.items() if k != "angles"}
    settings.append(("data", json.dumps({"source": outcome.benchmark.source, **about}, ensure_ascii=False)))
    settings.append(("training groups", ", ".join(str(name) for name in outcome.benchmark.train)))
    return settings
