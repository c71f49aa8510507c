"""``toporo topology``: a table in, edges out; what is wrong is a message before the work and nothing is written."""

from __future__ import annotations

import csv
import json
import os
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
from toporo.topology import CUTS, GroupGraph, diffusion_emd

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
    assert re.search(r"│ alpha +│ charlie +│ +\d\.\d{4} │ +100 % │", done.out)
    assert "From 160 points in 2 features (standardised): dense kernel, 15 neighbours, 10 scales" in done.out
    assert "3 resamples" in done.out
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
        files = [f"{name}.json", f"{name}.csv", f"{name}.svg"]
        done = run("t.csv", "--group", "site", *QUICK, *(word for file in files for word in ("--out", file)))
        assert done.code == 0, done.err
        for file in files:
            assert file in done.out
        return done.out.replace(name, "NAME"), [Path(file).read_bytes() for file in files]

    first, second = once("first"), once("second")
    assert first == second
    graph = GroupGraph.from_json("first.json")
    assert set(graph.names) == set(CHAIN)
    picture = first[1][2].decode()
    assert picture.count("<svg") == 1
    assert "in all resamples" in picture


@pytest.mark.parametrize(("suffix", "head"), [("png", b"\x89PNG"), ("PDF", b"%PDF")])
def test_other_kinds_of_pictures(run: Run, table: str, suffix: str, head: bytes) -> None:
    done = run("t.csv", "--group", "site", "--set", "resamples=0", "--out", f"p.{suffix}")
    assert done.code == 0, done.err
    assert Path(f"p.{suffix}").read_bytes().startswith(head)
    assert "stability" not in done.out
    assert "Stability was not measured: --set resamples=20 does that." in done.out


def test_distances_are_a_matrix_with_names(run: Run, table: str) -> None:
    run(
        "t.csv",
        "--group",
        "site",
        "--exclude",
        "id",
        "--set",
        "scale=false",
        "--set",
        "resamples=0",
        "--out",
        "d.csv",
        "--json",
    )
    with Path("d.csv").open(newline="") as stream:
        head, *body = csv.reader(stream)
    assert head == ["group", *sorted(CHAIN)]
    assert [row[0] for row in body] == sorted(CHAIN)
    expected = diffusion_emd(*rows())
    np.testing.assert_array_equal(np.array([row[1:] for row in body], dtype=float), expected.matrix)


def test_with_json_only_json_is_on_standard_output(run: Run, table: str) -> None:
    done = run("t.csv", "--group", "site", *QUICK, "--json", "--out", "g.json")
    assert json.loads(done.out) == json.loads(Path("g.json").read_text())
    assert "g.json" in done.err


def test_two_groups_give_json_that_every_reader_takes(run: Run) -> None:
    """Their contrast is infinite, which JSON cannot say."""
    lines = [f"{i % 7 + i / 31},{'ab'[i % 2]}" for i in range(30)]
    done = run("-", "--group", "g", *QUICK, "--json", stdin="x,g\n" + "\n".join(lines))
    assert done.code == 0, done.err

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(done.out, parse_constant=refuse)["origin"]["details"]["contrast"] is None


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


@pytest.mark.parametrize(
    ("options", "details"),
    [
        (("--set", "kernel=knn", "--set", "neighbors=5"), {"kernel": "knn", "neighbors": 5}),
        (
            ("--set", "sigma=0.7", "--set", "scales=4", "--set", "alpha=0.25"),
            {"sigma_value": 0.7, "scales": 4, "alpha": 0.25},
        ),
        (("--set", "sigma=median"), {"sigma": "median"}),
        (("--cut", "percentile", "--set", "percentile=90"), {"cut": "percentile", "percentile": 90.0}),
        (("--cut", "knn"), {"cut": "knn", "nearest_groups": 1}),
        (("--set", "device=cpu"), {"device": "cpu"}),
    ],
)
def test_settings_arrive(run: Run, table: str, options: tuple[object, ...], details: dict[str, object]) -> None:
    done = run("t.csv", "--group", "site", "--exclude", "id", "--set", "resamples=0", "--json", *options)
    assert done.code == 0, done.err
    found = GroupGraph.from_json(done.out).origin.details
    assert {key: found[key] for key in details} == details


