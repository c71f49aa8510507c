"""``toporo reproduce`` on images and radar tiles as a user meets it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.commands import no_report
from tests.paper.small_network import SmallNet
from tests.paper.tiny_floods import chip_names, make_chip, write_chip, write_floods
from tests.paper.tiny_images import write_tiny
from toporo.paper import runner
from toporo.paper.domainbed import SPECS
from toporo.vision import NETWORKS, ResNet

Run = Callable[..., Any]
QUICK = ("--set", "device=cpu", "--set", "steps=2", "--seeds", 1, "--set", "per_group=2", "--set", "size=16")
#: A network that every benchmark has.
QUICKEST = {**dict.fromkeys(SPECS, "resnet18"), "sen1floods11": "unet"}
#: Two of each benchmark's domains or events.
PAIRS = {name: spec.domains[:2] for name, spec in SPECS.items()} | {"sen1floods11": ("Bolivia", "India")}
pytestmark = pytest.mark.usefixtures("no_data")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """ResNet-18 in milliseconds."""
    monkeypatch.setitem(NETWORKS, "resnet18", partial(SmallNet))


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest, and once is enough."""
    no_report(monkeypatch)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with all five."""
    root = tmp_path_factory.mktemp("data")
    for spec in SPECS.values():
        write_tiny(root, spec, per_class=5)
    write_floods(root)
    return root


@pytest.fixture(scope="module")
def stored(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a finished table."""
    out = tmp_path_factory.mktemp("stored")
    from toporo.paper.base import VisionChoices

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS, "resnet18", partial(SmallNet))
        deep = VisionChoices(device="cpu", network="resnet18", steps=2, per_group=2, size=16)
        runner.reproduce("pacs", out, seeds=2, methods=["erm", "tro-data"], data=data, vision=deep)
    return out / "results.json"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", list(PAIRS))
