"""Every check: a table that it speaks up about, and one like it that it is silent about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from tests.doctor.cases import CHAIN, GROUPS, case_of, sound
from toporo.data.frame import Frame, Numbers, Texts
from toporo.doctor import CHECKS, SEVERITIES, Finding, examine
from toporo.doctor.columns import time_column
from toporo.doctor.measure import Case
from toporo.doctor.results import Distances, Separability
from toporo.topology.graph import GroupGraph


@dataclass
class Table:
    """Columns with the settings that go with them."""

    columns: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)

    def case(self) -> Case:
        made = all(isinstance(column, Numbers | Texts) for column in self.columns.values())
        return case_of(Frame(self.columns) if made else self.columns, **self.settings)


def table(**settings: Any) -> Table:
    return Table(sound(), settings)


def plus(name: str, make: Callable[[int, str], Any], **settings: Any) -> Table:
    """The sound table with a column made from the number of the row and its group."""
    columns = sound()
    columns[name] = [make(i, g) for i, g in enumerate(columns["g"])]
    return Table(columns, settings)


def minus(name: str, where: Callable[[int, str], bool], **settings: Any) -> Table:
    """The sound table with cells taken out."""
    columns = sound()
    cells = zip(columns["g"], columns[name], strict=True)
    columns[name] = [None if where(i, g) else cell for i, (g, cell) in enumerate(cells)]
    return Table(columns, settings)


def sized(sizes: dict[str, int], **settings: Any) -> Table:
    """A table whose groups have these sizes."""
    columns = sound(sum(sizes.values()), ["all"])
    columns["g"] = [name for name, size in sizes.items() for _ in range(size)]
    return Table(columns, settings)


def renamed(names: dict[str, str], **settings: Any) -> Table:
    columns = sound()
    columns["g"] = [names.get(g, g) for g in columns["g"]]
    return Table(columns, settings)


def repeated(share: float, **settings: Any) -> Table:
    """The sound table with rows of ash given to birch as well."""
    columns = sound()
    for name in columns:
        if name != "g":
            columns[name][50 : 50 + int(50 * share)] = columns[name][: int(50 * share)]
    return Table(columns, settings)


def noise(i: int, g: str) -> float:
    return float(np.random.default_rng(i + 1000).normal())


def series(copied: bool = False, levels: float = 20.0, **settings: Any) -> Table:
    """Groups with a level each and a target that drifts, with the target before, or with a noisy copy of this one."""
    rng = np.random.default_rng(0)
    columns: dict[str, list[Any]] = {name: [] for name in ("g", "year", "before", "x", "y")}
    for place, g in enumerate(GROUPS):
        y = levels * place + np.cumsum(rng.normal(size=61))
        near = y[1:] + 0.1 * rng.normal(size=60)
        cells = zip(range(1950, 2010), near if copied else y[:-1], rng.normal(size=60), y[1:], strict=True)
        for row in cells:
            for name, cell in zip(columns, (g, *row), strict=True):
                columns[name].append(cell)
    return Table(columns, {"target": "y"} | settings)


def dated() -> Table:
    columns = dict(table().case().frame.columns) | {"y": Numbers(np.arange(200.0), "date")}
    return Table(columns, {"target": "y"})


LOOP = [*CHAIN[:3], ("dogwood", "ash")]
#: By check: a finding's code, a table that has it, and one that does not.
TABLES: list[tuple[str, str, Table, Table]] = [
    ("single_group", "one-group", sized({"ash": 60}), table()),
    ("single_group", "one-training-group", table(test_groups=GROUPS[1:]), table(test_groups=GROUPS[2:])),
    ("group_per_row", "group-per-row", plus("g", lambda i, g: f"row {i}"), table()),
    ("small_groups", "small-group", sized({"ash": 60, "birch": 12}), sized({"ash": 60, "birch": 20})),
    (
        "small_groups",
        "small-group",
        sized({"ash": 60, "birch": 12}),
        sized({"ash": 60, "birch": 12, "fir": 60}, test_groups=("birch",)),
    ),
    ("small_groups", "small-for-features", plus("many", lambda i, g: f"level {i % 40}"), table()),
    ("uneven_groups", "uneven-groups", sized({"ash": 1500, "birch": 30}), sized({"ash": 200, "birch": 30})),
    ("group_missing", "group-missing", minus("g", lambda i, g: i == 7), table()),
    ("spelt_alike", "spelt-alike", renamed({"ash": "Cedar "}), renamed({"ash": "Cedar 2"})),
    ("spelt_alike", "spelt-alike", renamed({"ash": "01", "birch": "1"}), renamed({"ash": "10", "birch": "1"})),
    ("no_features", "no-features", Table({"g": list("aabb"), "x": [1.0] * 4}), table()),
    ("empty_or_constant", "constant-column", plus("unit", lambda i, g: "kg"), table()),
    ("empty_or_constant", "empty-column", plus("unit", lambda i, g: None), table()),
    (
        "group_level",
        "group-level-column",
        plus("height", lambda i, g: GROUPS.index(g) // 2),
        plus("height", lambda i, g: i % 2),
    ),
    ("group_level", "group-level-column", plus("region", lambda i, g: "ns"[GROUPS.index(g) // 2]), table()),
    ("identifiers", "identifier", plus("number", lambda i, g: i), plus("number", lambda i, g: i // 2)),
    ("identifiers", "identifier", plus("name", lambda i, g: f"row {i}"), plus("name", lambda i, g: f"row {i // 2}")),
    (
        "identifiers",
        "identifier",
        plus("person_id", lambda i, g: 7919 * i * i),
        plus("steps", lambda i, g: 7919 * i * i),
    ),
    (
        "many_levels",
        "many-levels",
        plus("town", lambda i, g: f"town {i % 90}"),
        plus("town", lambda i, g: f"town {i % 9}"),
    ),
    ("missing_values", "missing-values", minus("x1", lambda i, g: i % 2 == 0), minus("x1", lambda i, g: i == 0)),
    ("missing_values", "missing-in-groups", minus("x1", lambda i, g: g == "ash"), minus("x1", lambda i, g: i % 2 == 0)),
    ("shared_rows", "shared-rows", repeated(0.5), table()),
    ("shared_rows", "shared-rows", repeated(0.5), table(features=("colour",))),
    (
        "leaks_group",
        "leaks-group",
        plus("site", lambda i, g: f"{g}-{i % 3}"),
        plus("site", lambda i, g: f"site {i % 3}"),
    ),
    (
        "leaks_group",
        "leaks-group",
        plus("site", lambda i, g: g.upper()),
        plus("site", lambda i, g: g.upper() if i % 5 else "?"),
    ),
    (
        "leaks_group",
        "leaks-group",
        plus("day", lambda i, g: GROUPS.index(g) + 0.9 * abs(np.sin(i))),
        plus("day", lambda i, g: GROUPS.index(g) + 3 * abs(np.sin(i))),
    ),
    (
        "leaks_target",
        "leaks-target",
        Table(sound() | {"copy": [2 * y + 1 for y in sound()["y"]]}, {"target": "y"}),
        table(target="y"),
    ),
    (
        "leaks_target",
        "leaks-target",
        Table(sound() | {"curve": [np.exp(y) for y in sound()["y"]]}, {"target": "y"}),
        table(target="y"),
    ),
    (
        "leaks_target",
        "leaks-target",
        Table(
            sound() | {"band": [f"{y:.0f}" for y in sound()["y"]], "y": [round(y) for y in sound()["y"]]},
            {"target": "y"},
        ),
        table(target="y"),
    ),
    (
        "leaks_target",
        "leaks-target",
        Table(sound() | {"verdict": [f"{z}!" for z in sound()["z"]]}, {"target": "z"}),
        table(target="z"),
    ),
    (
        "leaks_target",
        "leaks-target",
        Table(sound() | {"flag": [int(z == "yes") for z in sound()["z"]]}, {"target": "z"}),
        table(target="z"),
    ),
    (
        "leaks_target",
        "leaks-target",
        Table(
            sound() | {"score": [noise(i, "") + 9 * (z == "yes") for i, z in enumerate(sound()["z"])]}, {"target": "z"}
        ),
        table(target="z"),
    ),
    (
        "leaks_target",
        "leaks-target",
        Table(sound() | {"verdict": [f"{z}!" for z in sound()["z"]]}, {"target": "z"}),
        Table(sound() | {"name": [f"{z} {i}" for i, z in enumerate(sound()["z"])]}, {"target": "z"}),
    ),
    (
        "leaks_target",
        "leaks-target",
        Table(sound() | {"near": [y + 0.25 * noise(i, "") for i, y in enumerate(sound()["y"])]}, {"target": "y"}),
        Table(sound() | {"far": [y + 0.6 * noise(i, "") for i, y in enumerate(sound()["y"])]}, {"target": "y"}),
    ),
    ("leaks_target", "lagged-target", series(), series(copied=True)),
    ("numbers_as_text", "numbers-as-text", plus("price", lambda i, g: f"{i},50"), plus("price", lambda i, g: f"{i} a")),
    ("numbers_as_text", "numbers-as-text", plus("price", lambda i, g: f"{i}" if i else "n/k"), table()),
    ("numbers_as_text", "numbers-as-text", plus("day", lambda i, g: f"{i % 28 + 1}/5/2020"), table()),
    ("dates_as_numbers", "date-target", dated(), table(target="y")),
    (
        "classes_by_group",
        "one-class-group",
        plus("z", lambda i, g: "no" if i % 4 or g == "ash" else "yes", target="z"),
        table(target="z"),
    ),
    (
        "classes_by_group",
        "lone-class",
        plus("z", lambda i, g: "both" if g == "ash" and i % 3 == 0 else ("yes", "no")[i % 2], target="z"),
        plus("z", lambda i, g: ("yes", "no", "both")[i % 3], target="z"),
    ),
    (
        "distant_tests",
        "distant-test-group",
        table(graph=[*CHAIN, ("elm", "fig"), ("fig", "gum")], test_groups=("gum",)),
        table(graph=[*CHAIN, ("elm", "fig"), ("fig", "gum")], test_groups=("fig",)),
    ),
    ("few_in_effect", "few-rows-in-effect", sized({"ash": 300, "birch": 6}), sized({"ash": 300, "birch": 60})),
    ("no_target", "no-target", table(), table(target="y")),
    (
        "target_missing",
        "target-missing",
        minus("y", lambda i, g: g == "ash", target="y"),
        minus("y", lambda i, g: g == "ash", target="y", test_groups=("ash",)),
    ),
    ("constant_target", "constant-target", plus("y", lambda i, g: 3.0, target="y"), table(target="y")),
    (
        "constant_target",
        "target-by-group",
        plus("z", lambda i, g: "yes" if g in GROUPS[:2] else "no", target="z"),
        table(target="z"),
    ),
    ("text_as_numbers", "target-not-numbers", table(target="z", task="regression"), table(target="z")),
    ("numbers_as_classes", "classes-as-numbers", plus("y", lambda i, g: i % 4, target="y"), table(target="y")),
    ("numbers_as_classes", "too-many-classes", plus("z", lambda i, g: f"{i} kg", target="z"), table(target="z")),
    (
        "classes_by_group",
        "rare-class",
        plus("z", lambda i, g: "yes" if i % 50 == 0 else "no", target="z"),
        table(target="z"),
    ),
    (
        "classes_by_group",
        "absent-class",
        plus("z", lambda i, g: "yes" if i % 2 or g == "ash" else "no", target="z"),
        plus("z", lambda i, g: "yes" if i % 2 else "no", target="z"),
    ),
    (
        "classes_by_group",
        "label-shift",
        plus("z", lambda i, g: "yes" if i % 10 < (9 if g == "ash" else 2) else "no", target="z"),
        plus("z", lambda i, g: "yes" if i % 10 < (4 if g == "ash" else 3) else "no", target="z"),
    ),
    (
        "target_by_group",
        "target-shift",
        plus("y", lambda i, g: 10 * GROUPS.index(g) + noise(i, g), target="y"),
        table(target="y"),
    ),
    (
        "target_by_group",
        "target-outliers",
        plus("y", lambda i, g: 1e4 if i == 3 else noise(i, g), target="y"),
        table(target="y"),
    ),
    ("no_graph", "no-graph", table(), table(graph=CHAIN)),
    ("groups_not_in_graph", "not-in-graph", renamed({"ash": "acacia"}, graph=CHAIN), table(graph=CHAIN)),
    (
        "groups_not_in_graph",
        "not-in-graph",
        table(graph=CHAIN, test_groups=("fig",)),
        table(graph=CHAIN, test_groups=("elm",)),
    ),
    ("test_groups_unknown", "unknown-test-group", table(test_groups=("fig",)), table(test_groups=("ash",))),
    ("groups_without_rows", "graph-only-group", table(graph=CHAIN), table(graph=CHAIN, test_groups=("elm",))),
    (
        "isolated_groups",
        "isolated-group",
        table(graph=GroupGraph.from_edges(CHAIN[1:], nodes=["ash"])),
        table(graph=CHAIN),
    ),
    (
        "isolated_groups",
        "isolated-group",
        table(graph=GroupGraph.from_edges([*CHAIN[1:], ("ash", "fig")])),
        table(graph=GroupGraph.from_edges([*CHAIN[1:], ("ash", "fig")]), test_groups=("fig",)),
    ),
    ("isolated_groups", "disconnected-graph", table(graph=[CHAIN[0], CHAIN[2]]), table(graph=CHAIN)),
    (
        "unreachable_tests",
        "unreachable-test-group",
        table(graph=[*CHAIN, ("fig", "gum")], test_groups=("fig",)),
        table(graph=CHAIN, test_groups=("elm",)),
    ),
    ("prior_shape", "flat-prior", table(graph=LOOP), table(graph=CHAIN)),
    (
        "prior_shape",
        "one-group-prior",
        table(graph=CHAIN, test_groups=("elm",)),
        table(graph=[*CHAIN, ("elm", "ash"), ("elm", "birch")], test_groups=("elm",)),
    ),
]


def found(check: str, case: Case) -> dict[str, Finding]:
    function = next(each for each in CHECKS if each.__name__ == check)
    return {finding.code: finding for finding in function(case)}


@pytest.mark.parametrize(("check", "code", "bad", "good"), TABLES, ids=[f"{row[0]}-{row[1]}" for row in TABLES])
def test_a_check_finds_what_it_is_for_and_nothing_else(check: str, code: str, bad: Table, good: Table) -> None:
    finding = found(check, bad.case()).get(code)
    assert finding is not None
    assert finding.severity in SEVERITIES
    assert finding.title
    assert finding.detail
    assert finding.step
    assert code not in found(check, good.case())


SHIFTS = {
    "groups_alike", "unsteady_topology", "covariate_shift", "far_tests", "not_recognised", "shifted_regions",
    "shifted_times", "graph_says",
}  # fmt: skip


def test_every_check_has_its_tables() -> None:
    assert {check.__name__ for check in CHECKS} == {row[0] for row in TABLES} | SHIFTS


def test_the_sound_table_has_nothing_serious_or_risky() -> None:
    case = table(target="y", graph=[*CHAIN, ("elm", "ash"), ("elm", "birch")], test_groups=("elm",)).case()
    assert [f for check in CHECKS for f in check(case)] == []


# ---------------------------------------------------------------- what findings say


def test_a_leak_names_the_column_and_how_to_leave_it_out() -> None:
    finding = found("leaks_group", plus("the site", lambda i, g: g.upper()).case())["leaks-group"]
    assert finding.severity == "serious"
    assert finding.subjects == ("the site",)
    assert "--exclude 'the site'" in finding.step


@pytest.mark.parametrize("without", [(), ("year",)])
def test_a_lag_is_no_leak_however_much_groups_differ(without: tuple[str, ...]) -> None:
    """With a correlation above 0.999 and a range of its own in every group, with years and without."""
    lagged = series(levels=300.0)
    for name in without:
        del lagged.columns[name]
    case = lagged.case()
    assert abs(np.corrcoef(lagged.columns["before"], lagged.columns["y"])[0, 1]) > 0.999
    assert "before" in found("leaks_target", case)["lagged-target"].subjects
    assert "leaks-target" not in found("leaks_target", case)
    assert found("leaks_group", case) == {}


def test_the_target_of_the_next_row_is_a_leak() -> None:
    ahead = series()
    y = np.asarray(ahead.columns["y"]).reshape(len(GROUPS), -1)
    ahead.columns["before"] = np.column_stack([y[:, 1:], y[:, -1] + 0.1]).ravel().tolist()
    assert found("leaks_target", ahead.case())["leaks-target"].subjects == ("before",)


def test_a_column_that_differs_between_groups_as_the_target_does_is_no_leak() -> None:
    """It says which group it is, and nothing of the target within one."""
    for target, made in (("y", 20.0), ("z", "class")):
        columns = sound()
        places = [GROUPS.index(g) for g in columns["g"]]
        columns["level"] = [place + 0.01 * noise(i, "") for i, place in enumerate(places)]
        columns["name"] = [f"level {place}" for place in places]
        if made == "class":
            columns["z"] = [("no", "no", "yes", "yes")[place] if i % 50 else "maybe" for i, place in enumerate(places)]
        else:
            columns["y"] = [20.0 * place + y for place, y in zip(places, columns["y"], strict=True)]
        assert found("leaks_target", case_of(columns, target=target)) == {}


def test_numbers_that_repeat_in_one_group_only_are_no_code() -> None:
    """A value of the year, given to all of its months, is met in one group and says nothing of which."""
    columns = sound()
    columns["yearly"] = [round(1000 * noise(i // 5, g)) for i, g in enumerate(columns["g"])]
    assert found("leaks_group", case_of(columns)) == {}
    columns["code"] = [7 * (3 * i // 50) % 29 for i in range(200)]
    assert found("leaks_group", case_of(columns))["leaks-group"].subjects == ("code",)


@pytest.mark.parametrize(
    ("name", "cells", "is_time"),
    [
        ("year", range(1990, 2040), True),
        ("saleMonth", range(50), True),
        ("months_since_start", [i % 12 for i in range(50)], True),
        ("month", [i % 12 + 1 for i in range(50)], False),
        ("year_built", range(1990, 2040), False),
        ("birth_year", range(1990, 2040), False),
        ("year_sin", [np.sin(i) for i in range(50)], False),
        ("overtime_pay", range(50), False),
    ],
)
def test_a_column_of_time_is_known_by_name_and_values(name: str, cells: Any, is_time: bool) -> None:
    case = case_of(sound() | {name: [*cells] * 4})
    assert time_column(case) == (name if is_time else None)


def test_dates_are_times_under_any_name_unless_they_say_which_group() -> None:
    columns = dict(table().case().frame.columns)
    columns["seen"] = Numbers(np.arange(200.0) % 50 - 3650, "date")
    columns["visit"] = Numbers(np.arange(200.0) // 50, "date")
    assert time_column(case_of(Frame(columns))) == "seen"


def test_a_group_that_lacks_rows_is_worse_the_fewer_it_has() -> None:
    few = found("small_groups", sized({"ash": 60, "birch": 12}).case())["small-group"]
    hardly = found("small_groups", sized({"ash": 60, "birch": 2}).case())["small-group"]
    assert (few.severity, hardly.severity) == ("risky", "serious")
    assert "'birch' (2)" in hardly.detail


def test_another_spelling_in_the_graph_is_pointed_out() -> None:
    finding = found("groups_not_in_graph", renamed({"ash": " ASH"}, graph=CHAIN).case())["not-in-graph"]
    assert "'ASH' for 'ash'" in finding.detail


def test_rows_shared_with_a_test_group_are_serious() -> None:
    among = found("shared_rows", repeated(0.1).case())["shared-rows"]
    across = found("shared_rows", repeated(0.1, test_groups=("ash",)).case())["shared-rows"]
    assert (among.severity, across.severity) == ("risky", "serious")
    assert "5 such rows are in a training and a test group: 10 % of the test rows" in across.detail


@pytest.mark.parametrize(("shared", "severity"), [(8, None), (20, "note"), (200, "risky"), (1000, "serious")])
def test_shared_rows_are_serious_by_their_share_not_by_their_number(shared: int, severity: str | None) -> None:
    """Of ten thousand test rows: fewer than one in a thousand are nothing."""
    large = Table(sound(10_000), {"test_groups": ("ash",)})
    for name in large.columns:
        if name != "g":
            large.columns[name][10_000 : 10_000 + shared] = large.columns[name][:shared]
    finding = found("shared_rows", large.case()).get("shared-rows")
    assert (None if finding is None else finding.severity) == severity


def test_targets_of_test_groups_are_not_looked_at() -> None:
    """A leak, a class, an outlier or a shared row that only test groups show must not be seen."""
    for make in (table, lambda **settings: repeated(0.5, **settings)):
        plain = make(target="y", test_groups=("birch",))
        odd = make(target="y", test_groups=("birch",))
        odd.columns["y"] = [1e9 if g == "birch" else y for g, y in zip(odd.columns["g"], odd.columns["y"], strict=True)]
        assert [f for check in CHECKS for f in check(plain.case())] == [
            f for check in CHECKS for f in check(odd.case())
        ]


def test_a_sample_does_not_depend_on_targets_of_test_groups() -> None:
    columns = sound(400)
    odd = columns | {"y": [1e9 if g == "birch" else y for g, y in zip(columns["g"], columns["y"], strict=True)]}
    first, second = (examine(each, group="g", target="y", test_groups=["birch"]) for each in (columns, odd))
    assert first.distances is not None
    assert second.distances is not None
    assert (first.distances.matrix == second.distances.matrix).all()


def test_equal_features_with_other_targets_are_no_shared_rows() -> None:
    """Each month of a year in every group: nothing says that rows of a test group are copies."""
    rng = np.random.default_rng(0)
    columns = {"g": np.repeat(GROUPS, 300).tolist(), "day": list(range(300)) * 4, "y": rng.normal(size=1200).tolist()}
    assert found("shared_rows", case_of(columns, target="y", test_groups=("ash",))) == {}


def test_a_column_that_tells_groups_by_luck_is_let_pass() -> None:
    """Six rows in two groups: a column that happens to follow them is no news."""
    columns = {"g": list("aaabbb"), "c": list("pppqqq"), "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
    assert found("leaks_group", case_of(columns)) == {}


# ---------------------------------------------------------------- what is measured


def distances(matrix: list[list[float]], **given: Any) -> Distances:
    names = GROUPS[: len(matrix)]
    usual: dict[str, Any] = {
        "typical": 1.0, "chance": 0.2, "chance_spread": 0.01, "by_chance": np.full((len(names),) * 2, 0.2),
        "beyond_chance": True, "contrast": 5.0, "stability": 1.0, "points": 200,
    }  # fmt: skip
    return Distances(names=names, matrix=np.asarray(matrix), order=names, **(usual | given))


def told(confusion: list[list[float]], **given: Any) -> Separability:
    matrix = np.asarray(confusion)
    usual: dict[str, Any] = {
        "accuracy": float(np.diag(matrix).mean()), "chance": 1 / len(matrix), "error": 0.02,
        "names": GROUPS[: len(matrix)], "features": (("x1", 0.8), ("x2", 0.2)), "classifier": "trees", "folds": 5,
        "points": 200,
    }  # fmt: skip
    return Separability(confusion=matrix, **(usual | given))


FAR = [[0, 1, 1, 9], [1, 0, 1, 9], [1, 1, 0, 9], [9, 9, 9, 0]]
NEAR = [[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]
GUESSED = [[0.25] * 4] * 4
CLEAR = np.eye(4).tolist()
TWINS = [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize(
    ("check", "code", "bad", "good"),
    [
        (
            "groups_alike",
            "alike-groups",
            {"distances": distances(NEAR, beyond_chance=False), "separability": told(GUESSED)},
            {"distances": distances(NEAR), "separability": told(GUESSED)},
        ),
        (
            "unsteady_topology",
            "unsteady-distances",
            {"distances": distances(NEAR, contrast=0.5, stability=0.4)},
            {"distances": distances(NEAR)},
        ),
        ("covariate_shift", "covariate-shift", {"separability": told(CLEAR)}, {"separability": told(TWINS)}),
        ("far_tests", "far-test-group", {"distances": distances(FAR)}, {"distances": distances(NEAR)}),
        (
            "far_tests",
            "far-test-group",
            {"distances": distances(FAR)},
            {"distances": distances(FAR, by_chance=np.full((4, 4), 6.0))},
        ),
        ("not_recognised", "twin-groups", {"separability": told(TWINS)}, {"separability": told(CLEAR)}),
    ],
)
def test_a_check_of_what_was_measured(check: str, code: str, bad: dict[str, Any], good: dict[str, Any]) -> None:
    case = table(test_groups=("dogwood",)).case()
    assert code in found(check, replace(case, **bad))
    assert code not in found(check, replace(case, **good))


def test_huge_numbers_do_no_harm() -> None:
    """Their squares and differences overflow, which must become neither a warning nor a finding."""
    columns = dict(table().case().frame.columns)
    columns["huge"] = Numbers(np.asarray([noise(i, "") for i in range(200)]) * 5e307)
    case = case_of(Frame(columns), target="y")
    with np.errstate(all="raise"):
        codes = {finding.code for check in CHECKS for finding in check(case)}
    assert "leaks-target" not in codes