def test_the_seed_arrives(run: Run, table: str) -> None:
    def contrast(seed: int) -> float:
        done = run("t.csv", "--group", "site", "--exclude", "id", *QUICK, "--json", "--set", f"seed={seed}")
        return float(GroupGraph.from_json(done.out).origin.details["contrast"])

    assert contrast(1) == contrast(1) != contrast(2)


def test_the_cuts_offered_are_those_there_are(run: Run, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    done = run("t.csv", "--group", "site", "--cut", "tree")
    assert done.code == 2
    assert f"'tree' is not one of {', '.join(map(repr, CUTS))}." in done.err


def test_parquet_and_feather_give_what_csv_gives(run: Run, table: str) -> None:
    from pyarrow import csv as arrow_csv
    from pyarrow import feather, parquet

    read = arrow_csv.read_csv("t.csv")
    parquet.write_table(read, "t.parquet")
    feather.write_feather(read, "t.feather")
    options = ("--group", "site", "--exclude", "id", "--set", "resamples=0", "--json")
    printed = {suffix: run(f"t.{suffix}", *options) for suffix in ("csv", "parquet", "feather")}
    assert printed["csv"].out
    assert printed["csv"].out == printed["parquet"].out == printed["feather"].out
    assert printed["csv"].err == printed["parquet"].err == printed["feather"].err


def test_a_delimiter_by_name_and_names_with_commas(run: Run, table: str) -> None:
    text = table.replace("id,x,y,", 'id,"x, big",y,').replace(",", "\t").replace("x\t big", "x, big")
    done = run("-", "--group", "site", "--delimiter", "tab", "--features", '"x, big",y', *QUICK, stdin=text)
    assert done.code == 0, done.err
    assert "features: 'x, big', 'y'\n" in done.err
    assert edges(done.out) == LINKS


def test_warnings_are_plain_lines(run: Run) -> None:
    """Two clouds far apart: the data graph falls into pieces; a percentile cut leaves groups alone."""
    rng = np.random.default_rng(0)
    points = [
        (x + far, name)
        for far, names in ((0, "ab"), (1e3, "cd"))
        for name in names
        for x in rng.normal(size=12).tolist()
    ]
    text = "x,g\n" + "".join(f"{x!r},{name}\n" for x, name in points)
    options = (
        "--set",
        "kernel=knn",
        "--set",
        "neighbors=3",
        "--cut",
        "percentile",
        "--set",
        "percentile=40",
        "--set",
        "resamples=0",
    )
    done = run("-", "--group", "g", *options, "--out", "d.csv", stdin=text)
    assert done.code == 0, done.err
    warned = [line for line in done.err.splitlines() if "warning" in line]
    assert all(line.startswith("toporo: warning: ") for line in warned)
    assert [line for line in warned if "the data graph falls into" in line]
    assert len(set(warned)) == len(warned) >= 2
    assert ".py" not in done.err
    assert "connected pieces" in done.out


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


def test_names_that_look_like_markup_are_printed_as_they_are(run: Run, table: str) -> None:
    done = run("-", "--group", "site", "--features", "x,y", *QUICK, stdin=table.replace("alpha", "[red]alpha[/]"))
    assert done.code == 0, done.err
    assert "[red]alpha[/]" in done.out


def test_rows_without_a_group_can_be_dropped_and_gaps_are_filled_in(run: Run, table: str) -> None:
    lines = table.splitlines()
    lines[1:1] = ["0,,1,alpha,blue", "0,1,1,,blue", "0,NaN,1,alpha,blue"]
    text = "\n".join(lines)
    done = run("-", "--group", "site", "--exclude", "id", *QUICK, stdin=text)
    assert done.code == 1
    assert "standard input: 1 of 163 rows lack 'site' (first: row 2)" in done.err
    done = run("-", "--group", "site", "--exclude", "id", "--drop-rows", *QUICK, stdin=text)
    assert done.code == 0, done.err
    assert "toporo: dropped 1 of 163 rows that lack a group" in done.err
    assert "toporo: features: 'x', 'x is missing', 'y'" in done.err
    assert "toporo: missing values filled in: 'x' 2" in done.err
    assert "From 162 points in 3 features (standardised)" in done.out
    done = run("-", "--group", "site", "--drop-rows", "--test-groups", "echo", stdin=text)
    assert done.code == 1
    assert "unknown test group 'echo'" in done.err


def test_text_counts_as_categories(run: Run) -> None:
    """Groups that differ in a column of text alone: those that share words are neighbours."""
    words = {name: [CHAIN[place], CHAIN[min(place + 1, 3)]] for place, name in enumerate(CHAIN)}
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal()!r},{words[name][i % 2]},{name}" for name in CHAIN for i in range(30)]
    done = run("-", "--group", "site", *QUICK, stdin="x,word,site\n" + "\n".join(lines).replace("np.float64", ""))
    assert done.code == 0, done.err
    assert "'word = alpha', 'word = bravo', 'word = charlie', 'word = delta'" in done.err
    assert edges(done.out) == LINKS


