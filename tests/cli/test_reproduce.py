"""``toporo reproduce tpt48`` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import no_report
from tests.paper.fake_nclimdiv import write_fake

pytestmark = pytest.mark.usefixtures("no_data")


Toporo = Callable[..., Any]


def test_a_variant_gives_one_table(toporo: Toporo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fake(tmp_path / "data/tpt48/climdiv-tmpcst-v1.0.0-20200106")
    chosen = ("--data", "data", "--variant", "north-south/season", "--methods", "persistence,linear-erm")
    done = toporo("reproduce", "tpt48", *chosen, "--jobs", 1)
    assert done.code == 0, done.err
    assert "TPT-48 N→S, season-aligned windows" in done.out
    assert "Linear ERM" in done.out
    assert "match no published checksum" in " ".join(done.out.split())
    assert max(len(line) for line in done.out.splitlines() if "report" not in line) <= 132
    assert (tmp_path / "runs/tpt48/report.html").is_file()
    no_report(monkeypatch)
    again = toporo("reproduce", "tpt48", *chosen, "--json")
    assert json.loads(again.out) == json.loads((tmp_path / "runs/tpt48/results.json").read_text())
    assert {row["variant"] for row in json.loads(again.out)} == {"north-south/season"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tpt48",), "toporo data get tpt48"),
        (("dg15", "--variant", "season"), "dg15 has no variants (found 'season'): leave --variant out"),
    ],
)
def test_a_users_mistake_is_one_message_and_exit_code_1(
    toporo: Toporo, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = toporo("reproduce", *arguments)
    assert done.code == 1
    assert message in done.err
    assert list(tmp_path.iterdir()) == []
