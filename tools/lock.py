"""Write requirements/*.lock: the releases that toporo is installed with, and the hashes of all files of each.

    make lock               # only what pyproject.toml newly asks for changes
    make lock UPGRADE=1     # the newest releases of everything

One resolution for every system and every Python from 3.11 on is parted into core.lock (what toporo and its build
need), dev.lock (what the extras and the tests add) and cuda.lock (what torch asks for on Linux, but for CPU builds).
tools.lock holds the tools of `make lock` and `make audit`, which live in an environment of their own. cpu.lock, CPU
builds of torch that are not on the index, is kept by hand.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
CUDA = re.compile(r"(cuda|nvidia|triton)\b")


def compile_lock(sources: Sequence[str], asked: Sequence[str], old: str, *, upgrade: bool = False) -> dict[str, str]:
    """By name, in order: the lines of every release that these sources need."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder, "before.lock")
        before.write_text(old, encoding="utf-8")
        command = [
            *(Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", *sources, "--output-file", before),
            *("--universal", "--generate-hashes", "--no-annotate", "--no-header", "--no-config"),
            *("--python-version", "3.11", *(["--upgrade"] if upgrade else [])),
        ]
        subprocess.run(command, input="\n".join(asked), text=True, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        return entries(before.read_text(encoding="utf-8"))


def entries(text: str) -> dict[str, str]:
    """The parts of a lock file by the name of the package, of which each Python may have a release of its own."""
    parts: dict[str, str] = {}
    for part in re.findall(r"^\w.*?(?=^\w|\Z)", text, re.MULTILINE | re.DOTALL):
        name = part.partition("==")[0]
        parts[name] = parts.get(name, "") + part
    return parts


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true")
    upgrade = parser.parse_args(arguments).upgrade
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    old = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.lock")}
    before = "".join(old[name] for name in ("core", "cuda", "dev"))
    everything = compile_lock(["pyproject.toml", "-", "--all-extras"], build, before, upgrade=upgrade)
    core = compile_lock(["pyproject.toml", "-"], build, "".join(everything.values()))
    parts: dict[str, list[str]] = {"core": [], "cuda": [], "dev": []}
    for name, part in everything.items():
        parts["cuda" if CUDA.match(name) else "core" if name in core else "dev"].append(part)
    parts["tools"] = list(compile_lock(["--group", "tools"], [], old["tools"], upgrade=upgrade).values())
    for name, lines in parts.items():
        text = "".join(["# Made by make lock; see tools/lock.py.\n", *lines])
        (FOLDER / f"{name}.lock").write_text(text, encoding="utf-8")
    release = everything["torch"].split()[0]
    if not all(part.startswith(f"{release}+") for part in entries(old["cpu"]).values()):
        sys.exit(f"requirements/cpu.lock has another release than {release}: renew it by hand, or empty it.")


if __name__ == "__main__":
    main()