def test_test_groups_come_from_a_file_too(run: Run, table: str) -> None:
    Path("test.txt").write_text("bravo\nalpha\n")
    options = ("t.csv", "--group", "site", "--exclude", "id", "--set", "resamples=0", "--test-groups")
    from_file, typed = run(*options, "@test.txt"), run(*options, "bravo,alpha")
    assert from_file.code == 0, from_file.err
    assert from_file.out == typed.out
    done = run(*options, "@absent.txt")
    assert done.code == 1
    assert "cannot read absent.txt" in done.err


# ---------------------------------------------------------------------- what it refuses

ONE_GROUP = "x,g\n" + "".join(f"{i},a\n" for i in range(30))
FEW = "x,g\n1,a\n2,b\n3,a\n4,b\n"


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (None, ("absent.csv", "--group", "g"), "toporo: no such file: absent.csv"),
        (None, (".", "--group", "g"), "toporo: . holds no table"),
        (None, ("absent.parquet", "--group", "g"), "toporo: no such file: absent.parquet"),
        ("PK\3\4", ("--group", "g"), "standard input is a workbook, an archive or text in UTF-16"),
        ("", ("--group", "g"), "standard input cannot be read as CSV (Empty CSV file)"),
        ("x,g\n", ("--group", "g"), "has a header but no rows"),
        ("x,g\n1,a\n2\n", ("--group", "g"), "Row #3: Expected 2 columns, got 1: 2"),
        ("x,x,g\n1,2,a\n", ("--group", "g"), "several columns named 'x'"),
        (FEW, ("--group", "h"), "unknown column 'h'. Valid names: g, x."),
        ("x,state\n1,a\n", ("--group", "stat"), "unknown column 'stat'. Did you mean 'state'?"),
        (FEW, ("--group", "g", "--features", "z"), "unknown column 'z'"),
        ("x,g\nq,a\n", ("--group", "g"), "no column to use as a feature: 'x' (constant)"),
        ("x,g\n1,a\ninf,b\n", ("--group", "g"), "1 infinite value(s) (first: row 2, column 'x')"),
        ("x,g\n1,a\n2,\n", ("--group", "g"), "1 of 2 rows lack 'g' (first: row 2)"),
        ("x,g\n1,a\n1,b\n", ("--group", "g"), "no column to use as a feature: 'x' (constant)"),
        (ONE_GROUP, ("--group", "g"), "only one group, 'a'"),
        (FEW, ("--group", "g"), "4 distinct points cannot have 15 neighbours each"),
        (FEW, ("--group", "g", "--test-groups", "q"), "unknown test group 'q'. Valid names: a, b."),
        (FEW, ("--group", "g", "--test-groups", "a,b"), "every group is a test group"),
        (FEW, ("--group", "g", "--set", "device=abacus"), "unknown device 'abacus'"),
        (None, ("x.csv", "--group", "g", "--out", "p.gif"), "--out p.gif: expected a name that ends in .json, .csv, "),
        (None, ("x.csv", "--group", "g", "--out", "no/g.json"), "--out no/g.json: there is no folder no"),
        (None, ("x.csv", "--group", "g", "--out", "."), "--out .: expected a name that ends in .json, .csv, "),
        (None, ("x.csv", "--group", "g", "--out", "./x.csv"), "--out x.csv is the table itself"),
        (None, ("x.csv", "--group", "g", "-o", "o.csv", "-o", "p.csv"), "the distances goes to o.csv already"),
    ],
)  # fmt: skip
def test_a_users_mistake_is_one_message_and_nothing_is_written(
    run: Run, text: str | None, arguments: tuple[str, ...], message: str
) -> None:
    """Those about outputs name a table that is not there: they come before it is even opened."""
    outputs = ("--out", "g.json", "--out", "d.csv") if text is not None else ()
    source = ("-",) if text is not None else ()
    done = run(*source, *arguments, *outputs, stdin=text or "")
    assert done.code == 1
    assert message in done.err
    assert done.out == ""
    assert list(Path().iterdir()) == []


