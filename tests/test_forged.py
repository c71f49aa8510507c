"""Files from a stranger: every reader gives a result or one of toporo's own errors, whatever stands in the file."""

from __future__ import annotations

import json
import math
import shutil
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pytest

from tests.forging import forge_folder, forged, forged_arrays, read_folder, text_of
from tests.tables.cases import RIVER, floods, river
from toporo.cli.common import graph_figure
from toporo.errors import TopoRoError
from toporo.graphs import as_graph
from toporo.pages.model import describe_model, write_model_report
from toporo.paper.results import Results
from toporo.paper.tables import print_results
from toporo.tables import TableModel, fit_table, load_model
from toporo.topology import GroupGraph

matplotlib.use("Agg")
TABLE = river(3, 4) | {"flood": ["yes", "no"] * 10, "day": ["2024-05-01", "2024-06-30"] * 10, "count": [1.0, 2.0] * 10}
PLACED = GroupGraph(
    [name for pair in RIVER for name in pair],
    dict.fromkeys(map(tuple, RIVER), 1.5),
    positions={"spring": (0, 1), "upper": (1, 1), "middle": (2, 0), "lower": (3, 0), "mouth": (4, -1)},
)


def dated(rows: int = 20) -> dict[str, list[Any]]:
    table = river(0, rows)
    size = len(table["x"])
    return table | {
        "day": [f"2024-0{1 + i % 9}-1{i % 7}" for i in range(size)],
        "count": [1.0 + i % 3 for i in range(size)],
    }


MODELS: dict[str, Callable[[], TableModel]] = {
    "chosen": lambda: fit_table(
        river(0, 20), target="y", group="station", graph=PLACED, test_groups=["mouth"], model="linear"
    ),
    "classes": lambda: fit_table(floods(), target="flood", group="station", penalty=1.0),
    "beds": lambda: fit_table(river(0, 20), target="bed", group="station", learn_graph=True, penalty=math.inf),
    "network": lambda: fit_table(
        river(0, 20),
        target="y",
        group="station",
        graph=RIVER,
        test_groups=["mouth"],
        model="mlp",
        epochs=2,
        hidden=(4,),
    ),
    "classes-network": lambda: fit_table(
        floods(0, 20), target="flood", group="station", method="group-dro", model="mlp", epochs=2, hidden=(4, 3)
    ),
    "dated": lambda: fit_table(dated(), target="y", group="station", weight="count", method="erm"),
}


@pytest.fixture(scope="module", params=list(MODELS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("forged") / request.param
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        MODELS[request.param]().save(place)
    return place


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("once") / "chosen"
    MODELS["chosen"]().save(place)
    return place


@pytest.fixture
def chosen(once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(once, tmp_path / "chosen"))


def try_all(tries: list[Callable[[], Any]]) -> None:
    """Nothing but an error of toporo may come of any."""
    for use in tries:
        try:
            use()
        except TopoRoError:
            pass
        finally:
            plt.close("all")


def use_model(folder: Path, page: bool = True) -> None:
    """All that is done with a model folder."""
    model = load_model(folder)
    tries: list[Callable[[], Any]] = [
        lambda: model.predict(TABLE),
        lambda: model.evaluate(TABLE, resamples=10),
        lambda: str(model.explain()) + model.explain().to_csv() + json.dumps(model.explain().to_dict()),
        lambda: json.dumps(describe_model(model), allow_nan=False),
    ]
    if page:
        tries += [
            lambda: write_model_report(model, folder / "report.html"),
            lambda: graph_figure(model.estimator.plot, len(model.graph or model.groups)).savefig(folder / "plot.png"),
            lambda: model.save(folder / "again"),
        ]
    try_all(tries)


def use_graph(path: Path, page: bool = True) -> None:
    """All that is done with a file of a graph."""
    graph = as_graph(path)
    names = list(graph.names)
    tries: list[Callable[[], Any]] = [
        lambda: GroupGraph.from_json(graph.to_json()).hops(names[:1]),
        lambda: graph.prior(names[1:], names[:1], weighted=True),
        lambda: graph.prior(names[1:], names[:1], measure="harmonic"),
        lambda: graph.prior(names, measure="closeness", weighted=True),
        lambda: (repr(graph), graph.components(), hash(graph)),
    ]
    if page:
        tries.append(
            lambda: graph_figure(lambda ax: graph.plot(ax, test=names[:1]), len(graph)).savefig(
                path.with_suffix(".png")
            )
        )
    try_all(tries)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def survives(use: Callable[[], None], *context: Any) -> bool:
    """Whether it is taken; anything but that and an error of toporo's fails, and says of what."""
    try:
        use()
    except TopoRoError:
        return False
    except Exception as error:
        error.add_note(f"forged: {context}")
        raise
    return True


def test_forged_models(folder: Path) -> None:
    content, arrays = read_folder(folder)
    random, seen = Random(0), set[str]()
    for case in range(60):
        change, where = forged(content, random)
        forge_folder(folder, content, arrays)
        forge_folder(folder, change, forged_arrays(arrays, random) if case % 5 == 0 else None)
        new = where not in seen and len(seen) < 2
        if survives(lambda new=new: use_model(folder, page=new), folder.name, case, where) and new:  # type: ignore[misc]
            seen.add(where)
    forge_folder(folder, content, arrays)
    assert survives(lambda: use_model(folder, page=False)), "unless it is altered"


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        ("graph.origin.details", [1, 2], "expected a mapping, found a list, at origin.details"),
        ("graph.edges.0.2", 10**400, "a number is larger than 1.8e+308"),
        ("about.rows", 10**400, "a number is larger than 1.8e+308"),
        ("about.rows", "@digits@", "Exceeds the limit"),
        ("about.rows", "@deep@", "lists within lists, more than 64 levels"),
        ("about.source", "\ud800", "is not text in UTF-8"),
        ("columns.1.kind", "banana", "kind 'banana' of a column"),
        ("task", "classification", "its task is classification, its estimator a TRORegressor"),
        ("test_groups", ["moon"], "not in the graph: 'moon'"),
        ("estimator.class", ["TRORegressor"], "its class: expected text, found a list"),
        ("estimator.inputs", 10**9, "has shape"),
        ("estimator.one_column", False, "it has several targets"),
        ("estimator.settings.hidden", 10**9, "its setting 'hidden': expected a list, found a whole number"),
        ("estimator.settings.device", "cuda", "has no such setting, or it is missing: 'device'"),
        ("estimator.groups.0.size", 10**400, "a number is larger than 1.8e+308"),
        ("estimator.groups.0.loss", "much", "did not expect 'much', at groups[0].loss"),
        ("estimator.groups.0.loss", 1.7e308, "expected a number within 1e307 of 0, at groups[0].loss"),
        ("estimator.choice.scores.0.spread", 1.7e308, "expected a number within 1e307 of 0, at scores[0].spread"),
        ("estimator.prior.uniform_share", "lower", "expected a number, found text, at uniform_share"),
        ("estimator.prior.saw_test_inputs", "inf", "expected true or false, found text, at saw_test_inputs"),
        ("estimator.prior.temperature", "0", "found text, at temperature"),
        ("estimator.choice.scores.0.score", -1, "expected a number >= 0.0, at scores[0].score"),
        ("estimator.history.0.steps", "many", "expected a whole number, found text, at steps"),
    ],
)
def test_a_forged_model_is_refused_with_the_reason(chosen: Path, where: str, value: Any, says: str) -> None:
    content, arrays = read_folder(chosen)
    *way, key = (int(step) if step.isdigit() else step for step in where.split("."))
    reduce(lambda inner, step: inner[step], way, content)[key] = value  # type: ignore[arg-type, return-value]
    forge_folder(chosen, content, arrays)
    with pytest.raises(TopoRoError) as caught:
        load_model(chosen)
    assert says in str(caught.value)


