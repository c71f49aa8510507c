"""``toporo fit``, ``predict``, ``evaluate`` and ``explain``: from a table to predictions, by files and pipes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from tests.tables.cases import RIVER, as_csv, floods, only, river
from toporo.tables import compare, fit_table, load_model

Run = Callable[..., Any]
EDGES = "source,target\n" + "".join(f"{a},{b}\n" for a, b in RIVER)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "river.csv").write_text(as_csv(river()))
    (tmp_path / "new.csv").write_text(as_csv(river(3)))
    (tmp_path / "edges.csv").write_text(EDGES)
    return tmp_path


RIVER_FIT = ("fit", "river.csv", "--target", "y", "--group", "station", "--model", "linear", "--out", "model")


@pytest.fixture
def fitted(toporo: Run, files: Path) -> Path:
    done = toporo(*RIVER_FIT, "--graph", "edges.csv", "--test-groups", "mouth")
    assert done.code == 0, done.err
    return files / "model"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# ---------------------------------------------------------------- fit


def test_fit_shows_types_and_groups_and_writes_a_model(toporo: Run, files: Path) -> None:
    done = toporo(*RIVER_FIT, "--graph", "edges.csv", "--test-groups", "mouth")
    assert done.code == 0
    for words in (
        "predicts the number “y”, fitted to 160 rows in 4 groups",
        "40 rows of test groups set aside",
        "The prior (harmonic, 50 % of it uniform)",
        "The penalty is ",
        "model: model",
    ):
        assert words in done.out
    assert re.search(r"bed\s+│ feature\s+│ text", done.out)
    assert load_model("model").groups == ("lower", "middle", "spring", "upper")


def test_fit_is_what_fit_table_does(fitted: Path) -> None:
    again = fit_table("river.csv", target="y", group="station", graph="edges.csv", test_groups=["mouth"], prior="auto")
    assert np.array_equal(load_model(fitted).estimator.coef_, again.estimator.coef_)


def test_fit_as_json_is_json_alone(toporo: Run, files: Path) -> None:
    done = toporo(*RIVER_FIT, "--graph", "edges.csv", "--test-groups", "mouth", "--json")
    content = json.loads(done.out, parse_constant=pytest.fail)
    assert content["task"] == "regression"
    assert content["test_groups"] == ["mouth"]
    assert {row["group"] for row in content["groups"]} == {"spring", "upper", "middle", "lower"}
    assert content["penalty"] is not None
    assert "of the test groups it used their place in the graph" in " ".join(content["summary"])


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_fit_and_predict_read_arrow_files(toporo: Run, files: Path, suffix: str) -> None:
    table = pa.table(river())
    write = pyarrow.parquet.write_table if suffix == "parquet" else pyarrow.feather.write_feather
    write(table, f"river.{suffix}")
    assert toporo("fit", f"river.{suffix}", *RIVER_FIT[2:], "--set", "penalty=1").code == 0
    from_arrow = toporo("predict", "model", f"river.{suffix}")
    from_csv = toporo("predict", "model", "river.csv")
    assert from_arrow.code == from_csv.code == 0
    assert from_arrow.out == from_csv.out


#: Every command that reads a table, with the files it would write.
READERS = {
    "fit": (("fit", "{table}", *RIVER_FIT[2:-1], "again", "--set", "penalty=1", "--json"), "again"),
    "predict": (("predict", "model", "{table}"), None),
    "predict --out": (("predict", "model", "{table}", "--out", "p.csv"), "p.csv"),
    "evaluate": (("evaluate", "model", "{table}", "--set", "resamples=20", "--json"), None),
    "report": (("report", "model", "{table}", "--set", "resamples=20", "--out", "page.html"), "page.html"),
    "doctor": (("doctor", "{table}", "--group", "station", "--target", "y", "--json"), None),
    "topology": (
        ("topology", "{table}", "--group", "station", "--target", "y", "--set", "resamples=0", "--json"),
        None,
    ),
}


@pytest.mark.parametrize("command", READERS)
def test_every_command_reads_a_packed_table(toporo: Run, fitted: Path, command: str) -> None:
    Path("new.csv.gz").write_bytes(gzip.compress(Path("new.csv").read_bytes()))
    arguments, written = READERS[command]
    outputs = []
    for table in ("new.csv", "new.csv.gz"):
        done = toporo(*(word.format(table=table) for word in arguments))
        assert done.code == 0, done.err
        content = done.out
        if written is not None:
            target = Path(written)
            content += (target / "model.json" if target.is_dir() else target).read_text()
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        outputs.append(re.sub(r'new\.csv(\.gz)?|"(weights.safetensors|checksum)": "\w+"', "", content))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("command", READERS)
def test_a_damaged_packed_table_is_one_message_and_nothing_is_written(toporo: Run, fitted: Path, command: str) -> None:
    arguments, written = READERS[command]
    packed = gzip.compress(Path("new.csv").read_bytes())
    for content, message in (
        (packed[:-20], "bad.csv.gz is damaged or cut short: it ends too soon"),
        (Path("new.csv").read_bytes(), "bad.csv.gz is not packed with gzip, though its name ends in .gz"),
    ):
        Path("bad.csv.gz").write_bytes(content)
        done = toporo(*(word.format(table="bad.csv.gz") for word in arguments))
        assert done.code == 1
        assert message in done.err
        assert done.out == ""
        assert written is None or not Path(written).exists()


def test_fit_classifies(toporo: Run, files: Path) -> None:
    (files / "floods.csv").write_text(as_csv(floods()))
    done = toporo(
        "fit",
        "floods.csv",
        "--target",
        "flood",
        "--group",
        "station",
        "--out",
        "m",
        "--graph",
        "learn",
        "--model",
        "linear",
    )
    assert done.code == 0, done.err
    assert "predicts one of 2 classes of “flood”" in done.out
    found = rows(toporo("predict", "m", "floods.csv").out)
    assert list(found[0]) == ["station", "prediction", "probability of no", "probability of yes"]
    assert all(row["prediction"] == ("yes" if float(row["probability of yes"]) > 0.5 else "no") for row in found)


def test_an_existing_model_is_kept_unless_told_before_any_work(toporo: Run, fitted: Path) -> None:
    before = (fitted / "model.json").read_bytes()
    done = toporo(*RIVER_FIT[:1], "no-such-file.csv", *RIVER_FIT[2:])
    assert done.code == 1
    assert "already" in done.err, "the folder is looked at before the table"
    assert (fitted / "model.json").read_bytes() == before
    assert toporo(*RIVER_FIT, "--set", "penalty=3", "--overwrite").code == 0
    assert (fitted / "model.json").read_bytes() != before


# ---------------------------------------------------------------- predict


def test_predict_writes_a_line_a_row(toporo: Run, fitted: Path) -> None:
    done = toporo("predict", "model", "new.csv")
    found = rows(done.out)
    assert list(found[0]) == ["station", "prediction"]
    assert np.array_equal([float(row["prediction"]) for row in found], load_model(fitted).predict("new.csv"))
    assert "200 rows predicted" in done.err
    assert "missing values filled in: 'depth' 12" in done.err


def test_predict_reads_a_pipe_and_keeps_columns(toporo: Run, fitted: Path) -> None:
    text = as_csv({"id": [f"n{i}" for i in range(200)], **river(3)})
    found = rows(toporo("predict", "model", "-", "--keep", "id,bed", stdin=text).out)
    assert list(found[0]) == ["id", "bed", "prediction"]
    assert [row["id"] for row in found] == [f"n{i}" for i in range(200)]


def test_predict_says_what_it_had_not_seen(toporo: Run, fitted: Path) -> None:
    table = river(3)
    table["bed"][0], table["bed"][5], table["x"][2] = "ice", "ice", 1e6
    done = toporo("predict", "model", "-", stdin=as_csv(table))
    assert done.code == 0
    assert "levels of 'bed' not seen in training: 'ice' 2" in done.err
    assert re.search(r"outside the range seen in training: .*'x' \d", done.err)


def test_predict_as_json_lines(toporo: Run, fitted: Path) -> None:
    done = toporo("predict", "model", "new.csv", "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert len(found) == 200
    assert found[0]["station"] == "spring"
    assert [row["prediction"] for row in found] == load_model(fitted).predict("new.csv").tolist()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather"])
def test_predict_writes_files_whole_or_not_at_all(toporo: Run, fitted: Path, files: Path, suffix: str) -> None:
    assert toporo("predict", "model", "new.csv", "--out", f"p.{suffix}").code == 0
    content = {
        "csv": lambda: [float(row["prediction"]) for row in rows(Path("p.csv").read_text())],
        "parquet": lambda: pyarrow.parquet.read_table("p.parquet")["prediction"].to_pylist(),
        "feather": lambda: pyarrow.feather.read_table("p.feather")["prediction"].to_pylist(),
    }[suffix]()
    assert content == load_model(fitted).predict("new.csv").tolist()
    before = Path(f"p.{suffix}").read_bytes()
    text = as_csv(river(3)).splitlines()
    text[150] = text[150].replace(text[150].split(",")[1], "far", 1)
    (files / "broken.csv").write_text("\n".join(text))
    done = toporo("predict", "model", "broken.csv", "--out", f"p.{suffix}")
    assert done.code == 1
    assert "'far' is not a number" in done.err
    assert Path(f"p.{suffix}").read_bytes() == before
    assert not list(files.glob(".p.*")), "nothing temporary is left"


def test_predict_ends_quietly_when_its_reader_has_enough(fitted: Path, files: Path) -> None:
    (files / "long.csv").write_text(as_csv(river(3, rows=20_000)))
    command = f"'{sys.executable}' -m toporo predict model long.csv | head -2"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=files, check=False)
    assert done.stdout.startswith('"station","prediction"\n')
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------- evaluate, explain


def test_evaluate_shows_the_worst_group_first_and_hops(toporo: Run, fitted: Path) -> None:
    done = toporo("evaluate", "model", "new.csv", "--set", "resamples=100", "--out", "scores.csv")
    assert done.code == 0, done.err
    assert done.out.index("mean over 1 group not trained on") < done.out.index("mean over 5 groups ")
    for words in ("all rows together", "worst first by rmse", "least covered", "95 % intervals", "Hops are edges"):
        assert words in done.out
    found = rows(Path("scores.csv").read_text())
    errors = [float(row["rmse"]) for row in found]
    assert errors == sorted(errors, reverse=True)
    assert {row["group"]: row["hops"] for row in found}["mouth"] == "1"


def test_evaluate_compares_errors_inside_and_outside(toporo: Run, fitted: Path) -> None:
    table = river(3)
    table["x"] = [30.0 if row % 10 == 0 else x / 2 for row, x in enumerate(table["x"])]
    table["depth"] = [0.1] * len(table["x"])
    Path("far.csv").write_text(as_csv(table))
    done = toporo("evaluate", "model", "far.csv", "--set", "resamples=20", "--out", "scores.csv")
    assert "rows outside " in done.out
    assert "rows inside " in done.out
    assert "Rows outside are farther from those trained on than validation has been; they are in 5 groups." in done.out
    assert {row["outside"] for row in rows(Path("scores.csv").read_text())} == {"0.1"}
    content = json.loads(toporo("evaluate", "model", "far.csv", "--set", "resamples=20", "--json").out)
    assert {where: score["rows"] for where, score in content["by_reach"].items()} == {"inside": 180, "outside": 20}
    assert (
        content["by_reach"]["outside"]["metrics"]["rmse"]["value"]
        > content["by_reach"]["inside"]["metrics"]["rmse"]["value"]
    )


def test_evaluate_looks_at_unseen_groups_alone_when_asked(toporo: Run, fitted: Path) -> None:
    content = json.loads(toporo("evaluate", "model", "new.csv", "--unseen", "--json").out)
    assert [score["group"] for score in content["groups"]] == ["mouth"]
    (fitted.parent / "seen.csv").write_text(as_csv(only(river(3), station=["upper", "lower"])))
    done = toporo("evaluate", "model", "seen.csv", "--unseen")
    assert done.code == 1
    assert "in groups that it was not trained on" in done.err


def test_evaluate_compares_with_a_control(toporo: Run, fitted: Path) -> None:
    assert toporo(*RIVER_FIT[:-1], "control", "--set", "method=erm", "--test-groups", "mouth").code == 0
    done = toporo("evaluate", "model", "new.csv", "--against", "control")
    assert done.code == 0, done.err
    mine, control = load_model("model").evaluate("new.csv"), load_model("control").evaluate("new.csv")
    errors = [{score.group: score.metrics["rmse"].value for score in e.groups} for e in (mine, control)]
    better = int(errors[0]["mouth"] < errors[1]["mouth"])  # the group that was not trained on
    assert f"mean over groups not trained on; it is better in {better} of 1 group." in done.out
    assert compare(mine, control).words("model", "control") in done.out
    content = json.loads(toporo("evaluate", "model", "new.csv", "--against", "control", "--json").out)
    assert content == mine.to_dict() | {"against": control.to_dict(), "gain": compare(mine, control).to_dict()}
    assert toporo("evaluate", "model", "-", "--against", "control").code == 2
    (fitted.parent / "far.csv").write_text(as_csv(river(3) | {"y": [-9.0 * x for x in river(3)["x"]]}))
    done = toporo("evaluate", "model", "far.csv", "--against", "control")
    assert done.out.startswith("model loses to a constant, the mean of the training target: it is worse by ")
    assert done.out.splitlines()[1].startswith("control loses to a constant")
    assert toporo(*RIVER_FIT[:3], "x", *RIVER_FIT[4:-1], "other").code == 0
    done = toporo("evaluate", "model", "new.csv", "--against", "other")
    assert done.code == 1
    assert "found model: regression of 'y' by 'station'; other: regression of 'x' by 'station'" in done.err


def test_a_control_that_knows_other_groups_is_named_with_what_to_do(toporo: Run, fitted: Path) -> None:
    assert toporo(*RIVER_FIT[:-1], "knows", "--test-groups", "lower").code == 0
    assert toporo(*RIVER_FIT[:-1], "all").code == 0
    asked = ("model", "new.csv", "--unseen", "--against")
    done = toporo("evaluate", *asked, "knows")
    assert (done.code, done.out) == (1, ""), "before anything is printed"
    assert "Judge both on all groups (without --unseen), fit both with the same test groups, or" in done.err
    done = toporo("evaluate", *asked, "all")
    assert (done.code, done.out) == (1, "")
    assert "toporo: all: no row of the table is in groups that it was not trained on" in done.err


def test_explain_prints_draws_and_writes(toporo: Run, fitted: Path) -> None:
    done = toporo("explain", "model", "--out", "groups.csv", "--out", "groups.png")
    assert done.code == 0, done.err
    table = load_model(fitted).explain()
    assert done.out.startswith(str(table))
    assert [row["group"] for row in rows(Path("groups.csv").read_text())] == [row.group for row in table]
    assert Path("groups.png").read_bytes().startswith(b"\x89PNG")
    assert "By how much 'y' changes if an input grows by one standard deviation or by 1" in done.out
    assert json.loads(toporo("explain", "model", "--json").out) == {**table.about, "groups": table.to_dict()}
    assert toporo("explain", "model", "--verbose").out.startswith(f"{table.lines()}\n{table.below(None)}")


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("fit", "river.csv", "--group", "station", "--out", "m"), 2, "--target"),
        ((*RIVER_FIT, "--set", "penalty=much"), 2, "expected auto or a number of at least 0"),
        ((*RIVER_FIT, "--task", "guess"), 2, "guess"),
        ((*RIVER_FIT, "--delimiter", "::"), 2, "not a single character"),
        ((*RIVER_FIT, "--test-groups", "a,,b"), 2, "empty name"),
        (("fit", "no.csv", *RIVER_FIT[2:]), 1, "no such file"),
        ((*RIVER_FIT, "--graph", "no.csv"), 1, "no.csv"),
        (("fit", "edges.csv", *RIVER_FIT[2:]), 1, "unknown column 'y'"),
        (("predict", "nowhere", "river.csv"), 1, "not a model folder"),
        (("evaluate", "nowhere", "river.csv"), 1, "not a model folder"),
        (("explain", "nowhere"), 1, "not a model folder"),
        (("predict", "nowhere", "river.csv", "--out", "p.xlsx"), 1, "expected a name that ends in .csv"),
        (("predict", "nowhere", "river.csv", "--out", "no/p.csv"), 1, "there is no folder no"),
        (("explain", "nowhere", "--out", "p.gif"), 1, "expected a name that ends in .csv, .png"),
    ],
)
def test_mistakes_are_messages(toporo: Run, files: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = toporo(*arguments)
    assert done.code == code
    plain = re.sub(r"[│╭╮╰╯─\s]+", " ", done.err)
    assert words in plain
    assert not (files / "model").exists()
    assert done.out == ""