def test_a_table_that_is_not_utf8(run: Run) -> None:
    Path("t.csv").write_bytes(b"x,g\n1,\xe9\n")
    done = run("t.csv", "--group", "g")
    assert done.code == 1
    assert "toporo: t.csv cannot be read as CSV" in done.err
    assert "Expected whole text in UTF-8" in done.err


def test_a_folder_that_may_not_be_written(run: Run, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    done = run("t.csv", "--group", "site", "--out", "g.json")
    assert done.code == 1
    assert "the folder . may not be written to" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("t.csv",),
        ("t.csv", "--group", "site", "--cut", "scissors"),
        ("t.csv", "--group", "site", "--set", "kernel=maize"),
        ("t.csv", "--group", "site", "--memory-limit", "much"),
        ("t.csv", "--group", "site", "--set", "sigma=-1"),
        ("t.csv", "--group", "site", "--set", "sigma=nan"),
        ("t.csv", "--group", "site", "--set", "percentile=0"),
        ("t.csv", "--group", "site", "--set", "resamples=1"),
        ("t.csv", "--group", "site", "--set", "seed=-1"),
        ("t.csv", "--group", "site", "--delimiter", "::"),
        ("t.csv", "--group", "site", "--features", "x,,y"),
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, table: str, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert "toporo topology --help" in done.err
    assert done.out == ""


def test_an_interrupt_leaves_nothing(run: Run, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("toporo.cli.topology.learn_topology", interrupted)
    done = run("t.csv", "--group", "site", "--out", "g.json")
    assert done.code == 130
    assert "interrupted; nothing was written" in done.err
    assert list(Path().iterdir()) == [Path("t.csv")]


def test_the_help_page_names_every_option(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    page = run("--help").out
    for option in (
        "--group", "--features", "--exclude", "--test-groups", "--delimiter", "--drop-rows", "--cut", "--set",
        "scale (true)", "percentile (80.0)", "resamples", "seed (0)", "kernel (auto)",
        "neighbors (15)",
        "sigma (knn)", "scales (10)", "alpha (0.5)", "device (auto)", "--memory-limit", "--out", "--json",
    ):  # fmt: skip
        assert option in page
    assert "Example: toporo topology sales.csv" in page


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
