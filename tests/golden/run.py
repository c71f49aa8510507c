"""Compute the golden parts and compare them with the stored ones."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from .compare import differences, to_json
from .parts import PARTS, Part

HERE = Path(__file__).parent
MODULES = ("commands", "models", "research", "tables", "topology")
#: Differences of a part that are printed.
SHOWN = 12


def load_parts() -> dict[str, Part]:
    """All parts, by name."""
    for module in MODULES:
        import_module(f"tests.golden.{module}")
    return PARTS


def compute(name: str) -> tuple[str, str, float]:
    """Compute a part: its result as JSON, what went wrong instead, and the seconds it took."""
    began, printed = time.perf_counter(), io.StringIO()
    with (
        tempfile.TemporaryDirectory(prefix="toporo-golden-") as folder,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            # Written and read again, so what is compared is what would be stored.
            result, error = json.dumps(to_json(load_parts()[name].run(Path(folder)))), ""
        except Exception:
            result, error = "", f"{printed.getvalue()}{traceback.format_exc()}"
    return result, error, time.perf_counter() - began


def store(path: Path, result: object) -> None:
    """Write a result, one entry of the outermost two levels per line."""
    path.write_text(_lines(result, 2) + "\n", encoding="utf-8")


def _lines(value: object, depth: int, indent: str = "") -> str:
    if not isinstance(value, dict) or not depth or not value:
        return json.dumps(value, separators=(",", ":"))
    inner = indent + " "
    entries = [f"{inner}{json.dumps(key)}: {_lines(entry, depth - 1, inner)}" for key, entry in value.items()]
    return "{\n" + ",\n".join(entries) + "\n" + indent + "}"


def check(part: Part, result: str, error: str) -> list[str]:
    """What is wrong with a part."""
    if error:
        return error.splitlines()[-SHOWN:]
    path = HERE / f"{part.name}.json"
    if not path.exists():
        return [f"nothing is stored: make golden-update NAME={part.name}"]
    expected = json.loads(path.read_text(encoding="utf-8"))
    return list(differences(json.loads(result), expected, part.tolerance))


def main() -> int:
    """Compute, compare or store, and print one line per part."""
    parser = argparse.ArgumentParser(prog="make golden", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts; all of them unless given")
    parser.add_argument("--update", action="store_true", help="store the results instead of comparing them")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4), help="parts at a time")
    arguments = parser.parse_args()
    # Small computations, many at a time: threads would only wait for one another. Children inherit this.
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    parts = load_parts()
    if unknown := [name for name in arguments.names if name not in parts]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(sorted(parts))}")
    chosen = [parts[name] for name in arguments.names or parts]
    lacking = {part.name: why for part in chosen if (why := part.missing())}
    running = [part for part in chosen if part.name not in lacking]
    began, failed = time.perf_counter(), 0
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        results = {part.name: pool.submit(compute, part.name) for part in running}
        for part in running:
            result, error, seconds = results[part.name].result()
            if arguments.update and not error:
                store(HERE / f"{part.name}.json", json.loads(result))
                wrong = []
            else:
                wrong = check(part, result, error)
            failed += bool(wrong)
            verdict = "stored" if arguments.update else "same"
            print(f"{'DIFFERS' if wrong else verdict:<8} {part.name:<40} {seconds:5.1f} s", flush=True)
            for line in wrong[:SHOWN]:
                print(f"         {line}")
            if len(wrong) > SHOWN:
                print(f"         … and {len(wrong) - SHOWN} more")
    for name, why in lacking.items():
        print(f"skipped  {name:<40} {why}")
    size = sum(path.stat().st_size for path in HERE.glob("*.json"))
    print(f"{size / 1000:.0f} KB stored; {time.perf_counter() - began:.0f} s")
    print(f"{len(running) - failed} passed, {failed} failed, {len(lacking)} skipped")
    return 1 if failed else 0
