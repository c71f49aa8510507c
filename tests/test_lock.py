"""What is installed is locked, file by file; and what is known against it is said, or that nobody could be asked."""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "requirements").glob("*.lock")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RELEASE = re.compile(r"[a-z0-9-]+==[^ ]+( ; [^\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n")


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    yield importlib.import_module("audit")
    sys.modules.pop("audit")


def locked(*names: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", "".join(LOCKS[name] for name in names), re.MULTILINE))


def named(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0].lower().replace("_", "-") for one in requirements}


# ---------------------------------------------------------------- the files


@pytest.mark.parametrize("name", LOCKS)
def test_every_release_is_pinned_and_hashed(name: str) -> None:
    rest = RELEASE.sub("", re.sub(r"^#.*\n", "", LOCKS[name], flags=re.MULTILINE))
    assert rest == ""


def test_what_pyproject_asks_for_is_locked() -> None:
    build = PROJECT["build-system"]["requires"]
    assert named(PROJECT["project"]["dependencies"]) | named(build) <= locked("core").keys()
    extras = [one for extra in PROJECT["project"]["optional-dependencies"].values() for one in extra]
    assert named(extras) <= locked("core", "dev").keys()
    assert named(PROJECT["dependency-groups"]["tools"]) <= locked("tools").keys()
    assert build == [f"hatchling=={locked('core')['hatchling']}"], "the backend is pinned, to what is locked"


def test_the_files_agree() -> None:
    assert not locked("core").keys() & (locked("dev").keys() | locked("cuda").keys())
    assert locked("cpu")["torch"].partition("+")[0] == locked("core")["torch"]


def test_make_installs_nothing_that_is_not_checked() -> None:
    """But toporo itself, and what benchmarks compare it with."""
    made = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    assert "LOCKED := $(INSTALL) --require-hashes --no-deps\n" in made
    loose = re.findall(r"^\t?@.*\$\(INSTALL\) (.*)", made, re.MULTILINE)
    assert loose == [
        "--no-deps --no-build-isolation -e .",
        "--no-deps --target $(PEERS) --upgrade -r benchmarks/peers.txt",
    ]


# ---------------------------------------------------------------- make audit


SOUND = {"name": "numpy", "version": "2.0.0", "vulns": []}
FLAWS = [{"id": "GHSA-1", "fix_versions": ["3.1.3"]}, {"id": "GHSA-2", "fix_versions": []}]
HURT = {"name": "jinja2", "version": "3.1.2", "vulns": FLAWS}
SKIPPED = {"name": "torch", "skip_reason": "Dependency not found"}


@pytest.mark.parametrize(
    ("releases", "code", "words"),
    [
        ([SOUND], 0, "1 releases looked up, 0 known vulnerabilities, 0 not looked up."),
        (
            [SOUND, HURT, SKIPPED],
            1,
            "jinja2 3.1.2: GHSA-1, mended in 3.1.3\njinja2 3.1.2: GHSA-2, mended in no release",
        ),
        ([SOUND, SKIPPED], 3, "torch: not looked up (Dependency not found)"),
    ],
)
def test_what_is_known_is_said(
    audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], releases: list[Any], code: int, words: str
) -> None:
    fake = tmp_path / "pip_audit.py"
    fake.write_text(f"print({json.dumps({'dependencies': releases, 'fixes': []})!r})")
    assert audit.main([sys.executable, str(fake)], [tmp_path / "core.lock"]) == code
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("ends", ["raise ConnectionError('no such host')", "print('[]')", "raise SystemExit(1)"])
def test_a_database_out_of_reach_is_no_clean_bill(
    audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], ends: str
) -> None:
    fake = tmp_path / "pip_audit.py"
    fake.write_text(ends)
    assert audit.main([sys.executable, str(fake)], [tmp_path / "core.lock"]) == 3
    assert "Nothing was checked: the database of vulnerabilities could not be asked (" in capsys.readouterr().out
