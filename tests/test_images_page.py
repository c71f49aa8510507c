"""docs/images.md speaks of options, folders, methods and files that are there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.documents import DOCS, code, commands, run_commands, text_of
from toporo.paper import BENCHMARKS
from toporo.paper.domainbed import SPECS
from toporo.vision import NETWORKS, STYLES

PAGE = text_of(DOCS / "images.md")
TO_TRY = [words for block in code(PAGE, "") for words in commands(block) if "--seeds" in words]


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


@pytest.mark.parametrize("words", TO_TRY, ids=lambda words: words[2])
def test_the_commands_to_try_run(
    words: list[str], toporo: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("imagecodecs")
    from tests.paper.tiny_floods import write_floods
    from tests.paper.tiny_images import write_tiny

    monkeypatch.chdir(tmp_path)
    if words[2] == "pacs":
        write_tiny(tmp_path / "DIR", SPECS["pacs"], per_class=5)
        less = ["--set", "steps=2", "--variant", "photo"]  # what comes last counts; a quarter of the work
    else:
        write_floods(tmp_path / "DIR", side=32)
        less = ["--set", "size=16"]  # chips of 32 pixels
    run_commands(toporo, [[*words, *less]], tmp_path)
    assert (tmp_path / words[words.index("--out") + 1] / "results.json").is_file()
