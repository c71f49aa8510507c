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
from toporo.doctor.case import Case
from toporo.doctor.columns import time_column
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


def beside(name: str, make: Callable[[int, Any], Any], target: str = "y") -> Table:
    """The sound table with a column made from the target."""
    columns = sound()
    return Table(columns | {name: [make(i, value) for i, value in enumerate(columns[target])]}, {"target": target})


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


PIECES = [CHAIN[0], CHAIN[2]]
#: By check: a finding's code, a table that has it, and one that does not.
TABLES: list[tuple[str, str, Table, Table]] = [
    ("too_few_groups", "one-group", sized({"ash": 60}), table()),
    ("too_few_groups", "one-group", table(test_groups=GROUPS[1:]), table(test_groups=GROUPS[2:])),
    ("too_few_groups", "group-per-row", plus("g", lambda i, g: f"row {i}"), table()),
    ("small_groups", "small-group", sized({"ash": 60, "birch": 12}), sized({"ash": 60, "birch": 20})),
    (
        "small_groups",
        "small-group",
        sized({"ash": 60, "birch": 12}),
        sized({"ash": 60, "birch": 12, "fir": 60}, test_groups=("birch",)),
    ),
    ("few_in_effect", "few-rows-in-effect", sized({"ash": 300, "birch": 6}), sized({"ash": 300, "birch": 60})),
    ("spelt_alike", "spelt-alike", renamed({"ash": "Cedar "}), renamed({"ash": "Cedar 2"})),
    ("spelt_alike", "spelt-alike", renamed({"ash": "01", "birch": "1"}), renamed({"ash": "10", "birch": "1"})),
    ("unused_columns", "unused-column", plus("unit", lambda i, g: "kg"), table()),
    ("unused_columns", "unused-column", plus("name", lambda i, g: f"row {i}"), plus("name", lambda i, g: f"{i % 9}")),
    ("identifiers", "identifier", plus("number", lambda i, g: i), plus("number", lambda i, g: i // 2)),
    (
        "identifiers",
        "identifier",
        plus("person_id", lambda i, g: 7919 * i * i),
        plus("steps", lambda i, g: 7919 * i * i),
    ),
    ("missing_values", "missing-values", minus("x1", lambda i, g: i % 2 == 0), minus("x1", lambda i, g: i == 0)),
    ("missing_values", "missing-in-groups", minus("x1", lambda i, g: g == "ash"), minus("x1", lambda i, g: i % 2 == 0)),
    ("numbers_as_text", "numbers-as-text", plus("price", lambda i, g: f"{i},50"), plus("price", lambda i, g: f"{i} a")),
    ("numbers_as_text", "numbers-as-text", plus("price", lambda i, g: f"{i}" if i else "n/k"), table()),
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
        "group-level-column",
        plus("height", lambda i, g: GROUPS.index(g) // 2),
        plus("height", lambda i, g: i % 2),
    ),
    ("leaks_group", "group-level-column", plus("region", lambda i, g: "ns"[GROUPS.index(g) // 2]), table()),
    ("leaks_target", "leaks-target", beside("copy", lambda i, y: 2 * y + 1), table(target="y")),
    ("leaks_target", "leaks-target", beside("curve", lambda i, y: np.exp(y)), table(target="y")),
    (
        "leaks_target",
        "leaks-target",
        beside("near", lambda i, y: y + 0.2 * noise(i, "")),
        beside("far", lambda i, y: y + 0.6 * noise(i, "")),
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
        beside("verdict", lambda i, z: f"{z}!", "z"),
        beside("name", lambda i, z: f"{z} {i}", "z"),
    ),
    ("leaks_target", "leaks-target", beside("flag", lambda i, z: int(z == "yes"), "z"), table(target="z")),
    (
        "leaks_target",
        "leaks-target",
        beside("score", lambda i, z: noise(i, "") + 9 * (z == "yes"), "z"),
        table(target="z"),
    ),
    ("leaks_target", "lagged-target", series(), series(copied=True)),
    ("missing_roles", "group-missing", minus("g", lambda i, g: i == 7), table()),
    (
        "missing_roles",
        "target-missing",
        minus("y", lambda i, g: g == "ash", target="y"),
        minus("y", lambda i, g: g == "ash", target="y", test_groups=("ash",)),
    ),
    ("refused_table", "refused", plus("y", lambda i, g: 3.0, target="y"), table(target="y")),
    ("refused_table", "refused", table(target="z", task="regression"), table(target="z")),
    ("refused_table", "refused", plus("z", lambda i, g: f"{i} kg", target="z"), table(target="z")),
    ("refused_table", "refused", table(target="y", test_groups=("fig",)), table(target="y", test_groups=("ash",))),
    (
        "refused_table",
        "refused",
        renamed({"ash": "acacia"}, target="y", graph=CHAIN),
        minus("y", lambda i, g: i == 3, target="y", graph=CHAIN, test_groups=("elm",)),
    ),
    ("refused_table", "refused", table(target="y", exclude=("x1", "x2", "colour")), table(target="y")),
    (
        "lone_classes",
        "lone-class",
        plus("z", lambda i, g: "both" if g == "ash" and i % 3 == 0 else ("yes", "no")[i % 2], target="z"),
        plus("z", lambda i, g: ("yes", "no", "both")[i % 3], target="z"),
    ),
    (
        "target_by_group",
        "target-shift",
        plus("y", lambda i, g: 10 * GROUPS.index(g) + noise(i, g), target="y"),
        table(target="y"),
    ),
    (
        "target_by_group",
        "target-shift",
        plus("z", lambda i, g: "yes" if i % 10 < (9 if g == "ash" else 2) else "no", target="z"),
        plus("z", lambda i, g: "yes" if i % 10 < (4 if g == "ash" else 3) else "no", target="z"),
    ),
    ("no_graph", "no-graph", table(), table(graph=CHAIN)),
    ("graph_in_pieces", "disconnected-graph", table(graph=PIECES), table(graph=CHAIN)),
    ("graph_in_pieces", "disconnected-graph", table(graph=GroupGraph.from_edges(CHAIN[1:], nodes=["ash"])), table()),
    (
        "one_group_prior",
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


SHIFTS = {"groups_alike", "covariate_shift", "far_tests", "shifted_regions", "shifted_times", "graph_says"}


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


def test_a_lag_is_no_leak_however_much_groups_differ() -> None:
    """With a correlation above 0.999 and a range of its own in every group."""
    lagged = series(levels=300.0)
    case = lagged.case()
    assert abs(np.corrcoef(lagged.columns["before"], lagged.columns["y"])[0, 1]) > 0.999
    assert "before" in found("leaks_target", case)["lagged-target"].subjects
    assert "leaks-target" not in found("leaks_target", case)
    assert found("leaks_group", case) == {}


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
        ("saleYear", range(50), True),
        ("months_since_start", [i % 12 for i in range(50)], True),
        ("month", range(50), False),
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


def test_rows_shared_with_a_test_group_are_serious() -> None:
    among = found("shared_rows", repeated(0.1).case())["shared-rows"]
    across = found("shared_rows", repeated(0.1, test_groups=("ash",)).case())["shared-rows"]
    assert (among.severity, across.severity) == ("risky", "serious")
    assert "10 % of the test rows are in a training group too" in across.detail


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
    assert "leaks-group" not in found("leaks_group", case_of(columns))


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
MIXED = [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize(
    ("check", "code", "bad", "good"),
    [
        (
            "groups_alike",
            "alike-groups",
            {"distances": distances(NEAR, beyond_chance=False), "separability": told(GUESSED)},
            {"distances": distances(NEAR), "separability": told(GUESSED)},
        ),
        ("covariate_shift", "covariate-shift", {"separability": told(CLEAR)}, {"separability": told(MIXED)}),
        ("far_tests", "far-test-group", {"distances": distances(FAR)}, {"distances": distances(NEAR)}),
        (
            "far_tests",
            "far-test-group",
            {"distances": distances(FAR)},
            {"distances": distances(FAR, by_chance=np.full((4, 4), 6.0))},
        ),
    ],
)
def test_a_check_of_what_was_measured(check: str, code: str, bad: dict[str, Any], good: dict[str, Any]) -> None:
    case = table(test_groups=("dogwood",)).case()
    assert code in found(check, replace(case, **bad))
    assert code not in found(check, replace(case, **good))


def test_a_graph_may_be_learned_where_distances_are_steady() -> None:
    def step(**given: Any) -> str:
        return found("no_graph", replace(table().case(), distances=distances(NEAR, **given)))["no-graph"].step

    assert step().endswith("--graph learn.")
    assert "40 % of its edges" in step(contrast=0.5, stability=0.4)
    assert "learn" not in step(beyond_chance=False)
