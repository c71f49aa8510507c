"""The command line as a user meets it: its pages of help, exit codes, messages instead of tracebacks, commands that
other packages bring."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.commands import no_report
from toporo import __version__
from toporo.cli import OWN, load_command
from toporo.cli.running import interruptible

pytestmark = pytest.mark.usefixtures("no_data")
Run = Callable[..., Any]


def process(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """``toporo …`` in a process of its own."""
    command = [sys.executable, "-m", "toporo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def words(text: str) -> str:
    """Text without line breaks and frames."""
    return " ".join(text.replace("│", " ").split())


# ---------------------------------------------------------------- the page of help


@pytest.mark.parametrize("name", OWN)
def test_the_page_of_help_says_what_the_command_says_of_itself(name: str) -> None:
    """Its lines stand beside the commands, so that none is imported for it."""
    assert OWN[name] == load_command(name).help.split("\n\n")[0].replace("\n", " ")


def test_version_and_help(toporo: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert process("--version").stdout.strip() == f"toporo {__version__}"
    page = words(toporo("--help").out)
    for name, line in OWN.items():
        assert f" {name} {line}" in page
    assert words(toporo().out) in (
        page,
        "",
    )  # without a command, the same page; old versions of typer show it elsewhere
    page = toporo("reproduce", "--help").out
    for option in ("--seeds", "--methods", "--out", "--data", "--jobs", "--json"):
        assert option in page


def test_a_misspelt_command_is_told_what_was_meant(toporo: Run) -> None:
    done = toporo("predcit", "model")
    assert done.code == 2
    assert "No such command 'predcit'" in words(done.err)
    assert "predict" in done.err


# ---------------------------------------------------------------- results and mistakes


def test_reproduce_prints_a_table_and_writes_the_files(
    toporo: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("reproduce", "dg15", "--seeds", 1, "--methods", "erm,tro-physical")
    done = process(*arguments, "--jobs", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "TRO-physical" in done.stdout
    assert "67.56" in done.stdout
    assert "not the published file" in " ".join(done.stdout.split())
    assert "dg15: 2/2 runs" in done.stderr
    assert (tmp_path / "runs/dg15/results.json").is_file()
    assert (tmp_path / "runs/dg15/report.html").is_file()
    no_report(monkeypatch)
    assert "2 found from before" in toporo(*arguments, "--markdown").err
    again = toporo(*arguments, "--json")
    assert json.loads(again.out) == json.loads((tmp_path / "runs/dg15/results.json").read_text())
    assert "dg15:" not in again.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reproduce", "dg15", "--methods", "erm,foo"), "unknown method 'foo'"),
        (("reproduce", "dg15", "--data", "absent"), "no such data folder: absent (from --data"),
    ],
)
def test_a_users_mistake_is_one_message_and_exit_code_1(
    toporo: Run, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = toporo(*arguments)
    assert done.code == 1
    assert message in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_ends_a_process_as_it_ends_the_function(tmp_path: Path) -> None:
    """What the other tests see in this process holds for a real one."""
    for arguments, code in ((("predict", "absent", "x.csv"), 1), (("predict",), 2)):
        done = process(*arguments, cwd=tmp_path)
        assert done.returncode == code
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_data_folder_named_in_the_environment_must_exist(
    toporo: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPORO_DATA", str(tmp_path / "gone"))
    done = toporo("reproduce", "dg15")
    assert done.code == 1
    assert "the environment variable TOPORO_DATA" in done.err


# ---------------------------------------------------------------- commands of other packages

GREETING = """
import sys
import typer
from toporo.cli.running import interruptible, register

@register("greet")
def greet(name: str, wait: bool = False) -> None:
    \"\"\"Say hello to somebody.\"\"\"
    with interruptible("nobody was greeted"):
        if wait:
            print("waiting", flush=True)
            sys.stdin.readline()
    print(f"Hello, {name}!")

sums = typer.Typer(help="Sums, as far as they go.")
register("sums")(sums)

@sums.command("two")
def two() -> None:
    print(1 + 1)

