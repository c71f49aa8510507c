"""One page of every kind, shared by the snapshots and the browser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.pages.deep_cases import SWEPT, flood_outcome, image_outcome
from tests.paper.theory.cases import tiny_study
from tests.tables.cases import NEW, RIVER, STATIONS, floods, river
from tests.tables.test_contest import EVEN, WAVY, made
from toporo.doctor import examine
from toporo.pages.compare import write_comparison
from toporo.pages.doctor import write_doctor_report
from toporo.pages.model import write_model_report
from toporo.paper import BENCHMARKS
from toporo.paper.report import write_report
from toporo.paper.runner import reproduce
from toporo.paper.theory.page import write_theory_report
from toporo.tables import fit_table
from toporo.tables.contest import SHUFFLED, YOURS

STATES = ("Washington", "Oregon", "California", "Nevada", "Idaho", "Utah", "Arizona", "Montana", "Wyoming", "Colorado",
          "New Mexico", "Texas", "Oklahoma", "Kansas", "Nebraska", "South Dakota", "North Dakota",
          "Minnesota")  # fmt: skip
OF_STATES: dict[str, Any] = {"target": "y", "group": "station", "graph": list(pairwise(STATES)),
                             "test_groups": list(STATES[-4:])}  # fmt: skip
OF_STATIONS: dict[str, Any] = {"target": "y", "group": "station", "graph": list(pairwise(STATIONS)),
                               "test_groups": list(NEW)}  # fmt: skip


def linear(path: Path) -> None:
    model = fit_table(river(groups=STATES, rows=12), **OF_STATES, model="linear")
    evaluation = model.evaluate(river(1, groups=STATES, rows=12), resamples=50)
    write_model_report(model, path, evaluation=evaluation, source="new.csv")


def network(path: Path) -> None:
    about: dict[str, Any] = {"target": "flood", "group": "station", "graph": RIVER, "test_groups": ["mouth"]}
    write_model_report(fit_table(floods(), **about, model="mlp", epochs=4, hidden=(4,)), path)


def classes(path: Path) -> None:
    table = river()
    table["level"] = [("low", "middling", "<high>")[int(value > -0.5) + int(value > 0.7)] for value in table.pop("y")]
    model = fit_table(table, target="level", group="station", graph=RIVER, test_groups=["mouth"], penalty=1.0)
    write_model_report(model, path, evaluation=model.evaluate(table, resamples=20))


def kriged(path: Path) -> None:
    model = fit_table(river(groups=STATIONS), **OF_STATIONS, model="kriged")
    evaluation = model.evaluate(river(3, groups=STATIONS), resamples=20)
    write_model_report(model, path, evaluation=evaluation, source="new.csv")


def auto(path: Path) -> None:
    model, new = fit_table(river(groups=STATES, rows=12), **OF_STATES), river(1, groups=STATES, rows=12)
    write_model_report(model, path, evaluation=model.evaluate(new, resamples=50))


def doctor(path: Path) -> None:
    write_doctor_report(examine(river(groups=STATES, rows=12), **OF_STATES), path)


def compare(path: Path) -> None:
    errors = {"auto": EVEN, SHUFFLED["auto"]: [1.5] * 8, "<mine>": WAVY, "constant": [9.0] * 8}
    facts = {"source": "sales.csv", "target": "sold", "rows": 80, "groups": 8}
    write_comparison(replace(made(errors, {"<mine>": YOURS}), about=facts), path)


def benchmark(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TOPORO_DATA", raising=False)
        patch.setattr(BENCHMARKS["dg15"], "protocol", replace(BENCHMARKS["dg15"].protocol, rounds=3))
        methods = ["erm", "group-dro", "iw-erm", "tro-physical", "tro-data"]
        outcome = reproduce("dg15", path.parent / "dg15", seeds=2, methods=methods, source="generated")
        write_report(outcome, path.parent / "dg15").rename(path)


def images(path: Path) -> None:
    outcome = image_outcome(("art_painting", "photo"), seeds=2)
    outcome.about["remarks"] = ["Not run: sketch. No images."]
    write_report(outcome, path.parent / "images").rename(path)


def chips(path: Path) -> None:
    folder = path.parent / "chips"
    outcome = flood_outcome(("Bolivia", "Spain"), ("erm", "tro-data", "tro-uniform", *SWEPT[::2]), seeds=2)
    write_report(outcome, folder).rename(path)


def theory(path: Path) -> None:
    write_theory_report(tiny_study(), path.parent / "theory").rename(path)


WRITERS: dict[str, Callable[[Path], None]] = {
    writer.__name__: writer
    for writer in (linear, network, classes, kriged, auto, doctor, compare, benchmark, images, chips, theory)
}


@pytest.fixture(scope="session")
def written_page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the path of a page by the name of its writer; each page is written once."""
    folder, written = tmp_path_factory.mktemp("pages"), {}

    def page(name: str) -> Path:
        if name not in written:
            written[name] = folder / f"{name}.html"
            WRITERS[name](written[name])
        return written[name]

    return page
