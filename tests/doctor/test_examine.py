"""The whole examination: ranked, by name, the same whatever the order, and never a crash."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.doctor.cases import CHAIN, GROUPS, sound
from toporo.data.frame import Frame, Numbers, Texts
from toporo.doctor import SEVERITIES, Diagnosis, examine
from toporo.doctor.results import flag
from toporo.errors import DataError, SettingError, TopoRoError, TopoRoWarning, UnknownNameError
from toporo.tables import fit_table

FAULTY: dict[str, Any] = sound() | {
    "site": [f"{g}-{i % 3}" for i, g in enumerate(sound()["g"])],
    "copy": [1 - 2 * y for y in sound()["y"]],
    "number": list(range(200)),
    "unit": ["kg"] * 200,
}


def codes(diagnosis: Diagnosis) -> list[str]:
    return [finding.code for finding in diagnosis.findings]


@pytest.fixture(scope="module")
def faulty() -> Diagnosis:
    return examine(FAULTY, group="g", target="y", exclude=["z"], graph=CHAIN, test_groups=["elm"])


def test_findings_are_ranked_and_the_next_command_leaves_out_what_leaks(faulty: Diagnosis) -> None:
    order = [SEVERITIES.index(finding.severity) for finding in faulty.findings]
    assert order == sorted(order)
    assert codes(faulty)[:2] == ["leaks-target", "leaks-group"]
    assert faulty.facts["next"] == (
        "toporo fit TABLE.csv --target y --group g --graph GRAPH.csv --test-groups elm "
        "--exclude z,copy,site,number --out model"
    )
    assert faulty.facts["first"] == []


def test_groups_are_measured_without_the_columns_that_would_settle_it(faulty: Diagnosis) -> None:
    assert faulty.facts["measured_without"] == ["number", "site"]
    assert faulty.separability is not None
    assert faulty.separability.accuracy < 0.9


def test_groups_are_summed_up_by_name_and_role(faulty: Diagnosis) -> None:
    assert [(group.name, group.role, group.rows) for group in faulty.groups] == [
        *((name, "training", 50) for name in GROUPS),
        ("elm", "no rows", 0),
    ]
    y = np.asarray(FAULTY["y"])
    assert faulty.groups[0].target == pytest.approx(y[:50].mean())
    assert faulty.groups[-1].hops == 1
    assert sum(group.prior or 0.0 for group in faulty.groups) == pytest.approx(1.0)


def test_a_diagnosis_is_json(faulty: Diagnosis) -> None:
    content = json.loads(json.dumps(faulty.to_dict(), allow_nan=False))
    assert [finding["code"] for finding in content["findings"]] == codes(faulty)
    assert len(content["distances"]["matrix"]) == len(GROUPS)
    assert content["separability"]["skill"] < 1


def test_neither_the_order_of_rows_nor_that_of_columns_matters(faulty: Diagnosis) -> None:
    order = np.random.default_rng(5).permutation(200)
    shuffled = {name: [FAULTY[name][i] for i in order] for name in reversed(FAULTY)}
    again = examine(shuffled, group="g", target="y", exclude=["z"], graph=CHAIN, test_groups=["elm"])
    assert faulty.distances is not None
    assert again.distances is not None
    np.testing.assert_allclose(again.distances.matrix, faulty.distances.matrix, rtol=1e-6)
    assert again.separability is not None
    assert faulty.separability is not None
    assert set(codes(again)) == set(codes(faulty))
    assert {g.name: g.rows for g in again.groups} == {g.name: g.rows for g in faulty.groups}


@pytest.mark.usefixtures("quick")
def test_a_frame_a_mapping_and_a_data_frame_are_one() -> None:
    pandas = pytest.importorskip("pandas")
    table = sound(20)
    first = examine(table, group="g", target="z", exclude=["y"])
    second = examine(pandas.DataFrame(table), group="g", target="z", exclude=["y"])
    assert [f.detail for f in first.findings] == [f.detail for f in second.findings]
    assert first.facts["task"] == "classification"
    assert first.facts["target_shown"] == "share of 'yes'"


@pytest.mark.usefixtures("quick")
def test_what_a_fit_would_refuse_comes_before_the_command() -> None:
    for change, edges, words in (({"y": [3.0] * 80}, None, "a single class"), ({}, CHAIN[:2], "'dogwood'")):
        found = examine(sound(20) | change, group="g", target="y", exclude=["z"], graph=edges)
        (refused,) = [found.findings[number - 1] for number in found.facts["first"]]
        assert refused.code == "refused"
        assert words in refused.detail


@pytest.mark.usefixtures("quick")
def test_numbers_named_as_categories_are_text() -> None:
    table = sound(20) | {"site": [GROUPS.index(g) * 10 + i % 2 for i, g in enumerate(sound(20)["g"])]}
    as_numbers = examine(table, group="g")
    as_names = examine(table, group="g", categorical=["site"])
    leak = {f.severity for f in as_names.findings if f.code == "leaks-group"}
    assert leak == {"serious"}
    assert {f.severity for f in as_numbers.findings if f.code == "leaks-group"} == {"risky"}
    assert "--categorical" not in as_names.facts["next"]


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"group": "h"}, UnknownNameError, "unknown column 'h'"),
        ({"group": "g", "target": "h"}, UnknownNameError, "unknown column 'h'"),
        ({"group": "g", "exclude": ["h"]}, UnknownNameError, "unknown column 'h'"),
        ({"group": "g", "features": ["h"]}, UnknownNameError, "unknown column 'h'"),
        ({"group": "g", "task": "ranking"}, UnknownNameError, "unknown task"),
        ({"group": "g", "test_groups": "ash"}, SettingError, "list of names"),
        ({"group": "g", "test_groups": GROUPS}, DataError, "every group is a test group"),
        ({"group": "g", "graph": 7}, TopoRoError, "graph"),
        ({"group": "g", "source": {"x": [1e200]}}, DataError, "beyond 1e.100 .*column 'x'"),
    ],
)
def test_what_cannot_be_examined_is_an_error_that_says_so(settings: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        examine(sound(5) | {name: column * 20 for name, column in settings.pop("source", {}).items()}, **settings)


def test_a_table_without_a_group_anywhere_is_an_error() -> None:
    with pytest.raises(DataError, match="no row has a group"):
        examine({"g": [None, None], "x": [1, 2]}, group="g")


@pytest.mark.usefixtures("quick")
def test_long_lists_are_cut_but_a_command_holds_every_name() -> None:
    rng = np.random.default_rng(0)
    groups = [f"a group with a rather long name, number {k}" for k in range(60)]
    labels = np.repeat(np.arange(60), 4)
    table: dict[str, Any] = {"g": [groups[k] for k in labels], "y": rng.normal(size=240)}
    table |= {f"copy, {k}": table["y"] * (k + 1) for k in range(30)}
    found = examine(table, group="g", target="y", graph=list(pairwise(groups)), test_groups=groups[30:50])
    leak = next(finding for finding in found.findings if finding.code == "leaks-target")
    assert "… (30 in all)" in leak.detail
    assert "… (30 in all)" in leak.step
    assert "--test-groups @test-groups.txt" in found.facts["next"]
    assert found.facts["next"].count("copy, ") == 30
    assert flag("--exclude", ["a b", "c,d"]) == """--exclude 'a b,"c,d"'"""


# ---------------------------------------------------------------- what a fit warns of

FAR = [*CHAIN, ("elm", "fig"), ("fig", "gum"), ("oak", "pine")]
WARNED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("numbers-as-text", {"price": [f"{i},5" for i in range(80)]}, {}, "read as text"),
    ("one-group", {"g": ["ash"] * 80}, {}, "of one group"),
    ("one-group", {}, {"test_groups": GROUPS[1:]}, "of one group"),
    ("disconnected-graph", {}, {"graph": FAR, "test_groups": ["elm", "pine"]}, "no path leads"),
    ("disconnected-graph", {}, {"graph": {"ash": ["birch"], "birch": ["cedar"], "dogwood": []}}, "without any edge"),
    ("few-rows-in-effect", {"kind": [f"kind {i % 12}" for i in range(80)]}, {"graph": CHAIN}, "80 rows are in effect"),
]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("code", "change", "given", "words"), WARNED, ids=[row[0] for row in WARNED])
def test_what_a_fit_warns_of_the_doctor_finds(
    code: str, change: dict[str, Any], given: dict[str, Any], words: str
) -> None:
    table = sound(20) | change
    settings = {"group": "g", "target": "y", "exclude": ["z"]} | given
    with pytest.warns(TopoRoWarning, match=words):
        fit_table(table, model="linear", **settings)
    assert code in codes(examine(table, **settings))


@pytest.mark.usefixtures("quick")
def test_what_a_fit_does_not_warn_of_is_not_found() -> None:
    """The same table without faults, and rows enough: none of these findings."""
    found = codes(examine(sound(50), group="g", target="y", exclude=["z"], graph=CHAIN, test_groups=["elm"]))
    assert not {row[0] for row in WARNED} & set(found)


# ---------------------------------------------------------------- odd tables

NUMBERS = st.one_of(
    st.just(float("nan")), st.integers(-3, 3).map(float), st.floats(-1e90, 1e90), st.sampled_from([0.0, 1.0])
)
TEXTS = st.one_of(st.none(), st.sampled_from(["a", "A ", "b", "é", "e\u0301", "日本", "1", "01", "$x_2$"]))


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    rows = draw(st.integers(1, 40))
    columns: dict[str, Numbers | Texts] = {}
    for name in ("g", *draw(st.lists(st.sampled_from(["x", "ÿ", "a b", "id", "y"]), max_size=4, unique=True))):
        if name == "g" or draw(st.booleans()):
            cells = draw(st.lists(TEXTS, min_size=rows, max_size=rows))
            levels = tuple(sorted({cell for cell in cells if cell is not None}))
            places = [-1 if cell is None else levels.index(cell) for cell in cells]
            columns[name] = Texts(np.asarray(places, dtype=np.int32), levels)
        else:
            columns[name] = Numbers(np.asarray(draw(st.lists(NUMBERS, min_size=rows, max_size=rows))))
    return Frame(columns)


@pytest.mark.usefixtures("quick")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames(), st.booleans(), st.sampled_from([(), ("a",), ("elsewhere", "日本")]))
def test_no_table_is_too_odd(frame: Frame, graph: bool, test: tuple[str, ...]) -> None:
    """Whatever the table, there is a diagnosis that can be shown and written, or an error of ours."""
    target = "y" if "y" in frame else None
    edges = [("a", "b"), ("b", "é"), ("日本", "elsewhere")] if graph else None
    if set(frame.text("g").levels) <= set(test):
        with pytest.raises(DataError, match="group"):
            examine(frame, group="g", target=target, graph=edges, test_groups=test)
        return
    found = examine(frame, group="g", target=target, graph=edges, test_groups=test)
    json.dumps(found.to_dict(), allow_nan=False)
    assert all(finding.detail and finding.step for finding in found.findings)
    assert {group.name for group in found.groups} >= set(frame.text("g").levels)


@pytest.mark.usefixtures("quick")
def test_hundreds_of_groups_are_measured_in_part_and_counted_in_full() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 400, 4000)
    table = {"g": [f"group {k}" for k in labels], "x": rng.normal(size=4000), "y": rng.normal(size=4000)}
    found = examine(table, group="g", target="y", test_groups=["group 7"])
    assert found.distances is not None
    assert len(found.distances.names) == 100
    assert "group 7" in found.distances.names
    assert len(found.groups) == 400
    assert sum(group.rows for group in found.groups) == 4000