def test_a_history_of_other_groups_is_refused(tmp_path: Path) -> None:
    MODELS["network"]().save(tmp_path / "m")
    content, _ = read_folder(tmp_path / "m")
    content["estimator"]["history"][0]["weights"][0][0] = "moon"
    forge_folder(tmp_path / "m", content)
    with pytest.raises(TopoRoError, match="its history is that of other groups"):
        load_model(tmp_path / "m")


def test_a_declared_size_takes_no_memory(tmp_path: Path) -> None:
    """A thousand short classes of a type for long ones: a file of 20 KB that asked for 400 MB."""
    MODELS["classes"]().save(tmp_path / "m")
    content, _ = read_folder(tmp_path / "m")
    content["estimator"]["classes"] = {"type": "<U100000", "values": [f"{i}" for i in range(1000)]}
    forge_folder(tmp_path / "m", content)
    tracemalloc.start()
    with pytest.raises(TopoRoError, match="are not of type '<U100000'"):
        load_model(tmp_path / "m")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_forged_graphs(tmp_path: Path) -> None:
    learned = json.loads((Path(__file__).parent / "tables/written_before/graph.json").read_text())
    for seed, content in enumerate((json.loads(PLACED.to_json()), learned)):
        random = Random(seed)
        for case in range(150):
            change, where = forged(content, random)
            (tmp_path / "graph.json").write_text(text_of(change))
            survives(lambda: use_graph(tmp_path / "graph.json", page=case % 30 == 0), seed, case, where)  # noqa: B023


def test_forged_edges(tmp_path: Path) -> None:
    cells = (
        "NY",
        "PA",
        "",
        "1.5",
        "1e400",
        "-1",
        "nan",
        "9" * 5000,
        '"',
        "\0",
        "\u2028",
        "from",
        "to",
        "x" * 140_000,
        "é",
    )
    random = Random(0)
    for case in range(150):
        rows = [
            [random.choice(cells) for _ in range(random.choice((2, 2, 2, 3, 3, 1, 4)))]
            for _ in range(random.randrange(5))
        ]
        path = tmp_path / f"edges{random.choice(('.csv', '.tsv', '.txt'))}"
        text = random.choice("\n\n\r").join(random.choice(",,\t; ").join(row) for row in [["NY", "PA", "1"], *rows])
        path.write_bytes(text.encode(random.choice(("utf-8", "utf-8", "utf-8", "utf-16"))))
        survives(lambda: use_graph(path, page=False), case, text[:200])  # noqa: B023


def test_forged_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for benchmark in ("sen1floods11", "pacs"):
        content = json.loads((Path(__file__).parents[1] / f"results/{benchmark}.json").read_text(encoding="utf-8"))
        content["rows"] = content["rows"][::23]
        content["about"] = {key: content["about"][key] for key in ("settings", "data", "skipped")}
        random = Random(0)
        for case in range(60):
            change, where = forged(content, random)
            (tmp_path / "results.json").write_text(text_of(change))
            survives(lambda: show_results(benchmark, tmp_path / "results.json"), benchmark, case, where)  # noqa: B023


def show_results(benchmark: str, path: Path) -> None:
    """What ``toporo reproduce --show`` does."""
    results = Results.read(path, benchmark)
    for style in ("terminal", "markdown", "json"):
        print_results(results, style)
