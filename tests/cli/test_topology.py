"""``toporo topology``: a table in, edges out; what is wrong is a message before the work and nothing is written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Done
from toporo.topology import GroupGraph

#: Along a line, in an order that no sorting gives.
CHAIN = ["delta", "alpha", "charlie", "bravo"]
LINKS = {frozenset(pair) for pair in pairwise(CHAIN)}
QUICK = ("--set", "resamples=3")


Run = Callable[..., Done]


@pytest.fixture
def run(toporo: Run) -> Run:
    """What ``toporo topology …`` does, without the start."""
    return partial(toporo, "topology")


def rows(size: int = 40, unit: float = 1.0) -> tuple[np.ndarray, list[str]]:
    """Points of the chain's groups, next ones touching; the second feature in another unit."""
    labels = np.repeat(np.arange(len(CHAIN)), size)
    points = np.random.default_rng(0).normal(size=(len(labels), 2)) * 0.35 + np.outer(labels, [1.5, 1.0])
    return points * [1.0, unit], [CHAIN[label] for label in labels]


def write(path: Path, size: int = 40, unit: float = 1.0) -> str:
    points, groups = rows(size, unit)
    lines = [f"{i},{x!r},{y!r},{g},blue" for i, ((x, y), g) in enumerate(zip(points.tolist(), groups, strict=True))]
    path.write_text(text := "\n".join(["id,x,y,site,colour", *lines]) + "\n")
    return text


@pytest.fixture
def table(tmp_path: Path) -> str:
    return write(tmp_path / "t.csv")


def edges(text: str) -> set[frozenset[str]]:
    """The pairs of groups in a printed table."""
    pairs = re.findall(r"^│ (\S+)(?: \(test\))? +│ (\S+)(?: \(test\))? +│", text, flags=re.MULTILINE)
    assert pairs
    return {frozenset(pair) for pair in pairs}


# ---------------------------------------------------------------------- what it gives


def test_a_chain_of_groups_gives_the_chain_as_edges(run: Run, table: str) -> None:
    done = run("t.csv", "--group", "site", "--exclude", "id", *QUICK)
    assert done.code == 0, done.err
    assert edges(done.out) == LINKS
    assert "4 groups, 3 edges, in 1 connected piece" in done.out
    assert re.search(r"│ alpha +│ charlie +│ +\d\.\d+ │ +100 % │", done.out)
    assert "From 160 points in 2 features (standardised): dense kernel, 10 scales" in done.out
    assert "Stability: the share of 3 resamples" in done.out
    assert "scipy on cpu" in done.out
    assert "test" not in done.out
    assert done.err.splitlines() == [
        "toporo: features: 'x', 'y'",
        "toporo: left out: 'id' (excluded), 'colour' (constant)",
    ]
    assert list(Path().iterdir()) == [Path("t.csv")]


