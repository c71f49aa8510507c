"""docs/images.md speaks of options, folders, methods and files that are there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toporo.paper import BENCHMARKS
from toporo.paper.domainbed import SPECS
from toporo.vision import NETWORKS, STYLES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```\n(.*?)```", PAGE, flags=re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("toporo reproduce")
]


@pytest.mark.parametrize("name", SPECS)
def test_folders_and_domains_are_those_of_the_loader(name: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
    assert f"`{SPECS[name].folder}/" in row
    assert ", ".join(SPECS[name].domains) in row


def test_networks_styles_and_methods_exist() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `--set network=…` |"))
    assert set(re.findall(r"`([a-z0-9]+)`", row)) == set(NETWORKS)
    assert all(f"`{style}`" in PAGE for style in STYLES)
    for listed in re.findall(r"--methods ([a-z0-9,.-]+)", PAGE):
        assert set(listed.split(",")) <= set({method.name for method in BENCHMARKS["pacs"].protocol.get_methods()})


@pytest.mark.parametrize("command", [c for c in COMMANDS if "--out try" in c], ids=lambda c: c.split()[2])
def test_the_commands_to_try_run(
    command: str, toporo: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("imagecodecs")
    from tests.paper.tiny_floods import write_floods
    from tests.paper.tiny_images import write_tiny

    monkeypatch.chdir(tmp_path)
    words = shlex.split(command, comments=True)[1:]
    if words[1] == "pacs":
        write_tiny(tmp_path / "DIR", SPECS["pacs"], per_class=5)
        words += ["--set", "steps=2", "--variant", "photo"]  # what comes last counts; a quarter of the work
    else:
        write_floods(tmp_path / "DIR", side=32)
        words += ["--set", "size=16"]  # chips of 32 pixels
    done = toporo(*words)
    assert done.code == 0, done.err
    assert (tmp_path / words[words.index("--out") + 1] / "results.json").is_file()
