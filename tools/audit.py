"""Say which locked releases have known vulnerabilities: `make audit`.

Exits with 0 where none is known, with 1 where one is, and with 3 where the database could not be asked: then nothing
is known about anything. pip-audit by itself exits with 0 for releases that it could not look up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: Seconds to wait for the database each time.
TIMEOUT = 15


def ask(lock: Path, program: Sequence[str]) -> list[dict[str, Any]]:
    """What pip-audit says about every release in a lock file; a RuntimeError where it cannot say anything."""
    options = ("--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off", "-s", "osv")
    done = subprocess.run(
        [*program, *options, "--timeout", str(TIMEOUT), "--requirement", str(lock)], capture_output=True, text=True
    )
    try:
        releases: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        raise RuntimeError(
            done.stderr.strip().rpartition("\n")[2] or f"pip-audit ended with {done.returncode}"
        ) from None
    return releases


def judge(releases: Sequence[dict[str, Any]]) -> tuple[list[str], int]:
    """Lines to print about these releases, and the code to exit with."""
    unknown = [one for one in releases if "skip_reason" in one]
    asked = [one for one in releases if "skip_reason" not in one]
    bad = [(one, flaw) for one in asked for flaw in one["vulns"]]
    lines = [
        f"{one['name']} {one['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no release yet'}"
        for one, flaw in bad
    ]
    lines += [f"{one['name']}: not looked up ({one['skip_reason']})" for one in unknown]
    lines.append(f"{len(asked)} releases looked up, {len(bad)} known vulnerabilities, {len(unknown)} not looked up.")
    return lines, 1 if bad else 3 if unknown else 0


def main(program: Sequence[str], locks: Sequence[Path]) -> int:
    """Print what is known of the locked releases."""
    try:
        releases = [one for lock in locks for one in ask(lock, program)]
    except RuntimeError as error:
        print(f"Nothing was checked: the database of vulnerabilities could not be asked ({error}).")
        return 3
    lines, code = judge(releases)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    tool = Path(sys.executable).with_name("pip-audit")
    sys.exit(main([str(tool)], sorted((ROOT / "requirements").glob("*.lock"))))