def test_a_real_process_reads_standard_input_and_prints_json(toporo: Run, table: str) -> None:
    words = ["topology", "-", "--group", "site", "--features", "x,y", "--json", *QUICK]
    wrong = toporo(*words, stdin=table.replace(",", ";"))
    assert wrong.code == 1
    assert wrong.err.startswith("toporo: standard input has a single column, 'id;x;y;site;colour'")
    assert wrong.out == ""
    command = [sys.executable, "-m", "toporo", *words]
    done = subprocess.run(command, input=table, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    graph = GroupGraph.from_json(done.stdout)
    assert {frozenset(pair) for pair in graph.edges} == LINKS
    assert graph.stability is not None
    details = graph.origin.details
    assert (details["features"], details["standardised"], details["resamples"]) == (["x", "y"], True, 3)
    assert graph.origin.saw_test_inputs is False


def test_all_files_are_written_and_the_same_at_every_run(run: Run, table: str) -> None:
    def once(name: str) -> tuple[str, list[bytes]]:
        files = [f"{name}.json", f"{name}.svg"]
        done = run("t.csv", "--group", "site", *QUICK, *(word for file in files for word in ("--out", file)))
        assert done.code == 0, done.err
        for file in files:
            assert file in done.out
        return done.out.replace(name, "NAME"), [Path(file).read_bytes() for file in files]

    first, second = once("first"), once("second")
    assert first == second
    graph = GroupGraph.from_json("first.json")
    assert set(graph.names) == set(CHAIN)
    picture = first[1][1].decode()
    assert picture.count("<svg") == 1
    assert "in all resamples" in picture


def test_with_json_only_json_is_on_standard_output(run: Run, table: str) -> None:
    done = run("t.csv", "--group", "site", *QUICK, "--json", "--out", "g.json")
    assert json.loads(done.out) == json.loads(Path("g.json").read_text())
    assert "g.json" in done.err


def test_test_groups_are_spanned_and_on_record(run: Run, table: str) -> None:
    done = run("t.csv", "--group", "site", "--exclude", "id", "--test-groups", "bravo, alpha", *QUICK, "--out", "p.svg")
    assert done.code == 0, done.err
    assert edges(done.out) == LINKS
    assert "bravo (test)" in done.out
    assert "charlie (test)" not in done.out
    assert "Inputs of the test groups were seen: 'bravo', 'alpha'." in done.out
    with_test = run("t.csv", "--group", "site", "--test-groups", "bravo", "--json", "--set", "resamples=0").out
    assert GroupGraph.from_json(with_test).origin.saw_test_inputs is True


def test_units_do_not_matter_unless_told_so(run: Run, tmp_path: Path) -> None:
    def lengths(unit: float, *more: str) -> dict[object, float]:
        write(tmp_path / "u.csv", unit=unit)
        done = run("u.csv", "--group", "site", "--exclude", "id", "--set", "resamples=0", "--json", *more)
        return dict(GroupGraph.from_json(done.out).edges)

    plain, metres = lengths(1.0), lengths(1000.0)
    assert set(plain) == set(metres)
    assert metres == pytest.approx(plain, rel=1e-6)
    assert lengths(1000.0, "--set", "scale=false") != pytest.approx(plain, rel=1e-2)


def test_a_delimiter_by_name_and_names_with_commas(run: Run, table: str) -> None:
    text = table.replace("id,x,y,", 'id,"x, big",y,').replace(",", "\t").replace("x\t big", "x, big")
    done = run("-", "--group", "site", "--delimiter", "tab", "--features", '"x, big",y', *QUICK, stdin=text)
    assert done.code == 0, done.err
    assert "features: 'x, big', 'y'\n" in done.err
    assert edges(done.out) == LINKS


def test_groups_without_an_edge_are_named(run: Run, table: str) -> None:
    """At the 40th percentile of 16 entries, 4 of them the diagonal, a single pair is left."""
    done = run(
        "t.csv",
        "--group",
        "site",
        "--cut",
        "percentile",
        "--set",
        "percentile=40",
        "--set",
        "resamples=0",
        "--features",
        "x",
    )
    ((a, b),) = [tuple(pair) for pair in edges(done.out)]
    lone = sorted(set(CHAIN) - {a, b})
    assert f"Without an edge: {lone[0]!r}, {lone[1]!r}." in done.out
    assert "in 3 connected pieces" in done.out


def test_rows_without_a_group_can_be_dropped_and_gaps_are_filled_in(run: Run, table: str) -> None:
    lines = table.splitlines()
    lines[1:1] = ["0,,1,alpha,blue", "0,1,1,,blue", "0,NaN,1,alpha,blue"]
    text = "\n".join(lines)
    done = run("-", "--group", "site", "--exclude", "id", *QUICK, stdin=text)
    assert done.code == 1
    assert "standard input: 1 of 163 rows lack 'site' (first: row 2)" in done.err
    done = run("-", "--group", "site", "--exclude", "id", "--drop-rows", *QUICK, stdin=text)
    assert done.code == 0, done.err
    assert "toporo: dropped 1 row without a group" in done.err
    assert "toporo: features: 'x', 'x is missing', 'y'" in done.err
    assert "toporo: 'x': 2 missing value(s), filled with the median, " in done.err
    assert "From 162 points in 3 features (standardised)" in done.out
    done = run("-", "--group", "site", "--drop-rows", "--test-groups", "echo", stdin=text)
    assert done.code == 1
    assert "unknown test group 'echo'" in done.err


# ---------------------------------------------------------------------- what it refuses

ONE_GROUP = "x,g\n" + "".join(f"{i},a\n" for i in range(30))
FEW = "x,g\n1,a\n2,b\n3,a\n4,b\n"


def test_a_target_takes_no_part(run: Run, table: str) -> None:
    named, excluded = (
        run("t.csv", "--group", "site", "--target", "x", *QUICK),
        run("t.csv", "--group", "site", "--exclude", "x", *QUICK),
    )
    assert named.code == 0
    assert named.out == excluded.out != run("t.csv", "--group", "site", *QUICK).out
    done = run("t.csv", "--group", "site", "--target", "x", "--features", "x,y", *QUICK)
    assert done.code == 1
    assert "column 'x' is the target, so it cannot be a feature" in done.err
