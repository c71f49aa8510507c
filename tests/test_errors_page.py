"""docs/errors.md is what the commands print today, and every case on it ends as a user's mistake should."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture(scope="module")
def tool() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(TOOLS))
        yield importlib.import_module("errors_page")


@pytest.fixture(scope="module")
def messages(tool: Any) -> dict[Any, str]:
    """All cases, run once; one with a wrong exit code, a traceback or a file left behind ends this."""
    every: dict[Any, str] = tool.run_all(tool.all_cases())
    return every


def test_the_page_is_what_the_commands_print_now(tool: Any, messages: dict[Any, str]) -> None:
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(messages), "run python tools/errors_page.py"


def test_the_commands_people_start_with_are_covered(messages: dict[Any, str]) -> None:
    counts = Counter(case.command.split()[1] for case in messages)
    assert counts.total() >= 55
    assert counts["fit"] >= 12
    assert counts["predict"] >= 12
    assert counts["topology"] >= 8
    assert counts["doctor"] >= 8
    assert counts["reproduce"] >= 20


def test_every_message_is_a_sentence_of_toporo_that_names_what_was_found(messages: dict[Any, str]) -> None:
    for case, message in messages.items():
        assert message.splitlines()[-1].startswith("toporo: " if case.code == 1 else "Error: "), case.title
        assert len(case.names) > 1, case.title  # that the message holds it is what a case is held to, below
        assert "object at 0x" not in message, case.title


def test_no_case_is_there_twice(messages: dict[Any, str]) -> None:
    titles = Counter((case.command.split()[1], case.title) for case in messages)
    assert [title for title, count in titles.items() if count > 1] == []
    asked = Counter((case.command, *sorted(case.files.items())) for case in messages)
    assert max(asked.values()) == 1


def test_a_glance_at_a_file_shows_lines_that_are_there(tool: Any, messages: dict[Any, str]) -> None:
    glances = [case for case in messages if case.look]
    assert glances
    for case in glances:
        _, _, count, name = case.look.split()
        assert len(case.files[name].decode().splitlines()) >= int(count)
        assert f"$ {case.look}\n" in tool.entry(case, messages[case])


# ---------------------------------------------------------------- what a case is held to


def ends(
    code: int, *, out: str = "", err: str = "toporo: no such file: x.csv. Look again.", leaves: str = ""
) -> Callable[[], None]:
    """A command that ends like this."""

    def main() -> None:
        sys.stdout.write(out)
        sys.stderr.write(err)
        if leaves:
            Path(leaves).write_text("part")
        sys.exit(code)

    return main


@pytest.fixture
def judged(tool: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], str]:
    """What the tool makes of a command that ends in some way, where a message about x.csv and code 1 is expected."""
    case = importlib.import_module("error_cases").Case("a title", "toporo fit x.csv", "x.csv", {"y.csv": b"a,b\n"})

    def judge(main: Callable[[], None]) -> str:
        monkeypatch.setattr(tool.cli, "main", main)
        return str(tool.run(case))

    return judge


def test_an_orderly_end_gives_the_message(judged: Callable[..., str]) -> None:
    assert judged(ends(1)) == "toporo: no such file: x.csv. Look again."


@pytest.mark.parametrize(
    ("main", "complaint"),
    [
        (ends(0), "exit code is 0, expected 1"),
        (ends(2), "exit code is 2, expected 1"),
        (ends(1, out="half a table"), "standard output holds 'half a table'"),
        (ends(1, err="Traceback (most recent call last): x.csv"), "traceback"),
        (ends(1, err="toporo: something is wrong."), "does not name 'x.csv'"),
        (ends(1, err="/usr/lib/frame.py:12: UserWarning: x.csv"), "path of this machine"),
        (ends(1, leaves=".model.part"), r"made or changed: \['\.model\.part'\]"),
        (ends(1, leaves="y.csv"), r"made or changed: \['y\.csv'\]"),
    ],
)
def test_any_other_end_is_told(judged: Callable[..., str], main: Callable[[], None], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        judged(main)


def test_an_empty_folder_that_stays_behind_is_told(judged: Callable[..., str]) -> None:
    def main() -> None:
        Path("runs").mkdir()
        ends(1)()

    with pytest.raises(ValueError, match=r"made or changed: \['runs'\]"):
        judged(main)


def test_an_exception_that_comes_through_is_told(judged: Callable[..., str]) -> None:
    def main() -> None:
        raise KeyError("x.csv")

    with pytest.raises(ValueError, match="KeyError came through"):
        judged(main)


def test_a_failing_case_keeps_the_page_from_being_made(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool.cli, "main", ends(0))
    with pytest.raises(SystemExit, match="2 of 2 cases did not end as they should"):
        tool.run_all(tool.all_cases()[:2])


def test_a_frame_around_a_message_goes_and_a_broken_line_is_joined(tool: Any) -> None:
    framed = "Usage: toporo fit\n╭─ \x1b[31mError\x1b[0m ──╮\n│ Missing       │\n│ option '--x'. │\n╰───────────────╯\n"
    assert tool.plain(framed) == "Error: Missing option '--x'."


def test_check_finds_a_page_that_is_not_up_to_date(
    tool: Any, messages: dict[Any, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tool, "run_all", lambda cases: messages)
    monkeypatch.setattr(tool, "PAGE", tmp_path / "docs" / "errors.md")
    monkeypatch.setattr(sys, "argv", ["errors_page.py", "--check"])
    with pytest.raises(SystemExit, match=r"errors\.md is not what the cases print now"):
        tool.main()
    assert not tool.PAGE.exists()
    monkeypatch.setattr(sys, "argv", ["errors_page.py"])
    tool.main()
    monkeypatch.setattr(sys, "argv", ["errors_page.py", "--check"])
    tool.main()
    tool.PAGE.write_text(tool.PAGE.read_text() + "\n")
    with pytest.raises(SystemExit, match="run python tools/errors_page"):
        tool.main()