def test_every_benchmark_gives_a_table_a_results_file_and_a_report(
    toporo: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    first, second = PAIRS[name]
    arguments = (
        "reproduce", name, "--data", data, *QUICK, "--set", f"network={QUICKEST[name]}", "--methods", "erm,tro-data",
        "--variant", f"{second},{first}",
    )  # fmt: skip
    done = toporo(*arguments)
    assert done.code == 0, done.err
    folder = tmp_path / "runs" / name
    assert "4/4 runs" in done.err
    assert all(word in done.out for word in (first, second, "TRO-data", "2 steps", "average"))
    assert max(len(line) for line in done.out.splitlines() if "report" not in line) <= 132
    assert done.out.rstrip().endswith(f"report: {Path('runs') / name / 'report.html'}")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "TRO-data" in page
    content = json.loads((folder / "results.json").read_text())
    assert {row["variant"] for row in content["rows"]} == {first, second, "average"}
    assert content["about"]["settings"]["rounds"] == 2
    no_report(monkeypatch)
    again = toporo(*arguments, "--json")
    assert " runs (" not in again.err, "JSON comes without progress"
    assert json.loads(again.out) == content["rows"]


@pytest.mark.usefixtures("unwritten")
def test_chips_without_a_usable_pixel_are_said_once_before_the_runs(toporo: Run, tmp_path: Path) -> None:
    bucket = write_floods(tmp_path / "data")
    chip = next(name for name in chip_names() if name.startswith("India"))
    image, label = make_chip(chip)
    write_chip(bucket, chip, np.full_like(image, np.nan), label)
    done = toporo(
        "reproduce", "sen1floods11", "--data", "data", *QUICK, "--set", "network=unet", "--methods", "erm",
        "--variant", "Bolivia,Mekong",
    )  # fmt: skip
    assert done.code == 0, done.err
    line = f"toporo: Left out, without a usable pixel: {chip!r}."
    lines = done.err.splitlines()
    assert lines.count(line) == 1
    assert lines.index(line) < lines.index("sen1floods11: 0/2 runs (starting)")


# ---------------------------------------------------------------------- interrupted


@pytest.mark.usefixtures("small", "unwritten")
def test_an_interrupt_says_that_the_same_command_goes_on(
    toporo: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("reproduce", "terra", "--data", data, *QUICK, "--set", "network=resnet18", "--methods", "erm,tro-data")
    real, calls = runner.do_run, []

    def interrupted(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(runner, "do_run", interrupted)
    done = toporo(*arguments)
    assert done.code == 130
    assert "the same command goes on from here" in done.err
    assert not (tmp_path / "runs/terra/results.json").exists()
    again = toporo(*arguments, "--markdown")
    assert again.code == 0
    assert "3/8 runs (3 found from before)" in again.err
    assert len(calls) == 4 + 5


#: Folders for results: of a command that is killed, and of one that is not.
OUTS = ("killed", "whole")


@pytest.mark.slow
@pytest.mark.usefixtures("unwritten")
def test_after_a_kill_the_same_command_goes_on_and_gives_the_same_rows(toporo: Run, data: Path, tmp_path: Path) -> None:
    arguments = (
        "reproduce", "sen1floods11", "--data", data, *QUICK, "--set", "network=unet", "--methods", "erm,tro-data",
        "--variant", "Bolivia,India", "--markdown", "--out",
    )  # fmt: skip
    command = [sys.executable, "-m", "toporo", *map(str, arguments), "killed"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "1/4 runs" in line:
                running.send_signal(signal.SIGKILL)
                break
        running.stderr.read()
    assert not (tmp_path / "killed/results.json").exists()
    again, whole = (toporo(*arguments, out) for out in OUTS)
    assert "found from before" in again.err
    assert "0/4 runs (starting)" in whole.err
    assert again.out == whole.out
    assert len({json.dumps(json.loads((tmp_path / out / "results.json").read_text())["rows"]) for out in OUTS}) == 1


# ---------------------------------------------------------------------- tables made before


def test_show_prints_a_table_without_running_anything(toporo: Run, stored: Path, tmp_path: Path) -> None:
    done = toporo("reproduce", "pacs", "--show", stored)
    assert done.code == 0, done.err
    assert "PACS art_painting: test accuracy (%), mean ± sd over 2 seeds, 2 steps" in " ".join(done.out.split())
    assert "PACS, all variants" in done.out
    assert "from data files that match no published checksum" in " ".join(done.out.split())
    rows = json.loads(stored.read_text())["rows"]
    assert json.loads(toporo("reproduce", "pacs", "--show", stored, "--json").out) == rows
    markdown = toporo("reproduce", "pacs", "--show", stored, "--markdown").out
    assert "| method | art_painting | paper | cartoon | paper | photo | paper | sketch | paper | average | paper |" in (
        markdown
    )
    assert "| 85.7 |" in markdown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("benchmark", "content", "message"),
    [
        ("vlcs", None, "has results of pacs: expected those of vlcs."),
        ("pacs", "{", "is not a results file of toporo"),
        ("pacs", "5", "is not a results file of toporo"),
        ("pacs", '{"rows": [{"benchmark": "pacs"}]}', "is not a results file of toporo"),
        ("pacs", '{"about": 3, "rows": []}', "expected a mapping, found a whole number"),
        ("pacs", '{"rows": []}', "has no rows: expected those of pacs."),
    ],
)
def test_what_is_no_results_file_of_the_benchmark_is_refused(
    toporo: Run, stored: Path, tmp_path: Path, benchmark: str, content: str | None, message: str
) -> None:
    path = stored
    if content is not None:
        path = tmp_path / "results.json"
        path.write_text(content)
    done = toporo("reproduce", benchmark, "--show", path)
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert len(done.err.splitlines()) == 1


# ---------------------------------------------------------------------- mistakes


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "eighteen.safetensors"
    save_file(ResNet(3, depth=18).state_dict(), path)
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pacs", "--set", "device=cuda"), "no GPU: "),
        (("pacs", "--set", "device=tpu"), "unknown device 'tpu'"),
        (("pacs", "--set", "network=resnet34"), "unknown network for pacs 'resnet34'"),
        (
            ("sen1floods11", "--set", "network=resnet50"),
            "network for sen1floods11 'resnet50'. Valid names: fcn18, fcn50",
        ),
        (("sen1floods11", "--set", "weights=WEIGHTS"), "a network fcn50 begins at random; leave them out."),
        (
            ("pacs", "--set", "network=resnet50", "--set", "weights=WEIGHTS"),
            "eighteen.safetensors does not fit a ResNet-50",
        ),
        (("pacs", "--set", "weights=absent.safetensors"), "weights from absent.safetensors: "),
        (("pacs", "--variant", "skech"), "unknown variant of pacs 'skech'. Did you mean 'sketch'?"),
        (("sen1floods11", "--variant", "Bolvia"), "unknown variant of sen1floods11 'Bolvia'. Did you mean 'Bolivia'?"),
        (("pacs", "--methods", "erm,tro"), "unknown method 'tro'"),
        (("pacs", "--source", "generated"), "cannot be generated"),
        (("pacs", "--data", "EMPTY"), "pacs: no PACS in"),
        (("sen1floods11", "--set", "network=unet", "--set", "size=24"), "a size of tiles that divides both, found 24"),
        (("dg15", "--set", "device=cpu"), "are for benchmarks on images; dg15 is none."),
        (("dg15", "--set", "weights=WEIGHTS"), "are for benchmarks on images; dg15 is none."),
    ],
)
def test_a_users_mistake_is_one_line_exit_code_1_and_leaves_nothing(
    toporo: Run, data: Path, weights: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory,
    arguments: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    if "device=cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    places = {"EMPTY": tmp_path_factory.mktemp("empty")}
    given = [places.get(word, word.replace("WEIGHTS", str(weights))) for word in arguments]
    chosen = [] if "--data" in given or given[0] in ("dg15", "tpt48") else ["--data", data]
    done = toporo("reproduce", *given, *chosen)
    assert (done.code, done.out) == (1, ""), done.err
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- the published data