@sums.command("three")
def three() -> None:
    print(1 + 2)
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a package whose entry points bring commands, each module with this text."""
    place = tmp_path / "site"
    about = place / "stranger-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("COLUMNS", "140")

    def install(**modules: str) -> None:
        lines = ["[toporo.commands]", *(f"{name} = {name}" for name in modules)]
        (about / "entry_points.txt").write_text("\n".join(lines))
        for name, text in modules.items():
            (place / f"{name}.py").write_text(text)

    return install


def test_another_package_brings_commands(stranger: Callable[..., None]) -> None:
    stranger(greetings=GREETING)
    page = words(process("--help").stdout)
    assert " greet Say hello to somebody." in page
    assert " sums Sums, as far as they go." in page
    assert process("greet", "Ada").stdout == "Hello, Ada!\n"
    assert process("sums", "two").stdout == "2\n"
    assert "--install-completion" not in process("sums", "--help").stdout


def test_a_command_that_cannot_be_used_breaks_nothing(stranger: Callable[..., None]) -> None:
    odd = "from toporo.cli.running import register\nregister('odd')(3)\n"
    stranger(greetings=GREETING, broken="import no_such_module\n", odd=odd)
    done = process("--help")
    assert done.returncode == 0
    assert " fit Fit a model" in words(done.stdout)
    assert " greet Say hello" in words(done.stdout)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("toporo: warning: toporo.commands: cannot load broken (ModuleNotFoundError: ")
    assert lines[1].startswith("toporo: warning: the command 'odd' cannot be used (")
    assert len(lines) == 2


def test_a_command_of_toporo_cannot_be_replaced(stranger: Callable[..., None]) -> None:
    stranger(greetings=GREETING.replace('"greet"', '"fit"'))
    assert "Fit a model for groups" in process("--help").stdout
    assert "Hello" not in process("fit", "Ada").stdout


# ---------------------------------------------------------------- interruption


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT as Unix has it")
@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_a_command_unless_it_is_ignored(
    stranger: Callable[..., None], ignored: bool, number: signal.Signals, code: int, word: str
) -> None:
    """A shell lets SIGINT be ignored where it starts a job in the background: the job must go on."""
    stranger(greetings=GREETING)
    if ignored:
        signal.signal(number, signal.SIG_IGN)  # a child inherits it; the fixture restores it
    command = [sys.executable, "-m", "toporo", "greet", "Ada", "--wait"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "waiting\n"
        running.send_signal(number)
        out, err = running.communicate("go on\n" if ignored else None, timeout=60)
    assert (running.returncode, out) == ((0, "Hello, Ada!\n") if ignored else (code, ""))
    assert err == ("" if ignored else f"toporo: {word}; nobody was greeted.\n")


@pytest.mark.usefixtures("interrupts")
def test_sigterm_is_handled_while_a_command_runs_and_left_to_a_program_that_handles_it(
    toporo: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[int] = []

    def struck(name: str) -> None:
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("it went on")

    monkeypatch.setattr("toporo.cli.load_command", struck)
    done = toporo("fit", "x.csv")
    assert (done.code, done.err) == (143, "toporo: terminated.\n")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "as it was"

    def theirs(number: int, frame: object) -> None:
        met.append(number)
        raise LookupError

    signal.signal(signal.SIGTERM, theirs)
    with pytest.raises(LookupError):
        toporo("fit", "x.csv")
    assert met == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is theirs
    with ThreadPoolExecutor(1) as pool:  # Python takes handlers from the main thread alone
        assert pool.submit(toporo, "--version").result().code == 0


def test_an_interrupt_is_one_sentence_and_exit_code_130(
    toporo: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a command does not look after it, as while it is imported."""

    def stopped(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("toporo.cli.load_command", stopped)
    done = toporo("fit", "x.csv")
    assert done.code == 130
    assert done.err == "toporo: interrupted.\n"
    with pytest.raises(typer.Exit), interruptible("two of three are written"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "toporo: interrupted; two of three are written.\n"
